"""Caches for serving: streams of many lengths, and windows. Chapter 10."""

import torch
from torch import Tensor

from .cache import Cache, PreallocatedCache, both, too_long
from .inputs import check_tensor, check_whole
from .positions import Place


class RaggedCache(Cache):
    """Streams of different lengths in one batch: each of `n_streams` has its cursor.

    Prompts of different lengths are padded at the end, appended together and then
    shortened by `truncate`; the next tokens overwrite the padding. No query sees beyond
    its own stream's cursor, where all is zero: 0 times NaN would be NaN.
    """

    def __init__(self, capacity: int, n_streams: int):
        check_whole(capacity=capacity, n_streams=n_streams)
        self.capacity, self.kept = capacity, {}
        self.n_seen = torch.zeros(n_streams, dtype=torch.long)

    def __len__(self) -> int:
        return int(self.n_seen.max())

    def place(
        self, n_new, device=None, causal=True, mask=None, n_streams=None
    ) -> Place:
        if n_streams not in (None, len(self.n_seen)):
            have = len(self.n_seen)
            raise ValueError(f"the cache has {have} streams, the tokens {n_streams}")
        end = len(self) + n_new
        if end > self.capacity:
            raise too_long(n_new, len(self), self.capacity)
        queries = (self.n_seen[:, None] + torch.arange(n_new)).to(device)
        keys = torch.arange(end, device=device)
        seen = (keys <= queries[..., None])[:, None]  # the same for every head
        return Place(queries, keys, seen if mask is None else both(seen, mask, end))

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store (b h t d) behind each cursor; return (b h s d), up to the longest."""
        b = len(self.n_seen)
        n, (all_keys, all_values) = keys.shape[-2], self.room(layer, keys)
        rows, slots = torch.arange(b)[:, None], self.n_seen[:, None] + torch.arange(n)
        all_keys[rows, :, slots] = keys.transpose(1, 2)
        all_values[rows, :, slots] = values.transpose(1, 2)
        end = len(self) + n
        return all_keys[..., :end, :], all_values[..., :end, :]

    def room(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's keys and values; zeros if it has none yet."""
        if layer not in self.kept:
            room = len(self.n_seen), like.shape[1], self.capacity, like.shape[3]
            self.kept[layer] = like.new_zeros(room), like.new_zeros(room)
        return self.kept[layer]

    def put(self, row: int, cache: PreallocatedCache) -> None:
        """Let stream `row` go on from what a cache of one stream holds: a copy."""
        check_whole(0, row=row)
        n, streams = len(cache), {len(keys) for keys, _ in cache.kept.values()}
        if row >= len(self.n_seen):
            raise ValueError(f"row {row} is not within {len(self.n_seen)} streams")
        if streams != {1} or not 0 < n <= self.capacity:
            raise ValueError(
                f"the cache holds {n} positions of {max(streams, default=0)} streams; a"
                f" row takes 1 to {self.capacity} of one stream"
            )
        for layer, pair in cache.kept.items():
            room = self.room(layer, pair[0])
            with torch.inference_mode():  # see `truncate`
                for kept, new in zip(room, pair, strict=True):
                    kept[row, :, :n], kept[row, :, n:] = new[0, :, :n], 0
        self.n_seen = self.n_seen.index_fill(0, torch.tensor(row), n)

    def truncate(self, lengths: Tensor) -> None:
        """Keep the first `lengths` (b) positions: without padding, or wrong guesses."""
        check_tensor("integers", "b", lengths=lengths)
        if len(lengths) != len(self.n_seen):
            raise ValueError(f"{len(lengths)} lengths for {len(self.n_seen)} streams")
        if bool(((lengths < 0) | (lengths > self.n_seen)).any()):
            held = f"0 and what the streams hold, {self.n_seen.tolist()}"
            raise ValueError(f"lengths {lengths.tolist()} do not lie within {held}")
        with torch.inference_mode():  # only in it may change what was written in it
            for row in (lengths < self.n_seen).nonzero()[:, 0].tolist():
                for kept in (x for pair in self.kept.values() for x in pair):
                    kept[row, :, int(lengths[row]) : int(self.n_seen[row])] = 0
        self.n_seen = lengths.clone()

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.n_seen = self.n_seen[rows.cpu()]


class SlidingWindowCache(Cache):
    """The last `window` positions and, on request, the first `n_sinks` of all.

    A query sees the keys fewer than `window` positions before it, itself included, and
    the sinks. A new key takes the place of the oldest, so the stored ones are not in
    order: attention does not mind, since a `Place` says where each stands.
    Beltagy et al. 2020, section 3.1; sinks: Xiao et al. 2023, who count positions
    within the cache, where this one keeps the true ones.
    """

    def __init__(self, window: int, n_sinks: int = 0):
        check_whole(window=window)
        check_whole(0, n_sinks=n_sinks)
        self.window, self.n_sinks, self.kept = window, n_sinks, {}
        self.late: dict[int, tuple[int, Tensor, Tensor]] = {}

    def held(self, end: int) -> Tensor:
        """The position in each used slot when `end` positions have been seen."""
        slots = torch.arange(min(end, self.n_sinks + self.window))
        latest = end - 1 - (end - 1 - slots) % self.window
        return torch.where(slots < self.n_sinks, slots, latest)

    def place(
        self, n_new, device=None, causal=True, mask=None, n_streams=None
    ) -> Place:
        self.settle()
        queries = torch.arange(self.n_seen, self.n_seen + n_new)
        if n_new == 1:
            return Place(
                queries.to(device), self.held(self.n_seen + 1).to(device), mask
            )
        keys = torch.cat([self.held(self.n_seen), queries])
        place = Place(queries.to(device), keys.to(device))
        near = (place.distances < self.window) | (place.keys < self.n_sinks)
        seen = near & (place.distances >= 0)
        return place._replace(mask=seen if mask is None else both(seen, mask, 0))

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store (b h t d); return the keys and values that the new queries may need.

        One token takes the slot of what is too far from it. Of several, the first may
        see what the last may not: they are put beside the old ones, and stored when
        the next pass begins, for if this one fails the old ones are still wanted.
        """
        b, h, t, d = keys.shape
        if not self.n_seen:
            room = b, h, self.n_sinks + self.window, d
            self.kept[layer] = keys.new_zeros(room), values.new_zeros(room)
        if t == 1:
            self.write(layer, self.n_seen, keys, values)
        n = min(self.n_seen + (t == 1), self.n_sinks + self.window)
        old_keys, old_values = (x[..., :n, :] for x in self.kept[layer])
        if t == 1:
            return old_keys, old_values
        self.late[layer] = self.n_seen, keys, values
        return torch.cat([old_keys, keys], -2), torch.cat([old_values, values], -2)

    def settle(self) -> None:
        """Store what the last pass has brought, unless it failed."""
        for layer, (start, keys, values) in self.late.items():
            if self.n_seen > start:
                self.write(layer, start, keys, values)
        self.late = {}

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Put keys and values (b h t d) from position `start` on into their slots."""
        held = self.held(start + keys.shape[-2])
        (slots,) = (held >= start).nonzero(as_tuple=True)
        for kept, new in zip(self.kept[layer], (keys, values), strict=True):
            kept[..., slots, :] = new[..., held[slots] - start, :]

    def reorder(self, rows: Tensor) -> None:
        self.settle()
        super().reorder(rows)
