"""Passes: caches, engines, and all ways to write a text agree with each other."""

import math
import random
from dataclasses import replace

import torch
from common import rounding, seeded
from torch.testing import assert_close

import companion as c

from .draws import model, new_cache, pieces, tokens

N_TERMS = 3 * 96  # at most three layers of 96 hidden features


@torch.no_grad()
def cached_logits_are_the_uncached_ones(draw: random.Random) -> None:
    """However the text is cut, and whatever is refused or fails in between."""
    gpt = model(draw)
    n = draw.randint(1, gpt.config.context_length)
    n_streams = draw.randint(1, 3)
    text = tokens(draw, gpt, n_streams, n)
    found = []
    cache = new_cache(draw, n, n_streams)
    for start, end in pieces(draw, n):
        if draw.random() < 0.5:
            refused(draw, gpt, cache, text[:, start:end])
        if draw.random() < 0.5:
            interrupted(draw, gpt, cache, tokens(draw, gpt, n_streams, end - start))
        found.append(gpt(text[:, start:end], cache))
    expected = gpt(text)
    assert_close(torch.cat(found, 1), expected, **rounding(N_TERMS, expected))
    assert len(cache) == n


@torch.no_grad()
def a_failed_pass_changes_no_cache(draw: random.Random) -> None:
    """Nor those that forget and round: what comes after is the same to the bit.

    Of streams, some keep but a part of what they were given.
    """
    gpt = model(draw)
    n = draw.randint(1, gpt.config.context_length)
    n_streams = draw.randint(1, 3)
    text = tokens(draw, gpt, n_streams, n)
    window = draw.randint(1, n)
    n_sinks = draw.randint(1, 2)
    kind = draw.choice(["int8", "window", "sinks", "ragged"])
    kinds = {
        "int8": lambda: c.Int8Cache(n),
        "window": lambda: c.SlidingWindowCache(window),
        "sinks": lambda: c.SinkCache(window, n_sinks),
        "ragged": lambda: c.RaggedCache(n, n_streams),
    }
    straight = kinds[kind]()
    broken = kinds[kind]()
    for start, end in pieces(draw, n):
        n_other = draw.randint(1, n - start)
        interrupted(draw, gpt, broken, tokens(draw, gpt, n_streams, n_other))
        new = text[:, start:end]
        assert torch.equal(gpt(new, straight), gpt(new, broken))
        if kind == "ragged":
            kept = [draw.randint(0, int(most)) for most in straight.lengths]
            straight.truncate(torch.tensor(kept))
            broken.truncate(torch.tensor(kept))


def interrupted(
    draw: random.Random, gpt: c.GPT, cache: c.Cache, new: torch.Tensor
) -> None:
    """One pass that fails after a layer, or after all: nothing is appended.

    What it has stored by then may be no numbers: times 0, as masked, they are none yet.
    """
    n = len(cache)

    def spoil(_, inputs, out):
        return torch.full_like(out, math.nan)

    def fail(*_):
        raise InterruptedError

    hooks = [draw.choice([*gpt.blocks, gpt.unembedding]).register_forward_hook(fail)]
    if draw.random() < 0.5:
        hooks.append(gpt.embedding.register_forward_hook(spoil))
    try:
        gpt(new, cache)
    except InterruptedError:
        assert len(cache) == n
    finally:
        for hook in hooks:
            hook.remove()


def refused(draw: random.Random, gpt: c.GPT, cache: c.Cache, new: torch.Tensor) -> None:
    """One pass that can't be: it raises, and nothing is appended anywhere."""
    n = len(cache)
    bad = [new + gpt.config.d_vocab, new.float(), new[0]]
    if n:  # an empty cache can't know how many streams there are
        bad.append(new.repeat(2, 1))
    if gpt.config.positions == "learned":
        bad.append(new.repeat(1, 20))
    try:
        gpt(draw.choice(bad), cache)
    except (ValueError, RuntimeError):  # PyTorch's own where no reader calls
        assert len(cache) == n
    else:
        raise AssertionError("a pass that can't be was not refused")


@torch.no_grad()
def any_two_engines_agree(draw: random.Random) -> None:
    gpt = model(draw)
    engine = draw.choice(["fused", "explicit", "flash"])
    other = c.GPT(replace(gpt.config, engine=engine))
    other.load_state_dict(gpt.state_dict())
    n = draw.randint(1, gpt.config.context_length)
    text = tokens(draw, gpt, draw.randint(1, 3), n)
    mask = torch.rand(n, n, generator=seeded(draw.randrange(99))) < draw.random()
    for extra in (None, mask):
        ours = gpt(text, mask=extra)
        theirs = other.eval()(text, mask=extra)
        assert_close(ours, theirs, **rounding(N_TERMS, theirs))


def a_prompt_alone_or_in_a_list_gives_the_same_greedy_text(draw: random.Random) -> None:
    """With and without a cache, past an end token or not."""
    gpt = model(draw, context_length=draw.randint(4, 12))
    n_new = draw.randint(0, gpt.config.context_length - 1)
    most = gpt.config.context_length - n_new
    lengths = [draw.randint(1, most) for _ in range(draw.randint(1, 4))]
    prompts = [tokens(draw, gpt, n) for n in lengths]
    end = draw.choice([None, draw.randrange(gpt.config.d_vocab)])
    if ambiguous(gpt, prompts, n_new):
        return
    together = [*c.generate(gpt, prompts, n_new, end=end)]
    for i, prompt in enumerate(prompts):
        use_cache = draw.random() < 0.5
        alone = [*c.generate(gpt, prompt, n_new, use_cache=use_cache, end=end)]
        here = [int(new[i]) for new in together]
        there = [int(new) for new in alone]
        assert here[: len(there)] == there, (here, there)
        assert set(here[len(there) :]) <= {end}


def ambiguous(gpt: c.GPT, prompts: list[torch.Tensor], n_new: int) -> bool:
    """Whether two tokens are so close that rounding could choose between them."""
    for prompt in prompts:
        new = [*c.generate(gpt, prompt, n_new, use_cache=False)]
        text = torch.cat([prompt, *(x[None] for x in new)])[None]
        with torch.no_grad():
            best = gpt(text).topk(2).values
        if (best[..., 0] - best[..., 1]).min() < 1e-3:
            return True
    return False


@torch.no_grad()
def a_wide_search_finds_the_likeliest_text_of_all(draw: random.Random) -> None:
    """Two steps of as many beams as tokens miss nothing; one beam is greedy search."""
    gpt = model(draw, context_length=8)
    prompt = tokens(draw, gpt, draw.randint(1, 4))
    v = gpt.config.d_vocab
    pairs = torch.cartesian_prod(torch.arange(v), torch.arange(v))
    log_probs = gpt(torch.cat([prompt.expand(v * v, -1), pairs], 1)).log_softmax(-1)
    log_probs = log_probs[:, -3:-1].gather(-1, pairs[..., None]).sum((1, 2))
    found = c.beam_search(gpt, prompt, v, 2)
    right = log_probs.sort(descending=True).values[:v]
    scores = torch.tensor([score for score, _ in found])
    assert_close(scores, right, **rounding(N_TERMS, right))
    if not ambiguous(gpt, [prompt], 2):
        ((_, alone),) = c.beam_search(gpt, prompt, 1, 2)
        assert alone == [int(new) for new in c.generate(gpt, prompt, 2)]
