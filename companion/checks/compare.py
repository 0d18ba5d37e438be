"""What all checks share: an answer is held against the right one, then explained."""

import copy
from collections.abc import Callable

import torch


class Mistake(AssertionError):
    """A wrong answer, shown in a notebook as its one line, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


def close(ours, right) -> bool:
    """Whether numbers, tensors, text or lists of them agree, numbers to 1e-4."""
    if isinstance(right, list | tuple):
        same = isinstance(ours, list | tuple) and len(ours) == len(right)
        return same and all(map(close, ours, right))
    if not isinstance(right, torch.Tensor | int | float):
        return ours == right
    try:
        ours, right = (torch.as_tensor(x).detach().double() for x in (ours, right))
    except (TypeError, ValueError, RuntimeError):
        return False
    return ours.shape == right.shape and torch.allclose(
        ours, right, rtol=1e-4, atol=1e-4, equal_nan=True
    )


def describe(x) -> str:
    """A tensor by its shape, and by its values where they are few."""
    if isinstance(x, torch.Tensor):
        values = f" {[round(v, 3) for v in x.flatten().tolist()]}" * (x.numel() < 8)
        return f"a tensor {tuple(x.shape)}{values}"
    return repr(x)[:80]


def compare(
    answer: Callable, right: Callable, cases: list, mistakes: list, praise: str
):
    """Hold `answer` against `right` on every case; explain it by one of `mistakes`.

    A mistake is (what to say, a wrong function): where the answer is wrong and agrees
    with that function, that is what is said. Raises Mistake; prints when all is right.
    """
    for case in cases:
        given = copy.deepcopy(case)
        ours, wanted = answer(*given), right(*copy.deepcopy(case))
        if ours is None:
            raise Mistake("the function returns nothing: is there a `return`?")
        for before, after in zip(case, given, strict=True):
            if isinstance(before, torch.Tensor | list) and not close(after, before):
                raise Mistake("the function changes its input: work on a copy")
        if close(ours, wanted):
            continue
        for words, mistake in mistakes:
            if close(ours, mistake(*copy.deepcopy(case))):
                raise Mistake(words)
        raise Mistake(f"expected {describe(wanted)}, got {describe(ours)}")
    print(f"✓ {praise}")


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """A normal tensor that is the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
