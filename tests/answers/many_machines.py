"""Right and wrong answers to the exercises of chapter 11."""

import torch

from companion import checks


def right_seconds(n_bytes, bandwidths):
    p, seconds = len(bandwidths), 0.0
    for _ in range(2 * (p - 1)):
        seconds += max(n_bytes / p / cable for cable in bandwidths)
    return seconds


def right_columns(W_Q, W_K, n_heads, n_kv_heads, rank, p):
    d_head = W_Q.shape[1] // n_heads
    queries, keys = W_Q.split(d_head, 1), W_K.split(d_head, 1)
    own = torch.arange(n_heads).chunk(p)[rank].tolist()
    asked = sorted({head // (n_heads // n_kv_heads) for head in own})
    return torch.cat([queries[i] for i in own], 1), torch.cat(
        [keys[i] for i in asked], 1
    )


def columns(keys):
    def answer(W_Q, W_K, h, n, rank, p):
        return right_columns(W_Q, W_K, h, n, rank, p)[0], keys(W_K, h, n, rank, p)

    return answer


def right_parts(xs, weights, bias):
    return [x @ w + bias / len(xs) for x, w in zip(xs, weights, strict=True)]


def products(xs, weights, bias):
    return [x @ w for x, w in zip(xs, weights, strict=True)]


RIGHT = [
    (checks.ring_seconds, right_seconds),
    (
        checks.ring_seconds,
        lambda n, found: torch.tensor(2 * (1 - 1 / len(found)) * n / min(found)),
    ),
    (checks.columns, right_columns),
    (checks.columns, lambda *case: [*right_columns(*case)]),
    (checks.columns, lambda *case: (x.clone() for x in right_columns(*case))),
    (
        checks.columns,
        columns(
            lambda K, h, n, r, p: K[:, r * n // p * (d := K.shape[1] // n) :][
                :, : max(1, n // p) * d
            ]
        ),
    ),
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
        lambda n, found: right_seconds(n, found) * min(found) / max(found),
        "the fastest cable",
    ),
    (
        checks.ring_seconds,
        lambda n, found: right_seconds(n, found) / 2,
        "the sums go round",
    ),
    (checks.ring_seconds, lambda n, found: 2 * n / min(found), "2 p turns"),
    (
        checks.ring_seconds,
        lambda n, found: 2 * (len(found) - 1) * n / min(found),
        "a message is a part",
    ),
    (checks.ring_seconds, lambda n, found: n / min(found), "n_bytes once through"),
    (
        checks.ring_seconds,
        lambda n, found: sum(
            2 * (len(found) - 1) / len(found) * n / cable for cable in found
        ),
        "all send at once",
    ),
    (
        checks.ring_seconds,
        lambda n, found: 2 * (len(found) - 1) / len(found) * n / found[0],
        "rank 0's cable alone",
    ),
    (checks.ring_seconds, lambda n, found: n / len(found) / min(found), "one turn"),
    (checks.ring_seconds, lambda n, found: print(n), "is there a `return`"),
    (
        checks.parts,
        lambda xs, ws, bias: [y + bias for y in products(xs, ws, bias)],
        "every rank adds the bias: the sum has it",
    ),
    (checks.parts, products, "the bias is missing"),
    (
        checks.parts,
        lambda xs, ws, b: (
            [torch.cat(xs, 1) @ torch.cat(ws) + b] + [0 * b] * (len(xs) - 1)
        ),
        "rank 0 gives more",
    ),
    (
        checks.ring_seconds,
        lambda n, found: right_seconds(n, found) * min(found) / min(found[:-1]),
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
        lambda Q, K, *how: [x.T for x in right_columns(Q.T, K.T, *how)],
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
