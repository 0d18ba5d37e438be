"""Checks of chapter 03: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...model.positions import deinterleave, interleave, relative_buckets, rotate
from .compare import Exercise, check, draw, ways_of


@check
def slopes() -> Exercise:
    """`answer(n_heads)`: ALiBi's slopes, for a power of two and for other numbers."""

    def even(n: int) -> Tensor:
        """The rule for powers of two, for any number."""
        return 2 ** (-8 * torch.arange(1, n + 1) / n)

    def right(
        n_heads: int,
        power: Callable = lambda n_heads: 2 ** int(math.log2(n_heads)),
        rule: Callable = even,
        rest: Callable = lambda longer, n_left: longer[::2],
    ) -> list[float]:
        n = power(n_heads)
        slopes = torch.cat([rule(n), rest(rule(2 * n), n_heads - n)])
        return slopes[:n_heads].tolist()

    way = ways_of(right)

    def too_many(n_heads: int) -> list[float]:
        power = 2 ** int(math.log2(n_heads))
        return torch.cat([even(power), even(2 * power)[::2]]).tolist()

    mistakes = {
        "right for powers of two only: 12 begin with 8": lambda h: even(h).tolist(),
        "begin 12 heads with the slopes for 8, not for 16": way(
            power=lambda n_heads: 2 ** math.ceil(math.log2(n_heads))
        ),
        "take the power of two below, not the nearest": way(
            power=lambda n_heads: 2 ** round(math.log2(n_heads))
        ),
        "take the rest from the longer list": way(
            rest=lambda longer, n_left: even(n_left)
        ),
        "take every second of the longer list": way(rest=lambda longer, n_left: longer),
        "begin the longer list with its first": way(
            rest=lambda longer, n_left: longer[1::2]
        ),
        "too many: stop when there are n_heads": too_many,
        "count the heads from 1, not from 0": way(
            rule=lambda n: 2 ** (-8 * torch.arange(n) / n)
        ),
        "one slope for all heads: each has its own": lambda h: right(h)[:1] * h,
        "the slopes for the power of two come first, then the rest: don't sort them": (
            lambda h: sorted(right(h), reverse=True)
        ),
        "steps of 1/2 are for 8 heads only: 2^(-8/n)": (
            lambda h: (0.5 ** torch.arange(1, h + 1)).tolist()
        ),
        "slopes are positive": lambda h: [-slope for slope in right(h)],
        "slopes are below 1: where is the minus?": (
            lambda h: [1 / slope for slope in right(h)]
        ),
    }

    cases = [(12,), (8,), (3,), (1,), (5,), (16,), (40,), (15,)]
    return Exercise(right, cases, mistakes, "from short-sighted to far-sighted")


@check
def neighbours() -> Exercise:
    """`answer(x, positions, n)`: pairs (2i, 2i + 1) of the first n features turned."""

    def turned(a: Tensor, b: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
        new_a = a * angles.cos() - b * angles.sin()
        new_b = a * angles.sin() + b * angles.cos()
        return new_a, new_b

    def right(
        x: Tensor,
        positions: Tensor,
        n: int,
        exponents: Callable = lambda n, d: -torch.arange(0, n, 2) / n,
        base: int = 10_000,
        turned: Callable = turned,
    ) -> Tensor:
        angles = positions[:, None] * base ** exponents(n, x.shape[1])
        new = turned(x[:, 0:n:2], x[:, 1:n:2], angles)
        return torch.cat([torch.stack(new, -1).flatten(-2), x[:, n:]], -1)

    way = ways_of(right)

    def both_plus(a: Tensor, b: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
        return a * angles.cos() + b * angles.sin(), turned(a, b, angles)[1]

    def overwritten(a: Tensor, b: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
        new_a, _ = turned(a, b, angles)
        return new_a, turned(new_a, b, angles)[1]

    # The features are paired by the package's `rotate`, i with i + n/2.

    def halves_paired(x: Tensor, positions: Tensor, n: int) -> Tensor:
        return torch.cat([rotate(x[:, :n], positions), x[:, n:]], 1)

    def interleaved_first(x: Tensor, positions: Tensor, n: int) -> Tensor:
        pairs = deinterleave(rotate(interleave(x[:, :n]), positions))
        return torch.cat([pairs, x[:, n:]], 1)

    def left_in_halves(x: Tensor, positions: Tensor, n: int) -> Tensor:
        halves = rotate(deinterleave(x[:, :n]), positions)
        return torch.cat([halves, x[:, n:]], 1)

    mistakes = {
        # The angles are not right.
        "the speeds are those of d features: here d is n": way(
            exponents=lambda n, d: -torch.arange(0, n, 2) / d
        ),
        "2i is doubled: arange(0, n, 2) is 2i already": way(
            exponents=lambda n, d: -2 * torch.arange(0, n, 2) / n
        ),
        "pair i has the speed 10000^(-2i/n), not -i/n": way(
            exponents=lambda n, d: -torch.arange(n // 2) / n
        ),
        "the exponent, -2i/n, has a minus": way(
            exponents=lambda n, d: torch.arange(0, n, 2) / n
        ),
        "divide 2i by n, not by n - 2": way(
            exponents=lambda n, d: -torch.arange(0, n, 2) / (n - 2)
        ),
        "all pairs turn at one speed: each has its own": way(
            exponents=lambda n, d: torch.zeros(n // 2)
        ),
        "the base is 10,000, not 1,000": way(base=1_000),
        # Other features are turned, or in other pairs.
        "all features are turned, not n": lambda x, p, n: right(x, p, x.shape[1]),
        "the features from n on are missing": lambda x, p, n: right(x, p, n)[:, :n],
        "feature i is paired with i + n/2: here neighbours are": halves_paired,
        "`deinterleave` comes before the turn, `interleave` after it": (
            interleaved_first
        ),
        "the right pairs come out in halves: stack on the last axis and flatten": (
            left_in_halves
        ),
        "the features from n on stay as they are": (
            lambda x, p, n: right(x, p, n) * (torch.arange(x.shape[1]) < n)
        ),
        "a list or an array: make it a tensor": lambda x, p, n: right(x, p, n).tolist(),
        # The turn.
        "`sin` and `cos` take radians, and so they are": (
            lambda x, p, n: right(x, torch.deg2rad(p), n)
        ),
        "it turns the other way: which sine has the minus?": (
            lambda x, p, n: right(x, -p, n)
        ),
        "both sines have a plus: the one in a' has a minus": way(turned=both_plus),
        "b' is made of the new a: keep the old one as well": way(turned=overwritten),
        "use `positions`, not 0, 1, 2": (
            lambda x, p, n: right(x, torch.arange(len(p)), n)
        ),
    }

    cases = [
        (draw(3, 10), torch.tensor([7, 0, 150]), 4),
        (draw(5, 8), torch.arange(5), 6),
        (draw(4, 12), torch.tensor([3, 1, 9, 5]), 12),
    ]
    return Exercise(right, cases, mistakes, "the rotation as GPT-J has it")


@check
def buckets() -> Exercise:
    """`answer(distance, n_buckets, max_distance)`: T5's buckets in both directions."""

    def farther_by_a_factor(n: int, max_distance: int) -> Tensor:
        """Where n wide buckets begin, the first of them at n."""
        return n * (max_distance / n) ** (torch.arange(n) / n)

    def right(
        distance: Tensor,
        n_buckets: int,
        max_distance: int,
        wide: Callable = farther_by_a_factor,
        begun: Callable = torch.ge,
        half: Callable = lambda distance, n_buckets: n_buckets // 2 * (distance < 0),
    ) -> Tensor:
        exact = n_buckets // 4
        begins = torch.cat([torch.arange(exact), wide(exact, max_distance)])
        bucket = begun(distance.abs()[..., None], begins).sum(-1) - 1
        return bucket + half(distance, n_buckets)

    way = ways_of(right)

    def negative_in_one(d: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        bucket = right(d.relu(), n_buckets, max_distance)
        return bucket + (n_buckets // 2 - 1) * (d < 0)

    def by_logarithm(
        distance: Tensor, n_buckets: int, max_distance: int, whole: Callable
    ) -> Tensor:
        """The logarithm of the distance, made a whole number by `whole`."""
        exact = n_buckets // 4
        away = distance.abs()
        times = away.clamp(min=exact) / exact
        far = whole(exact * times.log() / math.log(max_distance / exact), exact)
        bucket = torch.where(away < exact, away, exact + far.long())
        return bucket + n_buckets // 2 * (distance < 0)

    rounded = ways_of(by_logarithm)

    mistakes = {
        # The wide buckets begin elsewhere.
        "a fence post: 8 steps lead from 8 to 128, the last bucket begins after 7": (
            way(wide=lambda n, most: n * (most / n) ** (torch.arange(n) / (n - 1)))
        ),
        "count the steps from 0: the first wide one begins at n_buckets / 4": way(
            wide=lambda n, most: n * (most / n) ** (torch.arange(1, n + 1) / n)
        ),
        "the buckets widen too fast: the factors lead from n_buckets / 4, not from 1": (
            way(wide=lambda n, most: n * most ** (torch.arange(n) / n))
        ),
        "the wide buckets are equally wide: each begins a factor farther out": way(
            wide=lambda n, most: n + (most - n) * torch.arange(n) / n
        ),
        "the factor of 16 is not for all: max_distance / (n_buckets / 4)": way(
            wide=lambda n, most: farther_by_a_factor(n, 16 * n)
        ),
        "a bucket may begin at 11.3: don't round it": way(
            wide=lambda n, most: farther_by_a_factor(n, most).round()
        ),
        "a bucket may begin at 11.3: don't round it down": way(
            wide=lambda n, most: farther_by_a_factor(n, most).floor()
        ),
        "a bucket begins at its first distance: >=, not >": way(begun=torch.gt),
        # The halves for the two directions.
        "the upper half is for negative distances": way(
            half=lambda distance, n_buckets: n_buckets // 2 * (distance > 0)
        ),
        "the upper half is for negative distances: here it is empty": way(
            half=lambda distance, n_buckets: 0
        ),
        "a negative distance needs its absolute value": negative_in_one,
        "16 more is for 32 buckets only: n_buckets / 2": way(
            half=lambda distance, n_buckets: 16 * (distance < 0)
        ),
        "half of the buckets are for the keys after the query": relative_buckets,
        "right for 32 buckets and 128 only": lambda d, *sizes: right(d, 32, 128),
        # By the logarithm.
        "round down, not to the nearest": rounded(
            whole=lambda far, n: far.round().clamp(max=n - 1)
        ),
        "round down, not up": rounded(whole=lambda far, n: far.ceil().clamp(max=n - 1)),
        "the last bucket of each half has no end": rounded(
            whole=lambda far, n: far.floor()
        ),
    }

    cases = [
        # Few distances: they are shown.
        (torch.tensor([0, 7, -8, 13, -50, 300]), 32, 128),
        (torch.tensor([-3, 120, 5, -1, 30]), 20, 50),
        (torch.arange(-1100, 1100), 128, 1024),
        (torch.arange(140), 32, 100),
        (torch.arange(60, -300, -1).view(12, 30), 20, 50),
    ]
    praise = "exact up close, coarse farther off, on both sides"
    return Exercise(right, cases, mistakes, praise)


@check
def induction_scores() -> Exercise:
    """`answer(weights, tokens)`: each head's mean weight on a token's followers."""

    def beside_copy(tokens: Tensor, shift: int) -> Tensor:
        """(t s): whether key s stands `shift` places after a copy of t, at any time."""
        places = torch.arange(len(tokens)) - shift
        exists = (places >= 0) & (places < len(tokens))
        return (tokens[places % len(tokens)] == tokens[:, None]) & exists

    def followers(tokens: Tensor) -> Tensor:
        """(t s): whether key s comes just after an earlier copy of token t."""
        return beside_copy(tokens, 1).tril()

    def right(
        weights: Tensor,
        tokens: Tensor,
        keys: Callable = followers,
        added: Callable = torch.sum,
        mean: Callable = lambda on_keys, keys: on_keys[:, keys.any(-1)].mean(-1),
    ) -> list[float]:
        keys = keys(tokens)
        on_keys = added(weights * keys, -1)
        return mean(on_keys, keys).tolist()

    way = ways_of(right)

    def last_follower(tokens: Tensor) -> Tensor:
        keys = followers(tokens)
        n_from_here = keys.flip(-1).cumsum(-1).flip(-1)
        return keys & (n_from_here == 1)

    def over_weights_above_zero(on_keys: Tensor, keys: Tensor) -> Tensor:
        n_queries = (on_keys > 0).sum(-1).clamp(min=1)
        return on_keys.sum(-1) / n_queries

    mistakes = {
        # Other keys.
        "this looks at the copy itself: its follower is one further": way(
            keys=lambda tokens: beside_copy(tokens, 0).tril(-1)
        ),
        "one too far: a follower comes next to the copy": way(
            keys=lambda tokens: beside_copy(tokens, 2).tril()
        ),
        "before the copy: a follower comes *after* it": way(
            keys=lambda tokens: beside_copy(tokens, -1).tril()
        ),
        "`roll(-1)` finds the token before the copy: try `roll(1)`": way(
            keys=lambda tokens: beside_copy(tokens, -1).tril(-1)
        ),
        "nothing stands before the first token, but `roll` brings the last one: key 0"
        " is no follower": way(
            keys=lambda tokens: (tokens.roll(1) == tokens[:, None]).tril()
        ),
        "copies that come later count too: only earlier ones should": way(
            keys=lambda tokens: beside_copy(tokens, 1)
        ),
        "a token is no copy of itself: the key after it is in the future": way(
            keys=lambda tokens: beside_copy(tokens, 1).tril(1)
        ),
        "a token may be its own follower, as in 7 7: s may be t": way(
            keys=lambda tokens: beside_copy(tokens, 1).tril(-1)
        ),
        "only the last follower counts: add up the weights on all of them": way(
            keys=last_follower
        ),
        # Other means.
        "queries whose followers get no weight count, too: the mean leaves them out": (
            way(mean=over_weights_above_zero)
        ),
        "the largest weight on a follower: add up the weights on all of them": way(
            added=torch.amax
        ),
        "over all queries: leave out new tokens": way(
            mean=lambda on_keys, keys: on_keys.mean(-1)
        ),
        "the sum over the queries: take their mean": way(
            mean=lambda on_keys, keys: on_keys.sum(-1)
        ),
        "the mean over all pairs: add up, then take the mean over the queries": way(
            mean=lambda on_keys, keys: on_keys.sum(-1) / keys.sum()
        ),
        "queries and keys are swapped: (h t s)": lambda w, tokens: right(w.mT, tokens),
    }

    def soft(n_heads: int, text: list) -> tuple[Tensor, Tensor]:
        """Random weights for a text's tokens."""
        weights = draw(n_heads, len(text), len(text), seed=n_heads).softmax(-1)
        return weights, torch.tensor(text)

    # All weight is on key 0, but for one query of the first head.
    looked_at = torch.tensor([[0, 0, 0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]])
    cases = [
        soft(3, [5, 2, 2, 7, 5, 2]),
        soft(2, [1, 0, 3, 1, 4, 0, 1, 1, 3]),
        soft(4, [8, 6, 8, 8, 6, 9, 8, 4]),
        (torch.eye(8)[looked_at], torch.tensor([1, 2] * 4)),
    ]
    praise = "the tokens that followed the same token before"
    return Exercise(right, cases, mistakes, praise)
