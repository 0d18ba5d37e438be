"""GGUF, the file format of llama.cpp: a header and tensors. Chapter 12."""

from pathlib import Path

import torch
from gguf import GGUFReader, dequantize
from torch import Tensor


def read_gguf(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """Reads a GGUF file. Returns its header, and its tensors in float32, by name.

    Raises ValueError for what is no such file, or not whole, and for a tensor whose
    type has no way to float32. Chapter 12.
    """
    try:
        reader = GGUFReader(path)
        header = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"{path} can't be read as a whole GGUF file: {error}"
        ) from None

    tensors = {}
    for stored in reader.tensors:
        try:
            array = dequantize(stored.data, stored.tensor_type)
        except NotImplementedError:
            type_name = stored.tensor_type.name
            raise ValueError(
                f"{path}: {stored.name} is {type_name}, no floats"
            ) from None
        tensors[stored.name] = torch.tensor(array)
    return header, tensors
