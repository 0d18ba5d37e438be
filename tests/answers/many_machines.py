"""Right and wrong answers to the exercises of chapter 11."""

import numpy as np
import torch

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_seconds(n_bytes, bandwidths):
    p = len(bandwidths)
    seconds = 0.0
    for _ in range(2 * (p - 1)):
        seconds += max(n_bytes / p / cable for cable in bandwidths)
    return seconds


def right_columns(W_Q, W_K, n_heads, n_kv_heads, rank, p):
    d_head = W_Q.shape[1] // n_heads
    queries, keys = W_Q.split(d_head, 1), W_K.split(d_head, 1)
    own = torch.arange(n_heads).chunk(p)[rank].tolist()
    needed = sorted({head // (n_heads // n_kv_heads) for head in own})
    own_queries = torch.cat([queries[i] for i in own], 1)
    return own_queries, torch.cat([keys[i] for i in needed], 1)


def columns(keys):
    def answer(W_Q, W_K, h, n, rank, p):
        return right_columns(W_Q, W_K, h, n, rank, p)[0], keys(W_K, h, n, rank, p)

    return answer


def right_parts(xs, weights, bias):
    return [x @ w + bias / len(xs) for x, w in zip(xs, weights, strict=True)]


@wrong(checks.parts, "the bias is missing")
def products(xs, weights, bias):
    return [x @ w for x, w in zip(xs, weights, strict=True)]


def by_index(W_Q, W_K, n_heads, n_kv_heads, rank, p):
    d = W_Q.shape[1] // n_heads
    heads = torch.arange(rank * n_heads // p, (rank + 1) * n_heads // p)
    keys = (heads // (n_heads // n_kv_heads)).unique()
    columns_of_head = torch.arange(d)
    return [
        matrix[:, (own[:, None] * d + columns_of_head).flatten()]
        for matrix, own in ((W_Q, heads), (W_K, keys))
    ]


def by_repeating(W_Q, W_K, n_heads, n_kv_heads, rank, p):
    """Each head of queries gets the number of its keys; repeated ones go."""
    numbers = torch.arange(n_kv_heads).repeat_interleave(n_heads // n_kv_heads)
    heads = W_K.chunk(n_kv_heads, 1)
    yield W_Q.tensor_split(p, 1)[rank]
    own = numbers.chunk(p)[rank].unique_consecutive()
    yield torch.cat([heads[i] for i in own.tolist()], 1)


def key_heads(heads):
    """Its own queries, and those `heads(needed, n_kv_heads, rank, p)` of keys."""

    def keys(W_K, h, n, rank, p):
        needed = [i * n // h for i in range(rank * h // p, (rank + 1) * h // p)]
        own = heads(needed, n, rank, p)
        return torch.cat([W_K.split(W_K.shape[1] // n, 1)[i] for i in own], 1)

    return columns(keys)


def bias_element_by_element(xs, weights, bias):
    """Each rank adds some elements of the bias."""
    partial = products(xs, weights, bias)
    for i in range(len(bias)):
        partial[i % len(xs)][:, i] += bias[i]
    return partial


def emptied(xs, weights, bias):
    partial = [xs.pop(0) @ weights.pop(0) + bias]
    while xs:
        partial.append(xs.pop() @ weights.pop())
    return partial[:1] + partial[:0:-1]


def bias_where(largest):
    """The bias goes to the rank that is the largest, which no rank can know."""

    def answer(xs, weights, bias):
        partial = products(xs, weights, bias)
        sizes = [largest(x, y) for x, y in zip(xs, partial, strict=True)]
        partial[sizes.index(max(sizes))] += bias
        return partial

    return answer


@wrong(checks.parts, "the x of other ranks")
def shared_by_size(xs, weights, bias):
    sizes = [x.norm() for x in xs]
    partial = products(xs, weights, bias)
    return [y + bias * n / sum(sizes) for y, n in zip(partial, sizes, strict=True)]


def recursive_pieces(p):
    if p == 0:
        return []
    return [(0, 2 * p - 1), *((a + 1, b + 1) for a, b in recursive_pieces(p - 1))]


RIGHT = [
    (checks.ring_seconds, lambda n, b: np.max(n / np.array(b)) * (2 - 2 / len(b))),
    (checks.columns, by_index),
    (checks.columns, by_repeating),
    (checks.parts, bias_element_by_element),
    (checks.parts, emptied),
    (
        checks.parts,
        lambda xs, ws, b: map(lambda x, w: torch.addmm(b / len(xs), x, w), xs, ws),
    ),
    (checks.equal_work, recursive_pieces),
    (checks.equal_work, lambda p: [{r, 2 * p - 1 - r} for r in range(p)]),
    (checks.equal_work, lambda p: [map(int, pair) for pair in recursive_pieces(p)]),
    (checks.equal_work, lambda p: np.array(recursive_pieces(p))),
    (checks.ring_seconds, right_seconds),
    (
        checks.ring_seconds,
        lambda n, cables: torch.tensor(2 * (1 - 1 / len(cables)) * n / min(cables)),
    ),
    (checks.columns, right_columns),
    (checks.columns, lambda *case: [*right_columns(*case)]),
    (checks.columns, lambda *case: (x.clone() for x in right_columns(*case))),
    (checks.parts, right_parts),
    (checks.parts, lambda *case: torch.stack(right_parts(*case))),
    (
        checks.parts,
        lambda xs, ws, b: [
            y + b * (r == len(xs) - 1) for r, y in enumerate(products(xs, ws, b))
        ],
    ),
    (checks.parts, lambda *case: (part for part in right_parts(*case))),
    (checks.equal_work, lambda p: [(2 * p - 1 - r, r) for r in range(p)][::-1]),
    (checks.equal_work, lambda p: zip(range(p), range(2 * p - 1, p - 1, -1))),  # noqa: B905
    (checks.equal_work, lambda p: ((r, 2 * p - 1 - r) for r in range(p))),
    (checks.equal_work, lambda p: torch.tensor([(r, 2 * p - 1 - r) for r in range(p)])),
]
WRONG = [
    *wrong,
    (
        checks.columns,
        columns(
            lambda K, h, n, r, p: K[:, r * n // p * (d := K.shape[1] // n) :][
                :, : max(1, n // p) * d
            ]
        ),
        "n_kv_heads // p heads of keys, or one",
    ),
    (checks.columns, key_heads(lambda needed, *_: needed[:1]), "first query asks"),
    (checks.columns, key_heads(lambda needed, *_: needed[-1:]), "last query asks"),
    (checks.columns, key_heads(lambda needed, *_: needed), "is kept once"),
    (
        checks.columns,
        key_heads(
            lambda needed, n, r, p: (
                [r // (p // n)] if p >= n else range(r * (n // p), (r + 1) * (n // p))
            )
        ),
        r"n_kv_heads = 3, rank = 0, p = 2: at W_K's columns the shape is",
    ),
    (
        checks.columns,
        key_heads(
            lambda needed, n, r, p: range(
                k := min(r * n // p, n - -(-n // p)), k + -(-n // p)
            )
        ),
        r"n_kv_heads = 4, rank = 1, p = 6: at W_K's columns the shape is",
    ),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: (Q[:, : len(5)], K),
        r"TypeError: object of type 'int' has no len\(\)$",
    ),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: (Q.chunk(p, 1)[r + p], K),
        "IndexError: tuple index out of range$",
    ),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: ([Q.chunk(h, 1)[i] for i in range(h / p)], K),
        "heads are counted in whole numbers",
    ),
    (
        checks.columns,
        lambda *case: dict(zip("QK", right_columns(*case), strict=True)),
        "give two matrices",
    ),
    (
        checks.ring_seconds,
        lambda n, b: 2 * (len(b) - 1) * n / (len(b) - 1) / min(b),
        r"or 2 \(p - 1\) of n_bytes / \(p - 1\)",
    ),
    (checks.ring_seconds, lambda n, b: 2 * n / min(b), "2 p turns of n_bytes / p"),
    (checks.parts, bias_where(lambda x, y: y.norm()), "the x of other ranks"),
    (checks.parts, bias_where(lambda x, y: -y.sum()), "the x of other ranks"),
    (checks.parts, bias_where(lambda x, y: x.max()), "the x of other ranks"),
    (
        checks.parts,
        lambda xs, ws, b: [(y, b) for y in products(xs, ws, b)],
        r"rank 0 gives \(a float32 tensor \(2, 2\), .*wanted a float32 tensor \(2, 2\)",
    ),
    (
        checks.parts,
        lambda xs, ws, b: [y.sum(0) for y in right_parts(xs, ws, b)],
        r"rank 0 gives tensor\(.* wanted a float32 tensor \(2, 2\)",
    ),
    (
        checks.parts,
        lambda *case: [sum(right_parts(*case))],
        "1 parts for 3 ranks: one for each$",
    ),
    (
        checks.parts,
        lambda *case: dict(enumerate(right_parts(*case))),
        "give a list of parts, not {",
    ),
    (
        checks.parts,
        lambda xs, ws, b: [x @ ws[i + 1] for i, x in enumerate(xs)],
        "IndexError: list index out of range$",
    ),
    (
        checks.equal_work,
        lambda p: [(r, len(5)) for r in range(p)],
        r"TypeError: object of type 'int' has no len\(\)$",
    ),
    (
        checks.equal_work,
        lambda p: [(str(r), r) for r in range(p)],
        "give a list of pairs",
    ),
    (checks.equal_work, lambda p: 2 * p + 1, "give a list of pairs, .* not 3"),
    (
        checks.parts,
        lambda xs, ws, b: [y + b * (r == 1) for r, y in enumerate(products(xs, ws, b))],
        "there may be only rank 0",
    ),
    (
        checks.parts,
        lambda xs, weights, bias: [
            x @ w + (bias if torch.equal(x, xs[0]) else 0)
            for x, w in zip(xs, weights, strict=True)
        ],
        "parts: ",
    ),
    (
        checks.ring_seconds,
        lambda n, cables: right_seconds(n, cables) * min(cables) / max(cables),
        "the fastest cable",
    ),
    (
        checks.ring_seconds,
        lambda n, cables: right_seconds(n, cables) / 2,
        "the sums go round",
    ),
    (checks.ring_seconds, lambda n, cables: 2 * n / min(cables), "2 p turns"),
    (
        checks.ring_seconds,
        lambda n, cables: 2 * (len(cables) - 1) * n / min(cables),
        "a message is a part",
    ),
    (checks.ring_seconds, lambda n, cables: n / min(cables), "n_bytes once through"),
    (
        checks.ring_seconds,
        lambda n, cables: sum(
            2 * (len(cables) - 1) / len(cables) * n / cable for cable in cables
        ),
        "all send at once",
    ),
    (
        checks.ring_seconds,
        lambda n, cables: 2 * (len(cables) - 1) / len(cables) * n / cables[0],
        "rank 0's cable alone",
    ),
    (checks.ring_seconds, lambda n, cables: n / len(cables) / min(cables), "one turn"),
    (checks.ring_seconds, lambda n, cables: print(n), "is there a `return`"),
    (
        checks.parts,
        lambda xs, ws, bias: [y + bias for y in products(xs, ws, bias)],
        "every rank adds the bias: the sum has it",
    ),
    (
        checks.parts,
        lambda xs, ws, b: (
            [torch.cat(xs, 1) @ torch.cat(ws) + b] + [0 * b] * (len(xs) - 1)
        ),
        "rank 0 gives more",
    ),
    (
        checks.ring_seconds,
        lambda n, cables: right_seconds(n, cables) * min(cables) / min(cables[:-1]),
        "the last rank's cable counts too",
    ),
    (checks.parts, lambda *case: sum(right_parts(*case)), "give a list"),
    (checks.parts, lambda *case: print(right_parts(*case)), "is there a `return`"),
    (
        checks.parts,
        lambda xs, ws, b: [
            y + b / len(xs) * (r == 0) for r, y in enumerate(products(xs, ws, b))
        ],
        "a p-th of the bias",
    ),
    (
        checks.parts,
        lambda xs, ws, b: [
            sum(products(xs, ws, b)[: r + 1]) + b / len(xs) for r in range(len(xs))
        ],
        "rank 1 gives more",
    ),
    (checks.parts, lambda *case: right_parts(*case)[1:], "2 parts for 3 ranks"),
    (
        checks.parts,
        lambda xs, ws, bias: [
            y + bias * (r > 0) for r, y in enumerate(products(xs, ws, bias))
        ],
        "all ranks but one",
    ),
    (checks.equal_work, lambda p: [(2 * r, 2 * r + 1) for r in range(p)], "neighbours"),
    (checks.equal_work, lambda p: [(r, r + p) for r in range(p)], "every p-th"),
    (checks.equal_work, lambda p: [(r + 1, 2 * p - r) for r in range(p)], "from 0"),
    (checks.equal_work, lambda p: [(r, r) for r in range(p)], "nobody has piece"),
    (
        checks.equal_work,
        lambda p: recursive_pieces(p) if p in (1, 2, 5, 8) else [],
        "for p = 3: give p pairs",
    ),
    (checks.equal_work, lambda p: [*range(2 * p)], "a list of pairs"),
    (
        checks.equal_work,
        lambda p: [(r, 2 * p - 0.5 - r) for r in range(p)],
        "nobody has piece",
    ),
    (
        checks.equal_work,
        lambda p: [(r, 2 * p - r) for r in range(p)],
        "nobody has piece",
    ),
    (
        checks.equal_work,
        lambda p: [(r, p - 1 - r) for r in range(p)],
        "there are 2 p pieces",
    ),
    (
        checks.equal_work,
        lambda p: [range(2 * p)] + [()] * (p - 1),
        "two pieces for each rank",
    ),
    (
        checks.equal_work,
        lambda p: [(r, p + (r + 1) % p) for r in range(p)],
        r"the ranks compute \[8, 10, 12, 14, 11\] blocks",
    ),
    (checks.columns, columns(lambda K, h, n, r, p: K), "not cut"),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: [
            x[:, r * Q.shape[1] // p :][:, : Q.shape[1] // p] for x in (Q, K)
        ],
        "narrower",
    ),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: (
            Q[:, r * h // p : (r + 1) * h // p],
            K[:, r * h // p * n // h : ((r + 1) * h // p * n - 1) // h + 1],
        ),
        "these are heads",
    ),
    (
        checks.columns,
        columns(
            lambda K, h, n, r, p: K[
                :, r * (n // p) * K.shape[1] // n : (r + 1) * (n // p) * K.shape[1] // n
            ]
        ),
        "neighbours keep the same one",
    ),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: [x.chunk(p, 1)[r] for x in (Q, K)],
        "neighbours keep a whole one",
    ),
    (
        checks.columns,
        columns(lambda K, h, n, r, p: K.split(K.shape[1] // n, 1)[r]),
        "fewer heads of keys than ranks",
    ),
    (
        checks.columns,
        columns(
            lambda K, h, n, r, p: torch.cat(
                K.split(K.shape[1] // n, 1)[r % n :][: max(1, n // p)], 1
            )
        ),
        "modulo n_kv_heads",
    ),
    (
        checks.columns,
        lambda Q, K, *rest: [x.T for x in right_columns(Q.T, K.T, *rest)],
        "these are rows",
    ),
    (checks.columns, lambda *case: right_columns(*case)[::-1], "first the queries'"),
    (
        checks.columns,
        lambda *case: [x[:, :-1] for x in right_columns(*case)],
        "no longer there",
    ),
    (checks.columns, lambda *case: right_columns(*case)[0], "give two matrices"),
    (checks.columns, lambda *case: print(len(case)), "is there a `return`"),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: (Q[:, r * Q.shape[1] / p :], K),
        "whole numbers: divide",
    ),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: [x[:, r::p] for x in right_columns(Q, K, h, n, r, p)],
        "at W_Q's columns the shape is",
    ),
    (
        checks.columns,
        lambda Q, K, h, n, r, p: [
            x[:, (r + 1) * x.shape[1] // p : (r + 2) * x.shape[1] // p]
            if x is Q
            else K[
                :,
                ((r + 1) * h // p * n // h) * K.shape[1] // n : (
                    ((r + 2) * h // p * n - 1) // h + 1
                )
                * K.shape[1]
                // n,
            ]
            for x in (Q, K)
        ],
        "ranks count from 0",
    ),
    (
        checks.ring_seconds,
        lambda n, b: right_seconds(n, b) * min(b) * len(b) / sum(b),
        "a mean cable",
    ),
    (checks.ring_seconds, lambda n, b: 8 * right_seconds(n, b), "no factor 8"),
    (checks.ring_seconds, lambda n, b: n / min(b), "carries 2 .p - 1. of p parts"),
    (
        checks.parts,
        lambda xs, ws, b: [
            y + b * (r == len(xs) - 2) for r, y in enumerate(products(xs, ws, b))
        ],
        "there may be only rank 0",
    ),
    (
        checks.parts,
        lambda xs, ws, b: [
            y + [0 * b, b][r == 1] + 0 * xs[1].sum()
            for r, y in enumerate(products(xs, ws, b))
        ],
        "so let rank 0 add the bias",
    ),
    (
        checks.parts,
        lambda xs, ws, b: [x @ w - b for x, w in zip(xs, ws, strict=True)],
        "parts: for ",
    ),
    (
        checks.equal_work,
        lambda p: [(r, 2 * p - 2 - r) for r in range(p)],
        "nobody has piece",
    ),
    (
        checks.equal_work,
        lambda p: [(r, p + r // 2) for r in range(p)],
        "nobody has piece",
    ),
    (
        checks.equal_work,
        lambda p: {r: (r, 2 * p - 1 - r) for r in range(p)},
        "list of pairs",
    ),
    (
        checks.equal_work,
        lambda p: [[r for r in range(p)], [2 * p - 1 - r for r in range(p)]],
        "two pieces for each rank",
    ),
    (
        checks.equal_work,
        lambda p: (([r], [2 * p - 1 - r]) for r in range(p)),
        "list of pairs",
    ),
]
