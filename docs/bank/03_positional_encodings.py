"""Homework of chapter 03: two questions and their checks, the teacher's alone."""

import math

import torch

from companion import rotate
from companion.course.checks.compare import draw
from companion.course.checks.homework import agree, has_shape
from companion.model.positions import rotary_frequencies

# %% [markdown]
# **1. Move what was turned.** Keys have been turned by rotary and kept. Now the oldest
# `steps` tokens are thrown away, and the first one that is left should stand at
# position 0. Write `my_moved(turned, steps, speeds)`: keys (t d), in which feature i is
# paired with i + d/2 and the pair has been turned by its position times `speeds[i]`.
# Return the keys as if each had stood `steps` earlier. Their positions aren't told.
# With speed 1, the key (cos 3, sin 3), moved by 1, is (cos 2, sin 2).


# %%
def my_moved(turned, steps, speeds):
    raise NotImplementedError


# %%
def check_moved(answer):
    clock = torch.tensor([[math.cos(3), math.sin(3)]])
    moved = answer(clock, 1, torch.ones(1))
    later = torch.tensor([[math.cos(4), math.sin(4)]])
    has_shape(moved, 1, 2)
    assert not torch.allclose(moved, later), "it turns on, not back"
    earlier = torch.tensor([[math.cos(2), math.sin(2)]])
    agree(moved, earlier, "(cos 3, sin 3), moved by 1, is not (cos 2, sin 2)")

    keys = draw(6, 8)
    given = rotate(keys[None, None], torch.arange(40, 46))[0, 0]
    before = given.clone()
    for steps in (0, 7, 40):
        moved = answer(given, steps, rotary_frequencies(8))
        expected = rotate(keys[None, None], torch.arange(40, 46) - steps)[0, 0]
        agree(moved, expected, f"moved by {steps}: which pairs, and by which angles?")
    agree(given, before, "the keys that went in were changed")


# %% [markdown]
# **2. Hands that never come around.** A pair of rotary's features is a clock's hand. Of
# $d$ features pair $i$, from 0 on, has the speed $\text{base}^{-2i/d}$ in radians a
# position. Some hands don't finish their first turn in a text of $n$ positions, so that
# none of their angles comes twice. Write `my_slow_pairs(d, n, base)`: how many pairs
# turn by less than a whole turn in $n$ positions? For 4 features, $n = 100$ and base
# 10,000, the angles are 100 and 1, so the answer is 1.


# %%
def my_slow_pairs(d, n, base):
    raise NotImplementedError


# %%
def check_slow_pairs(answer):
    assert answer(4, 100, 10_000) == 1, "4 features, 100 positions: 1 pair is slow"
    assert answer(2, 6, 10_000) == 1, "6 radians are less than a turn, which has 2 pi"
    assert answer(2, 7, 10_000) == 0, "7 radians are more than a turn, which has 2 pi"
    assert answer(4, 628, 10_000) == 1, "0.01 times 628 is less than 2 pi"
    assert answer(4, 629, 10_000) == 0, "0.01 times 629 is more than 2 pi"
    assert answer(8, 1, 10_000) == 4, "in one position no pair comes around"
    for d, n, base in ((64, 2048, 10_000), (64, 2048, 500_000), (128, 8192, 10_000)):
        n_slow = answer(d, n, base)
        assert 0 < n_slow < d / 2, f"of {d} features some pairs are slow, and not all"
        first_slow = d // 2 - n_slow
        slow = n * base ** (-2 * first_slow / d)
        fast = n * base ** (-2 * (first_slow - 1) / d)
        words = f"{d} features, {n} positions, base {base}: it is not {n_slow}"
        assert slow < math.tau < fast, words
