"""Checks of chapter 03."""

import math

import torch

from ..positions import alibi_slopes, relative_buckets
from .compare import compare


def slopes(answer) -> None:
    """`answer(n_heads)`: ALiBi's slopes, for a power of two and for other numbers."""

    def even(h, begin=1):  # what the rule for powers of two would give for any number
        return 2 ** (-8 * torch.arange(begin, h + begin) / h)

    def joined(whole=math.floor, of=even, more=lambda x, p, h: x[::2], cut=True):
        """The list for a power of two, and a part of the next one's."""

        def rule(h):
            power = 2 ** whole(math.log2(h))
            both = torch.cat([of(power), more(of(2 * power), power, h)])
            return both[:h] if cut else both

        return rule

    mistakes = {
        "right for powers of two only: 12 heads begin with those for 8": even,
        "begin 12 heads with the slopes for 8, not for 16": joined(math.ceil),
        "take the power of two below, not the nearest": joined(round),
        "begin 8 heads with those for 8, not for 16": joined(lambda x: int(x) + 1),
        "take the rest from the longer list": joined(more=lambda x, p, h: even(h - p)),
        "8 is the power of two below 12; below 3 it is 2": joined(lambda x: 3),
        "take every second of the longer list": joined(more=lambda x, p, h: x),
        "begin the longer list with its first": joined(more=lambda x, p, h: x[1::2]),
        "too many: stop when there are n_heads": joined(cut=False),
        "of the longer list take the first, as many as are missing, not the last": (
            joined(more=lambda x, p, h: x[::2][2 * p - h :])
        ),
        "don't sort": lambda h: alibi_slopes(h).sort(descending=True).values,
        "count the heads from 1, not from 0": joined(of=lambda h: even(h, 0)),
        "right for 8 heads only": lambda h: 0.5 ** torch.arange(1, h + 1),
        "slopes are positive": lambda h: -alibi_slopes(h),
        "slopes are below 1: the exponent has a minus": lambda h: 1 / alibi_slopes(h),
    }
    cases = [(12,), (8,), (3,), (1,), (5,), (16,), (40,), (15,)]
    praise = "slopes: from short-sighted to far-sighted"
    compare(answer, alibi_slopes, cases, mistakes, praise)


def buckets(answer) -> None:
    """`answer(distance, n_buckets, max_distance)`: T5's buckets in both directions."""

    def right(distance, n, most):
        return relative_buckets(distance, n, most, causal=False)

    def log(whole=torch.floor, last=-1):
        """By the logarithm of the distance, made a whole number."""

        def bucket(distance, n, most):
            exact, away = n // 4, distance.abs()
            part = (away.clamp(min=exact) / exact).log() / math.log(most / exact)
            far = (exact + whole(exact * part).long()).clamp(max=n // 2 + last)
            return torch.where(away < exact, away, far) + n // 2 * (distance < 0)

        return bucket

    def evenly(e, most, i):  # where the wide buckets begin
        return e * (most / e) ** (i / e)

    def counted(wide=evenly, of=torch.clone, exact=4, **other):
        """How many buckets have begun."""

        def bucket(distance, n, most):
            o = dict(ge=torch.ge, below=torch.lt, abs=torch.abs, half=n // 2) | other
            i = torch.arange(n // exact)
            begins = torch.cat([i, of(wide(len(i), most, i))])
            found = o["ge"](o["abs"](distance)[..., None], begins).sum(-1)
            return found - 1 + o["half"] * o["below"](distance, 0)

        return bucket

    mistakes = {
        "a fence post: 8 steps lead from 8 to 128, the last bucket begins after 7": (
            counted(lambda e, most, i: e * (most / e) ** (i / (e - 1)))
        ),
        "count the steps from 0: the first wide one begins at n_buckets / 4": (
            counted(lambda e, most, i: evenly(e, most, i + 1))
        ),
        "the buckets widen too fast: the factors lead from n_buckets / 4, not from 1": (
            counted(lambda e, most, i: e * most ** (i / e))
        ),
        "the wide buckets don't double": counted(lambda e, most, i: e * 2.0**i),
        "the wide buckets are equally wide: each begins a factor farther out": (
            counted(lambda e, most, i: e + (most - e) * i / e)
        ),
        "a bucket may begin at 11.3: don't round it": counted(of=torch.round),
        "a bucket may begin at 11.3: don't round it down": counted(of=torch.floor),
        "a bucket begins at its first distance: >=, not >": counted(ge=torch.gt),
        "count the buckets from 0: all are one too high": lambda *c: right(*c) + 1,
        "too many single distances: each half has n_buckets / 4": counted(exact=2),
        "16 more is for 32 buckets only: n_buckets / 2": counted(half=16),
        "0 is in the lower half: <, not <=": counted(below=torch.le),
        "the lower half is for 0, 1, 2 and so on": counted(below=torch.ge),
        "the upper half is for negative distances": counted(below=torch.gt),
        "the upper half is for negative distances: here it is empty": counted(half=0),
        "a negative distance needs its absolute value": counted(abs=torch.clone),
        "-1 has the bucket of 1, plus half": counted(abs=lambda d: d.maximum(~d)),
        "half of the buckets are for the keys after the query": relative_buckets,
        "the upper half is a mirror image: -3 has the bucket of 3, plus half": (
            lambda d, n, most: (right(d.abs(), n, most) * d.sign() - 1 * (d < 0)) % n
        ),
        "right for 32 buckets and 128 only": lambda d, *_: right(d, 32, 128),
        "round down, not to the nearest": log(torch.round),
        "the last bucket of each half has no end": log(last=99),
        "these are floats, not whole numbers": lambda *case: right(*case).float(),
    }
    for x in (8, 16):
        words = f"the factor of {x} is not for all: max_distance / (n_buckets / 4)"
        mistakes[words] = counted(lambda e, most, i, x=x: e * x ** (i / e))
    few = torch.tensor([0, 7, -8, 13, -50, 300]), torch.tensor([-3, 120, 5, -1, 30])
    cases = [(few[0], 32, 128), (few[1], 20, 50)]  # few: they are shown
    cases += [
        (torch.arange(-1100, 1100), 128, 1024),
        (torch.arange(-140, 140), 32, 100),
    ]
    cases += [(torch.arange(60, -80, -1).view(7, 20), 20, 50)]
    cases += [(torch.arange(-300, 200), 24, 200)]
    praise = "buckets: exact up close, coarse farther off, on both sides"
    compare(answer, right, cases, mistakes, praise)
