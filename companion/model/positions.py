"""Positions: six schemes, side by side. Chapter 03.

A scheme is a class with one method, `forward(x, place) -> Positioned`: from where the
tokens of a pass stand it makes all by which the pass will know their order.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..inputs import check_between, check_tensor, check_whole, shown
from .scores import Heads

CPU = torch.device("cpu")
# Cosines and sines, both (t d) or (b 1 t d), as `apply_rotary` takes them.
Rope = tuple[Tensor, Tensor]


class Place(NamedTuple):
    """Where the queries (t) or (b t) and keys (s) of a pass stand, who may see whom.

    `mask`, broadcastable to (b h t s), is True where a query may see a key, or floats
    that are added to the scores; with None it may see all of them, unless `is_causal`:
    then queries and keys are the same tokens, and none sees a later one. The first keys
    may be sinks that go along with a window: `moved` says by how many positions each
    was moved to where it stands. Chapters 03 and 07.
    """

    query_positions: Tensor
    key_positions: Tensor
    mask: Tensor | None = None
    is_causal: bool = False
    moved: Tensor | None = None

    @property
    def distances(self) -> Tensor:
        """How far each key lies before each query. Returns (t s) or (b t s)."""
        return self.query_positions[..., None] - self.key_positions

    def with_bias(self, bias: Tensor, n_streams: int) -> "Place":
        """Returns the place with a bias as its mask, -inf where it hid.

        The bias is (b h t s), or the same for every stream, (h t s). Of several streams
        it gets their axis, so that nobody takes its heads for them.
        """
        if bias.dim() == 3 and n_streams > 1:
            bias = bias[None]
        allowed = self.distances >= 0 if self.is_causal else self.mask
        if allowed is not None:
            bias = bias.masked_fill(~allowed, -math.inf)
        return self._replace(mask=bias, is_causal=False)


def exact_dtype(dtype: torch.dtype = torch.float32) -> torch.dtype:
    """The finest of a dtype, the default for floats and float32."""
    finest = torch.promote_types(torch.get_default_dtype(), torch.float32)
    return torch.promote_types(finest, dtype)


def rotary_frequencies(
    d: int, base: float = 10_000, dtype: torch.dtype = torch.float32
) -> Tensor:
    """By how many radians each pair of d features turns in one position: base^(-2i/d).

    Returns (d/2), in the `exact_dtype` of a dtype. Raises ValueError for an odd d, and
    for a base below 1, with which they would grow, or without an end.
    Su et al. 2021, section 3.2.2.
    """
    check_whole(2, features=d)
    check_between(1, finite=True, base=base)
    if d % 2:
        raise ValueError(f"{d} features can't be paired: the number must be even")
    minus_2i = torch.arange(0, -d, -2, device="cpu", dtype=exact_dtype(dtype))
    return base ** (minus_2i / d)


def sinusoidal(n_positions: int, d_model: int) -> Tensor:
    """Marks each position by waves: sines on even features, cosines on odd ones.

    Returns (n_positions d_model). The feature pair i turns by 10000^(-2i / d_model)
    radians a position.
    Raises ValueError for an odd d_model. Vaswani et al. 2017, section 3.5.
    """
    check_whole(0, n_positions=n_positions)
    return sinusoidal_at(torch.arange(n_positions), d_model)


def sinusoidal_at(
    positions: Tensor, d_model: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The rows of `sinusoidal` at `positions` (...), however far.

    Returns (... d_model), in the `exact_dtype` of a dtype.
    """
    frequencies = rotary_frequencies(d_model, dtype=dtype).to(positions.device)
    angles = positions[..., None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def rotary(
    positions: Tensor,
    d: int,
    base: float = 10_000,
    *,
    dtype: torch.dtype = torch.float32,
) -> Rope:
    """The cosines and sines of each position's angles, as `apply_rotary` takes them.

    `positions` (t) or (b t) -> both (t d) or (b 1 t d). The pair i of d features turns
    by base^(-2i / d) radians a position; the sine of its first feature is negative.
    `dtype`: that of the vectors to be turned; angles are of float32 at least.
    Raises ValueError for an odd d. Su et al. 2021, eq. 34.
    """
    frequencies = rotary_frequencies(d, base, dtype).repeat(2)  # of i and i + d/2
    angles = positions[..., None] * frequencies.to(positions.device)
    if angles.dim() == 3:
        angles = angles[:, None]  # the same for every head
    cosines = angles.cos()
    sines = angles.sin()
    sines[..., : d // 2].neg_()
    return cosines, sines


def apply_rotary(x: Tensor, rope: Rope) -> Tensor:
    """Turns each pair of features (i, i + d/2) of x by its angle. Returns (b h t d).

    x (b h t d); `rope` holds the angles' cosines and sines, both (t d) or (b 1 t d).
    The sines of a pair's first feature are negative. Raises ValueError for what is not
    floats. Su et al. 2021, eq. 34.
    """
    if not x.is_floating_point():  # whole numbers would be cut off
        check_tensor("floats", "... t d", x=x)
    cosines, sines = rope
    # A pair becomes (first · cos - second · sin, second · cos + first · sin). The minus
    # is in `sines`, so both are x · cosines + partners · sines: here a tenth faster and
    # with one rounding less.
    partners = x.roll(x.shape[-1] // 2, -1)
    rotated = torch.addcmul(x * cosines, partners, sines)
    return rotated.to(x.dtype)


def turn_first(keys: Heads, turn: Rope) -> Heads:
    """Turns as many of the first keys (b h s d) as `turn` is for. Returns (b h s d)."""
    n = len(turn[0])
    return torch.cat([apply_rotary(keys[..., :n, :], turn), keys[..., n:, :]], -2)


def rotate(x: Tensor, positions: Tensor, base: float = 10_000) -> Tensor:
    """Turns each pair of features of x (b h t d) by its position, (t) or (b t).

    Returns (b h t d). Feature i is paired with feature i + d/2, as in GPT-NeoX and
    `transformers`' Llama; the paper pairs neighbours, 2i with 2i + 1: `interleave` and
    `deinterleave` go between the two. A dot product of two rotated vectors depends on
    the difference of their positions alone. Raises ValueError for an odd d, and for
    positions that are not one for each of the t vectors. Su et al. 2021, eq. 34.
    """
    check_tensor("floats", "... t d", x=x)
    b = len(x) if x.dim() == 4 else None
    t = x.shape[-2]
    shape = tuple(positions.shape)
    if shape != (t,) and (b is None or shape not in ((b, t), (1, t))):
        raise ValueError(
            f"positions {shape} don't fit x, {shown(x)}: they must be (t), or (b t) for"
            f" x (b h t d), with t = {t}"
        )
    return apply_rotary(x, rotary(positions, x.shape[-1], base, dtype=x.dtype))


def interleave(x: Tensor) -> Tensor:
    """Goes from the pairs (i, i + d/2) to the pairs (2i, 2i + 1), on the last axis.

    Returns (... d). Chapter 03.
    """
    return x.unflatten(-1, (2, -1)).transpose(-2, -1).flatten(-2)


def deinterleave(x: Tensor) -> Tensor:
    """Goes from the pairs (2i, 2i + 1) to the pairs (i, i + d/2), on the last axis.

    Returns (... d). Chapter 03.
    """
    return x.unflatten(-1, (-1, 2)).transpose(-2, -1).flatten(-2)


def alibi_slopes(n_heads: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """How fast each head's penalty grows: 2^(-8/h), 2^(-16/h), ... Returns (h).

    They are in the `exact_dtype` of a dtype. Where h is no power of two, they are those
    of the power below it, and then every other one of twice that power. Press et al.
    2022, section 3 and their code.
    """
    check_whole(n_heads=n_heads)
    power = 1 << (int(n_heads).bit_length() - 1)  # the largest that n_heads reaches
    dtype = exact_dtype(dtype)
    exponents = torch.arange(1, power + 1, dtype=dtype) / power
    between = (2 * torch.arange(n_heads - power, dtype=dtype) + 1) / (2 * power)
    return 2 ** (-8 * torch.cat([exponents, between]))


def alibi_bias(
    n_heads: int, distances: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """A penalty for each of `distances` (... t s), steeper or flatter by head.

    Returns (... h t s), in the `exact_dtype` of a dtype. Both directions count alike.
    Press et al. 2022, section 3.
    """
    distances = distances.abs()[..., None, :, :]  # the same for every head
    slopes = alibi_slopes(n_heads, dtype).to(distances.device)
    return -slopes[:, None, None] * distances


def alibi(n_heads: int, n_queries: int, n_keys: int) -> Tensor:
    """A penalty that grows with the distance; the last query and key align.

    Returns (h t s). Raises ValueError for more queries than keys.
    Press et al. 2022, section 3.
    """
    check_whole(0, n_queries=n_queries, n_keys=n_keys)
    if n_keys < n_queries:
        raise ValueError(f"{n_queries} queries need as many keys, there are {n_keys}")
    keys = torch.arange(n_keys)
    queries = keys[n_keys - n_queries :]
    return alibi_bias(n_heads, queries[:, None] - keys)


def relative_buckets(
    distances: Tensor, n_buckets: int = 32, max_distance: int = 128, causal: bool = True
) -> Tensor:
    """T5's bucket for each distance: exact while small, then logarithmic, then one.

    Returns whole numbers of the distances' shape. Keys after the query share bucket 0
    if causal; else they have half of the buckets. Raises ValueError for fewer than 2
    buckets (4 if not causal), and for a max_distance within the exact ones.
    Raffel et al. 2020, section 2.1, and their code.
    """
    check_tensor("integers", "...", distances=distances)
    check_whole(2 if causal else 4, n_buckets=n_buckets)
    n_exact = n_buckets // (2 if causal else 4)
    check_whole(n_exact + 1, max_distance=max_distance)

    # What comes after the query: all in bucket 0, or in the upper half.
    first: int | Tensor = 0
    if causal:
        distances = distances.clamp(min=0)
    else:
        n_buckets //= 2
        first = n_buckets * (distances < 0)
        distances = distances.abs()

    # Half of the buckets hold one distance each; the others grow to max_distance.
    ratios = distances.clamp(min=1).to(exact_dtype()) / n_exact
    growth = ratios.log() / math.log(max_distance / n_exact)
    far = n_exact + (growth * (n_buckets - n_exact)).long()
    far = far.clamp(max=n_buckets - 1)
    return first + torch.where(distances < n_exact, distances, far)


class Positioned(NamedTuple):
    """What a scheme makes of a place: by this a pass knows the order. Chapter 03."""

    x: Tensor  # the embedding (b t c), to which the scheme may have added something
    rope: Rope | None = None  # rotates queries and keys
    bias: Tensor | None = None  # is added to the scores, broadcastable to (b h t s)
    turn: Rope | None = None  # rotates the keys of a window's sinks, if they have moved


class Positions(nn.Module):
    """The scheme "none": nothing is added and nothing rotated. The others extend it.

    Chapter 03.
    """

    def forward(self, x: Tensor, place: Place) -> Positioned:
        """Returns x (b t c) as it is."""
        return Positioned(x)


class LearnedPositions(Positions):
    """A learned vector for each of `context_length` positions. Radford et al. 2019."""

    def __init__(self, context_length: int, d_model: int):
        super().__init__()
        self.table = nn.Embedding(context_length, d_model)

    def forward(self, x: Tensor, place: Place) -> Positioned:
        """Returns x (b t c) with its vectors added.

        Raises ValueError for a position beyond the table.
        """
        try:
            vectors = self.table(place.query_positions)
        except IndexError:
            n_positions = int(place.query_positions.max()) + 1
            context_length = len(self.table.weight)
            if n_positions <= context_length:
                raise  # something else failed
            raise ValueError(
                f"{n_positions} positions exceed context_length ({context_length})"
            ) from None
        return Positioned(x + vectors)


class SinusoidalPositions(Positions):
    """Fixed waves instead of a table: `sinusoidal`, however far.

    Vaswani et al. 2017, section 3.5.
    """

    def forward(self, x: Tensor, place: Place) -> Positioned:
        """Returns x (b t c) with its waves added."""
        waves = sinusoidal_at(place.query_positions, x.shape[-1], x.dtype)
        return Positioned(x + waves.to(x.dtype))


class RotaryPositions(Positions):
    """Queries and keys of `d_head` features are rotated by their positions.

    Su et al. 2021, eq. 34.
    """

    def __init__(self, d_head: int, base: float = 10_000):
        super().__init__()
        self.d_head = d_head
        self.base = base
        # Those of features i and i + d/2. No buffer: they stay in float32, also where
        # the model's weights have 16 bits. Each device keeps what its first pass makes.
        frequencies = rotary_frequencies(d_head, base).repeat(2)
        self.dtype = frequencies.dtype
        self.frequencies = {(CPU, self.dtype): frequencies}

    def forward(self, x: Tensor, place: Place) -> Positioned:
        """Returns x (b t c) as it is, and the rope of the queries' places.

        Keys are stored rotated. A sink that has moved on by n positions needs the
        rotation of position n once more: that is its turn.
        """
        positions = place.query_positions
        dtype = torch.promote_types(self.dtype, x.dtype)
        key = positions.device, dtype
        if key not in self.frequencies:
            frequencies = rotary_frequencies(self.d_head, self.base, dtype).repeat(2)
            self.frequencies[key] = frequencies.to(positions.device)

        # As in `rotary`, with frequencies that were computed once.
        angles = positions[..., None] * self.frequencies[key]
        if angles.dim() == 3:
            angles = angles[:, None]  # the same for every head
        sines = angles.sin()
        sines[..., : self.d_head // 2].neg_()

        turn = None
        if place.moved is not None:
            turn = rotary(place.moved, self.d_head, self.base, dtype=x.dtype)
        return Positioned(x, rope=(angles.cos(), sines), turn=turn)


class ALiBi(Positions):
    """A fixed penalty on far keys, steeper or flatter by head: `alibi`.

    Both directions count alike. Press et al. 2022, section 3.
    """

    def __init__(self, n_heads: int):
        super().__init__()
        self.n_heads = n_heads

    def forward(self, x: Tensor, place: Place) -> Positioned:
        """Returns x (b t c) as it is, and the bias (h t s) or (b h t s)."""
        return Positioned(x, bias=alibi_bias(self.n_heads, place.distances, x.dtype))


class RelativeBias(Positions):
    """T5's learned bias on the scores: one number a head and bucket of distances.

    T5 leaves out the scale 1/√d; here it stays. Raffel et al. 2020, section 2.1.
    """

    def __init__(self, n_heads: int, causal: bool = True):
        super().__init__()
        self.causal = causal
        self.table = nn.Embedding(32, n_heads)  # a row for each bucket

    def forward(self, x: Tensor, place: Place) -> Positioned:
        """Returns x (b t c) as it is, and the bias (h t s) or (b h t s)."""
        buckets = relative_buckets(place.distances, causal=self.causal)
        return Positioned(x, bias=self.table(buckets).movedim(-1, -3))


# Each scheme by its name, made for a model's configuration, causal or not.
POSITIONS: dict[str, Callable[[Any, bool], Positions]] = {
    "learned": lambda config, causal: LearnedPositions(
        config.context_length, config.d_model
    ),
    "sinusoidal": lambda config, causal: SinusoidalPositions(),
    "rotary": lambda config, causal: RotaryPositions(
        config.d_model // config.n_heads, config.rotary_base
    ),
    "alibi": lambda config, causal: ALiBi(config.n_heads),
    "t5": lambda config, causal: RelativeBias(config.n_heads, causal=causal),
    "none": lambda config, causal: Positions(),
}
