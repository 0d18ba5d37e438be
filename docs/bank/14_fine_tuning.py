"""Homework of chapter 14: two questions and their checks, the teacher's alone."""

import math

import torch
from torch.testing import assert_close

from companion.course.checks.compare import draw

# %% [markdown]
# **1. Two adapters in one.** A model has learned two tasks apart, each with an adapter
# of its own, and is to do both. Write `my_joined(a_1, b_1, alpha_1, a_2, b_2,
# alpha_2)`. It returns `a` (r i), `b` (o r) and `alpha` of a single adapter that adds
# what both add. Its rank is the sum of both ranks, which may differ, and its factor is
# alpha / rank, as in the chapter. Why isn't it enough to add a_1 and a_2, and b_1 and
# b_2? Several answers are right.


# %%
def my_joined(a_1, b_1, alpha_1, a_2, b_2, alpha_2):
    raise NotImplementedError


# %%
def check_joined(answer):
    for rank_1, alpha_1, rank_2, alpha_2 in ((2, 4, 2, 4), (2, 4, 3, 4), (1, 8, 4, 2)):
        a_1 = draw(rank_1, 6)
        b_1 = draw(5, rank_1, seed=1)
        a_2 = draw(rank_2, 6, seed=2)
        b_2 = draw(5, rank_2, seed=3)
        three = answer(a_1, b_1, alpha_1, a_2, b_2, alpha_2)
        assert len(three) == 3, "three things are wanted: a, b and alpha"
        a, b, alpha = three

        case = f"ranks {rank_1} and {rank_2}, alphas {alpha_1} and {alpha_2}"
        rank = rank_1 + rank_2
        assert a.shape == (rank, 6), (
            f"{case}: a is {tuple(a.shape)}, wanted ({rank}, 6)"
        )
        assert b.shape == (5, rank), (
            f"{case}: b is {tuple(b.shape)}, wanted (5, {rank})"
        )

        both = alpha_1 / rank_1 * b_1 @ a_1 + alpha_2 / rank_2 * b_2 @ a_2
        added = alpha / rank * b @ a
        # A root of a factor may be taken and squared again: some hundred epsilons.
        half = torch.allclose(2 * added, both, atol=1e-4)
        words = (
            "half of both: the rank is larger now" if half else "it adds another matrix"
        )
        assert_close(added, both, msg=f"{case}: {words}", rtol=1e-4, atol=1e-4)


# %% [markdown]
# **2. Which rank?** Somebody trained all weights. How thin an adapter could say the
# same? The best product of rank r keeps the r largest singular values, and the share of
# the change that it keeps is their squares' sum, divided by the sum of all squares.
# Write `my_rank(before, after, share)`: two matrices (o i), and a share between 0 and
# 1. It returns the smallest r that keeps at least this share of what has changed.
# `torch.linalg.svdvals` gives singular values, the largest first. For 3, 2, 1 and 0.9,
# r is 2.


# %%
def my_rank(before, after, share):
    raise NotImplementedError


# %%
def check_rank(answer):
    def matrix(values, rows, columns):
        """A matrix with these singular values."""
        n = len(values)
        left, _ = torch.linalg.qr(draw(rows, n, seed=4))
        right, _ = torch.linalg.qr(draw(columns, n, seed=5))
        return left * torch.tensor(values) @ right.T

    # By hand: squares of 9, 4 and 1, so one keeps 9/14 or 0.64, two 13/14 or 0.93.
    before = 5 * draw(7, 6, seed=6)
    after = before + matrix([3.0, 2.0, 1.0], 7, 6)
    words = "squares 9, 4, 1: 3 is all that has changed: is it the difference's rank?"
    assert answer(before, after, 0.95) <= 3, words
    words = "squares 9, 4, 1, share 0.6: one value is enough: are the values squared?"
    assert answer(before, after, 0.6) != 2, words
    for share, wanted in ((0.1, 1), (0.6, 1), (0.7, 2), (0.9, 2), (0.95, 3)):
        n = answer(before, after, share)
        assert n == wanted, f"squares 9, 4, 1, share {share}: {n}, wanted {wanted}"

    # Equal values: each keeps as much as any other.
    after = before + matrix([2.0] * 5, 7, 6)
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        n = answer(before, after, share)
        wanted = math.ceil(5 * share)
        assert n == wanted, f"five equal values, share {share}: {n}, wanted {wanted}"
    assert isinstance(n, int), "a whole number is wanted"
