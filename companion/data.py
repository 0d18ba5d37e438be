"""Data: tiny Shakespeare, splits, packing with separators, windows and batches."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from .artifacts import SHAKESPEARE, read


def tiny_shakespeare() -> str:
    """1,115,394 characters of nine plays (Karpathy, char-rnn, 2015)."""
    return read(SHAKESPEARE).decode()


def split(tokens: Tensor, fraction: float = 0.9) -> tuple[Tensor, Tensor]:
    """The first `fraction` of the tokens for training, the rest for validation."""
    n = int(fraction * len(tokens))
    if not 0 < n < len(tokens):
        raise ValueError(f"{fraction} of {len(tokens)} tokens leaves one part empty")
    return tokens[:n], tokens[n:]


def pack(documents: Iterable[list[int]], separator: int) -> Tensor:
    """One long row of tokens: the documents, with `separator` after each.

    Without it, a window would run on from one document into the next unmarked.
    """
    parts = [[*document, separator] for document in documents]
    return torch.tensor([token for part in parts for token in part])


def batches(
    tokens: Tensor,
    *,
    batch_size: int,
    context_length: int,
    n_steps: int,
    generator: torch.Generator | None = None,
) -> Iterable[tuple[Tensor, Tensor]]:
    """`n_steps` batches of windows at random places: inputs (b t) and targets (b t).

    A target is the token after its input. Raises ValueError if no window fits.
    """
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
