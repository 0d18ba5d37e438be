"""Training: the loss, the loop, evaluation. Chapter 05."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from .inputs import check_between, check_tensor, check_whole
from .models import evaluating
from .processes import full_tensor, is_joined


def next_token_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy in nats of targets (b t) under logits (b t v).

    Targets of -100 are padding and don't count. `smoothing` is the share of a target
    that is spread over all tokens evenly (Szegedy et al. 2015, section 7).
    """
    check_tensor("integers", "...", targets=targets)
    ours, theirs = tuple(logits.shape[:-1]), tuple(targets.shape)
    if ours != theirs:
        raise ValueError(f"logits are for {ours} tokens, targets are {theirs}")
    logits, targets = logits.flatten(0, -2), targets.flatten().long()
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def bits_per_character(loss: float, n_tokens: int, n_characters: int) -> float:
    """The unit that compares tokenizers: from nats a token to bits a character."""
    check_whole(n_tokens=n_tokens, n_characters=n_characters)
    return loss / math.log(2) * n_tokens / n_characters


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Within, Ctrl-C is only noted, for a loop to end between two steps; twice raises.

    Gives a function that says whether it was pressed. Ctrl-C works as usual in another
    thread, and among several processes, which would not all end with the same step.
    """
    pressed = threading.Event()

    def note(*_) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    if is_joined() or threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def read_finite(step: int, loss: Tensor, norm: Tensor) -> float:
    """The loss as a number: the one place in a step that waits for the device.

    Raises ValueError where the loss or the gradients' norm is infinite or not a number.
    """
    loss, norm = torch.stack([loss.detach(), full_tensor(norm).to(loss)]).tolist()
    if not math.isfinite(loss) or not math.isfinite(norm):
        raise ValueError(
            f"the loss is {loss} and the gradients' norm {norm} at step {step}:"
            " the learning rate is too high, or the batch has no targets"
        )
    return loss


def train(
    model, optimizer, batches, *, loss_function=None, clip=1.0, on_step=None, first=0
) -> list[float]:
    """One optimizer step a batch of `(*inputs, targets)`; the losses in nats.

    `loss_function(logits, targets)` is by default `next_token_loss`. `on_step(step,
    loss)` is called after each, counted from `first`: the place for a schedule, a
    picture, a progress bar. Ctrl-C ends the loop after the step it falls in, and keeps
    model and losses. Raises ValueError, naming the step and before the weights change,
    where the loss or a gradient is not finite.
    """
    check_between(0, above=True, clip=clip)
    losses, loss_function = [], loss_function or next_token_loss
    model.train()
    with interrupts_noted() as interrupted:
        for step, (*inputs, targets) in enumerate(batches, first):
            loss = loss_function(model(*inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
            losses.append(read_finite(step, loss, norm))
            optimizer.step()
            if on_step:
                on_step(step, losses[-1])
            if interrupted():  # tqdm.write keeps clear of a progress bar
                tqdm.write(f"stopped after {step + 1} steps; the model keeps them")
                break
    return losses


@torch.inference_mode()
def evaluate(model: nn.Module, tokens: Tensor, batch_size: int = 64) -> float:
    """Mean loss in nats over all of `tokens`, in consecutive windows of the context.

    Every token but the first is predicted exactly once, wherever the model lies.
    """
    check_tensor("integers", "t", tokens=tokens)
    if (n := len(tokens) - 1) < 1:
        raise ValueError(f"{n + 1} tokens hold no prediction; it takes 2 or more")
    t, device = model.config.context_length, next(model.parameters()).device
    rest = (0, -n % t)  # the last window is filled up, with targets that don't count
    inputs = F.pad(tokens[:-1], rest).view(-1, t).split(batch_size)
    targets = F.pad(tokens[1:], rest, value=-100).view(-1, t).split(batch_size)
    total = torch.zeros((), device=device)
    with evaluating(model):
        for x, y in zip(inputs, targets, strict=True):
            loss = next_token_loss(model(x.to(device)), y.to(device))
            total += loss * (y != -100).sum()
    return total.item() / n
