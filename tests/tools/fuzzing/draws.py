"""Random models, tokens, caches and trainings: what the properties are tried on."""

import random

import torch
from common import random_tokens, seeded, shaken

import companion as c
from companion.model.blocks import ACTIVATIONS
from companion.model.positions import POSITIONS


def config(draw: random.Random, **fixed) -> c.GPTConfig:
    """A small model's configuration, with every part drawn."""
    n_heads = draw.choice([1, 2, 4])
    options = {
        "d_vocab": draw.randint(2, 13),
        "context_length": draw.randint(2, 12),
        "d_model": n_heads * draw.choice([2, 4, 6]),
        "n_heads": n_heads,
        "n_layers": draw.randint(1, 3),
        "n_kv_heads": draw.choice([h for h in (1, 2, 4) if n_heads % h == 0]),
        "d_hidden": draw.choice([None, 1, 7]),
        "positions": draw.choice([*POSITIONS]),
        "norm": draw.choice(["layer", "rms"]),
        "feed_forward": draw.choice(["plain", "gated"]),
        "activation": draw.choice([*ACTIVATIONS]),
        "engine": draw.choice(["fused", "explicit", "flash"]),
    }
    flags = "pre_norm bias tie_embeddings qk_norm zero_init scale_embeddings".split()
    options |= {name: draw.random() < 0.5 for name in flags}
    return c.GPTConfig(**options | fixed)


def model(draw: random.Random, **fixed) -> c.GPT:
    seed = draw.randrange(1000)
    return shaken(c.GPT(config(draw, **fixed), seeded(seed)), seed=seed)


def tokens(draw: random.Random, gpt: c.GPT, *shape: int) -> torch.Tensor:
    o = gpt.config
    return random_tokens(*shape, d_vocab=o.d_vocab, seed=draw.randrange(1000))


def new_cache(draw: random.Random, capacity: int, n_streams: int) -> c.Cache:
    """A cache of a kind that forgets nothing and rounds nothing."""
    kinds = (
        c.ConcatenatingCache,
        lambda: c.PreallocatedCache(capacity),
        lambda: c.RaggedCache(capacity, n_streams),
        lambda: c.SlidingWindowCache(capacity),
        lambda: c.SinkCache(capacity, draw.randint(1, 3)),
    )
    return draw.choice(kinds)()


def pieces(draw: random.Random, n: int) -> list[tuple[int, int]]:
    """0 to n, cut anywhere."""
    cuts = sorted(draw.sample(range(1, n), draw.randint(0, n - 1)))
    return [*zip([0, *cuts], [*cuts, n], strict=True)]


def everything(model, optimizer, generator) -> list:
    """All that a checkpoint could change."""
    state = [x for s in optimizer.state.values() for x in s.values()]
    return [*model.parameters(), *state, generator.get_state()]


def trained(draw: random.Random, o: c.GPTConfig) -> tuple:
    """Model, optimizer and generator after a step or none."""
    gpt = c.GPT(o, seeded(draw.randrange(99)))
    generator = seeded(draw.randrange(99))
    optimizer = draw.choice([c.muon, lambda m: c.AdamW(m.parameters())])(gpt)
    text = tokens(draw, gpt, 2, 2)
    if draw.random() < 0.7:
        c.train(gpt, optimizer, [(text[:, :1], text[:, 1:])])
    return gpt, optimizer, generator
