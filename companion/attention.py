"""Attention: softmax, masks, one attention, many heads. Chapters 01 and 02."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from .block_attention import block_attention
from .inputs import (
    check_attention,
    check_features,
    check_name,
    check_tensor,
    check_whole,
)

ENGINES = ("fused", "explicit", "blocks")


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Exponentials that sum to 1 along `dim`; all zeros where every score is -inf.

    The maximum is subtracted first, so the largest term is e^0 = 1 and the sum is at
    least 1: the clamp below acts only on rows in which nothing may be attended.
    Raises ValueError for what is not floats, and for an axis that is not there.
    """
    check_tensor("floats", "...", scores=scores)
    if dim not in range(-scores.dim(), scores.dim()):
        raise ValueError(f"dim is {dim!r}; scores have axes 0 to {scores.dim() - 1}")
    if not scores.numel():
        return scores
    lowest = torch.finfo(scores.dtype).min
    maximum = scores.detach().amax(dim, keepdim=True).clamp(min=lowest)
    exponentials = (scores - maximum).exp()
    return exponentials / exponentials.sum(dim, keepdim=True).clamp(min=1)


def causal_mask(n_queries: int, n_keys: int | None = None, device=None) -> Tensor:
    """(t s): True where the key is not later than the query; the last of both align.

    With a cache there are more keys than queries, and query t sees the keys up to
    s = t + n_keys - n_queries. PyTorch's `is_causal=True` aligns the first of both.
    """
    n_keys = n_queries if n_keys is None else n_keys
    check_whole(0, n_queries=n_queries, n_keys=n_keys)
    if n_keys < n_queries:
        raise ValueError(f"{n_queries} queries need as many keys, there are {n_keys}")
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(n_keys - n_queries)


def padding_mask(lengths: Tensor, n_keys: int) -> Tensor:
    """(b 1 1 s): True at the first `lengths` (b) keys of each sequence.

    Raises ValueError for lengths outside 0 to n_keys; they are read on the CPU alone,
    since elsewhere that would wait for the device.
    """
    check_tensor("integers", "b", lengths=lengths)
    check_whole(0, n_keys=n_keys)
    if lengths.is_cpu and len(lengths):
        if not 0 <= int(lengths.min()) <= int(lengths.max()) <= n_keys:
            raise ValueError(
                f"lengths {lengths.tolist()} do not lie within 0 to {n_keys}"
            )
    keys = torch.arange(n_keys, device=lengths.device)
    return rearrange(keys < lengths[:, None], "b s -> b 1 1 s")


def attention_weights(
    queries: Tensor,
    keys: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """How much each query attends to each key: softmax(Q Kᵀ / √d + bias).

    queries (b h t d), keys (b h s d), mask bool and bias float broadcastable to
    (b h t s) -> (b h t s). Rows sum to 1, or to 0 where the mask allows no key.
    Raises ValueError where sizes or dtypes disagree. Vaswani et al. 2017, eq. 1.
    """
    check_attention(queries, keys, None, mask, bias)
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return softmax(scores)


def attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The values (b h s d) averaged by `attention_weights` -> (b h t d)."""
    check_attention(queries, keys, values, mask, bias)
    return attention_weights(queries, keys, mask, bias) @ values


def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`attention` by PyTorch's kernel, which never stores the (t s) weights."""
    check_attention(queries, keys, values, mask, bias)
    if bias is not None:
        bias = bias.to(queries.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


class MultiHeadAttention(nn.Module):
    """Attention in `n_heads` subspaces of `d_model / n_heads` features each.

    x (b t c) asks; context, or x itself, is asked -> (b t c). A context is (b s c), or
    what `keys_and_values` made of it once and for all. The mask is True where attention
    is allowed: `nn.MultiheadAttention` has it the other way round. `turn` rotates
    queries and keys by where they stand, as `rotary(...)` does; `bias` is added to the
    scores; with a `cache`, x goes on from the keys and values that it holds.
    `engine` is one of ENGINES; the explicit one passes its weights (b h t s) through
    `self.pattern`, where a hook can read them. Each of `n_kv_heads` heads of keys and
    values serves n_heads / n_kv_heads heads of queries (Ainslie et al. 2023).
    Raises ValueError for sizes that do not divide, tensors of other shapes, and for a
    context with a turn or a cache, which are x's own. Vaswani et al. 2017, sec. 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        bias: bool = True,
        *,
        n_kv_heads: int | None = None,
        normalize: bool = False,
        engine: str = "fused",
    ):
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_whole(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads)
        check_name(ENGINES, engine=engine)
        if d_model % n_heads:
            raise ValueError(
                f"d_model ({d_model}) is not divisible by n_heads ({n_heads})"
            )
        if n_heads % n_kv_heads:
            raise ValueError(
                f"n_heads ({n_heads}) is not divisible by n_kv_heads ({n_kv_heads})"
            )
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.n_shared = n_heads // n_kv_heads
        self.normalize, self.engine = normalize, engine
        self.to_queries = nn.Linear(d_model, d_model, bias)
        self.to_keys = nn.Linear(d_model, n_kv_heads * self.d_head, bias)
        self.to_values = nn.Linear(d_model, n_kv_heads * self.d_head, bias)
        self.to_output = nn.Linear(d_model, d_model, bias)
        self.pattern = nn.Identity()

    def forward(
        self,
        x: Tensor,
        context: Tensor | tuple[Tensor, Tensor] | None = None,
        *,
        mask: Tensor | None = None,
        turn: Callable[[Tensor], Tensor] | None = None,
        bias: Tensor | None = None,
        cache=None,
    ) -> Tensor:
        check_features(x, self.to_queries.in_features)
        if context is not None and (turn is not None or cache is not None):
            raise ValueError("turn and cache are for self-attention, not for a context")
        queries = self.split(self.to_queries(x), turn)
        if isinstance(context, tuple):
            keys, values = context
        else:
            keys, values = self.keys_and_values(x if context is None else context, turn)
        if cache is not None:
            keys, values = cache.append(keys, values)
        heads = self.attend(queries, keys, values, mask, bias)
        return self.to_output(rearrange(heads, "b h t d -> b t (h d)"))

    def split(self, x: Tensor, turn: Callable | None = None) -> Tensor:
        """Queries or keys (b t c) by heads, normalised and turned: (b h t d)."""
        x = self.by_heads(x)
        if self.normalize:  # unit variance, without a learned gain (Henry et al. 2020)
            x = F.rms_norm(x, (self.d_head,))
        return x if turn is None else turn(x)

    def keys_and_values(
        self, context: Tensor, turn: Callable | None = None
    ) -> tuple[Tensor, Tensor]:
        """What a context (b s c) offers, two tensors (b h s d): its keys and values."""
        check_features(context, self.to_keys.in_features)
        keys = self.split(self.to_keys(context), turn)
        return keys, self.by_heads(self.to_values(context))

    def by_heads(self, x: Tensor) -> Tensor:
        """x (b t h·d) -> (b h t d), in a third of the time of a pattern."""
        return x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)

    def attend(self, queries, keys, values, mask=None, bias=None) -> Tensor:
        """The values (b h s d) averaged for each query (b h t d), by one of ENGINES."""
        if self.n_shared > 1 and self.engine == "fused" and queries.shape[-2] == 1:
            return self.attend_together(queries, keys, values, mask, bias)
        if self.n_shared > 1:
            keys, values = (
                repeat(x, "b h s d -> b (h g) s d", g=self.n_shared)
                for x in (keys, values)
            )
        if self.engine == "explicit":
            return self.pattern(attention_weights(queries, keys, mask, bias)) @ values
        engine = fused_attention if self.engine == "fused" else block_attention
        return engine(queries, keys, values, mask, bias)

    def attend_together(self, queries, keys, values, mask=None, bias=None) -> Tensor:
        """One query a head: those that share keys are rows, and no key is repeated."""
        b, h, t, d = queries.shape
        rows = (
            x
            if x is None or x.dim() < 3 or x.shape[-3] == 1
            else rearrange(x, "... (h g) t s -> ... h (g t) s", g=self.n_shared)
            for x in (mask, bias)
        )
        queries = queries.reshape(b, -1, self.n_shared, d)
        return fused_attention(queries, keys, values, *rows).view(b, h, t, d)
