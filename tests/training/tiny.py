"""A model of 13 tokens that reads five of them, and texts for it."""

import common
from torch import Tensor

from companion import GPT, GPTConfig

T = 5  # the context


def random_tokens(*shape: int, seed: int = 0) -> Tensor:
    return common.random_tokens(*shape, d_vocab=13, seed=seed)


def tiny_gpt(dropout: float = 0.0) -> GPT:
    config = GPTConfig(
        d_vocab=13, context_length=T, d_model=8, n_heads=2, n_layers=1, dropout=dropout
    )
    return GPT(config, common.seeded())
