"""Checks of chapter 00."""

import functools
import re
import sys

import torch

from ..tokenizers import BPETokenizer
from .compare import Mistake, compare


def explained(answer, kind, words):
    """The answer, with words of help where it stops with an error of this kind."""

    @functools.wraps(answer)
    def run(*case):
        try:
            return answer(*case)
        except kind as error:
            if type(error) is NotImplementedError:
                raise
            return Mistake(words)

    return run if callable(answer) else answer


def decode(answer) -> None:
    """`answer(vocabulary, tokens)`: the text of the tokens, U+FFFD for broken bytes."""

    def joined(*how):
        return lambda v, ids: b"".join(v[i] for i in ids).decode(*how)

    def apart(errors):
        return lambda v, ids: "".join(v[i].decode(errors=errors) for i in ids)

    two, one, accent = (
        BPETokenizer(merges).vocabulary
        for merges in ([(98, 97), (256, 110)], [(98, 97)], [(0xC3, 0xA9)])
    )
    cases = (two, [257, 0xC3, 0xA9]), (one, [97, 0xC3, 98, 256]), (accent, [97, 256])
    late = (one[:256], [*"🦉!".encode()]), (one, [256, 98, 0xC3])
    broken = "broken bytes stop it: decode with errors='replace'"
    mistakes = {
        "half a character was decoded by itself: join the bytes of all tokens"
        " first": apart("replace"),
        "broken bytes vanish: show them as U+FFFD": joined("utf-8", "ignore"),
        "half characters vanish: join the bytes of all tokens first": apart("ignore"),
        "é is shown as broken: it is not ASCII, but UTF-8": joined("ascii", "replace"),
        "each byte became a sign of its own: the bytes are UTF-8": joined("latin-1"),
        "the tokens were read as bytes or characters: look them up in the"
        " vocabulary": lambda v, ids: "".join(map(chr, ids)),
        "still bytes: decode them": lambda v, ids: b"".join(v[i] for i in ids),
    }
    run = explained(answer, UnicodeDecodeError, broken)
    praise = "decode: first all bytes, then the characters"
    compare(run, joined("utf8", "replace"), [*cases, *late], mistakes, praise)


def windows(answer) -> None:
    """`answer(tokens, context_length)`: consecutive inputs (b t) and targets (b t)."""

    def cut(tokens, n, step=None, size=1):
        found = tokens.unfold(0, n + size, step or n)
        return found[:, :-1], found[:, 1:]

    def by(change):
        return lambda tokens, n: change(*cut(tokens, n))

    mistakes = {
        "the targets are the inputs: shift them by one": by(lambda x, y: (x, x)),
        "targets come after inputs: shift the other way": by(lambda x, y: (y, x)),
        "the last target of a window is its own first token: it should be the token"
        " after the window": by(lambda x, y: (x, x.roll(-1, -1))),
        "the last target of all is the first token: it should be the token after the"
        " last window": by(lambda x, y: (x, x.flatten().roll(-1).view(x.shape))),
        "the first token of each later window is never predicted: windows of"
        " context_length + 1 tokens overlap by one": lambda x, n: cut(x, n, n + 1),
        "windows overlap: start each context_length later": lambda x, n: cut(x, n, 1),
        "a window has context_length inputs and as many targets: cut one token"
        " more": lambda x, n: cut(x, n, size=0),
        "a full window is left out: it needs context_length + 1 tokens, not more": (
            lambda x, n: cut(x[:-1], n)
        ),
        "the last full window is left out": by(lambda x, y: (x[:-1], y[:-1])),
        "a token is a whole number": by(lambda x, y: (x.float(), y.float())),
    }
    help = "the last target comes after the last window: leave a token for it"
    cases = (torch.arange(9, 22), 4), (torch.arange(50, 62), 3), (torch.arange(22), 5)
    praise = "windows: no gap and no overlap in what is predicted"
    compare(explained(answer, RuntimeError, help), cut, [*cases], mistakes, praise)


def pieces(answer) -> None:
    """`answer(text)`: whole words, with at most one space in front, and white space."""

    def right(text):
        return re.findall(r" ?[^ \n]+|[ \n]+", text)

    @functools.wraps(answer)
    def judged(text):
        if (found := answer(text)) == text:
            return Mistake("this is one text: return a list of its pieces")
        if not isinstance(found, list | tuple) or {type(x) for x in found} - {str}:
            return found
        if gone := sorted({*text} - {*"".join(found)} - {*" \n"}):
            return Mistake(f"{gone[0]!r} is lost: the signs stay with the words")
        if "".join(found) != text:
            return found
        for piece in found:
            if not re.fullmatch(r" ?[^ \n]+|[ \n]+", piece):
                return Mistake(f"{piece!r} is neither a word nor a run of spaces")
        if [x.strip() for x in found if x.strip()] != text.split():
            return Mistake("words are cut: each is to stay whole, with its signs")
        return right(text)

    def moved(text):
        parts = re.findall(r"( *)([^ ]+)", text)
        return [x for s, word in parts for x in (s[:1] + word, s[1:]) if x]

    def only(pattern):
        return lambda text: re.findall(pattern, text)

    mistakes = {
        "spaces are lost: str.split() throws them away": str.split,
        "spaces are lost: str.split(' ') throws them away": lambda x: x.split(" "),
        "a space moved from before its word to after it: add the surplus spaces first,"
        " then the word": moved,
        "the spaces at the end are lost: they are a piece, too": (
            only(r" ?[^ \n]+|[ \n]+(?=[^ \n])")
        ),
        "spaces are lost: only one in front of each word is kept": only(r" ?[^ \n]+"),
        "line breaks are lost: they are white space, too": only(r" ?[^ \n]+| +"),
    }
    texts = "Hello World.", "  Hello World.", "a\n\n  b  ", "a   b"
    cases = [(text,) for text in (*texts, "But, soft!\nWhat's  'tis -- 1?")]
    run = judged if callable(answer) else answer
    compare(run, right, cases, mistakes, "pieces: put together, they are the text")


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

    @functools.wraps(answer)
    def patient(vocabulary, text):
        steps, before = iter(range(10**6)), sys.getprofile()

        def count(*_):
            if next(steps, None) is None:
                raise Mistake("fewest: trying all ways takes too long: ask it by place")

        sys.setprofile(count)  # it counts calls
        try:
            return answer(vocabulary, text)
        finally:
            sys.setprofile(before)

    lists = "ab abc cde", "ab abc cde st rst pqr", "cbb bac bc cc wxyz", "ab ba ababab"
    one, two, three, long = (
        [bytes([i]) for i in range(256)] + more.encode().split() for more in lists
    )
    texts = (one, "abcab"), (one, "abcde"), (two, "pqrst"), (two, "abcdepqrst")
    more = (
        (two, "cdé"),
        (one, ""),
        (three, "ccbbac"),
        (three, "wxyz"),
        (long, "ab" * 13),
    )
    mistakes = {
        "the longest token at each place isn't always best: for abcde it gives abc d e,"
        " but ab cde is shorter": lambda v, x: greedy(v, x.encode()),
        "the longest token from the end isn't always best: with pqr, st and rst it cuts"
        " pqrst into p q rst": lambda v, x: greedy(
            [y[::-1] for y in v], x.encode()[::-1]
        ),
        "each byte is a token here: use the longer ones": lambda _, x: len(x.encode()),
        "one too many: the beginning needs no token": lambda v, x: right(v, x) + 1,
    }
    praise = "fewest: each place remembers the best way to it"
    run = patient if callable(answer) else answer
    run = explained(run, ValueError, "no token fits: does it cut bytes? é is two bytes")
    compare(run, right, [*texts, *more], mistakes, praise)
