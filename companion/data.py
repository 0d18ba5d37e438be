"""Data: tiny Shakespeare, splits, packing with separators, windows and batches."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from .artifacts import SHAKESPEARE, read
from .inputs import check_between, check_tensor, check_whole


def tiny_shakespeare() -> str:
    """1,115,394 characters of nine plays (Karpathy, char-rnn, 2015)."""
    return read(SHAKESPEARE).decode()


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


def pack(documents: Iterable[list[int]], separator: int) -> Tensor:
    """One long row of tokens: the documents, with `separator` after each.

    Without it, a window would run on from one document into the next unmarked.
    Raises ValueError for what is not a list of tokens.
    """
    tokens = []
    for document in documents:
        if isinstance(document, str | int):
            raise ValueError(f"a document is {document!r}; it must be a list of tokens")
        tokens += [*document, separator]
    for token in tokens:
        check_whole(0, token=token)
    return torch.tensor(tokens, dtype=torch.long)


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
