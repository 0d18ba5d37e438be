"""Checks of chapter 06."""

import torch

from ..sampling import temperature, top_p
from .compare import compare, draw


def scaled(answer) -> None:
    """`answer(chances, t)`: the chances at temperature t."""
    chances = draw(2, 5).softmax(-1)

    def right(p, t):
        return temperature(p.log(), t).softmax(-1)

    compare(
        answer,
        right,
        [(chances, 0.5), (chances, 2.0)],
        [
            (
                "the chances do not sum to 1: divide by their sum",
                lambda p, t: p ** (1 / t),
            ),
            (
                "it is the logits that are divided by t",
                lambda p, t: (p / t).softmax(-1),
            ),
            (
                "dividing chances by t and normalising changes nothing: a power does",
                lambda p, t: p / p.sum(-1, keepdim=True),
            ),
            (
                "below 1 is sharper: the power is 1 / t, not t",
                lambda p, t: right(p, 1 / t),
            ),
        ],
        "scaled: a temperature is a power of the chances",
    )


def penalty(answer) -> None:
    """`answer(logits, seen, amount)`: amount less at every token seen, once."""

    def right(logits, seen, amount):
        return logits - amount * torch.tensor([i in seen for i in range(len(logits))])

    compare(
        answer,
        right,
        [(draw(6), [4, 1, 4], 0.7)],
        [
            (
                "token 4 was seen twice and pays twice: once is enough",
                lambda z, seen, a: (
                    z - a * torch.tensor([seen.count(i) for i in range(6)])
                ),
            ),
            (
                "division raises a negative logit: subtract",
                lambda z, seen, a: torch.where(right(z, seen, 1) < z, z / a, z),
            ),
            ("the amount was added", lambda z, seen, a: right(z, seen, -a)),
        ],
        "penalty: what was seen gets a little less likely",
    )


def nucleus(answer) -> None:
    """`answer(logits, p)`: top-p for logits (v) in any order."""

    def kept(logits, keep):
        return logits.masked_fill(~keep, -torch.inf)

    def in_order(logits, p):
        return top_p(logits.sort(descending=True).values, p)

    def without_the_last(logits, p):
        values, tokens = logits.sort(descending=True)
        keep = values.softmax(-1).cumsum(-1) <= p
        return kept(logits, torch.empty_like(keep).scatter(-1, tokens, keep))

    compare(
        answer,
        top_p,
        [(torch.tensor([0.0, 1.0, 3.0]), 0.9), (draw(9), 0.6)],
        [
            ("the logits come back sorted: put each where its token is", in_order),
            (
                "the token that crosses p is dropped: look at the sum before it",
                without_the_last,
            ),
            (
                "the sum runs in the order of the tokens: sort by likelihood first",
                lambda z, p: kept(z, z.softmax(-1).cumsum(-1) - z.softmax(-1) < p),
            ),
            (
                "this keeps single tokens above a chance: sum the chances",
                lambda z, p: kept(z, z.softmax(-1) >= 1 - p),
            ),
        ],
        "nucleus: the smallest set that reaches p, every token in its place",
    )
