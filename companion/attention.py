"""Attention: softmax, masks, one attention, many heads. Chapters 01 and 02."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Exponentials that sum to 1 along `dim`; all zeros where every score is -inf.

    The maximum is subtracted first, so the largest term is e^0 = 1 and the sum is at
    least 1: the clamp below acts only on rows in which nothing may be attended.
    """
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
    if n_keys < n_queries:
        raise ValueError(f"{n_queries} queries need as many keys, there are {n_keys}")
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(n_keys - n_queries)


def padding_mask(lengths: Tensor, n_keys: int) -> Tensor:
    """(b 1 1 s): True at the first `lengths` (b) keys of each sequence."""
    if len(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= n_keys:
        raise ValueError(f"lengths {lengths.tolist()} do not lie within 0 to {n_keys}")
    return rearrange(torch.arange(n_keys) < lengths[:, None], "b s -> b 1 1 s")


def check_attention(queries: Tensor, keys: Tensor, mask: Tensor | None) -> None:
    """Raise ValueError where sizes or dtypes do not fit together."""
    (t, d), (s, d_keys) = queries.shape[-2:], keys.shape[-2:]
    if d != d_keys:
        raise ValueError(f"queries have {d} features and keys {d_keys}")
    if queries.dtype != keys.dtype:
        raise ValueError(f"queries are {queries.dtype} and keys {keys.dtype}")
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ValueError(f"mask is {mask.dtype}; it must be bool, True = may attend")
    if mask.dim() < 2 or mask.shape[-2] not in (1, t) or mask.shape[-1] not in (1, s):
        raise ValueError(
            f"mask {tuple(mask.shape)} does not fit {t} queries and {s} keys"
        )


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
    check_attention(queries, keys, mask)
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if bias is not None:
        scores = scores + bias
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
    if keys.shape[-2] != values.shape[-2]:
        raise ValueError(f"{keys.shape[-2]} keys have {values.shape[-2]} values")
    return attention_weights(queries, keys, mask, bias) @ values


def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`attention` by PyTorch's kernel, which never stores the (t s) weights."""
    check_attention(queries, keys, mask)
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


class MultiHeadAttention(nn.Module):
    """Attention in `n_heads` subspaces of `d_model / n_heads` features each.

    x (b t c) asks; context (b s c), or x itself, is asked -> (b t c). The mask is True
    where attention is allowed: `nn.MultiheadAttention` has it the other way round.
    `positions` is a function that turns queries and keys by where they stand, such as
    `rotary(...)`; `bias` is added to the scores. `cache` keeps keys and values: x goes
    on from what it holds; of a context they are computed in the first call alone.
    `engine` is "fused" or "explicit"; the explicit one passes its weights (b h t s)
    through `self.pattern`, where a hook can read them. Each of `n_kv_heads` heads of
    keys and values serves n_heads / n_kv_heads heads of queries (Ainslie et al. 2023).
    Raises ValueError for sizes that do not divide. Vaswani et al. 2017, section 3.2.2.
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
        if d_model % n_heads:
            raise ValueError(
                f"d_model ({d_model}) is not divisible by n_heads ({n_heads})"
            )
        if n_kv_heads < 1 or n_heads % n_kv_heads:
            raise ValueError(
                f"n_heads ({n_heads}) is not divisible by n_kv_heads ({n_kv_heads})"
            )
        if engine not in ("fused", "explicit"):
            raise ValueError(f"engine is {engine!r}, not 'fused' or 'explicit'")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.normalize, self.engine = normalize, engine
        d_kv = d_model // n_heads * n_kv_heads
        self.to_queries = nn.Linear(d_model, d_model, bias)
        self.to_keys = nn.Linear(d_model, d_kv, bias)
        self.to_values = nn.Linear(d_model, d_kv, bias)
        self.to_output = nn.Linear(d_model, d_model, bias)
        self.pattern = nn.Identity()

    def _place(self, x: Tensor, positions) -> Tensor:
        if self.normalize:  # unit variance, without a learned gain (Henry et al. 2020)
            x = F.rms_norm(x, x.shape[-1:])
        return x if positions is None else positions(x)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        positions=None,
        cache=None,
        bias: Tensor | None = None,
    ) -> Tensor:
        queries = rearrange(self.to_queries(x), "b t (h d) -> b h t d", h=self.n_heads)
        queries = self._place(queries, positions)
        if context is not None and cache is not None and len(cache):
            keys, values = cache.read()  # the context's, computed once
        else:
            context = x if context is None else context
            keys, values = (
                rearrange(project(context), "b s (h d) -> b h s d", h=self.n_kv_heads)
                for project in (self.to_keys, self.to_values)
            )
            keys = self._place(keys, positions)
            if cache is not None:
                keys, values = cache.append(keys, values)
        if self.n_kv_heads < self.n_heads:
            g = self.n_heads // self.n_kv_heads
            keys, values = (
                repeat(x, "b h s d -> b (h g) s d", g=g) for x in (keys, values)
            )
        if self.engine == "explicit":
            heads = self.pattern(attention_weights(queries, keys, mask, bias)) @ values
        else:
            heads = fused_attention(queries, keys, values, mask, bias)
        return self.to_output(rearrange(heads, "b h t d -> b t (h d)"))
