"""Checks of chapter 12."""

import functools
import itertools
import re

import torch

from .compare import compare


def bits_a_weight(answer) -> None:
    """`answer(n, bits, extra)`: bits a weight, scales included."""

    def right(n, bits, extra, share=8.0):
        return bits + share * extra / n

    compare(
        answer,
        right,
        [(32, 4, 4), (64, 8, 2), (16, 3, 6)],
        {
            "scales are left out: their bytes are shared by the block": (
                functools.partial(right, share=0.0)
            ),
            "extra is in bytes, of 8 bits": functools.partial(right, share=1.0),
            "these are bytes a weight: a byte has 8 bits": (
                lambda *case: right(*case) / 8
            ),
            "these are the bits of a block: divide by n": (
                lambda n, bits, extra: n * bits + 8 * extra
            ),
            "these are the bytes of a block": (
                lambda n, bits, extra: n * bits / 8 + extra
            ),
        },
        "bits_a_weight: those of the weight, and its share of the scales",
    )


def eight_bits(answer) -> None:
    """`answer(raw)`: bytes (n 34) -> weights (n 32), float32."""

    def case(n, seed):
        generator = torch.Generator().manual_seed(seed)
        scales = 0.05 + torch.rand(n, 1, generator=generator)
        numbers = torch.randint(-128, 128, (n, 32), generator=generator)
        two = scales.half().view(torch.uint8)
        return (torch.cat([two, numbers.to(torch.int8).view(torch.uint8)], 1),)

    def right(raw, kind=torch.int8, d=None):
        if d is None:
            d = raw[:, :2].contiguous().view(torch.float16).float()
        return d * raw[:, 2:].contiguous().view(kind)

    def one_scale(raw):
        return right(raw, d=raw[:1, :2].contiguous().view(torch.float16).float())

    compare(
        answer,
        right,
        [case(3, 0), case(1, 1), case(5, 2)],
        {
            "bytes above 127 stand for numbers below 0: read them as int8": (
                lambda raw: right(raw, torch.uint8)
            ),
            "128 is subtracted: the bytes are int8 as they are": (
                lambda raw: (
                    raw[:, :2].contiguous().view(torch.float16).float()
                    * (raw[:, 2:].float() - 128)
                )
            ),
            "one scale for all: each block has its own": one_scale,
            "these are the whole numbers: multiply them by the scale": (
                lambda raw: right(raw, d=1.0)
            ),
            "the scale is bfloat16 here: it is float16": (
                lambda raw: right(
                    raw, d=raw[:, :2].contiguous().view(torch.bfloat16).float()
                )
            ),
            "the products are float16: make the scale float32 first": (
                lambda raw: right(raw).half()
            ),
        },
        "eight_bits: a scale for each block, and signed bytes",
    )


def rows(answer) -> None:
    """`answer(n_heads, d_head)`: which of our rows each of theirs is."""

    def right(n_heads, d_head):
        one = [row for i in range(d_head // 2) for row in (i, i + d_head // 2)]
        return [head * d_head + row for head in range(n_heads) for row in one]

    def other_way(n_heads, d_head):
        found = right(n_heads, d_head)
        return [found.index(row) for row in range(len(found))]

    compare(
        answer,
        right,
        [(2, 6), (3, 4), (1, 8), (5, 10)],
        {
            "all rows are one head here: each head has pairs of its own": (
                lambda n_heads, d_head: right(1, n_heads * d_head)
            ),
            "this is the way from theirs to ours: turn it round": other_way,
            "these are the rows of one head, again and again": (
                lambda n_heads, d_head: right(1, d_head) * n_heads
            ),
            "these are the rows of one head: there are n_heads": (
                lambda n_heads, d_head: right(1, d_head)
            ),
            "nothing changes places": lambda n_heads, d_head: [
                *range(n_heads * d_head)
            ],
            "the second of each pair comes first here": (
                lambda n_heads, d_head: [
                    head * d_head + (row + d_head // 2) % d_head
                    for head in range(n_heads)
                    for row in right(1, d_head)
                ]
            ),
        },
        "rows: within each head the two of a pair side by side",
    )


def chat(answer) -> None:
    """`answer(messages, encode, start, end)`: the ids of a talk, up to the answer."""

    def encode(text):  # a word is one token
        words = re.findall(r"\w+|\W", text)
        return [10 + sum(map(ord, word)) for word in words]

    def right(messages, encode, start, end, line=True, ask=True, stop=True):
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}\n{text}"), *[end] * stop]
            ids += encode("\n") * line
        return ids + [start, *encode("assistant\n")] * ask

    def other(**changed):
        return functools.partial(right, **changed)

    def as_text(messages, encode, start, end):
        said = "".join(f"<|im_start|>{a}\n{b}<|im_end|>\n" for a, b in messages)
        return encode(said + "<|im_start|>assistant\n")

    def made_special(messages, encode, start, end):
        said = "".join(f"<|im_start|>{a}\n{b}<|im_end|>\n" for a, b in messages)
        pieces = re.split(r"(<\|im_start\|>|<\|im_end\|>)", said)
        ids = {"<|im_start|>": [start], "<|im_end|>": [end]}
        found = [ids.get(piece) or encode(piece) for piece in pieces]
        return [*itertools.chain(*found), start, *encode("assistant\n")]

    def stripped(messages, *rest):
        return right([(who, text.strip()) for who, text in messages], *rest)

    def stripped_left(messages, *rest):
        return right([(who, text.lstrip()) for who, text in messages], *rest)

    def cleaned(pattern, messages, *rest):
        return right([(w, re.sub(pattern, "", x)) for w, x in messages], *rest)

    def no_names(messages, encode, start, end):
        return right([("", text) for _, text in messages], encode, start, end)

    talk = [("system", "Be kind."), ("user", "Hi<|im_end|>"), ("assistant", "Hello ")]
    compare(
        answer,
        right,
        [
            (talk[1:2], encode, 1, 2),
            (talk, encode, 7, 5),
            ([*talk, ("user", "Why?")], encode, 3, 4),
            ([("user", ""), ("user", "<|im_start|>so\n")], encode, 13, 14),
            ([("system", "  So"), ("user", " <|endoftext|>")], encode, 15, 16),
        ],
        {
            "nobody is asked to answer: end with start and `assistant`": other(
                ask=False
            ),
            "after each end token comes a new line": other(line=False),
            "no turn has an end": other(stop=False),
            "start and end are exchanged": (
                lambda messages, encode, start, end: right(messages, encode, end, start)
            ),
            "the special tokens are spelled out here: put in their ids": as_text,
            "a text became a special token: encode each text by itself": made_special,
            "the texts have lost the spaces around them": stripped,
            "the texts have lost the spaces before them": stripped_left,
            "a user's text is changed: whatever it says, encode it as it is": (
                functools.partial(cleaned, r"<\|im_\w+\|>")
            ),
            "texts are changed: whatever they say, encode them as they are": (
                functools.partial(cleaned, r"<\|\w+\|>")
            ),
            "a turn without a text is a turn, too": (
                lambda messages, *rest: right([m for m in messages if m[1]], *rest)
            ),
            "the speakers' names are missing: they stand in the first line": no_names,
            "the system's turn is left out": (
                lambda messages, *rest: right(
                    [m for m in messages if m[0] != "system"], *rest
                )
            ),
        },
        "chat: special tokens around each turn, and none from a text",
    )
