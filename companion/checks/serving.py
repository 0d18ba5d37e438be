"""Checks of chapter 10."""

import torch

from ..cache import quantize
from .compare import compare, draw


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
        [
            (40, [70, 45, 48, 45], 16),
            (32, [33, 64, 32], 8),
            (5, [30, 6, 20, 21], 7),
            (40, [41, 42, 43], 16),
            (5, [5, 9], 4),
        ],
        {
            "nothing is shared: full blocks of the shared tokens are there once": (
                lambda n, lengths, size: right(n, lengths, size, 0)
            ),
            "the tokens after the shared ones begin a new block: a talk goes on in its"
            " own copy of the block that is not full": (
                lambda n, lengths, size: (
                    -(-n // size) + sum(-(-(x - n) // size) for x in lengths)
                )
            ),
            "lengths are those of the whole talks, shared tokens included": (
                lambda n, lengths, size: right(n, [x + n for x in lengths], size)
            ),
            "the shared blocks are saved once: every talk but the first saves them": (
                lambda n, lengths, size: right(n, lengths, size, 0) - n // size
            ),
            "talks of equal length are counted once": (
                lambda n, lengths, size: right(n, {*lengths}, size)
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
        },
        "blocks_in_use: full shared blocks once, all others for each talk",
    )
