"""Checks of chapter 11."""

from collections.abc import Callable, Sequence
from numbers import Real

import torch
from torch import Tensor

from .compare import Exercise, Mistake, Raises, check, draw
from .words import describe, listed


@check
def ring_seconds() -> Exercise:
    """`answer(n_bytes, bandwidths)`: seconds of an all-reduce round a ring."""

    def right(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return 2 * (p - 1) * n_bytes / p / min(bandwidths)

    # Mistakes with the cables.

    def fastest_cable(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return 2 * (p - 1) * n_bytes / p / max(bandwidths)

    def times_added(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        times = [2 * (p - 1) * n_bytes / p / bandwidth for bandwidth in bandwidths]
        return sum(times)

    def first_cable(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return 2 * (p - 1) * n_bytes / p / bandwidths[0]

    def all_but_the_last_cable(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return 2 * (p - 1) * n_bytes / p / min(bandwidths[:-1])

    def mean_cable(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return 2 * (p - 1) * n_bytes / p / (sum(bandwidths) / p)

    # Mistakes with the messages.

    def sums_alone(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return (p - 1) * n_bytes / p / min(bandwidths)

    def two_p_turns(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return 2 * p * n_bytes / p / min(bandwidths)

    def all_bytes_once(n_bytes: int, bandwidths: list) -> float:
        return n_bytes / min(bandwidths)

    def in_bits(n_bytes: int, bandwidths: list) -> float:
        return 8 * right(n_bytes, bandwidths)

    def one_turn(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return n_bytes / p / min(bandwidths)

    def whole_messages(n_bytes: int, bandwidths: list) -> float:
        p = len(bandwidths)
        return 2 * (p - 1) * n_bytes / min(bandwidths)

    cases = [
        (1200, [10, 2, 5]),
        (7000, [3.5, 7, 7, 7, 14, 7, 7]),
        (90, [9, 3]),
        (1000, [4, 4, 4]),
    ]
    mistakes = {
        "the fastest cable: all wait for the slowest": fastest_cable,
        "the cables' times are added up: all send at once, and wait for the slowest": (
            times_added
        ),
        "rank 0's cable alone: all wait for the slowest": first_cable,
        "the last rank's cable counts too: it leads to rank 0": all_but_the_last_cable,
        "half of it: the sums go round as well": sums_alone,
        "2 p turns of n_bytes / p, or 2 (p - 1) of n_bytes / (p - 1): there are p"
        " parts, and each passes p - 1 neighbours, twice": two_p_turns,
        "n_bytes once through the slowest cable: it carries 2 (p - 1) of p parts": (
            all_bytes_once
        ),
        "a mean cable: all wait for the slowest": mean_cable,
        "bandwidths are in bytes: no factor 8": in_bits,
        "one turn: there are 2 (p - 1)": one_turn,
        "a message is a part, n_bytes / p": whole_messages,
    }
    praise = "2 (p - 1) messages of a part, by the slowest cable"
    return Exercise(right, cases, mistakes, praise)


@check
def columns() -> Exercise:
    """`answer(W_Q, W_K, n_heads, n_kv_heads, rank, p)`: a rank's columns of both."""

    def right(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        d_head = W_Q.shape[1] // n_heads
        shared = n_heads // n_kv_heads
        first = rank * n_heads // p
        last = (rank + 1) * n_heads // p - 1
        queries = slice(first * d_head, (last + 1) * d_head)
        keys = slice(first // shared * d_head, (last // shared + 1) * d_head)
        return W_Q[:, queries], W_K[:, keys]

    # What the mistakes share.

    def own_queries(W_Q: Tensor, n_heads: int, rank: int, p: int) -> Tensor:
        d_head = W_Q.shape[1] // n_heads
        first = rank * n_heads // p
        end = (rank + 1) * n_heads // p
        return W_Q[:, first * d_head : end * d_head]

    def key_heads(W_K: Tensor, n_kv_heads: int, heads: Sequence[int]) -> Tensor:
        """The columns of some heads of keys, one after the other."""
        d_head = W_K.shape[1] // n_kv_heads
        parts = [W_K[:, head * d_head : (head + 1) * d_head] for head in heads]
        return torch.cat(parts, 1)

    def key_head_of_each_query(
        n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> list[int]:
        """For each of a rank's heads of queries the head of keys that it asks."""
        own = range(rank * n_heads // p, (rank + 1) * n_heads // p)
        return [head * n_kv_heads // n_heads for head in own]

    # Mistakes with the keys alone.

    def keys_as_wide_as_queries(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        d_head = W_Q.shape[1] // n_heads
        first = rank * n_heads // p
        end = (rank + 1) * n_heads // p
        own = slice(first * d_head, end * d_head)
        return W_Q[:, own], W_K[:, own]

    def keys_not_cut(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        return own_queries(W_Q, n_heads, rank, p), W_K

    def no_key_head_for_many_ranks(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        """n_kv_heads // p heads of keys are 0 where there are more ranks."""
        d_head = W_Q.shape[1] // n_heads
        width = n_kv_heads // p * d_head
        keys = W_K[:, rank * width : (rank + 1) * width]
        return own_queries(W_Q, n_heads, rank, p), keys

    def part_of_a_key_head(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        width = W_K.shape[1]
        keys = W_K[:, rank * width // p : (rank + 1) * width // p]
        return own_queries(W_Q, n_heads, rank, p), keys

    def modulo_key_heads(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        d_head = W_Q.shape[1] // n_heads
        first = rank % n_kv_heads
        end = first + max(1, n_kv_heads // p)
        keys = W_K[:, first * d_head : end * d_head]
        return own_queries(W_Q, n_heads, rank, p), keys

    def as_many_key_heads_as_ranks(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        d_head = W_Q.shape[1] // n_heads
        return own_queries(W_Q, n_heads, rank, p), W_K.split(d_head, 1)[rank]

    def first_querys_key_head(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        heads = key_head_of_each_query(n_heads, n_kv_heads, rank, p)[:1]
        keys = key_heads(W_K, n_kv_heads, heads)
        return own_queries(W_Q, n_heads, rank, p), keys

    def last_querys_key_head(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        heads = key_head_of_each_query(n_heads, n_kv_heads, rank, p)[-1:]
        keys = key_heads(W_K, n_kv_heads, heads)
        return own_queries(W_Q, n_heads, rank, p), keys

    def key_head_for_each_query(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        heads = key_head_of_each_query(n_heads, n_kv_heads, rank, p)
        keys = key_heads(W_K, n_kv_heads, heads)
        return own_queries(W_Q, n_heads, rank, p), keys

    def equally_many_key_heads(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        first = rank * n_kv_heads // p
        heads = range(first, first + max(1, n_kv_heads // p))
        keys = key_heads(W_K, n_kv_heads, heads)
        return own_queries(W_Q, n_heads, rank, p), keys

    # Mistakes with both.

    def heads_as_columns(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        shared = n_heads // n_kv_heads
        first = rank * n_heads // p
        last = (rank + 1) * n_heads // p - 1
        queries = W_Q[:, first : last + 1]
        keys = W_K[:, first // shared : last // shared + 1]
        return queries, keys

    def rows_of_both(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        queries, keys = right(W_Q.mT, W_K.mT, n_heads, n_kv_heads, rank, p)
        return queries.mT, keys.mT

    def keys_first(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        queries, keys = right(W_Q, W_K, n_heads, n_kv_heads, rank, p)
        return keys, queries

    def ranks_from_1(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        return right(W_Q, W_K, n_heads, n_kv_heads, rank + 1, p)

    def last_column_missing(
        W_Q: Tensor, W_K: Tensor, n_heads: int, n_kv_heads: int, rank: int, p: int
    ) -> tuple[Tensor, Tensor]:
        queries, keys = right(W_Q, W_K, n_heads, n_kv_heads, rank, p)
        return queries[:, :-1], keys[:, :-1]

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
        "keys have n_kv_heads heads: their matrix is narrower": keys_as_wide_as_queries,
        "the keys' columns are not cut: each rank needs those that its queries ask": (
            keys_not_cut
        ),
        "these are heads: each has d_model / n_heads columns": heads_as_columns,
        "more ranks than heads of keys: neighbours keep the same one": (
            no_key_head_for_many_ranks
        ),
        "more ranks than heads of keys: neighbours keep a whole one, not each a part": (
            part_of_a_key_head
        ),
        "neighbours share a head: rank r doesn't ask head r modulo n_kv_heads": (
            modulo_key_heads
        ),
        "there may be fewer heads of keys than ranks": as_many_key_heads_as_ranks,
        "only the head of keys that a rank's first query asks: the others may ask"
        " more": first_querys_key_head,
        "only the head of keys that a rank's last query asks: the others may ask"
        " more": last_querys_key_head,
        "a head of keys that several queries ask is kept once": key_head_for_each_query,
        "n_kv_heads // p heads of keys, or one, for each rank: where p doesn't divide"
        " them, two neighbours ask the same one": equally_many_key_heads,
        "these are rows: a feature is a column, as in x W_Q": rows_of_both,
        "first the queries' columns, then the keys'": keys_first,
        "ranks count from 0": ranks_from_1,
        "the end is the first column that is no longer there": last_column_missing,
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

    def right(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        parts = [x @ weight for x, weight in zip(xs, weights, strict=True)]
        return [parts[0] + bias, *parts[1:]]

    def all_add(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        return [x @ weight + bias for x, weight in zip(xs, weights, strict=True)]

    def nobody_adds(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        return [x @ weight for x, weight in zip(xs, weights, strict=True)]

    def all_but_one_add(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        parts = nobody_adds(xs, weights, bias)
        return [parts[0], *(part + bias for part in parts[1:])]

    def rank_1_adds_if_there(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        parts = nobody_adds(xs, weights, bias)
        for rank, part in enumerate(parts):
            if rank == 1:
                parts[rank] = part + bias
        return parts

    def one_adds_a_pth(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        parts = nobody_adds(xs, weights, bias)
        return [parts[0] + bias / len(parts), *parts[1:]]

    def rank_1_adds(xs: list, weights: list, bias: Tensor) -> list[Tensor]:
        parts = nobody_adds(xs, weights, bias)
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
        "every rank adds the bias: the sum has it as often as there are ranks": all_add,
        "the bias is missing: one rank adds it": nobody_adds,
        "all ranks but one add the bias: one alone should": all_but_one_add,
        "rank 1 adds the bias, but there may be only rank 0": rank_1_adds_if_there,
        "a p-th of the bias: every rank adds that, or one adds it all": one_adds_a_pth,
        "there may be one rank alone, so let rank 0 add the bias": rank_1_adds,
    }
    praise = "the bias once, however many ranks"
    return Exercise(right, cases, mistakes, praise, added)


@check
def equal_work() -> Exercise:
    """`answer(p)`: for each rank its two of the pieces 0 to 2p - 1."""

    def right(p: int) -> list[tuple[int, int]]:
        return [(rank, 2 * p - 1 - rank) for rank in range(p)]

    def neighbours(p: int) -> list[tuple[int, int]]:
        return [(2 * rank, 2 * rank + 1) for rank in range(p)]

    def every_pth(p: int) -> list[tuple[int, int]]:
        return [(rank, rank + p) for rank in range(p)]

    def counted_from_1(p: int) -> list[tuple[int, int]]:
        return [(rank + 1, 2 * p - rank) for rank in range(p)]

    def p_pieces(p: int) -> list[tuple[int, int]]:
        return [(rank, p - 1 - rank) for rank in range(p)]

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

    cases = [(1,), (2,), (5,), (8,)]
    mistakes = {
        "neighbours: the last rank's queries see the most": neighbours,
        "every p-th piece: both of the last rank's see more than the first one's": (
            every_pth
        ),
        "pieces are counted from 0": counted_from_1,
        "there are 2 p pieces": p_pieces,
    }
    praise = "an early piece and a late one, 2 p + 1 blocks for each rank"
    return Exercise(right, cases, mistakes, praise, in_order)
