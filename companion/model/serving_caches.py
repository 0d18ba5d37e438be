"""Caches for serving: streams of many lengths, and windows. Chapter 10."""

import torch
from torch import Tensor

from ..inputs import check_tensor, check_whole
from .cache import (
    Cache,
    PreallocatedCache,
    both,
    other_keys,
    other_layers,
    too_long,
    zeros,
)
from .positions import Place, apply_rotary


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
        self.n_written = self.n_seen  # up to where there may be other than zeros

    def __len__(self) -> int:
        return int(self.n_seen.max())

    def place(
        self, n_new, device=None, causal=True, mask=None, n_streams=None, n_layers=None
    ) -> Place:
        if n_streams not in (None, len(self.n_seen)):
            have = len(self.n_seen)
            raise ValueError(f"the cache has {have} streams, the tokens {n_streams}")
        end = len(self) + n_new
        if end > self.capacity:
            raise too_long(n_new, len(self), self.capacity)
        if not self.n_seen.any():
            self.kept = {}
        elif n_layers not in (None, len(self.kept)):
            raise other_layers(self.kept, n_layers)

        queries = (self.n_seen[:, None] + torch.arange(n_new)).to(device)
        keys = torch.arange(end, device=device)
        seen = (keys <= queries[..., None])[:, None]  # the same for every head
        if mask is not None:
            seen = both(seen, mask, n_new, end)
        self.clear()
        self.n_written = self.n_seen + n_new
        return Place(queries, keys, seen)

    def clear(self) -> None:
        """Zeros beyond the cursors: for what was padding, or a pass that failed."""
        with torch.no_grad():
            for row in (self.n_seen < self.n_written).nonzero()[:, 0].tolist():
                start, end = int(self.n_seen[row]), int(self.n_written[row])
                for tensors in self.kept.values():
                    for x in tensors:
                        x[row, :, start:end] = 0
        self.n_written = self.n_seen

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple:
        """Store (b h t d) behind each cursor; return (b h s d), up to the longest."""
        b, _, n, _ = keys.shape
        all_keys, all_values = self.room(layer, keys)
        rows, slots = torch.arange(b)[:, None], self.n_seen[:, None] + torch.arange(n)
        all_keys[rows, :, slots] = keys.transpose(1, 2)
        all_values[rows, :, slots] = values.transpose(1, 2)
        end = len(self) + n
        return all_keys[..., :end, :], all_values[..., :end, :]

    def room(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's keys and values; zeros if it has none yet."""
        _, h, _, d = new.shape
        shape = len(self.n_seen), h, self.capacity, d
        if layer not in self.kept:
            self.kept[layer] = zeros(new, *shape), zeros(new, *shape)
        if self.kept[layer][0].shape != shape:
            raise other_keys(self.kept[layer][0], new)
        return self.kept[layer]

    def put(self, row: int, cache: PreallocatedCache) -> None:
        """Let stream `row` go on from what a cache of one stream holds: a copy."""
        check_whole(0, row=row)
        if not isinstance(cache, PreallocatedCache):
            kind = type(cache).__name__
            raise ValueError(f"a row takes a PreallocatedCache, and not {kind}")
        n, streams = len(cache), {len(keys) for keys, _ in cache.kept.values()}
        if row >= len(self.n_seen):
            raise ValueError(f"row {row} is not within {len(self.n_seen)} streams")
        if streams != {1} or not 0 < n <= self.capacity:
            raise ValueError(
                f"the cache holds {n} positions of {max(streams, default=0)} streams; a"
                f" row takes 1 to {self.capacity} of one stream"
            )
        if not self.n_seen.any():
            self.kept = {}
        elif len(self.kept) != len(cache.kept):
            raise other_layers(self.kept, len(cache.kept))
        rooms = {}
        for layer, (keys, _) in cache.kept.items():
            rooms[layer] = self.room(layer, keys.expand(len(self.n_seen), -1, -1, -1))

        # While a row is written it holds nothing.
        index = torch.tensor(row)
        self.n_seen = self.n_seen.index_fill(0, index, 0)
        self.n_written = self.n_written.index_fill(0, index, self.capacity)
        with torch.no_grad():
            for layer, pair in cache.kept.items():
                for kept, new in zip(rooms[layer], pair, strict=True):
                    kept[row, :, :n] = new[0, :, :n]
                    kept[row, :, n:] = 0
        self.n_seen = self.n_seen.index_fill(0, index, n)
        self.n_written = self.n_written.index_fill(0, index, n)

    def truncate(self, lengths: Tensor) -> None:
        """Keep the first `lengths` (b) positions: without padding, or wrong guesses."""
        check_tensor("integers", "b", lengths=lengths)
        if len(lengths) != len(self.n_seen):
            raise ValueError(f"{len(lengths)} lengths for {len(self.n_seen)} streams")
        if bool(((lengths < 0) | (lengths > self.n_seen)).any()):
            held = f"0 and what the streams hold, {self.n_seen.tolist()}"
            raise ValueError(f"lengths {lengths.tolist()} do not lie within {held}")
        self.n_seen = lengths.clone()

    def reorder(self, rows: Tensor) -> None:
        kept, rows = self.reordered(rows), rows.cpu()
        n_seen, n_written = self.n_seen[rows], self.n_written[rows]
        self.kept, self.n_seen, self.n_written = kept, n_seen, n_written


class SlidingWindowCache(Cache):
    """The last `window` positions and, on request, the first `n_sinks` of all.

    A query sees the keys fewer than `window` positions before it, itself included, and
    the sinks. A new key takes the place of the oldest, so the stored ones are not in
    order: attention does not mind, since a `Place` says where each stands.
    Beltagy et al. 2020, section 3.1; sinks: Xiao et al. 2023, section 3.2.

    Distances are counted within the cache. From the window's keys to the query that is
    their true distance; but the sinks go along with the window, and the farthest key is
    never more than n_sinks + window - 1 positions away, however long the text. Where
    the text is read in pieces makes no difference. What learned or sinusoidal positions
    have added to a token stays as it was.

    A pass of several tokens, of which some have lost a key, sees the sinks once for
    each of its t tokens, each where it stands for that one: its keys are t · n_sinks
    sinks, token by token, and then the window's. So a long text is best read in pieces
    of a few hundred tokens.
    """

    def __init__(self, window: int, n_sinks: int = 0):
        check_whole(window=window)
        check_whole(0, n_sinks=n_sinks)
        self.window, self.n_sinks, self.kept = window, n_sinks, {}
        self.sinks: dict[int, Tensor] = {}  # their keys, as they were before they moved
        self.late: dict[int, tuple[int, Tensor, Tensor]] = {}

    def held(self, end: int) -> Tensor:
        """The position in each used slot when `end` positions have been seen."""
        slots = torch.arange(min(end, self.n_sinks + self.window))
        latest = end - 1 - (end - 1 - slots) % self.window
        return torch.where(slots < self.n_sinks, slots, latest)

    def wanted(self) -> Tensor:
        """The slots of which several new tokens may see the keys.

        The oldest is not among them, for a pass of one token takes its place at once,
        even one that fails then.
        """
        held = self.held(self.n_seen)
        near = (held > self.n_seen - self.window) | (held < self.n_sinks)
        return near.nonzero()[:, 0]

    def sinks_move(self, n_new: int) -> bool:
        """Whether the last of `n_new` tokens is farther from the sinks than allowed."""
        return self.n_sinks > 0 and self.n_seen + n_new > self.n_sinks + self.window

    def place(
        self, n_new, device=None, causal=True, mask=None, n_streams=None, n_layers=None
    ) -> Place:
        if self.n_seen and n_layers not in (None, len(self.kept)):
            raise other_layers(self.kept, n_layers)
        self.settle()
        if not self.n_seen:
            self.kept, self.sinks = {}, {}

        # The true position of each key that `append` will return.
        n_sinks = self.n_sinks
        queries = torch.arange(self.n_seen, self.n_seen + n_new)
        if n_new == 1:
            positions = self.held(self.n_seen + 1)
        else:
            positions = torch.cat([self.held(self.n_seen)[self.wanted()], queries])
        moved = None
        if self.sinks_move(n_new):
            sinks, others = positions[:n_sinks], positions[n_sinks:]
            positions = torch.cat([sinks.repeat(n_new), others])
            farthest = n_sinks + self.window - 1
            moved = (queries - farthest).clamp(min=0).repeat_interleave(n_sinks)

        # One token may see all that it gets.
        seen = None
        if n_new > 1:
            distances = queries[:, None] - positions
            near = (distances < self.window) | (positions < n_sinks)
            seen = near & (distances >= 0)
            if moved is not None:  # each token sees its own sinks
                own = torch.eye(n_new, dtype=torch.bool)
                seen[:, : len(moved)] &= own.repeat_interleave(n_sinks, 1)
            seen = seen.to(device)
        if mask is not None:
            mask = both(None, mask, n_new, self.n_seen + n_new)
            if mask.shape[-1] > 1:
                mask = mask[..., positions.to(mask.device)]
            seen = mask if seen is None else seen & mask

        keys = positions
        if moved is not None:
            keys = positions.index_add(0, torch.arange(len(moved)), moved)
            moved = moved.to(device)
        return Place(queries.to(device), keys.to(device), seen, moved)

    def append(self, layer: int, keys: Tensor, values: Tensor, turn=None) -> tuple:
        """Store (b h t d); return the keys and values that the new queries may need.

        One token takes the slot of what is too far from it. Of several, the first may
        see what the last may not: they are put beside the old ones, and stored when
        the next pass begins, for if this one fails the old ones are still wanted.
        Rotary positions bring what turns the keys of sinks that move, `turn`.
        """
        b, h, t, d = keys.shape
        n_sinks, n_slots = self.n_sinks, self.n_sinks + self.window
        if not self.n_seen:
            shape = b, h, n_slots, d
            self.kept[layer] = zeros(keys, *shape), zeros(values, *shape)
        old_keys, old_values = self.kept[layer]
        if old_keys.shape != (b, h, n_slots, d):
            raise other_keys(old_keys, keys)

        if t == 1:
            self.write(layer, self.n_seen, keys, values)
            if turn is not None:
                old_keys[..., :n_sinks, :] = apply_rotary(self.sinks[layer], turn)
            n = min(self.n_seen + 1, n_slots)
            return old_keys[..., :n, :], old_values[..., :n, :]

        self.late[layer] = self.n_seen, keys, values
        slots = self.wanted()
        all_keys = torch.cat([old_keys[..., slots, :], keys], -2)
        all_values = torch.cat([old_values[..., slots, :], values], -2)
        if not self.sinks_move(t):
            return all_keys, all_values

        # The sinks come first, some of them perhaps in this very pass.
        sinks = all_keys[..., :n_sinks, :]
        if self.n_seen >= n_sinks:
            sinks = self.sinks[layer]
        sinks = sinks.repeat(1, 1, t, 1)
        if turn is not None:
            sinks = apply_rotary(sinks, turn)
        sink_values = all_values[..., :n_sinks, :].repeat(1, 1, t, 1)
        all_keys = torch.cat([sinks, all_keys[..., n_sinks:, :]], -2)
        all_values = torch.cat([sink_values, all_values[..., n_sinks:, :]], -2)
        return all_keys, all_values

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
        if start < self.n_sinks:
            self.sinks[layer] = self.kept[layer][0][..., : self.n_sinks, :].clone()

    def reorder(self, rows: Tensor) -> None:
        self.settle()
        kept = self.reordered(rows)
        sinks = {layer: keys[rows] for layer, keys in self.sinks.items()}
        self.kept, self.sinks = kept, sinks
