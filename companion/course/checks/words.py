"""Numbers, tensors and lists, in short."""

import math
import re
import reprlib
from collections.abc import Iterator, MappingView, Sequence
from itertools import islice
from numbers import Real
from types import FunctionType

import torch
from torch import Tensor

MOST = 10_000  # things in an answer


def listed(x: object, depth: int = 4) -> object:
    """Makes a list of whatever gives things in order: a generator, a `range`, ...

    A NumPy array becomes a list of numbers or texts; a tensor stays as it is. Raises
    TooMany for more than MOST things.
    """
    if hasattr(x, "tolist") and not isinstance(x, Tensor):
        return x.tolist()

    is_plain = isinstance(x, list | tuple | str | bytes | bytearray)
    in_order = isinstance(x, Iterator | Sequence | MappingView)
    if is_plain or not in_order or not depth:
        return x

    parts = list(islice(x, MOST + 1))
    if len(parts) > MOST:
        raise TooMany(parts)
    return [listed(part, depth - 1) for part in parts]


class TooMany(Exception):
    """A sequence that never ends, or is far too long for an answer."""

    def __init__(self, parts: list):
        first = describe(parts[:3])[:-1]
        super().__init__(f"{first}, ...], more than {MOST:,} things")


def unreadable(x: object, depth: int = 4) -> str | None:
    """Says what x is, if its numbers can't be read; None if they can."""
    if isinstance(x, Tensor):
        if x.is_meta:
            return "a tensor on the device `meta`, where there are no numbers"
        if x.is_nested:
            return "a nested tensor: cut it with `unbind`"
        if x.layout is not torch.strided:
            return "a sparse tensor: make it dense with `to_dense`"
        if x.is_quantized:
            return "a quantized tensor: make it float with `dequantize`"

    if isinstance(x, list | tuple) and depth:
        for part in x[:MOST]:
            words = unreadable(part, depth - 1)
            if words:
                return words
    return None


def number(x: float, digits: int = 4) -> str:
    """Writes a number as a person would."""
    try:
        if abs(x) < 10_000:
            return f"{x:.{digits}g}"
        return f"{x:.{max(digits, 10)}g}"
    except OverflowError:  # a whole number beyond all floats
        power = round(math.log10(abs(int(x))))
        sign = "-" if x < 0 else ""
        return f"about {sign}10^{power}"


def describe(x: object, depth: int = 4) -> str:
    """Describes anything in short; a tensor by its shape, or by its few values."""
    if isinstance(x, Tensor):
        return tensor_in_short(x)
    if isinstance(x, tuple | list) and depth:
        if any(isinstance(part, Tensor | FunctionType) for part in x):
            return parts_in_short(x, depth - 1)
    if isinstance(x, FunctionType):
        return "…"
    if isinstance(x, Real) and not isinstance(x, bool):
        return number(x)

    short = reprlib.Repr()
    short.maxstring = 60
    short.maxother = 60
    try:
        text = re.sub(r"\s*\n\s*", " ", short.repr(x))
    except Exception:  # such as a list of numbers with thousands of digits
        return f"a {type(x).__name__}"
    if len(text) > 200:
        return f"{text[:200]}..."
    return text


def tensor_in_short(x: Tensor) -> str:
    """A tensor's dtype and shape, or its values where they are few."""
    if x.dim() > 1 or x.numel() > 6 or unreadable(x):
        dtype = str(x.dtype).removeprefix("torch.")
        article = "an" if dtype.startswith("i") else "a"
        return f"{article} {dtype} tensor {tuple(x.shape)}"

    write = str if x.is_complex() else number
    inside = ", ".join(write(value) for value in x.reshape(-1).tolist())
    if x.dim():
        return f"tensor([{inside}])"
    return f"tensor({inside})"


def parts_in_short(x: list | tuple, depth: int) -> str:
    """The first two parts of a list or a tuple."""
    inside = ", ".join(describe(part, depth) for part in x[:2])
    if len(x) > 2:
        inside += ", ..."
    if isinstance(x, list):
        return f"[{inside}]"
    return f"({inside})"


def gives(x: object) -> str:
    """What an answer gives, in short."""
    if isinstance(x, FunctionType):
        return "it gives a function"
    return f"it gives {describe(x)}"
