"""Checks of chapter 02."""

import torch
from einops import rearrange

from .compare import compare, draw


def head_parameters(answer) -> None:
    """`answer(d_model, n_heads, d_head, bias)`: the numbers of one attention layer."""

    def count(made, c, read, bias):
        """Three matrices make `made` numbers of c, one makes c of those it reads."""
        return 3 * made * (c + bias) + c * (read + bias)

    compare(
        answer,
        lambda c, h, d, bias: count(h * d, c, h * d, bias),
        [(12, 3, 4, True), (20, 5, 6, False), (8, 3, 5, True), (64, 1, 16, True)],
        {
            "heads of c / h were counted:"
            " they have d_head features": lambda c, h, d, bias: count(c, c, c, bias),
            "heads as wide as the model were counted: they"
            " have d_head features": lambda c, h, d, bias: count(h * c, c, h * c, bias),
            "the output matrix reads the heads side by side:"
            " n_heads * d_head rows": lambda c, h, d, bias: count(h * d, c, c, bias),
            "the output matrix reads all heads, not one:"
            " n_heads * d_head rows": lambda c, h, d, bias: count(h * d, c, d, bias),
            "a head reads all channels, not only its slice of them": (
                lambda c, h, d, bias: 3 * h * d * (d + bias) + c * (h * d + bias)
            ),
            "these are the numbers of one head:"
            " there are n_heads of them": lambda c, h, d, bias: count(d, c, d, bias),
            "the output matrix is missing:"
            " four matrices, not three": lambda c, h, d, bias: 3 * h * d * (c + bias),
            "the biases are missing": lambda c, h, d, bias: 4 * h * d * c,
            "the output matrix has d_model biases, one"
            " for each of its outputs": lambda c, h, d, bias: 4 * h * d * (c + bias),
            "each head has biases of its own, d_head in each of"
            " its matrices": lambda c, h, d, bias: 4 * h * d * c + bias * (3 * d + c),
            "biases are counted although bias is False": lambda c, h, d, bias: count(
                h * d, c, h * d, 1
            ),
        },
        "head_parameters: what the heads make, and what reads them",
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
            "the heads are added up: put them side by side": lambda x: x.sum(1),
        },
        "merge_heads: what was cut is whole again",
    )


def split_heads(answer) -> None:
    """`answer(heads, w_output)`: (b h t d) and (c c) to each head's share (b h t c)."""

    def shares(pattern):
        return lambda x, w: x @ rearrange(w, pattern, h=x.shape[1])

    def whole(x, w):
        return rearrange(x, "b h t d -> b t (h d)") @ w

    right = shares("(h d) c -> h d c")
    compare(
        answer,
        right,
        [
            (draw(b, h, t, d, seed=b), draw(h * d, h * d, seed=b + 3))
            for b, h, t, d in ((2, 3, 5, 4), (3, 2, 7, 5), (1, 4, 6, 2))
        ],
        {
            "this is the whole output: keep the shares of the heads apart": whole,
            "each head was given the whole output: a head meets only its"
            " own rows": lambda x, w: whole(x, w)[:, None].repeat(1, x.shape[1], 1, 1),
            "the output was divided evenly: a share depends on its head alone": (
                lambda x, w: torch.stack([whole(x, w) / x.shape[1]] * x.shape[1], 1)
            ),
            "the shares add up to the output, they are not averaged": lambda x, w: (
                right(x, w) / x.shape[1]
            ),
            "every head met the rows of the first:"
            " each has d rows of its own": lambda x, w: x @ w[: x.shape[-1]],
            "the rows were dealt out in turn:"
            " the first d belong to the first head": shares("(d h) c -> h d c"),
            "these are columns of the matrix: a feature meets a *row*": shares(
                "c (h d) -> h d c"
            ),
            "head i has the rows from i * d on, not those from i on": (
                lambda x, w: torch.stack(
                    [y @ w[i : i + y.shape[-1]] for i, y in enumerate(x.unbind(1))], 1
                )
            ),
            "these are all heads but the one: its own share is wanted": lambda x, w: (
                whole(x, w)[:, None] - right(x, w)
            ),
        },
        "split_heads: the output is what each head adds, summed up",
    )


def induction_scores(answer) -> None:
    """`answer(weights, tokens)`: each head's mean weight on a token's followers."""

    def after(tokens, shift=1):
        """(t s): whether key s stands `shift` places after a copy of t, at any time."""
        at = torch.arange(len(tokens)) - shift
        there = (at >= 0) & (at < len(tokens))
        return (tokens[at % len(tokens)] == tokens[:, None]) & there

    def followers(tokens):
        return after(tokens).tril()

    def mean(weights, where):
        """The sum over the keys, averaged over the queries that have one."""
        return (weights * where).sum(-1)[:, where.any(-1)].mean(-1)

    def hits(weights, where):
        found = (weights * where).sum(-1)
        return found.sum(-1) / (found > 0).sum(-1)

    def first(where):
        return where & (where.cumsum(-1) == 1)

    cases = [[5, 2, 2, 7, 5, 2], [1, 0, 3, 1, 4, 0, 1, 1, 3], [8, 6, 8, 8, 6, 9, 8, 4]]
    hard = torch.eye(8)[torch.tensor([[0, 0, 0, 0, 3, 0, 0, 0], [0] * 8])]
    compare(
        answer,
        lambda w, x: mean(w, followers(x)),
        [
            (draw(h, len(case), len(case), seed=h).softmax(-1), torch.tensor(case))
            for h, case in zip((3, 2, 4), cases, strict=True)
        ]
        + [(hard, torch.tensor([1, 2] * 4))],
        {
            "this looks at the earlier copy itself:"
            " its follower is one further": lambda w, x: mean(w, after(x, 0).tril(-1)),
            "this is the token before the copy:"
            " a follower comes *after* it": lambda w, x: mean(w, after(x, -1).tril()),
            "nothing stands before the first token: `roll` brings the"
            " last one there": lambda w, x: mean(w, (x.roll(1) == x[:, None]).tril()),
            "copies that come later count too: only earlier ones should": lambda w, x: (
                mean(w, after(x))
            ),
            "copies that come later do not count, only earlier ones": (
                lambda w, x: mean(w, after(x) & ~torch.eye(len(x)).roll(1, 1).bool())
            ),
            "a token is no copy of itself: the"
            " key after it is in the future": lambda w, x: mean(w, after(x).tril(1)),
            "a token may be its own follower, as the second of two equal ones: s may be"
            " t": lambda w, x: mean(w, followers(x).tril(-1)),
            "only the last follower counts: take all of them": lambda w, x: mean(
                w, first(followers(x).flip(-1)).flip(-1)
            ),
            "only the first follower counts: take all of them": lambda w, x: mean(
                w, first(followers(x))
            ),
            "the mean is over the queries that found one:"
            " take all that are asked": lambda w, x: hits(w, followers(x)),
            "the mean is over all queries: leave out those without an earlier copy": (
                lambda w, x: (w * followers(x)).sum(-1).mean(-1)
            ),
            "the sum over the queries: take their mean": (
                lambda w, x: (w * followers(x)).sum((-2, -1))
            ),
            "the mean over all pairs: add up a query's followers, then take the mean"
            " over the queries": lambda w, x: w[:, followers(x)].mean(-1),
            "a query's followers are averaged: add up their weights": (
                lambda w, x: mean(w / followers(x).sum(-1, True), followers(x))
            ),
            "queries and keys are swapped: weights are (h t s), queries first": (
                lambda w, x: mean(w.mT, followers(x))
            ),
            "one number for each head is wanted, not one for all": (
                lambda w, x: mean(w, followers(x)).mean()
            ),
            "these are the weights on the previous token": (
                lambda w, x: w.diagonal(-1, 1, 2).mean(-1)
            ),
        },
        "induction_scores: the tokens that followed the same token before",
    )
