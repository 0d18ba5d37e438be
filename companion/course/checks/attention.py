"""Checks of chapter 01."""

import math

import torch
from torch import Tensor

from ...model.attention import softmax
from .compare import compare, draw, stops


def one_query(answer) -> None:
    """`answer(query, keys, values)`: lists (d), (s d), (s c), and a list (c) comes."""

    def right(q, k, v, take=lambda z, k, v: z.softmax(0) @ v, score=lambda z, *_: z):
        q, k, v = (torch.tensor(x, dtype=torch.double) for x in (q, k, v))
        return take(score(k @ q / len(q) ** 0.5, *k.shape, v.shape[1]), k, v).tolist()

    small = [2.0, 1.0], [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[10.0], [20.0], [40.0]]
    mixed = [(draw(*n) * 8).round().div(8).tolist() for n in ([8], [5, 8], [5, 3])]
    close = [[0.0, 1.0], [1.0, 2.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    large = [3e3, 1.0], close, mixed[2]  # the two largest scores are close
    apart = [3e3, 1.0], [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], mixed[2][:4]
    below = [-3e3, 1.0], [[2 - x, y] for x, y in close], mixed[2]
    ties = [[2.0, 1.0], [1.0, 0.0], [1.0, 2.0], [3.0, 0.0]]
    lowest = [-(2.0**100), 0.0], ties, draw(4, 3).tolist()
    scores = {  # of scores z and the sizes s, d and c
        "no scale: divide the scores by the root of d": lambda z, s, d, c: z * d**0.5,
        "the scores are divided by d: take its root": lambda z, s, d, c: z / d**0.5,
        "d is not the number of keys": lambda z, s, d, c: z * (d / s) ** 0.5,
        "d is a query's length, not a value's": lambda z, s, d, c: z * (d / c) ** 0.5,
        "cut off they become equal: take the max away": lambda z, *_: z.clamp(-60, 60),
        "take the max away, don't divide by it": lambda z, *_: z / z.amax(),
        "every key counts, not the best alone": lambda z, *_: (z - z.amax()) * 1e9,
    }  # fmt: skip
    takes = {  # of scores z, keys and values
        "inf/inf and 0/0 are NaN: take away the largest score before exp":
            lambda z, k, v: (e := z.exp()) / e.sum() @ v,
        "the scores are to be divided by the root, not the weights":
            lambda z, k, v: (z * (d := k.shape[1] ** 0.5)).softmax(0) / d @ v,
        "these are the weights: average the values": lambda z, k, v: z.softmax(0),
        "the keys are averaged, not the values": lambda z, k, v: z.softmax(0) @ k,
        "softmax is missing": lambda z, k, v: z @ v,
        "raise e to the scores before dividing": lambda z, k, v: z / z.sum() @ v,
        "divide the terms by their sum": lambda z, k, v: (z - z.amax()).exp() @ v,
    }  # fmt: skip
    mistakes = {words: {"take": take} for words, take in takes.items()}
    mistakes |= {words: {"score": score} for words, score in scores.items()}

    def in_python(shift):
        """In plain Python, where numbers overflow; `shift` is taken from the scores."""

        def answer(q, k, v):
            dots = [sum(map(math.prod, zip(q, key, strict=True))) for key in k]
            scores = [dot / len(q) ** 0.5 for dot in dots]
            terms = [math.exp(score - shift(scores, dots)) for score in scores]
            columns = zip(*v, strict=True)
            sums = [sum(map(math.prod, zip(terms, c, strict=True))) for c in columns]
            return [x / sum(terms) for x in sums]

        return answer

    mistakes |= {
        "take away the largest score before exp, not 0": in_python(lambda z, dots: 0),
        "take away the largest of the very numbers that e is raised to":
            in_python(lambda z, dots: max(dots)),
        "what is taken away is never below 0, by `abs` or as it begins there: all"
        " scores may lie below": in_python(lambda z, dots: max(0, *z)),
        "the largest score begins at a number that all may lie below: begin with the"
        " first, or with -inf": in_python(lambda z, dots: max(-9_999, *z)),
        "before exp take away the largest score, and no other number":
            stops(ArithmeticError, "math range", "out of range", "float division by"),
    }  # fmt: skip
    praise = "one_query: compare, scale, share out, average"
    compare(
        answer, right, [small, mixed, large, apart, below, lowest], mistakes, praise
    )


def window_attention(answer) -> None:
    """`answer(queries, keys, values, width)`: each position sees the last `width`."""

    def near(t, n):
        return (t >= 0) & (t < n)

    def shut(z, m, r=1, axis=-1, low=-torch.inf):
        return softmax(z.masked_fill(~m, low), axis)

    def right(q, k, v, n, seen=near, weigh=shut):
        t, root = torch.arange(q.shape[-2]), q.shape[-1] ** 0.5
        return weigh(q @ k.mT / root, seen(t[:, None] - t, n), root) @ v

    def case(size, *shape, d):
        return [size * draw(*shape, n, seed=i) for i, n in enumerate(d)]

    cases = [(*case(2, 2, 3, 6, d=(5, 5, 4)), 3), (*case(2, 1, 1, 4, d=(2, 2, 3)), 9)]
    # Here -10,000 is not low enough, nor -1,000,000.
    cases += [(*case(size, 3, 2, 7, d=(3, 3, 5)), 1) for size in (300, 3000)]
    weights = {  # of scores z, mask m and root of d
        "hidden scores are 0, not -inf": lambda z, m, r: softmax(z * m),
        "leaves weight: use -inf": lambda z, m, r: shut(z, m, low=-100),
        "-10,000 is no low score: use -inf": lambda z, m, r: shut(z, m, low=-1e4),
        "-1,000,000 is no low score: use -inf": lambda z, m, r: shut(z, m, low=-1e6),
        "exp overflows, and inf / inf is NaN: take away the largest score first":
            lambda z, m, r: (w := z.exp() * m) / w.sum(-1, True),
        "True is added as 1, it hides nothing": lambda z, m, r: softmax(z + m),
        "mask before softmax: 0 divided by 0 is NaN":
            lambda z, m, r: (w := softmax(z) * m) / w.sum(-1, True),
        "mask before softmax, not after": lambda z, m, r: softmax(z) * m,
        "the window, too, is cut before softmax, not after it":
            lambda z, m, r: shut(z, torch.ones_like(z).tril() > 0) * m,
        "softmax over queries, not keys": lambda z, m, r: shut(z, m, axis=-2),
        "no scale: divide by root d": lambda z, m, r: shut(z * r, m),
    }  # fmt: skip
    seen = {  # of t, how far back a key lies, and the width n
        "blocks of `width`: each query looks back from its own place":
            lambda t, n: (t >= 0) & (t <= torch.arange(len(t))[:, None] % n),
        "a position sees later ones, too": lambda t, n: t.abs() < n,
        "half of the window lies ahead": lambda t, n: t.abs() <= n // 2,
        "it looks ahead, not back": lambda t, n: near(-t, n),
        "itself is one of the width": lambda t, n: near(t - 1, n),
        "the window is one too wide": lambda t, n: near(t, n + 1),
        "the window is one too narrow": lambda t, n: near(t, n - 1),
        "causal, but without a window": lambda t, n: t >= 0,
        "the future is seen: hide it, too": lambda t, n: t < n,
        "upside down: True is what is seen": lambda t, n: ~near(t, n),
        "nothing is masked": lambda t, n: t == t,
    }  # fmt: skip
    mistakes = {words: {"weigh": weigh} for words, weigh in weights.items()}
    mistakes |= {words: {"seen": where} for words, where in seen.items()}
    praise = "window_attention: itself and those just before"
    compare(answer, right, cases, mistakes, praise)


def pad_mask(answer) -> None:
    """`answer(lengths, n_keys)`: True at real keys, for scores (b h t s)."""

    def right(k, n):
        return torch.arange(n) < k[:, None, None, None]

    def narrow(answer, lengths, n_keys):  # the same for every query: (b 1 1 s)
        mask = answer(lengths, n_keys)
        square = isinstance(mask, Tensor) and mask.shape[1:] == (1, n_keys, n_keys)
        return mask[:, :, :1] if square and (mask == mask[:, :, :1]).all() else mask

    cases = [(torch.tensor([3, 0, 5]), 5), (torch.tensor([2, 4]), 7)]
    compare(answer, right, cases, {
        "queries are hidden, not keys (b h t s)": lambda k, n: right(k, n).mT,
        "hide keys, not queries: a query of filler would have none, which gives NaN":
            lambda k, n: right(k, n) & right(k, n).mT,
        "sentences are the first axis, b": lambda k, n: right(k, n).transpose(0, 2),
        "(b s) meets (b h t s) as (t s): four axes": lambda k, n: right(k, n)[:, 0, 0],
        "upside down: True is what is seen": lambda k, n: ~right(k, n),
        "filler stands at the end": lambda k, n: right(k, n).flip(-1),
        "one key too many": lambda k, n: right(k + 1, n),
        "a length may be 0: then no key is real": lambda k, n: right(k.clamp(min=1), n),
        "(b h s) is no mask for (b h t s): four axes": lambda k, n: right(k, n)[:, 0],
        "each has its own length": lambda k, n: right(k.amax().expand_as(k), n),
    }, "pad_mask: real tokens answer as if there were no filler", narrow)  # fmt: skip


def softmax_gradient(answer) -> None:
    """`answer(weights, g)`: the gradient of the scores (t s)."""

    def total(x, axis=-1):
        return x.sum(axis, keepdim=True)

    cases = [(draw(3, 5).softmax(-1), draw(3, 5, seed=1))]
    cases += [(torch.eye(6)[[2, 5]], draw(2, 6, seed=4))]
    cases += [(draw(4, 4, seed=2).softmax(-1), draw(4, 4, seed=3))]
    compare(answer, lambda w, g: w * (g - total(w * g)), cases, {
        "a score moves the other weights, too": lambda w, g: w * (1 - w) * g,
        "a score moves its own weight, too": lambda w, g: w * (w * g - total(w * g)),
        "the sum over the other weights is missing": lambda w, g: w * g,
        "sum along a row, not over all": lambda w, g: w * (g - (w * g).sum()),
        "the factor w in front is missing": lambda w, g: g - total(w * g),
        "the sign is turned": lambda w, g: w * (total(w * g) - g),
        "the sum is to be taken away": lambda w, g: w * (g + total(w * g)),
        "the sum is to be weighed by w": lambda w, g: w * (g - total(g)),
        "weigh by w, no plain mean": lambda w, g: w * (g - g.mean(-1, True)),
        "this is for log softmax": lambda w, g: g - w * total(g),
        "the sum, too, has the factor w": lambda w, g: w * g - total(w * g),
        "the sum runs over queries, not a row": lambda w, g: w * (g - total(w * g, 0)),
        "a sum over the row, no mean": lambda w, g: w * (g - total(w * g) / w.shape[1]),
        "these are weights already: no softmax":
            lambda w, g: w.softmax(-1) * (g - total(w.softmax(-1) * g)),
        "a row's sum is one number: give it keepdim=True":
            lambda w, g: w * (g - (w * g).sum(-1)),
    }, "softmax_gradient: each score gets its part of the blame")  # fmt: skip
