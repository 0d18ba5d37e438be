"""Tokenizers: from text to integers and back. Chapter 00."""

import json
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import count, pairwise

import tiktoken

from ..artifacts import GPT2_VOCABULARY, find
from ..inputs import check_whole


def check_ids(tokens: Iterable[int], d_vocab: int) -> list[int]:
    """The tokens as integers; ValueError for one outside the vocabulary."""
    ids = [operator.index(token) for token in tokens]
    if outside := [token for token in ids if not 0 <= token < d_vocab]:
        raise ValueError(f"token {outside[0]} is outside 0 to {d_vocab - 1}")
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
        if text == "":
            raise ValueError("text is ''; the vocabulary needs one character or more")
        self.characters = "".join(sorted(set(text)))
        self.index = {character: i for i, character in enumerate(self.characters)}
        self.d_vocab = len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. ValueError for a character outside the vocabulary."""
        if new := [x for x in text if x not in self.index]:
            raise ValueError(f"{new[0]!r} is not one of the {self.d_vocab} characters")
        return [self.index[character] for character in text]

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of `tokens`. ValueError for an id outside the vocabulary."""
        return "".join(self.characters[i] for i in check_ids(tokens, self.d_vocab))


# Words with the space before them, runs of other signs, runs of white space: every
# character falls into one of the three, and no merge crosses their borders.
PIECES = r" ?[A-Za-z']+| ?[^A-Za-z' \n]+|[ \n]+"
# As \s+ with a condition behind it. It counts by the thousand, for tiktoken remembers
# each repetition that the condition may take back, and panics at a million.
WHITE_SPACE = r"(?:\s{1000})*\s+"
GPT2_PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
GPT2_PIECES += rf"|{WHITE_SPACE}(?!\S)|\s+"
END_OF_TEXT = "<|endoftext|>"
N_KNOWN = 50_000  # pieces that are remembered at most,
LONGEST_KNOWN = 50  # each of so many characters at most


def merge(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """`ids` with every `pair`, from left to right, replaced by `new`.

    >>> merge([1, 2, 1, 2, 2], (1, 2), 9)
    [9, 9, 2]
    """
    merged, i = [], 0
    while i < len(ids):
        found = tuple(ids[i : i + 2]) == pair
        merged.append(new if found else ids[i])
        i += 2 if found else 1
    return merged


def train_bpe(text: str, d_vocab: int) -> list[tuple[int, int]]:
    """The `d_vocab` - 256 merges of byte-pair encoding: always the commonest pair next.

    Ties go to the pair with the larger ids. After a merge only the pieces that hold the
    pair are counted anew. A text with too few pairs has fewer. Sennrich et al. 2016.
    """
    check_whole(256, d_vocab=d_vocab)  # one for each byte
    pieces = Counter(re.findall(PIECES, text))
    words, counts = [list(p.encode()) for p in pieces], list(pieces.values())
    pairs, places, merges = Counter(), defaultdict(set), []

    def add(i: int, sign: int) -> None:
        for pair in pairwise(words[i]):
            pairs[pair] += sign * counts[i]
            places[pair].add(i)

    for i in range(len(words)):
        add(i, 1)
    while len(merges) < d_vocab - 256 and pairs:
        n, pair = max((n, pair) for pair, n in pairs.items())
        if n < 1:
            break
        for i in places.pop(pair):
            add(i, -1)
            words[i] = merge(words[i], pair, 256 + len(merges))
            add(i, 1)
        del pairs[pair]
        merges.append(pair)
    return merges


class BPETokenizer:
    """Byte-pair encoding by a list of merges, the earlier ones first.

    Token i < 256 is byte i; token 256 + i is the i-th merge. Any text can be encoded.
    Raises ValueError for a merge that is no pair of earlier tokens, or whose bytes the
    merges before it put together otherwise, as a pair that is given twice.
    """

    def __init__(self, merges: list[tuple[int, int]]):
        self.vocabulary = [bytes([i]) for i in range(256)]
        self.ranks = {}  # of a pair, the new token
        self.known = {}  # of a piece, its tokens
        for pair in map(tuple, merges):  # JSON gives lists
            new = len(self.vocabulary)
            if len(pair) != 2 or not all(token in range(new) for token in pair):
                wanted = f"it must be a pair of the {new} tokens before it"
                raise ValueError(f"merge {new - 256} is {pair}; {wanted}")
            token = self.vocabulary[pair[0]] + self.vocabulary[pair[1]]
            self.vocabulary.append(token)
            self.ranks.setdefault(pair, new)

            # tiktoken knows bytes and no pairs: only one pair may come to these.
            ids = self.apply_merges(token)
            if ids != [new]:
                otherwise = f"its bytes {token} are {ids} by the merges before it"
                raise ValueError(f"merge {new - 256} is {pair}; {otherwise}")
        self.d_vocab = len(self.vocabulary)

    @classmethod
    def train(cls, text: str, d_vocab: int) -> "BPETokenizer":
        """A tokenizer with the merges of `train_bpe(text, d_vocab)`."""
        return cls(train_bpe(text, d_vocab))

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. ValueError for half a character, a lone surrogate."""
        pieces = re.findall(PIECES, text)
        return [token for piece in pieces for token in self.encode_piece(piece)]

    def encode_piece(self, piece: str) -> tuple[int, ...]:
        """Token ids of one piece. Those of short pieces are remembered."""
        ids = self.known.get(piece)
        if ids is None:
            ids = tuple(self.apply_merges(piece.encode()))
            if len(piece) <= LONGEST_KNOWN:
                if len(self.known) >= N_KNOWN:
                    self.known.clear()
                self.known[piece] = ids
        return ids

    def apply_merges(self, piece: bytes) -> list[int]:
        """The bytes of one piece, merged by the pair of the lowest rank first."""
        ids = list(piece)
        while pairs := self.ranks.keys() & pairwise(ids):
            first = min(pairs, key=self.ranks.__getitem__)
            ids = merge(ids, first, self.ranks[first])
        return ids

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of `tokens`; bytes that are no character become U+FFFD."""
        ids = check_ids(tokens, self.d_vocab)
        return b"".join(self.vocabulary[i] for i in ids).decode(errors="replace")

    def to_tiktoken(self) -> tiktoken.Encoding:
        """The same encoding by tiktoken, which is much faster."""
        return encoding({token: i for i, token in enumerate(self.vocabulary)}, PIECES)


def encoding(
    ranks: dict[bytes, int],
    pieces: str,
    special: dict[str, int] | None = None,
    name: str = "companion",
) -> tiktoken.Encoding:
    """tiktoken's encoding by a vocabulary of bytes, in the order of their merges."""
    return tiktoken.Encoding(
        name, pat_str=pieces, mergeable_ranks=ranks, special_tokens=special or {}
    )


def printable_bytes() -> dict[str, int]:
    """The byte for which each character of GPT-2's vocabulary stands.

    Bytes that can be printed stand for themselves, the others for 256 and up.
    """
    others, plain = count(256), [chr(i).isprintable() and i != 32 for i in range(256)]
    return {chr(i if plain[i] else next(others)): i for i in range(256)}


def gpt2_tokenizer() -> tiktoken.Encoding:
    """GPT-2's byte-pair encoding, 50,257 tokens, from the cache. Radford et al. 2019.

    A token's number is also its rank: merges with small numbers come first. Raises
    FileNotFoundError or ValueError where the vocabulary is missing or damaged.
    """
    tokens = json.loads(find(GPT2_VOCABULARY).read_text("utf-8"))
    special, to_byte = {END_OF_TEXT: tokens.pop(END_OF_TEXT)}, printable_bytes()
    ranks = {bytes(to_byte[x] for x in token): i for token, i in tokens.items()}
    return encoding(ranks, GPT2_PIECES, special, "gpt2")
