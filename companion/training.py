"""Training: the loss, the loop, evaluation. Chapter 05."""

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from .inputs import check_between, check_tensor, check_whole
from .models import evaluating
from .optimizers import clip_gradients
from .processes import whole


def next_token_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy in nats of targets (b t) under logits (b t v).

    Targets of -100 are padding and don't count. `smoothing` is the share of a target
    that is spread over all tokens evenly (Szegedy et al. 2015, section 7).
    Raises ValueError where the two disagree in shape or a target is no token.
    """
    check_tensor("floats", "... v", logits=logits)
    check_tensor("integers", "...", targets=targets)
    check_between(0, 1, smoothing=smoothing)
    ours, theirs = tuple(logits.shape[:-1]), tuple(targets.shape)
    if ours != theirs:
        raise ValueError(f"logits are for {ours} tokens, targets are {theirs}")
    logits, targets = logits.flatten(0, -2), targets.flatten().long()
    try:
        return F.cross_entropy(logits, targets, label_smoothing=smoothing)
    except IndexError:
        raise ValueError(
            f"targets run from {targets.min()} to {targets.max()}; they must be 0 to"
            f" {logits.shape[-1] - 1}, or -100 for padding"
        ) from None


def bits_per_character(loss: float, n_tokens: int, n_characters: int) -> float:
    """The unit that compares tokenizers: from nats a token to bits a character."""
    check_between(0, loss=loss)
    check_whole(n_tokens=n_tokens, n_characters=n_characters)
    return loss / math.log(2) * n_tokens / n_characters


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Within, Ctrl-C is only noted, for a loop to end between two steps; twice raises.

    Gives a function that says whether it was pressed. Nothing is changed outside the
    main thread, where no signal arrives, and among several processes, which would not
    all end with the same step.
    """
    pressed = threading.Event()

    def note(*_) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    alone = not (dist.is_available() and dist.is_initialized())
    if not alone or threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def read_finite(step: int, loss: Tensor, norm: Tensor, targets: Tensor) -> float:
    """The loss as a number: the one place in a step that waits for the device.

    Raises ValueError, with step and likely cause, where the loss or the gradients' norm
    is infinite or not a number.
    """
    loss, norm = torch.stack([loss.detach(), whole(norm).to(loss)]).tolist()
    if math.isfinite(loss) and math.isfinite(norm):
        return loss
    cause = "the learning rate is likely too high"
    if not (targets != -100).any():
        cause = "the batch is empty" if not targets.numel() else "all targets are -100"
    what = f"the gradients' norm is {norm}, of a loss of {loss}"
    if not math.isfinite(loss):
        what = f"the loss is {loss}"
    raise ValueError(f"{what} at step {step}: {cause}")


def train(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Tensor, ...]],
    *,
    loss_function: Callable[[Tensor, Tensor], Tensor] = next_token_loss,
    clip: float = 1.0,
    on_step: Callable[[int, float], None] | None = None,
    first: int = 0,
) -> list[float]:
    """One optimizer step a batch of `(*inputs, targets)`; the losses in nats.

    `on_step(step, loss)` is called after each, counted from `first`: the place for a
    schedule, a picture, a progress bar. Ctrl-C ends the loop after the step it falls
    in, and keeps model and losses. Raises ValueError, naming the step and before the
    weights change, where the loss or a gradient is not finite.
    """
    check_between(0, above=True, clip=clip)
    check_whole(0, first=first)
    model.train()
    losses = []
    with interrupts_noted() as interrupted:
        for step, (*inputs, targets) in enumerate(batches, first):
            loss = loss_function(model(*inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            norm = clip_gradients(model.parameters(), clip)
            losses.append(read_finite(step, loss, norm, targets))
            optimizer.step()
            if on_step:
                on_step(step, losses[-1])
            if interrupted():
                print(f"interrupted after step {step}; the model keeps what it learned")
                break
    return losses


@torch.inference_mode()
def evaluate(model: nn.Module, tokens: Tensor, batch_size: int = 64) -> float:
    """Mean loss in nats over all of `tokens`, in consecutive windows of the context.

    Every token but the first is predicted exactly once, wherever the model lies.
    Raises ValueError for fewer than two tokens.
    """
    check_tensor("integers", "t", tokens=tokens)
    check_whole(batch_size=batch_size)
    t, device = model.config.context_length, next(model.parameters(), tokens).device
    if len(tokens) < 2:
        raise ValueError(
            f"{len(tokens)} tokens hold no prediction; at least 2 are needed"
        )
    whole = (len(tokens) - 1) // t * t

    def windows(x: Tensor) -> list[Tensor]:
        return [*x[:whole].view(-1, t).split(batch_size), x[None, whole:]]

    sums = []
    with evaluating(model):
        for pair in zip(windows(tokens[:-1]), windows(tokens[1:]), strict=True):
            inputs, targets = (x.to(device) for x in pair)
            if n := targets.numel():
                sums.append(next_token_loss(model(inputs), targets) * n)
    return torch.stack(sums).sum().item() / (len(tokens) - 1)
