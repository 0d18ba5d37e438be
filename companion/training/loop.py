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

from ..device import at_least_float32
from ..inputs import check_between, check_in_vocabulary, check_tensor, check_whole
from ..interrupts import deferred_interrupts
from ..model.gpt import LanguageModel, evaluating
from .optimizers import optimized_parameters
from .processes import check_gathered, full_tensor

IGNORED_TARGET = -100  # padding: `F.cross_entropy`'s own default
PATIENCE = 30  # seconds after which another Ctrl-C breaks a step off


def next_token_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Computes the mean cross-entropy in nats of targets (b t) under logits (b t v).

    Targets of -100 are padding and don't count. `smoothing` is the share of a target
    that is spread over all tokens evenly (Szegedy et al. 2015, section 7). Logits of 16
    bits are summed, and their loss is given, in float32. Raises ValueError for logits
    and targets of different numbers of tokens, a share outside 0 to 1, where no target
    counts, and for one that is outside the vocabulary; on an accelerator, where to look
    is to wait, no target that counts gives NaN, and the device itself stops at one
    outside. Chapter 05.
    """
    check_tensor("integers", "...", targets=targets)
    check_between(0, 1, smoothing=smoothing)
    logits_shape = tuple(logits.shape[:-1])
    targets_shape = tuple(targets.shape)
    if logits_shape != targets_shape:
        raise ValueError(
            f"logits are for {logits_shape} tokens, targets are {targets_shape}"
        )

    counts = targets != IGNORED_TARGET
    if targets.is_cpu and not counts.any():
        raise ValueError(
            f"none of the {targets.numel()} targets counts, so their loss has no mean:"
            f" all are {IGNORED_TARGET}, padding; leave such a batch out"
        )

    logits = at_least_float32(logits.flatten(0, -2))
    targets = targets.flatten().long()
    try:
        return F.cross_entropy(logits, targets, label_smoothing=smoothing)
    except IndexError:
        targets = targets[targets != IGNORED_TARGET]
        check_in_vocabulary(logits.shape[-1], targets=targets)
        raise  # something else failed


def bits_per_character(loss: float, n_tokens: int, n_characters: int) -> float:
    """Converts nats a token to bits a character, the unit that compares tokenizers.

    `loss` is the mean over `n_tokens`, which are `n_characters` of text. Chapter 05.
    """
    check_whole(n_tokens=n_tokens, n_characters=n_characters)
    bits_per_token = loss / math.log(2)
    return bits_per_token * n_tokens / n_characters


def check_trainable(model: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Raises ValueError for a model that can't be trained or saved, and says why not.

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

    trainable = {id(p) for p in model.parameters() if p.requires_grad}
    if not trainable:
        raise ValueError(
            f"all parameters of {type(model).__name__} are frozen: call"
            " `requires_grad_(True)` on those that are to be trained"
        )
    optimized = {id(p) for p in optimized_parameters(optimizer)}
    if not trainable & optimized:
        raise ValueError(
            f"{type(optimizer).__name__} holds no parameter of the model that is to be"
            " trained: make it anew, of `model.parameters()`"
        )


def check_gradients(step: int, optimizer: Optimizer) -> None:
    """Raises ValueError where no parameter that the optimizer moves has a gradient."""
    if any(p.grad is not None for p in optimized_parameters(optimizer)):
        return
    raise ValueError(
        f"nothing has a gradient at step {step}: the loss must come from what the"
        " model gives, and not within `torch.no_grad()`"
    )


def clip_gradients(parameters: list[Tensor], clip: float) -> Tensor:
    """Shortens the gradients, all as one vector, to the length `clip` at most.

    Returns their length before. Gradients of 16 bits are summed in float32. Pascanu et
    al. 2013, algorithm 1.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = get_total_norm([at_least_float32(gradient) for gradient in gradients])
    clip_grads_with_norm_(parameters, clip, norm)
    return norm


def read_finite(step: int, loss: Tensor, norm: Tensor) -> float:
    """Returns the loss as a number: the one place in a step that waits for the device.

    Raises ValueError where the loss or the gradients' norm is infinite or not a number.
    """
    # Both are fetched at once, for each fetching waits.
    loss = at_least_float32(loss.detach())
    norm = full_tensor(norm).to(loss)
    loss_in_nats, length = torch.stack([loss, norm]).tolist()
    if not math.isfinite(loss_in_nats) or not math.isfinite(length):
        raise ValueError(
            f"the loss is {loss_in_nats} and the gradients' norm {length} at step"
            f" {step}: the learning rate is too high, or the batch has no targets"
        )
    return loss_in_nats


def parameters_to_clip(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Returns what the optimizer moves, also outside the model, in the model's order.

    Others have gradients, too, which nobody clears. The order is that in which their
    lengths are summed.
    """
    moved = dict.fromkeys(optimized_parameters(optimizer))
    in_order = dict.fromkeys([*model.parameters(), *moved])
    return [p for p in in_order if p in moved]


def training_steps(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Tensor, ...]],
    loss_function: Callable[[Tensor, Tensor], Tensor] = next_token_loss,
    clip: float = 1.0,
    first_step: int = 0,
) -> Iterator[tuple[int, float]]:
    """The loop itself, without what `train` adds: checks, Ctrl-C, the list of losses.

    It makes one optimizer step for each batch `(*inputs, targets)`. Yields each step's
    number, counted from `first_step`, and its loss in nats.
    """
    model.train()
    parameters = parameters_to_clip(model, optimizer)
    for step, (*inputs, targets) in enumerate(batches, first_step):
        logits = model(*inputs)
        try:
            loss = loss_function(logits, targets)
        except ValueError as error:
            raise ValueError(f"at step {step}: {error}") from error

        optimizer.zero_grad()
        if loss.requires_grad:  # else `check_gradients` says in words what is wrong
            loss.backward()
        check_gradients(step, optimizer)
        norm = clip_gradients(parameters, clip)

        # The weights move last: a loss that is not finite leaves them as they are.
        loss_in_nats = read_finite(step, loss, norm)
        optimizer.step()
        yield step, loss_in_nats


def train(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Tensor, ...]],
    *,
    loss_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    clip: float = 1.0,
    on_step: Callable[[int, float], object] | None = None,
    first_step: int = 0,
) -> list[float]:
    """Makes one optimizer step a batch. Returns the losses in nats. Chapter 05.

    batches: tuples `(*inputs, targets)`, as the model and the loss take them.
    loss_function: of logits and targets, by default `next_token_loss`.
    clip: the length to which the gradients, all as one vector, are shortened.
    on_step: is called with (step, loss) after each step, for a picture, or for a
    schedule, which sets the rates of step + 1 there and those of the first step before.
    first_step: the number of the first of them.

    Without a batch, as from an iterator that is spent, there is no step and no loss.
    Ctrl-C ends the loop after the step it falls in, and keeps model and losses; pressed
    again half a minute later, it breaks the step off. Raises ValueError where there is
    nothing to train, for a model of `shard_blocks` unless `clip` is infinite, and where
    the loss or a gradient is not finite: it names the step, and the weights are those
    before it.
    """
    check_between(0, above=True, clip=clip)
    check_trainable(model, optimizer)
    if clip < math.inf:  # each rank would shorten by the length of its own part
        check_gathered(model)
    losses = []
    with deferred_interrupts(PATIENCE) as interrupted:
        steps = training_steps(
            model,
            optimizer,
            batches,
            loss_function=loss_function or next_token_loss,
            clip=clip,
            first_step=first_step,
        )
        for step, loss in steps:
            losses.append(loss)
            if on_step is not None:
                on_step(step, loss)
            if interrupted():
                say(f"stopped after {step + 1} steps; the model keeps them")
                break
    return losses


def say(words: str) -> None:
    """Prints clear of a progress bar.

    Goes on where nobody can read it any more.
    """
    if sys.stdout is None:
        return
    try:
        tqdm.write(words)
        sys.stdout.flush()
    except (OSError, ValueError):  # a pipe or a file that is closed
        pass


@torch.inference_mode()
def evaluate(model: LanguageModel, tokens: Tensor, batch_size: int = 64) -> float:
    """Computes the mean loss in nats over all of `tokens`.

    They are cut into consecutive windows as long as the model's context, of which
    `batch_size` go through the model at once. Every token but the first is predicted
    exactly once, wherever the model lies. Raises ValueError for fewer than 2 tokens,
    and for one outside the vocabulary, also -100, which a loss leaves out. Chapter 05.
    """
    check_tensor("integers", "t", tokens=tokens)
    check_whole(batch_size=batch_size)
    n_predictions = len(tokens) - 1
    if n_predictions < 1:
        raise ValueError(f"{len(tokens)} tokens hold no prediction; it takes 2 or more")

    check_in_vocabulary(model.config.d_vocab, tokens=tokens)

    # Cut into windows. The last is filled up, with targets that don't count.
    context_length = model.config.context_length
    filling = (0, -n_predictions % context_length)
    inputs = F.pad(tokens[:-1], filling).view(-1, context_length)
    targets = F.pad(tokens[1:], filling, value=IGNORED_TARGET).view(-1, context_length)

    device = next(model.parameters()).device
    sums = []
    with evaluating(model):
        input_batches = inputs.split(batch_size)
        target_batches = targets.split(batch_size)
        for x, y in zip(input_batches, target_batches, strict=True):
            loss = next_token_loss(model(x.to(device)), y.to(device))
            sums.append(loss * (y != IGNORED_TARGET).sum())
    return math.fsum(torch.stack(sums).tolist()) / n_predictions
