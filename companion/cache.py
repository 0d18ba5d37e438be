"""Key/value caches: keep what was computed. Five, one interface. Chapters 07 and 10.

A cache serves one layer. `append(keys, values)` takes the new (b h t d) ones and gives
all that the new queries may need, (b h s d); `len(cache)` is the number of positions
seen. Before any layer appends, the model's `Place` asks the first cache where the new
tokens will stand (`positions`), how far before each of them the keys will lie
(`distances`) and which of those it may see (`mask`). Keys are rotated before they are
stored. What a cache counts lies on the CPU, what it stores where the keys are.
"""

from functools import cached_property

import torch
from torch import Tensor

from .attention import causal_mask
from .inputs import check_mask, check_tensor, check_whole


class Cache:
    """What the five share: positions in order, and a view of all that came before."""

    keys: Tensor | None = None
    values: Tensor | None = None
    cursor = 0

    def __len__(self) -> int:
        return self.cursor

    @property
    def nbytes(self) -> int:
        """The memory of all tensors held, in bytes."""
        return sum(x.nbytes for x in (self.keys, self.values) if x is not None)

    def positions(self, n_new: int) -> Tensor:
        """Where the next `n_new` tokens stand: (t), or (b t) if streams differ."""
        check_whole(0, n_new=n_new)
        return torch.arange(len(self), len(self) + n_new)

    def key_positions(self, n_new: int) -> Tensor:
        """Where the keys stand that `append` will return with `n_new` more: (s)."""
        check_whole(0, n_new=n_new)
        return torch.arange(len(self) + n_new)

    def distances(self, n_new: int) -> Tensor:
        """How far each key lies before each new query: (t s) or (b t s)."""
        return self.positions(n_new)[..., None] - self.key_positions(n_new)

    def mask(self, n_new: int) -> Tensor | None:
        """True where a new query may attend, or None if it may everywhere."""
        return None if n_new == 1 else causal_mask(n_new, len(self) + n_new)

    def read(self) -> tuple[Tensor, Tensor]:
        """The stored keys and values (b h s d)."""
        return self.keys, self.values

    def reorder(self, rows: Tensor) -> None:
        """Let row i of the batch continue what `rows[i]` held, as beams do.

        Rows may be repeated or left out: streams that have ended can be dropped.
        Raises ValueError for a row that is not there.
        """
        check_tensor("integers", "b", rows=rows)
        if self.keys is not None:
            check_rows(rows, len(self.keys))
            self.keys, self.values = self.keys[rows], self.values[rows]

    def reset(self) -> None:
        """Forget everything, for another prompt or batch."""
        self.keys = self.values = None
        self.cursor = 0

    def _check(self, keys: Tensor, values: Tensor) -> None:
        """Raise ValueError for what is not (b h t d), or not like what is stored."""
        check_tensor("floats or bytes", "b h t d", keys=keys, values=values)
        if keys.shape[:-1] != values.shape[:-1]:
            raise ValueError(
                f"new keys {tuple(keys.shape)} and values {tuple(values.shape)} are not"
                " (b h t d) both, of one b, h and t"
            )
        for held, new in ((self.keys, keys), (self.values, values)):
            if held is None:
                continue
            (*ours, _, d), (*theirs, _, d_new) = held.shape, new.shape
            ours, theirs = (*ours, d), (*theirs, d_new)
            if ours != theirs or held.dtype != new.dtype:
                raise ValueError(
                    f"the cache holds (batch, heads, features) {ours} of {held.dtype},"
                    f" new ones are {theirs} of {new.dtype}"
                )


class ConcatenatingCache(Cache):
    """Grows by `torch.cat`: the plainest, but each append copies all that is stored."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values (b h t d); return all stored ones (b h s d)."""
        self._check(keys, values)
        if self.keys is not None:
            keys = torch.cat([self.keys, keys], -2)
            values = torch.cat([self.values, values], -2)
        self.keys, self.values, self.cursor = keys, values, keys.shape[-2]
        return keys, values


class PreallocatedCache(Cache):
    """Room for `capacity` positions, allocated once; a cursor says how many are used.

    An append writes in place and returns views: nothing that is stored is copied.
    Raises ValueError where the new positions exceed the capacity, and stays unchanged.
    """

    def __init__(self, capacity: int):
        check_whole(capacity=capacity)
        self.capacity = capacity

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values (b h t d); return all stored ones (b h s d)."""
        self._make_room(keys, values)
        end = self.cursor + keys.shape[-2]
        self.keys[..., self.cursor : end, :] = keys
        self.values[..., self.cursor : end, :] = values
        self.cursor = end
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        n = len(self)
        return self.keys[..., :n, :], self.values[..., :n, :]

    def _make_room(self, keys: Tensor, values: Tensor) -> None:
        self._check(keys, values)
        if len(self) + keys.shape[-2] > self.capacity:
            raise ValueError(
                f"{keys.shape[-2]} more positions after {len(self)} exceed the"
                f" cache's capacity ({self.capacity})"
            )
        if self.keys is None:
            shape = (*keys.shape[:-2], self.capacity, keys.shape[-1])
            # A ragged cache must hold no NaN where nothing is stored.
            self.keys, self.values = keys.new_zeros(shape), values.new_zeros(shape)


class RaggedCache(PreallocatedCache):
    """Streams of different lengths in one batch: each of `n_streams` has its cursor.

    Prompts of different lengths are padded at the end, appended together and then
    shortened by `truncate`; the next tokens overwrite the padding. No query sees beyond
    its own stream's cursor.
    """

    def __init__(self, capacity: int, n_streams: int):
        super().__init__(capacity)
        check_whole(n_streams=n_streams)
        self.lengths = torch.zeros(n_streams, dtype=torch.long)

    def __len__(self) -> int:
        return int(self.lengths.max())

    def positions(self, n_new: int) -> Tensor:
        check_whole(0, n_new=n_new)
        return self.lengths[:, None] + torch.arange(n_new)

    def mask(self, n_new: int) -> Tensor:
        return (self.distances(n_new) >= 0)[:, None]  # the same for every head

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store (b h t d) after each stream's cursor; return (b h s d) of the longest.

        Past a stream's cursor all is zero: the mask hides it, but 0 times NaN is NaN.
        """
        check_tensor("floats", "b h t d", keys=keys, values=values)
        if len(keys) != len(self.lengths):
            raise ValueError(
                f"the cache has {len(self.lengths)} streams, new keys have {len(keys)}"
            )
        self._make_room(keys, values)
        rows, slots = torch.arange(len(keys))[:, None], self.positions(keys.shape[-2])
        for kept, new in ((self.keys, keys), (self.values, values)):
            kept[rows, :, slots] = new.transpose(1, 2)
        self.lengths = self.lengths + keys.shape[-2]
        return self.read()

    def put(self, row: int, cache: Cache) -> None:
        """Let stream `row` go on from what a cache of one stream holds: a copy.

        Raises ValueError for a row that is not there, and for a cache that is empty, of
        several streams, or longer than the row.
        """
        check_rows(torch.tensor([row]), len(self.lengths))
        if not 0 < (n := len(cache)) <= self.capacity:
            raise ValueError(
                f"the cache holds {n} positions; a row takes 1 to {self.capacity}"
            )
        keys, values = cache.read()
        if len(keys) != 1:
            raise ValueError(f"the cache holds {len(keys)} streams; a row is one")
        many = (len(self.lengths), -1, -1, -1)
        check = self._make_room if self.keys is None else self._check
        check(keys.expand(many), values.expand(many))
        for kept, new in ((self.keys, keys), (self.values, values)):
            kept[row, :, :n] = new[0]
        self._clear(row, n)
        self.lengths = self.lengths.index_fill(0, torch.tensor(row), n)

    def truncate(self, lengths: Tensor) -> None:
        """Keep only the first `lengths` (b) positions of each stream.

        For padding, and for guesses that turned out wrong. Raises ValueError for a
        length below 0 or beyond what the stream holds.
        """
        check_tensor("integers", "b", lengths=lengths)
        if lengths.shape != self.lengths.shape:
            raise ValueError(
                f"{len(lengths)} lengths for {len(self.lengths)} streams; each has one"
            )
        if bool(((lengths < 0) | (lengths > self.lengths)).any()):
            raise ValueError(
                f"lengths {lengths.tolist()} do not lie within 0 and what the streams"
                f" hold, {self.lengths.tolist()}"
            )
        for row in (lengths < self.lengths).nonzero()[:, 0].tolist():
            self._clear(row, int(lengths[row]))
        self.lengths = lengths.clone()

    @torch.inference_mode()  # what was written in it can be changed nowhere else
    def _clear(self, row: int, start: int) -> None:
        """Set to zero what stream `row` holds from `start` on."""
        for kept in (self.keys, self.values):
            kept[row, :, start : int(self.lengths[row])] = 0

    def reorder(self, rows: Tensor) -> None:
        check_tensor("integers", "b", rows=rows)
        check_rows(rows, len(self.lengths))
        super().reorder(rows)
        self.lengths = self.lengths[rows.cpu()]

    def reset(self) -> None:
        super().reset()
        self.lengths = torch.zeros_like(self.lengths)


class SlidingWindowCache(Cache):
    """The last `window` positions and, on request, the first `n_sinks` of all.

    A query sees the keys fewer than `window` positions before it, itself included, and
    the sinks. A new key takes the place of the oldest, so the stored ones are not in
    order: attention does not mind, since `key_positions` says where each stands.
    Beltagy et al. 2020, section 3.1; sinks: Xiao et al. 2023, who count positions
    within the cache, where this one keeps the true ones.
    """

    def __init__(self, window: int, n_sinks: int = 0):
        check_whole(window=window)
        check_whole(0, n_sinks=n_sinks)
        self.window, self.n_sinks = window, n_sinks

    def _held(self, end: int) -> Tensor:
        """The position in each used slot when `end` positions have been seen."""
        slots = torch.arange(min(end, self.n_sinks + self.window))
        latest = end - 1 - (end - 1 - slots) % self.window
        return torch.where(slots < self.n_sinks, slots, latest)

    def key_positions(self, n_new: int) -> Tensor:
        check_whole(0, n_new=n_new)
        if n_new == 1:
            return self._held(len(self) + 1)
        return torch.cat([self._held(len(self)), self.positions(n_new)])

    def mask(self, n_new: int) -> Tensor | None:
        if n_new == 1:
            return None
        distances, sinks = self.distances(n_new), self.key_positions(n_new)
        near = (distances < self.window) | (sinks < self.n_sinks)
        return near & (distances >= 0)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values (b h t d); return those that the new queries may see.

        One token takes the place of what it no longer sees. Of several, the first may
        see what the last may not: they get the old ones and the new beside each other.
        """
        self._check(keys, values)
        if self.keys is None:
            shape = (*keys.shape[:-2], self.n_sinks + self.window, keys.shape[-1])
            self.keys, self.values = keys.new_empty(shape), values.new_empty(shape)
        before, start = self.read(), len(self)
        self.cursor += keys.shape[-2]
        held = self._held(self.cursor)
        (slots,) = (held >= start).nonzero(as_tuple=True)
        new = held[slots] - start
        several = keys.shape[-2] > 1
        if several:
            pairs = zip(before, (keys, values), strict=True)
            beside = tuple(torch.cat(pair, -2) for pair in pairs)
        self.keys[..., slots, :] = keys[..., new, :]
        self.values[..., slots, :] = values[..., new, :]
        return beside if several else self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        n = min(len(self), self.n_sinks + self.window)
        return self.keys[..., :n, :], self.values[..., :n, :]


class Int8Cache(Cache):
    """One byte a number: each key and value is kept as 8-bit integers and one scale.

    The scale is the vector's largest magnitude / 127, so that no number is off by more
    than half of it. What `append` returns is multiplied out again. Dettmers et al.
    2022, section 2.1 (absmax quantization).
    """

    def __init__(self, capacity: int):
        self.numbers, self.scales = (PreallocatedCache(capacity) for _ in range(2))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.scales.nbytes

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values (b h t d); return all of them (b h s d), rounded."""
        check_tensor("floats", "b h t d", keys=keys, values=values)
        if len(self) and keys.dtype != self.dtype:
            raise ValueError(f"the cache holds {self.dtype}, new ones are {keys.dtype}")
        (numbers, scales), (value_numbers, value_scales) = map(quantize, (keys, values))
        self.numbers.append(numbers, value_numbers)
        self.scales.append(scales, value_scales)
        self.dtype = keys.dtype
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        pairs = zip(self.numbers.read(), self.scales.read(), strict=True)
        return tuple((numbers * scales).to(self.dtype) for numbers, scales in pairs)

    def reorder(self, rows: Tensor) -> None:
        self.numbers.reorder(rows)
        self.scales.reorder(rows)

    def reset(self) -> None:
        self.numbers.reset()
        self.scales.reset()


def check_rows(rows: Tensor, n: int) -> None:
    """Raise ValueError for rows outside the batch; on the CPU, where none waits."""
    if rows.is_cpu and len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n:
        raise ValueError(f"rows {rows.tolist()} do not lie within 0 to {n - 1}")


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (... d) as 8-bit integers (... d) times scales (... 1), to half a scale.

    A vector of zeros keeps the scale 0. Raises ValueError for what is not floats.
    """
    check_tensor("floats", "... d", x=x)
    x = x.float()
    scales = x.abs().amax(-1, keepdim=True) / 127
    integers = (x / scales.clamp(min=torch.finfo(x.dtype).tiny)).round()
    return integers.to(torch.int8), scales


class Place:
    """Where the tokens (b t) of one pass stand, and what they may see.

    Made once a pass, before any layer appends to its cache, and handed to positions and
    blocks. `positions` are (t) or (b t), `distances` and `mask` (t s), or with a batch
    axis where streams differ; `end` counts the positions up to the last new one. Each
    is computed when it is first asked for, on the tokens' device. `mask` is what a
    causal model allows and what the `given` one does; None allows all.
    """

    def __init__(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        causal: bool = True,
        given: Tensor | None = None,
    ):
        check_tensor("integers", "... t", tokens=tokens)
        self.n_new, self.device = tokens.shape[-1], tokens.device
        self.n_streams = len(tokens) if tokens.dim() > 1 else 1
        self.cache, self.causal, self.given = cache, causal, given
        self.end = self.n_new if cache is None else len(cache) + self.n_new

    @cached_property
    def positions(self) -> Tensor:
        if self.cache is None:
            return torch.arange(self.n_new, device=self.device)
        positions = self.cache.positions(self.n_new)
        if positions.dim() == 2 and len(positions) != self.n_streams:
            raise ValueError(
                f"the cache has {len(positions)} streams, the tokens are"
                f" {self.n_streams}"
            )
        return positions.to(self.device)

    @cached_property
    def distances(self) -> Tensor:
        cache = Cache() if self.cache is None else self.cache
        return cache.distances(self.n_new).to(self.device)

    @cached_property
    def mask(self) -> Tensor | None:
        if not self.causal:
            return self.given
        if self.cache is None:
            own = causal_mask(self.n_new, device=self.device)
        elif (own := self.cache.mask(self.n_new)) is not None:
            own = own.to(self.device)
        if own is None or self.given is None:
            return self.given if own is None else own
        check_mask(self.given, *own.shape[-2:])
        return own & self.given
