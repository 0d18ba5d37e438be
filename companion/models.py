"""Models: the GPT, whole. Chapter 04."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from .attention import MultiHeadAttention, causal_mask
from .blocks import ACTIVATIONS, NORMS, Block, FeedForward
from .cache import PreallocatedCache
from .positions import RelativeBias, alibi_at, rotary, sinusoidal_at

POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "t5", "none")


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and parts of a GPT; the defaults are GPT-2 small's.

    positions: one of POSITIONS; norm: of NORMS; activation: of ACTIVATIONS.
    tied: the output matrix is the embedding. normalize: queries and keys are scaled to
    unit variance. zero_init: residual projections start at zero instead of small.
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


class GPT(nn.Module):
    """A decoder-only Transformer: tokens (b t) -> logits (b t v), at every position.

    `caches`, one a layer, make the tokens a continuation of what the caches hold.
    Weights come from `generator`. Raises ValueError for tokens of a wrong shape or
    dtype, beyond the vocabulary, or (learned positions) beyond the context.
    Radford et al. 2019.
    """

    def __init__(self, config: GPTConfig, generator: torch.Generator | None = None):
        super().__init__()
        self.config = config
        c = config.d_model
        self.embedding = nn.Embedding(config.d_vocab, c)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.context_length, c)
        if config.positions == "t5":
            self.relative_bias = RelativeBias(config.n_heads)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.n_layers))
        self.norm = NORMS[config.norm](c, config.bias)
        self.unembedding = nn.Linear(c, config.d_vocab, bias=False)
        if config.tied:
            self.unembedding.weight = self.embedding.weight
        self._initialize(generator)

    def _block(self) -> Block:
        o = self.config
        attention = MultiHeadAttention(
            o.d_model,
            o.n_heads,
            o.bias,
            n_kv_heads=o.n_kv_heads,
            normalize=o.normalize,
            engine=o.engine,
        )
        feed_forward = FeedForward(o.d_model, o.d_hidden, o.activation, o.bias)
        norms = tuple(NORMS[o.norm](o.d_model, o.bias) for _ in range(2))
        return Block(attention, feed_forward, norms, o.dropout, o.pre_norm)

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

    def new_caches(self, capacity: int | None = None) -> list[PreallocatedCache]:
        """Empty caches, one a layer, for `capacity` positions (or the context)."""
        capacity = capacity or self.config.context_length
        return [PreallocatedCache(capacity) for _ in self.blocks]

    def _check(self, tokens: Tensor, end: int) -> None:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"tokens are {tokens.dtype} of shape {tuple(tokens.shape)}; a GPT takes"
                " integers (b t)"
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

    def forward(self, tokens: Tensor, caches: list | None = None) -> Tensor:
        start = len(caches[0]) if caches else 0
        end = start + tokens.shape[-1]
        self._check(tokens, end)
        positions = torch.arange(start, end, device=tokens.device)
        distance = positions[:, None] - torch.arange(end, device=tokens.device)
        x, turn, bias = self.embedding(tokens), None, None
        match self.config.positions:
            case "learned":
                x = x + self.position_embedding(positions)
            case "sinusoidal":
                x = x + sinusoidal_at(positions, self.config.d_model).to(x.dtype)
            case "rotary":
                turn = rotary(positions, self.config.d_model // self.config.n_heads)
            case "alibi":
                bias = alibi_at(distance, self.config.n_heads)
            case "t5":
                bias = self.relative_bias(distance)
        x = self.dropout(x)
        t = tokens.shape[1]
        mask = causal_mask(t, end, tokens.device) if t > 1 else None
        caches = caches or [None] * len(self.blocks)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, mask=mask, positions=turn, bias=bias, cache=cache)
        return self.unembedding(self.norm(x))
