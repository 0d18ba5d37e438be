"""Packed weights against the file and float64; joined layers against those apart."""

import copy

import gguf
import pytest
import torch
from common import seeded
from torch.testing import assert_close

import companion
from companion import GPT, GPTConfig, published, quantized
from companion.artifacts import SMOLLM2
from companion.joined import join
from companion.quantized import PackedLinear, in_blocks, pack_weights

SIZES = {"d_vocab": 96, "context_length": 64, "d_model": 64, "n_layers": 2}
MODELS = {
    "plain, biases": GPTConfig(**SIZES, n_heads=4),
    "grouped, gated": GPTConfig(
        **SIZES, n_heads=4, n_kv_heads=2, feed_forward="gated", activation="silu",
        norm="rms", positions="rotary", bias=False,
    ),
}  # fmt: skip


def fields(raw: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Numbers (n 32), scale and low (n 1) of blocks (n 20), a byte at a time."""
    scale, low = (
        torch.tensor([[x] for x in raw[:, i : i + 2].flatten().tolist()])
        .to(torch.uint8).view(-1, 2).view(torch.float16).float()
        for i in (0, 2)
    )  # fmt: skip
    halves = [[b % 16 for b in x[4:]] + [b // 16 for b in x[4:]] for x in raw.tolist()]
    return torch.tensor(halves), scale, low


def test_the_file_s_own_blocks_are_found_again():
    reader = gguf.GGUFReader(SMOLLM2.path)
    _, tensors = published.read_gguf(SMOLLM2.path)
    for stored in reader.tensors:
        if stored.name not in ("blk.0.attn_k.weight", "blk.29.ffn_gate.weight"):
            continue
        numbers, scales, lows = (
            x.flatten(0, 1) for x in in_blocks(tensors[stored.name], 4)
        )
        theirs = fields(torch.tensor(stored.data).view(-1, 20))
        assert torch.equal(numbers, theirs[0].int())
        assert_close(scales, theirs[1], rtol=1e-5, atol=0)
        assert torch.equal(lows, theirs[2])


@pytest.mark.parametrize("n_bits", [4, 8])
def test_each_weight_comes_out_of_the_kernel_where_it_was(n_bits):
    """Each input alone gives a column of the weight, to its step and bfloat16."""
    weight = torch.randn(48, 96, generator=seeded(0))
    layer = PackedLinear(weight, n_bits)
    assert layer.packed.nbytes == 48 * 96 * n_bits // 8
    blocks = weight.unflatten(1, (-1, 32))
    step = (blocks.amax(-1) - blocks.amin(-1)) / (2**n_bits - 1)
    allowed = step.repeat_interleave(32, 1) / 2 + 2**-7 * blocks.abs().max()
    assert ((layer(torch.eye(96)).T - weight).abs() <= allowed).all()


@pytest.mark.parametrize("n_bits", [4, 8])
def test_a_product_is_float64_s_with_the_rounded_weights(n_bits):
    weight = torch.randn(64, 128, generator=seeded(1))
    numbers, scales, lows = in_blocks(weight, n_bits)
    rounded = (numbers * scales + lows).flatten(1).double()
    for shape in ((128,), (1, 1, 128), (3, 5, 128)):
        x = torch.randn(shape, generator=seeded(2))
        wanted = x.double() @ rounded.T
        found = PackedLinear(weight, n_bits)(x)
        assert found.dtype == torch.float32 and found.shape == wanted.shape
        assert (found - wanted).norm() < 0.01 * wanted.norm()
    assert PackedLinear(weight, n_bits)(x.bfloat16()).dtype == torch.bfloat16


def test_a_block_of_equal_weights_is_kept():
    weight = torch.full((16, 32), 0.5)
    assert torch.equal(PackedLinear(weight)(torch.eye(32)), weight.T)


def test_what_the_kernel_has_no_blocks_for_is_refused():
    with pytest.raises(ValueError, match=r"\(16, 40\); the kernel wants"):
        PackedLinear(torch.zeros(16, 40))
    with pytest.raises(ValueError, match=r"\(15, 32\); the kernel wants"):
        PackedLinear(torch.zeros(15, 32))
    with pytest.raises(ValueError, match="n_bits is 5"):
        PackedLinear(torch.zeros(16, 32), 5)
    with pytest.raises(ValueError, match="x is .*31.*; it must be floats"):
        PackedLinear(torch.zeros(16, 32))(torch.zeros(2, 31))


@torch.no_grad()
def test_the_published_model_packed_loses_nothing():
    """1,024 tokens of Shakespeare, and a greedy answer with every cache."""
    model, tokenizer = published.load_smollm2()
    text = companion.tiny_shakespeare()[:4000]
    tokens = torch.tensor(tokenizer.encode(text))[None, :1025]
    losses = [
        companion.next_token_loss(x(tokens[:, :-1]), tokens[:, 1:]).item()
        for x in (model, pack_weights(copy.deepcopy(model)))
    ]
    assert abs(losses[0] - losses[1]) < 0.01, losses
    packed = pack_weights(model)
    logits = packed(tokens[:, :40])
    for make in (
        lambda: companion.PreallocatedCache(64),
        lambda: companion.RaggedCache(64, 1),
        lambda: companion.SlidingWindowCache(64),
    ):
        caches = [make() for _ in packed.blocks]
        parts = [packed(part, caches) for part in tokens[:, :40].split([30, 1, 9], 1)]
        assert (torch.cat(parts, 1) - logits).norm() < 0.02 * logits.norm()


def test_without_the_kernel_the_weights_run_unpacked_and_it_says_so(monkeypatch):
    monkeypatch.setattr(quantized, "kernel_is_here", lambda: False)
    model = GPT(MODELS["grouped, gated"], seeded(0))
    before = model(torch.arange(9)[None])
    with pytest.warns(UserWarning, match="run unpacked"):
        assert torch.equal(pack_weights(model)(torch.arange(9)[None]), before)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_joined_layers_give_what_they_gave_apart(name):
    model = GPT(MODELS[name], seeded(0)).eval()
    tokens = torch.randint(96, (2, 20), generator=seeded(1))
    apart, n = model(tokens), sum(x.numel() for x in model.parameters())
    joined = join(copy.deepcopy(model))
    assert sum(x.numel() for x in joined.parameters()) == n
    for each in (joined, join(joined), copy.deepcopy(joined)):
        assert_close(each(tokens), apart, atol=1e-5, rtol=0)
    caches = joined.new_caches()
    parts = [joined(part, caches) for part in tokens.split([12, 1, 1, 6], 1)]
    assert_close(torch.cat(parts, 1), apart, atol=1e-5, rtol=0)
    assert not any(block.attention.to_keys.joined.given for block in joined.blocks)


def test_a_joined_layer_never_answers_for_another_x():
    attention = companion.MultiHeadAttention(64, 4)
    x, y = torch.randn(2, 3, 5, 64)
    wanted = attention.to_queries(x), attention.to_keys(y), attention.to_values(x)
    join(attention)
    found = attention.to_queries(x), attention.to_keys(y), attention.to_values(x)
    assert_close(found, wanted)
