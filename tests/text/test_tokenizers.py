"""Tokenizers: text to integers and back, and errors that name the culprit."""

import functools
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Tokenizer

from companion import (
    BPETokenizer,
    CharTokenizer,
    gpt2_tokenizer,
    tiny_shakespeare,
    train_bpe,
)
from companion.artifacts import GPT2_MERGES, GPT2_VOCABULARY, VOCABULARY
from companion.text import tokenizers

ALPHABET = "ab zé\n€🙂"


@pytest.fixture(scope="module")
def gpt2() -> tiktoken.Encoding:
    return gpt2_tokenizer()


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> GPT2Tokenizer:
    """Hugging Face's implementation, from the same two files."""
    folder = tmp_path_factory.mktemp("gpt2")
    (folder / "vocab.json").write_bytes(GPT2_VOCABULARY.path.read_bytes())
    (folder / "merges.txt").write_bytes(GPT2_MERGES.path.read_bytes())
    return GPT2Tokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def reference_pattern(gpt2) -> tiktoken.Encoding:
    """tiktoken with the pattern as OpenAI has published it."""
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    pattern += r"|\s+(?!\S)|\s+"
    ranks = {gpt2.decode_single_token_bytes(i): i for i in range(50_256)}
    return tiktoken.Encoding(
        "published", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )


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


@pytest.mark.parametrize("token", [-1, 3])
def test_an_id_outside_the_vocabulary_is_named(token):
    with pytest.raises(ValueError, match=f"token {token} is outside 0 to 2"):
        CharTokenizer("abc").decode([0, token])


def test_the_corpus_comes_back_from_its_65_characters():
    text = tiny_shakespeare()
    tokenizer = CharTokenizer(text)
    assert tokenizer.d_vocab == 65
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_gpt2_has_its_published_tokens(gpt2):
    assert gpt2.n_vocab == 50_257
    assert gpt2.encode("Transformers are") == [41762, 364, 389]
    assert gpt2.decode([41762, 364, 389]) == "Transformers are"
    assert len(gpt2.encode_ordinary(tiny_shakespeare())) == 338_025


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_gpt2_agrees_with_hugging_face_on_any_text(gpt2, reference, text):
    tokens = gpt2.encode_ordinary(text)
    assert tokens == reference.encode(text)
    assert gpt2.decode(tokens) == text


def test_gpt2_is_tiktoken_s_own_encoding(gpt2, monkeypatch):
    """Its special token, too, and all of the plays."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(VOCABULARY))
    reference = tiktoken.get_encoding("gpt2")
    for text in (tiny_shakespeare()[:300_000], "a<|endoftext|>b", "\u3000 \n\n x"):
        ids = gpt2.encode(text, allowed_special="all")
        assert ids == reference.encode(text, allowed_special="all")


def test_a_missing_or_damaged_vocabulary_is_an_error_and_stays(tmp_path, monkeypatch):
    elsewhere = replace(GPT2_VOCABULARY, path=tmp_path / "vocabulary")
    monkeypatch.setattr(tokenizers, "GPT2_VOCABULARY", elsewhere)
    with pytest.raises(FileNotFoundError, match="vocabulary"):
        gpt2_tokenizer()
    elsewhere.path.write_bytes(GPT2_VOCABULARY.path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=elsewhere.sha256):
        gpt2_tokenizer()
    assert elsewhere.path.exists()


def test_tiktoken_looks_for_a_file_under_the_hash_of_its_address():
    for artifact in (GPT2_MERGES, GPT2_VOCABULARY):
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
    text = tiny_shakespeare()[100_000:110_000]
    assert train_bpe(text, 350) == rescanning_bpe(text, 350)


@functools.cache
def shakespearean():
    tokenizer = BPETokenizer.train(tiny_shakespeare()[:200_000], 1024)
    return tokenizer, tokenizer.to_tiktoken()


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_bpe_round_trip_and_tiktoken_agree_on_any_text(text):
    tokenizer, reference = shakespearean()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert reference.encode(text, disallowed_special=()) == ids


def test_bpe_and_tiktoken_agree_on_every_line_of_the_corpus():
    tokenizer, reference = shakespearean()
    for line in tiny_shakespeare().splitlines(keepends=True):
        assert tokenizer.encode(line) == reference.encode(line)


def test_merges_may_come_from_json():
    merges = json.loads("[[104, 105], [256, 115]]")
    tokenizer = BPETokenizer(merges)
    assert tokenizer.encode("his") == [257] and tokenizer.decode([257]) == "his"
    assert merges == [[104, 105], [256, 115]]


@pytest.mark.parametrize("merges", [[(1, 2), (257, 3)], [(-1, 2)], [(1,)], ["abc"]])
def test_a_merge_that_is_no_pair_of_earlier_tokens_is_named(merges):
    with pytest.raises(ValueError, match=rf"merge {len(merges) - 1} is .*a pair of"):
        BPETokenizer(merges)


# A pair twice; one spelling by two pairs; a pair that an earlier merge takes apart.
OTHERWISE = {
    "twice": ([(97, 98), (97, 98)], "merge 1 is (97, 98); its bytes b'ab' are [256]"),
    "two ways": (
        [(97, 98), (98, 99), (256, 99), (97, 257)],
        "merge 3 is (97, 257); its bytes b'abc' are [258]",
    ),
    "never": (
        [(98, 99), (97, 98), (257, 99)],
        "merge 2 is (257, 99); its bytes b'abc' are [97, 256]",
    ),
    "never, in a run": (
        [(97, 97), (97, 256)],
        "merge 1 is (97, 256); its bytes b'aaa' are [256, 97]",
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_merge_that_would_encode_otherwise_in_tiktoken_is_refused(name):
    merges, words = OTHERWISE[name]
    with pytest.raises(ValueError, match=re.escape(words)):
        BPETokenizer(merges)


@st.composite
def drawn_merges(draw):
    """Merges of pairs of earlier tokens, at random."""
    merges = []
    for new in range(256, 256 + draw(st.integers(1, 6))):
        token = st.sampled_from([97, 98, *range(256, new)])
        merges.append((draw(token), draw(token)))
    return merges


@settings(max_examples=150, deadline=None)
@given(drawn_merges(), st.text("ab", max_size=24))
def test_whatever_merges_are_taken_tiktoken_has_the_same_tokens(merges, text):
    """Drawn merges are refused often; what is left must agree."""
    try:
        tokenizer = BPETokenizer(merges)
    except ValueError:
        return
    assert tokenizer.to_tiktoken().encode_ordinary(text) == tokenizer.encode(text)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab c", max_size=200))
def test_merges_that_were_learned_are_never_refused(text):
    assert BPETokenizer.train(text, 300).d_vocab <= 300


def test_what_is_remembered_is_bounded_and_can_t_be_changed():
    tokenizer = BPETokenizer([(97, 98)])
    tokenizer.encode(" ".join(str(i) for i in range(tokenizers.N_KNOWN + 1000)))
    assert len(tokenizer.known) <= tokenizers.N_KNOWN
    assert tokenizer.encode("ab" * 1000) == [256] * 1000
    assert max(map(len, tokenizer.known)) <= tokenizers.LONGEST_KNOWN
    assert isinstance(tokenizer.encode_piece("ab"), tuple)


# With the published pattern tiktoken panics from 999,993 on.
LONG_RUNS = {
    "spaces in a text": "a" + " " * 1_000_001 + "b",
    "spaces at the end": " " * 1_000_001,
    "lines in a text": "a" + "\n" * 1_000_001 + "1",
}


@pytest.mark.parametrize("name", LONG_RUNS)
def test_a_million_characters_of_white_space_come_back(gpt2, name):
    text = LONG_RUNS[name]
    assert gpt2.decode(gpt2.encode_ordinary(text)) == text


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["", "a", "1", "!", "'s"]),
    st.sampled_from([0, 1000, 2000, 3000]),
    st.integers(-2, 2),
    st.sampled_from([" ", "\n", "\t \n", "\u3000\x85 \x1c\u2028"]),
    st.sampled_from(["", "b", "2", "?", "'ll"]),
)
def test_white_space_is_cut_as_by_gpt2_s_own_pattern(
    gpt2, reference_pattern, before, length, more, signs, after
):
    """Around the lengths at which the pattern counts by the thousand."""
    n = max(length + more, 0)
    text = before + (signs * (n // len(signs) + 1))[:n] + after
    assert gpt2.encode_ordinary(text) == reference_pattern.encode_ordinary(text)


def test_bpe_names_what_it_can_t_read():
    tokenizer, _ = shakespearean()
    for token in (-1, 1024):
        with pytest.raises(ValueError, match=f"token {token} is outside 0 to 1023"):
            tokenizer.decode([5, token])
    with pytest.raises(ValueError, match=r"\\ud83d.*surrogates not allowed"):
        tokenizer.encode("abc\ud83d")
    with pytest.raises(ValueError, match="d_vocab is 255; it must be 256 or more"):
        train_bpe("text", 255)
    with pytest.raises(ValueError, match="text is ''"):
        CharTokenizer("")
