"""Sampling: from logits to tokens, and from a prompt to text. Chapter 06.

`temperature`, `top_k` and `top_p` take logits (... v) and return new ones, so they
compose in any order; a token that is ruled out has a logit of -inf.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor


def greedy(logits: Tensor) -> Tensor:
    """The likeliest token: logits (... v) -> (...)."""
    return logits.argmax(-1)


def temperature(logits: Tensor, t: float) -> Tensor:
    """Logits divided by t: below 1 sharper, above 1 flatter. ValueError for t <= 0."""
    if not t > 0:
        raise ValueError(
            f"temperature is {t}; it must be above 0 (use greedy for the limit)"
        )
    return logits / t


def top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k largest logits stay, exactly k even with ties. Fan et al. 2018."""
    if not 1 <= k <= logits.shape[-1]:
        raise ValueError(f"k is {k}; it must be from 1 to {logits.shape[-1]} tokens")
    values, tokens = logits.topk(k)
    return torch.full_like(logits, -math.inf).scatter(-1, tokens, values)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Only the smallest set of likeliest tokens with a mass of at least `p` stays.

    A token stays if those before it do not reach p yet: the one that crosses p is in.
    Raises ValueError for p outside (0, 1]. Holtzman et al. 2020, eq. 2.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p is {p}; it must be above 0 and at most 1")
    values, tokens = logits.sort(descending=True, stable=True)
    masses = values.softmax(-1)
    before = masses.cumsum(-1) - masses
    values = values.masked_fill((before >= p) & (p < 1), -math.inf)
    return torch.empty_like(logits).scatter(-1, tokens, values)


def sample(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A token drawn from softmax(logits): (... v) -> (...).

    The Gumbel trick: the largest of logit + noise falls on each token with its
    probability. The noise is -log(-log u) for uniform u.
    """
    shape, device = logits.shape, logits.device
    exponential = torch.empty(shape, device=device).exponential_(generator=generator)
    return (logits - exponential.log()).argmax(-1)


def generate(
    model,
    prompt: Tensor,
    n_new: int,
    *,
    choose: Callable[[Tensor], Tensor] = greedy,
    use_cache: bool = True,
) -> Iterator[Tensor]:
    """`n_new` tokens after a prompt, each yielded as it comes: (t) -> (), (b t) -> (b).

    `choose` turns logits (b v) into tokens (b). With a cache a token is computed once.
    Past the context window the model sees the last context_length tokens, recomputed.
    Raises ValueError for an empty prompt or one of another shape.
    """
    if prompt.dim() not in (1, 2) or prompt.numel() == 0:
        raise ValueError(
            f"the prompt has shape {tuple(prompt.shape)}; it must hold tokens"
        )
    return _generate(model, prompt, n_new, choose, use_cache)


def _generate(model, prompt, n_new, choose, use_cache) -> Iterator[Tensor]:
    window = model.config.context_length
    tokens = prompt if prompt.dim() == 2 else prompt[None]
    caches, model_was_training = None, model.training
    model.eval()
    try:
        for _ in range(n_new):
            with torch.inference_mode():
                if use_cache and tokens.shape[1] <= window:
                    caches = caches or model.new_caches(
                        min(window, tokens.shape[1] + n_new)
                    )
                    logits = model(tokens[:, len(caches[0]) :], caches)
                else:
                    logits = model(tokens[:, -window:])
                new = choose(logits[:, -1])
            tokens = torch.cat([tokens, new[:, None]], 1)
            yield new if prompt.dim() == 2 else new[0]
    finally:
        model.train(model_was_training)
