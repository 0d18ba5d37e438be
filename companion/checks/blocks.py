"""Checks of chapter 04."""

import torch
from torch.nn.functional import layer_norm

from ..attention import MultiHeadAttention
from ..blocks import ACTIVATIONS, Block, FeedForward, GatedFeedForward, LayerNorm
from .compare import compare, draw


def block_count(answer) -> None:
    """`answer(c)`: the parameters of a block with c features."""

    def right(c):
        with torch.device("meta"):
            parts = MultiHeadAttention(c, 1), FeedForward(c)
            block = Block(*parts, (LayerNorm(c), LayerNorm(c)))
        return sum(p.numel() for p in block.parameters())

    def counts(squares, rest):
        return lambda c: squares * c * c + rest * c

    compare(
        answer,
        right,
        [(768,), (10,), (64,)],
        {
            "only the matrices: biases and norms count too": counts(12, 0),
            "4c is missing: the two norms, or the biases of attention?": counts(12, 9),
            "2c is missing: there are two norms, each with a gain and a bias": (
                counts(12, 11)
            ),
            "9c is missing: a bias is as long as what its matrix gives, 4c in"
            " attention and 5c in feed-forward": counts(12, 4),
            "8c is missing: the biases of attention, 4c, and the two norms, 4c": (
                counts(12, 5)
            ),
            "2c too many: a block has two norms, the third belongs to the model": (
                counts(12, 15)
            ),
            "5c is missing: the biases of feed-forward, 4c and c": counts(12, 8),
            "3c is missing: the first bias of feed-forward is as long as its hidden"
            " layer, 4c": counts(12, 10),
            "attention has four matrices: the output projection is missing": (
                counts(11, 12)
            ),
            "feed-forward has two matrices of 4c²: one up, one down": counts(8, 13),
            "the hidden layer of feed-forward is four times as wide": counts(6, 10),
            "this is attention alone": counts(4, 4),
        },
        "block_count: 12 c² + 13 c, of which two thirds are feed-forward",
    )


def swiglu(answer) -> None:
    """`answer(x, up, gate, down)`: (SiLU(x gate) · (x up)) down."""

    def right(x, up, gate, down):
        layer = GatedFeedForward(*up.shape, bias=False)
        layer.to_hidden.weight.data = up.T
        layer.to_gate.weight.data = gate.T
        layer.to_output.weight.data = down.T
        return layer(x)

    def gated(bend):
        return lambda x, u, g, d: (bend(x @ g) * (x @ u)) @ d

    def case(n, c, hidden):
        matrices = draw(c, hidden), draw(c, hidden, seed=1), draw(hidden, c, seed=2)
        return draw(n, c) + 1, *matrices

    silu = ACTIVATIONS["silu"]
    compare(
        answer,
        right,
        [case(3, 4, 6), case(5, 2, 7)],
        {
            "the bend is on x @ up: here it belongs on the gate, x @ gate": (
                lambda x, u, g, d: (silu(x @ u) * (x @ g)) @ d
            ),
            "this is a sigmoid: SiLU is x times it": gated(torch.sigmoid),
            "this is GELU: SiLU is x times the sigmoid of x": gated(
                ACTIVATIONS["gelu"]
            ),
            "this is ReLU: SiLU is x times the sigmoid of x": gated(torch.relu),
            "the gate is not bent: where is SiLU?": gated(lambda z: z),
            "both are bent: x @ up is a plain product": (
                lambda x, u, g, d: (silu(x @ u) * silu(x @ g)) @ d
            ),
            "the product is bent: SiLU is of the gate alone": (
                lambda x, u, g, d: silu(x @ u * (x @ g)) @ d
            ),
            "the gate is added: it must be multiplied": (
                lambda x, u, g, d: (silu(x @ g) + x @ u) @ d
            ),
            "x @ up is not used": lambda x, u, g, d: silu(x @ g) @ d,
            "the gate is not used": lambda x, u, g, d: silu(x @ u) @ d,
            "this is the hidden layer: `@ down` leads back": (
                lambda x, u, g, d: silu(x @ g) * (x @ u)
            ),
        },
        "swiglu: a gate that each token sets for itself",
    )


class Part:
    """A layer or a norm for `fixed_block`; it must not be given a mask."""

    def __init__(self, function):
        self.function = function

    def __call__(self, x, mask=None, **_):
        if mask is not None:
            raise ValueError("there is a mask, and none is asked for")
        return self.function(x)

    def __repr__(self):
        return "…"


def fixed_block(answer) -> None:
    """`answer(x, attention, feed_forward, norms)`: a pre-norm block."""

    def case(b, t, c):
        first, second = draw(c, c), draw(c, c, seed=1)
        attend, widen = lambda x: x.cumsum(-2) @ first, lambda x: (x @ second).relu()
        norms = (
            Part(lambda x: 2 * layer_norm(x, x.shape[-1:])),
            Part(lambda x: 3 * layer_norm(x, x.shape[-1:]) + 1),
        )
        return 5 * draw(b, t, c, seed=2), Part(attend), Part(widen), norms

    def joined(read_first, read_second):
        def block(x, attend, widen, norms):
            x = x + attend(read_first(x, norms))
            return x + widen(read_second(x, norms))

        return block

    raw, one, two = lambda x, n: x, lambda x, n: n[0](x), lambda x, n: n[1](x)

    def replaced(x, attend, widen, norms):
        x = norms[0](x)
        x = norms[1](x + attend(x))
        return x + widen(x)

    compare(
        answer,
        lambda x, attend, widen, norms: Block(attend, widen, norms)(x),
        [case(1, 4, 6), case(2, 3, 5)],
        {
            "the norms are computed and thrown away: x goes into the branches"
            " as it was": joined(raw, raw),
            "the feed-forward layer still reads x without norm": joined(one, raw),
            "attention still reads x without norm": joined(raw, two),
            "the two norms have changed places": joined(two, one),
            "both branches read through norms[0]: each has its own": joined(one, one),
            "the norm has replaced x: only the branch reads the normed copy, the"
            " sum takes x itself": replaced,
            "the feed-forward layer must see what attention has added": (
                lambda x, a, w, n: x + a(n[0](x)) + w(n[1](x))
            ),
            "the second sum begins with the first x: what attention added is lost": (
                lambda x, a, w, n: x + w(n[1](x + a(n[0](x))))
            ),
            "only the first norm has replaced x: the sum takes x itself": (
                lambda x, a, w, n: joined(raw, two)(n[0](x), a, w, n)
            ),
            "the norm is of what the branch gives: it belongs in front of the branch": (
                lambda x, a, w, n: joined(raw, raw)(
                    x, lambda x: n[0](a(x)), lambda x: n[1](w(x)), n
                )
            ),
            "this is post-norm: the norm belongs in front of the branch": (
                lambda x, a, w, n: Block(a, w, n, pre_norm=False)(x)
            ),
            "the branches are not added to x": lambda x, a, w, n: w(n[1](a(n[0](x)))),
        },
        "fixed_block: the branches read normed copies, the stream stays whole",
    )


def fold(answer) -> None:
    """`answer(gain, bias, weight, offset)`: the norm's gain and bias, merged."""

    def right(gain, bias, weight, offset):
        return weight @ torch.diag(gain), torch.mv(weight, bias) + offset

    def case(c):  # square, so that a weight taken the wrong way round still runs
        return draw(c), draw(c, seed=1), draw(c, c, seed=2), draw(c, seed=3)

    compare(
        answer,
        right,
        [case(4), case(3)],
        {
            "the gain multiplies the outputs: it belongs to the inputs, the columns": (
                lambda g, b, w, o: (w * g[:, None], o + w @ b)
            ),
            "the gain is lost": lambda g, b, w, o: (w, o + w @ b),
            "the gain is divided out: it must be multiplied in": (
                lambda g, b, w, o: (w / g, o + w @ b)
            ),
            "the bias of the norm is lost": lambda g, b, w, o: (w * g, o),
            "the bias is added after the gain: it must not be multiplied by it": (
                lambda g, b, w, o: (w * g, o + (w * g) @ b)
            ),
            "the bias goes through the weight before it reaches the output": (
                lambda g, b, w, o: (w * g, o + b)
            ),
            "the layer's own offset is lost": lambda g, b, w, o: (w * g, w @ b),
            "the weight is (outputs, inputs): here it is taken the other way round": (
                lambda g, b, w, o: (w * g, o + b @ w)
            ),
            "the order is weight, offset": lambda g, b, w, o: (o + w @ b, w * g),
        },
        "fold: the norm's gain and bias cost nothing any more",
    )
