"""Homework of chapter 08: two questions and their checks, the teacher's alone."""

import torch

from companion.course.checks.homework import agree, has_shape

# %% [markdown]
# **1. Fill the gaps.** T5 learned from plain text ([Raffel et al.
# 2019](https://arxiv.org/abs/1910.10683)): pieces are cut out, and the decoder writes
# them. Write `my_gaps(tokens, pieces, mark)`: a list of tokens, and a list of pairs
# (begin, end), in order and apart. In the source each piece gives way to a mark of its
# own: `mark`, `mark + 1`, ... The target has each mark and then its piece. Return both.
# Of 1, 2, 3, 4, 5, cut at (1, 3) and (4, 5), with 90: 1, 90, 4, 91 and 90, 2, 3, 91, 5.


# %%
def my_gaps(tokens, pieces, mark):
    raise NotImplementedError


# %%
def check_gaps(answer):
    def hold(tokens, pieces, mark):
        given = list(tokens)
        source, target = answer(given, list(pieces), mark)
        source = list(source)
        target = list(target)
        assert given == tokens, "the tokens that went in were changed"
        marks = list(range(mark, mark + len(pieces)))
        for side, name in ((source, "source"), (target, "target")):
            found = [token for token in side if token >= mark]
            assert found == marks, f"marks in the {name}: {found}, not {marks}"

        # Who puts the target's pieces into the source's gaps has the text again.
        for m, (begin, end) in zip(marks, pieces, strict=True):
            at = target.index(m) + 1
            piece = target[at : at + end - begin]
            assert piece == tokens[begin:end], f"after {m} comes {piece} in the target"
            place = source.index(m)
            source[place : place + 1] = piece
        n_cut = sum(end - begin for begin, end in pieces)
        n = len(target) - len(marks)
        assert n == n_cut, f"the target has {n} tokens beside its marks, not {n_cut}"
        assert source == tokens, f"with the gaps filled the source is {source}"

    hold([1, 2, 3, 4, 5], [(1, 3), (4, 5)], 90)
    hold([1, 2, 3, 4, 5], [(0, 2)], 70)
    hold([7, 7, 7, 7], [(1, 2), (3, 4)], 50)
    hold([3, 1, 2], [(0, 3)], 10)
    hold([3, 1, 2], [], 10)
    hold(list(range(30)), [(0, 1), (2, 9), (10, 11), (20, 30)], 100)


# %% [markdown]
# **2. One stack for both.** A decoder alone can read as an encoder does: the first
# tokens of each text, its question, see each other in both directions, and all later
# ones are causal. Write `my_prefix_mask(lengths, n)`: the lengths of the questions (b),
# each from 0 to n, and the number of tokens go in. The boolean mask (b 1 n n) comes
# out, for scores (b h t s), True where query t may see key s. For length 2 of 3 tokens
# its rows are 110, 110 and 111.


# %%
def my_prefix_mask(lengths, n):
    raise NotImplementedError


# %%
def check_prefix_mask(answer):
    mask = answer(torch.tensor([2]), 3)
    assert isinstance(mask, torch.Tensor), "a tensor should come out"
    assert mask.dtype == torch.bool, "a boolean mask should come out"
    rows = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1]])
    agree(mask, rows[None, None] > 0, "for length 2 of 3 tokens: 110, 110 and 111")

    lengths = [0, 1, 4, 7, 2]
    mask = answer(torch.tensor(lengths), 7)
    has_shape(mask, 5, 1, 7, 7)
    for length, text in zip(lengths, mask[:, 0], strict=True):
        case = f"length {length} of 7"
        assert text.diagonal().all(), f"{case}: each token sees itself"
        assert text[:length, :length].all(), f"{case}: the question sees all of itself"
        sees_on = text[:length, length:].any()
        assert not sees_on, f"{case}: the question sees what follows"
        n_seen = text[length:].sum(-1)
        expected = torch.arange(length + 1, 8)
        agree(n_seen, expected, f"{case}: a later token sees all up to itself, no more")
        ahead = text[length:].triu(length + 1)
        assert not ahead.any(), f"{case}: a later token sees one after itself"
