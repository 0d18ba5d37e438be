"""Checks of chapter 00."""

import re

import torch

from ..tokenizers import BPETokenizer
from .compare import Mistake, compare


def decode(answer) -> None:
    """`answer(vocabulary, tokens)`: the text of the tokens, U+FFFD for broken bytes."""
    vocabulary = BPETokenizer([(98, 97), (256, 110)]).vocabulary
    parts = "half a character was decoded by itself: join the bytes of all tokens first"
    compare(
        answer,
        lambda _, tokens: BPETokenizer([(98, 97), (256, 110)]).decode(tokens),
        [(vocabulary, [257, 0xC3, 0xA9]), (vocabulary, [256, 0xC3])],
        [
            (parts, lambda v, ids: "".join(v[i].decode(errors="replace") for i in ids)),
            (
                "broken bytes vanish: show them as U+FFFD, so that a fault is seen",
                lambda v, ids: b"".join(v[i] for i in ids).decode(errors="ignore"),
            ),
            (parts, lambda v, ids: "".join(v[i].decode(errors="ignore") for i in ids)),
            (
                "each byte became a sign of its own: the bytes are UTF-8",
                lambda v, ids: b"".join(v[i] for i in ids).decode("latin-1"),
            ),
            (
                "these are still bytes: decode them to text",
                lambda v, ids: b"".join(v[i] for i in ids),
            ),
        ],
        "decode: first all bytes, then the characters",
    )


def windows(answer) -> None:
    """`answer(tokens, context_length)`: consecutive inputs (b t) and targets (b t)."""

    def right(tokens, n):
        cut = tokens.unfold(0, n + 1, n)
        return cut[:, :-1], cut[:, 1:]

    def swapped(tokens, n):
        return right(tokens, n)[::-1]

    def wrapped(tokens, n):
        inputs, _ = right(tokens, n)
        return inputs, inputs.roll(-1, -1)

    def gaps(tokens, n):
        cut = tokens.unfold(0, n + 1, n + 1)
        return cut[:, :-1], cut[:, 1:]

    def overlapping(tokens, n):
        cut = tokens.unfold(0, n + 1, 1)
        return cut[:, :-1], cut[:, 1:]

    compare(
        answer,
        right,
        [(torch.arange(100, 113), 4), (torch.arange(100, 112), 4)],
        [
            (
                "the targets are the inputs: shift them by one",
                lambda tokens, n: (right(tokens, n)[0],) * 2,
            ),
            ("the targets come before the inputs: shift the other way", swapped),
            (
                "the last target of a window is its own first token: it should be the"
                " token after the window",
                wrapped,
            ),
            (
                "the first token of each later window is never predicted: windows of"
                " context_length + 1 tokens overlap by one",
                gaps,
            ),
            ("the windows overlap: start each context_length later", overlapping),
        ],
        "windows: no gap and no overlap in what is predicted",
    )


def pieces(answer) -> None:
    """`answer(text)`: pieces that join to the text, with at most one space in front."""

    def moved(text):
        parts = re.findall(r"( *)([^ ]+)", text)
        found = [x for s, word in parts for x in (s[:1] + word, s[1:])]
        return [x for x in found if x]

    def checked(text):
        found = answer(text)
        if isinstance(found, list) and "".join(found) == text:
            bad = [x for x in found if not re.fullmatch(r" ?[^ \n]+|[ \n]+", x)]
            if bad:
                raise Mistake(f"{bad[0]!r} is neither a word nor a run of spaces")
            return text
        return found

    compare(
        checked,
        lambda text: text,
        [("Hello World.",), ("  Hello World.",), ("a\n\n  b  ",)],
        [
            ("spaces are lost: str.split() throws them away", str.split),
            (
                "spaces are lost: str.split(' ') throws them away",
                lambda text: text.split(" "),
            ),
            (
                "a space moved from before its word to after it: add the surplus spaces"
                " first, then the word",
                moved,
            ),
            (
                "spaces are lost: only one in front of each word is kept",
                lambda text: re.findall(r" ?[^ \n]+", text),
            ),
            (
                "line breaks are lost: they are white space, too",
                lambda text: re.findall(r" ?[^ \n]+| +", text),
            ),
        ],
        "pieces: put together, they are the text",
    )


def fewest(answer) -> None:
    """`answer(vocabulary, text)`: the least number of tokens that make up the text."""

    def right(vocabulary, text):
        data, best = text.encode(), [0]
        for end in range(1, len(data) + 1):
            tokens = (v for v in vocabulary if data[:end].endswith(v))
            best.append(1 + min(best[end - len(v)] for v in tokens))
        return best[-1]

    def longest_first(vocabulary, text):
        data, n = text.encode(), 0
        while data:
            data = data[max(len(v) for v in vocabulary if data.startswith(v)) :]
            n += 1
        return n

    vocabulary = [bytes([i]) for i in range(256)] + [b"ab", b"abc", b"cde"]
    compare(
        answer,
        right,
        [
            (vocabulary, "abcab"),
            (vocabulary, "abcde"),
            (vocabulary, "cdé"),
            (vocabulary, ""),
        ],
        [
            (
                "the longest token at each place isn't always best: for abcde it gives"
                " abc d e, but ab cde is shorter",
                longest_first,
            ),
            (
                "every byte is a token of its own here: use the longer ones",
                lambda _, text: len(text.encode()),
            ),
            (
                "one too many: up to the beginning, no token is needed",
                lambda v, text: right(v, text) + 1,
            ),
        ],
        "fewest: each place remembers the best way to it",
    )
