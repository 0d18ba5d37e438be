"""Right and wrong answers to the exercises of chapter 06."""

import math

import torch

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


def right_write(after, prompt, n_new, window):
    tokens = prompt[-window:]
    new = []
    while len(new) < n_new:
        new.append(after(tokens))
        tokens = (tokens + new[-1:])[-window:]
    return new


def from_the_front(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens[:window]))
    return tokens[len(prompt) :]


def all_of_it(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens))
    return tokens[len(prompt) :]


def in_the_prompt(after, prompt, n_new, window):
    for _ in range(n_new):
        prompt.append(after(prompt[-window:]))
    return prompt[-n_new:]


def seen(width):
    def writes(after, prompt, n_new, window):
        tokens = list(prompt)
        for _ in range(n_new):
            tokens.append(after(tokens[-width(window) :]))
        return tokens[len(prompt) :]

    return writes


def by_hand(logits):
    rows = logits.reshape(-1, logits.shape[-1]).softmax(-1).tolist()
    sums = [-sum(p * math.log(p) for p in row if p) for row in rows]
    return torch.tensor(sums).reshape(logits.shape[:-1])


def literal(logits):
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


RIGHT = [
    (checks.scaled, right_scaled),
    (checks.scaled, lambda p, t: torch.nn.functional.normalize(powers(p, t), 1, -1)),
    (checks.penalty, right_penalty),
    (checks.penalty, lambda z, s, a: z - a * is_in(s, len(z))),
    (checks.write, right_write),
    (checks.write, seen(lambda window: window)),
    (checks.entropy, by_hand),
    (checks.entropy, lambda z: torch.distributions.Categorical(logits=z).entropy()),
    (checks.entropy, lambda z: literal(z.clamp(min=-1e4))),
]
WRONG = [
    (checks.scaled, lambda p, t: p ** (1 / t), "chances do not sum to 1"),
    (checks.scaled, lambda p, t: powers(p, t) / powers(p, t).sum(), "whole tensor"),
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
    (checks.penalty, divided, "raises a negative logit"),
    (checks.penalty, lambda z, s, a: z - a, "every token pays"),
    (checks.penalty, lambda z, s, a: right_penalty(z, s[-1:], a), "only the last"),
    (
        checks.penalty,
        lambda z, s, a: right_penalty(z, {*range(len(z))} - {*s}, a),
        "the other way round",
    ),
    (checks.penalty, ruled_out, "only get less likely"),
    (checks.penalty, lambda z, s, a: z * a ** is_in(s, len(z)), "this multiplies"),
    (checks.penalty, lambda z, s, a: z.clone(), "nothing has changed"),
    (checks.penalty, lambda z, s, a: in_place(z.clone(), s, a)[:, None], "the shape"),
    (checks.write, from_the_front, "show the last"),
    (checks.write, all_of_it, "`after` takes 1 to 3, not 4"),
    (checks.write, in_the_prompt, "changes its input"),
    (checks.write, seen(lambda window: 1), "one token only"),
    (checks.write, seen(lambda window: window - 1 or 1), "one too narrow"),
    (
        checks.write,
        lambda after, prompt, n, window: [after(prompt[-window:])] * n,
        "again and again",
    ),
    (
        checks.write,
        lambda after, prompt, n, window: prompt + right_write(after, prompt, n, window),
        "prompt is returned too",
    ),
    (
        checks.write,
        lambda after, prompt, n, window: right_write(after, prompt, n - 1, window),
        "5 things, wanted 6",
    ),
    (checks.entropy, literal, "what has no chance adds nothing"),
    (checks.entropy, lambda z: by_hand(z) / math.log(2), "these are bits"),
    (checks.entropy, lambda z: -by_hand(z), "sign is wrong"),
    (checks.entropy, lambda z: by_hand(z) / z.shape[-1], "so sum"),
    (checks.entropy, lambda z: by_hand(z.nan_to_num(neginf=0)), "a likely one"),
    (
        checks.entropy,
        lambda z: -z.log_softmax(-1).nan_to_num(neginf=0).mean(-1),
        "without their chances",
    ),
    (checks.entropy, lambda z: -z.log_softmax(-1).amax(-1), "likeliest alone"),
    (checks.entropy, lambda z: torch.special.entr(z.softmax(-1)), "the shape is"),
]
