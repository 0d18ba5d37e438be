"""The encoder and its decoder: the whole Transformer of 2017. Chapter 08."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from ..inputs import check_tensor
from .attention import padding_mask
from .cache import Cache
from .gpt import GPT, GPTConfig, check_tie, evaluating

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
    scale_embeddings=True,
    dropout=0.1,
)


class EncoderDecoder(nn.Module):
    """The Transformer of 2017: source (b s) and target (b t) -> logits (b t v).

    d_vocab_source: the source's vocabulary, d_vocab if it is None; shared: both stacks
    have one embedding. Raises ValueError to share one between two vocabularies.
    Vaswani et al. 2017.
    """

    def __init__(
        self,
        config: GPTConfig = TRANSFORMER_BASE,
        generator: torch.Generator | None = None,
        *,
        d_vocab_source: int | None = None,
        shared: bool = False,
    ):
        super().__init__()
        if shared and d_vocab_source not in (None, config.d_vocab):
            raise ValueError(
                f"an embedding can't be shared: the source has {d_vocab_source} tokens,"
                f" the target {config.d_vocab}"
            )
        self.config = config
        source_config = config
        if d_vocab_source is not None:
            source_config = replace(config, d_vocab=d_vocab_source)

        self.encoder = GPT(source_config, generator, causal=False)
        self.decoder = GPT(config, generator, cross=True)
        if shared:
            self.encoder.embedding.weight = self.decoder.embedding.weight
            names = "encoder.embedding.weight", "decoder.embedding.weight"
            is_one = partial(check_tie, *names, "shared=False")
            self.register_load_state_dict_pre_hook(is_one)

    def encode(
        self, source: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Turns source (b s) into features (b s c). Returns them and the tokens' mask.

        `lengths` (b) says how much of each source is no padding; the mask (b 1 1 s) is
        True there. Raises ValueError for sources beyond the context_length, for another
        number of lengths than sources, and for a length that is not from 1 to s; of
        lengths on an accelerator, where to look is to wait, none is looked at.
        """
        check_tensor("integers", "b s", source=source)
        b, n = source.shape
        if lengths is None:
            lengths = torch.full((b,), n)
        if b == 0:
            raise ValueError(f"source is {tuple(source.shape)}; it must hold 1 or more")
        if len(lengths) != b:
            raise ValueError(f"{len(lengths)} lengths for {b} sources")
        if n == 0 or (lengths.is_cpu and lengths.min() < 1):
            raise ValueError(f"a source is empty: lengths are {lengths.tolist()}")
        if n > self.config.context_length:
            raise ValueError(
                f"the source has {n} tokens, the context_length is"
                f" {self.config.context_length}"
            )

        mask = padding_mask(lengths, n).to(source.device)
        return self.encoder(source, mask=mask), mask

    def forward(
        self, source: Tensor, target: Tensor, lengths: Tensor | None = None
    ) -> Tensor:
        """Returns the logits (b t v) after every token of the target (b t).

        `lengths` (b) says how much of each source (b s) is no padding. The target needs
        none: its causal mask hides what comes later, padding too. Raises ValueError as
        `encode` does, and for another number of sources than targets.
        """
        if len(source) != len(target):
            raise ValueError(f"{len(source)} sources for {len(target)} targets")
        features, mask = self.encode(source, lengths)
        context = self.decoder.project_context(features, mask)
        return self.decoder(target, context=context)

    def read(
        self, source: Tensor, lengths: Tensor | None = None
    ) -> "ConditionedDecoder":
        """Encodes sources (b s) once. Returns a decoder to generate with."""
        return ConditionedDecoder(self, source, lengths)


class ConditionedDecoder(nn.Module):
    """A decoder and the sources (b s) that it reads, encoded once; called like a GPT.

    It has a mode of its own: in evaluation mode it is without dropout, and the pair
    whose decoder it is goes on in whatever mode that is. Raises ValueError as
    `EncoderDecoder.encode` does.
    """

    def __init__(
        self, model: EncoderDecoder, source: Tensor, lengths: Tensor | None = None
    ):
        super().__init__()
        self.config = model.config
        self.decoder = model.decoder
        self.new_cache = model.decoder.new_cache
        with evaluating(model), torch.no_grad():
            features, mask = model.encode(source, lengths)
            self.context = self.decoder.project_context(features, mask)
        self.training = model.training

    def train(self, mode: bool = True) -> "ConditionedDecoder":
        """Sets its own mode alone: the decoder is the pair's. Returns itself."""
        self.training = mode
        return self

    def forward(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        *,
        last: int | Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits (b t v) after tokens (b t), as `GPT.forward` does."""
        decode = partial(
            self.decoder, tokens, cache, last=last, mask=mask, context=self.context
        )
        if self.training:
            return decode()
        with evaluating(self.decoder):
            return decode()
