"""What all checks share: an answer is held against the right one, then explained."""

import copy
import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from numbers import Integral, Real
from traceback import walk_tb
from types import FrameType

import torch
from torch import Tensor

from .effects import contained
from .words import TooMany, describe, gives, listed, number, unreadable


class Mistake(AssertionError):
    """A wrong answer, shown in a notebook as its one line, without a traceback.

    Two are the same mistake if they have one `identity`, by default their words.
    """

    has_example = True  # whether it helps to know for which input

    def __init__(self, words: str, identity: object = None):
        super().__init__(words)
        self.identity = identity or words

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


class Stop(Mistake):
    """An answer that an error has stopped; `own` if its own code has raised it.

    Two are the same if the errors are of one class and say the same, in any order: of
    two sizes that don't fit each other either may come first.
    """

    def __init__(self, error: BaseException, own: bool):
        self.error = error
        self.own = own
        self.message = message(error)
        name = type(error).__name__
        words = f"it stops with {name}: {self.message}".strip(" .:")
        identity = (type(error), sorted(self.message.split()))
        super().__init__(words, identity)
        self.has_example = not self.explains_itself()

    def explains_itself(self) -> bool:
        """Whether its own words are the best: a slip of the pen, and no mistake."""
        slips = NameError | ImportError | AttributeError | SyntaxError
        wrong_call = isinstance(self.error, TypeError) and "argument" in self.message
        return isinstance(self.error, slips) or wrong_call


class Unusable(Mistake):
    """What an answer gave, where the check's own arithmetic could not use it."""

    def __init__(self, result: object):
        super().__init__(gives(result))


class Effect(Mistake):
    """What an answer does beside giving a result."""

    has_example = False


class Raises:
    """A mistake that ends in an error of a class, with some words in its message.

    It explains an answer whose own code raises such an error, and which is right in
    every case where it raises none. One of the `words` must be in the message.
    """

    def __init__(self, error: type[Exception], *words: str):
        self.error = error
        self.words = words

    def explains(self, outcome: object) -> bool:
        """Whether an answer has ended in this error."""
        if not isinstance(outcome, Stop) or not outcome.own:
            return False
        if not isinstance(outcome.error, self.error):
            return False
        said = str(outcome.error)
        return any(words in said for words in self.words)


def message(error: BaseException) -> str:
    """The first line of what an error says, in short."""
    try:
        lines = str(error).strip()[:99].splitlines()
    except Exception:
        return ""
    return lines[0].strip(" .:") if lines else ""


GRADED = ContextVar("graded", default=False)


@contextmanager
def graded() -> Iterator[None]:
    """Within this context an answer that is still to be written is a Mistake, too."""
    before = GRADED.set(True)
    try:
        yield
    finally:
        GRADED.reset(before)


def call(function: Callable, *case: object) -> object:
    """What a function gives for a case: the comparison that needs nothing more."""
    return function(*case)


@dataclass(frozen=True)
class Exercise:
    """What a check knows: the right way, cases, likely mistakes, and what praises.

    `mistakes` maps words for the learner to what they explain: a function that makes
    the mistake, so it gives what the answer gives on every case, or stops where that
    stops; or a `Raises`, the error in which the answer ends. They are tried in order;
    the first that fits is said. Most are the right way with one part changed.

    `use(function, *case)` gives what is compared, by default what the function gives;
    it may raise a Mistake. Where cases are hidden, no words tell which one it was.
    """

    right: Callable
    cases: list[tuple]
    mistakes: dict[str, Callable | Raises]
    praise: str
    use: Callable = call
    is_hidden: bool = False


def check(known: Callable[[], Exercise]) -> Callable[[Callable], None]:
    """Makes a check of what gives an exercise; called with an answer, it compares.

    The exercise stays at hand: `CHECK.known()`.
    """

    def compared(answer: Callable) -> None:
        compare(known.__name__, answer, known())

    # Not by `wraps`: its parameters are those of a check.
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(compared, name, getattr(known, name))
    compared.known = known
    return compared


def compare(name: str, answer: Callable, exercise: Exercise) -> None:
    """Compares an answer on every case; explains a wrong one by a mistake.

    Any other wrong answer gets the input, the first place that differs, and both
    values. An answer whose own code raises NotImplementedError is still to be written.
    Raises Mistake; prints one line if the answer is right, or if it is still to be
    written.
    """
    if not callable(answer):
        raise Mistake(f"{name}: give the function itself, not {describe(answer)}")

    # Gradients are there also where a notebook has switched them off.
    with torch.enable_grad():
        try:
            outcomes = [run_answer(exercise.use, answer, x) for x in exercise.cases]
        except NotImplementedError:
            if GRADED.get():
                raise Mistake(f"{name}: yours to write") from None
            print(f"○ {name}: yours to write")
            return

        outcomes, faults = judge_outcomes(exercise, outcomes)
        if not any(faults):
            print(f"✓ {name}: {exercise.praise}")
            return
        words = explanation(exercise, outcomes, faults)

    # No mistake explains it: say what is off, and for which input if that helps.
    if not words:
        i = next(i for i, fault in enumerate(faults) if fault)
        words = faults[i]
        has_example = i > 0 or getattr(outcomes[i], "has_example", True)
        if has_example and not exercise.is_hidden:
            shown = inputs(exercise.use, answer, exercise.cases[i])
            words = f"for {shown}: {words}"
    raise Mistake(f"{name}: {words}")


def judge_outcomes(exercise: Exercise, outcomes: list) -> tuple[list, list[str | None]]:
    """Compares all outcomes with the right ones. Returns them, and their faults.

    A fault says in words what is wrong, or is None. A result that the check could not
    use is described beside the right one.
    """
    judged_outcomes = []
    faults = []
    for result, case in zip(outcomes, exercise.cases, strict=True):
        right_results = []
        recording = recorded(exercise.right, right_results)
        expected = listed(exercise.use(recording, *copy.deepcopy(case)))
        if isinstance(result, Unusable):
            result = Mistake(f"{result}, wanted {describe(right_results[0])}")
        judged_outcomes.append(result)
        faults.append(safe_difference(result, expected))
    return judged_outcomes, faults


def recorded(function: Callable, results: list) -> Callable:
    """The function; each result that it gives is also appended to `results`."""

    def recording(*arguments: object) -> object:
        result = function(*arguments)
        results.append(result)
        return result

    return recording


def enter(function: Callable, arguments: tuple) -> object:
    """Call an answer, in a frame of its own that `in_answer` looks for."""
    return function(*arguments)


def run_answer(use: Callable, function: Callable, case: tuple) -> object:
    """Runs an answer on a case. Returns its result, or a Mistake where it has none."""
    results = []  # of the function, before `use` makes something of them

    def watched(*arguments: object) -> object:
        effects = []
        with contained(arguments, effects):
            result = listed(enter(function, arguments))
        if result is None:
            raise Mistake("nothing is returned: is there a `return`?")
        words = unreadable(result)
        if words:
            raise Mistake(f"it gives {words}")
        if effects:
            raise Effect(f"the answer {effects[0]}")
        results.append(result)
        return result

    arguments = copy.deepcopy(case)
    try:
        result = listed(use(watched, *arguments))
    except Mistake as mistake:
        return mistake
    except TooMany as many:
        return Mistake(f"it gives {many}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if unwritten(error, function):
            raise
        if results and not in_answer(error, function):
            return Unusable(results[0])
        return Stop(error, raised_by(error, function))

    for before, after in zip(case, arguments, strict=True):
        if isinstance(before, Tensor | list | dict) and safe_difference(after, before):
            return Effect("the function changes its input: work on a copy")
    return result


def own_names(function: Callable) -> dict | None:
    """The global names of a function's module or notebook; None of a built-in one."""
    while isinstance(function, partial):
        function = function.func
    try:
        function = inspect.unwrap(function)
    except ValueError:  # it wraps itself
        return None
    if not hasattr(function, "__globals__"):  # an object that can be called
        function = type(function).__call__
    return getattr(function, "__globals__", None)


def frames_of(error: BaseException) -> list[FrameType]:
    """The calls that an error has gone through, the one that raised it last."""
    return [frame for frame, _ in walk_tb(error.__traceback__)]


def in_answer(error: BaseException, function: Callable) -> bool:
    """Whether it was the answer that was stopped, and not what a check does with it."""
    names = own_names(function)
    for frame in frames_of(error):
        if frame.f_code is enter.__code__ or frame.f_globals is names:
            return True
    return False


def raised_by(error: BaseException, function: Callable) -> bool:
    """Whether it is the function's own module or notebook that raises the error."""
    return frames_of(error)[-1].f_globals is own_names(function)


def unwritten(error: BaseException, function: Callable) -> bool:
    """Whether a `raise NotImplementedError` of the answer's own is still there."""
    if not isinstance(error, NotImplementedError) or not raised_by(error, function):
        return False
    last = error.__traceback__
    while last.tb_next:
        last = last.tb_next
    # PyTorch's own come out of a call, one that is written there out of a `raise`.
    instruction = last.tb_frame.f_code.co_code[last.tb_lasti]
    return dis.opname[instruction] == "RAISE_VARARGS"


def explanation(
    exercise: Exercise, outcomes: list, faults: list[str | None]
) -> str | None:
    """The words of the mistake that explains all outcomes, or None.

    `faults` say what is wrong with each outcome, or None.
    """
    first = next(x for x, fault in zip(outcomes, faults, strict=True) if fault)
    stopped = isinstance(first, Stop)
    if stopped and first.explains_itself():
        return None

    for words, mistake in exercise.mistakes.items():
        if isinstance(mistake, Raises):
            wrong = [x for x, fault in zip(outcomes, faults, strict=True) if fault]
            fits = all(mistake.explains(x) for x in wrong)
        else:
            results = (run_answer(exercise.use, mistake, x) for x in exercise.cases)
            fits = mistake_fits(outcomes, results, faults)
        if fits:
            return f"{first}: {words}" if stopped else words
    return None


def mistake_fits(outcomes: list, results: Iterable, faults: list[str | None]) -> bool:
    """Whether a mistake gives the same `results` as the answer's `outcomes`.

    Where an answer gives wrong numbers, and the mistake the same ones, both may stop in
    other words elsewhere. Where it does nothing but stop, the words are the proof.
    `results` may be an iterator, of which only as much is taken as is needed.
    """
    wrong = [x for x, fault in zip(outcomes, faults, strict=True) if fault]
    gives_numbers = any(not isinstance(x, Stop) for x in wrong)
    for answered, result in zip(outcomes, results, strict=True):
        both_stop = isinstance(answered, Stop) and isinstance(result, Stop)
        if gives_numbers and both_stop:
            if type(answered.error) is not type(result.error):
                return False
        elif safe_difference(answered, result):
            return False
    return True


def safe_difference(result: object, expected: object) -> str | None:
    """`difference`, which says something even of results that can't be compared."""
    try:
        return difference(result, expected)
    except Exception:
        return f"{gives(result)}, wanted {describe(expected)}"


def difference(result: object, expected: object, place: str = "") -> str | None:
    """Says how a result differs from the expected one; None if it doesn't.

    Numbers are compared to 1e-4: a thousand times float32's rounding, and below what a
    mistake changes. `place` is where both stand within a larger result.
    """
    at = f"at {place} " if place else ""
    if isinstance(result, Mistake):
        is_same = getattr(expected, "identity", None) == result.identity
        return None if is_same else str(result)
    if result is None and expected is not None:
        return f"{at}nothing is returned: is there a `return`?"
    if isinstance(expected, Tensor | int | float):
        return number_difference(result, expected, place)
    if isinstance(result, dict) and isinstance(expected, dict):  # the same keys
        for key in expected:
            words = difference(result[key], expected[key], key)
            if words:
                return words
        return None
    if isinstance(expected, dict | list | tuple):
        return list_difference(result, expected, place)
    if not isinstance(result, type(expected)) or result != expected:
        return f"{at}{gives(result)}, wanted {describe(expected)}"
    return None


def list_difference(
    result: object, expected: dict | list | tuple, place: str
) -> str | None:
    """`difference` for a list; the result may also be a tensor or an array."""
    at = f"at {place} " if place else ""
    if any(isinstance(part, Tensor) for part in expected):
        is_tensor = isinstance(result, Tensor) and result.dim()
        if is_tensor and len(result) == len(expected):
            result = list(result)
    elif hasattr(result, "tolist"):
        result = result.tolist()

    if not isinstance(result, list | tuple):
        return f"{at}{gives(result)}, wanted {describe(expected)}"
    if len(result) != len(expected):
        lengths = f"{len(result)} things, wanted {len(expected)}"
        return f"{at}{gives(result)}, {lengths}: {describe(expected)}"

    for i, (part, expected_part) in enumerate(zip(result, expected, strict=True)):
        words = difference(part, expected_part, f"{place}[{i}]")
        if words:
            return words
    return None


def number_difference(
    result: object, expected: Tensor | float, place: str
) -> str | None:
    """`difference` for a tensor or a number; a tensor () counts as a number."""
    at = f"at {place} " if place else ""
    usable = isinstance(result, Tensor)
    if not isinstance(expected, Tensor) or not expected.dim():
        # NumPy's numbers and fractions are real numbers, too.
        usable = isinstance(result, Tensor | Real)
    if not usable:
        return f"{at}{gives(result)}, wanted {describe(expected)}"
    try:
        here = as_tensor(result)
        there = as_tensor(expected)
    except (OverflowError, RuntimeError, ValueError):  # a number beyond 64 bits
        return f"{at}{gives(result)}, wanted {describe(expected)}"

    if here.shape != there.shape:
        return f"{at}the shape is {tuple(here.shape)}, wanted {tuple(there.shape)}"
    another_class = dtype_class(here) != dtype_class(there)
    if (isinstance(expected, Tensor) and another_class) or here.is_complex():
        return f"{at}the dtype is {here.dtype}, wanted {there.dtype}"

    here = here.double()
    there = there.double()
    close = torch.isclose(here, there, rtol=1e-4, atol=1e-4, equal_nan=True)
    if close.all():
        return None
    first = tuple((~close).nonzero()[0].tolist())
    if first:
        at = f"at {place}{list(first)} "
    a = here[first].item()
    b = there[first].item()
    digits = 4 if number(a) != number(b) else 7
    return f"{at}it gives {number(a, digits)}, wanted {number(b, digits)}"


def as_tensor(x: Tensor | Real) -> Tensor:
    """A number as a tensor (), and a tensor on the CPU, without its gradients."""
    if not isinstance(x, Tensor | Integral):
        x = float(x)
    return torch.as_tensor(x).detach().cpu()


def dtype_class(x: Tensor) -> str:
    """Whether a tensor holds floats, booleans or other numbers, of whatever width."""
    if x.is_floating_point():
        return "float"
    if x.dtype == torch.bool:
        return "boolean"
    return "other"


def inputs(use: Callable, answer: Callable, case: tuple) -> str:
    """A case in words, by the names that the answer, or `use`, gives its parameters."""
    function = answer if use is call else partial(use, answer)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = []
    by_place = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    names = [p.name for p in parameters if p.kind in by_place]

    parts = []
    for name, x in zip_longest(names[: len(case)], case, fillvalue=""):
        large = isinstance(x, Tensor) and (x.dim() > 1 or x.numel() > 6)
        value = str(tuple(x.shape)) if large else describe(x)
        if not name:
            parts.append(value)
        elif large:
            parts.append(f"{name} {value}")
        else:
            parts.append(f"{name} = {value}")
    return ", ".join(parts)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """A normal tensor that is the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
