"""Reward: a model learns from a verdict on what it has written itself. Chapter 15."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..decoding.sampling import check_end, check_largest, check_prompt, prefill, sample
from ..device import at_least_float32
from ..inputs import check_finite, check_in_vocabulary, check_tensor, check_whole
from ..model.gpt import LanguageModel, evaluating


class Rollouts(NamedTuple):
    """What a model has drawn: some answers to each of its prompts. Chapter 15.

    prompts: b of them (t), each as often as it has answers, one after another.
    answers: (b n); behind its end an answer repeats the end token.
    written: (b n), True where the model has drawn the token, the end included.
    log_probabilities: (b n), of each token when it was drawn; 0 where none was.
    """

    prompts: list[Tensor]
    answers: Tensor
    written: Tensor
    log_probabilities: Tensor


def as_they_are(logits: Tensor) -> Tensor:
    """Returns the logits (... v): neither warmed nor cut."""
    return logits


def roll_out(
    model: LanguageModel,
    prompts: list[Tensor],
    *,
    n_answers: int,
    n_new: int,
    end: int | None = None,
    process_logits: Callable[[Tensor], Tensor] = as_they_are,
    generator: torch.Generator | None = None,
) -> Rollouts:
    """Draws `n_answers` answers to each prompt (t), of `n_new` tokens at most.

    Returns the answers, and the log-probabilities of what was drawn. An answer is over
    with the token `end`. `process_logits` turns the logits (b v) into those that are
    drawn from, say by a temperature; to score the answers later, process their logits
    alike. Raises ValueError for a prompt that is empty or leaves an answer no room.
    Chapter 15.
    """
    check_whole(n_answers=n_answers, n_new=n_new)
    check_end(end, model.config.d_vocab)
    if not prompts:
        raise ValueError("the list of prompts is empty; it must hold one")
    for prompt in prompts:
        check_tensor("integers", "t", prompt=prompt)
        check_prompt(prompt, n_new, model.config.context_length)

    # Each prompt is read once, and all its answers go on from copies of that.
    rows = torch.arange(len(prompts)).repeat_interleave(n_answers)
    with evaluating(model), torch.inference_mode():
        cache, logits = prefill(model, prompts, n_new)
        cache.reorder(rows)
        logits = logits[rows]

        ended = torch.zeros(len(rows), dtype=torch.bool, device=logits.device)
        columns = []
        while True:
            processed = process_logits(logits)
            new = sample(processed, generator)
            log_p = chosen(processed, new).masked_fill(ended, 0)
            if end is not None:
                new = new.masked_fill(ended, end)
            columns.append((new, ~ended, log_p))

            if end is not None:
                ended = ended | (new == end)
            if len(columns) == n_new or ended.all():
                break
            logits = model(new[:, None], cache, last=-1)

    # Outside of inference mode they are stacked to ordinary tensors.
    answers, written, log_probabilities = zip(*columns, strict=True)
    return Rollouts(
        [prompts[row] for row in rows.tolist()],
        torch.stack(answers, 1),
        torch.stack(written, 1),
        torch.stack(log_probabilities, 1),
    )


def chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    """Returns the log-probability of each token (...) by the logits (... v).

    It is -inf for a token that is ruled out. Raises ValueError as `sample` does, for
    logits of another number of tokens, and for a token outside the vocabulary; on an
    accelerator, where that fails too late to be caught, not for this.
    """
    check_tensor("integers", "...", tokens=tokens)
    if logits.shape[:-1] != tokens.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} for tokens {tuple(tokens.shape)}: there must"
            " be a row of logits for each token"
        )
    check_largest(logits.amax(-1))
    log_probabilities = at_least_float32(logits).log_softmax(-1)
    try:
        return log_probabilities.gather(-1, tokens[..., None])[..., 0]
    except RuntimeError:
        check_in_vocabulary(logits.shape[-1], tokens=tokens)
        raise  # something else failed


def answer_logits(
    model: LanguageModel, prompts: list[Tensor], answers: Tensor
) -> Tensor:
    """Computes the logits (b n v) by which a model draws answers (b n) to b prompts.

    One pass reads prompts and answers, padded at the end. The logits after a prompt's
    last token predict the answer's first. Raises ValueError for an empty prompt.
    Chapter 15.
    """
    check_tensor("integers", "b n", answers=answers)
    if len(prompts) != len(answers):
        raise ValueError(
            f"{len(prompts)} prompts for {len(answers)} answers: each answer needs its"
            " own, as `Rollouts.prompts` repeats them for a group"
        )
    for prompt in prompts:
        check_prompt(prompt, 0, None)

    # Nothing is predicted after an answer's last token, so it isn't read.
    pairs = zip(prompts, answers[:, :-1], strict=True)
    texts = [torch.cat([prompt, answer]) for prompt, answer in pairs]
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True)

    lengths = torch.tensor([len(prompt) for prompt in prompts])
    places = lengths[:, None] - 1 + torch.arange(answers.shape[1])
    return model(tokens, last=places)


def advantages(rewards: Tensor, *, scale: bool = False) -> Tensor:
    """Subtracts from rewards (p g) the mean of each prompt's group of g answers.

    With `scale` the differences are divided by the group's deviation and 1e-4, too. In
    a group in which all earn the same they are exactly 0. Rewards of 16 bits are
    compared in float32. Raises ValueError for a reward that isn't finite, and for some
    so far apart that their differences aren't. Shao et al. 2024 (GRPO), section 4.1.2.
    """
    check_tensor("floats", "p g", rewards=rewards)
    check_finite(rewards=rewards)

    # The mean of equal numbers is rounded to another one: that of zeros isn't.
    from_first = at_least_float32(rewards)
    from_first = from_first - from_first[:, :1]
    differences = from_first - from_first.mean(1, keepdim=True)
    check_finite(differences=differences)
    if not scale:
        return differences
    return differences / (from_first.std(1, keepdim=True, correction=0) + 1e-4)


def reward_loss(
    log_probabilities: Tensor, advantages: Tensor, written: Tensor
) -> Tensor:
    """Computes the loss whose gradient raises what has earned more than its group.

    That is -advantage · log p of a whole answer, averaged over b answers: of the
    log-probabilities (b n) those count that are `written` (b n), and none of an answer
    whose advantage is 0. The advantages (b) are numbers, without a way back. Raises
    ValueError for an advantage that isn't finite and, for it has no gradient, for a
    log-probability that counts and isn't. Williams 1992, eq. 5.
    """
    check_tensor("floats", "b", advantages=advantages)
    check_tensor("floats", "b n", log_probabilities=log_probabilities)
    if log_probabilities.shape != written.shape:
        raise ValueError(
            f"log-probabilities {tuple(log_probabilities.shape)} for tokens"
            f" {tuple(written.shape)}: there must be one for each token of each answer;"
            " are they of the same draw, and without the prompts?"
        )
    if len(advantages) != len(written):
        raise ValueError(
            f"{len(advantages)} advantages for {len(written)} answers: each answer"
            " needs one; if answers were left out, leave out theirs"
        )
    if not len(advantages):
        raise ValueError("there are 0 answers; their mean would be no number")
    advantages = advantages.detach()
    check_finite(advantages=advantages)

    # 0 times -inf is no number, so what doesn't count becomes 0 before the product.
    counts = written & (advantages != 0)[:, None]
    log_probabilities = log_probabilities.masked_fill(~counts, 0)
    check_finite(
        ": a step has ruled out what was drawn before it; leave the answer out, or draw"
        " anew after each step",
        log_probabilities=log_probabilities,
    )
    return -(advantages * log_probabilities.sum(1)).mean()


def kl_divergence(logits: Tensor, reference: Tensor) -> Tensor:
    """Computes how far the logits' choice is from a reference's: (... v) -> (...).

    In nats, exactly: the sum over the vocabulary of p · (log p - log q), to which a
    token with p = 0 adds 0. It is infinite, and without a gradient, where the reference
    rules out a token that the logits don't. Raises ValueError as `sample` does, and
    for two shapes.
    """
    check_tensor("floats", "... v", logits=logits, reference=reference)
    if logits.shape != reference.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and reference {tuple(reference.shape)} must"
            " be of one shape"
        )
    check_largest(logits.amax(-1))
    check_largest(reference.amax(-1))
    log_p = at_least_float32(logits).log_softmax(-1)
    log_q = at_least_float32(reference).log_softmax(-1)

    # 0 times infinity is no number, so it is filled in before the product.
    is_never = log_p.isneginf()
    is_infinite = log_q.isneginf() & ~is_never
    log_ratios = (log_p - log_q).masked_fill(is_never | is_infinite, 0)
    divergence = (log_p.exp() * log_ratios).sum(-1)
    return divergence.masked_fill(is_infinite.any(-1), math.inf)


def pass_at_k(n_right: Tensor, n_answers: int, k: int) -> Tensor:
    """Estimates how likely one of k answers is right, of n of which some were.

    From the number of right ones (...) among `n_answers`, without bias: 1 less the
    share of the choices of k that hold none. Raises ValueError for counts that no
    `n_answers` can have. Chen et al. 2021, eq. 1.
    """
    check_whole(k=k)
    check_whole(k, n_answers=n_answers)
    counts = n_right.cpu().double()
    is_count = (counts >= 0) & (counts <= n_answers) & (counts == counts.round())
    if not is_count.all():
        wrong = counts[~is_count][0].item()
        raise ValueError(
            f"{wrong:g} right answers of {n_answers}; it must be a whole number from 0"
            f" to {n_answers}"
        )
    estimates = [
        1 - math.comb(n_answers - int(right), k) / math.comb(n_answers, k)
        for right in counts.flatten().tolist()
    ]
    return torch.tensor(estimates).view(n_right.shape)
