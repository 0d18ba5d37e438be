"""Models against GPT-2, Llama and T5 of transformers, and what any weights show."""

import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from functools import partial
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from common import random_tokens, rounding, seeded, shaken
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.pytorch_utils import Conv1D

from companion import (
    GPT,
    EncoderDecoder,
    GPTConfig,
    MultiHeadAttention,
    alibi,
    padding_mask,
)
from companion.model.attention import ENGINES
from companion.model.gpt import evaluating
from companion.model.positions import POSITIONS

SMALL = GPTConfig(d_vocab=17, context_length=8, d_model=16, n_heads=4, n_layers=2)
BIG = GPTConfig(d_vocab=50, context_length=16, d_model=32, n_heads=4, n_layers=3)
TEXT = random_tokens(2, 16, d_vocab=50, seed=16)
OTHER = random_tokens(2, 11, d_vocab=50, seed=11)
LENGTHS = torch.tensor([16, 9])
TOKENS = random_tokens(2, 8, d_vocab=17)


def thirds(at: str, *joined: Tensor) -> dict[str, tuple[Tensor, ...]]:
    """The weight and the bias of a joined product, parted in three."""
    thirds_of_each = [x.chunk(3) for x in joined]
    names = [f"{at}.to_{name}" for name in ("queries", "keys", "values")]
    return dict(zip(names, zip(*thirds_of_each, strict=True), strict=True))


def tensors_of(part: nn.Module | list | tuple) -> list[Tensor]:
    """A layer's weights as a Linear has them, or those that are parted already."""
    if isinstance(part, Conv1D):  # it holds the transpose of a Linear
        return [part.weight.T, part.bias]
    if isinstance(part, nn.Module):
        return [*part.parameters()]
    return [*part]


@torch.no_grad()
def compare(
    build: Callable[[GPTConfig], nn.Module],
    config: GPTConfig,
    parts: dict,
    run: Callable[[nn.Module], Tensor],
    expected: Tensor,
) -> None:
    """Holds a model with the reference's weights to its logits, by every engine.

    parts: the reference's layer, or its tensors, for each layer of the model; no
    parameter of the model may be left over.
    """
    assert expected.std() > 0.5
    for engine in ENGINES:
        model = build(replace(config, engine=engine)).eval()
        left = {id(parameter) for parameter in model.parameters()}
        for name, part in parts.items():
            parameters = model.get_submodule(name).parameters()
            for parameter, tensor in zip(parameters, tensors_of(part), strict=True):
                parameter.copy_(tensor)
                left -= {id(parameter)}
        assert not left
        hidden = 128  # four times the width, the longest sum
        assert_close(run(model), expected, **rounding(hidden, expected))


GPT2 = {
    "attention.to_output": "attn.c_proj",
    "attention_norm": "ln_1",
    "feed_forward.to_hidden": "mlp.c_fc",
    "feed_forward.to_output": "mlp.c_proj",
    "feed_forward_norm": "ln_2",
}


def test_logits_are_gpt2s():
    """Learned positions, biases, GELU by a tanh, one matrix in and out."""
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=3, n_head=4)
    reference = shaken(GPT2LMHeadModel(config), std=0.2)
    body = reference.transformer

    parts = {"embedding": body.wte, "positions.table": body.wpe, "norm": body.ln_f}
    for i, block in enumerate(body.h):
        joined = block.attn.c_attn
        parts.update(thirds(f"blocks.{i}.attention", joined.weight.T, joined.bias))
        for name, layer in GPT2.items():
            parts[f"blocks.{i}.{name}"] = block.get_submodule(layer)
    compare(GPT, BIG, parts, lambda gpt: gpt(TEXT), reference(TEXT).logits)


LLAMA = {
    "attention.to_queries": "self_attn.q_proj",
    "attention.to_keys": "self_attn.k_proj",
    "attention.to_values": "self_attn.v_proj",
    "attention.to_output": "self_attn.o_proj",
    "attention_norm": "input_layernorm",
    "feed_forward.to_hidden": "mlp.up_proj",
    "feed_forward.to_output": "mlp.down_proj",
    "feed_forward.to_gate": "mlp.gate_proj",
    "feed_forward_norm": "post_attention_layernorm",
}


def test_logits_are_llamas():
    """Rotary positions of another base, RMSNorm, SwiGLU, grouped queries, untied."""
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        rms_norm_eps=1e-5,
    )
    reference = shaken(LlamaForCausalLM(config), std=0.2)
    body = reference.model

    parts = {
        "embedding": body.embed_tokens,
        "unembedding": reference.lm_head,
        "norm": body.norm,
    }
    for i, block in enumerate(body.layers):
        for name, layer in LLAMA.items():
            parts[f"blocks.{i}.{name}"] = block.get_submodule(layer)

    config = replace(
        BIG,
        n_kv_heads=2,
        d_hidden=48,
        positions="rotary",
        rotary_base=500.0,
        norm="rms",
        feed_forward="gated",
        activation="silu",
        bias=False,
        tie_embeddings=False,
    )
    compare(GPT, config, parts, lambda gpt: gpt(TEXT), reference(TEXT).logits)


def t5_branch(at: str, branch: nn.Module) -> dict:
    """One residual branch of a T5 block. T5 does not divide by √d: its queries do."""
    name, layers = next(branch.named_children())
    if name == "DenseReluDense":
        return {
            f"{at}_norm": branch.layer_norm,
            f"{at}.to_hidden": layers.wi,
            f"{at}.to_output": layers.wo,
        }
    return {
        f"{at}_norm": branch.layer_norm,
        f"{at}.to_queries": [layers.q.weight * math.sqrt(8)],
        f"{at}.to_keys": layers.k,
        f"{at}.to_values": layers.v,
        f"{at}.to_output": layers.o,
    }


def t5_stack(half: str, stack: nn.Module) -> dict:
    """The encoder's or the decoder's parts; the latter's blocks have a third branch."""
    relative = stack.block[0].layer[0].SelfAttention.relative_attention_bias
    parts = {f"{half}.norm": stack.final_layer_norm}
    parts[f"{half}.positions.table"] = relative
    for i, block in enumerate(stack.block):
        first, *cross, last = block.layer
        parts.update(t5_branch(f"{half}.blocks.{i}.attention", first))
        parts.update(t5_branch(f"{half}.blocks.{i}.feed_forward", last))
        if cross:
            parts.update(t5_branch(f"{half}.blocks.{i}.cross_attention", *cross))
    return parts


def test_logits_are_t5s():
    """An encoder that looks both ways, padding, one embedding for both, scaled here."""
    config = T5Config(
        vocab_size=50,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=3,
        num_heads=4,
        tie_word_embeddings=False,
        layer_norm_epsilon=1e-5,
    )
    reference = shaken(T5ForConditionalGeneration(config), std=0.2)
    parts = {
        "encoder.embedding": [reference.shared.weight / math.sqrt(32)],
        "decoder.unembedding": reference.lm_head,
        **t5_stack("encoder", reference.encoder),
        **t5_stack("decoder", reference.decoder),
    }

    real = (torch.arange(16) < LENGTHS[:, None]).long()
    expected = reference(TEXT, attention_mask=real, decoder_input_ids=OTHER).logits
    config = replace(
        BIG,
        d_hidden=64,
        positions="t5",
        norm="rms",
        activation="relu",
        bias=False,
        tie_embeddings=False,
        scale_embeddings=True,
    )
    build = partial(EncoderDecoder, shared=True)
    compare(build, config, parts, lambda model: model(TEXT, OTHER, LENGTHS), expected)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_token_changes_what_may_see_it_and_no_other(positions):
    """Through one layer, so that nothing gets round the mask; cached or not."""
    config = replace(SMALL, n_layers=1, positions=positions)
    model = shaken(GPT(config))
    padding = padding_mask(torch.tensor([8, 5]), 8)
    for mask in (None, padding.expand(2, 1, 8, 8), (torch.arange(8) != 1).expand(8, 8)):
        seen = torch.ones(2, 8, 8).tril().bool()
        if mask is not None:
            seen &= mask.view(-1, 8, 8)
        seen |= torch.eye(8, dtype=torch.bool)  # its own embedding

        # Change each token in turn.
        before = model(TOKENS, mask=mask)
        for s in range(8):
            changed = TOKENS.clone()
            changed[:, s] = (changed[:, s] + 1) % 17
            moved = (model(changed, mask=mask) - before).abs().amax(-1)
            assert (moved[seen[..., s]] > 1e-4).all()
            assert (moved[~seen[..., s]] < 1e-6).all()

        # The same in pieces, with a cache.
        cache = model.new_cache()
        pieces = []
        for start, end in ((0, 3), (3, 4), (4, 8)):
            part = None if mask is None else mask[..., start:end, :end]
            pieces.append(model(TOKENS[:, start:end], cache, mask=part))
        assert_close(torch.cat(pieces, 1), before, **rounding(64, before))


def test_a_plain_causal_pass_says_so_to_the_kernel_and_others_bring_what_they_need():
    """PyTorch's `is_causal` is fast, and wrong where a cache holds tokens already."""
    gpt = GPT(SMALL)
    encoder = GPT(SMALL, causal=False)
    cache = gpt.new_cache()
    everything = torch.ones(8, 8, dtype=torch.bool)
    for run, causal, mask in (
        (lambda: gpt(TOKENS), True, None),
        (lambda: gpt(TOKENS[:, :3], cache), True, None),
        (lambda: gpt(TOKENS[:, :3], cache), False, torch.ones(3, 6).tril(3).bool()),
        (lambda: gpt(TOKENS[:, :1], cache), False, None),
        (lambda: gpt(TOKENS, mask=everything), False, everything.tril()),
        (lambda: encoder(TOKENS), False, None),
        (lambda: encoder(TOKENS, mask=everything), False, everything),
    ):
        kernel = F.scaled_dot_product_attention
        with patch.object(F, "scaled_dot_product_attention", wraps=kernel) as spy:
            run()
        assert spy.call_count == 2  # layers
        for call in spy.call_args_list:
            kernels_mask = call.args[-1]
            assert call.kwargs["is_causal"] == causal
            assert kernels_mask is mask is None or torch.equal(kernels_mask, mask)


@torch.no_grad()
def test_last_picks_the_logits_of_a_place_or_of_some_for_each_stream():
    model = shaken(GPT(SMALL))
    tokens = random_tokens(3, 7, d_vocab=17)
    whole = model(tokens)
    places = torch.tensor([6, 0, 3])
    for last in (-1, 0, 6):
        assert_close(model(tokens, last=last), whole[:, last])
    assert_close(model(tokens, last=places), whole[torch.arange(3), places])
    several = torch.tensor([[6, 0, 3, 3], [1, 2, 4, 0], [0, 5, 6, 2]])
    expected = torch.stack([whole[i, several[i]] for i in range(3)])
    assert_close(model(tokens, last=several), expected)
    assert_close(model(tokens, model.new_cache(), last=-1), whole[:, -1])
    for wrong in (places[:1], several[:1], several.T, several > 2, places.float()):
        with pytest.raises(ValueError, match="last (has . rows for 3|is .* b or b n)"):
            model(tokens, last=wrong)


def test_weights_begin_with_the_published_deviations():
    plain = replace(SMALL, d_model=64, n_layers=8)
    zero = replace(plain, zero_init=True)
    gated = replace(plain, feed_forward="gated", norm="rms")
    for config in (plain, zero, gated):
        gpt = GPT(config, seeded(), cross=True)
        for name, parameter in gpt.named_parameters():
            if parameter.dim() == 1:
                assert (parameter == (1 if name.endswith("gain") else 0)).all(), name
                continue
            std = 0.02
            if name.endswith("to_output.weight"):  # into the residual stream
                std = 0 if config.zero_init else 0.005
            # Ten standard errors of n numbers' deviation, and of their mean.
            n = parameter.numel()
            deviation = parameter.std().item()
            assert deviation == pytest.approx(std, rel=10 / math.sqrt(2 * n)), name
            assert abs(parameter.mean().item()) <= 10 * std / math.sqrt(n), name


def test_the_generator_alone_decides_the_weights():
    def weights(seed, global_seed):
        torch.manual_seed(global_seed)
        return list(GPT(SMALL, seeded(seed)).parameters())

    first, again, other = weights(0, 1), weights(0, 2), weights(1, 1)
    assert all(map(torch.equal, first, again))
    pairs = zip(first, other, strict=True)
    assert not any(x.dim() == 2 and torch.equal(x, y) for x, y in pairs)


def test_a_model_has_the_parts_of_its_configuration():
    with torch.device("meta"):
        for tied, n in ((True, 124_439_808), (False, 163_037_184)):  # as published
            gpt = GPT(GPTConfig(tie_embeddings=tied))
            assert sum(p.numel() for p in gpt.parameters()) == n
            assert (gpt.unembedding.weight is gpt.embedding.weight) == tied

    plain = GPT(replace(SMALL, bias=False, qk_norm=True, n_kv_heads=2))
    assert not [name for name, _ in plain.named_parameters() if "bias" in name]
    assert all(block.attention.qk_norm for block in plain.blocks)
    assert plain.new_cache().capacity == 8 and plain.new_cache(3).capacity == 3
    with pytest.raises(FrozenInstanceError):
        plain.config.n_layers = 3


def test_every_parameter_takes_part_in_the_loss():
    for positions in POSITIONS:
        config = replace(
            SMALL, positions=positions, feed_forward="gated", tie_embeddings=False
        )
        model = EncoderDecoder(config, seeded())
        model(TOKENS, TOKENS).sin().sum().backward()
        for name, parameter in model.named_parameters():
            moves = not name.endswith("to_keys.bias")  # it adds the same to all scores
            assert parameter.grad is not None, name
            assert parameter.grad.any() or not moves, name


@torch.no_grad()
def test_dropout_falls_on_the_embedding_and_every_branch_in_training_alone():
    gpt = shaken(GPT(replace(SMALL, dropout=1.0)))
    by_evaluation = gpt(TOKENS)
    nothing_left = gpt.unembedding(gpt.norm(torch.zeros(2, 8, 16)))
    assert_close(gpt.train()(TOKENS), nothing_left)

    without_dropout = GPT(SMALL).train()
    without_dropout.load_state_dict(gpt.state_dict())
    assert_close(without_dropout(TOKENS), by_evaluation)


def test_tokens_and_masks_that_do_not_fit_are_refused():
    gpt = GPT(SMALL)
    cache = gpt.new_cache(20)
    gpt(TOKENS[:, :6], cache)
    assert torch.equal(gpt(TOKENS.int()), gpt(TOKENS))
    for tokens, words in (
        (torch.zeros(2, 3), r"torch\.float32 of shape \(2, 3\).*integers \(b t\)"),
        (torch.zeros(3).long(), r"torch\.int64 of shape \(3,\).*integers \(b t\)"),
        ([[0, 1]], r"tokens are \[\[0, 1\]\]; .*integers \(b t\)"),
        (torch.zeros(2, 3).byte(), r"uint8 .*integers \(b t\), of 64 or 32 bits"),
        (torch.zeros(2, 3) > 0, r"bool .*integers \(b t\)"),
        (None, r"tokens are None; .*integers \(b t\)"),
        (torch.tensor([[0, 17]]), "0 to 17; the vocabulary is 0 to 16"),
        (torch.tensor([[-1, 16]]), "-1 to 16; the vocabulary is 0 to 16"),
        (torch.zeros(1, 9).long(), r"9 positions exceed context_length \(8\)"),
    ):
        with pytest.raises(ValueError, match=words):
            gpt(tokens)
    with pytest.raises(ValueError, match=r"9 positions exceed context_length \(8\)"):
        gpt(TOKENS[:, :3], cache)
    for name in ("int64", "float32"):  # 0 and 1 would be added to the scores
        with pytest.raises(ValueError, match=f"{name} .* bool, True = may attend"):
            gpt(TOKENS, mask=torch.ones(8, 8, dtype=getattr(torch, name)))


@pytest.mark.parametrize("part", ["embedding", "positions", "positions.table"])
def test_what_fails_beside_the_tokens_is_not_taken_for_them(part):
    errors = (IndexError, RuntimeError, ValueError, AttributeError, TypeError)
    for error in (*errors, torch.OutOfMemoryError, NotImplementedError):
        gpt = GPT(SMALL)

        def fail(*_, error=error):
            raise error("something else")

        gpt.get_submodule(part).register_forward_hook(fail)
        with pytest.raises(error, match="^something else$"):
            gpt(TOKENS)


def test_a_pass_on_meta_leaves_nothing_behind():
    """The weights that come afterwards find the module as it was made."""
    for positions in POSITIONS:
        config = replace(SMALL, positions=positions)
        right = shaken(GPT(config))
        with torch.device("meta"):
            gpt = GPT(config)
            gpt(TOKENS.to("meta"), gpt.new_cache())
        gpt.load_state_dict(right.state_dict(), assign=True)
        assert torch.equal(gpt.eval()(TOKENS), right(TOKENS))


def test_a_model_that_cannot_be_built_says_which_number_is_wrong():
    for make, words in (
        (lambda: replace(SMALL, n_layers=0), "n_layers is 0; .* 1 or more"),
        (lambda: replace(SMALL, d_model=16.0), r"d_model is 16\.0"),
        (lambda: replace(SMALL, dropout=1.5), r"dropout is 1\.5; .* at most 1"),
        (
            lambda: replace(SMALL, positions="fourier"),
            "positions is 'fourier'.*'learned'.*'rotary'",
        ),
        (
            lambda: replace(SMALL, feed_forward=None),
            "feed_forward is None.*'plain'.*'gated'",
        ),
        (lambda: replace(SMALL, engine="blocks"), "'blocks'.*'fused'.*'flash'"),
        (lambda: replace(SMALL, positions="rotary", d_model=12), "3 features .*even"),
        (
            lambda: replace(SMALL, positions="rotary", rotary_base=0),
            "rotary_base is 0; .* 1 or more, and finite",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            GPT(make())


@pytest.mark.parametrize("positions", POSITIONS)
def test_numpy_s_numbers_are_python_s(positions):
    sizes = {"d_vocab": 11, "context_length": 8, "d_model": 8, "n_heads": 4}
    sizes |= {"n_layers": 1, "n_kv_heads": 2, "d_hidden": 12, "rotary_base": 100}
    names = {"positions": positions}
    theirs = GPTConfig(**{k: np.int64(n) for k, n in sizes.items()}, **names)
    assert json.dumps(vars(theirs)) == json.dumps(vars(GPTConfig(**sizes, **names)))
    assert type(replace(theirs, dropout=np.float32(0.5)).dropout) is float
    assert GPT(theirs)(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 11)


def test_attention_takes_numpy_s_numbers_of_heads():
    one, two, four, eight = (np.int64(n) for n in (1, 2, 4, 8))
    layer = MultiHeadAttention(eight, four, n_kv_heads=two)
    assert layer(torch.ones(1, 3, 8)).shape == (1, 3, 8)
    assert alibi(four, one, two).equal(alibi(4, 1, 2))


def test_evaluating_gives_every_part_its_own_mode_back():
    """The whole in training and a part not, the whole not and a part in training."""
    parts = ("dropout", "blocks", "blocks.1.dropout", "")
    for part, whole in (*product(parts, (True, False)), ("", True)):
        gpt = GPT(replace(SMALL, dropout=0.1)).train(whole)
        gpt.get_submodule(part).train(not whole)
        modes = [x.training for x in gpt.modules()]
        with pytest.raises(RuntimeError, match="in between"), evaluating(gpt):
            assert not any(x.training for x in gpt.modules())
            raise RuntimeError("in between")
        assert [x.training for x in gpt.modules()] == modes


def test_two_matrices_are_not_loaded_into_one():
    """They were: the last of the two won, without a word."""
    config = GPTConfig(d_vocab=5, context_length=4, d_model=4, n_heads=1, n_layers=1)
    tied = GPT(config, seeded())
    untied = GPT(replace(config, tie_embeddings=False), seeded())
    before = tied.embedding.weight.clone()
    with pytest.raises(ValueError, match="one matrix for both"):
        tied.load_state_dict(untied.state_dict())
    assert torch.equal(tied.embedding.weight, before)

    other = GPT(tied.config, seeded(1))
    tied.load_state_dict(other.state_dict())
    assert torch.equal(tied.unembedding.weight, other.embedding.weight)
