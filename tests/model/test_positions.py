"""Positions against the papers' formulas, complex numbers and transformers."""

import math
from copy import deepcopy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from common import EXACT, random, rounding
from torch import nn
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.t5.modeling_t5 import T5Attention

from companion import (
    Place,
    RotaryPositions,
    alibi,
    apply_rotary,
    deinterleave,
    interleave,
    relative_buckets,
    rotary,
    rotate,
    sinusoidal,
)
from companion.model.positions import POSITIONS, alibi_slopes


def test_sinusoidal_is_the_formula_of_the_paper():
    for d_model in (2, 8, 10):
        table = sinusoidal(40, d_model)
        for i in range(d_model // 2):
            angles = [p / 10_000 ** (2 * i / d_model) for p in range(40)]
            pairs = torch.tensor([(math.sin(a), math.cos(a)) for a in angles])
            # Angles up to 40 are rounded, as is their frequency.
            close = rounding(2, torch.tensor(40.0))
            assert_close(table[:, 2 * i : 2 * i + 2], pairs, **close)


@pytest.mark.parametrize("base", [10_000, 500])
def test_rotate_is_llamas(base):
    """One order for the whole batch, and an order for each sequence."""
    queries, keys = random(2, 3, 5, 8), random(2, 3, 5, 8, seed=1)
    copy = queries.clone()
    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=3,
        rope_parameters={"rope_type": "default", "rope_theta": float(base)},
    )
    turn, angles = rotate, rotary
    if base != 10_000:  # which is the default
        turn, angles = partial(rotate, base=base), partial(rotary, base=base)
    for positions in (torch.tensor([9, 0, 3, 4, 70]), torch.arange(10).view(2, 5)):
        each = positions if positions.dim() == 2 else positions[None]
        cosines, sines = LlamaRotaryEmbedding(config)(queries, each)
        expected = apply_rotary_pos_emb(queries, keys, cosines, sines)
        rotated = turn(queries, positions), turn(keys, positions)
        # Angles up to 70 are rounded, as is their frequency.
        close = rounding(2, 70 * queries, 70 * keys)
        assert_close(rotated, expected, **close)
        by_angles = apply_rotary(queries, angles(positions, 8))
        assert torch.equal(by_angles, rotated[0])
    assert torch.equal(queries, copy)


def test_interleaved_rotation_is_multiplication_by_a_complex_number():
    x = random(2, 3, 5, 8)
    positions = torch.tensor([0, 1, 2, 5, 30])
    base = 500
    rotated = interleave(rotate(deinterleave(x), positions, base))

    frequencies = torch.tensor([base ** (-2 * i / 8) for i in range(4)])
    turns = torch.polar(torch.ones(5, 4), positions[:, None] * frequencies)
    pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)))
    expected = torch.view_as_real(pairs * turns).flatten(-2)
    # Angles up to 30 are rounded, as is their frequency.
    assert_close(rotated, expected, **rounding(2, 30 * x))


def test_far_positions_are_exact_in_a_model_of_half_precision_too():
    """In bfloat16 position 1,001 would be 1,000."""
    scheme = RotaryPositions(8).bfloat16()
    far = torch.tensor([1001])
    x = random(1, 1, 1, 8).bfloat16()
    rotated = apply_rotary(x, scheme(x, Place(far, far))[1])
    assert rotated.dtype == torch.bfloat16
    # One rounding, by half an epsilon; position 1,000 is a whole radian off.
    assert_close(rotated.float(), rotate(x.float(), far), **rounding(2, rotated))


def test_the_frequencies_stay_whatever_a_model_goes_through():
    """A pass elsewhere, half precision, a copy, a file without them."""
    x = random(1, 1, 1, 8)
    far = torch.tensor([1001])
    right = rotate(x, far)

    def assert_right(scheme):
        rope = scheme(x, Place(far, far))[1]
        assert all(part.dtype == torch.float32 for part in rope)
        assert_close(apply_rotary(x, rope), right, atol=0, rtol=0)

    scheme = RotaryPositions(8)
    assert not scheme.state_dict()
    elsewhere = far.to("meta")
    rope = scheme(x, Place(elsewhere, elsewhere))[1]
    assert all(part.is_meta for part in rope)
    assert_right(scheme)
    assert_right(deepcopy(scheme))

    for change in (nn.Module.half, nn.Module.bfloat16, nn.Module.double, deepcopy):
        assert_right(change(RotaryPositions(8)))
    assert_right(RotaryPositions(8).to("meta"))
    with torch.device("meta"):
        scheme = RotaryPositions(8)
    assert_right(scheme)


def test_a_model_in_double_precision_knows_its_places_in_double_precision():
    """Python's own numbers are the reference; in float32 it would be 1e-5 off."""
    far = torch.tensor([1001])
    x = random(1, 3, 1, 8, dtype=torch.float64)
    turns = [1001 * 500 ** (-i / 4) for i in range(4)]
    angles = torch.tensor(turns, dtype=torch.float64)
    rotations = torch.polar(torch.ones_like(angles), angles)
    turned = torch.complex(x[..., :4], x[..., 4:]) * rotations
    expected = torch.cat([turned.real, turned.imag], -1)

    # Queries and keys, and the sinks of a window that has moved on.
    scheme = RotaryPositions(8, 500).double()
    answer = scheme(x, Place(far, far, moved=far))
    for rope in (answer.rope, answer.turn):
        assert_close(apply_rotary(x, rope), expected, **EXACT)
    assert_close(rotate(x, far, 500), expected, **EXACT)

    # Waves on the embedding.
    zeros = torch.zeros(1, 1, 12, dtype=torch.float64)
    waves = POSITIONS["sinusoidal"](CONFIG, True).double()(zeros, Place(far, far)).x
    turns = [1001 * 10_000 ** (-i / 6) for i in range(6)]
    pairs = [[math.sin(a), math.cos(a)] for a in turns]
    expected = torch.tensor(pairs, dtype=torch.float64).flatten()
    assert_close(waves[0, 0], expected, **EXACT)

    # Slopes; those of 12 heads are no halves of each other.
    config = SimpleNamespace(n_heads=12)
    bias = POSITIONS["alibi"](config, True).double()(zeros, Place(far, far - 1000)).bias
    slopes = [2 ** -(i + 1) for i in range(8)] + [2 ** -(i + 0.5) for i in range(4)]
    expected = -1000 * torch.tensor(slopes, dtype=torch.float64)
    assert_close(bias[:, 0, 0], expected, **EXACT)


def test_half_precision_as_the_default_rounds_no_position():
    distances = torch.arange(300)
    before = torch.get_default_dtype()

    def numbers():
        rope = rotary(torch.tensor([1001]), 8)
        return *rope, sinusoidal(40, 8), alibi_slopes(6), relative_buckets(distances)

    right = numbers()
    for dtype in (torch.bfloat16, torch.float16):
        torch.set_default_dtype(dtype)
        try:
            rounded = numbers()
        finally:
            torch.set_default_dtype(before)
        assert_close(rounded, right, atol=0, rtol=0)


def test_alibi_slopes_are_blooms_for_any_number_of_heads():
    for n_heads in (1, 2, 3, 4, 6, 8, 12, 16, 20):
        blooms = build_alibi_tensor(torch.ones(1, 2), n_heads, torch.float32)[:, 0, 1]
        # He multiplies step by step.
        assert_close(alibi_slopes(n_heads), blooms, **rounding(n_heads, blooms))


def test_alibi_charges_the_distance_to_the_last_aligned_key():
    for n_queries, n_keys in ((5, 5), (1, 7), (3, 8)):
        bias = alibi(4, n_queries, n_keys)
        queries = range(n_keys)[-n_queries:]
        for slope, rows in zip(alibi_slopes(4).tolist(), bias, strict=True):
            costs = [[-slope * abs(t - s) for s in range(n_keys)] for t in queries]
            assert_close(rows, torch.tensor(costs))


@pytest.mark.parametrize("causal", [True, False])
def test_t5_buckets_are_those_of_transformers(causal):
    distance = torch.arange(-300, 301)  # query minus key; transformers' key minus query
    least = (32, 17) if causal else (32, 9)
    for n_buckets, max_distance in ((32, 128), (16, 64), (8, 20), least):
        expected = T5Attention._relative_position_bucket(
            -distance, not causal, n_buckets, max_distance
        )
        buckets = relative_buckets(distance, n_buckets, max_distance, causal)
        assert torch.equal(buckets, expected)


CONFIG = SimpleNamespace(context_length=9, d_model=12, n_heads=2, rotary_base=500)
SCHEMES = [(name, True) for name in POSITIONS] + [("t5", False)]
QUERIES = torch.arange(4, 7)
EARLIER = torch.arange(2, 5)
KEYS = torch.arange(7)


def expected_of(name, scheme, x, queries, causal) -> tuple:
    """What a scheme gives one stream: queries (3) in a row, the keys 0 to 6."""
    rope = bias = None
    distances = queries[:, None] - KEYS
    if name == "learned":
        x = x + scheme.table.weight[queries]
    if name == "sinusoidal":
        x = x + sinusoidal(7, 12)[queries]
    if name == "rotary":
        rope = rotary(queries, 6, base=500)
    if name == "alibi":
        bias = torch.stack([-distances.abs() * slope for slope in alibi_slopes(2)])
    if name == "t5":
        buckets = relative_buckets(distances, 32, 128, causal)
        bias = torch.stack([column[buckets] for column in scheme.table.weight.T])
    return x, rope, bias, None  # no sink has moved


@pytest.mark.parametrize("name, causal", SCHEMES)
@torch.no_grad()
def test_a_scheme_answers_what_it_knows_and_nothing_else(name, causal):
    """For three tokens after four, and for two streams that are not equally far."""
    scheme = POSITIONS[name](CONFIG, causal)
    x = random(2, 3, 12)

    # Streams that are equally far.
    alike = expected_of(name, scheme, x, QUERIES, causal)
    answers = scheme(x, Place(QUERIES, KEYS))
    for answer, expected in zip(answers, alike, strict=True):
        assert (answer is None) == (expected is None)
        if answer is not None:
            assert_close(answer, expected)

    # Each by itself.
    answers = scheme(x, Place(torch.stack([QUERIES, EARLIER]), KEYS))
    for row, queries in enumerate((QUERIES, EARLIER)):
        alone = expected_of(name, scheme, x[row], queries, causal)
        for answer, expected in zip(answers, alone, strict=True):
            if isinstance(answer, tuple):
                assert_close([part[row, 0] for part in answer], [*expected])
            elif answer is not None:
                assert_close(answer[row], expected)


def test_what_no_scheme_can_use_is_named():
    for call, words in (
        (lambda: sinusoidal(4, 7), "7 features .*even"),
        (lambda: rotate(torch.ones(1, 1, 4, 7), torch.arange(4)), "7 features"),
        (lambda: rotary(torch.arange(4), 8, base=0), "base is 0; .* 1 or more"),
        (lambda: alibi(2, 5, 4), "5 queries need as many keys, there are 4"),
        (lambda: relative_buckets(torch.arange(3), 1), "n_buckets is 1; .* 2"),
        (lambda: relative_buckets(torch.arange(3), 3, causal=False), ".* 4 or more"),
        (lambda: relative_buckets(torch.arange(3), 8, 4), "max_distance is 4; .* 5"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
