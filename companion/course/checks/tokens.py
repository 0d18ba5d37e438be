"""Checks of chapter 00."""

import re
from collections.abc import Callable

import torch
from torch import Tensor

from ...text.tokenizers import BPETokenizer
from .compare import Exercise, Mistake, Raises, check


@check
def decode() -> Exercise:
    """`answer(vocabulary, tokens)`: the text of the tokens, U+FFFD for broken bytes."""

    def right(vocabulary: dict, tokens: list) -> str:
        return joined(vocabulary, tokens).decode(errors="replace")

    def joined(vocabulary: dict, tokens: list) -> bytes:
        return b"".join(vocabulary[token] for token in tokens)

    def one_by_one(vocabulary: dict, tokens: list) -> str:
        return "".join(vocabulary[token].decode(errors="replace") for token in tokens)

    def one_by_one_without_halves(vocabulary: dict, tokens: list) -> str:
        return "".join(vocabulary[token].decode(errors="ignore") for token in tokens)

    def one_by_one_or_stop(vocabulary: dict, tokens: list) -> str:
        return "".join(vocabulary[token].decode() for token in tokens)

    def without_broken_bytes(vocabulary: dict, tokens: list) -> str:
        return joined(vocabulary, tokens).decode(errors="ignore")

    def ascii_alone(vocabulary: dict, tokens: list) -> str:
        return joined(vocabulary, tokens).decode("ascii", errors="replace")

    def each_byte(vocabulary: dict, tokens: list) -> str:
        return joined(vocabulary, tokens).decode("latin-1")

    def tokens_as_characters(vocabulary: dict, tokens: list) -> str:
        return "".join(chr(token) for token in tokens)

    def not_replaced(vocabulary: dict, tokens: list) -> str:
        return joined(vocabulary, tokens).decode()

    mistakes = {
        "half characters break: join the bytes of all tokens first": one_by_one,
        "half characters vanish: join the bytes of all tokens first": (
            one_by_one_without_halves
        ),
        "broken bytes vanish: show them as U+FFFD": without_broken_bytes,
        "é is shown as broken: it is not ASCII, but UTF-8": ascii_alone,
        "each byte became a sign of its own: the bytes are UTF-8": each_byte,
        "tokens are no characters: look them up": tokens_as_characters,
        "broken bytes stop it: replace them": not_replaced,
        "half characters stop it: join the bytes of all tokens first": (
            one_by_one_or_stop
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

    def targets_are_inputs(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        inputs, _ = right(tokens, n)
        return inputs, inputs

    def targets_one_larger(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        inputs, _ = right(tokens, n)
        return inputs, inputs + 1

    def targets_one_window_on(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        whole_windows = tokens.unfold(0, n, n)
        return whole_windows[:-1], whole_windows[1:]

    def targets_first(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        inputs, targets = right(tokens, n)
        return targets, inputs

    def targets_rolled(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        inputs, _ = right(tokens, n)
        return inputs, inputs.roll(-1, -1)

    def whole_text_rolled(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens.roll(-1)[:end].view(-1, n)

    def rolled_within_the_inputs(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        inputs, _ = right(tokens, n)
        return inputs, inputs.flatten().roll(-1).view(-1, n)

    def token_left_out_between(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        longer_windows = tokens.unfold(0, n + 1, n + 1)
        return longer_windows[:, :-1], longer_windows[:, 1:]

    def overlapping(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        longer_windows = tokens.unfold(0, n + 1, 1)
        return longer_windows[:, :-1], longer_windows[:, 1:]

    def one_token_short(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        whole_windows = tokens.unfold(0, n, n)
        return whole_windows[:, :-1], whole_windows[:, 1:]

    def without_last_token(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        longer_windows = tokens[:-1].unfold(0, n + 1, n)
        return longer_windows[:, :-1], longer_windows[:, 1:]

    def with_the_rest(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        return tokens[:-1].view(-1, n), tokens[1:].view(-1, n)

    def with_all_targets(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens[1:].view(-1, n)

    def without_the_last_target(tokens: Tensor, n: int) -> tuple[Tensor, Tensor]:
        end = len(tokens) // n * n
        return tokens[:end].view(-1, n), tokens[1 : end + 1].view(-1, n)

    mistakes = {
        "the targets are the inputs: shift them by one": targets_are_inputs,
        "a target is the next token, not input + 1": targets_one_larger,
        "the targets are the next window: shift by one token, not by n": (
            targets_one_window_on
        ),
        "targets come after inputs: shift the other way": targets_first,
        "the last target of a window is its own first token, not the token after it": (
            targets_rolled
        ),
        "`roll` brings the first token to the end: nothing follows the last token, so"
        " it is no input": whole_text_rolled,
        "`roll` brings the first token to the end: the last target is the token after"
        " the inputs": rolled_within_the_inputs,
        "each later window's first token is never predicted: windows of n + 1 tokens"
        " overlap by one": token_left_out_between,
        "windows overlap: start each context_length later": overlapping,
        "a window needs n + 1 tokens: cut 1 more": one_token_short,
        "a full window is left out: n + 1 are enough": without_last_token,
        "the rest that fills no window is to be dropped": with_the_rest,
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
