"""A pass from tokens to logits: how much code it enters, and what it leaves behind."""

import math
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from common import random_tokens, seeded, shaken
from torch.utils._python_dispatch import TorchDispatchMode

import companion as c

PACKAGE = Path(c.__file__).parent
SMALL = c.GPTConfig(d_vocab=11, context_length=16, d_model=8, n_heads=2, n_layers=3)


def model(**options) -> c.GPT:
    return shaken(c.GPT(replace(SMALL, **options), seeded()))


def entered(call) -> set[str]:
    """The functions of the package's own files that a call enters."""
    codes = set()

    def note(frame, event, _):
        if event == "call" and PACKAGE in Path(frame.f_code.co_filename).parents:
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return {f"{Path(x.co_filename).stem}.{x.co_qualname}" for x in codes}


def test_from_tokens_to_logits_eight_functions_are_entered():
    gpt = model()
    tokens = random_tokens(2, 5, d_vocab=11)
    names = entered(lambda: gpt(tokens))
    assert "gpt.GPT.forward" in names and len(names) <= 8, sorted(names)


def test_with_rotary_positions_and_a_cache_it_is_twelve():
    gpt = model(positions="rotary", norm="rms", feed_forward="gated")
    tokens = random_tokens(2, 5, d_vocab=11)
    cache = gpt.new_cache()
    gpt(tokens, cache)
    names = entered(lambda: gpt(tokens[:, :1], cache))
    assert "cache.PreallocatedCache.append" in names and len(names) <= 12, sorted(names)


# Each kind of cache, for so many streams.
CACHES = {
    "concatenating": lambda n_streams: c.ConcatenatingCache(),
    "preallocated": lambda n_streams: c.PreallocatedCache(16),
    "window": lambda n_streams: c.SlidingWindowCache(4),
    "sinks": lambda n_streams: c.SinkCache(4, 2),
    "int8": lambda n_streams: c.Int8Cache(16),
    "ragged": lambda n_streams: c.RaggedCache(16, n_streams),
}


class Failure(Exception):
    pass


def fail(*_):
    raise Failure


def spoil(_, inputs, out):
    return torch.full_like(out, math.nan)


def failing_places(gpt: c.GPT) -> list:
    """Every block, which has stored its keys when it fails, and what follows them."""
    return [*gpt.blocks, gpt.norm, gpt.unembedding]


@torch.no_grad()
def passes(gpt, cache, tokens, before: int, *, then=(1, 3), interrupt=None):
    """The logits of the passes that come `then`, after one of `before` tokens."""
    if before:
        gpt(tokens[:, :before], cache)
    if interrupt:
        interrupt(cache)
    new = tokens[:, before : before + sum(then)].split(then, 1)
    return torch.cat([gpt(x, cache) for x in new], 1)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("name", CACHES)
def test_a_pass_that_raises_leaves_the_cache_as_it_was(name, positions):
    """Wherever it fails, with one new token or several, on few cached tokens or many.

    Seven tokens go round the window, in which the new would take the oldest's place.
    What the pass has stored until then are no numbers, which no mask can hide.
    """
    gpt = model(positions=positions)
    tokens = random_tokens(2, 16, d_vocab=11)

    def fails(cache, place, n_new):
        hooks = [gpt.embedding.register_forward_hook(spoil)]
        hooks += [place.register_forward_hook(fail)]
        seen = len(cache)
        with pytest.raises(Failure):
            gpt(tokens[:, -n_new:], cache)
        for hook in hooks:
            hook.remove()
        assert len(cache) == seen

    for before, then in product((0, 1, 7), ((1, 3), (3, 1))):
        whole = passes(gpt, CACHES[name](2), tokens, before, then=then)
        for place, n_new in product(failing_places(gpt), (1, 2, 4)):
            logits = passes(
                gpt,
                CACHES[name](2),
                tokens,
                before,
                then=then,
                interrupt=partial(fails, place=place, n_new=n_new),
            )
            assert torch.equal(logits, whole), (before, then, n_new, place)


class FailsAfter(TorchDispatchMode):
    """Within, PyTorch fails after `n` operations, as for want of memory."""

    def __init__(self, n: float):
        super().__init__()
        self.left = n

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not self.left:
            raise MemoryError
        self.left -= 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", CACHES)
@torch.no_grad()
def test_a_pass_that_fails_at_any_operation_leaves_the_cache_as_it_was(name):
    """At each in turn, those that begin a pass and those that end it, too."""
    gpt = model(n_layers=2, positions="rotary")
    tokens = random_tokens(2, 16, d_vocab=11)
    other = tokens.flip(1)
    for before, n_new in product((1, 7), (1, 3)):
        straight, broken, counted = (CACHES[name](2) for _ in range(3))
        for cache in (straight, broken, counted):
            gpt(tokens[:, :before], cache)
        with FailsAfter(1000) as counter:
            gpt(other[:, :n_new], counted)
        n_operations = 1000 - counter.left
        assert 50 < n_operations < 1000

        for n in range(n_operations):
            with pytest.raises(MemoryError), FailsAfter(n):
                gpt(other[:, :n_new], broken)
            assert len(broken) == before
        for new in (tokens[:, 7:10], tokens[:, 10:11], tokens[:, 11:13]):
            assert torch.equal(gpt(new, broken), gpt(new, straight))


@pytest.mark.parametrize("name", CACHES)
@torch.no_grad()
def test_to_ask_for_a_place_changes_nothing(name):
    gpt = model()
    tokens = random_tokens(2, 16, d_vocab=11)

    def asks(cache):
        state = dict(vars(cache))
        places = [cache.place(n) for n in (1, 4, 4)]
        assert vars(cache).keys() == state.keys()
        assert all(vars(cache)[name] is value for name, value in state.items())
        assert str(places[1]) == str(places[2])

    for before in (0, 1, 7):
        whole = passes(gpt, CACHES[name](2), tokens, before)
        asked = passes(gpt, CACHES[name](2), tokens, before, interrupt=asks)
        assert torch.equal(asked, whole)


@torch.no_grad()
def test_a_pass_that_raises_leaves_nothing_to_streams_of_other_lengths():
    """What it has written for the short one, the long one's keys would reach."""
    gpt = model()
    tokens = random_tokens(2, 16, d_vocab=11)
    straight, broken = c.RaggedCache(16, 2), c.RaggedCache(16, 2)
    for cache in (straight, broken):
        gpt(tokens[:, :7], cache)
        cache.truncate(torch.tensor([2, 7]))

    # One of them fails, with no numbers stored.
    hooks = [gpt.embedding.register_forward_hook(spoil)]
    hooks += [gpt.norm.register_forward_hook(fail)]
    with pytest.raises(Failure):
        gpt(tokens[:, :3], broken)
    for hook in hooks:
        hook.remove()

    rows = torch.tensor([1, 0])
    for cache in (straight, broken):
        cache.reorder(rows)
    for n in (1, 2):
        assert torch.equal(gpt(tokens[:, :n], broken), gpt(tokens[:, :n], straight))


@pytest.mark.parametrize("name", CACHES)
def test_a_pass_that_is_refused_leaves_the_cache_as_it_was(name):
    """Tokens beyond the vocabulary or the context, streams that are not the cache's."""
    gpt = model()
    tokens = random_tokens(2, 16, d_vocab=11)
    bad = [tokens + 11, tokens.repeat(1, 2), tokens[:1, :2], tokens[0]]
    bad.append(tokens[:, :2].float())

    def refused(cache):
        for refusable in bad:
            with pytest.raises(ValueError):
                gpt(refusable, cache)
        with pytest.raises(ValueError):
            gpt(tokens[:, :2], cache, last=5)

    whole = passes(gpt, CACHES[name](2), tokens, 6)
    logits = passes(gpt, CACHES[name](2), tokens, 6, interrupt=refused)
    assert torch.equal(logits, whole)


def test_a_failed_first_pass_does_not_fix_the_number_of_streams():
    gpt = model()
    tokens = random_tokens(3, 6, d_vocab=11)

    def fails(cache):
        hook = gpt.norm.register_forward_hook(fail)
        with pytest.raises(Failure):
            gpt(tokens, cache)
        hook.remove()

    for name in set(CACHES) - {"ragged"}:
        whole = passes(gpt, CACHES[name](2), tokens[:2], 0)
        logits = passes(gpt, CACHES[name](2), tokens[:2], 0, interrupt=fails)
        assert torch.equal(logits, whole), name
