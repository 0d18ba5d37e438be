"""Right and wrong answers to the exercises of chapter 07."""

import torch

from companion import checks


def right_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    return 2 * n_layers * n_tokens * (d_model * n_kv_heads // n_heads) * n_bytes


def right_mask(n_new, n_old):
    rows = [[s <= n_old + t for s in range(n_old + n_new)] for t in range(n_new)]
    return torch.tensor(rows)


def right_int8(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


def by_128(x):
    scale = x.abs().amax(-1, keepdim=True) / 128
    return (x / scale).round().short().to(torch.int8) * scale


def cut_off(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).to(torch.int8) * scale


def one_scale(x):
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


def right_ring(n_seen, window):
    slots = {p % window: p for p in range(n_seen)}
    return [slots[slot] for slot in sorted(slots)]


RIGHT = [
    (checks.cache_bytes, right_bytes),
    (checks.offset_mask, right_mask),
    (checks.int8, right_int8),
    (checks.ring, right_ring),
]
WRONG = [
    (checks.cache_bytes, lambda *x: right_bytes(*x) // 2, "keys and values"),
    (checks.cache_bytes, lambda n, t, c, h, kv, b: 2 * n * t * c * b, "n_kv_heads of"),
    (checks.cache_bytes, lambda n, *x: right_bytes(1, *x), "one layer only"),
    (checks.cache_bytes, lambda *x: right_bytes(*x[:-1], 1), "takes n_bytes"),
    (
        checks.cache_bytes,
        lambda n, t, c, h, kv, b: 2 * n * t * c * kv * b,
        "d_model for every head",
    ),
    (checks.offset_mask, lambda n, old: right_mask(n, 0), "kept ones come before"),
    (
        checks.offset_mask,
        lambda n, old: torch.ones(n, n + old).tril().bool(),
        "first query starts at key 0",
    ),
    (checks.offset_mask, lambda n, old: ~right_mask(n, old), "swapped"),
    (
        checks.offset_mask,
        lambda n, old: old + torch.arange(n)[:, None] > torch.arange(n + old),
        "its own key",
    ),
    (checks.offset_mask, lambda n, old: torch.ones(n, n + old).bool(), "see all keys"),
    (checks.int8, by_128, "wraps to -128"),
    (checks.int8, cut_off, "round them"),
    (checks.int8, one_scale, "one scale for all"),
    (
        checks.int8,
        lambda x: (x / x.abs().amax(-1, keepdim=True) * 127).round(),
        "multiply them",
    ),
    (checks.ring, lambda n, w: list(range(n))[-w:], "order of time"),
    (checks.ring, lambda n, w: list(range(n))[:w], "newest takes the place"),
    (checks.ring, lambda n, w: right_ring(n + 1, w), "one too far"),
    (checks.ring, lambda n, w: [p % w for p in range(n)][-w:], "are slots"),
]
