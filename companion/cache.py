"""Key/value caches: keep what was computed. Chapter 07.

A cache serves all layers of a model. `n_seen`, its one cursor, says how many positions
it has seen: a number, or (b) where streams differ. A pass asks for its `place` first;
each layer calls `append(layer, keys, values)` with the new ones (b h t d) and gets all
that the new queries may need, (b h s d); after the last block the model moves the
cursor. So a pass that fails changes nothing: what it has stored lies beyond the cursor.
Keys are rotated before they are stored.
"""

import math

import torch
from torch import Tensor

from .attention import CAUSAL, causal_mask
from .inputs import check_tensor, check_whole, shown
from .positions import Place


class Cache:
    """What the five share. By itself it stores nothing: the place of a whole text."""

    n_seen: int | Tensor = 0
    capacity: float = math.inf
    kept: dict[int, tuple[Tensor, Tensor]]  # keys and values by layer

    def __len__(self) -> int:
        return self.n_seen

    def place(
        self, n_new: int, device=None, causal=True, mask=None, n_streams=None
    ) -> Place:
        """Where the next `n_new` tokens and all keys stand, and who may see whom.

        Raises ValueError beyond the capacity. `n_streams` is a ragged cache's to check.
        """
        end = self.n_seen + n_new
        if end > self.capacity:
            raise too_long(n_new, self.n_seen, self.capacity)
        queries = torch.arange(self.n_seen, end, device=device)
        keys, seen = torch.arange(end, device=device), None
        if causal and n_new > 1:
            seen = keys <= queries[:, None] if self.n_seen else CAUSAL
        return Place(queries, keys, seen if mask is None else both(seen, mask, end))

    def reorder(self, rows: Tensor) -> None:
        """Let row i of the batch continue what `rows[i]` held, as beams do."""
        check_tensor("integers", "b", rows=rows)
        for layer, (keys, values) in self.kept.items():
            if rows.is_cpu and bool(((rows < 0) | (rows >= len(keys))).any()):
                raise ValueError(f"rows {rows.tolist()} are not within {len(keys)}")
            self.kept[layer] = keys[rows], values[rows]


def too_long(n_new: int, n_seen: int, capacity: float) -> ValueError:
    """What to say where a cache has no room for a pass."""
    more = f"{n_new} more positions after {n_seen}"
    return ValueError(f"{more} exceed the cache's capacity ({capacity})")


def both(seen: Tensor | str | None, mask: Tensor, n_keys: int) -> Tensor:
    """What a place and a further mask (... t s) both allow."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask is {shown(mask)}; it must be bool, True = may attend")
    if isinstance(seen, str):
        seen = causal_mask(n_keys, device=mask.device)
    return mask if seen is None else seen & mask


class ConcatenatingCache(Cache):
    """Grows by `torch.cat`: the plainest, but each append copies all that is stored."""

    def __init__(self):
        self.kept = {}

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store a layer's keys and values (b h t d); return all of them (b h s d)."""
        if self.n_seen:
            old_keys, old_values = self.kept[layer]
            keys = torch.cat([old_keys[..., : self.n_seen, :], keys], -2)
            values = torch.cat([old_values[..., : self.n_seen, :], values], -2)
        self.kept[layer] = keys, values
        return keys, values


class PreallocatedCache(Cache):
    """Room for `capacity` positions: an append writes in place and returns views."""

    def __init__(self, capacity: int):
        check_whole(capacity=capacity)
        self.capacity, self.kept = capacity, {}

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store a layer's keys and values (b h t d); return all of them (b h s d)."""
        b, h, t, d = keys.shape
        if not self.n_seen:
            room = b, h, self.capacity, d
            self.kept[layer] = keys.new_zeros(room), values.new_zeros(room)
        all_keys, all_values = self.kept[layer]
        if len(all_keys) != b:
            raise ValueError(f"the cache holds {len(all_keys)} streams, not {b}")
        start, end = self.n_seen, self.n_seen + t
        all_keys[..., start:end, :] = keys
        all_values[..., start:end, :] = values
        return all_keys[..., :end, :], all_values[..., :end, :]


class Int8Cache(Cache):
    """One byte a number: each key and value is kept as 8-bit integers and one scale.

    The scale is the vector's largest magnitude / 127, so that no number is off by more
    than half of it. What `append` returns is multiplied out again. Dettmers et al.
    2022, section 2.1 (absmax quantization).
    """

    def __init__(self, capacity: int):
        self.numbers, self.scales = (PreallocatedCache(capacity) for _ in range(2))
        self.capacity = capacity

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store a layer's keys and values (b h t d); return all (b h s d), rounded."""
        self.numbers.n_seen = self.scales.n_seen = self.n_seen
        (numbers, scales), (value_numbers, value_scales) = map(quantize, (keys, values))
        all_numbers = self.numbers.append(layer, numbers, value_numbers)
        all_scales = self.scales.append(layer, scales, value_scales)
        pairs = zip(all_numbers, all_scales, strict=True)
        return tuple((n * scale).to(keys.dtype) for n, scale in pairs)

    def reorder(self, rows: Tensor) -> None:
        self.numbers.reorder(rows)
        self.scales.reorder(rows)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (... d) as 8-bit integers (... d) times scales (... 1), to half a scale.

    A vector of zeros keeps the scale 0. Raises ValueError for what is not floats.
    """
    check_tensor("floats", "... d", x=x)
    x = x.float()
    scales = x.abs().amax(-1, keepdim=True) / 127
    integers = (x / scales.clamp(min=torch.finfo(x.dtype).tiny)).round()
    return integers.to(torch.int8), scales
