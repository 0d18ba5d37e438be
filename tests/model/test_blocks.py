"""Blocks against PyTorch's modules; `test_models` has Llama's, gated, without bias."""

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
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    MultiHeadAttention,
    PostNormBlock,
    RMSNorm,
    causal_mask,
    padding_mask,
)
from companion.model.blocks import ACTIVATIONS

X = torch.linspace(-6, 6, 97)
PADDING = padding_mask(torch.tensor([7, 3]), 7)
KINDS = {"pre-norm": Block, "post-norm": PostNormBlock}


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_equation_4(bias):
    """At 0.003 the variance is about as small as eps: the place of eps is seen."""
    ours = shaken(LayerNorm(6, bias))
    for scale in (1.0, 0.003):
        x = scale * random(2, 3, 6) + 1
        mean = sum(x.double().unbind(-1))[..., None] / 6
        variance = sum((x - mean).square().unbind(-1))[..., None] / 6
        expected = ours.gain * (x - mean) / (variance + 1e-5).sqrt()
        expected = expected + (ours.bias if bias else 0)
        assert_close(ours(x), expected.float(), atol=1e-4, rtol=0)


def test_rms_norm_is_llamas_and_takes_no_mean_off():
    ours, theirs = shaken(RMSNorm(6)), LlamaRMSNorm(6, eps=1e-5)
    theirs.load_state_dict({"weight": ours.gain})
    for scale in (1.0, 0.003):
        x = scale * (random(2, 3, 6) + 1)
        assert_close(ours(x), theirs(x), atol=1e-5, rtol=0)


def test_activations_are_their_formulas():
    phi = torch.tensor([0.5 * math.erfc(-x / 2**0.5) for x in X.tolist()])
    expected = {
        "gelu": X * phi,
        "gelu_tanh": NewGELUActivation()(X),
        "relu": X * (X > 0),
        "squared_relu": X * X * (X > 0),
        "silu": X / (1 + (-X).exp()),
    }
    assert expected.keys() == ACTIVATIONS.keys()
    for name, y in expected.items():
        assert_close(ACTIVATIONS[name](X), y, atol=1e-6, rtol=1e-6)


def new_block(kind=Block, cross=False, **dropout) -> Block:
    attention, *others = (MultiHeadAttention(12, 3) for _ in range(1 + cross))
    norms = tuple(LayerNorm(12) for _ in range(2 + cross))
    if cross:
        dropout["cross_attention"] = others[0]
    return shaken(kind(attention, FeedForward(12, 20, "relu"), norms, **dropout))


@torch.no_grad()
def copy_to(theirs: nn.Module, *parts) -> None:
    """Our attentions, layers and norms as PyTorch's layer has them, in its order."""
    weights = []
    for part in parts:
        if isinstance(part, MultiHeadAttention):
            three = [
                [*p.parameters()]
                for p in (part.to_queries, part.to_keys, part.to_values)
            ]
            weights += [torch.cat(x) for x in zip(*three, strict=True)]
            part = part.to_output
        weights += part.parameters()
    for own, other in zip(theirs.parameters(), weights, strict=True):
        own.copy_(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_pytorchs_layer(kind):
    """Alone its encoder layer, with a context its decoder layer."""
    how = {"batch_first": True, "norm_first": kind == "pre-norm"}
    x, features, mask = random(2, 5, 12), random(2, 7, 12, seed=1), causal_mask(5)
    ours = new_block(KINDS[kind])
    theirs = nn.TransformerEncoderLayer(12, 3, 20, 0.0, "relu", **how)
    layers = ours.feed_forward.to_hidden, ours.feed_forward.to_output
    norms = ours.attention_norm, ours.feed_forward_norm
    copy_to(theirs, ours.attention, *layers, *norms)
    expected = theirs(x, src_mask=~mask)
    assert_close(ours(x, mask=mask), expected, atol=1e-5, rtol=1e-5)
    ours = new_block(KINDS[kind], cross=True)
    theirs = nn.TransformerDecoderLayer(12, 3, 20, 0.0, "relu", **how)
    reader, layers = ours.cross_attention, ours.feed_forward
    norms = ours.attention_norm, ours.cross_attention_norm, ours.feed_forward_norm
    copy_to(theirs, ours.attention, reader, layers.to_hidden, layers.to_output, *norms)
    hidden = ~PADDING[:, 0, 0]
    expected = theirs(x, features, tgt_mask=~mask, memory_key_padding_mask=hidden)
    read = reader.to_keys(features), reader.to_values(features)
    for asked in (read, features):
        found = ours(x, (asked, PADDING), mask=mask)
        assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_falls_on_every_branch_in_training_alone(kind, cross):
    """All of it: what a block without dropout does, and it is the default, is left."""
    context = (random(2, 7, 12, seed=1), PADDING) if cross else None
    x, block = random(2, 5, 12), new_block(KINDS[kind], cross, dropout=1.0)
    expected = x
    if kind == "post-norm":
        for norm in ("attention_norm", "cross_attention_norm", "feed_forward_norm"):
            expected = (getattr(block, norm) or nn.Identity())(expected)
    assert torch.equal(block.train()(x, context), expected)
    still = new_block(KINDS[kind], cross).train()(x, context)
    assert_close(block.eval()(x, context), still)


def test_every_branch_has_a_norm_in_their_order():
    attention, layer = MultiHeadAttention(12, 3), FeedForward(12)
    three = tuple(LayerNorm(12) for _ in range(3))
    block = Block(attention, layer, three, cross_attention=attention)
    found = block.attention_norm, block.cross_attention_norm, block.feed_forward_norm
    assert found == three
    for words, call in (
        ("3 norms for 2 branches", lambda: Block(attention, layer, three)),
        ("d_hidden is 0; it must be 1 or more", lambda: FeedForward(6, 0)),
        ("'swish'.*'gelu'", lambda: GatedFeedForward(6, activation="swish")),
    ):
        with pytest.raises(ValueError, match=words):
            call()
