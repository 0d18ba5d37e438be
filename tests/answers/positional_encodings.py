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


def both(distance, n, most):
    return relative_buckets(distance, n, most, causal=False)


def logarithmic(whole=torch.floor, span=lambda exact, most: most / exact, limit=True):
    """T5's rule by logarithms, with its usual slips."""

    def buckets(distance, n, most):
        exact, away = n // 4, distance.abs()
        part = (away.clamp(min=exact) / exact).log() / math.log(span(exact, most))
        far = exact + whole(exact * part).long()
        far = far.clamp(max=n // 2 - 1) if limit else far
        return torch.where(away < exact, away, far) + (distance < 0) * (n // 2)

    return buckets


def counted(distance, n, most):
    exact = n // 4
    begins = [*range(exact)]
    begins += [exact * (most / exact) ** (i / exact) for i in range(exact)]
    return sum((distance.abs() >= begin).long() for begin in begins[1:]) + n // 2 * (
        distance < 0
    )


def one_by_one(distance, n, most):
    def bucket(d):
        exact, away = n // 4, abs(d)
        far = exact + int(exact * math.log(max(away, exact) / exact, most / exact))
        return n // 2 * (d < 0) + (away if away < exact else min(far, n // 2 - 1))

    flat = [bucket(d) for d in distance.flatten().tolist()]
    return torch.tensor(flat).view(distance.shape)


def equally_wide(distance, n, most):
    exact, away = n // 4, distance.abs()
    far = exact + (away - exact) * exact // (most - exact)
    one = torch.where(away < exact, away, far).clamp(max=n // 2 - 1)
    return one + (distance < 0) * (n // 2)


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
    (checks.buckets, both),
    (checks.buckets, logarithmic()),
    (checks.buckets, counted),
    (checks.buckets, one_by_one),
    (checks.buckets, lambda *case: both(*case).int()),
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
    (checks.buckets, lambda z, n, most: relative_buckets(z, n, most), "for the others"),
    (checks.buckets, lambda z, n, most: both(z.abs(), n, most), "count like those"),
    (
        checks.buckets,
        lambda z, n, most: both(z.clamp(min=0), n, most) + n // 2 * (z < 0),
        "share one bucket",
    ),
    (
        checks.buckets,
        lambda z, n, most: (
            torch.where(z < 0, both(z + 1, n, most), both(z, n, most))
            + n // 2 * (z == -1)
        ),
        "one too low",
    ),
    (
        checks.buckets,
        lambda z, n, most: both(z.abs(), n, most) + n // 2 * (z >= 0),
        "have changed places",
    ),
    (
        checks.buckets,
        lambda z, n, most: z.abs().clamp(max=n // 2 - 1) + n // 2 * (z < 0),
        "bucket of its own",
    ),
    (checks.buckets, equally_wide, "equally wide"),
    (checks.buckets, logarithmic(torch.round), "not to the nearest"),
    (checks.buckets, logarithmic(torch.ceil), "not up"),
    (checks.buckets, logarithmic(span=lambda exact, most: most), "widen too fast"),
    (checks.buckets, logarithmic(limit=False), "has no end"),
    (checks.buckets, lambda *case: both(*case).float(), "these are floats"),
    (
        checks.buckets,
        lambda z, n, most: relative_buckets(z, n // 2, most),
        r"at \[0\] it gives 0, wanted 31",
    ),
    (
        checks.buckets,
        lambda z, n, most: both(z, 32, 128),
        r"for z \(280,\), n = 32, most = 100: at \[50\] it gives 30, wanted 31",
    ),
    (
        checks.buckets,
        lambda z, n, most: both(z, n, most) + n // 2 * (z == 0),
        r"at \[140\] it gives 16, wanted 0",
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
