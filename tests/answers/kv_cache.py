"""Right and wrong answers to the exercises of chapter 07."""

import torch

import companion
from companion import checks


def right_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    return 2 * n_layers * n_tokens * (d_model * n_kv_heads // n_heads) * n_bytes


def divided_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    share = n_kv_heads / n_heads
    return 2 * n_layers * n_tokens * d_model * share * n_bytes


def right_mask(n_new, n_old):
    rows = [[s <= n_old + t for s in range(n_old + n_new)] for t in range(n_new)]
    return torch.tensor(rows)


def right_int8(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


def by_128(x):
    scale = x.abs().amax(-1, keepdim=True) / 128
    return (x / scale).round().short().to(torch.int8) * scale


def by_128_cut(x):
    scale = x.abs().amax(-1, keepdim=True) / 128
    return (x / scale).round().clamp(-128, 127) * scale


def by_255(x):
    scale = x.abs().amax(-1, keepdim=True) / 255
    return (x / scale).round() * scale


def cut_off(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).to(torch.int8) * scale


def by_the_largest(x):
    scale = x.abs().amax(-1, keepdim=True)
    return (x / scale).round() * scale


def by_sign(x):
    scale = x.amax(-1, keepdim=True) / 127
    return (x / scale).round().short().to(torch.int8) * scale


def one_scale(x):
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


def integers(x):
    return (x / x.abs().amax(-1, keepdim=True) * 127).round()


def right_ring(n_seen, window):
    slots = {p % window: p for p in range(n_seen)}
    return [slots[slot] for slot in sorted(slots)]


RIGHT = [
    (checks.cache_bytes, right_bytes),
    (checks.cache_bytes, divided_bytes),
    (checks.cache_bytes, lambda *sizes: torch.tensor(right_bytes(*sizes))),
    (checks.offset_mask, right_mask),
    (checks.offset_mask, lambda n, old: torch.ones(n, n + old).tril(old) > 0),
    (checks.offset_mask, lambda n, old: companion.causal_mask(n + old)[old:]),
    (checks.int8, right_int8),
    (checks.int8, lambda x: right_int8(x.double())),
    (checks.ring, right_ring),
    (checks.ring, lambda n, w: tuple(right_ring(n, w))),
    (checks.ring, lambda n, w: torch.tensor(right_ring(n, w))),
]
WRONG = [
    (checks.cache_bytes, lambda *x: right_bytes(*x) // 2, "keys and values"),
    (checks.cache_bytes, lambda *x: right_bytes(*x) * 3 // 2, "queries are not kept"),
    (checks.cache_bytes, lambda n, t, c, h, kv, b: 2 * n * t * c * b, "n_kv_heads of"),
    (checks.cache_bytes, lambda n, *x: right_bytes(1, *x), "one layer only"),
    (checks.cache_bytes, lambda *x: right_bytes(*x[:-1], 1), "takes n_bytes"),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 2 * n * t * (c // h) * b,
        "one head only",
    ),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 2 * n * t * c * kv * b,
        "d_model for every head",
    ),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 2 * n * t * c // kv * b,
        "divided by n_kv_heads",
    ),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 75_497_472,
        "t = 8192, c = 2048, .* it gives 75497472, wanted 402653184",
    ),
    (checks.offset_mask, lambda n, old: right_mask(n, 0), "kept ones come before"),
    (
        checks.offset_mask,
        lambda n, old: torch.ones(n, n + old).tril().bool(),
        "first query starts at key 0",
    ),
    (checks.offset_mask, lambda n, old: ~right_mask(n, old), "swapped: True means"),
    (
        checks.offset_mask,
        lambda n, old: old + torch.arange(n)[:, None] > torch.arange(n + old),
        "its own key",
    ),
    (
        checks.offset_mask,
        lambda n, old: torch.ones(n, n + old).tril(old + 1).bool(),
        "one too far",
    ),
    (checks.offset_mask, lambda n, old: torch.ones(n, n + old).bool(), "see all keys"),
    (
        checks.offset_mask,
        lambda n, old: torch.cat(
            [torch.zeros(n, old).bool(), right_mask(n, 0).bool()], 1
        ),
        "the kept keys are hidden",
    ),
    (
        checks.offset_mask,
        lambda n, old: old + torch.arange(n)[:, None] <= torch.arange(n + old),
        "turned round",
    ),
    (checks.offset_mask, lambda n, old: right_mask(n, old).T, "axes are swapped"),
    (checks.offset_mask, lambda n, old: right_mask(n + old, 0), "only the new ones"),
    (
        checks.offset_mask,
        lambda n, old: torch.ones(n, n + old).tril(old),
        "these are numbers: a mask is bool",
    ),
    (checks.offset_mask, lambda n, old: right_mask(n, old).long(), "are integers"),
    (
        checks.offset_mask,
        lambda n, old: torch.zeros(n, n + old).masked_fill(
            ~right_mask(n, old), -torch.inf
        ),
        "added to the scores",
    ),
    (checks.offset_mask, lambda n, old: right_mask(n, old).tolist(), "wanted a bool"),
    (checks.int8, by_128, "wraps to -128"),
    (checks.int8, by_128_cut, "is cut to 127"),
    (checks.int8, by_255, "not by 255"),
    (checks.int8, cut_off, "round them"),
    (checks.int8, one_scale, "one scale for all"),
    (checks.int8, by_sign, "absolute value first"),
    (checks.int8, by_the_largest, "only -1, 0 and 1"),
    (checks.int8, integers, "multiply by the scale again"),
    (checks.int8, lambda x: integers(x).to(torch.int8), "multiply them"),
    (checks.int8, companion.quantize, "give their product"),
    (checks.int8, lambda x: x.clone(), "nothing is rounded"),
    (checks.ring, lambda n, w: list(range(n))[-w:], "order of time"),
    (checks.ring, lambda n, w: list(range(n))[:w], "newest takes the place"),
    (checks.ring, lambda n, w: right_ring(n + 1, w), "one too far"),
    (checks.ring, lambda n, w: [p % w for p in range(n)][-w:], "are slots"),
    (checks.ring, lambda n, w: list(range(n)), "these are all positions"),
    (
        checks.ring,
        lambda n, w: [*right_ring(n, w), *[None] * (w - n)],
        "not to be listed",
    ),
    (checks.ring, lambda n, w: set(range(n)[-w:]), "for n = 3, w = 4: it gives {0"),
]
