"""Checks of chapter 01: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...model.attention import causal_mask, softmax
from .compare import Exercise, Raises, check, draw, identity, ways_of


@check
def one_query() -> Exercise:
    """`answer(query, keys, values)`: lists (d), (s d), (s c), and a list (c) comes."""

    def right(
        query: list,
        keys: list,
        values: list,
        taken: Callable = lambda scores, dots: max(scores),  # away before exp
    ) -> list:
        dots = [sum(map(math.prod, zip(query, key, strict=True))) for key in keys]
        scores = [dot / len(query) ** 0.5 for dot in dots]
        terms = [math.exp(score - taken(scores, dots)) for score in scores]
        weights = [term / sum(terms) for term in terms]
        columns = zip(*values, strict=True)
        return [sum(map(math.prod, zip(weights, c, strict=True))) for c in columns]

    way = ways_of(right)

    def by_tensors(
        query: list,
        keys: list,
        values: list,
        scale: Callable = lambda query, keys, values: len(query) ** 0.5,
        weights: Callable = lambda scores: scores.softmax(0),
    ) -> list:
        """The same, where the mistake is one that doesn't need plain Python."""
        q, k, v = (torch.tensor(x, dtype=torch.double) for x in (query, keys, values))
        scores = k @ q / scale(query, keys, values)
        return (weights(scores) @ v).tolist()

    of_tensors = ways_of(by_tensors)

    def weights_scaled(query: list, keys: list, values: list) -> list:
        output = by_tensors(query, keys, values, scale=lambda *_: 1)
        return [x / len(query) ** 0.5 for x in output]

    mistakes = {
        "inf/inf and 0/0 are NaN: take away the largest score before exp": of_tensors(
            weights=lambda scores: scores.exp() / scores.exp().sum()
        ),
        "the scores are to be divided by the root, not the weights": weights_scaled,
        "these are the weights: average the values": (
            lambda query, keys, values: by_tensors(
                query, keys, torch.eye(len(keys)).tolist()
            )
        ),
        "the keys are averaged, not the values": (
            lambda query, keys, values: by_tensors(query, keys, keys)
        ),
        "softmax is missing": of_tensors(weights=identity),
        "raise e to the scores before dividing": of_tensors(
            weights=lambda scores: scores / scores.sum()
        ),
        "divide the terms by their sum": of_tensors(
            weights=lambda scores: (scores - scores.amax()).exp()
        ),
        "no scale: divide the scores by the root of d": of_tensors(
            scale=lambda query, keys, values: 1
        ),
        "the scores are divided by d: take its root": of_tensors(
            scale=lambda query, keys, values: len(query)
        ),
        "d is not the number of keys": of_tensors(
            scale=lambda query, keys, values: len(keys) ** 0.5
        ),
        "d is a query's length, not a value's": of_tensors(
            scale=lambda query, keys, values: len(values[0]) ** 0.5
        ),
        "cut off they become equal: take the max away": of_tensors(
            weights=lambda scores: scores.clamp(-60, 60).softmax(0)
        ),
        "take the max away, don't divide by it": of_tensors(
            weights=lambda scores: (scores / scores.amax()).softmax(0)
        ),
        "every key counts, not the best alone": of_tensors(
            weights=lambda scores: ((scores - scores.amax()) * 1e9).softmax(0)
        ),
        # Slips that only plain Python has, where numbers overflow.
        "take away the largest score before exp, not 0": way(
            taken=lambda scores, dots: 0
        ),
        "take away the largest of the very numbers that e is raised to": way(
            taken=lambda scores, dots: max(dots)
        ),
        "what is taken away is never below 0, by `abs` or as it begins there: all"
        " scores may lie below": way(taken=lambda scores, dots: max(0, *scores)),
        "the largest score begins at a number that all may lie below: begin with the"
        " first, or with -inf": way(taken=lambda scores, dots: max(-9_999, *scores)),
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

    def scaled(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / q.shape[-1] ** 0.5

    def window(back: Tensor, width: int) -> Tensor:
        """Which keys are seen that stand so far `back`, both (t s)."""
        return (back >= 0) & (back < width)

    def hidden(scores: Tensor, mask: Tensor) -> Tensor:
        return softmax(scores.masked_fill(~mask, -torch.inf))

    def right(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        width: int,
        scores: Callable = scaled,
        seen: Callable = window,
        weights: Callable = hidden,
    ) -> Tensor:
        t = torch.arange(q.shape[-2])
        mask = seen(t[:, None] - t, width)
        return weights(scores(q, k), mask) @ v

    way = ways_of(right)

    def divided(terms: Tensor) -> Tensor:
        return terms / terms.sum(-1, keepdim=True)

    def last(n: int, *tensors: Tensor) -> list[Tensor]:
        """The last n positions of each."""
        return [x[..., -n:, :] for x in tensors]

    def keys_cropped(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        k, v = last(width, k, v)
        return softmax(scaled(q, k)) @ v

    def cropped_and_masked(q: Tensor, k: Tensor, v: Tensor, width: int) -> Tensor:
        mask = causal_mask(q.shape[-2])[:, -width:]
        k, v = last(width, k, v)
        return hidden(scaled(q, k), mask) @ v

    mistakes = {
        # The mask is right, and not what is done with it.
        "hidden scores are 0, not -inf": way(
            weights=lambda scores, mask: softmax(scores * mask)
        ),
        "leaves weight: use -inf": way(
            weights=lambda scores, mask: softmax(scores.masked_fill(~mask, -100))
        ),
        "-10,000 is no low score: use -inf": way(
            weights=lambda scores, mask: softmax(scores.masked_fill(~mask, -1e4))
        ),
        "-1,000,000 is no low score: use -inf": way(
            weights=lambda scores, mask: softmax(scores.masked_fill(~mask, -1e6))
        ),
        "exp overflows, and inf / inf is NaN: take away the largest score first": (
            way(weights=lambda scores, mask: divided(scores.exp() * mask))
        ),
        "True is added as 1, it hides nothing": way(
            weights=lambda scores, mask: softmax(scores + mask)
        ),
        "mask before softmax: 0 divided by 0 is NaN": way(
            weights=lambda scores, mask: divided(softmax(scores) * mask)
        ),
        "mask before softmax, not after": way(
            weights=lambda scores, mask: softmax(scores) * mask
        ),
        "the window, too, is cut before softmax, not after it": way(
            weights=lambda scores, mask: hidden(scores, causal_mask(len(mask))) * mask
        ),
        "softmax over queries, not keys": way(
            weights=lambda scores, mask: softmax(
                scores.masked_fill(~mask, -torch.inf), -2
            )
        ),
        "no scale: divide by root d": way(scores=lambda q, k: q @ k.mT),
        # The end of the text stands for every position's window.
        "the last `width` keys of the text serve everybody: each position has its own"
        " window": keys_cropped,
        "only the text's last `width` keys are left: each position has its own window,"
        " and early ones have no key here, which gives NaN": cropped_and_masked,
        "only the last `width` positions are left: give every position its own"
        " window": lambda q, k, v, width: right(*last(width, q, k, v), width),
        "only the last `width` positions are left, and see each other: give every"
        " position its own window": (
            lambda q, k, v, width: keys_cropped(*last(width, q, k, v), width)
        ),
        # The mask is not right.
        "blocks of `width`: each query looks back from its own place": way(
            seen=lambda back, width: (
                (back >= 0) & (back <= torch.arange(len(back))[:, None] % width)
            )
        ),
        "a position sees later ones, too": way(
            seen=lambda back, width: back.abs() < width
        ),
        "half of the window lies ahead": way(
            seen=lambda back, width: back.abs() <= width // 2
        ),
        "it looks ahead, not back": way(seen=lambda back, width: window(-back, width)),
        "itself is one of the width": way(
            seen=lambda back, width: window(back - 1, width)
        ),
        "the window is one too wide": way(
            seen=lambda back, width: window(back, width + 1)
        ),
        "the window is one too narrow": way(
            seen=lambda back, width: window(back, width - 1)
        ),
        "causal, but without a window": way(seen=lambda back, width: back >= 0),
        "the future is seen: hide it, too": way(seen=lambda back, width: back < width),
        "upside down: True is what is seen": way(
            seen=lambda back, width: ~window(back, width)
        ),
        "nothing is masked": way(weights=lambda scores, mask: softmax(scores)),
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
