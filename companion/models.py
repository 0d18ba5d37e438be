"""Models: the configuration, the stack of blocks, the GPT. Chapter 04."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from .attention import ENGINES, MultiHeadAttention
from .blocks import ACTIVATIONS, FEED_FORWARDS, NORMS, Block, CrossBlock
from .cache import Cache, Place, PreallocatedCache
from .inputs import check_between, check_name, check_tensor, check_whole, given
from .positions import POSITIONS

NAMES = {
    "positions": POSITIONS,
    "norm": NORMS,
    "feed_forward": FEED_FORWARDS,
    "activation": ACTIVATIONS,
    "engine": ENGINES,
}


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and parts of a GPT; the defaults are GPT-2 small's.

    positions: one of POSITIONS, and the base of rotary ones; norm: of NORMS;
    feed_forward: of FEED_FORWARDS; activation: of ACTIVATIONS.
    tied: the output matrix is the embedding. normalize: queries and keys are scaled to
    unit variance. zero_init: residual projections start at zero instead of small.
    scaled: embeddings are multiplied by √d_model (Vaswani et al. 2017, section 3.4).
    Raises ValueError for a size that is not positive or a name that is not known.
    """

    d_vocab: int = 50_257
    context_length: int = 1024
    d_model: int = 768
    n_heads: int = 12
    n_layers: int = 12
    n_kv_heads: int | None = None
    d_hidden: int | None = None
    positions: str = "learned"
    rotary_base: float = 10_000
    norm: str = "layer"
    feed_forward: str = "plain"
    activation: str = "gelu_tanh"
    pre_norm: bool = True
    bias: bool = True
    tied: bool = True
    normalize: bool = False
    zero_init: bool = False
    scaled: bool = False
    dropout: float = 0.0
    engine: str = "fused"

    def __post_init__(self):
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type is int or (field.type == int | None and value is not None):
                check_whole(**{name: value})
            if field.type is bool and not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}; it must be True or False")
        for name, known in NAMES.items():
            check_name(known, **{name: getattr(self, name)})
        check_between(0, 1, dropout=self.dropout)
        check_between(0, above=True, rotary_base=self.rotary_base)


def check_one_a_block(n_layers: int, **lists) -> None:
    """Raise ValueError where there are more or fewer than blocks."""
    for name, things in lists.items():
        if not isinstance(things, list | tuple) or len(things) != n_layers:
            n = len(things) if isinstance(things, list | tuple) else repr(things)
            raise ValueError(f"{name}: {n}, not one for each of {n_layers} blocks")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within, the model is in evaluation mode; after, every part is in its own again.

    A model that is not in training mode is left alone.
    """
    parts = [*model.modules()] if model.training else []
    modes = [part.training for part in parts]
    if parts:
        model.eval()
    try:
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


class Stack(nn.Module):
    """Tokens (b t) -> features (b t c): embedding, positions, blocks, final norm.

    `causal`: no token sees a later one. `cross`: every block reads a context as well,
    whose keys and values `read` prepares. `caches`, one a block, make the tokens a
    continuation of what they hold. A `mask`, broadcastable to (b h t s), can only
    forbid more. Raises ValueError for tokens of a wrong shape or dtype, beyond the
    vocabulary, or (learned positions) beyond the context, and for another number of
    caches than blocks.
    """

    def __init__(self, config: GPTConfig, *, causal: bool = True, cross: bool = False):
        super().__init__()
        if not isinstance(config, GPTConfig):
            raise ValueError(f"config is {given(config)}; it must be a GPTConfig")
        self.config, self.causal = config, causal
        self.embedding = nn.Embedding(config.d_vocab, config.d_model)
        self.positions = POSITIONS[config.positions](config)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.blocks = nn.ModuleList(self._block(cross) for _ in range(config.n_layers))
        self.norm = nn.Identity()  # post-norm blocks end with one
        if config.pre_norm:
            self.norm = NORMS[config.norm](config.d_model, config.bias)

    def _block(self, cross: bool) -> Block:
        o = self.config
        options = {"n_kv_heads": o.n_kv_heads, "normalize": o.normalize}
        attentions = [
            MultiHeadAttention(o.d_model, o.n_heads, o.bias, engine=o.engine, **options)
            for _ in range(1 + cross)
        ]
        feed_forward = FEED_FORWARDS[o.feed_forward]
        layer = feed_forward(o.d_model, o.d_hidden, o.activation, o.bias)
        norms = tuple(NORMS[o.norm](o.d_model, o.bias) for _ in range(2 + cross))
        kind = CrossBlock if cross else Block
        return kind(*attentions, layer, norms, o.dropout, o.pre_norm)

    @torch.no_grad()
    def _initialize(self, generator: torch.Generator | None) -> None:
        """Normal, deviation 0.02; residual projections less, the deeper the model."""
        residual_std = 0.02 / math.sqrt(2 * self.config.n_layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith("to_output.weight")
                std = residual_std if residual else 0.02
                parameter.normal_(0, std, generator=generator)
                if residual and self.config.zero_init:
                    parameter.zero_()
                # The longer axis lies in order: a product with one token's vector, the
                # work of decoding, then reads memory up to twice as fast.
                if parameter.shape[0] >= parameter.shape[1]:
                    parameter.data = parameter.data.t().contiguous().t()
            elif name.endswith("bias"):
                parameter.zero_()

    def new_caches(self, capacity: int | None = None) -> list[Cache]:
        """Empty caches, one a block, for `capacity` positions (or the context)."""
        capacity = self.config.context_length if capacity is None else capacity
        return [PreallocatedCache(capacity) for _ in self.blocks]

    def read(self, context: Tensor, mask: Tensor | None = None) -> list[tuple]:
        """What each block will read of a context (b s c): its keys and values, mask."""
        check_tensor("floats", "b s c", context=context)
        return [
            (block.cross_attention.keys_and_values(context), mask)
            for block in self.blocks
        ]

    def embed(self, tokens: Tensor) -> Tensor:
        """The vectors of tokens (b t) -> (b t c). An accelerator checks no token."""
        check_tensor("integers", "b t", tokens=tokens)
        try:
            x = self.embedding(tokens)
        except IndexError:
            raise ValueError(
                f"tokens run from {tokens.min()} to {tokens.max()}; the vocabulary is"
                f" 0 to {self.config.d_vocab - 1}"
            ) from None
        return x * math.sqrt(self.config.d_model) if self.config.scaled else x

    def forward(
        self,
        tokens: Tensor,
        caches: list[Cache] | None = None,
        *,
        mask: Tensor | None = None,
        reading: list[tuple] | None = None,
    ) -> Tensor:
        caches = [None] * len(self.blocks) if caches is None else caches
        reading = [()] * len(self.blocks) if reading is None else reading
        check_one_a_block(len(self.blocks), caches=caches, reading=reading)
        at = Place(tokens, caches[0], self.causal, mask)  # before any layer appends
        x = self.dropout(self.positions.embed(self.embed(tokens), at))
        turn, bias = self.positions.turn(at), self.positions.bias(at)
        for block, read, cache in zip(self.blocks, reading, caches, strict=True):
            x = block(x, *read, mask=at.mask, turn=turn, bias=bias, cache=cache)
        return self.norm(x)


class GPT(Stack):
    """A decoder-only Transformer: tokens (b t) -> logits (b t v), at every position.

    With `at`, a place or one for each stream (b), only what comes after that: (b v);
    ValueError for one that is not there.
    Weights come from `generator`; the rest is `Stack`'s. Radford et al. 2019.
    """

    def __init__(
        self,
        config: GPTConfig,
        generator: torch.Generator | None = None,
        cross: bool = False,
    ):
        super().__init__(config, cross=cross)
        self.unembedding = nn.Linear(config.d_model, config.d_vocab, bias=False)
        if config.tied:
            self.unembedding.weight = self.embedding.weight
        self._initialize(generator)

    def forward(
        self,
        tokens: Tensor,
        caches: list[Cache] | None = None,
        *,
        at: int | Tensor | None = None,
        **how,
    ) -> Tensor:
        x = super().forward(tokens, caches, **how)
        if at is not None:
            x = self._picked(x, at)
        return self.unembedding(x)

    def _picked(self, x: Tensor, at: int | Tensor) -> Tensor:
        """The features (b c) at one place of each stream (b t c)."""
        try:
            return x[torch.arange(len(x)), at]
        except IndexError:
            b, t, _ = x.shape
            raise ValueError(
                f"at is {given(at)}; it must be a place below {t}, or one for each of"
                f" {b} streams"
            ) from None
