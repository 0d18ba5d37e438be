"""Checks of chapter 01."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...model.attention import causal_mask, softmax
from .compare import Exercise, Raises, check, draw


@check
def one_query() -> Exercise:
    """`answer(query, keys, values)`: lists (d), (s d), (s c), and a list (c) comes."""

    def right(query: list, keys: list, values: list) -> list:
        dots = dot_products(query, keys)
        scores = [dot / len(query) ** 0.5 for dot in dots]
        largest = max(scores)
        terms = [math.exp(score - largest) for score in scores]
        total = sum(terms)
        weights = [term / total for term in terms]
        return averaged(weights, values)

    def dot_products(query: list, keys: list) -> list:
        return [sum(map(math.prod, zip(query, key, strict=True))) for key in keys]

    def averaged(weights: list, values: list) -> list:
        columns = zip(*values, strict=True)
        return [sum(map(math.prod, zip(weights, c, strict=True))) for c in columns]

    def shifted(scores: list, shift: float, values: list) -> list:
        """As in `right`, but another number is taken from the scores before exp."""
        terms = [math.exp(score - shift) for score in scores]
        total = sum(terms)
        weights = [term / total for term in terms]
        return averaged(weights, values)

    # Slips that only plain Python has, where numbers overflow.

    def nothing_taken_away(query: list, keys: list, values: list) -> list:
        scores = [dot / len(query) ** 0.5 for dot in dot_products(query, keys)]
        return shifted(scores, 0, values)

    def largest_of_other_numbers(query: list, keys: list, values: list) -> list:
        dots = dot_products(query, keys)
        scores = [dot / len(query) ** 0.5 for dot in dots]
        return shifted(scores, max(dots), values)

    def largest_never_below_zero(query: list, keys: list, values: list) -> list:
        scores = [dot / len(query) ** 0.5 for dot in dot_products(query, keys)]
        return shifted(scores, max(0, *scores), values)

    def largest_begins_too_high(query: list, keys: list, values: list) -> list:
        scores = [dot / len(query) ** 0.5 for dot in dot_products(query, keys)]
        return shifted(scores, max(-9_999, *scores), values)

    # Tensors show the others in one line.

    def scaled(query: list, keys: list) -> Tensor:
        """The scores (s), right as they are."""
        return tensor(keys) @ tensor(query) / len(query) ** 0.5

    def tensor(numbers: list) -> Tensor:
        return torch.tensor(numbers, dtype=torch.double)

    def output(scores: Tensor, values: list) -> list:
        return (scores.softmax(0) @ tensor(values)).tolist()

    def no_scale(query: list, keys: list, values: list) -> list:
        return output(tensor(keys) @ tensor(query), values)

    def scaled_by_d(query: list, keys: list, values: list) -> list:
        return output(tensor(keys) @ tensor(query) / len(query), values)

    def scaled_by_number_of_keys(query: list, keys: list, values: list) -> list:
        return output(tensor(keys) @ tensor(query) / len(keys) ** 0.5, values)

    def scaled_by_length_of_values(query: list, keys: list, values: list) -> list:
        return output(tensor(keys) @ tensor(query) / len(values[0]) ** 0.5, values)

    def cut_off(query: list, keys: list, values: list) -> list:
        return output(scaled(query, keys).clamp(-60, 60), values)

    def divided_by_largest(query: list, keys: list, values: list) -> list:
        scores = scaled(query, keys)
        return output(scores / scores.amax(), values)

    def best_alone(query: list, keys: list, values: list) -> list:
        scores = scaled(query, keys)
        return output((scores - scores.amax()) * 1e9, values)

    def overflowing(query: list, keys: list, values: list) -> list:
        terms = scaled(query, keys).exp()
        return (terms / terms.sum() @ tensor(values)).tolist()

    def weights_scaled(query: list, keys: list, values: list) -> list:
        weights = (tensor(keys) @ tensor(query)).softmax(0)
        return (weights / len(query) ** 0.5 @ tensor(values)).tolist()

    def weights_alone(query: list, keys: list, values: list) -> list:
        return scaled(query, keys).softmax(0).tolist()

    def keys_averaged(query: list, keys: list, values: list) -> list:
        return output(scaled(query, keys), keys)

    def no_softmax(query: list, keys: list, values: list) -> list:
        return (scaled(query, keys) @ tensor(values)).tolist()

    def no_exp(query: list, keys: list, values: list) -> list:
        scores = scaled(query, keys)
        return (scores / scores.sum() @ tensor(values)).tolist()

    def not_divided(query: list, keys: list, values: list) -> list:
        scores = scaled(query, keys)
        terms = (scores - scores.amax()).exp()
        return (terms @ tensor(values)).tolist()

    mistakes = {
        "inf/inf and 0/0 are NaN: take away the largest score before exp": overflowing,
        "the scores are to be divided by the root, not the weights": weights_scaled,
        "these are the weights: average the values": weights_alone,
        "the keys are averaged, not the values": keys_averaged,
        "softmax is missing": no_softmax,
        "raise e to the scores before dividing": no_exp,
        "divide the terms by their sum": not_divided,
        "no scale: divide the scores by the root of d": no_scale,
        "the scores are divided by d: take its root": scaled_by_d,
        "d is not the number of keys": scaled_by_number_of_keys,
        "d is a query's length, not a value's": scaled_by_length_of_values,
        "cut off they become equal: take the max away": cut_off,
        "take the max away, don't divide by it": divided_by_largest,
        "every key counts, not the best alone": best_alone,
        "take away the largest score before exp, not 0": nothing_taken_away,
        "take away the largest of the very numbers that e is raised to": (
            largest_of_other_numbers
        ),
        "what is taken away is never below 0, by `abs` or as it begins there: all"
        " scores may lie below": largest_never_below_zero,
        "the largest score begins at a number that all may lie below: begin with the"
        " first, or with -inf": largest_begins_too_high,
        "before exp take away the largest score, and no other number": Raises(
            ArithmeticError, "math range", "out of range", "float division by"
        ),
    }

    def rounded(*shape: int) -> list:
        """Random eighths."""
        return (draw(*shape) * 8).round().div(8).tolist()

    small = ([2.0, 1.0], [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[10.0], [20.0], [40.0]])
    values = rounded(5, 3)
    mixed = (rounded(8), rounded(5, 8), values)
    # Scores that exp can't be raised to: the two largest are close, or far apart.
    close = [[0.0, 1.0], [1.0, 2.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    large = ([3e3, 1.0], close, values)
    apart = ([3e3, 1.0], [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], values[:4])
    # All scores are far below 0; in the last case the two largest are equal.
    below = ([-3e3, 1.0], [[2 - x, y] for x, y in close], values)
    ties = [[2.0, 1.0], [1.0, 0.0], [1.0, 2.0], [3.0, 0.0]]
    lowest = ([-(2.0**100), 0.0], ties, draw(4, 3).tolist())

    cases = [small, mixed, large, apart, below, lowest]
    praise = "compare, scale, share out, average"
    return Exercise(right, cases, mistakes, praise)


@check
def window_attention() -> Exercise:
    """`answer(queries, keys, values, width)`: each position sees the last `width`."""

    def right(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, window(q, width))

    def window(q: Tensor, width: int) -> Tensor:
        """(t s): the right mask."""
        causal = causal_mask(q.shape[-2])
        too_far = causal.tril(-width)
        return causal & ~too_far

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return softmax(scores(q, k).masked_fill(~mask, -torch.inf)) @ v

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / q.shape[-1] ** 0.5

    def how_far_back(q: Tensor) -> Tensor:
        """(t s): how many places before the query the key stands."""
        t = torch.arange(q.shape[-2])
        return t[:, None] - t

    # The mask is right, and not what is done with it.

    def hidden_scores_zero(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k) * window(q, width)) @ v

    def minus_hundred(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k).masked_fill(~window(q, width), -100)) @ v

    def minus_ten_thousand(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k).masked_fill(~window(q, width), -1e4)) @ v

    def minus_a_million(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k).masked_fill(~window(q, width), -1e6)) @ v

    def overflowing(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        terms = scores(q, k).exp() * window(q, width)
        return terms / terms.sum(-1, keepdim=True) @ v

    def mask_added(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k) + window(q, width)) @ v

    def masked_late_and_divided(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        weights = softmax(scores(q, k)) * window(q, width)
        return weights / weights.sum(-1, keepdim=True) @ v

    def masked_late(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k)) * window(q, width) @ v

    def window_cut_late(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        future = how_far_back(q) < 0
        weights = softmax(scores(q, k).masked_fill(future, -torch.inf))
        return weights * window(q, width) @ v

    def over_queries(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        hidden = scores(q, k).masked_fill(~window(q, width), -torch.inf)
        return softmax(hidden, -2) @ v

    def no_scale(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q * q.shape[-1] ** 0.5, k, v, window(q, width))

    # The end of the text stands for every position's window.

    def keys_cropped(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k[..., -width:, :])) @ v[..., -width:, :]

    def cropped_and_masked(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        mask = (how_far_back(q) >= 0)[:, -width:]
        hidden = scores(q, k[..., -width:, :]).masked_fill(~mask, -torch.inf)
        return softmax(hidden) @ v[..., -width:, :]

    def all_cropped(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return causal_alone(*(x[..., -width:, :] for x in (q, k, v)), width)

    def all_cropped_unmasked(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return nothing_masked(*(x[..., -width:, :] for x in (q, k, v)), width)

    # The mask is not right.

    def blocks(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        back = how_far_back(q)
        place_in_block = torch.arange(len(back))[:, None] % width
        return attend(q, k, v, (back >= 0) & (back <= place_in_block))

    def both_sides(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, how_far_back(q).abs() < width)

    def centered(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, how_far_back(q).abs() <= width // 2)

    def ahead(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, window(q, width).mT)

    def without_itself(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        back = how_far_back(q)
        return attend(q, k, v, (back >= 1) & (back <= width))

    def too_wide(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, window(q, width + 1))

    def too_narrow(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, window(q, width - 1))

    def causal_alone(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, how_far_back(q) >= 0)

    def with_future(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, how_far_back(q) < width)

    def upside_down(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return attend(q, k, v, ~window(q, width))

    def nothing_masked(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        return softmax(scores(q, k)) @ v

    mistakes = {
        "hidden scores are 0, not -inf": hidden_scores_zero,
        "leaves weight: use -inf": minus_hundred,
        "-10,000 is no low score: use -inf": minus_ten_thousand,
        "-1,000,000 is no low score: use -inf": minus_a_million,
        "exp overflows, and inf / inf is NaN: take away the largest score first": (
            overflowing
        ),
        "True is added as 1, it hides nothing": mask_added,
        "mask before softmax: 0 divided by 0 is NaN": masked_late_and_divided,
        "mask before softmax, not after": masked_late,
        "the window, too, is cut before softmax, not after it": window_cut_late,
        "softmax over queries, not keys": over_queries,
        "no scale: divide by root d": no_scale,
        "the last `width` keys of the text serve everybody: each position has its own"
        " window": keys_cropped,
        "only the text's last `width` keys are left: each position has its own window,"
        " and early ones have no key here, which gives NaN": cropped_and_masked,
        "only the last `width` positions are left: give every position its own"
        " window": all_cropped,
        "only the last `width` positions are left, and see each other: give every"
        " position its own window": all_cropped_unmasked,
        "blocks of `width`: each query looks back from its own place": blocks,
        "a position sees later ones, too": both_sides,
        "half of the window lies ahead": centered,
        "it looks ahead, not back": ahead,
        "itself is one of the width": without_itself,
        "the window is one too wide": too_wide,
        "the window is one too narrow": too_narrow,
        "causal, but without a window": causal_alone,
        "the future is seen: hide it, too": with_future,
        "upside down: True is what is seen": upside_down,
        "nothing is masked": nothing_masked,
    }

    def case(size: int, *shape: int, widths: tuple[int, int, int]) -> list:
        """Queries, keys and values, of `widths` features, times `size`."""
        return [size * draw(*shape, n, seed=i) for i, n in enumerate(widths)]

    cases = [
        (*case(2, 2, 3, 6, widths=(5, 5, 4)), 3),
        (*case(2, 1, 1, 4, widths=(2, 2, 3)), 9),
        # Here -10,000 is not low enough, nor -1,000,000.
        (*case(300, 3, 2, 7, widths=(3, 3, 5)), 1),
        (*case(3000, 3, 2, 7, widths=(3, 3, 5)), 1),
    ]
    praise = "itself and those just before"
    return Exercise(right, cases, mistakes, praise)


@check
def pad_mask() -> Exercise:
    """`answer(lengths, n_keys)`: True at real keys, for scores (b h t s)."""

    def right(lengths: Tensor, n_keys: int) -> Tensor:
        real = torch.arange(n_keys) < lengths[:, None]
        return real[:, None, None, :]

    def longest(lengths: Tensor, n_keys: int) -> Tensor:
        return right(lengths.amax().expand_as(lengths), n_keys)

    mistakes = {
        "queries are hidden, not keys (b h t s)": lambda k, n: right(k, n).mT,
        "hide keys, not queries: a query of filler would have none, which gives NaN": (
            lambda k, n: right(k, n) & right(k, n).mT
        ),
        "sentences are the first axis, b": lambda k, n: right(k, n).transpose(0, 2),
        "(b s) meets (b h t s) as (t s): four axes": lambda k, n: right(k, n)[:, 0, 0],
        "upside down: True is what is seen": lambda k, n: ~right(k, n),
        "filler stands at the end": lambda k, n: right(k, n).flip(-1),
        "one key too many": lambda k, n: right(k + 1, n),
        "a length may be 0: then no key is real": lambda k, n: right(k.clamp(min=1), n),
        "(b h s) is no mask for (b h t s): four axes": lambda k, n: right(k, n)[:, 0],
        "each has its own length": longest,
    }

    def narrow(answer: Callable, lengths: Tensor, n_keys: int) -> Tensor:
        """(b 1 1 s) in place of a mask that is the same for every query."""
        mask = answer(lengths, n_keys)
        square = isinstance(mask, Tensor) and mask.shape[1:] == (1, n_keys, n_keys)
        if square and (mask == mask[:, :, :1]).all():
            return mask[:, :, :1]
        return mask

    cases = [(torch.tensor([3, 0, 5]), 5), (torch.tensor([2, 4]), 7)]
    praise = "real tokens answer as if there were no filler"
    return Exercise(right, cases, mistakes, praise, narrow)


@check
def softmax_gradient() -> Exercise:
    """`answer(weights, g)`: the gradient of the scores (t s)."""

    def right(weights: Tensor, g: Tensor) -> Tensor:
        return weights * (g - total(weights * g))

    def total(x: Tensor) -> Tensor:
        return x.sum(-1, keepdim=True)

    def softmax_again(weights: Tensor, g: Tensor) -> Tensor:
        return right(weights.softmax(-1), g)

    def over_queries(weights: Tensor, g: Tensor) -> Tensor:
        return weights * (g - (weights * g).sum(0, keepdim=True))

    def mean_of_row(weights: Tensor, g: Tensor) -> Tensor:
        return weights * (g - (weights * g).mean(-1, keepdim=True))

    mistakes = {
        "a score moves the other weights, too": lambda w, g: w * (1 - w) * g,
        "a score moves its own weight, too": lambda w, g: w * (w * g - total(w * g)),
        "the sum over the other weights is missing": lambda w, g: w * g,
        "sum along a row, not over all": lambda w, g: w * (g - (w * g).sum()),
        "the factor w in front is missing": lambda w, g: g - total(w * g),
        "the sign is turned": lambda w, g: w * (total(w * g) - g),
        "the sum is to be taken away": lambda w, g: w * (g + total(w * g)),
        "the sum is to be weighed by w": lambda w, g: w * (g - total(g)),
        "weigh by w, no plain mean": lambda w, g: w * (g - g.mean(-1, keepdim=True)),
        "this is for log softmax": lambda w, g: g - w * total(g),
        "the sum, too, has the factor w": lambda w, g: w * g - total(w * g),
        "the sum runs over queries, not a row": over_queries,
        "a sum over the row, no mean": mean_of_row,
        "these are weights already: no softmax": softmax_again,
        "a row's sum is one number: give it keepdim=True": (
            lambda w, g: w * (g - (w * g).sum(-1))
        ),
    }

    cases = [
        (draw(3, 5).softmax(-1), draw(3, 5, seed=1)),
        (torch.eye(6)[[2, 5]], draw(2, 6, seed=4)),
        (draw(4, 4, seed=2).softmax(-1), draw(4, 4, seed=3)),
    ]
    praise = "each score gets its part of the blame"
    return Exercise(right, cases, mistakes, praise)
