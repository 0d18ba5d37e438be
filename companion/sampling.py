"""Sampling: from logits to tokens, and from a prompt to text. Chapter 06.

`temperature`, `top_k`, `top_p` and `min_p` take logits (... v) and return new ones, so
they compose in any order; a token that is ruled out has a logit of -inf.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from .cache import RaggedCache


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


def min_p(logits: Tensor, p: float) -> Tensor:
    """Only tokens at least `p` times as likely as the likeliest stay.

    Raises ValueError for p outside (0, 1]. Nguyen et al. 2024.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p is {p}; it must be above 0 and at most 1")
    lowest = logits.amax(-1, keepdim=True) + math.log(p)
    return logits.masked_fill(logits < lowest, -math.inf)


def sample(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A token drawn from softmax(logits): (... v) -> (...).

    The Gumbel trick: the largest of logit + noise falls on each token with its
    probability. The noise is -log(-log u) for uniform u.
    """
    shape, device = logits.shape, logits.device
    exponential = torch.empty(shape, device=device).exponential_(generator=generator)
    return (logits - exponential.log()).argmax(-1)


def check_prompt(prompt: Tensor, window: float, n_new: int) -> None:
    """Raise ValueError for a prompt that is empty, too long or of a wrong shape."""
    if prompt.dim() not in (1, 2) or prompt.numel() == 0:
        shape = tuple(prompt.shape)
        raise ValueError(f"the prompt has shape {shape}; it must hold 1 token or more")
    if prompt.shape[-1] > window:
        raise ValueError(
            f"the prompt has {prompt.shape[-1]} tokens, the context_length is {window}"
        )
    if n_new < 0:
        raise ValueError(f"n_new is {n_new}; it must be 0 or more")


def generate(
    model,
    prompt: Tensor | list[Tensor],
    n_new: int,
    *,
    choose: Callable[[Tensor], Tensor] = greedy,
    use_cache: bool = True,
    caches: list | None = None,
    end: int | None = None,
) -> Iterator[Tensor]:
    """`n_new` tokens after a prompt, each yielded as it comes: (t) -> (), (b t) -> (b).

    A list of prompts (t) of different lengths -> (b). `choose` turns logits (b v) into
    tokens (b). With a cache a token is computed once. Past the context window the model
    sees the last context_length tokens, recomputed; or whatever `caches`, one a layer,
    let it see, if they are given: the prompt then goes on from what they hold.
    A stream that has drawn `end` repeats it; when all have, generation stops.
    Raises ValueError for a prompt that is empty or beyond the context.
    """
    window = model.config.context_length if caches is None else math.inf
    if not isinstance(prompt, list):
        check_prompt(prompt, window, n_new)
        return _generate(model, prompt, None, n_new, choose, use_cache, caches, end)
    if not prompt or caches is not None or not use_cache:
        raise ValueError("a list of prompts must hold one, and brings its own caches")
    for one in prompt:
        check_prompt(one, window - n_new, n_new)
    lengths = torch.tensor([len(one) for one in prompt])
    together = nn.utils.rnn.pad_sequence(prompt, batch_first=True)
    capacity = together.shape[1] + n_new
    caches = [RaggedCache(capacity, len(prompt)) for _ in model.new_caches()]
    return _generate(model, together, lengths, n_new, choose, use_cache, caches, end)


def _generate(
    model, prompt, lengths, n_new, choose, use_cache, caches, end
) -> Iterator[Tensor]:
    tokens = prompt if prompt.dim() == 2 else prompt[None]
    window, was_training = model.config.context_length, model.training
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    if caches is not None:
        window = math.inf
    elif use_cache:
        caches = model.new_caches(min(window, tokens.shape[1] + n_new))
    step = tokens
    model.eval()
    try:
        for _ in range(n_new):
            with torch.inference_mode():
                if caches is not None and tokens.shape[1] <= window:
                    logits = model(step, caches)
                else:
                    logits = model(tokens[:, -window:])
                if lengths is None:
                    new = choose(logits[:, -1])
                else:  # the first step: forget the padding
                    new = choose(logits[torch.arange(len(tokens)), lengths - 1])
                    for cache in caches:
                        cache.truncate(lengths)
                    lengths = None
            if end is not None:
                new = new.masked_fill(ended, end)
                ended |= new == end
            step = new[:, None]
            tokens = torch.cat([tokens, step], 1)
            yield new if prompt.dim() == 2 else new[0]
            if ended.all():
                return
    finally:
        model.train(was_training)


@torch.inference_mode()
def beam_search(
    model,
    prompt: Tensor,
    n_beams: int,
    n_new: int,
    *,
    length_penalty: float = 0.0,
    end: int | None = None,
    caches: list | None = None,
) -> list[tuple[float, list[int]]]:
    """The likeliest continuations of a prompt (t), best first: (score, new tokens).

    The score is the log-probability divided by length ** length_penalty. All beams go
    through the model in one pass a step, on reordered caches (one a layer, preallocated
    by default). A beam that reaches `end`
    is finished and leaves its place to the next. One beam is greedy search.
    Raises ValueError for more beams than the vocabulary, and where prompt and new
    tokens exceed the context. Graves 2012; Wu et al. 2016, section 7.
    """
    window, d_vocab = model.config.context_length, model.config.d_vocab
    check_prompt(prompt, window - n_new, n_new)
    if not 1 <= n_beams <= d_vocab:
        raise ValueError(
            f"n_beams is {n_beams}; it must be from 1 to {d_vocab} (d_vocab)"
        )
    if not 0 <= length_penalty <= 1:
        raise ValueError(f"length_penalty is {length_penalty}; it must be from 0 to 1")
    was_training = model.training
    model.eval()
    if caches is None:
        caches = model.new_caches(prompt.shape[-1] + n_new)
    step, beams, totals = prompt[None], [[]], torch.zeros(1, device=prompt.device)
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, n_new + 1):
        logits = model(step, caches)[:, -1]
        candidates = (totals[:, None] + logits.log_softmax(-1)).flatten()
        totals, order = candidates.topk(min(2 * n_beams, len(candidates)))
        grown = [(i // d_vocab, i % d_vocab) for i in order.tolist()]
        alive = [n for n, (_, token) in enumerate(grown) if token != end][:n_beams]
        for n, (beam, token) in enumerate(grown[:n_beams]):
            if token == end:
                score = totals[n].item() / length**length_penalty
                finished.append((score, [*beams[beam], token]))
        finished = sorted(finished, reverse=True)[:n_beams]
        parents = torch.tensor([grown[n][0] for n in alive], device=prompt.device)
        beams = [[*beams[grown[n][0]], grown[n][1]] for n in alive]
        totals = totals[alive]
        # A beam can still gain by its length alone, but by no more than this.
        bound = totals[0].item() / n_new**length_penalty if alive else -math.inf
        if len(finished) == n_beams and finished[-1][0] >= bound:
            break
        if length < n_new:
            step = torch.tensor([b[-1:] for b in beams], device=prompt.device)
            for cache in caches:
                cache.reorder(parents)
    else:
        scores = (totals / max(1, n_new) ** length_penalty).tolist()
        finished += zip(scores, beams, strict=True)
    model.train(was_training)
    return sorted(finished, reverse=True)[:n_beams]
