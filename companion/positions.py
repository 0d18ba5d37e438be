"""Positions: how a model knows the order of its tokens. Chapter 03.

First the functions, then the classes that models use, one a scheme. A scheme is asked
for three things, each with the `Place` of the pass (`at`), and most answer but one:
`embed(x, at)` adds to the embedding (b t c), `turn(at)` gives the function that rotates
queries and keys, `bias(at)` what is added to the scores, broadcastable to (b h t s).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .inputs import check_between, check_tensor, check_whole, given


def sinusoidal(n_positions: int, d_model: int) -> Tensor:
    """(n_positions d_model): sines on the even features, cosines on the odd ones.

    The feature pair i turns by 10000^(-2i / d_model) radians a position.
    Raises ValueError for an odd d_model. Vaswani et al. 2017, section 3.5.
    """
    check_whole(0, n_positions=n_positions)
    return sinusoidal_at(torch.arange(n_positions), d_model)


def sinusoidal_at(positions: Tensor, d_model: int) -> Tensor:
    """The rows of `sinusoidal` at `positions` (...) -> (... d_model), however far."""
    angles = pair_angles(positions, d_model)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def pair_angles(positions: Tensor, d: int, base: float = 10_000) -> Tensor:
    """Radians (... d/2) by which each pair of features turns at `positions` (...)."""
    if not isinstance(positions, Tensor) or not positions.is_floating_point():
        check_tensor("integers", "...", positions=positions)
    check_whole(2, features=d)
    check_between(0, above=True, base=base)
    if d % 2:
        raise ValueError(f"{d} features can't be paired: the number must be even")
    speeds = base ** (torch.arange(0, -d, -2, device=positions.device) / d)
    return positions[..., None] * speeds


def rotary(
    positions: Tensor, d: int, base: float = 10_000
) -> Callable[[Tensor], Tensor]:
    """The rotation by `positions` (t) or (b t), as a function of (b h t d) tensors.

    The angles are computed once, so that queries and keys of all layers share them.
    """
    angles = pair_angles(positions, d, base)
    if positions.dim() not in (1, 2):
        shape = tuple(positions.shape)
        raise ValueError(f"positions have shape {shape}; it must be (t) or (b t)")
    if positions.dim() == 2:
        angles = angles[:, None]  # the same for every head
    angles = torch.cat([-angles, angles], -1)
    cosines, sines = angles.cos(), angles.sin()
    *streams, n = positions.shape

    def turn(x: Tensor) -> Tensor:
        if x.shape[-2:] != (n, d) or streams not in ([], [1], [len(x)]):
            raise ValueError(
                f"x {tuple(x.shape)} is not (b h t d) for positions"
                f" {tuple(positions.shape)} and {d} features"
            )
        turned = torch.addcmul(x * cosines, x.roll(d // 2, -1), sines)
        return turned if turned.dtype == x.dtype else turned.to(x.dtype)

    return turn


def rotate(x: Tensor, positions: Tensor, base: float = 10_000) -> Tensor:
    """x (b h t d) with each pair of features turned by its position, (t) or (b t).

    Feature i is paired with feature i + d/2, as in GPT-NeoX and `transformers`' Llama;
    the paper pairs neighbours, 2i with 2i + 1: `interleave` and `deinterleave` go
    between the two. A dot product of two rotated vectors depends on the difference
    of their positions alone. Raises ValueError for an odd d. Su et al. 2021, eq. 34.
    """
    check_tensor("floats", "... t d", x=x)
    return rotary(positions, x.shape[-1], base)(x)


def distances(n_queries: int, n_keys: int) -> Tensor:
    """(t s): how far each key lies before each query; the last of both align."""
    check_whole(0, n_queries=n_queries, n_keys=n_keys)
    queries = torch.arange(n_keys - n_queries, n_keys)
    return queries[:, None] - torch.arange(n_keys)


def alibi_slopes(n_heads: int) -> Tensor:
    """(h): 2^(-8/h), 2^(-16/h), ...; between powers of two, every other one is added.

    Press et al. 2022, section 3 and their code.
    """
    check_whole(n_heads=n_heads)
    power = 1 << (n_heads.bit_length() - 1)
    exponents = torch.arange(1, power + 1) / power
    between = (2 * torch.arange(n_heads - power) + 1) / (2 * power)
    return 2 ** (-8 * torch.cat([exponents, between]))


def alibi(n_heads: int, n_queries: int, n_keys: int) -> Tensor:
    """(h t s): a penalty on the scores that grows with the distance, by head."""
    return alibi_at(distances(n_queries, n_keys), n_heads)


def alibi_at(distance: Tensor, n_heads: int) -> Tensor:
    """ALiBi for distances (... t s) -> (... h t s); both directions count alike."""
    slopes = alibi_slopes(n_heads).to(distance.device)[:, None, None]
    return -slopes * distance.abs()[..., None, :, :]


def relative_buckets(
    distance: Tensor, n_buckets: int = 32, max_distance: int = 128, causal: bool = True
) -> Tensor:
    """T5's bucket for each distance: exact while small, then logarithmic, then one.

    Keys after the query share bucket 0 if causal; else they have half of the buckets.
    Raises ValueError for too few buckets, or none left for the far ones. Raffel et al.
    2020, section 2.1, and their code.
    """
    check_tensor("integers", "...", distance=distance)
    check_whole(2 if causal else 4, n_buckets=n_buckets)
    check_whole(n_buckets // 2 + 1, max_distance=max_distance)
    first = torch.zeros_like(distance)
    if causal:
        distance = distance.clamp(min=0)
    else:
        n_buckets //= 2
        first, distance = n_buckets * (distance < 0), distance.abs()
    exact = n_buckets // 2
    growth = (distance.clamp(min=1) / exact).log() / math.log(max_distance / exact)
    far = exact + (growth * (n_buckets - exact)).long()
    return first + torch.where(distance < exact, distance, far.clamp(max=n_buckets - 1))


def check_pairs(x: Tensor) -> None:
    """Raise ValueError unless x is a tensor of an even number of features."""
    if not isinstance(x, Tensor) or x.dim() < 1 or x.shape[-1] % 2:
        raise ValueError(f"x is {given(x)}; it must be a tensor (... d), d even")


def interleave(x: Tensor) -> Tensor:
    """From the pairs (i, i + d/2) to the pairs (2i, 2i + 1), along the last axis."""
    check_pairs(x)
    return x.unflatten(-1, (2, -1)).transpose(-2, -1).flatten(-2)


def deinterleave(x: Tensor) -> Tensor:
    """From the pairs (2i, 2i + 1) to the pairs (i, i + d/2), along the last axis."""
    check_pairs(x)
    return x.unflatten(-1, (-1, 2)).transpose(-2, -1).flatten(-2)


class Positions(nn.Module):
    """What all schemes answer unless they know better: nothing. By itself: "none"."""

    def embed(self, x: Tensor, at) -> Tensor:
        """What goes into the first block: x (b t c), and perhaps its places."""
        return x

    def turn(self, at) -> Callable[[Tensor], Tensor] | None:
        """The function that rotates queries and keys, or None."""
        return None

    def bias(self, at) -> Tensor | None:
        """What is added to the scores, broadcastable to (b h t s), or None."""
        return None


class LearnedPositions(Positions):
    """A learned vector for each of `context_length` places. Radford et al. 2019.

    Raises ValueError for a place beyond the last.
    """

    def __init__(self, context_length: int, d_model: int):
        super().__init__()
        check_whole(context_length=context_length, d_model=d_model)
        self.table = nn.Embedding(context_length, d_model)

    def embed(self, x: Tensor, at) -> Tensor:
        if at.end > len(self.table.weight):
            raise ValueError(
                f"{at.end} positions exceed context_length ({len(self.table.weight)})"
            )
        return x + self.table(at.positions)


class SinusoidalPositions(Positions):
    """Fixed waves instead of a table: `sinusoidal`, however far."""

    def embed(self, x: Tensor, at) -> Tensor:
        return x + sinusoidal_at(at.positions, x.shape[-1]).to(x.dtype)


class RotaryPositions(Positions):
    """Queries and keys of `d_head` features are rotated by their places: `rotate`."""

    def __init__(self, d_head: int, base: float = 10_000):
        super().__init__()
        pair_angles(torch.zeros(1), d_head, base)  # ValueError for an odd number
        self.d_head, self.base = d_head, base

    def turn(self, at) -> Callable[[Tensor], Tensor]:
        return rotary(at.positions, self.d_head, self.base)


class ALiBi(Positions):
    """A fixed penalty on far keys, steeper or flatter by head: `alibi`."""

    def __init__(self, n_heads: int):
        super().__init__()
        check_whole(n_heads=n_heads)
        self.n_heads = n_heads

    def bias(self, at) -> Tensor:
        return alibi_at(at.distances, self.n_heads)


class RelativeBias(Positions):
    """T5's learned bias on the scores: one number a head and bucket of distances.

    T5 leaves out the scale 1/√d; here it stays. Raffel et al. 2020, section 2.1.
    """

    def __init__(self, n_heads: int, n_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        check_whole(n_heads=n_heads, n_buckets=n_buckets)
        relative_buckets(torch.zeros(1, dtype=torch.long), n_buckets, max_distance)
        self.n_buckets, self.max_distance = n_buckets, max_distance
        self.table = nn.Embedding(n_buckets, n_heads)

    def bias(self, at) -> Tensor:
        return self(at.distances, at.causal)

    def forward(self, distance: Tensor, causal: bool = True) -> Tensor:
        """The bias for distances (... t s) -> (... h t s)."""
        buckets = relative_buckets(distance, self.n_buckets, self.max_distance, causal)
        return self.table(buckets).movedim(-1, -3)


# Each scheme by its name, made for a model's configuration.
POSITIONS = {
    "learned": lambda o: LearnedPositions(o.context_length, o.d_model),
    "sinusoidal": lambda o: SinusoidalPositions(),
    "rotary": lambda o: RotaryPositions(o.d_model // o.n_heads, o.rotary_base),
    "alibi": lambda o: ALiBi(o.n_heads),
    "t5": lambda o: RelativeBias(o.n_heads),
    "none": lambda o: Positions(),
}
