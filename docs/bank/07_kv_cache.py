"""Homework of chapter 07: two questions and their checks, the teacher's alone."""

import torch

from companion.course.checks.homework import agree, has_shape

# %% [markdown]
# **1. A cache that runs in a circle.** If a model looks back over `width` tokens only,
# `width` slots are enough: what belongs to position p is written into slot p mod
# `width`, over what was there. Attention doesn't mind the order of slots, but the mask
# must know which position lies where. Write `my_slots(n_seen, width)`: tokens at the
# positions 0 to `n_seen - 1` have come. Return a tensor (width): the position in each
# slot, and -1 where it is empty. Five tokens in three slots: 3, 4, 2.


# %%
def my_slots(n_seen, width):
    raise NotImplementedError


# %%
def check_slots(answer):
    agree(answer(5, 3), torch.tensor([3, 4, 2]), "five tokens in three slots: 3, 4, 2")
    expected = torch.tensor([0, 1, -1, -1])
    agree(answer(2, 4), expected, "two tokens leave two slots empty")
    agree(answer(0, 2), torch.tensor([-1, -1]), "before the first token all are empty")
    for width in (1, 2, 5, 8):
        for n_seen in range(25):
            case = f"{n_seen} tokens, {width} slots"
            slots = answer(n_seen, width)
            has_shape(slots, width)
            used = slots[slots >= 0].long()
            last = list(range(max(0, n_seen - width), n_seen))
            words = f"{case}: the last ones should be there"
            assert sorted(used.tolist()) == last, words
            places = torch.arange(width)[slots >= 0]
            words = f"{case}: position p lies in slot p mod width"
            agree(places, used % width, words)
            assert (slots[slots < 0] == -1).all(), f"{case}: an empty slot is -1"


# %% [markdown]
# **2. What can stay?** A cache holds the keys and values of the tokens `kept`. Now a
# prompt comes that may begin alike. Write `my_reuse(kept, prompt)` for two lists of
# numbers; the prompt isn't empty. Return a pair: how many tokens, from the front, can
# stay in the cache, and the list of the prompt's tokens that must go through the model.
# The logits after the prompt are needed, so its last token always must. For 4, 7, 9, 2
# and the prompt 4, 7, 5, 2 that is 2 and [5, 2].


# %%
def my_reuse(kept, prompt):
    raise NotImplementedError


# %%
def check_reuse(answer):
    def hold(kept, prompt, n_kept, words):
        result = answer(list(kept), list(prompt))
        assert len(result) == 2, "a pair should come out: a number and a list"
        n, rest = result
        assert n == n_kept, f"{kept}, then {prompt}: {words}"
        assert list(rest) == prompt[n:], f"{rest} doesn't go on after {n} of {prompt}"

    hold([4, 7, 9, 2], [4, 7, 5, 2], 2, "what comes after a difference can't stay")
    hold([4, 7], [4, 7, 5], 2, "the whole cache can stay")
    hold([], [4, 7], 0, "an empty cache keeps nothing")
    hold([4, 7], [7, 4], 0, "a key belongs to a token at its position")
    hold([4, 7, 9], [4, 7, 9], 2, "one token must go through the model, for its logits")
    hold([4, 7, 9, 2], [4, 7], 1, "one token must go through the model, for its logits")
    hold([4], [4], 0, "one token must go through the model, for its logits")
    hold([5, 5, 5, 5], [5, 5, 5, 6], 3, "three can stay")
