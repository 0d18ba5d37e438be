"""Models against GPT-2, Llama and T5 of transformers, and what any weights show."""

import math
from dataclasses import FrozenInstanceError
from functools import partial
from itertools import product
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from common import random_tokens as draw_tokens
from common import seeded, shaken
from torch import nn
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

from companion import GPT, EncoderDecoder, GPTConfig, padding_mask
from companion.model.attention import ENGINES
from companion.model.gpt import evaluating
from companion.model.positions import POSITIONS

SIZES = {"d_vocab": 17, "context_length": 8, "d_model": 16, "n_heads": 4, "n_layers": 2}
BIG = {"d_vocab": 50, "context_length": 16, "d_model": 32, "n_heads": 4, "n_layers": 3}
TEXT, OTHER = (draw_tokens(2, n, d_vocab=50, seed=n) for n in (16, 11))
LENGTHS = torch.tensor([16, 9])
TOKENS = draw_tokens(2, 8, d_vocab=17)


def thirds(at: str, *joined) -> dict:
    """The weight and the bias of a joined product, parted in three."""
    parts = zip(*(x.chunk(3) for x in joined), strict=True)
    names = [f"{at}.to_{name}" for name in ("queries", "keys", "values")]
    return dict(zip(names, parts, strict=True))


@torch.no_grad()
def compare(model, config: dict, parts: dict, run, expected) -> None:
    """By every engine, with their layers' weights for ours; none of ours is left."""
    assert expected.std() > 0.5
    for engine in ENGINES:
        ours = model(GPTConfig(engine=engine, **config)).eval()
        left = {id(x) for x in ours.parameters()}
        for name, theirs in parts.items():
            if isinstance(theirs, Conv1D):  # it holds the transpose of a Linear
                theirs = theirs.weight.T, theirs.bias
            theirs = theirs.parameters() if isinstance(theirs, nn.Module) else theirs
            own = ours.get_submodule(name).parameters()
            for mine, other in zip(own, theirs, strict=True):
                mine.copy_(other)
                left -= {id(mine)}
        assert not left
        assert_close(run(ours), expected, atol=1e-4, rtol=0)


GPT2 = {
    "attention.to_output": "attn.c_proj",
    "attention_norm": "ln_1",
    "feed_forward.to_hidden": "mlp.c_fc",
    "feed_forward.to_output": "mlp.c_proj",
    "feed_forward_norm": "ln_2",
}


def test_logits_are_gpt2s():
    """Learned positions, biases, GELU by a tanh, one matrix in and out."""
    sizes = {"n_positions": 16, "n_embd": 32, "n_layer": 3, "n_head": 4}
    theirs = shaken(GPT2LMHeadModel(GPT2Config(vocab_size=50, **sizes)), std=0.2)
    body = theirs.transformer
    parts = {"embedding": body.wte, "positions.table": body.wpe, "norm": body.ln_f}
    for i, block in enumerate(body.h):
        three = block.attn.c_attn
        parts |= thirds(f"blocks.{i}.attention", three.weight.T, three.bias)
        for name, layer in GPT2.items():
            parts[f"blocks.{i}.{name}"] = block.get_submodule(layer)
    compare(GPT, BIG, parts, lambda gpt: gpt(TEXT), theirs(TEXT).logits)


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
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50}
    how = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    config = LlamaConfig(**sizes, **how, rms_norm_eps=1e-5)
    theirs = shaken(LlamaForCausalLM(config), std=0.2)
    body = theirs.model
    parts = {"embedding": body.embed_tokens, "unembedding": theirs.lm_head}
    parts |= {"norm": body.norm}
    for i, block in enumerate(body.layers):
        for name, layer in LLAMA.items():
            parts[f"blocks.{i}.{name}"] = block.get_submodule(layer)
    config = {"norm": "rms", "feed_forward": "gated", "activation": "silu"} | BIG
    config |= {"positions": "rotary", "rotary_base": 500.0, "bias": False}
    config |= {"n_kv_heads": 2, "d_hidden": 48, "tie_embeddings": False}
    compare(GPT, config, parts, lambda gpt: gpt(TEXT), theirs(TEXT).logits)


def t5_branch(at: str, branch: nn.Module) -> dict:
    """One residual branch of a T5 block. T5 does not divide by √d: its queries do."""
    kind, layers = [*branch.named_children()][0]
    parts = {f"{at}_norm": branch.layer_norm}
    if kind == "DenseReluDense":
        return parts | {f"{at}.to_hidden": layers.wi, f"{at}.to_output": layers.wo}
    parts |= {f"{at}.to_queries": [layers.q.weight * math.sqrt(8)]}
    parts |= {f"{at}.to_keys": layers.k, f"{at}.to_values": layers.v}
    return parts | {f"{at}.to_output": layers.o}


def test_logits_are_t5s():
    """An encoder that looks both ways, padding, one embedding for both, scaled here."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 3, "num_heads": 4}
    how = {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-5}
    config = T5Config(vocab_size=50, **sizes, **how)
    theirs = shaken(T5ForConditionalGeneration(config), std=0.2)
    parts = {"encoder.embedding": [theirs.shared.weight / math.sqrt(32)]}
    parts |= {"decoder.unembedding": theirs.lm_head}
    for half, stack in (("encoder", theirs.encoder), ("decoder", theirs.decoder)):
        relative = stack.block[0].layer[0].SelfAttention.relative_attention_bias
        parts |= {f"{half}.norm": stack.final_layer_norm}
        parts |= {f"{half}.positions.table": relative}
        for i, block in enumerate(stack.block):
            first, *cross, last = block.layer
            parts |= t5_branch(f"{half}.blocks.{i}.attention", first)
            parts |= t5_branch(f"{half}.blocks.{i}.feed_forward", last)
            if cross:
                parts |= t5_branch(f"{half}.blocks.{i}.cross_attention", *cross)
    seen = (torch.arange(16) < LENGTHS[:, None]).long()
    out = theirs(TEXT, attention_mask=seen, decoder_input_ids=OTHER).logits
    config = {"positions": "t5", "norm": "rms", "activation": "relu", "d_hidden": 64}
    config |= BIG | {"bias": False, "tie_embeddings": False, "scale_embeddings": True}
    model = partial(EncoderDecoder, shared=True)
    compare(model, config, parts, lambda model: model(TEXT, OTHER, LENGTHS), out)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_token_changes_what_may_see_it_and_no_other(positions):
    """Through one layer, so that nothing gets round the mask; cached or not."""
    config = GPTConfig(**SIZES | {"n_layers": 1}, positions=positions)
    model, padding = shaken(GPT(config)), padding_mask(torch.tensor([8, 5]), 8)
    for mask in (None, padding.expand(2, 1, 8, 8), (torch.arange(8) != 1).expand(8, 8)):
        seen = torch.ones(2, 8, 8).tril().bool()
        seen = seen if mask is None else seen & mask.view(-1, 8, 8)
        seen |= torch.eye(8, dtype=torch.bool)  # its own embedding
        before = model(TOKENS, mask=mask)
        for s in range(8):
            changed = TOKENS.clone()
            changed[:, s] = (changed[:, s] + 1) % 17
            moved = (model(changed, mask=mask) - before).abs().amax(-1)
            assert (moved[seen[..., s]] > 1e-4).all()
            assert (moved[~seen[..., s]] < 1e-6).all()
        cache, pieces = model.new_cache(), []
        for a, b in ((0, 3), (3, 4), (4, 8)):
            part = None if mask is None else mask[..., a:b, :b]
            pieces.append(model(TOKENS[:, a:b], cache, mask=part))
        assert_close(torch.cat(pieces, 1), before, atol=1e-5, rtol=0)


def test_a_plain_causal_pass_says_so_to_the_kernel_and_others_bring_what_they_need():
    """PyTorch's `is_causal` is fast, and wrong where a cache holds tokens already."""
    gpt, encoder = (GPT(GPTConfig(**SIZES), causal=x) for x in (True, False))
    cache, everything = gpt.new_cache(), torch.ones(8, 8, dtype=torch.bool)
    for call, causal, mask in (
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
            call()
        assert spy.call_count == 2  # layers
        for (*_, found), how in spy.call_args_list:
            assert how["is_causal"] == causal
            assert found is mask is None or torch.equal(found, mask)


@torch.no_grad()
def test_last_picks_the_logits_of_a_place_or_of_one_for_each_stream():
    model, tokens = shaken(GPT(GPTConfig(**SIZES))), draw_tokens(3, 7, d_vocab=17)
    whole, places = model(tokens), torch.tensor([6, 0, 3])
    for last in (-1, 0, 6):
        assert_close(model(tokens, last=last), whole[:, last])
    assert_close(model(tokens, last=places), whole[torch.arange(3), places])
    assert_close(model(tokens, model.new_cache(), last=-1), whole[:, -1])


def test_weights_begin_with_the_published_deviations():
    sizes = SIZES | {"d_model": 64, "n_layers": 8}
    for options in ({}, {"zero_init": True}, {"feed_forward": "gated", "norm": "rms"}):
        gpt = GPT(GPTConfig(**sizes, **options), seeded(), cross=True)
        for name, parameter in gpt.named_parameters():
            if parameter.dim() == 1:
                assert (parameter == (1 if name.endswith("gain") else 0)).all(), name
                continue
            residual = name.endswith("to_output.weight")
            std = (0 if "zero_init" in options else 0.005) if residual else 0.02
            assert parameter.std().item() == pytest.approx(std, rel=0.1), name
            assert abs(parameter.mean().item()) <= std / 5, name


def test_the_generator_alone_decides_the_weights():
    def weights(seed, global_seed):
        torch.manual_seed(global_seed)
        return list(GPT(GPTConfig(**SIZES), seeded(seed)).parameters())

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
    plain = GPT(GPTConfig(**SIZES, bias=False, qk_norm=True, n_kv_heads=2))
    assert not [name for name, _ in plain.named_parameters() if "bias" in name]
    assert all(block.attention.qk_norm for block in plain.blocks)
    assert plain.new_cache().capacity == 8 and plain.new_cache(3).capacity == 3
    with pytest.raises(FrozenInstanceError):
        plain.config.n_layers = 3


def test_every_parameter_takes_part_in_the_loss():
    for positions in POSITIONS:
        how = {"positions": positions, "feed_forward": "gated", "tie_embeddings": False}
        model = EncoderDecoder(GPTConfig(**SIZES | how), seeded())
        model(TOKENS, TOKENS).sin().sum().backward()
        for name, parameter in model.named_parameters():
            moves = not name.endswith("to_keys.bias")  # it adds the same to all scores
            assert parameter.grad is not None, name
            assert parameter.grad.any() or not moves, name


@torch.no_grad()
def test_dropout_falls_on_the_embedding_and_every_branch_in_training_alone():
    gpt = shaken(GPT(GPTConfig(**SIZES, dropout=1.0)))
    kept = gpt(TOKENS)
    nothing_left = gpt.unembedding(gpt.norm(torch.zeros(2, 8, 16)))
    assert_close(gpt.train()(TOKENS), nothing_left)
    still = GPT(GPTConfig(**SIZES)).train()
    still.load_state_dict(gpt.state_dict())
    assert_close(still(TOKENS), kept)


def test_tokens_and_masks_that_do_not_fit_are_refused():
    gpt = GPT(GPTConfig(**SIZES))
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
    for kind in ("int64", "float32"):  # 0 and 1 would be added to the scores
        with pytest.raises(ValueError, match=f"{kind} .* bool, True = may attend"):
            gpt(TOKENS, mask=torch.ones(8, 8, dtype=getattr(torch, kind)))


@pytest.mark.parametrize("part", ["embedding", "positions", "positions.table"])
def test_what_fails_beside_the_tokens_is_not_taken_for_them(part):
    errors = (IndexError, RuntimeError, ValueError, AttributeError, TypeError)
    for error in (*errors, torch.OutOfMemoryError, NotImplementedError):
        gpt = GPT(GPTConfig(**SIZES))

        def fail(*_, error=error):
            raise error("something else")

        gpt.get_submodule(part).register_forward_hook(fail)
        with pytest.raises(error, match="^something else$"):
            gpt(TOKENS)


def test_a_pass_on_meta_leaves_nothing_behind():
    """The weights that come afterwards find the module as it was made."""
    for positions in POSITIONS:
        config = GPTConfig(**SIZES, positions=positions)
        right = shaken(GPT(config))
        with torch.device("meta"):
            gpt = GPT(config)
            gpt(TOKENS.to("meta"), gpt.new_cache())
        gpt.load_state_dict(right.state_dict(), assign=True)
        assert torch.equal(gpt.eval()(TOKENS), right(TOKENS))


def test_a_model_that_cannot_be_built_says_which_number_is_wrong():
    for wrong, words in (
        ({"n_layers": 0}, "n_layers is 0; .* 1 or more"),
        ({"d_model": 16.0}, r"d_model is 16\.0"),
        ({"dropout": 1.5}, r"dropout is 1\.5; .* at most 1"),
        ({"positions": "fourier"}, "positions is 'fourier'.*'learned'.*'rotary'"),
        ({"feed_forward": None}, "feed_forward is None.*'plain'.*'gated'"),
        ({"engine": "blocks"}, "'blocks'.*'fused'.*'flash'"),
        ({"positions": "rotary", "d_model": 12}, "3 features .*even"),
        ({"positions": "rotary", "rotary_base": 0}, "base is 0; .* above 0"),
    ):
        with pytest.raises(ValueError, match=words):
            GPT(GPTConfig(**SIZES | wrong))


def test_evaluating_gives_every_part_its_own_mode_back():
    """The whole in training and a part not, the whole not and a part in training."""
    parts = ("dropout", "blocks", "blocks.1.dropout", "")
    for part, whole in (*product(parts, (True, False)), ("", True)):
        gpt = GPT(GPTConfig(**SIZES, dropout=0.1)).train(whole)
        gpt.get_submodule(part).train(not whole)
        modes = [x.training for x in gpt.modules()]
        with pytest.raises(RuntimeError, match="in between"), evaluating(gpt):
            assert not any(x.training for x in gpt.modules())
            raise RuntimeError("in between")
        assert [x.training for x in gpt.modules()] == modes


def test_two_matrices_are_not_loaded_into_one():
    """They were: the last of the two won, without a word."""
    sizes = {"d_vocab": 5, "context_length": 4, "d_model": 4, "n_heads": 1}
    tied = GPT(GPTConfig(**sizes, n_layers=1), seeded())
    untied = GPT(GPTConfig(**sizes, n_layers=1, tie_embeddings=False), seeded())
    before = tied.embedding.weight.clone()
    with pytest.raises(ValueError, match="one matrix for both"):
        tied.load_state_dict(untied.state_dict())
    assert torch.equal(tied.embedding.weight, before)
    other = GPT(tied.config, seeded(1))
    tied.load_state_dict(other.state_dict())
    assert torch.equal(tied.unembedding.weight, other.embedding.weight)
