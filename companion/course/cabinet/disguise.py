"""Machines that can't be told apart by their names: asking them is all that helps.

Chapter 16.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType

from . import machine as cabinet
from .machine import Attention, Block, Cache, Machine, RMSNorm, SmallGPT


def subclassed(part: type, **parts: type) -> type:
    """Returns a part of the right machine as if it had a fault: all methods anew."""
    methods = {
        name: copied(method)
        for name, method in vars(part).items()
        if isinstance(method, FunctionType) and not name.startswith("__")
    }
    return type(part.__name__, (part,), {**methods, **parts})


def copied(function: FunctionType) -> FunctionType:
    """Returns a function that does the same, and is another object."""
    twin = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    twin.__doc__ = function.__doc__
    twin.__dict__.update(function.__dict__)
    return twin


def right_in_disguise() -> type[Machine]:
    """Returns a machine without a fault, every part of which is a class of its own."""
    block = subclassed(
        Block, attention_class=subclassed(Attention), norm_class=subclassed(RMSNorm)
    )
    return subclassed(
        Machine,
        model_class=subclassed(SmallGPT, block_class=block),
        cache_class=subclassed(Cache),
    )


def classes_of(machine: Machine) -> list[type]:
    """Returns the classes of a machine and its parts that aren't the right one's."""
    parts = [type(machine), machine.model_class, machine.cache_class]
    block = getattr(machine.model_class, "block_class", None)
    for name in ("attention_class", "norm_class"):
        parts.append(getattr(block, name, None))
    parts.append(block)

    classes = []
    for part in parts:
        for one in getattr(part, "__mro__", ()):
            if original_of(one) not in (None, one) and one not in classes:
                classes.append(one)
    return classes


def original_of(part: type) -> type | None:
    """Returns the right machine's class that a part is, or is made from, or None."""
    originals = [one for one in part.__mro__ if one in vars(cabinet).values()]
    return originals[0] if originals else None


@contextmanager
def disguised(machine: Machine) -> Iterator[None]:
    """Gives a machine's parts, within, the names and words of the right machine's.

    That is the name, module and docstring of its classes and of their methods, and the
    place in a file where `inspect.getsource` looks for them.
    """
    before = []

    def put(thing: object, name: str, value: object) -> None:
        before.append((thing, name, getattr(thing, name)))
        setattr(thing, name, value)

    try:
        for part in classes_of(machine):
            original = original_of(part)
            for name, method in vars(part).items():
                right = getattr(original, name, None)
                if isinstance(method, FunctionType) and isinstance(right, FunctionType):
                    put_names(put, method, right)
            for name in ("__name__", "__qualname__", "__module__", "__doc__"):
                put(part, name, getattr(original, name))
            if "__firstlineno__" in vars(part):  # Python 3.13's way to the source
                put(part, "__firstlineno__", original.__firstlineno__)
        yield
    finally:
        for thing, name, value in reversed(before):
            setattr(thing, name, value)


def put_names(put: Callable, method: FunctionType, right: FunctionType) -> None:
    """Puts a right method's names and place on another, and on what it wraps."""
    for function in {method, inspect.unwrap(method)}:
        for name in ("__qualname__", "__module__", "__doc__"):
            put(function, name, getattr(right, name))

    place = inspect.unwrap(right).__code__
    function = inspect.unwrap(method)
    code = function.__code__.replace(
        co_filename=place.co_filename,
        co_firstlineno=place.co_firstlineno,
        co_name=place.co_name,
        co_qualname=place.co_qualname,
    )
    put(function, "__code__", code)
