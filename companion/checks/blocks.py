"""Checks of chapter 04."""

from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from itertools import product

import torch
from torch.nn.functional import layer_norm

from ..blocks import ACTIVATIONS, gelu, gelu_sigmoid, gelu_tanh
from .compare import compare, draw
from .explained import hinted


def channel_norm(answer) -> None:
    """`answer(x, gain, bias, eps)`: LayerNorm over the channels of x (b c t)."""

    def right(x, gain, bias, eps):
        return layer_norm(x.mT, gain.shape, gain, bias, eps).mT

    def case(b, c, t, eps):
        return draw(b, c, t) + 1, draw(c, seed=1), draw(c, seed=2), eps

    def wrong(over=1, n=None, middle=1, of_x=0, root=None, end=None, whole=0):
        def norm(x, gain, bias, eps):
            g, b, c = gain[:, None], bias[:, None], len(gain)
            z = x - middle * x.mean(over, True)
            v = (x if of_x else z).square().mean(over, True) * (c / n(c) if n else 1)
            z = (x if whole else z) / (root(v, eps) if root else (v + eps).sqrt())
            return end(z, g, b) if end else g * z + b

        return norm

    after, outside = (lambda end: wrong(end=end)), lambda v, eps: v.sqrt() + eps
    each = "each position has a mean and a variance of its own, over its c features"
    over = {2: "t", 0: "the batch", (1, 2): "c and t", (0, 1, 2): "everything"}
    over[0, 2] = "the batch and t, as in BatchNorm"
    mistakes = {f"this is over {of}: {each}": wrong(axes) for axes, of in over.items()}
    swap = "`reshape` does not swap two axes: `.mT` does"
    mistakes |= {
        swap: lambda x, *w: right(x.reshape(x.mT.shape).mT, *w).mT.reshape(x.shape),
        "c is on the last axis: turn it back": lambda *case: right(*case).mT,
        "the variance is of the differences from the mean, not of x": wrong(of_x=1),
        "the variance is the mean of the squares, not the sum": wrong(n=lambda c: 1),
        "`std` and `var` divide by c - 1: here it is by c": wrong(n=lambda c: c - 1),
        "divide by the root of the variance, not by it": wrong(root=lambda v, e: v + e),
        "the mean is not taken off: this is RMSNorm with a bias": wrong(middle=0),
        "x itself is divided: take its mean off first": wrong(whole=1),
        "the bias is added after the gain": after(lambda z, g, b: g * (z + b)),
        "gain and bias have changed places": after(lambda z, g, b: b * z + g),
        "the bias is not used": after(lambda z, g, b: g * z),
        "the gain is not used": after(lambda z, g, b: z + b),
        "neither gain nor bias is used": after(lambda z, g, b: z),
    }
    roots = {
        "eps is outside the root: it is added to the variance": outside,
        "eps is missing or fixed: it is an argument": lambda v, e: v.sqrt(),
    }
    for said, root in roots.items():
        both = f"two things: `std` and `var` divide by c - 1, here it is by c; {said}"
        mistakes |= {said: wrong(root=root), both: wrong(n=lambda c: c - 1, root=root)}
    praise = "channel_norm: the features decide what is averaged, not the last axis"
    hint = " (what belongs to c must stand on axis 1: `keepdim=True`, `gain[:, None]`)"
    cases = [case(2, 7, 3, 3), case(3, 8, 6, 2)]
    hinted(hint, compare, answer, right, cases, mistakes, praise)


def swiglu(answer) -> None:
    """`answer(x, up, gate, down)`: (SiLU(x gate) · (x up)) down."""

    def case(n, c, h):
        return draw(n, c) + 1, draw(c, h), draw(c, h, seed=1), draw(h, c, seed=2)

    silu, right = ACTIVATIONS["silu"], lambda x, u, g, d: (silu(x @ g) * (x @ u)) @ d
    hidden = {  # u is x @ up and g is x @ gate
        "the bend belongs on the gate, x @ gate": lambda u, g: silu(u) * g,
        "only the gate is bent, and by SiLU": lambda u, g: silu(u) * torch.sigmoid(g),
        "both are bent: x @ up is a plain product": lambda u, g: silu(u) * silu(g),
        "the product is bent: SiLU is of the gate alone": lambda u, g: silu(u * g),
        "the gate is added: it must be multiplied": lambda u, g: silu(g) + u,
        "x @ up is not used": lambda u, g: silu(g),
        "the gate is not used": lambda u, g: silu(u),
        "the gate is used twice, bent and plain": lambda u, g: silu(g) * g * u,
        "the gate is not bent: where is SiLU?": lambda u, g: u * g,
        "the sigmoid has the wrong sign": lambda u, g: u * g * torch.sigmoid(-g),
        "1.702 belongs to GELU, not to SiLU": lambda u, g: u * gelu_sigmoid(g),
    }
    bends = {"GELU": gelu, "GELU by its tanh": gelu_tanh, "ReLU": torch.relu}
    bends |= {"squared ReLU": ACTIVATIONS["squared_relu"], "a tanh": torch.tanh}
    bends |= {"a sigmoid": torch.sigmoid, "a softmax": lambda g: g.softmax(-1)}
    for k, f in bends.items():
        said = f"this is {k}: SiLU is x times the sigmoid of x"
        hidden[said] = lambda u, g, f=f: u * f(g)
    mistakes = {
        "SiLU is of x @ gate": lambda x, u, g, d: (silu(x) @ g * (x @ u)) @ d,
        "first x @ gate, then SiLU": lambda x, u, g, d: (x @ silu(g) * (x @ u)) @ d,
        "`@ down` leads back": lambda x, u, g, d: silu(x @ g) * (x @ u),
        "x is not added here: a block does it": lambda x, *w: x + right(x, *w),
    }
    for k, f in hidden.items():
        mistakes[k] = lambda x, u, g, d, f=f: f(x @ u, x @ g) @ d
    praise = "swiglu: a gate that each token sets for itself"
    hint = " (`*` and `@` go from left to right: has each product its brackets?)"
    cases = [case(3, 4, 6), case(5, 2, 7)]
    hinted(hint, compare, answer, right, cases, mistakes, praise)


class Part(partial):
    """A layer or a norm for `third_block`."""

    def __call__(self, x, *_, **__):
        return self.func(x)

    def __repr__(self):
        return "…"


def third_block(answer) -> None:
    """`answer(x, attention, feed_forward, norms)`: x + norm(branch(x)), twice."""

    def case(b, t, c):
        first, second = draw(c, c), draw(c, c, seed=1)
        attend, widen = lambda x: x.cumsum(-2) @ first, lambda x: (x @ second).relu()
        norms = tuple(Part(lambda x, k=k: k * layer_norm(x, [c]) + k) for k in (2, 3))
        return 5 * draw(b, t, c, seed=2), Part(attend), Part(widen), norms

    places = {  # of a branch f and its norm n
        "": lambda x, f, n: x + n(f(x)),
        "this is pre-norm: norm what it gives": lambda x, f, n: x + f(n(x)),
        "this is post-norm: leave the sum alone": lambda x, f, n: n(x + f(x)),
        "what it reads is normed too: it reads x": lambda x, f, n: x + n(f(n(x))),
        "what it gives is not normed": lambda x, f, n: x + f(x),
        "what it gives is not added to x": lambda x, f, n: n(f(x)),
        "it is not used": lambda x, f, n: x,
    }

    def block(one="", two="", order=(0, 1)):
        f, h, (i, k) = places[one], places[two], order
        return lambda x, attend, widen, n: h(f(x, attend, n[i]), widen, n[k])

    whole, side = block(), "the feed-forward layer must see what attention has added"
    alone = "the feed-forward layer reads the stream, not only what attention gives"
    lost = "the second sum begins with the first x: what attention added is lost"
    mistakes = {
        "the two norms have changed places": block(order=(1, 0)),
        "both branches go through norms[0]: each has its own": block(order=(0, 0)),
        "both branches go through norms[1]: each has its own": block(order=(1, 1)),
        "attention comes first": lambda x, a, w, n: whole(x, w, a, n),
        "attention is used twice": lambda x, a, w, n: whole(x, a, a, n),
        "the sum is normed at the end": lambda x, a, w, n: n[1](whole(x, a, w, n)),
        side: lambda x, a, w, n: x + n[0](a(x)) + n[1](w(x)),
        f"{side}, added to x": lambda x, a, w, n: x + n[1](w(n[0](a(x)))),
        lost: lambda x, a, w, n: x + n[1](w(x + n[0](a(x)))),
        alone: lambda x, a, w, n: (h := n[0](a(x))) + x + n[1](w(h)),
        "return the stream: x and what was added": lambda x, *w: whole(x, *w) - x,
    }
    for one, two in product(places, places):
        of = (one and f"attention: {one}", two and f"feed-forward: {two}")
        said = f"both branches: {one}" if one == two else "; ".join(filter(None, of))
        mistakes[said] = block(one, two)
    praise = "third_block: only what is added is normed, the stream stays whole"
    compare(answer, whole, [case(1, 4, 6), case(2, 3, 5)], mistakes, praise)


def fold(answer) -> None:
    """`answer(gain, bias, weight, offset)`: the norm's gain and bias, merged."""

    def case(rows, c):
        return draw(c), draw(c, seed=1), draw(rows, c, seed=2), draw(rows, seed=3)

    weights = {"": lambda g, w: w * g, "the gain is lost": lambda g, w: w}
    weights["the gain is of the inputs, not the outputs"] = lambda g, w: w * g[:, None]
    weights["the weight comes back transposed"] = lambda g, w: w.T * g
    weights["the gain is a factor: it is not added"] = lambda g, w: w + g
    weights["the gain is a factor: do not divide by it"] = lambda g, w: w / g
    offsets = {
        "": lambda g, b, w, o: o + w @ b,
        "the bias of the norm is lost": lambda g, b, w, o: o,
        "the bias comes after the gain: it gets none": lambda g, b, w, o: o + w * g @ b,
        "the bias goes through the weight to the output": lambda g, b, w, o: o + b,
        "the layer's own offset is lost": lambda g, b, w, o: w @ b,
        "the layer's own offset gets no gain": lambda g, b, w, o: g * o + w @ b,
        "the bias is added, not taken off": lambda g, b, w, o: o - w @ b,
        "each output takes the bias by its weights": lambda g, b, w, o: o + b.sum(),
        "the bias meets the weight the other way round": lambda g, b, w, o: o + b @ w,
        "`weight @ bias` sums over the inputs": lambda g, b, w, o: o + (w * b).sum(0),
        "`*` does not sum: `weight @ bias` does": lambda g, b, w, o: o + w * b,
    }
    mistakes = {"the order is weight, offset": lambda g, b, w, o: (o + w @ b, w * g)}
    mistakes["the bias is for the offset"] = lambda g, b, w, o: (w * g + b, o)
    for (one, weight), (two, offset) in product(weights.items(), offsets.items()):
        said = "; ".join(filter(None, (one, two)))
        mistakes[said] = lambda *x, f=weight, h=offset: (f(*x[::2]), h(*x))
    right = mistakes.pop("")
    praise, wide = "fold: the norm's gain and bias cost nothing any more", [case(3, 8)]
    with redirect_stdout(StringIO()) as said:  # a square one still runs if transposed
        compare(answer, right, [case(7, 7), case(8, 8)], mistakes, praise)
        compare(answer, right, wide, {}, "fold, right for square weights only: ")
    print(said.getvalue().splitlines()[0])
