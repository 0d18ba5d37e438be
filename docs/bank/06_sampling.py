"""Homework of chapter 06: two questions and their checks, the teacher's alone."""

import torch

from companion.course.checks.compare import draw
from companion.course.checks.homework import agree, has_shape

# %% [markdown]
# **1. Don't say it again.** A model that repeats itself can be made to hesitate
# ([Keskar et al. 2019](https://arxiv.org/abs/1909.05858)). Write `my_penalized(logits,
# tokens, penalty)`: logits (v), the tokens written so far (t), and a penalty above 1.
# Each token that was written becomes less likely, once, however often it came: a logit
# above 0 is divided by the penalty, and one below 0 is multiplied by it. Return new
# logits. Of 2, -2, 1, after the tokens 0, 1, 0 and with penalty 2, remain 1, -4, 1.


# %%
def my_penalized(logits, tokens, penalty):
    raise NotImplementedError


# %%
def check_penalized(answer):
    logits = torch.tensor([2.0, -2.0, 1.0])
    result = answer(logits, torch.tensor([0, 1]), 2.0)
    assert logits.tolist() == [2, -2, 1], "the logits that went in were changed"
    divided = torch.tensor([1.0, -1.0, 1.0])
    has_shape(result, 3)
    assert not torch.equal(result, divided), "-2 divided by 2 is likelier, not less"
    agree(result, torch.tensor([1.0, -4.0, 1.0]), "2 and -2, penalty 2, are 1 and -4")
    often = answer(logits, torch.tensor([0, 1, 0, 0]), 2.0)
    agree(often, result, "a token that came three times is penalized once")
    none = answer(logits, torch.tensor([], dtype=torch.long), 2.0)
    agree(none, logits, "where nothing was written nothing changes")

    logits = draw(50)
    tokens = torch.tensor([3, 3, 17, 49, 0])
    result = answer(logits, tokens, 1.5)
    lower = torch.zeros(50, dtype=torch.bool)
    lower[tokens] = True
    agree(result < logits, lower, "exactly the written tokens should have lower logits")
    positive = lower & (logits > 0)
    divided = logits[positive] / 1.5
    agree(result[positive], divided, "a logit above 0 is divided by the penalty")


# %% [markdown]
# **2. Which temperature?** Let $H$ be the entropy of softmax(logits / T), in nats. Then
# $e^H$ says how many equally likely tokens would leave as much open. Write
# `my_temperature(logits, n_choices)`: logits (v), all different, and a number between 1
# and v go in. Return the $T$ at which $e^H$ is `n_choices`, to 1%. No formula gives it,
# but $e^H$ grows with $T$, which lies between 0.001 and 1,000: halve an interval again
# and again. For logits 0 and 1, and 1.755 choices, $T$ is 0.91.


# %%
def my_temperature(logits, n_choices):
    raise NotImplementedError


# %%
def check_temperature(answer):
    t = float(answer(torch.tensor([0.0, 1.0]), 1.755))
    assert t > 0, "a temperature is above 0"
    assert abs(t - 1 / 0.91) > 0.05, "this is 1/T: logits are divided by T"
    words = f"for logits 0 and 1, and 1.755 choices, T is not {t:.3f}"
    assert abs(t - 0.91) < 0.02, words
    for size in (0.05, 1, 40):
        logits = size * draw(8)
        for n_choices in (1.3, 3, 7.5):
            t = float(answer(logits, n_choices))
            h = torch.distributions.Categorical(logits=logits / t).entropy()
            n = h.exp().item()
            words = f"for {n_choices} choices T is not {t:.3g}: there e^H is {n:.2f}"
            assert abs(n / n_choices - 1) < 0.01, words
