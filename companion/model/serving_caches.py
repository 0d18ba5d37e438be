"""Caches for serving: streams of many lengths, and windows. Chapter 10."""

import torch
from torch import Tensor

from ..inputs import check_tensor, check_whole
from .cache import (
    Cache,
    PreallocatedCache,
    check_rows,
    combine_masks,
    ordinary_tensors,
    other_keys_error,
    other_layers_error,
    zeros,
)
from .positions import Place, Rope, turn_first
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
    def n_streams(self) -> int:
        """Returns how many streams it was made for."""
        return len(self.lengths)

    @property
    def n_seen(self) -> int:
        """Returns how many positions the longest stream has seen."""
        return int(self.lengths.max())

    @n_seen.setter
    def n_seen(self, n: int) -> None:
        raise AttributeError("each stream has a cursor of its own; `advance` moves all")

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

        Returns the positions of queries (b t) and keys (s), and a mask (b 1 t s), by
        which none sees a later one, whatever `causal` says. The further mask and the
        errors are those of `Cache.place`.
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
        """Lets row i of the batch continue what `rows[i]` held: `Cache.reorder`.

        The cursors are on the CPU, so rows on an accelerator are looked at, too.
        """
        layers = self.reordered(rows)
        rows = rows.cpu()
        check_rows(rows, self.n_streams)  # those of an accelerator are new here
        lengths = self.lengths[rows]
        n_written = self.n_written[rows]

        # Nothing above has changed the cache, and nothing below can fail.
        self.layers = layers
        self.lengths = lengths
        self.n_written = n_written


class SlidingWindowCache(Cache):
    """The last `window` positions, in constant memory, however long the text is.

    A query sees the keys fewer than `window` positions before it, itself included. A
    new key takes the place of the oldest, so the stored ones are not in order:
    attention does not mind, since a `Place` says where each stands.
    Beltagy et al. 2020, section 3.1. Chapter 10.
    """

    def __init__(self, window: int):
        super().__init__()
        check_whole(window=window)
        self.window = window
        self.n_slots = window
        # What will be in `layers` when a pass of several tokens has ended.
        self.pending: dict[int, tuple[Heads, Heads]] = {}

    def kept_positions(self, end: int) -> Tensor:
        """The positions (s) whose keys are kept when `end` have been seen."""
        return torch.arange(max(0, end - self.window), end)

    def slots_of(self, positions: Tensor) -> Tensor:
        """The slot in which each position's key lies. Returns (s)."""
        return positions % self.window

    def key_positions(self, n_new: int) -> Tensor:
        """The position (s) of each key that `append` returns: these are in its order.

        They lie as in their slots. Of several new tokens the first may see what the
        last may not: before the new ones come the old ones that the first may see.
        """
        kept = self.kept_positions(self.n_seen + 1)
        by_slot = kept[self.slots_of(kept).argsort()]
        if n_new == 1:
            return by_slot
        old = by_slot[by_slot < self.n_seen]
        return torch.cat([old, torch.arange(self.n_seen, self.n_seen + n_new)])

    def visible(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Whether each query may see each key that `append` returns. Returns (t s)."""
        distances = query_positions[:, None] - key_positions
        return (distances >= 0) & (distances < self.window)

    def begin(self, n_streams: int, n_new: int, n_layers: int) -> None:
        """Begins a pass, see `Cache.begin`."""
        super().begin(n_streams, n_new, n_layers)
        self.pending = {}

    def place(
        self,
        n_new: int,
        device: torch.device | str | None = None,
        causal: bool = True,
        mask: Tensor | None = None,
    ) -> Place:
        """Says where the next tokens and their keys stand, and who may see whom.

        Returns the positions of queries (t) and of keys (s), these in the order of
        `append`, and a mask (... t s), by which none sees a later one, whatever
        `causal` says. The further mask and the errors are those of `Cache.place`.
        """
        end = self.n_seen + n_new
        query_positions = torch.arange(self.n_seen, end)
        key_positions = self.key_positions(n_new)

        # One token may see all that it gets.
        allowed = None
        if n_new > 1:
            allowed = self.visible(query_positions, key_positions).to(device)

        # A further mask has a column for each position so far.
        if mask is not None:
            mask = combine_masks(None, mask, n_new, end)
            if mask.shape[-1] > 1:
                mask = mask[..., key_positions.to(mask.device)]
            allowed = mask if allowed is None else allowed & mask
        return Place(query_positions.to(device), key_positions.to(device), allowed)

    def append(self, layer: int, keys: Heads, values: Heads) -> tuple[Heads, Heads]:
        """Stores (b h t d). Returns what the new queries may need, (b h s d).

        One token takes the slot of what is too far from it. Where there are several the
        old keys stay where they are until the pass has ended: if it fails, they are
        still needed. Raises ValueError for keys of another model or number of streams.
        """
        b, h, t, d = keys.shape
        shape = (b, h, self.n_slots, d)
        if not self.n_seen:
            self.layers[layer] = (zeros(keys, *shape), zeros(values, *shape))
        stored_keys, stored_values = self.layers[layer]
        if stored_keys.shape != shape:
            raise other_keys_error(stored_keys, keys)

        if t == 1:
            self.fill_slots(stored_keys, stored_values, keys, values)
            n_used = min(self.n_seen + 1, self.n_slots)
            return stored_keys[..., :n_used, :], stored_values[..., :n_used, :]

        # A first pass needs no copy: it has no old keys.
        pending_keys, pending_values = stored_keys, stored_values
        if self.n_seen:
            with ordinary_tensors():
                pending_keys = stored_keys.clone()
                pending_values = stored_values.clone()
        self.fill_slots(pending_keys, pending_values, keys, values)
        self.pending[layer] = (pending_keys, pending_values)

        # From the slots, and behind them from the new.
        positions = self.key_positions(t)
        rows = torch.where(
            positions < self.n_seen,
            self.slots_of(positions),
            self.n_slots + positions - self.n_seen,
        )
        all_keys = torch.cat([stored_keys, keys], -2)[..., rows, :]
        all_values = torch.cat([stored_values, values], -2)[..., rows, :]
        return all_keys, all_values

    def fill_slots(
        self, stored_keys: Heads, stored_values: Heads, keys: Heads, values: Heads
    ) -> None:
        """Puts a pass's new keys and values (b h t d) into their slots."""
        kept = self.kept_positions(self.n_seen + keys.shape[-2])
        new = kept[kept >= self.n_seen]
        slots = self.slots_of(new)
        stored_keys[..., slots, :] = keys[..., new - self.n_seen, :]
        stored_values[..., slots, :] = values[..., new - self.n_seen, :]

    def advance(self, n_new: int) -> None:
        """Ends a pass: what was pending takes the old keys' place, and all counts."""
        layers = self.layers | self.pending

        # Nothing above has changed what is stored, and nothing below can fail.
        self.layers = layers
        self.pending = {}
        super().advance(n_new)


class SinkCache(SlidingWindowCache):
    """A sliding window, and before it the sinks, the first `n_sinks` tokens of a text.

    The first n_sinks + window tokens stand where they stand in the text. After them the
    sinks move along with the window: from each query its window's keys are 0 to
    window - 1 positions away, and the sinks are those right before. So no key is ever
    farther than n_sinks + window - 1, however long the text, and in what pieces it is
    read makes no difference. A rotation and a bias follow the sinks; what learned or
    sinusoidal positions have added to them stays. Xiao et al. 2023, section 3.2.
    Chapter 10.

    Once they move, the sinks stand elsewhere for each of a pass's t tokens. So each has
    its own copy of them, and the pass's keys are t copies, then the window. That is
    t · n_sinks more keys: a long text is best read in pieces of a few hundred tokens.
    An example: one sink, a window of 2, tokens 0 to 2 were read, and 3 and 4 come.

        keys of token     0   0   2   3   4
        which stand at    1   2   2   3   4
        token 3 sees      x       x   x
        token 4 sees          x       x   x
    """

    def __init__(self, window: int, n_sinks: int):
        super().__init__(window)
        check_whole(n_sinks=n_sinks)
        self.n_sinks = n_sinks
        self.n_slots = n_sinks + window

    def kept_positions(self, end: int) -> Tensor:
        """The positions (s) whose keys are kept when `end` have been seen."""
        n_sinks = min(end, self.n_sinks)
        near = torch.arange(max(n_sinks, end - self.window), end)
        return torch.cat([torch.arange(n_sinks), near])

    def slots_of(self, positions: Tensor) -> Tensor:
        """The slot in which each position's key lies, the sinks first. Returns (s)."""
        n = self.n_sinks
        return torch.where(positions < n, positions, n + (positions - n) % self.window)

    def sinks_move(self, n_new: int) -> bool:
        """Whether the sinks have to move for the last of `n_new` tokens."""
        return self.n_seen + n_new > self.n_slots

    def key_positions(self, n_new: int) -> Tensor:
        """The position (s) of each key that `append` returns: these are in its order.

        Where the sinks move, their copies come first, and have the sinks' own positions
        in the text; `place` says where each copy stands.
        """
        positions = super().key_positions(n_new)
        if not self.sinks_move(n_new):
            return positions
        sinks = positions[: self.n_sinks]
        return torch.cat([sinks.repeat(n_new), positions[self.n_sinks :]])

    def visible(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Whether each query may see each key that `append` returns. Returns (t s)."""
        is_sink = key_positions < self.n_sinks
        is_past = key_positions <= query_positions[:, None]
        allowed = super().visible(query_positions, key_positions) | (is_sink & is_past)

        n_new = len(query_positions)
        if self.sinks_move(n_new):  # each token sees its own copy alone
            own = torch.eye(n_new, dtype=torch.bool).repeat_interleave(self.n_sinks, 1)
            allowed[:, : own.shape[1]] &= own
        return allowed

    def place(
        self,
        n_new: int,
        device: torch.device | str | None = None,
        causal: bool = True,
        mask: Tensor | None = None,
    ) -> Place:
        """Says where the next tokens and their keys stand, and who may see whom.

        Returns what `SlidingWindowCache.place` does, with each copy of a sink where it
        stands for its token, and in `moved` by how many positions it was moved there.
        """
        place = super().place(n_new, device, causal, mask)
        if not self.sinks_move(n_new):
            return place
        farthest = self.n_slots - 1
        moved = (place.query_positions - farthest).clamp(min=0)
        moved = moved.repeat_interleave(self.n_sinks)
        key_positions = place.key_positions.clone()
        key_positions[: len(moved)] += moved
        return place._replace(key_positions=key_positions, moved=moved)


def append_turned(
    cache: Cache, turn: Rope, layer: int, keys: Heads, values: Heads
) -> tuple[Heads, Heads]:
    """Appends to a `SinkCache`, and turns the sinks, which have moved, as they come."""
    all_keys, all_values = cache.append(layer, keys, values)
    return turn_first(all_keys, turn), all_values
