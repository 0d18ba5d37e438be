"""Checks of chapter 09."""

import math
from numbers import Real

import torch
from torch import Tensor

from .compare import Mistake, compare, difference, draw
from .watch import Watch
from .words import describe, number


def block_operations(answer) -> None:
    """`answer(t, d_model, n_heads, n_kv_heads, d_hidden)`: operations, forward."""

    def right(t, d, h, n, f, q=2, k=1, v=1, kv=None, scores=2, gated=3, each=2):
        kv = kv(d, h, n) if kv else d * n // h
        projections = q * d * d + (k + v) * d * kv
        return each * t * (projections + scores * t * d + gated * d * f)

    def by_terms(answer, t, d_model, n_heads, n_kv_heads, d_hidden):
        """How often the answer holds each term, found by changing the sizes."""
        first = d, h, n, f = d_model, n_heads, n_kv_heads, d_hidden
        sizes = [(t, *first), (2 * t, *first), (t, 2 * d, h, n, f)]
        sizes += [(t, d, h, h, f), (t, d, h, 1, f), (t, d, h, n, 2 * f)]
        found = [answer(*each) for each in sizes]
        for one in found:
            single = isinstance(one, Tensor) and one.numel() == 1
            if not (single or isinstance(one, Real)) or not math.isfinite(one):
                raise Mistake(f"give one number, the sum, not {describe(one)}")
        sums = torch.tensor([float(one) for one in found], dtype=torch.float64)
        parts = [t * d * torch.tensor([d, d * n / h, t, f]) for t, d, h, n, f in sizes]
        parts = torch.stack(parts).double()
        often = torch.linalg.lstsq(parts / parts[0], sums).solution / parts[0]
        if not torch.allclose(parts @ often, sums):
            wanted = describe(right(t, *first))
            raise Mistake(f"it gives {number(float(found[0]))}, wanted {wanted}")
        terms = "t d_model²", "t d_model² n_kv_heads / n_heads", "t² d_model"
        often = (often.round(decimals=6) + 0).tolist()  # and -0 is 0
        return dict(zip((*terms, "t d_model d_hidden"), often, strict=True))

    def one_head_s_scores(t, d, h, n, f):
        return right(t, d, h, n, f) - 4 * t * t * (d - d / h)

    def heads_of_one_feature(t, d, h, n, f):
        return right(t, d, h, n, f) - 4 * t * d * (d * n / h - n)

    cases = [(4, 8, 4, 2, 24), (7, 12, 6, 2, 30), (100, 96, 12, 4, 256)]
    praise = "block_operations: projections, scores and mixing, a gated layer"
    compare(answer, right, cases, {
        "multiplications alone: each comes with an addition": {"each": 1},
        "three times too much: the backward pass isn't asked for": {"each": 6},
        "two matrices of feed-forward: a gated one has three": {"gated": 2},
        "the hidden layer has d_hidden features, not 4 d_model":
            lambda t, d, h, n, f: right(t, d, h, n, 4 * d),
        "half of the scores and mixing: two products, and a mask saves nothing":
            {"scores": 1},
        "scores and mixing n_heads times: a head has only d_model / n_heads features":
            lambda t, d, h, n, f: right(t, d, h, n, f, scores=2 * h),
        "scores and mixing of one head: there are n_heads, with d_model features":
            one_head_s_scores,
        "keys have n_kv_heads heads, each with d_model / n_heads features, not one":
            heads_of_one_feature,
        "fewer key heads save no scores: every query still meets every key":
            lambda t, d, h, n, f: right(t, d, h, n, f, scores=2 * n / h),
        "the output projection is missing": {"q": 1},
        "only the keys are shared: the values are, too": {"q": 3, "v": 0},
        "keys and values are as wide as queries here": {"q": 4, "k": 0, "v": 0},
        "the share is upside down: keys have n_kv_heads / n_heads of the width":
            {"kv": lambda d, h, n: d * h // n},
        "d_model is divided by n_kv_heads: a head has d_model / n_heads features":
            {"kv": lambda d, h, n: d // n},
        "n_kv_heads // n_heads is 0: keys cost nothing here":
            lambda t, d, h, n, f: right(t, d, h, n, f, kv=lambda d, h, n: d * (n // h)),
    }, praise, by_terms)  # fmt: skip


def merge_all(answer) -> None:
    """`answer(largest, totals, outs)`: (n t 1), (n t 1), (n t d) -> attention (t d)."""

    def case(n, t, d, hidden=(), more=0.0, dtype=torch.float32):
        scores = 4 * draw(n, t, 5).to(dtype) + more
        values = draw(n, 5, d, seed=1).to(dtype)
        for place in hidden:
            scores[place] = -torch.inf
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - largest.clamp(min=-1e30)).exp()
        return largest, weights.sum(-1, keepdim=True), weights @ values

    def right(x, totals, outs, powers=(1, 1), top=lambda x: x.amax(0).clamp(min=-1e30)):
        shrink = (x - top(x)).exp()
        total = (shrink ** powers[0] * totals).sum(0)
        out = (shrink ** powers[1] * outs).sum(0)
        return torch.where(total == 0, 0, out / total)

    far = torch.tensor([[200.0], [-200]])
    cases = [case(3, 2, 5, more=far), case(3, 2, 4)]
    cases += [
        case(3, 3, 2, [(0, 1)], -200_000, torch.float64)
    ]  # exact by logarithms too
    cases += [case(3, 2, 4, [(0, 0), (1, 0)]), case(4, 1, 2, [0, 1])]
    cases += [case(2, 3, 5, [(0, 0), (1, 0), (1, 2)]), case(1, 6, 3)]
    praise = "merge_all: one largest score for all, then sums"
    compare(answer, right, cases, {
        "a query without any key gives NaN: -inf minus -inf is no number":
            {"top": lambda x: x.amax(0)},
        "the mean of the pieces' answers: a piece with larger scores counts more":
            lambda _, totals, outs: (outs / totals.clamp(min=1e-9)).mean(0),
        "exp overflows: subtract the largest first": {"top": lambda x: 0},
        "one largest for all queries: each query has its own":
            {"top": lambda x: x.max().clamp(min=-1e30)},
        "the largest is held above some number, and all scores below it are lost:"
        " change it only where it is -inf": {"top": lambda x: x.amax(0).clamp(min=0)},
        "a piece without keys has a largest of 0 here: where all others lie far below"
        " it, they vanish":
            lambda x, *more: right(x.masked_fill(x == -torch.inf, 0), *more),
        "only the sums are shrunk: outputs must be, too": {"powers": (1, 0)},
        "only the outputs are shrunk: sums must be, too": {"powers": (0, 1)},
        "the pieces are added as they are: shrink each first": {"powers": (0, 0)},
        "the outputs aren't divided yet: don't multiply them by the sums again":
            lambda x, totals, outs: right(x, totals, outs * totals),
        "a piece with more keys should count more: multiply by its sum":
            lambda x, sums, outs: right(x, 1 + 0 * sums, outs / sums.clamp(min=1)),
        "not divided by the sum of all pieces":
            lambda x, _, outs: ((x - x.amax(0).clamp(min=-1e30)).exp() * outs).sum(0),
    }, praise)  # fmt: skip


def accumulated(answer) -> None:
    """`answer(surprises, real)`: each piece's part of the mean surprise (b t)."""

    def case(*pieces):
        """For each piece the width and the real tokens of each of its texts."""
        real = [torch.arange(t) < torch.tensor(n)[:, None] for t, n in pieces]
        surprises = [draw(*x.shape, seed=len(x)).abs() for x in real]
        surprises[0][0, 0] = 0  # a token that was certain
        return surprises, real

    def backward(answer, surprises, real):
        """The losses, and the gradients that their sum gives the surprises."""
        leaves = [x.clone().requires_grad_() for x in surprises]
        given = [x.clone() for x in leaves]  # that may be written into, unlike leaves
        losses = answer([*given], real)
        if not all(torch.equal(*pair) for pair in zip(given, leaves, strict=True)):
            raise Mistake("the function changes its input: work on a copy")
        if any(x.grad is not None for x in leaves):
            raise Mistake(
                "the losses have gone backward already: give them as they are"
            )
        single = isinstance(losses, Tensor) and losses.dim() == 0
        if single or not isinstance(losses, list | tuple | Tensor):
            said = f"give a list with a loss for each piece, not {describe(losses)}"
            raise Mistake(said)

        for i, loss in enumerate(losses):
            if not isinstance(loss, Tensor | Real):
                raise Mistake(
                    f"loss {i} is {describe(loss)}, wanted a tensor of one number"
                )
        if not all(getattr(loss, "requires_grad", False) for loss in losses):
            raise Mistake("a number can't go backward: sum, even where nothing is real")
        sum(loss.sum() for loss in losses).backward()
        gradients = [0 * x if x.grad is None else x.grad for x in leaves]
        return {"losses": [*losses], "gradients": gradients}

    def each(part):
        """Losses of which each is `part` of a piece and of what is real in all."""
        return lambda surprises, real: [
            part(x, r, torch.cat([r.flatten() for r in real]))
            for x, r in zip(surprises, real, strict=True)
        ]

    right = each(lambda x, r, real: x[r].sum() / real.sum())
    cases = [case((3, [1, 3]), (5, [4, 2, 5]))]
    cases += [case((4, [2, 1, 4]), (7, [6]), (2, [1, 2]), (2, [0]))]
    praise = "accumulated: the real tokens of all pieces first, then a part for each"
    compare(answer, right, cases, {
        "each piece's mean counts alike: divide its sum by all real tokens":
            lambda x, real: [loss / len(x) for loss in own_means(x, real)],
        "these are the pieces' own means: their sum grows with their number":
            (own_means := each(lambda x, r, real: x[r].mean())),
        "a piece of padding alone has no mean: divide its sum":
            each(lambda x, r, real: x[r].mean() * r.sum() / real.sum()),
        "padding is counted: leave out what is not real":
            each(lambda x, r, real: x.sum() / len(real)),
        "padding is in the sums: leave out what is not real":
            each(lambda x, r, real: x.sum() / real.sum()),
        "the sum is divided by all places: divide by the number of real tokens":
            each(lambda x, r, real: x[r].sum() / len(real)),
        "these are sums: divide by the number of real tokens in all pieces":
            each(lambda x, r, real: x[r].sum()),
        "texts are counted: divide by the number of real tokens":
            lambda xs, real: [loss * sum(r.sum() for r in real) / sum(map(len, real))
                              for loss in right(xs, real)],
        "the surprises are cut off, by `detach`, `item` or a new tensor":
            each(lambda x, r, real: x[r].detach().sum() / real.sum() + 0 * x.sum()),
    }, praise, backward)  # fmt: skip


def linear_attention(answer) -> None:
    """`answer(queries, keys, values, directions)`: Performer's guess, (t d)."""

    def right(q, k, v, r, root=0.25, own=0.5, early=False, by=None, e=torch.exp):
        x, y = q / q.shape[-1] ** root, k / k.shape[-1] ** root
        lengths = [z.square().sum(-1, keepdim=True) for z in (x, k if early else y)]
        x, y = e(x @ r.T - lengths[0] / 2), e(y @ r.T - own * lengths[1])
        return x @ (y.T @ v) / (by(x, y) if by else (x @ y.sum(0))[:, None])

    def lengths_added(q, k, v, r):
        return right(q, k, v, r, own=-0.5)  # a query's own length cancels

    def case(t, s, d, m):
        return draw(t, d), draw(s, d, seed=1), draw(s, d, seed=2), draw(m, d, seed=3)

    def watched(answer, q, k, v, r):
        with Watch() as watch:
            found = answer(q, k, v, r)
        made, table = sum(x.numel() for _, x in watch.made), len(q) * len(k)
        if made >= table > 10_000 and not difference(found, right(q, k, v, r)):
            said = f"right, but {made:,} numbers are made where a table has {table:,}"
            raise Mistake(f"{said}: sum over the keys first")
        return found

    cases = [case(3, 5, 4, 7), case(6, 2, 8, 3), case(300, 200, 4, 3)]
    praise = "linear_attention: one sum over the keys serves all queries"
    compare(answer, right, cases, {
        "lengths are taken before dividing by d ** 0.25": {"early": True},
        "the sum over keys is lost in the denominator: multiply a query's features by"
        " the sum of all keys' features":
            {"by": lambda q, k: q.sum(-1, keepdim=True) * k.sum()},
        "this is attention itself: use the features, not the scores":
            lambda q, k, v, r: torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v,
        "attention's root of d is missing: divide both by d ** 0.25": {"root": 0},
        "both are divided by the root of d: together that is d": {"root": 0.5},
        "|q|² / 2 and |k|² / 2 are added: subtract them": lengths_added,
        "divided by the mean over the keys: weights sum to 1 if it is the sum":
            {"by": lambda q, k: (q @ k.mean(0))[:, None]},
        "the exponential is missing: a feature is e to that power": {"e": lambda x: x},
        "the keys' own lengths are missing: subtract |k|² / 2": {"own": 0},
        "all of |k|² is subtracted: half of it": {"own": 1},
        "the answers are not divided: weights sum to 1": {"by": lambda *x: 1},
    }, praise, watched)  # fmt: skip
