"""Training: the loss, the loop, evaluation. Chapter 05."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from tqdm import tqdm

from ..inputs import check_between, check_tensor, check_whole
from ..interrupts import deferred_interrupts
from ..model.gpt import evaluating
from .processes import full_tensor, widened

PATIENCE = 30  # seconds after which another Ctrl-C breaks a step off


def next_token_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy in nats of targets (b t) under logits (b t v).

    Targets of -100 are padding and don't count. `smoothing` is the share of a target
    that is spread over all tokens evenly (Szegedy et al. 2015, section 7). Logits of 16
    bits are summed, and their loss is given, in float32.
    """
    check_tensor("integers", "...", targets=targets)
    ours, theirs = tuple(logits.shape[:-1]), tuple(targets.shape)
    if ours != theirs:
        raise ValueError(f"logits are for {ours} tokens, targets are {theirs}")
    logits = widened(logits.flatten(0, -2))
    targets = targets.flatten().long()
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def bits_per_character(loss: float, n_tokens: int, n_characters: int) -> float:
    """The unit that compares tokenizers: from nats a token to bits a character."""
    check_whole(n_tokens=n_tokens, n_characters=n_characters)
    return loss / math.log(2) * n_tokens / n_characters


def check_trainable(model: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Raise ValueError for a model that can't be trained or saved, and say why not.

    Parts that say `trainable = False` hold their weights in a form for decoding alone.
    With an `optimizer`, it must have a parameter to move.
    """
    for name, part in model.named_modules():
        if getattr(part, "trainable", True) is False:
            raise ValueError(
                f"{name or 'the model'} is a {type(part).__name__}, whose weights are"
                " laid out for decoding alone: train and save the model before that"
            )
    if optimizer is None:
        return

    free = {id(p) for p in model.parameters() if p.requires_grad}
    if not free:
        raise ValueError(
            f"all parameters of {type(model).__name__} are frozen: call"
            " `requires_grad_(True)` on those that are to be trained"
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not free & held:
        raise ValueError(
            f"{type(optimizer).__name__} holds no parameter of the model that is to be"
            " trained: make it anew, of `model.parameters()`"
        )


def check_gradients(step: int, optimizer: Optimizer) -> None:
    """Raise ValueError where no parameter that the optimizer moves has a gradient."""
    groups = optimizer.param_groups
    if all(p.grad is None for group in groups for p in group["params"]):
        raise ValueError(
            f"nothing has a gradient at step {step}: the loss must come from what the"
            " model gives, and not within `torch.no_grad()`"
        )


def clip_gradients(model: nn.Module, clip: float) -> Tensor:
    """Shorten the gradients, all as one vector, to the length `clip`; their length.

    Gradients of 16 bits are summed in float32.
    """
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = get_total_norm([widened(p.grad) for p in parameters])
    clip_grads_with_norm_(parameters, clip, norm)
    return norm


def read_finite(step: int, loss: Tensor, norm: Tensor) -> float:
    """The loss as a number: the one place in a step that waits for the device.

    Raises ValueError where the loss or the gradients' norm is infinite or not a number.
    """
    loss = widened(loss.detach())
    loss, norm = torch.stack([loss, full_tensor(norm).to(loss)]).tolist()
    if not math.isfinite(loss) or not math.isfinite(norm):
        raise ValueError(
            f"the loss is {loss} and the gradients' norm {norm} at step {step}:"
            " the learning rate is too high, or the batch has no targets"
        )
    return loss


def training_steps(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Tensor, ...]],
    loss_function: Callable[[Tensor, Tensor], Tensor] = next_token_loss,
    clip: float = 1.0,
    first: int = 0,
) -> Iterator[tuple[int, float]]:
    """Make one optimizer step a batch of `(*inputs, targets)`; its number and loss."""
    model.train()
    for step, (*inputs, targets) in enumerate(batches, first):
        loss = loss_function(model(*inputs), targets)
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
        check_gradients(step, optimizer)
        norm = clip_gradients(model, clip)
        number = read_finite(step, loss, norm)
        optimizer.step()
        yield step, number


def train(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Tensor, ...]],
    *,
    loss_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    clip: float = 1.0,
    on_step: Callable[[int, float], object] | None = None,
    first: int = 0,
) -> list[float]:
    """One optimizer step a batch of `(*inputs, targets)`; the losses in nats.

    `loss_function(logits, targets)` is by default `next_token_loss`. `on_step(step,
    loss)` is called after each, counted from `first`: the place for a schedule, a
    picture, a progress bar. Ctrl-C ends the loop after the step it falls in, and keeps
    model and losses; pressed again half a minute later, it breaks the step off.
    Raises ValueError for a model or an optimizer with nothing to train and, naming the
    step and before the weights change, where the loss or a gradient is not finite.
    """
    check_between(0, above=True, clip=clip)
    check_trainable(model, optimizer)
    loss_function = loss_function or next_token_loss
    losses = []
    with deferred_interrupts(PATIENCE) as interrupted:
        steps = training_steps(model, optimizer, batches, loss_function, clip, first)
        for step, loss in steps:
            losses.append(loss)
            if on_step:
                on_step(step, loss)
            if interrupted():
                say(f"stopped after {step + 1} steps; the model keeps them")
                break
    return losses


def say(words: str) -> None:
    """Print, clear of a progress bar; where nobody can read it any more, go on."""
    if sys.stdout is None:
        return
    try:
        tqdm.write(words)
        sys.stdout.flush()
    except (OSError, ValueError):  # a pipe or a file that is closed
        pass


@torch.inference_mode()
def evaluate(model: nn.Module, tokens: Tensor, batch_size: int = 64) -> float:
    """Mean loss in nats over all of `tokens`, in consecutive windows of the context.

    Every token but the first is predicted exactly once, wherever the model lies.
    `batch_size` windows go through the model at once.
    """
    check_tensor("integers", "t", tokens=tokens)
    check_whole(batch_size=batch_size)
    n = len(tokens) - 1
    if n < 1:
        raise ValueError(f"{n + 1} tokens hold no prediction; it takes 2 or more")

    t = model.config.context_length
    device = next(model.parameters()).device
    rest = (0, -n % t)  # the last window is filled up, with targets that don't count
    inputs = F.pad(tokens[:-1], rest).view(-1, t).split(batch_size)
    targets = F.pad(tokens[1:], rest, value=-100).view(-1, t).split(batch_size)
    sums = []
    with evaluating(model):
        for x, y in zip(inputs, targets, strict=True):
            loss = next_token_loss(model(x.to(device)), y.to(device))
            sums.append(loss * (y != -100).sum())
    return math.fsum(torch.stack(sums).tolist()) / n
