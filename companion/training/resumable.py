"""Runs that go on: steps, learning rates, checkpoints, and words for who stops them.

Chapter 05.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm.auto import tqdm

from ..files import check_writable
from .checkpoints import (
    CheckpointError,
    check_same,
    load_checkpoint,
    read_checkpoint,
    save_checkpoint,
    settings_of,
    to_json,
)
from .loop import training_steps
from .optimizers import scale_rates

# Names that each checkpoint has already: no note can be called so.
OWN_NAMES = ("path", "model", "optimizer", "generator", "step")


class Resumable:
    """An optimizer's steps, which go on from the checkpoint at `path`, if there is one.

    The checkpoint holds `saved_part`, a model or the part of one that learns. The
    learning rates are the optimizer's own, times `factor(step)`. `settings`,
    dictionaries by their names, must be the same when it goes on; `notes` are handed
    on, as the checkpoint has them. Of several processes only the one that `writes`
    looks at the path. Raises CheckpointError for a checkpoint that can't be gone on
    from, and OSError for a path that can't be read or written.
    """

    def __init__(
        self,
        saved_part: nn.Module,
        optimizer: Optimizer,
        generator: torch.Generator,
        *,
        n_steps: int,
        factor: Callable[[int], float],
        path: Path | None,
        settings: dict[str, dict],
        writes: bool = True,
    ):
        self.saved_part = saved_part
        self.optimizer = optimizer
        self.generator = generator
        self.n_steps = n_steps
        self.factor = factor
        self.path = path
        self.settings = settings
        self.writes = writes

        # The run as it begins, or as its checkpoint has it.
        self.step = 0
        self.notes: dict[str, Any] = {}
        self.rates = [group["lr"] for group in optimizer.param_groups]
        if path and path.exists():
            metadata = load_checkpoint(
                path, saved_part, optimizer, generator, **self.settings
            )
            self.step = step_of(metadata, path)
            del metadata["step"]
            for name in settings:
                del metadata[name]
            self.notes = metadata
        if path and writes and self.step < n_steps:
            check_writable(path)
        self.stamp = stamp(path)
        self.set_rates()

    def set_rates(self) -> None:
        """Gives the optimizer the next step's learning rates."""
        scale_rates(self.optimizer, self.rates, self.factor(self.step))

    def save(self) -> None:
        """Writes the checkpoint of this very step, where there is a path for it.

        Raises OSError with the reason, and with the step to go on from, where it can't,
        CheckpointError where another run has written one meanwhile, and ValueError for
        a note with a name that the checkpoint has already.
        """
        path = self.path
        if not path:
            return
        if self.writes:
            check_unchanged(
                path, self.stamp, self.saved_part, self.optimizer, self.settings
            )
        try:
            save_checkpoint(
                path,
                self.saved_part,
                self.optimizer,
                self.generator,
                **checkpoint_metadata(self.settings, self.notes, self.step),
            )
        except OSError as error:
            raise unsaved(f"step {self.step}", path, error) from error
        self.stamp = stamp(path)

    def make_steps(
        self,
        model: nn.Module,
        batches: Iterable[tuple[Tensor, ...]],
        *,
        every: int,
        interrupted: Callable[[], bool],
        quiet: bool = False,
        after_step: Callable[[], object] | None = None,
    ) -> list[float]:
        """Makes the steps that are left, until `interrupted`. Returns their losses.

        A checkpoint is written after the first of them, which shows that it can be,
        then `every` so many, and at the end. `after_step` is called after each.
        """
        losses: list[float] = []
        first = self.step
        last_saved = self.step
        if interrupted():
            return losses

        bar = Progress(first, self.n_steps, quiet or first == self.n_steps)
        steps = training_steps(model, self.optimizer, batches, first_step=first)
        with closing(bar):
            for step, loss in steps:
                self.step = step + 1
                self.set_rates()
                losses.append(loss)
                bar.move(loss)
                if after_step is not None:
                    after_step()
                if step == first or self.step % every == 0:
                    self.save()
                    last_saved = self.step
                if interrupted():
                    break
            if self.step > last_saved:
                self.save()
        return losses


def half_precision(device: str, enabled: bool = True) -> torch.autocast:
    """Returns a context in which products are of 16 bits on a device, if `enabled`.

    It has no cache, which would keep the first step's halved weights for all.
    """
    device_type = torch.device(device).type
    return torch.autocast(
        device_type, torch.bfloat16, enabled=enabled, cache_enabled=False
    )


class Progress:
    """A progress bar on stderr, as long as anybody can read it."""

    def __init__(self, step: int, n_steps: int, is_silent: bool):
        self.bar = None
        if is_silent or sys.stderr is None:
            return
        try:
            # Seconds between two pictures of the bar; in a log each is a line.
            interval = 0.1 if sys.stderr.isatty() else 30
            self.bar = tqdm(
                total=n_steps, initial=step, unit="step", mininterval=interval
            )
        except (OSError, ValueError):
            self.bar = None

    def move(self, loss: float) -> None:
        """Draws the bar one step further."""
        if self.bar is None:
            return
        try:
            self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            self.bar.update()
        except (OSError, ValueError):  # a closed pipe is no reason to stop
            self.bar.disable = True
            self.bar = None

    def close(self) -> None:
        """Draws the bar for the last time."""
        if self.bar is None:
            return
        try:
            self.bar.close()
        except (OSError, ValueError):
            self.bar.disable = True


def checkpoint_metadata(
    settings: dict[str, dict], notes: dict[str, Any], step: int
) -> dict[str, Any]:
    """Returns a checkpoint's metadata: settings, notes and step, each by its name.

    Raises ValueError for a name that is there already.
    """
    for name in notes:
        if name in OWN_NAMES or name in settings:
            raise ValueError(
                f"a note is called {name!r}, and so is something else that the"
                " checkpoint holds: give it another name"
            )
    return {**settings, **notes, "step": step}


def explain_resuming(path: Path | None) -> str:
    """Returns, in words, what a run that stops leaves to go on from.

    The step is the one that the checkpoint itself has.
    """
    if not path:
        return "without a path for a checkpoint nothing is kept"
    if not path.exists():
        return f"no step is whole, and there is no checkpoint in {path}"
    _, header = read_checkpoint(path)
    step = step_of(header["metadata"], path)
    return f"run it again to go on after step {step}, from {path}"


def step_of(metadata: dict[str, Any], path: Path) -> int:
    """Returns the step of a run's checkpoint. Raises CheckpointError for another's."""
    step = metadata.get("step")
    if not isinstance(step, int):
        raise CheckpointError(
            f"{path} is a checkpoint without the number of its step ({step!r}), and no"
            " run's: take another path"
        )
    return step


def unsaved(what: str, path: Path, error: OSError) -> OSError:
    """Returns the error that says what can't be saved, why, and how to go on."""
    reason = error.strerror or error
    advice = explain_resuming(path)
    return OSError(f"{what} can't be saved ({reason}): {advice}")


def stamp(path: Path | None) -> tuple[int, int, int] | None:
    """Returns what changes when a file is written anew; None where there is no file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def check_unchanged(
    path: Path,
    before: tuple[int, int, int] | None,
    model: nn.Module,
    optimizer: Optimizer,
    settings: dict[str, dict],
) -> None:
    """Raises CheckpointError where another run has written to `path` meanwhile.

    The same run, started twice, may: it ends the same to the bit.
    """
    now = stamp(path)
    if now in (before, None):
        return
    try:
        _, header = read_checkpoint(path)
        check_same(path, saved=header, here=settings_of(model, optimizer))
        check_same(path, saved=header["metadata"], here=to_json(settings))
    except CheckpointError as error:
        raise CheckpointError(
            f"another run has written to {path} meanwhile, and keeps it; this one"
            f" stops: start it again with another path ({error})"
        ) from None
