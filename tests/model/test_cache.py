"""Caches: what is kept equals what would be computed again, however it is cut."""

import functools
import math
from dataclasses import replace
from functools import partial
from itertools import combinations, cycle, product
from typing import NamedTuple

import pytest
import torch
from common import random, random_tokens, rounding, seeded, shaken
from einops import rearrange
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import companion as c
from companion import PreallocatedCache, RaggedCache, SinkCache, SlidingWindowCache
from companion.model.attention import ENGINES
from companion.model.positions import POSITIONS, ALiBi, Place, RelativeBias

N = 9  # the context
N_HEADS, D_HEAD = 4, 2
some_tokens = partial(random_tokens, d_vocab=11)
CACHES = {
    "concatenating": lambda n, b: c.ConcatenatingCache(),
    "preallocated": lambda n, b: PreallocatedCache(n),
    "ragged": lambda n, b: RaggedCache(n, b),
    "wide window": lambda n, b: SlidingWindowCache(n),
    "int8": lambda n, b: c.Int8Cache(n),
}


@functools.cache
def model(positions="rotary", engine="fused", n_kv_heads=2) -> c.GPT:
    """Two layers with weights large enough for every key to matter."""
    config = c.GPTConfig(
        d_vocab=11,
        context_length=N,
        d_model=N_HEADS * D_HEAD,
        n_heads=N_HEADS,
        n_layers=2,
        n_kv_heads=n_kv_heads,
        positions=positions,
        engine=engine,
    )
    return shaken(c.GPT(config))


def in_pieces(gpt, tokens, cache, cuts=()):
    """The logits of tokens that are handed over piece by piece."""
    pieces = []
    bounds = [0, *sorted(cuts), tokens.shape[1]]
    for start, end in zip(bounds, bounds[1:], strict=False):
        pieces.append(gpt(tokens[:, start:end], cache))
        assert len(cache) == end
    return torch.cat(pieces, 1)


def stored(cache):
    return [x for pair in cache.layers.values() for x in pair]


def assert_near(logits, expected, cache_name="exact"):
    """Int8 to 5% of the logits' root mean square: no number is off by more than 1/254
    of the largest in its vector, and two layers here make at most 12 of that."""
    close = rounding(2 * 32, expected)  # two layers of 32 hidden features
    if cache_name == "int8":
        close["atol"] = 0.05 * float(expected.square().mean().sqrt())
    assert_close(logits, expected, **close)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("name", CACHES)
@torch.no_grad()
def test_cached_logits_are_the_uncached_ones_however_the_prompt_is_cut(name, positions):
    """All 32 ways to cut six tokens of two streams, by one engine after the other."""
    tokens = some_tokens(2, 6)
    whole = model(positions)(tokens)
    ways = [cuts for k in range(6) for cuts in combinations(range(1, 6), k)]
    for cuts, engine in zip(ways, cycle(ENGINES), strict=False):
        gpt = model(positions, engine)
        assert_near(in_pieces(gpt, tokens, CACHES[name](6, 2), cuts), whole, name)


def heads(x):
    """Features (b t c), cut into heads (b h t d)."""
    return rearrange(x, "b t (h d) -> b h t d", d=D_HEAD)


def within_the_cache(gpt, tokens, window, n_sinks, mask):
    """Xiao et al. 2023, section 3.2, to the letter: one token at a time.

    Each layer keeps its keys as they were before the rotation. For every new token all
    that the cache holds are counted from 0, and turned by that, or get a bias for it.
    There are as many heads of keys as of queries.
    """
    scheme = gpt.positions
    logits = []
    layers = [([], []) for _ in gpt.blocks]
    for t in range(tokens.shape[1]):
        held = [s for s in range(t + 1) if s < n_sinks or t - s < window]
        counted = torch.arange(len(held))
        x = scheme(gpt.embedding(tokens[:, t : t + 1]), Place(torch.tensor([t]), 0)).x
        for block, (keys, values) in zip(gpt.blocks, layers, strict=True):
            part = block.attention
            normed = block.attention_norm(x)

            # Project, and take what the cache holds.
            keys.append(heads(part.to_keys(normed)))
            values.append(heads(part.to_values(normed)))
            query = heads(part.to_queries(normed))
            key = torch.cat([keys[s] for s in held], -2)
            value = torch.cat([values[s] for s in held], -2)

            # Positions are counted within the cache.
            bias = torch.zeros(())
            if isinstance(scheme, c.RotaryPositions):
                query = c.rotate(query, counted[-1:])
                key = c.rotate(key, counted)
            if isinstance(scheme, ALiBi):
                bias = c.alibi(N_HEADS, 1, len(held))
            if isinstance(scheme, RelativeBias):
                buckets = c.relative_buckets(counted[-1] - counted)
                bias = rearrange(scheme.table(buckets), "s h -> h 1 s")

            # Attend, and the rest of the block.
            scores = query @ key.mT / math.sqrt(D_HEAD) + bias
            scores = scores.masked_fill(~mask[..., t, None, held], -math.inf)
            out = c.softmax(scores) @ value
            x = x + part.to_output(rearrange(out, "b h t d -> b t (h d)"))
            x = x + block.feed_forward(block.feed_forward_norm(x))
        logits.append(gpt.unembedding(gpt.norm(x)))
    return torch.cat(logits, 1)


# The schemes by which a token is what it is where it stands.
ABSOLUTE = ("learned", "sinusoidal", "none")


@settings(deadline=None, max_examples=120)
@given(
    window=st.integers(1, N),
    n_sinks=st.integers(0, 4),
    positions=st.sampled_from([*POSITIONS]),
    engine=st.sampled_from(ENGINES),
    n=st.integers(1, N),
    cuts=st.sets(st.integers(1, N - 1)),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_a_sliding_window_is_the_model_that_sees_only_the_window_and_the_sinks(
    window, n_sinks, positions, engine, n, cuts, masked, seed
):
    """Its distances are those within the cache, and a mask's columns are positions."""
    gpt = model(positions, engine, None)
    tokens = some_tokens(2, n, seed=seed)
    mask = torch.ones(2, 1, n, n, dtype=torch.bool)
    if masked:
        mask = torch.rand(mask.shape, generator=seeded(seed)) < 0.7

    cache = SinkCache(window, n_sinks) if n_sinks else SlidingWindowCache(window)
    pieces = []
    bounds = [0, *sorted(cut for cut in cuts if cut < n), n]
    for start, end in zip(bounds, bounds[1:], strict=False):
        part = mask[..., start:end, :end] if masked else None
        pieces.append(gpt(tokens[:, start:end], cache, mask=part))
    cached = torch.cat(pieces, 1)

    assert_near(cached, within_the_cache(gpt, tokens, window, n_sinks, mask))
    if positions in ABSOLUTE or n_sinks == 0 or n <= window + n_sinks:
        seen = [[q - k < window or k < n_sinks for k in range(n)] for q in range(n)]
        assert_near(cached, gpt(tokens, mask=mask & torch.tensor(seen)))
    assert {x.shape[-2] for x in stored(cache)} == {window + n_sinks}


@pytest.mark.parametrize("positions", ["rotary", "alibi", "t5"])
@torch.no_grad()
def test_no_distance_in_a_window_with_sinks_grows_with_the_text(positions):
    """What two layers of a window of 4 see of a text, and the sinks, say it all."""
    gpt = model(positions)
    sinks = some_tokens(2, 3)
    ending = some_tokens(2, 7, seed=1)
    last_logits = []
    for n in (0, 1, 40, 700):
        text = torch.cat([sinks, some_tokens(2, n, seed=2), ending], 1)
        cache = SinkCache(4, 3)
        for piece in text.split(50, 1):
            logits = gpt(piece, cache, last=-1)
        last_logits.append(logits)
    for logits in last_logits[1:]:  # what is between the sinks and the ending has left
        assert_near(logits, last_logits[1])


@torch.no_grad()
def test_a_window_goes_on_for_ever_in_constant_memory():
    gpt = model()
    tokens = some_tokens(1, 500)
    cache = SlidingWindowCache(4)
    logits = torch.cat([gpt(token, cache) for token in tokens.split(1, 1)], 1)
    assert len(cache) == 500 and {x.shape for x in stored(cache)} == {(1, 2, 4, 2)}
    # Through two layers of a window of 4 the last token sees 6 before it and no more.
    again = gpt(tokens[:, -7:], SlidingWindowCache(4))
    assert_near(logits[:, -1], again[:, -1])


class Append(NamedTuple):
    n_new: int
    n_kept: list[int]  # of each stream, at most n_new


class Put(NamedTuple):
    row: int
    length: int


class Reorder(NamedTuple):
    rows: list[int]


STEPS = (
    st.builds(
        Append, st.integers(1, 4), st.lists(st.integers(0, 4), min_size=3, max_size=3)
    )
    | st.builds(Put, st.integers(0, 2), st.integers(1, 5))
    | st.builds(Reorder, st.permutations([0, 1, 2]) | st.just([2, 2, 0]))
)


@settings(deadline=None, max_examples=150)
@given(
    positions=st.sampled_from([*POSITIONS]),
    engine=st.sampled_from(ENGINES),
    steps=st.lists(STEPS, max_size=6),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_ragged_streams_equal_each_stream_alone_with_nan_in_all_that_is_not_kept(
    positions, engine, steps, seed
):
    """Three streams take n tokens and keep some, are reordered, or replaced by one."""
    gpt = model(positions, engine)
    cache = RaggedCache(N, 3)
    texts = [torch.zeros(0, dtype=torch.long)] * 3
    draw = seeded(seed)
    last = Append(1, [1, 1, 1]), Append(2, [2, 0, 1])

    def drop(row, length):
        for x in stored(cache):
            x[row, :, length : cache.lengths[row]] = math.nan

    for step in [*steps, *last]:
        match step:
            case Append(n_new, n_kept) if max(map(len, texts)) + n_new <= N:
                new = torch.randint(11, (3, n_new), generator=draw)
                logits = gpt(new, cache)
                for i, keep in enumerate(min(keep, n_new) for keep in n_kept):
                    texts[i] = torch.cat([texts[i], new[i, :keep]])
                    drop(i, len(texts[i]))
                    if keep:
                        assert_near(logits[i, :keep], gpt(texts[i][None])[0, -keep:])
                cache.truncate(torch.tensor([len(text) for text in texts]))
            case Reorder(rows):
                cache.reorder(torch.tensor(rows))
                texts = [texts[row] for row in rows]
            case Put(row, length):
                alone = gpt.new_cache()
                texts[row] = torch.randint(11, (length,), generator=draw)
                gpt(texts[row][None], alone)
                drop(row, 0)
                cache.put(row, alone)
                for x in stored(alone):  # what was put is a copy
                    x.fill_(math.nan)
        assert cache.lengths.tolist() == [len(text) for text in texts]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_quantized_number_is_off_by_more_than_half_a_scale(dtype):
    for size in (1e-37, 1e-30, 1e-3, 1.0, 1e30):
        x = (random(50, 7) * size).to(dtype)
        x[0] = 0
        integers, scales = c.quantize(x)
        assert integers.dtype == torch.int8 and scales.shape == (50, 1)
        largest = x.abs().amax(-1, keepdim=True).double()
        error = (integers.double() * largest / 127 - x.double()).abs()
        assert (error <= largest / 127 * (0.5 + 1e-4)).all()
        # One division in float32, whose epsilon is 1.2e-7.
        assert_close(scales.double(), largest / 127, atol=0, rtol=1e-6)


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_a_vector_that_is_not_finite_is_read_back_as_nan_and_no_other(wrong):
    x = random(2, 3, 4)
    x[1, 0, 2] = wrong
    integers, scales = c.quantize(x)
    is_nan = (integers * scales).isnan()
    assert is_nan[1, 0].all() and is_nan.sum() == 4


def test_the_smallest_numbers_keep_their_signs():
    x = torch.tensor([190.0, -190, 60]) * 2.0**-149  # scales have whole steps only
    integers, _ = c.quantize(x)
    assert integers.sign().tolist() == [1, -1, 1]


def test_int8_keeps_one_byte_a_number_and_one_scale_a_vector():
    cache = c.Int8Cache(10)
    like = random(2, 3, 4, 64).bfloat16()
    assert all(x.dtype == torch.bfloat16 for x in cache.append(0, like, like))
    n_bytes = sum(x.nbytes for x in stored(cache))
    assert n_bytes == 2 * (2 * 3 * 10) * (64 + 4)


@pytest.mark.parametrize("name", CACHES)
@torch.no_grad()
def test_streams_that_end_can_be_dropped_and_others_repeated(name):
    gpt = model()
    tokens = some_tokens(3, 8)
    cache = CACHES[name](N, 3)
    rows = torch.tensor([2, 0, 2, 2])

    # Four of three streams.
    gpt(tokens[:, :4], cache)
    cache.reorder(rows)
    logits = gpt(tokens[rows, 4:], cache)
    assert_near(logits, gpt(tokens[rows])[:, 4:], name)
    for wrong in ([0, 4], [7], [-1]):
        with pytest.raises(ValueError, match="are not within the 4 streams"):
            cache.reorder(torch.tensor(wrong))

    # Two of the four.
    cache.reorder(torch.tensor([1, 0]))
    expected = gpt(torch.cat([tokens, tokens[:, :1]], 1)[[0, 2]])[:, -1]
    assert_near(gpt(tokens[[0, 2], :1], cache)[:, 0], expected, name)


class FailsAt(TorchDispatchMode):
    """Within, the n-th time that PyTorch picks rows fails, as for want of memory."""

    def __init__(self, n):
        super().__init__()
        self.left = n

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.index.Tensor:
            self.left -= 1
            if self.left < 0:
                raise MemoryError
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [*CACHES, "sinks"])
@torch.no_grad()
def test_a_reorder_that_fails_somewhere_has_changed_nothing(name):
    gpt = model()
    tokens = some_tokens(3, 9)
    make = CACHES.get(name, lambda n, b: SinkCache(2, 2))
    straight, broken = make(N, 3), make(N, 3)
    for cache in (straight, broken):
        gpt(tokens[:, :6], cache)
        gpt(tokens[:, 6:7], cache)

    n_failed = 0
    for n in range(20):
        try:
            with FailsAt(n):
                broken.reorder(torch.tensor([2, 0, 1]))
        except MemoryError:
            n_failed += 1
        else:
            straight.reorder(torch.tensor([2, 0, 1]))
        expected = gpt(tokens[:, 7:8], straight, last=-1)
        assert torch.equal(gpt(tokens[:, 7:8], broken, last=-1), expected)
        for cache in (straight, broken):
            cache.advance(-1)
    assert n_failed >= 4  # keys and values of two layers


OTHERS = {
    "heads": partial(replace, n_kv_heads=1),
    "features": partial(replace, d_model=16),
    "fewer layers": partial(replace, n_layers=1),
    "more layers": partial(replace, n_layers=3),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", CACHES)
@torch.no_grad()
def test_a_cache_of_another_model_is_refused_and_stays_as_it_was(name, other):
    gpt = model()
    tokens = some_tokens(2, 8)
    stranger = c.GPT(OTHERS[other](gpt.config), seeded())
    for n in (1, 2):
        refusing, straight = CACHES[name](N, 2), CACHES[name](N, 2)
        for cache in (refusing, straight):
            gpt(tokens[:, :5], cache)
        with pytest.raises(ValueError, match="a cache serves one model"):
            stranger(tokens[:, :n], refusing)
        assert torch.equal(gpt(tokens[:, 5:], refusing), gpt(tokens[:, 5:], straight))


@pytest.mark.parametrize("name", sorted({*CACHES} - {"ragged"}))
@torch.no_grad()
def test_streams_of_another_number_are_refused(name):
    gpt = model()
    tokens = some_tokens(3, 8)
    for b, n in ((1, 1), (1, 2), (3, 1)):
        cache = CACHES[name](N, 2)
        gpt(tokens[:2, :5], cache)
        with pytest.raises(ValueError, match=f"holds 2 streams, not {b}"):
            gpt(tokens[:b, :n], cache)


@torch.no_grad()
def test_a_row_takes_the_cache_of_the_same_model_alone():
    gpt = model()
    tokens = some_tokens(2, 6)
    refusing, straight = RaggedCache(N, 2), RaggedCache(N, 2)
    for cache in (refusing, straight):
        gpt(tokens[:, :4], cache)

    # Another model's cache, and this model's of another class.
    for changed in OTHERS.values():
        stranger = c.GPT(changed(gpt.config))
        alone = PreallocatedCache(N)
        stranger(tokens[:1, :3], alone)
        with pytest.raises(ValueError, match="a cache serves one model"):
            refusing.put(0, alone)
    window = SlidingWindowCache(N)
    gpt(tokens[:1, :3], window)
    with pytest.raises(ValueError, match="Preallocated.* not SlidingWindowCache"):
        refusing.put(0, window)

    assert torch.equal(gpt(tokens[:, 4:], refusing), gpt(tokens[:, 4:], straight))


MODES = (torch.inference_mode, torch.no_grad, torch.enable_grad)


@pytest.mark.parametrize("name", [*CACHES, "sinks"])
def test_a_cache_that_was_filled_in_one_mode_goes_on_in_another(name):
    gpt = model()
    pieces = some_tokens(2, 9).split((5, 1, 3), 1)
    make = CACHES.get(name, lambda n, b: SinkCache(2, 2))
    rows = torch.tensor([1, 0])
    straight = make(N, 2)
    with torch.no_grad():
        expected = [gpt(piece, straight) for piece in pieces]

    for modes in product(MODES, repeat=3):
        cache = make(N, 2)
        for mode, piece, expected_logits in zip(modes, pieces, expected, strict=True):
            with mode():
                logits = gpt(piece, cache)
                assert torch.equal(logits, expected_logits)
                cache.reorder(rows)
                cache.reorder(rows)
                if name == "ragged":
                    cache.truncate(cache.lengths)
        if mode is torch.enable_grad:
            logits.sum().backward()


@pytest.mark.parametrize("name", ["concatenating", "preallocated"])
def test_an_append_returns_all_that_was_appended_to_the_layer(name):
    """The preallocated one copies it in, and nothing that is stored a second time."""
    cache = CACHES[name](6, 2)
    pieces = {0: [], 1: []}
    places = set()
    for n in (2, 1, 3):
        for layer, appended in pieces.items():
            new = random(2, 2, 3, n, 4, seed=10 * n + layer)
            appended.append(new.clone())
            keys_and_values = cache.append(layer, *new)
            places |= {x.data_ptr() for x in keys_and_values}
            if name == "preallocated":
                new.zero_()
            assert torch.equal(torch.stack(keys_and_values), torch.cat(appended, -2))
        cache.advance(n)
    assert name == "concatenating" or len(places) == 4


@pytest.mark.parametrize("name", ["preallocated", "int8", "ragged"])
@torch.no_grad()
def test_a_full_cache_refuses_one_more_token_and_stays_as_it_was(name):
    gpt = model()
    tokens = some_tokens(2, N)
    cache = CACHES[name](5, 2)
    gpt(tokens[:, :3], cache)
    for n in (3, 6):
        with pytest.raises(ValueError, match=rf"{n} more .* after 3 .*\(5\)"):
            gpt(tokens[:, 3 : 3 + n], cache)
    again = in_pieces(gpt, tokens[:, :5], CACHES[name](5, 2), (3,))
    assert torch.equal(gpt(tokens[:, 3:5], cache), again[:, 3:])
    with pytest.raises(ValueError, match=r"1 more .* after 5 .*\(5\)"):
        gpt(tokens[:, 5:6], cache)
    assert (gpt.new_cache().capacity, gpt.new_cache(4).capacity) == (N, 4)


@torch.no_grad()
def test_what_no_cache_can_be_or_take_is_refused():
    cache = RaggedCache(6, 2)
    model()(some_tokens(2, 4), cache)
    cache.truncate(torch.tensor([4, 1]))
    before = [x.clone() for x in stored(cache)]

    # Caches that a row is to take: of so many streams and positions.
    alone = {}
    for b, n in ((1, 3), (2, 3), (1, 7)):
        alone[b, n] = model().new_cache()
        model()(some_tokens(b, n), alone[b, n])

    calls = [
        (lambda: cache.truncate(torch.tensor([4, 2])), r"\[4, 2\] .* \[4, 1\]"),
        (lambda: cache.truncate(torch.tensor([-1, 1])), r"\[-1, 1\] .* \[4, 1\]"),
        (lambda: cache.truncate(torch.tensor([1])), "1 lengths for 2 streams"),
        (lambda: cache.put(2, alone[1, 3]), "row 2 is not within 2"),
        (lambda: cache.put(-1, alone[1, 3]), "row is -1"),
        (lambda: cache.put(0, alone[2, 3]), "3 positions of 2 streams"),
        (lambda: cache.put(0, alone[1, 7]), "7 positions of 1 .* 1 to 6"),
        (lambda: cache.put(0, PreallocatedCache(4)), "0 positions"),
        *(
            (partial(model(x), some_tokens(1, 1), cache), "2 str.* 1")
            for x in POSITIONS
        ),
        (lambda: model()(some_tokens(3, 1), cache), "2 streams, .* 3"),
        (lambda: PreallocatedCache(0), "capacity is 0"),
        (lambda: c.Int8Cache(2.5), "capacity is 2.5"),
        (lambda: RaggedCache(4, 0), "n_streams is 0"),
        (lambda: SlidingWindowCache(0), "window is 0"),
        (lambda: SinkCache(0, 1), "window is 0"),
        (lambda: SinkCache(3, 0), "n_sinks is 0"),
        (lambda: c.quantize(torch.tensor([1, 2])), "int64 .* must be floats"),
    ]
    for call, words in calls:
        with pytest.raises(ValueError, match=words):
            call()
    assert cache.lengths.tolist() == [4, 1]
    assert all(map(torch.equal, before, stored(cache)))


def test_a_mask_can_only_forbid_more_than_a_place_does():
    for n_seen, n_new in ((0, 4), (6, 3), (5, 1)):
        cache = PreallocatedCache(N)
        cache.n_seen = n_seen
        end = n_seen + n_new
        allowed = torch.ones(n_new, end).tril(n_seen).bool()
        extra = torch.rand(n_new, end, generator=seeded()) < 0.5
        place = cache.place(n_new, mask=extra)
        assert torch.equal(place.mask, allowed & extra) and not place.is_causal
        place = cache.place(n_new, causal=False, mask=extra)
        assert torch.equal(place.mask, extra) and not place.is_causal


@pytest.mark.parametrize("name", CACHES)
@torch.no_grad()
def test_a_mask_that_has_no_column_for_each_position_is_refused(name):
    gpt = model()
    tokens = some_tokens(2, 8)
    for n in (1, 3):
        refusing, straight = CACHES[name](N, 2), CACHES[name](N, 2)
        for cache in (refusing, straight):
            gpt(tokens[:, :5], cache)

        for shape in ((n, 4), (n, 5 + n + 1), (4, 5 + n), (2, 1, 1, n + 1)):
            words = rf"{n} queries and {5 + n} keys"
            with pytest.raises(ValueError, match=words):
                gpt(tokens[:, :n], refusing, mask=torch.ones(shape) > 0)
        for mask in ("causal", "padding", [[True]], torch.ones(n, 5 + n).long()):
            with pytest.raises(ValueError, match="must be bool, True = may attend"):
                gpt(tokens[:, :n], refusing, mask=mask)

        # What fits, or is the same for all keys, is taken.
        new = tokens[:, 5 : 5 + n]
        for shape in ((5 + n,), (1,), (1, 1), (2, 1, n, 5 + n)):
            mask = torch.ones(shape) > 0
            place = refusing.place(n, mask=mask)
            assert place.mask.shape[-1] in (1, len(place.key_positions))
        assert torch.equal(gpt(new, refusing), gpt(new, straight))
