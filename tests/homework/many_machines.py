"""Wrong answers to the homework of chapter 11."""

import torch


def rest_left_out(n_rows, p, rank):
    size = n_rows // p
    return rank * size, (rank + 1) * size


def rest_for_the_last(n_rows, p, rank):
    size = n_rows // p
    return rank * size, n_rows if rank == p - 1 else (rank + 1) * size


def rounded_up(n_rows, p, rank):
    size = -(-n_rows // p)
    return min(rank * size, n_rows), min((rank + 1) * size, n_rows)


def not_whole(n_rows, p, rank):
    return rank * n_rows / p, (rank + 1) * n_rows / p


def last_row_itself(n_rows, p, rank):
    start, end = rounded_up(n_rows, p, rank)
    return start, end - 1


def turned_round(n_rows, p, rank):
    return rounded_up(n_rows, p, p - 1 - rank)


def nothing_subtracted(logits, first, targets):
    chosen = logits[:, 0] * 0
    return logits.amax(1), logits.exp().sum(1), chosen


def sum_as_logarithm(logits, first, targets):
    largest = logits.amax(1)
    return largest, logits.logsumexp(1) - largest, largest * 0


def places_of_all(logits, first, targets):
    largest = logits.amax(1, keepdim=True)
    place = targets.clamp(max=logits.shape[1] - 1)
    chosen = logits.gather(1, place[:, None])
    return largest[:, 0], (logits - largest).exp().sum(1), chosen[:, 0]


def out_of_bounds(logits, first, targets):
    largest = logits.amax(1, keepdim=True)
    chosen = logits[torch.arange(len(targets)), targets - first]
    return largest[:, 0], (logits - largest).exp().sum(1), chosen


def one_largest(logits, first, targets):
    largest = logits.max()
    n = len(logits)
    return largest.expand(n), (logits - largest).exp().sum(1), torch.zeros(n)


WRONG = (
    ("range", "belong to nobody", rest_left_out),
    ("range", "[2, 2, 2, 4] rows, which is uneven", rest_for_the_last),
    ("range", "[3, 3, 3, 1] rows, which is uneven", rounded_up),
    ("range", "whole numbers", not_whole),
    ("range", "belong to nobody", last_row_itself),
    ("range", "each row once", turned_round),
    ("vocabulary_part", "the largest logit adds 1", nothing_subtracted),
    ("vocabulary_part", "the largest logit adds 1", sum_as_logarithm),
    ("vocabulary_part", "only the rank with the target", places_of_all),
    ("vocabulary_part", "it stops with IndexError", out_of_bounds),
    ("vocabulary_part", "token by token", one_largest),
)
