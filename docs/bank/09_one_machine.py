"""Homework of chapter 09: two questions and their checks, the teacher's alone."""

import math

import torch

# %% [markdown]
# **1. Loss scaling.** In float16 a gradient of 1e-8 is 0. So the loss is multiplied by
# `scale` before it goes backward, and all gradients come out `scale` times as large.
# Then some may be too large, infinite or no number, and the step must be skipped. Write
# `my_unscale(gradients, scale)`. It takes a list of float16 tensors, and returns a
# pair: the loss's own gradients, in float32, and the next step's scale, which is the
# same. If any number isn't finite, return None and half the scale.


# %%
def my_unscale(gradients, scale):
    raise NotImplementedError


# %%
def check_unscale(answer):
    def draw():
        small = torch.tensor([2.0**-14, -(2.0**-12)], dtype=torch.float16)
        others = torch.tensor([[1000.0], [3.0], [0.5]], dtype=torch.float16)
        return [small, others]

    gradients, scale = answer(draw(), 4096.0)
    assert gradients is not None, "here all numbers are finite"
    assert scale == 4096, "all numbers are finite: the scale stays"
    assert len(gradients) == 2, "one gradient for each that comes in"
    assert all(g.dtype == torch.float32 for g in gradients), "float32 is wanted"
    assert gradients[0].all(), "small gradients are lost: float32 first, then divide"
    by_hand = torch.tensor([2.0**-26, -(2.0**-24)])
    assert torch.equal(gradients[0], by_hand), "divide each by the scale"
    by_hand = torch.tensor([[1000.0], [3.0], [0.5]]) / 4096
    assert torch.equal(gradients[1], by_hand), "divide all tensors by the scale"

    for wrong in (math.inf, -math.inf, math.nan):
        for place in (0, 1):
            broken = draw()
            broken[place][-1] = wrong
            gradients, scale = answer(broken, 4096.0)
            words = f"{wrong} in tensor {place} of 0 and 1"
            assert gradients is None, f"{words}: the step must be skipped"
            assert scale == 2048, f"{words}: the next scale is half of this one"


# %% [markdown]
# **2. Fewer inputs.** The chapter's checkpointing keeps the input of every block, t d
# numbers. One may keep only the input of each *segment* of `size` blocks. When the
# backward pass gets to a segment, these blocks run again, and keep 16 t d numbers each.
# The segment's input is among these, and isn't kept twice. Write `my_kept(t, d,
# n_layers, size)`: how many numbers are kept at the moment when most are. `size`
# divides `n_layers`. With 12 blocks in segments of 3 it is 51 t d. Which size is best
# for 64?


# %%
def my_kept(t, d, n_layers, size):
    raise NotImplementedError


# %%
def check_kept(answer):
    # By hand: the inputs of all segments, and what one segment adds to its input.
    for case, inputs, segment in (
        ((10, 3, 12, 3), 120, 1410),
        ((1, 1, 64, 1), 64, 15),
        ((1, 1, 64, 2), 32, 31),
        ((1, 1, 64, 4), 16, 63),
        ((2, 5, 6, 6), 10, 950),
    ):
        n = answer(*case)
        one_input = case[0] * case[1]
        known = {
            inputs: "when a segment runs again, it keeps more",
            segment + one_input: "the inputs of the other segments wait meanwhile",
            inputs + segment + one_input: "the segment's input is counted twice",
        }
        words = known.get(n, f"{n}, wanted {inputs + segment}")
        assert n == inputs + segment, f"{case}: {words}"
