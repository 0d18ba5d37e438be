"""Tokenizers: from text to integers and back. Chapter 00."""

import json
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

import tiktoken

from ..artifacts import GPT2_VOCABULARY, find
from ..inputs import check_whole


def check_ids(tokens: Iterable[int], d_vocab: int) -> list[int]:
    """Returns the tokens as integers.

    Raises ValueError for one outside the vocabulary.
    """
    ids = [operator.index(token) for token in tokens]
    for token in ids:
        if not 0 <= token < d_vocab:
            raise ValueError(f"token {token} is outside 0 to {d_vocab - 1}")
    return ids


class CharTokenizer:
    """One token a character, over the sorted characters of a text. Chapter 00.

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
        """Returns the token ids of `text`.

        Raises ValueError for a character outside the vocabulary.
        """
        for character in text:
            if character not in self.index:
                raise ValueError(
                    f"{character!r} is not one of the {self.d_vocab} characters"
                )
        return [self.index[character] for character in text]

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of `tokens`.

        Raises ValueError for one outside the vocabulary.
        """
        ids = check_ids(tokens, self.d_vocab)
        return "".join(self.characters[i] for i in ids)


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
    """Returns `ids` with every `pair`, from left to right, replaced by `new`.

    >>> merge([1, 2, 1, 2, 2], (1, 2), 9)
    [9, 9, 2]
    """
    merged = []
    i = 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def train_bpe(text: str, d_vocab: int) -> list[tuple[int, int]]:
    """Returns the `d_vocab` - 256 merges of byte-pair encoding, in order.

    Always the commonest pair is merged next; ties go to the pair with the larger ids.
    After a merge only the pieces that hold the pair are counted anew. A text with too
    few pairs has fewer. Sennrich et al. 2016, algorithm 1.
    """
    check_whole(256, d_vocab=d_vocab)  # one for each byte

    # Each piece is merged once, however often the text has it.
    pieces = Counter(re.findall(PIECES, text))
    words = [list(piece.encode()) for piece in pieces]
    counts = list(pieces.values())

    pair_counts: Counter[tuple[int, int]] = Counter()
    places = defaultdict(set)  # of a pair, the words that hold it

    def count_pairs(i: int, sign: int) -> None:
        for pair in pairwise(words[i]):
            pair_counts[pair] += sign * counts[i]
            places[pair].add(i)

    for i in range(len(words)):
        count_pairs(i, 1)

    merges: list[tuple[int, int]] = []
    while len(merges) < d_vocab - 256 and pair_counts:
        n, pair = max((n, pair) for pair, n in pair_counts.items())
        if n < 1:
            break
        new = 256 + len(merges)
        for i in places.pop(pair):
            count_pairs(i, -1)
            words[i] = merge(words[i], pair, new)
            count_pairs(i, 1)
        del pair_counts[pair]
        merges.append(pair)
    return merges


class BPETokenizer:
    """Byte-pair encoding by a list of merges, the earlier ones first.

    Token i < 256 is byte i; token 256 + i is the i-th merge. Any text can be encoded.
    Raises ValueError for a merge that is no pair of earlier tokens, or whose bytes the
    merges before it put together otherwise, as a pair that is given twice. Sennrich et
    al. 2016; of bytes, Radford et al. 2019, section 2.2.
    """

    def __init__(self, merges: list[tuple[int, int]]):
        self.vocabulary = [bytes([i]) for i in range(256)]
        self.ranks: dict[tuple[int, int], int] = {}  # of a pair, the new token
        self.known: dict[str, tuple[int, ...]] = {}  # of a piece, its tokens
        for pair in merges:
            self.add_merge(tuple(pair))  # JSON gives lists
        self.d_vocab = len(self.vocabulary)

    def add_merge(self, pair: tuple[int, ...]) -> None:
        """Adds the token that a pair becomes. Raises ValueError as the class does."""
        new = len(self.vocabulary)
        if len(pair) != 2 or not all(token in range(new) for token in pair):
            raise ValueError(
                f"merge {new - 256} is {pair}; it must be a pair of the {new} tokens"
                " before it"
            )
        left, right = pair
        token = self.vocabulary[left] + self.vocabulary[right]
        self.vocabulary.append(token)
        self.ranks.setdefault((left, right), new)

        # tiktoken knows bytes and no pairs: only one pair may come to these.
        ids = self.apply_merges(token)
        if ids != [new]:
            raise ValueError(
                f"merge {new - 256} is {pair}; its bytes {token!r} are {ids} by the"
                " merges before it"
            )

    @classmethod
    def train(cls, text: str, d_vocab: int) -> "BPETokenizer":
        """Returns a tokenizer with the merges of `train_bpe(text, d_vocab)`."""
        return cls(train_bpe(text, d_vocab))

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of `text`.

        Raises ValueError for half a character, a lone surrogate.
        """
        pieces = re.findall(PIECES, text)
        return [token for piece in pieces for token in self.encode_piece(piece)]

    def encode_piece(self, piece: str) -> tuple[int, ...]:
        """Returns the token ids of one piece. Those of short pieces are remembered."""
        if piece in self.known:
            return self.known[piece]

        ids = tuple(self.apply_merges(piece.encode()))
        if len(piece) <= LONGEST_KNOWN:
            if len(self.known) >= N_KNOWN:
                self.known.clear()
            self.known[piece] = ids
        return ids

    def apply_merges(self, piece: bytes) -> list[int]:
        """Merges a piece's bytes, the pair of lowest rank first. Returns its tokens."""
        ids = list(piece)
        while True:
            pairs = self.ranks.keys() & pairwise(ids)
            if not pairs:
                return ids
            pair = min(pairs, key=self.ranks.__getitem__)
            ids = merge(ids, pair, self.ranks[pair])

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of `tokens`; bytes that are no character become U+FFFD."""
        ids = check_ids(tokens, self.d_vocab)
        text = b"".join(self.vocabulary[i] for i in ids)
        return text.decode(errors="replace")

    def to_tiktoken(self) -> tiktoken.Encoding:
        """Returns the same encoding by tiktoken, which is much faster."""
        ranks = {token: i for i, token in enumerate(self.vocabulary)}
        return encoding(ranks, PIECES)


def encoding(
    ranks: dict[bytes, int],
    pieces: str,
    special: dict[str, int] | None = None,
    name: str = "companion",
) -> tiktoken.Encoding:
    """Returns tiktoken's encoding by a vocabulary of bytes and their ranks.

    A token's rank is its number, and says when its merge comes. `pieces` is the regular
    expression of what is merged by itself.
    """
    return tiktoken.Encoding(
        name, pat_str=pieces, mergeable_ranks=ranks, special_tokens=special or {}
    )


def printable_bytes() -> dict[str, int]:
    """Returns the byte for which each character of GPT-2's vocabulary stands.

    Bytes that can be printed stand for themselves, the others for 256 and up.
    """
    bytes_by_character = {}
    n_others = 0
    for byte in range(256):
        character = chr(byte)
        if not character.isprintable() or character == " ":
            character = chr(256 + n_others)
            n_others += 1
        bytes_by_character[character] = byte
    return bytes_by_character


def gpt2_tokenizer() -> tiktoken.Encoding:
    """Returns GPT-2's byte-pair encoding, 50,257 tokens, from the cache.

    A token's number is also its rank: merges with small numbers come first. Raises
    FileNotFoundError or ValueError where the vocabulary is missing or damaged. Radford
    et al. 2019.
    """
    tokens = json.loads(find(GPT2_VOCABULARY).read_text("utf-8"))
    special = {END_OF_TEXT: tokens.pop(END_OF_TEXT)}
    to_byte = printable_bytes()
    ranks = {}
    for token, number in tokens.items():
        ranks[bytes(to_byte[character] for character in token)] = number
    return encoding(ranks, GPT2_PIECES, special, name="gpt2")
