"""Checks of chapter 09."""

import functools
import math

import torch
from torch import Tensor

from .compare import compare, draw


def block_operations(answer) -> None:
    """`answer(t, d_model, n_heads, n_kv_heads, d_hidden)`: operations, forward."""

    def right(t, d, h, n_kv, f, q=2, k=1, v=1, kv=None, scores=2, gated=3, each=2):
        kv = d * n_kv // h if kv is None else kv
        projections = q * d * d + (k + v) * d * kv
        return each * t * (projections + scores * t * d + gated * d * f)

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
            "the hidden layer is 4 d_model wide here: it has d_hidden features": (
                lambda t, d, h, n_kv, f: right(t, d, h, n_kv, 4 * d)
            ),
            "half of the scores and mixing: these are two products of (t, t), and a"
            " mask saves nothing": other(scores=1),
            "three products of attention are counted: values are not multiplied with"
            " keys": other(scores=3),
            "the output projection is missing": other(q=1),
            "only the keys are shared here: values have n_kv_heads, too": (
                other(q=3, v=0)
            ),
            "keys and values are as wide as queries here: they have n_kv_heads heads": (
                other(q=4, k=0, v=0)
            ),
            "keys and values have one head here: they have n_kv_heads": (
                lambda t, d, h, n_kv, f: right(t, d, h, n_kv, f, kv=d // h)
            ),
            "d_model is divided by n_kv_heads: a head has d_model / n_heads features": (
                lambda t, d, h, n_kv, f: right(t, d, h, n_kv, f, kv=d // n_kv)
            ),
            "the scores shrink with the heads of keys: every query head has its own": (
                lambda t, d, h, n_kv, f: right(t, d, h, n_kv, f, scores=2 * n_kv / h)
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

    def right(largest, totals, outs, power=1):
        shrink = (largest - largest.amax(0).clamp(min=-1e30)).exp()
        total = (shrink**power * totals).sum(0)
        return (shrink**power * outs).sum(0) / total.clamp(min=1)

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

    def cut_below(largest, totals, outs):
        return no_maximum(largest, totals, outs, largest.amax(0).clamp(min=0))

    def undivided(largest, totals, outs):
        return ((largest - largest.amax(0).clamp(min=-1e30)).exp() * outs).sum(0)

    def by_largest(largest, totals, outs):
        means = outs / totals.clamp(min=1e-9)
        return (torch.softmax(largest, 0).nan_to_num() * means).sum(0)

    far, low = pieces(3, 2, 5, 8), pieces(3, 3, 2, 10)
    far[0][:, 0] += 200
    far[0][:, 1] -= 200
    low[0].sub_(2000)
    compare(
        answer,
        right,
        [
            far,
            low,
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
            "the largest is held above some number: where all scores lie below it, all"
            " exponentials are 0; change it only where it is -inf": cut_below,
            "the answer is not divided by the sum of all pieces": undivided,
            "the pieces' means are weighted by the largest scores alone: a piece counts"
            " by its whole sum": by_largest,
            "the pieces are added as they are: each has had another largest score"
            " subtracted": lambda *case: right(*case, power=0),
        },
        "merge_all: one largest score for all, then sums",
    )


def accumulated(answer) -> None:
    """`answer(surprises, real)`: each piece's part of the mean surprise (b t)."""

    def case(*pieces, seed):
        """For each piece the width and the real tokens of each of its texts."""
        real = [
            torch.arange(t)[None] < torch.tensor(lengths)[:, None]
            for t, lengths in pieces
        ]
        found = [draw(*x.shape, seed=seed + len(x)).abs() for x in real]
        found[0][0, 0] = 0  # a token that was certain
        return found, real

    def each(part):
        """Losses of which each is `part` of a piece and of what is real in all."""

        def losses(surprises, real):
            pairs = zip(surprises, real, strict=True)
            return [float(part(x, r, real)) for x, r in pairs]

        return losses

    def mean(x, r, real):
        return x[r].sum() / r.sum().clamp(min=1)

    def share(x, r, real):
        return x[r].sum() / sum(r.sum() for r in real)

    compare(
        answer,
        each(share),
        [
            case((3, [1, 3]), (5, [4, 2, 5]), seed=0),
            case((4, [2, 1, 4]), (7, [6]), (2, [1, 2]), (2, [0]), seed=9),
        ],
        {
            "each piece's mean counts alike: divide its sum by all real tokens": (
                each(lambda x, r, real: x[r].mean() / len(real))
            ),
            "each piece's mean counts alike here: divide its sum by all real tokens": (
                each(lambda *piece: mean(*piece) / len(piece[2]))
            ),
            "these are the pieces' own means: their sum grows with their number": (
                each(lambda x, r, real: x[r].mean())
            ),
            "padding is counted: leave out what is not real": (
                each(lambda x, r, real: x.sum() / sum(r.numel() for r in real))
            ),
            "padding is in the sums: leave out what is not real": (
                each(lambda x, r, real: x.sum() / sum(r.sum() for r in real))
            ),
            "the sum is divided by all places: divide by the number of real tokens": (
                each(lambda x, r, real: x[r].sum() / sum(r.numel() for r in real))
            ),
            "these are sums: divide by the number of real tokens in all pieces": (
                each(lambda x, r, real: x[r].sum())
            ),
            "this is one number: give a list with one for each piece": (
                lambda *lists: sum(each(share)(*lists))
            ),
        },
        "accumulated: the real tokens of all pieces first, then a part for each",
    )
