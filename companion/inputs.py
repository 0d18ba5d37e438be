"""Inputs: what the public functions say of what they can't use.

Each check raises a ValueError that says what was given and what is wanted. They stand
where a reader calls by himself and at the model's door, never inside the blocks.
"""

import math
import reprlib
from numbers import Integral, Real

from torch import Tensor, int32, int64


class Short(reprlib.Repr):
    """What is long is cut, and whole numbers that Python doesn't write are counted."""

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 10_000:
            return f"<a whole number of {x.bit_length():,} bits>"
        return super().repr_int(x, level)


SHORT = Short()
SHORT.maxlevel, SHORT.maxlist, SHORT.maxdict, SHORT.maxother = 2, 3, 3, 60


def shown(x) -> str:
    """What somebody gave, in short: a tensor by dtype and shape, the rest by value."""
    if isinstance(x, Tensor):
        return f"{x.dtype} of shape {tuple(x.shape)}"
    return SHORT.repr(x)


def check_whole(least: int = 1, **sizes) -> None:
    """Each must be a whole number, `least` or more."""
    for name, size in sizes.items():
        whole = isinstance(size, Integral) and not isinstance(size, bool)
        if not whole or size < least:
            wanted = f"it must be {least} or more, a whole number"
            raise ValueError(f"{name} is {shown(size)}; {wanted}")


def check_between(low: float, high=math.inf, *, above=False, **numbers) -> None:
    """Each must be a number from `low`, or above it, to `high`."""
    for name, x in numbers.items():
        real = isinstance(x, Real) and not isinstance(x, bool)
        if not real or not low <= x <= high or (above and x == low):
            least = f"above {low}" if above else f"{low} or more"
            most = "" if high == math.inf else f" and at most {high}"
            raise ValueError(f"{name} is {shown(x)}; it must be {least}{most}")


def check_name(known, **names) -> None:
    """Each must be one of the `known` names."""
    for name, value in names.items():
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name} is {shown(value)}, not in {[*known]}")


def check_tensor(kind: str, pattern: str, /, **tensors) -> None:
    """Each must be a tensor of "floats" or "integers", with axes as in "b t c".

    A pattern that begins with "..." allows any number of axes before the others.
    """
    n, open_ended = len(pattern.replace("...", "").split()), "..." in pattern
    for name, x in tensors.items():
        if isinstance(x, Tensor) and (x.dim() == n or (open_ended and x.dim() > n)):
            if x.is_floating_point() if kind == "floats" else x.dtype in (int64, int32):
                continue
        raise ValueError(f"{name} is {shown(x)}; it must be {kind} ({pattern})")
