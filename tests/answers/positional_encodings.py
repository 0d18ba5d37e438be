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


def one_by_one(distance):
    def bucket(d):
        far = 16 + int(16 * math.log(max(d, 16) / 16, 8))
        return max(d, 0) if d < 16 else min(far, 31)

    return torch.tensor([bucket(d) for d in distance.tolist()])


def complex_product(x, positions):
    d = x.shape[-1]
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, d, 2) / d)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.exp(1j * angles)).flatten(-2)


def in_place(x, positions):
    x[..., 0::2] = x[..., 1::2]
    return x


def at_speeds(rule):
    def turn(x, positions):
        d = x.shape[-1]
        return written_out(x, positions, rule(torch.arange(d // 2), d))

    return turn


def turned(pair):
    def turn(x, positions):
        d = x.shape[-1]
        angles = positions[:, None] * 10_000 ** (-torch.arange(0, d, 2) / d)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack(pair(a, b, angles.cos(), angles.sin()), -1).flatten(-2)

    return turn


def overwriting(a, b, cos, sin):
    a = a * cos - b * sin
    b = a * sin + b * cos
    return a, b


def written_out(x, positions, speeds):
    angles = positions[:, None] * speeds
    a, b = x[..., 0::2], x[..., 1::2]
    pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.stack(pair, -1).flatten(-2)


RIGHT = [
    (checks.slopes, alibi_slopes),
    (checks.slopes, lambda h: 2 ** (-8 * torch.arange(1, h + 1) / h)),
    (checks.slopes, lambda h: torch.tensor([256 ** (-i / h) for i in range(1, h + 1)])),
    (checks.neighbours, paper),
    (checks.neighbours, complex_product),
    (
        checks.neighbours,
        lambda x, p: written_out(
            x, p, 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        ),
    ),
    (checks.buckets, relative_buckets),
    (checks.buckets, lambda distance: logarithmic(distance).clamp(0, 31)),
    (checks.buckets, lambda distance: relative_buckets(distance).int()),
    (checks.buckets, one_by_one),
    (checks.next_positions, from_here),
    (
        checks.next_positions,
        lambda cached, n: torch.stack([torch.arange(c, c + n) for c in cached]),
    ),
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
    (checks.slopes, lambda h: 256 ** (torch.arange(1, h + 1) / h), "has a minus"),
    (
        checks.slopes,
        lambda h: -8 * torch.arange(1, h + 1) / h,
        "these are the exponents",
    ),
    (
        checks.slopes,
        lambda h: torch.linspace(256 ** (-1 / h), 1 / 256, h),
        "equal steps",
    ),
    (
        checks.slopes,
        lambda h: alibi_slopes(h) if h < 16 else 0.5 ** torch.arange(1, h + 1),
        r"for h = 16: at \[0\] it gives 0.5, wanted 0.7071",
    ),
    (checks.slopes, lambda h: alibi_slopes(8), r"for h = 4: the shape is \(8,\)"),
    (checks.slopes, lambda h: alibi_slopes(h).tolist(), "wanted tensor"),
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
    (
        checks.neighbours,
        at_speeds(lambda i, d: 10_000.0 ** (-4 * i / d)),
        "twice too fast",
    ),
    (checks.neighbours, at_speeds(lambda i, d: i.float() ** 0), "equally fast"),
    (checks.neighbours, at_speeds(lambda i, d: 10_000 ** (2 * i / d)), "speeds rise"),
    (
        checks.neighbours,
        at_speeds(lambda i, d: 500 ** (-2 * i / d)),
        r"for x \(5, 8\), positions = .* at \[1, 2\] it gives",
    ),
    (
        checks.neighbours,
        turned(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos)),
        "both sines have a plus",
    ),
    (
        checks.neighbours,
        turned(lambda a, b, cos, sin: (a * cos - b * sin, -a * sin + b * cos)),
        "both sines have a minus",
    ),
    (
        checks.neighbours,
        turned(lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin)),
        "changed places",
    ),
    (checks.neighbours, turned(overwriting), "made of the new a"),
    (checks.neighbours, in_place, "changes its input"),
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
        "cut off, don't round",
    ),
    (
        checks.buckets,
        lambda z: torch.where(
            z < 16,
            z,
            16 + (16 * (z.clamp(min=16) / 16).log() / math.log(8)).ceil().long(),
        ).clamp(0, 31),
        "round down, not up",
    ),
    (
        checks.buckets,
        lambda z: torch.where(
            z < 16, z, (16 + 16 * (z.clamp(min=16) / 16).log() / math.log(128)).long()
        ).clamp(0, 31),
        r"not log\(128\)",
    ),
    (checks.buckets, lambda z: relative_buckets(z).float(), "these are floats"),
    (
        checks.buckets,
        lambda z: torch.where(
            z < 16, z, 16 + 16 * (z.clamp(min=16) / 16).log() / math.log(8)
        ).clamp(0, 31),
        "the dtype is torch.float32, wanted torch.int64",
    ),
    (
        checks.buckets,
        lambda z: relative_buckets(z).clamp(max=30),
        r"for z \(128,\): at \[113\] it gives 30, wanted 31",
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
    (
        checks.next_positions,
        lambda cached, n: from_here(cached, n) - 1,
        "one too early",
    ),
    (checks.next_positions, lambda cached, n: cached[:, None], "only one position"),
    (checks.next_positions, lambda cached, n: from_here(cached, n) / 1, "are floats"),
    (checks.next_positions, lambda cached, n: cached + n, "the shape is"),
]
