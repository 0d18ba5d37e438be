"""Right and wrong answers to the exercises of chapter 04."""

import torch

from companion import Block, GatedFeedForward, checks, gelu


def silu(x):
    return torch.nn.functional.silu(x)


def fixed(x, attention, feed_forward, norms):
    x = x + attention(norms[0](x))
    return x + feed_forward(norms[1](x))


def with_a_mask(x, attention, feed_forward, norms, mask=None):
    x = x + attention(norms[0](x), mask=mask)
    return x + feed_forward(norms[1](x))


def transposed(x, up, gate, down):
    layer = GatedFeedForward(*up.shape, bias=False)
    layer.to_hidden.weight.data = gate.T
    layer.to_gate.weight.data = up.T
    layer.to_output.weight.data = down.T
    return layer(x)


RIGHT = [
    (checks.block_count, lambda c: 12 * c * c + 13 * c),
    (
        checks.block_count,
        lambda c: sum(4 * [c * c + c]) + (c * 4 * c + 4 * c) + (4 * c * c + c) + 4 * c,
    ),
    (checks.block_count, lambda c: 12.0 * c**2 + 13.0 * c),
    (checks.swiglu, lambda x, up, gate, down: (silu(x @ gate) * (x @ up)) @ down),
    (
        checks.swiglu,
        lambda x, up, gate, down: torch.einsum(
            "nh,nh,nh,hc->nc", x @ gate, (x @ gate).sigmoid(), x @ up, down
        ),
    ),
    (checks.fixed_block, fixed),
    (checks.fixed_block, with_a_mask),
    (checks.fixed_block, lambda x, a, f, n: Block(a, f, n)(x)),
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


def one_norm(x, attention, feed_forward, norms):
    x = x + attention(norms[0](x))
    return x + feed_forward(norms[0](x))


def lost(x, attention, feed_forward, norms):
    between = x + attention(norms[0](x))
    return x + feed_forward(norms[1](between))


def first_replaced(x, attention, feed_forward, norms):
    x = norms[0](x)
    x = x + attention(x)
    return x + feed_forward(norms[1](x))


def norm_of_branch(x, attention, feed_forward, norms):
    x = x + norms[0](attention(x))
    return x + norms[1](feed_forward(x))


def five_arguments(x, attention, feed_forward, norms, mask):
    return x


WRONG = [
    (checks.block_count, lambda c: 4 * c * c + 8 * c * c, "biases and norms count too"),
    (
        checks.block_count,
        lambda c: 12 * c * c + 9 * c,
        "4c is missing: the two norms, or",
    ),
    (checks.block_count, lambda c: 12 * c * c + 11 * c, "each with a gain and a bias"),
    (checks.block_count, lambda c: 12 * c * c + 4 * c, "9c is missing"),
    (checks.block_count, lambda c: 12 * c * c + 8 * c, "5c is missing"),
    (checks.block_count, lambda c: 12 * c * c + 10 * c, "3c is missing"),
    (checks.block_count, lambda c: 12 * c * c + 5 * c, "8c is missing"),
    (checks.block_count, lambda c: 12 * c * c + 15 * c, "belongs to the model"),
    (checks.block_count, lambda c: 11 * c * c + 12 * c, "output projection"),
    (checks.block_count, lambda c: 8 * c * c + 13 * c, "one up, one down"),
    (checks.block_count, lambda c: 6 * c * c + 10 * c, "four times as wide"),
    (checks.block_count, lambda c: 4 * c * c + 4 * c, "attention alone"),
    (
        checks.block_count,
        lambda c: 7_087_872,
        "for c = 10: it gives 7087872, wanted 1330",
    ),
    (checks.block_count, lambda c: None, "a `return`"),
    (
        checks.swiglu,
        lambda x, u, g, d: (silu(x @ u) * (x @ g)) @ d,
        "belongs on the gate",
    ),
    (checks.swiglu, transposed, "belongs on the gate"),
    (checks.swiglu, lambda x, u, g, d: ((x @ g).sigmoid() * (x @ u)) @ d, "x times it"),
    (
        checks.swiglu,
        lambda x, u, g, d: (silu(x @ u) * silu(x @ g)) @ d,
        "both are bent",
    ),
    (checks.swiglu, lambda x, u, g, d: silu(x @ u * (x @ g)) @ d, "product is bent"),
    (checks.swiglu, lambda x, u, g, d: (gelu(x @ g) * (x @ u)) @ d, "this is GELU"),
    (
        checks.swiglu,
        lambda x, u, g, d: ((x @ g).clamp(min=0) * (x @ u)) @ d,
        "this is ReLU",
    ),
    (checks.swiglu, lambda x, u, g, d: (silu(x @ g) + x @ u) @ d, "must be multiplied"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ u) @ d, "gate is not used"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ g) @ d, "x @ up is not used"),
    (checks.swiglu, lambda x, u, g, d: ((x @ u) * (x @ g)) @ d, "gate is not bent"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ g) * (x @ u), "leads back"),
    (
        checks.swiglu,
        lambda x, u, g, d: ((x @ g).tanh() * (x @ u)) @ d,
        r"for x \(3, 4\), u \(4, 6\), g \(4, 6\), d \(6, 4\): at \[0, 0\] it gives",
    ),
    (checks.fixed_block, one_norm, r"through norms\[0\]"),
    (checks.fixed_block, lost, "what attention added is lost"),
    (checks.fixed_block, five_arguments, "it stops with TypeError: .*'mask'"),
    (
        checks.fixed_block,
        lambda x, attention, feed_forward, norms: x,
        r"attention = …, feed_forward = …, norms = \(…, …\): at \[0, 0, 0\]",
    ),
    (checks.fixed_block, thrown_away, "thrown away"),
    (checks.fixed_block, replaced, "replaced x"),
    (checks.fixed_block, first_replaced, "only the first norm"),
    (checks.fixed_block, norm_of_branch, "what the branch gives"),
    (checks.fixed_block, half, "feed-forward layer still reads x without norm"),
    (checks.fixed_block, other_half, "attention still reads x without norm"),
    (checks.fixed_block, swapped, "changed places"),
    (checks.fixed_block, post, "post-norm"),
    (checks.fixed_block, parallel, "what attention has added"),
    (checks.fixed_block, without_sum, "not added"),
    (checks.fixed_block, in_place, "changes its input"),
    (checks.fold, lambda g, b, w, o: (w * g[:, None], o + w @ b), "outputs"),
    (checks.fold, lambda g, b, w, o: (w / g, o + w @ b), "divided out"),
    (checks.fold, lambda g, b, w, o: (w * g, o), "bias of the norm is lost"),
    (checks.fold, lambda g, b, w, o: (w * g, o + (w * g) @ b), "after the gain"),
    (checks.fold, lambda g, b, w, o: (w * g, o + b), "through the weight"),
    (checks.fold, lambda g, b, w, o: (w * g, w @ b), "own offset is lost"),
    (checks.fold, lambda g, b, w, o: (w * g, o + b @ w), "other way round"),
    (checks.fold, lambda g, b, w, o: (w, o + w @ b), "gain is lost"),
    (checks.fold, lambda g, b, w, o: (o + w @ b, w * g), "the order is"),
    (checks.fold, lambda g, b, w, o: None, "is there a `return`"),
    (checks.fold, lambda g, b, w, o: w * g, "it gives a float32 tensor"),
]
