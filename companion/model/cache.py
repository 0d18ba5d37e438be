"""Key/value caches: keep what was computed. Chapter 07.

A cache serves all layers of a model. `n_seen`, its one cursor, says how many positions
it has seen. A pass goes through it in four steps:

    begin    refuses what doesn't fit, and drops what a pass that failed has left
    place    says where the new tokens and all keys stand, and changes nothing
    append   takes a layer's new keys and values, gives all that the queries may need
    advance  moves the cursor, after the last block

So a pass that fails changes nothing: what it has stored lies beyond the cursor. Keys
are rotated before they are stored. A cache may be filled in inference mode and used
outside of it, and the other way round.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..inputs import check_tensor, check_whole, shown
from .positions import Place
from .scores import Heads, check_mask_axes


class Cache:
    """The base of all caches: each has its own `append`. Chapter 07."""

    n_seen: int = 0
    capacity: float = math.inf

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, ...]] = {}  # each one's keys and values

    def __len__(self) -> int:
        return self.n_seen

    def __bool__(self) -> bool:
        return True  # in `cache or another` an empty one counts, too

    @property
    def n_streams(self) -> int:
        """Returns how many streams it holds: none before its first pass has ended."""
        if not self.n_seen:
            return 0
        keys, *_ = next(iter(self.layers.values()))
        return len(keys)

    def begin(self, n_streams: int, n_new: int, n_layers: int) -> None:
        """Begins a pass of `n_new` tokens in each of `n_streams`.

        Raises ValueError beyond the capacity, and where the cache is that of a model
        with other than `n_layers`. The number of streams is a ragged cache's to check;
        others see it in the keys.
        """
        if self.n_seen + n_new > self.capacity:
            raise ValueError(
                f"{n_new} more positions after {self.n_seen} exceed the cache's"
                f" capacity ({self.capacity})"
            )
        if not self.n_seen:
            self.layers = {}  # without what a pass that failed has left
        elif n_layers != len(self.layers):
            raise other_layers_error(self.layers, n_layers)

    def place(
        self,
        n_new: int,
        device: torch.device | str | None = None,
        causal: bool = True,
        mask: Tensor | None = None,
    ) -> Place:
        """Says where the next tokens and all keys stand, and who may see whom.

        Returns the positions of queries (t) and keys (s), and a mask (... t s), which
        allows what the further `mask` allows, too. Raises ValueError for a further mask
        that does not fit.
        """
        end = self.n_seen + n_new
        query_positions = torch.arange(self.n_seen, end, device=device)
        key_positions = torch.arange(end, device=device)

        # One token may see all keys; of several, none sees a later one. That takes no
        # table where nothing comes before them, and nothing else is forbidden.
        allowed = None
        is_causal = causal and n_new > 1
        if is_causal and (self.n_seen or mask is not None):
            is_causal = False
            allowed = key_positions <= query_positions[:, None]
        if mask is not None:
            allowed = combine_masks(allowed, mask, n_new, end)
        return Place(query_positions, key_positions, allowed, is_causal)

    def append(self, layer: int, keys: Heads, values: Heads) -> tuple[Heads, Heads]:
        """Stores a layer's keys and values (b h t d). Returns all of them (b h s d).

        Raises ValueError for keys of another model or number of streams.
        """
        raise NotImplementedError

    def advance(self, n_new: int) -> None:
        """Ends a pass: its tokens count from now on."""
        self.n_seen += n_new

    def reorder(self, rows: Tensor) -> None:
        """Lets row i of the batch continue what `rows[i]` held, as beams do.

        Raises ValueError for rows that are not integers (b) within the streams. Rows on
        an accelerator, where to look is to wait, are not looked at.
        """
        self.layers = self.reordered(rows)

    def reordered(self, rows: Tensor) -> dict[int, tuple[Tensor, ...]]:
        """Returns what `layers` will be: all is built before any of it is assigned."""
        check_tensor("integers", "b", rows=rows)
        if rows.is_cpu:  # elsewhere to look is to wait
            check_rows(rows, self.n_streams)
        layers = {}
        with ordinary_tensors():
            for layer, tensors in self.layers.items():
                layers[layer] = tuple(x[rows] for x in tensors)
        return layers


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Within, even in inference mode, tensors are made that any mode may write to."""
    with_gradients = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(with_gradients):
        yield


def zeros(like: Tensor, *shape: int) -> Tensor:
    """Returns zeros, of a tensor's type and device, that any mode may write to."""
    with ordinary_tensors():
        return like.new_zeros(shape)


def check_rows(rows: Tensor, n_streams: int) -> None:
    """Raises ValueError for rows that are not within so many streams."""
    if bool(((rows < 0) | (rows >= n_streams)).any()):
        raise ValueError(
            f"rows {rows.tolist()} are not within the {n_streams} streams that it holds"
        )


def other_layers_error(
    layers: dict[int, tuple[Tensor, ...]], n_layers: int
) -> ValueError:
    """What to say where a deeper or flatter model filled it. Returns the error."""
    return ValueError(
        f"the cache holds {len(layers)} layers, the model has {n_layers}; a cache"
        " serves one model"
    )


def other_keys_error(stored: Tensor, new: Tensor) -> ValueError:
    """What to say where new keys (b h t d) are unlike the stored. Returns the error."""
    b, h, _, d = stored.shape
    new_b, new_h, _, new_d = new.shape
    if b != new_b:
        return ValueError(f"the cache holds {b} streams, not {new_b}")
    return ValueError(
        f"the cache holds {h} heads of {d} features, the model has {new_h} of {new_d};"
        " a cache serves one model"
    )


def combine_masks(
    allowed: Tensor | None, mask: Tensor, n_queries: int, n_keys: int
) -> Tensor:
    """Joins a place's mask and a further one (... t s). Returns what both allow.

    The further mask has a row for each query and a column for each position, or one
    for all; of several streams or heads it has all four axes. Raises ValueError for
    another.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise ValueError(f"mask is {shown(mask)}; it must be bool, True = may attend")
    check_mask_axes(mask)
    table = torch.atleast_2d(mask)
    if table.shape[-2] not in (1, n_queries) or table.shape[-1] not in (1, n_keys):
        raise ValueError(
            f"mask {tuple(mask.shape)} does not fit {n_queries} queries and {n_keys}"
            " keys, one a position so far"
        )

    return table if allowed is None else allowed & table


# What comes before a text that is read without a cache. It stores nothing.
NO_PAST = Cache()


class ConcatenatingCache(Cache):
    """Grows by `torch.cat`: the plainest, but each append copies all that is stored.

    Chapter 07.
    """

    def append(self, layer: int, keys: Heads, values: Heads) -> tuple[Heads, Heads]:
        """Stores a layer's keys and values, see `Cache.append`."""
        if self.n_seen:
            old_keys, old_values = self.layers[layer]
            b, h, _, d = keys.shape
            if old_keys.shape != (b, h, old_keys.shape[-2], d):
                raise other_keys_error(old_keys, keys)
            keys = torch.cat([old_keys[..., : self.n_seen, :], keys], -2)
            values = torch.cat([old_values[..., : self.n_seen, :], values], -2)
        self.layers[layer] = (keys, values)
        return keys, values


class PreallocatedCache(Cache):
    """Room for `capacity` positions: an append writes in place and returns views.

    Chapter 07.
    """

    capacity: int

    def __init__(self, capacity: int):
        super().__init__()
        check_whole(capacity=capacity)
        self.capacity = capacity

    def append(self, layer: int, keys: Heads, values: Heads) -> tuple[Heads, Heads]:
        """Stores a layer's keys and values, see `Cache.append`."""
        b, h, t, d = keys.shape
        shape = (b, h, self.capacity, d)
        if not self.n_seen:
            self.layers[layer] = (zeros(keys, *shape), zeros(values, *shape))
        all_keys, all_values = self.layers[layer]
        if all_keys.shape != shape:
            raise other_keys_error(all_keys, keys)

        start = self.n_seen
        end = start + t
        all_keys[..., start:end, :] = keys
        all_values[..., start:end, :] = values
        return all_keys[..., :end, :], all_values[..., :end, :]


class Int8Cache(Cache):
    """One byte a number: a key or value is stored as 8-bit integers and one scale.

    The scale is the vector's largest magnitude / 127, so that no number is off by more
    than half of it. What `append` returns is multiplied out again. Dettmers et al.
    2022, section 2.1 (absmax quantization).
    """

    capacity: int

    def __init__(self, capacity: int):
        super().__init__()
        check_whole(capacity=capacity)
        self.capacity = capacity

    def append(self, layer: int, keys: Heads, values: Heads) -> tuple[Heads, Heads]:
        """Stores a layer's keys and values, rounded, see `Cache.append`."""
        # A layer is four tensors: integers (b h s d) and scales (b h s 1) of each.
        b, h, t, d = keys.shape
        new_tensors = (*quantize(keys), *quantize(values))
        if not self.n_seen:
            self.layers[layer] = tuple(
                zeros(x, b, h, self.capacity, x.shape[-1]) for x in new_tensors
            )
        buffers = self.layers[layer]
        if buffers[0].shape != (b, h, self.capacity, d):
            raise other_keys_error(buffers[0], keys)

        start = self.n_seen
        end = start + t
        for buffer, new in zip(buffers, new_tensors, strict=True):
            buffer[..., start:end, :] = new

        # Multiply out again.
        keys_int8, key_scales, values_int8, value_scales = buffers
        all_keys = keys_int8[..., :end, :] * key_scales[..., :end, :]
        all_values = values_int8[..., :end, :] * value_scales[..., :end, :]
        return all_keys.to(keys.dtype), all_values.to(values.dtype)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds x (... d) to 8-bit integers times a scale, off by half a scale at most.

    Returns integers (... d) and scales (... 1); a vector of zeros has the scale 0.
    A vector with a NaN or an infinity becomes NaN. Raises ValueError for what is not
    floats. Dettmers et al. 2022, section 2.1.
    """
    check_tensor("floats", "... d", x=x)
    x = x.float()
    scales = x.abs().amax(-1, keepdim=True) / 127
    # Among the smallest numbers of float32 a scale has few digits.
    integers = (x / torch.where(scales > 0, scales, 1)).round().clamp(-127, 127)
    return integers.to(torch.int8), scales
