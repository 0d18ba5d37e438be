"""What all checks share: an answer is held against the right one, then explained."""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import zip_longest

import torch
from torch import Tensor

from .differences import safe_difference
from .mistakes import Mistake, Stop, Unusable
from .outcomes import recorded, run_answer
from .words import describe, listed


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

    @cached_property
    def rights(self) -> list[tuple[object, list]]:
        """What `right_outcome` gives for each case, computed once."""
        return [right_outcome(self, case) for case in self.cases]


def ways_of(right: Callable) -> Callable[..., Callable]:
    """Returns `way`: `way(part=other)` is the right way with that part changed."""

    def way(**parts: object) -> Callable:
        return partial(right, **parts)

    return way


def check(function: Callable[[], Exercise]) -> Callable[[Callable], None]:
    """Makes a check of what gives an exercise; called with an answer, it compares.

    Of `def one_query() -> Exercise` it makes `one_query(answer) -> None`, which prints
    the praise or raises a Mistake; the docstring stays, and tells how an answer is
    called. The exercise is made once, and stays at hand: `one_query.exercise()`.
    """
    exercise = cache(function)

    def compared(answer: Callable) -> None:
        compare(function.__name__, answer, exercise())

    # Not by `wraps`: its parameters are those of a check.
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(compared, name, getattr(function, name))
    compared.exercise = exercise
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

        expected = [wanted for wanted, _ in exercise.rights]
        pairs = zip(outcomes, exercise.rights, strict=True)
        outcomes = [usable_or_mistake(x, results) for x, (_, results) in pairs]

        faults = faults_of(outcomes, expected)
        if not any(faults):
            print(f"✓ {name}: {exercise.praise}")
            return
        words = explanation(exercise, outcomes, faults)

    # No mistake explains it: say what is off, and for which input if that helps.
    if not words:
        i, words = next((i, fault) for i, fault in enumerate(faults) if fault)
        if not exercise.is_hidden and (i > 0 or has_example(outcomes[i])):
            shown = case_in_words(exercise.use, answer, exercise.cases[i])
            words = f"for {shown}: {words}"
    raise Mistake(f"{name}: {words}")


def usable_or_mistake(outcome: object, right_results: list) -> object:
    """Returns an outcome, or the mistake in place of what nothing can be made of."""
    if not isinstance(outcome, Unusable):
        return outcome
    return Mistake(f"{outcome}, wanted {describe(right_results[0])}")


def right_outcome(exercise: Exercise, case: tuple) -> tuple[object, list]:
    """What is wanted on a case, and the right way's own results, of which it is made.

    They are two things where `use` makes something of what a function gives.
    """
    results = []
    recording = recorded(exercise.right, results)
    return listed(exercise.use(recording, *copy.deepcopy(case))), results


def faults_of(outcomes: list, expected: list) -> list[str | None]:
    """What is wrong with each outcome, in words, or None."""
    pairs = zip(outcomes, expected, strict=True)
    return [safe_difference(outcome, wanted) for outcome, wanted in pairs]


def has_example(outcome: object) -> bool:
    """Whether it helps to know for which input it came out so."""
    return not isinstance(outcome, Mistake) or outcome.has_example


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


def case_in_words(use: Callable, answer: Callable, case: tuple) -> str:
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
        sign = " " if large else " = "
        parts.append(f"{name}{sign}{value}" if name else value)
    return ", ".join(parts)


def identity(x: object) -> object:
    """Gives back what it is given: a part of a right way that does nothing."""
    return x


def draw(*shape: int, seed: int = 0) -> Tensor:
    """A normal tensor that is the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
