"""Beam search: the likeliest text instead of the likeliest next token. Chapter 06."""

import math

import torch
from torch import Tensor

from ..inputs import check_between, check_tensor, check_whole
from ..model.gpt import evaluating
from .sampling import check_prompt


def grow(beams: list, log_probs: Tensor, n: int) -> list[tuple[float, int, int]]:
    """The n likeliest ways to go on by a token: (log-probability, beam, token).

    From log-probabilities (n_beams v); the one place in a step that reads them back.
    Raises ValueError where they are NaN.
    """
    totals = log_probs + log_probs.new_tensor([[total] for total, _ in beams])
    totals, places = totals.flatten().topk(min(n, totals.numel()))
    pairs = [*zip(totals.tolist(), places.tolist(), strict=True)]
    if not math.isfinite(pairs[0][0]):  # NaN counts as the largest of all
        raise ValueError(
            f"the likeliest text has a log-probability of {pairs[0][0]}; the model's"
            " logits must be finite"
        )
    return [(total, *divmod(place, log_probs.shape[-1])) for total, place in pairs]


def beam_search(
    model, prompt, n_beams: int, n_new: int, *, length_penalty=0.0, end=None, cache=None
) -> list[tuple[float, list[int]]]:
    """The likeliest continuations of a prompt (t), best first: (score, new tokens).

    The score is the log-probability divided by length ** length_penalty. All beams go
    through the model in one pass a step, with a reordered cache. A beam that reaches
    `end` is finished and leaves its place to the next. Raises ValueError for more beams
    than tokens, and beyond the context. Graves 2012; Wu et al. 2016, section 7.
    """
    check_tensor("integers", "t", prompt=prompt)
    check_prompt(prompt, n_new, model.config.context_length)
    check_whole(n_beams=n_beams)
    check_between(0, 1, length_penalty=length_penalty)
    if n_beams > (d_vocab := model.config.d_vocab):
        raise ValueError(f"n_beams is {n_beams}, more than the {d_vocab} tokens")
    mode = torch.inference_mode if cache is None else torch.no_grad
    cache = model.new_cache(len(prompt) + n_new) if cache is None else cache
    step, beams, finished = prompt[None], [(0.0, [])], []
    for length in range(1, n_new + 1):
        with evaluating(model), mode():
            log_probs = model(step, cache, last=-1).float().log_softmax(-1)
        grown = grow(beams, log_probs, 2 * n_beams)
        for total, beam, token in grown[:n_beams]:
            if token == end:
                tokens = [*beams[beam][1], token]
                finished.append((total / length**length_penalty, tokens))
        finished = sorted(finished, reverse=True)[:n_beams]
        alive = [each for each in grown if each[2] != end][:n_beams]
        beams = [(total, [*beams[beam][1], token]) for total, beam, token in alive]
        # A beam can still gain by its length alone, but by no more than this.
        bound = beams[0][0] / n_new**length_penalty if beams else -math.inf
        if len(finished) == n_beams and finished[-1][0] >= bound:
            return finished
        step = torch.tensor([[token] for *_, token in alive], device=prompt.device)
        cache.reorder(torch.tensor([beam for _, beam, _ in alive]))
    finished += [(t / max(1, n_new) ** length_penalty, tokens) for t, tokens in beams]
    return sorted(finished, reverse=True)[:n_beams]
