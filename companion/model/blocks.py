"""Blocks: norms, activations, feed-forward, residual blocks. Chapters 04 and 08."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..inputs import check_name, check_whole
from .attention import CacheUpdate, KeysAndValues, MultiHeadAttention
from .positions import Rope

# What is said where a context is given to a block that has no branch for it.
UNREAD = "a context is given to a block without `cross_attention`: nothing reads it"


class BlockContext(NamedTuple):
    """What a block reads beside its own text, and the mask of what it may read there.

    The first, features (b s c) or the keys and values that were made of them, is what
    its cross-attention takes as context. The mask is broadcastable to (b h t s).
    """

    source: Tensor | KeysAndValues
    mask: Tensor | None


class LayerNorm(nn.Module):
    """Shifts x (... c) to mean 0, scales it to variance 1 over c; then gain and bias.

    The variance is the biased one; eps is inside the root. Ba et al. 2016, eq. 4.
    """

    def __init__(self, d_model: int, bias: bool = True, eps: float = 1e-5):
        super().__init__()
        self.d_model = d_model
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Returns (... c)."""
        return F.layer_norm(x, (self.d_model,), self.gain, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Divides x (... c) by the root of its mean square over c; then a gain.

    No mean is taken off and nothing is added. Zhang and Sennrich 2019, eq. 4.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.d_model = d_model
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Returns (... c)."""
        return F.rms_norm(x, (self.d_model,), self.gain, self.eps)


def squared_relu(x: Tensor) -> Tensor:
    """Squares what is positive: max(x, 0)². So et al. 2021 (Primer)."""
    return torch.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,  # Hendrycks and Gimpel 2016
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # as GPT-2 computes it
    "relu": torch.relu,
    "squared_relu": squared_relu,
    "silu": F.silu,
}
# Each norm by its name, for c features; an RMSNorm has no bias in any model.
NORMS: dict[str, Callable[[int, bool], nn.Module]] = {
    "layer": LayerNorm,
    "rms": lambda d_model, bias: RMSNorm(d_model),
}


def is_plain_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Returns whether a layer is PyTorch's nn.Linear, W x + b, and nothing was added.

    Only then may its matrix be cut, packed or changed. A class that extends nn.Linear,
    a parameter beside the two, a hook on the way there or back, and a `forward` of its
    own may compute something else.
    """
    if type(layer) is not nn.Linear or "forward" in vars(layer):
        return False
    own = {*layer._parameters, *layer._buffers}
    hooks = [
        *layer._forward_pre_hooks,
        *layer._forward_hooks,
        *layer._backward_pre_hooks,
        *layer._backward_hooks,
    ]
    return own == {"weight", "bias"} and not hooks


def replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Puts a layer in the place of the one that a model has under this name."""
    parent, _, own_name = name.rpartition(".")
    setattr(model.get_submodule(parent), own_name, layer)


class FeedForward(nn.Module):
    """Takes x (b t c) through a wider hidden layer and back, each position by itself.

    `d_hidden`: the width, 4 · d_model if it is None. Raises ValueError for a size that
    is not positive or a name that is none of ACTIVATIONS. Vaswani et al. 2017, eq. 2.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int | None = None,
        activation: str = "gelu",
        bias: bool = True,
    ):
        super().__init__()
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        check_whole(d_model=d_model, d_hidden=d_hidden)
        check_name(ACTIVATIONS, activation=activation)
        self.activation = ACTIVATIONS[activation]
        self.to_hidden = nn.Linear(d_model, d_hidden, bias)
        self.to_output = nn.Linear(d_hidden, d_model, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns (b t c)."""
        return self.to_output(self.activation(self.to_hidden(x)))


class GatedFeedForward(FeedForward):
    """Multiplies each feature of the hidden layer by a gate, itself made of x.

    The activated branch is the gate: with SiLU this is SwiGLU, as in Llama.
    Shazeer 2020, eq. 6.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int | None = None,
        activation: str = "silu",
        bias: bool = True,
    ):
        super().__init__(d_model, d_hidden, activation, bias)
        self.to_gate = nn.Linear(d_model, self.to_hidden.out_features, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns (b t c)."""
        gate = self.activation(self.to_gate(x))
        return self.to_output(gate * self.to_hidden(x))


FEED_FORWARDS = {"plain": FeedForward, "gated": GatedFeedForward}


class Block(nn.Module):
    """Attention, then feed-forward, each added to what came in: (b t c) -> (b t c).

    Pre-norm: a branch reads the norm of x (Radford et al. 2019, section 2.3). With
    `cross_attention` the block reads a context between its two branches. Each branch
    has its own norm, which `new_norm` makes. Chapter 04.
    """

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        new_norm: Callable[[], nn.Module],
        dropout: float = 0.0,
        cross_attention: MultiHeadAttention | None = None,
    ):
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_norm = new_norm()
        self.feed_forward_norm = new_norm()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.cross_attention = cross_attention
        self.cross_attention_norm = None if cross_attention is None else new_norm()

    def forward(
        self,
        x: Tensor,
        context: BlockContext | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        rope: Rope | None = None,
        store: CacheUpdate | None = None,
    ) -> Tensor:
        """Returns (b t c). All after the star is the attention's.

        The context is what `GPT.project_context` makes for this block. Raises
        ValueError where there is one and nothing reads it, or the other way round.
        """
        if context is not None and self.cross_attention is None:
            raise ValueError(UNREAD)
        normed = self.attention_norm(x)
        attended = self.attention(
            normed, mask=mask, is_causal=is_causal, rope=rope, store=store
        )
        x = x + self.dropout(attended)
        if self.cross_attention_norm is not None:
            normed = self.cross_attention_norm(x)
            x = x + self.dropout(self.read(normed, context))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))

    def read(self, x: Tensor, context: BlockContext | None) -> Tensor:
        """Lets x (b t c) attend to the context. Returns (b t c).

        Raises ValueError where there is none.
        """
        if self.cross_attention is None or context is None:
            raise ValueError("this block reads a context, and none was given")
        source, mask = context
        return self.cross_attention(x, source, mask=mask)


class PostNormBlock(Block):
    """A block whose norms follow the additions. Vaswani et al. 2017, section 3.1."""

    def forward(
        self,
        x: Tensor,
        context: BlockContext | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        rope: Rope | None = None,
        store: CacheUpdate | None = None,
    ) -> Tensor:
        """Returns (b t c). Context, options and errors are `Block`'s."""
        if context is not None and self.cross_attention is None:
            raise ValueError(UNREAD)
        attended = self.attention(
            x, mask=mask, is_causal=is_causal, rope=rope, store=store
        )
        x = self.attention_norm(x + self.dropout(attended))
        if self.cross_attention_norm is not None:
            x = self.cross_attention_norm(x + self.dropout(self.read(x, context)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
