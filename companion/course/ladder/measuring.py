"""A rung is measured: every model has the same steps, windows and validation text."""

from collections.abc import Callable
from functools import cache

import torch
from IPython.display import DisplayHandle
from torch import Tensor, nn
from torch.optim import Optimizer

from ...decoding.sampling import sample
from ...inputs import check_whole
from ...model.gpt import evaluating
from ...text.shakespeare import batches, tiny_shakespeare
from ...text.tokenizers import BPETokenizer, CharTokenizer
from ...training.loop import next_token_loss, train
from ...training.optimizers import AdamW, scale_rates, warmup_linear
from ..recipes import shakespeare_tokens

N_STEPS = 300
BATCH_SIZE = 24
CONTEXT_LENGTH = 64
LEARNING_RATE = 0.003  # of AdamW

Tokenizer = CharTokenizer | BPETokenizer


@cache
def parts_of(tokenizer: Tokenizer | None) -> tuple[Tensor, Tensor]:
    """Returns the training and the validation text as tokens (t); None: characters."""
    if tokenizer is None:
        return shakespeare_tokens()
    text = tiny_shakespeare()
    n_training = len(shakespeare_tokens()[0])
    texts = text[:n_training], text[n_training:]
    training, validation = (torch.tensor(tokenizer.encode(text)) for text in texts)
    return training, validation


def rung(
    model: nn.Module,
    generator: torch.Generator,
    optimizer: Optimizer | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    n_steps: int = N_STEPS,
) -> float:
    """Trains a model on the ladder's budget. Returns its validation loss.

    `model` maps tokens (b t) to logits (b t v). The loss is in nats a character, over
    the whole validation text. `optimizer` is by default AdamW at 0.003; its rates rise
    for 10 steps, or for all of fewer, and fall evenly to 0. `generator` draws the
    batches. With a `tokenizer` of byte pairs the windows hold 64 of its tokens. One
    line tells how far it is. Ctrl-C is raised, since fewer steps are no rung. The model
    is left in evaluation mode.
    """
    check_whole(n_steps=n_steps)
    training, _ = parts_of(tokenizer)
    optimizer = optimizer or AdamW(model.parameters(), lr=LEARNING_RATE)
    rates = [group["lr"] for group in optimizer.param_groups]

    def set_rates(step: int) -> None:
        factor = warmup_linear(step, warmup=min(10, n_steps), total=n_steps)
        scale_rates(optimizer, rates, factor)

    # Its first words are its last: strict nbval sees the first, and stores the last.
    words = f"{n_steps} steps of {BATCH_SIZE} windows of {CONTEXT_LENGTH} tokens"
    line = DisplayHandle()
    line.display(Line(words))

    def after(step: int, loss: float) -> None:
        n_done = step + 1
        if n_done < n_steps:
            set_rates(n_done)
        if n_done % 20 == 0:
            line.update(Line(f"{words}: {n_done} done, loss {loss:.2f}"))

    set_rates(0)
    drawn = batches(
        training,
        batch_size=BATCH_SIZE,
        context_length=CONTEXT_LENGTH,
        n_steps=n_steps,
        generator=generator,
    )
    try:
        losses = train(model, optimizer, drawn, on_step=after)
    finally:
        scale_rates(optimizer, rates, 1.0)
    if len(losses) < n_steps:  # a loss at a lower price would stand beside the others
        raise KeyboardInterrupt
    line.update(Line(words))
    model.eval()
    return validation_loss(model, tokenizer)


class Line(str):
    """A line of text that a notebook shows without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


@torch.no_grad()
def validation_loss(model: nn.Module, tokenizer: Tokenizer | None = None) -> float:
    """Returns a model's loss on the whole validation text, in nats a character.

    The text is cut into windows of 64 tokens, and every token but the first is
    predicted once. `model` maps tokens (b t) to logits (b t v).
    """
    _, tokens = parts_of(tokenizer)
    n_whole = (len(tokens) - 1) // CONTEXT_LENGTH * CONTEXT_LENGTH
    windows = [*tokens[:n_whole].view(-1, CONTEXT_LENGTH).split(128)]
    targets = [*tokens[1 : n_whole + 1].view(-1, CONTEXT_LENGTH).split(128)]
    if n_whole < len(tokens) - 1:  # what is left is a shorter window
        windows.append(tokens[n_whole:-1][None])
        targets.append(tokens[n_whole + 1 :][None])

    total = 0.0
    with evaluating(model):
        for x, y in zip(windows, targets, strict=True):
            total += next_token_loss(model(x), y).item() * y.numel()

    # The first token is given.
    n_characters = len(shakespeare_tokens()[1])
    n_given = 1 if tokenizer is None else len(tokenizer.decode(tokens[:1].tolist()))
    return total / (n_characters - n_given)


@torch.no_grad()
def write(
    model: Callable[[Tensor], Tensor],
    generator: torch.Generator,
    *,
    tokenizer: Tokenizer | None = None,
    n_characters: int = 60,
) -> str:
    """Returns what a model writes after `ROMEO:`, drawn by its own probabilities.

    `model` maps tokens (b t) to logits (b t v); it sees the last 64.
    """
    tokenizer = tokenizer or CharTokenizer(tiny_shakespeare())
    text = "ROMEO:"
    tokens = tokenizer.encode(text)
    n_in_all = len(text) + n_characters
    while len(text) < n_in_all:
        logits = model(torch.tensor([tokens[-CONTEXT_LENGTH:]]))
        tokens.append(sample(logits[0, -1], generator).item())
        text = tokenizer.decode(tokens)
    return text[:n_in_all]
