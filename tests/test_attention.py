"""Attention against PyTorch, a written-out loop, and nn.MultiheadAttention."""

import math

import pytest
import torch
import torch.nn.functional as F
from common import random, shaken
from torch import nn
from torch.testing import assert_close

from companion import (
    ConcatenatingCache,
    MultiHeadAttention,
    attention,
    attention_weights,
    block_attention,
    causal_mask,
    fused_attention,
    padding_mask,
    rotary,
    softmax,
)

ENGINES = [attention, fused_attention, block_attention]
B, H, T, S, D = 2, 3, 4, 7, 5
LENGTHS = torch.tensor([4, 6])
MASKS = {
    "no mask": None,
    "causal": causal_mask(T, S),
    "padding": padding_mask(LENGTHS, S),
    "causal and padding": causal_mask(T, S) & padding_mask(LENGTHS, S),
    "one key for all": torch.arange(S)[None] == 2,
    "nothing at query 1": torch.arange(T)[:, None].expand(T, S) != 1,
}


def sizes(dtype=torch.float32):
    """Queries, keys, values and a bias, large enough for weights far from uniform."""
    shapes = ((B, H, T, D), (B, H, S, D), (B, H, S, D), (H, T, S))
    return [2 * random(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def attention_by_loops(queries, keys, values, mask, bias):
    """Equation 1, one number at a time, in double precision."""
    out = torch.zeros(B, H, T, D, dtype=torch.float64)
    allowed = torch.ones(T, S) if mask is None else mask
    allowed = allowed.expand(B, H, T, S)
    bias = torch.zeros(B, H, T, S) if bias is None else bias.expand(B, H, T, S)
    for b, h, t in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        weights = {}
        for s in range(S):
            if allowed[b, h, t, s]:
                score = sum((queries[b, h, t] * keys[b, h, s]).tolist()) / math.sqrt(D)
                weights[s] = math.exp(score + bias[b, h, t, s].item())
        for s, weight in weights.items():
            share = weight / sum(weights.values())
            out[b, h, t] += share * values[b, h, s].double()
    return out


@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("size", [1.0, 1e4, 1e38])
def test_softmax_is_pytorchs_even_for_huge_scores(dim, size):
    scores = size * random(3, 4, 5)
    assert_close(softmax(scores, dim), scores.softmax(dim), atol=1e-6, rtol=1e-6)


def test_softmax_without_any_score_is_zero_and_leaves_other_rows_alone():
    scores = random(3, 4)
    scores[1] = -math.inf
    scores[2, :3] = -math.inf
    expected = scores.softmax(-1).nan_to_num()
    assert_close(softmax(scores), expected, atol=1e-6, rtol=0)
    assert softmax(scores)[1].tolist() == [0] * 4


def test_softmax_has_the_gradient_of_its_formula():
    scores = random(3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(softmax, scores)


def test_softmax_passes_a_wrong_number_on():
    assert softmax(torch.tensor([1.0, math.nan])).isnan().all()


@pytest.mark.parametrize("n_queries, n_keys", [(1, 1), (4, 4), (1, 5), (3, 5), (4, 9)])
def test_a_query_sees_no_later_key_and_the_last_query_sees_the_last_key(
    n_queries, n_keys
):
    mask = causal_mask(n_queries, n_keys)
    first = n_keys - n_queries  # the position of the first query
    expected = [[s <= first + t for s in range(n_keys)] for t in range(n_queries)]
    assert mask.tolist() == expected
    assert n_queries < n_keys or torch.equal(mask, causal_mask(n_queries))


def test_more_queries_than_keys_have_no_causal_mask():
    with pytest.raises(ValueError, match="5 queries.* 4"):
        causal_mask(5, 4)


def test_padding_is_not_seen():
    mask = padding_mask(torch.tensor([0, 2, 3]), 3)
    assert mask.shape == (3, 1, 1, 3)
    assert mask.flatten(1).long().tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("lengths", [[1, 4], [-1, 2]])
def test_lengths_beyond_the_keys_are_refused(lengths):
    with pytest.raises(ValueError, match=rf"\[{lengths[0]}, {lengths[1]}\].* 0 to 3"):
        padding_mask(torch.tensor(lengths), 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_equation_1(engine, name, biased, dtype):
    queries, keys, values, bias = sizes(dtype)
    mask, bias = MASKS[name], bias if biased else None
    out = engine(queries, keys, values, mask, bias)
    expected = attention_by_loops(queries, keys, values, mask, bias).to(dtype)
    assert_close(out, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MASKS)
def test_the_weights_are_what_attention_reads_from_an_identity(name):
    queries, keys, _, _ = sizes()
    weights = attention_weights(queries, keys, MASKS[name])
    identity = torch.eye(S).expand(B, H, S, S)
    expected = F.scaled_dot_product_attention(queries, keys, identity, MASKS[name])
    assert_close(weights, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_with_as_many_queries_as_keys_the_mask_is_pytorchs_is_causal(engine):
    queries, keys, values, _ = sizes()
    keys, values = keys[..., -T:, :], values[..., -T:, :]
    expected = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    out = engine(queries, keys, values, causal_mask(T))
    assert_close(out, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_last_query_of_a_causal_attention_sees_every_key(engine):
    queries, keys, values, _ = sizes()
    out = engine(queries, keys, values, causal_mask(T, S))[..., -1:, :]
    alone = engine(queries[..., -1:, :], keys, values)
    assert_close(out, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_with_nothing_to_attend_to_gives_zeros_and_finite_gradients(
    engine, biased
):
    queries, keys, values, bias = (x.requires_grad_() for x in sizes())
    mask = causal_mask(T, S) & padding_mask(torch.tensor([S, 0]), S)
    out = engine(queries, keys, values, mask, bias if biased else None)
    assert (out[1] == 0).all() and (out[0] != 0).all()
    out.square().sum().backward()
    for x in (queries, keys, values):
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all() and (x.grad[0] != 0).any()


def test_weights_sum_to_1_or_to_0_where_nothing_may_be_attended():
    queries, keys, _, _ = sizes()
    mask = causal_mask(T, S) & padding_mask(torch.tensor([S, 0]), S)
    totals = attention_weights(queries, keys, mask).sum(-1)
    assert_close(totals[0], torch.ones(H, T))
    assert totals[1].tolist() == torch.zeros(H, T).tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_forbidden_key_changes_nothing_whatever_it_holds(engine):
    queries, keys, values, _ = sizes()
    mask = padding_mask(LENGTHS, S)
    before = engine(queries, keys, values, mask)
    keys[0, :, 4:], values[0, :, 4:] = 1e9, -1e9
    assert_close(engine(queries, keys, values, mask), before, atol=1e-6, rtol=0)


@pytest.mark.parametrize("engine", [*ENGINES, attention_weights])
def test_attention_changes_none_of_its_inputs(engine):
    queries, keys, values, bias = sizes()
    mask = MASKS["causal and padding"]
    inputs = [queries, keys, values, mask, bias]
    if engine is attention_weights:
        inputs = [queries, keys, mask, bias]
    copies = [x.clone() for x in inputs]
    engine(*inputs)
    for x, copy in zip(inputs, copies, strict=True):
        assert torch.equal(x, copy)


def test_all_engines_have_equal_gradients():
    gradients = []
    for engine in ENGINES:
        inputs = [x.requires_grad_() for x in sizes(torch.float64)]
        *tensors, bias = inputs
        engine(*tensors, MASKS["causal and padding"], bias).square().sum().backward()
        gradients.append([x.grad for x in inputs])
    for other in gradients[1:]:
        assert_close(other, gradients[0], atol=1e-10, rtol=0)


def bad(mask=None, **shapes):
    shapes = {"queries": (1, 2, 3, 4), "keys": (1, 2, 5, 4)} | shapes
    return [torch.ones(shape) for shape in shapes.values()], mask


@pytest.mark.parametrize(
    "case, message",
    [
        (bad(keys=(1, 2, 5, 6)), "queries have 4 .* keys 6"),
        (bad(torch.ones(2, 5) > 0), "mask .2, 5. does not fit 3 queries and 5 keys"),
        (bad(torch.ones(3, 4) > 0), "mask .3, 4. does not fit 3 queries and 5 keys"),
        (bad(torch.ones(3, 5)), r"torch\.float32.* bool.* True = may attend"),
        (bad(torch.ones(3, 5).int()), r"torch\.int32.* bool"),
    ],
)
def test_sizes_that_do_not_fit_are_both_named(case, message):
    (queries, keys), mask = case
    with pytest.raises(ValueError, match=message):
        attention_weights(queries, keys, mask)
    with pytest.raises(ValueError, match=message):
        attention(queries, keys, torch.ones_like(keys), mask)


def test_dtypes_that_do_not_fit_are_both_named():
    queries, keys, values, _ = sizes()
    with pytest.raises(ValueError, match=r"torch\.float32 .* torch\.float64"):
        attention(queries, keys.double(), values)


@pytest.mark.parametrize(
    "how, message",
    [
        ({"d_model": 10, "n_heads": 4}, r"d_model \(10\) .* n_heads \(4\)"),
        (
            {"d_model": 12, "n_heads": 4, "n_kv_heads": 3},
            r"n_heads \(4\) .* n_kv_heads \(3\)",
        ),
        (
            {"d_model": 12, "n_heads": 4, "n_kv_heads": 8},
            r"n_heads \(4\) .* n_kv_heads \(8\)",
        ),
        ({"d_model": 12, "n_heads": 4, "engine": "flash"}, "'flash'.* 'blocks'"),
    ],
)
def test_heads_that_do_not_divide_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**how)


def pytorchs_heads(ours: MultiHeadAttention, bias: bool) -> nn.MultiheadAttention:
    """PyTorch's module with our weights."""
    theirs = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True)
    parts = (ours.to_queries, ours.to_keys, ours.to_values)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.out_proj.weight.copy_(ours.to_output.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
            theirs.out_proj.bias.copy_(ours.to_output.bias)
    return theirs


@pytest.mark.parametrize("engine", ["fused", "explicit", "blocks"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_many_heads_are_pytorchs_with_the_opposite_mask(cross, masked, bias, engine):
    ours = shaken(MultiHeadAttention(12, 3, bias, engine=engine))
    theirs = pytorchs_heads(ours, bias)
    x = random(2, T, 12, seed=1)
    context = random(2, S, 12, seed=2) if cross else None
    asked = x if context is None else context
    mask = causal_mask(T, asked.shape[1]) if masked else None
    forbidden = None if mask is None else ~mask
    expected, weights = theirs(
        x, asked, asked, attn_mask=forbidden, average_attn_weights=False
    )
    seen = []
    ours.pattern.register_forward_hook(lambda *call: seen.append(call[-1]))
    assert_close(ours(x, context, mask=mask), expected, atol=1e-5, rtol=1e-5)
    if engine == "explicit":
        assert_close(seen[0], weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("n_kv_heads", [None, 1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_the_engines_of_a_module_agree(turned, n_kv_heads, normalize):
    outs = []
    for engine in ("explicit", "fused", "blocks"):
        module = MultiHeadAttention(
            16, 4, n_kv_heads=n_kv_heads, normalize=normalize, engine=engine
        )
        how = {"mask": causal_mask(T), "bias": random(4, T, T)}
        if turned:
            how["turn"] = rotary(torch.arange(T), 4)
        outs.append(shaken(module)(random(2, T, 16, seed=1), **how))
    for out in outs[1:]:
        assert_close(out, outs[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("engine", ["fused", "explicit", "blocks"])
@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_shared_keys_and_values_are_repeated_weights(n_kv_heads, engine):
    few = shaken(MultiHeadAttention(16, 4, n_kv_heads=n_kv_heads, engine=engine))
    many = MultiHeadAttention(16, 4, engine=engine)
    weights = few.state_dict()
    for name in ("to_keys", "to_values"):
        for part in ("weight", "bias"):
            heads = weights[f"{name}.{part}"].unflatten(0, (n_kv_heads, 4))
            each_query_head = [heads[h * n_kv_heads // 4] for h in range(4)]
            weights[f"{name}.{part}"] = torch.cat(each_query_head)
    many.load_state_dict(weights)
    x, context = random(2, T, 16, seed=1), random(2, S, 16, seed=2)
    assert_close(few(x, context), many(x, context), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("engine", ["fused", "explicit", "blocks"])
@pytest.mark.parametrize("n_kv_heads", [None, 1])
def test_a_context_can_be_prepared_once_for_any_number_of_questions(engine, n_kv_heads):
    module = shaken(MultiHeadAttention(12, 3, n_kv_heads=n_kv_heads, engine=engine))
    x, context = random(B, T, 12), random(B, S, 12, seed=1)
    mask, prepared = padding_mask(LENGTHS, S), module.keys_and_values(context)
    expected = module(x, context, mask=mask)
    assert_close(module(x, prepared, mask=mask), expected, atol=1e-6, rtol=0)
    others = module.keys_and_values(context.flip(0))
    flipped = module(x, others, mask=mask)
    assert_close(flipped, module(x, context.flip(0), mask=mask), atol=1e-6, rtol=0)
    assert not torch.allclose(flipped, expected, atol=1e-2)
    one = module.keys_and_values(context[:1])
    repeated = module(x, context[:1].expand(B, S, 12))
    assert_close(module(x, one), repeated, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "how", [{"turn": rotary(torch.arange(4), 4)}, {"cache": ConcatenatingCache()}]
)
def test_turn_and_cache_are_for_self_attention_alone(how):
    module, x = MultiHeadAttention(12, 3), random(1, 4, 12)
    with pytest.raises(ValueError, match="self-attention"):
        module(x, random(1, 4, 12, seed=1), **how)
    with pytest.raises(ValueError, match="self-attention"):
        module(x, module.keys_and_values(x), **how)


@pytest.mark.parametrize("engine", ENGINES)
def test_more_or_fewer_values_than_keys_are_refused(engine):
    queries, keys, values, _ = sizes()
    for wrong in (values[..., :6, :], torch.cat([values, values], -2), values[:1]):
        with pytest.raises(ValueError, match=r"7 keys have (6|14|7) values"):
            engine(queries, keys, wrong)


def test_a_hook_on_the_pattern_sees_rows_that_sum_to_1():
    module = shaken(MultiHeadAttention(12, 3, engine="explicit"))
    seen = []
    module.pattern.register_forward_hook(lambda *call: seen.append(call[-1]))
    module(random(B, T, 12), random(B, S, 12, seed=1), mask=causal_mask(T, S))
    (weights,) = seen
    assert weights.shape == (B, 3, T, S)
    assert_close(weights.sum(-1), torch.ones(B, 3, T))
    assert (weights[..., ~causal_mask(T, S)] == 0).all()


def test_a_hook_on_the_pattern_can_switch_attention_off():
    module = shaken(MultiHeadAttention(12, 3, engine="explicit"))
    module.pattern.register_forward_hook(lambda *call: torch.zeros_like(call[-1]))
    out = module(random(B, T, 12))
    assert torch.equal(out, module.to_output.bias.expand(B, T, 12))


@pytest.mark.parametrize("engine", ["fused", "explicit", "blocks"])
def test_normalized_queries_and_keys_have_unit_mean_square(engine):
    module = shaken(MultiHeadAttention(12, 3, normalize=True, engine=engine))
    x = random(B, T, 12, seed=1)
    heads = [
        part(x).unflatten(-1, (3, 4)).transpose(1, 2)
        for part in (module.to_queries, module.to_keys, module.to_values)
    ]
    for i in (0, 1):
        heads[i] = heads[i] / heads[i].square().mean(-1, keepdim=True).sqrt()
    out = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
    assert_close(module(x), module.to_output(out), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_bias_of_full_precision_goes_with_halved_queries(engine, dtype):
    queries, keys, values, bias = sizes()
    halves = [x.to(dtype) for x in (queries, keys, values)]
    out = engine(*halves, causal_mask(T, S), bias)
    assert out.dtype == dtype
    exact = attention(queries, keys, values, causal_mask(T, S), bias)
    assert_close(out.float(), exact, atol=0.15, rtol=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_queries_or_no_keys_give_nothing(engine):
    queries, keys, values, _ = sizes()
    assert engine(queries[..., :0, :], keys, values).shape == (B, H, 0, D)
    out = engine(queries, keys[..., :0, :], values[..., :0, :])
    assert out.tolist() == torch.zeros(B, H, T, D).tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_one_batch_of_keys_may_serve_all_queries_and_no_other_number(engine):
    queries, keys, values, _ = sizes()
    alone = engine(queries, keys[:1].expand(B, H, S, D), values[:1].expand(B, H, S, D))
    assert_close(engine(queries, keys[:1], values[:1]), alone, atol=1e-6, rtol=0)
    for few in (queries[:1], queries.repeat(3, 1, 1, 1), queries[:, :1], queries[0]):
        with pytest.raises(ValueError, match=r"keys \(2, 3\)"):
            engine(few, keys, values)
    with pytest.raises(ValueError, match=r"keys \(0, 3\)"):
        engine(queries, keys[:0], values[:0])
    with pytest.raises(ValueError, match=r"must be floats \(\.\.\. t d\)"):
        engine(queries[0, 0, 0], keys, values)
