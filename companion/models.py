"""Models: the GPT, whole, and the encoder with its decoder. Chapters 04 and 08."""

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from .attention import MultiHeadAttention, padding_mask
from .blocks import ACTIVATIONS, NORMS, Block, CrossBlock, FeedForward
from .cache import Cache, ConcatenatingCache, PreallocatedCache
from .positions import RelativeBias, alibi_at, rotary, sinusoidal_at

POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "t5", "none")


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and parts of a GPT; the defaults are GPT-2 small's.

    positions: one of POSITIONS; norm: of NORMS; activation: of ACTIVATIONS.
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
    norm: str = "layer"
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
            value = getattr(self, field.name)
            if field.type in (int, "int") and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{field.name} is {value!r}; it must be 1 or more")
        names = (("positions", POSITIONS), ("norm", NORMS), ("activation", ACTIVATIONS))
        for name, known in names:
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, not in {[*known]}"
                )


class Stack(nn.Module):
    """Tokens (b t) -> features (b t c): embedding, positions, blocks, final norm.

    Without a mask, attention is causal. `caches`, one a block, make the tokens a
    continuation of what they hold. With `cross`, every block reads a context too.
    Raises ValueError for tokens of a wrong shape or dtype, beyond the vocabulary, or
    (learned positions) beyond the context.
    """

    def __init__(self, config: GPTConfig, cross: bool = False):
        super().__init__()
        self.config = config
        c = config.d_model
        self.embedding = nn.Embedding(config.d_vocab, c)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.context_length, c)
        if config.positions == "t5":
            self.relative_bias = RelativeBias(config.n_heads)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block(cross) for _ in range(config.n_layers))
        self.norm = nn.Identity()  # post-norm blocks end with one
        if config.pre_norm:
            self.norm = NORMS[config.norm](c, config.bias)

    def _block(self, cross: bool) -> Block:
        o = self.config
        attentions = [
            MultiHeadAttention(
                o.d_model,
                o.n_heads,
                o.bias,
                n_kv_heads=o.n_kv_heads,
                normalize=o.normalize,
                engine=o.engine,
            )
            for _ in range(1 + cross)
        ]
        feed_forward = FeedForward(o.d_model, o.d_hidden, o.activation, o.bias)
        norms = tuple(NORMS[o.norm](o.d_model, o.bias) for _ in range(2 + cross))
        kind = CrossBlock if cross else Block
        return kind(*attentions, feed_forward, norms, o.dropout, o.pre_norm)

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
        """Empty caches, one a layer, for `capacity` positions (or the context)."""
        capacity = capacity or self.config.context_length
        return [PreallocatedCache(capacity) for _ in self.blocks]

    def _check(self, tokens: Tensor, end: int) -> None:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"tokens are {tokens.dtype} of shape {tuple(tokens.shape)}; a model"
                " takes integers (b t)"
            )
        if self.config.positions == "learned" and end > self.config.context_length:
            raise ValueError(
                f"{end} positions exceed context_length ({self.config.context_length})"
            )
        if (
            tokens.numel()
            and not 0 <= tokens.min() <= tokens.max() < self.config.d_vocab
        ):
            raise ValueError(
                f"tokens run from {tokens.min()} to {tokens.max()}; the vocabulary is"
                f" 0 to {self.config.d_vocab - 1}"
            )

    def forward(
        self,
        tokens: Tensor,
        caches: list | None = None,
        *,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        caches = caches or [None] * 2 * len(self.blocks)
        first, t = Cache() if caches[0] is None else caches[0], tokens.shape[-1]
        self._check(tokens, len(first) + t)
        positions = first.positions(t).to(tokens.device)
        distances = first.distances(t).to(tokens.device)
        causal, x, turn, bias = mask is None, self.embedding(tokens), None, None
        if self.config.scaled:
            x = x * math.sqrt(self.config.d_model)
        match self.config.positions:
            case "learned":
                x = x + self.position_embedding(positions)
            case "sinusoidal":
                x = x + sinusoidal_at(positions, self.config.d_model).to(x.dtype)
            case "rotary":
                turn = rotary(positions, self.config.d_model // self.config.n_heads)
            case "alibi":
                bias = alibi_at(distances, self.config.n_heads)
            case "t5":
                bias = self.relative_bias(distances, causal)
        x = self.dropout(x)
        if causal and (mask := first.mask(t)) is not None:
            mask = mask.to(tokens.device)
        how = {"mask": mask, "positions": turn, "bias": bias}
        if context is not None:
            how |= {"context": context, "context_mask": context_mask}
        for i, block in enumerate(self.blocks):
            if context is not None:
                how["context_cache"] = caches[len(self.blocks) + i]
            x = block(x, cache=caches[i], **how)
        return self.norm(x)


class GPT(Stack):
    """A decoder-only Transformer: tokens (b t) -> logits (b t v), at every position.

    `caches`, one a layer, make the tokens a continuation of what the caches hold.
    Weights come from `generator`. Raises ValueError for tokens of a wrong shape or
    dtype, beyond the vocabulary, or (learned positions) beyond the context.
    Radford et al. 2019.
    """

    def __init__(self, config, generator: torch.Generator | None = None, cross=False):
        super().__init__(config, cross)
        self.unembedding = nn.Linear(config.d_model, config.d_vocab, bias=False)
        if config.tied:
            self.unembedding.weight = self.embedding.weight
        self._initialize(generator)

    def forward(self, tokens: Tensor, caches: list | None = None, **how) -> Tensor:
        return self.unembedding(super().forward(tokens, caches, **how))


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(GPTConfig):
    """GPTConfig and two more; the defaults are the base model of Vaswani et al. 2017.

    d_source: the source's vocabulary, d_vocab if it is None. shared: both stacks have
    one embedding. Raises ValueError for shared embeddings of two vocabularies.
    """

    d_vocab: int = 37_000
    context_length: int = 512
    d_model: int = 512
    n_heads: int = 8
    n_layers: int = 6
    positions: str = "sinusoidal"
    activation: str = "relu"
    pre_norm: bool = False
    scaled: bool = True
    dropout: float = 0.1
    d_source: int | None = None
    shared: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.shared and self.d_source not in (None, self.d_vocab):
            raise ValueError(
                f"an embedding can't be shared: the source has {self.d_source} tokens,"
                f" the target {self.d_vocab}"
            )


class EncoderDecoder(nn.Module):
    """The Transformer of 2017: source (b s) and target (b t) -> logits (b t v).

    `lengths` (b) says how much of each source is no padding; the target needs none: its
    causal mask hides what comes later, padding too. Raises ValueError for an empty or
    too long source. Vaswani et al. 2017.
    """

    def __init__(
        self, config: EncoderDecoderConfig, generator: torch.Generator | None = None
    ):
        super().__init__()
        self.config = config
        self.encoder = Stack(replace(config, d_vocab=config.d_source or config.d_vocab))
        self.encoder._initialize(generator)
        self.decoder = GPT(config, generator, cross=True)
        if config.shared:
            self.encoder.embedding.weight = self.decoder.embedding.weight

    def encode(
        self, source: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """source (b s) -> features (b s c) and the mask of its tokens (b 1 1 s)."""
        n, window = source.shape[-1], self.config.context_length
        if lengths is None:
            lengths = torch.full((len(source),), n)
        if n == 0 or lengths.min() < 1:
            raise ValueError(f"a source is empty: lengths are {lengths.tolist()}")
        if n > window:
            raise ValueError(
                f"the source has {n} tokens, the context_length is {window}"
            )
        mask = padding_mask(lengths, n).to(source.device)
        return self.encoder(source, mask=mask), mask

    def forward(
        self, source: Tensor, target: Tensor, lengths: Tensor | None = None
    ) -> Tensor:
        memory, mask = self.encode(source, lengths)
        return self.decoder(target, context=memory, context_mask=mask)

    def given(self, source: Tensor, lengths: Tensor | None = None) -> "Reader":
        """The decoder with the sources (b s) read: for `generate` and `beam_search`."""
        return Reader(self, source, lengths)


class Reader(nn.Module):
    """A decoder and what it reads, encoded once; called like a GPT."""

    def __init__(
        self, model: EncoderDecoder, source: Tensor, lengths: Tensor | None = None
    ):
        super().__init__()
        self.config, self.decoder = model.config, model.decoder
        was_training = model.training
        model.eval()
        with torch.no_grad():
            self.memory, self.mask = model.encode(source, lengths)
        model.train(was_training)
        self.train(was_training)

    def new_caches(self, capacity: int | None = None) -> list[Cache]:
        """One a layer for the target, and one a layer for the source."""
        caches = self.decoder.new_caches(capacity)
        return [*caches, *(ConcatenatingCache() for _ in caches)]

    def forward(self, tokens: Tensor, caches: list | None = None) -> Tensor:
        return self.decoder(tokens, caches, context=self.memory, context_mask=self.mask)
