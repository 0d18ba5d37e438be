"""What many tests draw: generators, numbers, tokens, weights far from their start."""

import torch
from torch import Tensor, nn


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape, seed: int = 0, dtype=torch.float32) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def random_tokens(*shape, d_vocab: int, seed: int = 0) -> Tensor:
    return torch.randint(d_vocab, shape, generator=seeded(seed))


@torch.no_grad()
def shaken(module: nn.Module, std: float = 0.3, seed: int = 0) -> nn.Module:
    """The module with large matrices, and gains and biases that can't be left out."""
    generator = seeded(seed)
    for parameter in module.parameters():
        is_gain = parameter.dim() == 1 and bool((parameter == 1).all())
        noise = std * torch.randn(parameter.shape, generator=generator)
        parameter.copy_(1 + noise if is_gain else noise)
    return module.eval()
