"""Blocks: norms, activations, feed-forward, residual blocks. Chapters 04 and 08."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import check_name, check_whole


class LayerNorm(nn.Module):
    """(... c) shifted to mean 0 and scaled to variance 1 over c, then gain and bias.

    Ba et al. 2016, eq. 4. The variance is the biased one; eps is inside the root.
    """

    def __init__(self, d_model: int, bias: bool = True, eps: float = 1e-5):
        super().__init__()
        self.d_model, self.eps = d_model, eps
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.d_model,), self.gain, self.bias, self.eps)


class RMSNorm(nn.Module):
    """(... c) divided by the root of its mean square over c, times a gain.

    Zhang and Sennrich 2019, eq. 4. No mean is taken off and nothing is added.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.d_model, self.eps = d_model, eps
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.d_model,), self.gain, self.eps)


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)². So et al. 2021 (Primer)."""
    return torch.relu(x).square()


ACTIVATIONS = {
    "gelu": F.gelu,  # Hendrycks and Gimpel 2016
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # as GPT-2 computes it
    "relu": torch.relu,
    "squared_relu": squared_relu,
    "silu": F.silu,
}
# Each norm by its name, for c features; an RMSNorm has no bias in any model.
NORMS = {"layer": LayerNorm, "rms": lambda d_model, bias: RMSNorm(d_model)}


class FeedForward(nn.Module):
    """(b t c) through a wider hidden layer and back, each position by itself.

    Vaswani et al. 2017, eq. 2, with any of ACTIVATIONS.
    """

    def __init__(self, d_model: int, d_hidden=None, activation="gelu", bias=True):
        super().__init__()
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        check_whole(d_model=d_model, d_hidden=d_hidden)
        check_name(ACTIVATIONS, activation=activation)
        self.activation = ACTIVATIONS[activation]
        self.to_hidden = nn.Linear(d_model, d_hidden, bias)
        self.to_output = nn.Linear(d_hidden, d_model, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.to_output(self.activation(self.to_hidden(x)))


class GatedFeedForward(FeedForward):
    """A hidden layer of which each feature is multiplied by a gate, itself made of x.

    The activated branch is the gate: with SiLU this is SwiGLU, as in Llama.
    Shazeer 2020, eq. 6.
    """

    def __init__(self, d_model: int, d_hidden=None, activation="silu", bias=True):
        super().__init__(d_model, d_hidden, activation, bias)
        self.to_gate = nn.Linear(d_model, self.to_hidden.out_features, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.to_output(self.activation(self.to_gate(x)) * self.to_hidden(x))


FEED_FORWARDS = {"plain": FeedForward, "gated": GatedFeedForward}


class Block(nn.Module):
    """Attention, then feed-forward, each added to what came in: (b t c) -> (b t c).

    Pre-norm: a branch reads the norm of x (Radford et al. 2019, section 2.3). With
    `cross_attention`, and a third norm for it, the block reads a context between its
    two branches: ((keys, values), mask), as `GPT.project_context` makes
    it. `how` is attention's `mask`, `rope` and `store`.
    Raises ValueError unless each branch has a norm.
    """

    def __init__(
        self, attention, feed_forward, norms, dropout=0.0, cross_attention=None
    ):
        super().__init__()
        if len(norms) != (n := 2 if cross_attention is None else 3):
            raise ValueError(f"{len(norms)} norms for {n} branches; each has one")
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, *between, self.feed_forward_norm = norms
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.cross_attention = cross_attention
        self.cross_attention_norm = between[0] if between else None

    def forward(self, x: Tensor, context: tuple | None = None, **how) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), **how))
        if self.cross_attention is not None:
            read, mask = context
            asked = self.cross_attention_norm(x)
            x = x + self.dropout(self.cross_attention(asked, read, mask=mask))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class PostNormBlock(Block):
    """A block whose norms follow the additions. Vaswani et al. 2017, section 3.1."""

    def forward(self, x: Tensor, context: tuple | None = None, **how) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, **how)))
        if self.cross_attention is not None:
            read, mask = context
            x = x + self.dropout(self.cross_attention(x, read, mask=mask))
            x = self.cross_attention_norm(x)
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
