"""Wrong answers to the homework of chapter 12."""

import torch


def block(scale, smallest, numbers, low, high):
    """A block of these numbers; `low` and `high` say whose are in which half."""
    head = torch.stack([scale, smallest]).half().view(torch.uint8)
    numbers = numbers.clamp(0, 15).to(torch.uint8)
    return torch.cat([head, numbers[low] + 16 * numbers[high]])


HALVES = (slice(0, 16), slice(16, 32))


def cut_off(weights):
    smallest = weights.min()
    scale = (weights.max() - smallest) / 15
    return block(scale, smallest, ((weights - smallest) / scale).floor(), *HALVES)


def sixteen_steps(weights):
    smallest = weights.min()
    scale = (weights.max() - smallest) / 16
    return block(scale, smallest, ((weights - smallest) / scale).round(), *HALVES)


def neighbours(weights):
    smallest = weights.min()
    scale = (weights.max() - smallest) / 15
    numbers = ((weights - smallest) / scale).round()
    return block(scale, smallest, numbers, slice(0, 32, 2), slice(1, 32, 2))


def halves_exchanged(weights):
    smallest = weights.min()
    scale = (weights.max() - smallest) / 15
    numbers = ((weights - smallest) / scale).round()
    return block(scale, smallest, numbers, *reversed(HALVES))


def around_zero(weights):
    scale = weights.abs().max() / 7
    return block(scale, -8 * scale, (weights / scale).round() + 8, *HALVES)


def whole_numbers(weights):
    return weights.round().to(torch.uint8)


def parts(d_model, d_kv, d_hidden):
    """Numbers of attention, of a matrix of the feed-forward layer, of a norm."""
    return 2 * d_model * (d_model + d_kv), d_model * d_hidden, d_model


def as_many_heads(d_vocab, d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied):
    attention, matrix, norm = parts(d_model, d_model, d_hidden)
    n = d_vocab * d_model * (2 - tied)
    return n + n_layers * (attention + 3 * matrix + 2 * norm) + norm


def two_matrices(d_vocab, d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied):
    d_kv = d_model // n_heads * n_kv_heads
    attention, matrix, norm = parts(d_model, d_kv, d_hidden)
    n = d_vocab * d_model * (2 - tied)
    return n + n_layers * (attention + 2 * matrix + 2 * norm) + norm


def last_norm_missing(d_vocab, d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied):
    d_kv = d_model // n_heads * n_kv_heads
    attention, matrix, norm = parts(d_model, d_kv, d_hidden)
    n = d_vocab * d_model * (2 - tied)
    return n + n_layers * (attention + 3 * matrix + 2 * norm)


def tied_counts_twice(d_vocab, d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied):
    n = last_norm_missing(
        d_vocab, d_model, n_heads, n_kv_heads, n_layers, d_hidden, tied=False
    )
    return n + d_model


WRONG = (
    ("block", "rounded? in its place?", cut_off),
    ("block", "there are 15 steps", sixteen_steps),
    ("block", "rounded? in its place?", neighbours),
    ("block", "rounded? in its place?", halves_exchanged),
    ("block", "the smallest value is", around_zero),
    ("block", "20 bytes are wanted", whole_numbers),
    ("count", "n_kv_heads heads alone", as_many_heads),
    ("count", "has three matrices", two_matrices),
    ("count", "one behind the last", last_norm_missing),
    ("count", "the tied matrix counts once", tied_counts_twice),
)
