"""Checks of chapter 00."""

import re

import torch

from ...text.tokenizers import BPETokenizer
from .compare import Mistake, compare, stops


def decode(answer) -> None:
    """`answer(vocabulary, tokens)`: the text of the tokens, U+FFFD for broken bytes."""

    def right(v, ids, *how):
        return b"".join(v[i] for i in ids).decode(*(how or ("utf-8", "replace")))

    lists = [(98, 97), (256, 110)], [(98, 97)], [(0xC3, 0xA9)]
    two, one, accent = (BPETokenizer(merges).vocabulary for merges in lists)
    cases = [(two, [257, 0xC3, 0xA9]), (one, [97, 0xC3, 98, 256]), (accent, [97, 256])]
    cases += [(one[:256], [*"🦉!".encode()]), (one, [256, 98, 0xC3])]
    cases += [(two, [0xC3, 0xA9, 0xC3]), (two, [*"é🦉".encode()][:5])]
    cases += [(two, [32, 195, 195, 10])]
    cases += [(two, [0xEF, 0xBB, 0xBF, 0, 13, 10, *(5 * [257, 110, 256])])]
    compare(answer, right, cases, {
        "half characters break: join the bytes of all tokens first":
            lambda v, ids: "".join(v[i].decode(errors="replace") for i in ids),
        "half characters vanish: join the bytes of all tokens first":
            lambda v, ids: "".join(v[i].decode(errors="ignore") for i in ids),
        "broken bytes vanish: show them as U+FFFD":
            lambda v, ids: right(v, ids, "utf-8", "ignore"),
        "é is shown as broken: it is not ASCII, but UTF-8":
            lambda v, ids: right(v, ids, "ascii", "replace"),
        "each byte became a sign of its own: the bytes are UTF-8":
            lambda v, ids: right(v, ids, "latin-1"),
        "tokens are no characters: look them up": lambda v, ids: "".join(map(chr, ids)),
        "broken bytes stop it: replace them": lambda v, ids: right(v, ids, "utf-8"),
        "half characters stop it: join the bytes of all tokens first":
            lambda v, ids: "".join(v[i].decode() for i in ids),
        "a number above 255 is no byte: look it up":
            stops(ValueError, "must be in range(0, 256)"),
    }, "decode: first all bytes, then the characters")  # fmt: skip


def windows(answer) -> None:
    """`answer(tokens, context_length)`: consecutive inputs (b t) and targets (b t)."""

    def right(tokens, n, step=0, size=1, of=lambda x, y: (x, y)):
        found = tokens.unfold(0, n + size, step or n)
        return of(found[:, :-1], found[:, 1:])

    def with_the_rest(tokens, n):
        return tokens[:-1].view(-1, n), tokens[1:].view(-1, n)

    def with_all_targets(tokens, n):
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens[1:].view(-1, n)

    def without_the_last_target(tokens, n):
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens[1 : end + 1].view(-1, n)

    sizes = (13, 4), (12, 3), (22, 5)
    cases = [(torch.arange(1, 1 + size) * 7 % 31, n) for size, n in sizes]
    # Tokens that come again, a single window, and windows of one token.
    cases += [(torch.arange(17) ** 2 % 5, 4), (torch.arange(7), 5)]
    cases += [(torch.tensor([4, 4, 2, 9]), 1)]
    compare(answer, right, cases, {
        "the targets are the inputs: shift them by one": {"of": lambda x, y: (x, x)},
        "a target is the next token, not input + 1": {"of": lambda x, y: (x, x + 1)},
        "the targets are the next window: shift by one token, not by n":
            lambda x, n: (x.unfold(0, n, n)[:-1], x.unfold(0, n, n)[1:]),
        "targets come after inputs: shift the other way": {"of": lambda x, y: (y, x)},
        "the last target of a window is its own first token, not the token after it":
            {"of": lambda x, y: (x, x.roll(-1, -1))},
        "each later window's first token is never predicted: windows of n + 1 tokens"
        " overlap by one": lambda x, n: right(x, n, n + 1),
        "windows overlap: start each context_length later": {"step": 1},
        "a window needs n + 1 tokens: cut 1 more": {"size": 0},
        "a full window is left out: n + 1 are enough": lambda x, n: right(x[:-1], n),
        "the rest that fills no window is to be dropped": with_the_rest,
        "cut the targets like the inputs, and leave a token for the last of them":
            with_all_targets,
        "where the last window is full, its last target is missing: leave a token for"
        " it": without_the_last_target,
    }, "windows: no gap and no overlap in what is predicted")  # fmt: skip


def pieces(answer) -> None:
    """`answer(text)`: whole words, with at most one space in front, and white space."""

    def only(pattern):
        return lambda text: re.findall(pattern, text)

    def moved(text):
        parts = re.findall(r"( *)([^ ]+)", text)
        return [x for s, word in parts for x in (s[:1] + word, s[1:]) if x]

    def judged(answer, text):
        """`right(text)` in place of any other good cut; white space may be cut."""
        found = answer(text)
        texts_only = isinstance(found, list | tuple) and all(
            isinstance(x, str) for x in found
        )
        if not texts_only:
            return found
        if gone := sorted({*text} - {*"".join(found)} - {*" \n\t"}):
            rule = "" if gone[0].isalnum() else ": the signs stay with the words"
            raise Mistake(f"{gone[0]!r} is lost{rule}")
        if "".join(found) != text or not text:
            return found
        for piece in found:
            if not re.fullmatch(r" ?[^ \n]+|\s+", piece):
                raise Mistake(f"{piece!r} is neither a word nor a run of white space")
        if " ".join(found).split() != text.split():
            raise Mistake("words are cut: each is to stay whole, with its signs")
        return right(text)

    right = only(r" ?[^ \n]+|[ \n]+")
    texts = "Hello World.", "  Hello World.", "a\n\n  b  ", "a   b"
    more = "But, soft!\nWhat's  'tis -- 1?", "ROMEO: café; (so)\t🦉", "", "   ", "\nA\n"
    compare(answer, right, [(text,) for text in texts + more], {
        "spaces are lost: str.split() throws them away": str.split,
        "spaces are lost: str.split(' ') throws them away": lambda x: x.split(" "),
        "a space moved from before its word to after it: surplus spaces first": moved,
        "the spaces at the end are lost": only(r" ?[^ \n]+|[ \n]+(?=[^ \n])"),
        "spaces are lost: only one in front of each word is kept": only(r" ?[^ \n]+"),
        "line breaks are lost: they are white space, too": only(r" ?[^ \n]+| +"),
    }, "pieces: put together, they are the text", judged)  # fmt: skip
