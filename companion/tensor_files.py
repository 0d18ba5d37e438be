"""Files of tensors that are known to be whole: safetensors with a SHA-256 inside.

The header of such a file holds, under "companion", a list in JSON: the SHA-256 of the
whole file, with zeros where it stands itself, and what the caller says about it.
"""

import json
from hashlib import sha256
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

BLANK = "0" * 64  # where the SHA-256 stands, while it is computed
# What reading bytes that are no such file may raise.
UNREADABLE = (
    SafetensorError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)


def pack_tensors(tensors: dict[str, Tensor], about: dict[str, Any]) -> bytes:
    """Returns the bytes of a file of these tensors, and of what is said about them."""
    text = json.dumps([BLANK, about], sort_keys=True)
    data = save(tensors, {"companion": text})
    digest = sha256(data).hexdigest()
    return data.replace(BLANK.encode(), digest.encode(), 1)


def unpack_tensors(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors of a file by name, and what is said about them.

    Raises ValueError for bytes that `pack_tensors` hasn't made, or that were changed
    since.
    """
    try:
        digest, about = read_words(data)
        blank = data.replace(digest.encode(), BLANK.encode(), 1)
        if digest != sha256(blank).hexdigest() or not isinstance(about, dict):
            raise ValueError("its SHA-256 doesn't fit")
        return load(data), about
    except UNREADABLE as error:
        raise ValueError(f"it is no whole file of tensors: {error}") from None


def read_words(data: bytes) -> Any:
    """Returns what a safetensors file's header says under "companion".

    Raises one of UNREADABLE where it says nothing there.
    """
    end = 8 + int.from_bytes(data[:8], "little")  # as safetensors has it
    return json.loads(json.loads(data[8:end])["__metadata__"]["companion"])
