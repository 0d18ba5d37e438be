"""Recipes: all that decides a run but its seed, and the course's four. Chapter 05."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial

from torch.optim import Optimizer

from .checkpoints import described
from .inputs import check_between, check_whole, given
from .models import GPT, GPTConfig
from .optimizers import AdamW, muon, warmup_cosine, warmup_linear


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run on tiny Shakespeare's characters: a model, batches, an optimizer.

    Raises ValueError for a number that can't be.
    """

    config: GPTConfig
    batch_size: int
    n_steps: int
    warmup: int
    floor: float = 0.0
    schedule: Callable[..., float] = warmup_linear
    optimizer: Callable[[GPT], Optimizer] = muon
    bfloat16: bool = False

    def __post_init__(self):
        if not isinstance(self.config, GPTConfig):
            raise ValueError(f"config is {given(self.config)}; it must be a GPTConfig")
        check_whole(batch_size=self.batch_size, n_steps=self.n_steps)
        check_whole(0, warmup=self.warmup)
        check_between(0, 1, floor=self.floor)

    def facts(self, seed: int) -> dict:
        """What a checkpoint says of a run by this recipe, beside the model's parts."""
        names = [field.name for field in fields(self) if field.name != "config"]
        own = {name: described(getattr(self, name)) for name in names}
        return {"recipe": own | {"seed": seed}}


def plain_adamw(model: GPT) -> AdamW:
    """nanoGPT's: decay for matrices and embeddings, none for the rest."""
    parameters = [*model.parameters()]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=1e-3, betas=(0.9, 0.99))


SMALL = GPTConfig(
    d_vocab=65, context_length=64, d_model=128, n_heads=4, n_layers=4, bias=False
)
MODERN = {
    "positions": "rotary",
    "norm": "rms",
    "normalize": True,
    "tied": False,
    "activation": "squared_relu",
    "zero_init": True,
}
LARGE = {"context_length": 256, "d_model": 256}
RECIPES = {
    # nanoGPT's recipe for a laptop's CPU
    "plain": Recipe(
        config=replace(SMALL, activation="gelu"),
        batch_size=12,
        n_steps=2000,
        warmup=100,
        floor=0.1,
        schedule=warmup_cosine,
        optimizer=plain_adamw,
    ),
    # chapter 05's
    "fast": Recipe(
        config=replace(SMALL, **MODERN), batch_size=24, n_steps=400, warmup=10
    ),
    # `make bench`: as good as "plain", as soon as may be
    "race": Recipe(
        config=replace(SMALL, **MODERN),
        batch_size=16,
        n_steps=195,
        warmup=1,
        optimizer=partial(muon, momentum=0.85),
    ),
    # `make train`: ten minutes on two cores
    "long": Recipe(
        config=replace(SMALL, **MODERN, **LARGE),
        batch_size=8,
        n_steps=1750,
        warmup=20,
        optimizer=partial(muon, weight_decay=0.1),
        bfloat16=True,
    ),
}
