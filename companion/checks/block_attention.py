"""Checks of chapter 09, attention in blocks and without a table."""

import functools
import math

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .compare import Mistake, compare, difference, draw


def merge_all(answer) -> None:
    """`answer(largest, totals, outs)`: (n t 1), (n t 1), (n t d) -> attention (t d)."""

    def pieces(n: int, t: int, d: int, seed: int, hidden=()) -> tuple[Tensor, ...]:
        scores, values = 4 * draw(n, t, 5, seed=seed), draw(n, 5, d, seed=seed + 1)
        for place in hidden:
            scores[place] = -math.inf
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - largest.clamp(min=-1e30)).exp()
        return largest, weights.sum(-1, keepdim=True), weights @ values

    def right(largest, totals, outs, powers=(1, 1)):
        shrink = (largest - largest.amax(0).clamp(min=-1e30)).exp()
        total = (shrink ** powers[0] * totals).sum(0)
        return (shrink ** powers[1] * outs).sum(0) / total.clamp(min=1)

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

    def cut_below(largest, totals, outs, lowest=0):
        return no_maximum(largest, totals, outs, largest.amax(0).clamp(min=lowest))

    def no_keys_at_0(largest, totals, outs):
        return right(largest.masked_fill(largest == -math.inf, 0), totals, outs)

    def undivided(largest, totals, outs):
        return ((largest - largest.amax(0).clamp(min=-1e30)).exp() * outs).sum(0)

    def by_largest(largest, totals, outs):
        means = outs / totals.clamp(min=1e-9)
        return (torch.softmax(largest, 0).nan_to_num() * means).sum(0)

    far, low = pieces(3, 2, 5, 8), pieces(3, 3, 2, 10)
    far[0][:, 0] += 200
    far[0][:, 1] -= 200
    low[0].sub_(20_000)
    low[0][0, 1], low[1][0, 1], low[2][0, 1] = -math.inf, 0, 0
    compare(
        answer,
        right,
        [
            far,
            low,
            pieces(3, 2, 4, 0),
            pieces(3, 2, 4, 12, [(0, 0), (1, 0)]),
            pieces(2, 3, 5, 2, [(0, 0), (1, 0), (1, 2)]),
            pieces(4, 1, 2, 4, [0, 1]),
            pieces(1, 6, 3, 6),
        ],
        {
            "a query without any key gives NaN: -inf minus -inf is no number": careless,
            "two pieces without keys give NaN: -inf minus -inf is no number": in_order,
            "the mean of the pieces' answers: a piece with larger scores counts more": (
                lambda _, totals, outs: (outs / totals.clamp(min=1e-9)).mean(0)
            ),
            "exp overflows: subtract the largest score first": no_maximum,
            "one largest for all queries: each query has its own": one_for_all,
            "the largest is held above some number: where all scores lie below it, all"
            " exponentials are 0; change it only where it is -inf": cut_below,
            "the largest is held above some number, if a low one: where all scores lie"
            " below it, all is 0": functools.partial(cut_below, lowest=-1e4),
            "a piece without keys has a largest of 0 here: where all other scores lie"
            " far below it, they vanish": no_keys_at_0,
            "only the sums are shrunk: the outputs have had the same largest score"
            " subtracted": functools.partial(right, powers=(1, 0)),
            "only the outputs are shrunk: the sums have had the same largest score"
            " subtracted": functools.partial(right, powers=(0, 1)),
            "the answer is not divided by the sum of all pieces": undivided,
            "the pieces' means are weighted by the largest scores alone: a piece counts"
            " by its whole sum": by_largest,
            "the pieces are added as they are: each has had another largest score"
            " subtracted": functools.partial(right, powers=(0, 0)),
        },
        "merge_all: one largest score for all, then sums",
    )


class Largest(TorchDispatchMode):
    """Notes the numbers in the largest tensor that is made."""

    n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else [made]:
            self.n = max(self.n, x.numel() if isinstance(x, Tensor) else 0)
        return made


def linear_attention(answer) -> None:
    """`answer(queries, keys, values, directions)`: Performer's guess, (t d)."""

    def right(q, k, v, r, root=0.25, half=0.5, own=True, power=1):
        q, k = q / q.shape[-1] ** root, k / k.shape[-1] ** root
        phi_q = (q @ r.T - half * q.square().sum(-1, keepdim=True)).exp()
        lengths = k.square().sum(-1, keepdim=True) ** power
        phi_k = (k @ r.T - (half * lengths if own else 0)).exp()
        return phi_q @ (phi_k.T @ v) / (phi_q @ phi_k.sum(0))[:, None]

    def features(x, r):
        x = x / x.shape[-1] ** 0.25
        return (x @ r.T - x.square().sum(-1, keepdim=True) / 2).exp()

    def undivided(q, k, v, r, by=lambda k, r: 1):
        return features(q, r) @ (features(k, r).T @ v) / by(k, r)

    def early(q, k, v, r):
        lengths = k.square().sum(-1, keepdim=True) / 2
        phi_q, phi_k = (x @ r.T / x.shape[-1] ** 0.25 for x in (q, k))
        phi_q, phi_k = phi_q.exp(), (phi_k - lengths).exp()
        return phi_q @ (phi_k.T @ v) / (phi_q @ phi_k.sum(0))[:, None]

    def by_sums(q, k, v, r):
        sums = features(q, r).sum(-1) * features(k, r).sum()
        return undivided(q, k, v, r) / sums[:, None]

    def exact(q, k, v, r):
        return torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v

    def other(**changed):
        return functools.partial(right, **changed)

    def case(t: int, s: int, d: int, m: int, seed: int) -> tuple[Tensor, ...]:
        sizes = ((t, d), (s, d), (s, d), (m, d))
        return tuple(draw(*size, seed=seed + i) for i, size in enumerate(sizes))

    def watched(q, k, v, r):
        with Largest() as largest:
            found = answer(q, k, v, r)
        table = largest.n >= len(q) * len(k) > 10_000
        if table and not difference(found, right(q, k, v, r)):
            raise Mistake(
                f"linear_attention: the answers are right, but for {len(q)} queries and"
                f" {len(k)} keys a table of {largest.n:,} numbers is made: sum over the"
                " keys first"
            )
        return found

    compare(
        watched if callable(answer) else answer,
        right,
        [case(3, 5, 4, 7, seed=0), case(6, 2, 8, 3, seed=10), case(300, 200, 4, 3, 20)],
        {
            "lengths are taken before the division by d ** 0.25: divide first": (early),
            "the sum over keys is lost in the denominator: it is a query's features"
            " times the sum of all keys' features": by_sums,
            "this is attention itself: use the features, not the scores": exact,
            "attention's root of d is missing: divide queries and keys by d ** 0.25": (
                other(root=0)
            ),
            "queries and keys are divided by the root of d each: together that is d": (
                other(root=0.5)
            ),
            "the keys' own lengths are missing: subtract half of |k|²": (
                other(own=False)
            ),
            "all of |k|² is subtracted: half of it": other(half=1),
            "half of |k| is subtracted: half of its square": other(power=0.5),
            "the answers are not divided: the weights of a query must sum to 1": (
                undivided
            ),
            "the answers are divided by the number of features: the weights of a query"
            " must sum to 1": functools.partial(undivided, by=lambda k, r: len(r)),
            "the answers are divided by the number of keys: the weights of a query must"
            " sum to 1": functools.partial(undivided, by=lambda k, r: len(k)),
        },
        "linear_attention: one sum over the keys serves all queries",
    )
