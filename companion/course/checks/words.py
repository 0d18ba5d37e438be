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


def listed(x, depth: int = 4):
    """A list in place of whatever gives things in order: a generator, a `range`, ...

    An array of NumPy's becomes one of numbers or of texts; a tensor stays.
    """
    if hasattr(x, "tolist") and not isinstance(x, Tensor):
        return x.tolist()
    is_plain = isinstance(x, list | tuple | str | bytes | bytearray)
    if is_plain or not isinstance(x, Iterator | Sequence | MappingView) or not depth:
        return x
    parts = [*islice(x, MOST + 1)]
    if len(parts) > MOST:
        raise TooMany(parts)
    return [listed(part, depth - 1) for part in parts]


class TooMany(Exception):
    """What never ends, or as good as never."""

    def __init__(self, parts: list):
        first = describe(parts[:3])[:-1]
        super().__init__(f"{first}, ...], more than {MOST:,} things")


def unreadable(x, depth: int = 4) -> str | None:
    """What it is of which the numbers can't be read, in words, or None."""
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
        parts = (unreadable(part, depth - 1) for part in x[:MOST])
        return next(filter(None, parts), None)
    return None


def number(x: float, digits: int = 4) -> str:
    """A number as one would write it."""
    try:
        return f"{x:.{digits}g}" if abs(x) < 10_000 else f"{x:.10g}"
    except OverflowError:  # a whole number beyond all floats
        power = round(math.log10(abs(int(x))))
        return f"about {'-' if x < 0 else ''}10^{power}"


def describe(x, depth: int = 4) -> str:
    """A tensor by its shape, or by its values where they are few; anything in short."""
    if isinstance(x, Tensor):
        if x.dim() > 1 or x.numel() > 6 or unreadable(x):
            kind = str(x.dtype).removeprefix("torch.")
            return f"{'an' if kind[0] == 'i' else 'a'} {kind} tensor {tuple(x.shape)}"
        inside = ", ".join(
            map(str if x.is_complex() else number, x.reshape(-1).tolist())
        )
        return f"tensor([{inside}])" if x.dim() else f"tensor({inside})"
    if (
        isinstance(x, tuple | list)
        and depth
        and any(isinstance(y, Tensor | FunctionType) for y in x)
    ):
        inside = ", ".join(describe(y, depth - 1) for y in x[:2])
        inside += ", ..." * (len(x) > 2)
        return f"[{inside}]" if isinstance(x, list) else f"({inside})"
    if isinstance(x, FunctionType):
        return "…"
    if isinstance(x, Real) and not isinstance(x, bool):
        return number(x)
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    try:
        text = re.sub(r"\s*\n\s*", " ", short.repr(x))
    except Exception:  # such as a list of numbers with thousands of digits
        return f"a {type(x).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}..."


def gives(x) -> str:
    """What an answer gives, in short."""
    called = "a function" if isinstance(x, FunctionType) else describe(x)
    return f"it gives {called}"
