"""Checks of chapter 01."""

import functools
import math

import torch

from ..attention import softmax
from .compare import Mistake, compare, draw


def one_query(answer) -> None:
    """`answer(query, keys, values)`: lists (d), (s d), (s c), and a list (c) comes."""

    def told(take):  # tensors for the lists; z are the scaled scores
        def listed(*lists):
            q, k, v = (torch.tensor(x, dtype=torch.double) for x in lists)
            return take(k @ q / len(q) ** 0.5, k, v).tolist()

        return listed

    def times(factor):
        return lambda z, k, v: (z * factor(k.shape[1], *v.shape)).softmax(0) @ v

    @functools.wraps(answer)
    def finite(query, keys, values):
        try:
            return answer(query, keys, values)
        except (OverflowError, ZeroDivisionError):
            return [math.nan for _ in values[0]]

    small = [2.0, 1.0], [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[10.0], [20.0], [40.0]]
    mixed = [(draw(*n) * 8).round().div(8).tolist() for n in ([8], [5, 8], [5, 3])]
    close = [[0.0, 1.0], [1.0, 2.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    large = [3e3, 1.0], close, mixed[2]  # the two largest scores are close
    below = [[2 - x, y] for x, y in close]
    cases = [small, mixed, large, ([-3e3, 1.0], below, large[2])]
    wrong = {
        "all scores may lie far below 0: take away their max, not 0 or max(abs)": (
            lambda z, k, v: (e := (z - z.amax().relu()).exp()) / e.sum() @ v
        ),
        "e to a large score overflows, to one far below 0 it is 0: take away the "
        "largest of the very numbers that e is raised to": (
            lambda z, k, v: (e := z.exp()) / e.sum() @ v
        ),
        "no scale: divide the scores by the root of d": times(lambda d, s, c: d**0.5),
        "the scores are divided by d: take its root": times(lambda d, s, c: d**-0.5),
        "multiplied by the root of d: divide by it": times(lambda d, s, c: d),
        "d is not the number of keys": times(lambda d, s, c: (d / s) ** 0.5),
        "d is not the length of a value": times(lambda d, s, c: (d / c) ** 0.5),
        "the scores are to be divided by the root, not the weights": (
            lambda z, k, v: (z * (d := k.shape[1] ** 0.5)).softmax(0) / d @ v
        ),
        "these are the weights: average the values": lambda z, k, v: z.softmax(0),
        "sum over tokens, for each column": lambda z, k, v: z.softmax(0) * v.sum(1),
        "the keys are averaged, not the values": lambda z, k, v: z.softmax(0) @ k,
        "the best value alone: give each its weight": lambda z, k, v: v[z.argmax()],
        "add up: the weights sum to 1": lambda z, k, v: z.softmax(0) @ v / len(k),
        "softmax is missing": lambda z, k, v: z @ v,
        "raise e to the scores before dividing": lambda z, k, v: z / z.sum() @ v,
        "divide the terms by their sum": lambda z, k, v: (z - z.amax()).exp() @ v,
    }
    wrong = {words: told(take) for words, take in wrong.items()}
    tried, right = finite if callable(answer) else answer, told(times(lambda *n: 1))
    compare(tried, right, cases, wrong, "one_query: compare, scale, share out, average")


def window_attention(answer) -> None:
    """`answer(queries, keys, values, width)`: each position sees the last `width`."""

    def near(t, n):
        return (t >= 0) & (t < n)

    def shut(z, m, axis=-1, low=-math.inf):
        return softmax(z.masked_fill(~m, low), axis)

    def masked(seen, weigh=lambda z, m, r: shut(z, m)):  # seen: how far back, and width
        def take(q, k, v, n):
            t, root = torch.arange(q.shape[-2]), q.shape[-1] ** 0.5
            return weigh(q @ k.mT / root, seen(t[:, None] - t, n), root) @ v

        return take

    def case(size, *shape, d):
        return [size * draw(*shape, n, seed=i) for i, n in enumerate(d)]

    wrong = {
        "hidden scores are 0, not -inf": masked(near, lambda z, m, r: softmax(z * m)),
        "leaves weight: use -inf": masked(near, lambda z, m, r: shut(z, m, -1, -100)),
        "mask before softmax: 0 divided by 0 is NaN": masked(
            near, lambda z, m, r: (w := softmax(z) * m) / w.sum(-1, True)
        ),
        "mask before softmax, not after": masked(near, lambda z, m, r: softmax(z) * m),
        "the window, too, is cut before softmax, not after it": masked(
            near, lambda z, m, r: shut(z, torch.ones_like(z).tril() > 0) * m
        ),
        "softmax over queries, not keys": masked(near, lambda z, m, r: shut(z, m, -2)),
        "no scale: divide by root d": masked(near, lambda z, m, r: shut(z * r, m)),
        "scaled twice: once is enough": masked(near, lambda z, m, r: shut(z / r, m)),
        "a slice with a negative start counts from the end: begin at 0": masked(
            near,
            lambda z, m, r: shut(z, m) * (m[-1, 0] | (m.sum(-1, True) == m[-1].sum())),
        ),
        "half of the window lies ahead": masked(lambda t, n: t.abs() <= n // 2),
        "a position sees later ones, too": masked(lambda t, n: t.abs() < n),
        "it looks ahead, not back": masked(lambda t, n: near(-t, n)),
        "a position is to see itself": masked(lambda t, n: near(t - 1, n - 1)),
        "itself is one of the width": masked(lambda t, n: near(t - 1, n)),
        "the window is one too wide": masked(lambda t, n: near(t, n + 1)),
        "the window is one too narrow": masked(lambda t, n: near(t, n - 1)),
        "causal, but without a window": masked(lambda t, n: t >= 0),
        "the future is seen: hide it, too": masked(lambda t, n: t < n),
        "only what is too far back is seen: hide it": masked(lambda t, n: t >= n),
        "upside down: True is what is seen": masked(lambda t, n: ~near(t, n)),
        "nothing is masked": masked(lambda t, n: t == t),
    }
    cases = [
        (*case(2, 2, 3, 6, d=(5, 5, 4)), 3),
        (*case(300, 3, 2, 7, d=(3, 3, 5)), 1),  # here -10,000 is not low enough
        (*case(2, 1, 1, 4, d=(2, 2, 3)), 9),
    ]
    praise = "window_attention: itself and those just before"
    compare(answer, masked(near), cases, wrong, praise)


def pad_mask(answer) -> None:
    """`answer(lengths, n_keys)`: True at real keys, for scores (b h t s)."""

    def narrow(lengths, n_keys):  # what is the same for every query: (b 1 1 s)
        mask = answer(lengths, n_keys)
        if not isinstance(mask, torch.Tensor) or mask.dim() != 4:
            return mask
        row = mask[:, :, :1]
        return row if mask.shape[2] in (1, n_keys) and (mask == row).all() else mask

    def real(k, n):
        return torch.arange(n) < k[:, None, None, None]

    wrong = {
        "queries are hidden, not keys (b h t s)": lambda k, n: real(k, n).mT,
        "hide keys, not queries": lambda k, n: real(k, n) & real(k, n).mT,
        "hide filler alone": lambda k, n: real(k, n).expand(-1, 1, n, n).tril(),
        "sentences are the first axis, b": lambda k, n: real(k, n).transpose(0, 2),
        "upside down: True is what is seen": lambda k, n: ~real(k, n),
        "filler stands at the end": lambda k, n: real(k, n).flip(-1),
        "one key too many": lambda k, n: real(k + 1, n),
        "one key too few": lambda k, n: real(k - 1, n),
        "each has its own length": lambda k, n: real(k.amax().expand_as(k), n),
    }
    cases = [(torch.tensor([3, 0, 5]), 5), (torch.tensor([2, 4]), 7)]
    praise = "pad_mask: real tokens answer as if there were no filler"
    compare(narrow if callable(answer) else answer, real, cases, wrong, praise)


def softmax_gradient(answer) -> None:
    """`answer(weights, g)`: the gradient of the scores (t s)."""

    def total(x, axis=-1):
        return x.sum(axis, keepdim=True)

    def right(w, g):
        return w * (g - total(w * g))

    def lined_up(weights, g):
        try:
            return answer(weights, g)
        except RuntimeError as error:
            if "must match" not in str(error):
                raise
            raise Mistake(
                "softmax_gradient: a row's sum is one number: give it keepdim=True"
            ) from error

    wrong = {
        "these are rates: multiply each by its g": lambda w, g: w * (1 - w),
        "a score moves the other weights, too": lambda w, g: w * (1 - w) * g,
        "a score moves its own weight, too": lambda w, g: w * (w * g - total(w * g)),
        "its own rate is w (1 - w)": lambda w, g: w * (g - w * g - total(w * g)),
        "multiply each rate by the g of the weight that it moves": lambda w, g: 0 * w,
        "the sum over the other weights is missing": lambda w, g: w * g,
        "w - g is for the loss -ln w: here any g arrives": lambda w, g: w - g,
        "sum along a row, not over all": lambda w, g: w * (g - (w * g).sum()),
        "the factor w in front is missing": lambda w, g: g - total(w * g),
        "the sign is turned": lambda w, g: w * (total(w * g) - g),
        "the sum is to be taken away": lambda w, g: w * (g + total(w * g)),
        "the sum is to be weighed by w": lambda w, g: w * (g - total(g)),
        "the mean is to be weighed by w": lambda w, g: w * (g - total(g) / g.shape[1]),
        "the sum runs over queries, not a row": lambda w, g: w * (g - total(w * g, 0)),
        "the sum, too, is multiplied by w": lambda w, g: w * g - total(w * g),
        "that is for ln softmax: here is no ln": lambda w, g: g - w * total(g),
        "a sum over the row, no mean": lambda w, g: w * (g - total(w * g) / w.shape[1]),
        "w are weights: no softmax again": lambda w, g: right(softmax(w), g),
    }
    cases = [
        (draw(3, 5).softmax(-1), draw(3, 5, seed=1)),
        (draw(4, 4, seed=2).softmax(-1), draw(4, 4, seed=3)),
        (torch.eye(6)[[2, 5]], draw(2, 6, seed=4)),
    ]
    praise = "softmax_gradient: each score gets its part of the blame"
    compare(lined_up if callable(answer) else answer, right, cases, wrong, praise)
