"""Reward: a model learns from a verdict on what it has written itself. Chapter 15."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..decoding.sampling import generate, sample
from ..device import at_least_float32
from ..inputs import check_between, check_tensor, check_whole


class Rollouts(NamedTuple):
    """What a model has written: `n_answers` answers after each of its prompts.

    prompts: a list of b prompts (t), each as often as it has answers, one after another.
    answers: (b n); behind its end an answer repeats the end token.
    written: (b n), True where the model has drawn the token, the end included.
    log_probabilities: (b n), of each token when it was drawn; 0 where none was.
    """

    prompts: list[Tensor]
    answers: Tensor
    written: Tensor
    log_probabilities: Tensor


def as_they_are(logits: Tensor) -> Tensor:
    """Returns the logits (... v): a model is drawn from without a temperature."""
    return logits


def roll_out(
    model: nn.Module,
    prompts: list[Tensor],
    *,
    n_answers: int,
    n_new: int,
    end: int | None = None,
    shape: Callable[[Tensor], Tensor] = as_they_are,
    generator: torch.Generator | None = None,
) -> Rollouts:
    """Draws `n_answers` answers to each prompt (t), of `n_new` tokens at most.

    An answer is over with the token `end`. `shape` turns the logits (b v) into those
    that are drawn from, by a temperature say: `score` must be given the same. Returns
    the answers, with the log-probabilities of what was drawn. Raises ValueError as
    `generate` does. Chapter 15.
    """
    check_whole(n_answers=n_answers, n_new=n_new)
    repeated = [prompt for prompt in prompts for _ in range(n_answers)]
    drawn = []

    def choose(logits: Tensor) -> Tensor:
        logits = shape(logits)
        tokens = sample(logits, generator)
        drawn.append(chosen(logits, tokens))
        return tokens

    tokens = generate(model, repeated, n_new, choose=choose, end=end)
    answers = torch.stack([*tokens], 1)
    log_probabilities = torch.stack(drawn, 1)

    # An answer is written up to its first end, and that is still the model's.
    written = torch.ones_like(answers, dtype=torch.bool)
    if end is not None:
        is_end = (answers == end).long()
        written = is_end.cumsum(1) - is_end == 0
    log_probabilities = log_probabilities.masked_fill(~written, 0)
    return Rollouts(repeated, answers, written, log_probabilities)


def chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    """Returns the log-probability of each token (...) by the logits (... v)."""
    log_probabilities = at_least_float32(logits).log_softmax(-1)
    return log_probabilities.gather(-1, tokens[..., None])[..., 0]


def answer_logits(model: nn.Module, prompts: list[Tensor], answers: Tensor) -> Tensor:
    """Computes the logits (b n v) by which a model draws answers (b n) to b prompts.

    One pass reads prompts and answers, padded at the end. The logits after a prompt's
    last token predict the answer's first. Chapter 15.
    """
    check_tensor("integers", "b n", answers=answers)
    if len(prompts) != len(answers):
        raise ValueError(f"{len(prompts)} prompts for {len(answers)} answers")

    # Nothing is predicted after an answer's last token, so it isn't read.
    pairs = zip(prompts, answers[:, :-1], strict=True)
    texts = [torch.cat([prompt, answer]) for prompt, answer in pairs]
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True)

    lengths = torch.tensor([len(prompt) for prompt in prompts])
    places = lengths[:, None] - 1 + torch.arange(answers.shape[1])
    rows = torch.arange(len(answers))[:, None]
    return model(tokens)[rows, places]


def advantages(rewards: Tensor, *, scale: bool = False) -> Tensor:
    """Subtracts from rewards (p g) the mean of each prompt's group of g answers.

    With `scale` the differences are divided by the group's deviation, too, and a group
    without any is 0 as before. Shao et al. 2024 (GRPO), section 4.1.2.
    """
    check_tensor("floats", "p g", rewards=rewards)
    differences = rewards - rewards.mean(1, keepdim=True)
    if not scale:
        return differences
    return differences / (rewards.std(1, keepdim=True, correction=0) + 1e-4)


def reward_loss(
    log_probabilities: Tensor, advantages: Tensor, written: Tensor
) -> Tensor:
    """Computes the loss whose gradient raises what has earned more than its group.

    That is -advantage · log p of a whole answer, averaged over b answers: of the
    log-probabilities (b n) those count that are `written` (b n). The advantages (b) are
    numbers, without a way back. Williams 1992, eq. 5.
    """
    check_tensor("floats", "b", advantages=advantages)
    if not log_probabilities.shape == written.shape:
        raise ValueError(
            f"log-probabilities {tuple(log_probabilities.shape)} for tokens"
            f" {tuple(written.shape)}"
        )
    whole = log_probabilities.masked_fill(~written, 0).sum(1)
    return -(advantages.detach() * whole).mean()


def kl_divergence(logits: Tensor, reference: Tensor) -> Tensor:
    """Computes how far the logits' choice is from a reference's: (... v) -> (...).

    In nats, exactly: the sum over the vocabulary of p · (log p - log q).
    """
    log_p = at_least_float32(logits).log_softmax(-1)
    log_q = at_least_float32(reference).log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def pass_at_k(n_right: Tensor, n_answers: int, k: int) -> Tensor:
    """Estimates how likely one of k answers is right, of n of which some were.

    From the number of right ones (...) among `n_answers`, without bias: 1 less the
    share of the choices of k that hold none. Chen et al. 2021, eq. 1.
    """
    check_whole(n_answers=n_answers, k=k)
    check_between(k, math.inf, n_answers=n_answers)
    tables = [
        1 - math.comb(n_answers - right, k) / math.comb(n_answers, k)
        for right in n_right.flatten().tolist()
    ]
    return torch.tensor(tables).view(n_right.shape)
