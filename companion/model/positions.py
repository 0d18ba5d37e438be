"""Positions: six schemes, side by side. Chapter 03.

A scheme is a class with one method, `forward(x, place) -> (x, rope, bias)`: the
embedding (b t c), to which it may add something; what rotates queries and keys, or
None; and what is added to the scores, broadcastable to (b h t s), or None.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..inputs import check_between, check_whole, shown

CAUSAL = "causal"  # `causal_mask`, said without a table


class Place(NamedTuple):
    """Where the queries (t) or (b t) and keys (s) of a pass stand, who may see whom.

    `mask` is True where a query may see a key, None where it may see all of them, and
    "causal" where queries and keys are the same tokens and none sees a later one. The
    first keys may be sinks that go along with a window: `moved` says by how many
    positions each was moved to where it stands.
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor | str | None = None
    moved: Tensor | None = None

    @property
    def distances(self) -> Tensor:
        """How far each key lies before each query: (t s) or (b t s)."""
        return self.queries[..., None] - self.keys

    def add(self, bias: Tensor) -> Tensor:
        """A bias (... h t s) with -inf where the mask forbids to look."""
        mask = self.mask
        if isinstance(mask, str):
            if mask != CAUSAL:
                raise ValueError(f"mask is {shown(mask)}; the one name is {CAUSAL!r}")
            mask = self.distances >= 0
        return bias if mask is None else bias.masked_fill(~mask, -math.inf)


def exact_dtype() -> torch.dtype:
    """The default for floats, or float32 where that is a half precision."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def rotary_frequencies(d: int, base: float = 10_000) -> Tensor:
    """(d/2): by how many radians each pair of d features turns in one position."""
    check_whole(2, features=d)
    check_between(0, above=True, base=base)
    if d % 2:
        raise ValueError(f"{d} features can't be paired: the number must be even")
    evens = torch.arange(0, -d, -2, device="cpu", dtype=exact_dtype())
    return base ** (evens / d)


def sinusoidal(n_positions: int, d_model: int) -> Tensor:
    """(n_positions d_model): sines on the even features, cosines on the odd ones.

    The feature pair i turns by 10000^(-2i / d_model) radians a position.
    Raises ValueError for an odd d_model. Vaswani et al. 2017, section 3.5.
    """
    return sinusoidal_at(torch.arange(n_positions), d_model)


def sinusoidal_at(positions: Tensor, d_model: int) -> Tensor:
    """The rows of `sinusoidal` at `positions` (...) -> (... d_model), however far."""
    angles = positions[..., None] * rotary_frequencies(d_model).to(positions.device)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def rotary(positions: Tensor, d: int, base: float = 10_000) -> tuple[Tensor, Tensor]:
    """Cosines and sines for `positions` (t) or (b t), as `apply_rotary` takes them.

    The pair i of d features turns by base^(-2i / d) radians a position.
    """
    return RotaryPositions(d, base)(None, Place(positions, positions))[1]


def apply_rotary(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """x (b h t d) with each pair of features (i, i + d/2) turned by its angle.

    `rope` holds the angles' cosines and sines, both (t d) or (b 1 t d); the sines of a
    pair's first feature are negative. Su et al. 2021, eq. 34.
    """
    cosines, sines = rope
    rotated = torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)
    return rotated.to(x.dtype)


def rotate(x: Tensor, positions: Tensor, base: float = 10_000) -> Tensor:
    """x (b h t d) with each pair of features turned by its position, (t) or (b t).

    Feature i is paired with feature i + d/2, as in GPT-NeoX and `transformers`' Llama;
    the paper pairs neighbours, 2i with 2i + 1: `interleave` and `deinterleave` go
    between the two. A dot product of two rotated vectors depends on the difference
    of their positions alone. Raises ValueError for an odd d. Su et al. 2021, eq. 34.
    """
    return apply_rotary(x, rotary(positions, x.shape[-1], base))


def interleave(x: Tensor) -> Tensor:
    """From the pairs (i, i + d/2) to the pairs (2i, 2i + 1), along the last axis."""
    return x.unflatten(-1, (2, -1)).transpose(-2, -1).flatten(-2)


def deinterleave(x: Tensor) -> Tensor:
    """From the pairs (2i, 2i + 1) to the pairs (i, i + d/2), along the last axis."""
    return x.unflatten(-1, (-1, 2)).transpose(-2, -1).flatten(-2)


def alibi_slopes(n_heads: int) -> Tensor:
    """(h): 2^(-8/h), 2^(-16/h), ...; between powers of two, every other one is added.

    Press et al. 2022, section 3 and their code.
    """
    power = 1 << (n_heads.bit_length() - 1)
    dtype = exact_dtype()
    exponents = torch.arange(1, power + 1, dtype=dtype) / power
    between = (2 * torch.arange(n_heads - power, dtype=dtype) + 1) / (2 * power)
    return 2 ** (-8 * torch.cat([exponents, between]))


def alibi(n_heads: int, n_queries: int, n_keys: int) -> Tensor:
    """(h t s): a penalty that grows with the distance; the last of both align.

    Raises ValueError for more queries than keys.
    """
    if n_keys < n_queries:
        raise ValueError(f"{n_queries} queries need as many keys, there are {n_keys}")
    keys = torch.arange(n_keys)
    return ALiBi(n_heads)(None, Place(keys[n_keys - n_queries :], keys))[2]


def relative_buckets(
    distances: Tensor, n_buckets: int = 32, max_distance: int = 128, causal: bool = True
) -> Tensor:
    """T5's bucket for each distance: exact while small, then logarithmic, then one.

    Keys after the query share bucket 0 if causal; else they have half of the buckets.
    Raffel et al. 2020, section 2.1, and their code.
    """
    check_whole(2 if causal else 4, n_buckets=n_buckets)
    check_whole(n_buckets // 2 + 1, max_distance=max_distance)
    if causal:
        first, distances = 0, distances.clamp(min=0)
    else:
        n_buckets //= 2
        first, distances = n_buckets * (distances < 0), distances.abs()
    exact = n_buckets // 2
    times = distances.clamp(min=1).to(exact_dtype()) / exact
    growth = times.log() / math.log(max_distance / exact)
    far = (exact + (growth * (n_buckets - exact)).long()).clamp(max=n_buckets - 1)
    return first + torch.where(distances < exact, distances, far)


class Positions(nn.Module):
    """The scheme "none": nothing is added and nothing rotated. The others extend it."""

    def forward(self, x: Tensor, place: Place) -> tuple:
        return x, None, None


class LearnedPositions(Positions):
    """A learned vector for each of `context_length` positions. Radford et al. 2019."""

    def __init__(self, context_length: int, d_model: int):
        super().__init__()
        self.table = nn.Embedding(context_length, d_model)

    def forward(self, x: Tensor, place: Place) -> tuple:
        try:
            return x + self.table(place.queries), None, None
        except IndexError:
            end, n = int(place.queries.max()) + 1, len(self.table.weight)
            if end <= n:
                raise  # something else failed
            raise ValueError(f"{end} positions exceed context_length ({n})") from None


class SinusoidalPositions(Positions):
    """Fixed waves instead of a table: `sinusoidal`, however far."""

    def forward(self, x: Tensor, place: Place) -> tuple:
        return x + sinusoidal_at(place.queries, x.shape[-1]).to(x.dtype), None, None


class RotaryPositions(Positions):
    """Queries and keys of `d_head` features are rotated by their positions."""

    def __init__(self, d_head: int, base: float = 10_000):
        super().__init__()
        speeds = rotary_frequencies(d_head, base)
        self.speeds = torch.cat([-speeds, speeds])  # no buffer: it stays in float32

    def forward(self, x: Tensor, place: Place) -> tuple:
        # Moved for this pass alone: a pass on `meta`, say, must not change the module.
        speeds = self.speeds.to(place.queries.device)
        angles = place.queries[..., None] * speeds
        if angles.dim() == 3:
            angles = angles[:, None]  # the same for every head
        return x, (angles.cos(), angles.sin()), None


class ALiBi(Positions):
    """A fixed penalty on far keys, steeper or flatter by head: `alibi`.

    Both directions count alike.
    """

    def __init__(self, n_heads: int):
        super().__init__()
        self.n_heads = n_heads

    def forward(self, x: Tensor, place: Place) -> tuple:
        distances = place.distances.abs()[..., None, :, :]
        slopes = alibi_slopes(self.n_heads).to(distances.device)
        return x, None, -slopes[:, None, None] * distances


class RelativeBias(Positions):
    """T5's learned bias on the scores: one number a head and bucket of distances.

    T5 leaves out the scale 1/√d; here it stays. Raffel et al. 2020, section 2.1.
    """

    def __init__(self, n_heads: int, n_buckets=32, max_distance=128, causal=True):
        super().__init__()
        self.max_distance, self.causal = max_distance, causal
        self.table = nn.Embedding(n_buckets, n_heads)

    def forward(self, x: Tensor, place: Place) -> tuple:
        sizes = len(self.table.weight), self.max_distance, self.causal
        buckets = relative_buckets(place.distances, *sizes)
        return x, None, self.table(buckets).movedim(-1, -3)


# Each scheme by its name, made for a model's configuration.
POSITIONS = {
    "learned": lambda o, causal: LearnedPositions(o.context_length, o.d_model),
    "sinusoidal": lambda o, causal: SinusoidalPositions(),
    "rotary": lambda o, causal: RotaryPositions(o.d_model // o.n_heads, o.rotary_base),
    "alibi": lambda o, causal: ALiBi(o.n_heads),
    "t5": lambda o, causal: RelativeBias(o.n_heads, causal=causal),
    "none": lambda o, causal: Positions(),
}
