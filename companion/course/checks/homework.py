"""How a question of the teacher's bank is graded: its check raises, or doesn't."""

from collections.abc import Callable

from torch import Tensor

from .differences import dtype_class, same_numbers
from .mistakes import Mistake, message
from .pull_requests import failing, judged_beside, passing


def grade(check: Callable, answer: Callable | None) -> None:
    """Calls a check with a student's function, None if there is none. Prints a pass.

    Raises Mistake, one line without a traceback (which would show the check), when the
    answer is still to be written, when it stops, and when the check's assertion fails.
    """
    name = check.__name__.removeprefix("check_")
    if answer is None:
        raise Mistake(f"{name}: there is no function of this name")
    try:
        check(answer)
    except NotImplementedError:
        words = "yours to write"
    except AssertionError as error:
        words = message(error) or "it is wrong"
    except Exception as error:
        words = f"it stops with {type(error).__name__}: {message(error)}".strip(" .:")
    else:
        print(f"✓ {name}: it passes")
        return
    raise Mistake(f"{name}: {words}") from None


def has_shape(result: object, *shape: int) -> None:
    """Raises AssertionError where a result is no tensor of this shape."""
    kind = type(result).__name__
    assert isinstance(result, Tensor), f"a tensor should come out, not {kind}"
    assert result.shape == shape, f"the shape is {tuple(result.shape)}, not {shape}"


def agree(result: object, expected: Tensor, words: str) -> None:
    """Raises AssertionError where a result has another shape, or other values.

    Whole numbers and booleans are the same or not; floats are compared to 1e-4,
    as `same_numbers` does it, but plus 1e-5 alone.
    """
    has_shape(result, *expected.shape)
    assert dtype_class(result) == dtype_class(expected), (
        f"the dtype is {result.dtype}, not {expected.dtype}"
    )
    assert same_numbers(result, expected, atol=1e-5).all(), words


def tells_apart(
    test: Callable, right: list[Callable], wrong: dict[str, Callable]
) -> None:
    """Raises AssertionError where a test flags a right version, or passes a wrong one.

    `wrong` maps words to versions. Each is asked of as `judged_beside` says.
    """
    flagged = "it flags a version that is right"
    use = judged_beside((right[0],), flagged)
    for case in [*passing(right, flagged), *failing(wrong)]:
        use(test, *case)
