"""Right and wrong answers to the exercises of chapter 12."""

import itertools
import re
import struct

import numpy as np
import torch

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_eight(raw):
    weights = []
    for block in raw.tolist():
        scale, *numbers = struct.unpack("<e32b", bytes(block))
        weights.append([scale * x for x in numbers])
    return torch.tensor(weights)


def scaled(raw, numbers):
    return raw[:, :2].contiguous().view(torch.float16).float() * numbers


def right_rows(n_heads, d_head):
    rows = torch.arange(n_heads * d_head).view(n_heads, 2, d_head // 2)
    return rows.transpose(1, 2).flatten().tolist()


@wrong(checks.chat, "are encoded as one")
def in_pieces(messages, encode, start, end):
    ids = []
    for who, text in messages:
        ids += [start, *encode(who + "\n"), *encode(text), end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


def right_chat(messages, encode, start, end):
    ids = []
    for who, text in [*messages, ("assistant", None)]:
        ids.append(start)
        ids.extend(encode(who + "\n" + (text or "")))
        if text is not None:
            ids.append(end)
            ids.extend(encode("\n"))
    return ids


def without(token):
    def answer(messages, encode, start, end):
        left_out = {"start": start, "end": end}[token]
        return [x for x in right_chat(messages, encode, start, end) if x != left_out]

    return answer


def tidied(change):
    def answer(messages, *rest):
        return right_chat([(who, change(text)) for who, text in messages], *rest)

    return answer


def in_turns(form, after):
    def answer(messages, encode, start, end):
        ids = []
        for who, text in messages:
            ids += [start, *encode(form.format(who, text)), end, *encode(after)]
        return [*ids, start, *encode("assistant\n")]

    return answer


def apart(cut):
    def answer(messages, encode, start, end):
        ids = []
        for who, text in messages:
            ids += [start, *sum(map(encode, cut(who, text)), []), end, *encode("\n")]
        return [*ids, start, *encode("assistant"), *encode("\n")]

    return answer


@wrong(checks.eight_bits, "two bytes are swapped")
def swapped(raw):
    scale = raw[:, [1, 0]].contiguous().view(torch.float16).float()
    return scale * raw[:, 2:].view(torch.int8)


@wrong(checks.rows, "the heads are mixed")
def own_order(h, d):
    return [r for i in range(d // 2) for k in range(h) for r in pair(k * d + i, d)]


def pair(row, d):
    return row, row + d // 2


@wrong(checks.chat, "spelled out")
def in_words(messages, encode, start, end):
    said = "".join(f"<|im_start|>{a}\n{b}<|im_end|>\n" for a, b in messages)
    return encode(said + "<|im_start|>assistant\n")


@wrong(checks.chat, "a text became a special token")
def switched_on(messages, encode, start, end):
    ids = right_chat([], encode, start, end)
    for who, text in reversed(messages):
        inside = []
        special = {"<|im_start|>": [start], "<|im_end|>": [end]}
        for part in re.split(r"(<.im_start.>|<.im_end.>)", f"{who}\n{text}"):
            inside += special.get(part) or encode(part)
        ids = [start, *inside, end, *encode("\n"), *ids]
    return ids


def by_hand(raw, sign=True, small=True):
    """The float16 from its bits: sign, exponent and fraction."""
    bits = raw[:, 0].int() + 256 * raw[:, 1].int()
    exponent, fraction = bits >> 10 & 31, (bits & 1023) / 1024
    scale = 2.0 ** (exponent - 15) * (1 + fraction)
    if small:
        scale = scale.where(exponent > 0, 2.0**-14 * fraction)
    if sign:
        scale = scale.where(bits < 32768, -scale)
    numbers = raw[:, 2:].int()
    return scale[:, None] * (numbers - 256 * (numbers > 127))


def eight_by_numpy(raw):
    blocks = raw.numpy()
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return torch.from_numpy(scales * blocks[:, 2:].view(np.int8))


def eight_by_einsum(raw):
    scales, numbers = (part.contiguous() for part in raw.split([2, 32], 1))
    scales, numbers = scales.view(torch.half).float(), numbers.view(torch.int8)
    return torch.einsum("ni,nj->nj", scales, numbers.float())


def eight_flipped(raw):
    """The highest bit is flipped, in a tensor of its own: so 0 to 255 begin at -128."""
    numbers = raw[:, 2:].clone()
    numbers ^= 128
    return scaled(raw, numbers.float() - 128)


def rows_in_slices(n_heads, d_head):
    rows = [0] * (n_heads * d_head)
    for begin in range(0, len(rows), d_head):
        middle, end = begin + d_head // 2, begin + d_head
        rows[begin:end:2] = range(begin, middle)
        rows[begin + 1 : end : 2] = range(middle, end)
    return rows


def recursive_rows(n_heads, d_head):
    if n_heads == 0:
        return []
    begin, half = (n_heads - 1) * d_head, d_head // 2
    last = ((begin + i, begin + i + half) for i in range(half))
    return [*recursive_rows(n_heads - 1, d_head), *itertools.chain(*last)]


def lazy_chat(messages, encode, start, end):
    for who, text in messages:
        yield start
        yield from encode("\n".join((who, text)))
        yield end
        yield from encode("\n")
    yield start
    yield from encode("assistant\n")


def recursive_chat(messages, encode, start, end):
    if not messages:
        return [start] + encode("assistant\n")
    turn = [start] + encode("\n".join(messages[0])) + [end] + encode("\n")
    return turn + recursive_chat(messages[1:], encode, start, end)


def broken_lines(before, between):
    """Turns with a line break before their end, or only between them."""

    def answer(messages, encode, start, end):
        turns = [[start, *encode(f"{a}\n{b}{before}"), end] for a, b in messages]
        ids = list(turns[0])
        for turn in turns[1:]:
            ids += [*(encode(between) if between else []), *turn]
        return [*ids, start, *encode("assistant\n")]

    return answer


RIGHT = [
    (checks.eight_bits, by_hand),
    (checks.eight_bits, eight_by_numpy),
    (checks.eight_bits, eight_by_einsum),
    (checks.eight_bits, eight_flipped),
    (checks.rows, rows_in_slices),
    (checks.rows, recursive_rows),
    (
        checks.rows,
        lambda h, d: map(
            lambda r: r // d * d + r % d // 2 + r % 2 * (d // 2), range(h * d)
        ),
    ),
    (
        checks.rows,
        lambda h, d: np.arange(h * d).reshape(h, 2, d // 2).swapaxes(1, 2).ravel(),
    ),
    (checks.chat, lazy_chat),
    (checks.chat, recursive_chat),
    (checks.chat, lambda *case: np.array(right_chat(*case))),
    (checks.chat, lambda *case: itertools.chain(right_chat(*case))),
    (checks.eight_bits, right_eight),
    (checks.eight_bits, lambda raw: scaled(raw, raw[:, 2:].to(torch.int8))),
    (checks.rows, right_rows),
    (checks.rows, lambda *case: torch.tensor(right_rows(*case))),
    (checks.rows, lambda *case: (row for row in right_rows(*case))),
    (checks.chat, right_chat),
    (checks.chat, lambda *case: tuple(right_chat(*case))),
]
WRONG = [
    *wrong,
    (checks.eight_bits, lambda raw: by_hand(raw, sign=False), "keep its sign"),
    (
        checks.eight_bits,
        lambda raw: by_hand(raw, small=False),
        r"raw \(4, 34\): at \[1",
    ),
    (
        checks.eight_bits,
        lambda raw: scaled(raw, (x := raw[:, 2:].int()) - (2 * x - 128) * (x > 127)),
        "and not a sign with 7 bits",
    ),
    (
        checks.chat,
        lambda m, encode, s, t: [s, *encode([f"{a}\n{b}" for a, b in m])],
        "`encode` takes a text, not \\['user",
    ),
    (checks.chat, lambda m, encode, s, t: encode(None), "takes a text, not None"),
    (checks.chat, broken_lines("\n", ""), "after its end token, not before"),
    (checks.chat, broken_lines("", "\n"), "the last turn ends with a line break too"),
    (checks.eight_bits, lambda raw: scaled(raw, raw[:, 2:].float() - 255), "255 is"),
    (
        checks.chat,
        lambda m, e, s, t: right_chat(
            m, lambda text: sum(map(e, text.partition("\n")), []), s, t
        ),
        "are encoded as one",
    ),
    (
        checks.eight_bits,
        lambda raw: raw[:, 2:].view(torch.int8) / scaled(raw, 1),
        "don't divide",
    ),
    (checks.eight_bits, lambda raw: right_eight(raw.roll(2, 1)), "not at the end"),
    (checks.rows, lambda h, d: range(h * d), "no row moves here"),
    (
        checks.rows,
        lambda h, d: torch.tensor(right_rows(h, d)).view(-1, 2).fliplr().flatten(),
        "the first half comes first",
    ),
    (checks.chat, apart(lambda who, text: (who, "\n" + text)), "the name by itself"),
    (checks.chat, apart(lambda who, text: (who, "\n", text)), "one after the other"),
    (
        checks.eight_bits,
        lambda raw: scaled(raw, raw[:, 2:].float()),
        "bytes above 127 are numbers below 0: read",
    ),
    (checks.eight_bits, lambda raw: scaled(raw, raw[:, 2:].float() - 128), "128 is"),
    (checks.eight_bits, lambda raw: right_eight(raw).half(), "are float16"),
    (
        checks.eight_bits,
        lambda raw: raw[:, 2:].contiguous().view(torch.int8).float(),
        "multiply them",
    ),
    (
        checks.eight_bits,
        lambda raw: scaled(raw[:1], raw[:, 2:].contiguous().view(torch.int8)),
        "one scale for all",
    ),
    (checks.eight_bits, lambda raw: right_eight(raw).flatten(), r"shape is \(96,\)"),
    (checks.rows, lambda h, d: right_rows(1, h * d), "a head has|each head has"),
    (checks.rows, lambda h, d: right_rows(1, d) * h, "again and again"),
    (checks.rows, lambda h, d: right_rows(1, d), "there are n_heads"),
    (
        checks.rows,
        lambda h, d: torch.tensor(right_rows(h, d)).argsort().tolist(),
        "turn it round",
    ),
    (checks.rows, lambda h, d: right_rows(h, d)[::-1], "wanted 0"),
    (checks.rows, lambda h, d: torch.tensor(right_rows(h, d)).view(-1, 2), "pairs"),
    (
        checks.chat,
        lambda m, *rest: right_chat([(a, b.strip()) for a, b in m], *rest),
        "lost the spaces",
    ),
    (
        checks.chat,
        lambda m, e, s, t: right_chat(m, lambda text: [e(x)[0] for x in text], s, t),
        "wanted",
    ),
    (checks.chat, tidied(lambda text: re.sub(r"\n{2,}", "\n", text)), "wanted"),
    (checks.chat, tidied(lambda text: text.encode("ascii", "ignore").decode()), "want"),
    (checks.chat, tidied(str.expandtabs), "wanted"),
    (checks.chat, without("end"), "no turn has an end"),
    (checks.chat, lambda m, e, s, t: right_chat(m, e, s, t)[:-3], "nobody is asked"),
    (checks.chat, lambda m, e, s, t: right_chat(m, e, t, s), "exchanged"),
    (
        checks.chat,
        lambda m, e, s, t: right_chat([("", x) for _, x in m], e, s, t),
        "names",
    ),
    (checks.chat, without("start"), "wanted"),
    (
        checks.chat,
        lambda m, *rest: right_chat(
            [(a, re.sub(r"<.im_(start|end).>", "", b)) for a, b in m], *rest
        ),
        "whatever it says",
    ),
    (
        checks.chat,
        lambda m, *rest: right_chat([(a, b) for a, b in m if b], *rest),
        "is a turn, too",
    ),
    (
        checks.chat,
        lambda m, *rest: right_chat([(a, b.rstrip("\n")) for a, b in m], *rest),
        "wanted",
    ),
    (checks.chat, lambda m, e, s, t: [*right_chat(m, e, s, t), t], "stays open"),
    (checks.chat, lambda *case: right_chat(*case)[:-1], "missing after `assistant`"),
    (checks.chat, in_turns("{}: {}", "\n"), "not a colon"),
    (checks.chat, in_turns("{}{}", "\n"), "stands between name and text"),
    (checks.chat, in_turns("{}\n{}", ""), "after each end token"),
]
