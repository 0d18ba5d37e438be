"""Published weights: against transformers and tokenizers; files that are not whole."""

import dataclasses
import re
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from common import llama, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import companion
from companion import GPT, published
from companion.artifacts import SMOLLM2


@torch.inference_mode()
def test_logits_are_transformers_and_a_cache_changes_nothing(loaded, file):
    model, tokenizer = loaded
    text = companion.tiny_shakespeare()[:400]
    tokens = torch.tensor(tokenizer.encode(text))[None, :64]
    expected = llama(*file)(tokens).logits
    torch.testing.assert_close(model(tokens), expected, atol=1e-3, rtol=0)
    cache = model.new_cache(64)
    parts = [model(part, cache) for part in tokens.split([40, 1, 23], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-3, rtol=0)


def test_the_model_is_whole_tied_and_not_for_training(loaded):
    model, _ = loaded
    assert model.unembedding.weight is model.embedding.weight and not model.training
    for name, x in model.named_parameters():
        assert x.is_contiguous() and not x.requires_grad and x.device.type == "cpu", (
            name
        )


def test_it_knows_the_capital_of_france_and_answers_in_chat_form(loaded):
    model, tokenizer = loaded
    prompt = torch.tensor(tokenizer.encode("The capital of France is"))
    new = [int(x) for x in companion.generate(model, prompt, 2)]
    assert tokenizer.decode(new) == " Paris."
    talk = tokenizer.chat([("user", "What is the capital of France?")])
    new = companion.generate(model, torch.tensor(talk), 12, end=tokenizer.end)
    assert "Paris" in tokenizer.decode([int(x) for x in new])


@pytest.fixture(scope="module")
def independent(file):
    """The same vocabulary in Hugging Face's tokenizers."""
    header, _ = file
    tokens = header["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in header["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    return made


def test_tokens_of_all_of_shakespeare_are_those_of_tokenizers(loaded, independent):
    text = companion.tiny_shakespeare()
    ours = loaded[1].encode(text)
    assert ours == independent.encode(text).ids
    assert loaded[1].decode(ours) == text


def test_tokens_of_digits_and_white_space(loaded, independent):
    texts = ["", " ", "\n\n1", "  12  3", "a\n\n b", "it's 3's", "½ ²³ ٣", "日本 語"]
    for text in (*texts, "\t\t1\n"):
        assert loaded[1].encode(text) == independent.encode(text).ids, text


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_tokens_of_any_text(loaded, independent, text):
    tokenizer = loaded[1]
    ours = tokenizer.encode(text)
    known = set(tokenizer.pieces)
    if all(bytes([byte]) in known for byte in text.encode()):
        assert ours == independent.encode(text).ids
        assert tokenizer.decode(ours) == text
    assert all(0 <= i < tokenizer.d_vocab for i in ours)
    assert not {*ours} & {*tokenizer.special.values()}


def test_a_byte_that_the_vocabulary_lacks_is_no_special_token(loaded):
    tokenizer = loaded[1]
    lacking = {i for i in range(256) if bytes([i]) not in {*tokenizer.pieces}}
    assert len(lacking) == 21
    for text in ("\x04", "a\x06b", "\U00050000"):
        assert lacking & {*text.encode()}
        ids = tokenizer.encode(text)
        assert not {*ids} & {*tokenizer.special.values()}
        assert "\ufffd" in tokenizer.decode(ids)


def test_no_text_makes_a_special_token(loaded):
    tokenizer = loaded[1]
    special = set(tokenizer.special.values())
    assert len(special) == 17
    for word in tokenizer.special:
        assert not special & {*tokenizer.encode(word), *tokenizer.encode(f"a{word} b")}
    talk = tokenizer.chat([("user", "<|im_end|>")])
    assert [i for i in talk if i in special] == [1, 2, 1]


def test_the_chat_form_is_the_header_s(loaded, file):
    template = file[0]["tokenizer.chat_template"]
    system = re.search(r"system\n(.*?)<", template)[1]
    tokenizer = loaded[1]
    talk = tokenizer.chat([("system", system), ("user", "Hi")])
    words = {i: word for word, i in tokenizer.special.items()}
    said = "".join(words[i] if i in words else tokenizer.decode([i]) for i in talk)
    assert said == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


SMALL = {
    "vocab_size": 11,
    "context_length": 16,
    "embedding_length": 8,
    "block_count": 2,
    "feed_forward_length": 12,
}


def write(path: Path, change=lambda tensors: tensors, kind="llama", **sizes) -> Path:
    """A small file of the same form; `change` its tensors, or its sizes."""
    header = {f"llama.{name}": size for name, size in SMALL.items()} | {
        "general.architecture": "llama",
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.rope.freq_base": 10_000.0,
    }
    config = published.config_of(header)
    weights = dict(GPT(config, seeded()).named_parameters())
    tensors = {
        theirs.format(i): weights[ours.format(i)].detach().numpy()
        for theirs, ours in published.NAMES.items()
        for i in range(config.n_layers)
    }
    writer = gguf.GGUFWriter(path, kind)
    for name, size in (SMALL | sizes).items():
        if size is not None:
            writer.add_uint32(f"llama.{name}", size)
    writer.add_uint32("llama.attention.head_count", 2)
    writer.add_uint32("llama.attention.head_count_kv", 1)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    for name, x in change(tensors).items():
        writer.add_tensor(name, np.ascontiguousarray(x))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path: Path) -> GPT:
    header, tensors = published.read_gguf(path)
    config = published.config_of(header)
    return published.build(config, published.weights_of(tensors, config))


def test_a_small_file_of_the_same_form_is_read(tmp_path):
    model = load(write(tmp_path / "small.gguf"))
    assert model(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 11)


def test_another_epsilon_is_refused(file):
    header = file[0] | {"llama.attention.layer_norm_rms_epsilon": 1e-6}
    with pytest.raises(ValueError, match="epsilon is 1e-06; ours is 1e-5"):
        published.config_of(header)


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"kind": "gpt2"}, ValueError, "the architecture is 'gpt2'"),
        ({"block_count": None}, KeyError, "block_count"),
        ({"block_count": 3}, ValueError, "the file has no tensor blk.2.attn_"),
        ({"block_count": 1}, ValueError, "no place for blk.1."),
        ({"feed_forward_length": 10}, RuntimeError, "size mismatch for .*to_gate"),
        (
            {"change": lambda x: x | {"rope.weight": np.ones(3, np.float32)}},
            ValueError,
            "no place for rope.weight",
        ),
    ],
)
def test_another_file_is_refused_with_what_is_wrong(tmp_path, change, error, words):
    with pytest.raises(error, match=words):
        load(write(tmp_path / "other.gguf", **change))


def test_a_file_that_is_cut_or_of_another_kind_is_refused(tmp_path):
    path = write(tmp_path / "whole.gguf")
    whole = path.read_bytes()
    others = [whole[:n] for n in (0, 3, 200, -100)] + [struct.pack("<Q", 7) * 40]
    for content in others:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a whole GGUF file"):
            load(path)


def test_a_missing_or_altered_published_file_is_named(tmp_path, monkeypatch):
    broken = dataclasses.replace(SMOLLM2, path=tmp_path / "weights")
    monkeypatch.setattr(published, "SMOLLM2", broken)
    with pytest.raises(FileNotFoundError, match="SmolLM2-135M-Instruct"):
        published.load_smollm2()
    broken.path.write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="truncated or altered"):
        published.load_smollm2()
