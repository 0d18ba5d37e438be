"""Checks of chapter 11."""

from numbers import Real

import torch
from torch import Tensor

from .compare import Mistake, compare, draw, stops
from .words import describe, listed


def ring_seconds(answer) -> None:
    """`answer(n_bytes, bandwidths)`: seconds of an all-reduce round a ring."""

    def right(n, found, turns=lambda p: 2 * (p - 1), cable=min, part=0):
        p = len(found)
        return turns(p) * n / (part or p) / cable(found)

    cases = [(1200, [10, 2, 5]), (7000, [3.5, 7, 7, 7, 14, 7, 7]), (90, [9, 3])]
    compare(answer, right, [*cases, (1000, [4, 4, 4])], {
        "the fastest cable: all wait for the slowest": {"cable": max},
        "the cables' times are added up: all send at once, and wait for the slowest":
            {"cable": lambda found: 1 / sum(1 / x for x in found)},
        "rank 0's cable alone: all wait for the slowest": {"cable": lambda x: x[0]},
        "the last rank's cable counts too: it leads to rank 0":
            {"cable": lambda found: min(found[:-1])},
        "half of it: the sums go round as well": {"turns": lambda p: p - 1},
        "2 p turns of n_bytes / p, or 2 (p - 1) of n_bytes / (p - 1): there are p"
        " parts, and each passes p - 1 neighbours, twice": {"turns": lambda p: 2 * p},
        "n_bytes once through the slowest cable: it carries 2 (p - 1) of p parts":
            {"turns": lambda p: p},
        "a mean cable: all wait for the slowest": {"cable": lambda x: sum(x) / len(x)},
        "bandwidths are in bytes: no factor 8": {"turns": lambda p: 16 * (p - 1)},
        "one turn: there are 2 (p - 1)": {"turns": lambda p: 1},
        "a message is a part, n_bytes / p": {"part": 1},
    }, "ring_seconds: 2 (p - 1) messages of a part, by the slowest cable")  # fmt: skip


def columns(answer) -> None:
    """`answer(W_Q, W_K, n_heads, n_kv_heads, rank, p)`: a rank's columns of both."""

    def case(d, h, n, *at):
        return draw(d * h, d * h), draw(d * h, d * n, seed=1), h, n, *at

    def right(Q, K, h, n, rank, p, keys=None, less=0, d=None):
        d, first, end = d or Q.shape[1] // h, rank * h // p, (rank + 1) * h // p
        own = keys(rank, p, n, h) if keys else (first * n // h, (end * n - 1) // h + 1)
        both = (Q, first, end), (K, *own)
        return [x[:, round(i * d) : round(j * d) - less] for x, i, j in both]

    def with_keys(heads):
        """A rank's own queries, and those `heads` of keys, each by itself."""

        def answer(Q, K, h, n, rank, p):
            d = Q.shape[1] // h
            queries = Q[:, rank * h // p * d : (rank + 1) * h // p * d]
            keys = [K[:, head * d : (head + 1) * d] for head in heads(h, n, rank, p)]
            return queries, torch.cat(keys, 1)

        return answer

    def asked(h, n, rank, p):
        """For each of a rank's heads of queries the head of keys that it asks."""
        return [head * n // h for head in range(rank * h // p, (rank + 1) * h // p)]

    def equally_many(h, n, rank, p):
        first = rank * n // p
        return range(first, first + max(1, n // p))

    def one_of_as_many_as_ranks(Q, K, h, n, rank, p):
        d = Q.shape[1] // h
        queries = Q[:, rank * h // p * d : (rank + 1) * h // p * d]
        return queries, K.split(d, 1)[rank]

    def two(answer, W_Q, W_K, n_heads, n_kv_heads, rank, p):
        found = answer(W_Q, W_K, n_heads, n_kv_heads, rank, p)
        if not isinstance(found, list | tuple) or len(found) != 2:
            raise Mistake("give two matrices: columns of W_Q, and columns of W_K")
        return dict(zip(("W_Q's columns", "W_K's columns"), found, strict=True))

    cases = [case(4, 6, 2, 1, 2), case(2, 12, 4, 2, 4), case(6, 8, 4, 5, 8)]
    cases += [case(5, 6, 3, 0, 3), case(4, 8, 2, 1, 4)]
    # Several heads of keys a rank, and heads that two ranks ask.
    cases += [case(4, 8, 8, 1, 2), case(4, 6, 3, 0, 2), case(4, 6, 3, 1, 2)]
    cases += [case(6, 12, 4, 1, 6)]
    praise = "columns: its heads of queries, and the heads of keys that they share"
    compare(answer, right, cases, {
        "keys have n_kv_heads heads: their matrix is narrower":
            {"keys": lambda rank, p, n, h: (rank * h / p, (rank + 1) * h / p)},
        "the keys' columns are not cut: each rank needs those that its queries ask":
            {"keys": lambda rank, p, n, h: (0, n)},
        "these are heads: each has d_model / n_heads columns": {"d": 1},
        "more ranks than heads of keys: neighbours keep the same one":
            {"keys": lambda rank, p, n, h: (rank * (n // p), (rank + 1) * (n // p))},
        "more ranks than heads of keys: neighbours keep a whole one, not each a part":
            {"keys": lambda rank, p, n, h: (rank * n / p, (rank + 1) * n / p)},
        "neighbours share a head: rank r doesn't ask head r modulo n_kv_heads":
            {"keys": lambda rank, p, n, h: (rank % n, rank % n + max(1, n // p))},
        "there may be fewer heads of keys than ranks": one_of_as_many_as_ranks,
        "only the head of keys that a rank's first query asks: the others may ask more":
            with_keys(lambda *case: asked(*case)[:1]),
        "only the head of keys that a rank's last query asks: the others may ask more":
            with_keys(lambda *case: asked(*case)[-1:]),
        "a head of keys that several queries ask is kept once": with_keys(asked),
        "n_kv_heads // p heads of keys, or one, for each rank: where p doesn't divide"
        " them, two neighbours ask the same one": with_keys(equally_many),
        "these are rows: a feature is a column, as in x W_Q":
            lambda Q, K, *how: [x.mT for x in right(Q.mT, K.mT, *how)],
        "first the queries' columns, then the keys'": lambda *case: right(*case)[::-1],
        "ranks count from 0": lambda *case: right(*case[:4], case[4] + 1, case[5]),
        "the end is the first column that is no longer there": {"less": 1},
        "columns are counted in whole numbers: divide by `//`":
            stops(TypeError, "slice indices must be integers"),
        "heads are counted in whole numbers: divide by `//`":
            stops(TypeError, "'float' object cannot be interpreted as an integer"),
    }, praise, two)  # fmt: skip


def parts(answer) -> None:
    """`answer(xs, weights, bias)`: lists by rank -> a list whose sum is the layer's."""

    def case(t, d, c, p):
        x, weight = draw(t, d * p, seed=p), draw(d * p, c, seed=p + 1)
        return [*x.chunk(p, 1)], [*weight.chunk(p)], 5 + draw(c, seed=p + 2)

    def right(xs, weights, bias, share=lambda rank, p: rank == 0):
        triples = enumerate(zip(xs, weights, strict=True))
        return [x @ w + share(i, len(xs)) * bias for i, (x, w) in triples]

    def in_a_list(found, n):
        if not isinstance(found, list | tuple | Tensor):
            raise Mistake(f"give a list of parts, not {describe(found)}")
        if len(found) != n and isinstance(found, Tensor):
            raise Mistake(f"give a list of {n} parts, not {describe(found)}")
        if len(found) != n:
            raise Mistake(f"{len(found)} parts for {n} ranks: one for each")
        return [*found]

    def added(answer, xs, weights, bias):
        """The sum, after a look at each rank's part by itself."""
        found = in_a_list(answer([*xs], [*weights], bias), len(xs))
        for rank, part in enumerate(found):
            product = xs[rank] @ weights[rank]
            if not isinstance(part, Tensor) or part.shape != product.shape:
                said = f"rank {rank} gives {describe(part)}, wanted {describe(product)}"
                raise Mistake(said)
            rest = part - product
            if not rest.allclose(rest[:1].expand_as(rest), atol=1e-4):
                raise Mistake(f"rank {rank} gives more than its product and the bias")

            # The same with other numbers on the other ranks, which it can't know.
            others = [x if i == rank else 0 * x for i, x in enumerate(xs)]
            again = in_a_list(answer(others, [*weights], bias), len(xs))[rank]
            if not part.allclose(again, rtol=1e-4, atol=1e-4):
                raise Mistake(f"what rank {rank} gives depends on the x of other ranks")
        return sum(found)

    def rank_1_adds(xs, weights, bias):
        products = [x @ weight for x, weight in zip(xs, weights, strict=True)]
        products[1] += bias
        return products

    cases = [case(2, 3, 2, 3), case(2, 2, 3, 2), case(3, 4, 2, 5), case(2, 3, 2, 1)]
    cases.append(([draw(1, 2)] * 3, [draw(2, 4)] * 3, 10 + draw(4)))
    compare(answer, right, cases, {
        "every rank adds the bias: the sum has it as often as there are ranks":
            {"share": lambda rank, p: 1},
        "the bias is missing: one rank adds it": {"share": lambda rank, p: 0},
        "all ranks but one add the bias: one alone should":
            {"share": lambda rank, p: rank > 0},
        "rank 1 adds the bias, but there may be only rank 0":
            {"share": lambda rank, p: rank == 1},
        "a p-th of the bias: every rank adds that, or one adds it all":
            {"share": lambda rank, p: (rank == 0) / p},
        "there may be one rank alone, so let rank 0 add the bias": rank_1_adds,
    }, "parts: the bias once, however many ranks", added)  # fmt: skip


def equal_work(answer) -> None:
    """`answer(p)`: for each rank its two of the pieces 0 to 2p - 1."""

    def right(p):
        return [(rank, 2 * p - 1 - rank) for rank in range(p)]

    def in_order(answer, p):
        """The pairs, sorted; a Mistake where a piece is missing, or work is uneven."""
        found = answer(p)
        said = f"give a list of pairs, one for each rank, not {describe(found)}"
        if not isinstance(found, list | tuple | Tensor):
            raise Mistake(said)
        pairs = []
        for pair in found:
            pair = pair.tolist() if isinstance(pair, Tensor) else listed(pair)
            if not isinstance(pair, list | tuple | set):
                raise Mistake(said)
            if not all(isinstance(piece, Real | Tensor) for piece in pair):
                raise Mistake(said)
            pairs.append(sorted(float(piece) for piece in pair))
        pairs.sort()
        if [len(pair) for pair in pairs] != [2] * p:
            raise Mistake("give p pairs, two pieces for each rank", pairs)
        if missing := {*range(2 * p)} - {piece for pair in pairs for piece in pair}:
            raise Mistake(f"nobody has piece {min(missing)}", pairs)
        if len({*(blocks := [round(sum(pair)) + 2 for pair in pairs])}) > 1:
            raise Mistake(f"the ranks compute {blocks} blocks", pairs)
        return pairs

    praise = "equal_work: an early piece and a late one, 2 p + 1 blocks for each rank"
    compare(answer, right, [(1,), (2,), (5,), (8,)], {
        "neighbours: the last rank's queries see the most":
            lambda p: [(2 * rank, 2 * rank + 1) for rank in range(p)],
        "every p-th piece: both of the last rank's see more than the first one's":
            lambda p: [(rank, rank + p) for rank in range(p)],
        "pieces are counted from 0": lambda p: [(r + 1, 2 * p - r) for r in range(p)],
        "there are 2 p pieces": lambda p: [(rank, p - 1 - rank) for rank in range(p)],
    }, praise, in_order)  # fmt: skip
