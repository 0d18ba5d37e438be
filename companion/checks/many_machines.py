"""Checks of chapter 11."""

import functools

import torch
from torch import Tensor

from .compare import Mistake, compare, draw


def ring_seconds(answer) -> None:
    """`answer(n_bytes, bandwidths)`: seconds of an all-reduce round a ring."""

    def right(n_bytes, bandwidths, turns=None, slowest=min, part=None):
        p = len(bandwidths)
        turns = 2 * (p - 1) if turns is None else turns
        return turns * n_bytes / (part or p) / slowest(bandwidths)

    def other(**changed):
        return functools.partial(right, **changed)

    compare(
        answer,
        right,
        [
            (1200, [10, 2, 5]),
            (7000, [3.5, 7, 7, 7, 14, 7, 7]),
            (90, [9, 3]),
            (1000, [4, 4, 4]),
        ],
        {
            "the fastest cable: all wait for the slowest": other(slowest=max),
            "the mean of the cables: all wait for the slowest": (
                other(slowest=lambda found: sum(found) / len(found))
            ),
            "the cables' bandwidths are added up: each carries its own messages": (
                other(slowest=sum)
            ),
            "half of it: the sums go round as well": (
                lambda n, found: right(n, found, turns=len(found) - 1)
            ),
            "2 p turns: the last part has p - 1 neighbours to pass": (
                lambda n, found: right(n, found, turns=2 * len(found))
            ),
            "a message is a part, n_bytes / p": other(part=1),
            "one turn: there are 2 (p - 1)": other(turns=1),
        },
        "ring_seconds: 2 (p - 1) messages of a part, by the slowest cable",
    )


def columns(answer) -> None:
    """`answer(d_model, n_heads, n_kv_heads, rank, p)`: (first, end) twice."""

    def pair(width, rank, p):
        part = width // p
        return rank * part, rank * part + part

    def right(d, h, n_kv, rank, p):
        return pair(d, rank, p), pair(n_kv * (d // h), rank, p)

    def whole(*case):
        found = answer(*case)
        pairs = found if isinstance(found, list | tuple) else []
        numbers = [x for each in pairs if isinstance(each, list | tuple) for x in each]
        if any(isinstance(x, float) for x in numbers):
            raise Mistake("columns: a column is a whole number: divide by `//`")
        return found

    compare(
        whole if callable(answer) else answer,
        right,
        [(24, 6, 2, 1, 2), (96, 8, 4, 3, 4), (40, 10, 5, 0, 5), (60, 12, 6, 2, 3)],
        {
            "keys have n_kv_heads heads: their matrix is narrower": (
                lambda d, h, n_kv, rank, p: (pair(d, rank, p), pair(d, rank, p))
            ),
            "the keys' columns are not cut: each rank needs those of its own heads": (
                lambda d, h, n_kv, rank, p: (pair(d, rank, p), (0, n_kv * (d // h)))
            ),
            "these are heads: each has d_model / n_heads columns": (
                lambda d, h, n_kv, rank, p: (pair(h, rank, p), pair(n_kv, rank, p))
            ),
            "the keys' are heads: each has d_model / n_heads columns": (
                lambda d, h, n_kv, rank, p: (pair(d, rank, p), pair(n_kv, rank, p))
            ),
            "a head of keys has d_model / n_heads features, as one of queries": (
                lambda d, h, n_kv, rank, p: (
                    pair(d, rank, p),
                    tuple(n_kv // p * (d // n_kv) * (rank + i) for i in (0, 1)),
                )
            ),
            "ranks count from 0": (
                lambda d, h, n_kv, rank, p: right(d, h, n_kv, rank + 1, p)
            ),
            "the end is the first column that is no longer there": (
                lambda *case: tuple((first, end - 1) for first, end in right(*case))
            ),
            "first and number: give first and end": (
                lambda *case: tuple((a, b - a) for a, b in right(*case))
            ),
        },
        "columns: its heads of queries, and the heads of keys that they share",
    )


def parts(answer) -> None:
    """`answer(xs, weights, bias)`: lists by rank -> a list whose sum is the layer's."""

    def case(t, d, c, p):
        x, weight = draw(t, d * p, seed=p), draw(d * p, c, seed=p + 1)
        return [*x.chunk(p, 1)], [*weight.chunk(p)], 5 + draw(c, seed=p + 2)

    def right(xs, weights, bias, times=1.0):
        products = (x @ weight for x, weight in zip(xs, weights, strict=True))
        return sum(products) + times * bias

    def total(xs, weights, bias):
        found = answer(xs, weights, bias)
        if isinstance(found, Tensor) and found.dim() < 3:
            raise Mistake("it gives one tensor: give a list, what each rank gives")
        if len(found) != len(xs):
            raise Mistake(f"{len(found)} parts for {len(xs)} ranks")
        for rank, part in enumerate(found):
            rest = (part - xs[rank] @ weights[rank]).detach()
            if not torch.allclose(rest, rest[:1].expand_as(rest), atol=1e-4):
                raise Mistake(f"rank {rank} has only xs[{rank}] and weights[{rank}]")
        return sum(found)

    compare(
        total if callable(answer) else answer,
        right,
        [case(2, 3, 2, 3), case(2, 2, 3, 2), case(3, 4, 2, 5), case(2, 3, 2, 1)],
        {
            "every rank adds the bias: the sum has it as often as there are ranks": (
                lambda xs, *rest: right(xs, *rest, times=len(xs))
            ),
            "the bias is missing: one rank adds it": functools.partial(right, times=0),
            "all ranks but one add the bias": (
                lambda xs, *rest: right(xs, *rest, times=len(xs) - 1)
            ),
        },
        "parts: the bias once, however many ranks",
    )


def equal_work(answer) -> None:
    """`answer(p)`: for each rank its two of the pieces 0 to 2p - 1."""

    def right(p):
        return [[rank, 2 * p - 1 - rank] for rank in range(p)]

    def in_order(p):
        found = [sorted(float(piece) for piece in pair) for pair in answer(p)]
        return sorted(found)

    compare(
        in_order if callable(answer) else answer,
        right,
        [(1,), (2,), (5,), (8,)],
        {
            "neighbours: the last rank's queries see the most": (
                lambda p: [[2 * rank, 2 * rank + 1] for rank in range(p)]
            ),
            "every p-th piece: both of the last rank's see more than the first one's": (
                lambda p: [[rank, rank + p] for rank in range(p)]
            ),
            "pieces count from 0": (
                lambda p: [[rank + 1, 2 * p - rank] for rank in range(p)]
            ),
        },
        "equal_work: an early piece and a late one, 2 p + 1 blocks for each rank",
    )
