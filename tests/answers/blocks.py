"""Right and wrong answers to the exercises of chapter 04."""

import torch
from torch.nn.functional import gelu, layer_norm, linear

from companion import GatedFeedForward
from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def silu(x):
    return torch.nn.functional.silu(x)


def third(x, attention, feed_forward, norms):
    x = x + norms[0](attention(x))
    return x + norms[1](feed_forward(x))


def with_a_mask(x, attention, feed_forward, norms, mask=None):
    between = norms[0](attention(x, mask=mask)) + x
    return norms[1](feed_forward(between)) + between


def in_a_loop(x, attention, feed_forward, norms):
    for branch, norm in zip((attention, feed_forward), norms, strict=True):
        x = norm(branch(x)) + x
    return x


def moved(x, gain, bias, eps):
    last = x.transpose(1, 2)
    return layer_norm(last, [len(gain)], gain, bias, eps).transpose(1, 2)


def by_position(x, gain, bias, eps):
    rows = []
    for t in range(x.shape[2]):
        z = x[:, :, t]
        z = z - z.mean(1, keepdim=True)
        z = z / (z.var(1, unbiased=False, keepdim=True) + eps) ** 0.5
        rows.append(z * gain + bias)
    return torch.stack(rows, 2)


def from_squares(x, gain, bias, eps):
    mean = x.mean(1)
    root = ((x * x).mean(1) - mean**2 + eps).sqrt()
    z = (x - mean[:, None]) / root[:, None]
    return gain[None, :, None] * z + bias[None, :, None]


def in_place_on_a_copy(x, gain, bias, eps):
    z = x.clone()
    z -= z.mean(1, keepdim=True)
    z /= (z.square().mean(1, keepdim=True) + eps).sqrt()
    return z.mul_(gain[:, None]).add_(bias[:, None])


def on_a_copy(x, attention, feed_forward, norms):
    x = x.clone()
    x += norms[0](attention(x))
    x += norms[1](feed_forward(x))
    return x


def joined(x, up, gate, down):
    hidden, gates = (x @ torch.cat([up, gate], 1)).chunk(2, -1)
    return (silu(gates) * hidden) @ down


@wrong(checks.swiglu, "SiLU belongs on the gate")
def transposed(x, up, gate, down):
    layer = GatedFeedForward(*up.shape, bias=False)
    layer.to_hidden.weight.data = gate.T
    layer.to_gate.weight.data = up.T
    layer.to_output.weight.data = down.T
    return layer(x)


RIGHT = [
    (checks.channel_norm, moved),
    (checks.channel_norm, by_position),
    (
        checks.channel_norm,
        lambda x, g, b, eps: (
            (x - x.mean(1, True))
            * (x.var(1, correction=0, keepdim=True) + eps).rsqrt()
            * g.view(1, -1, 1)
            + b.view(1, -1, 1)
        ),
    ),
    (checks.channel_norm, from_squares),
    (checks.channel_norm, in_place_on_a_copy),
    (
        checks.channel_norm,
        lambda x, g, b, eps: torch.stack(
            [layer_norm(text.T, [len(g)], g, b, eps).T for text in x]
        ),
    ),
    (checks.swiglu, lambda x, up, gate, down: (silu(x @ gate) * (x @ up)) @ down),
    (checks.swiglu, joined),
    (
        checks.swiglu,
        lambda x, u, g, d: ((x @ u) * (x @ g) / (1 + (-(x @ g)).exp())) @ d,
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: torch.stack([(silu(row @ g) * (row @ u)) @ d for row in x]),
    ),
    (
        checks.swiglu,
        lambda x, up, gate, down: torch.einsum(
            "nh,nh,nh,hc->nc", x @ gate, (x @ gate).sigmoid(), x @ up, down
        ),
    ),
    (checks.third_block, third),
    (checks.third_block, with_a_mask),
    (checks.third_block, in_a_loop),
    (checks.third_block, lambda x, a, w, n: third(x, lambda y: a(y, None), w, n)),
    (checks.third_block, on_a_copy),
    (checks.fold, lambda g, b, w, o: (w * g, o + w @ b)),
    (checks.fold, lambda g, b, w, o: [w @ torch.diag(g), w @ b + o]),
    (
        checks.fold,
        lambda g, b, w, o: (torch.stack([r * g for r in w]), o + (w * b).sum(1)),
    ),
    (
        checks.fold,
        lambda g, b, w, o: (
            torch.einsum("oi,i->oi", w, g),
            torch.einsum("oi,i->o", w, b) + o,
        ),
    ),
    (checks.fold, lambda g, b, w, o: (w.clone().mul_(g), o.clone().add_(w @ b))),
    (
        checks.fold,
        lambda g, b, w, o: [
            torch.stack([w @ (g * e) for e in torch.eye(len(g))], 1),
            (w @ b[:, None]).squeeze(1) + o,
        ],
    ),
]


def over(*axes, unbiased=False):
    def norm(x, gain, bias, eps):
        z = x - x.mean(axes, keepdim=True)
        variance = x.var(axes, unbiased=unbiased, keepdim=True)
        return gain[:, None] * z / (variance + eps).sqrt() + bias[:, None]

    return norm


@wrong(checks.channel_norm, "differences from the mean")
def of_x(x, gain, bias, eps):
    z = (x - x.mean(1, True)) / (x.square().mean(1, True) + eps).sqrt()
    return gain[:, None] * z + bias[:, None]


@wrong(checks.channel_norm, "does not swap")
def reshaped(x, gain, bias, eps):
    b, c, t = x.shape
    return layer_norm(x.reshape(b, t, c), [c], gain, bias, eps).reshape(b, c, t)


def pieces(x):
    mean = x.mean(1, keepdim=True)
    return x - mean, (x - mean).square().mean(1, keepdim=True)


def divided_by(root):
    def norm(x, gain, bias, eps):
        z, variance = pieces(x)
        return gain[:, None] * z / root(variance, eps) + bias[:, None]

    return norm


def read_by(gain_and_bias):
    def norm(x, gain, bias, eps):
        z, variance = pieces(x)
        z = z / (variance + eps).sqrt()
        return gain_and_bias(z, gain[:, None], bias[:, None])

    return norm


@wrong(checks.channel_norm, "two things: `std` is by c - 1, and eps")
def by_std(x, gain, bias, eps):
    z = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + eps)
    return gain[:, None] * z + bias[:, None]


@wrong(checks.channel_norm, "the mean is not taken off")
def rms(x, gain, bias, eps):
    z = x / (x.square().mean(1, keepdim=True) + eps).sqrt()
    return gain[:, None] * z + bias[:, None]


@wrong(checks.channel_norm, "`layer_norm` is over the last axis")
def last_axis(x, gain, bias, eps):
    return layer_norm(x, [len(gain)], gain, bias, eps)


@wrong(checks.third_block, "both sub-layers: .* not added")
def not_added(x, attention, feed_forward, norms):
    return norms[1](feed_forward(norms[0](attention(x))))


@wrong(checks.third_block, "both sub-layers: this is pre-norm")
def pre(x, attention, feed_forward, norms):
    x = x + attention(norms[0](x))
    return x + feed_forward(norms[1](x))


@wrong(checks.third_block, "this is post-norm")
def post(x, attention, feed_forward, norms):
    x = norms[0](x + attention(x))
    return norms[1](x + feed_forward(x))


@wrong(checks.third_block, "changed places")
def swapped(x, attention, feed_forward, norms):
    x = x + norms[1](attention(x))
    return x + norms[0](feed_forward(x))


@wrong(checks.third_block, r"through norms\[0\]")
def one_norm(x, attention, feed_forward, norms):
    x = x + norms[0](attention(x))
    return x + norms[0](feed_forward(x))


@wrong(checks.third_block, "feed-forward: what it gives is not normed")
def half(x, attention, feed_forward, norms):
    x = x + norms[0](attention(x))
    return x + feed_forward(x)


@wrong(checks.third_block, "attention: what it gives is not normed")
def other_half(x, attention, feed_forward, norms):
    x = x + attention(x)
    return x + norms[1](feed_forward(x))


@wrong(checks.third_block, "both sub-layers: what it gives is not normed")
def none(x, attention, feed_forward, norms):
    x = x + attention(x)
    return x + feed_forward(x)


@wrong(checks.third_block, "what attention has added")
def parallel(x, attention, feed_forward, norms):
    return x + norms[0](attention(x)) + norms[1](feed_forward(x))


def lost(x, attention, feed_forward, norms):
    between = x + norms[0](attention(x))
    return x + norms[1](feed_forward(between))


@wrong(checks.third_block, "block: attention: this is pre-norm: norm what it")
def first_pre(x, attention, feed_forward, norms):
    x = x + attention(norms[0](x))
    return x + norms[1](feed_forward(x))


@wrong(checks.third_block, "what it reads is normed too")
def read_and_give(x, attention, feed_forward, norms):
    x = x + norms[0](attention(norms[0](x)))
    return x + norms[1](feed_forward(norms[1](x)))


@wrong(checks.third_block, "no branch reads a normed copy")
def reads_the_first_norm(x, attention, feed_forward, norms):
    x = x + norms[0](attention(x))
    return x + norms[1](feed_forward(norms[0](x)))


@wrong(checks.third_block, "feed-forward: .* not added")
def one_added(x, attention, feed_forward, norms):
    x = x + norms[0](attention(x))
    return norms[1](feed_forward(x))


@wrong(checks.fold, r"offset = .*: at \[0\] the shape is")
def by_outputs(gain, bias, weight, offset):
    n = range(len(offset))
    columns = torch.stack([weight[:, i] * gain[i] for i in n], 1)
    return columns, offset + sum(weight[:, i] * bias[i] for i in n)


@wrong(checks.third_block, "changes its input")
def in_place(x, attention, feed_forward, norms):
    x += norms[0](attention(x))
    return x + norms[1](feed_forward(x))


@wrong(checks.channel_norm, r"must match .* `\[:, None\]`")
def nothing_turned(x, gain, bias, eps):
    z, variance = pieces(x)
    return gain * z / (variance + eps).sqrt() + bias


@wrong(checks.channel_norm, "must match .* `keepdim=True`")
def without_keepdim(x, gain, bias, eps):
    root = (x.var(1, unbiased=False) + eps).sqrt()
    return gain[:, None] * (x - x.mean(1)) / root + bias[:, None]


@wrong(checks.channel_norm, "and so is its variance")
def both_without_keepdim(x, gain, bias, eps):
    z = x - x.mean(1)
    return gain[:, None] * z / (z.square().mean(1) + eps).sqrt() + bias[:, None]


@wrong(checks.channel_norm, "a position's variance is one number")
def root_without_keepdim(x, gain, bias, eps):
    z, _ = pieces(x)
    return gain[:, None] * z / (x.var(1, unbiased=False) + eps).sqrt() + bias[:, None]


@wrong(checks.channel_norm, "the mean of the squares, not the sum")
def summed(x, gain, bias, eps):
    z = x - x.mean(1, keepdim=True)
    root = (z.square().sum(1, keepdim=True) + eps).sqrt()
    return gain[:, None] * z / root + bias[:, None]


@wrong(checks.channel_norm, "changes its input")
def changed_x(x, gain, bias, eps):
    x -= x.mean(1, keepdim=True)
    root = (x.square().mean(1, keepdim=True) + eps).sqrt()
    return gain[:, None] * x / root + bias[:, None]


@wrong(checks.third_block, "attention comes first")
def feed_forward_first(x, attention, feed_forward, norms):
    return third(x, feed_forward, attention, norms)


@wrong(
    checks.third_block,
    r"attention = …, feed_forward = …, norms = \(…, …\): at \[0, 0, 0\]",
)
def halved(x, attention, feed_forward, norms):
    return third(x, attention, feed_forward, norms) / 2


@wrong(checks.swiglu, "x @ gate.T")
def by_linear(x, up, gate, down):
    return linear(silu(linear(x, gate)) * linear(x, up), down)


@wrong(checks.third_block, "it stops with TypeError: .*'mask'")
def five_arguments(x, attention, feed_forward, norms, mask):
    return x


WRONG = [
    *wrong,
    # Errors of other mistakes than the one that stops a wrong answer most often.
    (
        checks.channel_norm,
        lambda x, g, b, eps: moved(x, g, b, eps) + torch.ones(5, 6),
        "for x .*: it stops with RuntimeError: [^:]*$",
    ),
    (
        checks.channel_norm,
        lambda x, g, b, eps: moved(x, g, b, eps) @ x,
        "for x .*: it stops with RuntimeError: Expected size for first two[^`]*$",
    ),
    (
        checks.channel_norm,
        lambda x, g, b, eps: layer_norm(x, [len(g)]) * g[:, None] + b[:, None],
        "for x .*: it stops with RuntimeError: [^:]*$",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: linear(silu(x @ g) * (x @ u), d),
        "for x .*: it stops with RuntimeError: [^:]*$",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: silu(x @ g) @ d * (x @ u),
        "for x .*: it stops with RuntimeError: [^:]*$",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: (x @ g * torch.sigmoid(1.702 * (x @ g)) * (x @ u)) @ d,
        "has no factor in the sigmoid",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: F.silu(x @ g) * (x @ u) @ d,  # noqa: F821
        "^swiglu: it stops with NameError: name 'F' is not defined$",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: (torch.nn.functional.mish(x @ g) * (x @ u)) @ d,
        "it gives",
    ),
    (
        checks.third_block,
        lambda x, attention, feed_forward, norms: x + norms(attention(x)),
        "'tuple' object is not callable$",
    ),
    (
        checks.third_block,
        lambda *case: (third(*case), None),
        r"it gives \(a float32 tensor \(1, 4, 6\), None\), wanted a float32",
    ),
    (
        checks.fold,
        lambda g, b, w, o: (torch.outer(w, g), o + w @ b),
        "for g .*: it stops with RuntimeError: outer: [^:]*$",
    ),
    (
        checks.fold,
        lambda g, b, w, o: (w * g, o + torch.outer(w, b).sum(-1)),
        "for g .*: it stops with RuntimeError: outer: [^:]*$",
    ),
    (
        checks.fold,
        lambda g, b, w, o: (torch.diag(g) @ w, o + w @ b),
        "of the inputs, not the outputs",
    ),
    (
        checks.fold,
        lambda g, b, w, o: (w * g.view(1, len(o)), o + w @ b),
        "right for square weights only",
    ),
    (checks.fold, lambda g, b, w, o: w * g, "it gives a float32 tensor"),
    (checks.swiglu, lambda x, u, g, d: linear(x, g), "RuntimeError: mat1 and[^:]*$"),
    (checks.channel_norm, over(2), "this is over t: each position"),
    (checks.channel_norm, over(1, 2), "over c and t"),
    (checks.channel_norm, over(0), "over the batch"),
    (checks.channel_norm, over(0, 1, 2), "over everything"),
    (checks.channel_norm, over(0, 2), "BatchNorm"),
    (checks.channel_norm, over(1, unbiased=True), "divide by c - 1"),
    (checks.channel_norm, divided_by(lambda v, eps: v.sqrt() + eps), "is outside"),
    (checks.channel_norm, divided_by(lambda v, eps: v.sqrt()), "eps is missing"),
    (checks.channel_norm, divided_by(lambda v, eps: (v + 1e-5).sqrt()), "or fixed"),
    (
        checks.channel_norm,
        divided_by(lambda v, eps: v + eps),
        "of the variance, not by it",
    ),
    (checks.channel_norm, read_by(lambda z, g, b: g * z), "the bias is not used"),
    (checks.channel_norm, read_by(lambda z, g, b: z + b), "the gain is not used"),
    (checks.channel_norm, lambda *case: moved(*case).mT, "turn it back"),
    (checks.channel_norm, lambda x, *w: moved(x[:1], *w), "the shape is"),
    (
        checks.swiglu,
        lambda x, u, g, d: (silu(x @ u) * (x @ g)) @ d,
        "SiLU belongs on the gate",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: ((x @ g).sigmoid() * (x @ u)) @ d,
        "this is a sigmoid: .* x times the",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: (silu(x @ u) * silu(x @ g)) @ d,
        "SiLU is on both",
    ),
    (checks.swiglu, lambda x, u, g, d: (gelu(x @ g) * (x @ u)) @ d, "this is GELU"),
    (
        checks.swiglu,
        lambda x, u, g, d: ((x @ g).clamp(min=0) * (x @ u)) @ d,
        "this is ReLU",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: ((x @ g).softmax(-1) * (x @ u)) @ d,
        "this is a softmax",
    ),
    (checks.swiglu, lambda x, u, g, d: (silu(x @ g) + x @ u) @ d, "must be multiplied"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ u) @ d, "gate is not used"),
    (
        checks.swiglu,
        lambda x, u, g, d: (x @ g * (x @ g).sigmoid() * x @ u) @ d,
        "must match .* needs brackets",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: ((silu(x) @ g) * (x @ u)) @ d,
        "SiLU is of x @ gate",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: ((x @ u) * (x @ g)) @ d,
        "gate has no activation",
    ),
    (checks.swiglu, lambda x, u, g, d: silu(x @ g) * (x @ u), "leads back"),
    (
        checks.swiglu,
        lambda x, u, g, d: x + (silu(x @ g) * (x @ u)) @ d,
        "x is not added here",
    ),
    (checks.swiglu, lambda x, u, g, d: silu(x @ g) * x @ u @ d, "needs brackets"),
    (
        checks.swiglu,
        lambda x, u, g, d: (silu(x[0] @ g) * (x[0] @ u)) @ d,
        r"the shape is \(4,\), wanted \(3, 4\)",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: ((1 + silu(x @ g)) * (x @ u)) @ d,
        r"for x \(3, 4\), u \(4, 6\), g \(4, 6\), d \(6, 4\): at \[0, 0\] it gives",
    ),
    (checks.swiglu, lambda x, u, g, d: (x @ silu(g) * (x @ u)) @ d, "first x @ gate"),
    (checks.fold, lambda g, b, w, o: (w * g[:, None], o + w @ b), "outputs"),
    (checks.fold, lambda g, b, w, o: (w * g, o), "bias of the norm is lost"),
    (
        checks.fold,
        lambda g, b, w, o: (w @ (torch.eye(len(o)) * g), o + w @ b),
        "right for square weights only",
    ),
    (
        checks.fold,
        lambda g, b, w, o: (w * g.expand(len(o), len(o)), o + w @ b),
        "right for square weights only",
    ),
    (checks.fold, lambda g, b, w, o: (w * g, g * o + w @ b), "offset gets no gain"),
    (checks.fold, lambda g, b, w, o: (w.T * g, o + w @ b), "back transposed"),
    (
        checks.fold,
        lambda g, b, w, o: (w * g[:, None], o),
        "not the outputs; the bias of the norm is lost",
    ),
    (checks.fold, lambda g, b, w, o: (w * g, o + (w * g) @ b), "after the gain"),
    (checks.fold, lambda g, b, w, o: (w * g, o + (w * g) @ (b / g)), "may be 0"),
    (checks.fold, lambda g, b, w, o: (w * g, o + b), "through the weight"),
    (checks.fold, lambda g, b, w, o: (w * g, w @ b), "own offset is lost"),
    (checks.fold, lambda g, b, w, o: (w * g, o + b @ w), "other way round"),
    (checks.fold, lambda g, b, w, o: (w, o + w @ b), "gain is lost"),
    (checks.fold, lambda g, b, w, o: (o + w @ b, w * g), "the order is"),
    (checks.fold, lambda g, b, w, o: (w.mul_(g), o + w @ b), "changes its input"),
    (checks.fold, lambda g, b, w, o: (w * g, o + w * b), r"`\*` does not sum"),
    (checks.fold, lambda g, b, w, o: (w * g, o + (w * b).sum(0)), "over the inputs"),
    (
        checks.fold,
        lambda g, b, w, o: (w.T * g, o + w.T @ b),
        "back transposed; .* other way round",
    ),
    (checks.fold, lambda g, b, w, o: (w, o), "gain is lost; the bias of the norm"),
    (
        checks.fold,
        lambda g, b, w, o: (w * g, (o + w @ b)[:, None]),
        r"at \[1\] the shape is \(7, 1\), wanted \(7,\)",
    ),
    (
        checks.fold,
        lambda g, b, w, o: lambda z: w @ (g * z + b) + o,
        "it gives a function",
    ),
    (checks.fold, lambda g, b, w, o: None, "is there a `return`"),
    (checks.fold, lambda g, b, w, o: w * g, "it gives a float32 tensor"),
    (
        checks.channel_norm,
        lambda x, g, b, eps: layer_norm(x.mT, [len(g)], eps=eps).mT,
        "gain and bias are not used",
    ),
    (checks.channel_norm, read_by(lambda z, g, b: g * (z + b)), "gets no gain"),
    (
        checks.channel_norm,
        divided_by(lambda v, eps: (v + eps).rsqrt()),
        "divide by the root, don't multiply",
    ),
    (
        checks.swiglu,
        lambda x, u, g, d: silu((x @ u) * (x @ g)) @ d,
        "not on the product",
    ),
    (checks.swiglu, lambda x, u, g, d: ((x @ g).tanh() * (x @ u)) @ d, "this is tanh"),
    (checks.swiglu, lambda x, u, g, d: silu(x @ g) @ d, "x @ up is not used"),
    (
        checks.third_block,
        lambda x, a, w, n: x + n[1](w(x + n[0](a(x)))),
        "what attention adds is lost",
    ),
    (
        checks.third_block,
        lambda x, a, w, n: x + (y := n[0](a(x))) + n[1](w(y)),
        "the sum, not only what attention gives",
    ),
    (
        checks.third_block,
        lambda x, a, w, n: third(x, a, lambda y: 0 * y, (n[0], lambda y: y)),
        "feed-forward layer is missing",
    ),
    (
        checks.third_block,
        lambda x, a, w, n: (y := n[0](x) + a(x)) + n[1](w(y)),
        "attention: norm what it gives, not x",
    ),
    (checks.fold, lambda g, b, w, o: (w / g, o + w @ b), "don't divide"),
    (checks.fold, lambda g, b, w, o: (w * g, (o + w @ b) * g), "new offset gets no"),
]
