"""Attention in blocks of keys: never more than (t, block) weights at once. Chapter 09.

Softmax in one pass: Milakov and Gimelshein 2018. Attention by it: Rabe and Staats 2021;
with its backward pass: Dao et al. 2022, algorithms 1 and 4.
"""

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .inputs import check_attention, check_whole


def piece(x: Tensor | None, here: slice) -> Tensor | None:
    """The keys `here` of a mask or a bias (... s), or its one column for all keys."""
    return x if x is None or x.size(-1) == 1 else x[..., here]


def block_scores(queries, keys, mask, bias, here: slice) -> Tensor:
    """The scores of all queries and the keys `here`: (b h t block)."""
    scores = queries @ keys[..., here, :].mT / math.sqrt(queries.size(-1))
    if bias is not None:
        scores = scores + piece(bias, here)
    return scores if mask is None else scores.masked_fill(~piece(mask, here), -math.inf)


class BlockAttention(torch.autograd.Function):
    """What is kept for the way back is one number a query, log Σ exp(scores)."""

    @staticmethod
    def forward(ctx, queries, keys, values, mask, bias, size):
        lowest = torch.finfo(queries.dtype).min
        maximum = queries.new_full((*queries.shape[:-1], 1), -math.inf)
        total = torch.zeros_like(maximum)
        out = queries.new_zeros(*queries.shape[:-1], values.size(-1))
        for start in range(0, keys.size(-2), size):
            here = slice(start, start + size)
            scores = block_scores(queries, keys, mask, bias, here)
            largest = torch.maximum(maximum, scores.amax(-1, keepdim=True))
            finite = largest.clamp(min=lowest)  # a row of -inf gives 0, not NaN
            weights, shrink = (scores - finite).exp(), (maximum - finite).exp()
            total = total * shrink + weights.sum(-1, keepdim=True)
            out = out * shrink + weights @ values[..., here, :]
            maximum = largest
        total = total.clamp(min=1)  # acts only on rows in which nothing is attended
        out = out / total
        ctx.save_for_backward(
            queries, keys, values, mask, bias, out, maximum + total.log()
        )
        ctx.size = size
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out):
        queries, keys, values, mask, bias, out, log_sum = ctx.saved_tensors
        log_sum = log_sum.clamp(min=torch.finfo(out.dtype).min)
        scale = 1 / math.sqrt(queries.size(-1))
        d_queries, d_keys, d_values = map(torch.zeros_like, (queries, keys, values))
        d_bias = torch.zeros_like(bias) if ctx.needs_input_grad[4] else None
        mean = (d_out * out).sum(-1, keepdim=True)
        for start in range(0, keys.size(-2), ctx.size):
            here = slice(start, start + ctx.size)
            scores = block_scores(queries, keys, mask, bias, here)
            weights = (scores - log_sum).exp()
            d_values[..., here, :] = weights.mT @ d_out
            d_scores = weights * (d_out @ values[..., here, :].mT - mean)
            d_queries += scale * d_scores @ keys[..., here, :]
            d_keys[..., here, :] = scale * d_scores.mT @ queries
            if d_bias is not None:
                part = piece(d_bias, here)
                part += d_scores.sum_to_size(part.shape)
        return d_queries, d_keys, d_values, None, d_bias, None


def block_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    size: int = 256,
) -> Tensor:
    """`attention` in blocks of `size` keys: queries (b h t d) -> (b h t d).

    Of the weights only (b h t size) exist at once, on the way back too; so memory grows
    with t and not with t². Exact, and a little more work: the way back computes the
    scores again. A second derivative is not there. Raises ValueError as `attention`
    does, and for a size below 1. Dao et al. 2022, algorithms 1 and 4.
    """
    check_attention(queries, keys, values, mask, bias)
    check_whole(size=size)
    keys, values = (x.expand(*queries.shape[:-2], -1, -1) for x in (keys, values))
    if bias is not None:
        bias = bias.to(queries.dtype)
    return BlockAttention.apply(queries, keys, values, mask, bias, size)
