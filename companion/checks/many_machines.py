"""Checks of chapter 11."""

from .compare import Mistake, compare, draw


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
        "2 p turns: a part passes p - 1 neighbours": {"turns": lambda p: 2 * p},
        "all bytes in one turn, or p turns: p - 1 add up, and p - 1 hand round":
            {"turns": lambda p: p},
        "one turn: there are 2 (p - 1)": {"turns": lambda p: 1},
        "a message is a part, n_bytes / p": {"part": 1},
    }, "ring_seconds: 2 (p - 1) messages of a part, by the slowest cable")  # fmt: skip


def columns(answer) -> None:
    """`answer(d_model, n_heads, n_kv_heads, rank, p)`: (first, end) twice."""

    def pair(width, rank, p):
        part = width // p
        return rank * part, rank * part + part

    def right(d, h, n, *at, keys=lambda d, h, n, *at: pair(n * d // h, *at)):
        return pair(d, *at), keys(d, h, n, *at)

    def whole(answer, d_model, n_heads, n_kv_heads, rank, p):
        found = answer(d_model, n_heads, n_kv_heads, rank, p)
        if any(isinstance(x, float) for pair in found for x in pair):
            raise Mistake("a column is a whole number: divide by `//`")
        return found

    cases = [(24, 6, 2, 1, 2), (96, 8, 4, 3, 4), (40, 10, 5, 0, 5), (60, 12, 6, 2, 3)]
    praise = "columns: its heads of queries, and the heads of keys that they share"
    compare(answer, right, cases, {
        "keys have n_kv_heads heads: their matrix is narrower":
            {"keys": lambda d, h, n, *at: pair(d, *at)},
        "the keys' columns are not cut: each rank needs those of its own heads":
            {"keys": lambda d, h, n, *at: (0, n * d // h)},
        "these are heads: each has d_model / n_heads columns":
            lambda d, h, n, *at: (pair(h, *at), pair(n, *at)),
        "the keys' are heads: each has d_model / n_heads columns":
            {"keys": lambda d, h, n, *at: pair(n, *at)},
        "first the queries' columns, then the keys'": lambda *case: right(*case)[::-1],
        "ranks count from 0": lambda d, h, n, r, p: right(d, h, n, r + 1, p),
        "the end is the first column that is no longer there":
            lambda *case: [(first, end - 1) for first, end in right(*case)],
        "first and number: give first and end":
            lambda *case: [(first, end - first) for first, end in right(*case)],
        "give two pairs of numbers, (first, end) twice": TypeError,
    }, praise, whole)  # fmt: skip


def parts(answer) -> None:
    """`answer(xs, weights, bias)`: lists by rank -> a list whose sum is the layer's."""

    def case(t, d, c, p):
        x, weight = draw(t, d * p, seed=p), draw(d * p, c, seed=p + 1)
        return [*x.chunk(p, 1)], [*weight.chunk(p)], 5 + draw(c, seed=p + 2)

    def right(xs, weights, bias, share=lambda rank, p: rank == 0):
        triples = enumerate(zip(xs, weights, strict=True))
        return [x @ w + share(i, len(xs)) * bias for i, (x, w) in triples]

    def added(answer, xs, weights, bias):
        """The sum, and what is left of each part without the rank's own product."""
        found = [*answer([*xs], [*weights], bias)]
        if len(found) != len(xs):
            raise Mistake(f"{len(found)} parts for {len(xs)} ranks: give a list")
        for rank, part in enumerate(found):
            rest = part - xs[rank] @ weights[rank]
            if not rest.allclose(rest[:1].expand_as(rest), atol=1e-4):
                raise Mistake(f"rank {rank} gives more than its product and the bias")
        return sum(found)

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
    }, "parts: the bias once, however many ranks", added)  # fmt: skip


def equal_work(answer) -> None:
    """`answer(p)`: for each rank its two of the pieces 0 to 2p - 1."""

    def right(p):
        return [(rank, 2 * p - 1 - rank) for rank in range(p)]

    def in_order(answer, p):
        """The pairs, sorted, and what each has to compute."""
        pairs = sorted(sorted(pair) for pair in answer(p))
        return {"blocks": [sum(pair) + 2 for pair in pairs], "pairs": pairs}

    praise = "equal_work: an early piece and a late one, 2 p + 1 blocks for each rank"
    compare(answer, right, [(1,), (2,), (5,), (8,)], {
        "neighbours: the last rank's queries see the most":
            lambda p: [(2 * rank, 2 * rank + 1) for rank in range(p)],
        "every p-th piece: both of the last rank's see more than the first one's":
            lambda p: [(rank, rank + p) for rank in range(p)],
        "pieces are counted from 0": lambda p: [(r + 1, 2 * p - r) for r in range(p)],
        "there are 2 p pieces": lambda p: [(rank, p - 1 - rank) for rank in range(p)],
        "give a list of pairs, one for each rank": TypeError,
    }, praise, in_order)  # fmt: skip
