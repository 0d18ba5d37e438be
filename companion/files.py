"""Files: written in whole, or left as they were."""

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: in whole, or the file stays as it was.

    A link stays, and what it leads to is written. Folders above are made. Whatever
    happens, no part of a file is left. Raises OSError where nothing can be written.
    """
    target = resolve_target(path)
    part = new_part(target)
    try:  # twice, since a second Ctrl-C may fall into the tidying up after the first
        try:
            with open(part, "xb") as file:  # "x": never through what is there already
                file.write(data)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    finally:
        part.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raises the OSError that writing to `path` would raise; leaves what is there."""
    part = new_part(resolve_target(path))
    try:
        part.touch(exist_ok=False)
    finally:
        part.unlink(missing_ok=True)


def resolve_target(path: Path) -> Path:
    """Follows links. Returns the file to write, whose folder is there.

    Raises OSError for a folder or a device.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(f"{path} is a folder or a device; give the path of a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def new_part(target: Path) -> Path:
    """Returns a path beside `target` that nobody else has."""
    return target.with_name(f"companion-{secrets.token_hex(8)}.part")
