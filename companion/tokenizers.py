"""Tokenizers: from text to integers and back. Chapter 00."""

from collections.abc import Iterable

from .data import GPT2_MERGES, GPT2_VOCABULARY, read


class CharTokenizer:
    """One token a character, over the sorted characters of a text.

    >>> tokenizer = CharTokenizer("hello")
    >>> tokenizer.encode("hole")
    [1, 3, 2, 0]
    >>> tokenizer.decode([1, 0, 2, 2])
    'hell'
    """

    def __init__(self, text: str):
        self.characters = "".join(sorted(set(text)))
        self.index = {character: i for i, character in enumerate(self.characters)}

    @property
    def d_vocab(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. ValueError for a character outside the vocabulary."""
        try:
            return [self.index[character] for character in text]
        except KeyError as error:
            raise ValueError(
                f"{error.args[0]!r} is not one of the {self.d_vocab} characters"
            ) from None

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of `tokens`. Raises ValueError for an id outside 0 to d_vocab - 1."""
        ids = [int(token) for token in tokens]
        for token in ids:
            if not 0 <= token < self.d_vocab:
                raise ValueError(f"token {token} is outside 0 to {self.d_vocab - 1}")
        return "".join(self.characters[token] for token in ids)


def gpt2_tokenizer():
    """GPT-2's byte-pair encoding, 50,257 tokens, as a `tiktoken.Encoding`; offline.

    Raises FileNotFoundError or ValueError where a vocabulary file is missing or damaged
    (tiktoken itself would delete a damaged file and go to the network).
    """
    import tiktoken

    for artifact in (GPT2_MERGES, GPT2_VOCABULARY):
        read(artifact)
    return tiktoken.get_encoding("gpt2")
