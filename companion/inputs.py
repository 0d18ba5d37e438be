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
def dims_of(pattern: str) -> tuple[int, float]:
    """How many axes "b t c" has, or "... c", at least and at most."""
    n = len(pattern.replace("...", "").split())
    return n, math.inf if "..." in pattern else n


def check_tensor(kind: str, pattern: str, /, **tensors) -> None:
    """Each must be a tensor of one of KINDS, with axes as in "b t c" or "... c"."""
    (least, most), fits = dims_of(pattern), KINDS[kind]
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or not fits(x) or not least <= x.dim() <= most:
            raise ValueError(f"{name} is {given(x)}; it must be {kind} ({pattern})")


def check_features(x: Tensor, d: int) -> None:
    """x must be floats (... d), as many features as the layer has."""
    fits = isinstance(x, Tensor) and x.is_floating_point()
    if not fits or not x.dim() or x.size(-1) != d:
        raise ValueError(f"x is {given(x)}; it must be floats (... {d})")


def check_mask(mask: Tensor | None, t: int, s: int) -> None:
    """A mask must be bool and fit (t s)."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise ValueError(f"mask is {given(mask)}; it must be bool, True = may attend")
    if mask.dim() < 2 or mask.shape[-2] not in (1, t) or mask.shape[-1] not in (1, s):
        raise ValueError(
            f"mask {tuple(mask.shape)} does not fit {t} queries and {s} keys"
        )


def check_broadcast(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    """x must fit a tensor of this shape: each axis of its size, 1, or left out."""
    pairs = zip(x.shape[::-1], shape[::-1], strict=False)
    if x.dim() > len(shape) or any(n not in (1, size) for n, size in pairs):
        raise ValueError(f"{name} {tuple(x.shape)} does not fit scores {shape}")


def check_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor | None,
    mask: Tensor | None,
    bias: Tensor | None,
) -> None:
    """Sizes and dtypes must fit: (b h t d), (b h s d) twice, (b h t s) for the rest."""
    check_tensor("floats", "... t d", queries=queries)
    check_tensor("floats", "... s d", keys=keys)
    (*ours, t, d), (*theirs, s, d_keys) = queries.shape, keys.shape
    if d != d_keys:
        raise ValueError(f"queries have {d} features and keys {d_keys}")
    if theirs != ours and not (theirs[:1] == [1] and theirs[1:] == ours[1:]):
        raise ValueError(
            f"queries are {tuple(ours)} (batch, heads) and keys {tuple(theirs)}: they"
            " must agree, or the keys be one batch for all"
        )
    if queries.dtype != keys.dtype:
        raise ValueError(f"queries are {queries.dtype} and keys {keys.dtype}")
    if values is not None:
        check_values(keys, values)
    check_mask(mask, t, s)
    if mask is not None:
        check_broadcast("mask", mask, (*ours, t, s))
    if bias is not None:
        check_tensor("floats", "...", bias=bias)
        check_broadcast("bias", bias, (*ours, t, s))


def check_values(keys: Tensor, values: Tensor) -> None:
    """There must be one value for each key, of its dtype unless autocast mends that."""
    check_tensor("floats", "... s d", values=values)
    (*axes, _), (*others, _) = keys.shape, values.shape
    if axes != others:
        raise ValueError(
            f"keys {tuple(keys.shape)} and values {tuple(values.shape)} differ:"
            f" {keys.shape[-2]} keys have {values.shape[-2]} values"
        )
    mixed = values.dtype != keys.dtype
    if mixed and not torch.is_autocast_enabled(keys.device.type):
        raise ValueError(f"keys are {keys.dtype} and values {values.dtype}")
