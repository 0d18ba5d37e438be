"""The checks of chapter 02: right answers pass, wrong ones are named."""

import pytest
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


RIGHT = {
    "head_parameters": my_count,
    "split_heads": my_split,
    "merge_heads": my_merge,
    "induction_scores": my_induction_scores,
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_answer_passes(name, capsys):
    getattr(checks, name)(RIGHT[name])
    assert capsys.readouterr().out.startswith("✓")


def diagonal(offset, reduce=torch.mean):
    """The weights on a diagonal that begins at the second round's first query."""
    return lambda w, n: reduce(w[:, n:].diagonal(offset, 1, 2), -1)


def previous_token(weights, n):
    return weights.diagonal(-1, 1, 2)[:, n - 1 :].mean(-1)


WRONG = [
    ("head_parameters", lambda c, h, bias: 3 * c * (c + bias), "four matrices"),
    ("head_parameters", lambda c, h, bias: 4 * c * c, "biases are missing"),
    ("head_parameters", lambda c, h, bias: 4 * c * c + 4 * c, "although bias is False"),
    ("head_parameters", lambda c, h, bias: 4 * h * c * (c + bias), "more heads"),
    ("head_parameters", lambda c, h, bias: 4 * (c * c + bias), "each output"),
    ("head_parameters", lambda c, h, bias: 4 * (c // h) * c, "expected 624"),
    ("split_heads", lambda x, h: x.reshape(2, h, 5, -1), "mix positions"),
    ("split_heads", lambda x, h: x.unflatten(-1, (h, -1)), "not moved"),
    (
        "split_heads",
        lambda x, h: rearrange(x, "b t (d h) -> b h t d", h=h),
        "every third channel",
    ),
    ("split_heads", lambda x, h: my_split(x, h).mT, "swapped"),
    ("split_heads", lambda x, h: None, "return"),
    ("merge_heads", lambda x: x.permute(0, 2, 3, 1).flatten(2), "interleaved"),
    ("merge_heads", lambda x: x.reshape(2, 5, 12), "mixes positions"),
    ("merge_heads", lambda x: x.transpose(1, 2), "not joined"),
    ("merge_heads", lambda x: x.sum(1), "added up"),
    ("induction_scores", diagonal(0), "earlier copy itself"),
    ("induction_scores", diagonal(1, torch.sum), "sum over the queries"),
    ("induction_scores", previous_token, "previous token"),
    ("induction_scores", lambda w, n: my_induction_scores(w.mT, n), "swapped"),
    (
        "induction_scores",
        lambda w, n: my_induction_scores(w, n).mean(),
        "for each head",
    ),
    ("induction_scores", lambda w, n: w.diagonal(1 - n, 1, 2).mean(-1), "begin at n"),
]


@pytest.mark.parametrize("name, answer, words", WRONG)
def test_a_wrong_answer_is_named(name, answer, words):
    with pytest.raises(checks.Mistake, match=words):
        getattr(checks, name)(answer)
