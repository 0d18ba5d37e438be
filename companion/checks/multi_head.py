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
    """`answer(x, n_heads)`: (b t c) to (b h t d)."""

    def as_axes(pattern):
        return lambda x, h: rearrange(x, pattern, h=h)

    compare(
        answer,
        as_axes("b t (h d) -> b h t d"),
        [(draw(2, 5, 12), 3), (draw(3, 7, 8, seed=1), 2), (draw(1, 2, 20, seed=2), 5)],
        {
            "the shape is right, but one head's rows mix positions: cut c into"
            " (h d) first, then move h": (
                lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1)
            ),
            "a head got every n-th channel: its channels lie side by side": as_axes(
                "b t (d h) -> b h t d"
            ),
            "cut, but not moved: this is (b t h d)": as_axes("b t (h d) -> b t h d"),
            "cut the wrong way round and not moved: this is (b t d h)": as_axes(
                "b t (d h) -> b t d h"
            ),
            "positions and features are swapped: this is (b h d t)": as_axes(
                "b t (h d) -> b h d t"
            ),
            "the heads come before the batch: this is (h b t d)": as_axes(
                "b t (h d) -> h b t d"
            ),
            "batch and heads were joined: keep four axes": as_axes(
                "b t (h d) -> (b h) t d"
            ),
            "these are the heads one by one: stack them as axis 1": (
                lambda x, h: x.chunk(h, -1)
            ),
        },
        "split_heads: cut the channels, then move the heads",
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
    """`answer(weights, n)`: each head's mean weight on the token after the copy."""

    def along(weights, shift, first):
        queries = torch.arange(first, weights.shape[1])
        return weights[:, queries, queries - shift].mean(-1)

    def right(w, n):
        return along(w, n - 1, n)

    compare(
        answer,
        right,
        [
            (draw(3, 7, 7).softmax(-1), 4),
            (draw(2, 10, 10, seed=1).softmax(-1), 5),
            (draw(4, 9, 9, seed=2).softmax(-1), 7),
        ],
        {
            "this looks at the earlier copy itself: what comes next is one further": (
                lambda w, n: along(w, n, n)
            ),
            "this is the token before the copy: what comes next is one *after* it": (
                lambda w, n: along(w, n + 1, n + 1)
            ),
            "these are the weights on the previous token": lambda w, n: along(w, 1, n),
            "these are the weights of the tokens on themselves": (
                lambda w, n: along(w, 0, n)
            ),
            "the query before the second round is counted too: begin at n": (
                lambda w, n: along(w, n - 1, n - 1)
            ),
            "the first query of the second round is left out: begin at n": (
                lambda w, n: along(w, n - 1, n + 1)
            ),
            "queries and keys are swapped: weights are (h t s), queries first": (
                lambda w, n: right(w.mT, n)
            ),
            "one number for each head is wanted, not one for all": (
                lambda w, n: right(w, n).mean()
            ),
            "the sum over the queries: take their mean": (
                lambda w, n: right(w, n) * (w.shape[1] - n)
            ),
            "the sum is divided by n - 1: the queries may be fewer or more": (
                lambda w, n: right(w, n) * (w.shape[1] - n) / (n - 1)
            ),
            "the sum is divided by n: the game may have been cut off, with fewer"
            " queries": lambda w, n: right(w, n) * (w.shape[1] - n) / n,
            "the distance to the right token is n - 1, wherever the game was cut off": (
                lambda w, n: along(w, w.shape[1] - n, n)
            ),
            "the first round is as long as n says, not half of the sequence": (
                lambda w, n: right(w, (w.shape[1] + 1) // 2)
            ),
            "the mean over all queries: only those of the second round count": (
                lambda w, n: right(w, n) * (w.shape[1] - n) / w.shape[1]
            ),
        },
        "induction_scores: where the token after the earlier copy stands",
    )
