"""Files that are written whole or not at all."""

import os
import secrets
import shutil
from pathlib import Path

from .interrupts import interrupts_put_off


def target_of(path: Path) -> Path:
    """The file that `path` stands for: where it is a link, what that leads to.

    Raises OSError where a folder, a device or a pipe is there, which a file can't
    replace.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(f"{path} is there and no file: give another path")
    return target


def new_part(target: Path) -> Path:
    """A name beside `target` that no other process has."""
    return target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}.part")


def check_writable(path: Path) -> None:
    """Raise OSError where `write_atomically` could not write, and leave nothing there.

    What is made is the folder alone.
    """
    target = target_of(path)
    part = new_part(target)
    with interrupts_put_off():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.touch(exist_ok=False)
        except OSError as error:
            reason = error.strerror or error
            raise OSError(
                f"{path} can't be written ({reason}): give another path"
            ) from error
        part.unlink()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that takes the place of an older one only when it is whole.

    A link stays, and what it leads to is written; a file's permissions stay, too.
    Whatever goes wrong, the older file is as it was, and no part is left. Ctrl-C waits.
    """
    target = target_of(path)
    part = new_part(target)
    with interrupts_put_off():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(part, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # a disk may say only now that it is full
            if target.exists():
                shutil.copymode(target, part)
            os.replace(part, target)
        finally:
            if os.path.lexists(part):
                part.unlink()
