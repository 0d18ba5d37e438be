"""Checks of chapter 10."""

import torch

from ..cache import SlidingWindowCache, quantize
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


def ring(answer) -> None:
    """`answer(n_seen, window)`: the positions in the slots of a ring, from slot 0."""

    def right(n_seen, window):
        kept = SlidingWindowCache(window)
        kept.append(*torch.zeros(2, 1, 1, n_seen - 1, 1))
        return kept.key_positions(1).tolist()

    compare(
        answer,
        right,
        [(3, 4), (4, 4), (6, 4), (13, 5)],
        {
            "in order of time: position p lies in slot p % window": (
                lambda n, w: list(range(max(0, n - w), n))
            ),
            "the first ones stay: the newest takes the place of the oldest": (
                lambda n, w: list(range(min(n, w)))
            ),
            "one too far: after n_seen positions the last is n_seen - 1": (
                lambda n, w: right(n + 1, w)
            ),
            "these are slots, not the positions in them": (
                lambda n, w: [p % w for p in range(max(0, n - w), n)]
            ),
            "these are all positions: a ring has `window` slots": (
                lambda n, w: list(range(n))
            ),
            "an unused slot is not to be listed": (
                lambda n, w: right(n, w) + [None] * (w - n)
            ),
        },
        "ring: the newest lies where the oldest lay",
    )
