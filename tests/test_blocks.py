"""Blocks against PyTorch's and transformers' modules with the same weights."""

import math

import pytest
import torch
from common import random, shaken
from torch import nn
from torch.testing import assert_close
from transformers.activations import NewGELUActivation
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from companion import (
    Block,
    CrossBlock,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    MultiHeadAttention,
    RMSNorm,
    causal_mask,
    gelu,
    gelu_sigmoid,
    gelu_tanh,
    padding_mask,
    squared_relu,
)
from companion.blocks import ACTIVATIONS

X = torch.linspace(-6, 6, 97)


# At 0.003 the variance is about as small as eps, so that the place of eps is seen.
@pytest.mark.parametrize("scale", [1.0, 0.003])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_equation_4(bias, scale):
    ours = shaken(LayerNorm(6, bias))
    x = scale * random(2, 3, 6) + 1
    for row, normed in zip(
        x.flatten(0, 1).double(), ours(x).flatten(0, 1), strict=True
    ):
        mean = sum(row) / 6
        variance = sum((row - mean) ** 2) / 6
        expected = ours.gain * (row - mean) / (variance + 1e-5).sqrt()
        expected = expected + (ours.bias if bias else 0)
        assert_close(normed, expected.float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("scale", [1.0, 0.003])
def test_rms_norm_is_llamas_and_takes_no_mean_off(scale):
    ours, theirs = shaken(RMSNorm(6)), LlamaRMSNorm(6, eps=1e-5)
    theirs.load_state_dict({"weight": ours.gain})
    x = scale * (random(2, 3, 6) + 1)
    assert_close(ours(x), theirs(x), atol=1e-5, rtol=0)
    squares = x.square().sum(-1, keepdim=True) / 6
    expected = ours.gain * x / (squares + 1e-5).sqrt()
    assert_close(ours(x), expected, atol=1e-5, rtol=0)


def test_norms_begin_with_a_gain_of_1_and_rms_norm_has_no_bias_to_give():
    for norm, names in (
        (LayerNorm(6), ["gain", "bias"]),
        (LayerNorm(6, False), ["gain"]),
        (RMSNorm(6), ["gain"]),
    ):
        assert [name for name, _ in norm.named_parameters()] == names
        assert norm.gain.tolist() == [1] * 6
    assert LayerNorm(6).bias.tolist() == [0] * 6
    with pytest.raises(TypeError, match="bias"):
        RMSNorm(6, bias=True)


def test_gelu_is_x_times_the_normal_distribution():
    by_hand = torch.tensor([x * 0.5 * math.erfc(-x / 2**0.5) for x in X.tolist()])
    for ours in (gelu, ACTIVATIONS["gelu"]):
        assert_close(ours(X), by_hand, atol=1e-6, rtol=0)


def test_gelu_tanh_is_gpt2s_and_not_the_exact_one():
    for ours in (gelu_tanh, ACTIVATIONS["gelu_tanh"]):
        assert_close(ours(X), NewGELUActivation()(X), atol=1e-6, rtol=0)
    assert (gelu_tanh(X) - gelu(X)).abs().max() > 1e-4


def test_relu_and_its_square_are_zero_below_zero():
    by_hand = [max(x, 0.0) for x in X.tolist()]
    assert ACTIVATIONS["relu"](X).tolist() == by_hand
    squares = torch.tensor([x * x for x in by_hand])
    for ours in (squared_relu, ACTIVATIONS["squared_relu"]):
        assert_close(ours(X), squares, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation, theirs", [("gelu", nn.GELU), ("relu", nn.ReLU)])
def test_feed_forward_is_two_linear_maps_around_an_activation(activation, theirs, bias):
    ours = shaken(FeedForward(6, 10, activation, bias))
    layers = nn.Sequential(nn.Linear(6, 10, bias), theirs(), nn.Linear(10, 6, bias))
    layers.load_state_dict(
        dict(zip(layers.state_dict(), ours.state_dict().values(), strict=True))
    )
    x = random(2, 3, 6)
    assert_close(ours(x), layers(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_gated_feed_forward_bends_the_gate_and_multiplies(bias):
    ours, x = shaken(GatedFeedForward(6, 10, bias=bias)), random(2, 3, 6)
    gate, hidden = ours.to_gate(x), ours.to_hidden(x)
    bent = gate / (1 + (-gate).exp())  # SiLU
    assert_close(ours(x), ours.to_output(bent * hidden), atol=1e-5, rtol=1e-5)
    swapped = ours.to_output(hidden / (1 + (-hidden).exp()) * gate)
    assert not torch.allclose(ours(x), swapped, atol=1e-2)
    assert len([*ours.parameters()]) == (6 if bias else 3)


def test_any_activation_can_bend_the_gate():
    ours, x = shaken(GatedFeedForward(6, 10, "relu", bias=False)), random(2, 3, 6)
    gate = ours.to_gate(x).clamp(min=0)
    assert_close(
        ours(x), ours.to_output(gate * ours.to_hidden(x)), atol=1e-5, rtol=1e-5
    )


def test_the_hidden_layer_is_four_times_as_wide_unless_told():
    sizes = [tuple(p.shape) for p in FeedForward(6).parameters()]
    assert sizes == [(24, 6), (24,), (6, 24), (6,)]
    assert GatedFeedForward(6).to_output.weight.shape == (6, 24)


def new_block(dropout=0.0, pre_norm=True, cross=False) -> Block:
    attentions = [MultiHeadAttention(12, 3) for _ in range(1 + cross)]
    norms = tuple(LayerNorm(12) for _ in range(2 + cross))
    parts = (*attentions, FeedForward(12, 20, "relu"), norms, dropout, pre_norm)
    return shaken((CrossBlock if cross else Block)(*parts))


def to_pytorch(names: dict) -> dict:
    """Our attentions, norms and layers as the weights of PyTorch's, by their names."""
    weights = {}
    for name, part in names.items():
        if isinstance(part, MultiHeadAttention):
            three = (part.to_queries, part.to_keys, part.to_values)
            weights[f"{name}.in_proj_weight"] = torch.cat([p.weight for p in three])
            weights[f"{name}.in_proj_bias"] = torch.cat([p.bias for p in three])
            name, part = f"{name}.out_proj", part.to_output
        gain = part.gain if isinstance(part, LayerNorm) else part.weight
        weights |= {f"{name}.weight": gain, f"{name}.bias": part.bias}
    return weights


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_block_is_pytorchs_encoder_layer(pre_norm):
    ours = new_block(pre_norm=pre_norm)
    theirs = nn.TransformerEncoderLayer(
        12, 3, 20, 0.0, "relu", batch_first=True, norm_first=pre_norm
    )
    names = {
        "self_attn": ours.attention,
        "linear1": ours.feed_forward.to_hidden,
        "linear2": ours.feed_forward.to_output,
        "norm1": ours.attention_norm,
        "norm2": ours.feed_forward_norm,
    }
    theirs.load_state_dict(to_pytorch(names))
    x, mask = random(2, 5, 12), causal_mask(5)
    expected = theirs(x, src_mask=~mask)
    assert_close(ours(x, mask=mask), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_cross_block_is_pytorchs_decoder_layer(pre_norm):
    ours = new_block(pre_norm=pre_norm, cross=True)
    theirs = nn.TransformerDecoderLayer(
        12, 3, 20, 0.0, "relu", batch_first=True, norm_first=pre_norm
    )
    names = {
        "self_attn": ours.attention,
        "multihead_attn": ours.cross_attention,
        "linear1": ours.feed_forward.to_hidden,
        "linear2": ours.feed_forward.to_output,
        "norm1": ours.attention_norm,
        "norm2": ours.cross_attention_norm,
        "norm3": ours.feed_forward_norm,
    }
    theirs.load_state_dict(to_pytorch(names))
    x, context, mask = random(2, 5, 12), random(2, 7, 12, seed=1), causal_mask(5)
    padding = padding_mask(torch.tensor([7, 3]), 7)
    expected = theirs(
        x, context, tgt_mask=~mask, memory_key_padding_mask=~padding[:, 0, 0]
    )
    found = ours(x, context, mask=mask, context_mask=padding)
    assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_dropout_falls_on_every_branch_in_training_alone(pre_norm, cross):
    context = (random(2, 7, 12, seed=1),) if cross else ()
    x, block = random(2, 5, 12), new_block(1.0, pre_norm, cross)
    expected = x
    if not pre_norm:
        names = ("attention_norm", "cross_attention_norm", "feed_forward_norm")
        for norm in filter(None, (getattr(block, name, None) for name in names)):
            expected = norm(expected)
    assert torch.equal(block.train()(x, *context), expected)
    still = new_block(0.0, pre_norm, cross).eval()
    assert_close(block.eval()(x, *context), still(x, *context))


@pytest.mark.parametrize("cross", [False, True])
def test_a_block_is_pre_norm_and_without_dropout_unless_told(cross):
    attentions = [MultiHeadAttention(12, 3) for _ in range(1 + cross)]
    norms = tuple(LayerNorm(12) for _ in range(2 + cross))
    block = (CrossBlock if cross else Block)(*attentions, FeedForward(12), norms)
    context = () if not cross else (random(2, 7, 12, seed=1),)
    x = random(2, 5, 12)
    assert block.pre_norm
    assert torch.equal(block.train()(x, *context), block.eval()(x, *context))


def test_a_cross_block_reads_what_was_prepared_as_it_reads_the_context():
    block, x, context = (
        new_block(cross=True),
        random(2, 5, 12),
        random(2, 7, 12, seed=1),
    )
    padding = padding_mask(torch.tensor([7, 3]), 7)
    prepared = block.cross_attention.keys_and_values(context)
    expected = block(x, context, padding, mask=causal_mask(5))
    found = block(x, prepared, padding, mask=causal_mask(5))
    assert_close(found, expected, atol=1e-6, rtol=0)


def test_the_sigmoid_approximation_is_its_formula():
    by_hand = torch.tensor([x / (1 + math.exp(-1.702 * x)) for x in X.tolist()])
    assert_close(gelu_sigmoid(X), by_hand, atol=1e-6, rtol=0)
