"""Checks of chapter 04: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, silu

from .compare import Exercise, Raises, check, draw, ways_of


@check
def channel_norm() -> Exercise:
    """`answer(x, gain, bias, eps)`: LayerNorm over the channels of x (b c t)."""

    def mean(x: Tensor, axes: int | tuple[int, ...] = 1) -> Tensor:
        return x.mean(axes, keepdim=True)

    def divided(difference: Tensor, variance: Tensor, eps: float) -> Tensor:
        return difference / (variance + eps).sqrt()

    def scaled(z: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        """What LayerNorm does in the end, with z normalized (b c t)."""
        return gain[:, None] * z + bias[:, None]

    def right(
        x: Tensor,
        gain: Tensor,
        bias: Tensor,
        eps: float,
        axes: int | tuple[int, ...] = 1,
        center: Callable = mean,
        variance: Callable = lambda difference, x, axes: mean(difference**2, axes),
        divided: Callable = divided,
        scaled: Callable = scaled,
    ) -> Tensor:
        difference = x - center(x, axes)
        normalized = divided(difference, variance(difference, x, axes), eps)
        return scaled(normalized, gain, bias)

    way = ways_of(right)

    # The channels are brought to the last axis, or should be.

    def reshaped(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        b, c, t = x.shape
        return layer_norm(x.reshape(b, t, c), [c], gain, bias, eps).reshape(b, c, t)

    def not_turned(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return layer_norm(x, [len(gain)], gain, bias, eps)

    # An axis is missing: these stop where the sizes don't happen to fit.

    def end_without_axis(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        variance = mean((x - mean(x)) ** 2)
        return gain * (x - mean(x)) / (variance + eps).sqrt() + bias

    def means_without_keepdim(
        x: Tensor, gain: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        root = (x.var(1, unbiased=False) + eps).sqrt()
        return gain[:, None] * (x - x.mean(1)) / root + bias[:, None]

    def flat_mean(x: Tensor, axis: int) -> Tensor:
        return x.mean(axis)

    def flat_variance(difference: Tensor, x: Tensor, axis: int) -> Tensor:
        return difference.square().mean(axis)

    each = "each position has a mean and a variance of its own, over its c features"
    mistakes = {
        # Over other axes than the channels.
        f"this is over t: {each}": way(axes=2),
        f"this is over the batch: {each}": way(axes=0),
        f"this is over c and t: {each}": way(axes=(1, 2)),
        f"this is over everything: {each}": way(axes=(0, 1, 2)),
        f"this is over the batch and t, as in BatchNorm: {each}": way(axes=(0, 2)),
        "`reshape` does not swap two axes: `.mT` does": reshaped,
        "c is on the last axis: turn it back": lambda *case: right(*case).mT,
        # Another mean, variance or root.
        "the variance is of the differences from the mean, not of x": way(
            variance=lambda difference, x, axes: mean(x**2)
        ),
        "the variance is the mean of the squares, not the sum": way(
            variance=lambda difference, x, axes: x.shape[1] * mean(difference**2)
        ),
        "`std` and `var` divide by c - 1: here it is by c": way(
            variance=lambda difference, x, axes: x.var(1, keepdim=True)
        ),
        "eps is outside the root: it is added to the variance": way(
            divided=lambda difference, variance, eps: (
                difference / (variance.sqrt() + eps)
            )
        ),
        "two things: `std` is by c - 1, and eps outside": way(
            variance=lambda difference, x, axes: x.var(1, keepdim=True),
            divided=lambda difference, variance, eps: (
                difference / (variance.sqrt() + eps)
            ),
        ),
        "eps is missing or fixed: it is an argument": way(
            divided=lambda difference, variance, eps: difference / variance.sqrt()
        ),
        "divide by the root of the variance, not by it": way(
            divided=lambda difference, variance, eps: difference / (variance + eps)
        ),
        "divide by the root, don't multiply": way(
            divided=lambda difference, variance, eps: (
                difference * (variance + eps).sqrt()
            )
        ),
        "the mean is not taken off: this is RMSNorm with a bias": way(
            center=lambda x, axes: 0
        ),
        # Another end.
        "the bias is not used": way(scaled=lambda z, gain, bias: gain[:, None] * z),
        "the gain is not used": way(scaled=lambda z, gain, bias: z + bias[:, None]),
        "gain and bias are not used": way(scaled=lambda z, gain, bias: z),
        "the bias gets no gain: it comes last": way(
            scaled=lambda z, gain, bias: gain[:, None] * (z + bias[:, None])
        ),
        # An axis.
        "`layer_norm` is over the last axis, and c is axis 1: turn x round before and"
        " after": not_turned,
        "gain and bias belong to c, axis 1: give them `[:, None]`": end_without_axis,
        "a position's mean is one number for its c features: give it"
        " `keepdim=True`": means_without_keepdim,
        "a position's mean is one number for its c features, and so is its variance:"
        " give both `keepdim=True`": way(center=flat_mean, variance=flat_variance),
        "a position's variance is one number for its c features: give it"
        " `keepdim=True`": way(variance=flat_variance),
    }

    def case(b: int, c: int, t: int, eps: float) -> tuple:
        return draw(b, c, t) + 1, draw(c, seed=1), draw(c, seed=2), eps

    cases = [case(2, 7, 3, 3), case(3, 8, 6, 2), case(4, 4, 4, 1e-3)]
    praise = "the features decide what is averaged, not the last axis"
    return Exercise(right, cases, mistakes, praise)


@check
def swiglu() -> Exercise:
    """`answer(x, up, gate, down)`: (SiLU(x gate) · (x up)) down."""

    def right(
        x: Tensor,
        up: Tensor,
        gate: Tensor,
        down: Tensor,
        activation: Callable = silu,
        gated: Callable = lambda gate, up, activation: activation(gate) * up,
    ) -> Tensor:
        return gated(x @ gate, x @ up, activation) @ down

    way = ways_of(right)

    mistakes = {
        "this is GELU: SiLU is x times the sigmoid of x": way(activation=gelu),
        "this is an approximate GELU: SiLU has no factor in the sigmoid": way(
            activation=lambda gate: gate * (1.702 * gate).sigmoid()
        ),
        "this is ReLU: SiLU is x times the sigmoid of x": way(activation=torch.relu),
        "this is tanh: SiLU is x times the sigmoid of x": way(activation=torch.tanh),
        "this is a sigmoid: SiLU is x times the sigmoid of x": way(
            activation=torch.sigmoid
        ),
        "SiLU belongs on the gate, x @ gate": way(
            gated=lambda gate, up, silu: gate * silu(up)
        ),
        "SiLU belongs on the gate, not on the product": way(
            gated=lambda gate, up, silu: silu(gate * up)
        ),
        "SiLU is on both: x @ up stays as it is": way(
            gated=lambda gate, up, silu: silu(gate) * silu(up)
        ),
        "the gate is added: it must be multiplied": way(
            gated=lambda gate, up, silu: silu(gate) + up
        ),
        "this is a softmax: SiLU is x times the sigmoid of x": way(
            activation=lambda gate: gate.softmax(-1)
        ),
        "the gate is not used": way(gated=lambda gate, up, silu: silu(up)),
        "the gate has no activation: where is SiLU?": way(
            gated=lambda gate, up, silu: gate * up
        ),
        "x @ up is not used": way(gated=lambda gate, up, silu: silu(gate)),
        "SiLU is of x @ gate": (
            lambda x, up, gate, down: ((silu(x) @ gate) * (x @ up)) @ down
        ),
        "first x @ gate, then SiLU": (
            lambda x, up, gate, down: ((x @ silu(gate)) * (x @ up)) @ down
        ),
        "`@ down` leads back": lambda x, up, gate, down: silu(x @ gate) * (x @ up),
        "x is not added here: a block does it": lambda x, *rest: x + right(x, *rest),
        "`F.linear(x, gate)` is x @ gate.T: here matrices are (inputs, outputs)": (
            lambda x, up, gate, down: right(x, up.T, gate.T, down.T)
        ),
        "`*` and `@` go from left to right: x @ up needs brackets": (
            lambda x, up, gate, down: silu(x @ gate) * x @ up @ down
        ),
    }

    def case(n: int, c: int, h: int) -> tuple:
        x = draw(n, c) + 1
        return x, draw(c, h), draw(c, h, seed=1), draw(h, c, seed=2)

    cases = [case(3, 4, 6), case(5, 2, 7), case(4, 5, 5)]
    praise = "a gate that each token sets for itself"
    return Exercise(right, cases, mistakes, praise)


@check
def third_block() -> Exercise:
    """`answer(x, attention, feed_forward, norms)`: x + norm(branch(x)), twice."""

    def added(x: Tensor, branch: Callable, norm: Callable) -> Tensor:
        return x + norm(branch(x))

    def right(
        x: Tensor,
        attention: Callable,
        feed_forward: Callable,
        norms: tuple,
        first: Callable = added,
        second: Callable = added,
    ) -> Tensor:
        x = first(x, attention, norms[0])
        return second(x, feed_forward, norms[1])

    way = ways_of(right)

    def another_sum(
        x: Tensor,
        attention: Callable,
        feed_forward: Callable,
        norms: tuple,
        stream: Callable,
    ) -> Tensor:
        """Another sum, `stream(x, y, forward)`, where y is what attention adds."""
        return stream(x, norms[0](attention(x)), lambda x: norms[1](feed_forward(x)))

    summed = ways_of(another_sum)

    mistakes = {
        # The norms, or the sub-layers, are mixed up.
        "the two norms have changed places": (
            lambda x, attend, forward, norms: right(x, attend, forward, norms[::-1])
        ),
        "both sub-layers go through norms[0]: each has its own": (
            lambda x, attend, forward, norms: right(x, attend, forward, norms[:1] * 2)
        ),
        "attention comes first": (
            lambda x, attend, forward, norms: right(x, forward, attend, norms)
        ),
        "the feed-forward layer is missing": way(second=lambda x, branch, norm: x),
        "no branch reads a normed copy: only what it gives is normed": (
            lambda x, attend, forward, norms: right(
                x, attend, lambda x: forward(norms[0](x)), norms
            )
        ),
        # The stream between the two is not what it should be.
        "what attention adds is lost": summed(
            stream=lambda x, y, forward: x + forward(x + y)
        ),
        "the feed-forward layer must see what attention has added": summed(
            stream=lambda x, y, forward: x + y + forward(x)
        ),
        "the feed-forward layer must see the sum, not only what attention"
        " gives": summed(stream=lambda x, y, forward: x + y + forward(y)),
        "the feed-forward layer must see what attention has added, added to x": summed(
            stream=lambda x, y, forward: x + forward(y)
        ),
    }

    # One sub-layer or both have the norm, or the sum, in the wrong place.
    branches = {
        "": added,  # right
        "this is pre-norm: norm what it gives": (
            lambda x, branch, norm: x + branch(norm(x))
        ),
        "this is post-norm: leave the sum alone": (
            lambda x, branch, norm: norm(x + branch(x))
        ),
        "what it reads is normed too: it reads x": (
            lambda x, branch, norm: x + norm(branch(norm(x)))
        ),
        "what it gives is not normed": lambda x, branch, norm: x + branch(x),
        "norm what it gives, not x": lambda x, branch, norm: norm(x) + branch(x),
        "what it gives is not added to x": lambda x, branch, norm: norm(branch(x)),
    }

    for first_words, first in branches.items():
        for second_words, second in branches.items():
            if not first_words and not second_words:
                continue  # that is right
            if not second_words:
                words = f"attention: {first_words}"
            elif not first_words:
                words = f"feed-forward: {second_words}"
            elif first_words == second_words:
                words = f"both sub-layers: {first_words}"
            else:
                words = f"attention: {first_words}; feed-forward: {second_words}"
            mistakes[words] = way(first=first, second=second)

    def case(b: int, t: int, c: int) -> tuple:
        def attention(x: Tensor, *_, **__) -> Tensor:
            """Each token sees those before it; a mask may be handed over, too."""
            return x.cumsum(-2) @ draw(c, c)

        def feed_forward(x: Tensor) -> Tensor:
            return (x @ draw(c, c, seed=1)).relu()

        def first_norm(x: Tensor) -> Tensor:
            return 2 * layer_norm(x, [c]) + 2

        def second_norm(x: Tensor) -> Tensor:
            return 3 * layer_norm(x, [c]) + 4

        x = 5 * draw(b, t, c, seed=2)
        return x, attention, feed_forward, (first_norm, second_norm)

    cases = [case(1, 4, 6), case(2, 3, 5)]
    praise = "only what is added is normed, the stream stays whole"
    return Exercise(right, cases, mistakes, praise)


@check
def fold() -> Exercise:
    """`answer(gain, bias, weight, offset)`: the norm's gain and bias, merged."""

    def right(
        gain: Tensor,
        bias: Tensor,
        weight: Tensor,
        offset: Tensor,
        new_weight: Callable = lambda gain, weight: weight * gain,
        new_offset: Callable = lambda gain, bias, weight, offset: (
            offset + weight @ bias
        ),
    ) -> tuple[Tensor, Tensor]:
        return new_weight(gain, weight), new_offset(gain, bias, weight, offset)

    way = ways_of(right)

    mistakes = {"the order is weight, offset": lambda *case: right(*case)[::-1]}

    # The new weight, the new offset or both are wrong.
    weights = {
        "": lambda gain, weight: weight * gain,  # right
        "the gain is lost": lambda gain, weight: weight,
        "the gain is of the inputs, not the outputs": (
            lambda gain, weight: weight * gain[:, None]
        ),
        "the weight comes back transposed": lambda gain, weight: weight.T * gain,
        "multiply by the gain, don't divide": lambda gain, weight: weight / gain,
    }
    offsets = {
        "": lambda gain, bias, weight, offset: offset + weight @ bias,  # right
        "the bias of the norm is lost": lambda gain, bias, weight, offset: offset,
        "the bias comes after the gain: it gets none": (
            lambda gain, bias, weight, offset: offset + (weight * gain) @ bias
        ),
        "the bias goes through the weight to the output": (
            lambda gain, bias, weight, offset: offset + bias
        ),
        "the layer's own offset is lost": (
            lambda gain, bias, weight, offset: weight @ bias
        ),
        "the layer's own offset gets no gain": (
            lambda gain, bias, weight, offset: gain * offset + weight @ bias
        ),
        "the new offset gets no gain": (
            lambda gain, bias, weight, offset: gain * (offset + weight @ bias)
        ),
        "the bias meets the weight the other way round": (
            lambda gain, bias, weight, offset: offset + bias @ weight
        ),
        "a gain may be 0: take `weight @ bias` before the gain comes in": (
            lambda gain, bias, weight, offset: offset + (weight * gain) @ (bias / gain)
        ),
        "`weight @ bias` sums over the inputs": (
            lambda gain, bias, weight, offset: offset + (weight * bias).sum(0)
        ),
        "`*` does not sum: `weight @ bias` does": (
            lambda gain, bias, weight, offset: offset + weight * bias
        ),
    }

    for weight_words, new_weight in weights.items():
        for offset_words, new_offset in offsets.items():
            if not weight_words and not offset_words:
                continue  # that is right
            if not weight_words or not offset_words:
                words = weight_words or offset_words
            else:
                words = f"{weight_words}; {offset_words}"
            mistakes[words] = way(new_weight=new_weight, new_offset=new_offset)

    # An error in the case of (3, 8) alone.
    mistakes["right for square weights only"] = Raises(
        RuntimeError, "(8)", "3x8", "of size 8", "of size 24"
    )

    def case(rows: int, c: int) -> tuple:
        gain = draw(c)
        gain[2] = 0
        return gain, draw(c, seed=1), draw(rows, c, seed=2), draw(rows, seed=3)

    cases = [case(7, 7), case(8, 8), case(3, 8)]
    praise = "the norm's gain and bias cost nothing any more"
    return Exercise(right, cases, mistakes, praise)
