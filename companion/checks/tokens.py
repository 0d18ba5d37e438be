"""Checks of chapter 00."""

import functools
import re
import sys

import torch

from ..tokenizers import BPETokenizer, merge
from .compare import Mistake, compare
from .explained import explained


def decode(answer) -> None:
    """`answer(vocabulary, tokens)`: the text of the tokens, U+FFFD for broken bytes."""

    def joined(*how):
        return lambda v, ids: b"".join(v[i] for i in ids).decode(*how)

    def apart(errors):
        return lambda v, ids: "".join(v[i].decode(errors=errors) for i in ids)

    lists = [(98, 97), (256, 110)], [(98, 97)], [(0xC3, 0xA9)]
    two, one, accent = (BPETokenizer(merges).vocabulary for merges in lists)
    cases = [(two, [257, 0xC3, 0xA9]), (one, [97, 0xC3, 98, 256]), (accent, [97, 256])]
    cases += [(one[:256], [*"🦉!".encode()]), (one, [256, 98, 0xC3])]
    cases += [(two, [0xC3, 0xA9, 0xC3]), (two, [*"é🦉".encode()][:5])]
    cases += [(two, [32, 195, 195, 10])]
    mistakes = {
        "half characters break: join the bytes of all tokens first": apart("replace"),
        "broken bytes vanish: show them as U+FFFD": joined("utf-8", "ignore"),
        "half characters vanish: join the bytes of all tokens first": apart("ignore"),
        "é is shown as broken: it is not ASCII, but UTF-8": joined("ascii", "replace"),
        "each byte became a sign of its own: the bytes are UTF-8": joined("latin-1"),
        "tokens are no characters: look them up": lambda v, ids: "".join(map(chr, ids)),
        "still bytes: decode them": lambda v, ids: b"".join(v[i] for i in ids),
    }
    run = explained(answer, UnicodeDecodeError, "broken bytes stop it: replace them")
    run = explained(run, ValueError, "a number above 255 is no byte: look it up")
    praise = "decode: first all bytes, then the characters"
    compare(run, joined("utf8", "replace"), cases, mistakes, praise)


def windows(answer) -> None:
    """`answer(tokens, context_length)`: consecutive inputs (b t) and targets (b t)."""

    def cut(tokens, n, step=None, size=1):
        found = tokens.unfold(0, n + size, step or n)
        return found[:, :-1], found[:, 1:]

    def by(change):
        return lambda tokens, n: change(*cut(tokens, n))

    def next_window(x, n):
        return x.unfold(0, n, n)[:-1], x.unfold(0, n, n)[1:]

    mistakes = {
        "the targets are the inputs: shift them by one": by(lambda x, y: (x, x)),
        "a target is the next token, not input + 1": by(lambda x, y: (x, x + 1)),
        "the targets are the next window: shift by one token, not by n": next_window,
        "targets come after inputs: shift the other way": by(lambda x, y: (y, x)),
        "the last target of a window is its own first token: it should be the token"
        " after the window": by(lambda x, y: (x, x.roll(-1, -1))),
        "the last target of all is the first token: it should be the token after the"
        " last window": by(lambda x, y: (x, x.flatten().roll(-1).view(x.shape))),
        "each later window's first token is never predicted: windows of n + 1 tokens"
        " overlap by one": lambda x, n: cut(x, n, n + 1),
        "windows overlap: start each context_length later": lambda x, n: cut(x, n, 1),
        "a window needs n + 1 tokens: cut 1 more": lambda x, n: cut(x, n, size=0),
        "begin with token 0": lambda x, n: cut(x[1:], n),
        "each row is a window: here each column is": by(
            lambda *both: tuple(x.reshape(x.shape[::-1]).T for x in both)
        ),
        "a full window is left out: it needs n + 1 tokens": lambda x, n: cut(x[:-1], n),
        "the last full window is left out": by(lambda x, y: (x[:-1], y[:-1])),
        "a token is a whole number": by(lambda x, y: (x.float(), y.float())),
    }
    help = "the last target comes after the last window: leave a token for it"
    sizes = (13, 4), (12, 3), (22, 5)
    cases = [(torch.arange(1, 1 + size) * 7 % 31, n) for size, n in sizes]
    praise = "windows: no gap and no overlap in what is predicted"
    run = explained(answer, (RuntimeError, IndexError), help)
    compare(run, cut, cases, mistakes, praise)


def pieces(answer) -> None:
    """`answer(text)`: whole words, with at most one space in front, and white space."""

    right = functools.partial(re.findall, r" ?[^ \n]+|[ \n]+")

    @functools.wraps(answer)
    def judged(text):
        if isinstance(found := answer(text), str):
            return Mistake("this is one text: return a list of its pieces")
        if not isinstance(found, list | tuple) or {type(x) for x in found} - {str}:
            return found
        if gone := sorted({*text} - {*"".join(found)} - {*" \n\t"}):
            return Mistake(f"{gone[0]!r} is lost: the signs stay with the words")
        if "".join(found) != text or not text:
            return found
        for piece in found:
            if not re.fullmatch(r" ?[^ \n]+|\s+", piece):
                more = "; a line break is no part of a word" * ("\n" in piece)
                return Mistake(f"{piece!r} is neither a word nor a run of spaces{more}")
        if " ".join(found).split() != text.split():
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
        "a space moved from before its word to after it: surplus spaces first": moved,
        "the spaces at the end are lost": only(r" ?[^ \n]+|[ \n]+(?=[^ \n])"),
        "spaces are lost: only one in front of each word is kept": only(r" ?[^ \n]+"),
        "line breaks are lost: they are white space, too": only(r" ?[^ \n]+| +"),
    }
    texts = "Hello World.", "  Hello World.", "a\n\n  b  ", "a   b"
    more = "But, soft!\nWhat's  'tis -- 1?", "ROMEO: café; (so)\t🦉", ""
    cases = [(text,) for text in texts + more]
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

    def greedy(vocabulary, data, way=1):
        if not data:
            return 0
        n = max(len(v) for v in vocabulary if data[::way].startswith(v[::way]))
        return 1 + greedy(vocabulary, data[::way][n:][::way], way)

    def ways(*case):
        return greedy(*case), greedy(*case, -1)

    def merging(vocabulary, text):
        ids = [bytes([i]) for i in text.encode()]
        for new in vocabulary:
            for k in range(1, len(new)):
                ids = merge(ids, (new[:k], new[k:]), new)
        return len(ids)

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

    lists = "ab abc cde, ab abc cde st rst pqr, cbb bac bc cc wxyz, ab ba ababab "
    lists, single = lists + "cdefghijklmn", [bytes([i]) for i in range(256)]
    one, two, three, long = (x.encode().split() + single for x in lists.split(","))
    texts = (one, "abcab"), (one, "abcde"), (two, "pqrst"), (two, "abcdepqrst")
    more = (two, "cdé"), (one, ""), (three, "ccbbac"), (three, "wxyz")
    far = (
        (single, "qwertyuiopasdfghjklzxcvbnmQWER"),
        (long, "ab" * 13),
        (long, "abcdefghijklmn"),
        ([b"a b", *single], "a b"),
    )
    mistakes = {
        "the longest token at each place isn't always best: for abcde it gives abc d e,"
        " but ab cde is shorter": lambda v, x: greedy(v, x.encode()),
        "the longest token from the end isn't always best: pqrst becomes p q"
        " rst": lambda v, x: ways(v, x.encode())[1],
        "the better of both isn't always best": lambda v, x: min(ways(v, x.encode())),
        "this is what byte-pair encoding gives, which isn't always shortest": merging,
        "each byte is a token here: use the longer ones": lambda _, x: len(x.encode()),
        "one too many: the beginning needs no token": lambda v, x: right(v, x) + 1,
    }
    praise = "fewest: each place remembers the best way to it"
    run = patient if callable(answer) else answer
    run = explained(run, ValueError, "no token fits: hold them against text.encode()")
    compare(run, right, [*texts, *more, *far], mistakes, praise)
