"""Writes down each comparison that came near its bound: for `kernels.py`.

A plugin of pytest (`-p close_calls`), which a notebook's kernel imports as well. Where
a difference is within a factor of 3 of what is tolerated, the verdict may be another
one on another processor. Each such comparison is a line of JSON in the file that the
environment's CLOSE_CALLS names. With PROCESSOR, this machine answers as another.
"""

import functools
import json
import linecache
import math
import os
import sys
import sysconfig

import torch
from elsewhere import become
from torch.testing import _comparison

FACTOR = 3
# These hold wrong answers and machines beside the right ones: their distance is none of
# roundings, so it is near only where a rounding, of a millionth, could tip the verdict.
WRONG_ON_PURPOSE = (
    "test_wrong_answers_are_explained",
    "test_a_wrong_answer_is_told_the_input_the_place_and_both_values",
    "test_an_invariant_finds_each_fault",
    "16_nothing_crashes",  # whose right machines test_cabinet.py has, too
)
LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<")


def places() -> list[str]:
    """The line that compares, and the line of the test or cell that led there."""
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path != __file__ and not path.startswith(LIBRARIES):
            source = linecache.getline(path, frame.f_lineno).strip()
            name = "cell" if "ipykernel" in path else os.path.relpath(path)
            lines.append(f"{name}:{frame.f_lineno}: {source}")
        frame = frame.f_back
    return list(dict.fromkeys([*lines[:1], *lines[-1:]]))


def write(difference: float, bound: float) -> None:
    """Append a line, if the difference is neither far below the bound nor far above."""
    if bound == 0 or not math.isfinite(difference):
        return
    ratio = difference / bound
    test = os.environ.get("NOTEBOOK") or os.environ.get("PYTEST_CURRENT_TEST", "")
    factor = 1.01 if any(name in test for name in WRONG_ON_PURPOSE) else FACTOR
    if not 1 / factor < ratio < factor:
        return
    call = {"test": test.removesuffix(" (call)"), "ratio": ratio, "places": places()}
    with open(os.environ["CLOSE_CALLS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(call | {"difference": difference, "bound": bound}) + "\n")


def write_tensors(one, other, rtol: float, atol: float) -> None:
    """The same of the entry that is nearest to its bound, or furthest beyond."""
    one = one.detach()
    other = other.detach()
    dtype = torch.promote_types(one.dtype, torch.float64)
    one = one.to(dtype)
    other = other.to(dtype)
    differences = (one - other).abs()
    bounds = atol + rtol * other.abs()
    compared = differences.isfinite() & (bounds > 0)
    if compared.any():
        differences = differences.broadcast_to(compared.shape)[compared]
        bounds = bounds.broadcast_to(compared.shape)[compared]
        i = (differences / bounds).argmax()
        write(differences[i].item(), bounds[i].item())


def watched(function):
    """isclose or allclose, that writes before it compares."""

    @functools.wraps(function)
    def compare(one, other, rtol=1e-5, atol=1e-8, equal_nan=False):
        write_tensors(one, other, rtol, atol)
        return function(one, other, rtol=rtol, atol=atol, equal_nan=equal_nan)

    return compare


def watch() -> None:
    """Watch the comparisons of PyTorch and of Python."""
    if processor := os.environ.get("PROCESSOR"):
        become(processor)
    torch.isclose = watched(torch.isclose)  # what assert_close asks of tensors, too
    torch.allclose = watched(torch.allclose)
    torch.Tensor.isclose = watched(torch.Tensor.isclose)
    torch.Tensor.allclose = watched(torch.Tensor.allclose)

    compare_numbers = _comparison.NumberPair.compare
    is_close = math.isclose

    def compare(pair):
        bound = pair.atol + pair.rtol * abs(pair.expected)
        write(abs(pair.actual - pair.expected), bound)
        return compare_numbers(pair)

    def isclose(a, b, *, rel_tol=1e-9, abs_tol=0.0):
        write(abs(a - b), max(rel_tol * max(abs(a), abs(b)), abs_tol))
        return is_close(a, b, rel_tol=rel_tol, abs_tol=abs_tol)

    _comparison.NumberPair.compare = compare
    math.isclose = isclose


def pytest_configure() -> None:
    """As a plugin: here approx is there, too."""
    import pytest

    ApproxScalar = type(pytest.approx(0.0))
    is_equal = ApproxScalar.__eq__

    def compare(scalar, actual):
        if isinstance(actual, int | float) and isinstance(scalar.expected, int | float):
            write(abs(actual - scalar.expected), scalar.tolerance)
        return is_equal(scalar, actual)

    ApproxScalar.__eq__ = compare
    watch()


def pytest_collection_finish() -> None:
    """conftest.py has asked for one thread; the setting may ask for two."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
