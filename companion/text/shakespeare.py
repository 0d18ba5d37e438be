"""Data: tiny Shakespeare, splits, windows and batches. Chapters 00 and 05."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..artifacts import SHAKESPEARE, find
from ..inputs import check_between, check_tensor, check_whole


def tiny_shakespeare() -> str:
    """Returns 1,115,394 characters of nine plays, from the cache.

    Raises FileNotFoundError or ValueError where the file is missing or damaged.
    Karpathy, char-rnn, 2015. Chapter 00.
    """
    return find(SHAKESPEARE).read_bytes().decode()


def split(tokens: Tensor, fraction: float = 0.9) -> tuple[Tensor, Tensor]:
    """Returns the first `fraction` of the tokens for training, the rest for validation.

    Tokens (t). Raises ValueError where one part would be empty. Chapter 05.
    """
    check_tensor("integers", "t", tokens=tokens)
    check_between(0, 1, fraction=fraction)
    n_training = int(fraction * len(tokens))
    if not 0 < n_training < len(tokens):
        raise ValueError(f"{fraction} of {len(tokens)} tokens leaves one part empty")
    return tokens[:n_training], tokens[n_training:]


def batches(
    tokens: Tensor,
    *,
    batch_size: int,
    context_length: int,
    n_steps: int,
    generator: torch.Generator | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Draws `n_steps` batches of windows at random places.

    Yields inputs (b t) and targets (b t), where a target is the token after its input.
    Raises ValueError, before the first is drawn, if no window fits. Chapter 05.
    """
    check_tensor("integers", "t", tokens=tokens)
    check_whole(batch_size=batch_size, context_length=context_length)
    check_whole(0, n_steps=n_steps)
    n_places = len(tokens) - context_length
    if n_places < 1:
        raise ValueError(
            f"context_length ({context_length}) needs {context_length + 1} tokens or"
            f" more, there are {len(tokens)}"
        )

    def draw() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(n_steps):
            starts = torch.randint(n_places, (batch_size, 1), generator=generator)
            windows = tokens[starts + torch.arange(context_length + 1)]
            yield windows[:, :-1].clone(), windows[:, 1:].clone()

    return draw()
