"""Homework of chapter 13: two questions and their checks, the teacher's alone."""

import torch
from torch.nn.functional import rms_norm

from companion.course.checks.compare import draw
from companion.course.checks.homework import agree

# %% [markdown]
# **1. Erase a direction.** The chapter erases a feature, one number of a vector. A
# model may as well keep what it knows in a *direction*, spread over many features.
# Write `my_erased(x, direction)`. It takes x (b t c) and a direction (c), of any length
# but 0. It returns a new (b t c), in which nothing is left along the direction: the dot
# product with it is 0. What stands at right angles to it stays as it was. On paper:
# what is left of (3, 4) without (0, 2)?


# %%
def my_erased(x, direction):
    raise NotImplementedError


# %%
def check_erased(answer):
    plain = torch.tensor([[[3.0, 4.0], [-1.0, 0.5]]])
    result = answer(plain.clone(), torch.tensor([0.0, 2.0]))
    by_hand = torch.tensor([[[3.0, 0.0], [-1.0, 0.0]]])
    words = "(3, 4) without (0, 2) is (3, 0): divide by the direction's squared length"
    agree(result[:, 1:], by_hand[:, 1:], words)
    agree(result, by_hand, "it is erased at the last place: at all places it should be")

    x = draw(2, 5, 8)
    for length in (0.1, 1, 7):
        direction = draw(8, seed=1)
        direction = length * direction / direction.norm()
        before = x.clone()
        gone = before - answer(x, direction)
        assert torch.equal(x, before), "the input is changed: return a new tensor"

        # What has gone is the direction, at each place more or less of it.
        along = (gone @ direction)[..., None] * direction / length**2
        words = "something is gone that stands at right angles to the direction"
        agree(gone, along, words)
        left = (before - gone) @ direction / length
        words = f"something is left along a direction of length {length}"
        agree(left, torch.zeros(2, 5), words)


# %% [markdown]
# **2. Whose logit?** The stream at the last place is a sum of `parts` (n c): the
# embedding and what each layer has added. The last RMSNorm divides it by one number,
# the root of the *whole* stream's mean square. Keep this number, and a logit is a sum,
# too. Write `my_shares(parts, gain, matrix, token)`. `gain` (c) is the norm's, `matrix`
# (v c) the output matrix. It returns (n): what each part adds to the logit of `token`.
# Together they are the logit.


# %%
def my_shares(parts, gain, matrix, token):
    raise NotImplementedError


# %%
def check_shares(answer):
    # By hand: the stream is (1, 1), whose mean square is 1.
    parts = torch.tensor([[2.0, 0.0], [-1.0, 1.0], [0.0, 0.0]])
    matrix = torch.tensor([[5.0, 5.0], [3.0, 1.0]])
    shares = answer(parts, torch.ones(2), matrix, 1)
    by_hand = torch.tensor([6.0, -2.0, 0.0])
    words = "parts (2, 0) and (-1, 1): is each divided by its own size?"
    agree(shares.sign(), by_hand.sign(), words)
    words = "parts (2, 0) and (-1, 1): divide both by the whole stream's size, 1"
    # An epsilon in the norm, 1e-5 or so, takes 6 x 1e-5 / 2 off; the mistake takes 3.
    assert torch.allclose(shares, by_hand, atol=1e-3), words

    parts = 3 * draw(6, 8)
    gain = 1 + draw(8, seed=1) / 2
    matrix = draw(10, 8, seed=2)
    plain = matrix @ rms_norm(parts.sum(0), (8,))
    logits = matrix @ rms_norm(parts.sum(0), (8,), gain)
    for token in (0, 7):
        shares = answer(parts, gain, matrix, token)
        total = shares.sum().item()
        assert abs(total - plain[token]) > 1e-3, "the gain is missing"
        words = f"together they are {total:.4g}, the logit is {logits[token]:.4g}"
        assert abs(total - logits[token]) < 1e-3, words

        # Two parts that are made one add what both have added.
        joined = torch.cat([parts[:2].sum(0, keepdim=True), parts[2:]])
        expected = torch.cat([shares[:2].sum(0, keepdim=True), shares[2:]])
        words = "two parts that are made one must add what both have added"
        agree(answer(joined, gain, matrix, token), expected, words)
