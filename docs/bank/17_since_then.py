"""Homework of chapter 17: two questions and their checks, the teacher's alone."""

import torch
from torch import nn

from companion.course.checks.compare import draw
from companion.course.checks.homework import agree

# %% [markdown]
# **1. A step of the bonus.** `chosen` holds for each token the number of the expert
# that was asked, in a tensor of any shape. Write `my_bonus(bonus, chosen, rate)`: the
# experts' bonus (e) after one step. Who had more tokens than an even share loses
# `rate`, who had fewer gains `rate`, and who had exactly an even share keeps his bonus.
# An expert whom nobody asked has had fewer, too. The old bonus stays as it was.


# %%
def my_bonus(bonus, chosen, rate):
    raise NotImplementedError


# %%
def check_bonus(answer):
    bonus = torch.tensor([0.5, 0.0, -0.5, 1.0])
    before = bonus.clone()
    chosen = torch.tensor([[0, 0, 0], [1, 1, 0], [2, 0, 0], [0, 2, 1]])
    result = answer(bonus, chosen, 0.1)
    words = "of 12 tokens an even share is 3: expert 0 had 7, 1 had 3, 2 had 2, 3 none"
    agree(result, torch.tensor([0.4, 0.0, -0.4, 1.1]), words)
    assert torch.equal(bonus, before), "the old bonus has changed: work on a copy"

    # Whatever came in, each moves by the rate, against its load.
    chosen = (5 * draw(3, 40).abs()).long().clamp(max=7)
    moved = answer(torch.zeros(8), chosen, 0.02)
    for i in range(8):
        wanted = 0.02 if (chosen == i).sum() < 15 else -0.02
        if (chosen == i).sum() == 15:
            wanted = 0.0
        words = f"expert {i} had {(chosen == i).sum()} of 120 tokens, an even share is"
        agree(moved[i], torch.tensor(wanted), f"{words} 15")


# %% [markdown]
# **2. A part that can be put in.** `gate` is a layer that maps x (b t c) to a number
# for each feature (b t d), and `heads` a function of x with as many features. Write
# `my_gated(x, heads, gate)`: what `heads` gives for x, each number times the sigmoid of
# its own gate. A gate far above 0 lets all of it out, one far below nothing, and one of
# 0 just half. Gate and heads see the same x.


# %%
def my_gated(x, heads, gate):
    raise NotImplementedError


# %%
def check_gated(answer):
    x = draw(2, 5, 6)
    gate = nn.Linear(6, 4)

    def heads(x):
        return 3 * x[..., :4] - 1

    with torch.no_grad():
        for level, share, words in (
            (60.0, 1.0, "a gate far above 0 lets all of it out"),
            (-60.0, 0.0, "a gate far below 0 lets nothing out"),
            (0.0, 0.5, "a gate of 0 lets half of it out"),
        ):
            gate.weight.zero_()
            gate.bias.fill_(level)
            agree(answer(x, heads, gate), share * heads(x), words)

        # One feature's gate moves that feature, and no other.
        gate.bias.zero_()
        gate.bias[2] = 60.0
        wanted = 0.5 * heads(x)
        wanted[..., 2] *= 2
        agree(answer(x, heads, gate), wanted, "each feature has a gate of its own")

        # The token decides.
        gate.bias.zero_()
        gate.weight.copy_(draw(4, 6, seed=1))
        opened = gate(x)
        result = answer(x, heads, gate)
        words = "the gate sees x, the token itself, and not what the heads have made"
        agree(torch.logit(result / heads(x)), opened, words)
