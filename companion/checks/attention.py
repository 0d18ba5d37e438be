"""Checks of chapter 01."""

import torch

from ..attention import attention, attention_weights, causal_mask, padding_mask
from .compare import compare, draw


def one_query(answer) -> None:
    """`answer(query, keys, values)`: the values (s c) averaged for a query (d)."""

    def averaged(scores):
        return lambda q, k, v: scores(q, k).softmax(0) @ v

    compare(
        answer,
        lambda q, k, v: attention(q[None], k, v)[0],
        [
            (2 * draw(8), 2 * draw(5, 8, seed=1), draw(5, 3, seed=2)),
            (3 * draw(2), draw(7, 2, seed=3), draw(7, 4, seed=4)),
            (99 * draw(4), 99 * draw(6, 4, seed=5), draw(6, 1, seed=6)),
        ],
        {
            "e to a large score overflows: take away the largest first": (
                lambda q, k, v: (e := (k @ q / len(q) ** 0.5).exp()) / e.sum() @ v
            ),
            "the scale is missing: divide the scores by the root of d": averaged(
                lambda q, k: k @ q
            ),
            "the scores are divided by d: take its root": averaged(
                lambda q, k: k @ q / len(q)
            ),
            "the scores are multiplied by the root of d: divide by it": averaged(
                lambda q, k: k @ q * len(q) ** 0.5
            ),
            "the scale is the root of the features of a query, not of the number of"
            " keys": averaged(lambda q, k: k @ q / len(k) ** 0.5),
            "the scale is always the root of 8: take the length of the query": averaged(
                lambda q, k: k @ q / 8**0.5
            ),
            "the scores have the wrong sign: the best fit must get most": averaged(
                lambda q, k: -k @ q / len(q) ** 0.5
            ),
            "these are the weights: now average the values by them": (
                lambda q, k, v: (k @ q / len(q) ** 0.5).softmax(0)
            ),
            "the values are summed by the scores: softmax is missing": (
                lambda q, k, v: k @ q / len(q) ** 0.5 @ v
            ),
            "only the value of the best key comes back: average all by softmax": (
                lambda q, k, v: v[(k @ q).argmax()]
            ),
            "an axis too many, (1, c): for a single query it is (c)": (
                lambda q, k, v: attention(q[None], k, v)
            ),
        },
        "one_query: compare, scale, share out, average",
    )


def window_attention(answer) -> None:
    """`answer(queries, keys, values, width)`: each position sees the last `width`."""

    def seen(q, width):
        t = torch.arange(q.shape[-2])
        return (t[:, None] >= t) & (t[:, None] - t < width)

    def masked(mask):
        return lambda q, k, v, n: attention(q, k, v, mask(q, n))

    first = (2 * draw(2, 3, 6, d, seed=i) for i, d in enumerate((5, 5, 4)))
    second = (2 * draw(3, 2, 7, d, seed=d) for d in (3, 3, 5))
    third = (2 * draw(1, 1, 4, d, seed=d) for d in (2, 2, 3))
    compare(
        answer,
        masked(seen),
        [(*first, 3), (*second, 2), (*third, 9)],
        {
            "the scale is missing: divide the scores by the root of d": (
                lambda q, k, v, n: masked(seen)(q * q.shape[-1] ** 0.5, k, v, n)
            ),
            "what is hidden has the score 0, a likely one: it should be -inf": (
                lambda q, k, v, n: (
                    (q @ k.mT * seen(q, n) / q.shape[-1] ** 0.5).softmax(-1) @ v
                )
            ),
            "rows no longer sum to 1: is the mask applied after softmax?": (
                lambda q, k, v, n: (attention_weights(q, k) * seen(q, n)) @ v
            ),
            "a position also sees those after it: the future is to hide": masked(
                lambda q, n: seen(q, n) | seen(q, n).mT
            ),
            "it looks ahead, not back: the key comes before the query": masked(
                lambda q, n: seen(q, n).mT
            ),
            "a position does not see itself: it is one of the width": masked(
                lambda q, n: seen(q, n + 1) & ~seen(q, 1)
            ),
            "the window is one too wide: a position itself is one of the width": masked(
                lambda q, n: seen(q, n + 1)
            ),
            "the window is one too narrow: itself and the width - 1 before it": masked(
                lambda q, n: seen(q, n - 1)
            ),
            "everything earlier is seen: this mask is causal, but has no window": (
                masked(lambda q, n: causal_mask(q.shape[-2]))
            ),
            "the mask is upside down: True is where attention is allowed": masked(
                lambda q, n: ~seen(q, n)
            ),
            "nothing is masked": masked(lambda q, n: None),
        },
        "window_attention: itself and those just before",
    )


def pad_mask(answer) -> None:
    """`answer(lengths, n_keys)`: True at real keys, (b 1 1 s)."""

    def queries_too(lengths, n):
        return padding_mask(lengths, n) & padding_mask(lengths, n).mT

    compare(
        answer,
        padding_mask,
        [(torch.tensor([3, 0, 5]), 5), (torch.tensor([2, 4]), 7)],
        {
            "queries are hidden instead of keys: the axes are (b 1 1 s)": (
                lambda lengths, n: padding_mask(lengths, n).mT
            ),
            "hide keys only: a row of filler may look at real tokens": queries_too,
            "the mask is upside down: True is where attention is allowed": (
                lambda lengths, n: ~padding_mask(lengths, n)
            ),
            "these are numbers: a mask is bool, as a comparison gives it": (
                lambda lengths, n: padding_mask(lengths, n).float()
            ),
            "a mask (b s) is read as (t s): give it the axes (b 1 1 s)": (
                lambda lengths, n: padding_mask(lengths, n)[:, 0, 0]
            ),
            "a mask (b 1 s) is read as (h t s): give it the axes (b 1 1 s)": (
                lambda lengths, n: padding_mask(lengths, n)[:, 0]
            ),
            "one key too many: with length 3 the keys 0, 1 and 2 are real": (
                lambda lengths, n: torch.arange(n) <= lengths[:, None, None, None]
            ),
            "one key too few: with length 3 the keys 0, 1 and 2 are real": (
                lambda lengths, n: torch.arange(n) < lengths[:, None, None, None] - 1
            ),
        },
        "pad_mask: filler is hidden from everybody",
    )


def softmax_gradient(answer) -> None:
    """`answer(weights, error)`: the gradient of the scores (t s)."""

    def right(weights, error):
        softmax = torch.nn.functional.softmax
        vjp = torch.autograd.functional.vjp
        return vjp(lambda scores: softmax(scores, -1), weights.log(), error)[1]

    def total(x, dim=-1):
        return x.sum(dim, keepdim=True)

    compare(
        answer,
        right,
        [
            (draw(3, 5).softmax(-1), draw(3, 5, seed=1)),
            (draw(4, 4, seed=2).softmax(-1), draw(4, 4, seed=3)),
        ],
        {
            "only i = j is counted: a score moves the other weights of its row too": (
                lambda w, e: w * (1 - w) * e
            ),
            "the sum over the other weights is missing": lambda w, e: w * e,
            "the factor in front is missing: each bracket is multiplied by w": (
                lambda w, e: e - total(w * e)
            ),
            "the sign is turned: the error itself counts positive": (
                lambda w, e: w * (total(w * e) - e)
            ),
            "a sign: what the whole row would gain is taken away, not added": (
                lambda w, e: w * (e + total(w * e))
            ),
            "the sum is to be weighted by the weights": lambda w, e: w * (e - total(e)),
            "the sum runs over the queries: softmax was over the last axis": (
                lambda w, e: w * (e - total(w * e, 0))
            ),
            "the sum runs over all rows at once: each has a softmax of its own": (
                lambda w, e: w * (e - (w * e).sum())
            ),
            "take away the mean weighted by the weights, not the plain mean": (
                lambda w, e: w * (e - e.mean(-1, keepdim=True))
            ),
        },
        "softmax_gradient: weight times error, less the weighted mean error of the row",
    )
