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


def even(h):
    return 2 ** (-8 * torch.arange(1, h + 1) / h)


def one_after_another(h):
    """ALiBi's slopes by recursion, as its authors write it."""
    power = 2 ** math.floor(math.log2(h))
    if power == h:
        return torch.tensor([2 ** (-8 * i / h) for i in range(1, h + 1)])
    return torch.cat([even(power), one_after_another(2 * power)[0::2][: h - power]])


def half_of_them(h):
    """Always half of the longer list's every second one."""
    power = 2 ** int(math.log2(h))
    more = even(2 * power)[:power:2]
    return even(h) if power == h else torch.cat([even(power), more])


def two_thirds(h):
    """8 is two thirds of 12."""
    if h & (h - 1) == 0:
        return even(h)
    return torch.cat([even(2 * h // 3), even(4 * h // 3)[::2]])[:h]


def up_to_sixteen(h):
    """The powers of two that the exercise names."""
    power = max(p for p in (1, 2, 4, 8, 16) if p <= h)
    return torch.cat([even(power), even(2 * power)[::2]])[:h]


def fixed(distance, n, most, factor=None, upper=None):
    """The exercise's own numbers kept."""
    exact, away = n // 4, distance.abs()
    begins = [exact * (factor or most / exact) ** (i / exact) for i in range(exact)]
    far = exact - 1 + sum((away >= begin).long() for begin in begins)
    return torch.where(away < exact, away, far) + (upper or n // 2) * (distance < 0)


def paper(x, positions):
    return interleave(rotate(deinterleave(x), positions))


def first(turn):
    """The first n features go through `turn`, the others stay."""

    def partly(x, positions, n):
        return torch.cat([turn(x[..., :n], positions), x[..., n:]], -1)

    return partly


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


def counted(distance, n, most, begun=torch.ge, last=False):
    exact, away = n // 4, distance.abs()
    begins = [*range(exact)]
    begins += [exact * (most / exact) ** (i / (exact - last)) for i in range(exact)]
    first = 1 if begun is torch.ge else 0
    found = sum(begun(away, begin).long() for begin in begins[first:])
    return found + n // 2 * (distance < 0)


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


def in_place(x, positions, n):
    x[..., :n] = paper(x[..., :n], positions)
    return x


def repeated(x, positions):
    """The paper's rotation in the form of its equation 34."""
    d = x.shape[-1]
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, d, 2) / d)
    angles = angles.repeat_interleave(2, -1)
    swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return x * angles.cos() + swapped * angles.sin()


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
    (checks.slopes, one_after_another),
    (checks.slopes, lambda h: one_after_another(h).double()),
    (checks.neighbours, first(paper)),
    (checks.neighbours, first(complex_product)),
    (checks.neighbours, first(repeated)),
    (
        checks.neighbours,
        first(
            lambda x, p: written_out(
                x, p, 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
            )
        ),
    ),
    (checks.buckets, both),
    (checks.buckets, fixed),
    (checks.buckets, logarithmic()),
    (checks.buckets, counted),
    (checks.buckets, one_by_one),
    (checks.buckets, lambda *case: both(*case).int()),
]


WRONG = [
    (checks.slopes, even, "powers of two only"),
    (checks.slopes, lambda h: even(2 ** math.ceil(math.log2(h)))[:h], "those for 16"),
    (
        checks.slopes,
        lambda h: torch.cat(
            [alibi_slopes(2 ** int(math.log2(h))), even(2 ** (1 + int(math.log2(h))))]
        )[:h],
        "take every second of",
    ),
    (
        checks.slopes,
        lambda h: torch.cat(
            [even(2 ** int(math.log2(h))), even(2 ** (1 + int(math.log2(h))))[1::2]]
        )[:h],
        "longer list with its first",
    ),
    (
        checks.slopes,
        lambda h: torch.tensor(sorted(alibi_slopes(h).tolist(), reverse=True)),
        "don't sort",
    ),
    (
        checks.slopes,
        lambda h: torch.cat(
            [
                2.0 ** (-8 * torch.arange(p) / p)[:: p // 2 ** int(math.log2(h))]
                for p in (2 ** int(math.log2(h)), 2 ** (1 + int(math.log2(h))))
            ]
        )[:h],
        "count the heads from 1",
    ),
    (checks.slopes, lambda h: 0.5 ** torch.arange(1, h + 1), "8 heads only"),
    (checks.slopes, lambda h: -alibi_slopes(h), "slopes are positive"),
    (checks.slopes, half_of_them, r"for h = 5: the shape is \(6,\)"),
    (checks.slopes, two_thirds, "for h = 5: at"),
    (checks.slopes, up_to_sixteen, r"for h = 40: the shape is \(32,\)"),
    (checks.slopes, lambda h: None, "is there a `return`"),
    (
        checks.slopes,
        lambda h: 3 ** (-8 * torch.arange(1, h + 1) / h),
        r"for h = 12: at \[0\] it gives",
    ),
    (checks.slopes, lambda h: alibi_slopes(8), r"for h = 12: the shape is \(8,\)"),
    (checks.slopes, lambda h: alibi_slopes(h).tolist(), "wanted a float32 tensor"),
    (checks.neighbours, lambda x, p, n: paper(x, p), "all features are turned"),
    (
        checks.neighbours,
        first(lambda x, p: written_out(x, p, 0 * p[:1])),
        r"for x \(5, 8\), positions = .*, n = 6: at \[1, 0\] it gives",
    ),
    (
        checks.neighbours,
        lambda x, p, n: torch.cat(
            [
                written_out(
                    x[:, :n], p, 10_000 ** (-torch.arange(0, n, 2) / x.shape[-1])
                ),
                x[:, n:],
            ],
            1,
        ),
        "those of d features",
    ),
    (checks.neighbours, first(rotate), "here neighbours are"),
    (
        checks.neighbours,
        first(lambda x, p: rotate(deinterleave(x), p)),
        "stack and flatten",
    ),
    (checks.neighbours, first(lambda x, p: paper(x, -p)), "has the minus"),
    (
        checks.neighbours,
        first(lambda x, p: paper(x, torch.arange(x.shape[0]))),
        "its own position",
    ),
    (
        checks.neighbours,
        first(
            lambda x, p: written_out(
                x, p, 10_000 ** (-torch.arange(x.shape[-1] // 2) / x.shape[-1])
            )
        ),
        "not -i/n",
    ),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 10_000 ** (2 * i / d))),
        "has a minus",
    ),
    (
        checks.neighbours,
        first(at_speeds(lambda i, d: 500 ** (-2 * i / d))),
        r"for x \(5, 8\), positions = .* at \[1, 2\] it gives",
    ),
    (
        checks.neighbours,
        first(turned(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos))),
        "both sines have a plus",
    ),
    (
        checks.neighbours,
        first(turned(lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin))),
        "sine and cosine have changed places",
    ),
    (checks.neighbours, first(turned(overwriting)), "made of the new a"),
    (checks.neighbours, in_place, "changes its input"),
    (checks.buckets, lambda z, n, most: relative_buckets(z, n, most), "for the others"),
    (checks.buckets, lambda z, n, most: both(z.abs(), n, most), "count like those"),
    (
        checks.buckets,
        lambda z, n, most: both(z.abs(), n, most) + n // 2 * (z >= 0),
        "have changed places",
    ),
    (checks.buckets, equally_wide, "equally wide"),
    (checks.buckets, logarithmic(torch.round), "not to the nearest"),
    (checks.buckets, logarithmic(torch.ceil), "not up"),
    (checks.buckets, logarithmic(span=lambda exact, most: most), "widen too fast"),
    (checks.buckets, logarithmic(limit=False), "has no end"),
    (checks.buckets, lambda *case: both(*case).float(), "these are floats"),
    (checks.buckets, lambda *case: fixed(*case, factor=16), "factor of 16 is for"),
    (checks.buckets, lambda *case: fixed(*case, upper=16), "16 more is for 32"),
    (checks.buckets, lambda z, n, most: both(-z, n, most), "for negative distances"),
    (
        checks.buckets,
        lambda z, n, most: relative_buckets(z, n // 2, most),
        r"for z = tensor\(\[0, .*\), .*: at \[2\] it gives 0, wanted 24",
    ),
    (checks.buckets, lambda z, n, most: both(z, 32, 128), "32 buckets and 128 only"),
    (
        checks.buckets,
        lambda z, n, most: counted(z, n, most, torch.gt) - 1,
        "first distance: >=",
    ),
    (checks.buckets, lambda z, n, most: both(z, n, most) + 1, "one too high"),
]
