"""Attention in blocks of keys: never more than (t, block) weights at once. Chapter 09.

Softmax in one pass: Milakov and Gimelshein 2018. Attention by it: Rabe and Staats 2021;
with its backward pass: Dao et al. 2022, algorithms 1 and 4.
"""

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..inputs import check_tensor, check_whole, shown


def check_mask(mask) -> None:
    """Raise ValueError unless it is a tensor of bool, or of floats to be added."""
    if isinstance(mask, Tensor):
        if mask.dtype == torch.bool or mask.is_floating_point():
            return
    raise ValueError(f"mask is {shown(mask)}; it must be bool, True = may attend")


def check_attention(queries, keys, values, mask) -> None:
    """Raise ValueError unless (b h t d), (b h s d), (b h s d) and (b h t s) fit."""
    check_tensor("floats", "... t d", queries=queries, keys=keys, values=values)
    (*_, t, d), (*_, s, d_keys) = queries.shape, keys.shape
    if d != d_keys:
        raise ValueError(f"queries have {d} features and keys {d_keys}")
    if s != values.shape[-2]:
        raise ValueError(f"{s} keys have {values.shape[-2]} values")
    if queries.dtype != keys.dtype:
        raise ValueError(f"queries are {queries.dtype} and keys {keys.dtype}")
    if mask is None:
        return
    check_mask(mask)
    if mask.dim() < 2 or mask.shape[-2] not in (1, t) or mask.shape[-1] not in (1, s):
        raise ValueError(
            f"mask {tuple(mask.shape)} does not fit {t} queries and {s} keys"
        )


def block_scores(queries, keys, mask, here: slice) -> Tensor:
    """The scores of all queries and the keys `here`: (b h t block)."""
    scores = queries / math.sqrt(queries.size(-1)) @ keys[..., here, :].mT
    if mask is not None and mask.dtype == torch.bool:
        return scores.masked_fill(~mask[..., here], -math.inf)
    return scores if mask is None else scores + mask[..., here]


class FlashAttention(torch.autograd.Function):
    """What is kept for the way back is one number a query, log Σ exp(scores)."""

    @staticmethod
    def forward(ctx, queries, keys, values, mask, size):
        lowest = torch.finfo(queries.dtype).min
        maximum = queries.new_full((*queries.shape[:-1], 1), -math.inf)
        total = torch.zeros_like(maximum)
        out = queries.new_zeros(*queries.shape[:-1], values.size(-1))
        for start in range(0, keys.size(-2), size):
            here = slice(start, start + size)
            scores = block_scores(queries, keys, mask, here)
            largest = torch.maximum(maximum, scores.amax(-1, keepdim=True))
            finite = largest.clamp(min=lowest)  # a row of -inf gives 0, not NaN
            weights, shrink = (scores - finite).exp(), (maximum - finite).exp()
            total = total * shrink + weights.sum(-1, keepdim=True)
            out = out * shrink + weights @ values[..., here, :]
            maximum = largest
        total = total.clamp(min=1)  # acts only on rows in which nothing is attended
        out = out / total
        ctx.save_for_backward(queries, keys, values, mask, out, maximum + total.log())
        ctx.size = size
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out):
        queries, keys, values, mask, out, log_sum = ctx.saved_tensors
        log_sum = log_sum.clamp(min=torch.finfo(out.dtype).min)
        scale = 1 / math.sqrt(queries.size(-1))
        d_queries, d_keys, d_values = map(torch.zeros_like, (queries, keys, values))
        d_mask = torch.zeros_like(mask) if ctx.needs_input_grad[3] else None
        mean = (d_out * out).sum(-1, keepdim=True)
        for start in range(0, keys.size(-2), ctx.size):
            here = slice(start, start + ctx.size)
            weights = (block_scores(queries, keys, mask, here) - log_sum).exp()
            d_values[..., here, :] = weights.mT @ d_out
            d_scores = weights * (d_out @ values[..., here, :].mT - mean)
            d_queries += scale * d_scores @ keys[..., here, :]
            d_keys[..., here, :] = scale * d_scores.mT @ queries
            if d_mask is not None:
                part = d_mask[..., here]
                part += d_scores.sum_to_size(part.shape)
        return d_queries, d_keys, d_values, d_mask, None


def flash_attention(queries, keys, values, mask=None, *, size: int = 256) -> Tensor:
    """`attention` in blocks of `size` keys: queries (b h t d) -> (b h t d).

    Of the weights only (b h t size) exist at once, on the way back too; so memory grows
    with t and not with t². Exact, and a little more work: the way back computes the
    scores again. Sums are kept in float32 or finer. There is no second derivative.
    Raises ValueError as `attention` does, and for a size below 1.
    """
    check_attention(queries, keys, values, mask)
    check_whole(size=size)
    exact = torch.promote_types(queries.dtype, torch.float32)
    parts = (x.expand(*queries.shape[:-2], -1, -1) for x in (queries, keys, values))
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], keys.shape[-2])
    out = FlashAttention.apply(*(x.to(exact) for x in parts), mask, size)
    return out.to(queries.dtype)
