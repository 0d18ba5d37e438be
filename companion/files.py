"""Files: written in whole, or left as they were, and by one process at a time."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .interrupts import interrupts_put_off


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: in whole, or the file stays as it was.

    A link stays, and what it leads to is written; a file's permissions stay, too.
    Folders above are made. Ctrl-C waits. Whatever happens, no part of a file is left.
    Raises OSError, naming `path`, where nothing can be written.
    """
    target = resolve_target(path)
    part = new_part(target)
    with interrupts_put_off():
        try:
            try:
                write_by_way_of(part, target, data)
            except OSError as error:  # its own words name the part, or nothing
                reason = error.strerror or str(error)
                raise OSError(error.errno, reason, str(path)) from error
            finally:
                remove(part)
        finally:  # once more, where the tidying up itself is broken off
            remove(part)


def write_by_way_of(part: Path, target: Path, data: bytes) -> None:
    """Writes `data` to `part`, a new file beside the target, and puts it in its place.

    Raises OSError where it can't, and may leave the part.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(part, "xb") as file:  # "x": never through what is there
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # a disk may say only now that it is full

    if target.exists():
        shutil.copymode(target, part)
    os.replace(part, target)  # one step, which can't be cut in two


def check_writable(path: Path) -> None:
    """Tries whether `write_atomically` can write, and leaves no file.

    Raises OSError, with the reason, where it can't.
    """
    try:
        try_a_part(path)
    except OSError as error:
        if error.errno is None:  # it's in our own words
            raise
        raise OSError(
            f"{path} can't be written ({error.strerror}): give another path"
        ) from error


def try_a_part(path: Path) -> None:
    """Makes the part that `write_atomically` would begin with, and removes it.

    Raises OSError where it can't.
    """
    target = resolve_target(path)
    part = new_part(target)
    with interrupts_put_off():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.touch(exist_ok=False)
        finally:
            remove(part)


def resolve_target(path: Path) -> Path:
    """Follows links. Returns the file to write.

    Raises OSError for a folder, a device or a pipe, which a file can't replace.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(f"{path} is a folder or a device; give the path of a file")
    return target


def new_part(target: Path) -> Path:
    """Returns a path beside `target` that nobody else has."""
    return target.with_name(f".companion-{secrets.token_hex(8)}.part")


def remove(part: Path) -> None:
    """Removes a part, where there is one."""
    with suppress(FileNotFoundError, NotADirectoryError):
        part.unlink()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within, all others that lock this file, too, wait, in any process.

    A file beside it, `.lock` behind its name, holds the word of who is within. Raises
    OSError where it can't be made.
    """
    lock = path.with_name(f"{path.name}.lock")
    word = secrets.token_hex(8)
    take_lock(lock, word)
    try:
        yield
    finally:
        if read_lock(lock) == word:
            lock.unlink(missing_ok=True)


def take_lock(lock: Path, word: str) -> None:
    """Waits until nobody holds a lock, and takes it by a word of one's own.

    A lock that says the same for 5 s is that of a process that died, and is taken over.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    word_before = None
    n_same = 0
    while True:
        try:
            with lock.open("x") as file:
                file.write(word)
            return
        except FileExistsError:
            pass

        word_now = read_lock(lock)
        n_same = n_same + 1 if word_now == word_before else 0
        word_before = word_now
        if n_same == 100:
            lock.write_text(word)
        time.sleep(0.05)
        if n_same == 100 and read_lock(lock) == word:  # nobody else took it over
            return


def read_lock(lock: Path) -> str | None:
    """Returns the word by which a lock is held; None if it isn't."""
    try:
        return lock.read_text()
    except FileNotFoundError:
        return None
