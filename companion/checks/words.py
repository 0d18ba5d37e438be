"""Numbers, tensors and lists, in short."""

import reprlib
from numbers import Real
from types import FunctionType

from torch import Tensor


def number(x: float, digits: int = 4) -> str:
    """A number as one would write it."""
    return f"{x:.{digits}g}" if abs(x) < 10_000 else f"{x:.10g}"


def describe(x) -> str:
    """A tensor by its shape, or by its values where they are few; anything in short."""
    if isinstance(x, Tensor):
        if x.dim() > 1 or x.numel() > 6:
            kind = str(x.dtype).removeprefix("torch.")
            return f"{'an' if kind[0] == 'i' else 'a'} {kind} tensor {tuple(x.shape)}"
        inside = ", ".join(map(number, x.double().reshape(-1).tolist()))
        return f"tensor([{inside}])" if x.dim() else f"tensor({inside})"
    if isinstance(x, tuple | list) and any(
        isinstance(y, Tensor | FunctionType) for y in x
    ):
        inside = ", ".join(map(describe, x[:2])) + ", ..." * (len(x) > 2)
        return f"[{inside}]" if isinstance(x, list) else f"({inside})"
    if isinstance(x, FunctionType):
        return "…"
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    plain = isinstance(x, Real) and not isinstance(x, bool)
    return number(x) if plain else short.repr(x)
