"""Right and wrong answers to the exercises of chapter 04."""

import torch

from companion import checks


def silu(x):
    return torch.nn.functional.silu(x)


def fixed(x, attention, feed_forward, norms):
    x = x + attention(norms[0](x))
    return x + feed_forward(norms[1](x))


RIGHT = [
    (checks.block_count, lambda c: 12 * c * c + 13 * c),
    (checks.swiglu, lambda x, up, gate, down: (silu(x @ gate) * (x @ up)) @ down),
    (checks.fixed_block, fixed),
    (checks.fold, lambda g, b, w, o: (w * g, o + w @ b)),
    (checks.fold, lambda g, b, w, o: [w @ torch.diag(g), w @ b + o]),
]


def thrown_away(x, attention, feed_forward, norms):
    norms[0](x)
    x = x + attention(x)
    norms[1](x)
    return x + feed_forward(x)


def replaced(x, attention, feed_forward, norms):
    x = norms[0](x)
    x = x + attention(x)
    x = norms[1](x)
    return x + feed_forward(x)


def half(x, attention, feed_forward, norms):
    x = x + attention(norms[0](x))
    return x + feed_forward(x)


def other_half(x, attention, feed_forward, norms):
    x = x + attention(x)
    return x + feed_forward(norms[1](x))


def swapped(x, attention, feed_forward, norms):
    x = x + attention(norms[1](x))
    return x + feed_forward(norms[0](x))


def post(x, attention, feed_forward, norms):
    x = norms[0](x + attention(x))
    return norms[1](x + feed_forward(x))


def parallel(x, attention, feed_forward, norms):
    return x + attention(norms[0](x)) + feed_forward(norms[1](x))


def without_sum(x, attention, feed_forward, norms):
    x = attention(norms[0](x))
    return feed_forward(norms[1](x))


def in_place(x, attention, feed_forward, norms):
    x += attention(norms[0](x))
    return x + feed_forward(norms[1](x))


WRONG = [
    (checks.block_count, lambda c: 4 * c * c + 8 * c * c, "biases and norms count too"),
    (checks.block_count, lambda c: 12 * c * c + 9 * c, "two norms are missing"),
    (checks.block_count, lambda c: 12 * c * c + 11 * c, "half of the norms"),
    (checks.block_count, lambda c: 12 * c * c + 4 * c, "biases are missing"),
    (checks.block_count, lambda c: 11 * c * c + 12 * c, "output projection"),
    (checks.block_count, lambda c: 7_087_872, "expected 1330, got 7087872"),
    (checks.block_count, lambda c: None, "a `return`"),
    (
        checks.swiglu,
        lambda x, u, g, d: (silu(x @ u) * (x @ g)) @ d,
        "belongs on the gate",
    ),
    (checks.swiglu, lambda x, u, g, d: ((x @ g).sigmoid() * (x @ u)) @ d, "x times it"),
    (
        checks.swiglu,
        lambda x, u, g, d: (silu(x @ u) * silu(x @ g)) @ d,
        "both are bent",
    ),
    (checks.swiglu, lambda x, u, g, d: (silu(x @ g) + x @ u) @ d, "must be multiplied"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ u) @ d, "gate is not used"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ g) @ d, "x @ up is not used"),
    (checks.swiglu, lambda x, u, g, d: ((x @ u) * (x @ g)) @ d, "nothing is bent"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ u) * (x @ g), "expected a tensor"),
    (checks.fixed_block, thrown_away, "thrown away"),
    (checks.fixed_block, replaced, "replaced x"),
    (checks.fixed_block, half, "feed-forward layer still reads x without norm"),
    (checks.fixed_block, other_half, "attention still reads x without norm"),
    (checks.fixed_block, swapped, "changed places"),
    (checks.fixed_block, post, "post-norm"),
    (checks.fixed_block, parallel, "what attention has added"),
    (checks.fixed_block, without_sum, "not added"),
    (checks.fixed_block, in_place, "changes its input"),
    (checks.fold, lambda g, b, w, o: (w * g[:, None], o + w @ b), "outputs"),
    (checks.fold, lambda g, b, w, o: (w * g, o), "bias of the norm is lost"),
    (checks.fold, lambda g, b, w, o: (w * g, o + (w * g) @ b), "after the gain"),
    (checks.fold, lambda g, b, w, o: (w * g, o + b), "through the weight"),
    (checks.fold, lambda g, b, w, o: (w * g, w @ b), "own offset is lost"),
    (checks.fold, lambda g, b, w, o: (w * g, o + b @ w), "other way round"),
]
