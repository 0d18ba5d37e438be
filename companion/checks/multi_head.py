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
        [(12, 3, True), (12, 3, False), (64, 1, True)],
        [
            (
                "each head has d_model / n_heads columns, not d_model of its own",
                lambda c, h, bias: (3 * h + 1) * c * (c + bias),
            ),
            (
                "each head has d_model / n_heads columns: more heads, no more numbers",
                lambda c, h, bias: 4 * h * c * (c + bias),
            ),
            (
                "the output matrix is missing: four matrices, not three",
                lambda c, h, bias: 3 * c * (c + bias),
            ),
            ("the biases are missing", lambda c, h, bias: 4 * c * c),
            (
                "there is one bias for each output, d_model of them in each matrix",
                lambda c, h, bias: 4 * (c * c + bias),
            ),
            (
                "biases are counted although bias is False",
                lambda c, h, bias: 4 * c * (c + 1),
            ),
        ],
        "parameters: four square matrices, however many heads",
    )


def split_heads(answer) -> None:
    """`answer(x, n_heads)`: (b t c) to (b h t d)."""
    compare(
        answer,
        lambda x, h: rearrange(x, "b t (h d) -> b h t d", h=h),
        [(draw(2, 5, 12), 3)],
        [
            (
                "the shape is right, but one head's rows mix positions: cut c into"
                " (h d) first, then move h",
                lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1),
            ),
            (
                "every third channel went to a head: its channels lie side by side",
                lambda x, h: rearrange(x, "b t (d h) -> b h t d", h=h),
            ),
            (
                "cut, but not moved: this is (b t h d)",
                lambda x, h: rearrange(x, "b t (h d) -> b t h d", h=h),
            ),
            (
                "positions and features are swapped: this is (b h d t)",
                lambda x, h: rearrange(x, "b t (h d) -> b h d t", h=h),
            ),
        ],
        "split: cut the channels, then move the heads",
    )


def merge_heads(answer) -> None:
    """`answer(heads)`: (b h t d) to (b t c)."""
    compare(
        answer,
        lambda x: rearrange(x, "b h t d -> b t (h d)"),
        [(draw(2, 3, 5, 4),)],
        [
            (
                "the heads' features are interleaved: all of head 1 comes first",
                lambda x: rearrange(x, "b h t d -> b t (d h)"),
            ),
            (
                "the shape is right, but a row mixes positions: move h behind t before"
                " you join it with d",
                lambda x: x.reshape(x.shape[0], x.shape[2], -1),
            ),
            ("moved, but not joined: this is (b t h d)", lambda x: x.transpose(1, 2)),
            ("the heads are added up: put them side by side", lambda x: x.sum(1)),
        ],
        "merge: what was cut is whole again",
    )


def induction_scores(answer) -> None:
    """`answer(weights, n)`: each head's mean weight on the token after the copy."""

    def along(weights, n, shift, first):
        queries = torch.arange(first, weights.shape[1])
        return weights[:, queries, queries - shift].mean(-1)

    compare(
        answer,
        lambda w, n: along(w, n, n - 1, n),
        [(draw(3, 7, 7).softmax(-1), 4), (draw(2, 9, 9, seed=1).softmax(-1), 5)],
        [
            (
                "this looks at the earlier copy itself: what comes next is one further",
                lambda w, n: along(w, n, n, n),
            ),
            (
                "this is the token before the copy: what comes next is one *after* it",
                lambda w, n: along(w, n, n + 1, n + 1),
            ),
            (
                "these are the weights on the previous token",
                lambda w, n: along(w, n, 1, n),
            ),
            (
                "the query before the second round is counted too: begin at n",
                lambda w, n: along(w, n, n - 1, n - 1),
            ),
            (
                "queries and keys are swapped: weights are (h t s), queries first",
                lambda w, n: along(w.mT, n, n - 1, n),
            ),
            (
                "one number for each head is wanted, not one for all",
                lambda w, n: along(w, n, n - 1, n).mean(),
            ),
            (
                "the sum over the queries: take their mean",
                lambda w, n: along(w, n, n - 1, n) * (w.shape[1] - n),
            ),
        ],
        "induction: where the token after the earlier copy stands",
    )
