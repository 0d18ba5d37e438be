"""Caches: what is kept equals what would be computed again, however it is cut."""

import math
from functools import cache

import pytest
import torch
from common import random, seeded, shaken
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from companion import (
    GPT,
    ConcatenatingCache,
    GPTConfig,
    Int8Cache,
    Place,
    PreallocatedCache,
    RaggedCache,
    SlidingWindowCache,
    quantize,
)

N = 9  # the context
POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "t5", "none"]


@cache
def model(positions="learned", engine="fused", n_kv_heads=None) -> GPT:
    """Two layers with weights large enough for every key to matter."""
    config = GPTConfig(
        d_vocab=11,
        context_length=N,
        d_model=8,
        n_heads=4,
        n_layers=2,
        n_kv_heads=n_kv_heads,
        positions=positions,
        engine=engine,
    )
    return shaken(GPT(config))


def random_tokens(n_sequences=1, n=N, seed=0):
    return torch.randint(11, (n_sequences, n), generator=seeded(seed))


KINDS = {
    "concatenating": lambda n, b: ConcatenatingCache(),
    "preallocated": lambda n, b: PreallocatedCache(n),
    "ragged": lambda n, b: RaggedCache(n, b),
    "wide window": lambda n, b: SlidingWindowCache(n),
    "int8": lambda n, b: Int8Cache(n),
}
EXACT = [kind for kind in KINDS if kind != "int8"]
cuts = st.sets(st.integers(1, N - 1))


def new_caches(kind, n=N, n_streams=1):
    return [KINDS[kind](n, n_streams) for _ in range(2)]


def in_pieces(gpt, tokens, caches, cuts=()):
    """The logits of tokens that are handed over piece by piece."""
    n, pieces = tokens.shape[1], []
    bounds = [0, *sorted(cut for cut in cuts if cut < n), n]
    for start, end in zip(bounds, bounds[1:], strict=False):
        pieces.append(gpt(tokens[:, start:end], caches))
        assert [len(kept) for kept in caches] == [end] * 2
    return torch.cat(pieces, 1)


@settings(deadline=None, max_examples=400)
@given(
    kind=st.sampled_from(EXACT),
    positions=st.sampled_from(POSITIONS),
    engine=st.sampled_from(["fused", "explicit", "blocks"]),
    n_kv_heads=st.sampled_from([None, 1, 2]),
    n_sequences=st.integers(1, 3),
    n=st.integers(1, N),
    cuts=cuts,
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_cached_logits_are_the_uncached_ones_however_the_prompt_is_cut(
    kind, positions, engine, n_kv_heads, n_sequences, n, cuts, seed
):
    gpt = model(positions, engine, n_kv_heads)
    tokens = random_tokens(n_sequences, n, seed)
    cached = in_pieces(gpt, tokens, new_caches(kind, n, n_sequences), cuts)
    assert_close(cached, gpt(tokens), atol=1e-5, rtol=0)


@settings(deadline=None, max_examples=300)
@given(
    window=st.integers(1, N),
    n_sinks=st.integers(0, 4),
    positions=st.sampled_from(POSITIONS),
    engine=st.sampled_from(["fused", "explicit", "blocks"]),
    n_sequences=st.integers(1, 2),
    n=st.integers(1, N),
    cuts=cuts,
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_a_sliding_window_is_the_model_that_sees_only_the_window_and_the_sinks(
    window, n_sinks, positions, engine, n_sequences, n, cuts, seed
):
    gpt, tokens = model(positions, engine), random_tokens(n_sequences, n, seed)
    caches = [SlidingWindowCache(window, n_sinks) for _ in range(2)]
    cached = in_pieces(gpt, tokens, caches, cuts)
    allowed = torch.zeros(n, n, dtype=torch.bool)
    for query in range(n):
        for key in range(query + 1):
            allowed[query, key] = query - key < window or key < n_sinks
    assert_close(cached, gpt(tokens, mask=allowed), atol=1e-5, rtol=0)
    assert caches[0].keys.shape[-2] == window + n_sinks


@settings(deadline=None, max_examples=300)
@given(
    positions=st.sampled_from(POSITIONS),
    engine=st.sampled_from(["fused", "explicit", "blocks"]),
    n_kv_heads=st.sampled_from([None, 2]),
    steps=st.lists(
        st.tuples(
            st.integers(1, 4), st.lists(st.integers(0, 4), min_size=3, max_size=3)
        ),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_ragged_streams_equal_each_stream_alone_with_nan_in_all_that_is_not_kept(
    positions, engine, n_kv_heads, steps, seed
):
    """Each step appends n tokens to all streams, of which each keeps its first few."""
    gpt, streams = model(positions, engine, n_kv_heads), random_tokens(3, 40, seed)
    caches = [RaggedCache(N, 3) for _ in range(2)]
    lengths, logits = [0, 0, 0], [[], [], []]
    for n, keeps in steps:
        if max(lengths) + n > N:
            break
        # What is not kept is padding, and need not be what comes later.
        pieces = [streams[i, a : a + n].clone() for i, a in enumerate(lengths)]
        keeps = [min(keep, n) for keep in keeps]
        for piece, keep in zip(pieces, keeps, strict=True):
            piece[keep:] = 10
        for i, out in enumerate(gpt(torch.stack(pieces), caches)):
            logits[i].append(out[: keeps[i]])
        lengths = [a + keep for a, keep in zip(lengths, keeps, strict=True)]
        for kept in caches:
            for i, length in enumerate(lengths):
                kept.keys[i, :, length : kept.lengths[i]] = math.nan
                kept.values[i, :, length : kept.lengths[i]] = math.nan
            kept.truncate(torch.tensor(lengths))
    for i, length in enumerate(lengths):
        if length:
            alone = gpt(streams[i : i + 1, :length])[0]
            assert_close(torch.cat(logits[i]), alone, atol=1e-5, rtol=0)


@settings(deadline=None, max_examples=100)
@given(
    positions=st.sampled_from(POSITIONS),
    n_kv_heads=st.sampled_from([None, 1, 2]),
    cuts=cuts,
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_int8_logits_are_near_the_uncached_ones(positions, n_kv_heads, cuts, seed):
    """The bound: 5% of the logits' root mean square. No number is off by more than
    1/254 of the largest in its vector, and two layers here make at most 12 of that."""
    gpt, tokens = model(positions, n_kv_heads=n_kv_heads), random_tokens(2, N, seed)
    cached, exact = in_pieces(gpt, tokens, new_caches("int8"), cuts), gpt(tokens)
    error = (cached - exact).abs().max() / exact.square().mean().sqrt()
    assert error < 0.05


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 99), st.floats(1e-30, 1e30), st.sampled_from(["float32", "bfloat16"])
)
def test_no_quantized_number_is_off_by_more_than_half_a_scale(seed, size, dtype):
    x = (random(5, 7, seed=seed) * size).to(getattr(torch, dtype))
    x[0] = 0
    integers, scales = quantize(x)
    assert integers.dtype == torch.int8 and scales.shape == (5, 1)
    largest = x.abs().amax(-1, keepdim=True).double()
    error = (integers.double() * largest / 127 - x.double()).abs()
    assert (error <= largest / 127 * (0.5 + 1e-4)).all()
    assert not integers[0].any() and not scales[0].any()


def test_int8_keeps_one_byte_a_number_and_one_scale_a_vector():
    kept = Int8Cache(10)
    kept.append(random(2, 3, 4, 64), random(2, 3, 4, 64))
    assert kept.nbytes == 2 * (2 * 3 * 10) * (64 + 4)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_cache_can_be_reset_and_used_for_another_batch(kind, positions):
    gpt = model(positions)
    caches = new_caches(kind, n_streams=2)
    gpt(random_tokens(2, 5, seed=1), caches)
    for kept in caches:
        kept.reset()
        assert len(kept) == 0
    tokens = random_tokens(2, 7, seed=2)
    fresh = in_pieces(gpt, tokens, new_caches(kind, n_streams=2), {3})
    assert torch.equal(in_pieces(gpt, tokens, caches, {3}), fresh)


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_two_conversations_with_one_model_do_not_mix(kind):
    gpt, talks = model("rotary"), [random_tokens(1, 8, seed) for seed in (1, 2)]
    caches, logits = [new_caches(kind) for _ in talks], [[], []]
    for start, end in ((0, 3), (3, 4), (4, 8)):
        for i, talk in enumerate(talks):
            logits[i].append(gpt(talk[:, start:end], caches[i]))
    for talk, out in zip(talks, logits, strict=True):
        assert_close(torch.cat(out, 1), gpt(talk), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_streams_that_end_can_be_dropped_and_others_repeated(kind):
    gpt, tokens = model("rotary"), random_tokens(3, 8)
    caches, rows = new_caches(kind, n_streams=3), torch.tensor([2, 0, 2, 2])
    gpt(tokens[:, :4], caches)
    for kept in caches:
        kept.reorder(rows)
    logits = gpt(tokens[rows, 4:], caches)
    assert_close(logits, gpt(tokens[rows])[:, 4:], atol=1e-5, rtol=0)
    for kept in caches:
        kept.reorder(torch.tensor([0, 1]))
    assert gpt(tokens[:2, :1], caches).shape[0] == 2


@torch.no_grad()
def test_int8_streams_are_reordered_with_their_scales():
    """Rows of very different sizes: another row's scales would be far off."""
    kept, sizes = Int8Cache(4), torch.tensor([1.0, 100.0, 1e4])[:, None, None, None]
    keys, values = random(3, 2, 4, 8) * sizes, random(3, 2, 4, 8, seed=1) * sizes
    kept.append(keys, values)
    kept.reorder(torch.tensor([2, 0, 2]))
    for ours, right in zip(kept.read(), (keys, values), strict=True):
        assert_close(
            ours, right[[2, 0, 2]], rtol=0, atol=float(right.abs().max()) / 254
        )
        assert_close(ours[1], right[0], rtol=0, atol=float(right[0].abs().max()) / 254)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shapes, words",
    [
        (((2, 3, 1, 4), (2, 3, 2, 4)), "are not .b h t d. both"),
        (((2, 3, 1, 4), (2, 3, 0, 4)), "are not .b h t d. both"),
        (((2, 1, 1, 4), (2, 1, 1, 4)), r"\(2, 3, 4\) .* ones are \(2, 1, 4\)"),
        (((1, 3, 1, 4), (1, 3, 1, 4)), r"ones are \(1, 3, 4\)|2 streams"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(kind, shapes, words):
    kept = KINDS[kind](6, 2)
    kept.append(random(2, 3, 2, 4), random(2, 3, 2, 4, seed=1))
    before = [x.clone() for x in kept.read()]
    with pytest.raises(ValueError, match=words):
        kept.append(*(random(*shape, seed=2) for shape in shapes))
    assert len(kept) == 2
    assert all(map(torch.equal, kept.read(), before))


@pytest.mark.parametrize("kind", ["preallocated", "wide window"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_the_unused_part_of_a_cache_is_never_read(kind, positions):
    gpt, tokens = model(positions), random_tokens(2)
    caches, pieces = new_caches(kind), []
    for start, end in ((0, 3), (3, 4), (4, 7), (7, N)):
        pieces.append(gpt(tokens[:, start:end], caches))
        for kept in caches:
            assert kept.keys.shape[-2] == N
            kept.keys[..., end:, :] = math.nan
            kept.values[..., end:, :] = math.nan
    assert_close(torch.cat(pieces, 1), gpt(tokens), atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_window_goes_on_for_ever_in_constant_memory():
    gpt, tokens = model("rotary"), random_tokens(1, 500)
    caches, again = ([SlidingWindowCache(4) for _ in range(2)] for _ in range(2))
    logits = torch.cat([gpt(token, caches) for token in tokens.split(1, 1)], 1)
    assert [len(kept) for kept in caches] == [500, 500]
    assert caches[0].nbytes == 2 * (4 * 4 * 2) * 4  # slots, heads, features; 4 bytes
    # Through two layers of a window of 4 the last token sees 6 before it and no more.
    assert_close(logits[:, -1], gpt(tokens[:, -7:], again)[:, -1], atol=1e-4, rtol=0)


def test_a_stream_is_truncated_only_to_what_it_holds():
    kept = RaggedCache(6, 2)
    kept.append(random(2, 1, 4, 2), random(2, 1, 4, 2))
    kept.truncate(torch.tensor([4, 1]))
    for lengths in ([4, 2], [-1, 1]):
        with pytest.raises(ValueError, match=r"lengths .* \[4, 1\]"):
            kept.truncate(torch.tensor(lengths))
    assert kept.lengths.tolist() == [4, 1]


@pytest.mark.parametrize(
    "row, n, n_streams, words",
    [
        (2, 3, 1, "rows .2. do not lie within 0 to 1"),
        (-1, 3, 1, "rows .-1."),
        (0, 0, 1, "holds 0 positions"),
        (0, 10, 1, "holds 10 positions; a row takes 1 to 9"),
        (0, 3, 2, "holds 2 streams"),
    ],
)
@pytest.mark.parametrize("used", [False, True])
def test_a_row_takes_one_stream_that_fits_and_else_stays(
    row, n, n_streams, words, used
):
    batch, alone = RaggedCache(N, 2), PreallocatedCache(12)
    if used:
        batch.append(*random(2, 2, 1, 4, 3))
    if n:
        alone.append(*random(2, n_streams, 1, n, 3))
    before = batch.lengths.tolist()
    with pytest.raises(ValueError, match=words):
        batch.put(row, alone)
    assert batch.lengths.tolist() == before


def test_a_full_stream_refuses_one_more_and_no_stream_changes():
    kept, x = RaggedCache(5, 2), random(2, 3, 5, 2)
    kept.append(x, x)
    kept.truncate(torch.tensor([5, 2]))
    before = kept.keys.clone()
    with pytest.raises(ValueError, match=r"1 more .* 5 .*\(5\)"):
        kept.append(x[..., :1, :], x[..., :1, :])
    assert kept.lengths.tolist() == [5, 2] and torch.equal(kept.keys, before)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: PreallocatedCache(0), "capacity is 0"),
        (lambda: SlidingWindowCache(0), "window is 0"),
        (lambda: SlidingWindowCache(3, -1), "n_sinks is -1"),
    ],
)
def test_sizes_that_make_no_sense(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_an_append_returns_everything_appended_so_far():
    kept, pieces = PreallocatedCache(6), []
    for seed, n in enumerate((2, 1, 3)):
        pieces.append(
            (random(2, 3, n, 4, seed=seed), random(2, 3, n, 4, seed=9 + seed))
        )
        keys, values = kept.append(*pieces[-1])
        assert len(kept) == sum(keys.shape[-2] for keys, _ in pieces)
        assert torch.equal(keys, torch.cat([k for k, _ in pieces], -2))
        assert torch.equal(values, torch.cat([v for _, v in pieces], -2))


def test_an_append_copies_nothing_that_is_stored():
    kept, places = PreallocatedCache(6), set()
    for n in (2, 1, 3):
        keys, values = kept.append(random(2, 3, n, 4), random(2, 3, n, 4))
        places.add((keys.data_ptr(), values.data_ptr()))
    assert len(places) == 1


def test_what_is_stored_is_no_view_of_what_was_appended():
    kept, new = PreallocatedCache(3), random(1, 1, 3, 2)
    keys, values = kept.append(new, new)
    copy = new.clone()
    new.zero_()
    assert torch.equal(keys, copy) and torch.equal(values, copy)


@pytest.mark.parametrize("first", [0, 2, 5])
def test_a_full_cache_refuses_one_more_and_stays_as_it_was(first):
    kept, x = PreallocatedCache(5), random(1, 2, 6, 4)
    if first:
        kept.append(x[..., :first, :], x[..., :first, :])
    with pytest.raises(ValueError, match=rf"{6 - first} more .* {first} .*\(5\)"):
        kept.append(x[..., first:, :], x[..., first:, :])
    assert len(kept) == first
    keys, values = kept.append(x[..., first:5, :], x[..., first:5, :])
    assert len(kept) == 5
    assert torch.equal(keys, x[..., :5, :]) and torch.equal(values, x[..., :5, :])


@torch.no_grad()
def test_a_model_with_full_caches_refuses_one_more_token_and_leaves_all_layers():
    gpt, tokens = model("rotary"), random_tokens()
    caches = gpt.new_caches(5)
    gpt(tokens[:, :3], caches)
    with pytest.raises(ValueError, match=r"3 more .* 3 .*\(5\)"):
        gpt(tokens[:, 3:6], caches)
    assert [len(kept) for kept in caches] == [3, 3]
    logits = gpt(tokens[:, 3:5], caches)
    assert_close(logits, gpt(tokens[:, :5])[:, 3:], atol=1e-5, rtol=0)


def test_another_batch_size_is_refused():
    kept = PreallocatedCache(5)
    kept.append(random(2, 3, 1, 4), random(2, 3, 1, 4))
    with pytest.raises(ValueError, match=r"\(2, 3, 4\).* \(1, 3, 4\)"):
        kept.append(random(1, 3, 1, 4), random(1, 3, 1, 4))
    assert len(kept) == 1


def test_new_caches_are_one_a_layer_for_the_context_or_for_a_given_capacity():
    assert [kept.capacity for kept in model().new_caches()] == [N, N]
    assert [kept.capacity for kept in model().new_caches(4)] == [4, 4]


def wrong(size, change, n):
    """Keys and values (2 3 n 4), but for one change that no cache can take."""
    shapes = {
        "more values": ((2, 3, n, 4), (2, 3, n + 1, 4)),
        "other heads": ((2, 1, n, 4), (2, 1, n, 4)),
        "other features": ((2, 3, n, 5), (2, 3, n, 5)),
        "another batch": ((1, 3, n, 4), (1, 3, n, 4)),
        "no batch": ((3, n, 4), (3, n, 4)),
        "values of other heads": ((2, 3, n, 4), (2, 1, n, 4)),
        "too many": ((2, 3, size + n, 4), (2, 3, size + n, 4)),
        "other dtype": ((2, 3, n, 4), (2, 3, n, 4)),
    }[change]
    dtype = torch.float64 if change == "other dtype" else torch.float32
    return [random(*shape, seed=7, dtype=dtype) for shape in shapes]


CHANGES = ["more values", "other heads", "other features", "another batch"]
CHANGES += ["no batch", "values of other heads", "too many", "other dtype"]


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from([*KINDS]),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    attempts=st.lists(
        st.tuples(st.sampled_from(CHANGES), st.integers(1, 3)), min_size=1, max_size=3
    ),
)
def test_whatever_is_refused_a_cache_stays_as_it_was(kind, sizes, attempts):
    """Beside a twin that never saw the bad ones. Where there is room, many are few."""
    room = sum(sizes) + 2
    kept, twin = (KINDS[kind](room, 2) for _ in range(2))
    for i, n in enumerate(sizes):
        for change, m in attempts:
            limited = kind in ("preallocated", "ragged", "int8")
            known = i > 0 or change in ("more values", "no batch", "too many")
            known |= change == "values of other heads"
            known |= kind == "ragged" and change == "another batch"
            if not known or (change == "too many" and not limited):
                continue
            with pytest.raises(ValueError):
                kept.append(*wrong(room, change, m))
        new = random(2, 3, n, 4, seed=i), random(2, 3, n, 4, seed=i + 50)
        for ours, right in zip(kept.append(*new), twin.append(*new), strict=True):
            assert torch.equal(ours, right)
        assert len(kept) == len(twin) and kept.nbytes == twin.nbytes


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("n_seen", [0, 2])
@torch.no_grad()
def test_more_streams_than_a_ragged_cache_has_are_refused(positions, n_seen):
    gpt, caches = model(positions), new_caches("ragged", n_streams=3)
    if n_seen:
        gpt(random_tokens(3, n_seen), caches)
    for n_streams in (1, 2, 6):
        with pytest.raises(ValueError, match="streams"):
            gpt(random_tokens(n_streams, 2), caches)
        assert [len(kept) for kept in caches] == [n_seen] * 2


@pytest.mark.parametrize("n_seen, n_new", [(0, 4), (6, 3), (5, 1), (3, 3)])
def test_a_place_counts_on_from_what_the_cache_holds(n_seen, n_new):
    kept, tokens = ConcatenatingCache(), random_tokens(1, n_new)
    if n_seen:
        kept.append(random(1, 1, n_seen, 2), random(1, 1, n_seen, 2))
    at, end = Place(tokens, kept), n_seen + n_new
    assert at.end == end and at.positions.tolist() == [*range(n_seen, end)]
    expected = [[q - k for k in range(end)] for q in range(n_seen, end)]
    assert at.distances.tolist() == expected
    allowed = torch.tensor(expected) >= 0
    assert at.mask is None if n_new == 1 else torch.equal(at.mask, allowed)
    given = torch.rand(n_new, end, generator=seeded()) < 0.5
    both = Place(tokens, kept, given=given).mask
    assert torch.equal(both, allowed & given)
    assert torch.equal(Place(tokens, kept, causal=False, given=given).mask, given)
    if not n_seen:
        without = Place(tokens)
        assert without.end == end and torch.equal(without.mask, allowed)
        assert torch.equal(without.positions, at.positions)
        assert torch.equal(without.distances, at.distances)


def test_a_place_knows_nothing_that_nobody_asks_for():
    """No mask and no distances are made for a scheme that needs none."""
    at = Place(random_tokens(1, 3))
    assert at.positions is at.positions
    assert {"mask", "distances"}.isdisjoint(vars(at)) and "positions" in vars(at)
