"""What a GGUF header says, read key by key; nothing is passed over. Chapter 12."""

from typing import Any

from ..inputs import shown


def header_value(header: dict, key: str) -> Any:
    """Returns what the header says under a key. ValueError where it says nothing."""
    if key not in header:
        raise ValueError(f"the header has no {key}")
    return header[key]


def header_size(header: dict, key: str, default: int | None = None) -> int:
    """Returns a size, the same for all blocks. ValueError by its key for another."""
    if default is None:
        size = header_value(header, key)
    else:
        size = header.get(key, default)
    if type(size) is not int or size < 1:
        raise ValueError(
            f"{key} is {shown(size)}; it must be one whole number, 1 or more"
        )
    return size


def check_keys(
    header: dict, prefixes: tuple[str, ...], read: set[str], fixed: dict
) -> None:
    """Checks that the header says nothing that would be passed over.

    Raises ValueError by its key for a value that is not the `fixed` one, and for a key
    that begins with one of the `prefixes` and is neither fixed nor one of those `read`.
    """
    for key, value in header.items():
        if key in fixed:
            if value != fixed[key]:
                raise ValueError(
                    f"{key} is {shown(value)}; only {fixed[key]!r} is known here"
                )
        elif key.startswith(prefixes) and key not in read:
            raise ValueError(f"{key} is {shown(value)}; this key is not known here")
