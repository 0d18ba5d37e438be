"""Published weights: against transformers and tokenizers; files that are not whole."""

import dataclasses
import re
import struct
from pathlib import Path

import gguf as gguf_format
import numpy as np
import pytest
import torch
from common import random_tokens, rounding, shaken
from hypothesis import given, settings
from hypothesis import strategies as st
from published import llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import companion
from companion import GPT
from companion.artifacts import SMOLLM2
from companion.pretrained import gguf, smollm2
from companion.pretrained.published_tokenizer import PublishedTokenizer
from companion.pretrained.weights import build
from companion.text.tokenizers import printable_bytes


@torch.inference_mode()
def test_logits_are_transformers_and_a_cache_changes_nothing(
    smollm2_loaded, smollm2_file
):
    model, tokenizer = smollm2_loaded
    text = companion.tiny_shakespeare()[:400]
    tokens = torch.tensor(tokenizer.encode(text))[None, :64]
    expected = llama(*smollm2_file)(tokens).logits
    close = rounding(1536, expected)  # hidden features, the longest sum
    torch.testing.assert_close(model(tokens), expected, **close)
    cache = model.new_cache(64)
    parts = [model(part, cache) for part in tokens.split([40, 1, 23], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, **close)


def test_the_model_is_whole_tied_and_not_for_training(smollm2_loaded):
    model, _ = smollm2_loaded
    assert model.unembedding.weight is model.embedding.weight and not model.training
    for name, x in model.named_parameters():
        assert x.is_contiguous() and not x.requires_grad and x.device.type == "cpu", (
            name
        )


def test_it_knows_the_capital_of_france_and_answers_in_chat_form(smollm2_loaded):
    model, tokenizer = smollm2_loaded
    prompt = torch.tensor(tokenizer.encode("The capital of France is"))
    new = [int(x) for x in companion.generate(model, prompt, 2)]
    assert tokenizer.decode(new) == " Paris."
    talk = tokenizer.chat([("user", "What is the capital of France?")])
    new = companion.generate(model, torch.tensor(talk), 12, end=tokenizer.end)
    assert "Paris" in tokenizer.decode([int(x) for x in new])


@pytest.fixture(scope="module")
def independent(smollm2_file):
    """The same vocabulary in Hugging Face's tokenizers."""
    header, _ = smollm2_file
    tokens = header["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in header["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_tokens_of_all_of_shakespeare_are_those_of_tokenizers(
    smollm2_loaded, independent
):
    text = companion.tiny_shakespeare()
    tokens = smollm2_loaded[1].encode(text)
    assert tokens == independent.encode(text).ids
    assert smollm2_loaded[1].decode(tokens) == text


def test_tokens_of_digits_and_white_space(smollm2_loaded, independent):
    texts = ["", " ", "\n\n1", "  12  3", "a\n\n b", "it's 3's", "½ ²³ ٣", "日本 語"]
    for text in (*texts, "\t\t1\n"):
        assert smollm2_loaded[1].encode(text) == independent.encode(text).ids, text


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_tokens_of_any_text(smollm2_loaded, independent, text):
    tokenizer = smollm2_loaded[1]
    tokens = tokenizer.encode(text)
    known = set(tokenizer.pieces)
    if all(bytes([byte]) in known for byte in text.encode()):
        assert tokens == independent.encode(text).ids
        assert tokenizer.decode(tokens) == text
    assert all(0 <= i < tokenizer.d_vocab for i in tokens)
    assert not {*tokens} & {*tokenizer.special.values()}


def test_a_byte_that_the_vocabulary_lacks_is_no_special_token(smollm2_loaded):
    tokenizer = smollm2_loaded[1]
    lacking = {i for i in range(256) if bytes([i]) not in {*tokenizer.pieces}}
    assert len(lacking) == 21
    for text in ("\x04", "a\x06b", "\U00050000"):
        assert lacking & {*text.encode()}
        ids = tokenizer.encode(text)
        assert not {*ids} & {*tokenizer.special.values()}
        assert "\ufffd" in tokenizer.decode(ids)


def test_no_text_makes_a_special_token(smollm2_loaded):
    tokenizer = smollm2_loaded[1]
    special = set(tokenizer.special.values())
    assert len(special) == 17
    for word in tokenizer.special:
        assert not special & {*tokenizer.encode(word), *tokenizer.encode(f"a{word} b")}
    talk = tokenizer.chat([("user", "<|im_end|>")])
    assert [i for i in talk if i in special] == [1, 2, 1]


def test_the_chat_form_is_the_header_s(smollm2_loaded, smollm2_file):
    template = smollm2_file[0]["tokenizer.chat_template"]
    system = re.search(r"system\n(.*?)<", template)[1]
    tokenizer = smollm2_loaded[1]
    talk = tokenizer.chat([("system", system), ("user", "Hi")])
    words = {i: word for word, i in tokenizer.special.items()}
    said = "".join(words[i] if i in words else tokenizer.decode([i]) for i in talk)
    assert said == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


SMALL = {
    "general.architecture": "llama",
    "llama.vocab_size": 11,
    "llama.context_length": 16,
    "llama.embedding_length": 8,
    "llama.block_count": 2,
    "llama.feed_forward_length": 12,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500.0,
}


def add(writer: gguf_format.GGUFWriter, key: str, value) -> None:
    """A key of the type that its value has."""
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def write(path: Path, header: dict = SMALL, change=lambda tensors: tensors) -> Path:
    """A small file of the same form: two heads of queries, one or two of keys.

    `change` may put other tensors into it than its sizes have.
    """
    config = smollm2.config_of(SMALL)
    if "llama.attention.head_count_kv" not in header:
        config = dataclasses.replace(config, n_kv_heads=2)
    weights = dict(shaken(GPT(config)).named_parameters())
    tensors = {
        name_in_file.format(i): weights[name.format(i)].detach().numpy()
        for name_in_file, name in smollm2.NAMES.items()
        for i in range(config.n_layers)
    }
    writer = gguf_format.GGUFWriter(path, header["general.architecture"])
    for key, value in header.items():
        if key != "general.architecture":  # which the writer has written
            add(writer, key, value)
    for name, x in change(tensors).items():
        writer.add_tensor(name, np.ascontiguousarray(x))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path: Path) -> GPT:
    header, tensors = gguf.read_gguf(path)
    config = smollm2.config_of(header)
    return build(config, smollm2.weights_of(tensors, config))


# Keys that may be missing, and what llama.cpp then takes.
DEFAULTS = {
    "llama.vocab_size": 11,  # as many as the tokens
    "llama.attention.head_count_kv": 2,  # as many as of queries
    "llama.rope.freq_base": 10_000.0,
}
TOKENS = {"tokenizer.ggml.tokens": [str(i) for i in range(11)]}


@torch.inference_mode()
@pytest.mark.parametrize("missing", [None, *DEFAULTS])
def test_a_small_file_has_transformers_logits_also_by_its_defaults(tmp_path, missing):
    header = {key: value for key, value in SMALL.items() if key != missing} | TOKENS
    path = write(tmp_path / "small.gguf", header)
    tokens = random_tokens(2, 9, d_vocab=11)
    read, tensors = gguf.read_gguf(path)
    expected = llama(DEFAULTS | read, tensors)(tokens).logits
    close = rounding(64, expected)
    torch.testing.assert_close(load(path)(tokens), expected, **close)


REQUIRED = SMALL.keys() - DEFAULTS.keys()


@pytest.mark.parametrize("missing", [*sorted(REQUIRED), "llama.vocab_size"])
def test_a_header_without_a_key_that_nothing_stands_for_is_refused(missing):
    header = {key: value for key, value in SMALL.items() if key != missing}
    with pytest.raises(ValueError, match=f"the header has no {missing}$"):
        smollm2.config_of(header)


def constants(group: type) -> list[str]:
    """Every key of a group of the gguf package's constants, for the architecture llama.

    A number and a name stand for what varies in a key.
    """
    keys = []
    for value in vars(group).values():
        if isinstance(value, str) and "." in value:
            keys.append(value.format(arch="llama", dense="a", id=0, name="a"))
        elif isinstance(value, type):
            keys += constants(value)
    return keys


GGUF_KEYS = [key for key in constants(gguf_format.Keys) if key.startswith("llama.")]


def test_the_gguf_package_knows_many_keys():
    assert len(GGUF_KEYS) > 80 and {"llama.rope.scaling.factor"} < {*GGUF_KEYS}


# Some are known to llama.cpp alone, or to files that were written long ago.
OTHER_KEYS = ["llama.rope.scale_linear", "llama.rope.scale", "llama.anything.else"]
OTHER_KEYS += ["split.count", "adapter.type", "llama.context_length.more"]


@pytest.mark.parametrize("value", [7, 7.5, "yarn", True, [7, 7], [1, 2], 0])
def test_no_key_is_passed_over(value):
    """Whatever a key says: the configuration has it, or it is refused by its name.

    Or it says what the model computes without it.
    """
    plain = smollm2.config_of(SMALL)
    for key in GGUF_KEYS + OTHER_KEYS:
        try:
            config = smollm2.config_of(SMALL | {key: value})
        except ValueError as error:
            assert key in str(error), error
        else:
            assert config != plain or (key, value) in SAME_MODEL, key


SAME_MODEL = {
    ("llama.attention.causal", True),
    ("llama.use_parallel_residual", 0),
    ("llama.expert_count", 0),
    ("llama.expert_used_count", 0),
    ("llama.attention.sliding_window", 0),
    ("llama.rope.scaling.finetuned", 0),
    ("llama.rope.scaling.factor", True),  # which is 1
    ("llama.rope.scale_linear", True),
}


@pytest.mark.parametrize(
    "key, value",
    [
        ("llama.rope.scaling.type", "linear"),
        ("llama.rope.scaling.type", "yarn"),
        ("llama.rope.scaling.factor", 4.0),
        ("llama.rope.scale_linear", 4.0),
        ("llama.rope.scaling.original_context_length", 4),
        ("llama.rope.scaling.attn_factor", 0.5),
        ("llama.rope.scaling.yarn_log_multiplier", 0.1),
        ("llama.rope.dimension_count", 2),
        ("llama.rope.freq_base", 0.0),
        ("llama.attention.key_length", 8),
        ("llama.attention.value_length", 8),
        ("llama.attention.sliding_window", 4),
        ("llama.attention.causal", False),
        ("llama.attention.layer_norm_rms_epsilon", 1e-6),
        ("llama.attention.layer_norm_epsilon", 1e-5),
        ("llama.attention.head_count", [2, 1]),
        ("llama.attention.head_count", 3),
        ("llama.attention.head_count_kv", [1, 1]),
        ("llama.attention.head_count_kv", 3),
        ("llama.feed_forward_length", [12, 12]),
        ("llama.block_count", 0),
        ("llama.expert_count", 8),
        ("llama.logit_scale", 0.5),
        ("llama.embedding_scale", 12.0),
        ("llama.residual_scale", 0.2),
        ("llama.attention.scale", 0.1),
        ("llama.attn_logit_softcapping", 50.0),
        ("llama.final_logit_softcapping", 30.0),
        ("llama.tensor_data_layout", "jploski"),
        ("general.architecture", "gpt2"),
        ("general.type", "adapter"),
    ],
)
def test_a_file_of_another_model_is_refused_by_the_key(tmp_path, key, value):
    path = write(tmp_path / "other.gguf", SMALL | {key: value})
    with pytest.raises(ValueError, match=re.escape(key)):
        load(path)


def test_a_header_may_say_what_holds_anyway(tmp_path):
    header = SMALL | {
        "general.name": "small",
        "general.quantization_version": 2,
        "llama.rope.dimension_count": 4,
        "llama.attention.key_length": 4,
        "llama.attention.value_length": 4,
        "llama.attention.causal": True,
        "llama.rope.scaling.type": "none",
        "llama.rope.scaling.factor": 1.0,
        "quantize.imatrix.file": "of somebody else's program",
    }
    tokens = random_tokens(2, 9, d_vocab=11)
    logits = load(write(tmp_path / "more.gguf", header))(tokens)
    assert torch.equal(logits, load(write(tmp_path / "small.gguf"))(tokens))


ONES = np.ones(8, np.float32)


@pytest.mark.parametrize(
    "header, change, error, words",
    [
        (
            {"llama.block_count": 3},
            {},
            ValueError,
            "the file has no tensor blk.2.attn_",
        ),
        ({"llama.block_count": 1}, {}, ValueError, "no place for blk.1."),
        ({"llama.block_count": 2**31}, {}, ValueError, "20 tensors for 2147483648 bl"),
        ({"llama.feed_forward_length": 10}, {}, RuntimeError, "mismatch for .*to_gate"),
        ({}, {"rope_freqs.weight": ONES}, ValueError, "no place for rope_freqs.weight"),
        ({}, {"output.weight": ONES}, ValueError, "no place for output.weight"),
        ({}, {"blk.0.attn_q.bias": ONES}, ValueError, "no place for blk.0.attn_q.bias"),
        ({}, {"blk.0.attn_q_norm.weight": ONES}, ValueError, "no place for blk.0.attn"),
        (
            {},
            {"blk.1.attn_k.weight": ONES[:6]},
            ValueError,
            "to_keys.weight has 6 rows",
        ),
        (
            {},
            {"output_norm.weight": ONES.astype(np.int32)},
            ValueError,
            "output_norm.weight is I32",
        ),
    ],
)
def test_other_tensors_are_refused_with_what_is_wrong(
    tmp_path, header, change, error, words
):
    path = write(tmp_path / "other.gguf", SMALL | header, lambda x: x | change)
    with pytest.raises(error, match=words):
        load(path)


def test_an_output_matrix_of_its_own_is_no_tied_model():
    config = smollm2.config_of(SMALL)
    weights = shaken(GPT(config)).state_dict()
    again = build(config, weights)
    assert again.unembedding.weight is again.embedding.weight
    other = weights | {"unembedding.weight": weights["embedding.weight"] + 1}
    with pytest.raises(
        ValueError, match="unembedding.weight is not .*tie_embeddings=False"
    ):
        build(config, other)
    untied = build(dataclasses.replace(config, tie_embeddings=False), other)
    assert torch.equal(untied.unembedding.weight, other["unembedding.weight"])


# A vocabulary of bytes, two merges and two special tokens.
BYTES = [*printable_bytes()]
WORDS = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|im_start|>", "<|im_end|>", *BYTES, "ab", "abc"],
    "tokenizer.ggml.token_type": [3, 3, *[1] * 258],
    "tokenizer.ggml.merges": ["a b", "ab c"],
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.chat_template": "<|im_start|> and <|im_end|>",
}


def test_a_small_vocabulary_is_read():
    tokenizer = PublishedTokenizer(WORDS | {"tokenizer.ggml.scores": [0.0]})
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode("abcab 12")]
    assert pieces == ["abc", "ab", " ", "1", "2"]
    assert tokenizer.chat([])[0] == 0 and tokenizer.end == 1


def test_a_vocabulary_without_the_bytes_of_the_replacement_is_refused():
    header = WORDS | {
        "tokenizer.ggml.tokens": ["<|im_start|>", "<|im_end|>", "a", "b", "ab"],
        "tokenizer.ggml.token_type": [3, 3, 1, 1, 1],
        "tokenizer.ggml.merges": ["a b"],
    }
    with pytest.raises(ValueError, match="tokens lacks a byte of U\\+FFFD"):
        PublishedTokenizer(header)


@pytest.mark.parametrize("missing", sorted(WORDS.keys() - {"tokenizer.chat_template"}))
def test_a_vocabulary_that_lacks_something_is_refused_by_the_key(missing):
    header = {key: value for key, value in WORDS.items() if key != missing}
    with pytest.raises(ValueError, match=f"the header has no {missing}$"):
        PublishedTokenizer(header)


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer.ggml.model": "llama"},
        {"tokenizer.ggml.pre": "llama-bpe"},
        {"tokenizer.ggml.add_bos_token": True},
        {"tokenizer.ggml.add_eos_token": True},
        {"tokenizer.ggml.add_space_prefix": True},
        {"tokenizer.ggml.eot_token_id": 0},
        {"tokenizer.ggml.precompiled_charsmap": [1]},
        {"tokenizer.ggml.merges": ["ab c", "a b"]},
        {"tokenizer.ggml.merges": ["a b"]},
        {"tokenizer.ggml.merges": ["a b", "ab c", "ab c"]},
        {"tokenizer.ggml.token_type": [3, 3, *[1] * 257]},
        {"tokenizer.ggml.token_type": [3, 3, *[1] * 257, 4]},
        {"tokenizer.ggml.tokens": ["<s>", "</s>", *BYTES, "ab", "ab\u2581"]},
    ],
    ids=str,
)
def test_another_way_to_cut_text_is_refused_by_the_key(change):
    (key,) = change
    with pytest.raises(ValueError, match=re.escape(key)):
        PublishedTokenizer(WORDS | change)


def test_another_form_of_a_talk_is_refused():
    header = WORDS | {"tokenizer.chat_template": "<s>[INST]"}
    tokenizer = PublishedTokenizer(header)
    assert tokenizer.encode("ab") == [258]
    with pytest.raises(ValueError, match="tokenizer.chat_template has no"):
        tokenizer.chat([("user", "Hi")])


def test_a_million_characters_of_white_space_come_back(smollm2_loaded):
    for text in ("a" + " " * 1_000_001 + "b", "a" + "\n" * 1_000_001 + "1"):
        assert smollm2_loaded[1].decode(smollm2_loaded[1].encode(text)) == text


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([0, 1000, 2000, 3000]),
    st.integers(-2, 2),
    st.sampled_from([" ", "\n", "\t \n"]),
    st.sampled_from(["", "b", "2", "?", "'ll"]),
)
def test_long_white_space_is_cut_as_by_tokenizers(
    smollm2_loaded, independent, length, more, signs, after
):
    n = max(length + more, 0)
    text = "a" + (signs * (n // len(signs) + 1))[:n] + after
    assert smollm2_loaded[1].encode(text) == independent.encode(text).ids


def test_a_file_that_is_cut_or_of_another_kind_is_refused(tmp_path):
    path = write(tmp_path / "whole.gguf")
    whole = path.read_bytes()
    others = [whole[:n] for n in (0, 3, 200, -100)] + [struct.pack("<Q", 7) * 40]
    for content in others:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="can't be read as a whole GGUF file"):
            load(path)


def test_a_missing_or_altered_published_file_is_named(tmp_path, monkeypatch):
    broken = dataclasses.replace(SMOLLM2, path=tmp_path / "weights")
    monkeypatch.setattr(smollm2, "SMOLLM2", broken)
    with pytest.raises(FileNotFoundError, match="SmolLM2-135M-Instruct"):
        smollm2.load_smollm2()
    broken.path.write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="truncated or altered"):
        smollm2.load_smollm2()
