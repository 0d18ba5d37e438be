"""Data: tiny Shakespeare, splits, windows and batches. Chapters 00 and 05."""

import torch
from torch import Tensor

from ..artifacts import SHAKESPEARE, find
from ..inputs import check_between, check_tensor, check_whole


def tiny_shakespeare() -> str:
    """1,115,394 characters of nine plays (Karpathy, char-rnn, 2015)."""
    return find(SHAKESPEARE).read_bytes().decode()


def split(tokens: Tensor, fraction: float = 0.9) -> tuple[Tensor, Tensor]:
    """The first `fraction` of the tokens for training, the rest for validation.

    Raises ValueError where one part would be empty.
    """
    check_tensor("integers", "t", tokens=tokens)
    check_between(0, 1, fraction=fraction)
    n = int(fraction * len(tokens))
    if not 0 < n < len(tokens):
        raise ValueError(f"{fraction} of {len(tokens)} tokens leaves one part empty")
    return tokens[:n], tokens[n:]


def batches(tokens: Tensor, *, batch_size, context_length, n_steps, generator=None):
    """`n_steps` batches of windows at random places: inputs (b t) and targets (b t).

    A target is the token after its input. Raises ValueError if no window fits.
    """
    check_tensor("integers", "t", tokens=tokens)
    check_whole(batch_size=batch_size, context_length=context_length)
    check_whole(0, n_steps=n_steps)
    n_places = len(tokens) - context_length
    if n_places < 1:
        needed = f"context_length ({context_length}) needs {context_length + 1} tokens"
        raise ValueError(f"{needed} or more, there are {len(tokens)}")

    def draw():
        for _ in range(n_steps):
            starts = torch.randint(n_places, (batch_size, 1), generator=generator)
            windows = tokens[starts + torch.arange(context_length + 1)]
            yield windows[:, :-1].clone(), windows[:, 1:].clone()

    return draw()
