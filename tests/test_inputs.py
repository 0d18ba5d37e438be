"""What is said of what somebody gave: always something, and in short."""

import pytest
import torch

from companion.inputs import check_between, check_name, check_tensor, check_whole, shown


@pytest.mark.parametrize(
    "given",
    [
        10**5000,
        -(10**5000),
        [10**5000],
        "a" * 10_000,
        [[[[1]]]] * 1000,
        {1: 2},
        b"\xff",
    ],
    ids=lambda given: type(given).__name__,
)
def test_whatever_is_given_is_refused_in_a_short_line(given):
    for check in (
        lambda: check_whole(n=given if given != 10**5000 else -given),
        lambda: check_between(0, 1, p=given),
        lambda: check_name(["one"], kind=given),
        lambda: check_tensor("floats", "b t", x=given),
    ):
        with pytest.raises(ValueError, match="^(n|p|kind|x) is ") as refused:
            check()
        assert len(str(refused.value)) < 160 and "\n" not in str(refused.value)


def test_a_tensor_is_shown_by_its_shape_wherever_it_lies():
    assert shown(torch.empty(10**9, device="meta")) == (
        "torch.float32 of shape (1000000000,)"
    )
