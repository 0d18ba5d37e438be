"""Tokenizers: text to integers and back, and errors that name the culprit."""

import functools
import hashlib
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Tokenizer

from companion import (
    BPETokenizer,
    CharTokenizer,
    gpt2_tokenizer,
    tiny_shakespeare,
    tokenizers,
    train_bpe,
)
from companion.artifacts import GPT2_MERGES, GPT2_VOCABULARY, VOCABULARY

ALPHABET = "ab zé\n€🙂"


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> GPT2Tokenizer:
    """Hugging Face's implementation, from the same two files."""
    folder = tmp_path_factory.mktemp("gpt2")
    (folder / "vocab.json").write_bytes(GPT2_VOCABULARY.path.read_bytes())
    (folder / "merges.txt").write_bytes(GPT2_MERGES.path.read_bytes())
    return GPT2Tokenizer.from_pretrained(folder)


@given(st.text(ALPHABET))
def test_characters_come_back(text):
    tokenizer = CharTokenizer(ALPHABET)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(ALPHABET, min_size=1))
def test_a_character_is_its_rank_in_the_alphabet(text):
    tokenizer = CharTokenizer(text)
    ranks = [sum(other < c for other in set(text)) for c in text]
    assert tokenizer.encode(text) == ranks
    assert tokenizer.d_vocab == len(set(text))


def test_an_unknown_character_is_named():
    with pytest.raises(ValueError, match="'q' is not one of the 3 characters"):
        CharTokenizer("abc").encode("abq")


@pytest.mark.parametrize("token", [-1, 3, 99])
def test_an_id_outside_the_vocabulary_is_named(token):
    with pytest.raises(ValueError, match=f"token {token} is outside 0 to 2"):
        CharTokenizer("abc").decode([0, token])


def test_the_corpus_comes_back_from_its_65_characters():
    text = tiny_shakespeare()
    tokenizer = CharTokenizer(text)
    assert tokenizer.d_vocab == 65
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_gpt2_has_its_published_tokens():
    tokenizer = gpt2_tokenizer()
    assert tokenizer.n_vocab == 50_257
    assert tokenizer.encode("Transformers are") == [41762, 364, 389]
    assert tokenizer.decode([41762, 364, 389]) == "Transformers are"


def test_gpt2_needs_338025_tokens_for_tiny_shakespeare():
    assert len(gpt2_tokenizer().encode_ordinary(tiny_shakespeare())) == 338_025


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_gpt2_agrees_with_hugging_face_on_any_text(reference, text):
    tokenizer = gpt2_tokenizer()
    tokens = tokenizer.encode_ordinary(text)
    assert tokens == reference.encode(text)
    assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize("name", ["GPT2_MERGES", "GPT2_VOCABULARY"])
def test_a_missing_or_damaged_vocabulary_is_an_error_and_stays(
    name, tmp_path, monkeypatch
):
    artifact = getattr(tokenizers, name)
    elsewhere = replace(artifact, path=tmp_path / artifact.path.name)
    monkeypatch.setattr(tokenizers, name, elsewhere)
    with pytest.raises(FileNotFoundError, match=artifact.path.name):
        gpt2_tokenizer()
    elsewhere.path.write_bytes(artifact.path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=artifact.sha256):
        gpt2_tokenizer()
    assert elsewhere.path.exists()


@pytest.mark.parametrize("artifact", [GPT2_MERGES, GPT2_VOCABULARY])
def test_tiktoken_looks_for_a_file_under_the_hash_of_its_address(artifact):
    name = hashlib.sha1(artifact.url.encode()).hexdigest()
    assert artifact.path == VOCABULARY / name


def rescanning_bpe(text, d_vocab):
    """The definition: count every pair of every piece anew for each merge."""
    words = [list(p.encode()) for p in re.findall(tokenizers.PIECES, text)]
    merges = []
    while len(merges) < d_vocab - 256:
        counts = Counter(pair for w in words for pair in zip(w, w[1:], strict=False))
        if not counts:
            break
        pair = max(counts, key=lambda pair: (counts[pair], pair))
        words = [tokenizers.merge(w, pair, 256 + len(merges)) for w in words]
        merges.append(pair)
    return merges


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab é\n", max_size=80), st.integers(256, 275))
def test_bpe_training_equals_rescanning(text, d_vocab):
    assert train_bpe(text, d_vocab) == rescanning_bpe(text, d_vocab)


def test_bpe_training_equals_rescanning_on_the_plays():
    text = tiny_shakespeare()[100_000:115_000]
    assert train_bpe(text, 400) == rescanning_bpe(text, 400)


@functools.cache
def shakespearean():
    tokenizer = BPETokenizer.train(tiny_shakespeare()[:200_000], 1024)
    return tokenizer, tokenizer.to_tiktoken()


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_bpe_round_trip_and_tiktoken_agree_on_any_text(text):
    tokenizer, theirs = shakespearean()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert theirs.encode(text, disallowed_special=()) == ids


def test_bpe_and_tiktoken_agree_on_every_line_of_the_corpus():
    tokenizer, theirs = shakespearean()
    for line in tiny_shakespeare().splitlines(keepends=True):
        assert tokenizer.encode(line) == theirs.encode(line)


def test_bpe_names_what_it_can_t_read():
    tokenizer, _ = shakespearean()
    for token in (-1, 1024):
        with pytest.raises(ValueError, match=f"token {token} is outside 0 to 1023"):
            tokenizer.decode([5, token])
    with pytest.raises(ValueError, match=r"\\ud83d' at 3 is half a character"):
        tokenizer.encode("abc\ud83d")
    with pytest.raises(ValueError, match="d_vocab is 255; it must be 256 or more"):
        train_bpe("text", 255)
