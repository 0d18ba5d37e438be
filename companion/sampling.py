"""Sampling: from logits to tokens, and from a prompt to text. Chapter 06.

`temperature`, `top_k`, `top_p` and `min_p` take logits (... v) and return new ones, so
they compose in any order; a token that is ruled out has a logit of -inf.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from .cache import Cache, RaggedCache
from .inputs import check_between, check_tensor, check_whole, given
from .models import evaluating


def greedy(logits: Tensor) -> Tensor:
    """The likeliest token: logits (... v) -> (...)."""
    check_tensor("floats", "... v", logits=logits)
    return logits.argmax(-1)


def temperature(logits: Tensor, t: float) -> Tensor:
    """Logits divided by t: below 1 sharper, above 1 flatter. ValueError for t <= 0."""
    check_tensor("floats", "... v", logits=logits)
    check_between(0, above=True, t=t)  # greedy is the limit of 0
    return logits / t


def top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k largest logits stay, exactly k even with ties. Fan et al. 2018."""
    check_tensor("floats", "... v", logits=logits)
    check_whole(k=k)
    if k > logits.shape[-1]:
        raise ValueError(f"k is {k}; it must be from 1 to {logits.shape[-1]} tokens")
    values, tokens = logits.topk(k)
    return torch.full_like(logits, -math.inf).scatter(-1, tokens, values)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Only the smallest set of likeliest tokens with a mass of at least `p` stays.

    A token stays if those before it do not reach p yet: the one that crosses p is in.
    Raises ValueError for p outside (0, 1]. Holtzman et al. 2020, eq. 2.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, 1, above=True, p=p)
    values, tokens = logits.sort(descending=True, stable=True)
    masses = values.softmax(-1)
    before = masses.cumsum(-1) - masses
    values = values.masked_fill((before >= p) & (p < 1), -math.inf)
    return torch.empty_like(logits).scatter(-1, tokens, values)


def min_p(logits: Tensor, p: float) -> Tensor:
    """Only tokens at least `p` times as likely as the likeliest stay.

    Raises ValueError for p outside (0, 1]. Nguyen et al. 2024.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, 1, above=True, p=p)
    lowest = logits.amax(-1, keepdim=True) + math.log(p)
    return logits.masked_fill(logits < lowest, -math.inf)


def sample(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A token drawn from softmax(logits): (... v) -> (...).

    The Gumbel trick: the largest of logit + noise falls on each token with its
    probability. The noise is -log(-log u) for uniform u, drawn where the generator is.
    """
    check_tensor("floats", "... v", logits=logits)
    device = logits.device if generator is None else generator.device
    noise = torch.empty(logits.shape, device=device).exponential_(generator=generator)
    return (logits - noise.log().to(logits.device)).argmax(-1)


def check_prompt(prompt: Tensor, n_new: int, window: float) -> None:
    """Raise ValueError for a prompt of a wrong shape, or too long with `n_new` more."""
    check_tensor("integers", "... t", prompt=prompt)
    if prompt.dim() not in (1, 2) or prompt.numel() == 0:
        shape = tuple(prompt.shape)
        raise ValueError(f"the prompt has shape {shape}; it must hold 1 token or more")
    check_whole(0, n_new=n_new)
    if prompt.shape[-1] + n_new > window:
        more = f" and {n_new} are to come" * (n_new > 0)
        raise ValueError(
            f"the prompt has {prompt.shape[-1]} tokens{more}, the context_length is"
            f" {window}"
        )


def recomputed(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The logits (b v) after a text (b t), from its last window every time anew."""
    return lambda tokens: model(tokens[:, -model.config.context_length :], at=-1)


def cached(
    model: nn.Module, caches: list[Cache], window: float = math.inf
) -> Callable[[Tensor], Tensor]:
    """The same of a text that grows: what the caches have seen is not computed again.

    The text goes on from what they hold before. Past the window all is recomputed.
    """
    n_seen = 0

    def after(tokens: Tensor) -> Tensor:
        nonlocal n_seen
        if tokens.shape[1] > window:
            return recomputed(model)(tokens)
        new, n_seen = tokens[:, n_seen:], tokens.shape[1]
        return model(new, caches, at=-1)

    return after


def ragged(
    model: nn.Module, prompts: list[Tensor], capacity: int
) -> Callable[[Tensor], Tensor]:
    """`cached` for prompts (t) of different lengths, padded at their ends to one (b t).

    The padding is forgotten once the prompts have been seen.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    caches = [RaggedCache(capacity, len(prompts)) for _ in model.new_caches(1)]

    def after(tokens: Tensor) -> Tensor:
        if len(caches[0]):
            return model(tokens[:, -1:], caches, at=-1)
        logits = model(tokens, caches, at=lengths - 1)
        for cache in caches:
            cache.truncate(lengths)
        return logits

    return after


def generate(
    model: nn.Module,
    prompt: Tensor | list[Tensor],
    n_new: int,
    *,
    choose: Callable[[Tensor], Tensor] = greedy,
    use_cache: bool = True,
    caches: list[Cache] | None = None,
    end: int | None = None,
) -> Iterator[Tensor]:
    """`n_new` tokens after a prompt, each yielded as it comes: (t) -> (), (b t) -> (b).

    A list of prompts (t) of different lengths -> (b). `choose` turns logits (b v) into
    tokens (b). With a cache a token is computed once. Past the context window the model
    sees the last context_length tokens, recomputed; or whatever `caches`, one a layer,
    let it see, if they are given: the prompt then goes on from what they hold.
    A stream that has drawn `end` repeats it; when all have, generation stops. Noise is
    drawn for the batch: a sampled text is another alone, a greedy one is the same.
    Raises ValueError for a prompt that is empty or beyond the context.
    """
    check_whole(0, n_new=n_new, end=0 if end is None else end)
    window = model.config.context_length if caches is None else math.inf
    if isinstance(prompt, list):
        if not prompt or caches is not None or not use_cache:
            raise ValueError("a list of prompts must hold one, and brings its caches")
        for one in prompt:
            check_tensor("integers", "t", prompt=one)
            check_prompt(one, n_new, window)
        tokens = nn.utils.rnn.pad_sequence(prompt, batch_first=True)
        after = ragged(model, prompt, tokens.shape[1] + n_new)
        return write(model, tokens, after, n_new, choose, end)
    check_prompt(prompt, 0, window)
    tokens = prompt if prompt.dim() == 2 else prompt[None]
    after = recomputed(model)
    if caches is not None:
        after = usable_later(cached(model, caches))
    elif use_cache:
        caches = model.new_caches(min(window, tokens.shape[1] + n_new))
        after = cached(model, caches, window)
    written = write(model, tokens, after, n_new, choose, end)
    return written if prompt.dim() == 2 else (new[0] for new in written)


def usable_later(after: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Without inference mode: what it leaves in a cache, nothing else could go on."""
    return torch.inference_mode(False)(torch.no_grad()(after))


def write(
    model: nn.Module,
    tokens: Tensor,
    after: Callable[[Tensor], Tensor],
    n_new: int,
    choose: Callable[[Tensor], Tensor],
    end: int | None,
) -> Iterator[Tensor]:
    """The loop of `generate`: logits after the tokens (b t), one chosen (b), joined on.

    Only where an `end` is to be found is anything read back from the device.
    """
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(n_new):
        with evaluating(model), torch.inference_mode():
            new = choose(after(tokens))
        if new.shape != ended.shape or new.is_floating_point():
            raise ValueError(
                f"choose gives {given(new)}; it must be integers {tuple(ended.shape)}"
            )
        new = new.clone()  # an ordinary tensor
        if end is not None:
            new = new.masked_fill(ended, end)
            ended |= new == end
        tokens = torch.cat([tokens, new[:, None]], 1)
        yield new
        if end is not None and ended.all():
            return


Beam = tuple[float, list[int]]  # log-probability or score, new tokens


def grow(beams: list[Beam], chances: Tensor, n: int) -> list[tuple[float, int, int]]:
    """The n likeliest ways to go on by a token: (log-probability, beam, token).

    From log-probabilities (n_beams v); the one place in a step that reads them back.
    """
    totals = chances.new_tensor([total for total, _ in beams])[:, None] + chances
    totals, places = totals.flatten().topk(min(n, totals.numel()))
    pairs = zip(totals.tolist(), places.tolist(), strict=True)
    return [(total, *divmod(place, chances.shape[-1])) for total, place in pairs]


def beam_search(
    model: nn.Module,
    prompt: Tensor,
    n_beams: int,
    n_new: int,
    *,
    length_penalty: float = 0.0,
    end: int | None = None,
    caches: list[Cache] | None = None,
) -> list[Beam]:
    """The likeliest continuations of a prompt (t), best first: (score, new tokens).

    The score is the log-probability divided by length ** length_penalty. All beams go
    through the model in one pass a step, on reordered caches (one a layer, preallocated
    by default). A beam that reaches `end` is finished and leaves its place to the next.
    One beam is greedy search. Raises ValueError for more beams than the vocabulary, and
    where prompt and new tokens exceed the context. Graves 2012; Wu et al. 2016, sec. 7.
    """
    check_beams(model, prompt, n_beams, n_new, length_penalty)
    if end is not None:
        check_whole(0, end=end)
    mode = torch.inference_mode if caches is None else torch.no_grad
    if caches is None:
        caches = model.new_caches(len(prompt) + n_new)
    step, beams, finished = prompt[None], [(0.0, [])], []
    for length in range(1, n_new + 1):
        with evaluating(model), mode():
            chances = model(step, caches, at=-1).log_softmax(-1)
        grown = grow(beams, chances, 2 * n_beams)
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
        for cache in caches:
            cache.reorder(torch.tensor([beam for _, beam, _ in alive]))
    longest = max(1, n_new) ** length_penalty
    finished += [(total / longest, tokens) for total, tokens in beams]
    return sorted(finished, reverse=True)[:n_beams]


def check_beams(
    model: nn.Module, prompt: Tensor, n_beams: int, n_new: int, length_penalty: float
) -> None:
    """Raise ValueError where no search can be made, with the numbers."""
    check_tensor("integers", "t", prompt=prompt)
    check_whole(n_beams=n_beams)
    check_prompt(prompt, n_new, model.config.context_length)
    if n_beams > model.config.d_vocab:
        raise ValueError(
            f"n_beams is {n_beams}; it must be from 1 to {model.config.d_vocab}"
            " (d_vocab)"
        )
    check_between(0, 1, length_penalty=length_penalty)
