"""Checks of chapter 01."""

import torch

from ..attention import attention, attention_weights, causal_mask, padding_mask
from .compare import compare, draw


def one_query(answer) -> None:
    """`answer(query, keys, values)`: the values (s c) averaged for a query (d)."""

    def shares(query, keys, divisor):
        return (keys @ query / divisor).softmax(0)

    compare(
        answer,
        lambda q, k, v: attention(q[None], k, v)[0],
        [(2 * draw(8), 2 * draw(5, 8, seed=1), draw(5, 3, seed=2))],
        [
            (
                "the scale is missing: divide the scores by the root of d",
                lambda q, k, v: shares(q, k, 1) @ v,
            ),
            (
                "the scores are divided by d: take its root",
                lambda q, k, v: shares(q, k, 8) @ v,
            ),
            (
                "the scale is the root of the features of a query, not of the keys",
                lambda q, k, v: shares(q, k, 5**0.5) @ v,
            ),
            (
                "these are the weights: now average the values by them",
                lambda q, k, v: shares(q, k, 8**0.5),
            ),
        ],
        "one_query: compare, scale, share out, average",
    )


def window_attention(answer) -> None:
    """`answer(queries, keys, values, width)`: each position sees the last `width`."""

    def seen(q, width):
        t = torch.arange(q.shape[-2])
        return (t[:, None] >= t) & (t[:, None] - t < width)

    def masked_late(q, k, v, n):
        return (attention_weights(q, k) * seen(q, n)) @ v

    def both_sides(q, k, v, n):
        return attention(q, k, v, seen(q, n) | seen(q, n).mT)

    def without_itself(q, k, v, n):
        return attention(q, k, v, seen(q, n + 1) & ~seen(q, 1))

    sizes = [(2 * draw(1, 2, 6, 4, seed=i) for i in range(3)) for _ in range(2)]
    compare(
        answer,
        lambda q, k, v, n: attention(q, k, v, seen(q, n)),
        [(*sizes[0], 3), (*sizes[1], 1)],
        [
            (
                "rows no longer sum to 1: is the mask applied after softmax?",
                masked_late,
            ),
            ("a position also sees those after it: the future is to hide", both_sides),
            ("a position does not see itself: it is one of the width", without_itself),
            (
                "the window is one too wide: a position itself is one of the width",
                lambda q, k, v, n: attention(q, k, v, seen(q, n + 1)),
            ),
            (
                "everything earlier is seen: this mask is causal, but has no window",
                lambda q, k, v, n: attention(q, k, v, causal_mask(q.shape[-2])),
            ),
            (
                "the mask is upside down: True is where attention is allowed",
                lambda q, k, v, n: attention(q, k, v, ~seen(q, n)),
            ),
        ],
        "window_attention: itself and those just before",
    )


def pad_mask(answer) -> None:
    """`answer(lengths, n_keys)`: True at real keys, (b 1 1 s)."""

    def queries_too(lengths, n):
        return padding_mask(lengths, n) & padding_mask(lengths, n).mT

    compare(
        answer,
        padding_mask,
        [(torch.tensor([3, 1, 5]), 5)],
        [
            (
                "queries are hidden instead of keys: the axes are (b 1 1 s)",
                lambda lengths, n: padding_mask(lengths, n).mT,
            ),
            ("hide keys only: a row of filler may look at real tokens", queries_too),
            (
                "the mask is upside down: True is where attention is allowed",
                lambda lengths, n: ~padding_mask(lengths, n),
            ),
            (
                "a mask (b s) is read as (t s): give it the axes (b 1 1 s)",
                lambda lengths, n: padding_mask(lengths, n)[:, 0, 0],
            ),
            (
                "a mask (b 1 s) is read as (h t s): give it the axes (b 1 1 s)",
                lambda lengths, n: padding_mask(lengths, n)[:, 0],
            ),
            (
                "one key too many: with length 3 the keys 0, 1 and 2 are real",
                lambda lengths, n: torch.arange(n) <= lengths[:, None, None, None],
            ),
        ],
        "pad_mask: filler is hidden from everybody",
    )


def softmax_gradient(answer) -> None:
    """`answer(weights, error)`: the gradient of the scores (t s)."""

    def right(weights, error):
        softmax = torch.nn.functional.softmax
        vjp = torch.autograd.functional.vjp
        return vjp(lambda scores: softmax(scores, -1), weights.log(), error)[1]

    compare(
        answer,
        right,
        [(draw(3, 5).softmax(-1), draw(3, 5, seed=1))],
        [
            (
                "only i = j is counted: a score moves the other weights of its row too",
                lambda w, e: w * (1 - w) * e,
            ),
            ("the sum over the other weights is missing", lambda w, e: w * e),
            (
                "the sum runs over the queries: softmax was over the last axis",
                lambda w, e: w * (e - (w * e).sum(0)),
            ),
            (
                "the sum runs over all rows at once: each has a softmax of its own",
                lambda w, e: w * (e - (w * e).sum()),
            ),
            (
                "take away the mean weighted by the weights, not the plain mean",
                lambda w, e: w * (e - e.mean(-1, keepdim=True)),
            ),
        ],
        "softmax_gradient: each error, less the average error of its row",
    )
