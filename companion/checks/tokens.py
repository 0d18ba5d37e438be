"""Checks of chapter 00."""

import functools
import re

import torch

from ..tokenizers import BPETokenizer
from .compare import Mistake, compare


def decode(answer) -> None:
    """`answer(vocabulary, tokens)`: the text of the tokens, U+FFFD for broken bytes."""

    @functools.wraps(answer)
    def safe(vocabulary, tokens):
        try:
            return answer(vocabulary, tokens)
        except UnicodeDecodeError:
            return Mistake("broken bytes stop it: decode with errors='replace'")

    def joined(*how):
        return lambda v, ids: b"".join(v[i] for i in ids).decode(*how)

    def apart(errors):
        return lambda v, ids: "".join(v[i].decode(errors=errors) for i in ids)

    vocabularies = (
        BPETokenizer(merges).vocabulary
        for merges in ([(98, 97), (256, 110)], [(98, 97)], [(0xC3, 0xA9)], [])
    )
    tokens = [257, 0xC3, 0xA9], [97, 0xC3, 98, 256], [97, 256], [*"🦉!".encode()]
    parts = "half a character was decoded by itself: join the bytes of all tokens first"
    compare(
        safe if callable(answer) else answer,
        joined("utf-8", "replace"),
        [*zip(vocabularies, tokens, strict=True)],
        {
            parts: apart("replace"),
            "broken bytes vanish: show them as U+FFFD, so that a fault is seen": joined(
                "utf-8", "ignore"
            ),
            "half characters vanish: join the bytes of all tokens first": apart(
                "ignore"
            ),
            "every byte of é is shown as broken: the bytes are not ASCII, but UTF-8": (
                joined("ascii", "replace")
            ),
            "each byte became a sign of its own: the bytes are UTF-8": joined(
                "latin-1"
            ),
            "the tokens were read as bytes or characters: look them up in the"
            " vocabulary": lambda v, ids: "".join(map(chr, ids)),
            "these are still bytes: decode them to text": (
                lambda v, ids: b"".join(v[i] for i in ids)
            ),
        },
        "decode: first all bytes, then the characters",
    )


def windows(answer) -> None:
    """`answer(tokens, context_length)`: consecutive inputs (b t) and targets (b t)."""

    def cut(tokens, n, step=None):
        found = tokens.unfold(0, n + 1, step or n)
        return found[:, :-1], found[:, 1:]

    def rolled(tokens, n):
        inputs, _ = cut(tokens, n)
        return inputs, inputs.flatten().roll(-1).view(inputs.shape)

    compare(
        answer,
        cut,
        [(torch.arange(9, 22), 4), (torch.arange(50, 62), 3), (torch.arange(22), 5)],
        {
            "the targets are the inputs: shift them by one": (
                lambda tokens, n: (cut(tokens, n)[0],) * 2
            ),
            "the targets come before the inputs: shift the other way": (
                lambda tokens, n: cut(tokens, n)[::-1]
            ),
            "the last target of a window is its own first token: it should be the"
            " token after the window": (
                lambda tokens, n: (cut(tokens, n)[0], cut(tokens, n)[0].roll(-1, -1))
            ),
            "the last target of all is the first token: it should be the token after"
            " the last window": rolled,
            "the first token of each later window is never predicted: windows of"
            " context_length + 1 tokens overlap by one": (
                lambda tokens, n: cut(tokens, n, n + 1)
            ),
            "the windows overlap: start each context_length later": (
                lambda tokens, n: cut(tokens, n, 1)
            ),
            "a full window is left out: it needs context_length + 1 tokens, not more": (
                lambda tokens, n: cut(tokens[:-1], n)
            ),
            "these are not whole numbers: a token is a place in a list": (
                lambda tokens, n: cut(tokens.float(), n)
            ),
        },
        "windows: no gap and no overlap in what is predicted",
    )


def pieces(answer) -> None:
    """`answer(text)`: whole words, with at most one space in front, and white space."""

    def right(text):
        return re.findall(r" ?[^ \n]+|[ \n]+", text)

    def fault(found, text):
        for piece in found:
            if not re.fullmatch(r" ?[^ \n]+|[ \n]+", piece):
                return f"{piece!r} is neither a word nor a run of spaces"
        if [x.strip() for x in found if x.strip()] != text.split():
            return "words are cut: each is to stay whole"

    @functools.wraps(answer)
    def judged(text):
        if (found := answer(text)) == text:
            return Mistake("this is one text: return a list of its pieces")
        strings = isinstance(found, list | tuple) and all(type(x) is str for x in found)
        if not strings or "".join(found) != text:
            return found
        wrong = fault(found, text)
        return Mistake(wrong) if wrong else right(text)

    def moved(text):
        parts = re.findall(r"( *)([^ ]+)", text)
        return [x for s, word in parts for x in (s[:1] + word, s[1:]) if x]

    compare(
        judged if callable(answer) else answer,
        right,
        [("Hello World.",), ("  Hello World.",), ("a\n\n  b  ",), ("a   b",)],
        {
            "spaces are lost: str.split() throws them away": str.split,
            "spaces are lost: str.split(' ') throws them away": (
                lambda text: text.split(" ")
            ),
            "a space moved from before its word to after it: add the surplus spaces"
            " first, then the word": moved,
            "the spaces at the end are lost: they are a piece, too": (
                lambda text: re.findall(r" ?[^ \n]+|[ \n]+(?=[^ \n])", text)
            ),
            "spaces are lost: only one in front of each word is kept": (
                lambda text: re.findall(r" ?[^ \n]+", text)
            ),
            "line breaks are lost: they are white space, too": (
                lambda text: re.findall(r" ?[^ \n]+| +", text)
            ),
        },
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

    def greedy(vocabulary, data):
        n = 0
        while data:
            data = data[max(len(v) for v in vocabulary if data.startswith(v)) :]
            n += 1
        return n

    one, two, three = (
        [bytes([i]) for i in range(256)] + more.encode().split()
        for more in ("ab abc cde", "ab abc cde st rst pqr", "cbb bac bc cc wxyz")
    )
    texts = (one, "abcab"), (one, "abcde"), (two, "pqrst"), (two, "abcdepqrst")
    compare(
        answer,
        right,
        [*texts, (two, "cdé"), (one, ""), (three, "ccbbac"), (three, "wxyz")],
        {
            "the longest token at each place isn't always best: for abcde it gives"
            " abc d e, but ab cde is shorter": lambda v, text: greedy(v, text.encode()),
            "the longest token from the end isn't always best: with pqr, st and rst it"
            " cuts pqrst into p q rst": (
                lambda v, text: greedy([x[::-1] for x in v], text.encode()[::-1])
            ),
            "every byte is a token of its own here: use the longer ones": (
                lambda _, text: len(text.encode())
            ),
            "one too many: up to the beginning, no token is needed": (
                lambda v, text: right(v, text) + 1
            ),
        },
        "fewest: each place remembers the best way to it",
    )
