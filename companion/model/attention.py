"""Attention: softmax, masks, one attention, many heads. Chapters 01 and 02."""

import itertools
import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from ..inputs import check_name, check_tensor, check_whole, shown
from .flash_attention import check_attention, check_mask, flash_attention
from .positions import CAUSAL, apply_rotary

ENGINES = ("fused", "explicit", "flash")


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Exponentials that sum to 1 along `dim`; all zeros where every score is -inf.

    The maximum is subtracted first, so the largest term is e^0 = 1 and the sum is at
    least 1: the clamp below acts only on rows in which nothing may be attended.
    """
    check_tensor("floats", "...", scores=scores)
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

    Raises ValueError for lengths outside 0 to n_keys. Only lengths on the CPU are
    read: elsewhere the reading would wait for the device.
    """
    check_tensor("integers", "b", lengths=lengths)
    if lengths.is_cpu and bool(((lengths < 0) | (lengths > n_keys)).any()):
        raise ValueError(f"lengths {lengths.tolist()} do not lie within 0 to {n_keys}")
    keys = torch.arange(n_keys, device=lengths.device)
    return rearrange(keys < lengths[:, None], "b s -> b 1 1 s")


def attention_weights(queries: Tensor, keys: Tensor, mask=None) -> Tensor:
    """How much each query attends to each key: softmax(Q Kᵀ / √d).

    queries (b h t d), keys (b h s d) -> (b h t s). The mask, broadcastable to that, is
    True where a query may attend, or floats that are added to the scores. Rows sum to
    1, or to 0 where the mask allows no key. The queries are divided before the product,
    which could overflow in float16. Raises ValueError where sizes or dtypes disagree.
    Vaswani et al. 2017, eq. 1.
    """
    check_attention(queries, keys, keys, mask)
    scores = queries / math.sqrt(queries.shape[-1]) @ keys.mT
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    return softmax(scores)


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask=None) -> Tensor:
    """The values (b h s d) averaged by `attention_weights` -> (b h t d)."""
    check_attention(queries, keys, values, mask)
    return attention_weights(queries, keys, mask) @ values


class MultiHeadAttention(nn.Module):
    """Attention in `n_heads` subspaces of `d_model / n_heads` features each.

    x (b t c) asks; the context (b s c), or x itself, is asked -> (b t c). A context may
    be a pair, the keys and values (b s c) that `to_keys` and `to_values` made of it.
    `mask` is as in `attention_weights`, or "causal", which is `causal_mask` for the
    queries and all keys; `nn.MultiheadAttention`'s is True where attention is
    forbidden. `rope` rotates queries and keys, see `apply_rotary`.
    `store` takes the new keys and values (b h t d) and gives all there are, (b h s d).
    `engine` is one of ENGINES; the explicit one passes its weights (b h t s) through
    `self.pattern`, where a hook can read them. Each of `n_kv_heads` heads of keys and
    values serves n_heads / n_kv_heads heads of queries (Ainslie et al. 2023).
    `qk_norm`: queries and keys have unit variance (Henry et al. 2020).
    Raises ValueError for sizes that do not divide and for a mask that is none of these.
    Vaswani et al. 2017, sec. 3.2.2.
    """

    def __init__(
        self,
        d_model,
        n_heads,
        bias=True,
        *,
        n_kv_heads=None,
        qk_norm=False,
        engine="fused",
    ):
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        check_whole(**sizes)
        check_name(ENGINES, engine=engine)
        for (name, size), (part, n) in itertools.pairwise(sizes.items()):
            if size % n:
                raise ValueError(f"{name} ({size}) is not divisible by {part} ({n})")
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.n_heads_per_kv_head = n_heads // n_kv_heads
        self.qk_norm, self.engine = qk_norm, engine
        self.to_queries = nn.Linear(d_model, d_model, bias)
        self.to_keys = nn.Linear(d_model, n_kv_heads * self.d_head, bias)
        self.to_values = nn.Linear(d_model, n_kv_heads * self.d_head, bias)
        self.to_output = nn.Linear(d_model, d_model, bias)
        self.pattern = nn.Identity()

    def forward(
        self, x: Tensor, context=None, *, mask=None, rope=None, store=None
    ) -> Tensor:
        asked, heads = x if context is None else context, (-1, self.d_head)
        made = isinstance(asked, tuple)
        keys, values = asked if made else (self.to_keys(asked), self.to_values(asked))
        queries = self.to_queries(x).unflatten(-1, heads).transpose(1, 2)
        keys = keys.unflatten(-1, heads).transpose(1, 2)
        values = values.unflatten(-1, heads).transpose(1, 2)
        if self.qk_norm:
            queries, keys = F.rms_norm(queries, heads[1:]), F.rms_norm(keys, heads[1:])
        if rope is not None:
            queries, keys = apply_rotary(queries, rope), apply_rotary(keys, rope)
        if store is not None:
            keys, values = store(keys, values)
        out = self.attend(queries, keys, values, mask)
        return self.to_output(out.transpose(1, 2).flatten(2))

    def attend(self, queries, keys, values, mask=None) -> Tensor:
        """The values (b h s d) averaged for each query (b h t d), by one of ENGINES."""
        g = self.n_heads_per_kv_head
        causal = False
        if isinstance(mask, str):
            if mask != CAUSAL:
                raise ValueError(f"mask is {shown(mask)}; the one name is {CAUSAL!r}")
            # The kernel aligns the first query and key, `causal_mask` the last of both:
            # that is the same only for as many queries as keys.
            causal = self.engine == "fused" and queries.shape[-2] == keys.shape[-2]
            if causal:
                mask = None
            else:
                mask = causal_mask(queries.shape[-2], keys.shape[-2], queries.device)
        elif mask is not None:
            check_mask(mask)
            if mask.dtype != torch.bool:
                mask = mask.to(queries.dtype)

        if self.engine == "fused":
            shape = queries.shape
            one = g > 1 and shape[2] == 1 and not causal
            if one and (mask is None or mask.dim() < 3 or mask.shape[-3] == 1):
                # Rows of one matrix: in bfloat16 five times as fast as heads.
                queries = queries.reshape(shape[0], -1, g, shape[3])
            how = {"is_causal": causal, "enable_gqa": g > 1}
            out = F.scaled_dot_product_attention(queries, keys, values, mask, **how)
            return out.view(shape)

        keys, values = (x.repeat_interleave(g, 1) for x in (keys, values))
        if self.engine == "flash":
            return flash_attention(queries, keys, values, mask)
        return self.pattern(attention_weights(queries, keys, mask)) @ values
