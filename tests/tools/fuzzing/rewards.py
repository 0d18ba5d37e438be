"""Rewards: advantages, and what is ruled out, are exact."""

import math
import random

import torch
from common import seeded
from torch.testing import assert_close

from companion.training import reward


def equal_rewards_have_advantages_of_exactly_0(draw: random.Random) -> None:
    """Whatever they are, and however many; and those of any others add up to 0."""
    n_groups = draw.randint(1, 4)
    n_answers = draw.randint(1, 17)
    generator = seeded(draw.randrange(999))
    size = 10 ** draw.uniform(-30, 30)
    rewards = size * torch.randn(n_groups, n_answers, generator=generator)
    is_alike = torch.rand(n_groups, generator=generator) < 0.5
    rewards[is_alike] = rewards[is_alike, :1]
    for scale in (False, True):
        advantages = reward.advantages(rewards, scale=scale)
        assert not advantages[is_alike].any()
        assert_close(
            advantages.sum(1) / advantages.abs().sum(1).clamp(min=1e-30),
            torch.zeros(n_groups),
            atol=1e-5,  # 17 numbers, each rounded by 6e-8 of the largest, twice
            rtol=0,
        )
    worst = draw.choice([math.nan, math.inf, -math.inf])
    rewards[draw.randrange(n_groups), draw.randrange(n_answers)] = worst
    try:
        reward.advantages(rewards)
    except ValueError as error:
        assert str(worst) in str(error)
    else:
        raise AssertionError("a reward that is no number was not refused")


def what_is_ruled_out_changes_no_number(draw: random.Random) -> None:
    """A distance, a surprise and their gradients are those of the tokens that stay."""
    v = draw.randint(2, 20)
    rows = draw.randint(1, 4)
    generator = seeded(draw.randrange(999))
    kept = torch.rand(v, generator=generator) < 0.6
    kept[draw.randrange(v)] = True
    z = [10 * torch.randn(rows, v, generator=generator) for _ in range(2)]
    cut = [x.masked_fill(~kept, -math.inf).requires_grad_() for x in z]
    small = [x[:, kept].clone().requires_grad_() for x in z]
    for whole, part in ((cut, small), (cut[::-1], small[::-1])):
        ours = reward.kl_divergence(*whole)
        theirs = reward.kl_divergence(*part)
        assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
        ours = torch.autograd.grad(ours.sum(), whole)
        theirs = torch.autograd.grad(theirs.sum(), part)
        for ours_of_one, theirs_of_one in zip(ours, theirs, strict=True):
            assert_close(ours_of_one[:, kept], theirs_of_one, atol=1e-4, rtol=1e-4)
            assert not ours_of_one[:, ~kept].any()

    # Cut on one side alone: finite, or infinite and never NaN; so the gradients.
    for pair in ((cut[0], z[1]), (z[0], cut[1])):
        distance = reward.kl_divergence(*pair)
        assert not distance.isnan().any() and distance.min() > -1e-4
        (gradient,) = torch.autograd.grad(distance.sum(), cut[pair[0] is z[0]])
        assert gradient.isfinite().all()

    # A loss in which only what earns nothing was ruled out.
    drawn = torch.randint(v, (rows, 1), generator=generator)
    log_p = reward.chosen(cut[0][:, None], drawn)
    earned = torch.randn(rows, generator=generator)
    earned[~kept[drawn[:, 0]]] = 0
    loss = reward.reward_loss(log_p, earned, torch.ones_like(drawn, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss, cut[0])
    assert loss.isfinite() and gradient.isfinite().all()
