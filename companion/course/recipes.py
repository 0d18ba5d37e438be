"""Recipes: all that decides a run but its seed, and the course's three. Chapter 05."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..model.gpt import GPT, GPTConfig
from ..text.shakespeare import batches, split, tiny_shakespeare
from ..text.tokenizers import CharTokenizer
from ..training.checkpoints import to_json
from ..training.optimizers import AdamW, muon, warmup_cosine, warmup_linear


@cache
def shakespeare_tokens() -> tuple[Tensor, Tensor]:
    """Tiny Shakespeare's characters as tokens: training, validation."""
    text = tiny_shakespeare()
    return split(torch.tensor(CharTokenizer(text).encode(text)))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run on tiny Shakespeare's characters: a model, batches, an optimizer.

    A checkpoint knows `schedule` and `optimizer` by their modules and names, so that a
    run with one takes functions of modules, or functools.partial of them.
    """

    config: GPTConfig
    batch_size: int
    n_steps: int
    warmup: int
    floor: float = 0.0
    schedule: Callable[..., float] = warmup_linear
    optimizer: Callable[[GPT], Optimizer] = muon
    bfloat16: bool = False

    def batches(self, n_steps: int, generator: torch.Generator | None):
        """The next `n_steps` batches of the training text."""
        how = {"batch_size": self.batch_size, "n_steps": n_steps}
        how |= {"context_length": self.config.context_length, "generator": generator}
        return batches(shakespeare_tokens()[0], **how)

    def metadata(self, seed: int) -> dict:
        """What a checkpoint says of a run by this recipe, beside the model's config.

        Raises ValueError for a function that has no name to be found by.
        """
        own = {name: x for name, x in vars(self).items() if name != "config"}
        return to_json({"recipe": own | {"class": type(self), "seed": seed}})


def plain_adamw(model: GPT) -> AdamW:
    """nanoGPT's: decay for matrices and embeddings, none for the rest."""
    decayed = {"params": [p for p in model.parameters() if p.dim() >= 2]}
    others = {"params": [p for p in model.parameters() if p.dim() < 2]}
    groups = [decayed | {"weight_decay": 0.1}, others | {"weight_decay": 0.0}]
    return AdamW(groups, lr=1e-3, betas=(0.9, 0.99))


SMALL = {"d_vocab": 65, "context_length": 64, "d_model": 128, "n_heads": 4}
SMALL |= {"n_layers": 4, "bias": False, "activation": "gelu"}
MODERN = {
    "positions": "rotary",
    "norm": "rms",
    "qk_norm": True,
    "tie_embeddings": False,
}
MODERN |= {"activation": "squared_relu", "zero_init": True}
FAST = Recipe(config=GPTConfig(**SMALL | MODERN), batch_size=24, n_steps=400, warmup=10)
PLAIN = {"schedule": warmup_cosine, "floor": 0.1, "optimizer": plain_adamw}
LONG = {"optimizer": partial(muon, weight_decay=0.1), "bfloat16": True}
LARGE = replace(FAST.config, context_length=256, d_model=256)
RECIPES = {
    "plain": Recipe(  # nanoGPT's for a laptop's CPU
        config=GPTConfig(**SMALL), batch_size=12, n_steps=2000, warmup=100, **PLAIN
    ),
    "fast": FAST,  # chapter 05's
    # `make train`: ten minutes on two cores
    "long": Recipe(config=LARGE, batch_size=8, n_steps=1750, warmup=20, **LONG),
}
