"""Checks of chapter 00: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...text.tokenizers import BPETokenizer
from .compare import Exercise, Raises, check, identity, ways_of
from .mistakes import Mistake


@check
def decode() -> Exercise:
    """`answer(vocabulary, tokens)`: the text of the tokens, U+FFFD for broken bytes."""

    def joined(vocabulary: dict, tokens: list) -> bytes:
        return b"".join(vocabulary[token] for token in tokens)

    def right(
        vocabulary: dict, tokens: list, encoding: str = "utf-8", errors: str = "replace"
    ) -> str:
        return joined(vocabulary, tokens).decode(encoding, errors)

    way = ways_of(right)

    def one_by_one(vocabulary: dict, tokens: list, errors: str = "replace") -> str:
        return "".join(vocabulary[token].decode(errors=errors) for token in tokens)

    mistakes = {
        "half characters break: join the bytes of all tokens first": one_by_one,
        "half characters vanish: join the bytes of all tokens first": partial(
            one_by_one, errors="ignore"
        ),
        "broken bytes vanish: show them as U+FFFD": way(errors="ignore"),
        "é is shown as broken: it is not ASCII, but UTF-8": way(encoding="ascii"),
        "each byte became a sign of its own: the bytes are UTF-8": way(
            encoding="latin-1"
        ),
        "tokens are no characters: look them up": (
            lambda vocabulary, tokens: "".join(map(chr, tokens))
        ),
        "broken bytes stop it: replace them": way(errors="strict"),
        "half characters stop it: join the bytes of all tokens first": partial(
            one_by_one, errors="strict"
        ),
        "a number above 255 is no byte: look it up": Raises(
            ValueError, "must be in range(0, 256)"
        ),
    }

    two_merges = BPETokenizer([(98, 97), (256, 110)]).vocabulary
    one_merge = BPETokenizer([(98, 97)]).vocabulary
    accent = BPETokenizer([(0xC3, 0xA9)]).vocabulary
    bytes_alone = one_merge[:256]
    cases = [
        (two_merges, [257, 0xC3, 0xA9]),
        (one_merge, [97, 0xC3, 98, 256]),
        (accent, [97, 256]),
        (bytes_alone, list("🦉!".encode())),
        (one_merge, [256, 98, 0xC3]),
        (two_merges, [0xC3, 0xA9, 0xC3]),
        (two_merges, list("é🦉".encode())[:5]),
        (two_merges, [32, 195, 195, 10]),
        (two_merges, [0xEF, 0xBB, 0xBF, 0, 13, 10, *(5 * [257, 110, 256])]),
    ]
    praise = "first all bytes, then the characters"
    return Exercise(right, cases, mistakes, praise)


@check
def windows() -> Exercise:
    """`answer(tokens, context_length)`: consecutive inputs (b t) and targets (b t)."""

    def right(tokens: Tensor, context_length: int) -> tuple[Tensor, Tensor]:
        n = (len(tokens) - 1) // context_length * context_length
        inputs = tokens[:n]
        targets = tokens[1 : n + 1]
        return inputs.view(-1, context_length), targets.view(-1, context_length)

    def for_inputs(make: Callable) -> Callable:
        """The right inputs, and what `make(inputs)` says of the targets."""

        def answer(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
            inputs, _ = right(tokens, n)
            return inputs, make(inputs)

        return answer

    def shifted_within(longer: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of windows that are one token longer."""
        return longer[:, :-1], longer[:, 1:]

    def whole_text_rolled(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens.roll(-1)[:end].view(-1, n)

    def with_all_targets(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens[1:].view(-1, n)

    def without_the_last_target(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens[1 : end + 1].view(-1, n)

    mistakes = {
        "the targets are the inputs: shift them by one": for_inputs(identity),
        "a target is the next token, not input + 1": for_inputs(lambda x: x + 1),
        "the targets are the next window: shift by one token, not by n": (
            lambda x, n: (x.unfold(0, n, n)[:-1], x.unfold(0, n, n)[1:])
        ),
        "targets come after inputs: shift the other way": (
            lambda x, n: right(x, n)[::-1]
        ),
        "the last target of a window is its own first token, not the token after it": (
            for_inputs(lambda x: x.roll(-1, -1))
        ),
        "`roll` brings the first token to the end: nothing follows the last token, so"
        " it is no input": whole_text_rolled,
        "`roll` brings the first token to the end: the last target is the token after"
        " the inputs": for_inputs(lambda x: x.flatten().roll(-1).view_as(x)),
        "each later window's first token is never predicted: windows of n + 1 tokens"
        " overlap by one": lambda x, n: shifted_within(x.unfold(0, n + 1, n + 1)),
        "windows overlap: start each context_length later": (
            lambda x, n: shifted_within(x.unfold(0, n + 1, 1))
        ),
        "a window needs n + 1 tokens: cut 1 more": (
            lambda x, n: shifted_within(x.unfold(0, n, n))
        ),
        "a full window is left out: n + 1 are enough": (
            lambda x, n: shifted_within(x[:-1].unfold(0, n + 1, n))
        ),
        "the rest that fills no window is to be dropped": (
            lambda x, n: (x[:-1].view(-1, n), x[1:].view(-1, n))
        ),
        "cut the targets like the inputs, and leave a token for the last of them": (
            with_all_targets
        ),
        "where the last window is full, its last target is missing: leave a token for"
        " it": without_the_last_target,
    }

    def case(size: int, context_length: int) -> tuple[Tensor, int]:
        return torch.arange(1, 1 + size) * 7 % 31, context_length

    cases = [
        case(13, 4),
        case(12, 3),
        case(22, 5),
        # Tokens that come again, a single window, and windows of one token.
        (torch.arange(17) ** 2 % 5, 4),
        (torch.arange(7), 5),
        (torch.tensor([4, 4, 2, 9]), 1),
    ]
    praise = "no gap and no overlap in what is predicted"
    return Exercise(right, cases, mistakes, praise)


@check
def pieces() -> Exercise:
    """`answer(text)`: whole words, with at most one space in front, and white space."""

    def right(text: str) -> list[str]:
        return re.findall(r" ?[^ \n]+|[ \n]+", text)

    def surplus_spaces_behind(text: str) -> list[str]:
        parts = []
        for spaces, word in re.findall(r"( *)([^ ]+)", text):
            parts += [spaces[:1] + word, spaces[1:]]
        return [part for part in parts if part]

    def without_last_spaces(text: str) -> list[str]:
        return re.findall(r" ?[^ \n]+|[ \n]+(?=[^ \n])", text)

    mistakes = {
        "spaces are lost: str.split() throws them away": str.split,
        "spaces are lost: str.split(' ') throws them away": (
            lambda text: text.split(" ")
        ),
        "a space moved from before its word to after it: surplus spaces first": (
            surplus_spaces_behind
        ),
        "the spaces at the end are lost": without_last_spaces,
        "spaces are lost: only one in front of each word is kept": (
            lambda text: re.findall(r" ?[^ \n]+", text)
        ),
        "line breaks are lost: they are white space, too": (
            lambda text: re.findall(r" ?[^ \n]+| +", text)
        ),
    }

    def judged(answer: Callable, text: str) -> object:
        """`right(text)` in place of any other good cut; white space may be cut."""
        parts = answer(text)
        is_list = isinstance(parts, list | tuple)
        if not is_list or not all(isinstance(part, str) for part in parts):
            return parts

        whole = "".join(parts)
        lost = set(text) - set(whole) - set(" \n\t")
        if lost:
            first = min(lost)
            rule = "" if first.isalnum() else ": the signs stay with the words"
            raise Mistake(f"{first!r} is lost{rule}")

        if whole != text or not text:
            return parts
        for part in parts:
            if not re.fullmatch(r" ?[^ \n]+|\s+", part):
                raise Mistake(f"{part!r} is neither a word nor a run of white space")
        if " ".join(parts).split() != text.split():
            raise Mistake("words are cut: each is to stay whole, with its signs")
        return right(text)

    texts = [
        "Hello World.",
        "  Hello World.",
        "a\n\n  b  ",
        "a   b",
        "But, soft!\nWhat's  'tis -- 1?",
        "ROMEO: café; (so)\t🦉",
        "",
        "   ",
        "\nA\n",
    ]
    cases = [(text,) for text in texts]
    praise = "put together, they are the text"
    return Exercise(right, cases, mistakes, praise, judged)
