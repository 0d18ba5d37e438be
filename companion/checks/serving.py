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


def waits(answer) -> None:
    """`answer(arrivals, lengths, n_rows)`: from each arrival to its answer's end."""

    def right(arrivals, lengths, n_rows, since=True, idle=True):
        free, found = [0] * n_rows, []
        for at, n in zip(arrivals, lengths, strict=True):
            row = free.index(min(free))
            free[row] = (max(free[row], at) if idle else free[row]) + n
            found.append(free[row] - at * since)
        return found

    def slowest(arrivals, lengths, n_rows):
        now, found = 0, []
        while len(found) < len(arrivals):
            i = len(found)
            now = max(now, arrivals[i])
            batch = [j for j in range(i, len(arrivals)) if arrivals[j] <= now][:n_rows]
            found += [now + lengths[j] - arrivals[j] for j in batch]
            now += max(lengths[j] for j in batch)
        return found

    def shortest_first(arrivals, lengths, n_rows):
        order = sorted(range(len(arrivals)), key=lambda i: (arrivals[i], lengths[i]))
        found = right([arrivals[i] for i in order], [lengths[i] for i in order], n_rows)
        return [wait for _, wait in sorted(zip(order, found, strict=True))]

    def in_turn(arrivals, lengths, n_rows):
        free, found = [0] * n_rows, []
        for i, (at, n) in enumerate(zip(arrivals, lengths, strict=True)):
            free[i % n_rows] = max(free[i % n_rows], at) + n
            found.append(free[i % n_rows] - at)
        return found

    compare(
        answer,
        right,
        [
            ([0, 0, 1, 2], [4, 1, 2, 3], 2),
            ([0, 1, 1, 3, 40, 41, 41], [9, 2, 5, 3, 6, 1, 4], 3),
            ([2, 3, 11], [3, 4, 5], 1),
            ([0, 0, 0, 0], [5, 2, 9, 4], 1),
            ([0, 0, 0, 0], [5, 2, 9, 1], 2),
        ],
        {
            "a batch waits for its slowest: a free row takes the next at once": slowest,
            "rows are taken in turn: the one that is free first takes the next": (
                in_turn
            ),
            "the shortest goes first: the queue is served in order": shortest_first,
            "these are the times of the ends: take the arrival away": (
                lambda *case: right(*case, since=False)
            ),
            "a row starts before the request is there: it waits for the arrival": (
                lambda *case: right(*case, idle=False)
            ),
            "this ends where the answer begins: its own passes belong to the wait": (
                lambda arrivals, lengths, n: [
                    wait - length
                    for wait, length in zip(
                        right(arrivals, lengths, n), lengths, strict=True
                    )
                ]
            ),
            "there is one row: n_rows answers go on at once": (
                lambda arrivals, lengths, n: right(arrivals, lengths, 1)
            ),
            "nobody waits for a row: there are n_rows of them": (
                lambda arrivals, lengths, n: list(lengths)
            ),
        },
        "waits: the row that is free first, from the arrival on",
    )


def guess_chances(answer) -> None:
    """`answer(logits, guess_logits, t)`: (v) to keep each guess, (v) to draw anew."""

    def right(logits, guess_logits, t, kept=None, anew=None, power=-1):
        p, q = logits.softmax(-1), (guess_logits * t**power).softmax(-1)
        more = (p - q).clamp(min=0)
        more = more / more.sum() if more.sum() > 0 else p
        keep = (p / q).clamp(max=1)
        return kept(p, q) if kept else keep, anew(p, q) if anew else more

    def other(**changed):
        return functools.partial(right, **changed)

    same = draw(6, seed=3)
    compare(
        answer,
        right,
        [
            (2 * draw(4, seed=1), draw(4, seed=2), 0.7),
            (draw(5, seed=4), 3 * draw(5, seed=5), 2.0),
            (same, same, 1.0),
            (same, same, 0.5),
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
            "where p and q agree, 0 / 0 is no number: give p then": (
                other(
                    anew=lambda p, q: (p - q).clamp(min=0) / (p - q).clamp(min=0).sum()
                )
            ),
        },
        "guess_chances: kept with min(1, p / q), else drawn from what p has more",
    )
