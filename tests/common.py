"""What most tests need: generators, random numbers, tolerances, shaken weights."""

from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]  # of the repository


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape, seed: int = 0, dtype=torch.float32) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def random_tokens(*shape, d_vocab: int, seed: int = 0) -> Tensor:
    return torch.randint(d_vocab, shape, generator=seeded(seed))


# Float64 rounds by 1e-16 of numbers that here stay below 100.
EXACT = {"atol": 1e-10, "rtol": 0}


def rounding(n: float, *expected: Tensor) -> dict[str, float]:
    """What two right programs may differ by, where the longest sum has n terms.

    Each term that is added rounds the sum by half an epsilon of a number about as large
    as the largest expected, and another processor adds in another order: at worst n
    epsilons lie between two programs, by chance √n. What is left covers the few
    products that follow each other, so what is right comes nowhere near.
    """
    largest = max(x.detach().abs().max().item() for x in expected)
    return {"atol": n * torch.finfo(expected[0].dtype).eps * largest, "rtol": 0}


@torch.no_grad()
def shaken(module: nn.Module, std: float = 0.3, seed: int = 0) -> nn.Module:
    """The module with large matrices, and gains and biases that can't be left out."""
    generator = seeded(seed)
    for parameter in module.parameters():
        is_gain = parameter.dim() == 1 and bool((parameter == 1).all())
        noise = std * torch.randn(parameter.shape, generator=generator)
        parameter.copy_(1 + noise if is_gain else noise)
    return module.eval()
