"""Checks of chapter 01."""

import functools
import math

import torch

from ..attention import attention, attention_weights, causal_mask, padding_mask
from .compare import compare, draw


def one_query(answer) -> None:
    """`answer(query, keys, values)`: lists (d), (s d), (s c), and a list (c) comes."""

    def taken(weights, of=lambda q, k, v: v):
        def take(*lists):
            q, k, v = map(torch.tensor, lists)
            return (weights(q, k) @ of(q, k, v)).tolist()

        return take

    def shared(scores):
        return taken(lambda q, k: scores(q, k).softmax(0))

    def scaled(q, k):
        return k @ q / len(q) ** 0.5

    def case(s, d, c, size):
        draws = size * draw(d, seed=s), size * draw(s, d, seed=d), draw(s, c, seed=c)
        return tuple((10 * x).double().round().div(10).tolist() for x in draws)

    small = [2.0, 1.0], [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[10.0], [20.0], [40.0]]

    @functools.wraps(answer)
    def finite(query, keys, values):
        try:
            return answer(query, keys, values)
        except OverflowError:
            return [math.nan for _ in values[0]]

    compare(
        finite if callable(answer) else answer,
        shared(scaled),
        [small, case(5, 8, 3, 1), case(9, 6, 2, 99)],
        {
            "e to a large score overflows: take away the largest first": taken(
                lambda q, k: (e := scaled(q, k).exp()) / e.sum()
            ),
            "the scale is missing: divide the scores by the root of d": shared(
                lambda q, k: k @ q
            ),
            "the scores are divided by d: take its root": shared(
                lambda q, k: k @ q / len(q)
            ),
            "these are the weights: now average the values by them": taken(
                lambda q, k: scaled(q, k).softmax(0), lambda q, k, v: torch.eye(len(k))
            ),
            "the keys are averaged: they are only for finding, average the values": (
                taken(lambda q, k: scaled(q, k).softmax(0), lambda q, k, v: k)
            ),
            "the values are summed by the scores: softmax is missing": taken(scaled),
            "the scores are divided by their sum: raise e to them first": taken(
                lambda q, k: scaled(q, k) / scaled(q, k).sum()
            ),
            "the terms don't become shares: divide them by their sum": taken(
                lambda q, k: (scaled(q, k) - scaled(q, k).amax()).exp()
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

    def case(size, *shape, d):
        return [size * draw(*shape, n, seed=i) for i, n in enumerate(d)]

    compare(
        answer,
        masked(seen),
        [
            (*case(2, 2, 3, 6, d=(5, 5, 4)), 3),
            (*case(10, 3, 2, 7, d=(3, 3, 5)), 1),  # here -100 is not low enough
            (*case(2, 1, 1, 4, d=(2, 2, 3)), 9),
        ],
        {
            "what is hidden has the score 0, a likely one: it should be -inf": (
                lambda q, k, v, n: (
                    (q @ k.mT * seen(q, n) / q.shape[-1] ** 0.5).softmax(-1) @ v
                )
            ),
            "rows no longer sum to 1: is the mask applied after softmax?": (
                lambda q, k, v, n: (attention_weights(q, k) * seen(q, n)) @ v
            ),
            "rows no longer sum to 1: is the window cut out after softmax?": (
                lambda q, k, v, n: (
                    (attention_weights(q, k, causal_mask(q.shape[-2])) * seen(q, n)) @ v
                )
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
    compare(
        answer,
        padding_mask,
        [(torch.tensor([3, 0, 5]), 5), (torch.tensor([2, 4]), 7)],
        {
            "queries are hidden instead of keys: the axes are (b 1 1 s)": (
                lambda lengths, n: padding_mask(lengths, n).mT
            ),
            "hide keys only: a row of filler may look at real tokens": (
                lambda lengths, n: (m := padding_mask(lengths, n)) & m.mT
            ),
            "the mask is upside down: True is where attention is allowed": (
                lambda lengths, n: ~padding_mask(lengths, n)
            ),
            "the axis of queries has length 1: filler is hidden from all alike": (
                lambda lengths, n: padding_mask(lengths, n).repeat(1, 1, n, 1)
            ),
            "one key too many: with length 3 the keys 0, 1 and 2 are real": (
                lambda lengths, n: torch.arange(n) <= lengths[:, None, None, None]
            ),
        },
        "pad_mask: filler is hidden from everybody",
    )


def softmax_gradient(answer) -> None:
    """`answer(weights, g)`: the gradient of the scores (t s)."""

    def right(w, g):
        return w * g - torch.einsum("ti,tj,tj->ti", w, w, g)

    def total(x, dim=-1):
        return x.sum(dim, keepdim=True)

    compare(
        answer,
        right,
        [
            (draw(3, 5).softmax(-1), draw(3, 5, seed=1)),
            (draw(4, 4, seed=2).softmax(-1), draw(4, 4, seed=3)),
            (torch.eye(6)[[2, 5]], draw(2, 6, seed=4)),
        ],
        {
            "these are rates: multiply each by its g": lambda w, e: w * (1 - w),
            "only i = j is counted: a score moves the other weights of its row too": (
                lambda w, e: w * (1 - w) * e
            ),
            "the sum over the other weights is missing": lambda w, e: w * e,
            "the factor in front is missing: each bracket is multiplied by w": (
                lambda w, e: e - total(w * e)
            ),
            "the sign is turned: g itself counts positive": (
                lambda w, e: w * (total(w * e) - e)
            ),
            "a sign: what the whole row would gain is taken away, not added": (
                lambda w, e: w * (e + total(w * e))
            ),
            "the sum is to be weighted by the weights": lambda w, e: w * (e - total(e)),
            "the sum runs over the queries: softmax was over the last axis": (
                lambda w, e: w * (e - total(w * e, 0))
            ),
        },
        "softmax_gradient: weight times what g has more than the row's weighted mean",
    )
