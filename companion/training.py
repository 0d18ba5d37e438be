"""Training: the loss, the loop, evaluation, checkpoints, whole runs. Chapter 05.

`python -m companion.training --recipe fast` trains in a terminal, under torchrun too.
"""

import argparse
import gc
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from .checkpoints import load_checkpoint, save_checkpoint
from .data import CACHE, batches, split, tiny_shakespeare
from .models import GPT, GPTConfig
from .optimizers import AdamW, clip_gradients, muon, warmup_cosine, warmup_linear
from .tokenizers import CharTokenizer


def next_token_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy in nats of targets (b t) under logits (b t v).

    Targets of -100 are padding and don't count. `smoothing` is the share of a target
    that is spread over all tokens evenly (Szegedy et al. 2015, section 7).
    Raises ValueError where the two disagree in shape.
    """
    ours, theirs = tuple(logits.shape[:-1]), tuple(targets.shape)
    if ours != theirs:
        raise ValueError(f"logits are for {ours} tokens, targets are {theirs}")
    return F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), label_smoothing=smoothing
    )


def bits_per_character(loss: float, n_tokens: int, n_characters: int) -> float:
    """The unit that compares tokenizers: from nats a token to bits a character."""
    return loss / math.log(2) * n_tokens / n_characters


def check_finite(loss: float, step: int) -> None:
    """Raise ValueError, with step and likely cause, for a NaN or infinite loss."""
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss is {loss} at step {step}: the learning rate is likely too high"
        )


def train(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Tensor, ...]],
    *,
    loss_function: Callable[[Tensor, Tensor], Tensor] = next_token_loss,
    clip: float = 1.0,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """One optimizer step a batch of (*inputs, targets); the losses in nats.

    `on_step(step, loss)` is called after each: the place for a schedule, a picture, a
    progress bar. An interrupt (Ctrl-C) ends the loop and keeps model and losses.
    Raises ValueError, naming the step, when the loss is not finite.
    """
    model.train()
    losses = []
    try:
        for step, (*inputs, targets) in enumerate(batches):
            loss = loss_function(model(*inputs), targets)
            check_finite(loss.item(), step)
            optimizer.zero_grad()
            loss.backward()
            clip_gradients(model.parameters(), clip)
            optimizer.step()
            losses.append(loss.item())
            if on_step:
                on_step(step, losses[-1])
    except KeyboardInterrupt:
        print(f"interrupted after {len(losses)} steps; the model keeps what it learned")
    return losses


@torch.inference_mode()
def evaluate(model: nn.Module, tokens: Tensor, batch_size: int = 64) -> float:
    """Mean loss in nats over all of `tokens`, in consecutive windows of the context.

    Every token but the first is predicted exactly once.
    """
    t = model.config.context_length
    if len(tokens) < 2:
        raise ValueError(
            f"{len(tokens)} tokens hold no prediction; at least 2 are needed"
        )
    was_training = model.training
    model.eval()
    whole = (len(tokens) - 1) // t * t

    def windows(x: Tensor) -> list[Tensor]:
        return [*x[:whole].view(-1, t).split(batch_size), x[None, whole:]]

    total = 0.0
    for inputs, targets in zip(windows(tokens[:-1]), windows(tokens[1:]), strict=True):
        if n := targets.numel():
            total += next_token_loss(model(inputs), targets).item() * n
    model.train(was_training)
    return total / (len(tokens) - 1)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run on tiny Shakespeare's characters: a model, batches, an optimizer."""

    config: GPTConfig
    batch_size: int
    n_steps: int
    warmup: int
    floor: float = 0.0
    schedule: Callable[..., float] = warmup_linear
    optimizer: Callable[[GPT], Optimizer] = muon
    bfloat16: bool = False


def plain_adamw(model: GPT) -> AdamW:
    """nanoGPT's: decay for matrices and embeddings, none for the rest."""
    parameters = [*model.parameters()]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=1e-3, betas=(0.9, 0.99))


SMALL = GPTConfig(
    d_vocab=65, context_length=64, d_model=128, n_heads=4, n_layers=4, bias=False
)
MODERN = {
    "positions": "rotary",
    "norm": "rms",
    "normalize": True,
    "tied": False,
    "activation": "squared_relu",
    "zero_init": True,
}
LARGE = {"context_length": 256, "d_model": 256}
RECIPES = {
    # nanoGPT's recipe for a laptop's CPU
    "plain": Recipe(
        config=replace(SMALL, activation="gelu"),
        batch_size=12,
        n_steps=2000,
        warmup=100,
        floor=0.1,
        schedule=warmup_cosine,
        optimizer=plain_adamw,
    ),
    # chapter 05's
    "fast": Recipe(
        config=replace(SMALL, **MODERN), batch_size=24, n_steps=400, warmup=10
    ),
    # `make bench`: as good as "plain", as soon as may be
    "race": Recipe(
        config=replace(SMALL, **MODERN),
        batch_size=16,
        n_steps=195,
        warmup=1,
        optimizer=partial(muon, momentum=0.85),
    ),
    # `make train`: ten minutes on two cores
    "long": Recipe(
        config=replace(SMALL, **MODERN, **LARGE),
        batch_size=8,
        n_steps=1750,
        warmup=20,
        optimizer=partial(muon, weight_decay=0.1),
        bfloat16=True,
    ),
}


def best_device() -> str:
    """The accelerator, where there is one."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@contextmanager
def parallel(model: nn.Module, device: str, world: int) -> Iterator[nn.Module]:
    """The model for one of `world` processes: gradients are averaged over all."""
    if world == 1:
        yield model
        return
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield nn.parallel.DistributedDataParallel(model)
        gc.collect()  # the wrapper goes before its process group, or the exit can hang
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


def run(
    recipe: Recipe,
    path: Path | None = None,
    *,
    device: str | None = None,
    bfloat16: bool | None = None,
    every: int = 50,
    seed: int = 0,
    quiet: bool = False,
) -> tuple[GPT, list[float]]:
    """Train by `recipe`, resuming from the checkpoint at `path` where there is one.

    Every `every` steps, and at the end, a checkpoint is written. Resumed or not, the
    weights end the same to the bit on one machine. Under torchrun each process takes
    its part of every batch. `device` is "cuda", "mps" or "cpu": by default the first
    there is. Returns the model and the losses since the start or the last checkpoint.
    """
    device = device or best_device()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if recipe.batch_size % world:
        raise ValueError(
            f"batch_size ({recipe.batch_size}) is not divisible by {world} processes"
        )
    text = tiny_shakespeare()
    training, _ = split(torch.tensor(CharTokenizer(text).encode(text)))
    generator = torch.Generator().manual_seed(seed)
    model = GPT(recipe.config, generator).to(device)
    optimizer, begin = recipe.optimizer(model), 0
    peaks = [group["lr"] for group in optimizer.param_groups]
    if path and path.exists():
        begin = load_checkpoint(path, model, optimizer, generator)["step"]
    if begin > recipe.n_steps:
        raise ValueError(
            f"{path} is at step {begin}, past the {recipe.n_steps} asked for"
        )
    bar = tqdm(
        total=recipe.n_steps, initial=begin, unit="step", disable=quiet or rank > 0
    )

    def set_rates(step: int) -> None:
        factor = recipe.schedule(
            step, warmup=recipe.warmup, total=recipe.n_steps, floor=recipe.floor
        )
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * factor

    def on_step(i: int, loss: float) -> None:
        step = begin + i + 1
        bar.update()
        speed = (bar.format_dict["rate"] or 0) * tokens_per_step
        bar.set_postfix_str(f"loss {loss:.3f}, {speed:,.0f} tokens/s", refresh=False)
        set_rates(step)
        if path and rank == 0 and (step % every == 0 or step == recipe.n_steps):
            save_checkpoint(path, model, optimizer, generator, step=step)

    tokens_per_step = recipe.batch_size * recipe.config.context_length
    drawn = batches(
        training,
        batch_size=recipe.batch_size,
        context_length=recipe.config.context_length,
        n_steps=recipe.n_steps - begin,
        generator=generator,
    )
    mine = (tuple(x[rank::world].to(device) for x in pair) for pair in drawn)
    set_rates(begin)
    if bfloat16 is None:
        bfloat16 = recipe.bfloat16
    # The cache would keep the halved weights of the first step for the whole loop.
    half = torch.autocast(device, torch.bfloat16, bfloat16, cache_enabled=False)
    with parallel(model, device, world) as wrapped, bar, half:
        losses = train(wrapped, optimizer, mine, on_step=on_step)
        del wrapped
    return model, losses


def main() -> None:
    """The command line of `python -m companion.training`."""
    parser = argparse.ArgumentParser(description="Train on tiny Shakespeare.")
    parser.add_argument("--recipe", choices=RECIPES, default="fast")
    parser.add_argument("--steps", type=int, help="instead of the recipe's number")
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"))
    parser.add_argument(
        "--bfloat16",
        action=argparse.BooleanOptionalAction,
        help="half the precision, where the processor has it faster",
    )
    parser.add_argument("--checkpoint", type=Path, help="by default in the data cache")
    given = parser.parse_args()
    recipe = RECIPES[given.recipe]
    if given.steps:
        recipe = replace(recipe, n_steps=given.steps)
    path = given.checkpoint or CACHE / f"{given.recipe}.safetensors"
    try:
        model, _ = run(recipe, path, device=given.device, bfloat16=given.bfloat16)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    if int(os.environ.get("RANK", 0)) == 0:
        text = tiny_shakespeare()
        _, validation = split(torch.tensor(CharTokenizer(text).encode(text)))
        loss = evaluate(model.cpu(), validation)
        print(f"validation loss {loss:.4f}, checkpoint in {path}")


if __name__ == "__main__":
    main()
