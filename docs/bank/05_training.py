"""Homework of chapter 05: two questions and their checks, the teacher's alone."""

import torch
from torch.nn.functional import cross_entropy

from companion.course.checks.compare import draw
from companion.course.checks.homework import agree, has_shape

# %% [markdown]
# **1. Gradients by trying.** Whether `backward` is right, one can find out without it:
# move a number both ways, and look at the loss. Write `my_slopes(loss_of, p, step)`:
# `loss_of` takes a tensor such as `p`, in double precision, and gives a tensor of one
# number. For each number of `p` take the loss with it `step` larger, less the loss with
# it `step` smaller, divided by `2 * step`. Return these in the shape of `p`, which must
# not change. For $p^3$ at 2, with a step of 0.1, that is 12.01.


# %%
def my_slopes(loss_of, p, step):
    raise NotImplementedError


# %%
def check_slopes(answer):
    def cubes(p):
        return (p**3).sum()

    def mixed(p):
        return (p.softmax(-1) * p.flip(0).sin()).sum()

    two = torch.tensor([2.0], dtype=torch.double)
    slope = answer(cubes, two, 0.1)
    once = torch.tensor([12.61], dtype=torch.double)
    assert not torch.allclose(slope.double(), once), "one side alone: go both ways"
    agree(slope, torch.tensor([12.01]), "of the cube at 2, step 0.1, it is not 12.01")

    p = draw(3, 4).double()
    before = p.clone()
    slopes = answer(mixed, p, 1e-4)
    # Adding and taking off 1e-4 in float64 leaves some 1e-16.
    assert torch.allclose(p, before, rtol=0, atol=1e-12), "p was left changed"
    p.requires_grad_()
    mixed(p).backward()
    words = "PyTorch's gradient is another: does one number move at a time?"
    agree(slopes.detach(), p.grad, words)
    threes = torch.full((2, 1, 2), 3.0, dtype=torch.double)
    agree(answer(cubes, threes, 1e-4), 9 * threes, "p may have any number of axes")


# %% [markdown]
# **2. Does a longer past help?** The first character of a window is guessed from
# nothing, the last one from much. Write `my_loss_by_position(logits, targets)`: logits
# (b t v) and targets (b t) go in. The mean surprise at each place comes out, a tensor
# (t), in nats, averaged over the texts. If two texts give their targets the
# probabilities 1/2 and 1/8 at the first place, the first number is 1.39.


# %%
def my_loss_by_position(logits, targets):
    raise NotImplementedError


# %%
def check_loss_by_position(answer):
    p = torch.tensor([[[0.5, 0.25, 0.25]], [[0.125, 0.5, 0.375]]])
    result = answer(p.log(), torch.tensor([[0], [0]]))
    words = "probabilities 1/2 and 1/8 give ln 4, 1.39"
    agree(result, torch.tensor([4.0]).log(), words)

    logits = 3 * draw(4, 6, 5) + 10
    targets = (10 * draw(4, 6, seed=1)).long().remainder(5)
    result = answer(logits, targets)
    has_shape(result, 6)
    whole = cross_entropy(logits.flatten(0, 1), targets.flatten())
    agree(result.mean(), whole, "the mean over the places is not the usual loss")

    # Place 2 is made hopeless, in one text.
    changed = logits.clone()
    changed[1, 2, targets[1, 2]] -= 1e4
    moved = (answer(changed, targets) - result).abs() > 1
    agree(moved, torch.arange(6) == 2, "a bad guess at place 2 must move place 2 alone")
