"""Wrong answers to the homework of chapter 15."""

import torch


def own_reward_too(rewards):
    return rewards - rewards.mean(1, keepdim=True)


def mean_of_too_many(rewards):
    others = rewards.sum(1, keepdim=True) - rewards
    return rewards - others / rewards.shape[1]


def across_prompts(rewards):
    others = rewards.sum(0) - rewards
    return rewards - others / (rewards.shape[0] - 1)


def sum_of_others(rewards):
    return 2 * rewards - rewards.sum(1, keepdim=True)


def whole_batch(rewards):
    return rewards - (rewards.sum() - rewards) / (rewards.numel() - 1)


def divided(rewards):
    return (rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True)


def plain_difference(log_p, log_q):
    return log_p - log_q


def ratio_turned(log_p, log_q):
    return log_p - log_q + (log_p - log_q).exp() - 1


def other_direction(log_p, log_q):
    ratio = torch.exp(log_p - log_q)
    return log_q - log_p + ratio - 1


def half_a_square(log_p, log_q):
    return (log_p - log_q).square() / 2


def one_number(log_p, log_q):
    return (log_p - log_q + (log_q - log_p).exp() - 1).mean()


def one_forgotten(log_p, log_q):
    return log_p - log_q + (log_q - log_p).exp()


WRONG = (
    ("advantages", "the own reward is in the mean", own_reward_too),
    ("advantages", "nobody is better", mean_of_too_many),
    ("advantages", "nobody is better", across_prompts),
    ("advantages", "nobody is better", sum_of_others),
    ("advantages", "nobody is better", whole_batch),
    ("advantages", "nobody is better", divided),
    ("guess", "some guesses are negative", plain_difference),
    ("guess", "some guesses are negative", ratio_turned),
    ("guess", "this guesses KL(q, p)", other_direction),
    ("guess", "isn't the exact", half_a_square),
    ("guess", "the shape is ()", one_number),
    ("guess", "0 where both models agree", one_forgotten),
)
