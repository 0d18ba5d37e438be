"""Checks of chapter 15: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...decoding.sampling import temperature, top_p
from .compare import Exercise, check, draw, ways_of
from .differences import safe_difference
from .mistakes import Mistake


@check
def policy_gradient() -> Exercise:
    """`answer(logits, rewards)`: the gradient of the expected reward, by the logits."""

    def right(logits: Tensor, rewards: Tensor) -> Tensor:
        p = logits.softmax(-1)
        return p * (rewards - (p * rewards).sum())

    def not_weighed(logits: Tensor, rewards: Tensor) -> Tensor:
        return rewards - (logits.softmax(-1) * rewards).sum()

    mistakes = {
        "a logit that rises takes from all others: subtract the expected reward from"
        " each": lambda logits, rewards: logits.softmax(-1) * rewards,
        "the baseline is the reward that is expected: weigh each by its probability": (
            lambda logits, rewards: logits.softmax(-1) * (rewards - rewards.mean())
        ),
        "weigh each by its probability: an answer that is never drawn moves nothing": (
            not_weighed
        ),
        "this leads down: the reward is to grow": lambda *case: -right(*case),
        "logits aren't probabilities: softmax first": (
            lambda logits, rewards: logits * (rewards - (logits * rewards).sum())
        ),
    }
    cases = [
        (torch.tensor([0.2, 0.8]).log(), torch.tensor([1.0, 0.0])),
        (torch.tensor([0.2, 0.8]).log(), torch.tensor([11.0, 10.0])),
        (draw(5), torch.tensor([0.0, 1.0, 1.0, 0.0, 3.0])),
        (draw(3, seed=1), torch.tensor([-2.0, 0.0, 1.0])),
    ]
    praise = "p · (reward - expected reward), for each logit"
    return Exercise(right, cases, mistakes, praise)


class Rounded(Mistake):
    """Asks computed numbers whether they are equal."""

    has_example = False


@check
def group_advantages() -> Exercise:
    """`answer(rewards)`: (p g) less its group's mean, over the group's deviation."""

    def right(rewards: Tensor) -> Tensor:
        rewards = rewards - rewards[:, :1]  # the mean of equal ones would be rounded
        differences = rewards - rewards.mean(1, keepdim=True)
        deviation = differences.square().mean(1, keepdim=True).sqrt()
        return torch.where(deviation > 0, differences / deviation, 0)

    def not_a_number(rewards: Tensor) -> Tensor:
        differences = rewards - rewards.mean(1, keepdim=True)
        return differences / rewards.std(1, keepdim=True, correction=0)

    def by_one_less(rewards: Tensor) -> Tensor:
        differences = rewards - rewards.mean(1, keepdim=True)
        deviation = rewards.std(1, keepdim=True)
        return torch.where(deviation > 0, differences / deviation, 0)

    def of_the_batch(rewards: Tensor) -> Tensor:
        return (rewards - rewards.mean()) / rewards.std(correction=0)

    def across_prompts(rewards: Tensor) -> Tensor:
        return right(rewards.mT).mT

    def not_divided(rewards: Tensor) -> Tensor:
        return rewards - rewards.mean(1, keepdim=True)

    def by_the_variance(rewards: Tensor) -> Tensor:
        differences = rewards - rewards.mean(1, keepdim=True)
        variance = rewards.var(1, keepdim=True, correction=0)
        return torch.where(variance > 0, differences / variance, 0)

    def with_a_small_number(rewards: Tensor, small: float = 1e-4) -> Tensor:
        rewards = rewards - rewards[:, :1]
        differences = rewards - rewards.mean(1, keepdim=True)
        return differences / (rewards.std(1, keepdim=True, correction=0) + small)

    def with_a_threshold(rewards: Tensor, threshold: float = 1e-3) -> Tensor:
        deviation = rewards.std(1, keepdim=True, correction=0)
        return torch.where(deviation > threshold, right(rewards), 0)

    def only_divided(rewards: Tensor) -> Tensor:
        deviation = rewards.std(1, keepdim=True, correction=0)
        return torch.where(deviation > 0, rewards / deviation, 0)

    mistakes = {
        "where all answers are alike, 0/0 is no number: such a group teaches nothing,"
        " so its advantages are 0": not_a_number,
        "the deviation is that of these answers: divide by g, not g - 1": by_one_less,
        "an answer is compared with its own group: mean and deviation are a row's": (
            of_the_batch
        ),
        "these are groups of one column: a row is a group": across_prompts,
        "the deviation is missing": not_divided,
        "divide by the deviation: the root of the variance": by_the_variance,
        "the mean is missing: all get a push in one direction": only_divided,
        "the small number under the fraction changes the result: ask for 0 instead": (
            with_a_small_number
        ),
        "1e-8 is no small number beside rewards that differ by 1e-6: ask for 0": (
            partial(with_a_small_number, small=1e-8)
        ),
        "only rewards that are equal give 0": with_a_threshold,
        "rewards that differ by 1e-6 aren't equal: only equal ones give 0": (
            partial(with_a_threshold, threshold=1e-6)
        ),
    }
    cases = [
        (torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1]]),),
        (torch.tensor([[0.0, 0], [3, 1], [10, 14]]),),
        (torch.tensor([[0.01, 0.02], [0.5, 0.5]]),),
        (torch.tensor([[0.0, 1.5e-4]]),),
        (torch.tensor([[0.0, 1e-6]]),),
        (draw(3, 5),),
    ]

    def check_rounded_mean(function: Callable) -> None:
        """Raises Rounded for one that takes equal rewards for different ones."""
        advantages = function(torch.full((2, 3), 0.9))
        if safe_difference(advantages, torch.zeros(2, 3)) is not None:
            raise Rounded(
                "where all earn 0.9 it gives no zeros: the mean of three 0.9 is"
                " rounded to another number, so ask whether the rewards are equal,"
                " or subtract the first of each row before all else"
            )

    def use(function: Callable, rewards: Tensor) -> Tensor:
        """Calls a function, and once more, for its roundings, if the first is right."""
        result = function(rewards)
        is_first = torch.equal(rewards, cases[0][0])
        if is_first and safe_difference(result, right(rewards)) is None:
            check_rounded_mean(function)
        return result

    praise = "each against its group, and none where all are alike"
    return Exercise(right, cases, mistakes, praise, use)


class WithoutGradient(Mistake):
    """Gives the right loss, along which no gradient flows."""

    has_example = False


@check
def answer_loss() -> Exercise:
    """`answer(logits, tokens, n_prompt, end, advantages)`: -A log p of the answers."""

    def up_to_the_end(tokens: Tensor, end: int) -> Tensor:
        is_end = (tokens == end).long()
        return is_end.cumsum(1) - is_end == 0

    def weighed(each: Tensor, advantages: Tensor, counted: Tensor) -> Tensor:
        return (advantages * each.sum(1)).mean()

    def right(
        logits: Tensor,
        tokens: Tensor,
        n_prompt: int,
        end: int,
        advantages: Tensor,
        counts: Callable = up_to_the_end,
        weighed: Callable = weighed,
        shift: int = 1,
        score: Callable = lambda logits: logits.log_softmax(-1),
    ) -> Tensor:
        """-A log p of the tokens from n_prompt on that count."""
        log_p = score(logits[:, : logits.shape[1] - shift])
        each = log_p.gather(-1, tokens[:, shift:, None])[..., 0]
        counted = counts(tokens[:, n_prompt:], end)
        return -weighed(each[:, n_prompt - shift :] * counted, advantages, counted)

    way = ways_of(right)

    def from_the_second_on(
        logits: Tensor,
        tokens: Tensor,
        n_prompt: int,
        end: int,
        advantages: Tensor,
        counts: Callable = up_to_the_end,
    ) -> Tensor:
        return right(logits, tokens, 1, end, advantages, counts)

    def silenced_by_the_prompt(
        logits: Tensor, tokens: Tensor, n_prompt: int, end: int, advantages: Tensor
    ) -> Tensor:
        counted = up_to_the_end(tokens, end)[:, n_prompt:]
        return right(logits, tokens, n_prompt, end, advantages, lambda *_: counted)

    def one_too_late(
        logits: Tensor, tokens: Tensor, n_prompt: int, end: int, advantages: Tensor
    ) -> Tensor:
        return right(logits, tokens, n_prompt + 1, end, advantages)

    def without_advantages(*case: object) -> Tensor:
        return right(*case[:-1], torch.ones_like(case[-1]))

    def if_ended(tokens: Tensor, end: int) -> Tensor:
        return up_to_the_end(tokens, end) & (tokens == end).any(1, keepdim=True)

    def and_one_more(tokens: Tensor, end: int) -> Tensor:
        counted = up_to_the_end(tokens, end)
        return torch.cat([counted[:, :1], counted[:, :-1]], 1)

    mistakes = {
        "the prompt is counted too: the model hasn't drawn it": from_the_second_on,
        "an answer's first token is missing: the logits of the prompt's last token"
        " predict it": one_too_late,
        "the token after the end counts: the model hasn't drawn it": way(
            counts=and_one_more
        ),
        "an answer that has no end counts, too: the model has drawn it": way(
            counts=if_ended
        ),
        "logits aren't log-probabilities: log_softmax first": way(
            score=lambda logits: logits
        ),
        "the logarithm is missing": way(score=lambda logits: logits.softmax(-1)),
        "this softmax is over the places: the vocabulary is the last axis": way(
            score=lambda logits: logits.log_softmax(1)
        ),
        "the advantages are missing": without_advantages,
        "each answer has an advantage of its own: multiply before the mean": way(
            weighed=lambda each, advantages, counted: (
                advantages.mean() * each.sum(1).mean()
            )
        ),
        "what doesn't count is in the mean: sum over an answer's tokens, then the mean"
        " over answers": way(
            weighed=lambda each, advantages, counted: (advantages * each.mean(1)).mean()
        ),
        "these are the answers' own losses: take their mean": way(
            weighed=lambda each, advantages, counted: advantages * each.sum(1)
        ),
        "this loss may be below 0: no `abs`": lambda *case: right(*case).abs(),
        "an end in the prompt ends no answer": silenced_by_the_prompt,
        "the first end isn't counted: the model has drawn it, and must learn to stop": (
            way(counts=lambda tokens, end: (tokens == end).cumsum(1) == 0)
        ),
        "what stands behind an end doesn't count, the first end does": way(
            counts=torch.ne
        ),
        "what stands behind the first end was never drawn": way(
            counts=lambda tokens, end: torch.ones_like(tokens)
        ),
        "both bugs are still there: the prompt counts, and the end doesn't": partial(
            from_the_second_on, counts=torch.ne
        ),
        "the logits after a token predict the next one: shift them": way(shift=0),
        "a long answer counts less for each token: sum over an answer's tokens": (
            way(
                weighed=lambda each, advantages, counted: (
                    advantages * each.sum(1) / counted.sum(1)
                ).mean()
            )
        ),
        "sum over an answer's tokens, then the mean over answers": way(
            weighed=lambda each, advantages, counted: (
                (advantages * each.sum(1)).sum() / counted.sum()
            )
        ),
        "the mean over answers is wanted, not the sum": way(
            weighed=lambda each, advantages, counted: (advantages * each.sum(1)).sum()
        ),
        "a loss falls: the sign": lambda *case: -right(*case),
    }
    tokens = torch.tensor([[1, 2, 5, 0, 0, 0], [3, 4, 1, 2, 5, 1], [2, 2, 0, 3, 0, 4]])
    cases = [
        (draw(3, 6, 6), tokens, 2, 0, torch.tensor([1.0, -0.5, 2.0])),
        (draw(3, 6, 6, seed=1), tokens, 1, 5, torch.tensor([-1.0, 0.5, 0.25])),
        (draw(3, 6, 6, seed=2), tokens, 2, 3, torch.tensor([-0.5, -1.0, 1.0])),
    ]

    def use(function: Callable, logits: Tensor, *rest: object) -> Tensor:
        """Asks for the gradient, too, of a loss that is right."""
        leaf = logits.clone().requires_grad_()
        loss = function(leaf, *rest)
        if safe_difference(loss, right(logits, *rest)) is None:
            wanted = torch.autograd.grad(right(leaf, *rest), leaf)[0]
            found = torch.zeros_like(leaf)
            if getattr(loss, "requires_grad", False):
                found = torch.autograd.grad(loss, leaf, allow_unused=True)[0]
            if safe_difference(found, wanted) is not None:
                raise WithoutGradient(
                    "the loss is right and its gradient isn't, so nothing is learned:"
                    " take `logits` as they are, without `detach`, `item` or numpy"
                )
        return loss

    praise = "all that the model has drawn, and nothing else"
    return Exercise(right, cases, mistakes, praise, use)


@check
def drawn_log_p() -> Exercise:
    """`answer(logits, tokens, t, p)`: log-probabilities of what was really drawn."""

    def right(
        logits: Tensor,
        tokens: Tensor,
        t: float,
        p: float,
        shaped: Callable = lambda logits, t, p: top_p(temperature(logits, t), p),
    ) -> Tensor:
        log_p = shaped(logits, t, p).log_softmax(-1)
        return log_p.gather(-1, tokens[..., None])[..., 0]

    way = ways_of(right)

    mistakes = {
        "they were drawn at a temperature and cut: score them so": way(
            shaped=lambda logits, t, p: logits
        ),
        "what stays shares the whole probability: cut, and divide anew by its sum": (
            way(shaped=lambda logits, t, p: logits / t)
        ),
        "the temperature is missing": way(shaped=lambda logits, t, p: top_p(logits, p)),
        "first the temperature, then the cut, as they were drawn": way(
            shaped=lambda logits, t, p: top_p(logits, p) / t
        ),
        "the logarithm is missing": lambda *case: right(*case).exp(),
        "these are the likeliest tokens': take those of the drawn ones": (
            lambda logits, tokens, t, p: right(logits, logits.argmax(-1), t, p)
        ),
        "these are all tokens': take those of the drawn ones": (
            lambda logits, tokens, t, p: top_p(logits / t, p).log_softmax(-1)
        ),
    }
    logits = draw(2, 4, 6, seed=3) * 2
    likeliest = logits.argmax(-1)
    cases = [
        (logits, likeliest, 0.7, 0.9),
        (logits, likeliest, 1.5, 0.6),
        (draw(3, 5, seed=4), draw(3, 5, seed=4).argmax(-1), 2.0, 0.7),
        (draw(3, 5, seed=4), draw(3, 5, seed=4).argsort(-1)[:, -2], 2.0, 0.95),
    ]
    praise = "scored as it was drawn"
    return Exercise(right, cases, mistakes, praise)


@check
def pass_at_k() -> Exercise:
    """`answer(n, n_right, k)`: the chance that of k answers one is right, unbiased."""

    def right(n: int, n_right: int, k: int) -> float:
        return 1 - math.comb(n - n_right, k) / math.comb(n, k)

    mistakes = {
        "the same answer can't be chosen twice: this is biased": (
            lambda n, n_right, k: 1 - (1 - n_right / n) ** k
        ),
        "this is the chance that all are wrong": lambda *case: 1 - right(*case),
        "this is the chance that all k are right": (
            lambda n, n_right, k: math.comb(n_right, k) / math.comb(n, k)
        ),
        "this is pass@1": lambda n, n_right, k: n_right / n,
        "chances of several tries don't add up: two may be right": (
            lambda n, n_right, k: min(1, k * n_right / n)
        ),
    }
    cases = [(4, 1, 2), (4, 2, 2), (8, 0, 3), (5, 4, 3), (10, 3, 5), (6, 6, 1)]
    praise = "one less the share of the choices that hold no right one"
    return Exercise(right, cases, mistakes, praise)
