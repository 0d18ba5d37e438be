"""Attention in blocks of keys: never more than (t, block) weights at once. Chapter 09.

Softmax in one pass: Milakov and Gimelshein 2018. Attention by it: Rabe and Staats 2021;
with its backward pass: Dao et al. 2022, algorithms 1 and 4.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..inputs import check_whole
from .scores import Heads, attention_scores, check_attention


def block_scores(
    queries: Heads, keys: Heads, mask: Tensor | None, block: slice
) -> Tensor:
    """The `attention_scores` of one block of keys. Returns (b h t block)."""
    mask = None if mask is None else mask[..., block]
    return attention_scores(queries, keys[..., block, :], mask)


class FlashAttention(torch.autograd.Function):
    """Attention in blocks, and its way back. Dao et al. 2022, algorithms 1 and 4.

    What is kept for the way back is one number a query, log Σ exp(scores).
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Heads,
        keys: Heads,
        values: Heads,
        mask: Tensor | None,
        size: int,
    ) -> Heads:
        """Returns the values (b h s d) averaged for each query (b h t d): (b h t d)."""
        lowest = torch.finfo(queries.dtype).min
        maximum = queries.new_full((*queries.shape[:-1], 1), -math.inf)
        total = torch.zeros_like(maximum)
        out = queries.new_zeros(*queries.shape[:-1], values.size(-1))

        for start in range(0, keys.size(-2), size):
            block = slice(start, start + size)
            scores = block_scores(queries, keys, mask, block)
            new_maximum = torch.maximum(maximum, scores.amax(-1, keepdim=True))
            finite = new_maximum.clamp(min=lowest)  # a row of -inf gives 0, not NaN

            # What was summed up so far was relative to the old maximum.
            weights = (scores - finite).exp()
            shrink = (maximum - finite).exp()
            total = total * shrink + weights.sum(-1, keepdim=True)
            out = out * shrink + weights @ values[..., block, :]
            maximum = new_maximum

        total = total.clamp(min=1)  # acts only on rows in which nothing is attended
        out = out / total
        log_sum = maximum + total.log()
        ctx.save_for_backward(queries, keys, values, mask, out, log_sum)
        ctx.size = size
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of queries, keys, values and mask, and no size's."""
        queries, keys, values, mask, out, log_sum = ctx.saved_tensors
        log_sum = log_sum.clamp(min=torch.finfo(out.dtype).min)
        scale = 1 / math.sqrt(queries.size(-1))
        d_queries = torch.zeros_like(queries)
        d_keys = torch.zeros_like(keys)
        d_values = torch.zeros_like(values)
        d_mask = torch.zeros_like(mask) if ctx.needs_input_grad[3] else None

        # The weights' gradients, averaged by the weights: Σ w · d_w = d_out · out.
        mean = (d_out * out).sum(-1, keepdim=True)

        for start in range(0, keys.size(-2), ctx.size):
            block = slice(start, start + ctx.size)
            weights = (block_scores(queries, keys, mask, block) - log_sum).exp()
            d_weights = d_out @ values[..., block, :].mT
            d_scores = weights * (d_weights - mean)

            d_values[..., block, :] = weights.mT @ d_out
            d_queries += scale * d_scores @ keys[..., block, :]
            d_keys[..., block, :] = scale * d_scores.mT @ queries
            if d_mask is not None:
                d_block = d_mask[..., block]
                d_block += d_scores.sum_to_size(d_block.shape)
        return d_queries, d_keys, d_values, d_mask, None


def flash_attention(
    queries: Heads,
    keys: Heads,
    values: Heads,
    mask: Tensor | None = None,
    *,
    size: int = 256,
) -> Heads:
    """`attention` in blocks of `size` keys. Returns (b h t d).

    Queries (b h t d), keys and values (b h s d), mask as in `attention_weights`. Of the
    weights only (b h t size) exist at once, on the way back too; so memory grows with t
    and not with t². Exact, and a little more work: the way back computes the scores
    again. Sums are kept in float32 or finer. There is no second derivative.
    Raises ValueError as `attention` does, and for a size below 1.
    Dao et al. 2022, algorithms 1 and 4.
    """
    check_attention(queries, keys, values, mask)
    check_whole(size=size)
    exact = torch.promote_types(queries.dtype, torch.float32)

    # Axes of size 1 are expanded out here, so that autograd sums up their gradients.
    batch_shape = queries.shape[:-2]
    queries_exact = queries.expand(*batch_shape, -1, -1).to(exact)
    keys_exact = keys.expand(*batch_shape, -1, -1).to(exact)
    values_exact = values.expand(*batch_shape, -1, -1).to(exact)
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], keys.shape[-2])

    out = FlashAttention.apply(queries_exact, keys_exact, values_exact, mask, size)
    return out.to(queries.dtype)
