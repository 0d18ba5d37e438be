"""Checks of chapter 09."""

import functools
import itertools

import torch

from .compare import Mistake, compare, describe, draw


def block_operations(answer) -> None:
    """`answer(t, d_model, n_heads, n_kv_heads, d_hidden)`: operations, forward."""

    def right(t, d, h, n_kv, f, q=2, k=1, v=1, kv=None, scores=2, gated=3, each=2):
        kv = d * n_kv // h if kv is None else kv
        projections = q * d * d + (k + v) * d * kv
        return each * t * (projections + scores * t * d + gated * d * f)

    def other(**changed):
        return functools.partial(right, **changed)

    def keys(width):
        return lambda t, d, h, n, f: right(t, d, h, n, f, kv=width(d, h, n))

    def mixing(share):
        return lambda t, d, h, n, f: right(t, d, h, n, f, scores=2 * share(h, n))

    compare(
        answer,
        right,
        [(4, 8, 2, 1, 24), (7, 12, 6, 2, 30), (100, 96, 12, 4, 256)],
        {
            "multiplications alone: each comes with an addition": other(each=1),
            "two matrices of feed-forward: a gated one has three": other(gated=2),
            "the hidden layer is 4 d_model wide here: it has d_hidden features": (
                lambda t, d, h, n_kv, f: right(t, d, h, n_kv, 4 * d)
            ),
            "scores and mixing are missing: two products of (t, t)": other(scores=0),
            "scores and mixing of one head: all have them": mixing(lambda h, n: 1 / h),
            "this is the first table's block: fewer keys and a gated layer are new": (
                lambda t, d, h, n_kv, f: right(t, d, h, h, 4 * d, gated=2)
            ),
            "a head of keys is d_model wide here: it has"
            " d_model / n_heads features": keys(lambda d, h, n: d * n),
            "the products with weights are those of one token: t go through them": (
                lambda t, *sizes: (
                    right(t, *sizes) - (t - 1) * right(1, *sizes, scores=0)
                )
            ),
            "half of the scores and mixing: these are two products of (t, t), and a"
            " mask saves nothing": other(scores=1),
            "three products of attention are counted: values are not multiplied with"
            " keys": other(scores=3),
            "the output projection is missing": other(q=1),
            "only the keys are shared: values have n_kv_heads, too": other(q=3, v=0),
            "keys and values are as wide as queries here: they"
            " have n_kv_heads heads": other(q=4, k=0, v=0),
            "keys and values have one head here: they have n_kv_heads": keys(
                lambda d, h, n: d // h
            ),
            "the share is upside down: keys have n_kv_heads /"
            " n_heads of the width": keys(lambda d, h, n: d * h // n),
            "d_model is divided by n_kv_heads: a head has"
            " d_model / n_heads features": keys(lambda d, h, n: d // n),
            "forward and backward: only forward is asked for": other(each=6),
            "n_kv_heads // n_heads is 0: keys cost nothing here": other(k=0, v=0),
            "scores once for each head: heads share the width": mixing(lambda h, n: h),
            "the scores shrink with the heads of keys: every"
            " query head has its own": mixing(lambda h, n: n / h),
        },
        "block_operations: projections, scores and mixing, a gated layer",
    )


def accumulated(answer) -> None:
    """`answer(surprises, real)`: each piece's part of the mean surprise (b t)."""

    def case(*pieces, seed):
        """For each piece the width and the real tokens of each of its texts."""
        real = [
            torch.arange(t)[None] < torch.tensor(lengths)[:, None]
            for t, lengths in pieces
        ]
        found = [draw(*x.shape, seed=seed + len(x)).abs() for x in real]
        found[0][0, 0] = 0  # a token that was certain
        return found, real

    def each(part):
        """Losses of which each is `part` of a piece and of what is real in all."""

        def losses(surprises, real):
            pairs = zip(surprises, real, strict=True)
            return [float(part(x, r, real)) for x, r in pairs]

        return losses

    def mean(x, r, real):
        return x[r].sum() / r.sum().clamp(min=1)

    def text_means(x, r, real):
        means = (x * r).sum(1) / r.sum(1).clamp(min=1)
        return means.sum() / sum(map(len, real))

    def running(surprises, real):
        counts = [int(r.sum()) for r in real]
        sums = [x[r].sum() for x, r in zip(surprises, real, strict=True)]
        so_far = itertools.accumulate(counts)
        return [float(x / n) for x, n in zip(sums, so_far, strict=True)]

    def share(x, r, real):
        return x[r].sum() / sum(r.sum() for r in real)

    def check_gradient(loss, x, r):
        """A loss is linear in its surprises: gradient times surprise makes it again."""
        if not getattr(loss, "requires_grad", False) and not r.any():
            raise Mistake(
                "accumulated: a piece of padding alone gives a number, which can't go"
                " backward: a sum over none of its surprises is 0 and can"
            )
        if not getattr(loss, "requires_grad", False):
            raise Mistake("accumulated: nothing can go backward from a number")
        if not r.any():
            return
        (slope,) = torch.autograd.grad(loss, x, retain_graph=True, allow_unused=True)
        if slope is None or abs((slope * x).sum() - loss) > 1e-4:
            raise Mistake(
                "accumulated: going backward, not all surprises are reached: they were"
                " cut off, by `detach`, `item` or a new tensor"
            )

    def backward(surprises, real):
        surprises = [x.clone().requires_grad_() for x in surprises]
        losses = answer(surprises, real)
        if isinstance(losses, torch.Tensor) and losses.dim():
            raise Mistake("accumulated: give a list with a loss for each piece")
        if not isinstance(losses, list | tuple | torch.Tensor | None):
            raise Mistake(
                "accumulated: give a list with a loss for each piece, not "
                + describe(losses)
            )
        if isinstance(losses, list | tuple):
            if len(losses) != len(real):
                raise Mistake(
                    f"accumulated: {len(real)} pieces came and {len(losses)} losses are"
                    " given: each piece has one, a piece of padding alone, too"
                )
            for loss, x, r in zip(losses, surprises, real, strict=False):
                check_gradient(loss, x, r)
            losses = [float(torch.as_tensor(loss).detach()) for loss in losses]
        return losses

    compare(
        backward if callable(answer) else answer,
        each(share),
        [
            case((3, [1, 3]), (5, [4, 2, 5]), seed=0),
            case((4, [2, 1, 4]), (7, [6]), (2, [1, 2]), (2, [0]), seed=9),
        ],
        {
            "each piece's mean counts alike: divide its sum by all real tokens": (
                each(lambda x, r, real: x[r].mean() / len(real))
            ),
            "each piece's mean counts alike here: divide its sum by all real tokens": (
                each(lambda *piece: mean(*piece) / len(piece[2]))
            ),
            "these are the pieces' own means: their sum grows with their number": (
                each(lambda x, r, real: x[r].mean())
            ),
            "a piece of padding alone has no mean: divide its sum": (
                each(lambda x, r, real: share(x, r, real) * r.sum() / r.sum())
            ),
            "a piece is weighed by its texts: weigh it by its real tokens": (
                each(lambda x, r, real: mean(x, r, real) * len(x) / sum(map(len, real)))
            ),
            "each text's mean counts alike: divide its sum by all real tokens": (
                each(text_means)
            ),
            "padding is counted: leave out what is not real": (
                each(lambda x, r, real: x.sum() / sum(r.numel() for r in real))
            ),
            "padding is in the sums: leave out what is not real": (
                each(lambda x, r, real: x.sum() / sum(r.sum() for r in real))
            ),
            "the sum is divided by all places: divide by the number of real tokens": (
                each(lambda x, r, real: x[r].sum() / sum(r.numel() for r in real))
            ),
            "each sum is divided by the tokens so far: divide by those of all pieces": (
                running
            ),
            "these are sums: divide by the number of real tokens in all pieces": (
                each(lambda x, r, real: x[r].sum())
            ),
            "this is one number: give a list with a loss for each piece": (
                lambda *lists: sum(each(share)(*lists))
            ),
        },
        "accumulated: the real tokens of all pieces first, then a part for each",
    )
