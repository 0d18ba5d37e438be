"""Runs: whole trainings by a recipe, on one device or under torchrun. Chapter 05.

`make train` goes: train_recipe, Run.finish, Resumable.make_steps, training_steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..artifacts import CACHE
from ..device import bfloat16_is_faster
from ..inputs import check_between, check_name, check_whole
from ..interrupts import deferred_interrupts
from ..model.gpt import GPT
from ..training.checkpoints import CheckpointError
from ..training.loop import PATIENCE, check_trainable
from ..training.processes import Process, full_tensor, shard
from ..training.resumable import Resumable, explain_resuming, half_precision
from .recipes import RECIPES, Recipe, shakespeare_tokens
from .stored_models import read_my_gpt

# Where chapter 05 saves the weights of the reader's own model, by their names.
MY_GPT = CACHE / "my_gpt.safetensors"


class Run(Resumable):
    """A recipe under way: its model, optimizer, generator, and the steps it has made.

    It goes on from the checkpoint at `path`, where there is one. `sharded`, each
    process keeps a part of every parameter. Raises CheckpointError for a checkpoint
    that can't be gone on from, and OSError for a path that can't be read or written.
    """

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        process: Process,
        path: Path | None,
        sharded: bool,
    ):
        self.recipe = recipe
        self.seed = seed
        self.process = process
        self.sharded = sharded and process.world > 1
        settings = {}
        if path:
            settings["recipe"] = recipe.settings(seed)

        generator = torch.Generator().manual_seed(seed)
        model = GPT(recipe.config, generator).to(process.device)
        if self.sharded:
            shard(model, process.world)
        optimizer = recipe.optimizer(model)
        check_trainable(model, optimizer)
        super().__init__(
            model,
            optimizer,
            generator,
            n_steps=recipe.n_steps,
            factor=recipe.factor,
            path=path,
            settings=settings,
            writes=process.rank == 0,
        )
        self.model = model

    def batches(self) -> Iterator[tuple[Tensor, ...]]:
        """Gives this process's part, inputs and targets, of each batch that is left.

        Dropout draws from PyTorch's own generator, and takes no other: it is seeded by
        the step, so that a run that goes on draws the same.
        """
        rank = self.process.rank
        world = self.process.world
        device = self.process.device
        steps_left = self.recipe.n_steps - self.step
        batches = self.recipe.batches(steps_left, self.generator)
        for step, (inputs, targets) in enumerate(batches, self.step):
            torch.manual_seed(seed_of(self.seed, step, rank))
            yield inputs[rank::world].to(device), targets[rank::world].to(device)

    def finish(
        self, every: int, quiet: bool, interrupted: Callable[[], bool]
    ) -> list[float]:
        """Makes the steps that are left on this device, as `make_steps` does."""
        model = self.model
        if self.process.world > 1 and not self.sharded:  # it averages gradients
            model = nn.parallel.DistributedDataParallel(model)
        with half_precision(self.process.device, self.recipe.bfloat16):
            return self.make_steps(
                model,
                self.batches(),
                every=every,
                interrupted=interrupted,
                quiet=quiet or self.process.rank > 0,
            )

    def full_model(self) -> GPT:
        """Returns the model in one piece, on each process."""
        if not self.sharded:
            return self.model

        full = {name: full_tensor(x) for name, x in self.model.state_dict().items()}
        model = GPT(self.recipe.config).to(self.process.device)
        model.load_state_dict(full)
        return model


def seed_of(seed: int, step: int, rank: int) -> int:
    """Returns a seed for one step of one process, another for each seed of a run.

    Of whole numbers, Python's hash is the same in every process. But -1 has that of -2,
    and 2^61 - 1 that of 0; so a seed beyond goes in by its halves.
    """
    seed %= 2**64  # what a generator makes of it
    if seed < 2**61 - 1:
        return hash((seed, step, rank))
    return hash((*divmod(seed, 2**32), step, rank))


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
    """Trains a model by a recipe, or goes on with a training. Chapter 05.

    Returns the model, and the losses in nats since the start or the checkpoint. Gone on
    with, a run ends the same to the bit on one machine. Under torchrun each process
    takes its part of every batch.

    recipe: the model, its batches and its optimizer; `RECIPES` has the course's three.
    path: of the checkpoint. If it is there, the run goes on from it.
    device: "cuda", "mps" or "cpu"; by default the first there is.
    bfloat16: products of 16 bits; by default the recipe's, where they are faster.
    every: how many steps lie between two checkpoints; the first has one, and the last.
    seed: of weights, batches and dropout.
    quiet: without a progress bar.
    sharded: a process keeps its part of weights, gradients and optimizer alone.
    compiled: the blocks go through `torch.compile`.

    Ctrl-C, SIGTERM and SIGHUP let the step end, save, and are raised as
    KeyboardInterrupt, which says how to go on; half a minute later another Ctrl-C
    breaks the step off. Raises ValueError for a recipe that can't be trained or named,
    CheckpointError for a checkpoint that is damaged or of another run, and OSError for
    a path that can't be written: all before the first step.
    """
    # Check what can be checked before any work.
    path = None if path is None else Path(path)
    process = Process.current(device)
    check_whole(batch_size=recipe.batch_size, n_steps=recipe.n_steps, every=every)
    check_whole(-(2**63), seed=seed)  # what a generator takes
    check_between(-(2**63), 2**64 - 1, seed=seed)
    if recipe.batch_size % process.world:
        raise ValueError(
            f"{process.world} processes can't share a batch of {recipe.batch_size}"
        )
    if bfloat16 is None:
        bfloat16 = recipe.bfloat16 and bfloat16_is_faster(process.device)
    recipe = replace(recipe, bfloat16=bfloat16)

    # Train, and leave PyTorch's own random numbers as they were.
    run = None
    with torch.random.fork_rng(), process.joined():
        with deferred_interrupts(PATIENCE) as interrupted:
            try:
                run = Run(recipe, seed, process, path, sharded)
                if compiled:
                    for block in run.model.blocks:
                        block.compile()
                losses = run.finish(every, quiet, interrupted)
                if run.step < recipe.n_steps:
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                advice = explain_resuming(path) if run else "nothing has changed"
                raise KeyboardInterrupt(advice) from None
        return run.full_model(), losses


def trained(name: str = "fast") -> GPT:
    """Returns the model that chapter 05 has trained, or trains it now, a minute long.

    It is the reader's own where the chapter has saved one in `MY_GPT`. Elsewhere, and
    for another `name`, it is the recipe's. A file that can't be used stays as it is,
    and one line says why it can't.

    This also holds for the recipe's checkpoint, if it is damaged or of another recipe,
    and for a cache that can't be written: the model is then trained without it. Raises
    what has nothing to do with the files: a text that is missing, a loss that is no
    number.
    """
    check_name(RECIPES, name=name)
    if name == "fast" and MY_GPT.exists():
        try:
            return read_my_gpt(MY_GPT, RECIPES[name].config)
        except ValueError as reason:
            print(f"{reason}. The recipe's model takes its place.")

    recipe = RECIPES[name]
    path = CACHE / f"{name}.safetensors"
    shakespeare_tokens()  # raises where the text is missing, whatever the checkpoint
    try:
        model, _ = train_recipe(recipe, path, device="cpu")
    except (CheckpointError, OSError) as reason:
        print(f"{reason}. Here a model is trained for this chapter alone.")
        model, _ = train_recipe(recipe, device="cpu")
    return model.eval()
