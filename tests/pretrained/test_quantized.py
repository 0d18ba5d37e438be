"""Weights laid out otherwise, against plain ones, the file and float64."""

import copy
from dataclasses import replace

import gguf
import pytest
import torch
from common import EXACT, random, random_tokens, rounding, seeded, shaken
from published import pack
from torch import nn
from torch.testing import assert_close

import companion
from companion import GPT, GPTConfig
from companion.artifacts import SMOLLM2
from companion.device import bfloat16_is_faster
from companion.pretrained import quantized
from companion.pretrained.joined import JoinedAttention, JoinedFeedForward, join_layers
from companion.pretrained.quantized import (
    PackedLinear,
    PrepackedLinear,
    in_blocks,
    pack_weights,
    prepack,
    private_operation,
)
from companion.pretrained.smollm2 import load_smollm2

SMALL = GPTConfig(d_vocab=17, context_length=8, d_model=16, n_heads=4, n_layers=2)
WIDER = replace(SMALL, d_model=64)  # inputs in blocks of 32


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "config", [SMALL, replace(SMALL, feed_forward="gated", bias=False)]
)
def test_laid_out_to_decode_a_model_answers_the_same(config, dtype):
    gpt = shaken(GPT(config)).requires_grad_(False).to(dtype)
    tokens = random_tokens(2, 7, d_vocab=17)
    before = gpt(tokens), gpt(tokens[:1, :1])
    assert prepack(gpt) is gpt
    kinds = {type(layer) for layer in gpt.modules()} & {nn.Linear, PrepackedLinear}
    is_laid_out = torch.backends.mkldnn.is_available()
    if is_laid_out and dtype == torch.bfloat16:
        is_allowed = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        is_laid_out = is_allowed and bfloat16_is_faster("cpu")
    assert kinds == {PrepackedLinear if is_laid_out else nn.Linear}

    after = gpt(tokens), gpt(tokens[:1, :1])
    if dtype == torch.float32:
        assert_close(after, before, **rounding(64, *before))  # hidden features
    else:
        assert_close(after, before)


def test_what_the_layout_is_not_for_stays_as_it_is():
    gpt = prepack(GPT(SMALL).double())
    assert type(gpt.blocks[0].attention.to_queries) is nn.Linear


def fields(raw: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Numbers (n 32), scale and minimum (n 1) of blocks (n 20), a byte at a time."""
    scale, minimum = (
        torch.tensor([[x] for x in raw[:, i : i + 2].flatten().tolist()])
        .to(torch.uint8).view(-1, 2).view(torch.float16).float()
        for i in (0, 2)
    )  # fmt: skip
    halves = [[b % 16 for b in x[4:]] + [b // 16 for b in x[4:]] for x in raw.tolist()]
    return torch.tensor(halves), scale, minimum


def test_the_file_s_own_blocks_are_found_again():
    reader = gguf.GGUFReader(SMOLLM2.path)
    for stored in reader.tensors:
        if stored.name not in ("blk.0.attn_k.weight", "blk.29.ffn_gate.weight"):
            continue
        weight = torch.tensor(gguf.dequantize(stored.data, stored.tensor_type))
        numbers, scales, minimums = (x.flatten(0, 1) for x in in_blocks(weight, 4))
        raw = torch.tensor(stored.data).view(-1, 20)
        file_numbers, file_scales, file_minimums = fields(raw)
        assert torch.equal(numbers, file_numbers.int())
        assert torch.equal(scales, file_scales.bfloat16().float())
        file_middles = file_minimums + 8 * file_scales
        off = minimums + 8 * scales - file_middles
        assert (off.abs() <= 2**-8 * (file_middles.abs() + file_scales)).all()


def heavy_tailed() -> torch.Tensor:
    """Most weights small, a few very large."""
    return random(48, 96) / random(48, 96, seed=1).abs().clamp(min=1e-3)


# Means and deviations: ordinary, shifted, far from zero, all but equal, tiny, large.
WEIGHTS = {
    f"{mean} +- {deviation}": mean + deviation * random(48, 96)
    for mean, deviation in [
        (0, 1),
        (0, 0.02),
        (0.03, 0.02),
        (1, 0.02),
        (-3, 0.001),
        (100, 1),
        (1000, 1e-3),
        (0, 1e-12),
        (0, 1e12),
    ]
}
WEIGHTS["heavy-tailed"] = heavy_tailed()
WEIGHTS["all positive"] = random(48, 96).abs()
WEIGHTS["equal"] = torch.full((48, 96), 0.3)
WEIGHTS["equal but one"] = 0.3 + torch.eye(48, 96)


def largest_scales(weight: torch.Tensor, n_bits: int) -> torch.Tensor:
    """(o n 1): the scale of each block, at most, in float64.

    That of the block's range and a 64th more, for bfloat16's rounding, and a part of
    the largest weight, for the offset of weights far from zero is coarse.
    """
    blocks = weight.double().unflatten(1, (-1, 32))
    ranges = blocks.amax(-1, keepdim=True) - blocks.amin(-1, keepdim=True)
    coarse = 2.0 ** (-10 if n_bits == 4 else -20) * blocks.abs().amax(-1, keepdim=True)
    return (1 + 2**-6) * ranges / (2**n_bits - 1) + coarse


@pytest.mark.parametrize("n_bits", [4, 8])
@pytest.mark.parametrize("distribution", WEIGHTS)
def test_no_weight_is_off_by_more_than_half_a_stored_scale(distribution, n_bits):
    weight = WEIGHTS[distribution]
    numbers, scales, minimums = (x.double() for x in in_blocks(weight, n_bits))
    assert torch.equal(scales, scales.bfloat16().double())
    assert (scales <= largest_scales(weight, n_bits)).all()
    assert numbers.min() >= 0 and numbers.max() < 2**n_bits
    blocks = weight.double().unflatten(1, (-1, 32))
    off = (scales * numbers + minimums - blocks).abs()
    assert (off <= scales / 2 + 2**-22 * blocks.abs()).all()  # float32's own rounding


@pytest.mark.parametrize("n_bits", [4, 8])
@pytest.mark.parametrize("distribution", WEIGHTS)
def test_differences_of_weights_come_out_of_the_kernel_to_half_a_scale_each(
    distribution, n_bits
):
    """x takes a weight of one block from one of the next; what is common goes out.

    So the kernel's rounding of its products to bfloat16 is small beside the scales.
    """
    weight = WEIGHTS[distribution]
    x = torch.eye(96) - torch.eye(96).roll(32, 1)
    expected = x.double() @ weight.double().T
    halves = largest_scales(weight, n_bits).expand(-1, -1, 32).flatten(1) / 2
    allowed = x.abs().double() @ halves.T
    parts = 32 * allowed if n_bits == 8 else 0  # of 8 bits each product is rounded
    rounding = 2**-8 * (expected.abs() + parts) + 2**-22 * weight.abs().max()
    result = PackedLinear(weight, n_bits=n_bits)(x).double()
    assert ((result - expected).abs() <= allowed + rounding).all()


@pytest.mark.parametrize("n_bits", [4, 8])
def test_each_weight_comes_out_of_the_kernel_where_it_was(n_bits):
    """Each input alone gives a column of the weight, to its step and bfloat16."""
    weight = torch.randn(64, 96, generator=seeded(0))
    layer = PackedLinear(weight, n_bits=n_bits)
    assert layer.packed.nbytes == 64 * 96 * n_bits // 8
    blocks = weight.unflatten(1, (-1, 32))
    step = (blocks.amax(-1) - blocks.amin(-1)) / (2**n_bits - 1)
    allowed = step.repeat_interleave(32, 1) / 2 + 2**-7 * blocks.abs().max()
    assert ((layer(torch.eye(96)).T - weight).abs() <= allowed).all()


@pytest.mark.parametrize("n_bits", [4, 8])
@pytest.mark.parametrize("n_out", [64, 57])
def test_a_layer_is_float64_s_with_the_rounded_weights(n_bits, n_out):
    """Also where the outputs don't come in groups of 64."""
    weight = torch.randn(n_out, 128, generator=seeded(1))
    bias = torch.randn(n_out, generator=seeded(3))
    numbers, scales, minimums = in_blocks(weight, n_bits)
    rounded = (numbers * scales + minimums).flatten(1).double()
    layer = PackedLinear(weight, bias, n_bits)
    for shape in ((128,), (1, 1, 128), (3, 5, 128)):
        x = torch.randn(shape, generator=seeded(2))
        expected = x.double() @ rounded.T + bias
        result = layer(x)
        assert result.dtype == torch.float32 and result.shape == expected.shape
        # x, scales and result are rounded to bfloat16, each by 2^-9: 0.6% at worst.
        assert (result - expected).norm() < 0.01 * expected.norm()
    half = PackedLinear(weight, bias.bfloat16(), n_bits)
    assert half(x.bfloat16()).dtype == torch.bfloat16


def test_a_block_of_equal_weights_is_kept():
    weight = torch.full((16, 32), 0.5)
    assert torch.equal(PackedLinear(weight)(torch.eye(32)), weight.T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_x_may_lie_in_memory_as_it_likes(dtype):
    layer = PackedLinear(random(48, 64))
    x = random(6, 64, seed=1).to(dtype)
    expected = layer(x)
    assert torch.equal(layer(x.T.contiguous().T), expected)
    assert torch.equal(layer(x.repeat(1, 2)[:, :64]), expected)
    assert torch.equal(
        layer(x.view(2, 3, 64).transpose(0, 1)), layer(x).view(2, 3, 48).transpose(0, 1)
    )
    assert layer(x[:0]).shape == (0, 48)


def test_what_the_kernel_has_no_blocks_for_is_refused():
    with pytest.raises(ValueError, match=r"\(16, 40\); the kernel wants"):
        PackedLinear(torch.zeros(16, 40))
    with pytest.raises(ValueError, match="n_bits is 5"):
        PackedLinear(torch.zeros(16, 32), n_bits=5)
    with pytest.raises(RuntimeError):
        PackedLinear(torch.zeros(16, 32))(torch.zeros(2, 64))


@pytest.mark.usefixtures("processor")
@torch.no_grad()
def test_a_model_is_packed_whatever_its_vocabulary_and_its_biases():
    """GPT-2's own 50,257 tokens don't come in groups, and its layers have biases."""
    config = GPTConfig(d_vocab=50_257, context_length=16, d_model=96, n_layers=1)
    model = shaken(GPT(config), 0.02)
    tokens = random_tokens(2, 9, d_vocab=50_257)

    # The same model with plain layers of the rounded weights.
    twin = copy.deepcopy(model)
    for name, x in twin.named_modules():
        if quantized.kernel_is_here() and isinstance(x, nn.Linear):
            n_bits = 8 if "un" in name else 4
            numbers, scales, minimums = in_blocks(x.weight, n_bits)
            x.weight = nn.Parameter((numbers * scales + minimums).flatten(1))
    expected = twin(tokens)

    packed = pack(model)
    assert packed is model
    if quantized.kernel_is_here():
        assert not any(isinstance(x, nn.Linear) for x in model.modules())
        assert model.unembedding.n_bits == 8
        assert model.blocks[0].feed_forward.to_hidden.n_bits == 4
    # One product is off by up to 0.6%, see above; unrelated errors of several add up
    # like the root of their number.
    assert (packed(tokens) - expected).norm() < 0.02 * expected.norm()


@pytest.mark.usefixtures("processor")
@torch.no_grad()
def test_a_layer_that_does_not_come_in_blocks_stays_as_it_is():
    config = GPTConfig(
        d_vocab=11, context_length=9, d_model=64, d_hidden=40, n_heads=2, n_layers=1
    )
    layer = pack(shaken(GPT(config))).blocks[0].feed_forward
    layer_class = PackedLinear if quantized.kernel_is_here() else nn.Linear
    assert isinstance(layer.to_hidden, layer_class)
    assert isinstance(layer.to_output, nn.Linear)


class Doubled(nn.Linear):
    """A linear layer that computes something else."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("change", [prepack, pack])
def test_a_layer_that_computes_something_else_stays_as_it_is(change):
    model = shaken(GPT(WIDER), 0.05)
    model.blocks[0].attention.to_output = Doubled(64, 64)
    assert type(change(model).blocks[0].attention.to_output) is Doubled


def test_weights_that_are_not_on_the_cpu_stay_as_they_are():
    with torch.device("meta"):
        model = GPT(WIDER)
    with pytest.warns(UserWarning, match="run unpacked"):
        assert type(pack_weights(model).unembedding) is nn.Linear


def test_a_prepacked_model_is_not_packed_in_silence():
    model = prepack(GPT(WIDER))
    if PrepackedLinear not in {type(x) for x in model.modules()}:
        pytest.skip("no such layers here")
    with pytest.raises(ValueError, match="the model is prepacked"):
        pack_weights(model)


@pytest.mark.parametrize("change", [prepack, pack])
def test_no_gradient_is_lost_in_silence(change):
    """By itself nothing is trained; what is asked to be has no way through a layer."""
    model = change(GPT(WIDER))
    if not {type(x) for x in model.modules()} & {PrepackedLinear, PackedLinear}:
        pytest.skip("no such layers here")
    tokens = random_tokens(2, 7, d_vocab=17)
    assert not any(x.requires_grad for x in model.parameters())
    assert not model(tokens).requires_grad
    model.requires_grad_(True)
    with pytest.raises(ValueError, match="needs a gradient.*train the model before"):
        model(tokens)
    with torch.no_grad():
        model(tokens)


def test_a_laid_out_model_is_not_saved_in_part():
    model = prepack(GPT(SMALL))
    if type(model.unembedding) is nn.Linear:
        pytest.skip("nothing is laid out here")
    with pytest.raises(
        ValueError, match="to_queries.weight is laid out.*save the model"
    ):
        model.state_dict()


@pytest.mark.usefixtures("processor")
@torch.no_grad()
def test_the_published_model_packed_loses_nothing(smollm2_loaded):
    """256 tokens of Shakespeare, and the same through a cache."""
    model, tokenizer = smollm2_loaded
    text = companion.tiny_shakespeare()[:2000]
    tokens = torch.tensor(tokenizer.encode(text))[None, :257]
    packed = pack(copy.deepcopy(model))
    losses = [
        companion.next_token_loss(x(tokens[:, :-1]), tokens[:, 1:]).item()
        for x in (model, packed)
    ]
    # A loss is given to two digits: packing must not change them by more than one.
    assert abs(losses[0] - losses[1]) < 0.01, losses

    logits = packed(tokens[:, :40])
    cache = packed.new_cache(64)
    parts = [packed(part, cache) for part in tokens[:, :40].split([30, 1, 9], 1)]
    assert (torch.cat(parts, 1) - logits).norm() < 0.02 * logits.norm()


def test_without_the_kernel_the_weights_run_unpacked_and_it_says_so(monkeypatch):
    monkeypatch.setattr(quantized, "kernel_is_here", lambda: False)
    config = GPTConfig(d_vocab=96, context_length=9, d_model=64, n_heads=4, n_layers=1)
    model = GPT(config, seeded(0))
    before = model(torch.arange(9)[None])
    with pytest.warns(UserWarning, match="run unpacked"):
        assert torch.equal(pack_weights(model)(torch.arange(9)[None]), before)


def test_an_operation_that_this_pytorch_lacks_is_named_with_the_way_out():
    with pytest.raises(ValueError, match="has no _none_such.* without prepack"):
        private_operation(torch.ops.mkldnn, "_none_such")


def test_a_weight_that_is_packed_in_parts_is_the_same(monkeypatch):
    """With rows that fill the last group up, and halves of 8 bits."""
    weight = random(200, 64)
    for n_bits in (4, 8):
        monkeypatch.setattr(quantized, "N_ROWS", 10_000)
        whole = PackedLinear(weight, n_bits=n_bits)
        monkeypatch.setattr(quantized, "N_ROWS", 64)
        parts = PackedLinear(weight, n_bits=n_bits)
        for name, x in whole.named_buffers():
            assert torch.equal(x, parts.get_buffer(name)), (name, n_bits)


SHAPES = {
    "GPT-2's": WIDER,
    "Llama's": replace(
        WIDER, n_kv_heads=2, positions="rotary", norm="rms", feed_forward="gated",
        activation="silu", bias=False,
    ),
    "our own": replace(
        WIDER, n_kv_heads=1, positions="rotary", qk_norm=True, norm="rms",
        activation="squared_relu", bias=False, tie_embeddings=False,
    ),
    "ALiBi": replace(WIDER, n_kv_heads=2, positions="alibi", feed_forward="gated"),
    "explicit": replace(WIDER, n_kv_heads=2, engine="explicit"),
    "post-norm": replace(WIDER, pre_norm=False, positions="t5"),
}  # fmt: skip


def caches() -> list:
    """Every cache there is, for two streams and eight positions."""
    return [
        companion.PreallocatedCache(8),
        companion.ConcatenatingCache(),
        companion.Int8Cache(8),
        companion.RaggedCache(8, 2),
        companion.SinkCache(3, n_sinks=1),
    ]


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_joined_layers_take_every_cache_and_mask_that_a_block_takes(shape):
    """Laid out as they are, nothing is rounded but sums: whole, cut, token by token."""
    model = shaken(GPT(SHAPES[shape]), 0.1).double()
    twin = copy.deepcopy(model)
    join_layers(twin, lambda layer: layer, lambda _: True)
    assert type(twin.blocks[1].attention) is JoinedAttention
    is_gated = SHAPES[shape].feed_forward == "gated"
    assert is_gated == (type(twin.blocks[1].feed_forward) is JoinedFeedForward)

    tokens = random_tokens(2, 8, d_vocab=17)
    mask = random(2, 1, 8, 8) > -1
    mask |= torch.eye(8, dtype=torch.bool)
    for options in ({}, {"mask": mask}, {"last": 3}):
        assert_close(twin(tokens, **options), model(tokens, **options), **EXACT)
    for cache, other in zip(caches(), caches(), strict=True):
        # A last digit of 8 bits may fall otherwise, by half a hundredth of a vector.
        close = EXACT
        if isinstance(cache, companion.Int8Cache):
            close = {"atol": 0.05, "rtol": 0}
        for part in tokens.split([3, 1, 2, 1, 1], 1):
            assert_close(twin(part, cache), model(part, other), **close)
            assert len(cache) == len(other)


@torch.no_grad()
def test_what_is_of_another_kind_is_not_joined():
    """A hook would be lost, and another class may compute something else."""
    model = GPT(replace(WIDER, feed_forward="gated"), cross=True)
    plain, hooked, other, biased = (copy.deepcopy(model.blocks[0]) for _ in range(4))
    hooked.attention.to_keys.register_forward_hook(lambda *_: None)
    hooked.feed_forward.register_forward_hook(lambda *_: None)
    other.attention.to_values = Doubled(64, 64)
    other.feed_forward.to_gate = Doubled(64, 256)
    biased.attention.to_keys.bias = None
    biased.feed_forward.to_gate.bias = None
    for block in (plain, hooked, other, biased):
        join_layers(block, lambda layer: layer, lambda _: True)
        is_joined = block is plain
        assert is_joined == isinstance(block.attention, JoinedAttention)
        assert is_joined == isinstance(block.feed_forward, JoinedFeedForward)
        assert not isinstance(block.cross_attention, JoinedAttention)
    with pytest.raises(ValueError, match="reads no context"):
        plain.attention(random(1, 2, 64), random(1, 2, 64))


@pytest.mark.usefixtures("processor")
def test_packed_block_by_block_the_published_model_is_the_same(smollm2_loaded):
    """Each number and scale, so that every answer is."""
    if not quantized.kernel_is_here():
        pytest.skip("nothing is packed here")
    expected = pack(copy.deepcopy(smollm2_loaded[0]))
    model, _ = load_smollm2(packed=True)
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    others = dict([*expected.named_parameters(), *expected.named_buffers()])
    assert [*tensors] == [*others] and len(tensors) > 300
    for name, x in tensors.items():
        assert torch.equal(x, others[name]) and not x.requires_grad, name
    assert not any(part.training for part in model.modules())
