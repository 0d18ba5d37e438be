"""Checks of chapter 03: the rotation of neighbours."""

import torch

from ..positions import deinterleave, interleave, rotate, sinusoidal
from .compare import compare, draw


def neighbours(answer) -> None:
    """`answer(x, positions, n)`: pairs (2i, 2i + 1) of the first n features turned."""

    def rotation(a, b, cos, sin):
        return a * cos - b * sin, a * sin + b * cos

    def overwritten(a, b, cos, sin):
        a = a * cos - b * sin
        return a, a * sin + b * cos

    def turned(pair=rotation, power=lambda i, n, d: -2 * i / n, at=lambda p: p):
        """Each pair by the formulas of `pair`, at the speed 10000^power."""

        def turn(x, positions, n):
            speeds = 10_000 ** power(torch.arange(n // 2), n, x.shape[1])
            angles = at(positions)[:, None] * speeds
            pairs = pair(x[:, 0:n:2], x[:, 1:n:2], angles.cos(), angles.sin())
            return torch.cat([torch.stack(pairs, -1).flatten(-2), x[:, n:]], 1)

        return turn

    def first(turn):  # only the first n features go through `turn`
        return lambda x, p, n: torch.cat([turn(x[:, :n], p), x[:, n:]], 1)

    powers = {
        "the speeds are those of d features: here d is n": lambda i, n, d: -2 * i / d,
        "the speeds are those of the chapter's 16 features": lambda i, n, d: -i / 8,
        "2i is doubled: arange(0, n, 2) is 2i already": lambda i, n, d: -4 * i / n,
        "pair i has the speed 10000^(-2i/n), not -i/n": lambda i, n, d: -i / n,
        "the exponent, -2i/n, has a minus": lambda i, n, d: 2 * i / n,
        "pairs are counted from 0, not from 1": lambda i, n, d: -2 * (i + 1) / n,
        "all pairs turn at one speed: each has its own": lambda i, n, d: 0 * i,
    }

    def halves(x, positions):  # each angle i and i + n/2, the pairs 2i and 2i + 1
        i = torch.arange(0, x.shape[1], 2) / x.shape[1]
        angles = (positions[:, None] * 10_000**-i).repeat(1, 2)
        partners = torch.stack([-x[:, 1::2], x[:, 0::2]], -1).flatten(-2)
        return x * angles.cos() + partners * angles.sin()

    right, mistakes = turned(), {words: turned(power=p) for words, p in powers.items()}
    mistakes |= {
        "all features are turned, not n": lambda x, p, n: right(x, p, x.shape[1]),
        "the features from n on are missing": lambda x, p, n: right(x, p, n)[:, :n],
        "feature i is paired with i + n/2: here neighbours are": first(rotate),
        "`deinterleave` comes before the turn, `interleave` after it": (
            first(lambda x, p: deinterleave(rotate(interleave(x), p)))
        ),
        "the right pairs come out in halves: stack on the last axis and flatten": (
            first(lambda x, p: rotate(deinterleave(x), p))
        ),
        "a' comes first, then b'": turned(lambda *x: rotation(*x)[::-1]),
        "the features from n on stay as they are": lambda x, p, n: (
            right(x, p, n) * (torch.arange(len(x[0])) < n)
        ),
        "the first n features turn, not the last": (
            lambda x, p, n: torch.cat([x[:, :-n], right(x[:, -n:], p, n)], 1)
        ),
        "it turns the other way: which sine has the minus?": turned(at=torch.neg),
        "both sines have a plus: the one in a' has a minus": (
            turned(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos))
        ),
        "b' is made of the new a: keep the old one as well": turned(overwritten),
        "sine and cosine are swapped": turned(lambda a, b, c, s: rotation(a, b, s, c)),
        "use `positions`, not 0, 1, 2": turned(at=lambda p: torch.arange(len(p))),
        "positions are counted from 0: don't add 1": turned(at=lambda p: p + 1),
        "repeat each angle side by side, not in halves": first(halves),
        "sines and cosines are added to x: it is to be turned": (
            first(lambda x, p: x + sinusoidal(999, x.shape[1])[p])
        ),
    }
    cases = [
        (draw(5, 8), torch.arange(5), 6),
        (draw(3, 10), torch.tensor([7, 0, 150]), 4),
    ]
    cases += [(draw(4, 12), torch.tensor([3, 1, 9, 5]), 12)]
    compare(answer, right, cases, mistakes, "neighbours: the rotation as GPT-J has it")
