"""GPT-2's file: the same form from transformers, at published sizes."""

import dataclasses

import pytest
import torch
from common import random_tokens
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from companion import artifacts, published_gpt2
from companion.published_gpt2 import load_gpt2

SIZES = {768: 12, 1024: 16}  # width and heads


def saved(path, d_model=768, n_layers=1, d_vocab=50, positions=16):
    """Random weights in the published form, and transformers' model that has them."""
    torch.manual_seed(d_model)
    config = GPT2Config(
        vocab_size=d_vocab,
        n_positions=positions,
        n_embd=d_model,
        n_layer=n_layers,
        n_head=SIZES[d_model],
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
    theirs = saved(path, d_model, n_layers=2)
    ours, tokenizer = load_gpt2(path)
    tokens = random_tokens(2, 16, d_vocab=50)
    expected = theirs(tokens).logits
    torch.testing.assert_close(ours(tokens), expected, atol=1e-3, rtol=0)
    assert tokenizer.n_vocab == 50_257


def test_names_may_begin_with_transformer(tmp_path):
    path = tmp_path / "model.safetensors"
    saved(path)
    state = load_file(path)
    longer = {f"transformer.{name}": x for name, x in state.items()}
    save_file(longer | {"lm_head.weight": state["wte.weight"].clone()}, path)
    ours, _ = load_gpt2(path)
    assert torch.equal(ours.embedding.weight, state["wte.weight"])
    assert all(x.is_contiguous() for x in ours.parameters())
    save_file(dict(ours.named_parameters()), path)  # which no two may share


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
            lambda x: x.update({"h.2.ln_1.weight": torch.ones(768)}),
            ValueError,
            "the file has no tensor h.1.",
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
        load_gpt2(path)


def test_what_was_not_fetched_says_how(tmp_path, monkeypatch):
    missing = dataclasses.replace(artifacts.GPT2, path=tmp_path / "none")
    monkeypatch.setattr(artifacts, "GPT2", missing)
    monkeypatch.setattr(published_gpt2, "GPT2", missing)
    with pytest.raises(FileNotFoundError, match="python -m companion gpt2"):
        load_gpt2()
