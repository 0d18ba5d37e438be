"""Blocks against PyTorch's modules; `test_gpt` has Llama's, gated, without bias."""

import math
from functools import partial

import pytest
import torch
from common import random, rounding, shaken
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
BLOCKS = {"pre-norm": Block, "post-norm": PostNormBlock}


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_equation_4(bias):
    """At 0.003 the variance is about as small as eps: the place of eps is seen."""
    norm = shaken(LayerNorm(6, bias))
    for scale in (1.0, 0.003):
        x = scale * random(2, 3, 6) + 1
        mean = sum(x.double().unbind(-1))[..., None] / 6
        variance = sum((x - mean).square().unbind(-1))[..., None] / 6
        expected = norm.gain * (x - mean) / (variance + 1e-5).sqrt()
        if bias:
            expected = expected + norm.bias
        # What x loses to its mean is divided by the deviation.
        deviation = (variance + 1e-5).sqrt().min()
        close = rounding(6, (x * norm.gain).detach() / deviation)
        assert_close(norm(x), expected.float(), **close)


def test_rms_norm_is_llamas_and_takes_no_mean_off():
    norm = shaken(RMSNorm(6))
    llamas = LlamaRMSNorm(6, eps=1e-5)
    llamas.load_state_dict({"weight": norm.gain})
    for scale in (1.0, 0.003):
        x = scale * (random(2, 3, 6) + 1)
        assert_close(norm(x), llamas(x), **rounding(6, norm(x)))


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
        # No formula has more than eight steps.
        assert_close(ACTIVATIONS[name](X), y, **rounding(8, y))


def new_block(block_class=Block, cross=False, **options) -> Block:
    """A block of random weights; with `cross` it has a branch for a context."""
    return shaken(
        block_class(
            MultiHeadAttention(12, 3),
            FeedForward(12, 20, "relu"),
            partial(LayerNorm, 12),
            cross_attention=MultiHeadAttention(12, 3) if cross else None,
            **options,
        )
    )


@torch.no_grad()
def copy_to(layer: nn.Module, *parts: nn.Module) -> None:
    """Our attentions, layers and norms as PyTorch's layer has them, in its order."""
    weights = []
    for part in parts:
        if isinstance(part, MultiHeadAttention):
            projections = (part.to_queries, part.to_keys, part.to_values)
            weights.append(torch.cat([x.weight for x in projections]))
            weights.append(torch.cat([x.bias for x in projections]))
            part = part.to_output
        weights += part.parameters()
    for parameter, weight in zip(layer.parameters(), weights, strict=True):
        parameter.copy_(weight)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_pytorchs_layer(name):
    """Alone its encoder layer, with a context its decoder layer."""
    x, features = random(2, 5, 12), random(2, 7, 12, seed=1)
    mask = causal_mask(5)

    # Without a context.
    block = new_block(BLOCKS[name])
    layer = nn.TransformerEncoderLayer(
        12,
        3,
        dim_feedforward=20,
        dropout=0.0,
        activation="relu",
        batch_first=True,
        norm_first=name == "pre-norm",
    )
    copy_to(
        layer,
        block.attention,
        block.feed_forward.to_hidden,
        block.feed_forward.to_output,
        block.attention_norm,
        block.feed_forward_norm,
    )
    expected = layer(x, src_mask=~mask)
    assert_close(block(x, mask=mask), expected, **rounding(20, expected))

    # With one.
    block = new_block(BLOCKS[name], cross=True)
    layer = nn.TransformerDecoderLayer(
        12,
        3,
        dim_feedforward=20,
        dropout=0.0,
        activation="relu",
        batch_first=True,
        norm_first=name == "pre-norm",
    )
    copy_to(
        layer,
        block.attention,
        block.cross_attention,
        block.feed_forward.to_hidden,
        block.feed_forward.to_output,
        block.attention_norm,
        block.cross_attention_norm,
        block.feed_forward_norm,
    )
    hidden = ~PADDING[:, 0, 0]
    expected = layer(x, features, tgt_mask=~mask, memory_key_padding_mask=hidden)
    reader = block.cross_attention
    keys_and_values = reader.to_keys(features), reader.to_values(features)
    for context in (keys_and_values, features):
        out = block(x, (context, PADDING), mask=mask)
        assert_close(out, expected, **rounding(20, expected))


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_dropout_falls_on_every_branch_in_training_alone(name, cross):
    """All of it: what a block without dropout does, and it is the default, is left."""
    context = (random(2, 7, 12, seed=1), PADDING) if cross else None
    x = random(2, 5, 12)
    block = new_block(BLOCKS[name], cross, dropout=1.0)
    expected = x
    if name == "post-norm":
        for norm in ("attention_norm", "cross_attention_norm", "feed_forward_norm"):
            expected = (getattr(block, norm) or nn.Identity())(expected)
    assert torch.equal(block.train()(x, context), expected)

    without_dropout = new_block(BLOCKS[name], cross).train()
    assert_close(block.eval()(x, context), without_dropout(x, context))


def test_every_branch_has_a_norm_of_its_own():
    attention, layer = MultiHeadAttention(12, 3), FeedForward(12)
    new_norm = partial(LayerNorm, 12)
    for block, n_branches in (
        (Block(attention, layer, new_norm), 2),
        (Block(attention, layer, new_norm, cross_attention=attention), 3),
    ):
        norms = [part for part in block.modules() if isinstance(part, LayerNorm)]
        assert len({*norms}) == len(norms) == n_branches


def test_what_a_block_cannot_be_or_do_is_refused():
    reading = new_block(cross=True)
    x = random(2, 5, 12)
    for words, call in (
        ("reads a context, and none was given", lambda: reading(x)),
        ("nothing reads it", lambda: new_block(Block)(x, (x, None))),
        ("nothing reads it", lambda: new_block(PostNormBlock)(x, (x, None))),
        ("d_hidden is 0; it must be 1 or more", lambda: FeedForward(6, 0)),
        ("'swish'.*'gelu'", lambda: GatedFeedForward(6, activation="swish")),
    ):
        with pytest.raises(ValueError, match=words):
            call()
