"""How a result differs from the right one, in words."""

from numbers import Integral, Real

import torch
from torch import Tensor

from .mistakes import Mistake
from .words import describe, gives, number


def safe_difference(result: object, expected: object) -> str | None:
    """`difference`, which says something even of results that can't be compared."""
    try:
        return difference(result, expected)
    except Exception:
        return f"{gives(result)}, wanted {describe(expected)}"


def difference(result: object, expected: object, place: str = "") -> str | None:
    """Says how a result differs from the expected one; None if it doesn't.

    Floats are compared to 1e-4, as `same_numbers` does it: a thousand times float32's
    rounding, and below what a mistake changes. Whole numbers are the same or not.
    `place` is where both stand within a larger result.
    """
    at = f"at {place} " if place else ""
    if isinstance(result, Mistake):
        is_same = getattr(expected, "identity", None) == result.identity
        return None if is_same else str(result)
    if result is None and expected is not None:
        return f"{at}nothing is returned: is there a `return`?"
    if isinstance(expected, Tensor | int | float):
        return number_difference(result, expected, place)
    if isinstance(expected, dict):
        return dict_difference(result, expected, place)
    if isinstance(expected, list | tuple):
        return list_difference(result, expected, place)
    if not isinstance(result, type(expected)) or result != expected:
        return f"{at}{gives(result)}, wanted {describe(expected)}"
    return None


def dict_difference(result: object, expected: dict, place: str) -> str | None:
    """`difference` for a dictionary, which must have the same keys."""
    at = f"at {place} " if place else ""
    if not isinstance(result, dict):
        return f"{at}{gives(result)}, wanted {describe(expected)}"
    for key in expected:
        if key not in result:
            return f"{at}it gives nothing for {key!r}"
        words = difference(result[key], expected[key], str(key))
        if words:
            return words
    for key in result:
        if key not in expected:
            return f"{at}it also gives {key!r}, which isn't asked for"
    return None


def list_difference(result: object, expected: list | tuple, place: str) -> str | None:
    """`difference` for a list; the result may also be a tensor or an array."""
    at = f"at {place} " if place else ""
    if any(isinstance(part, Tensor) for part in expected):
        is_tensor = isinstance(result, Tensor) and result.dim()
        if is_tensor and len(result) == len(expected):
            result = list(result)
    elif hasattr(result, "tolist"):
        result = result.tolist()

    if not isinstance(result, list | tuple):
        return f"{at}{gives(result)}, wanted {describe(expected)}"
    if len(result) != len(expected):
        lengths = f"{len(result)} things, wanted {len(expected)}"
        return f"{at}{gives(result)}, {lengths}: {describe(expected)}"

    for i, (part, expected_part) in enumerate(zip(result, expected, strict=True)):
        words = difference(part, expected_part, f"{place}[{i}]")
        if words:
            return words
    return None


def number_difference(
    result: object, expected: Tensor | float, place: str
) -> str | None:
    """`difference` for a tensor or a number; a tensor () counts as a number."""
    at = f"at {place} " if place else ""
    usable = isinstance(result, Tensor)
    if not isinstance(expected, Tensor) or not expected.dim():
        # NumPy's numbers and fractions are real numbers, too.
        usable = isinstance(result, Tensor | Real)
    if not usable:
        return f"{at}{gives(result)}, wanted {describe(expected)}"
    try:
        here = as_tensor(result)
        there = as_tensor(expected)
    except (OverflowError, RuntimeError, ValueError):  # a number beyond 64 bits
        return f"{at}{gives(result)}, wanted {describe(expected)}"

    if here.shape != there.shape:
        return f"{at}the shape is {tuple(here.shape)}, wanted {tuple(there.shape)}"
    another_class = dtype_class(here) != dtype_class(there)
    if (isinstance(expected, Tensor) and another_class) or here.is_complex():
        return f"{at}the dtype is {here.dtype}, wanted {there.dtype}"

    same = same_numbers(here, there)
    if same.all():
        return None
    first = tuple((~same).nonzero()[0].tolist())
    if first:
        at = f"at {place}{list(first)} "
    if isinstance(result, bool) and isinstance(expected, bool):
        return f"{at}it gives {result}, wanted {expected}"
    a, b = told_apart(here[first].item(), there[first].item())
    return f"{at}it gives {a}, wanted {b}"


def as_tensor(x: Tensor | Real) -> Tensor:
    """A number as a tensor (), and a tensor on the CPU, without its gradients."""
    if not isinstance(x, Tensor | Integral):
        return torch.tensor(float(x), dtype=torch.float64)
    return torch.as_tensor(x).detach().cpu()


def same_numbers(here: Tensor, there: Tensor, atol: float = 1e-4) -> Tensor:
    """Where two tensors of one shape hold the same numbers. Returns booleans.

    Floats may differ by 1e-4 of the one `there` plus `atol`. Beside whole numbers they
    may by their own rounding alone, and whole numbers by nothing.
    """
    if not here.is_floating_point() and not there.is_floating_point():
        return here.long() == there.long()
    rtol = 1e-4
    if not there.is_floating_point():
        # A quotient that is whole on paper is off by some roundings.
        rtol = min(rtol, max(1e-9, 4 * torch.finfo(here.dtype).eps))
        atol = rtol
    return torch.isclose(
        here.double(), there.double(), rtol=rtol, atol=atol, equal_nan=True
    )


def told_apart(a: float, b: float) -> tuple[str, str]:
    """Writes two numbers that differ, with as few digits as show it."""
    for digits in (4, 7, 17):
        if number(a, digits) != number(b, digits):
            return number(a, digits), number(b, digits)
    return str(a), str(b)


def dtype_class(x: Tensor) -> str:
    """Whether a tensor holds floats, booleans or other numbers, of whatever width."""
    if x.is_floating_point():
        return "float"
    if x.dtype == torch.bool:
        return "boolean"
    return "other"
