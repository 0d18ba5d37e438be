"""Checks of chapter 03."""

import math

import torch

from ..positions import alibi_slopes, deinterleave, interleave, relative_buckets, rotate
from .compare import compare, draw


def slopes(answer) -> None:
    """`answer(n_heads)`: ALiBi's slopes, for a power of two and for other numbers."""

    def even(h):  # what the rule for powers of two would give for any number
        return 2 ** (-8 * torch.arange(1, h + 1) / h)

    def joined(of=even, part=slice(None, None, 2)):
        def rule(h):
            power = 1 << (h.bit_length() - 1)
            return torch.cat([of(power), of(2 * power)[part]])[:h]

        return rule

    compare(
        answer,
        alibi_slopes,
        [(12,), (8,), (3,), (1,), (5,), (16,), (40,)],
        {
            "right for powers of two only: 12 heads begin with those for 8": even,
            "for 12 heads begin with the slopes for 8, not with those for 16": (
                lambda h: even(1 << (h - 1).bit_length())[:h]
            ),
            "take every second of the longer list": joined(part=slice(None)),
            "begin the longer list with its first": joined(part=slice(1, None, 2)),
            "don't sort: the additional slopes come last": (
                lambda h: alibi_slopes(h).sort(descending=True).values
            ),
            "the first head has slope 1: count the heads from 1, not from 0": (
                joined(lambda h: 2 ** (-8 * torch.arange(h) / h))
            ),
            "right for 8 heads only: the last slope is 1/256 for any power of two": (
                lambda h: 0.5 ** torch.arange(1, h + 1)
            ),
            "slopes are positive": lambda h: -alibi_slopes(h),
        },
        "slopes: from short-sighted to far-sighted",
    )


def neighbours(answer) -> None:
    """`answer(x, positions, n)`: pairs (2i, 2i + 1) of the first n features turned."""

    def first(turn):
        """Only the first n features go through `turn(x, positions)`."""

        def partly(x, positions, n):
            return torch.cat([turn(x[..., :n], positions), x[..., n:]], -1)

        return partly

    def paper(x, positions):
        return interleave(rotate(deinterleave(x), positions))

    def turned(pair, power=2, size=None):
        """Each pair by the formulas of `pair`; pair i has 10000^(-power i / d)."""

        def turn(x, positions):
            d = x.shape[-1]
            speeds = 10_000 ** (-power * torch.arange(d // 2) / (size or d))
            angles = positions[:, None] * speeds
            a, b, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()
            return torch.stack(pair(a, b, cos, sin), -1).flatten(-2)

        return turn

    def rotation(a, b, cos, sin):
        return a * cos - b * sin, a * sin + b * cos

    def overwritten(a, b, cos, sin):
        a = a * cos - b * sin
        return a, a * sin + b * cos

    compare(
        answer,
        lambda *case: first(paper)(*case),
        [
            (draw(5, 8), torch.arange(5), 6),
            (draw(3, 10), torch.tensor([7, 0, 2]), 4),
            (draw(4, 12), torch.tensor([3, 1, 9, 5]), 12),
        ],
        {
            "all features are turned: those from n on stay as they are": (
                lambda x, p, n: paper(x, p)
            ),
            "the speeds are those of d features: here n are turned, so d is n": (
                lambda x, p, n: first(turned(rotation, size=x.shape[-1]))(x, p, n)
            ),
            "feature i is paired with i + n/2: here neighbours are": first(rotate),
            "the right pairs come out in halves: stack and flatten, don't cat": first(
                lambda x, p: rotate(deinterleave(x), p)
            ),
            "it turns the other way round: which of the two sines has the minus?": (
                first(lambda x, p: paper(x, -p))
            ),
            "both sines have a plus: the one in a' has a minus": first(
                turned(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos))
            ),
            "b' is made of the new a: keep the old one until both are done": first(
                turned(overwritten)
            ),
            "sine and cosine have changed places": first(
                turned(lambda a, b, cos, sin: rotation(a, b, sin, cos))
            ),
            "rows are numbered 0, 1, 2: turn each by its own position": first(
                lambda x, p: paper(x, torch.arange(len(p)))
            ),
            "pair i has the speed 10000^(-2i/n), not -i/n": first(turned(rotation, 1)),
            "the exponent, -2i/n, has a minus": first(turned(rotation, -2)),
        },
        "neighbours: the rotation as GPT-J has it",
    )


def buckets(answer) -> None:
    """`answer(distance, n_buckets, max_distance)`: T5's buckets in both directions."""

    def right(distance, n, furthest):
        return relative_buckets(distance, n, furthest, causal=False)

    def growth(away, exact, furthest):  # how far the exact distances lie behind: 0 to 1
        return (away / exact).log() / math.log(furthest / exact)

    def halves(part=growth, whole=torch.floor, limit=True):
        def bucket(distance, n, furthest):
            half, exact, away = n // 2, n // 4, distance.abs()
            far = whole(exact * part(away.clamp(min=exact), exact, furthest)).long()
            one = torch.where(away < exact, away, exact + far)
            return half * (distance < 0) + (one.clamp(max=half - 1) if limit else one)

        return bucket

    def counted(begun=torch.ge, add=-1, factor=None, upper=None):
        """How many buckets have begun."""

        def bucket(distance, n, furthest):
            steps, exact = torch.arange(n // 4), n // 4
            wide = exact * (factor or furthest / exact) ** (steps / exact)
            found = begun(distance.abs()[..., None], torch.cat([steps, wide])).sum(-1)
            return found + add + (upper or n // 2) * (distance < 0)

        return bucket

    compare(
        answer,
        right,
        [
            (torch.tensor([0, 7, -8, 13, -50, 300]), 32, 128),  # few: they are shown
            (torch.tensor([-3, 120, 5, -1, 30]), 20, 50),
            (torch.arange(-140, 140), 32, 100),
            (torch.arange(60, -80, -1).view(7, 20), 20, 50),
            (torch.arange(-300, 200), 24, 200),
        ],
        {
            "all buckets serve the keys before the query: the upper half is for the"
            " others": relative_buckets,
            "keys after the query count like those before: theirs is the upper half": (
                lambda distance, *sizes: right(distance.abs(), *sizes)
            ),
            "the halves have changed places: the lower one is for 0, 1, 2 and so on": (
                lambda distance, n, most: (right(distance, n, most) + n // 2) % n
            ),
            "the upper half is for negative distances, not for positive ones": (
                lambda distance, *sizes: right(-distance, *sizes)
            ),
            "a bucket begins at its first distance: >=, not >": counted(torch.gt),
            "count the buckets from 0: all are one too high": counted(add=0),
            "16 more is for 32 buckets only: n_buckets / 2": counted(upper=16),
            "the factor of 16 is for 32 and 128 only: max_distance / (n_buckets / 4)": (
                counted(factor=16)
            ),
            "right for 32 buckets and 128 only: use n_buckets and max_distance": (
                lambda distance, *_: right(distance, 32, 128)
            ),
            "the wide buckets are equally wide: each begins a factor farther out": (
                halves(lambda away, exact, most: (away - exact) / (most - exact))
            ),
            "round down, not to the nearest": halves(whole=torch.round),
            "round down, not up": halves(whole=torch.ceil),
            "the buckets widen too fast: all factors together lead from the first wide"
            " distance to max_distance, not from 1": halves(
                lambda away, exact, most: (away / exact).log() / math.log(most)
            ),
            "the last bucket of each half has no end": halves(limit=False),
            "these are floats, not whole numbers": lambda *case: right(*case).float(),
        },
        "buckets: exact up close, coarse farther off, on both sides",
    )
