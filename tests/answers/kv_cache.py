"""Right and wrong answers to the exercises of chapters 07 and 10."""

import torch

import companion
from companion import checks
from companion.checks import kv_cache


def right_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    return 2 * n_layers * n_tokens * (d_model * n_kv_heads // n_heads) * n_bytes


def divided_bytes(n_layers, n_tokens, d_model, n_heads, n_kv_heads, n_bytes):
    share = n_kv_heads / n_heads
    return 2 * n_layers * n_tokens * d_model * share * n_bytes


def right_mask(n_new, n_old):
    rows = [[s <= n_old + t for s in range(n_old + n_new)] for t in range(n_new)]
    return torch.tensor(rows)


def pieces(mask):
    """An answer that makes each piece's mask by `mask(n_new, n_old)`."""

    def masks(lengths):
        return [mask(n, sum(lengths[:i])) for i, n in enumerate(lengths)]

    return masks


def cut_masks(lengths):
    whole, masks, end = torch.ones(99, 99).tril() > 0, [], 0
    for n in lengths:
        end += n
        masks.append(whole[end - n : end, :end])
    return tuple(masks)


def right_loop(step, prompt, n_new):
    new, kept, written = prompt, [], []
    while len(written) < n_new:
        token, kept = step(new, kept)
        new = [token]
        written += new
    return written


def one_by_one(step, prompt, n_new):
    kept, tokens = [], list(prompt)
    for i in range(len(prompt) + n_new - 1):
        token, kept = step(tokens[i : i + 1], kept)
        if i >= len(prompt) - 1:
            tokens.append(token)
    return tokens[len(prompt) :]


def doubled(step, prompt, n_new):
    tokens, kept = list(prompt), []
    for _ in range(n_new):
        new, kept = step(tokens, kept)
        tokens.append(new)
    return tokens[len(prompt) :]


def without_a_cache(step, prompt, n_new):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(step(tokens, [])[0])
    return tokens[len(prompt) :]


def forgetful(step, prompt, n_new):
    written, new = [], prompt
    for _ in range(n_new):
        token, _ = step(new, [])
        new = [token]
        written.append(token)
    return written


def prompt_again(step, prompt, n_new):
    kept, written = [], []
    for _ in range(n_new):
        token, kept = step(prompt, kept)
        written.append(token)
    return written


def never_saw(step, prompt, n_new):
    return right_loop(step, prompt[-1:], n_new)


def all_the_new(step, prompt, n_new):
    token, kept = step(prompt, [])
    written = [token]
    while len(written) < n_new:
        token, kept = step(written, kept)
        written = [*written, token]
    return written


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
    (checks.offset_mask, pieces(right_mask)),
    (checks.offset_mask, pieces(lambda n, old: torch.ones(n, n + old).tril(old) > 0)),
    (checks.offset_mask, pieces(lambda n, old: companion.causal_mask(n, n + old))),
    (checks.offset_mask, cut_masks),
    (kv_cache.loop, right_loop),
    (kv_cache.loop, one_by_one),
    (kv_cache.loop, lambda *case: tuple(right_loop(*case))),
    (kv_cache.loop, lambda *case: torch.tensor(right_loop(*case))),
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
    (checks.offset_mask, pieces(lambda n, old: right_mask(n, 0)), "kept ones come bef"),
    (
        checks.offset_mask,
        pieces(lambda n, old: torch.ones(n, n + old).tril().bool()),
        "starts at key 0 again",
    ),
    (checks.offset_mask, pieces(lambda n, old: ~right_mask(n, old)), "swapped: True"),
    (
        checks.offset_mask,
        pieces(lambda n, old: old + torch.arange(n)[:, None] > torch.arange(n + old)),
        "its own key",
    ),
    (
        checks.offset_mask,
        pieces(lambda n, old: torch.ones(n, n + old).tril(old + 1).bool()),
        "one too far",
    ),
    (
        checks.offset_mask,
        pieces(lambda n, old: torch.ones(n, n + old).bool()),
        "see all keys",
    ),
    (
        checks.offset_mask,
        pieces(
            lambda n, old: torch.cat(
                [torch.zeros(n, old).bool(), right_mask(n, 0).bool()], 1
            )
        ),
        "the kept keys are hidden",
    ),
    (
        checks.offset_mask,
        pieces(lambda n, old: old + torch.arange(n)[:, None] <= torch.arange(n + old)),
        "turned round",
    ),
    (checks.offset_mask, pieces(lambda n, old: right_mask(n, old).T), "axes are"),
    (checks.offset_mask, pieces(lambda n, old: right_mask(n + old, 0)), "only the new"),
    (
        checks.offset_mask,
        pieces(lambda n, old: torch.ones(n, n + old).tril(old)),
        "these are numbers: a mask is bool",
    ),
    (checks.offset_mask, pieces(lambda n, old: right_mask(n, old).long()), "integers"),
    (
        checks.offset_mask,
        pieces(
            lambda n, old: torch.zeros(n, n + old).masked_fill(
                ~right_mask(n, old), -torch.inf
            )
        ),
        "added to the scores",
    ),
    (
        checks.offset_mask,
        pieces(lambda n, old: right_mask(n, old).tolist()),
        "wanted a bool",
    ),
    (
        checks.offset_mask,
        lambda lengths: [
            right_mask(n, lengths[i - 1] if i else 0) for i, n in enumerate(lengths)
        ],
        "only the piece before is kept",
    ),
    (
        checks.offset_mask,
        lambda lengths: torch.ones(sum(lengths), sum(lengths)).tril() > 0,
        "one for each piece",
    ),
    (
        checks.offset_mask,
        lambda lengths: (torch.ones(sum(lengths), sum(lengths)).tril() > 0).split(
            lengths
        ),
        "keys to come",
    ),
    (
        checks.offset_mask,
        lambda lengths: [
            right_mask(n, sum(lengths[: i + 1])) for i, n in enumerate(lengths)
        ],
        "counted among the kept",
    ),
    (kv_cache.loop, doubled, "hands over what is kept already"),
    (
        kv_cache.loop,
        lambda step, prompt, n: [step(x, [])[0] for x in prompt],
        r"takes a list: \[3\], not 3",
    ),
    (kv_cache.loop, without_a_cache, "nothing is saved"),
    (kv_cache.loop, forgetful, "thrown away"),
    (kv_cache.loop, prompt_again, "prompt is handed over every time"),
    (kv_cache.loop, never_saw, "last token of the prompt alone"),
    (kv_cache.loop, all_the_new, "all new tokens are handed over"),
    (
        kv_cache.loop,
        lambda step, prompt, n: [*prompt, *right_loop(step, prompt, n)],
        "give the new tokens alone",
    ),
    (
        kv_cache.loop,
        lambda step, prompt, n: right_loop(step, prompt, n + 1),
        r"for prompt = \[3, 1, 4\], n_new = 4: at \[0\]",
    ),
    (kv_cache.loop, lambda step, prompt, n: right_loop(step, prompt, n)[0], "it gives"),
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
