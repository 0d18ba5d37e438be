"""Homework of chapter 04: two questions and their checks, the teacher's alone."""

import torch

from companion.course.checks.compare import draw
from companion.course.checks.homework import agree

# %% [markdown]
# **1. Who writes most?** Each block adds something to the residual stream. How much,
# compared with what was there? Write `my_writing(x, blocks)`: features `x` (b t c) go
# through the list `blocks`, one after the other; each block takes and returns (b t c).
# Return a tensor with one number for each block: the length (over c) of what the block
# adds to a token, divided by the length of the token before this block, averaged over
# all tokens. A block that doubles its input has 1.


# %%
def my_writing(x, blocks):
    raise NotImplementedError


# %%
def check_writing(answer):
    def double(x):
        return 2 * x

    def turned_round(x):
        return -x

    def nothing(x):
        return x

    def one_added(x):
        return x + 1

    def first_token_tripled(x):
        return torch.cat([3 * x[:, :1], x[:, 1:]], dim=1)

    x = draw(2, 4, 6)
    before = x.clone()
    agree(answer(x, [double]), torch.ones(1), "a block that doubles its input has 1")
    result = answer(x, [turned_round, nothing])
    expected = torch.tensor([2.0, 0.0])
    agree(result, expected, "one that gives -x adds twice the length of x")

    # Here only one of four tokens changes, by twice its length: 2/4.
    result = answer(x, [first_token_tripled])
    agree(result, torch.tensor([0.5]), "the mean is over the tokens, after dividing")

    # A second block reads what the first has written.
    ones = torch.ones(1, 3, 4)
    result = answer(ones, [double, one_added, one_added])
    words = (
        "of 1, 2, 3, 4 each step is 1: 1/1, 1/2, 1/3. Each block reads the one before"
    )
    agree(result, torch.tensor([1.0, 1 / 2, 1 / 3]), words)
    large = torch.tensor([[[1.0], [10.0]]])
    result = answer(large, [one_added])
    agree(result, torch.tensor([0.55]), "1 added to tokens 1 and 10: (1 + 0.1) / 2")
    agree(x, before, "the x that went in was changed")


# %% [markdown]
# **2. Which block can be missed?** A deep model often works nearly as well when one of
# its blocks is skipped. Write `my_without(x, blocks)`: features `x` (b t c) and a list
# of n blocks, each of which takes and returns (b t c), go in. Return a tensor (n b t
# c): at place i stands the stream after all blocks but block i, the others in their
# order. For 1 block this is `x` itself.


# %%
def my_without(x, blocks):
    raise NotImplementedError


# %%
def check_without(answer):
    def double(x):
        return 2 * x

    def three_added(x):
        return x + 3

    def triple(x):
        return 3 * x

    one = torch.ones(1, 1, 1)
    x = draw(2, 3, 4)
    agree(answer(x, [double]), x[None], "without its only block the stream is x")
    blocks = [double, three_added, triple]
    result = answer(one, blocks)
    assert len(blocks) == 3, "the list of blocks was changed"
    expected = torch.tensor([12.0, 6.0, 5.0]).view(3, 1, 1, 1)
    words = "from 1, without 2x: (1+3)*3 = 12; without +3: 2*3 = 6; without 3x: 2+3 = 5"
    agree(result, expected, words)

    # The same function may stand there twice, and only one of the two is left out.
    result = answer(one, [double, three_added, double])
    expected = torch.tensor([8.0, 4.0, 5.0]).view(3, 1, 1, 1)
    words = "two blocks may be equal: leave out a place, not a function"
    agree(result, expected, words)
