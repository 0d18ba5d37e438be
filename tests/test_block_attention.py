"""Attention in blocks against PyTorch's kernel, autograd, and a count of its memory."""

import pytest
import torch
import torch.nn.functional as F
from common import random
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from companion import (
    GPT,
    GPTConfig,
    attention,
    block_attention,
    causal_mask,
    padding_mask,
)

B, H, T, S, D = 2, 3, 4, 7, 5
MASKS = {
    "no mask": None,
    "causal and padding": causal_mask(T, S) & padding_mask(torch.tensor([4, 6]), S),
    "one column": torch.arange(T)[:, None] != 1,
    "one row": torch.arange(S)[None] % 3 == 2,
}
BIASES = [None, (H, T, S), (T, 1), (1, S), (B, H, T, S)]


def sizes(bias=None):
    shapes = [(B, H, T, D), (B, H, S, D), (B, H, S, D), *([bias] if bias else [])]
    doubles = (random(*x, seed=i, dtype=torch.float64) for i, x in enumerate(shapes))
    return [(3 * x).requires_grad_() for x in doubles]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_values_and_gradients_are_pytorchs(size, mask, bias):
    inputs = sizes(bias)
    queries, keys, values, *more = inputs
    added = torch.zeros(T, S, dtype=torch.float64)
    added = added + more[0] if more else added
    if mask is not None:
        added = added.masked_fill(~mask, -torch.inf)
    expected = F.scaled_dot_product_attention(queries, keys, values, added)
    out = block_attention(queries, keys, values, mask, *more, size=size)
    d_out = random(B, H, T, D, seed=9, dtype=torch.float64)
    assert_close(out, expected, atol=1e-10, rtol=0)
    gradients = torch.autograd.grad(out, inputs, d_out)
    for ours, theirs in zip(
        gradients, torch.autograd.grad(expected, inputs, d_out), strict=True
    ):
        assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_its_gradient_is_the_slope_of_its_values():
    bias = random(H, 1, S, dtype=torch.float64).requires_grad_()
    torch.autograd.gradcheck(
        lambda q, k, v, b: block_attention(q, k, v, causal_mask(T, S), b, size=2),
        (*sizes(), bias),
    )


def test_keys_of_one_batch_serve_all_queries_and_collect_their_gradients():
    inputs = sizes()
    for x in inputs[1:]:
        x.data = x.data[:1]
    outs = [f(*inputs) for f in (attention, lambda *x: block_attention(*x, size=2))]
    assert_close(*outs, atol=1e-10, rtol=0)
    gradients = [torch.autograd.grad(x.sin().sum(), inputs) for x in outs]
    assert_close(*gradients, atol=1e-10, rtol=0)


def test_scores_beyond_the_exponentials_range_stay_exact():
    queries, keys, values = (x.detach().float() for x in sizes())
    expected = attention(50 * queries, 50 * keys, values)
    assert_close(block_attention(50 * queries, 50 * keys, values, size=2), expected)


class Largest(TorchDispatchMode):
    """The most elements that any tensor had which was made meanwhile."""

    n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self.n = max(self.n, x.numel())
        return out


@pytest.mark.parametrize("size", [16, 64])
def test_no_tensor_grows_with_the_square_of_the_text(size):
    n = 512
    inputs = [random(1, 1, n, 8, seed=i).requires_grad_() for i in range(3)]
    with Largest() as largest:
        block_attention(*inputs, size=size).sum().backward()
    assert largest.n == n * size
    with Largest() as largest:
        attention(*inputs).sum().backward()
    assert largest.n == n * n


@pytest.mark.parametrize("positions", ["rotary", "alibi", "t5"])
def test_a_model_in_blocks_learns_as_the_others_do(positions):
    config = GPTConfig(
        d_vocab=11, context_length=9, d_model=12, n_heads=3, n_layers=2,
        positions=positions, engine="blocks",
    )  # fmt: skip
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(0))
    gradients = []
    for engine in ("blocks", "explicit"):
        gpt = GPT(config, torch.Generator().manual_seed(1))
        for module in gpt.modules():
            if hasattr(module, "engine"):
                module.engine = engine
        gpt(tokens).sin().sum().backward()
        gradients.append({n: p.grad for n, p in gpt.named_parameters()})
    for name, gradient in gradients[0].items():
        assert_close(gradient, gradients[1][name], atol=1e-5, rtol=1e-4, msg=name)


def test_a_block_of_no_keys_is_refused():
    with pytest.raises(ValueError, match="size is 0; it must be 1 or more"):
        block_attention(*sizes(), size=0)
