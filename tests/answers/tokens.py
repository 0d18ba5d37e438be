"""Right and wrong answers to the exercises of chapter 00."""

import re

import torch

from companion import checks


def right_decode(vocabulary, tokens):
    return b"".join(vocabulary[i] for i in tokens).decode(errors="replace")


def right_windows(tokens, n):
    m = (len(tokens) - 1) // n * n
    return tokens[:m].view(-1, n), tokens[1 : m + 1].view(-1, n)


def right_pieces(text):
    return re.findall(r" ?[^ \n]+|[ \n]+", text)


def right_fewest(vocabulary, text):
    data, best = text.encode(), [0]
    for end in range(1, len(data) + 1):
        ways = [best[s] for s in range(end) if data[s:end] in vocabulary]
        best.append(1 + min(ways))
    return best[-1]


def leaky_pieces(text):
    found, spaces = [], 0
    for part in re.findall(r" +|[^ ]+", text):
        if part[0] == " ":
            spaces = len(part)
        else:
            found += [" " * min(spaces, 1) + part, " " * (spaces - 1)]
            spaces = 0
    return [piece for piece in found if piece]


def greedy(vocabulary, text):
    data, n = text.encode(), 0
    while data:
        size = max(k for k in range(1, len(data) + 1) if data[:k] in vocabulary)
        data, n = data[size:], n + 1
    return n


RIGHT = [
    (checks.decode, right_decode),
    (checks.windows, right_windows),
    (checks.pieces, right_pieces),
    (checks.fewest, right_fewest),
]
WRONG = [
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
        "the token after the window",
    ),
    (
        checks.windows,
        lambda x, n: (
            torch.stack([p[:-1] for p in x.split(n + 1) if len(p) > n]),
            torch.stack([p[1:] for p in x.split(n + 1) if len(p) > n]),
        ),
        "never predicted",
    ),
    (checks.pieces, leaky_pieces, "moved from before its word to after it"),
    (checks.pieces, lambda text: text.split(), r"str.split\(\)"),
    (checks.pieces, lambda text: re.findall(r" ?[^ \n]+", text), "only one in front"),
    (checks.pieces, lambda text: text.split(" "), "throws them away"),
    (checks.pieces, lambda text: [text], "neither a word"),
    (
        checks.pieces,
        lambda text: re.findall(r" ?[^ \n]+| +", text),
        "line breaks are lost",
    ),
    (checks.fewest, greedy, "ab cde is shorter"),
    (checks.fewest, lambda v, text: len(list(text.encode())), "use the longer ones"),
    (checks.fewest, lambda v, text: right_fewest(v, text) + 1, "one too many"),
]
