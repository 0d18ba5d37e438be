"""How good tests are: what they find among faults, and what they flag by mistake."""

import inspect
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from numbers import Number
from random import SystemRandom
from types import FrameType

import numpy as np
import torch
from torch import Tensor

from ..cabinet.disguise import classes_of, disguised, right_in_disguise
from ..cabinet.faults import FAULTS
from ..cabinet.machine import Machine
from .effects import attributes_kept, contained
from .words import describe

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


class NoVerdict(Exception):
    """What a test returns, where that says nothing about a machine."""


def verdict_of(result: object) -> bool:
    """Returns what a test says of a machine, from what it returns.

    Raises NoVerdict, with words, for what is neither true nor false.
    """
    if inspect.isgenerator(result):
        raise NoVerdict(
            "returns a generator, so its body never runs: `return`, not `yield`"
        )
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that nobody has waited for it
        raise NoVerdict(
            "returns a coroutine, so its body never runs: `def`, not `async def`"
        )
    is_number = isinstance(result, Tensor | Number | np.generic | np.ndarray)
    if result is not None and not is_number:
        raise NoVerdict(f"returns {describe(result)}, not True or False")
    return bool(result)


def complaint(test: Test, machine: Machine, seconds: float = SECONDS) -> str | None:
    """Returns what a test says against a machine, in words, or None if nothing.

    A test that returns False or stops with an error speaks against it. What it prints
    is dropped; what it leaves changed for everybody is put back, settings, seeds,
    folder, environment, and attributes of modules and classes. The machine goes by the
    right one's names. Raises NoVerdict for a test that returns neither.
    """
    nowhere = StringIO()
    try:
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            with attributes_kept(*classes_of(machine)), disguised(machine):
                with contained((), []), time_limit(seconds):
                    result = test(machine)
                    passed = verdict_of(result)
    except (TooSlow, NoVerdict, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit, which would end the notebook
        first_line = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {first_line[:80]}".strip(" :")
    if passed:
        return None
    if result is None:
        return "it returns None: a test that finds nothing ends in `return True`"
    return "it returns False"


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
    return in_three_sizes(right_in_disguise())


def in_three_sizes(new: type[Machine]) -> list[Machine]:
    """Returns machines of one class that differ in every size."""
    return [
        new(d_vocab=17, context_length=16, d_model=32, n_heads=4, n_layers=2),
        new(d_vocab=23, context_length=12, d_model=24, n_heads=2, n_layers=3),
        new(d_vocab=11, context_length=20, d_model=48, n_heads=6, n_layers=2),
    ]


def judge(
    tests: Iterable[Test],
    faults: Iterable[type[Machine]] = FAULTS,
    seconds: float = SECONDS,
) -> Verdict:
    """Counts the machines with a fault that tests find, and false alarms. Chapter 16.

    A test is a function of a `Machine` that returns whether it is right. One that
    flags a right machine, doesn't end within `seconds`, or doesn't stand by what it has
    said finds nothing: its words are in `alarms`. Which faults were found is not told.
    """
    # A process's first step loads parts of PyTorch for seconds: no test pays for it.
    machine = Machine()
    machine.go_on(machine.start(), torch.arange(40) % machine.d_vocab, 1)

    faults = list(faults)
    not_found = set(range(len(faults)))
    alarms = []
    for test in tests:
        try:
            not_found -= found_by(test, faults, not_found, seconds)
        except Alarm as alarm:
            alarms.append(f"{getattr(test, '__name__', str(test))} {alarm}")
    return Verdict(len(faults) - len(not_found), len(faults), tuple(alarms))


class Alarm(Exception):
    """Why a test finds nothing, whatever it says."""


@dataclass(frozen=True)
class Suspect:
    """A machine that a test is asked of, and the number of its fault."""

    machine: Machine
    fault: int | None  # None if it is right


def found_by(
    test: Test, faults: list[type[Machine]], numbers: set[int], seconds: float
) -> set[int]:
    """Returns which of the `faults` of these numbers a test finds, by number.

    Raises Alarm where it flags a right machine, and where it doesn't stand by what it
    has said. Right machines are asked first, then in between and again, in an order
    that no test can know: it must judge the machine, and can't count.
    """
    for machine in right_machines():
        must_pass(test, machine, seconds)

    found = set()
    for suspect in shuffled(line_up(faults, numbers)):
        if suspect.fault is None:
            must_pass(test, suspect.machine, seconds, asked_before=True)
        elif is_flagged(test, suspect.machine, seconds):
            found.add(suspect.fault)

    for suspect in [*shuffled(line_up(faults, found)), Suspect(Machine(), None)]:
        if suspect.fault is None:
            must_pass(test, suspect.machine, seconds, asked_before=True)
        elif not is_flagged(test, suspect.machine, seconds, if_slow=True):
            raise Alarm(
                "says now this, now that of the same machine: a test must not count,"
                " remember or draw anew"
            )
    return found


def line_up(faults: list[type[Machine]], numbers: set[int]) -> list[Suspect]:
    """Returns machines with the `faults` of these numbers, beside two right ones.

    One of those is as it stands in the file, and one is in disguise.
    """
    suspects = [Suspect(faults[number](), number) for number in numbers]
    return [*suspects, Suspect(Machine(), None), Suspect(right_in_disguise()(), None)]


def shuffled(things: list) -> list:
    """Returns them in an order that follows from no seed."""
    return SystemRandom().sample(things, len(things))


def must_pass(
    test: Test, machine: Machine, seconds: float, asked_before: bool = False
) -> None:
    """Raises Alarm where a test flags a right machine, or doesn't end."""
    try:
        words = complaint(test, machine, seconds)
    except TooSlow:
        raise Alarm(f"takes longer than {seconds:g} s for one machine") from None
    except NoVerdict as error:
        raise Alarm(str(error)) from None
    if words and asked_before:
        raise Alarm(
            f"passes a machine that is right, and flags it when it is asked again:"
            f" {words}"
        )
    if words:
        raise Alarm(f"flags a machine that is right: {words}")


def is_flagged(
    test: Test, machine: Machine, seconds: float, if_slow: bool = False
) -> bool:
    """Returns whether a test speaks against a machine; `if_slow` where it won't end."""
    try:
        return complaint(test, machine, seconds) is not None
    except TooSlow:
        return if_slow
    except NoVerdict as error:
        raise Alarm(str(error)) from None
