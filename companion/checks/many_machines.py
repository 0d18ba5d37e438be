"""Checks of chapter 11."""

import functools
import statistics
from collections.abc import Iterable, Iterator

from torch import Tensor, allclose

from .compare import Mistake, compare, draw

CABLES = {
    "the fastest cable: all wait for the slowest": max,
    "the mean of the cables: all wait for the slowest": statistics.mean,
    "the cables' times are added up: all send at once, and wait for the slowest": (
        lambda found: 1 / sum(1 / x for x in found)
    ),
    "the cables' bandwidths are added up: each carries its own messages": sum,
    "rank 0's cable alone: all wait for the slowest": lambda found: found[0],
    "the last rank's cable counts too: it leads to rank 0": lambda x: min(x[:-1]),
}
TURNS = {
    "half of it: the sums go round as well": lambda p: p - 1,
    "2 p turns: the last part has p - 1 neighbours to pass": lambda p: 2 * p,
    "p turns: p - 1 add up, p - 1 hand round (and 2 (p - 1) // p is 1)": lambda p: p,
    "one turn: there are 2 (p - 1)": lambda p: 1,
}


def seconds(n_bytes, bandwidths, turns=lambda p: 2 * (p - 1), slowest=min, part=None):
    """Of an all-reduce; or a wrong number, by other turns, cables or parts."""
    p = len(bandwidths)
    return turns(p) * n_bytes / (part or p) / slowest(bandwidths)


def ring_seconds(answer) -> None:
    """`answer(n_bytes, bandwidths)`: seconds of an all-reduce round a ring."""
    compare(
        answer,
        seconds,
        [
            (1200, [10, 2, 5]),
            (7000, [3.5, 7, 7, 7, 14, 7, 7]),
            (90, [9, 3]),
            (1000, [4, 4, 4]),
        ],
        {words: functools.partial(seconds, slowest=f) for words, f in CABLES.items()}
        | {words: functools.partial(seconds, turns=f) for words, f in TURNS.items()}
        | {
            "a message is a part, n_bytes / p": functools.partial(seconds, part=1),
            "a part needn't be a whole number of bytes here: divide by `/`": (
                lambda n, found: seconds(n // len(found) * len(found), found)
            ),
        },
        "ring_seconds: 2 (p - 1) messages of a part, by the slowest cable",
    )


def pair(width, rank, p):
    part = width // p
    return rank * part, rank * part + part


def both(d, h, n_kv, *at):
    return pair(d, *at), pair(n_kv * (d // h), *at)


def but_keys(other):
    """The right columns of queries, but others for the keys."""
    return lambda d, *rest: (pair(d, *rest[2:]), other(d, *rest))


COLUMNS = {
    "keys have n_kv_heads heads: their matrix is narrower": but_keys(
        lambda d, h, n_kv, *at: pair(d, *at)
    ),
    "the keys' columns are not cut: each rank needs those of its own heads": but_keys(
        lambda d, h, n_kv, *at: (0, n_kv * (d // h))
    ),
    "these are heads: each has d_model / n_heads columns": (
        lambda d, h, n_kv, *at: (pair(h, *at), pair(n_kv, *at))
    ),
    "the keys' are heads: each has d_model / n_heads columns": but_keys(
        lambda d, h, n_kv, *at: pair(n_kv, *at)
    ),
    "the keys begin too far right: their heads before this rank's are fewer": but_keys(
        lambda d, h, n_kv, r, p: (r * (d // p), r * (d // p) + n_kv * (d // h) // p)
    ),
    "first the queries' columns, then the keys'": lambda *case: both(*case)[::-1],
    "ranks count from 0": lambda d, h, n_kv, r, p: both(d, h, n_kv, r + 1, p),
    "the end is the first column that is no longer there": (
        lambda *case: tuple((first, end - 1) for first, end in both(*case))
    ),
    "first and number: give first and end": (
        lambda *case: tuple((a, b - a) for a, b in both(*case))
    ),
}


def columns(answer) -> None:
    """`answer(d_model, n_heads, n_kv_heads, rank, p)`: (first, end) twice."""

    def two_pairs(d_model, n_heads, n_kv_heads, rank, p):
        found = answer(d_model, n_heads, n_kv_heads, rank, p)
        pairs = found if isinstance(found, list | tuple) else []
        if any(isinstance(each, slice | range | int | float) for each in pairs):
            raise Mistake("columns: give two pairs of numbers, (first, end) twice")
        if any(isinstance(x, float) for each in pairs for x in each):
            raise Mistake("columns: a column is a whole number: divide by `//`")
        return found

    compare(
        two_pairs if callable(answer) else answer,
        both,
        [(24, 6, 2, 1, 2), (96, 8, 4, 3, 4), (40, 10, 5, 0, 5), (60, 12, 6, 2, 3)],
        COLUMNS,
        "columns: its heads of queries, and the heads of keys that they share",
    )


def total(xs, weights, bias, times=lambda p: 1):
    """The layer's answer, but with the bias so many times."""
    return sum(x @ w for x, w in zip(xs, weights, strict=True)) + times(len(xs)) * bias


BIASES = {
    "every rank adds the bias: the sum has it as often as there are ranks": lambda p: p,
    "the bias is missing: one rank adds it": lambda p: 0,
    "all ranks but one add the bias: one alone should": lambda p: p - 1,
    "a p-th of the bias: every rank adds that, or one adds it all": lambda p: 1 / p,
}


def parts(answer) -> None:
    """`answer(xs, weights, bias)`: lists by rank -> a list whose sum is the layer's."""

    def case(t, d, c, p):
        x, weight = draw(t, d * p, seed=p), draw(d * p, c, seed=p + 1)
        return [*x.chunk(p, 1)], [*weight.chunk(p)], 5 + draw(c, seed=p + 2)

    def added(xs, weights, bias):
        found = answer([*xs], [*weights], bias)
        found = [*found] if isinstance(found, Iterator) else found
        if isinstance(found, Tensor) and found.dim() < 3:
            raise Mistake("parts: one tensor: give a list, what each rank gives")
        if not isinstance(found, list | tuple | Tensor):
            return found
        if len(found) != len(xs):
            raise Mistake(f"parts: {len(found)} parts for {len(xs)} ranks")
        for rank, part in enumerate(found):
            rest = (part - xs[rank] @ weights[rank]).detach()
            if not allclose(rest, rest[:1].expand_as(rest), atol=1e-4):
                own = f"xs[{rank}] @ weights[{rank}], with a bias or without"
                raise Mistake(f"parts: rank {rank} gives another thing than {own}")
        return sum(found)

    tried = added if callable(answer) else answer
    cases = [case(2, 3, 2, 3), case(2, 2, 3, 2), case(3, 4, 2, 5), case(2, 3, 2, 1)]
    cases.append(([draw(1, 2)] * 3, [draw(2, 4)] * 3, 10 + draw(4)))
    wrong = {words: functools.partial(total, times=f) for words, f in BIASES.items()}
    compare(tried, total, cases, wrong, "parts: the bias once, however many ranks")


PIECES = {
    "neighbours: the last rank's queries see the most": (
        lambda p: [[2 * rank, 2 * rank + 1] for rank in range(p)]
    ),
    "every p-th piece: both of the last rank's see more than the first one's": (
        lambda p: [[rank, rank + p] for rank in range(p)]
    ),
}


def equal_work(answer) -> None:
    """`answer(p)`: for each rank its two of the pieces 0 to 2p - 1."""

    def right(p):
        return [[rank, 2 * p - 1 - rank] for rank in range(p)]

    def in_order(p):
        if (pairs := answer(p)) is None:
            return None
        pairs = pairs.tolist() if isinstance(pairs, Tensor) else pairs
        if not all(isinstance(pair, Iterable) for pair in pairs):
            raise Mistake("equal_work: give a list of pairs, one for each rank")
        pairs = sorted(sorted(pair) for pair in pairs)
        pieces, wanted = sorted(sum(pairs, [])), [*range(2 * p)]
        if pieces != wanted or {*map(len, pairs)} != {2}:
            said = f"two pieces of {wanted}, counted from 0, for each rank: not {pairs}"
            raise Mistake(f"equal_work: for p = {p}: {said}")
        if pairs not in [right(p), *(wrong(p) for wrong in PIECES.values())]:
            few, many = (f(pairs, key=sum) for f in (min, max))
            work = f"{few} makes {sum(few) + 2} blocks, {many} {sum(many) + 2}"
            raise Mistake(f"equal_work: for p = {p} the work is not equal: {work}")
        return pairs

    tried, cases = in_order if callable(answer) else answer, [(1,), (2,), (5,), (8,)]
    praise = "equal_work: an early piece and a late one, 2 p + 1 blocks for each rank"
    compare(tried, right, cases, PIECES, praise)
