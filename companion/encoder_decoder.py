"""The encoder and its decoder: the whole Transformer of 2017. Chapter 08."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from .attention import padding_mask
from .cache import Cache
from .inputs import check_tensor, check_whole, given
from .models import GPT, GPTConfig, Stack, evaluating

# The base model of Vaswani et al. 2017, table 3, for an `EncoderDecoder`.
TRANSFORMER_BASE = GPTConfig(
    d_vocab=37_000,
    context_length=512,
    d_model=512,
    n_heads=8,
    n_layers=6,
    positions="sinusoidal",
    activation="relu",
    pre_norm=False,
    scaled=True,
    dropout=0.1,
)


class EncoderDecoder(nn.Module):
    """The Transformer of 2017: source (b s) and target (b t) -> logits (b t v).

    `lengths` (b) says how much of each source is no padding; the target needs none: its
    causal mask hides what comes later, padding too. d_source: the source's vocabulary,
    d_vocab if it is None; shared: both stacks have one embedding. Raises ValueError for
    an empty or too long source, and to share an embedding between two vocabularies.
    Vaswani et al. 2017.
    """

    def __init__(
        self,
        config: GPTConfig = TRANSFORMER_BASE,
        generator: torch.Generator | None = None,
        *,
        d_source: int | None = None,
        shared: bool = False,
    ):
        super().__init__()
        if not isinstance(config, GPTConfig):
            raise ValueError(f"config is {given(config)}; it must be a GPTConfig")
        if d_source is not None:
            check_whole(d_source=d_source)
        if shared and d_source not in (None, config.d_vocab):
            raise ValueError(
                f"an embedding can't be shared: the source has {d_source} tokens, the"
                f" target {config.d_vocab}"
            )
        self.config = config
        source = replace(config, d_vocab=d_source or config.d_vocab)
        self.encoder = Stack(source, causal=False)
        self.encoder._initialize(generator)
        self.decoder = GPT(config, generator, cross=True)
        if shared:
            self.encoder.embedding.weight = self.decoder.embedding.weight

    def encode(
        self, source: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """source (b s) -> features (b s c) and the mask of its tokens (b 1 1 s)."""
        check_tensor("integers", "b s", source=source)
        n, window = source.shape[-1], self.config.context_length
        if lengths is None:
            lengths = torch.full((len(source),), n)
        check_tensor("integers", "b", lengths=lengths)
        if len(lengths) != len(source):
            raise ValueError(f"{len(lengths)} lengths for {len(source)} sources")
        if n == 0 or (lengths.is_cpu and lengths.min() < 1):
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
        check_tensor("integers", "b s", source=source)
        check_tensor("integers", "b t", target=target)
        if len(source) != len(target):
            raise ValueError(f"{len(source)} sources for {len(target)} targets")
        reading = self.decoder.read(*self.encode(source, lengths))
        return self.decoder(target, reading=reading)

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
        self.new_caches = model.decoder.new_caches
        with evaluating(model), torch.no_grad():
            self.reading = self.decoder.read(*model.encode(source, lengths))
        self.training = model.training

    def forward(
        self, tokens: Tensor, caches: list[Cache] | None = None, **how
    ) -> Tensor:
        return self.decoder(tokens, caches, reading=self.reading, **how)
