"""The encoder and its decoder: the whole Transformer of 2017. Chapter 08."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from .attention import padding_mask
from .cache import Cache
from .gpt import GPT, GPTConfig, evaluating

# The base model of Vaswani et al. 2017, table 3, for an `EncoderDecoder`.
SIZES = {"d_vocab": 37_000, "context_length": 512, "d_model": 512}
SIZES |= {"n_heads": 8, "n_layers": 6, "dropout": 0.1}
PARTS = {"positions": "sinusoidal", "activation": "relu"}
TRANSFORMER_BASE = GPTConfig(**SIZES, **PARTS, pre_norm=False, scale_embeddings=True)


class EncoderDecoder(nn.Module):
    """The Transformer of 2017: source (b s) and target (b t) -> logits (b t v).

    `lengths` (b) says how much of each source is no padding; the target needs none: its
    causal mask hides what comes later, padding too. d_source: the source's vocabulary,
    d_vocab if it is None; shared: both stacks have one embedding. Raises ValueError for
    an empty or too long source, and to share an embedding between two vocabularies.
    Vaswani et al. 2017.
    """

    def __init__(
        self, config=TRANSFORMER_BASE, generator=None, *, d_source=None, shared=False
    ):
        super().__init__()
        if shared and d_source not in (None, config.d_vocab):
            sizes = f"the source has {d_source} tokens, the target {config.d_vocab}"
            raise ValueError(f"an embedding can't be shared: {sizes}")
        self.config = config
        source = config if d_source is None else replace(config, d_vocab=d_source)
        self.encoder = GPT(source, generator, causal=False)
        self.decoder = GPT(config, generator, cross=True)
        if shared:
            self.encoder.embedding.weight = self.decoder.embedding.weight

    def encode(self, source: Tensor, lengths=None) -> tuple[Tensor, Tensor]:
        """source (b s) -> features (b s c) and the mask of its tokens (b 1 1 s)."""
        b, n = source.shape
        lengths = torch.full((b,), n) if lengths is None else lengths
        if len(lengths) != b:
            raise ValueError(f"{len(lengths)} lengths for {b} sources")
        if n == 0 or (lengths.is_cpu and lengths.min() < 1):
            raise ValueError(f"a source is empty: lengths are {lengths.tolist()}")
        if n > self.config.context_length:
            longest = self.config.context_length
            raise ValueError(
                f"the source has {n} tokens, the context_length is {longest}"
            )
        mask = padding_mask(lengths, n).to(source.device)
        return self.encoder(source, mask=mask), mask

    def forward(self, source: Tensor, target: Tensor, lengths=None) -> Tensor:
        if len(source) != len(target):
            raise ValueError(f"{len(source)} sources for {len(target)} targets")
        features, mask = self.encode(source, lengths)
        return self.decoder(
            target, context=self.decoder.project_context(features, mask)
        )

    def read(self, source: Tensor, lengths=None) -> "ConditionedDecoder":
        """The decoder with the sources (b s) read: for `generate` and `beam_search`."""
        return ConditionedDecoder(self, source, lengths)


class ConditionedDecoder(nn.Module):
    """A decoder and what it reads, encoded once; called like a GPT."""

    def __init__(self, model: EncoderDecoder, source: Tensor, lengths=None):
        super().__init__()
        self.config, self.decoder = model.config, model.decoder
        self.new_cache = model.decoder.new_cache
        with evaluating(model), torch.no_grad():
            self.context = self.decoder.project_context(*model.encode(source, lengths))
        self.training = model.training

    def forward(self, tokens: Tensor, cache: Cache | None = None, **how) -> Tensor:
        return self.decoder(tokens, cache, context=self.context, **how)
