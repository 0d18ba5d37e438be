"""Caches for serving: streams of many lengths, and windows. Chapter 10."""

import torch
from torch import Tensor

from ..inputs import check_tensor, check_whole
from .cache import (
    Cache,
    PreallocatedCache,
    combine_masks,
    ordinary_tensors,
    other_keys_error,
    other_layers_error,
    zeros,
)
from .positions import Place, apply_rotary
from .scores import Heads


class RaggedCache(Cache):
    """Streams of different lengths in one batch: each of `n_streams` has its cursor.

    Prompts of different lengths are padded at the end, appended together and then
    shortened by `truncate`; the next tokens overwrite the padding. No query sees beyond
    its own stream's cursor, where all is zero: 0 times NaN would be NaN. Chapter 10.
    """

    capacity: int

    def __init__(self, capacity: int, n_streams: int):
        super().__init__()
        check_whole(capacity=capacity, n_streams=n_streams)
        self.capacity = capacity
        # Each stream's cursor, and up to where it may hold other than zeros.
        self.lengths = torch.zeros(n_streams, dtype=torch.long)
        self.n_written = self.lengths

    @property
    def n_seen(self) -> int:
        """Returns how many positions the longest stream has seen."""
        return int(self.lengths.max())

    def begin(self, n_streams: int, n_new: int, n_layers: int) -> None:
        """Begins a pass, see `Cache.begin`: also refuses another number of streams."""
        if n_streams != len(self.lengths):
            raise ValueError(
                f"the cache has {len(self.lengths)} streams, the tokens {n_streams}"
            )
        super().begin(n_streams, n_new, n_layers)

        # Zeros beyond the cursors: over padding, or what a failed pass has left.
        with torch.no_grad():
            for row in (self.lengths < self.n_written).nonzero()[:, 0].tolist():
                start = int(self.lengths[row])
                end = int(self.n_written[row])
                for tensors in self.layers.values():
                    for x in tensors:
                        x[row, :, start:end] = 0
        self.n_written = self.lengths + n_new

    def place(
        self,
        n_new: int,
        device: torch.device | str | None = None,
        causal: bool = True,
        mask: Tensor | None = None,
    ) -> Place:
        """Says where the next tokens and all keys stand, and who may see whom.

        Returns the positions of queries (b t) and keys (s), and a mask (b 1 t s). The
        further mask and the errors are those of `Cache.place`.
        """
        end = self.n_seen + n_new
        query_positions = (self.lengths[:, None] + torch.arange(n_new)).to(device)
        key_positions = torch.arange(end, device=device)
        allowed = key_positions <= query_positions[..., None]
        allowed = allowed[:, None]  # the same for every head
        if mask is not None:
            allowed = combine_masks(allowed, mask, n_new, end)
        return Place(query_positions, key_positions, allowed)

    def append(self, layer: int, keys: Heads, values: Heads) -> tuple[Heads, Heads]:
        """Stores keys and values (b h t d) behind each stream's cursor.

        Returns all of them up to the longest stream's, (b h s d). Raises ValueError for
        keys of another model or number of streams.
        """
        b, _, n_new, _ = keys.shape
        all_keys, all_values = self.buffers(layer, keys)

        rows = torch.arange(b)[:, None]
        slots = self.lengths[:, None] + torch.arange(n_new)
        # A slice between two indices puts their axes first: (b t h d).
        all_keys[rows, :, slots] = keys.transpose(1, 2)
        all_values[rows, :, slots] = values.transpose(1, 2)

        end = len(self) + n_new
        return all_keys[..., :end, :], all_values[..., :end, :]

    def advance(self, n_new: int) -> None:
        """Ends a pass: its tokens count from now on, in every stream."""
        self.lengths = self.lengths + n_new

    def buffers(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's keys and values, zeros if it has none yet. Returns both (b h s d).

        Raises ValueError where new keys (b h t d) don't fit them.
        """
        _, h, _, d = new.shape
        shape = (len(self.lengths), h, self.capacity, d)
        if layer not in self.layers:
            self.layers[layer] = (zeros(new, *shape), zeros(new, *shape))
        keys, values = self.layers[layer]
        if keys.shape != shape:
            raise other_keys_error(keys, new)
        return keys, values

    def put(self, row: int, cache: PreallocatedCache) -> None:
        """Lets stream `row` go on from what a cache of one stream holds: a copy.

        Raises ValueError for a row that the cache doesn't have, and for a cache that is
        empty, too long, of several streams or of another model.
        """
        check_whole(0, row=row)
        if not isinstance(cache, PreallocatedCache):
            raise ValueError(
                f"a row takes a PreallocatedCache, and not {type(cache).__name__}"
            )
        if row >= len(self.lengths):
            raise ValueError(f"row {row} is not within {len(self.lengths)} streams")
        n = len(cache)
        n_streams = {len(keys) for keys, _ in cache.layers.values()}
        if n_streams != {1} or not 0 < n <= self.capacity:
            raise ValueError(
                f"the cache holds {n} positions of {max(n_streams, default=0)} streams;"
                f" a row takes 1 to {self.capacity} of one stream"
            )
        if not self.n_seen:
            self.layers = {}
        elif len(self.layers) != len(cache.layers):
            raise other_layers_error(self.layers, len(cache.layers))

        # All that may refuse comes before the first number is written.
        buffers = {}
        for layer, (keys, _) in cache.layers.items():
            new = keys.expand(len(self.lengths), -1, -1, -1)
            buffers[layer] = self.buffers(layer, new)

        # While a row is written it holds nothing.
        index = torch.tensor(row)
        self.lengths = self.lengths.index_fill(0, index, 0)
        self.n_written = self.n_written.index_fill(0, index, self.capacity)
        with torch.no_grad():
            for layer, tensors in cache.layers.items():
                for buffer, new in zip(buffers[layer], tensors, strict=True):
                    buffer[row, :, :n] = new[0, :, :n]
                    buffer[row, :, n:] = 0
        self.lengths = self.lengths.index_fill(0, index, n)
        self.n_written = self.n_written.index_fill(0, index, n)

    def truncate(self, lengths: Tensor) -> None:
        """Keeps the first `lengths` (b) positions: without padding, or wrong guesses.

        Raises ValueError for lengths that are negative or more than a stream holds.
        """
        check_tensor("integers", "b", lengths=lengths)
        if len(lengths) != len(self.lengths):
            raise ValueError(f"{len(lengths)} lengths for {len(self.lengths)} streams")
        if bool(((lengths < 0) | (lengths > self.lengths)).any()):
            raise ValueError(
                f"lengths {lengths.tolist()} do not lie within 0 and what the streams"
                f" hold, {self.lengths.tolist()}"
            )
        self.lengths = lengths.clone()

    def reorder(self, rows: Tensor) -> None:
        """Lets row i of the batch continue what `rows[i]` held: `Cache.reorder`."""
        layers = self.reordered(rows)
        rows = rows.cpu()
        kept_lengths = self.lengths[rows]
        n_written = self.n_written[rows]

        # Nothing above has changed the cache, and nothing below can fail.
        self.layers = layers
        self.lengths = kept_lengths
        self.n_written = n_written


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
    of a few hundred tokens. An example: with a window of 2 and one sink, tokens 0 to 2
    were read, and 3 and 4 come. Their keys are those of tokens 0, 0, 2, 3 and 4. Token
    3 sees the first copy, which stands at 1 for it, then 2 and 3; token 4 the second,
    which stands at 2 for it, then 3 and 4.
    """

    def __init__(self, window: int, n_sinks: int = 0):
        super().__init__()
        check_whole(window=window)
        check_whole(0, n_sinks=n_sinks)
        self.window = window
        self.n_sinks = n_sinks
        self.sinks: dict[int, Heads] = {}  # their keys, as they were before they moved
        # What will be in `layers` when a pass of several tokens has ended.
        self.pending: dict[int, tuple[Heads, Heads]] = {}

    def slot_positions(self, end: int) -> Tensor:
        """The position in each used slot when `end` positions have been seen.

        Returns (n_sinks + window), or fewer at first.
        """
        slots = torch.arange(min(end, self.n_sinks + self.window))
        # After the sinks' slots, position p lies in the slot that equals it modulo the
        # window: here is the latest such p before `end`.
        latest = end - 1 - (end - 1 - slots) % self.window
        return torch.where(slots < self.n_sinks, slots, latest)

    def visible_slots(self) -> Tensor:
        """The slots of which several new tokens may see the keys. Returns indices.

        They see fewer than `window` old keys, so the oldest is not needed. Nor may it
        be trusted: a pass of one token overwrites it, even one that then fails.
        """
        positions = self.slot_positions(self.n_seen)
        is_near = positions > self.n_seen - self.window
        is_sink = positions < self.n_sinks
        return (is_near | is_sink).nonzero()[:, 0]

    def sinks_move(self, n_new: int) -> bool:
        """Whether the last of `n_new` tokens is farther from the sinks than allowed."""
        return self.n_sinks > 0 and self.n_seen + n_new > self.n_sinks + self.window

    def begin(self, n_streams: int, n_new: int, n_layers: int) -> None:
        """Begins a pass, see `Cache.begin`."""
        super().begin(n_streams, n_new, n_layers)
        self.turn = None
        self.pending = {}
        if not self.n_seen:
            self.sinks = {}

    def place(
        self,
        n_new: int,
        device: torch.device | str | None = None,
        causal: bool = True,
        mask: Tensor | None = None,
    ) -> Place:
        """Says where the next tokens and their keys stand, and who may see whom.

        Returns the positions of queries (t) and of keys (s), these in the order of
        `append`, a mask (... t s) and by how much each sink was moved. The further mask
        and the errors are those of `Cache.place`.
        """
        # The true position of each key that `append` will return.
        n_sinks = self.n_sinks
        query_positions = torch.arange(self.n_seen, self.n_seen + n_new)
        if n_new == 1:
            positions = self.slot_positions(self.n_seen + 1)
        else:
            stored = self.slot_positions(self.n_seen)[self.visible_slots()]
            positions = torch.cat([stored, query_positions])
        moved = None
        if self.sinks_move(n_new):
            sinks = positions[:n_sinks]
            positions = torch.cat([sinks.repeat(n_new), positions[n_sinks:]])
            farthest = n_sinks + self.window - 1
            moved = (query_positions - farthest).clamp(min=0)
            moved = moved.repeat_interleave(n_sinks)

        # One token may see all that it gets.
        allowed = None
        if n_new > 1:
            distances = query_positions[:, None] - positions
            is_near = distances < self.window
            is_sink = positions < n_sinks
            allowed = (is_near | is_sink) & (distances >= 0)
            if moved is not None:  # each token sees its own sinks
                own = torch.eye(n_new, dtype=torch.bool)
                allowed[:, : len(moved)] &= own.repeat_interleave(n_sinks, 1)
            allowed = allowed.to(device)

        # A further mask has a column for each position so far.
        if mask is not None:
            mask = combine_masks(None, mask, n_new, self.n_seen + n_new)
            if mask.shape[-1] > 1:
                mask = mask[..., positions.to(mask.device)]
            allowed = mask if allowed is None else allowed & mask

        # Where the keys stand for their query: sinks go along with the window.
        key_positions = positions
        if moved is not None:
            key_positions = positions.clone()
            key_positions[: len(moved)] += moved
            moved = moved.to(device)
        return Place(
            query_positions.to(device), key_positions.to(device), allowed, moved
        )

    def append(self, layer: int, keys: Heads, values: Heads) -> tuple[Heads, Heads]:
        """Stores (b h t d). Returns what the new queries may need, (b h s d).

        One token takes the slot of what is too far from it. Of several, the first may
        see what the last may not: the old keys stay where they are until the pass has
        ended, for if it fails they are still needed. Sinks that move are turned by
        `turn`. Raises ValueError for keys of another model or number of streams.
        """
        b, h, t, d = keys.shape
        n_sinks = self.n_sinks
        shape = (b, h, n_sinks + self.window, d)
        if not self.n_seen:
            self.layers[layer] = (zeros(keys, *shape), zeros(values, *shape))
        stored_keys, stored_values = self.layers[layer]
        if stored_keys.shape != shape:
            raise other_keys_error(stored_keys, keys)

        if t == 1:
            self.fill_slots(stored_keys, stored_values, keys, values)
            if self.turn is not None:
                moved_sinks = apply_rotary(self.sinks[layer], self.turn)
                stored_keys[..., :n_sinks, :] = moved_sinks
            n_used = min(self.n_seen + 1, n_sinks + self.window)
            return stored_keys[..., :n_used, :], stored_values[..., :n_used, :]

        with ordinary_tensors():
            pending_keys, pending_values = stored_keys.clone(), stored_values.clone()
        self.fill_slots(pending_keys, pending_values, keys, values)
        self.pending[layer] = (pending_keys, pending_values)

        slots = self.visible_slots()
        all_keys = torch.cat([stored_keys[..., slots, :], keys], -2)
        all_values = torch.cat([stored_values[..., slots, :], values], -2)
        if not self.sinks_move(t):
            return all_keys, all_values

        # The sinks come first, once for each token. Until the pass that brings the last
        # of them has ended, `self.sinks` lacks some: then they are the first of all.
        if self.n_seen >= n_sinks:
            sinks = self.sinks[layer]
        else:
            sinks = all_keys[..., :n_sinks, :]
        sinks = sinks.repeat(1, 1, t, 1)
        if self.turn is not None:
            sinks = apply_rotary(sinks, self.turn)
        sink_values = all_values[..., :n_sinks, :].repeat(1, 1, t, 1)
        all_keys = torch.cat([sinks, all_keys[..., n_sinks:, :]], -2)
        all_values = torch.cat([sink_values, all_values[..., n_sinks:, :]], -2)
        return all_keys, all_values

    def fill_slots(
        self, stored_keys: Heads, stored_values: Heads, keys: Heads, values: Heads
    ) -> None:
        """Puts a pass's new keys and values (b h t d) into their slots."""
        positions = self.slot_positions(self.n_seen + keys.shape[-2])
        slots = (positions >= self.n_seen).nonzero()[:, 0]
        sources = positions[slots] - self.n_seen
        stored_keys[..., slots, :] = keys[..., sources, :]
        stored_values[..., slots, :] = values[..., sources, :]

    def advance(self, n_new: int) -> None:
        """Ends a pass: what was pending takes the old keys' place, and all counts."""
        layers = self.layers | self.pending
        sinks = self.sinks
        if self.n_seen < self.n_sinks:  # the pass has brought some of them
            sinks = {
                layer: keys[..., : self.n_sinks, :].clone()
                for layer, (keys, _) in layers.items()
            }

        # Nothing above has changed what is stored, and nothing below can fail.
        self.layers = layers
        self.sinks = sinks
        self.pending = {}
        super().advance(n_new)

    def reorder(self, rows: Tensor) -> None:
        """Lets row i of the batch continue what `rows[i]` held: `Cache.reorder`."""
        layers = self.reordered(rows)
        sinks = {layer: keys[rows] for layer, keys in self.sinks.items()}

        # Nothing above has changed what is stored, and nothing below can fail.
        self.layers = layers
        self.sinks = sinks
