"""A file of one's own questions and answers, and which of them are held out.

Chapter 14.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import torch

from ..inputs import shown
from ..pretrained.published_tokenizer import PublishedTokenizer
from ..pretrained.talks import Encoded, encode_talk

FORM = '{"question": "...", "answer": "..."} or {"turns": ["...", "...", ...]}'
LEAST = 10  # questions, of which one is held out

Messages = list[tuple[str, str]]  # (role, text), as a chat's tokenizer takes them


class Line(NamedTuple):
    """A talk, and the number of its line in the file."""

    number: int
    messages: Messages


class HeldOut(NamedTuple):
    """A talk that is not learned from, and those of its answers that none teaches.

    Answers are counted from 0.
    """

    line: Line
    answers: Collection[int]


def messages_of(line: str) -> Messages:
    """Returns the talk that a line of the file holds. Raises ValueError for none."""
    record = read_record(line)
    known = {"question", "answer"}
    if "turns" in record:
        known = {"turns"}
    if not known <= record.keys():
        raise ValueError(f"it has the keys {[*record]}; write {FORM}")
    unknown = sorted(record.keys() - known)
    if unknown:
        raise ValueError(
            f"{', '.join(map(repr, unknown))} beside {', '.join(sorted(known))} would"
            f" not be read: say it in the question, or leave it out; write {FORM}"
        )

    if "turns" in record:
        turns = record["turns"]
    else:
        turns = [record["question"], record["answer"]]
    if not isinstance(turns, list) or not all(isinstance(x, str) for x in turns):
        raise ValueError(f"its turns are {shown(turns)}; they must be texts")
    if not turns or len(turns) % 2:
        raise ValueError(
            f"it has {len(turns)} turns; a talk ends with an answer: question, answer,"
            " question, answer, ..."
        )

    messages = []
    for i, text in enumerate(turns):
        role = ("user", "assistant")[i % 2]
        word = ("question", "answer")[i % 2]
        if not text.strip():
            raise ValueError(f"its {word} is empty: write one, or leave the line out")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(
                f"its {word} {shown(text)} has half a character (a surrogate): write"
                " the whole one"
            )
        messages.append((role, text))
    return messages


def read_record(line: str) -> dict:
    """Returns the JSON object of a line. Raises ValueError for anything else."""
    repeated = []

    def note_repeated(pairs: list[tuple[str, object]]) -> dict:
        counts = Counter(name for name, _ in pairs)
        repeated.extend(name for name, n in counts.items() if n > 1)
        return dict(pairs)

    try:
        record = json.loads(line, object_pairs_hook=note_repeated)
    except (ValueError, RecursionError) as error:  # names a place within the line
        raise ValueError(f"it is no JSON ({error}); write {FORM}") from None
    if not isinstance(record, dict):
        raise ValueError(f"it is {shown(record)}; write {FORM}")
    if repeated:
        raise ValueError(f"it has {repeated[0]!r} twice: leave one out; write {FORM}")
    return record


def read_talks(path: Path) -> list[Line]:
    """Reads a file of JSON lines, once. Returns its talks, and their lines' numbers.

    Empty lines are passed over. Raises OSError where there is no such file, and
    ValueError, by the number of the line, for what is no talk, and for too few.
    """
    if path.is_dir() or path.is_char_device() or path.is_block_device():
        raise ValueError(
            f"{path} is a folder or a device; give the path of a file with talks"
        )
    lines = []
    for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line = raw.decode("utf-8-sig").strip()
            if line:
                lines.append(Line(number, messages_of(line)))
        except UnicodeDecodeError:
            raise ValueError(
                f"{path}, line {number}: it is no UTF-8: save the file as UTF-8"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if len(lines) < LEAST:
        raise ValueError(
            f"{path} has {len(lines)} talks; it takes {LEAST} or more, as every tenth"
            " is held out to judge by"
        )
    return lines


def digest_of(lines: list[Line]) -> str:
    """Returns a SHA-256 of the talks, by which a run that goes on knows its data."""
    talks = json.dumps([line.messages for line in lines])
    return sha256(talks.encode()).hexdigest()


def folded(text: str) -> str:
    """Returns a text without what hardly tells it from another: case, width, spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def marks_of(line: Line) -> list[set[tuple[str, ...]]]:
    """Returns, for each answer of a talk, the marks by which another teaches it.

    One is all that was said before it; the other, with its question, is the answer.
    """
    said = [folded(text) for _, text in line.messages]
    marks = []
    for i in range(1, len(said), 2):
        marks.append({("before", *said[:i]), ("pair", said[i - 1], said[i])})
    return marks


def held_apart(
    path: Path, lines: list[Line], seed: int
) -> tuple[list[Line], list[HeldOut]]:
    """Puts the talks about every tenth question, by lot, aside, but at most 64.

    Returns the talks to learn from, and those held out. Talks that differ in no more
    than their last answer are of one question: they are learned from together, or the
    first is held out and the others are left. A talk can be held out where at least one
    of its answers is taught by no talk of another question. Raises ValueError for fewer
    than ten questions with such talks.
    """
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        question = tuple(folded(text) for _, text in line.messages[:-1])
        groups.setdefault(question, []).append(line)
    n_groups_with = Counter()  # of each mark
    for group in groups.values():
        marks = set()
        for line in group:
            marks.update(*marks_of(line))
        n_groups_with.update(marks)

    candidates = []
    for question, group in groups.items():
        answers = []
        for i, marks in enumerate(marks_of(group[0])):
            if all(n_groups_with[mark] == 1 for mark in marks):
                answers.append(i)
        if answers:
            candidates.append((question, HeldOut(group[0], answers)))
    if len(candidates) < LEAST:
        raise ValueError(
            f"{path} has {len(candidates)} questions of their own in {len(lines)}"
            f" talks; it takes {LEAST} or more, as every tenth is held out to judge by,"
            " and is not to be learned elsewhere: write more that differ"
        )

    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(candidates), generator=generator).tolist()
    chosen = sorted(order[: min(64, len(candidates) // 10)])
    held_out = []
    for i in chosen:
        question, talk = candidates[i]
        held_out.append(talk)
        del groups[question]
    learned = [line for group in groups.values() for line in group]
    return sorted(learned, key=lambda line: line.number), held_out


def encode_lines(
    path: Path, lines: list[Line], tokenizer: PublishedTokenizer, window: int
) -> dict[int, Encoded]:
    """Encodes the talks of a file. Returns them by the numbers of their lines.

    Raises ValueError, by the number of its line, for one longer than the window.
    """
    talks = {}
    for line in lines:
        tokens, targets = encode_talk(tokenizer, line.messages)
        if len(tokens) > window:
            raise ValueError(
                f"{path}, line {line.number}: it has {len(tokens):,} tokens, and the"
                f" window {window:,}: shorten it, or take a larger one (--window)"
            )
        talks[line.number] = (tokens, targets)
    return talks


def counting(talk: Encoded, answers: Collection[int]) -> Encoded:
    """Returns a talk of which only some answers count, by their numbers from 0."""
    tokens, targets = talk
    counted = []
    number = -1
    previous = -100
    for target in targets:
        if previous == -100 and target != -100:
            number += 1
        counted.append(target if number in answers else -100)
        previous = target
    return tokens, counted
