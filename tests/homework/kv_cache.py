"""Wrong answers to the homework of chapter 07."""

import torch


def shifted(n_seen, width):
    """The last ones in their order, as a cache that moves all of them has them."""
    slots = torch.full((width,), -1)
    last = torch.arange(max(0, n_seen - width), n_seen)
    slots[: len(last)] = last
    return slots


def first_lap(n_seen, width):
    slots = torch.arange(width)
    return torch.where(slots < n_seen, slots, -1)


def never_empty(n_seen, width):
    slots = torch.arange(width)
    lap = (n_seen - 1 - slots).div(width, rounding_mode="floor")
    return slots + width * lap


def one_too_many(n_seen, width):
    slots = torch.full((width,), -1)
    for p in range(n_seen + 1):
        slots[p % width] = p
    return slots


def empty_is_zero(n_seen, width):
    slots = torch.zeros(width, dtype=torch.long)
    for p in range(n_seen):
        slots[p % width] = p
    return slots


def whole_prompt(kept, prompt):
    n = 0
    while n < min(len(kept), len(prompt)) and kept[n] == prompt[n]:
        n += 1
    return n, prompt[n:]


def equal_places(kept, prompt):
    n = sum(a == b for a, b in zip(kept, prompt, strict=False))
    n = min(n, len(prompt) - 1)
    return n, prompt[n:]


def same_tokens(kept, prompt):
    n = min(len(set(kept) & set(prompt)), len(prompt) - 1)
    return n, prompt[n:]


def last_token_alone(kept, prompt):
    n, _ = whole_prompt(kept, prompt[:-1])
    return n, prompt[-1:]


def all_or_nothing(kept, prompt):
    n = len(kept) if prompt[: len(kept)] == kept else 0
    n = min(n, len(prompt) - 1)
    return n, prompt[n:]


WRONG = (
    ("slots", "3, 4, 2", shifted),
    ("slots", "3, 4, 2", first_lap),
    ("slots", "leave two slots empty", never_empty),
    ("slots", "3, 4, 2", one_too_many),
    ("slots", "leave two slots empty", empty_is_zero),
    ("reuse", "one token must go through", whole_prompt),
    ("reuse", "after a difference", equal_places),
    ("reuse", "after a difference", same_tokens),
    ("reuse", "doesn't go on", last_token_alone),
    ("reuse", "after a difference", all_or_nothing),
)
