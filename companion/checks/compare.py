"""What all checks share: an answer is held against the right one, then explained."""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import zip_longest
from numbers import Integral, Real

import torch
from torch import Tensor

from .words import describe, number


class Mistake(AssertionError):
    """A wrong answer, shown in a notebook as its one line, without a traceback."""

    def __init__(self, words: str, kind: type | None = None):
        super().__init__(words)
        self.kind = kind or words  # the class of the error that stopped the answer

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


def call(function: Callable, *case):
    return function(*case)


def compare(
    answer: Callable,
    right: Callable,
    cases: list[tuple],
    mistakes: dict[str, Callable | dict | type | tuple],
    praise: str,
    use: Callable = call,
) -> None:
    """Hold `answer` against `right` on every case; explain it by one of `mistakes`.

    Each has what to say of a wrong answer, and then a function that gives the same on
    every case, or options that make one of `right`, or the class of an error that stops
    the answer. Any other wrong answer gets the input, the first place that differs, and
    both values. `use(function, *case)` gives what is compared, by default what the
    function gives; it may raise a Mistake. An answer that raises NotImplementedError is
    still to be written. Raises Mistake; prints one line when all is right or nothing is
    there.
    """
    name = praise.partition(":")[0]
    if not callable(answer):
        raise Mistake(f"{name}: give the function itself, not {describe(answer)}")
    try:
        found = [outcome(use, answer, case) for case in cases]
    except NotImplementedError:
        if GRADED.get():
            raise Mistake(f"{name}: yours to write") from None
        print(f"○ {name}: yours to write")
        return
    for case, ours in zip(cases, found, strict=True):
        if wrong := difference(ours, listed(use(right, *copy.deepcopy(case)))):
            words = explanation(use, right, cases, mistakes, found, ours)
            words = words or f"for {inputs(use, answer, case)}: {wrong}"
            raise Mistake(f"{name}: {words}")
    print(f"✓ {praise}")


def outcome(use: Callable, function: Callable, case: tuple):
    """What a function gives, or a Mistake where that is no result."""

    def returned(*case):
        if (found := function(*case)) is None:
            raise Mistake("nothing is returned: is there a `return`?")
        return found

    given = copy.deepcopy(case)
    try:
        found = listed(use(returned, *given))
    except NotImplementedError:
        raise
    except Mistake as mistake:
        return mistake
    except Exception as error:
        said = f"it stops with {type(error).__name__}: {str(error).strip()[:99]}"
        return Mistake(said.splitlines()[0].strip(" .:"), type(error))
    for before, after in zip(case, given, strict=True):
        if isinstance(before, Tensor | list | dict) and difference(after, before):
            return Mistake("the function changes its input: work on a copy")
    return found


def explanation(use, right, cases: list, mistakes: dict, found: list, first):
    """The words for what explains all that was `found`, or the first error in it."""
    kind = getattr(first, "kind", None)
    for words, wrong in mistakes.items():
        if isinstance(wrong, type | tuple):
            if isinstance(kind, type) and issubclass(kind, wrong):
                return f"{first}: {words}"
        else:
            wrong = partial(right, **wrong) if isinstance(wrong, dict) else wrong
            results = (outcome(use, wrong, case) for case in cases)
            if not any(map(difference, found, results)):
                return words
    return None


def listed(x):
    """A list in place of a generator, a `zip`, a `map` or a `range`."""
    return [listed(part) for part in x] if isinstance(x, Iterator | range) else x


def difference(ours, wanted, place: str = "") -> str | None:
    """In what `ours` is not `wanted`, in words, or None; numbers count to 1e-4."""
    at = f"at {place} " if place else ""
    if isinstance(ours, Mistake):
        return None if getattr(wanted, "kind", None) == ours.kind else str(ours)
    if ours is None and wanted is not None:
        return f"{at}nothing is returned: is there a `return`?"
    if isinstance(wanted, Tensor | int | float):
        return number_difference(ours, wanted, place)
    if isinstance(wanted, dict | list | tuple):
        if isinstance(ours, dict) and isinstance(wanted, dict):  # the same keys
            parts = (difference(ours[key], wanted[key], key) for key in wanted)
            return next(filter(None, parts), None)
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
    if type(ours) is not type(wanted) or ours != wanted:
        return f"{at}it gives {describe(ours)}, wanted {describe(wanted)}"
    return None


def number_difference(ours, wanted: Tensor | float, place: str) -> str | None:
    """`difference` for a tensor, or for a number, of which a tensor () is one too."""
    at, tensor = f"at {place} " if place else "", isinstance(wanted, Tensor)
    # NumPy's numbers and fractions are real numbers, too.
    if not isinstance(ours, Tensor if tensor and wanted.dim() else Tensor | Real):
        return f"{at}it gives {describe(ours)}, wanted {describe(wanted)}"
    ours = ours if isinstance(ours, Tensor | Integral) else float(ours)
    here, there = (torch.as_tensor(x).detach() for x in (ours, wanted))
    if here.shape != there.shape:
        return f"{at}the shape is {tuple(here.shape)}, wanted {tuple(there.shape)}"
    kinds = [x.is_floating_point() - (x.dtype == torch.bool) for x in (here, there)]
    if tensor and kinds[0] != kinds[1]:
        return f"{at}the dtype is {here.dtype}, wanted {there.dtype}"
    here, there = here.double(), there.double()
    same = torch.isclose(here, there, rtol=1e-4, atol=1e-4, equal_nan=True)
    if same.all():
        return None
    first = tuple((~same).nonzero()[0].tolist())
    at = f"at {place}{[*first]} " if first else at
    a, b = here[first].item(), there[first].item()
    digits = 4 if number(a) != number(b) else 7
    return f"{at}it gives {number(a, digits)}, wanted {number(b, digits)}"


def inputs(use: Callable, answer: Callable, case: tuple) -> str:
    """A case in words, by the names that the answer, or `use`, gives its parameters."""
    try:
        named = answer if use is call else partial(use, answer)
        parameters = inspect.signature(named).parameters.values()
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    said = []
    for name, x in zip_longest(names[: len(case)], case, fillvalue=""):
        large = isinstance(x, Tensor) and (x.dim() > 1 or x.numel() > 6)
        value = tuple(x.shape) if large else describe(x)
        said.append(f"{name} {'' if large else '= '}{value}" if name else str(value))
    return ", ".join(said)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """A normal tensor that is the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
