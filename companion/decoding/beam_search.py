"""Beam search: the likeliest text instead of the likeliest next token. Chapter 06."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..device import at_least_float32
from ..inputs import check_between, check_tensor, check_whole
from ..model.gpt import LanguageModel, evaluating
from .sampling import check_end, check_prompt


class Beam(NamedTuple):
    """New tokens, and their log-probability together."""

    log_prob: float
    tokens: list[int]


class Candidate(NamedTuple):
    """A beam, by its row, that goes on by a token; and their log-probability."""

    log_prob: float
    row: int
    token: int


def score(log_prob: float, length: int, penalty: float) -> float:
    """Returns by what texts of different lengths are compared. The plain form of
    what Wu et al. 2016 have."""
    return log_prob / length**penalty


def expand_beams(beams: list[Beam], log_probs: Tensor, n: int) -> list[Candidate]:
    """Returns the n likeliest ways to go on by a token, best first; none is impossible.

    log_probs (n_beams v) are those of each beam's next token. They are read back from
    the device here, and nowhere else in a step. Raises ValueError where they are NaN.
    """
    # The log-probability of every text that is one token longer.
    longer = log_probs + log_probs.new_tensor([[beam.log_prob] for beam in beams])
    likeliest = longer.flatten().topk(min(n, longer.numel()))
    totals = likeliest.values.tolist()
    indices = likeliest.indices.tolist()  # in rows of v, one after the other
    if not math.isfinite(totals[0]):  # NaN counts as the largest of all
        raise ValueError(
            f"the likeliest text has a log-probability of {totals[0]}; the model's"
            " logits must be finite"
        )

    d_vocab = log_probs.shape[-1]
    return [
        Candidate(total, index // d_vocab, index % d_vocab)
        for total, index in zip(totals, indices, strict=True)
        if total > -math.inf
    ]


def beam_search(
    model: LanguageModel,
    prompt: Tensor,
    n_beams: int,
    n_new: int,
    *,
    length_penalty: float = 0.0,
    end: int | None = None,
) -> list[tuple[float, list[int]]]:
    """Searches the likeliest continuations of a prompt (t).

    Returns at most n_beams of them, best first, as (score, new tokens). The score is
    the log-probability divided by length ** length_penalty. All beams go through the
    model in one pass a step, with a reordered cache. A beam that reaches `end` is
    finished and leaves its place to the next. Raises ValueError for more beams than
    tokens, and beyond the context. Graves 2012; Wu et al. 2016, section 7.
    """
    check_tensor("integers", "t", prompt=prompt)
    check_prompt(prompt, n_new, model.config.context_length)
    check_end(end, model.config.d_vocab)
    check_whole(n_beams=n_beams)
    check_between(0, 1, length_penalty=length_penalty)
    d_vocab = model.config.d_vocab
    if n_beams > d_vocab:
        raise ValueError(f"n_beams is {n_beams}, more than the {d_vocab} tokens")

    cache = model.new_cache(len(prompt) + n_new)
    beams = [Beam(0.0, [])]
    finished = []
    unread = prompt[None]
    for length in range(1, n_new + 1):
        with evaluating(model), torch.inference_mode():
            logits = model(unread, cache, last=-1)
            log_probs = at_least_float32(logits).log_softmax(-1)

        # Even if all beams end, as many others are there to go on, if any are possible.
        candidates = expand_beams(beams, log_probs, 2 * n_beams)
        for total, row, token in candidates[:n_beams]:
            if token == end:
                tokens = [*beams[row].tokens, token]
                finished.append((score(total, length, length_penalty), tokens))
        finished = sorted(finished, reverse=True)[:n_beams]

        alive = [candidate for candidate in candidates if candidate.token != end]
        alive = alive[:n_beams]
        beams = [
            Beam(total, [*beams[row].tokens, token]) for total, row, token in alive
        ]

        # Log-probabilities only fall: no beam can end with a better score than this.
        best_possible = -math.inf
        if beams:
            best_possible = score(beams[0].log_prob, n_new, length_penalty)
        if len(finished) == n_beams and finished[-1][0] >= best_possible:
            return finished

        if not beams:
            break

        # Each beam goes on from the keys and values of the one that it extends.
        unread = torch.tensor([[x.token] for x in alive], device=prompt.device)
        cache.reorder(torch.tensor([x.row for x in alive]))

    for total, tokens in beams:
        finished.append((score(total, max(1, n_new), length_penalty), tokens))
    return sorted(finished, reverse=True)[:n_beams]
