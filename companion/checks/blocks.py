"""Checks of chapter 04."""

import torch

from ..attention import MultiHeadAttention
from ..blocks import Block, FeedForward, GatedFeedForward, LayerNorm
from .compare import compare, draw


def block_count(answer) -> None:
    """`answer(c)`: the parameters of a block with c features."""

    def right(c):
        with torch.device("meta"):
            parts = MultiHeadAttention(c, 1), FeedForward(c)
            block = Block(*parts, (LayerNorm(c), LayerNorm(c)))
        return sum(p.numel() for p in block.parameters())

    compare(
        answer,
        right,
        [(768,), (10,)],
        [
            ("only the matrices: biases and norms count too", lambda c: 12 * c * c),
            ("the two norms are missing: 2c each", lambda c: 12 * c * c + 9 * c),
            (
                "half of the norms is missing: two of them, a gain and a bias each",
                lambda c: 12 * c * c + 11 * c,
            ),
            ("the biases are missing: 4c + 5c", lambda c: 12 * c * c + 4 * c),
            (
                "attention has four matrices: the output projection is missing",
                lambda c: 11 * c * c + 12 * c,
            ),
        ],
        "block_count: 12 c² + 13 c, of which two thirds are feed-forward",
    )


def swiglu(answer) -> None:
    """`answer(x, up, gate, down)`: (SiLU(x gate) · (x up)) down."""
    silu = torch.nn.functional.silu

    def right(x, up, gate, down):
        layer = GatedFeedForward(4, 6, bias=False)
        names = ("to_hidden", "to_gate", "to_output")
        for name, matrix in zip(names, (up, gate, down), strict=True):
            getattr(layer, name).weight.data = matrix.T
        return layer(x)

    x, up, gate, down = draw(3, 4), draw(4, 6), draw(4, 6, seed=1), draw(6, 4, seed=2)
    compare(
        answer,
        right,
        [(x + 1, up, gate, down)],
        [
            (
                "the bend is on x @ up: here it belongs on the gate, x @ gate",
                lambda x, u, g, d: (silu(x @ u) * (x @ g)) @ d,
            ),
            (
                "this is a sigmoid: SiLU is x times it",
                lambda x, u, g, d: ((x @ g).sigmoid() * (x @ u)) @ d,
            ),
            (
                "both are bent: x @ up is a plain product",
                lambda x, u, g, d: (silu(x @ u) * silu(x @ g)) @ d,
            ),
            (
                "the gate is added: it must be multiplied",
                lambda x, u, g, d: (silu(x @ g) + x @ u) @ d,
            ),
            ("x @ up is not used", lambda x, u, g, d: silu(x @ g) @ d),
            ("the gate is not used", lambda x, u, g, d: silu(x @ u) @ d),
            ("nothing is bent: where is SiLU?", lambda x, u, g, d: x @ u * (x @ g) @ d),
        ],
        "swiglu: a gate that each token sets for itself",
    )


def fixed_block(answer) -> None:
    """`answer(x, attention, feed_forward, norms)`: a pre-norm block."""
    first, second = draw(6, 6), draw(6, 6, seed=1)

    def attend(x, **_):
        return x.cumsum(-2) @ first

    def widen(x):
        return torch.relu(x @ second)

    def norm(x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

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

    scaled = (lambda x: 2 * norm(x)), (lambda x: 3 * norm(x) + 1)
    compare(
        answer,
        lambda x, attend, widen, norms: Block(attend, widen, norms)(x),
        [(5 * draw(4, 6, seed=2), attend, widen, scaled)],
        [
            (
                "the norms are computed and thrown away: x goes into the branches"
                " as it was",
                joined(raw, raw),
            ),
            ("the feed-forward layer still reads x without norm", joined(one, raw)),
            ("attention still reads x without norm", joined(raw, two)),
            ("the two norms have changed places", joined(two, one)),
            (
                "the norm has replaced x: only the branch reads the normed copy, the"
                " sum takes x itself",
                replaced,
            ),
            (
                "the feed-forward layer must see what attention has added",
                lambda x, a, w, n: x + a(n[0](x)) + w(n[1](x)),
            ),
            (
                "this is post-norm: the norm belongs in front of the branch",
                lambda x, a, w, n: Block(a, w, n, pre_norm=False)(x),
            ),
            ("the branches are not added to x", lambda x, a, w, n: w(n[1](a(n[0](x))))),
        ],
        "fixed_block: the branches read normed copies, the stream stays whole",
    )


def fold(answer) -> None:
    """`answer(gain, bias, weight, offset)`: the norm's gain and bias, merged."""

    def applied(function):
        def outputs(*case):
            weight, offset = function(*case)
            return [weight @ draw(4, seed=9) + offset, weight, offset]

        return outputs

    def right(gain, bias, weight, offset):
        return weight @ torch.diag(gain), torch.mv(weight, bias) + offset

    mistakes = [
        (
            "the gain multiplies the outputs: it belongs to the inputs, the columns",
            lambda g, b, w, o: (w * g[:, None], o + w @ b),
        ),
        ("the bias of the norm is lost", lambda g, b, w, o: (w * g, o)),
        (
            "the bias is added after the gain: it must not be multiplied by it",
            lambda g, b, w, o: (w * g, o + (w * g) @ b),
        ),
        (
            "the bias goes through the weight before it reaches the output",
            lambda g, b, w, o: (w * g, o + b),
        ),
        ("the layer's own offset is lost", lambda g, b, w, o: (w * g, w @ b)),
        (
            "the weight is (outputs, inputs): here it is taken the other way round",
            lambda g, b, w, o: (w * g, o + b @ w),
        ),
    ]
    compare(
        applied(answer),
        applied(right),
        [(draw(4), draw(4, seed=1), draw(4, 4, seed=2), draw(4, seed=3))],
        [(words, applied(mistake)) for words, mistake in mistakes],
        "fold: the norm's gain and bias cost nothing any more",
    )
