"""Inputs: what the public functions say of what they can't use.

Each check raises a ValueError that says what was given and what is allowed. Checks
stand in the functions that a reader calls by himself and at the model's door, never
inside the blocks.
"""

import math
import reprlib
from collections.abc import Collection
from numbers import Integral, Real

from torch import Tensor, int32, int64


class Short(reprlib.Repr):
    """Writes values in short: what is long is cut."""

    def __init__(self):
        super().__init__()
        self.maxlevel = 2
        self.maxlist = 3
        self.maxdict = 3
        self.maxother = 60

    def repr_int(self, x: int, level: int) -> str:
        """Returns the digits, or where Python refuses to write so many, their bits."""
        if x.bit_length() > 10_000:
            return f"<a whole number of {x.bit_length():,} bits>"
        return super().repr_int(x, level)


SHORT = Short()


def shown(x: object) -> str:
    """Returns x in short: a tensor's dtype and shape, anything else by its value."""
    if isinstance(x, Tensor):
        return f"{x.dtype} of shape {tuple(x.shape)}"
    return SHORT.repr(x)


def check_whole(least: int = 1, **sizes: object) -> None:
    """Raises ValueError unless each is a whole number, `least` or more."""
    for name, size in sizes.items():
        is_whole = isinstance(size, Integral) and not isinstance(size, bool)
        if not is_whole or size < least:
            raise ValueError(
                f"{name} is {shown(size)}; it must be {least} or more, a whole number"
            )


def check_between(
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    finite: bool = False,
    **numbers: object,
) -> None:
    """Raises ValueError unless each is a number from `low` to `high`.

    `above`: it must be greater than `low`; `finite`: less than infinity.
    """
    for name, x in numbers.items():
        is_number = isinstance(x, Real) and not isinstance(x, bool)
        is_inside = is_number and low <= x <= high
        if is_inside and not (above and x == low) and not (finite and x == math.inf):
            continue
        limits = f"above {low}" if above else f"{low} or more"
        if high != math.inf:
            limits = f"{limits} and at most {high}"
        if finite:
            limits = f"{limits}, and finite"
        raise ValueError(f"{name} is {shown(x)}; it must be {limits}")


def check_finite(way_out: str = "", /, **tensors: Tensor) -> None:
    """Raises ValueError where one holds NaN or an infinity; names the first place.

    `way_out` says what can be done about it. A tensor on the `meta` device has no
    numbers, and isn't looked at.
    """
    for name, x in tensors.items():
        if x.is_meta or x.isfinite().all():
            continue
        place = (~x.isfinite()).nonzero()[0].tolist()
        where = f"{name}{place}" if place else name
        wrong = x[tuple(place)].item()
        raise ValueError(f"{where} is {wrong}; it must be finite{way_out}")


def check_bool(**settings: object) -> None:
    """Raises ValueError unless each is True or False; a text would count as True."""
    for name, x in settings.items():
        if not isinstance(x, bool):
            raise ValueError(f"{name} is {shown(x)}; it must be True or False")


def check_name(known: Collection[str], /, **names: object) -> None:
    """Raises ValueError unless each is one of the `known` names."""
    for name, value in names.items():
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name} is {shown(value)}, not in {[*known]}")


def check_in_vocabulary(d_vocab: int, /, **tokens: Tensor) -> None:
    """Raises ValueError where one holds a token that is not from 0 to `d_vocab` - 1.

    To look at the numbers of an accelerator is to wait for it: there it is for what has
    failed already, or waits anyway.
    """
    for name, x in tokens.items():
        if not x.numel():
            continue
        lowest = int(x.min())
        highest = int(x.max())
        if lowest < 0 or highest >= d_vocab:
            raise ValueError(
                f"{name} run from {lowest} to {highest}; the vocabulary is 0 to"
                f" {d_vocab - 1}"
            )


def check_tensor(numbers: str, pattern: str, /, **tensors: object) -> None:
    """Raises ValueError unless each is a tensor of "floats" or of "integers".

    Its axes are as many as the pattern names, such as "b t c". A pattern that begins
    with "..." allows any number of axes before the others. Integers are of 32 or 64
    bits, with which PyTorch indexes an embedding.
    """
    for name, x in tensors.items():
        if not fits(x, numbers, pattern):
            raise ValueError(f"{name} is {shown(x)}; it must be {numbers} ({pattern})")


def fits(x: object, numbers: str, pattern: str) -> bool:
    """Returns whether x is a tensor of such numbers, with the axes of the pattern."""
    if not isinstance(x, Tensor):
        return False
    if numbers == "floats" and not x.is_floating_point():
        return False
    if numbers == "integers" and x.dtype not in (int64, int32):
        return False

    n_axes = len(pattern.removeprefix("...").split())
    if pattern.startswith("..."):
        return x.dim() >= n_axes
    return x.dim() == n_axes
