"""What all checks share: an answer is held against the right one, then explained."""

import copy
import inspect
import itertools
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real

import torch
from torch import Tensor


class Mistake(AssertionError):
    """A wrong answer, shown in a notebook as its one line, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


GRADED = ContextVar("graded", default=False)


@contextmanager
def graded() -> Iterator[None]:
    """Within it an answer that is still to be written is a Mistake, too."""
    before = GRADED.set(True)
    try:
        yield
    finally:
        GRADED.reset(before)


def compare(
    answer: Callable,
    right: Callable,
    cases: list[tuple],
    mistakes: dict[str, Callable],
    praise: str,
) -> None:
    """Hold `answer` against `right` on every case; explain it by one of `mistakes`.

    A mistake is a wrong function and what to say of an answer that is wrong and equals
    it on every case. Any other wrong answer gets the input, the first place that
    differs, and both values. An answer that raises NotImplementedError is still to be
    written. Raises Mistake; prints one line when all is right or nothing is there.
    """
    name = praise.partition(":")[0]
    if not callable(answer):
        raise Mistake(f"{name}: give the function itself, not {describe(answer)}")
    try:
        found = [outcome(answer, case) for case in cases]
    except NotImplementedError:
        if GRADED.get():
            raise Mistake(f"{name}: yours to write") from None
        print(f"○ {name}: yours to write")
        return
    wanted = [right(*copy.deepcopy(case)) for case in cases]
    for case, ours, theirs in zip(cases, found, wanted, strict=True):
        if not (wrong := difference(ours, theirs)):
            continue
        for words, mistake in mistakes.items():
            if equals(mistake, cases, found):
                raise Mistake(f"{name}: {words}")
        raise Mistake(f"{name}: for {inputs(answer, case)}: {wrong}")
    print(f"✓ {praise}")


def outcome(answer: Callable, case: tuple):
    """What the answer gives, or a Mistake, in one line, where that is no result."""
    given = copy.deepcopy(case)
    try:
        ours = answer(*given)
    except (NotImplementedError, Mistake):
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return Mistake(f"it stops with {type(error).__name__}: {first}")
    for before, after in zip(case, given, strict=True):
        if isinstance(before, Tensor | list | dict) and difference(after, before):
            return Mistake("the function changes its input: work on a copy")
    return ours


def equals(mistake: Callable, cases: list[tuple], found: list) -> bool:
    """Whether a wrong function gives on every case what was found."""
    try:
        results = [mistake(*copy.deepcopy(case)) for case in cases]
    except Exception:  # it was not written for an answer like this
        return False
    return not any(map(difference, found, results))


def difference(ours, wanted, place: str = "") -> str | None:
    """In what `ours` is not `wanted`, in words, or None; numbers count to 1e-4."""
    at = f"at {place} " if place else ""
    if isinstance(ours, Mistake):
        return str(ours)
    if ours is None and wanted is not None:
        return f"{at}nothing is returned: is there a `return`?"
    if isinstance(wanted, list | tuple):
        if hasattr(ours, "tolist") and not any(isinstance(x, Tensor) for x in wanted):
            ours = ours.tolist()
        if not isinstance(ours, list | tuple):
            return f"{at}it gives {describe(ours)}, wanted {describe(wanted)}"
        if len(ours) != len(wanted):
            lengths = f"{len(ours)} things, wanted {len(wanted)}"
            return f"{at}it gives {describe(ours)}, {lengths}: {describe(wanted)}"
        pairs = enumerate(zip(ours, wanted, strict=True))
        parts = (difference(a, b, f"{place}[{i}]") for i, (a, b) in pairs)
        return next(filter(None, parts), None)
    if isinstance(wanted, Tensor | int | float):
        return number_difference(ours, wanted, place)
    if type(ours) is not type(wanted) or ours != wanted:
        return f"{at}it gives {describe(ours)}, wanted {describe(wanted)}"
    return None


def number_difference(ours, wanted: Tensor | float, place: str) -> str | None:
    """`difference` for a tensor, or for a number, of which a tensor () is one too."""
    at, as_wanted = f"at {place} " if place else "", describe(wanted)
    one = not isinstance(wanted, Tensor) or not wanted.dim()
    alike = Tensor | Real if one else Tensor  # NumPy's numbers are real ones, too
    if not isinstance(ours, alike):
        return f"{at}it gives {describe(ours)}, wanted {as_wanted}"
    ours = ours if isinstance(ours, Tensor | int) else float(ours)  # a Fraction, too
    here, there = (torch.as_tensor(x).detach() for x in (ours, wanted))
    if here.shape != there.shape:
        return f"{at}the shape is {tuple(here.shape)}, wanted {tuple(there.shape)}"
    if isinstance(wanted, Tensor) and kind(here) != kind(there):
        return f"{at}the dtype is {here.dtype}, wanted {there.dtype}"
    here, there = here.double(), there.double()
    same = torch.isclose(here, there, rtol=1e-4, atol=1e-4, equal_nan=True)
    if same.all():
        return None
    if not same.dim():
        return f"{at}it gives {describe(ours)}, wanted {as_wanted}"
    first = (~same).nonzero()[0].tolist()
    a, b = (number(x[tuple(first)].item()) for x in (here, there))
    return f"at {place}{first} it gives {a}, wanted {b}"


def kind(x: Tensor) -> str:
    """Whether a tensor holds truth values, whole numbers or others."""
    if x.dtype == torch.bool:
        return "bool"
    return "float" if x.is_floating_point() or x.is_complex() else "int"


def number(x: float) -> str:
    """A number as one would write it."""
    return f"{x:.4g}" if abs(x) < 10_000 else f"{x:.10g}"


def describe(x) -> str:
    """A tensor by its shape, or by its values where they are few; anything in short."""
    if isinstance(x, Tensor):
        if not x.dim():
            return f"tensor({number(x.item())})"
        if x.dim() != 1 or len(x) > 6:
            kind = str(x.dtype).removeprefix("torch.")
            return f"{'an' if kind[0] == 'i' else 'a'} {kind} tensor {tuple(x.shape)}"
        return f"tensor([{', '.join(map(number, x.double().tolist()))}])"
    if isinstance(x, tuple | list) and any(isinstance(part, Tensor) for part in x):
        inside = ", ".join(map(describe, x))
        return f"[{inside}]" if isinstance(x, list) else f"({inside})"
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    plain = isinstance(x, Real) and not isinstance(x, bool)
    return number(x) if plain else short.repr(x)


def inputs(answer: Callable, case: tuple) -> str:
    """A case in words, by the names that the answer gives its parameters."""
    try:
        names = [*inspect.signature(answer).parameters]
    except (TypeError, ValueError):
        names = []
    said = []
    for name, x in itertools.zip_longest(names[: len(case)], case, fillvalue=""):
        large = isinstance(x, Tensor) and (x.dim() > 1 or x.numel() > 6)
        value = tuple(x.shape) if large else describe(x)
        said.append(f"{name} {'' if large else '= '}{value}" if name else str(value))
    return ", ".join(said)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """A normal tensor that is the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
