"""Checks of chapter 12."""

import re
from functools import partial

import torch

from .compare import compare


def bits_a_weight(answer) -> None:
    """`answer(n, bits, extra)`: bits a weight, scales included."""

    def right(n, bits, extra, share=8.0):
        return bits + share * extra / n

    cases = [(32, 4, 4), (64, 8, 2), (16, 3, 6)]
    no_scales, as_bits = partial(right, share=0.0), partial(right, share=1.0)
    mistakes = {
        "scales are left out: their bytes are shared by the block": no_scales,
        "extra is in bytes, of 8 bits": as_bits,
        "these are bytes a weight: a byte has 8 bits": lambda *case: right(*case) / 8,
        "these are the bits of a block: divide by n": lambda n, b, x: n * b + 8 * x,
        "these are the bytes of a block": lambda n, b, x: n * b / 8 + x,
        "a block shares the scales: divide their bits by n": lambda n, b, x: b + 8 * x,
        "a part of a bit counts: divide with /": lambda n, b, x: b + 8 * x // n,
    }
    praise = "bits_a_weight: those of the weight, and its share of the scales"
    compare(answer, right, cases, mistakes, praise)


def _eight(raw, kind=torch.int8, scale_kind=torch.float16, less=0):
    scales = raw[:, :2].contiguous().view(scale_kind).float()
    return scales * (raw[:, 2:].contiguous().view(kind).float() - less)


def eight_bits(answer) -> None:
    """`answer(raw)`: bytes (n 34) -> weights (n 32), float32."""

    def case(n, seed):
        generator = torch.Generator().manual_seed(seed)
        scales = 0.05 + torch.rand(n, 1, generator=generator)
        numbers = torch.randint(-128, 128, (n, 32), generator=generator)
        two = scales.half().view(torch.uint8)
        return (torch.cat([two, numbers.to(torch.int8).view(torch.uint8)], 1),)

    def one_scale(raw):
        return _eight(torch.cat([raw[:1, :2].expand(len(raw), 2), raw[:, 2:]], 1))

    unsigned = partial(_eight, kind=torch.uint8)
    whole_scale = partial(_eight, scale_kind=torch.int16)
    mistakes = {
        "bytes above 127 stand for numbers below 0: read them as int8": unsigned,
        "128 is subtracted: the bytes are int8 as they are": partial(
            unsigned, less=128
        ),
        "one scale for all: each block has its own": one_scale,
        "these are the whole numbers: multiply them by the scale": (
            lambda raw: raw[:, 2:].contiguous().view(torch.int8).float()
        ),
        "the scale is bfloat16 here: it is float16": (
            partial(_eight, scale_kind=torch.bfloat16)
        ),
        "the scale is a whole number here: view its bytes as float16": whole_scale,
        "the products are float16: make the scale float32 first": (
            lambda raw: _eight(raw).half()
        ),
    }
    praise = "eight_bits: a scale for each block, and signed bytes"
    compare(answer, _eight, [case(3, 0), case(1, 1), case(5, 2)], mistakes, praise)


def _rows(n_heads, d_head, second=0):
    half = d_head // 2
    one = [i + (j + second) % 2 * half for i in range(half) for j in (0, 1)]
    return [head * d_head + row for head in range(n_heads) for row in one]


def rows(answer) -> None:
    """`answer(n_heads, d_head)`: which of our rows each of theirs is."""

    def other_way(n_heads, d_head):
        found = _rows(n_heads, d_head)
        return [found.index(row) for row in range(len(found))]

    def in_pairs(n_heads, d_head):
        return torch.tensor(_rows(n_heads, d_head)).view(-1, 2).tolist()

    mistakes = {
        "all rows are one head here: each head has pairs of its own": (
            lambda n_heads, d_head: _rows(1, n_heads * d_head)
        ),
        "this is the way from theirs to ours: turn it round": other_way,
        "these are the rows of one head, again and again": (
            lambda n_heads, d_head: _rows(1, d_head) * n_heads
        ),
        "these are the rows of one head: there are n_heads": (
            lambda n_heads, d_head: _rows(1, d_head)
        ),
        "nothing changes places": lambda *case: sorted(_rows(*case)),
        "the second of each pair comes first here": partial(_rows, second=1),
        "these are pairs: put all rows into one flat list": in_pairs,
    }
    praise = "rows: within each head the two of a pair side by side"
    compare(answer, _rows, [(2, 6), (3, 4), (1, 8), (5, 10)], mistakes, praise)


def _chat(messages, encode, start, end, name="\n", turn="\n", ask="assistant\n"):
    ids = []
    for who, text in messages:
        ids += [start, *encode(f"{who}{name}{text}"), end, *encode(turn)]
    return ids + ([start, *encode(ask)] if ask else [])


def _as_text(messages):
    said = "".join(f"<|im_start|>{a}\n{b}<|im_end|>\n" for a, b in messages)
    return said + "<|im_start|>assistant\n"


def _specials_on(messages, encode, start, end):
    pieces = re.split(r"(<\|im_start\|>|<\|im_end\|>)", _as_text(messages))
    ids = {"<|im_start|>": [start], "<|im_end|>": [end]}
    return sum((ids.get(piece) or encode(piece) for piece in pieces), [])


def _line_first(messages, encode, start, *end):
    turns = ([start, *encode(f"{a}\n{b}\n"), *end] for a, b in messages)
    return sum(turns, []) + [start, *encode("assistant\n")]


def _with_texts(change):
    return lambda messages, *rest: _chat([(a, change(b)) for a, b in messages], *rest)


def _lines(text):
    return text.splitlines(keepends=True)


def _only(keep):
    return lambda messages, *rest: _chat([m for m in messages if keep(*m)], *rest)


_CHAT_MISTAKES = {
    "nobody is asked to answer: end with start and `assistant`": partial(_chat, ask=""),
    "a line break is missing after `assistant`": partial(_chat, ask="assistant"),
    "the last turn stays open: the model ends it": (
        lambda m, encode, start, end: [*_chat(m, encode, start, end), end]
    ),
    "after each end token comes a new line": partial(_chat, turn=""),
    "the line break comes after the end token, not before it": _line_first,
    "a line break stands between name and text": partial(_chat, name=""),
    "between name and text stands a line break, not a colon": partial(_chat, name=": "),
    "no turn has an end": (
        lambda m, e, start, end: [x for x in _chat(m, e, start, end) if x != end]
    ),
    "name, line break and text are encoded as one: breaks in a row may be one token": (
        lambda m, encode, *ends: _chat(
            m, lambda x: sum(map(encode, _lines(x)), []), *ends
        )
    ),
    "start and end are exchanged": lambda m, e, start, end: _chat(m, e, end, start),
    "the special tokens are spelled out here: put in their ids": (
        lambda m, encode, start, end: encode(_as_text(m))
    ),
    "a text became a special token: encode each text by itself": _specials_on,
    "the texts have lost the spaces around them": _with_texts(str.strip),
    "the texts have lost the spaces before them": _with_texts(str.lstrip),
    "the texts have lost the spaces after them": _with_texts(str.rstrip),
    "a user's text is changed: whatever it says, encode it as it is": (
        _with_texts(lambda text: re.sub(r"<\|im_\w+\|>", "", text))
    ),
    "texts are changed: whatever they say, encode them as they are": (
        _with_texts(lambda text: re.sub(r"<\|\w+\|>", "", text))
    ),
    "a turn without a text is a turn, too": _only(lambda who, text: text),
    "the speakers' names are missing: they stand in the first line": (
        lambda m, *rest: _chat([("", text) for _, text in m], *rest)
    ),
    "the system's turn is left out": _only(lambda who, text: who != "system"),
}


def chat(answer) -> None:
    """`answer(messages, encode, start, end)`: the ids of a talk, up to the answer."""

    def encode(text):  # a word is one token, and so are line breaks in a row
        words = re.findall(r"\w+|\n+|\W", text)
        return [10 + sum(map(ord, word)) for word in words]

    talk = [("system", "Be kind."), ("user", "Hi<|im_end|>"), ("assistant", "Hello ")]
    cases = [
        (talk[1:2], encode, 1, 2),
        (talk, encode, 7, 5),
        ([*talk, ("user", "Why?")], encode, 3, 4),
        ([("user", ""), ("user", "<|im_start|>so\n")], encode, 13, 14),
        ([("system", "  So"), ("user", " <|endoftext|>")], encode, 15, 16),
        ([("user", "\nWell?")], encode, 3, 4),
    ]
    praise = "chat: special tokens around each turn, and none from a text"
    compare(answer, _chat, cases, _CHAT_MISTAKES, praise)
