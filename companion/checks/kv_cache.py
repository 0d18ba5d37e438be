"""Checks of chapter 07."""

import torch

from ..attention import causal_mask
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
        [(12, 1024, 768, 12, 12, 4), (24, 8192, 2048, 16, 4, 2)],
        [
            ("half of it: there are keys and values", lambda *case: right(*case) // 2),
            (
                "these are numbers: each takes n_bytes",
                lambda *case: right(*case[:-1], 1),
            ),
            (
                "one layer only: each has a cache of its own",
                lambda n_layers, *case: right(1, *case),
            ),
            (
                "all heads are counted: only n_kv_heads of n_heads have keys",
                lambda n, t, c, h, n_kv_heads, size: right(n, t, c, h, h, size),
            ),
            (
                "d_model for every head: a head has d_model / n_heads features",
                lambda n, t, c, h, n_kv, size: right(n, t, c * h, h, n_kv, size),
            ),
        ],
        "cache_bytes: 2 · layers · tokens · features of the key heads · bytes",
    )


def offset_mask(answer) -> None:
    """`answer(n_new, n_old)`: True where a new query may attend, (t s)."""

    def right(n_new, n_old):
        return causal_mask(n_new, n_old + n_new)

    compare(
        answer,
        right,
        [(4, 0), (3, 2), (1, 5)],
        [
            (
                "the first query starts at key 0: it stands after the n_old kept ones",
                lambda n, old: torch.ones(n, old + n, dtype=torch.bool).tril(),
            ),
            (
                "only the new keys are there: the kept ones come before them",
                lambda n, old: causal_mask(n),
            ),
            (
                "a query does not see its own key: use >=, not >",
                lambda n, old: torch.ones(n, old + n).tril(old - 1).bool(),
            ),
            (
                "True and False are swapped: True means may attend",
                lambda n, old: ~right(n, old),
            ),
            (
                "all queries see all keys: the last of the piece must not show early",
                lambda n, old: torch.ones(n, old + n, dtype=torch.bool),
            ),
        ],
        "offset_mask: the last query meets the last key in the corner",
    )


def int8(answer) -> None:
    """`answer(x)`: x (... d) as it comes back from 8 bits and a scale a vector."""

    def right(x):
        integers, scales = quantize(x)
        return integers * scales

    def back(x, scale, rounded=torch.round):
        return rounded(x / scale).short().to(torch.int8) * scale

    def largest(x):
        return x.abs().amax(-1, keepdim=True)

    compare(
        answer,
        right,
        [
            (torch.tensor([1.0, -0.5]),),
            (draw(3, 5) * torch.tensor([[1.0], [9], [0.1]]),),
        ],
        [
            (
                "the largest becomes 128, which wraps to -128: divide by 127",
                lambda x: back(x, largest(x) / 128),
            ),
            (
                "numbers are cut off, up to a whole scale away: round them",
                lambda x: back(x, largest(x) / 127, torch.trunc),
            ),
            (
                "one scale for all vectors: a large one spoils the small ones",
                lambda x: back(x, x.abs().max() / 127),
            ),
            (
                "the largest by sign, not by size: take the absolute value first",
                lambda x: back(x, x.amax(-1, keepdim=True) / 127),
            ),
            (
                "these are the integers: multiply them by the scale again",
                lambda x: quantize(x)[0],
            ),
        ],
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
        [
            (
                "in order of time: position p lies in slot p % window",
                lambda n, w: list(range(max(0, n - w), n)),
            ),
            (
                "the first ones stay: the newest takes the place of the oldest",
                lambda n, w: list(range(min(n, w))),
            ),
            (
                "one too far: after n_seen positions the last is n_seen - 1",
                lambda n, w: right(n + 1, w),
            ),
            (
                "these are slots, not the positions in them",
                lambda n, w: [p % w for p in range(max(0, n - w), n)],
            ),
        ],
        "ring: the newest lies where the oldest lay",
    )
