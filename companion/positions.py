"""Positions: how a model knows the order of its tokens. Chapter 03."""

from collections.abc import Callable

import torch
from torch import Tensor


def sinusoidal(n_positions: int, d_model: int) -> Tensor:
    """(n_positions d_model): sines on the even features, cosines on the odd ones.

    The feature pair i turns by 10000^(-2i / d_model) radians a position.
    Raises ValueError for an odd d_model. Vaswani et al. 2017, section 3.5.
    """
    return sinusoidal_at(torch.arange(n_positions), d_model)


def sinusoidal_at(positions: Tensor, d_model: int) -> Tensor:
    """The rows of `sinusoidal` at `positions` (...) -> (... d_model), however far."""
    angles = pair_angles(positions, d_model)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def pair_angles(positions: Tensor, d: int, base: float = 10_000) -> Tensor:
    """Radians (... d/2) by which each pair of features turns at `positions` (...)."""
    if d % 2:
        raise ValueError(f"{d} features can't be paired: the number must be even")
    speeds = base ** (-torch.arange(0, d, 2, device=positions.device) / d)
    return positions[..., None] * speeds


def rotary(
    positions: Tensor, d: int, base: float = 10_000
) -> Callable[[Tensor], Tensor]:
    """The rotation by `positions` (t) or (b t), as a function of (b h t d) tensors.

    The angles are computed once, so that queries and keys of all layers share them.
    """
    angles = pair_angles(positions, d, base)
    if positions.dim() == 2:
        angles = angles[:, None]  # the same for every head
    cosines = torch.cat([angles.cos(), angles.cos()], -1)
    sines = torch.cat([-angles.sin(), angles.sin()], -1)

    def turn(x: Tensor) -> Tensor:
        turned = torch.addcmul(x * cosines, x.roll(d // 2, -1), sines)
        return turned.to(x.dtype)

    return turn


def rotate(x: Tensor, positions: Tensor, base: float = 10_000) -> Tensor:
    """x (b h t d) with each pair of features turned by its position, (t) or (b t).

    Feature i is paired with feature i + d/2, as in GPT-NeoX and Llama's published
    weights; the paper pairs neighbours, 2i with 2i + 1: `interleave` and `deinterleave`
    go between the two. A dot product of two rotated vectors depends on the difference
    of their positions alone. Raises ValueError for an odd d. Su et al. 2021, eq. 34.
    """
    return rotary(positions, x.shape[-1], base)(x)


def interleave(x: Tensor) -> Tensor:
    """From the pairs (i, i + d/2) to the pairs (2i, 2i + 1), along the last axis."""
    return x.unflatten(-1, (2, -1)).transpose(-2, -1).flatten(-2)


def deinterleave(x: Tensor) -> Tensor:
    """From the pairs (2i, 2i + 1) to the pairs (i, i + d/2), along the last axis."""
    return x.unflatten(-1, (-1, 2)).transpose(-2, -1).flatten(-2)
