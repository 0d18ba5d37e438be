"""What all checks share: an answer is held against the right one, then explained."""

import copy
import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import zip_longest
from numbers import Integral, Real
from traceback import walk_tb

import torch
from torch import Tensor

from .effects import contained
from .words import TooMany, describe, gives, listed, number, unreadable


class Mistake(AssertionError):
    """A wrong answer, shown in a notebook as its one line, without a traceback.

    Two are the same mistake if they are of one `kind`, by default of the same words.
    """

    has_example = True  # whether it helps to know for which input

    def __init__(self, words: str, kind: object = None):
        super().__init__(words)
        self.kind = kind or words

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
        super().__init__(
            f"it stops with {name}: {self.message}".strip(" .:"),
            (type(error), sorted(self.message.split())),
        )
        self.has_example = not self.explains_itself()

    def explains_itself(self) -> bool:
        """Whether its own words are the best: a slip of the pen, and no mistake."""
        slips = NameError | ImportError | AttributeError | SyntaxError
        wrong_call = isinstance(self.error, TypeError) and "argument" in self.message
        return isinstance(self.error, slips) or wrong_call


class Unusable(Mistake):
    """What an answer gave, where the check's own arithmetic could not use it."""

    def __init__(self, given):
        super().__init__(gives(given))


class Effect(Mistake):
    """What an answer does beside giving a result."""

    has_example = False


class stops:
    """A mistake that ends in an error of a class, with some words in its message.

    It explains an answer whose own code raises such an error, and that is right in
    every case where it raises none. `words` are pieces, of which one is to be there.
    """

    def __init__(self, error: type[Exception], *words: str):
        self.error = error
        self.words = words

    def explains(self, outcome: object) -> bool:
        """Whether an answer has ended in this error."""
        if not isinstance(outcome, Stop) or not outcome.own:
            return False
        said = str(outcome.error)
        fits = any(words in said for words in self.words)
        return fits and isinstance(outcome.error, self.error)


def message(error: BaseException) -> str:
    """The first line of what an error says, in short."""
    try:
        lines = str(error).strip()[:99].splitlines()
    except Exception:
        lines = []
    return lines[0].strip(" .:") if lines else ""


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
    mistakes: dict[str, Callable | stops | dict],
    praise: str,
    use: Callable = call,
) -> None:
    """Hold `answer` against `right` on every case; explain it by one of `mistakes`.

    Each has what to say of a wrong answer, and then a function that gives the same on
    every case, or stops with the same error, or options that make one of `right`, or
    the `stops` that it ends in. Any other wrong answer gets the input, the first place
    that differs, and both values. `use(function, *case)` gives what is compared, by
    default what the function gives; it may raise a Mistake. An answer whose own code
    raises NotImplementedError is still to be written. Raises Mistake; prints one line
    when all is right or nothing is there.
    """
    name = praise.partition(":")[0]
    if not callable(answer):
        raise Mistake(f"{name}: give the function itself, not {describe(answer)}")
    # Gradients are there also where a notebook has switched them off.
    with torch.enable_grad():
        try:
            found = [outcome(use, answer, case) for case in cases]
        except NotImplementedError:
            if GRADED.get():
                raise Mistake(f"{name}: yours to write") from None
            print(f"○ {name}: yours to write")
            return
        found, wrong = judged(found, right, cases, use)
        if not any(wrong):
            print(f"✓ {praise}")
            return
        words = explanation(use, right, cases, mistakes, found, wrong)
    if not words:
        place = next(i for i, words in enumerate(wrong) if words)
        words = wrong[place]
        if place or getattr(found[place], "has_example", True):
            words = f"for {inputs(use, answer, cases[place])}: {words}"
    raise Mistake(f"{name}: {words}")


def judged(
    found: list, right: Callable, cases: list[tuple], use: Callable
) -> tuple[list, list[str | None]]:
    """All that was found, and in what each is wrong, or None.

    What the check could not use is described beside what the right one gives.
    """
    outcomes = []
    wrong = []
    for ours, case in zip(found, cases, strict=True):
        given = []
        wanted = listed(use(noted(right, given), *copy.deepcopy(case)))
        if isinstance(ours, Unusable):
            ours = Mistake(f"{ours}, wanted {describe(given[0])}")
        outcomes.append(ours)
        wrong.append(unlike(ours, wanted))
    return outcomes, wrong


def noted(function: Callable, given: list) -> Callable:
    """The function, with all that it gives also in a list."""

    def giving(*arguments):
        found = function(*arguments)
        given.append(found)
        return found

    return giving


def enter(function: Callable, arguments: tuple):
    return function(*arguments)


def outcome(use: Callable, function: Callable, case: tuple):
    """What a function gives, or a Mistake where that is no result."""
    given = []  # by the function, before `use` makes something of it

    def returned(*arguments):
        effects = []
        with contained(arguments, effects):
            found = listed(enter(function, arguments))
        if found is None:
            raise Mistake("nothing is returned: is there a `return`?")
        if words := unreadable(found):
            raise Mistake(f"it gives {words}")
        if effects:
            raise Effect(f"the answer {effects[0]}")
        given.append(found)
        return found

    arguments = copy.deepcopy(case)
    try:
        found = listed(use(returned, *arguments))
    except Mistake as mistake:
        return mistake
    except TooMany as many:
        return Mistake(f"it gives {many}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if unwritten(error, function):
            raise
        if given and not in_answer(error, function):
            return Unusable(given[0])
        return Stop(error, raised_by(error, function))
    for before, after in zip(case, arguments, strict=True):
        if isinstance(before, Tensor | list | dict) and unlike(after, before):
            return Effect("the function changes its input: work on a copy")
    return found


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


def in_answer(error: BaseException, function: Callable) -> bool:
    """Whether it was the answer that was stopped, and not what a check does with it."""
    names = own_names(function)
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return any(f.f_code is enter.__code__ or f.f_globals is names for f in frames)


def raised_by(error: BaseException, function: Callable) -> bool:
    """Whether it is the function's own module or notebook that raises the error."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return frame.f_globals is own_names(function)


def unwritten(error: BaseException, function: Callable) -> bool:
    """Whether a `raise NotImplementedError` of the answer's own is still there."""
    if not isinstance(error, NotImplementedError) or not raised_by(error, function):
        return False
    last = error.__traceback__
    while last.tb_next:
        last = last.tb_next
    # PyTorch's own come out of a call, one that is written there out of a `raise`.
    return dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


def explanation(
    use: Callable,
    right: Callable,
    cases: list[tuple],
    mistakes: dict,
    found: list,
    wrong: list[str | None],
) -> str | None:
    """The words for what explains all that was `found`, or None.

    `wrong` says in what each is wrong, or None.
    """
    first = next(ours for ours, words in zip(found, wrong, strict=True) if words)
    stopped = isinstance(first, Stop)
    if stopped and first.explains_itself():
        return None
    for words, mistake in mistakes.items():
        if isinstance(mistake, stops):
            pairs = zip(found, wrong, strict=True)
            fits = all(mistake.explains(ours) for ours, off in pairs if off)
        else:
            options = isinstance(mistake, dict)
            function = partial(right, **mistake) if options else mistake
            results = (outcome(use, function, case) for case in cases)
            fits = same(found, results, wrong)
        if fits:
            return f"{first}: {words}" if stopped else words
    return None


def same(found: list, results: Iterable, wrong: list[str | None]) -> bool:
    """Whether a mistake gives the same `results` as was `found`.

    Where an answer gives wrong numbers, and the mistake the same ones, both may stop in
    other words elsewhere. Where it does nothing but stop, the words are the proof.
    """
    pairs = zip(found, wrong, strict=True)
    gives_numbers = any(off and not isinstance(ours, Stop) for ours, off in pairs)
    for ours, result in zip(found, results, strict=True):
        if gives_numbers and isinstance(ours, Stop) and isinstance(result, Stop):
            if type(ours.error) is not type(result.error):
                return False
        elif unlike(ours, result):
            return False
    return True


def unlike(ours, wanted) -> str | None:
    """`difference`, also for what can't even be compared."""
    try:
        return difference(ours, wanted)
    except Exception:
        return f"{gives(ours)}, wanted {describe(wanted)}"


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
        if isinstance(ours, Tensor) and ours.dim() and len(ours) == len(wanted):
            ours = [*ours] if any(isinstance(x, Tensor) for x in wanted) else ours
        if hasattr(ours, "tolist") and not any(isinstance(x, Tensor) for x in wanted):
            ours = ours.tolist()
        if not isinstance(ours, list | tuple):
            return f"{at}{gives(ours)}, wanted {describe(wanted)}"
        if len(ours) != len(wanted):
            lengths = f"{len(ours)} things, wanted {len(wanted)}"
            return f"{at}{gives(ours)}, {lengths}: {describe(wanted)}"
        pairs = enumerate(zip(ours, wanted, strict=True))
        parts = (difference(a, b, f"{place}[{i}]") for i, (a, b) in pairs)
        return next(filter(None, parts), None)
    if not isinstance(ours, type(wanted)) or ours != wanted:
        return f"{at}{gives(ours)}, wanted {describe(wanted)}"
    return None


def number_difference(ours, wanted: Tensor | float, place: str) -> str | None:
    """`difference` for a tensor, or for a number, of which a tensor () is one too."""
    at, tensor = f"at {place} " if place else "", isinstance(wanted, Tensor)
    # NumPy's numbers and fractions are real numbers, too.
    if not isinstance(ours, Tensor if tensor and wanted.dim() else Tensor | Real):
        return f"{at}{gives(ours)}, wanted {describe(wanted)}"
    try:
        ours = ours if isinstance(ours, Tensor | Integral) else float(ours)
        here, there = (torch.as_tensor(x).detach().cpu() for x in (ours, wanted))
    except (OverflowError, RuntimeError, ValueError):  # a number beyond 64 bits
        return f"{at}{gives(ours)}, wanted {describe(wanted)}"
    if here.shape != there.shape:
        return f"{at}the shape is {tuple(here.shape)}, wanted {tuple(there.shape)}"
    kinds = [x.is_floating_point() - (x.dtype == torch.bool) for x in (here, there)]
    if (tensor and kinds[0] != kinds[1]) or here.is_complex():
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
    by_place = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    names = [p.name for p in parameters if p.kind in by_place]
    said = []
    for name, x in zip_longest(names[: len(case)], case, fillvalue=""):
        large = isinstance(x, Tensor) and (x.dim() > 1 or x.numel() > 6)
        value = tuple(x.shape) if large else describe(x)
        said.append(f"{name} {'' if large else '= '}{value}" if name else str(value))
    return ", ".join(said)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """A normal tensor that is the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
