"""Answers to the exercises, right and wrong ones, a module for each chapter.

A module's RIGHT has pairs (check, answer). Its WRONG has (check, answer, words), where
the words are a regular expression for what the check must say; those of an answer with
a name stand above it, as `@wrong(check, words)`.
"""

from collections.abc import Callable

from . import (
    attention,
    blocks,
    encoder_decoder,
    fine_tuning,
    inside,
    kv_cache,
    many_machines,
    multi_head,
    nothing_crashes,
    one_machine,
    positional_encodings,
    published_weights,
    reward,
    sampling,
    serving,
    since_then,
    tokens,
    training,
)

# In the order of the course.
CHAPTERS = (tokens, attention, multi_head, positional_encodings, blocks, training)
CHAPTERS += (sampling, kv_cache, encoder_decoder, one_machine, serving, many_machines)
CHAPTERS += (published_weights, inside, fine_tuning, reward, nothing_crashes)
CHAPTERS += (since_then,)


def right_ones(check: Callable) -> list[Callable]:
    """Returns the right answers to a check's exercise."""
    return [answer for c in CHAPTERS for of, answer in c.RIGHT if of is check]


def wrong_ones(check: Callable) -> list[tuple[Callable, str]]:
    """Returns the wrong answers, each with what the check must say of it."""
    return [
        (answer, words)
        for c in CHAPTERS
        for of, answer, words in c.WRONG
        if of is check
    ]
