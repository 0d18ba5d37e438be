"""Every engine against PyTorch's kernel, many heads against nn.MultiheadAttention."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from common import EXACT, random, random_tokens, rounding, seeded, shaken
from torch import nn
from torch.testing import assert_close

from companion import (
    GPT,
    GPTConfig,
    MultiHeadAttention,
    apply_rotary,
    attention,
    causal_mask,
    flash_attention,
    padding_mask,
    rotary,
    softmax,
)
from companion.model.attention import ENGINES

B, H, T, S, D = 2, 3, 4, 7, 5
LENGTHS = torch.tensor([4, 6])
BIAS = 2 * random(H, T, S, seed=9)
SEEN = causal_mask(T, S) & padding_mask(LENGTHS, S)
MASKS = {
    "no mask": None,
    "causal and padding": SEEN,
    "one row": torch.arange(S)[None] % 3 == 2,
    "one column, nothing at query 1": torch.arange(T)[:, None] != 1,
    "nothing in stream 1": padding_mask(torch.tensor([S, 0]), S),
    "a bias by head": BIAS,
    "a bias by stream": random(B, H, T, S, seed=8),
    "a bias column": BIAS[0, :, :1],
    "a bias row": BIAS[0, :1],
    "a bias that forbids": BIAS.masked_fill(~SEEN, -math.inf),
    "a bias of -inf": BIAS.masked_fill(torch.arange(T)[:, None] == 1, -math.inf),
}
# Each engine by itself; a module's has heads that are made already.
CALLS = {"attention": attention}
for engine in ENGINES:
    CALLS[engine] = MultiHeadAttention(H * D, H, engine=engine).attend
for n in (1, 3):
    CALLS[f"blocks of {n}"] = partial(flash_attention, size=n)


def heads(dtype=torch.float32):
    """Queries, keys, values, large enough for weights that are far from uniform."""
    shapes = (B, H, T, D), (B, H, S, D), (B, H, S, D)
    return [2 * random(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def test_softmax_of_many_equal_scores_sums_to_1_in_half_precision():
    weights = softmax(torch.zeros(70_000, dtype=torch.float16))
    # 1/70,000 is 239.67 of float16's smallest step, of which it gets 240.
    assert weights.double().sum().item() == pytest.approx(1, abs=0.002)


def test_softmax_is_pytorchs_even_for_huge_scores_and_zero_without_any():
    for size in (1.0, 1e4, 1e38):
        scores = size * random(3, 4, 5)
        for dim in (-1, 0, 1):
            expected = scores.softmax(dim)
            assert_close(softmax(scores, dim), expected, **rounding(5, expected))

    scores[0] = -math.inf
    scores[1, 0, :3] = -math.inf
    scores[2, 0, 0] = math.nan
    expected = scores.softmax(-1)
    expected[0] = 0
    close = rounding(5, torch.ones(1))  # shares of five scores
    assert_close(softmax(scores), expected, **close, equal_nan=True)
    assert softmax(torch.zeros(3, 0)).shape == (3, 0)


def test_a_query_sees_no_later_key_and_the_last_query_sees_the_last_key():
    for n_queries, n_keys in ((0, 0), (1, 1), (4, 4), (1, 5), (3, 5), (4, 9)):
        first = n_keys - n_queries  # the position of the first query
        expected = [[s <= first + t for s in range(n_keys)] for t in range(n_queries)]
        assert causal_mask(n_queries, n_keys).tolist() == expected
    assert causal_mask(3).tolist() == torch.ones(3, 3).bool().tril().tolist()


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_those_of_pytorchs_kernel(name):
    """The gradients of float masks too, by which positions learn; inputs stay."""
    for case, mask in MASKS.items():
        learns = mask is not None and mask.is_floating_point()
        inputs = [*heads(torch.float64), mask.double() if learns else mask]
        learning = inputs if learns else inputs[:3]
        for x in learning:
            x.requires_grad_()
        copies = [None if x is None else x.clone() for x in inputs]

        # The kernel takes the mask as a bias.
        bias = inputs[3] if learns else torch.zeros(T, S).double()
        if mask is not None and not learns:
            bias = bias.masked_fill(~mask, -math.inf)
        bias = bias.expand(B, H, T, S)
        expected = F.scaled_dot_product_attention(*inputs[:3], bias)
        out = CALLS[name](*inputs)
        assert_close(out, expected, **EXACT, msg=case)

        d_out = random(B, H, T, D, seed=5).double()
        gradients = [torch.autograd.grad(x, learning, d_out) for x in (out, expected)]
        assert_close(*gradients, **EXACT, msg=case)
        for x, copy in zip(inputs, copies, strict=True):
            assert x is copy or torch.equal(x, copy), case


def test_scores_are_scaled_before_they_can_overflow():
    """40 · 40 · 64 is beyond float16; an eighth of it is not."""
    alike = torch.full((1, 1, 3, 64), 40, dtype=torch.float16)
    values = random(1, 1, 3, 64).half()
    expected = values.float().mean(2, keepdim=True).expand(1, 1, 3, 64)
    for name, call in CALLS.items():
        out = call(alike, alike, values).float()
        assert_close(out, expected, **rounding(3, expected.half()), msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bias_of_full_precision_goes_with_halved_queries(dtype):
    halves = [x.to(dtype) for x in heads()]
    queries, keys, values = (x.float() for x in halves)
    exact = attention(queries, keys, values, BIAS)
    # A score that is rounded by an epsilon of itself moves a weight by as large a part.
    score = (queries @ keys.mT).abs().max().item() / D**0.5
    close = rounding(score, values.to(dtype))
    for name, call in CALLS.items():
        out = call(*halves, BIAS)
        assert out.dtype == dtype and call(*heads(), BIAS.to(dtype)).isfinite().all()
        assert_close(out.float(), exact, **close, msg=name)


def test_keys_of_one_stream_serve_all_queries_and_collect_their_gradients():
    inputs = [x.requires_grad_() for x in heads(torch.float64)]
    inputs[1:] = [x[:1] for x in inputs[1:]]
    for name, call in CALLS.items():
        alone = attention(inputs[0], *(torch.cat([x, x]) for x in inputs[1:]))
        outs = call(*inputs), alone
        assert_close(*outs, **EXACT, msg=name)
        gradients = [torch.autograd.grad(x.sin().sum(), inputs) for x in outs]
        assert_close(*gradients, **EXACT, msg=name)


QUERIES, KEYS, VALUES = heads()
ATTEND = partial(attention, QUERIES, KEYS, VALUES)
BAD = [
    (lambda: softmax(torch.ones(3).long()), r"int64.*floats \(\.\.\.\)"),
    (lambda: causal_mask(5, 4), "5 queries.* 4"),
    (lambda: padding_mask(torch.tensor([1, 4]), 3), r"\[1, 4\].* 0 to 3"),
    (lambda: padding_mask(torch.tensor([-1, 2]), 3), r"\[-1, 2\].* 0 to 3"),
    (lambda: padding_mask(torch.ones(2), 3), "float32.*integers"),
    (lambda: attention(QUERIES, KEYS[..., :4], VALUES), "5 features and keys 4"),
    (lambda: attention(QUERIES, KEYS, VALUES[:, :, :6]), "7 keys have 6 values"),
    (lambda: attention(QUERIES, KEYS.double(), VALUES), "float32 .* .*float64"),
    (lambda: attention([1.0], KEYS, VALUES), r"queries is \[1.0\].*floats"),
    (lambda: ATTEND(torch.ones(2, 7) > 0), r"\(2, 7\) .* 4 queries and 7 keys"),
    (lambda: ATTEND(torch.ones(4, 6) > 0), r"\(4, 6\) .* 4 queries and 7 keys"),
    (lambda: ATTEND(torch.ones(4, 7).int()), "int32.* bool, True = may attend"),
    (lambda: ATTEND(random(B, T, S)), r"\(2, 4, 7\) .* streams or of heads"),
    (lambda: ATTEND("causal"), "'causal'.* bool, True = may attend"),
    (lambda: ATTEND([[True]]), "True.* bool, True = may attend"),
    (lambda: MultiHeadAttention(10, 4), r"d_model \(10\) .* n_heads \(4\)"),
    (lambda: MultiHeadAttention(8, 4, n_kv_heads=3), r"\(4\) .* n_kv_heads \(3\)"),
    (lambda: MultiHeadAttention(8, 4, engine="blocks"), "'blocks'.* 'flash'"),
]


def test_what_does_not_fit_is_named():
    for call, words in BAD:
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_many_heads_are_pytorchs_with_the_opposite_mask(bias, engine):
    """Of themselves or of a context, which may be prepared; the pattern is seen."""
    reference = shaken(nn.MultiheadAttention(12, 3, bias=bias, batch_first=True))
    module = MultiHeadAttention(12, 3, bias, engine=engine)

    # The same weights.
    layers = (module.to_queries, module.to_keys, module.to_values)
    for i, layer in enumerate(layers):
        layer.weight.copy_(reference.in_proj_weight.chunk(3)[i])
        if bias:
            layer.bias.copy_(reference.in_proj_bias.chunk(3)[i])
    module.to_output.load_state_dict(reference.out_proj.state_dict())

    # Queries and a source; keys and a mask of the opposite sense.
    patterns = []
    module.pattern.register_forward_hook(lambda *call: patterns.append(call[-1]))
    x, context = random(2, T, 12, seed=1), random(2, S, 12, seed=2)
    prepared = module.to_keys(context), module.to_values(context)
    first = x[:, :1]
    table, wide = causal_mask(T), causal_mask(T, S)
    causal = {"is_causal": True}
    for queries, source, hiding, keys, forbidden in (
        (x, None, {}, x, None),
        (x, None, {"mask": table}, x, ~table),
        (x, None, causal, x, ~table),
        (x, context, {}, context, None),
        (x, prepared, {"mask": wide}, context, ~wide),
        (first, None, causal, first, None),
        (first, prepared, {}, context, None),
    ):
        expected, weights = reference(
            queries, keys, keys, attn_mask=forbidden, average_attn_weights=False
        )
        out = module(queries, source, **hiding)
        assert_close(out, expected, **rounding(12, expected))
        if engine == "explicit":
            assert_close(patterns.pop(), weights, **rounding(12, weights))
    assert not patterns


@pytest.mark.parametrize("engine", ENGINES)
def test_is_causal_is_the_causal_mask_of_all_keys_there_are(engine):
    """In one piece, or in pieces after keys that were stored; of a context too."""
    module = shaken(MultiHeadAttention(12, 3, n_kv_heads=1, engine=engine))
    x, context = random(2, 6, 12), random(2, 6, 12, seed=1)
    for sizes in ((6,), (1, 1, 1, 1, 1, 1), (2, 1, 3), (4, 2)):
        outs = []
        older = None
        seen = 0
        for piece in x.split(sizes, 1):
            keys = []

            def store(*new, older=older, keys=keys):
                pairs = zip(older, new, strict=True) if older else ((y,) for y in new)
                keys.extend(torch.cat(pair, 2) for pair in pairs)
                return keys

            outs.append(module(piece, is_causal=True, store=store))
            older = keys
            seen += piece.shape[1]

            # Of a context of as many tokens.
            table = causal_mask(piece.shape[1], seen)
            by_table = module(piece, context[:, :seen], mask=table)
            by_flag = module(piece, context[:, :seen], is_causal=True)
            assert_close(by_flag, by_table, **rounding(12, by_table))
        whole = module(x, mask=causal_mask(6))
        assert_close(torch.cat(outs, 1), whole, **rounding(12, whole))
    with pytest.raises(ValueError, match="6 queries need as many keys, there are 4"):
        module(x, context[:, :4], is_causal=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_mask_is_named_by_every_engine(engine):
    """Whole numbers would be added to the scores, a name would be taken for another."""
    module = MultiHeadAttention(12, 3, engine=engine)
    x = random(2, T, 12)
    for mask, words in (
        ("causal", "'causal'; it must be bool, True = may attend"),
        ("", "''; it must be bool, True = may attend"),
        (causal_mask(T).long(), "int64 .* bool, True = may attend"),
        (causal_mask(T).tolist(), "bool, True = may attend"),
    ):
        with pytest.raises(ValueError, match=words):
            module(x, mask=mask)
    with pytest.raises(ValueError, match="a mask and is_causal"):
        module(x, mask=causal_mask(T), is_causal=True)


@pytest.mark.parametrize("name", CALLS)
def test_floats_of_streams_are_never_taken_for_those_of_heads(name):
    """With as many streams as heads nothing but their reader could tell."""
    call = CALLS[name]
    queries, keys, values = (x[:1].expand(H, -1, -1, -1) for x in heads())
    by_head, by_stream = BIAS, 2 * random(B, T, S)
    for inputs, mask in (
        ((queries, keys, values), by_head),
        ((QUERIES, KEYS, VALUES), by_stream),
        ((queries[:, :1], keys[:, :1], values[:, :1]), by_head),
    ):
        with pytest.raises(ValueError, match="streams or of heads: say .b 1 t s."):
            call(*inputs, mask)

    # With all four axes it can be said; one stream has no others.
    of_heads = call(queries, keys, values, by_head[None])
    of_streams = call(queries, keys, values, by_head[:, None])
    for i in range(H):
        alone = queries[:1], keys[:1], values[:1]
        expected = attention(*alone, by_head)
        assert_close(of_heads[i : i + 1], expected, **rounding(S, expected))
        expected = attention(*alone, by_head[i])
        assert_close(of_streams[i : i + 1], expected, **rounding(S, expected))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("positions", ["alibi", "t5"])
@torch.no_grad()
def test_a_models_own_bias_is_of_heads_for_as_many_streams_too(positions, engine):
    config = GPTConfig(
        d_vocab=11,
        context_length=8,
        d_model=12,
        n_heads=H,
        n_layers=2,
        positions=positions,
        engine=engine,
    )
    gpt = shaken(GPT(config, seeded()))
    tokens = random_tokens(H, 8, d_vocab=11)
    together = gpt(tokens)
    for i in range(H):
        alone = gpt(tokens[i : i + 1])
        assert_close(together[i : i + 1], alone, **rounding(12, alone))


def test_a_hook_on_the_pattern_can_switch_attention_off():
    module = shaken(MultiHeadAttention(12, 3, engine="explicit"))
    module.pattern.register_forward_hook(lambda *call: torch.zeros_like(call[-1]))
    out = module(random(B, T, 12))
    assert torch.equal(out, module.to_output.bias.expand(B, T, 12))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_shared_keys_and_values_are_repeated_weights(n_kv_heads, engine):
    """For one query too, whose heads the fused engine takes as rows of one matrix."""
    few = shaken(MultiHeadAttention(16, 4, n_kv_heads=n_kv_heads, engine=engine))
    many = MultiHeadAttention(16, 4, engine=engine)

    # Each query head has keys and values of its own.
    weights = few.state_dict()
    for name in ("to_keys", "to_values"):
        for part in ("weight", "bias"):
            groups = weights[f"{name}.{part}"].unflatten(0, (n_kv_heads, 4))
            each_query_head = [groups[h * n_kv_heads // 4] for h in range(4)]
            weights[f"{name}.{part}"] = torch.cat(each_query_head)
    many.load_state_dict(weights)

    context = random(2, S, 16, seed=2)
    padding = padding_mask(LENGTHS, S)
    for t in (1, T):
        x, bias = random(2, t, 16, seed=1), random(2, 4, t, S, seed=3)
        calls = [(context, m) for m in (None, padding, padding[0, 0], bias[0], bias)]
        for source, mask in calls:
            expected = many(x, source, mask=mask)
            out = few(x, source, mask=mask)
            assert_close(out, expected, **rounding(16, expected))
        expected = many(x, is_causal=True)
        assert_close(few(x, is_causal=True), expected, **rounding(16, expected))


@pytest.mark.parametrize("engine", ENGINES)
def test_heads_are_normalized_then_rotated_then_stored(engine):
    """The values never; what a store gives back, older tokens too, is attended to."""
    module = shaken(MultiHeadAttention(12, 3, qk_norm=True, engine=engine))
    x, older = random(B, T, 12, seed=1), random(2, B, 3, 2, 4, seed=2)
    layers = (module.to_queries, module.to_keys, module.to_values)

    # By hand: cut into heads, normalise queries and keys, and rotate them.
    cut = [layer(x).unflatten(-1, (3, 4)).transpose(1, 2) for layer in layers]
    *queries_and_keys, values = cut
    normed = [y / y.square().mean(-1, keepdim=True).sqrt() for y in queries_and_keys]
    rope = rotary(torch.arange(2, 2 + T), 4)
    queries, keys = (apply_rotary(y, rope) for y in normed)

    stored = []

    def store(*new):
        stored.extend(new)
        return [torch.cat(pair, 2) for pair in zip(older, new, strict=True)]

    mask = causal_mask(T, T + 2)
    out = module(x, mask=mask, rope=rope, store=store)
    assert_close(stored, [keys, values], **rounding(12, keys, values))

    # The older ones come first.
    keys = torch.cat([older[0], keys], 2)
    values = torch.cat([older[1], values], 2)
    attended = F.scaled_dot_product_attention(queries, keys, values, mask)
    expected = module.to_output(attended.transpose(1, 2).flatten(2))
    assert_close(out, expected, **rounding(12, expected))


@pytest.mark.parametrize("call", [attention, flash_attention])
@pytest.mark.parametrize("axes", [(), (6,), (2, 3), (1, 2, 3)])
def test_keys_and_values_of_other_numbers_are_said_whatever_axes_are_before(call, axes):
    queries, keys, values = (random(*axes, n, 5) for n in (4, 7, 6))
    with pytest.raises(ValueError, match="^7 keys have 6 values"):
        call(queries, keys, values)
