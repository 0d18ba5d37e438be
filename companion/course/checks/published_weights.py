"""Checks of chapter 12: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .compare import Exercise, check, ways_of
from .mistakes import Mistake
from .words import describe


@check
def eight_bits() -> Exercise:
    """`answer(raw)`: bytes (n 34) -> weights (n 32), float32."""

    def read_scales(raw: Tensor) -> Tensor:
        return raw[:, :2].contiguous().view(torch.float16).float()

    def read_numbers(raw: Tensor) -> Tensor:
        return raw[:, 2:].contiguous().view(torch.int8)

    def right(
        raw: Tensor, scales: Callable = read_scales, numbers: Callable = read_numbers
    ) -> Tensor:
        return scales(raw) * numbers(raw)

    way = ways_of(right)

    def sign_and_seven_bits(raw: Tensor) -> Tensor:
        numbers = raw[:, 2:].short()
        return torch.where(numbers > 127, 128 - numbers, numbers)

    def case(n_blocks: int, seed: int, scales: Tensor | None = None) -> tuple[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        if scales is None:
            scales = 0.05 + torch.rand(n_blocks, 1, generator=generator)
        numbers = torch.randint(-128, 128, (n_blocks, 32), generator=generator)
        scale_bytes = scales.half().view(torch.uint8)
        number_bytes = numbers.to(torch.int8).view(torch.uint8)
        return (torch.cat([scale_bytes, number_bytes], 1),)

    # Of either sign, and one so small that float16 keeps it with fewer digits.
    special = torch.tensor([[-0.5], [3e-5], [2.0], [-12.0]])
    cases = [case(3, 0), case(1, 1), case(5, 2), case(4, 3, special)]
    mistakes = {
        "a scale may be below 0: keep its sign": way(
            scales=lambda raw: read_scales(raw).abs()
        ),
        "bytes above 127 are 256 less, and not a sign with 7 bits": way(
            numbers=sign_and_seven_bits
        ),
        "bytes above 127 are numbers below 0: read int8": way(
            numbers=lambda raw: raw[:, 2:]
        ),
        "128 is subtracted: they are int8 already": way(
            numbers=lambda raw: raw[:, 2:].float() - 128
        ),
        "255 is subtracted, not 256 above 127": way(
            numbers=lambda raw: raw[:, 2:].float() - 255
        ),
        "one scale for all: each block has its own": way(
            scales=lambda raw: read_scales(raw)[0]
        ),
        "the scale's two bytes are swapped": way(
            scales=lambda raw: read_scales(raw[:, :2].flip(1))
        ),
        "these are the whole numbers: multiply them by the scale": way(
            scales=lambda raw: 1.0
        ),
        "the scale is bfloat16 here: it is float16": way(
            scales=lambda raw: raw[:, :2].contiguous().view(torch.bfloat16).float()
        ),
        "multiply the numbers by the scale, don't divide them": (
            lambda raw: read_numbers(raw) / read_scales(raw)
        ),
        "the scale stands in front, not at the end": lambda raw: right(raw.roll(2, 1)),
        "the products are float16: make the scale float32 first": way(
            scales=lambda raw: read_scales(raw).half()
        ),
    }
    praise = "a scale for each block, and signed bytes"
    return Exercise(right, cases, mistakes, praise)


@check
def rows() -> Exercise:
    """`answer(n_heads, d_head)`: which of our rows each of theirs is."""

    def right(
        n_heads: int, d_head: int, pair: Callable = lambda i, half: (i, i + half)
    ) -> list[int]:
        half = d_head // 2
        one_head = [row for i in range(half) for row in pair(i, half)]
        return [head * d_head + row for head in range(n_heads) for row in one_head]

    def other_way_round(n_heads: int, d_head: int) -> list[int]:
        order = right(n_heads, d_head)
        return [order.index(row) for row in range(n_heads * d_head)]

    def in_pairs(n_heads: int, d_head: int) -> list[list[int]]:
        flat = right(n_heads, d_head)
        return [flat[i : i + 2] for i in range(0, len(flat), 2)]

    def heads_mixed(n_heads: int, d_head: int) -> list[int]:
        half = d_head // 2
        mixed = []
        for i in range(half):
            for head in range(n_heads):
                mixed += [head * d_head + i, head * d_head + i + half]
        return mixed

    cases = [(2, 6), (3, 4), (1, 8), (5, 10)]
    mistakes = {
        "all rows are one head here: each head has pairs of its own": (
            lambda n_heads, d_head: right(1, n_heads * d_head)
        ),
        "this is the way from theirs to ours: turn it round": other_way_round,
        "these are the rows of one head, again and again": (
            lambda n_heads, d_head: n_heads * right(1, d_head)
        ),
        "one head's rows: there are n_heads": lambda n_heads, d_head: right(1, d_head),
        "these are pairs: put all rows into one flat list": in_pairs,
        "no row moves here: in ours a pair is half a head apart": (
            lambda n_heads, d_head: [*range(n_heads * d_head)]
        ),
        "the heads are mixed: one head's rows stand together": heads_mixed,
        "in each pair the row of the first half comes first": partial(
            right, pair=lambda i, half: (i + half, i)
        ),
    }
    praise = "within each head the two of a pair side by side"
    return Exercise(right, cases, mistakes, praise)


@check
def chat() -> Exercise:
    """`answer(messages, encode, start, end)`: the ids of a talk, up to the answer."""

    def right(
        messages: list,
        encode: Callable,
        start: int,
        end: int,
        said: Callable = lambda encode, who, text: encode(f"{who}\n{text}"),
        closed: Callable = lambda encode, end: [end, *encode("\n")],
        asked: Callable = lambda encode, start: [start, *encode("assistant\n")],
    ) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *said(encode, who, text), *closed(encode, end)]
        return [*ids, *asked(encode, start)]

    way = ways_of(right)

    def line_breaks_between_turns(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for i, (who, text) in enumerate(messages):
            if i > 0:
                ids += encode("\n")
            ids += [start, *encode(f"{who}\n{text}"), end]
        return [*ids, start, *encode("assistant\n")]

    def changed(messages: list, *rest: object, change: Callable) -> list[int]:
        """Right for messages whose texts are changed."""
        return right([(who, change(text)) for who, text in messages], *rest)

    def as_text(messages: list) -> str:
        """The whole talk, with its special tokens spelled out."""
        talk = ""
        for who, text in messages:
            talk += f"<|im_start|>{who}\n{text}<|im_end|>\n"
        return talk + "<|im_start|>assistant\n"

    def specials_in_texts(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        pieces = re.split(r"(<\|im_start\|>|<\|im_end\|>)", as_text(messages))
        for piece in pieces:
            if piece == "<|im_start|>":
                ids.append(start)
            elif piece == "<|im_end|>":
                ids.append(end)
            else:
                ids += encode(piece)
        return ids

    # A toy's tokens: a word is one, with line breaks unless they end the text.

    def encode(text: str) -> list[int]:
        if not isinstance(text, str):
            raise Mistake(f"`encode` takes a text, not {describe(text)}")
        words = re.findall(r"\w+\n+(?=.)|\w+|\n+|\W", text, re.DOTALL)
        return [10 + sum(map(ord, word)) for word in words]

    talk = [("system", "Be kind."), ("user", "Hi<|im_end|>"), ("assistant", "Hello ")]
    cases = [
        ([("user", "Hi<|im_end|>")], encode, 1, 2),
        (talk, encode, 7, 5),
        ([*talk, ("user", "\nWell?")], encode, 3, 4),
        ([("user", ""), ("user", "<|im_start|>so\n")], encode, 13, 14),
        ([("system", "  So"), ("user", " <|endoftext|>")], encode, 15, 16),
        ([("user", "é\tso\n\n\nyes")], encode, 17, 18),
    ]
    mistakes = {
        # The end of the talk.
        "nobody is asked to answer: end with start and `assistant`": way(
            asked=lambda encode, start: []
        ),
        "a line break is missing after `assistant`": way(
            asked=lambda encode, start: [start, *encode("assistant")]
        ),
        "the last turn stays open: the model ends it": (
            lambda messages, encode, start, end: [
                *right(messages, encode, start, end),
                end,
            ]
        ),
        # Line breaks.
        "after each end token comes a new line": way(closed=lambda encode, end: [end]),
        "a turn's line break comes after its end token, not before it": way(
            said=lambda encode, who, text: encode(f"{who}\n{text}\n"),
            closed=lambda encode, end: [end],
        ),
        "the last turn ends with a line break too, before the open turn": (
            line_breaks_between_turns
        ),
        "a line break stands between name and text": way(
            said=lambda encode, who, text: encode(f"{who}{text}")
        ),
        "between name and text stands a line break, not a colon": way(
            said=lambda encode, who, text: encode(f"{who}: {text}")
        ),
        # Special tokens, and what is encoded together.
        "no turn has an end": way(closed=lambda encode, end: encode("\n")),
        "name, line break and text are encoded as one, not one after the other": (
            way(said=lambda encode, who, text: [*encode(f"{who}\n"), *encode(text)])
        ),
        "name, line break and text are encoded as one, not the name by itself": way(
            said=lambda encode, who, text: [*encode(who), *encode(f"\n{text}")]
        ),
        "start and end are exchanged": (
            lambda messages, encode, start, end: right(messages, encode, end, start)
        ),
        "the special tokens are spelled out here: put in their ids": (
            lambda messages, encode, start, end: encode(as_text(messages))
        ),
        "a text became a special token: encode each text by itself": specials_in_texts,
        # Names and texts.
        "the texts have lost the spaces around them": partial(
            changed, change=str.strip
        ),
        "a user's text is changed: whatever it says, encode it as it is": partial(
            changed, change=lambda text: re.sub(r"<\|im_\w+\|>", "", text)
        ),
        "a turn without a text is a turn, too": (
            lambda messages, *rest: right([x for x in messages if x[1]], *rest)
        ),
        "the speakers' names are missing: they stand in the first line": way(
            said=lambda encode, who, text: encode(f"\n{text}")
        ),
    }
    praise = "special tokens around each turn, and none from a text"
    return Exercise(right, cases, mistakes, praise)
