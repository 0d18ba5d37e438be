"""Right and wrong answers to the exercises of chapter 06."""

import torch

from companion import checks

INF = float("inf")


def right_scaled(chances, t):
    return (chances.log() / t).softmax(-1)


def right_penalty(logits, seen, amount):
    result = logits.clone()
    for token in set(seen):
        result[token] -= amount
    return result


def twice(logits, seen, amount):
    result = logits.clone()
    for token in seen:
        result[token] -= amount
    return result


def in_place(logits, seen, amount):
    logits[list(set(seen))] -= amount
    return logits


def right_nucleus(logits, p):
    chances, kept, total = logits.softmax(-1), [], 0.0
    for token in logits.argsort(descending=True).tolist():
        kept.append(token)
        total += chances[token].item()
        if total >= p:
            break
    result = torch.full_like(logits, -INF)
    result[kept] = logits[kept]
    return result


def stays_sorted(logits, p):
    values = logits.sort(descending=True).values
    chances = values.softmax(-1)
    return values.masked_fill(chances.cumsum(-1) - chances >= p, -INF)


def drops_the_crossing_one(logits, p):
    result = right_nucleus(logits, p)
    last = result.masked_fill(result == -INF, INF).argmin()
    result[last] = -INF
    return result


RIGHT = [
    (checks.scaled, right_scaled),
    (checks.penalty, right_penalty),
    (checks.nucleus, right_nucleus),
]
WRONG = [
    (checks.scaled, lambda p, t: p ** (1 / t), "do not sum to 1"),
    (checks.scaled, lambda p, t: (p / t).softmax(-1), "logits that are divided"),
    (
        checks.scaled,
        lambda p, t: (p / t) / (p / t).sum(-1, keepdim=True),
        "changes nothing",
    ),
    (checks.scaled, lambda p, t: right_scaled(p, 1 / t), "1 / t, not t"),
    (checks.penalty, twice, "once is enough"),
    (checks.penalty, in_place, "changes its input"),
    (checks.penalty, lambda z, s, a: right_penalty(z, s, -a), "was added"),
    (checks.nucleus, stays_sorted, "come back sorted"),
    (checks.nucleus, drops_the_crossing_one, "crosses p is dropped"),
    (
        checks.nucleus,
        lambda z, p: z.masked_fill(z.softmax(-1) < 1 - p, -INF),
        "sum the chances",
    ),
]
