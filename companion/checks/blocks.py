"""Checks of chapter 04."""

from contextlib import redirect_stdout
from io import StringIO
from itertools import product

import torch
from torch.nn.functional import layer_norm

from ..blocks import ACTIVATIONS, gelu, gelu_sigmoid
from .compare import Mistake, compare, draw


def channel_norm(answer) -> None:
    """`answer(x, gain, bias, eps)`: LayerNorm over the channels of x (b c t)."""

    def right(x, gain, bias, eps):
        return layer_norm(x.mT, gain.shape, gain, bias, eps).mT

    def case(b, c, t, eps):
        return draw(b, c, t) + 1, draw(c, seed=1), draw(c, seed=2), eps

    def wrong(over=1, less=0, middle=1, of_x=0, root=None, end=None):
        def norm(x, gain, bias, eps):
            g, b, c = gain[:, None], bias[:, None], len(gain)
            z = x - middle * x.mean(over, True)
            v = (x if of_x else z).square().mean(over, True) * c / (c - less)
            z = z / (root(v, eps) if root else (v + eps).sqrt())
            return end(z, g, b) if end else g * z + b

        return norm

    def reshaped(x, gain, bias, eps):
        z = layer_norm(x.reshape(x.mT.shape), gain.shape, gain, bias, eps)
        return z.reshape(x.shape)

    by, outside = (lambda root: wrong(root=root)), lambda v, eps: v.sqrt() + eps
    each = "each position has a mean and a variance of its own, over its c features"
    compare(
        answer,
        right,
        [case(2, 5, 3, 0.5), case(3, 4, 6, 0.1)],
        {
            "this is over t: the features stand in the middle, on axis 1": wrong(2),
            f"this is over c and t: {each}": wrong((1, 2)),
            f"this is over the batch: {each}": wrong(0),
            f"this is BatchNorm, over the batch and t: {each}": wrong((0, 2)),
            f"this is over everything: {each}": wrong((0, 1, 2)),
            "`reshape` does not swap two axes: `.mT` does": reshaped,
            "the variance is of the differences from the mean, not of x": wrong(of_x=1),
            "`std` and `var` divide by c - 1: here it is by c": wrong(less=1),
            "two things: `std` and `var` divide by c - 1, here it is by c; and eps"
            " belongs inside the root": wrong(less=1, root=outside),
            "eps is outside the root: it is added to the variance": by(outside),
            "eps is missing, or fixed: it is an argument": by(lambda v, eps: v.sqrt()),
            "divide by the root of the variance, not by it": by(lambda v, eps: v + eps),
            "the mean is not taken off: this is RMSNorm with a bias": wrong(middle=0),
            "the bias is added after the gain": wrong(end=lambda z, g, b: g * (z + b)),
            "the bias is not used": wrong(end=lambda z, g, b: g * z),
            "the gain is not used": wrong(end=lambda z, g, b: z + b),
            "gain and bias are not used": wrong(end=lambda z, g, b: z),
        },
        "channel_norm: the features decide what is averaged, not the last axis",
    )


def swiglu(answer) -> None:
    """`answer(x, up, gate, down)`: (SiLU(x gate) · (x up)) down."""

    def right(x, up, gate, down):
        return (silu(x @ gate) * (x @ up)) @ down

    def case(n, c, h):
        return draw(n, c) + 1, draw(c, h), draw(c, h, seed=1), draw(h, c, seed=2)

    silu, of_x = ACTIVATIONS["silu"], "SiLU is x times the sigmoid of x"
    hidden = {  # u is x @ up and g is x @ gate
        "the bend belongs on the gate, x @ gate": lambda u, g: silu(u) * g,
        "only the gate is bent, and by SiLU": lambda u, g: silu(u) * torch.sigmoid(g),
        "both are bent: x @ up is a plain product": lambda u, g: silu(u) * silu(g),
        "the product is bent: SiLU is of the gate alone": lambda u, g: silu(u * g),
        "the gate is added: it must be multiplied": lambda u, g: silu(g) + u,
        "x @ up is not used": lambda u, g: silu(g),
        "the gate is not used": lambda u, g: silu(u),
        "the gate is not bent: where is SiLU?": lambda u, g: u * g,
        f"this is a sigmoid: {of_x}": lambda u, g: u * torch.sigmoid(g),
        f"this is GELU: {of_x}": lambda u, g: u * gelu(g),
        f"1.702 belongs to GELU: {of_x}": lambda u, g: u * gelu_sigmoid(g),
        f"this is ReLU: {of_x}": lambda u, g: u * torch.relu(g),
    }
    mistakes = {
        "SiLU is of x @ gate": lambda x, u, g, d: (silu(x) @ g * (x @ u)) @ d,
        "`@ down` leads back": lambda x, u, g, d: silu(x @ g) * (x @ u),
    }
    for words, f in hidden.items():
        mistakes[words] = lambda x, u, g, d, f=f: f(x @ u, x @ g) @ d
    praise = "swiglu: a gate that each token sets for itself"
    try:
        compare(answer, right, [case(3, 4, 6), case(5, 2, 7)], mistakes, praise)
    except Mistake as wrong:
        hint = " (`*` and `@` go from left to right: has each product its brackets?)"
        raise Mistake(f"{wrong}{hint * ('must match' in str(wrong))}") from None


class Part:
    """A layer or a norm for `third_block`; it must not be given a mask."""

    def __init__(self, function):
        self.function = function

    def __call__(self, x, mask=None, **_):
        if mask is not None:
            raise ValueError("there is a mask, and none is asked for")
        return self.function(x)

    def __repr__(self):
        return "…"


def third_block(answer) -> None:
    """`answer(x, attention, feed_forward, norms)`: x + norm(branch(x)), twice."""

    def case(b, t, c):
        first, second = draw(c, c), draw(c, c, seed=1)
        attend, widen = lambda x: x.cumsum(-2) @ first, lambda x: (x @ second).relu()
        double = Part(lambda x: 2 * layer_norm(x, x.shape[-1:]))
        triple = Part(lambda x: 3 * layer_norm(x, x.shape[-1:]) + 1)
        return 5 * draw(b, t, c, seed=2), Part(attend), Part(widen), (double, triple)

    places = {  # of a branch f and its norm n
        "": lambda x, f, n: x + n(f(x)),
        "this is pre-norm: norm what it gives": lambda x, f, n: x + f(n(x)),
        "this is post-norm: leave the sum alone": lambda x, f, n: n(x + f(x)),
        "what it reads is normed too: it reads x": lambda x, f, n: x + n(f(n(x))),
        "what it gives is not normed": lambda x, f, n: x + f(x),
        "what it gives is not added to x": lambda x, f, n: n(f(x)),
    }

    def block(one="", two="", order=(0, 1)):
        def run(x, attend, widen, norms):
            x = places[one](x, attend, norms[order[0]])
            return places[two](x, widen, norms[order[1]])

        return run

    mistakes = {
        "the two norms have changed places": block(order=(1, 0)),
        "both branches go through norms[0]: each has its own": block(order=(0, 0)),
        "the feed-forward layer must see what attention has added": (
            lambda x, a, w, n: x + n[0](a(x)) + n[1](w(x))
        ),
        "the second sum begins with the first x: what attention added is lost": (
            lambda x, a, w, n: x + n[1](w(x + n[0](a(x))))
        ),
    }
    for one, two in product(places, places):
        of = (one and f"attention: {one}", two and f"feed-forward: {two}")
        said = f"both branches: {one}" if one == two else "; ".join(filter(None, of))
        mistakes[said] = block(one, two)
    praise = "third_block: only what is added is normed, the stream stays whole"
    compare(answer, block(), [case(1, 4, 6), case(2, 3, 5)], mistakes, praise)


def fold(answer) -> None:
    """`answer(gain, bias, weight, offset)`: the norm's gain and bias, merged."""

    def right(gain, bias, weight, offset):
        return weight @ torch.diag(gain), torch.mv(weight, bias) + offset

    def case(rows, c):
        return draw(c), draw(c, seed=1), draw(rows, c, seed=2), draw(rows, seed=3)

    weights = {
        "": lambda g, w: w * g,
        "the gain is of the inputs, not the outputs": lambda g, w: w * g[:, None],
        "the weight comes back transposed": lambda g, w: w.T * g,
        "the gain is lost": lambda g, w: w,
    }
    offsets = {
        "": lambda g, b, w, o: o + w @ b,
        "the bias of the norm is lost": lambda g, b, w, o: o,
        "the bias comes after the gain: it gets none": lambda g, b, w, o: o + w * g @ b,
        "the bias goes through the weight to the output": lambda g, b, w, o: o + b,
        "the layer's own offset is lost": lambda g, b, w, o: w @ b,
        "the layer's own offset gets no gain": lambda g, b, w, o: g * o + w @ b,
        "the bias is added, not taken off": lambda g, b, w, o: o - w @ b,
        "the bias meets the weight the other way round": lambda g, b, w, o: o + b @ w,
    }
    mistakes = {"the order is weight, offset": lambda g, b, w, o: (o + w @ b, w * g)}
    for (one, weight), (two, offset) in product(weights.items(), offsets.items()):
        mistakes["; ".join(filter(None, (one, two)))] = (
            lambda *case, f=weight, h=offset: (f(*case[::2]), h(*case))
        )
    square, wide, said = [case(4, 4), case(3, 3)], [case(6, 4), case(2, 5)], StringIO()
    with redirect_stdout(said):  # square first: a weight the wrong way round still runs
        praise = "fold: the norm's gain and bias cost nothing any more"
        compare(answer, right, square, mistakes, praise)
        if said.getvalue().startswith("✓"):
            compare(answer, right, wide, {}, "fold, right for square weights only: ")
    print(said.getvalue().splitlines()[0])
