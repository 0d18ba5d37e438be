"""GGUF, the file format of llama.cpp: a header and tensors. Chapter 12."""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, dequantize
from torch import Tensor

# How `struct` calls a number of each type.
NUMBERS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}
VERSIONS = (2, 3)
N_BLOCKS = 2**12  # that become floats at once


class HeaderReader:
    """Reads a header's values from the bytes of a file, one after the other.

    Raises ValueError for what can't be read, and struct.error where the bytes end.
    """

    def __init__(self, data: mmap.mmap):
        self.data = data
        self.position = 0  # of the next byte

    def numbers(self, code: str, n: int = 1) -> tuple:
        """Returns the next n numbers, of the type that `struct` calls so."""
        numbers = struct.unpack_from(f"<{n}{code}", self.data, self.position)
        self.position += n * struct.calcsize(f"<{code}")
        return numbers

    def number(self, code: str) -> int:
        """Returns the next number, of the type that `struct` calls so."""
        return self.numbers(code)[0]

    def string(self) -> str:
        """Returns the next string: its length in bytes, and these."""
        n_bytes = self.number("Q")
        start = self.position
        end = start + n_bytes
        if end > len(self.data):
            raise ValueError(f"a string ends at byte {end} of {len(self.data)}")
        self.position = end
        return self.data[start:end].decode()

    def value(self, value_type: GGUFValueType) -> Any:
        """Returns the next value, of this type: a number, a string, or a list."""
        if value_type == GGUFValueType.STRING:
            return self.string()
        if value_type != GGUFValueType.ARRAY:
            return self.number(NUMBERS[value_type])

        item_type = GGUFValueType(self.number("I"))
        n = self.number("Q")
        if item_type == GGUFValueType.ARRAY:
            raise ValueError("a list of lists")
        if item_type == GGUFValueType.STRING:
            return [self.string() for _ in range(n)]
        return [*self.numbers(NUMBERS[item_type], n)]


@dataclass
class StoredTensor:
    """A tensor that lies in a file: its place there, its shape (... i), its type."""

    path: Path
    name: str
    start: int  # the first of its bytes
    n_blocks: int
    shape: tuple[int, ...]
    stored_type: GGMLQuantizationType

    def floats(self) -> Tensor:
        """Reads its numbers. Returns them in float32.

        Raises ValueError for a type without a way there, and for a file that has become
        shorter.
        """
        block_size, n_bytes = GGML_QUANT_SIZES[self.stored_type]
        flat = torch.empty(self.n_blocks * block_size, dtype=torch.float32)

        # Piece by piece, so that what lies between takes little memory.
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for piece in flat.split(N_BLOCKS * block_size):
                n = len(piece) // block_size * n_bytes
                stored = np.frombuffer(file.read(n), np.uint8)
                if len(stored) < n:
                    raise ValueError(f"{self.path} has changed: {self.name} is cut off")
                try:
                    numbers = dequantize(stored, self.stored_type)
                except NotImplementedError:
                    told = f"{self.name} is {self.stored_type.name}, no floats"
                    raise ValueError(f"{self.path}: {told}") from None
                piece.numpy()[:] = numbers
        return flat.view(self.shape)


class TensorInfo(NamedTuple):
    """What a header says of a tensor; its offset counts from the first tensor's."""

    name: str
    shape: tuple[int, ...]
    stored_type: GGMLQuantizationType
    offset: int


def tensor_info(reader: HeaderReader) -> TensorInfo:
    """Returns what a header says of its next tensor."""
    name = reader.string()
    n_dimensions = reader.number("I")
    shape = reader.numbers("Q", n_dimensions)[::-1]  # the file says the last first
    stored_type = GGMLQuantizationType(reader.number("I"))
    return TensorInfo(name, shape, stored_type, reader.number("Q"))


def open_gguf(path: Path) -> tuple[dict, dict[str, StoredTensor]]:
    """Reads a GGUF file's header. Returns it, and its tensors as they lie, by name.

    Raises ValueError for what is no such file, or not whole. Chapter 12.
    """
    try:
        with open(path, "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return read_parts(path, data)
    except (ValueError, KeyError, IndexError, struct.error) as error:
        raise ValueError(
            f"{path} can't be read as a whole GGUF file: {error}"
        ) from None


def read_parts(path: Path, data: mmap.mmap) -> tuple[dict, dict[str, StoredTensor]]:
    """Reads the bytes of a GGUF file for `open_gguf`, and raises what that catches."""
    reader = HeaderReader(data)
    if reader.numbers("c", 4) != (b"G", b"G", b"U", b"F"):
        raise ValueError("it doesn't begin with GGUF")
    version = reader.number("I")
    if version not in VERSIONS:
        raise ValueError(f"it is of version {version}, and not 2 or 3")
    n_tensors, n_values = reader.numbers("Q", 2)

    header: dict[str, Any] = {}
    for _ in range(n_values):
        key = reader.string()
        if key in header:
            raise ValueError(f"it says {key} twice")
        header[key] = reader.value(GGUFValueType(reader.number("I")))
    infos = [tensor_info(reader) for _ in range(n_tensors)]

    # The tensors' own bytes follow, each at the next multiple of the alignment.
    alignment = header.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r}, and no power of two")
    begin = end = reader.position + -reader.position % alignment
    tensors = {}
    for name, shape, stored_type, offset in infos:
        if name in tensors:
            raise ValueError(f"it has two tensors {name}")
        block_size, n_bytes = GGML_QUANT_SIZES[stored_type]
        if not shape or shape[-1] % block_size:
            raise ValueError(f"{name} is {shape}, in blocks of {block_size}")
        n_blocks = math.prod(shape) // block_size
        start = begin + offset
        end_before = end
        end = start + n_blocks * n_bytes
        if end > len(data):
            raise ValueError(f"{name} ends at byte {end} of {len(data)}")
        if start != end_before + -end_before % alignment:
            raise ValueError(
                f"{name} begins at byte {start}; the tensor before it, or the header,"
                f" ends at {end_before}"
            )
        tensors[name] = StoredTensor(path, name, start, n_blocks, shape, stored_type)
    return header, tensors


def read_gguf(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """Reads a GGUF file. Returns its header, and its tensors in float32, by name.

    Raises ValueError for what is no such file, or not whole, and for a tensor whose
    type has no way to float32. Chapter 12.
    """
    header, stored = open_gguf(path)
    return header, {name: x.floats() for name, x in stored.items()}
