"""Checks of chapter 03."""

import math

import torch

from ...model.positions import deinterleave, interleave, relative_buckets, rotate
from .compare import compare, draw


def slopes(answer) -> None:
    """`answer(n_heads)`: ALiBi's slopes, for a power of two and for other numbers."""

    def even(h, begin=1):  # what the rule for powers of two would give for any number
        return 2 ** (-8 * torch.arange(begin, h + begin) / h)

    def right(h, whole=math.floor, of=even, more=lambda x, p, h: x[::2], end=0):
        """The list for a power of two, and a part of the next one's."""
        power = 2 ** whole(math.log2(h))
        both = torch.cat([of(power), more(of(2 * power), power, h)])
        return both[: end or h].tolist()

    cases = [(12,), (8,), (3,), (1,), (5,), (16,), (40,), (15,)]
    compare(answer, right, cases, {
        "right for powers of two only: 12 begin with 8": lambda h: even(h).tolist(),
        "begin 12 heads with the slopes for 8, not for 16": {"whole": math.ceil},
        "take the power of two below, not the nearest": {"whole": round},
        "take the rest from the longer list": {"more": lambda x, p, h: even(h - p)},
        "take every second of the longer list": {"more": lambda x, p, h: x},
        "begin the longer list with its first": {"more": lambda x, p, h: x[1::2]},
        "too many: stop when there are n_heads": {"end": 99},
        "count the heads from 1, not from 0": {"of": lambda h: even(h, 0)},
        "one slope for all heads: each has its own": lambda h: right(h)[:1] * h,
        "the slopes for the power of two come first, then the rest: don't sort them":
            lambda h: sorted(right(h))[::-1],
        "steps of 1/2 are for 8 heads only: 2^(-8/n)":
            lambda h: (0.5 ** torch.arange(1, h + 1)).tolist(),
        "slopes are positive": lambda h: [-x for x in right(h)],
        "slopes are below 1: where is the minus?": lambda h: [1 / x for x in right(h)],
    }, "slopes: from short-sighted to far-sighted")  # fmt: skip


def neighbours(answer) -> None:
    """`answer(x, positions, n)`: pairs (2i, 2i + 1) of the first n features turned."""

    def right(
        x, p, n, power=lambda i, n, d: -2 * i / n, at=lambda p: p, base=10_000,
        pair=lambda a, b, cos, sin: (a * cos - b * sin, a * sin + b * cos),
    ):  # fmt: skip
        """Each pair by the formulas of `pair`, at the speed base^power."""
        angles = at(p)[:, None] * base ** power(torch.arange(n // 2), n, x.shape[1])
        pairs = pair(x[:, 0:n:2], x[:, 1:n:2], angles.cos(), angles.sin())
        return torch.cat([torch.stack(pairs, -1).flatten(-2), x[:, n:]], 1)

    def first(turn):  # only the first n features go through `turn`
        return lambda x, p, n: torch.cat([turn(x[:, :n], p), x[:, n:]], 1)

    cases = [(draw(3, 10), torch.tensor([7, 0, 150]), 4)]
    cases += [(draw(5, 8), torch.arange(5), 6)]
    cases += [(draw(4, 12), torch.tensor([3, 1, 9, 5]), 12)]
    exponents = {
        "the speeds are those of d features: here d is n": lambda i, n, d: -2 * i / d,
        "2i is doubled: arange(0, n, 2) is 2i already": lambda i, n, d: -4 * i / n,
        "pair i has the speed 10000^(-2i/n), not -i/n": lambda i, n, d: -i / n,
        "the exponent, -2i/n, has a minus": lambda i, n, d: 2 * i / n,
        "divide 2i by n, not by n - 2": lambda i, n, d: -2 * i / (n - 2),
        "all pairs turn at one speed: each has its own": lambda i, n, d: 0 * i,
    }
    mistakes = {words: {"power": power} for words, power in exponents.items()} | {
        "the base is 10,000, not 1,000": {"base": 1_000},
        "all features are turned, not n": lambda x, p, n: right(x, p, x.shape[1]),
        "the features from n on are missing": lambda x, p, n: right(x, p, n)[:, :n],
        "feature i is paired with i + n/2: here neighbours are": first(rotate),
        "`deinterleave` comes before the turn, `interleave` after it":
            first(lambda x, p: deinterleave(rotate(interleave(x), p))),
        "the right pairs come out in halves: stack on the last axis and flatten":
            first(lambda x, p: rotate(deinterleave(x), p)),
        "the features from n on stay as they are":
            lambda x, p, n: right(x, p, n) * (torch.arange(len(x[0])) < n),
        "a list or an array: make it a tensor": lambda *case: right(*case).tolist(),
        "`sin` and `cos` take radians, and so they are": {"at": torch.deg2rad},
        "it turns the other way: which sine has the minus?": {"at": torch.neg},
        "both sines have a plus: the one in a' has a minus":
            {"pair": lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos)},
        "b' is made of the new a: keep the old one as well":
            {"pair": lambda a, b, c, s: (new := a * c - b * s, new * s + b * c)},
        "use `positions`, not 0, 1, 2": {"at": lambda p: torch.arange(len(p))},
    }  # fmt: skip
    compare(answer, right, cases, mistakes, "neighbours: the rotation as GPT-J has it")


def buckets(answer) -> None:
    """`answer(distance, n_buckets, max_distance)`: T5's buckets in both directions."""

    def evenly(e, most, i):  # where the wide buckets begin
        return e * (most / e) ** (i / e)

    def right(
        d, n, most, begins=evenly, of=torch.clone, begun=torch.ge, below=torch.lt
    ):
        """How many buckets have begun."""
        i = torch.arange(n // 4)
        starts = torch.cat([i, of(begins(len(i), most, i))])
        return begun(d.abs()[..., None], starts).sum(-1) - 1 + n // 2 * below(d, 0)

    def log(d, n, most, whole=torch.floor, last=-1):
        """By the logarithm of the distance, made a whole number."""
        exact, away = n // 4, d.abs()
        part = (away.clamp(min=exact) / exact).log() / math.log(most / exact)
        far = (exact + whole(exact * part).long()).clamp(max=n // 2 + last)
        return torch.where(away < exact, away, far) + n // 2 * (d < 0)

    few = torch.tensor([0, 7, -8, 13, -50, 300]), torch.tensor([-3, 120, 5, -1, 30])
    cases = [(few[0], 32, 128), (few[1], 20, 50)]  # few: they are shown
    cases += [(torch.arange(-1100, 1100), 128, 1024), (torch.arange(140), 32, 100)]
    cases += [(torch.arange(60, -300, -1).view(12, 30), 20, 50)]
    begins = {
        "a fence post: 8 steps lead from 8 to 128, the last bucket begins after 7":
            lambda e, most, i: e * (most / e) ** (i / (e - 1)),
        "count the steps from 0: the first wide one begins at n_buckets / 4":
            lambda e, most, i: evenly(e, most, i + 1),
        "the buckets widen too fast: the factors lead from n_buckets / 4, not from 1":
            lambda e, most, i: e * most ** (i / e),
        "the wide buckets are equally wide: each begins a factor farther out":
            lambda e, most, i: e + (most - e) * i / e,
        "the factor of 16 is not for all: max_distance / (n_buckets / 4)":
            lambda e, most, i: e * 16 ** (i / e),
    }  # fmt: skip
    mistakes = {words: {"begins": wide} for words, wide in begins.items()} | {
        "a bucket may begin at 11.3: don't round it": {"of": torch.round},
        "a bucket may begin at 11.3: don't round it down": {"of": torch.floor},
        "a bucket begins at its first distance: >=, not >": {"begun": torch.gt},
        "the upper half is for negative distances": {"below": torch.gt},
        "the upper half is for negative distances: here it is empty":
            lambda d, *sizes: right(d.abs(), *sizes),
        "a negative distance needs its absolute value":
            lambda d, n, most: right(d.relu(), n, most) + (n // 2 - 1) * (d < 0),
        "16 more is for 32 buckets only: n_buckets / 2":
            lambda d, *sizes: right(d.abs(), *sizes) + 16 * (d < 0),
        "half of the buckets are for the keys after the query": relative_buckets,
        "right for 32 buckets and 128 only": lambda d, *_: right(d, 32, 128),
        "round down, not to the nearest": lambda *c: log(*c, whole=torch.round),
        "round down, not up": lambda *c: log(*c, whole=torch.ceil),
        "the last bucket of each half has no end": lambda *c: log(*c, last=99),
    }  # fmt: skip
    praise = "buckets: exact up close, coarse farther off, on both sides"
    compare(answer, right, cases, mistakes, praise)


def induction_scores(answer) -> None:
    """`answer(weights, tokens)`: each head's mean weight on a token's followers."""

    def after(x, shift=1):
        """(t s): whether key s stands `shift` places after a copy of t, at any time."""
        at = torch.arange(len(x)) - shift
        there = (at >= 0) & (at < len(x))
        return (x[at % len(x)] == x[:, None]) & there

    def mean(f, at):
        return f[:, at.sum(-1) > 0].mean(-1)

    def right(w, x, on=after, until=0, give=mean):
        """What `give` makes of the sums (h t) and of the keys (t s) that count."""
        at = on(x).tril(until)
        return give((w * at).sum(-1), at).tolist()

    def last(at):
        return at & (at.flip(-1).cumsum(-1).flip(-1) == 1)

    texts = [5, 2, 2, 7, 5, 2], [1, 0, 3, 1, 4, 0, 1, 1, 3], [8, 6, 8, 8, 6, 9, 8, 4]
    tokens = [torch.tensor(text) for text in (*texts, [1, 2] * 4)]
    heads = zip((3, 2, 4), tokens, strict=False)
    soft = [draw(h, len(x), len(x), seed=h).softmax(-1) for h, x in heads]
    hard = torch.eye(8)[torch.tensor([[0, 0, 0, 0, 3, 0, 0, 0], [0] * 8])]
    compare(answer, right, [*zip([*soft, hard], tokens, strict=True)], {
        "this looks at the copy itself: its follower is one further":
            {"on": lambda x: after(x, 0), "until": -1},
        "one too far: a follower comes next to the copy": {"on": lambda x: after(x, 2)},
        "before the copy: a follower comes *after* it": {"on": lambda x: after(x, -1)},
        "`roll(-1)` finds the token before the copy: try `roll(1)`":
            {"on": lambda x: after(x, -1), "until": -1},
        "nothing stands before the first token, but `roll` brings the last one: key 0"
        " is no follower": {"on": lambda x: x.roll(1) == x[:, None]},
        "copies that come later count too: only earlier ones should": {"until": 99},
        "a token is no copy of itself: the key after it is in the future": {"until": 1},
        "a token may be its own follower, as in 7 7: s may be t": {"until": -1},
        "only the last follower counts: add up the weights on all of them":
            {"on": lambda x: last(after(x).tril())},
        "queries whose followers get no weight count, too: the mean leaves them out":
            {"give": lambda f, at: f.sum(-1) / (f > 0).sum(-1).clamp(min=1)},
        "the largest weight on a follower: add up the weights on all of them":
            lambda w, x: right(w, x, give=lambda f, at: mean((w * at).amax(-1), at)),
        "over all queries: leave out new tokens": {"give": lambda f, at: f.mean(-1)},
        "the sum over the queries: take their mean": {"give": lambda f, at: f.sum(-1)},
        "the mean over all pairs: add up, then take the mean over the queries":
            {"give": lambda f, at: f.sum(-1) / at.sum()},
        "queries and keys are swapped: (h t s)": lambda w, x: right(w.mT, x),
    }, "induction_scores: the tokens that followed the same token before")  # fmt: skip
