"""Blocks: norms, activations, feed-forward, residual blocks. Chapters 04 and 08."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import MultiHeadAttention
from .inputs import check_between, check_features, check_name, check_tensor, check_whole


class LayerNorm(nn.Module):
    """(... c) shifted to mean 0 and scaled to variance 1 over c, then gain and bias.

    Ba et al. 2016, eq. 4. The variance is the biased one; eps is inside the root.
    """

    def __init__(self, d_model: int, bias: bool = True, eps: float = 1e-5):
        super().__init__()
        check_whole(d_model=d_model)
        check_between(0, eps=eps)
        self.d_model, self.eps = d_model, eps
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        check_features(x, self.d_model)
        return F.layer_norm(x, (self.d_model,), self.gain, self.bias, self.eps)


class RMSNorm(nn.Module):
    """(... c) divided by the root of its mean square over c, times a gain.

    Zhang and Sennrich 2019, eq. 4. No mean is taken off and nothing is added.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        check_whole(d_model=d_model)
        check_between(0, eps=eps)
        self.d_model, self.eps = d_model, eps
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        check_features(x, self.d_model)
        return F.rms_norm(x, (self.d_model,), self.gain, self.eps)


def gelu(x: Tensor) -> Tensor:
    """x · Φ(x), with the exact normal distribution. Hendrycks and Gimpel 2016."""
    check_tensor("floats", "...", x=x)
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU as GPT-2 computes it, by a tanh."""
    check_tensor("floats", "...", x=x)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_sigmoid(x: Tensor) -> Tensor:
    """The coarser approximation of GELU, x · σ(1.702 x)."""
    check_tensor("floats", "...", x=x)
    return x * torch.sigmoid(1.702 * x)


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)². So et al. 2021 (Primer)."""
    check_tensor("floats", "...", x=x)
    return torch.relu(x).square()


# What a model runs: PyTorch's fused kernels where there are some, equal to the above.
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
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

    def __init__(
        self,
        d_model: int,
        d_hidden: int | None = None,
        activation: str = "gelu",
        bias: bool = True,
    ):
        super().__init__()
        check_whole(d_model=d_model)
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        check_whole(d_hidden=d_hidden)
        check_name(ACTIVATIONS, activation=activation)
        self.d_model, self.activation = d_model, ACTIVATIONS[activation]
        self.to_hidden = nn.Linear(d_model, d_hidden, bias)
        self.to_output = nn.Linear(d_hidden, d_model, bias)

    def forward(self, x: Tensor) -> Tensor:
        check_features(x, self.d_model)
        return self.to_output(self.activation(self.to_hidden(x)))


class GatedFeedForward(nn.Module):
    """A hidden layer of which each feature is multiplied by a gate, itself made of x.

    The gate is the branch that is bent: with SiLU this is SwiGLU, as in Llama.
    Shazeer 2020, eq. 6.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int | None = None,
        activation: str = "silu",
        bias: bool = True,
    ):
        super().__init__()
        check_whole(d_model=d_model)
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        check_whole(d_hidden=d_hidden)
        check_name(ACTIVATIONS, activation=activation)
        self.d_model, self.activation = d_model, ACTIVATIONS[activation]
        self.to_gate = nn.Linear(d_model, d_hidden, bias)
        self.to_hidden = nn.Linear(d_model, d_hidden, bias)
        self.to_output = nn.Linear(d_hidden, d_model, bias)

    def forward(self, x: Tensor) -> Tensor:
        check_features(x, self.d_model)
        return self.to_output(self.activation(self.to_gate(x)) * self.to_hidden(x))


FEED_FORWARDS = {"plain": FeedForward, "gated": GatedFeedForward}


class Block(nn.Module):
    """Attention, then feed-forward, each added to what came in: (b t c) -> (b t c).

    Pre-norm, as GPT-2, takes the norm of what goes into a branch (Radford et al. 2019,
    section 2.3); post-norm takes it after the addition (Vaswani et al. 2017, 3.1).
    `mask`, `turn`, `bias` and `cache` are attention's.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward | GatedFeedForward,
        norms: tuple,
        dropout: float = 0.0,
        pre_norm: bool = True,
    ):
        super().__init__()
        check_between(0, 1, dropout=dropout)
        if len(norms) != 2:
            raise ValueError(f"{len(norms)} norms; a block has one for each branch, 2")
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = norms
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.pre_norm = pre_norm

    def forward(
        self, x: Tensor, *, mask=None, turn=None, bias=None, cache=None
    ) -> Tensor:
        attend = partial(self.attention, mask=mask, turn=turn, bias=bias, cache=cache)
        if self.pre_norm:
            x = x + self.dropout(attend(self.attention_norm(x)))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(attend(x)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class CrossBlock(Block):
    """A block that reads: between its two branches it attends to a context (b s c).

    The context may be the keys and values that `cross_attention` made of it before;
    `context_mask` (b 1 1 s) is True at keys that are no padding. Vaswani et al. 2017,
    section 3.1, the decoder.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: FeedForward | GatedFeedForward,
        norms: tuple,
        dropout: float = 0.0,
        pre_norm: bool = True,
    ):
        if len(norms) != 3:
            raise ValueError(f"{len(norms)} norms; this block has three branches, 3")
        super().__init__(attention, feed_forward, norms[::2], dropout, pre_norm)
        self.cross_attention, self.cross_attention_norm = cross_attention, norms[1]

    def forward(
        self,
        x: Tensor,
        context: Tensor | tuple[Tensor, Tensor],
        context_mask: Tensor | None = None,
        *,
        mask=None,
        turn=None,
        bias=None,
        cache=None,
    ) -> Tensor:
        if context is None:
            raise ValueError("context is None; it must be (b s c), or keys and values")
        attend = partial(self.attention, mask=mask, turn=turn, bias=bias, cache=cache)
        look = partial(self.cross_attention, context=context, mask=context_mask)
        if self.pre_norm:
            x = x + self.dropout(attend(self.attention_norm(x)))
            x = x + self.dropout(look(self.cross_attention_norm(x)))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(attend(x)))
        x = self.cross_attention_norm(x + self.dropout(look(x)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
