"""Talks to learn answers from: their tokens, and which of them count. Chapter 14."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from .published_tokenizer import PublishedTokenizer

# Tokens, and for each of them the one that is to follow, or -100.
Encoded = tuple[list[int], list[int]]


def encode_talk(
    tokenizer: PublishedTokenizer, messages: Sequence[tuple[str, str]]
) -> Encoded:
    """Returns a talk's tokens, and for each the token that is to follow, or -100.

    What counts is what the model is to say: the text of each turn of the "assistant",
    and the token that ends it. An answer is encoded by itself, as it will be when the
    model gives it. Raises ValueError for a talk in which nothing counts.
    """
    opening = tokenizer.chat([])
    newline = tokenizer.encode("\n")
    tokens = []
    counts = []
    for role, text in messages:
        if role == "assistant":
            answer = [*tokenizer.encode(text), tokenizer.end]
            turn = [*opening, *answer, *newline]
            turn_counts = [False] * len(opening) + [True] * len(answer)
            turn_counts += [False] * len(newline)
        else:
            turn = tokenizer.chat([(role, text)])[: -len(opening)]
            turn_counts = [False] * len(turn)
        tokens += turn
        counts += turn_counts
    if not any(counts):
        raise ValueError("the talk has no answer: no turn is the assistant's")

    # Nothing is learned from what stands behind the last answer's end.
    n_tokens = len(counts) - counts[::-1].index(True)
    targets = []
    for token, does_count in zip(tokens[1:n_tokens], counts[1:n_tokens], strict=True):
        targets.append(token if does_count else -100)
    return tokens[: n_tokens - 1], targets


def batch_of_talks(talks: Sequence[Encoded]) -> tuple[Tensor, Tensor, Tensor]:
    """Puts talks side by side. Returns tokens (b t), places (b n) and targets (b n).

    `places` are those after which something counts, and `targets` what comes there; a
    talk with fewer than the others has targets of -100 at its first place. With
    `model(tokens, last=places)` only they go through the output matrix.
    """
    rows = []
    places = []
    targets = []
    for talk_tokens, talk_targets in talks:
        row = torch.tensor(talk_targets)
        counted = (row != -100).nonzero()[:, 0]
        rows.append(torch.tensor(talk_tokens))
        places.append(counted)
        targets.append(row[counted])
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    return pad(rows), pad(places), pad(targets, padding_value=-100)
