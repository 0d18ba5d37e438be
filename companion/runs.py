"""Runs: whole trainings by a recipe, on one device or under torchrun.

`python -m companion train --recipe fast` is the command line. Chapter 05.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn
from tqdm.auto import tqdm

from .artifacts import CACHE
from .checkpoints import load_checkpoint, save_checkpoint, tensors_of
from .data import batches, split, tiny_shakespeare
from .inputs import check_whole, given
from .models import GPT
from .processes import Process, bfloat16_is_faster, shard, whole
from .recipes import RECIPES, Recipe
from .tokenizers import CharTokenizer
from .training import evaluate, train


def shakespeare_tokens() -> tuple[Tensor, Tensor]:
    """Tiny Shakespeare's characters as tokens: training, validation."""
    text = tiny_shakespeare()
    return split(torch.tensor(CharTokenizer(text).encode(text)))


class Run:
    """A recipe under way: its model, optimizer, generator, and the steps it has made.

    With the path of a checkpoint it goes on from there, where there is one; ValueError
    says what differs if that is of another recipe or seed. `sharded`, each process
    keeps a part of every parameter.
    """

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        process: Process,
        path: Path | None,
        sharded: bool = False,
    ):
        self.recipe, self.seed, self.path = recipe, seed, path
        self.process, self.sharded = process, sharded and process.world > 1
        self.generator = torch.Generator().manual_seed(seed)
        self.model = GPT(recipe.config, self.generator).to(process.device)
        if self.sharded:
            shard(self.model, process.world, torch.device(process.device).type)
        self.optimizer, self.step = recipe.optimizer(self.model), 0
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        if path and path.exists():
            what = (self.model, self.optimizer, self.generator)
            step = load_checkpoint(path, *what, **recipe.facts(seed)).get("step")
            if not isinstance(step, int) or not 0 <= step <= recipe.n_steps:
                raise ValueError(
                    f"{path} is at step {step} of {recipe.n_steps}: delete it, and"
                    " train again"
                )
            self.step = step

    def save(self) -> None:
        """Write the checkpoint of this very step, if this is the process that does."""
        what = (self.model, self.optimizer, self.generator)
        facts = self.recipe.facts(self.seed)
        if self.process.rank == 0:
            save_checkpoint(self.path, *what, step=self.step, **facts)
        elif self.sharded:
            tensors_of(*what)  # its parts are asked for

    def wrapped(self) -> nn.Module:
        """The model as it is trained: gradients are averaged over all processes."""
        if self.sharded or self.process.world == 1:
            return self.model
        return nn.parallel.DistributedDataParallel(self.model)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The process's part of each batch that is left; sets the rates before each.

        Dropout's noise is decided by seed, step and process alone.
        """
        recipe, process = self.recipe, self.process
        training, _ = shakespeare_tokens()
        drawn = batches(
            training,
            batch_size=recipe.batch_size,
            context_length=recipe.config.context_length,
            n_steps=recipe.n_steps - self.step,
            generator=self.generator,
        )
        for pair in drawn:
            factor = recipe.schedule(
                self.step,
                warmup=recipe.warmup,
                total=recipe.n_steps,
                floor=recipe.floor,
            )
            for group, peak in zip(
                self.optimizer.param_groups, self.peaks, strict=True
            ):
                group["lr"] = peak * factor
            torch.manual_seed(hash((self.seed, self.step, process.rank)))
            yield tuple(
                x[process.rank :: process.world].to(process.device) for x in pair
            )

    @torch.no_grad()
    def whole_model(self) -> GPT:
        """The model in one piece, on each process."""
        if not self.sharded:
            return self.model
        made = GPT(self.recipe.config).to(self.process.device)
        for ours, part in zip(made.parameters(), self.model.parameters(), strict=True):
            ours.copy_(whole(part))
        return made

    def progress(self, quiet: bool) -> tqdm:
        """A bar over all steps; in a log, a line now and then."""
        return tqdm(
            total=self.recipe.n_steps,
            initial=self.step,
            unit="step",
            disable=quiet or self.step == self.recipe.n_steps,
            mininterval=0.1 if sys.stderr.isatty() else 30,
        )


@contextmanager
def alone_on(path: Path) -> Iterator[None]:
    """Keep others off this checkpoint. Raises ValueError where one has it already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"another run is writing {path}: wait for it, or give another path"
        ) from None
    try:
        yield
    finally:
        lock.release()


def run(
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
    """Train by `recipe`, resuming from the checkpoint at `path` where there is one.

    Every `every` steps, at the end, and on Ctrl-C, a checkpoint is written. Resumed or
    not, the file ends the same to the bit on one machine. Under torchrun each process
    takes its part of every batch, and Ctrl-C keeps the last checkpoint; `sharded`, it
    keeps only its part of weights, gradients and optimizer, too. `device` is
    "cuda", "mps" or "cpu": by default the first there is. A recipe's bfloat16 is used
    where the device has it faster, unless `bfloat16` says what to do. `compiled`, the
    blocks go through `torch.compile`, which wants a C++ compiler. Returns the model
    and the losses since the start or the last checkpoint. Raises ValueError for a
    checkpoint of another recipe or seed or one that another run is writing, and
    KeyboardInterrupt, after saving, when it was stopped.
    """
    if not isinstance(recipe, Recipe):
        raise ValueError(
            f"recipe is {given(recipe)}; it must be one, as RECIPES['fast'] is"
        )
    check_whole(every=every)
    check_whole(0, seed=seed)
    path, process = Path(path) if path else None, Process.this(device)
    if recipe.batch_size % process.world:
        raise ValueError(
            f"batch_size ({recipe.batch_size}) is not divisible by {process.world}"
            " processes"
        )
    if bfloat16 is None:
        bfloat16 = recipe.bfloat16 and bfloat16_is_faster(process.device)
    recipe = replace(recipe, bfloat16=bfloat16)
    with torch.random.fork_rng(), process.joined():
        this = Run(recipe, seed, process, path, sharded)
        for block in this.model.blocks if compiled else ():
            block.compile()
        writes = path and process.rank == 0 and this.step < recipe.n_steps
        with alone_on(path) if writes else nullcontext():
            losses = finish(this, every if path else None, quiet)
        return this.whole_model(), losses


def finish(this: Run, every: int | None, quiet: bool) -> list[float]:
    """Make the steps that are left, with a checkpoint `every` so many; their losses."""
    recipe, process = this.recipe, this.process
    tokens_per_step = recipe.batch_size * recipe.config.context_length

    def on_step(step: int, loss: float) -> None:
        this.step = step + 1
        bar.update()
        speed = (bar.format_dict["rate"] or 0) * tokens_per_step
        bar.set_postfix_str(f"loss {loss:.3f}, {speed:,.0f} tokens/s", refresh=False)
        if every and this.step % every == 0 and this.step < recipe.n_steps:
            this.save()

    # The cache would keep the halved weights of the first step for the whole loop.
    kind, half = torch.device(process.device).type, recipe.bfloat16
    halved = torch.autocast(kind, torch.bfloat16, half, cache_enabled=False)
    how = {"on_step": on_step, "first": this.step}
    bar = this.progress(quiet or process.rank > 0)
    with bar, halved:
        losses = train(this.wrapped(), this.optimizer, this.batches(), **how)
    if every and losses:
        this.save()
    if this.step < recipe.n_steps:
        kept = f"{this.path} holds it; run it again to go on" if every else "not kept"
        raise KeyboardInterrupt(f"stopped after {this.step} steps: {kept}")
    return losses


def main(arguments: list[str] | None = None) -> None:
    """The command line of `python -m companion train`."""
    parser = argparse.ArgumentParser("companion train", description=main.__doc__)
    parser.add_argument("--recipe", choices=RECIPES, default="fast")
    parser.add_argument("--steps", type=int, help="instead of the recipe's number")
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"))
    parser.add_argument(
        "--bfloat16",
        action=argparse.BooleanOptionalAction,
        help="half the precision, where the processor has it faster",
    )
    parser.add_argument("--checkpoint", type=Path, help="by default in the data cache")
    parser.add_argument(
        "--shard", action="store_true", help="under torchrun: parts of all parameters"
    )
    parser.add_argument(
        "--compile", action="store_true", help="faster steps, where there is a compiler"
    )
    given = parser.parse_args(arguments)
    recipe, name = RECIPES[given.recipe], given.recipe
    try:
        if given.steps is not None:
            recipe, name = replace(recipe, n_steps=given.steps), f"{name}-{given.steps}"
        path = given.checkpoint or CACHE / f"{name}.safetensors"
        how = {"device": given.device, "bfloat16": given.bfloat16}
        how |= {"sharded": given.shard, "compiled": given.compile}
        model, _ = run(recipe, path, **how)
    except (ValueError, OSError, RuntimeError, AssertionError) as error:
        sys.exit(f"error: {str(error).strip().splitlines()[0]}")
    except KeyboardInterrupt as stop:
        print(stop if stop.args else "stopped; the last checkpoint stays")
        sys.exit(130)
    if Process.this().rank == 0:
        loss = evaluate(model, shakespeare_tokens()[1])
        print(f"validation loss {loss:.4f}, checkpoint in {path}")
