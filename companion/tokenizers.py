"""Tokenizers: from text to integers and back. Chapter 00."""

import operator
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from unittest.mock import patch

import tiktoken

from .artifacts import GPT2_MERGES, GPT2_VOCABULARY, VOCABULARY, read
from .inputs import check_text, check_whole, given


def check_ids(tokens: Iterable[int], d_vocab: int) -> list[int]:
    """The tokens as integers; ValueError for one outside the vocabulary."""
    try:
        ids = [operator.index(token) for token in tokens]
    except TypeError:
        raise ValueError(
            f"tokens are {given(tokens)}; they must be integers from 0 to {d_vocab - 1}"
        ) from None
    for token in ids:
        if not 0 <= token < d_vocab:
            raise ValueError(f"token {token} is outside 0 to {d_vocab - 1}")
    return ids


class CharTokenizer:
    """One token a character, over the sorted characters of a text.

    >>> tokenizer = CharTokenizer("hello")
    >>> tokenizer.encode("hole")
    [1, 3, 2, 0]
    >>> tokenizer.decode([1, 0, 2, 2])
    'hell'
    """

    def __init__(self, text: str):
        check_text(text=text)
        if not text:
            raise ValueError("text is ''; the vocabulary needs one character or more")
        self.characters = "".join(sorted(set(text)))
        self.index = {character: i for i, character in enumerate(self.characters)}

    @property
    def d_vocab(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. ValueError for a character outside the vocabulary."""
        check_text(text=text)
        try:
            return [self.index[character] for character in text]
        except KeyError as error:
            raise ValueError(
                f"{error.args[0]!r} is not one of the {self.d_vocab} characters"
            ) from None

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of `tokens`. Raises ValueError for an id outside 0 to d_vocab - 1."""
        return "".join(self.characters[i] for i in check_ids(tokens, self.d_vocab))


# Words with the space before them, runs of other signs, runs of white space: every
# character falls into one of the three, and no merge crosses their borders.
PIECES = r" ?[A-Za-z']+| ?[^A-Za-z' \n]+|[ \n]+"


def merge(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """`ids` with every `pair`, from left to right, replaced by `new`.

    >>> merge([1, 2, 1, 2, 2], (1, 2), 9)
    [9, 9, 2]
    """
    merged, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def train_bpe(text: str, d_vocab: int) -> list[tuple[int, int]]:
    """The `d_vocab` - 256 merges of byte-pair encoding: always the commonest pair next.

    Ties go to the pair with the larger ids. Counts are kept per distinct piece, and
    after a merge only the pieces that hold the pair are counted anew. The list is
    shorter where the text has no more pairs. Gage 1994; Sennrich et al. 2016.
    """
    check_text(text=text)
    check_whole(256, d_vocab=d_vocab)  # one for each byte
    pieces = Counter(re.findall(PIECES, text))
    words, counts = [list(p.encode()) for p in pieces], list(pieces.values())
    pairs, places = Counter(), defaultdict(set)

    def count(i: int, sign: int) -> None:
        for pair in zip(words[i], words[i][1:], strict=False):
            pairs[pair] += sign * counts[i]
            places[pair].add(i)

    for i in range(len(words)):
        count(i, 1)
    merges = []
    while len(merges) < d_vocab - 256 and pairs:
        n, pair = max((n, pair) for pair, n in pairs.items())
        if n < 1:
            break
        for i in places.pop(pair):
            count(i, -1)
            words[i] = merge(words[i], pair, 256 + len(merges))
            count(i, 1)
        del pairs[pair]
        merges.append(pair)
    return merges


class BPETokenizer:
    """Byte-pair encoding by a list of merges, the earlier ones first.

    Token i < 256 is byte i; token 256 + i is the i-th merge. Any text can be encoded.
    Raises ValueError for a merge that is no pair of earlier tokens.
    """

    def __init__(self, merges: list[tuple[int, int]]):
        for i, pair in enumerate(merges):
            known = range(256 + i)
            if not (isinstance(pair, tuple | list) and len(pair) == 2) or not all(
                token in known for token in pair
            ):
                raise ValueError(
                    f"merge {i} is {pair!r}; it must be a pair of the {256 + i} tokens"
                    " that there are before it"
                )
        self.ranks = {pair: 256 + i for i, pair in enumerate(merges)}
        self.vocabulary = [bytes([i]) for i in range(256)]
        for a, b in merges:
            self.vocabulary.append(self.vocabulary[a] + self.vocabulary[b])
        self.known: dict[str, list[int]] = {}

    @classmethod
    def train(cls, text: str, d_vocab: int) -> "BPETokenizer":
        """A tokenizer with the merges of `train_bpe(text, d_vocab)`."""
        return cls(train_bpe(text, d_vocab))

    @property
    def d_vocab(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. ValueError for a lone surrogate, which is not text."""
        check_text(text=text)
        if surrogate := re.search("[\ud800-\udfff]", text):
            raise ValueError(
                f"{surrogate[0]!r} at {surrogate.start()} is half a character"
            )
        return [
            i for piece in re.findall(PIECES, text) for i in self.encode_piece(piece)
        ]

    def encode_piece(self, piece: str) -> list[int]:
        """The merges of one piece, lowest rank first; remembered."""
        if piece not in self.known:
            ids = list(piece.encode())
            while known := [
                p for p in zip(ids, ids[1:], strict=False) if p in self.ranks
            ]:
                first = min(known, key=self.ranks.__getitem__)
                ids = merge(ids, first, self.ranks[first])
            self.known[piece] = ids
        return self.known[piece]

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of `tokens`; bytes that are no character become U+FFFD."""
        ids = check_ids(tokens, self.d_vocab)
        return b"".join(self.vocabulary[i] for i in ids).decode(errors="replace")

    def to_tiktoken(self, name: str = "companion"):
        """The same encoding as a `tiktoken.Encoding`, which is much faster."""
        ranks = {token: i for i, token in enumerate(self.vocabulary)}
        return tiktoken.Encoding(
            name, pat_str=PIECES, mergeable_ranks=ranks, special_tokens={}
        )


def gpt2_tokenizer():
    """GPT-2's byte-pair encoding, 50,257 tokens, as a `tiktoken.Encoding`; offline.

    Raises FileNotFoundError or ValueError where a vocabulary file is missing or damaged
    (tiktoken itself would delete a damaged file and go to the network).
    """
    for artifact in (GPT2_MERGES, GPT2_VOCABULARY):
        read(artifact)
    with patch.dict(os.environ, {"TIKTOKEN_CACHE_DIR": str(VOCABULARY)}):
        return tiktoken.get_encoding("gpt2")
