"""GPT against GPT-2 and GPT-NeoX in transformers, and what holds for any weights."""

import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from common import random_tokens as draw_tokens
from common import seeded, shaken
from torch.testing import assert_close
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from companion import GPT, GPTConfig, next_token_loss, padding_mask, sinusoidal
from companion.models import evaluating

POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "t5", "none"]
SIZES = {"d_vocab": 17, "context_length": 8, "d_model": 16, "n_heads": 4, "n_layers": 2}


def random_tokens(*shape, d_vocab=17, seed=0):
    return draw_tokens(*shape, d_vocab=d_vocab, seed=seed)


def parts(name: str, weight, bias, transpose=False) -> dict:
    weight = weight.T if transpose else weight
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def from_gpt2(theirs: GPT2LMHeadModel) -> dict:
    """GPT-2's weights under our names; its Conv1D holds the transpose of a Linear."""
    body = theirs.transformer
    ours = {
        "embedding.weight": body.wte.weight,
        "positions.table.weight": body.wpe.weight,
        "unembedding.weight": theirs.lm_head.weight,
        "norm.gain": body.ln_f.weight,
        "norm.bias": body.ln_f.bias,
    }
    for i, block in enumerate(body.h):
        at = f"blocks.{i}."
        weights, biases = block.attn.c_attn.weight, block.attn.c_attn.bias
        for name, weight, bias in zip(
            ("to_queries", "to_keys", "to_values"),
            weights.chunk(3, dim=1),
            biases.chunk(3),
            strict=True,
        ):
            ours |= parts(f"{at}attention.{name}", weight, bias, True)
        for name, layer in (
            ("attention.to_output", block.attn.c_proj),
            ("feed_forward.to_hidden", block.mlp.c_fc),
            ("feed_forward.to_output", block.mlp.c_proj),
        ):
            ours |= parts(at + name, layer.weight, layer.bias, True)
        for name, norm in (
            ("attention_norm", block.ln_1),
            ("feed_forward_norm", block.ln_2),
        ):
            ours |= {f"{at}{name}.gain": norm.weight, f"{at}{name}.bias": norm.bias}
    return ours


@pytest.mark.parametrize("engine", ["fused", "explicit"])
@torch.no_grad()
def test_logits_are_those_of_gpt2_in_transformers(engine):
    theirs = shaken(
        GPT2LMHeadModel(
            GPT2Config(
                vocab_size=50,
                n_positions=16,
                n_embd=32,
                n_layer=3,
                n_head=4,
                activation_function="gelu_new",
            )
        ),
        std=0.2,
    )
    sizes = {"d_vocab": 50, "context_length": 16, "d_model": 32, "n_layers": 3}
    ours = GPT(GPTConfig(**sizes, n_heads=4, engine=engine)).eval()
    ours.load_state_dict(from_gpt2(theirs))
    tokens = random_tokens(2, 16, d_vocab=50)
    expected = theirs(tokens).logits
    assert expected.std() > 0.5
    assert_close(ours(tokens), expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_rotary_model_has_the_logits_of_gpt_neox_in_transformers():
    config = GPTNeoXConfig(
        vocab_size=50,
        max_position_embeddings=16,
        hidden_size=32,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        hidden_act="gelu",
        use_parallel_residual=False,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
        },
    )
    theirs = shaken(GPTNeoXForCausalLM(config), std=0.2)
    body = theirs.gpt_neox
    weights = {
        "embedding.weight": body.embed_in.weight,
        "unembedding.weight": theirs.get_output_embeddings().weight,
        "norm.gain": body.final_layer_norm.weight,
        "norm.bias": body.final_layer_norm.bias,
    }
    for i, block in enumerate(body.layers):
        at = f"blocks.{i}."
        to_heads = block.attention.query_key_value
        all_weights = to_heads.weight.unflatten(0, (4, 3, 8))  # head, which, feature
        all_biases = to_heads.bias.unflatten(0, (4, 3, 8))
        for j, name in enumerate(("to_queries", "to_keys", "to_values")):
            weight, bias = all_weights[:, j].flatten(0, 1), all_biases[:, j].flatten()
            weights |= parts(f"{at}attention.{name}", weight, bias)
        for name, layer in (
            ("attention.to_output", block.attention.dense),
            ("feed_forward.to_hidden", block.mlp.dense_h_to_4h),
            ("feed_forward.to_output", block.mlp.dense_4h_to_h),
        ):
            weights |= parts(at + name, layer.weight, layer.bias)
        for name, norm in (
            ("attention_norm", block.input_layernorm),
            ("feed_forward_norm", block.post_attention_layernorm),
        ):
            weights |= {f"{at}{name}.gain": norm.weight, f"{at}{name}.bias": norm.bias}
    sizes = {"d_vocab": 50, "context_length": 16, "d_model": 32, "n_layers": 3}
    how = {"positions": "rotary", "activation": "gelu", "tied": False}
    ours = GPT(GPTConfig(**sizes, n_heads=4, **how)).eval()
    ours.load_state_dict(weights)
    tokens = random_tokens(2, 16, d_vocab=50)
    assert_close(ours(tokens), theirs(tokens).logits, atol=1e-4, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
def test_both_engines_give_the_same_logits(positions):
    fused = shaken(GPT(GPTConfig(**SIZES, positions=positions)))
    explicit = GPT(GPTConfig(**SIZES, positions=positions, engine="explicit")).eval()
    explicit.load_state_dict(fused.state_dict())
    tokens = random_tokens(2, 8)
    assert_close(fused(tokens), explicit(tokens), atol=1e-5, rtol=0)


@torch.no_grad()
def test_sinusoidal_positions_are_a_learned_table_that_holds_the_sinusoids():
    ours = GPT(GPTConfig(**SIZES, positions="sinusoidal", tied=False, scaled=True))
    learned = GPT(GPTConfig(**SIZES, tied=False)).eval()
    table = {
        "positions.table.weight": sinusoidal(8, 16),
        "embedding.weight": shaken(ours).embedding.weight * math.sqrt(16),
    }
    learned.load_state_dict(ours.state_dict() | table)
    tokens = random_tokens(2, 8)
    assert_close(ours(tokens), learned(tokens), atol=1e-5, rtol=0)


@torch.no_grad()
def test_without_positions_the_order_of_earlier_tokens_is_not_seen():
    last = {}
    for positions in POSITIONS:
        model = shaken(GPT(GPTConfig(**SIZES | {"n_layers": 1}, positions=positions)))
        logits = model(torch.tensor([[1, 2, 3, 4, 5], [4, 2, 1, 3, 5]]))[:, -1]
        last[positions] = (logits[0] - logits[1]).abs().max().item()
    assert last.pop("none") < 1e-5
    assert min(last.values()) > 1e-2


@pytest.mark.parametrize("tied, n", [(True, 124_439_808), (False, 163_037_184)])
def test_gpt2_small_has_its_published_number_of_parameters(tied, n):
    with torch.device("meta"):
        model = GPT(GPTConfig(tied=tied))
    assert sum(p.numel() for p in model.parameters()) == n


@pytest.mark.parametrize("tied", [True, False])
def test_tied_models_share_the_embedding_with_the_output(tied):
    model = GPT(GPTConfig(**SIZES, tied=tied))
    assert (model.unembedding.weight is model.embedding.weight) == tied


def test_a_model_without_biases_has_none():
    model = GPT(GPTConfig(**SIZES, bias=False))
    assert not [name for name, _ in model.named_parameters() if "bias" in name]


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("engine", ["fused", "explicit"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_later_token_never_changes_an_earlier_logit(positions, engine, norm):
    how = {"positions": positions, "engine": engine, "norm": norm}
    model, tokens = shaken(GPT(GPTConfig(**SIZES, **how))), random_tokens(2, 8)
    before = model(tokens)
    for t in range(8):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % 17
        after = model(changed)
        assert_close(after[:, :t], before[:, :t], atol=1e-6, rtol=0)
        assert ((after - before)[:, t:].abs().amax((0, 2)) > 1e-4).all()


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_sequence_is_read_alike_alone_and_in_a_batch(positions):
    model = shaken(GPT(GPTConfig(**SIZES, positions=positions)))
    tokens = random_tokens(3, 8)
    alone = torch.cat([model(sequence[None]) for sequence in tokens])
    assert_close(model(tokens), alone, atol=1e-5, rtol=0)


@torch.no_grad()
def test_there_are_logits_for_every_position_and_token():
    logits = GPT(GPTConfig(**SIZES))(random_tokens(3, 5))
    assert logits.shape == (3, 5, 17)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_the_first_loss_is_that_of_a_guess(positions):
    sizes = SIZES | {"d_vocab": 65, "d_model": 64}
    model = GPT(GPTConfig(**sizes, positions=positions), seeded())
    tokens = random_tokens(32, 9, d_vocab=65)
    loss = next_token_loss(model(tokens[:, :-1]), tokens[:, 1:])
    assert loss.item() == pytest.approx(math.log(65), abs=0.1)


def test_weights_begin_with_the_published_deviations():
    sizes = SIZES | {"d_model": 64, "n_layers": 8}
    model = GPT(GPTConfig(**sizes), seeded())
    for name, parameter in model.named_parameters():
        if name.endswith("gain"):
            assert (parameter == 1).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            std = 0.02 / 4 if name.endswith("to_output.weight") else 0.02
            assert parameter.std().item() == pytest.approx(std, rel=0.1), name
            assert abs(parameter.mean().item()) < std / 5, name


@torch.no_grad()
def test_with_zero_init_every_block_begins_as_the_identity():
    model = GPT(GPTConfig(**SIZES, zero_init=True, positions="none"), seeded())
    tokens = random_tokens(2, 8)
    expected = model.unembedding(model.norm(model.embedding(tokens)))
    assert_close(model(tokens), expected, atol=1e-6, rtol=0)


def test_the_generator_alone_decides_the_weights():
    def weights(seed, global_seed):
        torch.manual_seed(global_seed)
        return list(GPT(GPTConfig(**SIZES), seeded(seed)).parameters())

    first, again, other = weights(0, 1), weights(0, 2), weights(1, 1)
    assert all(map(torch.equal, first, again))
    drawn = [(a, b) for a, b in zip(first, other, strict=True) if a.dim() == 2]
    assert not any(torch.equal(a, b) for a, b in drawn)


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_parameter_takes_part_in_the_loss(positions):
    model = GPT(GPTConfig(**SIZES, positions=positions, tied=False), seeded())
    tokens = random_tokens(4, 9)
    next_token_loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert not without


def test_dropout_is_for_training_alone():
    model, tokens = GPT(GPTConfig(**SIZES, dropout=0.5), seeded()), random_tokens(2, 8)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@torch.no_grad()
def test_dropout_falls_on_the_embedding_and_on_every_branch():
    model = shaken(GPT(GPTConfig(**SIZES, dropout=1.0))).train()
    nothing_left = model.unembedding(model.norm(torch.zeros(2, 8, 16)))
    assert_close(model(random_tokens(2, 8)), nothing_left)


@pytest.mark.parametrize(
    "tokens, message",
    [
        (torch.zeros(2, 3), r"torch\.float32.*\(2, 3\)"),
        (torch.zeros(2, 3, dtype=torch.bool), r"torch\.bool.*\(2, 3\)"),
        (torch.zeros(3, dtype=torch.int64), r"torch\.int64.*\(3,\)"),
        (torch.zeros(1, 2, 3, dtype=torch.int64), r"torch\.int64.*\(1, 2, 3\)"),
        (torch.tensor([[0, 17]]), "0 to 17.* 0 to 16"),
        (torch.tensor([[-1, 16]]), "-1 to 16.* 0 to 16"),
        (torch.zeros(1, 9, dtype=torch.int64), r"9 .*context_length \(8\)"),
    ],
)
def test_tokens_that_do_not_fit_are_refused_with_numbers(tokens, message):
    with pytest.raises(ValueError, match=message):
        GPT(GPTConfig(**SIZES))(tokens)


def test_tokens_that_do_not_fit_behind_the_cached_ones_are_refused():
    model = GPT(GPTConfig(**SIZES))
    caches = model.new_caches()
    model(random_tokens(1, 6), caches)
    with pytest.raises(ValueError, match=r"9 .*context_length \(8\)"):
        model(random_tokens(1, 3), caches)
    assert [len(kept) for kept in caches] == [6, 6]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_both_integer_types_are_tokens(dtype):
    model, tokens = GPT(GPTConfig(**SIZES)), torch.tensor([[0, 16]])
    assert torch.equal(model(tokens.to(dtype)), model(tokens))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"n_layers": 0}, "n_layers is 0; .* 1 or more"),
        ({"d_vocab": -5}, "d_vocab is -5"),
        ({"d_model": 16.0}, r"d_model is 16\.0"),
        ({"context_length": "8"}, "context_length is '8'"),
        ({"positions": "fourier"}, "positions is 'fourier'.*'learned'.*'rotary'"),
        ({"norm": "batch"}, "norm is 'batch'.*'layer'.*'rms'"),
        ({"activation": "swish"}, "activation is 'swish'.*'gelu'"),
        ({"engine": "flash"}, "'flash'.*'fused'.*'explicit'"),
        ({"n_heads": 3}, r"d_model \(16\) .* n_heads \(3\)"),
        ({"n_kv_heads": 3}, r"n_heads \(4\) .* n_kv_heads \(3\)"),
        ({"positions": "rotary", "d_model": 12}, "3 features .*even"),
        ({"positions": "sinusoidal", "d_model": 15, "n_heads": 3}, "15 features"),
    ],
)
def test_a_model_that_cannot_be_built_says_which_number_is_wrong(wrong, message):
    with pytest.raises(ValueError, match=message):
        GPT(GPTConfig(**SIZES | wrong))(random_tokens(1, 2))


def test_a_config_is_frozen_and_takes_keywords_only():
    with pytest.raises(FrozenInstanceError):
        GPTConfig().n_layers = 3
    with pytest.raises(TypeError):
        GPTConfig(50)


@torch.no_grad()
def test_a_whole_llama_has_the_logits_of_transformers():
    """Rotary positions of another base, RMSNorm, SwiGLU, grouped queries, no biases."""
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    theirs = shaken(LlamaForCausalLM(config), std=0.2)
    body = theirs.model
    weights = {
        "embedding.weight": body.embed_tokens.weight,
        "norm.gain": body.norm.weight,
    }
    weights["unembedding.weight"] = body.embed_tokens.weight
    for i, block in enumerate(body.layers):
        at = f"blocks.{i}."
        weights |= {
            f"{at}attention.to_queries.weight": block.self_attn.q_proj.weight,
            f"{at}attention.to_keys.weight": block.self_attn.k_proj.weight,
            f"{at}attention.to_values.weight": block.self_attn.v_proj.weight,
            f"{at}attention.to_output.weight": block.self_attn.o_proj.weight,
            f"{at}feed_forward.to_gate.weight": block.mlp.gate_proj.weight,
            f"{at}feed_forward.to_hidden.weight": block.mlp.up_proj.weight,
            f"{at}feed_forward.to_output.weight": block.mlp.down_proj.weight,
            f"{at}attention_norm.gain": block.input_layernorm.weight,
            f"{at}feed_forward_norm.gain": block.post_attention_layernorm.weight,
        }
    sizes = {"d_vocab": 50, "context_length": 16, "d_model": 32, "n_layers": 3}
    parts = {"norm": "rms", "feed_forward": "gated", "activation": "silu"}
    parts |= {"positions": "rotary", "rotary_base": 500.0, "bias": False}
    ours = GPT(GPTConfig(**sizes, **parts, n_heads=4, n_kv_heads=2, d_hidden=48)).eval()
    ours.load_state_dict(weights)
    tokens = random_tokens(2, 16, d_vocab=50)
    expected = theirs(tokens).logits
    assert expected.std() > 0.5
    assert_close(ours(tokens), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("engine", ["fused", "explicit"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_given_mask_forbids_more_and_never_allows_the_future(positions, engine):
    model = shaken(GPT(GPTConfig(**SIZES, positions=positions, engine=engine)))
    tokens, everything = random_tokens(2, 8), torch.ones(8, 8, dtype=torch.bool)
    assert_close(model(tokens, mask=everything), model(tokens), atol=1e-6, rtol=0)
    padded = model(tokens, mask=padding_mask(torch.tensor([8, 5]), 8))
    assert_close(padded[1, :5], model(tokens[1:, :5])[0], atol=1e-5, rtol=0)
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 17
    after = model(changed, mask=padding_mask(torch.tensor([8, 5]), 8))
    assert_close(after[0, :6], padded[0, :6], atol=1e-6, rtol=0)
    assert_close(after[1, [5, 7]], padded[1, [5, 7]], atol=1e-6, rtol=0)


@torch.no_grad()
def test_a_given_mask_composes_with_a_cache_too():
    model, tokens = (
        shaken(GPT(GPTConfig(**SIZES, positions="rotary"))),
        random_tokens(2, 8),
    )
    hidden = torch.ones(8, 8, dtype=torch.bool)
    hidden[:, 1] = False
    expected, caches = model(tokens, mask=hidden), model.new_caches()
    pieces = [
        model(tokens[:, a:b], caches, mask=hidden[a:b, :b])
        for a, b in ((0, 3), (3, 4), (4, 8))
    ]
    assert_close(torch.cat(pieces, 1), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "mask, message",
    [
        (
            torch.ones(8, 8),
            r"torch\.float32 of shape \(8, 8\); it must be bool, True = may attend",
        ),
        (torch.ones(3, 8) > 0, r"mask \(3, 8\) does not fit 8 queries and 8 keys"),
    ],
)
def test_a_mask_that_does_not_fit_is_named(mask, message):
    with pytest.raises(ValueError, match=message):
        GPT(GPTConfig(**SIZES))(random_tokens(2, 8), mask=mask)


def test_the_longer_axis_of_every_matrix_lies_in_order_and_stays_so():
    """A product with one vector then reads memory in order: see `Stack._initialize`."""
    model = GPT(GPTConfig(**SIZES | {"d_model": 32}), seeded())

    def in_order():
        matrices = [p for p in model.parameters() if p.dim() == 2]
        return [p.stride(p.shape.index(max(p.shape))) == 1 for p in matrices]

    assert all(in_order())
    model.load_state_dict(GPT(GPTConfig(**SIZES | {"d_model": 32})).state_dict())
    assert all(in_order())


@pytest.mark.parametrize("part", [None, "dropout", "blocks"])
def test_evaluating_gives_every_part_its_own_mode_back(part):
    model = GPT(GPTConfig(**SIZES))
    if part:
        model.get_submodule(part).eval()
    modes = [x.training for x in model.modules()]
    with pytest.raises(RuntimeError, match="in between"), evaluating(model):
        assert not any(x.training for x in model.modules())
        raise RuntimeError("in between")
    assert [x.training for x in model.modules()] == modes


def test_the_number_of_caches_is_the_number_of_blocks():
    model = GPT(GPTConfig(**SIZES))
    with pytest.raises(ValueError):
        model(random_tokens(1, 2), model.new_caches()[:1])


def test_logits_at_one_place():
    model, tokens = GPT(GPTConfig(**SIZES)), random_tokens(3, 7)
    whole, places = model(tokens), torch.tensor([6, 0, 3])
    assert_close(model(tokens, at=-1), whole[:, -1])
    assert_close(model(tokens, at=places), whole[torch.arange(3), places])
    for wrong in (7, -8, torch.tensor([0, 1])):
        with pytest.raises(ValueError, match="a place below 7, or one for each of 3"):
            model(tokens, at=wrong)
