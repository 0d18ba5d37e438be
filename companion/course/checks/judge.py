"""How good tests are: what they find among faults, and what they flag by mistake."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from types import FrameType

import torch

from ..cabinet.faults import FAULTS
from ..cabinet.machine import Machine, MyGPT
from .effects import contained

Test = Callable[[Machine], bool]

SECONDS = 5  # for one test of one machine


class TooSlow(BaseException):
    """A test that doesn't end; no `except Exception` of its own catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what lasts longer, by TooSlow, where the system has a signal for that."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)  # again, where it is caught
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def complaint(test: Test, machine: Machine, seconds: float = SECONDS) -> str | None:
    """Returns what a test says against a machine, in words, or None if nothing.

    A test that returns False or stops with an error speaks against it. What it prints
    is dropped; settings that it leaves changed for everybody are put back.
    """
    nowhere = StringIO()
    try:
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            with contained((), []), time_limit(seconds):
                passed = bool(test(machine))
    except TooSlow:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, which would end the notebook
        first_line = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {first_line[:80]}".strip(" :")
    return None if passed else "it returns False"


@dataclass(frozen=True)
class Verdict:
    """What some tests are worth."""

    n_found: int
    n_faults: int
    alarms: tuple[str, ...]  # what is said of right machines, in words

    def __str__(self) -> str:
        bar = "■" * self.n_found + "□" * (self.n_faults - self.n_found)
        return f"{bar} {self.n_found} of {self.n_faults} faults found"


def right_machines() -> list[Machine]:
    """Returns machines without a fault, in three sizes."""

    class WithFault(Machine):  # by its name like the others
        model_class = MyGPT

    return [
        WithFault(d_vocab=17, context_length=16, d_model=32, n_heads=4, n_layers=2),
        WithFault(d_vocab=23, context_length=12, d_model=24, n_heads=2, n_layers=3),
        WithFault(d_vocab=11, context_length=20, d_model=48, n_heads=6, n_layers=2),
    ]


def judge(
    tests: Iterable[Test],
    faults: Iterable[type[Machine]] = FAULTS,
    seconds: float = SECONDS,
) -> Verdict:
    """Counts the machines with a fault that tests find, and false alarms. Chapter 16.

    A test is a function of a `Machine` that returns whether it is right. One that
    flags a right machine, or doesn't end within `seconds`, finds nothing: its words are
    in `alarms`. Which faults were found is not told.
    """
    # A process's first step loads parts of PyTorch for seconds: no test pays for it.
    machine = Machine()
    machine.go_on(machine.start(), torch.arange(40) % machine.d_vocab, 1)

    sound = []
    alarms = []
    for test in tests:
        name = getattr(test, "__name__", str(test))
        try:
            said = [complaint(test, machine, seconds) for machine in right_machines()]
        except TooSlow:
            alarms.append(f"{name} takes longer than {seconds:g} s for one machine")
            continue
        words = [one for one in said if one is not None]
        if words:
            alarms.append(f"{name} flags a machine that is right: {words[0]}")
        else:
            sound.append(test)

    faults = list(faults)
    n_found = sum(is_found(fault, sound, seconds) for fault in faults)
    return Verdict(n_found, len(faults), tuple(alarms))


def is_found(fault: type[Machine], tests: list[Test], seconds: float) -> bool:
    """Returns whether one of the tests speaks against the machine."""
    for test in tests:
        try:
            if complaint(test, fault(), seconds) is not None:
                return True
        except TooSlow:
            pass
    return False
