"""Right and wrong answers to the exercises of chapter 10."""

import heapq

import torch

from companion import checks


def right_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    return 2 * n_layers * n_tokens * d_model * n_kv_heads // n_heads * n_bytes


def right_waits(arrivals, lengths, n_rows):
    """With a heap of the times at which rows are free."""
    free = [0] * n_rows
    waits = []
    for at, n in zip(arrivals, lengths, strict=True):
        end = max(heapq.heappop(free), at) + n
        heapq.heappush(free, end)
        waits.append(end - at)
    return waits


def by_passes(arrivals, lengths, n_rows):
    """Pass by pass, as a server does."""
    rows, ends, queue, now = {}, {}, list(range(len(arrivals))), 0
    while queue or rows:
        while queue and len(rows) < n_rows and arrivals[queue[0]] <= now:
            i = queue.pop(0)
            rows[i] = lengths[i]
        now += 1
        for i in [*rows]:
            rows[i] -= 1
            if not rows[i]:
                ends[i] = now
                del rows[i]
    return [ends[i] - at for i, at in enumerate(arrivals)]


def slowest_waits(arrivals, lengths, n_rows):
    now, waits = 0, []
    while len(waits) < len(arrivals):
        first = len(waits)
        now = max(now, arrivals[first])
        last = first
        while last < len(arrivals) and last - first < n_rows and arrivals[last] <= now:
            last += 1
        waits += [now + lengths[i] - arrivals[i] for i in range(first, last)]
        now += max(lengths[first:last])
    return waits


def shortest_first(arrivals, lengths, n_rows):
    order = sorted(range(len(arrivals)), key=lambda i: (arrivals[i], lengths[i]))
    waits = right_waits(
        [arrivals[i] for i in order], [lengths[i] for i in order], n_rows
    )
    return [waits[order.index(i)] for i in range(len(order))]


def right_int8(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


def right_chances(logits, guess_logits, t):
    p = torch.softmax(logits, 0)
    q = torch.softmax(guess_logits / t, 0)
    kept = torch.where(p < q, p / q, 1.0)
    more = torch.where(p > q, p - q, 0.0)
    return kept, (more / more.sum() if more.any() else p)


def wrong_chances(kept=None, anew=None):
    def answer(logits, guess_logits, t):
        p, q = logits.softmax(-1), (guess_logits / t).softmax(-1)
        right = right_chances(logits, guess_logits, t)
        return kept(p, q) if kept else right[0], anew(p, q) if anew else right[1]

    return answer


RIGHT = [
    (checks.waits, right_waits),
    (checks.waits, by_passes),
    (checks.waits, lambda *case: tuple(right_waits(*case))),
    (checks.waits, lambda *case: torch.tensor(right_waits(*case))),
    (checks.guess_chances, right_chances),
    (checks.guess_chances, lambda *case: [*right_chances(*case)]),
]
WRONG = [
    (checks.waits, slowest_waits, "takes the next at once"),
    (checks.waits, lambda a, n, rows: [*n], "nobody waits"),
    (checks.waits, shortest_first, "served in order"),
    (checks.waits, lambda a, n, rows: right_waits(a, n, 1), "there is one row"),
    (
        checks.waits,
        lambda a, n, rows: [
            w + x for w, x in zip(right_waits(a, n, rows), a, strict=True)
        ],
        "take the arrival away",
    ),
    (
        checks.waits,
        lambda a, n, rows: [
            w - x for w, x in zip(right_waits(a, n, rows), n, strict=True)
        ],
        "its own passes",
    ),
    (checks.guess_chances, wrong_chances(anew=lambda p, q: p), "comes twice"),
    (
        checks.guess_chances,
        wrong_chances(anew=lambda p, q: (p - q).clamp(min=0)),
        "sum to 1",
    ),
    (checks.guess_chances, wrong_chances(kept=lambda p, q: p / q), "above 1"),
    (
        checks.guess_chances,
        wrong_chances(kept=lambda p, q: (q / p).clamp(max=1)),
        "exchanged",
    ),
    (checks.guess_chances, lambda p, q, t: right_chances(p, q, 1.0), "divided by t"),
    (
        checks.guess_chances,
        wrong_chances(
            anew=lambda p, q: (p - q).clamp(min=0) / (p - q).clamp(min=0).sum()
        ),
        "0 / 0",
    ),
    (checks.guess_chances, lambda p, q, t: right_chances(p, q, t)[0], "wanted"),
]
