"""Wrong answers to the homework of chapter 14."""

import torch
from torch.linalg import matrix_rank, svdvals


def added(a_1, b_1, alpha_1, a_2, b_2, alpha_2):
    return a_1 + a_2, b_1 + b_2, alpha_1


def one_alpha(a_1, b_1, alpha_1, a_2, b_2, alpha_2):
    return torch.cat([a_1, a_2]), torch.cat([b_1, b_2], 1), alpha_1


def alphas_added(a_1, b_1, alpha_1, a_2, b_2, alpha_2):
    return torch.cat([a_1, a_2]), torch.cat([b_1, b_2], 1), alpha_1 + alpha_2


def another_order(a_1, b_1, alpha_1, a_2, b_2, alpha_2):
    return torch.cat([a_1, a_2]), torch.cat([b_2, b_1], 1), alpha_1 + alpha_2


def by_columns(a_1, b_1, alpha_1, a_2, b_2, alpha_2):
    rank = max(len(a_1), len(a_2))
    padded = [a.new_zeros(rank, a.shape[1]) for a in (a_1, a_2)]
    return torch.cat(padded, 1), torch.cat([b_1, b_2]), alpha_1


def not_squared(before, after, share):
    values = svdvals(after - before)
    return int((values.cumsum(0) < share * values.sum()).sum()) + 1


def one_less(before, after, share):
    squares = svdvals(after - before).square()
    return int((squares.cumsum(0) < share * squares.sum()).sum())


def of_the_whole(before, after, share):
    squares = svdvals(after).square()
    return int((squares.cumsum(0) < share * squares.sum()).sum()) + 1


def smallest_first(before, after, share):
    squares = svdvals(after - before).square().flip(0)
    return int((squares.cumsum(0) < share * squares.sum()).sum()) + 1


def all_that_changed(before, after, share):
    return int(matrix_rank(after - before, tol=1e-3))


WRONG = (
    ("joined", "(2, 6), wanted (4, 6)", added),
    ("joined", "half of both", one_alpha),
    ("joined", "it adds another matrix", alphas_added),
    ("joined", "it adds another matrix", another_order),
    ("joined", "(2, 12), wanted (4, 6)", by_columns),
    ("rank", "are the values squared?", not_squared),
    ("rank", "share 0.1: 0, wanted 1", one_less),
    ("rank", "squares 9, 4, 1", of_the_whole),
    ("rank", "squares 9, 4, 1", smallest_first),
    ("rank", "share 0.1: 3, wanted 1", all_that_changed),
)
