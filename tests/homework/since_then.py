"""Wrong answers to the homework of chapter 17."""

import torch


def other_way(bonus, chosen, rate):
    load = chosen.flatten().bincount(minlength=len(bonus))
    return bonus + rate * (load - load.float().mean()).sign()


def in_place(bonus, chosen, rate):
    load = chosen.flatten().bincount(minlength=len(bonus))
    bonus += rate * (load.float().mean() - load).sign()
    return bonus


def nobody_even(bonus, chosen, rate):
    load = chosen.flatten().bincount(minlength=len(bonus))
    more = load >= load.float().mean()
    return torch.where(more, bonus - rate, bonus + rate)


def in_proportion(bonus, chosen, rate):
    load = chosen.flatten().bincount(minlength=len(bonus)) / chosen.numel()
    return bonus + rate * (1 / len(bonus) - load)


def of_those_asked(bonus, chosen, rate):
    load = chosen.flatten().bincount(minlength=len(bonus)).float()
    step = (load[load > 0].mean() - load).sign() * (load > 0)
    return bonus + rate * step


def of_a_row(bonus, chosen, rate):
    load = chosen[0].bincount(minlength=len(bonus))
    return bonus + rate * (load.float().mean() - load).sign()


def not_squeezed(x, heads, gate):
    return gate(x) * heads(x)


def turned(x, heads, gate):
    return (1 - gate(x).sigmoid()) * heads(x)


def for_all_features(x, heads, gate):
    return gate(x).sigmoid().mean(-1, keepdim=True) * heads(x)


def added(x, heads, gate):
    return gate(x).sigmoid() + heads(x)


def doubled(x, heads, gate):
    return 2 * gate(x).sigmoid() * heads(x)


def of_another_token(x, heads, gate):
    return gate(x.roll(1, 1)).sigmoid() * heads(x)


WRONG = (
    ("bonus", "an even share is 3", other_way),
    ("bonus", "the old bonus has changed", in_place),
    ("bonus", "an even share is 3", nobody_even),
    ("bonus", "an even share is 3", in_proportion),
    ("bonus", "an even share is 3", of_those_asked),
    ("bonus", "an even share is 3", of_a_row),
    ("gated", "lets all of it out", not_squeezed),
    ("gated", "lets all of it out", turned),
    ("gated", "a gate of its own", for_all_features),
    ("gated", "lets all of it out", added),
    ("gated", "lets all of it out", doubled),
    ("gated", "the gate sees x", of_another_token),
)
