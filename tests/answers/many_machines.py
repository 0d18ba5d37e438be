"""Right and wrong answers to the exercises of chapter 11."""

import torch

from companion import checks


def right_seconds(n_bytes, bandwidths):
    p, seconds = len(bandwidths), 0.0
    for _ in range(2 * (p - 1)):
        seconds += max(n_bytes / p / cable for cable in bandwidths)
    return seconds


def right_columns(d_model, n_heads, n_kv_heads, rank, p):
    d_head = d_model // n_heads
    heads = torch.arange(n_heads).chunk(p)[rank] * d_head
    keys = torch.arange(n_kv_heads).chunk(p)[rank] * d_head
    return [(int(x[0]), int(x[-1]) + d_head) for x in (heads, keys)]


def columns(keys):
    def answer(d, h, n_kv, rank, p):
        return right_columns(d, h, n_kv, rank, p)[0], keys(d, h, n_kv, rank, p)

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
    (checks.columns, lambda *case: [[*pair] for pair in right_columns(*case)]),
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
    (checks.ring_seconds, lambda n, found: n / min(found), "p turns"),
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
        checks.columns,
        columns(lambda d, h, n_kv, r, p: (r * d // p, (r + 1) * d // p)),
        "narrower",
    ),
    (
        checks.columns,
        lambda *case: [(a / 1, b / 1) for a, b in right_columns(*case)],
        "divide by `//`",
    ),
    (checks.columns, columns(lambda d, h, n_kv, r, p: (0, n_kv * d // h)), "not cut"),
    (
        checks.columns,
        columns(
            lambda d, h, n_kv, r, p: (
                r * n_kv // p * (d // n_kv),
                (r + 1) * n_kv // p * (d // n_kv),
            )
        ),
        "narrower",
    ),
    (checks.columns, lambda *case: right_columns(*case)[::-1], "first the queries'"),
    (
        checks.columns,
        lambda *case: [slice(*each) for each in right_columns(*case)],
        "two pairs of numbers",
    ),
    (checks.columns, lambda *case: sum(right_columns(*case), ()), "two pairs"),
    (
        checks.columns,
        columns(lambda d, h, n_kv, r, p: (r * n_kv // p, (r + 1) * n_kv // p)),
        "the keys' are heads",
    ),
    (
        checks.columns,
        lambda d, h, n_kv, r, p: right_columns(d, h, n_kv, (r + 1) % p, p),
        "wanted",
    ),
    (
        checks.columns,
        lambda *case: [(a, b - 1) for a, b in right_columns(*case)],
        "no longer there",
    ),
    (
        checks.columns,
        lambda *case: [(a, b - a) for a, b in right_columns(*case)],
        "give first and end",
    ),
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
    (checks.equal_work, lambda p: [(r, r) for r in range(p)], r"at blocks\[0\]"),
    (checks.equal_work, lambda p: [*range(2 * p)], "a list of pairs"),
    (
        checks.equal_work,
        lambda p: [(r, 2 * p - 0.5 - r) for r in range(p)],
        r"at blocks\[0\]",
    ),
    (
        checks.equal_work,
        lambda p: [(r, 2 * p - r) for r in range(p)],
        r"at blocks\[0\]",
    ),
    (
        checks.equal_work,
        lambda p: [(r, p - 1 - r) for r in range(p)],
        "there are 2 p pieces",
    ),
    (checks.equal_work, lambda p: [range(2 * p)] + [()] * (p - 1), r"at blocks\[0\]"),
    (
        checks.equal_work,
        lambda p: [(r, p + (r + 1) % p) for r in range(p)],
        r"at blocks\[0\] it gives 8, wanted 11",
    ),
]
