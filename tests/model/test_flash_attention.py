"""Attention in blocks: precision and memory; `test_attention` has its values."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from common import random
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from companion import attention, flash_attention

INPUTS = [random(2, 3, n, 5, seed=i) for i, n in enumerate((4, 7, 7))]


def test_scores_beyond_the_exponentials_range_stay_exact():
    queries, keys, values = (150 * x for x in INPUTS)
    expected = attention(queries, keys, values)
    assert_close(flash_attention(queries, keys, values, size=2), expected)


def distances(call, inputs, d_out, exact) -> list[float]:
    """How far out and gradients lie from the exact ones, as a share of their size."""
    copies = [x.clone().requires_grad_() for x in inputs]
    out = call(*copies)
    results = [out.detach(), *torch.autograd.grad(out, copies, d_out)]
    pairs = zip(results, exact, strict=True)
    return [((x.double() - y).norm() / y.norm()).item() for x, y in pairs]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_it_is_no_worse_than_pytorchs_kernel(dtype):
    n = 192
    inputs = [random(1, 2, n, 16, seed=i).to(dtype) for i in range(3)]
    d_out = random(1, 2, n, 16, seed=3).to(dtype)
    doubles = [x.double().requires_grad_() for x in inputs]
    out = attention(*doubles)
    exact = [out.detach(), *torch.autograd.grad(out, doubles, d_out.double())]

    kernel = distances(F.scaled_dot_product_attention, inputs, d_out, exact)
    flash = distances(partial(flash_attention, size=16), inputs, d_out, exact)
    for flash_error, kernel_error in zip(flash, kernel, strict=True):
        assert flash_error < 1.05 * kernel_error, (flash, kernel)
    assert flash_attention(*inputs).dtype == dtype


class Largest(TorchDispatchMode):
    """The most elements that any tensor had which was made meanwhile."""

    n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self.n = max(self.n, x.numel())
        return out


def test_no_tensor_grows_with_the_square_of_the_text():
    n = 512
    inputs = [random(1, 1, n, 8, seed=i).requires_grad_() for i in range(3)]
    for size in (16, 64):
        with Largest() as largest:
            flash_attention(*inputs, size=size).sum().backward()
        assert largest.n == n * size
    with Largest() as largest:
        attention(*inputs).sum().backward()
    assert largest.n == n * n


def test_what_it_cannot_do_is_said():
    queries, keys, values = INPUTS
    mask = torch.ones(4, 6) > 0
    with pytest.raises(ValueError, match="size is 0"):
        flash_attention(queries, keys, values, size=0)
    with pytest.raises(ValueError, match=r"5 .* keys 4"):
        flash_attention(queries, keys[..., :4], values)
    with pytest.raises(ValueError, match="4 queries and 7 keys"):
        flash_attention(queries, keys, values, mask)

    queries = queries.clone().requires_grad_()
    out = flash_attention(queries, keys, values)
    (slope,) = torch.autograd.grad(out.sin().sum(), queries, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()
