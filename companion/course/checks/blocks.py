"""Checks of chapter 04."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, silu

from .compare import Exercise, Raises, check, draw


@check
def channel_norm() -> Exercise:
    """`answer(x, gain, bias, eps)`: LayerNorm over the channels of x (b c t)."""

    def right(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        difference = x - x.mean(1, keepdim=True)
        variance = difference.square().mean(1, keepdim=True)
        return gain[:, None] * difference / (variance + eps).sqrt() + bias[:, None]

    def centered(x: Tensor) -> Tensor:
        return x - x.mean(1, keepdim=True)

    def variance_of(x: Tensor) -> Tensor:
        return centered(x).square().mean(1, keepdim=True)

    def normalized(x: Tensor, axes: int | tuple[int, ...], eps: float) -> Tensor:
        difference = x - x.mean(axes, keepdim=True)
        variance = difference.square().mean(axes, keepdim=True)
        return difference / (variance + eps).sqrt()

    def scaled(z: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        """What LayerNorm does in the end, with z normalized (b c t)."""
        return gain[:, None] * z + bias[:, None]

    # Over other axes than the channels.

    def over_t(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(normalized(x, 2, eps), gain, bias)

    def over_batch(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(normalized(x, 0, eps), gain, bias)

    def over_c_and_t(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(normalized(x, (1, 2), eps), gain, bias)

    def over_everything(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(normalized(x, (0, 1, 2), eps), gain, bias)

    def as_in_batch_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(normalized(x, (0, 2), eps), gain, bias)

    # The channels are brought to the last axis, or should be.

    def reshaped(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        b, c, t = x.shape
        return layer_norm(x.reshape(b, t, c), [c], gain, bias, eps).reshape(b, c, t)

    def not_turned_back(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return right(x, gain, bias, eps).mT

    def not_turned(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return layer_norm(x, [len(gain)], gain, bias, eps)

    # Another mean, variance or root.

    def squares_of_x(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        variance = x.square().mean(1, keepdim=True)
        return scaled(centered(x) / (variance + eps).sqrt(), gain, bias)

    def sum_of_squares(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        total = centered(x).square().sum(1, keepdim=True)
        return scaled(centered(x) / (total + eps).sqrt(), gain, bias)

    def by_c_minus_1(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        variance = x.var(1, keepdim=True)
        return scaled(centered(x) / (variance + eps).sqrt(), gain, bias)

    def eps_outside(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(centered(x) / (variance_of(x).sqrt() + eps), gain, bias)

    def std_plus_eps(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(centered(x) / (x.std(1, keepdim=True) + eps), gain, bias)

    def no_eps(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(centered(x) / variance_of(x).sqrt(), gain, bias)

    def no_root(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(centered(x) / (variance_of(x) + eps), gain, bias)

    def times_the_root(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return scaled(centered(x) * (variance_of(x) + eps).sqrt(), gain, bias)

    def rms_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        mean_square = x.square().mean(1, keepdim=True)
        return scaled(x / (mean_square + eps).sqrt(), gain, bias)

    # Another end.

    def no_bias(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return gain[:, None] * normalized(x, 1, eps)

    def no_gain(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return normalized(x, 1, eps) + bias[:, None]

    def neither(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return normalized(x, 1, eps)

    def gain_last(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return gain[:, None] * (normalized(x, 1, eps) + bias[:, None])

    # An axis is missing: these stop where the sizes don't happen to fit.

    def end_without_axis(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        return gain * centered(x) / (variance_of(x) + eps).sqrt() + bias

    def means_without_keepdim(
        x: Tensor, gain: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        root = (x.var(1, unbiased=False) + eps).sqrt()
        return gain[:, None] * (x - x.mean(1)) / root + bias[:, None]

    def both_without_keepdim(
        x: Tensor, gain: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        difference = x - x.mean(1)
        variance = difference.square().mean(1)
        return gain[:, None] * difference / (variance + eps).sqrt() + bias[:, None]

    def variances_without_keepdim(
        x: Tensor, gain: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        variance = centered(x).square().mean(1)
        return gain[:, None] * centered(x) / (variance + eps).sqrt() + bias[:, None]

    each = "each position has a mean and a variance of its own, over its c features"
    mistakes = {
        f"this is over t: {each}": over_t,
        f"this is over the batch: {each}": over_batch,
        f"this is over c and t: {each}": over_c_and_t,
        f"this is over everything: {each}": over_everything,
        f"this is over the batch and t, as in BatchNorm: {each}": as_in_batch_norm,
        "`reshape` does not swap two axes: `.mT` does": reshaped,
        "c is on the last axis: turn it back": not_turned_back,
        "the variance is of the differences from the mean, not of x": squares_of_x,
        "the variance is the mean of the squares, not the sum": sum_of_squares,
        "`std` and `var` divide by c - 1: here it is by c": by_c_minus_1,
        "eps is outside the root: it is added to the variance": eps_outside,
        "two things: `std` is by c - 1, and eps outside": std_plus_eps,
        "eps is missing or fixed: it is an argument": no_eps,
        "divide by the root of the variance, not by it": no_root,
        "divide by the root, don't multiply": times_the_root,
        "the mean is not taken off: this is RMSNorm with a bias": rms_norm,
        "the bias is not used": no_bias,
        "the gain is not used": no_gain,
        "gain and bias are not used": neither,
        "the bias gets no gain: it comes last": gain_last,
        "`layer_norm` is over the last axis, and c is axis 1: turn x round before and"
        " after": not_turned,
        "gain and bias belong to c, axis 1: give them `[:, None]`": end_without_axis,
        "a position's mean is one number for its c features: give it"
        " `keepdim=True`": means_without_keepdim,
        "a position's mean is one number for its c features, and so is its variance:"
        " give both `keepdim=True`": both_without_keepdim,
        "a position's variance is one number for its c features: give it"
        " `keepdim=True`": variances_without_keepdim,
    }

    def case(b: int, c: int, t: int, eps: float) -> tuple:
        return draw(b, c, t) + 1, draw(c, seed=1), draw(c, seed=2), eps

    cases = [case(2, 7, 3, 3), case(3, 8, 6, 2), case(4, 4, 4, 1e-3)]
    praise = "the features decide what is averaged, not the last axis"
    return Exercise(right, cases, mistakes, praise)


@check
def swiglu() -> Exercise:
    """`answer(x, up, gate, down)`: (SiLU(x gate) · (x up)) down."""

    def right(x: Tensor, up: Tensor, gate: Tensor, down: Tensor) -> Tensor:
        return (silu(x @ gate) * (x @ up)) @ down

    mistakes = {
        "this is GELU: SiLU is x times the sigmoid of x": (
            lambda x, up, gate, down: (gelu(x @ gate) * (x @ up)) @ down
        ),
        "this is ReLU: SiLU is x times the sigmoid of x": (
            lambda x, up, gate, down: (torch.relu(x @ gate) * (x @ up)) @ down
        ),
        "this is tanh: SiLU is x times the sigmoid of x": (
            lambda x, up, gate, down: (torch.tanh(x @ gate) * (x @ up)) @ down
        ),
        "this is a sigmoid: SiLU is x times the sigmoid of x": (
            lambda x, up, gate, down: (torch.sigmoid(x @ gate) * (x @ up)) @ down
        ),
        "SiLU belongs on the gate, x @ gate": (
            lambda x, up, gate, down: ((x @ gate) * silu(x @ up)) @ down
        ),
        "SiLU belongs on the gate, not on the product": (
            lambda x, up, gate, down: silu((x @ gate) * (x @ up)) @ down
        ),
        "SiLU is on both: x @ up stays as it is": (
            lambda x, up, gate, down: (silu(x @ gate) * silu(x @ up)) @ down
        ),
        "the gate is added: it must be multiplied": (
            lambda x, up, gate, down: (silu(x @ gate) + x @ up) @ down
        ),
        "the gate is not used": lambda x, up, gate, down: silu(x @ up) @ down,
        "the gate has no activation: where is SiLU?": (
            lambda x, up, gate, down: ((x @ gate) * (x @ up)) @ down
        ),
        "x @ up is not used": lambda x, up, gate, down: silu(x @ gate) @ down,
        "SiLU is of x @ gate": (
            lambda x, up, gate, down: ((silu(x) @ gate) * (x @ up)) @ down
        ),
        "first x @ gate, then SiLU": (
            lambda x, up, gate, down: ((x @ silu(gate)) * (x @ up)) @ down
        ),
        "`@ down` leads back": lambda x, up, gate, down: silu(x @ gate) * (x @ up),
        "x is not added here: a block does it": (
            lambda x, up, gate, down: x + right(x, up, gate, down)
        ),
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

    def right(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        x = x + norms[0](attention(x))
        return x + norms[1](feed_forward(x))

    # The norms, or the sub-layers, are mixed up.

    def norms_swapped(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        x = x + norms[1](attention(x))
        return x + norms[0](feed_forward(x))

    def one_norm(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        x = x + norms[0](attention(x))
        return x + norms[0](feed_forward(x))

    def feed_forward_first(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        x = x + norms[0](feed_forward(x))
        return x + norms[1](attention(x))

    def no_feed_forward(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        return x + norms[0](attention(x))

    # The stream between the two is not what it should be.

    def attention_lost(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        between = x + norms[0](attention(x))
        return x + norms[1](feed_forward(between))

    def side_by_side(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        return x + norms[0](attention(x)) + norms[1](feed_forward(x))

    def without_x(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        added = norms[0](attention(x))
        return x + added + norms[1](feed_forward(added))

    def without_x_and_lost(
        x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
    ) -> Tensor:
        added = norms[0](attention(x))
        return x + norms[1](feed_forward(added))

    mistakes = {
        "the two norms have changed places": norms_swapped,
        "both sub-layers go through norms[0]: each has its own": one_norm,
        "attention comes first": feed_forward_first,
        "the feed-forward layer is missing": no_feed_forward,
        "what attention adds is lost": attention_lost,
        "the feed-forward layer must see what attention has added": side_by_side,
        "the feed-forward layer must see the sum, not only what attention"
        " gives": without_x,
        "the feed-forward layer must see what attention has added, added to"
        " x": without_x_and_lost,
    }

    # One sub-layer or both have the norm, or the sum, in the wrong place.
    branches = {
        "": lambda x, branch, norm: x + norm(branch(x)),  # right
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

    def block(first: Callable, second: Callable) -> Callable:
        """A block of two sub-layers, put together by `first` and by `second`."""

        def misplaced(
            x: Tensor, attention: Callable, feed_forward: Callable, norms: tuple
        ) -> Tensor:
            x = first(x, attention, norms[0])
            return second(x, feed_forward, norms[1])

        return misplaced

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
            mistakes[words] = block(first, second)

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
        gain: Tensor, bias: Tensor, weight: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor]:
        return weight * gain, offset + weight @ bias

    def other_order(
        gain: Tensor, bias: Tensor, weight: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor]:
        return offset + weight @ bias, weight * gain

    mistakes = {"the order is weight, offset": other_order}

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
        "`weight @ bias` sums over the inputs": (
            lambda gain, bias, weight, offset: offset + (weight * bias).sum(0)
        ),
        "`*` does not sum: `weight @ bias` does": (
            lambda gain, bias, weight, offset: offset + weight * bias
        ),
    }

    def folded(new_weight: Callable, new_offset: Callable) -> Callable:
        """A function that makes weight and offset by two of these."""

        def wrong(
            gain: Tensor, bias: Tensor, weight: Tensor, offset: Tensor
        ) -> tuple[Tensor, Tensor]:
            return new_weight(gain, weight), new_offset(gain, bias, weight, offset)

        return wrong

    for weight_words, new_weight in weights.items():
        for offset_words, new_offset in offsets.items():
            if not weight_words and not offset_words:
                continue  # that is right
            if not weight_words or not offset_words:
                words = weight_words or offset_words
            else:
                words = f"{weight_words}; {offset_words}"
            mistakes[words] = folded(new_weight, new_offset)

    # An error in the case of (3, 8) alone.
    mistakes["right for square weights only"] = Raises(
        RuntimeError, "(8)", "3x8", "of size 8", "of size 24"
    )

    def case(rows: int, c: int) -> tuple:
        return draw(c), draw(c, seed=1), draw(rows, c, seed=2), draw(rows, seed=3)

    cases = [case(7, 7), case(8, 8), case(3, 8)]
    praise = "the norm's gain and bias cost nothing any more"
    return Exercise(right, cases, mistakes, praise)
