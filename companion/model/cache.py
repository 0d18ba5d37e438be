"""Key/value caches: keep what was computed. Chapter 07.

A cache serves all layers of a model. `n_seen`, its one cursor, says how many positions
it has seen: a number, or (b) where streams differ. A pass asks for its `place` first;
each layer calls `append(layer, keys, values)` with the new ones (b h t d) and gets all
that the new queries may need, (b h s d); after the last block the model moves the
cursor. So a pass that fails changes nothing: what it has stored lies beyond the cursor.
Keys are rotated before they are stored. A cache may be filled in inference mode and
used outside of it, and the other way round.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..inputs import check_tensor, check_whole, shown
from .attention import causal_mask
from .positions import CAUSAL, Place


class Cache:
    """What the five share. By itself it stores nothing: the place of a whole text."""

    n_seen: int | Tensor = 0
    capacity: float = math.inf
    kept: dict[int, tuple[Tensor, ...]]  # keys and values by layer

    def __len__(self) -> int:
        return self.n_seen

    def place(
        self,
        n_new: int,
        device=None,
        causal=True,
        mask=None,
        n_streams=None,
        n_layers=None,
    ) -> Place:
        """Where the next `n_new` tokens and all keys stand, and who may see whom.

        Raises ValueError beyond the capacity, for a mask that does not fit, and where
        the cache holds other than `n_layers`. `n_streams` is a ragged cache's to check.
        """
        end = self.n_seen + n_new
        if end > self.capacity:
            raise too_long(n_new, self.n_seen, self.capacity)
        if not self.n_seen:
            self.kept = {}  # without what a pass that failed has left
        elif n_layers not in (None, len(self.kept)):
            raise other_layers(self.kept, n_layers)

        queries = torch.arange(self.n_seen, end, device=device)
        keys = torch.arange(end, device=device)
        seen = None
        if causal and n_new > 1:
            seen = keys <= queries[:, None] if self.n_seen else CAUSAL
        if mask is not None:
            seen = both(seen, mask, n_new, end)
        return Place(queries, keys, seen)

    def reorder(self, rows: Tensor) -> None:
        """Let row i of the batch continue what `rows[i]` held, as beams do."""
        self.kept = self.reordered(rows)

    def reordered(self, rows: Tensor) -> dict[int, tuple[Tensor, ...]]:
        """What `kept` will be: all of it is built before any of it is assigned."""
        check_tensor("integers", "b", rows=rows)
        kept = {}
        with ordinary_tensors():
            for layer, tensors in self.kept.items():
                n = len(tensors[0])
                if rows.is_cpu and bool(((rows < 0) | (rows >= n)).any()):
                    raise ValueError(f"rows {rows.tolist()} are not within {n}")
                kept[layer] = tuple(x[rows] for x in tensors)
        return kept


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Within, even in inference mode, tensors are made that any mode may write to."""
    with_gradients = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(with_gradients):
        yield


def zeros(like: Tensor, *shape: int) -> Tensor:
    """Room for what is like a tensor, to be written to in any mode."""
    with ordinary_tensors():
        return like.new_zeros(shape)


def too_long(n_new: int, n_seen: int, capacity: float) -> ValueError:
    """What to say where a cache has no room for a pass."""
    more = f"{n_new} more positions after {n_seen}"
    return ValueError(f"{more} exceed the cache's capacity ({capacity})")


def other_layers(kept: dict, n_layers: int) -> ValueError:
    """What to say where the cache was filled by a deeper model, or a flatter one."""
    held = f"the cache holds {len(kept)} layers, the model has {n_layers}"
    return ValueError(f"{held}; a cache serves one model")


def other_keys(held: Tensor, new: Tensor) -> ValueError:
    """What to say where the new keys (b h t d) are not like those that are held."""
    b, h, _, d = held.shape
    new_b, new_h, _, new_d = new.shape
    if b != new_b:
        return ValueError(f"the cache holds {b} streams, not {new_b}")
    return ValueError(
        f"the cache holds {h} heads of {d} features, the model has {new_h} of {new_d};"
        " a cache serves one model"
    )


def both(
    seen: Tensor | str | None, mask: Tensor, n_queries: int, n_keys: int
) -> Tensor:
    """What a place and a further mask (... t s) both allow.

    The mask has a row for each query and a column for each position, or one for all.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise ValueError(f"mask is {shown(mask)}; it must be bool, True = may attend")
    table = torch.atleast_2d(mask)
    if table.shape[-2] not in (1, n_queries) or table.shape[-1] not in (1, n_keys):
        raise ValueError(
            f"mask {tuple(mask.shape)} does not fit {n_queries} queries and {n_keys}"
            " keys, one a position so far"
        )
    if seen is None:
        return table
    if isinstance(seen, str):
        seen = causal_mask(n_keys, device=mask.device)
    return seen & table


class ConcatenatingCache(Cache):
    """Grows by `torch.cat`: the plainest, but each append copies all that is stored."""

    def __init__(self):
        self.kept = {}

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store a layer's keys and values (b h t d); return all of them (b h s d)."""
        if self.n_seen:
            old_keys, old_values = self.kept[layer]
            b, h, _, d = keys.shape
            if old_keys.shape != (b, h, old_keys.shape[-2], d):
                raise other_keys(old_keys, keys)
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
        shape = b, h, self.capacity, d
        if not self.n_seen:
            self.kept[layer] = zeros(keys, *shape), zeros(values, *shape)
        all_keys, all_values = self.kept[layer]
        if all_keys.shape != shape:
            raise other_keys(all_keys, keys)
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
        check_whole(capacity=capacity)
        self.capacity, self.kept = capacity, {}

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store a layer's keys and values (b h t d); return all (b h s d), rounded."""
        b, h, t, d = keys.shape
        new = *quantize(keys), *quantize(values)  # integers and scales of each
        if not self.n_seen:
            room = b, h, self.capacity
            self.kept[layer] = tuple(zeros(x, *room, x.shape[-1]) for x in new)
        kept = self.kept[layer]
        if kept[0].shape != (b, h, self.capacity, d):
            raise other_keys(kept[0], keys)
        start, end = self.n_seen, self.n_seen + t
        for held, x in zip(kept, new, strict=True):
            held[..., start:end, :] = x

        integers, scales, value_integers, value_scales = (x[..., :end, :] for x in kept)
        all_keys = (integers * scales).to(keys.dtype)
        all_values = (value_integers * value_scales).to(values.dtype)
        return all_keys, all_values


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (... d) as 8-bit integers (... d) times scales (... 1), to half a scale.

    A vector of zeros keeps the scale 0. Raises ValueError for what is not floats.
    """
    check_tensor("floats", "... d", x=x)
    x = x.float()
    scales = x.abs().amax(-1, keepdim=True) / 127
    integers = (x / scales.clamp(min=torch.finfo(x.dtype).tiny)).round()
    return integers.to(torch.int8), scales
