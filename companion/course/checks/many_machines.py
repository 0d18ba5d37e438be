"""Checks of chapter 11: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable, Sequence
from numbers import Real

import torch
from torch import Tensor

from .compare import Exercise, Raises, check, draw, identity, ways_of
from .mistakes import Mistake
from .words import describe, listed


@check
def ring_seconds() -> Exercise:
    """`answer(n_bytes, bandwidths)`: seconds of an all-reduce round a ring."""

    def right(
        n_bytes: int,
        bandwidths: list,
        cable: Callable = min,
        n_messages: Callable = lambda p: 2 * (p - 1),
        size: Callable = lambda n_bytes, p: n_bytes / p,
    ) -> float:
        p = len(bandwidths)
        return n_messages(p) * size(n_bytes, p) / cable(bandwidths)

    way = ways_of(right)

    cases = [
        (1200, [10, 2, 5]),
        (7000, [3.5, 7, 7, 7, 14, 7, 7]),
        (90, [9, 3]),
        (1000, [4, 4, 4]),
    ]
    mistakes = {
        "the fastest cable: all wait for the slowest": way(cable=max),
        "the cables' times are added up: all send at once, and wait for the slowest": (
            way(cable=lambda bandwidths: 1 / sum(1 / x for x in bandwidths))
        ),
        "rank 0's cable alone: all wait for the slowest": way(
            cable=lambda bandwidths: bandwidths[0]
        ),
        "the last rank's cable counts too: it leads to rank 0": way(
            cable=lambda bandwidths: min(bandwidths[:-1])
        ),
        "half of it: the sums go round as well": way(n_messages=lambda p: p - 1),
        "2 p turns of n_bytes / p, or 2 (p - 1) of n_bytes / (p - 1): there are p"
        " parts, and each passes p - 1 neighbours, twice": way(
            n_messages=lambda p: 2 * p
        ),
        "n_bytes once through the slowest cable: it carries 2 (p - 1) of p parts": (
            way(n_messages=identity)
        ),
        "a mean cable: all wait for the slowest": way(
            cable=lambda bandwidths: sum(bandwidths) / len(bandwidths)
        ),
        "bandwidths are in bytes: no factor 8": lambda *case: 8 * right(*case),
        "one turn: there are 2 (p - 1)": way(n_messages=lambda p: 1),
        "a message is a part, n_bytes / p": way(size=lambda n_bytes, p: n_bytes),
    }
    praise = "2 (p - 1) messages of a part, by the slowest cable"
    return Exercise(right, cases, mistakes, praise)


@check
def columns() -> Exercise:
    """`answer(W_Q, W_K, n_heads, n_kv_heads, rank, p)`: a rank's columns of both."""

    # n_heads is h here, and n_kv_heads is n.

    def columns_of(W: Tensor, d_head: int, heads: Sequence[int]) -> Tensor:
        """The columns of some heads, one after the other."""
        parts = [W[:, head * d_head : (head + 1) * d_head] for head in heads]
        return torch.cat([W[:, :0], *parts], 1)

    def asked(own: range, h: int, n: int, rank: int, p: int) -> range:
        """The heads of keys that a rank's own heads of queries ask."""
        return range(own[0] * n // h, own[-1] * n // h + 1)

    def right(
        W_Q: Tensor,
        W_K: Tensor,
        h: int,
        n: int,
        rank: int,
        p: int,
        kept: Callable = asked,
        width: Callable = identity,
    ) -> tuple[Tensor, Tensor]:
        own = range(rank * h // p, (rank + 1) * h // p)
        d = width(W_Q.shape[1] // h)
        return columns_of(W_Q, d, own), columns_of(W_K, d, kept(own, h, n, rank, p))

    way = ways_of(right)

    def part_of_a_key_head(
        W_Q: Tensor, W_K: Tensor, h: int, n: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        queries, _ = right(W_Q, W_K, h, n, rank, p)
        width = W_K.shape[1]
        return queries, W_K[:, rank * width // p : (rank + 1) * width // p]

    def as_many_key_heads_as_ranks(
        W_Q: Tensor, W_K: Tensor, h: int, n: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        queries, _ = right(W_Q, W_K, h, n, rank, p)
        return queries, W_K.split(W_Q.shape[1] // h, 1)[rank]

    def rows_of_both(W_Q: Tensor, W_K: Tensor, *sizes: int) -> tuple[Tensor, Tensor]:
        queries, keys = right(W_Q.mT, W_K.mT, *sizes)
        return queries.mT, keys.mT

    def two_matrices(
        answer: Callable,
        W_Q: Tensor,
        W_K: Tensor,
        n_heads: int,
        n_kv_heads: int,
        rank: int,
        p: int,
    ) -> dict[str, Tensor]:
        matrices = answer(W_Q, W_K, n_heads, n_kv_heads, rank, p)
        if not isinstance(matrices, list | tuple) or len(matrices) != 2:
            raise Mistake("give two matrices: columns of W_Q, and columns of W_K")
        return {"W_Q's columns": matrices[0], "W_K's columns": matrices[1]}

    def case(d_head: int, n_heads: int, n_kv_heads: int, rank: int, p: int) -> tuple:
        d_model = d_head * n_heads
        W_Q = draw(d_model, d_model)
        W_K = draw(d_model, d_head * n_kv_heads, seed=1)
        return W_Q, W_K, n_heads, n_kv_heads, rank, p

    cases = [
        case(4, 6, 2, 1, 2),
        case(2, 12, 4, 2, 4),
        case(6, 8, 4, 5, 8),
        case(5, 6, 3, 0, 3),
        case(4, 8, 2, 1, 4),
        # Several heads of keys a rank, and heads that two ranks ask.
        case(4, 8, 8, 1, 2),
        case(4, 6, 3, 0, 2),
        case(4, 6, 3, 1, 2),
        case(6, 12, 4, 1, 6),
    ]
    mistakes = {
        "keys have n_kv_heads heads: their matrix is narrower": way(
            kept=lambda own, h, n, rank, p: own
        ),
        "the keys' columns are not cut: each rank needs those that its queries ask": (
            way(kept=lambda own, h, n, rank, p: range(n))
        ),
        "these are heads: each has d_model / n_heads columns": way(
            width=lambda d_head: 1
        ),
        # n_kv_heads // p heads of keys are 0 where there are more ranks.
        "more ranks than heads of keys: neighbours keep the same one": way(
            kept=lambda own, h, n, rank, p: range(
                rank * (n // p), (rank + 1) * (n // p)
            )
        ),
        "more ranks than heads of keys: neighbours keep a whole one, not each a part": (
            part_of_a_key_head
        ),
        "neighbours share a head: rank r doesn't ask head r modulo n_kv_heads": way(
            kept=lambda own, h, n, rank, p: range(rank % n, rank % n + max(1, n // p))
        ),
        "there may be fewer heads of keys than ranks": as_many_key_heads_as_ranks,
        "only the head of keys that a rank's first query asks: the others may ask"
        " more": way(kept=lambda *case: asked(*case)[:1]),
        "only the head of keys that a rank's last query asks: the others may ask"
        " more": way(kept=lambda *case: asked(*case)[-1:]),
        "a head of keys that several queries ask is kept once": way(
            kept=lambda own, h, n, rank, p: [head * n // h for head in own]
        ),
        "n_kv_heads // p heads of keys, or one, for each rank: where p doesn't divide"
        " them, two neighbours ask the same one": way(
            kept=lambda own, h, n, rank, p: range(
                rank * n // p, rank * n // p + max(1, n // p)
            )
        ),
        "these are rows: a feature is a column, as in x W_Q": rows_of_both,
        "first the queries' columns, then the keys'": lambda *case: right(*case)[::-1],
        "ranks count from 0": (
            lambda W_Q, W_K, h, n, rank, p: right(W_Q, W_K, h, n, rank + 1, p)
        ),
        "the end is the first column that is no longer there": (
            lambda *case: tuple(W[:, :-1] for W in right(*case))
        ),
        "columns are counted in whole numbers: divide by `//`": Raises(
            TypeError, "slice indices must be integers"
        ),
        "heads are counted in whole numbers: divide by `//`": Raises(
            TypeError, "'float' object cannot be interpreted as an integer"
        ),
    }
    praise = "its heads of queries, and the heads of keys that they share"
    return Exercise(right, cases, mistakes, praise, two_matrices)


@check
def parts() -> Exercise:
    """`answer(xs, weights, bias)`: lists by rank -> a list whose sum is the layer's."""

    def right(
        xs: list,
        weights: list,
        bias: Tensor,
        share: Callable = lambda rank, p: rank == 0,  # of the bias
    ) -> list[Tensor]:
        products = [x @ weight for x, weight in zip(xs, weights, strict=True)]
        p = len(products)
        return [x + share(rank, p) * bias for rank, x in enumerate(products)]

    way = ways_of(right)

    def rank_1_adds(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        parts = right(xs, weights, 0 * bias)
        parts[1] += bias
        return parts

    def as_list(parts: list | tuple | Tensor, n_ranks: int) -> list[Tensor]:
        """The parts as a list; a Mistake where there isn't one for each rank."""
        if not isinstance(parts, list | tuple | Tensor):
            raise Mistake(f"give a list of parts, not {describe(parts)}")
        if len(parts) != n_ranks and isinstance(parts, Tensor):
            raise Mistake(f"give a list of {n_ranks} parts, not {describe(parts)}")
        if len(parts) != n_ranks:
            raise Mistake(f"{len(parts)} parts for {n_ranks} ranks: one for each")
        return [*parts]

    def added(answer: Callable, xs: list, weights: list, bias: Tensor) -> Tensor:
        """The sum, after a look at each rank's part by itself."""
        parts = as_list(answer([*xs], [*weights], bias), len(xs))
        for rank, part in enumerate(parts):
            product = xs[rank] @ weights[rank]
            if not isinstance(part, Tensor) or part.shape != product.shape:
                raise Mistake(
                    f"rank {rank} gives {describe(part)}, wanted {describe(product)}"
                )
            rest = part - product
            # To 1e-4, as all checks.
            if not rest.allclose(rest[:1].expand_as(rest), atol=1e-4):
                raise Mistake(f"rank {rank} gives more than its product and the bias")

            # The same with other numbers on the other ranks, which it can't know.
            others = [0 * x for x in xs]
            others[rank] = xs[rank]
            again = as_list(answer(others, [*weights], bias), len(xs))[rank]
            if not part.allclose(again, rtol=1e-4, atol=1e-4):
                raise Mistake(f"what rank {rank} gives depends on the x of other ranks")
        return sum(parts)

    def case(t: int, d: int, c: int, p: int) -> tuple[list, list, Tensor]:
        """Inputs (t d) and weights (d c) for each of p ranks, and a bias (c)."""
        x = draw(t, d * p, seed=p)
        weight = draw(d * p, c, seed=p + 1)
        bias = 5 + draw(c, seed=p + 2)
        return [*x.chunk(p, 1)], [*weight.chunk(p)], bias

    cases = [
        case(2, 3, 2, 3),
        case(2, 2, 3, 2),
        case(3, 4, 2, 5),
        case(2, 3, 2, 1),
        ([draw(1, 2)] * 3, [draw(2, 4)] * 3, 10 + draw(4)),  # all ranks alike
    ]
    mistakes = {
        "every rank adds the bias: the sum has it as often as there are ranks": way(
            share=lambda rank, p: 1
        ),
        "the bias is missing: one rank adds it": way(share=lambda rank, p: 0),
        "all ranks but one add the bias: one alone should": way(
            share=lambda rank, p: rank > 0
        ),
        "rank 1 adds the bias, but there may be only rank 0": way(
            share=lambda rank, p: rank == 1
        ),
        "a p-th of the bias: every rank adds that, or one adds it all": way(
            share=lambda rank, p: (rank == 0) / p
        ),
        "there may be one rank alone, so let rank 0 add the bias": rank_1_adds,
    }
    praise = "the bias once, however many ranks"
    return Exercise(right, cases, mistakes, praise, added)


@check
def equal_work() -> Exercise:
    """`answer(p)`: for each rank its two of the pieces 0 to 2p - 1."""

    def right(p: int) -> list[tuple[int, int]]:
        return [(rank, 2 * p - 1 - rank) for rank in range(p)]

    def in_order(answer: Callable, p: int) -> list[list[float]]:
        """The pairs, sorted; a Mistake where a piece is missing, or work is uneven."""
        result = answer(p)
        no_pairs = f"give a list of pairs, one for each rank, not {describe(result)}"
        if not isinstance(result, list | tuple | Tensor):
            raise Mistake(no_pairs)

        # Any two numbers in any order are a pair.
        pairs = []
        for pair in result:
            pair = pair.tolist() if isinstance(pair, Tensor) else listed(pair)
            if not isinstance(pair, list | tuple | set):
                raise Mistake(no_pairs)
            if not all(isinstance(piece, Real | Tensor) for piece in pair):
                raise Mistake(no_pairs)
            pairs.append(sorted(float(piece) for piece in pair))
        pairs.sort()

        # Each piece is there, and each rank has as much to do.
        if [len(pair) for pair in pairs] != [2] * p:
            raise Mistake("give p pairs, two pieces for each rank", pairs)
        missing = set(range(2 * p)) - {piece for pair in pairs for piece in pair}
        if missing:
            raise Mistake(f"nobody has piece {min(missing)}", pairs)
        blocks = [round(sum(pair)) + 2 for pair in pairs]
        if len(set(blocks)) > 1:
            raise Mistake(f"the ranks compute {blocks} blocks", pairs)
        return pairs

    cases = [(1,), (2,), (5,), (8,), (3,), (6,)]
    mistakes = {
        "neighbours: the last rank's queries see the most": (
            lambda p: [(2 * rank, 2 * rank + 1) for rank in range(p)]
        ),
        "every p-th piece: both of the last rank's see more than the first one's": (
            lambda p: [(rank, rank + p) for rank in range(p)]
        ),
        "pieces are counted from 0": (
            lambda p: [(rank + 1, 2 * p - rank) for rank in range(p)]
        ),
        "there are 2 p pieces": (lambda p: [(rank, p - 1 - rank) for rank in range(p)]),
    }
    praise = "an early piece and a late one, 2 p + 1 blocks for each rank"
    return Exercise(right, cases, mistakes, praise, in_order)
