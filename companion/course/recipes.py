"""Recipes: all that decides a run but its seed, and the course's three. Chapter 05."""

from collections.abc import Callable, Iterator
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
    """Returns tiny Shakespeare's characters as tokens (t), training and validation."""
    text = tiny_shakespeare()
    tokens = CharTokenizer(text).encode(text)
    return split(torch.tensor(tokens))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run on tiny Shakespeare's characters: a model, batches, an optimizer.

    The learning rate rises for `warmup` steps, and falls by `schedule` to its `floor`,
    a part of the highest. With `bfloat16` products are made of 16 bits where the
    device is faster with them. Chapter 05.

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

    def batches(
        self, n_steps: int, generator: torch.Generator | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Gives the next `n_steps` batches of the training text, two of (b t) each."""
        training, _ = shakespeare_tokens()
        return batches(
            training,
            batch_size=self.batch_size,
            context_length=self.config.context_length,
            n_steps=n_steps,
            generator=generator,
        )

    def factor(self, step: int) -> float:
        """Returns the part of the highest learning rate that a step has."""
        return self.schedule(
            step, warmup=self.warmup, total=self.n_steps, floor=self.floor
        )

    def settings(self, seed: int) -> dict:
        """Returns what a checkpoint holds of a run by this recipe, as JSON has it.

        The model's configuration is not in it: a checkpoint knows its model by itself.
        Raises ValueError for a function that has no name to be found by.
        """
        settings = dict(vars(self))
        del settings["config"]
        settings["class"] = type(self)
        settings["seed"] = seed
        return to_json(settings)


def plain_adamw(model: GPT) -> AdamW:
    """Returns nanoGPT's optimizer: matrices and embeddings decay, nothing else does."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=1e-3, betas=(0.9, 0.99))


# nanoGPT's for a laptop's CPU: GPT-2's parts, without biases.
PLAIN = Recipe(
    config=GPTConfig(
        d_vocab=65,
        context_length=64,
        d_model=128,
        n_heads=4,
        n_layers=4,
        bias=False,
        activation="gelu",
    ),
    batch_size=12,
    n_steps=2000,
    warmup=100,
    floor=0.1,
    schedule=warmup_cosine,
    optimizer=plain_adamw,
)

# Chapter 05's: a model as large, of the parts that have proved better since.
FAST = Recipe(
    config=GPTConfig(
        d_vocab=65,
        context_length=64,
        d_model=128,
        n_heads=4,
        n_layers=4,
        positions="rotary",
        norm="rms",
        activation="squared_relu",
        bias=False,
        tie_embeddings=False,
        qk_norm=True,
        zero_init=True,
    ),
    batch_size=24,
    n_steps=400,
    warmup=10,
    schedule=warmup_linear,
    optimizer=muon,
)

# `make train`: ten minutes on two cores.
LONG = replace(
    FAST,
    config=replace(FAST.config, context_length=256, d_model=256),
    batch_size=8,
    n_steps=1750,
    warmup=20,
    optimizer=partial(muon, weight_decay=0.1),
    bfloat16=True,
)

RECIPES = {"plain": PLAIN, "fast": FAST, "long": LONG}
