"""Homework of chapter 02: two questions and their checks, the teacher's alone."""

import torch

from companion import MultiHeadAttention
from companion.course.checks.compare import draw
from companion.course.checks.homework import agree, has_shape

# %% [markdown]
# **1. One matrix for the scores.** The queries and keys of a head are seen only
# together. Write `my_score_matrices(w_queries, w_keys, n_heads)`. Both matrices are (c
# c), as the layer's `to_queries.weight` and `to_keys.weight`, which give `x @
# weight.mT`; there are no biases. Return one matrix for each head, (h c c), such that
# for features `x` (t c) the product `x @ matrix @ x.mT` is the scores of this head (t
# s), its division by a root included. On paper: what is its rank at most?


# %%
def my_score_matrices(w_queries, w_keys, n_heads):
    raise NotImplementedError


# %%
def check_score_matrices(answer):
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3, bias=False, engine="explicit")
    seen = []
    layer.pattern.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    x = draw(5, 12)
    with torch.no_grad():
        layer(x[None])
        matrices = answer(3 * layer.to_queries.weight, layer.to_keys.weight, 3)
    has_shape(matrices, 3, 12, 12)

    # With three times the queries, a third of the scores is what the layer has.
    mine = (x @ (matrices / 3) @ x.mT).softmax(-1)
    (weights,) = seen
    flipped = (x @ (matrices / 3).mT @ x.mT).softmax(-1)
    # Loose, for it only chooses the words.
    is_flipped = torch.allclose(flipped, weights, atol=1e-4)
    assert not is_flipped, "queries and keys changed places"
    agree(mine, weights, "other weights than the layer's: which rows, which root?")


# %% [markdown]
# **2. Heads have no order.** Write `my_reordered(w_queries, w_keys, w_values, w_output,
# order)`. The four matrices are (c c), as a layer without biases keeps them: `x @
# weight.mT`. `order` is a list with a number for each head. Return four new matrices,
# in the same order, of a layer whose head i is the old head `order[i]`, and whose
# output is the old one for every x. With `order = [2, 0, 1]` its first head looks where
# the last one looked.


# %%
def my_reordered(w_queries, w_keys, w_values, w_output, order):
    raise NotImplementedError


# %%
def check_reordered(answer):
    torch.manual_seed(0)
    old, new = (
        MultiHeadAttention(12, 3, bias=False, engine="explicit") for _ in range(2)
    )
    names = ("to_queries", "to_keys", "to_values", "to_output")
    seen = []
    for layer in (old, new):
        layer.pattern.register_forward_hook(lambda module, args, out: seen.append(out))
    order = [2, 0, 1]
    x = draw(2, 5, 12)
    with torch.no_grad():
        matrices = answer(*(getattr(old, name).weight.clone() for name in names), order)
        assert len(matrices) == 4, "four matrices should come out"
        for name, matrix in zip(names, matrices, strict=True):
            weight = getattr(new, name).weight
            has_shape(matrix, 12, 12)
            weight.copy_(matrix)
        outputs = [layer(x) for layer in (old, new)]
    patterns, reordered = seen
    assert not torch.allclose(reordered, patterns), "the heads are where they were"
    inverse = patterns[:, [1, 2, 0]]
    assert not torch.allclose(reordered, inverse), "the new head order[i] is the old i"
    agree(reordered, patterns[:, order], "head i does not look where order[i] looked")
    agree(outputs[1], outputs[0], "the heads moved, but the output is another")
