"""Checks of chapter 03."""

import math

import torch
from torch import Tensor

from ...model.attention import causal_mask
from ...model.positions import deinterleave, interleave, relative_buckets, rotate
from .compare import Exercise, check, draw


@check
def slopes() -> Exercise:
    """`answer(n_heads)`: ALiBi's slopes, for a power of two and for other numbers."""

    def right(n_heads: int) -> list[float]:
        power = 2 ** int(math.log2(n_heads))
        return torch.cat([even(power), even(2 * power)[::2]])[:n_heads].tolist()

    def even(n: int) -> Tensor:
        """The rule for powers of two, for any number."""
        return 2 ** (-8 * torch.arange(1, n + 1) / n)

    def power_above(n_heads: int) -> list[float]:
        power = 2 ** math.ceil(math.log2(n_heads))
        return torch.cat([even(power), even(2 * power)[::2]])[:n_heads].tolist()

    def power_nearest(n_heads: int) -> list[float]:
        power = 2 ** round(math.log2(n_heads))
        return torch.cat([even(power), even(2 * power)[::2]])[:n_heads].tolist()

    def rest_by_its_own_number(n_heads: int) -> list[float]:
        power = 2 ** int(math.log2(n_heads))
        return torch.cat([even(power), even(n_heads - power)]).tolist()

    def each_of_the_longer(n_heads: int) -> list[float]:
        power = 2 ** int(math.log2(n_heads))
        return torch.cat([even(power), even(2 * power)])[:n_heads].tolist()

    def from_the_second_on(n_heads: int) -> list[float]:
        power = 2 ** int(math.log2(n_heads))
        return torch.cat([even(power), even(2 * power)[1::2]])[:n_heads].tolist()

    def too_many(n_heads: int) -> list[float]:
        power = 2 ** int(math.log2(n_heads))
        return torch.cat([even(power), even(2 * power)[::2]]).tolist()

    def counted_from_zero(n_heads: int) -> list[float]:
        power = 2 ** int(math.log2(n_heads))
        short = 2 ** (-8 * torch.arange(power) / power)
        long = 2 ** (-8 * torch.arange(2 * power) / (2 * power))
        return torch.cat([short, long[::2]])[:n_heads].tolist()

    def halves(n_heads: int) -> list[float]:
        return (0.5 ** torch.arange(1, n_heads + 1)).tolist()

    mistakes = {
        "right for powers of two only: 12 begin with 8": lambda h: even(h).tolist(),
        "begin 12 heads with the slopes for 8, not for 16": power_above,
        "take the power of two below, not the nearest": power_nearest,
        "take the rest from the longer list": rest_by_its_own_number,
        "take every second of the longer list": each_of_the_longer,
        "begin the longer list with its first": from_the_second_on,
        "too many: stop when there are n_heads": too_many,
        "count the heads from 1, not from 0": counted_from_zero,
        "one slope for all heads: each has its own": lambda h: right(h)[:1] * h,
        "the slopes for the power of two come first, then the rest: don't sort them": (
            lambda h: sorted(right(h), reverse=True)
        ),
        "steps of 1/2 are for 8 heads only: 2^(-8/n)": halves,
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

    def right(x: Tensor, positions: Tensor, n: int) -> Tensor:
        angles = positions[:, None] * 10_000 ** (-torch.arange(0, n, 2) / n)
        a, b = x[:, 0:n:2], x[:, 1:n:2]
        new_a = a * angles.cos() - b * angles.sin()
        new_b = a * angles.sin() + b * angles.cos()
        pairs = torch.stack([new_a, new_b], -1).flatten(-2)
        return torch.cat([pairs, x[:, n:]], -1)

    def turned(x: Tensor, angles: Tensor) -> Tensor:
        """x (t d) with its first pairs turned by the angles (t pairs)."""
        n = 2 * angles.shape[1]
        a, b = x[:, 0:n:2], x[:, 1:n:2]
        new_a = a * angles.cos() - b * angles.sin()
        new_b = a * angles.sin() + b * angles.cos()
        return with_the_rest(new_a, new_b, x)

    def with_the_rest(new_a: Tensor, new_b: Tensor, x: Tensor) -> Tensor:
        """The new pairs, and what x has behind them."""
        pairs = torch.stack([new_a, new_b], -1).flatten(-2)
        return torch.cat([pairs, x[:, pairs.shape[1] :]], 1)

    # The angles are not right.

    def speeds_of_d(x: Tensor, positions: Tensor, n: int) -> Tensor:
        d = x.shape[1]
        return turned(x, positions[:, None] * 10_000 ** (-torch.arange(0, n, 2) / d))

    def doubled_twice(x: Tensor, positions: Tensor, n: int) -> Tensor:
        exponents = -2 * torch.arange(0, n, 2) / n
        return turned(x, positions[:, None] * 10_000**exponents)

    def not_doubled(x: Tensor, positions: Tensor, n: int) -> Tensor:
        exponents = -torch.arange(n // 2) / n
        return turned(x, positions[:, None] * 10_000**exponents)

    def without_minus(x: Tensor, positions: Tensor, n: int) -> Tensor:
        exponents = torch.arange(0, n, 2) / n
        return turned(x, positions[:, None] * 10_000**exponents)

    def divided_by_n_minus_2(x: Tensor, positions: Tensor, n: int) -> Tensor:
        exponents = -torch.arange(0, n, 2) / (n - 2)
        return turned(x, positions[:, None] * 10_000**exponents)

    def one_speed(x: Tensor, positions: Tensor, n: int) -> Tensor:
        return turned(x, positions[:, None] * torch.ones(n // 2))

    def base_1000(x: Tensor, positions: Tensor, n: int) -> Tensor:
        return turned(x, positions[:, None] * 1_000 ** (-torch.arange(0, n, 2) / n))

    def in_degrees(x: Tensor, positions: Tensor, n: int) -> Tensor:
        return right(x, torch.deg2rad(positions), n)

    def other_way(x: Tensor, positions: Tensor, n: int) -> Tensor:
        return right(x, -positions, n)

    def places_in_x(x: Tensor, positions: Tensor, n: int) -> Tensor:
        return right(x, torch.arange(len(positions)), n)

    # The angles are right, and not what is done with them.

    def both_plus(x: Tensor, positions: Tensor, n: int) -> Tensor:
        angles = positions[:, None] * 10_000 ** (-torch.arange(0, n, 2) / n)
        a, b = x[:, 0:n:2], x[:, 1:n:2]
        new_a = a * angles.cos() + b * angles.sin()
        new_b = a * angles.sin() + b * angles.cos()
        return with_the_rest(new_a, new_b, x)

    def overwritten(x: Tensor, positions: Tensor, n: int) -> Tensor:
        angles = positions[:, None] * 10_000 ** (-torch.arange(0, n, 2) / n)
        a, b = x[:, 0:n:2], x[:, 1:n:2]
        new_a = a * angles.cos() - b * angles.sin()
        new_b = new_a * angles.sin() + b * angles.cos()
        return with_the_rest(new_a, new_b, x)

    def rest_hidden(x: Tensor, positions: Tensor, n: int) -> Tensor:
        return right(x, positions, n) * (torch.arange(x.shape[1]) < n)

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
        "the speeds are those of d features: here d is n": speeds_of_d,
        "2i is doubled: arange(0, n, 2) is 2i already": doubled_twice,
        "pair i has the speed 10000^(-2i/n), not -i/n": not_doubled,
        "the exponent, -2i/n, has a minus": without_minus,
        "divide 2i by n, not by n - 2": divided_by_n_minus_2,
        "all pairs turn at one speed: each has its own": one_speed,
        "the base is 10,000, not 1,000": base_1000,
        "all features are turned, not n": lambda x, p, n: right(x, p, x.shape[1]),
        "the features from n on are missing": lambda x, p, n: right(x, p, n)[:, :n],
        "feature i is paired with i + n/2: here neighbours are": halves_paired,
        "`deinterleave` comes before the turn, `interleave` after it": (
            interleaved_first
        ),
        "the right pairs come out in halves: stack on the last axis and flatten": (
            left_in_halves
        ),
        "the features from n on stay as they are": rest_hidden,
        "a list or an array: make it a tensor": lambda x, p, n: right(x, p, n).tolist(),
        "`sin` and `cos` take radians, and so they are": in_degrees,
        "it turns the other way: which sine has the minus?": other_way,
        "both sines have a plus: the one in a' has a minus": both_plus,
        "b' is made of the new a: keep the old one as well": overwritten,
        "use `positions`, not 0, 1, 2": places_in_x,
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

    def right(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact * (max_distance / exact) ** (steps / exact)
        begins = torch.cat([steps, wide])
        bucket = (distance.abs()[..., None] >= begins).sum(-1) - 1
        return bucket + n_buckets // 2 * (distance < 0)

    def begun(distance: Tensor, wide: Tensor) -> Tensor:
        """How many buckets have begun; the `wide` ones begin at these distances."""
        begins = torch.cat([torch.arange(len(wide)), wide])
        return (distance.abs()[..., None] >= begins).sum(-1) - 1

    # The wide buckets begin elsewhere.

    def one_step_less(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact * (max_distance / exact) ** (steps / (exact - 1))
        return begun(distance, wide) + n_buckets // 2 * (distance < 0)

    def steps_from_one(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(1, exact + 1)
        wide = exact * (max_distance / exact) ** (steps / exact)
        return begun(distance, wide) + n_buckets // 2 * (distance < 0)

    def factors_from_one(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact * max_distance ** (steps / exact)
        return begun(distance, wide) + n_buckets // 2 * (distance < 0)

    def equally_wide(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact + (max_distance - exact) * steps / exact
        return begun(distance, wide) + n_buckets // 2 * (distance < 0)

    def factor_16(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact * 16 ** (steps / exact)
        return begun(distance, wide) + n_buckets // 2 * (distance < 0)

    def begins_rounded(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact * (max_distance / exact) ** (steps / exact)
        return begun(distance, wide.round()) + n_buckets // 2 * (distance < 0)

    def begins_cut(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact * (max_distance / exact) ** (steps / exact)
        return begun(distance, wide.floor()) + n_buckets // 2 * (distance < 0)

    def begins_one_late(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        exact = n_buckets // 4
        steps = torch.arange(exact)
        wide = exact * (max_distance / exact) ** (steps / exact)
        begins = torch.cat([steps, wide])
        bucket = (distance.abs()[..., None] > begins).sum(-1) - 1
        return bucket + n_buckets // 2 * (distance < 0)

    # The halves for the two directions.

    def upper_half_positive(d: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        bucket = right(d.abs(), n_buckets, max_distance)
        return bucket + n_buckets // 2 * (d > 0)

    def upper_half_empty(d: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        return right(d.abs(), n_buckets, max_distance)

    def negative_in_one(d: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        bucket = right(d.relu(), n_buckets, max_distance)
        return bucket + (n_buckets // 2 - 1) * (d < 0)

    def sixteen_more(d: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        return right(d.abs(), n_buckets, max_distance) + 16 * (d < 0)

    # By the logarithm of the distance, made a whole number.

    def logarithm(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        """In which bucket, counted from the first wide one, and not yet whole."""
        exact = n_buckets // 4
        times = distance.abs().clamp(min=exact) / exact
        return exact * times.log() / math.log(max_distance / exact)

    def by_logarithm(distance: Tensor, n_buckets: int, far: Tensor) -> Tensor:
        exact = n_buckets // 4
        away = distance.abs()
        bucket = torch.where(away < exact, away, exact + far.long())
        return bucket + n_buckets // 2 * (distance < 0)

    def to_the_nearest(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        far = logarithm(distance, n_buckets, max_distance).round()
        return by_logarithm(distance, n_buckets, far.clamp(max=n_buckets // 4 - 1))

    def rounded_up(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        far = logarithm(distance, n_buckets, max_distance).ceil()
        return by_logarithm(distance, n_buckets, far.clamp(max=n_buckets // 4 - 1))

    def without_end(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
        far = logarithm(distance, n_buckets, max_distance).floor()
        return by_logarithm(distance, n_buckets, far)

    mistakes = {
        "a fence post: 8 steps lead from 8 to 128, the last bucket begins after 7": (
            one_step_less
        ),
        "count the steps from 0: the first wide one begins at n_buckets / 4": (
            steps_from_one
        ),
        "the buckets widen too fast: the factors lead from n_buckets / 4, not from 1": (
            factors_from_one
        ),
        "the wide buckets are equally wide: each begins a factor farther out": (
            equally_wide
        ),
        "the factor of 16 is not for all: max_distance / (n_buckets / 4)": factor_16,
        "a bucket may begin at 11.3: don't round it": begins_rounded,
        "a bucket may begin at 11.3: don't round it down": begins_cut,
        "a bucket begins at its first distance: >=, not >": begins_one_late,
        "the upper half is for negative distances": upper_half_positive,
        "the upper half is for negative distances: here it is empty": upper_half_empty,
        "a negative distance needs its absolute value": negative_in_one,
        "16 more is for 32 buckets only: n_buckets / 2": sixteen_more,
        "half of the buckets are for the keys after the query": relative_buckets,
        "right for 32 buckets and 128 only": lambda d, *sizes: right(d, 32, 128),
        "round down, not to the nearest": to_the_nearest,
        "round down, not up": rounded_up,
        "the last bucket of each half has no end": without_end,
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

    def right(weights: Tensor, tokens: Tensor) -> list[float]:
        keys = followers(tokens)
        on_keys = (weights * keys).sum(-1)
        return on_keys[:, keys.any(-1)].mean(-1).tolist()

    def followers(tokens: Tensor) -> Tensor:
        """(t s): whether key s comes just after an earlier copy of token t."""
        after_copy = tokens.roll(1) == tokens[:, None]
        after_copy[:, 0] = False  # nothing stands before key 0
        return after_copy & causal_mask(len(tokens))

    def beside_copy(tokens: Tensor, shift: int) -> Tensor:
        """(t s): whether key s stands `shift` places after a copy of t, at any time."""
        places = torch.arange(len(tokens)) - shift
        exists = (places >= 0) & (places < len(tokens))
        return (tokens[places % len(tokens)] == tokens[:, None]) & exists

    def mean_weight(weights: Tensor, keys: Tensor) -> list[float]:
        """(h): the weights on the keys (t s), over the queries that have such keys."""
        on_keys = (weights * keys).sum(-1)
        return on_keys[:, keys.any(-1)].mean(-1).tolist()

    # Other keys.

    def copies(weights: Tensor, tokens: Tensor) -> list[float]:
        return mean_weight(weights, beside_copy(tokens, 0).tril(-1))

    def two_after(weights: Tensor, tokens: Tensor) -> list[float]:
        return mean_weight(weights, beside_copy(tokens, 2).tril())

    def before(weights: Tensor, tokens: Tensor) -> list[float]:
        return mean_weight(weights, beside_copy(tokens, -1).tril())

    def before_an_earlier_copy(weights: Tensor, tokens: Tensor) -> list[float]:
        return mean_weight(weights, beside_copy(tokens, -1).tril(-1))

    def rolled_round(weights: Tensor, tokens: Tensor) -> list[float]:
        same = tokens.roll(1) == tokens[:, None]
        return mean_weight(weights, same.tril())

    def later_ones_too(weights: Tensor, tokens: Tensor) -> list[float]:
        return mean_weight(weights, beside_copy(tokens, 1))

    def next_key_too(weights: Tensor, tokens: Tensor) -> list[float]:
        return mean_weight(weights, beside_copy(tokens, 1).tril(1))

    def never_itself(weights: Tensor, tokens: Tensor) -> list[float]:
        return mean_weight(weights, beside_copy(tokens, 1).tril(-1))

    def last_follower(weights: Tensor, tokens: Tensor) -> list[float]:
        keys = followers(tokens)
        n_from_here = keys.flip(-1).cumsum(-1).flip(-1)
        return mean_weight(weights, keys & (n_from_here == 1))

    # Other means.

    def over_weights_above_zero(weights: Tensor, tokens: Tensor) -> list[float]:
        on_keys = (weights * followers(tokens)).sum(-1)
        n_queries = (on_keys > 0).sum(-1).clamp(min=1)
        return (on_keys.sum(-1) / n_queries).tolist()

    def largest(weights: Tensor, tokens: Tensor) -> list[float]:
        keys = followers(tokens)
        on_keys = (weights * keys).amax(-1)
        return on_keys[:, keys.any(-1)].mean(-1).tolist()

    def over_all_queries(weights: Tensor, tokens: Tensor) -> list[float]:
        return (weights * followers(tokens)).sum(-1).mean(-1).tolist()

    def summed(weights: Tensor, tokens: Tensor) -> list[float]:
        return (weights * followers(tokens)).sum(-1).sum(-1).tolist()

    def over_pairs(weights: Tensor, tokens: Tensor) -> list[float]:
        keys = followers(tokens)
        total = (weights * keys).sum(-1).sum(-1)
        return (total / keys.sum()).tolist()

    mistakes = {
        "this looks at the copy itself: its follower is one further": copies,
        "one too far: a follower comes next to the copy": two_after,
        "before the copy: a follower comes *after* it": before,
        "`roll(-1)` finds the token before the copy: try `roll(1)`": (
            before_an_earlier_copy
        ),
        "nothing stands before the first token, but `roll` brings the last one: key 0"
        " is no follower": rolled_round,
        "copies that come later count too: only earlier ones should": later_ones_too,
        "a token is no copy of itself: the key after it is in the future": next_key_too,
        "a token may be its own follower, as in 7 7: s may be t": never_itself,
        "only the last follower counts: add up the weights on all of them": (
            last_follower
        ),
        "queries whose followers get no weight count, too: the mean leaves them out": (
            over_weights_above_zero
        ),
        "the largest weight on a follower: add up the weights on all of them": largest,
        "over all queries: leave out new tokens": over_all_queries,
        "the sum over the queries: take their mean": summed,
        "the mean over all pairs: add up, then take the mean over the queries": (
            over_pairs
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
