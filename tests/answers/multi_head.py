"""Right and wrong answers to the exercises of chapter 02."""

import torch
from einops import rearrange

from companion import checks


def my_count(d_model, n_heads, bias):
    return 4 * d_model * (d_model + bias)


def my_split(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def my_merge(heads):
    return heads.transpose(1, 2).flatten(2)


def my_induction_scores(weights, n):
    queries = torch.arange(n, weights.shape[1])
    return weights[:, queries, queries - n + 1].mean(-1)


RIGHT = [
    (checks.head_parameters, my_count),
    (checks.split_heads, my_split),
    (checks.merge_heads, my_merge),
    (checks.induction_scores, my_induction_scores),
]


def diagonal(offset, reduce=torch.mean):
    """The weights on a diagonal that begins at the second round's first query."""
    return lambda w, n: reduce(w[:, n:].diagonal(offset, 1, 2), -1)


def previous_token(weights, n):
    return weights.diagonal(-1, 1, 2)[:, n - 1 :].mean(-1)


WRONG = [
    (checks.head_parameters, lambda c, h, bias: 3 * c * (c + bias), "four matrices"),
    (checks.head_parameters, lambda c, h, bias: 4 * c * c, "biases are missing"),
    (
        checks.head_parameters,
        lambda c, h, bias: 4 * c * c + 4 * c,
        "although bias is False",
    ),
    (checks.head_parameters, lambda c, h, bias: 4 * h * c * (c + bias), "more heads"),
    (checks.head_parameters, lambda c, h, bias: 4 * (c * c + bias), "each output"),
    (checks.head_parameters, lambda c, h, bias: 4 * (c // h) * c, "expected 624"),
    (checks.split_heads, lambda x, h: x.reshape(2, h, 5, -1), "mix positions"),
    (checks.split_heads, lambda x, h: x.unflatten(-1, (h, -1)), "not moved"),
    (
        checks.split_heads,
        lambda x, h: rearrange(x, "b t (d h) -> b h t d", h=h),
        "every third channel",
    ),
    (checks.split_heads, lambda x, h: my_split(x, h).mT, "swapped"),
    (checks.split_heads, lambda x, h: None, "return"),
    (checks.merge_heads, lambda x: x.permute(0, 2, 3, 1).flatten(2), "interleaved"),
    (checks.merge_heads, lambda x: x.reshape(2, 5, 12), "mixes positions"),
    (checks.merge_heads, lambda x: x.transpose(1, 2), "not joined"),
    (checks.merge_heads, lambda x: x.sum(1), "added up"),
    (checks.induction_scores, diagonal(0), "earlier copy itself"),
    (checks.induction_scores, diagonal(1, torch.sum), "sum over the queries"),
    (checks.induction_scores, previous_token, "previous token"),
    (checks.induction_scores, lambda w, n: my_induction_scores(w.mT, n), "swapped"),
    (
        checks.induction_scores,
        lambda w, n: my_induction_scores(w, n).mean(),
        "for each head",
    ),
    (
        checks.induction_scores,
        lambda w, n: w.diagonal(1 - n, 1, 2).mean(-1),
        "begin at n",
    ),
]
