"""Checks of chapter 03."""

import math

import torch

from ..positions import alibi_slopes, deinterleave, interleave, relative_buckets, rotate
from .compare import compare, draw


def slopes(answer) -> None:
    """`answer(n_heads)`: ALiBi's slopes for a power of two, the steepest first."""

    def ranks(h):
        return torch.arange(1, h + 1)

    compare(
        answer,
        alibi_slopes,
        [(4,), (8,), (1,), (16,), (2,)],
        {
            "the first head has slope 1: count the heads from 1, not from 0": (
                lambda h: 2 ** (-8 * (ranks(h) - 1) / h)
            ),
            "right for 8 heads only: the last slope is 1/256 for any number": (
                lambda h: 0.5 ** ranks(h)
            ),
            "a slope is positive: the minus comes with the distance": (
                lambda h: -alibi_slopes(h)
            ),
            "the slopes are above 1: the exponent, -8h/H, has a minus": (
                lambda h: 2 ** (8 * ranks(h) / h)
            ),
            "these are the exponents: the slopes are 2 to their power": (
                lambda h: -8 * ranks(h) / h
            ),
            "the steepest slope comes first": lambda h: alibi_slopes(h).flip(0),
            "the slopes fall by equal steps: each is a fixed share of the one before": (
                lambda h: torch.linspace(2 ** (-8 / h), 2**-8, h)
            ),
        },
        "slopes: from short-sighted to far-sighted",
    )


def neighbours(answer) -> None:
    """`answer(x, positions)`: the rotation that pairs feature 2i with 2i + 1."""

    def right(x, positions):
        return interleave(rotate(deinterleave(x), positions))

    def turned(pair, power=2):
        """Each pair by the formulas of `pair`; pair i has 10000^(-power i / d)."""

        def turn(x, positions):
            d = x.shape[-1]
            angles = positions[:, None] * 10_000 ** (-power * torch.arange(d // 2) / d)
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
        right,
        [(draw(5, 8), torch.arange(5)), (draw(3, 6), torch.tensor([7, 0, 2]))],
        {
            "feature i is paired with i + d/2: the paper pairs neighbours": rotate,
            "the right pairs come out in halves: stack and flatten, don't cat": (
                lambda x, p: rotate(deinterleave(x), p)
            ),
            "it turns the other way round: which of the two sines has the minus?": (
                lambda x, p: right(x, -p)
            ),
            "both sines have a plus: the one in a' has a minus": turned(
                lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos)
            ),
            "both sines have a minus: the one in b' has a plus": turned(
                lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin)
            ),
            "b' is made of the new a: keep the old one until both are done": turned(
                overwritten
            ),
            "sine and cosine have changed places": turned(
                lambda a, b, cos, sin: rotation(a, b, sin, cos)
            ),
            "rows are numbered 0, 1, 2: turn each by its own position": (
                lambda x, p: right(x, torch.arange(len(p)))
            ),
            "the speeds fall too slowly: pair i has 10000^(-2i/d)": turned(rotation, 1),
            "the speeds fall twice too fast: pair i has 10000^(-2i/d)": turned(
                rotation, 4
            ),
            "all pairs turn equally fast: pair i has the speed 10000^(-2i/d)": turned(
                rotation, 0
            ),
            "the speeds rise: the exponent, -2i/d, has a minus": turned(rotation, -2),
        },
        "neighbours: the rotation as the paper has it",
    )


def buckets(answer) -> None:
    """`answer(distance, n_buckets, max_distance)`: T5's buckets in both directions."""

    def right(distance, n, furthest):
        return relative_buckets(distance, n, furthest, causal=False)

    def growth(away, exact, furthest):  # how far the exact distances lie behind: 0 to 1
        return (away / exact).log() / math.log(furthest / exact)

    def halves(part=growth, whole=torch.floor, limit=True, size=torch.abs):
        def bucket(distance, n, furthest):
            half, exact, away = n // 2, n // 4, size(distance)
            far = whole(exact * part(away.clamp(min=exact), exact, furthest)).long()
            one = torch.where(away < exact, away, exact + far)
            return half * (distance < 0) + (one.clamp(max=half - 1) if limit else one)

        return bucket

    compare(
        answer,
        right,
        [
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
            "keys after the query share one bucket: it is the size that counts there": (
                halves(size=lambda distance: distance.clamp(min=0))
            ),
            "one too low after the query: the bucket of -3 is that of 3 plus a half": (
                halves(
                    size=lambda distance: torch.where(distance < 0, ~distance, distance)
                )
            ),
            "the halves have changed places: the lower one is for 0, 1, 2 and so on": (
                lambda distance, n, furthest: (
                    (right(distance, n, furthest) + n // 2) % n
                )
            ),
            "each distance has a bucket of its own: in each half, let half of them"
            " widen": halves(lambda away, exact, _: away / exact - 1, torch.round),
            "the wide buckets are equally wide: each begins a factor farther out": (
                halves(lambda away, exact, most: (away - exact) / (most - exact))
            ),
            "the wide buckets begin too early: round down, not to the nearest": (
                halves(whole=torch.round)
            ),
            "the wide buckets begin too early: round down, not up": (
                halves(whole=torch.ceil)
            ),
            "the buckets widen too fast: all factors together lead from the first wide"
            " distance to max_distance, not from 1": halves(
                lambda away, exact, most: (away / exact).log() / math.log(most)
            ),
            "there are too many buckets: the last of each half has no end": (
                halves(limit=False)
            ),
            "these are floats: a bucket is the index of a row, a whole number": (
                lambda *case: right(*case).float()
            ),
        },
        "buckets: exact up close, coarse farther off, on both sides",
    )
