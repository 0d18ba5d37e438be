"""Caches: what is kept equals what would be computed again, however it is cut."""

import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from companion import GPT, GPTConfig, PreallocatedCache

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
    gpt, generator = GPT(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in gpt.parameters():
            noise = 0.3 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise if parameter.dim() == 2 else parameter + noise)
    return gpt.eval()


def random_tokens(n_sequences=1, n=N, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(11, (n_sequences, n), generator=generator)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=150)
@given(
    positions=st.sampled_from(POSITIONS),
    engine=st.sampled_from(["fused", "explicit"]),
    n_kv_heads=st.sampled_from([None, 1, 2]),
    n_sequences=st.integers(1, 3),
    n=st.integers(1, N),
    cuts=st.sets(st.integers(1, N - 1)),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_cached_logits_are_the_uncached_ones_however_the_prompt_is_cut(
    positions, engine, n_kv_heads, n_sequences, n, cuts, seed
):
    gpt = model(positions, engine, n_kv_heads)
    tokens = random_tokens(n_sequences, n, seed)
    bounds = [0, *sorted(cut for cut in cuts if cut < n), n]
    caches = gpt.new_caches(n)
    pieces = []
    for start, end in zip(bounds, bounds[1:], strict=False):
        pieces.append(gpt(tokens[:, start:end], caches))
        assert [len(kept) for kept in caches] == [end, end]
    assert_close(torch.cat(pieces, 1), gpt(tokens), atol=1e-5, rtol=0)


@pytest.mark.parametrize("engine", ["fused", "explicit"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_the_unused_part_of_a_cache_is_never_read(positions, engine):
    gpt, tokens = model(positions, engine), random_tokens(2)
    caches, pieces = gpt.new_caches(), []
    for start, end in ((0, 3), (3, 4), (4, 7), (7, N)):
        pieces.append(gpt(tokens[:, start:end], caches))
        for kept in caches:
            assert kept.keys.shape[-2] == N
            kept.keys[..., end:, :] = math.nan
            kept.values[..., end:, :] = math.nan
    assert_close(torch.cat(pieces, 1), gpt(tokens), atol=1e-5, rtol=0)


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
    with pytest.raises(ValueError, match=r"\(2, 3\).* \(1, 3\)"):
        kept.append(random(1, 3, 1, 4), random(1, 3, 1, 4))
    assert len(kept) == 1


def test_new_caches_are_one_a_layer_for_the_context_or_for_a_given_capacity():
    assert [kept.capacity for kept in model().new_caches()] == [N, N]
    assert [kept.capacity for kept in model().new_caches(4)] == [4, 4]
