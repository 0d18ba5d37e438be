"""Models: the configuration and the GPT. Chapter 04."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor, nn

from ..inputs import check_between, check_name, check_whole, shown
from .attention import ENGINES, MultiHeadAttention
from .blocks import ACTIVATIONS, FEED_FORWARDS, NORMS, Block, PostNormBlock
from .cache import Cache, PreallocatedCache
from .positions import POSITIONS

NAMES = {
    "positions": POSITIONS,
    "norm": NORMS,
    "feed_forward": FEED_FORWARDS,
    "activation": ACTIVATIONS,
    "engine": ENGINES,
}
ATTENTION = ("n_kv_heads", "qk_norm", "engine")
IDS = (torch.int64, torch.int32)  # what an embedding looks up


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and parts of a GPT; the defaults are GPT-2 small's.

    positions: one of POSITIONS, and the base of rotary ones; norm: of NORMS;
    feed_forward: of FEED_FORWARDS; activation: of ACTIVATIONS.
    tie_embeddings: the output matrix is the embedding. qk_norm: queries and keys are
    scaled to unit variance. zero_init: residual projections start at zero.
    scale_embeddings: embeddings are multiplied by √d_model (Vaswani et al. 2017,
    section 3.4).
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
    tie_embeddings: bool = True
    qk_norm: bool = False
    zero_init: bool = False
    scale_embeddings: bool = False
    dropout: float = 0.0
    engine: str = "fused"

    def __post_init__(self):
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type is int or (field.type == int | None and value is not None):
                check_whole(**{name: value})
        for name, known in NAMES.items():
            check_name(known, **{name: getattr(self, name)})
        check_between(0, 1, dropout=self.dropout)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within, the model is in evaluation mode; after, each part is as it was."""
    in_training = [part for part in model.modules() if part.training]
    try:
        for part in in_training:
            part.training = False
        yield
    finally:
        for part in in_training:
            part.training = True


def check_tie(model: nn.Module, weights: dict[str, Tensor], prefix: str, *_) -> None:
    """Raises ValueError where a tied model is to load two matrices that differ."""
    embedding = weights.get(f"{prefix}embedding.weight")
    unembedding = weights.get(f"{prefix}unembedding.weight")
    if embedding is None or unembedding is None or embedding is unembedding:
        return
    if not torch.equal(embedding, unembedding):
        raise ValueError(
            "unembedding.weight is not embedding.weight, but the model has one matrix"
            " for both: configure it with tie_embeddings=False"
        )


class GPT(nn.Module):
    """A decoder-only Transformer: tokens (b t) -> logits (b t v), at every position.

    With `last`, a position or one for each stream (b), only what comes after it: (b v).
    With a `cache` the tokens go on from what it has seen. `cross`: each block also
    reads a `context`, which `project_context` makes. Not `causal`, it is an
    encoder: all tokens see each other, and what comes out are features (b t c). Weights come from
    `generator`.

    A `mask`, broadcastable to (b h t s), can only forbid more. It has a column for each
    position so far, whatever the cache still holds. It moves no token: texts that are
    padded on the left by hand begin late, which is wrong for learned and sinusoidal
    positions. Prompts of many lengths go to `generate` as a list, or into a
    `RaggedCache`, padded at the end.

    Raises ValueError for tokens that are not (b t) integers within the vocabulary, or
    beyond the context of learned positions, for a mask that does not fit, and for a
    cache of another model. Radford et al. 2019.
    """

    def __init__(self, config: GPTConfig, generator=None, *, causal=True, cross=False):
        super().__init__()
        self.config, self.causal = config, causal
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1
        self.embedding = nn.Embedding(config.d_vocab, config.d_model)
        self.positions = POSITIONS[config.positions](config, causal)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        blocks = (self.new_block(cross) for _ in range(config.n_layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = self.unembedding = nn.Identity()
        if config.pre_norm:  # post-norm blocks end with one
            self.norm = NORMS[config.norm](config.d_model, config.bias)
        if causal:
            self.unembedding = nn.Linear(config.d_model, config.d_vocab, bias=False)
            if config.tie_embeddings:
                self.unembedding.weight = self.embedding.weight
                self.register_load_state_dict_pre_hook(check_tie)
        self.initialize(generator)

    def new_block(self, cross: bool) -> Block:
        """One block, as the configuration has it."""
        o = self.config
        options = {name: getattr(o, name) for name in ATTENTION}
        attention, *cross_attention = (
            MultiHeadAttention(o.d_model, o.n_heads, o.bias, **options)
            for _ in range(1 + cross)
        )
        kind = FEED_FORWARDS[o.feed_forward]
        layer = kind(o.d_model, o.d_hidden, o.activation, o.bias)
        norms = tuple(NORMS[o.norm](o.d_model, o.bias) for _ in range(2 + cross))
        kind = Block if o.pre_norm else PostNormBlock
        return kind(attention, layer, norms, o.dropout, *cross_attention)

    @torch.no_grad()
    def initialize(self, generator) -> None:
        """Normal, deviation 0.02; residual projections less, the deeper the model."""
        for name, parameter in self.named_parameters():
            residual = name.endswith("to_output.weight")
            if parameter.dim() == 2:
                std = 0.02 / math.sqrt(2 * self.config.n_layers if residual else 1)
                parameter.normal_(0, std, generator=generator)
            if name.endswith("bias") or (residual and self.config.zero_init):
                parameter.zero_()

    def new_cache(self, capacity: int | None = None) -> PreallocatedCache:
        """An empty cache with room for `capacity` positions, or for the context."""
        window = self.config.context_length
        return PreallocatedCache(window if capacity is None else capacity)

    def project_context(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[tuple]:
        """What the blocks read of features (b s c): ((keys, values), mask) for each."""
        layers = [block.cross_attention for block in self.blocks]
        return [((a.to_keys(features), a.to_values(features)), mask) for a in layers]

    def forward(
        self, tokens: Tensor, cache=None, *, last=None, mask=None, context=None
    ) -> Tensor:
        if (
            not isinstance(tokens, Tensor)
            or tokens.dim() != 2
            or tokens.dtype not in IDS
        ):
            wanted = "they must be integers (b t), of 64 or 32 bits"
            raise ValueError(f"tokens are {shown(tokens)}; {wanted}")
        if cache is not None and not self.causal:
            raise ValueError("an encoder takes no cache: its tokens see later ones")
        b, t = tokens.shape
        try:
            x = self.embedding(tokens) * self.scale
        except IndexError:
            low, high, n = int(tokens.min()), int(tokens.max()), self.config.d_vocab
            if 0 <= low and high < n:
                raise  # something else failed
            known = f"the vocabulary is 0 to {n - 1}"
            raise ValueError(f"tokens run from {low} to {high}; {known}") from None

        # Where the tokens stand, and what they may see.
        kept = Cache() if cache is None else cache
        place = kept.place(
            t,
            x.device,
            causal=self.causal,
            mask=mask,
            n_streams=b,
            n_layers=len(self.blocks),
        )
        x, rope, bias = self.positions(x, place)
        x = self.dropout(x)
        mask = place.mask if bias is None else place.add(bias)

        append = None if cache is None else cache.append
        if rope is not None and place.moved is not None:
            # The keys of sinks that were moved are turned by as much.
            _, turn, _ = self.positions(x, place._replace(queries=place.moved))
            append = partial(append, turn=turn)
        for i, block in enumerate(self.blocks):
            store = None if append is None else partial(append, i)
            x = block(x, context and context[i], mask=mask, rope=rope, store=store)
        x = x if last is None else x[torch.arange(b), last]
        logits = self.unembedding(self.norm(x))
        kept.n_seen = kept.n_seen + t  # last of all: a pass that fails changes nothing
        return logits
