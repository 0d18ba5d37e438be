"""GPT-2's file: the same form from transformers, at published sizes."""

import dataclasses
import math

import pytest
import torch
from common import random_tokens, rounding, seeded
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from companion import artifacts
from companion.pretrained import gpt2
from companion.pretrained.gpt2 import load_gpt2

SIZES = {768: 12, 1024: 16}  # width and heads


def saved(path, d_model=768, n_layers=1, d_vocab=50, positions=16, n_heads=None):
    """Random weights in the published form, and transformers' model that has them."""
    torch.manual_seed(d_model)
    config = GPT2Config(
        vocab_size=d_vocab,
        n_positions=positions,
        n_embd=d_model,
        n_layer=n_layers,
        n_head=n_heads or SIZES[d_model],
    )
    model = GPT2LMHeadModel(config).eval()
    state = {
        name.removeprefix("transformer."): x.contiguous()
        for name, x in model.state_dict().items()
        if not name.startswith("lm_head")
    }
    for i in range(n_layers):  # the mask that the published file has
        state[f"h.{i}.attn.bias"] = torch.ones(1, 1, positions, positions).tril()
    save_file(state, path)
    return model


@torch.inference_mode()
@pytest.mark.parametrize("d_model", [768, 1024])
def test_a_published_size_gives_transformers_logits(tmp_path, d_model):
    path = tmp_path / "model.safetensors"
    reference = saved(path, d_model, n_layers=2)
    model, tokenizer = load_gpt2(path, n_heads=SIZES[d_model])
    tokens = random_tokens(2, 16, d_vocab=50)
    expected = reference(tokens).logits
    close = rounding(4 * model.config.d_model, expected)  # its hidden features
    torch.testing.assert_close(model(tokens), expected, **close)
    assert tokenizer.n_vocab == 50_257


def test_names_may_begin_with_transformer(tmp_path):
    path = tmp_path / "model.safetensors"
    saved(path)
    state = load_file(path)
    longer = {f"transformer.{name}": x for name, x in state.items()}
    save_file(longer | {"lm_head.weight": state["wte.weight"].clone()}, path)
    model, _ = load_gpt2(path, n_heads=12)
    assert model.config.tie_embeddings
    assert torch.equal(model.embedding.weight, state["wte.weight"])
    assert all(x.is_contiguous() for x in model.parameters())
    save_file(dict(model.named_parameters()), path)  # which no two may share


@pytest.mark.parametrize(
    "change, error, words",
    [
        (
            lambda x: x.pop("h.0.ln_2.bias"),
            ValueError,
            "the file has no tensor h.0.ln_2.bias",
        ),
        (
            lambda x: x.update({"h.0.attn.more": torch.ones(2)}),
            ValueError,
            "no place for h.0.attn.more",
        ),
        (
            lambda x: x.update({"h.0.mlp.c_fc.weight": torch.ones(768, 100)}),
            RuntimeError,
            "size mismatch for .*to_hidden.weight",
        ),
        (
            lambda x: x.update({"wte.weight": torch.ones(768)}),
            RuntimeError,
            r"wte.weight is torch.float32 of shape \(768,\); it must be a matrix",
        ),
        (
            lambda x: x.update({"wpe.weight": torch.tensor(1.0)}),
            RuntimeError,
            r"wpe.weight is torch.float32 of shape \(\); it must be a matrix",
        ),
        (
            lambda x: x.update({"h.0.attn.c_attn.bias": torch.ones(4)}),
            RuntimeError,
            "size mismatch for .*to_queries.bias",
        ),
        (
            lambda x: x.update({"h.2.ln_1.weight": torch.ones(768)}),
            ValueError,
            "the file has no tensor h.1.",
        ),
        (
            lambda x: x.update({"h.1000000000000.ln_1.weight": torch.ones(768)}),
            ValueError,
            "the file has no tensor h.1.",
        ),
        (
            lambda x: [x.pop(name) for name in [*x] if name.startswith("h.")],
            ValueError,
            "the file has no tensor h.0.",
        ),
        (
            lambda x: x.update({"transformer.ln_f.bias": torch.ones(768)}),
            ValueError,
            "has ln_f.bias twice",
        ),
        (
            lambda x: x["h.0.ln_1.bias"].fill_(math.nan),
            ValueError,
            "attention_norm.bias has numbers that aren't finite",
        ),
        (
            lambda x: x.update({"ln_f.bias": torch.ones(768).half()}),
            ValueError,
            "norm.bias is torch.float16 and the embedding torch.float32",
        ),
    ],
)
def test_a_file_with_something_else_is_refused(tmp_path, change, error, words):
    path = tmp_path / "model.safetensors"
    saved(path)
    state = load_file(path)
    change(state)
    save_file(state, path)
    with pytest.raises(error, match=words):
        load_gpt2(path, n_heads=12)


@torch.inference_mode()
@pytest.mark.parametrize("n_heads", [4, 12, 24])
def test_another_size_needs_its_heads_and_then_is_transformers(tmp_path, n_heads):
    """A head need not have 64 features; the file alone doesn't tell."""
    path = tmp_path / "model.safetensors"
    reference = saved(path, n_heads=n_heads)
    with pytest.raises(ValueError, match="width 768 with 1 blocks .* give n_heads"):
        load_gpt2(path)
    tokens = random_tokens(2, 16, d_vocab=50)
    model, _ = load_gpt2(path, n_heads=n_heads)
    expected = reference(tokens).logits
    close = rounding(4 * model.config.d_model, expected)  # its hidden features
    torch.testing.assert_close(model(tokens), expected, **close)


def test_the_four_sizes_have_their_published_heads():
    """Radford et al. 2019, table 2; the heads are those of the released settings."""
    published = [(768, 12, 12), (1024, 24, 16), (1280, 36, 20), (1600, 48, 25)]
    for d_model, n_blocks, n_heads in published:
        assert gpt2.n_heads_of(d_model, n_blocks) == n_heads
    for d_model, n_blocks in ((768, 6), (1024, 12), (64, 2)):
        with pytest.raises(ValueError, match=f"width {d_model} with {n_blocks} blocks"):
            gpt2.n_heads_of(d_model, n_blocks)


@torch.inference_mode()
def test_an_output_matrix_of_its_own_is_kept(tmp_path):
    path = tmp_path / "model.safetensors"
    reference = saved(path)
    other = reference.lm_head.weight + torch.randn(50, 768, generator=seeded(0))
    reference.lm_head.weight = torch.nn.Parameter(other)
    save_file(load_file(path) | {"lm_head.weight": other.clone()}, path)
    model, _ = load_gpt2(path, n_heads=12)
    assert not model.config.tie_embeddings
    tokens = random_tokens(2, 16, d_vocab=50)
    expected = reference(tokens).logits
    close = rounding(4 * model.config.d_model, expected)  # its hidden features
    torch.testing.assert_close(model(tokens), expected, **close)


def test_what_was_not_fetched_says_how(tmp_path, monkeypatch):
    missing = dataclasses.replace(artifacts.GPT2, path=tmp_path / "none")
    monkeypatch.setattr(artifacts, "GPT2", missing)
    monkeypatch.setattr(gpt2, "GPT2", missing)
    with pytest.raises(FileNotFoundError, match="python -m companion gpt2"):
        load_gpt2()


def test_a_damaged_file_is_refused_in_words(tmp_path):
    path = tmp_path / "model.safetensors"
    saved(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="is damaged, or no safetensors"):
        load_gpt2(path, n_heads=12)
