"""Checks of chapter 10."""

import functools

import torch

from ..cache import quantize
from .compare import compare, draw


def cache_bytes(answer) -> None:
    """`answer(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes)`: in bytes."""

    def right(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
        d_kv = d_model // n_heads * n_kv_heads
        return 2 * n_layers * n_tokens * d_kv * n_bytes

    compare(
        answer,
        right,
        [(12, 1024, 768, 12, 12, 4), (24, 8192, 2048, 16, 4, 2), (6, 9, 96, 8, 2, 1)],
        {
            "half of it: there are keys and values": lambda *case: right(*case) // 2,
            "half as much again: queries are not kept, only keys and values": (
                lambda *case: right(*case) // 2 * 3
            ),
            "these are numbers: each takes n_bytes": (
                lambda *case: right(*case[:-1], 1)
            ),
            "one layer only: each has a cache of its own": (
                lambda n_layers, *case: right(1, *case)
            ),
            "all heads are counted: only n_kv_heads of n_heads have keys": (
                lambda n, t, c, h, n_kv_heads, size: right(n, t, c, h, h, size)
            ),
            "one head only: there are n_kv_heads": (
                lambda n, t, c, h, n_kv_heads, size: right(n, t, c, h, 1, size)
            ),
            "d_model for every head: a head has d_model / n_heads features": (
                lambda n, t, c, h, n_kv, size: right(n, t, c * h, h, n_kv, size)
            ),
            "d_model is divided by n_kv_heads: multiply d_model / n_heads by it": (
                lambda n, t, c, h, n_kv, size: 2 * n * t * (c // n_kv) * size
            ),
        },
        "cache_bytes: 2 · layers · tokens · features of the key heads · bytes",
    )


def int8(answer) -> None:
    """`answer(x)`: x (... d) as it comes back from 8 bits and a scale for each d."""

    def right(x):
        integers, scales = quantize(x)
        return integers * scales

    def back(x, scale, rounded=torch.round):
        return rounded(x / scale).short().to(torch.int8) * scale

    def largest(x, *axis):
        return x.abs().amax(*axis or (-1,), keepdim=True)

    compare(
        answer,
        right,
        [
            (torch.tensor([1.0, -0.4]),),
            (draw(3, 5) * torch.tensor([[1.0], [9], [0.1]]),),
            (draw(2, 4, 6, seed=1),),
        ],
        {
            "the largest becomes 128, which wraps to -128: divide by 127": (
                lambda x: back(x, largest(x) / 128)
            ),
            "the largest becomes 128, and is cut to 127: divide by 127": (
                lambda x: (
                    (x * 128 / largest(x)).round().clamp(-128, 127) * (largest(x) / 128)
                )
            ),
            "8 bits go from -128 to 127: divide by 127, not by 255": (
                lambda x: (x * 255 / largest(x)).round() * (largest(x) / 255)
            ),
            "numbers are cut off, up to a whole scale away: round them": (
                lambda x: back(x, largest(x) / 127, torch.trunc)
            ),
            "one scale for all vectors: a large one spoils the small ones": (
                lambda x: back(x, x.abs().max() / 127)
            ),
            "the largest by sign, not by size: take the absolute value first": (
                lambda x: back(x, x.amax(-1, keepdim=True) / 127)
            ),
            "the scale is the largest itself, and only -1, 0 and 1 are left: divide it"
            " by 127": lambda x: back(x, largest(x)),
            "these are the integers: multiply them by the scale again": (
                lambda x: quantize(x)[0]
            ),
            "these are whole numbers from -127 to 127: multiply by the scale again": (
                lambda x: quantize(x)[0].float()
            ),
            "these are the integers and the scales: give their product": quantize,
            "nothing is rounded: these are the numbers that went in": lambda x: x,
        },
        "int8: no number is off by more than half a scale",
    )


def blocks_in_use(answer) -> None:
    """`answer(n_shared, lengths, size)`: blocks of talks that begin alike."""

    def right(n_shared, lengths, size, shared=None):
        shared = n_shared // size if shared is None else shared
        return shared + sum(-(-n // size) - shared for n in lengths)

    compare(
        answer,
        right,
        [(40, [70, 45, 48], 16), (32, [33, 64], 8), (5, [30, 6, 20, 21], 7)],
        {
            "nothing is shared: full blocks of the shared tokens are there once": (
                lambda n, lengths, size: right(n, lengths, size, 0)
            ),
            "a block that is not full of shared tokens is shared: each talk writes its"
            " own tokens into it": (
                lambda n, lengths, size: right(n, lengths, size, -(-n // size))
            ),
            "the last block of a talk counts, however few tokens it holds": (
                lambda n, lengths, size: (
                    n // size + sum(x // size - n // size for x in lengths)
                )
            ),
            "a talk whose last block is full needs no other": (
                lambda n, lengths, size: (
                    n // size + sum(x // size + 1 - n // size for x in lengths)
                )
            ),
            "the shared blocks are left out: they are in use, once": (
                lambda n, lengths, size: right(n, lengths, size) - n // size
            ),
            "the shared tokens beyond full blocks lie in each talk's own blocks": (
                lambda n, lengths, size: (
                    n // size + sum(-(-(x - n) // size) for x in lengths)
                )
            ),
            "these are slots: divide by `size`": (
                lambda n, lengths, size: n + sum(x - n for x in lengths)
            ),
            "all talks are joined: no two share a block at their ends": (
                lambda n, lengths, size: (
                    n // size + -(-sum(x - n // size * size for x in lengths) // size)
                )
            ),
        },
        "blocks_in_use: full shared blocks once, all others for each talk",
    )


def guess_chances(answer) -> None:
    """`answer(logits, guess_logits, t)`: (v) to keep each guess, (v) to draw anew."""

    def right(logits, guess_logits, t, kept=None, anew=None, power=-1):
        p, q = logits.softmax(-1), (guess_logits * t**power).softmax(-1)
        more = (p - q).clamp(min=0)
        more = more / more.sum()
        keep = (p / q).clamp(max=1)
        return kept(p, q) if kept else keep, anew(p, q) if anew else more

    def other(**changed):
        return functools.partial(right, **changed)

    compare(
        answer,
        right,
        [
            (2 * draw(4, seed=1), draw(4, seed=2), 0.7),
            (draw(5, seed=4), 3 * draw(5, seed=5), 2.0),
            (draw(6, seed=3), draw(6, seed=6), 1.0),
        ],
        {
            "one draws anew from p itself: what q gave already comes twice": (
                other(anew=lambda p, q: p)
            ),
            "what is drawn from doesn't sum to 1: divide it by its sum": (
                other(anew=lambda p, q: (p - q).clamp(min=0))
            ),
            "p - q is below 0 somewhere: no chance is": (
                other(anew=lambda p, q: p - q)
            ),
            "a chance above 1: min(1, p / q)": other(kept=lambda p, q: p / q),
            "p and q are exchanged: keep with min(1, p / q)": (
                other(kept=lambda p, q: (q / p).clamp(max=1))
            ),
            "this is the chance that a guess is drawn and kept: it was drawn already": (
                other(kept=torch.minimum)
            ),
            "the guesses' logits are divided by t": other(power=0),
            "the logits are multiplied by t: divide them": other(power=1),
        },
        "guess_chances: kept with min(1, p / q), else drawn from what p has more",
    )
