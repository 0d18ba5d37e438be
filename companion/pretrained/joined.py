"""Layers that multiply the same numbers, joined to one to decode. Chapter 12.

A token's products are small, so that the calls around them are a large part of its
time. Here queries, keys and values come out of one product, gate and hidden layer out
of one, and queries and keys are rotated together. The block around them stays.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..model.attention import CacheUpdate, MultiHeadAttention
from ..model.blocks import Block, GatedFeedForward, PostNormBlock, is_plain_linear
from ..model.positions import Rope, apply_rotary

# Lays a plain linear layer out to decode.
LayOut = Callable[[nn.Linear], nn.Module]


class JoinedAttention(MultiHeadAttention):
    """Self-attention as MultiHeadAttention has it: queries, keys, values in a product.

    Its layers are those of an `attention`, joined and laid out. It takes the same
    masks, ropes and stores, and has the same engines; sums may be rounded otherwise.
    """

    def __init__(self, attention: MultiHeadAttention, lay_out: LayOut):
        nn.Module.__init__(self)  # without matrices of its own
        self.n_heads = attention.n_heads
        self.n_kv_heads = attention.n_heads // attention.n_heads_per_kv_head
        self.d_head = attention.d_head
        self.n_heads_per_kv_head = attention.n_heads_per_kv_head
        self.qk_norm = attention.qk_norm
        self.engine = attention.engine
        self.to_heads = lay_out(
            side_by_side(attention.to_queries, attention.to_keys, attention.to_values)
        )
        self.from_heads = lay_out(attention.to_output)
        self.pattern = attention.pattern

    def forward(
        self,
        x: Tensor,
        context: Tensor | tuple[Tensor, Tensor] | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        rope: Rope | None = None,
        store: CacheUpdate | None = None,
    ) -> Tensor:
        """Lets x (b t c) attend to itself. Returns (b t c).

        All else is as in `MultiHeadAttention.forward`. Raises ValueError for a context:
        keys and values come out of the product that makes queries of x.
        """
        if context is not None:
            raise ValueError(
                "this attention was laid out to decode and reads no context: queries,"
                " keys and values are one product of its own text"
            )

        # Project, and cut into heads: queries, keys and values, (b t c) -> (b h t d).
        heads = self.to_heads(x).unflatten(-1, (-1, self.d_head)).transpose(1, 2)
        n_turned = self.n_heads + self.n_kv_heads
        turned, values = heads.split((n_turned, self.n_kv_heads), 1)
        if self.qk_norm:
            turned = F.rms_norm(turned, (self.d_head,))
        if rope is not None:
            turned = apply_rotary(turned, rope)
        queries, keys = turned.split((self.n_heads, self.n_kv_heads), 1)
        if store is not None:
            keys, values = store(keys, values)

        # Attend, and join the heads again: (b h t d) -> (b t c).
        out = self.attend(queries, keys, values, mask, is_causal)
        return self.from_heads(out.transpose(1, 2).flatten(2))


class JoinedFeedForward(nn.Module):
    """What a GatedFeedForward computes, with gate and hidden layer in one product."""

    def __init__(self, feed_forward: GatedFeedForward, lay_out: LayOut):
        super().__init__()
        self.activation: Any = feed_forward.activation
        self.to_both = lay_out(
            side_by_side(feed_forward.to_gate, feed_forward.to_hidden)
        )
        self.to_output = lay_out(feed_forward.to_output)

    def forward(self, x: Tensor) -> Tensor:
        """Returns (b t c)."""
        gate, hidden = self.to_both(x).chunk(2, -1)
        return self.to_output(self.activation(gate) * hidden)


def side_by_side(*layers: nn.Linear) -> nn.Linear:
    """Returns one linear layer that gives the outputs of all, side by side."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    n_outputs, n_inputs = weight.shape
    has_bias = layers[0].bias is not None
    layer = nn.utils.skip_init(nn.Linear, n_inputs, n_outputs, has_bias, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if has_bias:
        biases = [part.bias.detach() for part in layers]
        layer.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    return layer


def can_be_joined(part: nn.Module, fits: Callable[[nn.Linear], bool]) -> bool:
    """Returns whether a part has no hooks, and all its layers can be joined.

    They must be plain, of one type and on one device, and have biases or none; `fits`
    says of each whether it can be laid out.
    """
    if part._forward_hooks or part._forward_pre_hooks:
        return False
    kinds = set()
    for layer in part.children():
        if isinstance(layer, nn.Identity):  # an attention's pattern
            continue
        if not is_plain_linear(layer) or not fits(layer):
            return False
        kinds.add((layer.weight.dtype, layer.weight.device, layer.bias is None))
    return len(kinds) == 1


def join_layers(
    model: nn.Module, lay_out: LayOut, fits: Callable[[nn.Linear], bool]
) -> None:
    """Joins and lays out what can be in every block: attention, and a gate.

    What reads a context stays as it is, and so does a class that extends one of these:
    it may compute something else.
    """
    for block in [*model.modules()]:
        if not isinstance(block, Block) or type(block) not in (Block, PostNormBlock):
            continue
        part = block.attention
        if isinstance(part, MultiHeadAttention) and can_be_joined(part, fits):
            if type(part) is MultiHeadAttention:
                block.attention = JoinedAttention(part, lay_out).train(part.training)
        part = block.feed_forward
        if isinstance(part, GatedFeedForward) and can_be_joined(part, fits):
            if type(part) is GatedFeedForward:
                block.feed_forward = JoinedFeedForward(part, lay_out)
                block.feed_forward.train(part.training)
