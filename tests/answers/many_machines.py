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


def options(n, n_layers, d, p, n_tokens, bandwidth):
    """Stage, checkpoints, bytes and the two times of each way, in GB and seconds."""
    compute = n * n_tokens * 6 / 395.6e12
    network = 4 * n * (1 - 1 / p) / bandwidth
    block = 37.5 * d * n_tokens
    loss = n_tokens * 128_000
    stages = (16, 1), (4 + 12 / p, 1), (2 + 14 / p, 1), (16 / p, 1.5)
    for stage, (known, often) in enumerate(stages):
        yield stage, False, known * n, n_layers * block + loss, compute, often * network
        inputs = n_layers * 2 * d * n_tokens
        least = inputs + block + loss
        yield stage, True, known * n, least, compute * 4 / 3, often * network


def right_plan(n, n_layers, d, p, n_tokens, bandwidth, room):
    best = None
    for stage, checkpoints, *rest in options(n, n_layers, d, p, n_tokens, bandwidth):
        known, kept, compute, network = rest
        if known + kept > room:
            continue
        # Stored ever less from stage to stage, so a later one wins where times agree.
        ranked = max(compute, network), network
        if best is None or ranked <= best[0]:
            best = ranked, [stage, checkpoints]
    return best[1]


def planned(rank, stored=lambda known, kept, p: known + kept):
    """The way of least `rank(compute, network, size, stage)` among those that fit."""

    def answer(n, n_layers, d, p, n_tokens, bandwidth, room):
        ranked = []
        for stage, checkpoints, known, kept, compute, network in options(
            n, n_layers, d, p, n_tokens, bandwidth
        ):
            size = stored(known, kept, p)
            if size <= room:
                key = rank(compute, network, size, stage)
                ranked.append((key, (stage, checkpoints)))
        return min(ranked)[1]

    return answer


def in_order(compute, network, size, stage):
    return max(compute, network), network, size


def first_that_fits(n, n_layers, d, p, n_tokens, bandwidth, room):
    for stage, checkpoints, known, kept, _, _ in options(
        n, n_layers, d, p, n_tokens, bandwidth
    ):
        if known + kept <= room:
            return stage, checkpoints


def computed_again(times, sent=1, half=1):
    """Checkpoints compute and send so many times as much; `half` is of all sending."""

    def answer(n, n_layers, d, p, n_tokens, bandwidth, room):
        fitting = []
        for stage, checkpoints, known, kept, compute, network in options(
            n, n_layers, d, p, n_tokens, bandwidth
        ):
            if checkpoints:
                compute = compute * 3 / 4 * times
                network = network * sent
            seconds = max(compute, network * half)
            if known + kept <= room:
                fitting.append((seconds, network, known + kept, stage, checkpoints))
        return min(fitting)[3:]

    return answer


def without_n_tokens(n, n_layers, d, p, n_tokens, bandwidth, room):
    """As one who calls `my_step(n, p, bandwidth, 8192)`, as the chapter does."""
    fitting = []
    for stage, checkpoints, known, kept, compute, network in options(
        n, n_layers, d, p, n_tokens, bandwidth
    ):
        seconds = max(compute / n_tokens * 8192, network)
        if known + kept <= room:
            fitting.append((seconds, network, known + kept, stage, checkpoints))
    return min(fitting)[3:]


def right_parts(xs, weights, bias):
    return [x @ w + bias / len(xs) for x, w in zip(xs, weights, strict=True)]


@wrong(checks.parts, "the bias is missing")
def products(xs, weights, bias):
    return [x @ w for x, w in zip(xs, weights, strict=True)]


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
    (checks.plan, right_plan),
    (checks.plan, planned(in_order)),
    (checks.ring_seconds, lambda n, b: np.max(n / np.array(b)) * (2 - 2 / len(b))),
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
        checks.plan,
        planned(in_order, stored=lambda known, kept, p: known),
        "the activations are missing",
    ),
    (
        checks.plan,
        planned(in_order, stored=lambda known, kept, p: kept),
        "the activations alone",
    ),
    (
        checks.plan,
        planned(in_order, stored=lambda known, kept, p: known + kept / p),
        "n_tokens are one machine's",
    ),
    (
        checks.plan,
        lambda n, n_layers, d, p, n_tokens, *rest: right_plan(
            n, n_layers, d, p, n_tokens // p, *rest
        ),
        "the activations are missing|one machine's|plan: for n = ",
    ),
    (
        checks.plan,
        planned(lambda compute, network, size, stage: (compute, size)),
        "sending takes time, too, half as much again in stage 3",
    ),
    (
        checks.plan,
        planned(lambda compute, network, size, stage: (compute, network, size)),
        "where sending takes longer than computing",
    ),
    (
        checks.plan,
        planned(lambda compute, network, size, stage: (network, size)),
        "a third more with checkpoints",
    ),
    (
        checks.plan,
        planned(lambda compute, network, size, stage: (compute + network, size)),
        "both times added up",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: (compute + network, network, size)
        ),
        "both times added up",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: (min(compute, network), network, size)
        ),
        "the shorter of both times",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: (network, max(compute, network), size)
        ),
        "first the shortest step",
    ),
    (
        checks.plan,
        lambda n, n_layers, d, p, n_tokens, *rest: planned(in_order)(
            n, n_layers, d, p, p * n_tokens, *rest
        ),
        "in computing and in what is kept: the global batch",
    ),
    (
        checks.plan,
        planned(in_order, stored=lambda known, kept, p: known + p * kept),
        "it keeps these activations alone",
    ),
    (
        checks.plan,
        planned(lambda compute, network, size, stage: (max(compute, network), size)),
        "of equally short steps the one that sends least",
    ),
    (
        checks.plan,
        planned(lambda compute, network, size, stage: (max(compute, network), stage)),
        "of those the one that stores least$",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: (
                max(compute, network),
                network,
                stage,
            )
        ),
        "of those the one that stores least$",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: (
                max(compute, network),
                network,
                -size,
            )
        ),
        "of those the one that stores least$",
    ),
    (
        checks.plan,
        planned(lambda compute, network, size, stage: size),
        "this stores least",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: (
                -max(compute, network),
                network,
                size,
            )
        ),
        "this is the longest step",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: in_order(
                compute, network / 1.5 if stage == 3 else network, size, stage
            )
        ),
        "not as much",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: in_order(
                compute, network * 1.5 if stage == 2 else network, size, stage
            )
        ),
        "stage 2 sends no more than stage 0",
    ),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: in_order(
                compute, network * 1.5 if stage in (1, 2) else network, size, stage
            )
        ),
        "stages 1 and 2 send no more than stage 0",
    ),
    (checks.plan, first_that_fits, "this is the first that fits"),
    (checks.plan, computed_again(3 / 2), "not the other way round"),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: (
                round(max(compute, network), 1),
                network,
                size,
            )
        ),
        "plan: for n = ",
    ),
    (checks.plan, computed_again(5 / 3), "not two thirds"),
    (checks.plan, computed_again(2), "not twice as much"),
    (checks.plan, computed_again(4 / 3, sent=4 / 3), "send no more than without"),
    (checks.plan, computed_again(4 / 3, half=1 / 2), "of 2 bytes each"),
    (
        checks.plan,
        planned(
            lambda compute, network, size, stage: in_order(
                compute, network * 2 if stage == 3 else network, size, stage
            )
        ),
        "not three times as much",
    ),
    (
        checks.plan,
        lambda n, n_layers, d, p, n_tokens, bandwidth, room: right_plan(
            n, n_layers, d, p, n_tokens, bandwidth, room + 37.5 * d * n_tokens
        ),
        "plan: for n = ",
    ),
    (checks.plan, without_n_tokens, "not the 8,192 of the chapter"),
    (
        checks.plan,
        lambda n, n_layers, d, p, n_tokens, *rest: right_plan(
            n, n_layers, d, p, 8192, *rest
        ),
        "8,192 are the chapter's",
    ),
    (
        checks.plan,
        lambda n, n_layers, d, p, n_tokens, *rest: right_plan(
            n, n_layers, d, p, n_tokens, rest[0], rest[1] + 128_000 * n_tokens
        ),
        "the loss keeps 128,000 bytes for each token",
    ),
    (checks.plan, lambda *case: right_plan(*case)[0], "plan: "),
    (checks.plan, lambda *case: right_plan(*case)[::-1], "first the stage"),
    (checks.plan, lambda *case: print(right_plan(*case)), "is there a `return`"),
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
