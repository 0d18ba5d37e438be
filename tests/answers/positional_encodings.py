"""Right and wrong answers to the exercises of chapter 03."""

import math

import torch

from companion import (
    alibi_slopes,
    checks,
    deinterleave,
    interleave,
    relative_buckets,
    rotate,
)


def paper(x, positions):
    return interleave(rotate(deinterleave(x), positions))


def from_here(cached, n_new):
    return cached[:, None] + torch.arange(n_new)


def logarithmic(distance):
    part = (distance.clamp(min=16) / 16).log() / math.log(8)
    return torch.where(distance < 16, distance, (16 + 16 * part).long())


def written_out(x, positions, speeds):
    angles = positions[:, None] * speeds
    a, b = x[..., 0::2], x[..., 1::2]
    pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.stack(pair, -1).flatten(-2)


RIGHT = [
    (checks.slopes, alibi_slopes),
    (checks.slopes, lambda h: 2 ** (-8 * torch.arange(1, h + 1) / h)),
    (checks.neighbours, paper),
    (
        checks.neighbours,
        lambda x, p: written_out(
            x, p, 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        ),
    ),
    (checks.buckets, relative_buckets),
    (checks.buckets, lambda distance: logarithmic(distance).clamp(0, 31)),
    (checks.next_positions, from_here),
]


WRONG = [
    (
        checks.slopes,
        lambda h: 2 ** (-8 * torch.arange(h) / h),
        "count the heads from 1",
    ),
    (checks.slopes, lambda h: 0.5 ** torch.arange(1, h + 1), "8 heads only"),
    (checks.slopes, lambda h: -alibi_slopes(h), "slope is positive"),
    (checks.slopes, lambda h: alibi_slopes(h).sort().values, "comes first"),
    (checks.slopes, lambda h: None, "is there a `return`"),
    (checks.neighbours, rotate, "paper pairs neighbours"),
    (checks.neighbours, lambda x, p: rotate(deinterleave(x), p), "stack and flatten"),
    (checks.neighbours, lambda x, p: paper(x, -p), "has the minus"),
    (
        checks.neighbours,
        lambda x, p: paper(x, torch.arange(x.shape[0])),
        "its own position",
    ),
    (
        checks.neighbours,
        lambda x, p: written_out(
            x, p, 10_000 ** (-torch.arange(x.shape[-1] // 2) / x.shape[-1])
        ),
        "fall too slowly",
    ),
    (checks.buckets, lambda z: z.clamp(0, 31), "bucket of its own"),
    (
        checks.buckets,
        lambda z: torch.where(z < 16, z, 16 + (z - 16) // 7).clamp(0, 31),
        "divide the logarithm",
    ),
    (checks.buckets, lambda z: logarithmic(z).clamp(min=0), "has no end"),
    (checks.buckets, lambda z: relative_buckets(z.abs()), "count like those"),
    (checks.buckets, lambda z: logarithmic(z).clamp(max=31), "negative buckets"),
    (
        checks.buckets,
        lambda z: torch.where(
            z < 16,
            z,
            16 + (16 * (z.clamp(min=16) / 16).log() / math.log(8)).round().long(),
        ).clamp(0, 31),
        "round down",
    ),
    (
        checks.next_positions,
        lambda cached, n: torch.arange(n).repeat(len(cached), 1),
        "begins at 0 again",
    ),
    (
        checks.next_positions,
        lambda cached, n: cached[:, None] + torch.arange(1, n + 1),
        "one too far",
    ),
    (
        checks.next_positions,
        lambda cached, n: from_here(cached.max().expand(len(cached)), n),
        "from the longest",
    ),
    (
        checks.next_positions,
        lambda cached, n: from_here(cached[:1].expand(len(cached)), n),
        "from the first",
    ),
    (
        checks.next_positions,
        lambda cached, n: torch.arange(n)[:, None] + cached,
        "a row is a stream",
    ),
]
