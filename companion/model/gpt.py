"""Models: the configuration and the GPT. Chapter 04."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..inputs import (
    check_between,
    check_bool,
    check_in_vocabulary,
    check_name,
    check_whole,
    fits,
    shown,
)
from .attention import ENGINES, MultiHeadAttention
from .blocks import (
    ACTIVATIONS,
    FEED_FORWARDS,
    NORMS,
    Block,
    BlockContext,
    PostNormBlock,
)
from .cache import NO_PAST, Cache, PreallocatedCache
from .positions import POSITIONS
from .scores import Heads
from .serving_caches import append_turned


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and parts of a GPT; the defaults are GPT-2 small's.

    n_kv_heads: heads of keys and values; None: as many as of queries.
    d_hidden: the width within a feed-forward layer; None: the layer's own default.
    positions: one of POSITIONS, and `rotary_base` the base of rotary ones.
    norm, feed_forward, activation: one of NORMS, FEED_FORWARDS, ACTIVATIONS.
    pre_norm: a norm stands before each half of a block, not behind its sum.
    bias: linear layers and LayerNorms add a vector, all but the output matrix.
    tie_embeddings: the output matrix is the embedding.
    qk_norm: queries and keys are scaled to a mean square of 1 in each head.
    zero_init: residual projections start at zero.
    scale_embeddings: embeddings are multiplied by √d_model (Vaswani et al. 2017,
    section 3.4).
    dropout: the share of features that is dropped in training, of the embedding and of
    what each half of a block adds; attention's weights are never dropped.
    engine: one of ENGINES, by which attention is computed.

    Raises ValueError for a size that is not positive, a name that is not known, and a
    number or a choice that can't be meant. Radford et al. 2019. Chapter 04.
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
    tie_embeddings: bool = True
    qk_norm: bool = False
    zero_init: bool = False
    scale_embeddings: bool = False
    dropout: float = 0.0
    engine: str = "fused"

    def __post_init__(self) -> None:
        check_whole(
            d_vocab=self.d_vocab,
            context_length=self.context_length,
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_layers=self.n_layers,
        )
        if self.n_kv_heads is not None:
            check_whole(n_kv_heads=self.n_kv_heads)
        if self.d_hidden is not None:
            check_whole(d_hidden=self.d_hidden)

        check_name(POSITIONS, positions=self.positions)
        check_name(NORMS, norm=self.norm)
        check_name(FEED_FORWARDS, feed_forward=self.feed_forward)
        check_name(ACTIVATIONS, activation=self.activation)
        check_name(ENGINES, engine=self.engine)
        check_between(0, 1, dropout=self.dropout)
        check_between(1, finite=True, rotary_base=self.rotary_base)
        check_bool(
            pre_norm=self.pre_norm,
            bias=self.bias,
            tie_embeddings=self.tie_embeddings,
            qk_norm=self.qk_norm,
            zero_init=self.zero_init,
            scale_embeddings=self.scale_embeddings,
        )

        # NumPy's numbers become Python's: PyTorch and JSON take no others.
        for name, x in vars(self).items():
            if isinstance(x, Real) and not isinstance(x, bool | int | float):
                plain = int(x) if isinstance(x, Integral) else float(x)
                object.__setattr__(self, name, plain)


class GPT(nn.Module):
    """A stack of blocks, by default a decoder: tokens (b t) -> logits (b t v).

    `cross`: each block also reads a context, which `project_context` makes. Not
    `causal`, it is an encoder: all tokens see each other, and what comes out are
    features (b t c). Its weights are drawn from `generator`.
    Radford et al. 2019.
    """

    def __init__(
        self,
        config: GPTConfig,
        generator: torch.Generator | None = None,
        *,
        causal: bool = True,
        cross: bool = False,
    ):
        super().__init__()
        self.config = config
        self.causal = causal
        self.cross = cross

        self.embedding = nn.Embedding(config.d_vocab, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1
        self.positions = POSITIONS[config.positions](config, causal)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

        blocks = [self.new_block() for _ in range(config.n_layers)]
        self.blocks = nn.ModuleList(blocks)
        if config.pre_norm:
            self.norm = NORMS[config.norm](config.d_model, config.bias)
        else:
            self.norm = nn.Identity()  # post-norm blocks end with one

        self.unembedding: nn.Module = nn.Identity()
        if causal:
            to_logits = nn.Linear(config.d_model, config.d_vocab, bias=False)
            if config.tie_embeddings:
                to_logits.weight = self.embedding.weight
                names = "embedding.weight", "unembedding.weight"
                is_one = partial(check_tie, *names, "tie_embeddings=False")
                self.register_load_state_dict_pre_hook(is_one)
            self.unembedding = to_logits
        self.initialize(generator)

    def new_block(self) -> Block:
        """Builds one block, as the configuration has it. Returns it."""
        config = self.config
        new_feed_forward = FEED_FORWARDS[config.feed_forward]
        block_class = Block if config.pre_norm else PostNormBlock
        return block_class(
            attention=self.new_attention(),
            cross_attention=self.new_attention() if self.cross else None,
            feed_forward=new_feed_forward(
                config.d_model, config.d_hidden, config.activation, config.bias
            ),
            new_norm=partial(NORMS[config.norm], config.d_model, config.bias),
            dropout=config.dropout,
        )

    def new_attention(self) -> MultiHeadAttention:
        """Builds one attention, as the configuration has it. Returns it."""
        config = self.config
        return MultiHeadAttention(
            config.d_model,
            config.n_heads,
            config.bias,
            n_kv_heads=config.n_kv_heads,
            qk_norm=config.qk_norm,
            engine=config.engine,
        )

    @torch.no_grad()
    def initialize(self, generator: torch.Generator | None) -> None:
        """Draws all matrices anew: normal, with deviation 0.02; biases are 0.

        The projections that end a branch have 0.02 / √(2 n_layers), for two branches a
        block, also where it has a third, which reads a context; or they are 0 with
        `zero_init`. Radford et al. 2019, section 2.3.
        """
        for name, parameter in self.named_parameters():
            is_residual = name.endswith("to_output.weight")
            if parameter.dim() == 2:
                std = 0.02
                if is_residual:
                    std = 0.02 / math.sqrt(2 * self.config.n_layers)
                parameter.normal_(0, std, generator=generator)
            if name.endswith("bias") or (is_residual and self.config.zero_init):
                parameter.zero_()

    def new_cache(self, capacity: int | None = None) -> PreallocatedCache:
        """Returns an empty cache for `capacity` positions, or the context length."""
        if capacity is None:
            capacity = self.config.context_length
        return PreallocatedCache(capacity)

    def project_context(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[BlockContext]:
        """Makes each block's keys and values of the features (b s c), once for all.

        Returns a `BlockContext` for each block, whose source is the pair (keys,
        values), both (b s c). Raises ValueError for a model
        without `cross`. Vaswani et al. 2017, sec. 3.2.3.
        """
        if not self.cross:
            raise ValueError("no block reads a context: the model has no `cross`")
        context: list[BlockContext] = []
        block: Any  # a ModuleList does not say of what class its modules are
        for block in self.blocks:
            keys = block.cross_attention.to_keys(features)
            values = block.cross_attention.to_values(features)
            context.append(BlockContext((keys, values), mask))
        return context

    def forward(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        *,
        last: int | Tensor | None = None,
        mask: Tensor | None = None,
        context: list[BlockContext] | None = None,
    ) -> Tensor:
        """Returns the logits after every token (b t v); an encoder's features (b t c).

        cache: the tokens go on from what it has seen, and are kept there.
        last: only the logits after these of the tokens come out. A place, or one for
        each stream (b), gives (b v); several for each stream (b n) give (b n v); an
        encoder's have c features in the place of v logits. Places
        are counted from 0 at the first of the tokens, or from the end by -1, -2, ...
        mask: broadcastable to (b h t s), with a column for each position so far; it can
        only forbid more. It moves no token: a text that is padded on the left begins
        late. Prompts of many lengths go to `generate` as a list, or into a
        `RaggedCache`, padded at the end.
        context: what `project_context` made, for a model with `cross`.

        Raises ValueError for options that do not fit, and for tokens that are not (b t)
        integers within the vocabulary and the context of learned positions; on an
        accelerator, where that fails too late to be caught, not for these numbers or
        those of `last`.
        """
        if cache is not None and not self.causal:
            raise ValueError("an encoder takes no cache: its tokens see later ones")
        # Each token's vector. Only if that fails are the tokens looked at.
        try:
            n_streams, n_tokens = tokens.shape
            x = self.embedding(tokens) * self.scale
        except Exception:
            check_tokens(tokens, self.config.d_vocab)
            raise  # something else failed
        if self.cross or context is not None:
            check_context(context, len(self.blocks) if self.cross else 0, n_streams)

        # Where the tokens stand, what they may see, and by what they know their order.
        if cache is not None:
            cache.begin(n_streams, n_tokens, len(self.blocks))
        past = NO_PAST if cache is None else cache
        place = past.place(n_tokens, x.device, self.causal, mask)
        positioned = self.positions(x, place)
        x = positioned.x  # with what the scheme adds to a token's vector, if it does
        if positioned.bias is not None:  # what it adds to the scores goes as their mask
            place = place.with_bias(positioned.bias, n_streams)

        # How a layer keeps its new keys and values, and gets all there are.
        append: Callable[..., tuple[Heads, Heads]] | None = None
        if cache is not None:
            append = cache.append
            if positioned.turn is not None:  # the sinks' keys were rotated elsewhere
                append = partial(append_turned, cache, positioned.turn)

        # The blocks, one after the other.
        x = self.dropout(x)
        for i, block in enumerate(self.blocks):
            x = block(
                x,
                None if context is None else context[i],
                mask=place.mask,
                is_causal=place.is_causal,
                rope=positioned.rope,  # each layer rotates its queries and keys
                store=None if append is None else partial(append, i),
            )

        # The logits: of every position, or of those that are asked for.
        if last is not None:
            x = at_places(x, last)
        logits = self.unembedding(self.norm(x))

        # The cursor moves last of all: a pass that fails changes nothing.
        if cache is not None:
            cache.advance(n_tokens)
        return logits


class LanguageModel(Protocol):
    """What decoding asks of a model: a GPT, a decoder that reads, one's own."""

    config: GPTConfig

    def __call__(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        *,
        last: int | Tensor | None = None,
    ) -> Tensor: ...

    def new_cache(self, capacity: int | None = None) -> PreallocatedCache: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def modules(self) -> Iterator[nn.Module]: ...


@contextmanager
def evaluating(
    model: LanguageModel | nn.Module, parts: list[nn.Module] | None = None
) -> Iterator[None]:
    """Within, the model is in evaluation mode; after, each part is as it was.

    Who comes here for every token looks for the model's `parts`, its modules, once.
    """
    if parts is None:
        parts = [*model.modules()]
    in_training = [part for part in parts if part.training]
    try:
        for part in in_training:
            part.training = False
        yield
    finally:
        for part in in_training:
            part.training = True


def check_tie(
    one: str,
    other: str,
    way_out: str,
    model: nn.Module,
    weights: dict[str, Tensor],
    prefix: str,
    *_: object,
) -> None:
    """Raises ValueError where two matrices that differ are to be loaded into one."""
    first = weights.get(prefix + one)
    second = weights.get(prefix + other)
    if first is None or second is None or first is second:
        return
    if not torch.equal(first, second):
        raise ValueError(
            f"{other} is not {one}, but the model has one matrix for both: configure it"
            f" with {way_out}"
        )


def check_tokens(tokens: Tensor, d_vocab: int) -> None:
    """Raises ValueError unless they are integers (b t) within the vocabulary."""
    if not fits(tokens, "integers", "b t"):
        raise ValueError(
            f"tokens are {shown(tokens)}; they must be integers (b t), of 64 or 32 bits"
        )
    check_in_vocabulary(d_vocab, tokens=tokens)


def check_context(
    context: list[BlockContext] | None, n_reading: int, n_streams: int
) -> None:
    """Raises ValueError unless the context is for these blocks and streams.

    It is for so many blocks as read one, and of one source or of one for each stream.
    """
    n_given = 0 if context is None else len(context)
    if n_given != n_reading:
        raise ValueError(
            f"the context is for {n_given} blocks, and {n_reading} of this model's read"
            " one; `project_context` of a model with `cross` makes it"
        )
    for source, _ in context or []:
        n_sources = len(source[0] if isinstance(source, tuple) else source)
        if n_sources not in (1, n_streams):
            raise ValueError(
                f"the context is of {n_sources} sources, and the tokens of {n_streams}"
                " streams: all streams read one, or each reads its own"
            )


def at_places(x: Tensor, places: int | Tensor) -> Tensor:
    """Takes from x (b t c) one place, or for each stream one (b) or several (b n).

    Places are counted from 0, or from the end by -1, -2, ... Returns (b c), or (b n c).
    Raises ValueError for places of other streams, and for one that x doesn't have; on
    an accelerator, where that fails too late to be caught, not for these.
    """
    n_streams, n_places, _ = x.shape
    rows: slice | Tensor = slice(None)
    if isinstance(places, Tensor):
        if not any(fits(places, "integers", axes) for axes in ("b", "b n")):
            raise ValueError(f"last is {shown(places)}; it must be integers, b or b n")
        if len(places) != n_streams:
            raise ValueError(f"last has {len(places)} rows for {n_streams} streams")
        rows = torch.arange(n_streams, device=places.device)
        if places.dim() == 2:
            rows = rows[:, None]
    else:
        check_whole(-n_places, last=places)

    try:
        return x[rows, places]
    except IndexError:
        given = torch.as_tensor(places)
        raise ValueError(
            f"last runs from {given.min()} to {given.max()}; {n_places} tokens stand at"
            f" 0 to {n_places - 1}, and from the end at -1 to {-n_places}"
        ) from None
