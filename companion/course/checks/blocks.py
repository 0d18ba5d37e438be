"""Checks of chapter 04."""

from itertools import product

from torch import add, relu, sigmoid, tanh
from torch.nn.functional import gelu, layer_norm, silu

from .compare import compare, draw, stops


def channel_norm(answer) -> None:
    """`answer(x, gain, bias, eps)`: LayerNorm over the channels of x (b c t)."""

    def right(
        x, gain, bias, eps, over=1, n=lambda c: c, middle=1, of_x=0,
        root=lambda v, eps: (v + eps).sqrt(), end=lambda z, g, b: g * z + b,
    ):  # fmt: skip
        z, c = x - middle * x.mean(over, True), len(gain)
        v = (x if of_x else z).square().mean(over, True) * c / n(c)
        return end(z / root(v, eps), gain[:, None], bias[:, None])

    def case(b, c, t, eps):
        return draw(b, c, t) + 1, draw(c, seed=1), draw(c, seed=2), eps

    def centered(x):
        return x - x.mean(1, keepdim=True)

    def nothing_turned(x, gain, bias, eps):
        variance = centered(x).square().mean(1, keepdim=True)
        return gain * centered(x) / (variance + eps).sqrt() + bias

    def means_without_keepdim(x, gain, bias, eps):
        root = (x.var(1, unbiased=False) + eps).sqrt()
        return gain[:, None] * (x - x.mean(1)) / root + bias[:, None]

    def both_without_keepdim(x, gain, bias, eps):
        difference = x - x.mean(1)
        variance = difference.square().mean(1)
        return gain[:, None] * difference / (variance + eps).sqrt() + bias[:, None]

    def variances_without_keepdim(x, gain, bias, eps):
        variance = centered(x).square().mean(1)
        return gain[:, None] * centered(x) / (variance + eps).sqrt() + bias[:, None]

    each = "each position has a mean and a variance of its own, over its c features"
    over = {2: "t", 0: "the batch", (1, 2): "c and t", (0, 1, 2): "everything"}
    over[0, 2] = "the batch and t, as in BatchNorm"
    std, outside = {"n": lambda c: c - 1}, {"root": lambda v, eps: v.sqrt() + eps}
    mistakes = {f"this is over {of}: {each}": {"over": x} for x, of in over.items()} | {
        "`reshape` does not swap two axes: `.mT` does":
            lambda x, *w: right(x.reshape(x.mT.shape).mT, *w).mT.reshape(x.shape),
        "c is on the last axis: turn it back": lambda *case: right(*case).mT,
        "the variance is of the differences from the mean, not of x": {"of_x": 1},
        "the variance is the mean of the squares, not the sum": {"n": lambda c: 1},
        "`std` and `var` divide by c - 1: here it is by c": std,
        "eps is outside the root: it is added to the variance": outside,
        "two things: `std` is by c - 1, and eps outside": std | outside,
        "eps is missing or fixed: it is an argument": {"root": lambda v, eps: v.sqrt()},
        "divide by the root of the variance, not by it": {"root": add},
        "divide by the root, don't multiply": {"root": lambda *v: sum(v).rsqrt()},
        "the mean is not taken off: this is RMSNorm with a bias": {"middle": 0},
        "the bias is not used": {"end": lambda z, g, b: g * z},
        "the gain is not used": {"end": lambda z, g, b: z + b},
        "gain and bias are not used": {"end": lambda z, g, b: z},
        "the bias gets no gain: it comes last": {"end": lambda z, g, b: g * (z + b)},
        "`layer_norm` is over the last axis, and c is axis 1: turn x round before and"
        " after": lambda x, g, b, eps: layer_norm(x, [len(g)], g, b, eps),
        "gain and bias belong to c, axis 1: give them `[:, None]`": nothing_turned,
        "a position's mean is one number for its c features: give it `keepdim=True`":
            means_without_keepdim,
        "a position's mean is one number for its c features, and so is its variance:"
        " give both `keepdim=True`": both_without_keepdim,
        "a position's variance is one number for its c features: give it"
        " `keepdim=True`": variances_without_keepdim,
    }  # fmt: skip
    praise = "channel_norm: the features decide what is averaged, not the last axis"
    cases = [case(2, 7, 3, 3), case(3, 8, 6, 2), case(4, 4, 4, 1e-3)]
    compare(answer, right, cases, mistakes, praise)


def swiglu(answer) -> None:
    """`answer(x, up, gate, down)`: (SiLU(x gate) · (x up)) down."""

    def right(x, up, gate, down, mix=lambda u, g: silu(g) * u):
        return mix(x @ up, x @ gate) @ down

    def case(n, c, h):
        return draw(n, c) + 1, draw(c, h), draw(c, h, seed=1), draw(h, c, seed=2)

    others = {"GELU": gelu, "ReLU": relu, "tanh": tanh, "a sigmoid": sigmoid}
    mixes = {  # u is x @ up and g is x @ gate
        f"this is {said}: SiLU is x times the sigmoid of x": lambda u, g, f=f: u * f(g)
        for said, f in others.items()
    } | {
        "SiLU belongs on the gate, x @ gate": lambda u, g: silu(u) * g,
        "SiLU belongs on the gate, not on the product": lambda u, g: silu(u * g),
        "SiLU is on both: x @ up stays as it is": lambda u, g: silu(u) * silu(g),
        "the gate is added: it must be multiplied": lambda u, g: silu(g) + u,
        "the gate is not used": lambda u, g: silu(u),
        "the gate has no activation: where is SiLU?": lambda u, g: u * g,
        "x @ up is not used": lambda u, g: silu(g),
    }
    mistakes = {words: {"mix": mix} for words, mix in mixes.items()} | {
        "SiLU is of x @ gate": lambda x, u, g, d: (silu(x) @ g * (x @ u)) @ d,
        "first x @ gate, then SiLU": lambda x, u, g, d: (x @ silu(g) * (x @ u)) @ d,
        "`@ down` leads back": lambda x, u, g, d: silu(x @ g) * (x @ u),
        "x is not added here: a block does it": lambda x, *w: x + right(x, *w),
        "`F.linear(x, gate)` is x @ gate.T: here matrices are (inputs, outputs)":
            lambda x, u, g, d: right(x, u.T, g.T, d.T),
        "`*` and `@` go from left to right: x @ up needs brackets":
            lambda x, u, g, d: silu(x @ g) * x @ u @ d,
    }  # fmt: skip
    praise = "swiglu: a gate that each token sets for itself"
    cases = [case(3, 4, 6), case(5, 2, 7), case(4, 5, 5)]
    compare(answer, right, cases, mistakes, praise)


def third_block(answer) -> None:
    """`answer(x, attention, feed_forward, norms)`: x + norm(branch(x)), twice."""

    def case(b, t, c):
        return (
            5 * draw(b, t, c, seed=2),
            lambda x, *_, **__: x.cumsum(-2) @ draw(c, c),
            lambda x: (x @ draw(c, c, seed=1)).relu(),
            tuple(lambda x, k=k: k * layer_norm(x, [c]) + k for k in (2, 3)),
        )

    places = {  # of a sub-layer f and its norm n
        "": lambda x, f, n: x + n(f(x)),
        "this is pre-norm: norm what it gives": lambda x, f, n: x + f(n(x)),
        "this is post-norm: leave the sum alone": lambda x, f, n: n(x + f(x)),
        "what it reads is normed too: it reads x": lambda x, f, n: x + n(f(n(x))),
        "what it gives is not normed": lambda x, f, n: x + f(x),
        "norm what it gives, not x": lambda x, f, n: n(x) + f(x),
        "what it gives is not added to x": lambda x, f, n: n(f(x)),
    }

    def right(x, attend, widen, n, one="", two="", order=(0, 1)):
        x = places[one](x, attend, n[order[0]])
        return places[two](x, widen, n[order[1]])

    mistakes = {
        "the two norms have changed places": {"order": (1, 0)},
        "both sub-layers go through norms[0]: each has its own": {"order": (0, 0)},
        "attention comes first": lambda x, a, w, n: right(x, w, a, n),
        "the feed-forward layer is missing": lambda x, a, w, n: x + n[0](a(x)),
        "what attention adds is lost": lambda x, a, w, n: x + n[1](w(x + n[0](a(x)))),
        "the feed-forward layer must see what attention has added":
            lambda x, a, w, n: x + n[0](a(x)) + n[1](w(x)),
        "the feed-forward layer must see the sum, not only what attention gives":
            lambda x, a, w, n: x + n[0](a(x)) + n[1](w(n[0](a(x)))),
        "the feed-forward layer must see what attention has added, added to x":
            lambda x, a, w, n: x + n[1](w(n[0](a(x)))),
    }  # fmt: skip
    for one, two in product(places, places):
        of = (one and f"attention: {one}", two and f"feed-forward: {two}")
        said = f"both sub-layers: {one}" if one == two else "; ".join(filter(None, of))
        mistakes[said] = {"one": one, "two": two}
    praise = "third_block: only what is added is normed, the stream stays whole"
    compare(answer, right, [case(1, 4, 6), case(2, 3, 5)], mistakes, praise)


def fold(answer) -> None:
    """`answer(gain, bias, weight, offset)`: the norm's gain and bias, merged."""

    def case(rows, c):
        return draw(c), draw(c, seed=1), draw(rows, c, seed=2), draw(rows, seed=3)

    weights = {
        "": lambda g, w: w * g,
        "the gain is lost": lambda g, w: w,
        "the gain is of the inputs, not the outputs": lambda g, w: w * g[:, None],
        "the weight comes back transposed": lambda g, w: w.T * g,
        "multiply by the gain, don't divide": lambda g, w: w / g,
    }
    offsets = {
        "": lambda g, b, w, o: o + w @ b,
        "the bias of the norm is lost": lambda g, b, w, o: o,
        "the bias comes after the gain: it gets none": lambda g, b, w, o: o + w * g @ b,
        "the bias goes through the weight to the output": lambda g, b, w, o: o + b,
        "the layer's own offset is lost": lambda g, b, w, o: w @ b,
        "the layer's own offset gets no gain": lambda g, b, w, o: g * o + w @ b,
        "the new offset gets no gain": lambda g, b, w, o: g * (o + w @ b),
        "the bias meets the weight the other way round": lambda g, b, w, o: o + b @ w,
        "`weight @ bias` sums over the inputs": lambda g, b, w, o: o + (w * b).sum(0),
        "`*` does not sum: `weight @ bias` does": lambda g, b, w, o: o + w * b,
    }

    def right(g, b, w, o, one="", two=""):
        return weights[one](g, w), offsets[two](g, b, w, o)

    mistakes = {"the order is weight, offset": lambda *case: right(*case)[::-1]}
    for one, two in product(weights, offsets):
        mistakes["; ".join(filter(None, (one, two)))] = {"one": one, "two": two}
    # An error in the case of (3, 8) alone.
    square = stops(RuntimeError, "(8)", "3x8", "of size 8", "of size 24")
    mistakes["right for square weights only"] = square
    praise = "fold: the norm's gain and bias cost nothing any more"
    compare(answer, right, [case(7, 7), case(8, 8), case(3, 8)], mistakes, praise)
