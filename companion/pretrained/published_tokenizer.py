"""The tokenizer that a GGUF header describes: byte pairs, and special tokens.

Chapter 12.
"""

from collections.abc import Iterable

from ..text.tokenizers import WHITE_SPACE, check_ids, encoding, printable_bytes
from .gguf_header import check_keys, header_value

# The keys that are read. Numbers of special tokens don't change how text is cut.
TOKENIZER_KEYS = {
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.scores",  # of another kind of tokenizer
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.seperator_token_id",  # GGUF's own spelling
    "tokenizer.ggml.mask_token_id",
}
# Those that may say one thing only, which is how the text is cut here.
FIXED_TOKENIZER_KEYS = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.ggml.add_eos_token": False,
    "tokenizer.ggml.add_sep_token": False,
    "tokenizer.ggml.add_space_prefix": False,
    "tokenizer.ggml.remove_extra_whitespaces": False,
}
# Each digit by itself; then as GPT-2. White space before a digit stays whole: ++ takes
# all of it or nothing.
PIECE_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
PIECE_PATTERN += rf"|\s++(?=\p{{N}})|{WHITE_SPACE}(?!\S)|\s+"
UNKNOWN = "\ufffd"  # what a byte that no token stands for is read as


def special_tokens(header: dict) -> dict[str, int]:
    """Returns the special tokens of a header, and their numbers.

    Raises ValueError for a type of token that is cut out of a text in another way.
    """
    key = "tokenizer.ggml.token_type"
    tokens = header["tokenizer.ggml.tokens"]
    token_types = header_value(header, key)
    if len(token_types) != len(tokens):
        raise ValueError(
            f"{key} has {len(token_types)} entries for {len(tokens)} tokens"
        )

    special = {}
    for i, token_type in enumerate(token_types):
        if token_type == 3:
            special[tokens[i]] = i
        elif token_type != 1:
            raise ValueError(
                f"{key} of token {i} is {token_type}; only 1, normal, and 3, special,"
                " are known here"
            )
    return special


def check_merges(header: dict, special: dict[str, int]) -> None:
    """Checks that every longer token is one merge, in the order of its number.

    Only then may a token's number be the rank of its merge. Raises ValueError where it
    is not so.
    """
    numbers = {token: i for i, token in enumerate(header["tokenizer.ggml.tokens"])}
    longer = []
    for token, i in numbers.items():
        if len(token) > 1 and token not in special:
            longer.append(i)

    merges = header_value(header, "tokenizer.ggml.merges")
    merged = [numbers.get("".join(pair.split(" "))) for pair in merges]
    if merged != longer:
        raise ValueError(
            f"tokenizer.ggml.merges has {len(merges)} merges; it must have the longer"
            " tokens, each once, in the order of tokens"
        )


def bytes_of(tokens: list[str], special: dict[str, int]) -> list[bytes]:
    """Returns the bytes that each token stands for, none for a special one.

    Raises ValueError for a token whose characters stand for no bytes.
    """
    to_byte = printable_bytes()
    pieces = []
    for i, token in enumerate(tokens):
        if token in special:
            pieces.append(b"")
        elif set(token) <= to_byte.keys():
            pieces.append(bytes(to_byte[character] for character in token))
        else:
            raise ValueError(
                f"tokenizer.ggml.tokens: {i} is {token!r}; its characters must stand"
                " for bytes, as GPT-2's do"
            )
    return pieces


class PublishedTokenizer:
    """Encodes by the byte pairs of a GGUF header, and knows its special tokens.

    `encode` never makes a special token of a text, whatever it says; `chat` does. An
    answer is over with any of them: `ends` has their numbers, and `end` is the one that
    the model has learned to end with.
    Raises ValueError by its key for what the header lacks, for a vocabulary without the
    bytes of U+FFFD, and for another way to cut text than SmolLM2's. Sennrich et al.
    2016, on bytes.
    """

    def __init__(self, header: dict):
        # What the header must say, and nothing else about how text is cut.
        check_keys(header, ("tokenizer.ggml.",), TOKENIZER_KEYS, FIXED_TOKENIZER_KEYS)
        header_value(header, "tokenizer.ggml.model")
        header_value(header, "tokenizer.ggml.pre")
        tokens = header_value(header, "tokenizer.ggml.tokens")
        self.d_vocab = len(tokens)
        self.end = header_value(header, "tokenizer.ggml.eos_token_id")
        self.template = header.get("tokenizer.chat_template", "")
        self.special = special_tokens(header)
        self.ends = {self.end, *self.special.values()}
        self.pieces = bytes_of(tokens, self.special)
        check_merges(header, self.special)

        # A token's number is the rank of its merge. tiktoken needs all 256 bytes: those
        # that the vocabulary lacks are numbered after it, and `encode` replaces them.
        ranks = {piece: i for i, piece in enumerate(self.pieces) if piece}
        if any(bytes([i]) not in ranks for i in UNKNOWN.encode()):
            raise ValueError(
                "tokenizer.ggml.tokens lacks a byte of U+FFFD, as which others that it"
                " lacks would be read"
            )
        next_rank = self.d_vocab
        for i in range(256):
            byte = bytes([i])
            if byte not in ranks:
                ranks[byte] = next_rank
                next_rank += 1
        self.encoding = encoding(ranks, PIECE_PATTERN)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text; a byte that no token stands for reads as U+FFFD.

        Of a special token's name they are those of its characters.
        """
        unknown = self.encoding.encode_ordinary(UNKNOWN)
        ids = []
        for i in self.encoding.encode_ordinary(text):
            if i < self.d_vocab:
                ids.append(i)
            else:
                ids.extend(unknown)
        return ids

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of token ids, without the special ones.

        Bytes that are no character become U+FFFD. Raises ValueError for another id.
        """
        ids = check_ids(tokens, self.d_vocab)
        return b"".join(self.pieces[i] for i in ids).decode(errors="replace")

    def chat(self, messages: list[tuple[str, str]]) -> list[int]:
        """Returns the ids of a talk, [(role, text), ...], up to the model's answer.

        Raises ValueError where the header's own form of a talk is another.
        """
        for mark in ("<|im_start|>", "<|im_end|>"):
            if mark not in self.special or mark not in self.template:
                raise ValueError(f"tokenizer.chat_template has no special token {mark}")
        start = self.special["<|im_start|>"]
        end = self.special["<|im_end|>"]

        ids = []
        for role, text in messages:
            ids += [start, *self.encode(f"{role}\n{text}")]
            ids += [end, *self.encode("\n")]
        ids += [start, *self.encode("assistant\n")]
        return ids
