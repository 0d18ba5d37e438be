"""Right and wrong answers to the exercises of chapter 15."""

import itertools
import math
from fractions import Fraction

import torch
import torch.nn.functional as F

import companion
from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def by_autograd(logits, rewards):
    logits = logits.clone().requires_grad_()
    (logits.softmax(-1) * rewards).sum().backward()
    return logits.grad


def answer_by_answer(logits, rewards):
    """The mean of reward times gradient of log p, over all that can be drawn."""
    p = logits.softmax(-1)
    total = torch.zeros_like(p)
    for i in range(len(p)):
        total += p[i] * rewards[i] * (torch.eye(len(p))[i] - p)
    return total


def by_covariance(logits, rewards):
    p = logits.exp() / logits.exp().sum()
    return p * rewards - p * (p @ rewards)


@wrong(checks.policy_gradient, r"it gives 0\.\d")
def weighed_twice(logits, rewards):
    p = logits.softmax(-1)
    return p * p * (rewards - p @ rewards)


def right_groups(rewards):
    mean = rewards.mean(1, keepdim=True)
    deviation = rewards.std(1, keepdim=True, correction=0)
    return (rewards - mean) / deviation.masked_fill(deviation == 0, 1)


def asked_first(rewards):
    alike = (rewards == rewards[:, :1]).all(1, keepdim=True)
    return right_groups(rewards).masked_fill(alike, 0)


@wrong(checks.group_advantages, "mean of three 0.9 is rounded")
def row_by_row(rewards):
    rows = []
    for row in rewards:
        differences = row - row.mean()
        if differences.any():
            differences = differences / differences.square().mean().sqrt()
        rows.append(differences)
    return torch.stack(rows)


@wrong(checks.group_advantages, "mean of three 0.9 is rounded")
def nan_to_num(rewards):
    mean = rewards.mean(1, keepdim=True)
    return ((rewards - mean) / rewards.std(1, keepdim=True, correction=0)).nan_to_num(0)


@wrong(checks.group_advantages, "mean of three 0.9 is rounded")
def with_epsilon(rewards):
    mean = rewards.mean(1, keepdim=True)
    return (rewards - mean) / (rewards.std(1, keepdim=True, correction=0) + 1e-8)


@wrong(checks.group_advantages, "it gives")
def large_epsilon(rewards):
    mean = rewards.mean(1, keepdim=True)
    return (rewards - mean) / (rewards.std(1, keepdim=True, correction=0) + 0.1)


@wrong(checks.group_advantages, "ask for 0 instead")
def as_in_the_chapter(rewards):
    rewards = rewards - rewards[:, :1]
    deviation = rewards.std(1, keepdim=True, correction=0)
    return (rewards - rewards.mean(1, keepdim=True)) / (deviation + 1e-4)


@wrong(checks.group_advantages, "ask for 0 instead")
def plain_small_number(rewards):
    deviation = rewards.std(1, keepdim=True, correction=0)
    return (rewards - rewards.mean(1, keepdim=True)) / (deviation + 1e-4)


@wrong(checks.group_advantages, "only rewards that are equal give 0")
def above_a_thousandth(rewards):
    differences = rewards - rewards.mean(1, keepdim=True)
    deviation = rewards.std(1, keepdim=True, correction=0)
    return torch.where(deviation > 1e-3, differences / deviation, 0)


@wrong(checks.group_advantages, "1e-8 is no small number")
def equal_ones_and_a_small_number(rewards):
    rewards = rewards - rewards[:, :1]
    deviation = rewards.std(1, keepdim=True, correction=0)
    return (rewards - rewards.mean(1, keepdim=True)) / (deviation + 1e-8)


@wrong(checks.group_advantages, "differ by 1e-6 aren't equal")
def nearly_equal(rewards):
    alike = torch.isclose(rewards, rewards[:, :1], atol=1e-5).all(1, keepdim=True)
    return right_groups(rewards).masked_fill(alike, 0)


@wrong(checks.group_advantages, "it gives")
def above_a_tenth(rewards):
    differences = rewards - rewards.mean(1, keepdim=True)
    deviation = rewards.std(1, keepdim=True, correction=0)
    return torch.where(deviation > 0.1, differences / deviation, 0)


def right_loss(logits, tokens, n_prompt, end, advantages):
    total = 0
    for row, text, advantage in zip(logits, tokens.tolist(), advantages, strict=True):
        for place in range(n_prompt, len(text)):
            total = total - advantage * row[place - 1].log_softmax(-1)[text[place]]
            if text[place] == end:
                break
    return total / len(tokens)


def by_cross_entropy(logits, tokens, n_prompt, end, advantages):
    answers = tokens[:, n_prompt:]
    behind = (answers == end).cumsum(1) - (answers == end).int() > 0
    targets = answers.masked_fill(behind, -100)
    surprise = F.cross_entropy(
        logits[:, n_prompt - 1 : -1].mT, targets, reduction="none"
    )
    return (advantages[:, None] * surprise).sum() / len(tokens)


def scored(logits, tokens, first, counted, advantages):
    log_p = logits[:, :-1].log_softmax(-1)
    each = log_p.gather(-1, tokens[:, 1:, None])[..., 0][:, first:]
    return -(advantages * (each * counted).sum(1)).mean()


@wrong(checks.answer_loss, "both bugs")
def buggy_loss(logits, tokens, n_prompt, end, advantages):
    counted = tokens[:, 1:] != end
    return scored(logits, tokens, 0, counted, advantages)


@wrong(checks.answer_loss, "the prompt is counted")
def counts_the_prompt(logits, tokens, n_prompt, end, advantages):
    answers = tokens[:, n_prompt:]
    behind = (answers == end).cumsum(1) - (answers == end).int() > 0
    counted = torch.cat([torch.ones(len(tokens), n_prompt - 1), ~behind], 1)
    return scored(logits, tokens, 0, counted, advantages)


@wrong(checks.answer_loss, "must learn to stop")
def forgets_the_end(logits, tokens, n_prompt, end, advantages):
    counted = (tokens[:, n_prompt:] == end).cumsum(1) == 0
    return scored(logits, tokens, n_prompt - 1, counted, advantages)


@wrong(checks.answer_loss, "never drawn")
def never_stops(logits, tokens, n_prompt, end, advantages):
    counted = torch.ones_like(tokens[:, n_prompt:])
    return scored(logits, tokens, n_prompt - 1, counted, advantages)


@wrong(checks.answer_loss, "counts less for each token")
def mean_of_tokens(logits, tokens, n_prompt, end, advantages):
    total = 0
    for i in range(len(tokens)):
        one = tokens[i : i + 1]
        n = (one[0, n_prompt:].tolist() + [end]).index(end) + 1
        n = min(n, tokens.shape[1] - n_prompt)
        loss = right_loss(logits[i : i + 1], one, n_prompt, end, advantages[i : i + 1])
        total = total + loss / n
    return total / len(tokens)


@wrong(checks.answer_loss, "shift them")
def no_shift(logits, tokens, n_prompt, end, advantages):
    moved = torch.cat([logits[:, 1:], logits[:, :1]], 1)
    return right_loss(moved, tokens, n_prompt, end, advantages)


@wrong(checks.answer_loss, "ends no answer")
def ends_with_the_prompt(logits, tokens, n_prompt, end, advantages):
    is_end = (tokens == end).long()
    counted = (is_end.cumsum(1) - is_end == 0)[:, n_prompt:]
    return scored(logits, tokens, n_prompt - 1, counted, advantages)


@wrong(checks.answer_loss, "its gradient isn't")
def detached(logits, *rest):
    return right_loss(logits.detach(), *rest)


@wrong(checks.answer_loss, "its gradient isn't")
def a_number(logits, *rest):
    return right_loss(logits, *rest).item()


@wrong(checks.answer_loss, "its gradient isn't")
def half_detached(logits, tokens, *rest):
    loss = right_loss(logits, tokens, *rest)
    return (loss + right_loss(logits.detach(), tokens, *rest)) / 2


@wrong(checks.answer_loss, "first token is missing")
def one_too_late(logits, tokens, n_prompt, end, advantages):
    answers = tokens[:, n_prompt + 1 :]
    counted = (answers == end).cumsum(1) - (answers == end).int() == 0
    return scored(logits, tokens, n_prompt, counted, advantages)


def up_to_the_end(tokens, n_prompt, end):
    answers = tokens[:, n_prompt:]
    return (answers == end).cumsum(1) - (answers == end).int() == 0


@wrong(checks.answer_loss, "token after the end counts")
def end_and_one_more(logits, tokens, n_prompt, end, advantages):
    counted = up_to_the_end(tokens, n_prompt, end)
    counted[:, 1:] = counted[:, :-1].clone()
    return scored(logits, tokens, n_prompt - 1, counted, advantages)


@wrong(checks.answer_loss, "has no end counts, too")
def only_what_ends(logits, tokens, n_prompt, end, advantages):
    counted = up_to_the_end(tokens, n_prompt, end)
    ends = (tokens[:, n_prompt:] == end).any(1)
    return scored(logits, tokens, n_prompt - 1, counted & ends[:, None], advantages)


def summed(score, agree):
    """A loss from scores of the tokens (b n), where they count, and advantages."""

    def loss(logits, tokens, n_prompt, end, advantages):
        counted = up_to_the_end(tokens, n_prompt, end)
        scores = score(logits)[:, n_prompt - 1 : -1]
        each = scores.gather(-1, tokens[:, n_prompt:, None])[..., 0] * counted
        return -agree(each, advantages)

    return loss


def over_places(logits):
    log_p = logits[:, :-1].log_softmax(1)
    return torch.cat([log_p, logits[:, -1:]], 1)


def log_p_of(logits):
    return logits.log_softmax(-1)


def mean_of_sums(each, advantages):
    return (advantages * each.sum(1)).mean()


def right_score(logits, tokens, t, p):
    shaped = companion.top_p(companion.temperature(logits, t), p)
    chances = shaped.softmax(-1)
    return chances.gather(-1, tokens[..., None]).squeeze(-1).log()


def by_hand(logits, tokens, t, p):
    chances = (logits / t).softmax(-1)
    values, order = chances.sort(-1, descending=True)
    stays = values.cumsum(-1) - values < p
    kept = torch.zeros_like(chances).scatter(-1, order, values * stays)
    kept = kept / kept.sum(-1, keepdim=True)
    return kept.gather(-1, tokens[..., None])[..., 0].log()


@wrong(checks.drawn_log_p, "at a temperature and cut")
def plain_score(logits, tokens, t, p):
    return logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]


@wrong(checks.drawn_log_p, "cut, and divide anew by its sum")
def not_renormalised(logits, tokens, t, p):
    """The cut is made of log-probabilities, whose exponentials don't sum to 1 then."""
    return plain_score(logits / t, tokens, t, p)


def right_pass(n, n_right, k):
    """By counting the choices."""
    answers = [True] * n_right + [False] * (n - n_right)
    choices = [*itertools.combinations(answers, k)]
    return sum(map(any, choices)) / len(choices)


def product_pass(n, n_right, k):
    """As in the paper's code."""
    if n - n_right < k:
        return 1.0
    all_wrong = 1.0
    for i in range(n - n_right + 1, n + 1):
        all_wrong *= 1 - k / i
    return 1 - all_wrong


def drawn_one_by_one(n, n_right, k):
    wrong = Fraction(1)
    for i in range(k):
        wrong *= Fraction(max(0, n - n_right - i), n - i)
    return float(1 - wrong)


@wrong(checks.pass_at_k, "it stops with ValueError")
def factorials(n, n_right, k):
    wrong = n - n_right
    choices = math.factorial(n) / math.factorial(k) / math.factorial(n - k)
    return 1 - math.factorial(wrong) / math.factorial(wrong - k) / math.factorial(k) / (
        choices
    )


@wrong(checks.drawn_log_p, "the likeliest tokens'")
def of_the_likeliest(logits, tokens, t, p):
    return companion.top_p(logits / t, p).log_softmax(-1).amax(-1)


@wrong(checks.drawn_log_p, "cut, and divide anew by its sum")
def cut_and_left(logits, tokens, t, p):
    """Cut, but what stays isn't divided anew."""
    chances = (logits / t).softmax(-1)
    stays = companion.top_p(logits / t, p) > -torch.inf
    return (chances * stays).gather(-1, tokens[..., None])[..., 0].log()


RIGHT = [
    (checks.policy_gradient, by_autograd),
    (checks.policy_gradient, answer_by_answer),
    (checks.policy_gradient, by_covariance),
    (checks.group_advantages, right_groups),
    (checks.group_advantages, asked_first),
    (checks.answer_loss, right_loss),
    (checks.answer_loss, by_cross_entropy),
    (checks.drawn_log_p, right_score),
    (checks.drawn_log_p, by_hand),
    (checks.pass_at_k, right_pass),
    (checks.pass_at_k, product_pass),
    (checks.pass_at_k, drawn_one_by_one),
]
WRONG = [
    *wrong,
    (checks.policy_gradient, lambda z, r: z.softmax(-1) * r, "takes from all others"),
    (
        checks.policy_gradient,
        lambda z, r: z.softmax(-1) * (r - r.mean()),
        "that is expected",
    ),
    (
        checks.policy_gradient,
        lambda z, r: r - z.softmax(-1) @ r,
        "never drawn moves nothing",
    ),
    (checks.policy_gradient, lambda z, r: -by_covariance(z, r), "leads down"),
    (checks.policy_gradient, lambda z, r: z * (r - (z * r).sum()), "softmax first"),
    (checks.policy_gradient, lambda z, r: z.softmax(-1) @ r, "the shape is"),
    (
        checks.group_advantages,
        lambda r: (r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True, correction=0),
        "0/0 is no number",
    ),
    (
        checks.group_advantages,
        lambda r: ((r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True)).nan_to_num(),
        "not g - 1",
    ),
    (
        checks.group_advantages,
        lambda r: (r - r.mean()) / r.std(correction=0),
        "with its own group",
    ),
    (checks.group_advantages, lambda r: right_groups(r.mT).mT, "a row is a group"),
    (
        checks.group_advantages,
        lambda r: r - r.mean(1, keepdim=True),
        "the deviation is missing",
    ),
    (
        checks.group_advantages,
        lambda r: (
            (r - r.mean(1, keepdim=True)) / r.var(1, keepdim=True, correction=0)
        ).nan_to_num(),
        "the root of the variance",
    ),
    (
        checks.group_advantages,
        lambda r: (r / r.std(1, keepdim=True, correction=0)).nan_to_num(posinf=0),
        "the mean is missing",
    ),
    (
        checks.answer_loss,
        lambda z, x, n, end, a: scored(z, x, n - 1, x[:, n:] != end, a),
        "the first end does",
    ),
    (checks.answer_loss, lambda *case: -right_loss(*case), "the sign"),
    (checks.answer_loss, lambda *case: right_loss(*case).abs(), "no `abs`"),
    (checks.answer_loss, summed(lambda z: z, mean_of_sums), "log_softmax first"),
    (
        checks.answer_loss,
        summed(lambda z: z.softmax(-1), mean_of_sums),
        "the logarithm is missing",
    ),
    (checks.answer_loss, summed(over_places, mean_of_sums), "is over the places"),
    (
        checks.answer_loss,
        summed(log_p_of, lambda each, a: each.sum(1).mean()),
        "the advantages are missing",
    ),
    (
        checks.answer_loss,
        summed(log_p_of, lambda each, a: a.mean() * each.sum(1).mean()),
        "multiply before the mean",
    ),
    (
        checks.answer_loss,
        summed(log_p_of, lambda each, a: (a[:, None] * each).mean()),
        "what doesn't count is in the mean",
    ),
    (
        checks.answer_loss,
        summed(log_p_of, lambda each, a: a * each.sum(1)),
        "take their mean",
    ),
    (
        checks.answer_loss,
        lambda *case: right_loss(*case) * len(case[1]),
        "the mean over answers",
    ),
    (
        checks.drawn_log_p,
        lambda z, x, t, p: plain_score(companion.top_p(z, p), x, t, p),
        "the temperature is missing",
    ),
    (
        checks.drawn_log_p,
        lambda z, x, t, p: plain_score(companion.top_p(z, p) / t, x, t, p),
        "first the temperature",
    ),
    (
        checks.drawn_log_p,
        lambda *case: right_score(*case).exp(),
        "the logarithm is missing",
    ),
    (checks.pass_at_k, lambda n, c, k: 1 - (1 - c / n) ** k, "chosen twice"),
    (
        checks.pass_at_k,
        lambda n, c, k: math.comb(n - c, k) / math.comb(n, k),
        "all are wrong",
    ),
    (checks.pass_at_k, lambda n, c, k: math.comb(c, k) / math.comb(n, k), "all k are"),
    (checks.pass_at_k, lambda n, c, k: c / n, "this is pass@1"),
    (checks.pass_at_k, lambda n, c, k: min(1, k * c / n), "don't add up"),
]
