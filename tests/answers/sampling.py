"""Right and wrong answers to the exercises of chapter 06."""

import torch

import companion
from companion import checks

INF = float("inf")


def right_scaled(chances, t):
    return (chances.log() / t).softmax(-1)


def powers(chances, t):
    return chances ** (1 / t)


def right_penalty(logits, seen, amount):
    result = logits.clone()
    for token in set(seen):
        result[token] -= amount
    return result


def is_in(seen, n):
    return torch.isin(torch.arange(n), torch.tensor(seen)).float()


def twice(logits, seen, amount):
    result = logits.clone()
    for token in seen:
        result[token] -= amount
    return result


def in_place(logits, seen, amount):
    logits[list(set(seen))] -= amount
    return logits


def divided(logits, seen, amount):
    result = logits.clone()
    result[seen] /= amount
    return result


def ruled_out(logits, seen, amount):
    result = logits.clone()
    result[seen] = -INF
    return result


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


def shifted_nucleus(logits, p):
    values, tokens = logits.sort(descending=True)
    remove = values.softmax(-1).cumsum(-1) >= p
    remove = torch.cat([torch.tensor([False]), remove[:-1]])
    return logits.index_fill(0, tokens[remove], -INF)


def stays_sorted(logits, p):
    values = logits.sort(descending=True).values
    chances = values.softmax(-1)
    return values.masked_fill(chances.cumsum(-1) - chances >= p, -INF)


def drops_the_crossing_one(logits, p):
    result = right_nucleus(logits, p)
    last = result.masked_fill(result == -INF, INF).argmin()
    result[last] = -INF
    return result


def one_too_many(logits, p):
    values, tokens = logits.sort(descending=True)
    remove = (values.softmax(-1).cumsum(-1) >= p).roll(2)
    remove[:2] = False
    return logits.index_fill(0, tokens[remove], -INF)


def unlikeliest_first(logits, p):
    values, tokens = logits.sort()
    chances = values.softmax(-1)
    remove = chances.cumsum(-1) - chances >= p
    return logits.index_fill(0, tokens[remove], -INF)


def unsorted(logits, p):
    chances = logits.softmax(-1)
    return logits.masked_fill(chances.cumsum(-1) - chances >= p, -INF)


RIGHT = [
    (checks.scaled, right_scaled),
    (checks.scaled, lambda p, t: torch.nn.functional.normalize(powers(p, t), 1, -1)),
    (checks.penalty, right_penalty),
    (checks.penalty, lambda z, s, a: z - a * is_in(s, len(z))),
    (checks.nucleus, right_nucleus),
    (checks.nucleus, shifted_nucleus),
    (checks.nucleus, companion.top_p),
]
WRONG = [
    (checks.scaled, lambda p, t: p ** (1 / t), "chances do not sum to 1"),
    (checks.scaled, lambda p, t: powers(p, t) / powers(p, t).sum(), "whole tensor"),
    (checks.scaled, lambda p, t: powers(p, t) / powers(p, t).sum(0), "take the last"),
    (checks.scaled, lambda p, t: powers(p, t).softmax(-1), "softmax takes logits"),
    (checks.scaled, lambda p, t: (p / t).softmax(-1), "take the logarithm first"),
    (checks.scaled, lambda p, t: p / t, "chances get a power"),
    (checks.scaled, lambda p, t: p.log() / t, "softmax makes chances of them"),
    (
        checks.scaled,
        lambda p, t: (p / t) / (p / t).sum(-1, keepdim=True),
        "nothing has changed",
    ),
    (checks.scaled, lambda p, t: right_scaled(p, 1 / t), "1 / t, not t"),
    (checks.scaled, lambda p, t: p**t, "and then divide by the sum"),
    (
        checks.scaled,
        lambda p, t: powers(p, t) / powers(p, t).sum(-1),
        "it stops with RuntimeError",
    ),
    (checks.penalty, twice, "once is enough"),
    (checks.penalty, in_place, "changes its input"),
    (checks.penalty, lambda z, s, a: right_penalty(z, s, -a), "was added"),
    (checks.penalty, lambda z, s, a: right_penalty(z, s, 0.7), "0.7 goes off"),
    (checks.penalty, lambda z, s, a: right_penalty(z, s, 1), "^penalty: 1 goes off"),
    (checks.penalty, divided, "raises a negative logit"),
    (checks.penalty, lambda z, s, a: z - a, "every token pays"),
    (checks.penalty, lambda z, s, a: right_penalty(z, s[-1:], a), "only the last"),
    (checks.penalty, lambda z, s, a: right_penalty(z, s[:1], a), "only the first"),
    (
        checks.penalty,
        lambda z, s, a: right_penalty(z, {*range(len(z))} - {*s}, a),
        "the other way round",
    ),
    (checks.penalty, ruled_out, "only get less likely"),
    (checks.penalty, lambda z, s, a: z * a ** is_in(s, len(z)), "this multiplies"),
    (checks.penalty, lambda z, s, a: z.clone(), "nothing has changed"),
    (checks.penalty, lambda z, s, a: in_place(z.clone(), s, a)[:, None], "the shape"),
    (checks.nucleus, stays_sorted, "come back sorted"),
    (
        checks.nucleus,
        lambda z, p: stays_sorted(z, p).gather(-1, z.argsort(descending=True)),
        "write with `scatter`",
    ),
    (checks.nucleus, drops_the_crossing_one, "crosses p is dropped"),
    (checks.nucleus, one_too_many, "one too many"),
    (checks.nucleus, unsorted, "in the order of the tokens"),
    (checks.nucleus, unlikeliest_first, "begins with the unlikeliest"),
    (
        checks.nucleus,
        lambda z, p: z.masked_fill(z.softmax(-1) < 1 - p, -INF),
        "above a chance",
    ),
    (
        checks.nucleus,
        lambda z, p: z.masked_fill(z.softmax(-1) < p, -INF),
        "have p alone",
    ),
    (checks.nucleus, companion.min_p, "this is min-p"),
    (
        checks.nucleus,
        lambda z, p: right_nucleus(z, p).nan_to_num(neginf=0),
        "should be -inf",
    ),
    (checks.nucleus, lambda z, p: right_nucleus(z, p).softmax(-1), "are chances"),
    (checks.nucleus, lambda z, p: right_nucleus(z, p) > -INF, "this is the mask"),
    (checks.nucleus, lambda z, p: z + 0, "nothing is cut off"),
    (
        checks.nucleus,
        lambda z, p: right_nucleus(z, p).clamp(min=-1e9),
        r"at \[0\] it gives -1000000000, wanted -inf",
    ),
]
