"""Checks of chapter 12."""

import re
from collections.abc import Callable

import torch
from torch import Tensor

from .compare import Exercise, Mistake, check
from .words import describe


@check
def bits_a_weight() -> Exercise:
    """`answer(n, bits, extra)`: bits a weight, scales included."""

    def right(n: int, bits: int, extra: int) -> float:
        return bits + 8 * extra / n

    def no_scales(n: int, bits: int, extra: int) -> float:
        return bits

    def extra_as_bits(n: int, bits: int, extra: int) -> float:
        return bits + extra / n

    def bytes_a_weight(n: int, bits: int, extra: int) -> float:
        return bits / 8 + extra / n

    def bits_of_a_block(n: int, bits: int, extra: int) -> float:
        return n * bits + 8 * extra

    def scales_of_a_block(n: int, bits: int, extra: int) -> float:
        return bits + 8 * extra

    def rounded_down(n: int, bits: int, extra: int) -> float:
        return bits + 8 * extra // n

    def rounded_up(n: int, bits: int, extra: int) -> float:
        return bits - (-8 * extra // n)

    def scales_alone(n: int, bits: int, extra: int) -> float:
        return 8 * extra / n

    def bytes_of_a_block(n: int, bits: int, extra: int) -> float:
        return n * bits / 8 + extra

    cases = [(32, 4, 4), (64, 8, 2), (16, 3, 6)]
    mistakes = {
        "scales are left out: their bytes are shared by the block": no_scales,
        "extra is in bytes, of 8 bits": extra_as_bits,
        "these are bytes a weight: a byte has 8 bits": bytes_a_weight,
        "these are the bits of a block: divide by n": bits_of_a_block,
        "a block shares the scales: divide their bits by n": scales_of_a_block,
        "a part of a bit counts: divide with /": rounded_down,
        "a part of a bit counts: don't round up": rounded_up,
        "these are the scales alone: add the weight's bits": scales_alone,
        "these are the bytes of a block": bytes_of_a_block,
    }
    praise = "those of the weight, and its share of the scales"
    return Exercise(right, cases, mistakes, praise)


@check
def eight_bits() -> Exercise:
    """`answer(raw)`: bytes (n 34) -> weights (n 32), float32."""

    def right(raw: Tensor) -> Tensor:
        scales = raw[:, :2].contiguous().view(torch.float16).float()
        return scales * raw[:, 2:].contiguous().view(torch.int8)

    # What the mistakes share: both parts of a block, each read as it should be.

    def read_scales(raw: Tensor) -> Tensor:
        return raw[:, :2].contiguous().view(torch.float16).float()

    def read_numbers(raw: Tensor) -> Tensor:
        return raw[:, 2:].contiguous().view(torch.int8).float()

    def scales_without_sign(raw: Tensor) -> Tensor:
        return read_scales(raw).abs() * read_numbers(raw)

    def sign_and_seven_bits(raw: Tensor) -> Tensor:
        numbers = raw[:, 2:].short()
        return read_scales(raw) * torch.where(numbers > 127, 128 - numbers, numbers)

    def unsigned(raw: Tensor) -> Tensor:
        return read_scales(raw) * raw[:, 2:].float()

    def minus_128(raw: Tensor) -> Tensor:
        return read_scales(raw) * (raw[:, 2:].float() - 128)

    def minus_255(raw: Tensor) -> Tensor:
        return read_scales(raw) * (raw[:, 2:].float() - 255)

    def one_scale(raw: Tensor) -> Tensor:
        return read_scales(raw)[0] * read_numbers(raw)

    def bytes_swapped(raw: Tensor) -> Tensor:
        swapped = raw[:, :2].flip(1)
        return read_scales(swapped) * read_numbers(raw)

    def not_multiplied(raw: Tensor) -> Tensor:
        return read_numbers(raw)

    def bfloat16_scales(raw: Tensor) -> Tensor:
        scales = raw[:, :2].contiguous().view(torch.bfloat16).float()
        return scales * read_numbers(raw)

    def divided(raw: Tensor) -> Tensor:
        return read_numbers(raw) / read_scales(raw)

    def scale_at_the_end(raw: Tensor) -> Tensor:
        scales = raw[:, -2:].contiguous().view(torch.float16).float()
        return scales * raw[:, :-2].contiguous().view(torch.int8)

    def float16_products(raw: Tensor) -> Tensor:
        scales = raw[:, :2].contiguous().view(torch.float16)
        return scales * raw[:, 2:].contiguous().view(torch.int8)

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
        "a scale may be below 0: keep its sign": scales_without_sign,
        "bytes above 127 are 256 less, and not a sign with 7 bits": sign_and_seven_bits,
        "bytes above 127 are numbers below 0: read int8": unsigned,
        "128 is subtracted: they are int8 already": minus_128,
        "255 is subtracted, not 256 above 127": minus_255,
        "one scale for all: each block has its own": one_scale,
        "the scale's two bytes are swapped": bytes_swapped,
        "these are the whole numbers: multiply them by the scale": not_multiplied,
        "the scale is bfloat16 here: it is float16": bfloat16_scales,
        "multiply the numbers by the scale, don't divide them": divided,
        "the scale stands in front, not at the end": scale_at_the_end,
        "the products are float16: make the scale float32 first": float16_products,
    }
    praise = "a scale for each block, and signed bytes"
    return Exercise(right, cases, mistakes, praise)


@check
def rows() -> Exercise:
    """`answer(n_heads, d_head)`: which of our rows each of theirs is."""

    def right(n_heads: int, d_head: int) -> list[int]:
        half = d_head // 2
        one_head = [row for i in range(half) for row in (i, i + half)]
        return [head * d_head + row for head in range(n_heads) for row in one_head]

    def all_rows_as_one_head(n_heads: int, d_head: int) -> list[int]:
        return right(1, n_heads * d_head)

    def other_way_round(n_heads: int, d_head: int) -> list[int]:
        order = right(n_heads, d_head)
        return [order.index(row) for row in range(n_heads * d_head)]

    def one_head_repeated(n_heads: int, d_head: int) -> list[int]:
        return right(1, d_head) * n_heads

    def one_head_alone(n_heads: int, d_head: int) -> list[int]:
        return right(1, d_head)

    def in_pairs(n_heads: int, d_head: int) -> list[list[int]]:
        flat = right(n_heads, d_head)
        return [flat[i : i + 2] for i in range(0, len(flat), 2)]

    def not_moved(n_heads: int, d_head: int) -> list[int]:
        return list(range(n_heads * d_head))

    def heads_mixed(n_heads: int, d_head: int) -> list[int]:
        half = d_head // 2
        mixed = []
        for i in range(half):
            for head in range(n_heads):
                mixed += [head * d_head + i, head * d_head + i + half]
        return mixed

    def second_half_first(n_heads: int, d_head: int) -> list[int]:
        half = d_head // 2
        one_head = [row for i in range(half) for row in (i + half, i)]
        return [head * d_head + row for head in range(n_heads) for row in one_head]

    cases = [(2, 6), (3, 4), (1, 8), (5, 10)]
    mistakes = {
        "all rows are one head here: each head has pairs of its own": (
            all_rows_as_one_head
        ),
        "this is the way from theirs to ours: turn it round": other_way_round,
        "these are the rows of one head, again and again": one_head_repeated,
        "one head's rows: there are n_heads": one_head_alone,
        "these are pairs: put all rows into one flat list": in_pairs,
        "no row moves here: in ours a pair is half a head apart": not_moved,
        "the heads are mixed: one head's rows stand together": heads_mixed,
        "in each pair the row of the first half comes first": second_half_first,
    }
    praise = "within each head the two of a pair side by side"
    return Exercise(right, cases, mistakes, praise)


@check
def chat() -> Exercise:
    """`answer(messages, encode, start, end)`: the ids of a talk, up to the answer."""

    def right(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}\n{text}"), end, *encode("\n")]
        return [*ids, start, *encode("assistant\n")]

    # Mistakes at the end of the talk.

    def turns(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        """The turns that are there, without the one that is asked for."""
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}\n{text}"), end, *encode("\n")]
        return ids

    def open_turn_without_a_line_break(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = turns(messages, encode, start, end)
        return [*ids, start, *encode("assistant")]

    def closed(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        return [*right(messages, encode, start, end), end]

    # Mistakes with line breaks.

    def no_line_break_after_the_end(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}\n{text}"), end]
        return [*ids, start, *encode("assistant\n")]

    def line_break_before_the_end(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}\n{text}\n"), end]
        return [*ids, start, *encode("assistant\n")]

    def line_breaks_between_turns(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for i, (who, text) in enumerate(messages):
            if i > 0:
                ids += encode("\n")
            ids += [start, *encode(f"{who}\n{text}"), end]
        return [*ids, start, *encode("assistant\n")]

    def no_line_break_after_the_name(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}{text}"), end, *encode("\n")]
        return [*ids, start, *encode("assistant\n")]

    def colon_after_the_name(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}: {text}"), end, *encode("\n")]
        return [*ids, start, *encode("assistant\n")]

    # Mistakes with special tokens, and with what is encoded together.

    def no_end(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}\n{text}"), *encode("\n")]
        return [*ids, start, *encode("assistant\n")]

    def text_by_itself(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(f"{who}\n"), *encode(text), end, *encode("\n")]
        return [*ids, start, *encode("assistant\n")]

    def name_by_itself(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        ids = []
        for who, text in messages:
            ids += [start, *encode(who), *encode(f"\n{text}"), end, *encode("\n")]
        return [*ids, start, *encode("assistant\n")]

    def exchanged(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        return right(messages, encode, end, start)

    def as_text(messages: list) -> str:
        """The whole talk, with its special tokens spelled out."""
        talk = ""
        for who, text in messages:
            talk += f"<|im_start|>{who}\n{text}<|im_end|>\n"
        return talk + "<|im_start|>assistant\n"

    def spelled_out(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        return encode(as_text(messages))

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

    # Mistakes with names and texts.

    def stripped(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        changed = [(who, text.strip()) for who, text in messages]
        return right(changed, encode, start, end)

    def cleaned(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        special = r"<\|im_\w+\|>"
        changed = [(who, re.sub(special, "", text)) for who, text in messages]
        return right(changed, encode, start, end)

    def empty_turns_dropped(
        messages: list, encode: Callable, start: int, end: int
    ) -> list[int]:
        changed = [(who, text) for who, text in messages if text]
        return right(changed, encode, start, end)

    def no_names(messages: list, encode: Callable, start: int, end: int) -> list[int]:
        changed = [("", text) for _, text in messages]
        return right(changed, encode, start, end)

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
    ]
    mistakes = {
        "nobody is asked to answer: end with start and `assistant`": turns,
        "a line break is missing after `assistant`": open_turn_without_a_line_break,
        "the last turn stays open: the model ends it": closed,
        "after each end token comes a new line": no_line_break_after_the_end,
        "a turn's line break comes after its end token, not before it": (
            line_break_before_the_end
        ),
        "the last turn ends with a line break too, before the open turn": (
            line_breaks_between_turns
        ),
        "a line break stands between name and text": no_line_break_after_the_name,
        "between name and text stands a line break, not a colon": colon_after_the_name,
        "no turn has an end": no_end,
        "name, line break and text are encoded as one, not one after the other": (
            text_by_itself
        ),
        "name, line break and text are encoded as one, not the name by itself": (
            name_by_itself
        ),
        "start and end are exchanged": exchanged,
        "the special tokens are spelled out here: put in their ids": spelled_out,
        "a text became a special token: encode each text by itself": specials_in_texts,
        "the texts have lost the spaces around them": stripped,
        "a user's text is changed: whatever it says, encode it as it is": cleaned,
        "a turn without a text is a turn, too": empty_turns_dropped,
        "the speakers' names are missing: they stand in the first line": no_names,
    }
    praise = "special tokens around each turn, and none from a text"
    return Exercise(right, cases, mistakes, praise)
