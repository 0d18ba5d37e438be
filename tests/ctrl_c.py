"""Ctrl-C at an instant or a step that a test chooses, and how far a run has come."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from companion.training.checkpoints import read_checkpoint


@contextmanager
def interrupted_at(instant: int, *modules) -> Iterator[list[bool]]:
    """Within, Ctrl-C comes once, and ends the block; it gives whether it came.

    `instant` counts those at which Python looks for signals: where a function of these
    modules begins, and where one that is built in returns to it.
    """
    files = {module.__file__ for module in modules}
    n_passed = 0
    came = []

    def look(frame, event, _):
        nonlocal n_passed
        if event in ("call", "c_return") and frame.f_code.co_filename in files:
            n_passed += 1
            if n_passed == instant:
                came.append(True)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(look)
    try:
        with suppress(KeyboardInterrupt):
            yield came
    finally:
        sys.setprofile(None)


def press(number: int = signal.SIGINT) -> None:
    """Presses Ctrl-C, or sends this process another signal."""
    signal.raise_signal(number)


def press_twice() -> None:
    press()
    press()


@contextmanager
def stopping(step: int, press: Callable[[], object] = press) -> Iterator[None]:
    """Within, Ctrl-C falls in the optimizer's step of that number, counted from 1."""
    numbers = iter(range(1, 999))

    def press_in_time(*_):
        if next(numbers) == step:
            press()

    hook = register_optimizer_step_pre_hook(press_in_time)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def count_steps() -> Iterator[list[int]]:
    """A list that is one longer with each step of an optimizer."""
    steps = []
    hook = register_optimizer_step_post_hook(lambda *_: steps.append(1))
    try:
        yield steps
    finally:
        hook.remove()


def step_in(path: Path) -> int:
    """The step of a checkpoint; 0 where there is none."""
    if not path.exists():
        return 0
    _, about = read_checkpoint(path)
    return about["metadata"]["step"]
