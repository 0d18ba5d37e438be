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
    """`answer(distance)`: T5's bucket, of 32, for each distance."""

    def rule(distance, whole=torch.floor, span=8.0):  # without a limit at either end
        part = (distance.clamp(min=16) / 16).log() / math.log(span)
        return torch.where(distance < 16, distance, 16 + whole(16 * part).long())

    def even(distance):
        return torch.where(distance < 16, distance, 16 + (distance - 16) // 7)

    compare(
        answer,
        relative_buckets,
        [(torch.arange(128),), (torch.arange(400),), (torch.arange(-9, 128),)],
        {
            "beyond 15 each distance still has a bucket of its own: let them widen": (
                lambda distance: distance.clamp(0, 31)
            ),
            "beyond 15 all buckets are equally wide: divide the logarithm evenly": (
                lambda distance: even(distance).clamp(0, 31)
            ),
            "a bucket begins where the logarithm reaches it: cut off, don't round": (
                lambda distance: rule(distance, torch.round).clamp(0, 31)
            ),
            "a bucket begins where the logarithm reaches it: round down, not up": (
                lambda distance: rule(distance, torch.ceil).clamp(0, 31)
            ),
            "the buckets widen too fast: from 16 to 128 the logarithm grows by log(8),"
            " not log(128)": lambda distance: rule(distance, span=128).clamp(0, 31),
            "there are buckets beyond 31: the last one has no end": (
                lambda distance: rule(distance).clamp(min=0)
            ),
            "keys after the query count like those before it: theirs is bucket 0": (
                lambda distance: relative_buckets(distance.abs())
            ),
            "keys after the query have negative buckets: theirs is bucket 0": (
                lambda distance: rule(distance).clamp(max=31)
            ),
            "these are floats: a bucket is the index of a row, a whole number": (
                lambda distance: relative_buckets(distance).float()
            ),
        },
        "buckets: exact up close, coarse farther off",
    )


def next_positions(answer) -> None:
    """`answer(cached, n_new)`: (b) tokens so far -> (b t), positions of the next."""

    def right(cached, n_new):
        return cached[:, None] + torch.arange(n_new)

    def like(stream):
        return lambda cached, n: right(stream(cached).expand(len(cached)), n)

    compare(
        answer,
        right,
        [(torch.tensor([3, 5]), 3), (torch.tensor([9, 2, 4]), 1)],
        {
            "every piece begins at 0 again: it goes on where its stream stopped": (
                lambda cached, n: torch.arange(n).expand(len(cached), n)
            ),
            "one too far: with 5 cached, at 0 to 4, the next position is 5": (
                lambda cached, n: right(cached, n) + 1
            ),
            "one too early: with 5 cached, at 0 to 4, the next position is 5": (
                lambda cached, n: right(cached, n) - 1
            ),
            "all streams go on from the longest: each has a count of its own": like(
                torch.max
            ),
            "all streams go on from the first: each has a count of its own": like(
                lambda cached: cached[:1]
            ),
            "only one position a stream: there are n_new of them": (
                lambda cached, n: cached[:, None]
            ),
            "the shape is (t b): a row is a stream": lambda cached, n: (
                right(cached, n).T
            ),
            "these are floats: a position is a whole number": (
                lambda cached, n: right(cached, n).float()
            ),
        },
        "next_positions: no pointer, nothing to put back",
    )
