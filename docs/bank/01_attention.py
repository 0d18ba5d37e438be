"""Homework of chapter 01: two questions and their checks, the teacher's alone."""

import torch

from companion import attention, causal_mask
from companion.course.checks.compare import draw
from companion.course.checks.homework import agree

# %% [markdown]
# **1. How many keys?** A query that shares its weight evenly among 3 keys looks at 3
# keys, and one with all its weight on a single key looks at 1. For weights in between,
# take the entropy of the row, $-\sum_s w_s \ln w_s$, where a weight of 0 adds nothing,
# and raise $e$ to it. Write `my_n_keys(weights)`: weights (t s) go in, whose rows sum
# to 1, and one number for each query (t) comes out. A masked key has the weight 0. For
# a row .5, .25, .25 the number is 2.83.


# %%
def my_n_keys(weights):
    raise NotImplementedError


# %%
def check_n_keys(answer):
    even = torch.tensor([[1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.2] * 5])
    result = answer(even)
    n_keys = even.gt(0).sum(-1).float()
    agree(result.isnan(), n_keys < 0, "0 ln 0 is NaN here: a weight of 0 adds nothing")
    # Loose, for it only chooses the words.
    is_entropy = torch.allclose(result.float(), n_keys.log(), atol=1e-4)
    assert not is_entropy, "this is the entropy: raise e to it"
    agree(result, n_keys, "n equal weights are n keys: entropy in nats, and then e")

    # Who chooses twice, by `first` and by `second`, looks at the product of their keys.
    first = draw(4, 6).softmax(-1)
    second = draw(4, 7, seed=1).softmax(-1)
    both = (first[:, :, None] * second[:, None, :]).flatten(1)
    words = "if each key of one row is cut up by another row, their numbers multiply"
    agree(answer(both), answer(first) * answer(second), words)
    by_hand = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    expected = torch.tensor([8.0, 8.0]).sqrt()
    agree(answer(by_hand), expected, ".5, .25, .25 are 2.83 keys")


# %% [markdown]
# **2. Two texts in one row.** Short texts are laid end to end, so that no room is lost.
# But a token must see its own text alone, and nothing after itself. Write
# `my_text_mask(texts)`. `texts` (t) says of each token which text it belongs to, for
# example 7, 7, 7, 2, 2; any whole numbers, a text's tokens side by side. Return the
# boolean mask (t s) for `companion.attention`: True where query t may see key s.


# %%
def my_text_mask(texts):
    raise NotImplementedError


# %%
def check_text_mask(answer):
    lengths = [3, 1, 4, 2]
    texts = torch.tensor([7, 2, 9, -5]).repeat_interleave(torch.tensor(lengths))
    mask = answer(texts)
    assert isinstance(mask, torch.Tensor), "a tensor should come out"
    assert mask.dtype == torch.bool, "a boolean mask should come out"
    assert mask.shape == (10, 10), "for t tokens the mask is (t s), t = s"
    assert mask.diagonal().all(), "each token sees itself: True is what is seen"
    assert not mask.triu(1).any(), "a token sees later ones"
    other = texts[:, None] != texts
    assert not (mask & other).any(), "a token sees another text"

    # Side by side each text must get what it gets alone.
    x = draw(1, 1, 10, 8)
    texts = x.split(lengths, dim=-2)
    alone = [attention(y, y, y, causal_mask(y.shape[-2])) for y in texts]
    words = "a text does not get what it gets alone: does it see all of its past?"
    agree(attention(x, x, x, mask), torch.cat(alone, dim=-2), words)
