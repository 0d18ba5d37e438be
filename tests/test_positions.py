"""Positions against the papers' formulas, complex numbers and transformers."""

import math
from types import SimpleNamespace

import pytest
import torch
from common import random
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.t5.modeling_t5 import T5Attention

from companion import (
    ConcatenatingCache,
    MultiHeadAttention,
    Place,
    RelativeBias,
    alibi,
    alibi_slopes,
    causal_mask,
    deinterleave,
    interleave,
    relative_buckets,
    rotary,
    rotate,
    sinusoidal,
)
from companion.positions import POSITIONS, sinusoidal_at

BASES = [10_000, 500]


def test_position_0_is_sines_of_0_beside_cosines_of_0():
    assert sinusoidal(1, 8).tolist() == [[0, 1, 0, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize("d_model", [2, 8, 10])
def test_sinusoidal_is_the_formula_of_the_paper(d_model):
    table = sinusoidal(40, d_model)
    assert table.shape == (40, d_model)
    for position in range(40):
        for i in range(d_model // 2):
            angle = position / 10_000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(
                math.sin(angle), abs=1e-5
            )
            assert table[position, 2 * i + 1].item() == pytest.approx(
                math.cos(angle), abs=1e-5
            )


@pytest.mark.parametrize("shift", [1, 7])
def test_a_shift_of_sinusoidal_positions_is_one_rotation_for_all(shift):
    d_model, table = 8, sinusoidal(40, 8)
    blocks = []
    for i in range(d_model // 2):
        a = torch.tensor(shift / 10_000 ** (2 * i / d_model))
        blocks.append(torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]))
    rotation = torch.block_diag(*blocks)
    assert_close(table[:-shift] @ rotation.T, table[shift:], atol=1e-5, rtol=0)


def test_sinusoidal_positions_can_be_looked_up_in_any_shape():
    positions = torch.tensor([[3, 0, 5], [9, 9, 1]])
    found = sinusoidal_at(positions, 6)
    assert found.shape == (2, 3, 6)
    for b, t in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        assert_close(found[b, t], sinusoidal(10, 6)[positions[b, t]])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("shape", [(5,), (2, 5)])
def test_rotate_is_llamas(shape, base):
    queries, keys = random(2, 3, 5, 8), random(2, 3, 5, 8, seed=1)
    positions = torch.arange(10).flip(0)[: math.prod(shape)].view(shape)
    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=3,
        rope_parameters={"rope_type": "default", "rope_theta": float(base)},
    )
    at = positions if positions.dim() == 2 else positions[None]
    cosines, sines = LlamaRotaryEmbedding(config)(queries, at)
    expected = apply_rotary_pos_emb(queries, keys, cosines, sines)
    ours = (rotate(queries, positions, base), rotate(keys, positions, base))
    assert_close(ours, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("base", BASES)
def test_interleaved_rotation_is_multiplication_by_a_complex_number(base):
    x, positions = random(2, 3, 5, 8), torch.tensor([0, 1, 2, 5, 30])
    turned = interleave(rotate(deinterleave(x), positions, base))
    speeds = torch.tensor([base ** (-2 * i / 8) for i in range(4)])
    turns = torch.polar(torch.ones(5, 4), positions[:, None] * speeds)
    pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)))
    expected = torch.view_as_real(pairs * turns).flatten(-2)
    assert_close(turned, expected, atol=1e-5, rtol=0)


def test_interleave_pairs_the_halves_and_deinterleave_undoes_it():
    x = torch.arange(8).expand(2, 8)
    assert interleave(x)[0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert deinterleave(x)[0].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert torch.equal(deinterleave(interleave(x)), x)
    assert torch.equal(interleave(deinterleave(x)), x)


def test_a_rotation_keeps_the_length_of_each_pair_and_turns_all_but_position_0():
    x = random(2, 3, 6, 8)
    turned = rotate(x, torch.arange(6))
    pairs = [y.unflatten(-1, (2, 4)).norm(dim=-2) for y in (turned, x)]
    assert_close(*pairs, atol=1e-5, rtol=0)
    assert torch.equal(turned[..., 0, :], x[..., 0, :])
    assert not torch.isclose(turned[..., 1:, :], x[..., 1:, :]).all(-1).any()


@pytest.mark.parametrize("shift", [1, 50])
def test_scores_of_rotated_vectors_depend_on_the_offset_alone(shift):
    queries = random(1, 2, 6, 8, dtype=torch.float64)
    keys = random(1, 2, 6, 8, seed=1, dtype=torch.float64)
    here = torch.arange(6)

    def scores(at):
        return rotate(queries, at) @ rotate(keys, at).mT

    assert_close(scores(here + shift), scores(here), atol=5e-5, rtol=0)
    moved_queries_only = rotate(queries, here + shift) @ rotate(keys, here).mT
    assert (moved_queries_only - scores(here)).abs().max() > 0.1


def test_every_sequence_of_a_batch_can_have_its_own_positions():
    x, positions = random(2, 3, 4, 6), torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10]])
    apart = [rotate(x[b : b + 1], positions[b]) for b in range(2)]
    assert_close(rotate(x, positions), torch.cat(apart))


def test_a_rotation_is_computed_once_for_tensors_with_any_number_of_heads():
    turn = rotary(torch.arange(4), 6)
    for heads in (1, 2, 5):
        x = random(2, heads, 4, 6)
        assert torch.equal(turn(x), rotate(x, torch.arange(4)))


def test_a_rotation_leaves_its_input_alone():
    x = random(1, 1, 3, 4)
    copy = x.clone()
    rotate(x, torch.arange(3))
    assert torch.equal(x, copy)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sinusoidal(4, 7),
        lambda: rotary(torch.arange(4), 7),
        lambda: rotate(torch.ones(1, 1, 4, 7), torch.arange(4)),
    ],
)
def test_an_odd_number_of_features_is_refused(call):
    with pytest.raises(ValueError, match="7 features .*even"):
        call()


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 6, 8, 12, 16, 20])
def test_alibi_slopes_are_bloom_s_for_any_number_of_heads(n_heads):
    ones = torch.ones(1, 2)
    theirs = build_alibi_tensor(ones, n_heads, torch.float32)[:, 0, 1]
    assert_close(alibi_slopes(n_heads), theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize("n_queries, n_keys", [(5, 5), (1, 7), (3, 8)])
def test_alibi_charges_the_distance_to_the_last_aligned_key(n_queries, n_keys):
    ours, slopes = alibi(4, n_queries, n_keys), alibi_slopes(4)
    assert ours.shape == (4, n_queries, n_keys)
    for h in range(4):
        for t in range(n_queries):
            for s in range(n_keys):
                distance = abs(t + n_keys - n_queries - s)
                assert ours[h, t, s] == pytest.approx(-slopes[h].item() * distance)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n_buckets, max_distance", [(32, 128), (16, 64), (8, 20)])
def test_t5_buckets_are_those_of_transformers(causal, n_buckets, max_distance):
    distance = torch.arange(-300, 301)  # query minus key; theirs is key minus query
    theirs = T5Attention._relative_position_bucket(
        -distance,
        bidirectional=not causal,
        num_buckets=n_buckets,
        max_distance=max_distance,
    )
    ours = relative_buckets(distance, n_buckets, max_distance, causal)
    assert torch.equal(ours, theirs)


def test_relative_bias_looks_its_bucket_up_for_every_pair():
    bias, distance = RelativeBias(3), torch.tensor([[0, 1, 40], [500, 7, 0]])
    ours = bias(distance)
    assert ours.shape == (3, 2, 3)
    for (t, s), bucket in {(0, 0): 0, (0, 1): 1, (1, 0): 31, (1, 1): 7}.items():
        assert torch.equal(ours[:, t, s], bias.table.weight[bucket])


@pytest.mark.parametrize("scheme", ["alibi", "t5"])
@pytest.mark.parametrize("engine", ["fused", "explicit"])
def test_a_bias_on_the_scores_equals_a_written_out_loop(scheme, engine):
    generator = torch.Generator().manual_seed(0)
    attention = MultiHeadAttention(8, 2, engine=engine)
    x = torch.randn(1, 5, 8, generator=generator)
    distance = torch.arange(5)[:, None] - torch.arange(5)
    bias = alibi(2, 5, 5) if scheme == "alibi" else 3 * RelativeBias(2)(distance)
    ours = attention(x, mask=causal_mask(5), bias=bias)
    q, k, v = (
        f(x)[0].view(5, 2, 4)
        for f in (attention.to_queries, attention.to_keys, attention.to_values)
    )
    rows = torch.zeros(5, 2, 4)
    for t in range(5):
        for h in range(2):
            scores = [q[t, h] @ k[s, h] / 2 + bias[h, t, s] for s in range(t + 1)]
            weights = torch.stack(scores).softmax(0)
            rows[t, h] = sum(weights[s] * v[s, h] for s in range(t + 1))
    assert_close(ours[0], attention.to_output(rows.flatten(1)), rtol=0, atol=1e-5)


CONFIG = SimpleNamespace(context_length=9, d_model=12, n_heads=2, rotary_base=500)
SCHEMES = {name: make(CONFIG) for name, make in POSITIONS.items()}


@pytest.mark.parametrize("name", POSITIONS)
@torch.no_grad()
def test_a_scheme_answers_what_it_knows_and_nothing_else(name):
    """Three tokens after four cached ones, asked for embedding, turn and bias."""
    scheme, x, cache = SCHEMES[name], random(2, 3, 12), ConcatenatingCache()
    cache.append(torch.zeros(2, 2, 4, 6), torch.zeros(2, 2, 4, 6))
    at = Place(torch.zeros(2, 3, dtype=torch.long), cache)
    embedded = {"learned": lambda: x + scheme.table.weight[4:7]}
    embedded["sinusoidal"] = lambda: x + sinusoidal(7, 12)[4:]
    assert_close(scheme.embed(x, at), embedded.get(name, lambda: x)())
    queries, turn = random(2, 2, 3, 6), scheme.turn(at)
    if name == "rotary":
        assert_close(turn(queries), rotate(queries, torch.arange(4, 7), base=500))
    else:
        assert turn is None
    distance = torch.arange(4, 7)[:, None] - torch.arange(7)
    biases = {"alibi": lambda: alibi(2, 3, 7), "t5": lambda: scheme(distance)}
    if name in biases:
        assert_close(scheme.bias(at), biases[name]())
    else:
        assert scheme.bias(at) is None
    asked = {"alibi": {"distances"}, "t5": {"distances"}, "none": set()}
    made = {"positions", "distances", "mask"} & vars(at).keys()
    assert made == asked.get(name, {"positions"}), "nothing is made that is not needed"


def test_t5_looks_both_ways_where_the_model_does():
    tokens = torch.zeros(1, 5, dtype=torch.long)
    scheme, distance = SCHEMES["t5"], torch.arange(5)[:, None] - torch.arange(5)
    for causal in (True, False):
        bias = scheme.bias(Place(tokens, causal=causal))
        assert torch.equal(bias, scheme(distance, causal))
    assert not torch.equal(scheme(distance, True), scheme(distance, False))


def test_a_learned_table_ends_with_the_context():
    tokens = torch.zeros(1, 10, dtype=torch.long)
    with pytest.raises(ValueError, match=r"10 positions exceed context_length \(9\)"):
        SCHEMES["learned"].embed(random(1, 10, 12), Place(tokens))
    assert SCHEMES["learned"].embed(random(1, 9, 12), Place(tokens[:, :9])).shape
