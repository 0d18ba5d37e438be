"""Checks of chapter 12."""

import re

import torch

from .compare import Mistake, compare
from .words import describe


def bits_a_weight(answer) -> None:
    """`answer(n, bits, extra)`: bits a weight, scales included."""

    def right(n, bits, extra):
        return bits + 8 * extra / n

    praise = "bits_a_weight: those of the weight, and its share of the scales"
    compare(answer, right, [(32, 4, 4), (64, 8, 2), (16, 3, 6)], {
        "scales are left out: their bytes are shared by the block": lambda n, b, x: b,
        "extra is in bytes, of 8 bits": lambda n, b, x: b + x / n,
        "these are bytes a weight: a byte has 8 bits": lambda n, b, x: b / 8 + x / n,
        "these are the bits of a block: divide by n": lambda n, b, x: n * b + 8 * x,
        "a block shares the scales: divide their bits by n": lambda n, b, x: b + 8 * x,
        "a part of a bit counts: divide with /": lambda n, b, x: b + 8 * x // n,
        "a part of a bit counts: don't round up": lambda n, b, x: b - (-8 * x // n),
        "these are the scales alone: add the weight's bits": lambda n, b, x: 8 * x / n,
        "these are the bytes of a block": lambda n, b, x: n * b / 8 + x,
    }, praise)  # fmt: skip


def eight_bits(answer) -> None:
    """`answer(raw)`: bytes (n 34) -> weights (n 32), float32."""

    def case(n, seed, scales=None):
        generator = torch.Generator().manual_seed(seed)
        if scales is None:
            scales = 0.05 + torch.rand(n, 1, generator=generator)
        numbers = torch.randint(-128, 128, (n, 32), generator=generator)
        two = scales.half().view(torch.uint8)
        return (torch.cat([two, numbers.to(torch.int8).view(torch.uint8)], 1),)

    def right(raw, kind=torch.int8, scale=torch.float16, less=0, of=lambda x: x, p=1):
        scales = of(raw[:, :2]).contiguous().view(scale).float() ** p
        return scales * (raw[:, 2:].contiguous().view(kind).float() - less)

    def without_sign(raw):
        scales = raw[:, :2].contiguous().view(torch.float16).float()
        return scales.abs() * raw[:, 2:].contiguous().view(torch.int8)

    def sign_and_seven_bits(raw):
        scales = raw[:, :2].contiguous().view(torch.float16).float()
        numbers = raw[:, 2:].short()
        return scales * torch.where(numbers > 127, 128 - numbers, numbers)

    # Of either sign, and one so small that float16 keeps it with fewer digits.
    special = torch.tensor([[-0.5], [3e-5], [2.0], [-12.0]])
    praise = "eight_bits: a scale for each block, and signed bytes"
    cases = [case(3, 0), case(1, 1), case(5, 2), case(4, 3, special)]
    compare(answer, right, cases, {
        "a scale may be below 0: keep its sign": without_sign,
        "bytes above 127 are 256 less, and not a sign with 7 bits": sign_and_seven_bits,
        "bytes above 127 are numbers below 0: read int8": {"kind": torch.uint8},
        "128 is subtracted: they are int8 already": {"kind": torch.uint8, "less": 128},
        "255 is subtracted, not 256 above 127": {"kind": torch.uint8, "less": 255},
        "one scale for all: each block has its own":
            {"of": lambda x: x[:1].expand(len(x), 2)},
        "the scale's two bytes are swapped": {"of": lambda x: x.flip(1)},
        "these are the whole numbers: multiply them by the scale":
            lambda raw: raw[:, 2:].contiguous().view(torch.int8).float(),
        "the scale is bfloat16 here: it is float16": {"scale": torch.bfloat16},
        "multiply the numbers by the scale, don't divide them": {"p": -1},
        "the scale stands in front, not at the end": lambda raw: right(raw.roll(2, 1)),
        "the products are float16: make the scale float32 first":
            lambda raw: right(raw).half(),
    }, praise)  # fmt: skip


def rows(answer) -> None:
    """`answer(n_heads, d_head)`: which of our rows each of theirs is."""

    def right(n_heads, d_head):
        one = [row for i in range(d_head // 2) for row in (i, i + d_head // 2)]
        return [head * d_head + row for head in range(n_heads) for row in one]

    cases = [(2, 6), (3, 4), (1, 8), (5, 10)]
    compare(answer, right, cases, {
        "all rows are one head here: each head has pairs of its own":
            lambda h, d: right(1, h * d),
        "this is the way from theirs to ours: turn it round":
            lambda *case: torch.tensor(right(*case)).argsort().tolist(),
        "these are the rows of one head, again and again": lambda h, d: right(1, d) * h,
        "one head's rows: there are n_heads": lambda h, d: right(1, d),
        "these are pairs: put all rows into one flat list":
            lambda *case: torch.tensor(right(*case)).view(-1, 2).tolist(),
        "no row moves here: in ours a pair is half a head apart":
            lambda h, d: [*range(h * d)],
        "the heads are mixed: one head's rows stand together":
            lambda h, d: [k * d + row for i in range(d // 2) for k in range(h)
                          for row in (i, i + d // 2)],
        "in each pair the row of the first half comes first":
            lambda *c: torch.tensor(right(*c)).view(-1, 2).fliplr().flatten().tolist(),
    }, "rows: within each head the two of a pair side by side")  # fmt: skip


def chat(answer) -> None:
    """`answer(messages, encode, start, end)`: the ids of a talk, up to the answer."""

    def right(
        talk, encode, start, end, turn="{}\n{}", after="\n", ask="assistant\n",
        text=lambda text: text, cut=lambda *parts: ["".join(parts)], close=None,
    ):  # fmt: skip
        ids, close = [], [end] if close is None else close
        for who, said in talk:
            pieces = cut(*turn.format(who, text(said)).partition("\n"))
            ids += [start, *sum(map(encode, pieces), []), *close, *encode(after)]
        return ids + ([start, *encode(ask)] if ask else [])

    def as_text(talk):
        said = "".join(f"<|im_start|>{a}\n{b}<|im_end|>\n" for a, b in talk)
        return said + "<|im_start|>assistant\n"

    def specials_on(talk, encode, start, end):
        pieces = re.split(r"(<\|im_start\|>|<\|im_end\|>)", as_text(talk))
        ids = {"<|im_start|>": [start], "<|im_end|>": [end]}
        return sum((ids.get(piece) or encode(piece) for piece in pieces), [])

    def line_break_before_the_end(talk, encode, start, end):
        ids = []
        for who, said in talk:
            ids += [start, *encode(f"{who}\n{said}\n"), end]
        return [*ids, start, *encode("assistant\n")]

    def line_breaks_between_turns(talk, encode, start, end):
        ids = []
        for i, (who, said) in enumerate(talk):
            ids += encode("\n") if i else []
            ids += [start, *encode(f"{who}\n{said}"), end]
        return [*ids, start, *encode("assistant\n")]

    def encode(text):  # a word is one token, with line breaks unless they end the text
        if not isinstance(text, str):
            raise Mistake(f"`encode` takes a text, not {describe(text)}")
        words = re.findall(r"\w+\n+(?=.)|\w+|\n+|\W", text, re.DOTALL)
        return [10 + sum(map(ord, word)) for word in words]

    talk = [("system", "Be kind."), ("user", "Hi<|im_end|>"), ("assistant", "Hello ")]
    cases = [(talk[1:2], encode, 1, 2), (talk, encode, 7, 5)]
    cases += [([*talk, ("user", "\nWell?")], encode, 3, 4)]
    cases += [([("user", ""), ("user", "<|im_start|>so\n")], encode, 13, 14)]
    cases += [([("system", "  So"), ("user", " <|endoftext|>")], encode, 15, 16)]
    compare(answer, right, cases, {
        "nobody is asked to answer: end with start and `assistant`": {"ask": ""},
        "a line break is missing after `assistant`": {"ask": "assistant"},
        "the last turn stays open: the model ends it":
            lambda talk, encode, start, end: [*right(talk, encode, start, end), end],
        "after each end token comes a new line": {"after": ""},
        "a turn's line break comes after its end token, not before it":
            line_break_before_the_end,
        "the last turn ends with a line break too, before the open turn":
            line_breaks_between_turns,
        "a line break stands between name and text": {"turn": "{}{}"},
        "between name and text stands a line break, not a colon": {"turn": "{}: {}"},
        "no turn has an end": {"close": []},
        "name, line break and text are encoded as one, not one after the other":
            {"cut": lambda who, end, text: [who + end, text]},
        "name, line break and text are encoded as one, not the name by itself":
            {"cut": lambda who, end, text: [who, end + text]},
        "start and end are exchanged": lambda m, e, start, end: right(m, e, end, start),
        "the special tokens are spelled out here: put in their ids":
            lambda talk, encode, start, end: encode(as_text(talk)),
        "a text became a special token: encode each text by itself": specials_on,
        "the texts have lost the spaces around them": {"text": str.strip},
        "a user's text is changed: whatever it says, encode it as it is":
            {"text": lambda text: re.sub(r"<\|im_\w+\|>", "", text)},
        "a turn without a text is a turn, too":
            lambda talk, *rest: right([turn for turn in talk if turn[1]], *rest),
        "the speakers' names are missing: they stand in the first line":
            lambda talk, *rest: right([("", text) for _, text in talk], *rest),
    }, "chat: special tokens around each turn, and none from a text")  # fmt: skip
