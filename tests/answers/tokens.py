"""Right and wrong answers to the exercises of chapter 00."""

import codecs
import re
from collections import deque

import numpy as np
import torch

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_decode(vocabulary, tokens):
    return b"".join(vocabulary[i] for i in tokens).decode(errors="replace")


def right_windows(tokens, n):
    m = (len(tokens) - 1) // n * n
    return tokens[:m].view(-1, n), tokens[1 : m + 1].view(-1, n)


def looped_windows(tokens, n):
    starts = range(0, len(tokens) - n, n)
    return [torch.stack([tokens[s + k : s + k + n] for s in starts]) for k in (0, 1)]


@wrong(checks.windows, "not input")
def numbers_plus_one(tokens, n):
    """Right only where the tokens count up."""
    inputs, _ = right_windows(tokens, n)
    return inputs, inputs + 1


@wrong(checks.decode, "wanted 'é�'")
def strict_or_apart(vocabulary, tokens):
    """One broken byte spoils all that is whole."""
    try:
        return b"".join(vocabulary[i] for i in tokens).decode()
    except UnicodeDecodeError:
        return "".join(vocabulary[i].decode(errors="replace") for i in tokens)


@wrong(checks.decode, "it gives 'é���', wanted 'é�'")
def sign_for_each_byte(vocabulary, tokens):
    data = b"".join(vocabulary[i] for i in tokens)
    out = ""
    while data:
        try:
            return out + data.decode()
        except UnicodeDecodeError as error:
            out += data[: error.start].decode() + "\ufffd"
            data = data[error.start + 1 :]
    return out


@wrong(checks.pieces, "it stops with IndexError")
def first_sign_first(text):
    pieces = [text[0]]
    for sign in text[1:]:
        if (sign in " \n") == (pieces[-1][-1] in " \n") or pieces[-1] == " ":
            pieces[-1] += sign
        else:
            pieces.append(sign)
    return pieces


@wrong(checks.pieces, "is neither a word")
def leak_mended_for_spaces(text):
    """As the story has it, but line breaks are still taken for letters."""
    return re.findall(r" ?[^ ]+| +(?= [^ ])| +", text)


def right_pieces(text):
    return re.findall(r" ?[^ \n]+|[ \n]+", text)


@wrong(checks.pieces, "moved from before its word to after it")
def leaky_pieces(text):
    pieces = []
    spaces = 0
    for part in re.findall(r" +|[^ ]+", text):
        if part[0] == " ":
            spaces = len(part)
        else:
            pieces += [" " * min(spaces, 1) + part, " " * (spaces - 1)]
            spaces = 0
    return [piece for piece in pieces if piece]


@wrong(checks.pieces, "the spaces at the end are lost")
def mended_leak(text):
    """The space stays before its word, but what follows the last word is lost."""
    return re.findall(r" ?[^ \n]+|[ \n]+(?=[^ \n])", text)


@wrong(checks.decode, r"tokens = \[256, 98, 195\]: it gives 'bab', wanted")
def stream_decode(vocabulary, tokens):
    """Without its last call: half a character at the end is lost."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return "".join(decoder.decode(vocabulary[i]) for i in tokens)


def ended_stream(vocabulary, tokens):
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = "".join(decoder.decode(vocabulary[i]) for i in tokens)
    return text + decoder.decode(b"", final=True)


def one_by_one_pieces(text):
    """A loop without a regular expression."""
    pieces = []
    for sign in text:
        last = pieces[-1] if pieces else ""
        if last and (sign in " \n") == (last[-1] in " \n"):
            pieces[-1] += sign
        elif last == " ":
            pieces[-1] += sign
        else:
            pieces.append(sign)
    return pieces


@wrong(checks.windows, "a full window is left out")
def late_windows(tokens, n):
    m = (len(tokens) - 2) // n * n
    return tokens[:m].view(-1, n), tokens[1 : m + 1].view(-1, n)


def looked_up(tokens, n):
    """Right only where no token comes again."""
    inputs, _ = right_windows(tokens, n)
    following = dict(zip(tokens.tolist(), tokens[1:].tolist(), strict=False))
    return inputs, inputs.clone().apply_(following.get)


@wrong(checks.windows, "nothing follows the last token")
def rolled_whole(tokens, n):
    n_windows = len(tokens) // n
    targets = torch.roll(tokens, -1)[: n_windows * n]
    return tokens[: n_windows * n].reshape(n_windows, n), targets.reshape(-1, n)


@wrong(checks.windows, "the last target is the token after the inputs")
def rolled_inputs(tokens, n):
    inputs = right_windows(tokens, n)[0].reshape(-1)
    return inputs.view(-1, n), torch.cat([inputs[1:], inputs[:1]]).view(-1, n)


RIGHT = [
    (checks.decode, lambda v, ids: np.str_(right_decode(v, ids))),
    (
        checks.decode,
        lambda v, ids: b"".join(map(v.__getitem__, ids)).decode("utf-8", "replace"),
    ),
    (
        checks.decode,
        lambda v, ids: codecs.decode(b"".join(v[i] for i in ids), errors="replace"),
    ),
    (checks.windows, lambda x, n: torch.stack(right_windows(x, n))),
    (checks.windows, lambda x, n: (part for part in right_windows(x, n))),
    (checks.windows, lambda x, n: map(torch.clone, right_windows(x, n))),
    (checks.windows, lambda x, n: (x[:-1].unfold(0, n, n), x[1:].unfold(0, n, n))),
    (checks.pieces, lambda text: (piece for piece in right_pieces(text))),
    (checks.pieces, lambda text: map(str, right_pieces(text))),
    (checks.pieces, lambda text: filter(None, re.split(r"([ \n]+)", text))),
    (checks.pieces, lambda text: np.array(right_pieces(text))),
    (checks.pieces, lambda text: deque(right_pieces(text))),
    (checks.pieces, lambda text: dict(enumerate(right_pieces(text))).values()),
    (checks.pieces, lambda text: (m.group() for m in re.finditer(r" ?\S+|\s+", text))),
    (checks.decode, right_decode),
    (checks.decode, ended_stream),
    (
        checks.decode,
        lambda v, ids: b"".join([v[i] for i in ids]).decode("utf8", "replace"),
    ),
    (
        checks.decode,
        lambda v, ids: str(bytes(b for i in ids for b in v[i]), "utf8", "replace"),
    ),
    (checks.windows, right_windows),
    (checks.windows, looped_windows),
    (checks.pieces, right_pieces),
    (checks.pieces, lambda text: tuple(right_pieces(text))),
    (checks.pieces, lambda text: re.findall(r"\S+|\s+", text)),
    (checks.pieces, lambda text: re.findall(r" ?\S+|\s", text)),
    (checks.pieces, lambda text: re.findall(r" ?\S+|\s+(?!\S)|\s+", text)),
    (checks.pieces, one_by_one_pieces),
    (checks.pieces, lambda text: [x for x in re.split(r"([ \n]+)", text) if x]),
]
WRONG = [
    *wrong,
    (
        checks.decode,
        lambda v, ids: "".join(v[i].decode(errors="replace") for i in ids),
        "join the bytes of all tokens first",
    ),
    (
        checks.decode,
        lambda v, ids: b"".join([v[i] for i in ids]).decode(errors="ignore"),
        "vanish",
    ),
    (
        checks.decode,
        lambda v, ids: "".join(chr(b) for i in ids for b in v[i]),
        "the bytes are UTF-8",
    ),
    (checks.decode, lambda v, ids: print(ids), "is there a `return`"),
    (
        checks.decode,
        lambda v, ids: "".join(v[i].decode(errors="ignore") for i in ids),
        "half characters vanish",
    ),
    (
        checks.decode,
        lambda v, ids: b"".join(v[i] for i in ids).decode("ascii", "replace"),
        "not ASCII, but UTF-8",
    ),
    (checks.decode, lambda v, ids: b"".join(v[i] for i in ids), "it gives b'ban"),
    (
        checks.decode,
        lambda v, ids: b"".join(v[i] for i in ids).decode(),
        "broken bytes",
    ),
    (checks.decode, lambda v, ids: "".join(map(chr, ids)), "look them up"),
    (
        checks.decode,
        lambda v, ids: "banaé",
        r"ids = \[257, 195, 169\]: it gives 'banaé', wanted 'bané'",
    ),
    (
        checks.windows,
        lambda x, n: (x.unfold(0, n, n)[:-1], x.unfold(0, n, n)[1:]),
        "not by n",
    ),
    (
        checks.windows,
        lambda x, n: right_windows(x[(len(x) - 1) % n :], n),
        "it gives .* wanted",
    ),
    *(
        (checks.pieces, lambda text, p=p: re.findall(p, text), "is lost|it gives")
        for p in (
            r" ?[A-Za-z0-9.,!?'-]+|[ \n]+",
            r" ?[!-~]+|[ \n]+",
            r" ?[\w.,!?'\-]+|\s+",
            r" ?\S+|[ \n]+",
        )
    ),
    (
        checks.windows,
        lambda x, n: [x[i + n] for i in range(0, len(x), n)],
        "it stops with IndexError: index 16 is out of bounds",
    ),
    (
        checks.windows,
        lambda x, n: (x.unfold(0, n + 1, 1)[:, :-1], x.unfold(0, n + 1, 1)[:, 1:]),
        "windows overlap",
    ),
    (
        checks.windows,
        lambda x, n: right_windows(x.double(), n),
        "dtype is torch.float64, wanted torch.int64",
    ),
    (checks.windows, lambda x, n: x.split(n), "4 things, wanted 2"),
    (
        checks.windows,
        lambda x, n: (x[: len(x) // n * n].view(-1, n), x[1:].view(-1, n)),
        "leave a",
    ),
    (
        checks.windows,
        lambda x, n: (x.unfold(0, n, n)[:, :-1], x.unfold(0, n, n)[:, 1:]),
        "cut 1 more",
    ),
    (
        checks.windows,
        lambda x, n: (right_windows(x, n)[0], right_windows(x, n)[0]),
        "shift them by one",
    ),
    (
        checks.windows,
        lambda x, n: (right_windows(x, n)[1], right_windows(x, n)[0]),
        "shift the other way",
    ),
    (
        checks.windows,
        lambda x, n: (right_windows(x, n)[0], right_windows(x, n)[0].roll(-1, 1)),
        "the last target of a window is its own",
    ),
    (
        checks.windows,
        lambda x, n: (
            torch.stack([p[:-1] for p in x.split(n + 1) if len(p) > n]),
            torch.stack([p[1:] for p in x.split(n + 1) if len(p) > n]),
        ),
        "never predicted",
    ),
    (checks.pieces, lambda text: text.split(), r"str.split\(\)"),
    (checks.pieces, lambda text: re.findall(r" ?[^ \n]+", text), "only one in front"),
    (checks.pieces, lambda text: text.split(" "), "throws them away"),
    (checks.pieces, lambda text: [text], "'Hello World.' is neither a word"),
    (checks.pieces, list, "each is to stay whole"),
    (checks.pieces, lambda text: re.split("( )", text), "'' is neither a word"),
    (checks.pieces, lambda text: [text, text], "it gives .* wanted 'Hello'"),
    (checks.pieces, lambda text: [*text.encode()], "it gives .*wanted"),
    (
        checks.pieces,
        lambda text: re.findall(r" ?[^ \n]+| +", text),
        "line breaks are lost",
    ),
    *(
        (checks.pieces, lambda text, p=p: re.findall(p, text), "'!' is lost: the signs")
        for p in (r" ?[A-Za-z.]+|[ \n]+", r" ?[\w.]+|\s+", r" ?\w+\.?|\s+")
    ),
    (checks.pieces, lambda x: re.findall(r"\s?\S+|\s+", x), r"What's\" is neither"),
    (checks.pieces, lambda x: re.findall(r" ?\w+|[^\w]", x), "words are cut"),
]
