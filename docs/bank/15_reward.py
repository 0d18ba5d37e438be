"""Homework of chapter 15: two questions and their checks, the teacher's alone."""

import torch
from torch.distributions import Categorical, kl_divergence

from companion.course.checks.compare import draw
from companion.course.checks.homework import agree

# %% [markdown]
# **1. Compared with the others.** An answer's own reward is a part of its group's mean,
# so the chapter's advantages are too small: among 8 answers, 7/8 of what they should
# be. Compare each with the mean of the *other* answers to its prompt. Write
# `my_advantages(rewards)`: rewards (p g) go in, a row for each prompt with g answers,
# at least two. The advantages (p g) come out, not divided by anything else. For a row
# 4, 1, 1, the first is 3. What are the other two?


# %%
def my_advantages(rewards):
    raise NotImplementedError


# %%
def check_advantages(answer):
    by_hand = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    result = answer(by_hand)
    wanted = torch.tensor([[0.75, -0.5, -0.5, -0.5, 0.75], [0.0] * 5])
    agree(result[1:], wanted[1:], "where all answers earn the same, nobody is better")
    words = "the own reward is in the mean, too: for 1, 0, 0, 0, 1 the first is 3/4"
    agree(result, wanted, words)

    # One answer earns more: its advantage grows by as much, the others' fall.
    rewards = draw(3, 4)
    more = rewards.clone()
    more[1, 2] += 6
    moved = answer(more) - answer(rewards)
    wanted = torch.zeros(3, 4)
    wanted[1] = torch.tensor([-2.0, -2.0, 6.0, -2.0])
    words = "6 more for one of four: its own grows by 6, its group's others fall by 2"
    agree(moved, wanted, words)


# %% [markdown]
# **2. A leash by the token.** The exact KL divergence needs all probabilities at a
# place. Libraries guess it from drawn tokens, by log p - log q + q / p - 1. Here p is a
# token's probability under the model that drew it, and q that under the old one. The
# last two sum to 0 on average (why?), and with them no guess is negative. Write
# `my_guess(log_p, log_q)`: two tensors of one shape go in, and a guess for each token
# comes out. For p = q it is 0.


# %%
def my_guess(log_p, log_q):
    raise NotImplementedError


# %%
def check_guess(answer):
    p = Categorical(logits=draw(3, 50))
    q = Categorical(logits=2 * draw(3, 50, seed=1))
    log_p = p.logits
    log_q = q.logits
    agree(answer(log_p, log_p), torch.zeros(3, 50), "it is 0 where both models agree")
    guesses = answer(log_p, log_q)
    assert guesses.shape == (3, 50), "a guess for each token: as many as come in"

    # Over all tokens, each as often as it is drawn, the mean is the exact one.
    mean = (p.probs * guesses).sum(-1)
    turned = kl_divergence(q, p)
    words = "this guesses KL(q, p): p is the model that drew"
    # KL(p, q) and KL(q, p) of the two differ by far more.
    assert not torch.allclose((q.probs * guesses).sum(-1), turned, atol=1e-3), words
    words = "some guesses are negative: is it q / p, or p / q?"
    assert guesses.min() > -1e-5, words
    agree(
        mean, kl_divergence(p, q), "over all tokens the mean isn't the exact KL(p, q)"
    )
