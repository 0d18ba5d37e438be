"""Key/value caches: keep what was computed, behind one interface. Chapter 07.

A cache serves one layer: `append(keys, values)` stores the new (b h t d) ones and
returns all of them; `len(cache)` is the number of positions seen. A model reads `len`
once, before any layer appends. Keys are rotated before they are stored.
"""

from torch import Tensor


class PreallocatedCache:
    """Room for `capacity` positions, allocated once; a cursor says how many are used.

    An append writes in place and returns views: nothing that is stored is copied.
    Raises ValueError where the new positions exceed the capacity, and stays unchanged.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.cursor = 0
        self.keys = self.values = None

    def __len__(self) -> int:
        return self.cursor

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values (b h t d); return all stored ones (b h s d)."""
        end = self.cursor + keys.shape[-2]
        if end > self.capacity:
            raise ValueError(
                f"{keys.shape[-2]} more positions after {self.cursor} exceed the"
                f" cache's capacity ({self.capacity})"
            )
        if self.keys is None:
            shape = (*keys.shape[:-2], self.capacity, keys.shape[-1])
            self.keys, self.values = keys.new_empty(shape), values.new_empty(shape)
        held, new = tuple(self.keys.shape[:-2]), tuple(keys.shape[:-2])
        if held != new:
            raise ValueError(
                f"the cache holds (batch, heads) {held}, new keys are {new}"
            )
        self.keys[..., self.cursor : end, :] = keys
        self.values[..., self.cursor : end, :] = values
        self.cursor = end
        return self.keys[..., :end, :], self.values[..., :end, :]

    def reorder(self, rows: Tensor) -> None:
        """Let row i of the batch continue what `rows[i]` held, as beams do."""
        self.keys, self.values = self.keys[rows], self.values[rows]
