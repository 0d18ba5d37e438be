"""Inputs: what the package's functions say of what they can't use.

Each check raises a ValueError that says what was given and what is wanted.
"""

import math
import reprlib
from collections.abc import Callable
from functools import cache
from numbers import Integral, Real

import torch
from torch import Tensor

KINDS: dict[str, Callable[[Tensor], bool]] = {
    "floats": Tensor.is_floating_point,
    "integers": lambda x: x.dtype in (torch.int64, torch.int32),
    "booleans": lambda x: x.dtype == torch.bool,
    "floats or bytes": lambda x: x.is_floating_point() or x.dtype == torch.int8,
}
SHORT = reprlib.Repr()
SHORT.maxlevel, SHORT.maxlist, SHORT.maxdict, SHORT.maxother = 2, 3, 3, 60


def given(x) -> str:
    """What somebody gave, in short: a tensor by dtype and shape, the rest by value."""
    if isinstance(x, Tensor):
        return f"{x.dtype} of shape {tuple(x.shape)}"
    return SHORT.repr(x)


def check_whole(least: int = 1, **sizes) -> None:
    """Each must be a whole number, `least` or more."""
    for name, size in sizes.items():
        whole = isinstance(size, Integral) and not isinstance(size, bool)
        if not whole or size < least:
            raise ValueError(
                f"{name} is {given(size)}; it must be {least} or more, a whole number"
            )


def check_between(
    low: float, high: float = math.inf, *, above: bool = False, **numbers
) -> None:
    """Each must be a number from `low`, or above it, to `high`."""
    for name, x in numbers.items():
        real = isinstance(x, Real) and not isinstance(x, bool)
        if not real or not low <= x <= high or (above and x == low):
            least = f"above {low}" if above else f"{low} or more"
            most = "" if high == math.inf else f" and at most {high}"
            raise ValueError(f"{name} is {given(x)}; it must be {least}{most}")


def check_text(**texts) -> None:
    """Each must be a string."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{name} is {given(text)}; it must be text, a string")


def check_name(known, **names) -> None:
    """Each must be one of the `known` names."""
    for name, value in names.items():
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name} is {given(value)}, not in {[*known]}")


@cache
def axes_of(pattern: str) -> tuple[tuple[str, ...], bool]:
    """The letters of "b t c" or "... c", and whether any axes may stand before."""
    letters = tuple(pattern.split())
    return (letters[1:], True) if letters[:1] == ("...",) else (letters, False)


def check_tensor(kind: str, pattern: str, /, **tensors) -> None:
    """Each must be a tensor of one of KINDS, with axes as in "b t c" or "... c"."""
    letters, more = axes_of(pattern)
    for name, x in tensors.items():
        fits = isinstance(x, Tensor) and KINDS[kind](x)
        if not fits or x.dim() < len(letters) or (x.dim() > len(letters) and not more):
            raise ValueError(f"{name} is {given(x)}; it must be {kind} ({pattern})")


def check_features(x: Tensor, d: int) -> None:
    """x must be floats (... d), as many features as the layer has."""
    if not isinstance(x, Tensor) or x.shape[-1:] != (d,) or not x.is_floating_point():
        raise ValueError(f"x is {given(x)}; it must be floats (... {d})")
