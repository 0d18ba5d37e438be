"""Wrong answers to the homework of chapter 03."""

import math

import torch


def turn(x, angles):
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def turned_on(turned, steps, speeds):
    return turn(turned, steps * speeds)


def neighbours(turned, steps, speeds):
    a, b = turned[:, ::2], turned[:, 1::2]
    cos, sin = (steps * speeds).cos(), (steps * speeds).sin()
    return torch.stack([a * cos + b * sin, b * cos - a * sin], -1).flatten(1)


def one_speed(turned, steps, speeds):
    return turn(turned, -steps * speeds[:1])


def by_places(turned, steps, speeds):
    places = torch.arange(len(turned)) - steps
    return turn(turned, places[:, None] * speeds)


def rolled(turned, steps, speeds):
    return turned.roll(-steps, 0)


def radians(d, n, base):
    return sum(n * base ** (-2 * i / d) < 1 for i in range(d // 2))


def half_turns(d, n, base):
    return sum(n * base ** (-2 * i / d) < math.pi for i in range(d // 2))


def fast(d, n, base):
    return sum(n * base ** (-2 * i / d) >= math.tau for i in range(d // 2))


def features(d, n, base):
    return 2 * sum(n * base ** (-2 * i / d) < math.tau for i in range(d // 2))


def half_the_exponent(d, n, base):
    return sum(n * base ** (-i / d) < math.tau for i in range(d // 2))


def counted_from_one(d, n, base):
    return sum(n * base ** (-2 * i / d) < math.tau for i in range(1, d // 2 + 1))


WRONG = (
    ("moved", "it turns on, not back", turned_on),
    ("moved", "which pairs", neighbours),
    ("moved", "by which angles", one_speed),
    ("moved", "which pairs", by_places),
    ("moved", "is not (cos 2, sin 2)", rolled),
    ("slow_pairs", "1 pair is slow", radians),
    ("slow_pairs", "6 radians", half_turns),
    ("slow_pairs", "6 radians", fast),
    ("slow_pairs", "1 pair is slow", features),
    ("slow_pairs", "1 pair is slow", half_the_exponent),
    ("slow_pairs", "1 pair is slow", counted_from_one),
)
