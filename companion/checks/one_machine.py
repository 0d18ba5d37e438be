"""Checks of chapter 09."""

import functools
import math

import torch
from torch import Tensor

from .compare import compare, draw


def block_operations(answer) -> None:
    """`answer(t, d_model, n_heads, n_kv_heads, d_hidden)`: operations, forward."""

    def right(t, d, n_heads, n_kv_heads, d_hidden, full=2, scores=2, gated=3, each=2):
        kv = d * n_kv_heads // n_heads
        projections = full * d * d + 2 * d * kv
        return each * t * (projections + scores * t * d + gated * d * d_hidden)

    def other(**changed):
        return functools.partial(right, **changed)

    compare(
        answer,
        right,
        [(4, 8, 2, 1, 24), (7, 12, 6, 2, 30), (100, 96, 12, 4, 256)],
        {
            "only multiplications are counted: each comes with an addition": (
                other(each=1)
            ),
            "two matrices of the feed-forward layer: a gated one has three": (
                other(gated=2)
            ),
            "half of the scores and mixing: these are two products of (t, t), and a"
            " mask saves nothing": other(scores=1),
            "three products of attention are counted: values are not multiplied with"
            " keys": other(scores=3),
            "the output projection is missing": other(full=1),
            "keys and values are as wide as queries here: they have n_kv_heads heads": (
                lambda t, d, h, kv, f: right(t, d, h, h, f)
            ),
            "forward and backward: only forward is asked for": other(each=6),
            "n_kv_heads / n_heads is upside down, or left out of one of the two": (
                lambda t, d, h, kv, f: (
                    2 * t * d * d * (2 + 2 * h / kv) + 4 * t * t * d + 6 * t * d * f
                )
            ),
            "the scores shrink with the heads of keys: every query head has its own": (
                lambda t, d, h, kv, f: right(t, d, h, kv, f, scores=2 * kv / h)
            ),
            "the scores are counted for each head at full width: a head has"
            " d_model / n_heads features": (
                lambda t, d, h, kv, f: right(t, d, h, kv, f, scores=2 * h)
            ),
        },
        "block_operations: projections, scores and mixing, a gated layer",
    )


def merge_all(answer) -> None:
    """`answer(largest, totals, outs)`: (n t 1), (n t 1), (n t d) -> attention (t d)."""

    def pieces(n: int, t: int, d: int, seed: int, hidden=()) -> tuple[Tensor, ...]:
        scores, values = 4 * draw(n, t, 5, seed=seed), draw(n, 5, d, seed=seed + 1)
        for place in hidden:
            scores[place] = -math.inf
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - largest.clamp(min=-1e30)).exp()
        return largest, weights.sum(-1, keepdim=True), weights @ values

    def right(largest, totals, outs, power=(1, 1)):
        shrink = (largest - largest.amax(0).clamp(min=-1e30)).exp()
        total = (shrink ** power[0] * totals).sum(0)
        return (shrink ** power[1] * outs).sum(0) / total.clamp(min=1)

    def careless(largest, totals, outs):
        shrink = (largest - largest.amax(0)).exp()
        return (shrink * outs).sum(0) / (shrink * totals).sum(0)

    def in_order(largest, totals, outs):
        top, total, out = largest[0], totals[0], outs[0]
        for most, n, x in zip(largest[1:], totals[1:], outs[1:], strict=True):
            new = torch.maximum(top, most)
            one, two = (top - new).exp(), (most - new).exp()
            top, total, out = new, one * total + two * n, one * out + two * x
        return out / total

    def no_maximum(largest, totals, outs, top=0.0):
        grow = (largest - top).exp()
        total = (grow * totals).sum(0)
        return torch.where(total > 0, (grow * outs).sum(0) / total, 0.0)

    def one_for_all(largest, totals, outs):
        return no_maximum(largest, totals, outs, largest.max().clamp(min=-1e30))

    def by_largest(largest, totals, outs):
        means = outs / totals.clamp(min=1e-9)
        return (torch.softmax(largest, 0).nan_to_num() * means).sum(0)

    far = pieces(3, 2, 5, 8)
    far[0][:, 0] += 200
    far[0][:, 1] -= 200
    compare(
        answer,
        right,
        [
            far,
            pieces(3, 2, 4, 0),
            pieces(2, 3, 5, 2, [(0, 0), (1, 0), (1, 2)]),
            pieces(4, 1, 2, 4, [0, 1]),
            pieces(1, 6, 3, 6),
        ],
        {
            "a query without any key gives NaN: -inf minus -inf is no number": careless,
            "a piece without keys gives NaN: -inf minus -inf is no number": in_order,
            "the mean of the pieces' answers: a piece with larger scores counts more": (
                lambda _, totals, outs: (outs / totals.clamp(min=1e-9)).mean(0)
            ),
            "exp overflows: subtract the largest score first": no_maximum,
            "one largest for all queries: each query has its own": one_for_all,
            "the pieces' means are weighted by the largest scores alone: a piece counts"
            " by its whole sum": by_largest,
            "the pieces are added as they are: each has had another largest score"
            " subtracted": lambda *case: right(*case, power=(0, 0)),
            "the outputs shrink, the sums do not: both were made with the same"
            " exponentials": lambda *case: right(*case, power=(0, 1)),
            "the sums shrink, the outputs do not: both were made with the same"
            " exponentials": lambda *case: right(*case, power=(1, 0)),
        },
        "merge_all: one largest score for all, then sums",
    )


def accumulated(answer) -> None:
    """`answer(surprises, real)`: the mean of all surprises (b t) that are real."""

    def case(*pieces, seed):
        """For each piece the width and the real tokens of each of its texts."""
        real = [
            torch.arange(t)[None] < torch.tensor(lengths)[:, None]
            for t, lengths in pieces
        ]
        found = [draw(*x.shape, seed=seed + len(x)).abs() for x in real]
        found[0][0, 0] = 0  # a token that was certain
        return found, real

    def right(surprises, real):
        total = sum((x * r).sum() for x, r in zip(surprises, real, strict=True))
        return float(total / sum(r.sum() for r in real))

    def mean_of_means(surprises, real):
        pairs = zip(surprises, real, strict=True)
        return float(sum(x[r].mean() for x, r in pairs) / len(real))

    def with_padding(surprises, real):
        return float(torch.cat([x.flatten() for x in surprises]).mean())

    def texts_first(surprises, real):
        n = sum(r.sum() for r in real)
        pairs = zip(surprises, real, strict=True)
        return float(sum(mean_of_means([*x], [*r]) * r.sum() for x, r in pairs) / n)

    def first_length(surprises, real):
        cut = [r[:1].expand_as(r) for r in real]
        return right(surprises, cut)

    compare(
        answer,
        right,
        [
            case((3, [1, 3]), (5, [4, 2, 5]), seed=0),
            case((4, [2, 1, 4]), (7, [6]), (2, [1, 2]), (2, [0]), seed=9),
        ],
        {
            "this is the mean of the pieces' means: a piece with few real tokens counts"
            " too much": mean_of_means,
            "padding is counted: leave out what is not real": with_padding,
            "the sum is divided by all places: divide by the number of real tokens": (
                lambda surprises, real: with_padding(
                    [x * r for x, r in zip(surprises, real, strict=True)], real
                )
            ),
            "this is a sum: divide by the number of real tokens": (
                lambda xs, rs: right(xs, rs) * float(sum(r.sum() for r in rs))
            ),
            "all texts of a piece are cut like its first: each has its own": (
                first_length
            ),
            "each text's mean is taken first, then weighted by its piece: a short text"
            " counts as much as a long one": texts_first,
            "each text's mean is taken first: a short text counts as much as a long"
            " one": (
                lambda surprises, real: mean_of_means(
                    [y for x in surprises for y in x], [y for x in real for y in x]
                )
            ),
        },
        "accumulated: all surprises, then one division",
    )
