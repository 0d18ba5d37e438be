"""What comes of an answer: a result, or a Mistake that says how it has ended."""

import copy
import dis
import inspect
from collections.abc import Callable
from functools import partial
from traceback import walk_tb
from types import FrameType

import torch
from torch import Tensor

from .effects import contained
from .mistakes import Effect, Mistake, Stop, Unusable
from .words import TooMany, listed, unreadable


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
        if is_changed(before, after):
            return Effect("the function changes its input: work on a copy")
    return result


def is_changed(before: object, after: object) -> bool:
    """Whether tensors or numbers, or what holds them, have changed, to the bit.

    What else a case may hold, as a model that is to learn, isn't looked at.
    """
    if type(before) is not type(after):
        return True
    if isinstance(before, Tensor):
        return not is_same_tensor(before, after)
    if isinstance(before, dict):
        if before.keys() != after.keys():
            return True
        return any(is_changed(before[key], after[key]) for key in before)
    if isinstance(before, list | tuple):
        if len(before) != len(after):
            return True
        return any(is_changed(*pair) for pair in zip(before, after, strict=True))
    if isinstance(before, float):
        return before.hex() != after.hex()  # one NaN is as good as another
    if isinstance(before, int | str | bytes | set):
        return before != after
    return False


def is_same_tensor(before: Tensor, after: Tensor) -> bool:
    """Whether two tensors are the same to the bit; one NaN is as good as another."""
    for part in ("dtype", "device", "shape"):
        if getattr(before, part) != getattr(after, part):
            return False
    if not before.is_floating_point():
        return torch.equal(before, after)
    are_nan = before.isnan() & after.isnan()
    are_same = (before == after) & (before.signbit() == after.signbit())
    return bool((are_same | are_nan).all())


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
