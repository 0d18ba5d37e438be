"""Runs: whole trainings by a recipe, on one device or under torchrun.

`python -m companion train --recipe fast` is the command line. Chapter 05.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from tqdm.auto import tqdm

from .artifacts import CACHE
from .checkpoints import load_checkpoint, save_checkpoint
from .inputs import check_whole
from .models import GPT
from .processes import Process, bfloat16_is_faster, full_tensor, shard
from .recipes import RECIPES, Recipe, shakespeare_tokens
from .training import evaluate, train


class Run:
    """A recipe under way: its model, optimizer, generator, and the steps it has made.

    It goes on from the checkpoint at `path`, where there is one. `sharded`, each
    process keeps a part of every parameter.
    """

    def __init__(self, recipe: Recipe, seed: int, process: Process, path, sharded):
        self.recipe, self.process, self.path = recipe, process, path
        self.step, self.sharded = 0, sharded and process.world > 1
        self.seed, self.facts = seed, recipe.facts(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.model = GPT(recipe.config, self.generator).to(process.device)
        if self.sharded:
            shard(self.model, process.world)
        self.optimizer = recipe.optimizer(self.model)
        self.state = self.model, self.optimizer, self.generator
        if path and path.exists():
            self.step = load_checkpoint(path, *self.state, **self.facts)["step"]
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]  # LambdaLR wants it where a run goes on
        how = {"warmup": recipe.warmup, "total": recipe.n_steps, "floor": recipe.floor}
        factor = partial(recipe.schedule, **how)
        self.schedule = LambdaLR(self.optimizer, factor, self.step - 1)

    def batches(self) -> Iterator[tuple[Tensor, ...]]:
        """The process's part of each batch that is left; seeds each step's dropout."""
        rank, world = self.process.rank, self.process.world
        left = self.recipe.n_steps - self.step
        for pair in self.recipe.batches(left, self.generator):
            torch.manual_seed(hash((self.seed, self.step, rank)))
            yield tuple(x[rank::world].to(self.process.device) for x in pair)

    def save(self) -> None:
        """Write the checkpoint of this very step, where there is a path for it."""
        if self.path:
            save_checkpoint(self.path, *self.state, **self.facts, step=self.step)

    def train(self, every: int, quiet: bool) -> list[float]:
        """Make the steps that are left, with a checkpoint `every` so many; the losses.

        Raises KeyboardInterrupt, after saving, where it was stopped.
        """
        model, process, n_steps = self.model, self.process, self.recipe.n_steps
        if process.world > 1 and not self.sharded:  # it averages gradients
            model = nn.parallel.DistributedDataParallel(model)
        silent = quiet or process.rank > 0 or self.step == n_steps
        often = 0.1 if sys.stderr.isatty() else 30  # seconds between a log's lines
        how = {"initial": self.step, "disable": silent, "mininterval": often}

        def on_step(step: int, loss: float) -> None:
            self.step = step + 1
            self.schedule.step()
            bar.set_postfix_str(f"loss {loss:.3f}", False)
            bar.update()
            if self.step % every == 0:
                self.save()

        # Muon multiplies in bfloat16, too, as its authors do: 2.5 times as fast, and as
        # good. No cache, which would keep the first step's halved weights for all.
        kind, bfloat16 = torch.device(process.device).type, self.recipe.bfloat16
        half = torch.autocast(kind, torch.bfloat16, bfloat16, cache_enabled=False)
        with tqdm(total=n_steps, unit="step", **how) as bar, half:
            how = {"on_step": on_step, "first": self.step}
            losses = train(model, self.optimizer, self.batches(), **how)
        if losses:
            self.save()
        if self.step < n_steps:
            raise KeyboardInterrupt
        return losses

    def full_model(self) -> GPT:
        """The model in one piece, on each process."""
        if not self.sharded:
            return self.model
        full = {name: full_tensor(x) for name, x in self.model.state_dict().items()}
        model = GPT(self.recipe.config).to(self.process.device)
        model.load_state_dict(full)
        return model


def train_recipe(
    recipe: Recipe,
    path: Path | None = None,
    *,
    device: str | None = None,
    bfloat16: bool | None = None,
    every: int = 50,
    seed: int = 0,
    quiet: bool = False,
    sharded: bool = False,
    compiled: bool = False,
) -> tuple[GPT, list[float]]:
    """Train by `recipe`: the model, and the losses since the start or the checkpoint.

    A checkpoint is written to `path` every `every` steps, at the end, and on Ctrl-C;
    where there is one already, the run goes on from it, and ends the same to the bit on
    one machine. `device` is "cuda", "mps" or "cpu", by default the first there is.
    `bfloat16` is by default the recipe's, where the device has it faster. `compiled`:
    the blocks go through `torch.compile`. Under torchrun each process takes its part of
    every batch, and Ctrl-C keeps the last checkpoint; `sharded`, it keeps only its part
    of weights, gradients and optimizer, too. Raises ValueError for a checkpoint of
    another recipe or seed, and KeyboardInterrupt, after saving, on Ctrl-C.
    """
    path, process = Path(path) if path else None, Process.this(device)
    check_whole(batch_size=recipe.batch_size, n_steps=recipe.n_steps)
    if recipe.batch_size % (n := process.world):
        raise ValueError(f"{n} processes can't share a batch of {recipe.batch_size}")
    faster = recipe.bfloat16 and bfloat16_is_faster(process.device)
    recipe = replace(recipe, bfloat16=faster if bfloat16 is None else bfloat16)
    with torch.random.fork_rng(), process.joined():
        run = Run(recipe, seed, process, path, sharded)
        for block in run.model.blocks if compiled else ():
            block.compile()
        losses = run.train(every, quiet)
        return run.full_model(), losses


def main(arguments: list[str] | None = None) -> None:
    """Train a model on tiny Shakespeare, or go on where it was stopped."""
    parser = argparse.ArgumentParser("companion train", description=main.__doc__)
    add, half = parser.add_argument, "half precision, where the processor has it faster"
    add("--recipe", choices=RECIPES, default="fast")
    add("--steps", type=int, help="instead of the recipe's number")
    add("--device", choices=("cuda", "mps", "cpu"))
    add("--bfloat16", action=argparse.BooleanOptionalAction, help=half)
    add("--checkpoint", type=Path, help="by default in the data cache")
    add("--shard", action="store_true", help="under torchrun: parts of all parameters")
    add("--compile", action="store_true", help="faster steps, if there is a compiler")
    given = parser.parse_args(arguments)
    recipe, name = RECIPES[given.recipe], given.recipe
    if given.steps is not None:
        if given.steps < 1:
            parser.error(f"--steps is {given.steps}; it must be 1 or more")
        recipe, name = replace(recipe, n_steps=given.steps), f"{name}-{given.steps}"
    path = given.checkpoint or CACHE / f"{name}.safetensors"
    how = {"device": given.device, "bfloat16": given.bfloat16}
    how |= {"sharded": given.shard, "compiled": given.compile}
    try:
        model, losses = train_recipe(recipe, path, **how)
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"error: {str(error).strip().splitlines()[0]}")
    except KeyboardInterrupt:
        print(f"run it again to go on from {path}")
        sys.exit(130)
    if Process.this().rank == 0:
        if not losses:
            print(f"already at step {recipe.n_steps} of {recipe.n_steps}")
        loss = evaluate(model, shakespeare_tokens()[1])
        print(f"validation loss {loss:.4f}, checkpoint in {path}")
