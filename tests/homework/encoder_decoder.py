"""Wrong answers to the homework of chapter 08."""

import torch


def gaps(tokens, pieces, mark, step=1, mark_in_target=True, a_mark_a_token=False):
    source = []
    target = []
    done = 0
    for begin, end in pieces:
        source += tokens[done:begin]
        source += [mark] * (end - begin if a_mark_a_token else 1)
        target += [mark] if mark_in_target else []
        target += tokens[begin:end]
        done = end
        mark += step
    return source + tokens[done:], target


def one_mark_for_all(tokens, pieces, mark):
    return gaps(tokens, pieces, mark, step=0)


def no_marks_in_the_target(tokens, pieces, mark):
    return gaps(tokens, pieces, mark, mark_in_target=False)


def a_mark_for_each_token(tokens, pieces, mark):
    return gaps(tokens, pieces, mark, a_mark_a_token=True)


def ends_included(tokens, pieces, mark):
    source, _ = gaps(tokens, pieces, mark)
    _, target = gaps(tokens, [(begin, end + 1) for begin, end in pieces], mark)
    return source, target


def places_that_moved(tokens, pieces, mark):
    """Cuts from the front, where each cut moves what comes later."""
    source = list(tokens)
    target = []
    for i, (begin, end) in enumerate(pieces):
        target += [mark + i, *tokens[begin:end]]
        source[begin:end] = [mark + i]
    return source, target


def rest_lost(tokens, pieces, mark):
    source, target = gaps(tokens, pieces, mark)
    return source[: source.index(mark + len(pieces) - 1) + 1], target


def in_place(tokens, pieces, mark):
    source, target = gaps(tokens, pieces, mark)
    tokens[:] = source
    return tokens, target


def causal(lengths, n):
    return torch.ones(len(lengths), 1, n, n).tril() > 0


def prefix(lengths, n):
    return torch.arange(n) < lengths[:, None, None, None]


def prefix_alone(lengths, n):
    return prefix(lengths, n).expand(-1, 1, n, n)


def queries(lengths, n):
    return causal(lengths, n) | prefix(lengths, n).mT


def both_needed(lengths, n):
    return causal(lengths, n) & prefix(lengths, n)


def one_too_long(lengths, n):
    return causal(lengths, n) | prefix(lengths + 1, n)


def longest_for_all(lengths, n):
    return causal(lengths, n) | prefix(lengths.amax().expand_as(lengths), n)


def three_axes(lengths, n):
    return (causal(lengths, n) | prefix(lengths, n))[:, 0]


WRONG = (
    ("gaps", "marks in the source", one_mark_for_all),
    ("gaps", "marks in the target", no_marks_in_the_target),
    ("gaps", "marks in the source", a_mark_for_each_token),
    ("gaps", "beside its marks", ends_included),
    ("gaps", "with the gaps filled", places_that_moved),
    ("gaps", "with the gaps filled", rest_lost),
    ("gaps", "were changed", in_place),
    ("prefix_mask", "110, 110 and 111", causal),
    ("prefix_mask", "110, 110 and 111", prefix_alone),
    ("prefix_mask", "110, 110 and 111", queries),
    ("prefix_mask", "110, 110 and 111", both_needed),
    ("prefix_mask", "110, 110 and 111", one_too_long),
    ("prefix_mask", "a later token sees all up to itself", longest_for_all),
    ("prefix_mask", "the shape is", three_axes),
)
