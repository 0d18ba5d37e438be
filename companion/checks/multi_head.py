"""Checks of chapter 02."""

import torch
from einops import rearrange

from ..attention import MultiHeadAttention
from .compare import compare, draw


def head_parameters(answer) -> None:
    """`answer(d_model, n_heads, bias)`: the parameters of one attention layer."""

    def right(*sizes):
        return sum(p.numel() for p in MultiHeadAttention(*sizes).parameters())

    compare(
        answer,
        right,
        [(12, 3, True), (20, 5, False), (64, 1, True)],
        {
            "each head has d_model / n_heads columns, not d_model of its own": (
                lambda c, h, bias: (3 * h + 1) * c * (c + bias)
            ),
            "each head has d_model / n_heads columns: more heads, no more numbers": (
                lambda c, h, bias: 4 * h * c * (c + bias)
            ),
            "each head has d_model / n_heads columns, not d_model, and one output"
            " matrix serves them all": (
                lambda c, h, bias: 4 * h * c * c + bias * (3 * h + 1) * c
            ),
            "a head reads all channels, not only its slice: its matrices have d_model"
            " rows": lambda c, h, bias: 4 * (c * c // h + bias * c),
            "these are the numbers of one head: there are n_heads of them": (
                lambda c, h, bias: 4 * (c // h) * (c + bias)
            ),
            "the output matrix is missing: four matrices, not three": (
                lambda c, h, bias: 3 * c * (c + bias)
            ),
            "the biases are missing": lambda c, h, bias: 4 * c * c,
            "the output matrix has a bias, too": (
                lambda c, h, bias: 4 * c * c + 3 * bias * c
            ),
            "each of the four matrices has its biases, not only one": (
                lambda c, h, bias: 4 * c * c + bias * c
            ),
            "there is one bias for each output, d_model of them in each matrix": (
                lambda c, h, bias: 4 * (c * c + bias)
            ),
            "biases are counted although bias is False": (
                lambda c, h, bias: 4 * c * (c + 1)
            ),
            "biases are counted where there are none, and the other way round": (
                lambda c, h, bias: 4 * c * (c + (not bias))
            ),
        },
        "head_parameters: four square matrices, however many heads",
    )


def split_heads(answer) -> None:
    """`answer(x, w_queries, w_keys, w_values, w_output)`: a layer (b t c) to (b t c).

    The matrices are kept by head: three (h c d), then one (h d c).
    """

    def project(x, w):
        return torch.einsum("btc,hcd->bhtd", x, w)

    def add_up(heads, w):
        return torch.einsum("bhtd,hdc->btc", heads, w)

    def layer(weigh, finish=add_up, project=project):
        """A layer whose weights are `weigh(scores, d, c)` of scores not yet scaled."""

        def run(x, *matrices):
            q, k, v = (project(x, w) for w in matrices[:3])
            weights = weigh(q @ k.mT, q.shape[-1], x.shape[-1])
            return finish(weights @ v, matrices[3])

        return run

    def scaled(scores, d, c):
        return (scores / d**0.5).softmax(-1)

    def case(b, t, c, h, d, seed):
        matrices = draw(3, h, c, d, seed=seed) / c**0.5
        return draw(b, t, c, seed=seed + 1), *matrices, draw(h, d, c, seed=seed + 2)

    compare(
        answer,
        layer(scaled),
        [case(2, 5, 12, 3, 4, 0), case(3, 7, 8, 2, 5, 3), case(1, 4, 6, 5, 3, 6)],
        {
            "the scores are not scaled: divide them by the root of d": layer(
                lambda scores, d, c: scores.softmax(-1)
            ),
            "divide by the root of a head's d features, not of all c channels": layer(
                lambda scores, d, c: (scores / c**0.5).softmax(-1)
            ),
            "divide by the root of d, not by d": layer(
                lambda scores, d, c: (scores / d).softmax(-1)
            ),
            "the softmax is missing": layer(lambda scores, d, c: scores / d**0.5),
            "each query shares 100% among its keys: softmax runs over the last axis": (
                layer(lambda scores, d, c: (scores / d**0.5).softmax(-2))
            ),
            "queries and keys are swapped: a row of scores belongs to a query": layer(
                lambda scores, d, c: scaled(scores.mT, d, c)
            ),
            "the scores of all heads were added up: each head has a softmax of its"
            " own": layer(lambda scores, d, c: scaled(scores.sum(1, True), d, c)),
            "the weights of all heads were averaged: each head uses its own": layer(
                lambda scores, d, c: scaled(scores, d, c).mean(1, keepdim=True)
            ),
            "a causal mask was used: here every token may see every other": layer(
                lambda scores, d, c: scaled(
                    scores + torch.full_like(scores, -torch.inf).triu(1), d, c
                )
            ),
            "the shares of the heads are averaged: add them up": layer(
                scaled, lambda heads, w: add_up(heads, w) / len(w)
            ),
            "these are the shares of the heads, (b h t c): add them up": layer(
                scaled, lambda heads, w: heads @ w
            ),
            "the output matrices are missing: this is (b h t d)": layer(
                scaled, lambda heads, w: heads
            ),
            "the heads stand side by side, but the output matrices are missing": layer(
                scaled, lambda heads, w: rearrange(heads, "b h t d -> b t (h d)")
            ),
            "(h c d) was reshaped as if c stood first: move h behind c before you"
            " join it with d": layer(
                scaled,
                project=lambda x, w: rearrange(
                    x @ w.reshape(x.shape[-1], -1), "b t (h d) -> b h t d", h=len(w)
                ),
            ),
        },
        "split_heads: every head reads all channels, and adds its own share",
    )


def merge_heads(answer) -> None:
    """`answer(heads)`: (b h t d) to (b t c)."""

    def as_axes(pattern):
        return lambda x: rearrange(x, pattern)

    compare(
        answer,
        as_axes("b h t d -> b t (h d)"),
        [(draw(2, 3, 5, 4),), (draw(3, 2, 7, 6, seed=1),), (draw(1, 4, 2, 3, seed=2),)],
        {
            "the heads' features are interleaved: all of head 1 comes first": as_axes(
                "b h t d -> b t (d h)"
            ),
            "the shape is right, but a row mixes positions: move h behind t before"
            " you join it with d": lambda x: x.reshape(x.shape[0], x.shape[2], -1),
            "moved, but not joined: this is (b t h d)": as_axes("b h t d -> b t h d"),
            "joined with the positions: put a head's features beside each other's": (
                as_axes("b h t d -> b (h t) d")
            ),
            "positions and channels are swapped: this is (b c t)": as_axes(
                "b h t d -> b (h d) t"
            ),
            "the heads are added up: put them side by side": lambda x: x.sum(1),
            "the heads are averaged: put them side by side": lambda x: x.mean(1),
        },
        "merge_heads: what was cut is whole again",
    )


def induction_scores(answer) -> None:
    """`answer(weights, tokens)`: each head's mean weight on what followed a copy."""

    def after(tokens, shift=1, later=False):
        """(t s): whether key s stands `shift` places after an earlier copy of t."""
        t = torch.arange(len(tokens))
        copy = t - shift
        there = (copy >= 0) & (copy < len(tokens))
        same = tokens[copy.clamp(0, len(tokens) - 1)] == tokens[:, None]
        return same & there & (later | (copy < t[:, None]))

    def mean(weights, where):
        return (weights * where).sum(-1)[:, where.any(-1)].mean(-1)

    def right(weights, tokens):
        return mean(weights, after(tokens))

    def wrapped(tokens):
        earlier = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
        return (tokens.roll(1) == tokens[:, None]) & earlier

    def first(where):
        return where & (where.cumsum(-1) == 1)

    def previous(weights, tokens):
        return weights.diagonal(-1, 1, 2)

    cases = [[5, 2, 2, 7, 5, 2], [1, 0, 3, 1, 4, 0, 1, 1, 3], [8, 6, 8, 8, 6, 9, 8, 4]]
    compare(
        answer,
        right,
        [
            (draw(h, len(case), len(case), seed=h).softmax(-1), torch.tensor(case))
            for h, case in zip((3, 2, 4), cases, strict=True)
        ],
        {
            "this looks at the earlier copy itself: what came next is one further": (
                lambda w, x: mean(w, after(x, 0))
            ),
            "this is the token before the copy: what came next is one *after* it": (
                lambda w, x: mean(w, after(x, -1))
            ),
            "nothing stands before the first token: `roll` brings the last one there": (
                lambda w, x: mean(w, wrapped(x))
            ),
            "copies that come later count too: only earlier ones should": (
                lambda w, x: mean(w, after(x, later=True))
            ),
            "a token may be the right one for itself, as the second of two equal ones:"
            " s may be t": lambda w, x: mean(w, after(x).tril(-1)),
            "only the last of the earlier copies counts: take all of them": (
                lambda w, x: mean(w, first(after(x).flip(-1)).flip(-1))
            ),
            "only the first of the earlier copies counts: take all of them": (
                lambda w, x: mean(w, first(after(x)))
            ),
            "the mean is over all queries: leave out those without an earlier copy": (
                lambda w, x: (w * after(x)).sum(-1).mean(-1)
            ),
            "the mean is over all queries but the first: leave out all those without an"
            " earlier copy": lambda w, x: (w * after(x)).sum(-1)[:, 1:].mean(-1),
            "the sum over the queries: take their mean": (
                lambda w, x: (w * after(x)).sum((-2, -1))
            ),
            "the mean over all pairs: add up a query's right keys, then take the mean"
            " over the queries": lambda w, x: w[:, after(x)].mean(-1),
            "the mean over all pairs, right or not: add up a query's right keys, then"
            " take the mean over the queries": (
                lambda w, x: (w * after(x)).mean((-2, -1))
            ),
            "a query's right keys are averaged: add up their weights": (
                lambda w, x: (
                    ((w * after(x)).sum(-1) / after(x).sum(-1))[:, after(x).any(-1)]
                ).mean(-1)
            ),
            "this takes the largest of a query's right keys: add up all of them": (
                lambda w, x: (w * after(x)).amax(-1)[:, after(x).any(-1)].mean(-1)
            ),
            "queries and keys are swapped: weights are (h t s), queries first": (
                lambda w, x: right(w.mT, x)
            ),
            "one number for each head is wanted, not one for all": (
                lambda w, x: right(w, x).mean()
            ),
            "one number for each head is wanted: take the mean over the queries": (
                lambda w, x: (w * after(x)).sum(-1)
            ),
            "these are the weights on the previous token": (
                lambda w, x: previous(w, x).mean(-1)
            ),
        },
        "induction_scores: the tokens that followed the same token before",
    )
