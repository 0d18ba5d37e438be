"""Wrong answers to the homework of chapter 06."""

import torch


def divided(logits, tokens, penalty):
    new = logits.clone()
    new[tokens] = new[tokens] / penalty
    return new


def once_a_time(logits, tokens, penalty):
    new = logits.clone()
    for token in tokens:
        new[token] = new[token] / penalty if new[token] > 0 else new[token] * penalty
    return new


def in_place(logits, tokens, penalty):
    found = logits[tokens]
    logits[tokens] = torch.where(found > 0, found / penalty, found * penalty)
    return logits


def taken_away(logits, tokens, penalty):
    new = logits.clone()
    new[tokens] -= penalty
    return new


def all_tokens(logits, tokens, penalty):
    return torch.where(logits > 0, logits / penalty, logits * penalty)


def forbidden(logits, tokens, penalty):
    return logits.index_fill(0, tokens, -torch.inf)


def halved(logits, measure, goal, low=0.001, high=1_000.0):
    for _ in range(60):
        middle = (low * high) ** 0.5
        if measure(logits / middle) < goal:
            low = middle
        else:
            high = middle
    return low


def entropy(logits):
    return torch.distributions.Categorical(logits=logits).entropy()


def entropy_for_choices(logits, n_choices):
    return halved(logits, entropy, n_choices)


def inverse(logits, n_choices):
    return 1 / halved(logits, lambda x: entropy(x).exp(), n_choices)


def in_bits(logits, n_choices):
    return halved(logits, lambda x: 2 ** entropy(x), n_choices)


def the_largest(logits, n_choices):
    """1 / p of the likeliest token is another count of choices."""
    return halved(logits, lambda x: 1 / x.softmax(-1).max(), n_choices)


def low_interval(logits, n_choices):
    return halved(logits, lambda x: entropy(x).exp(), n_choices, 0.1, 2)


WRONG = (
    ("penalized", "is likelier, not less", divided),
    ("penalized", "is penalized once", once_a_time),
    ("penalized", "were changed", in_place),
    ("penalized", "are 1 and -4", taken_away),
    ("penalized", "are 1 and -4", all_tokens),
    ("penalized", "are 1 and -4", forbidden),
    ("temperature", "T is not", entropy_for_choices),
    ("temperature", "this is 1/T", inverse),
    ("temperature", "T is not", in_bits),
    ("temperature", "T is not", the_largest),
    ("temperature", "for 1.3 choices T is not", low_interval),
)
