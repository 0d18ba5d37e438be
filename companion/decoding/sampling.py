"""Sampling: from logits to tokens, and from a prompt to text. Chapter 06.

`temperature`, `top_k`, `top_p` and `min_p` take logits (... v) and return new ones, so
they compose in any order; a token that is ruled out has a logit of -inf.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..inputs import check_between, check_tensor, check_whole, shown
from ..model.gpt import evaluating
from ..model.serving_caches import RaggedCache


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or in its own precision if that is higher.

    What is summed, divided or compared is computed so: bfloat16 has three digits.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def greedy(logits: Tensor) -> Tensor:
    """The likeliest token, the first of equals: logits (... v) -> (...).

    Raises ValueError where the largest logit of a row isn't finite: one is NaN or has
    overflowed, or all tokens are ruled out. Only logits on the CPU are read: elsewhere
    reading would wait for the device, and the token is -1, which no vocabulary has.
    """
    largest, tokens = logits.max(-1)
    finite = largest.isfinite()
    if not logits.is_cpu:
        return tokens.masked_fill(~finite, -1)
    if not finite.all():
        raise ValueError(
            f"the largest logit is {largest[~finite][0].item()}; it must be finite:"
            " one is NaN or has overflowed, or all tokens are ruled out"
        )
    return tokens


def temperature(logits: Tensor, t: float) -> Tensor:
    """Logits divided by t: below 1 sharper, above 1 flatter. ValueError for t <= 0.

    Where the largest would overflow, and always in half precision, it is subtracted
    from its row first: probabilities stay, and large quotients aren't rounded to one.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, above=True, t=t)  # greedy is the limit of 0
    z = at_least_float32(logits)
    limits = torch.finfo(z.dtype)
    t = min(max(t, limits.tiny), limits.max)  # 0 / 0 and -inf / inf would be NaN

    highest = z.amax(-1, keepdim=True)
    stays = ~highest.isfinite()
    if z.dtype == logits.dtype:
        stays |= (highest / t).isfinite()
    return ((z - highest.masked_fill(stays, 0)) / t).to(logits.dtype)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k largest logits stay, exactly k even with ties. Fan et al. 2018.

    What was ruled out before stays so, also where fewer than k are left.
    """
    check_tensor("floats", "... v", logits=logits)
    check_whole(k=k)
    if k > logits.shape[-1]:
        raise ValueError(f"k is {k}; it must be from 1 to {logits.shape[-1]} tokens")
    values, tokens = logits.topk(k)
    return torch.full_like(logits, -math.inf).scatter(-1, tokens, values)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Only the smallest set of likeliest tokens with a mass of at least `p` stays.

    A token stays if those before it do not reach p yet: the one that crosses p is in,
    and the likeliest always. The masses are summed in float32 at least. Raises
    ValueError for p outside (0, 1]. Holtzman et al. 2020, eq. 2.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, 1, above=True, p=p)
    values, tokens = logits.sort(descending=True, stable=True)
    masses = at_least_float32(values).softmax(-1)
    before = masses.cumsum(-1) - masses
    ruled_out = (before >= p) & (p < 1)
    ruled_out[..., 0] = False  # a tiny p would be rounded to 0
    values = values.masked_fill(ruled_out, -math.inf)
    return torch.empty_like(logits).scatter(-1, tokens, values)


def min_p(logits: Tensor, p: float) -> Tensor:
    """Only tokens at least `p` times as likely as the likeliest stay.

    They are compared in float32 at least. Raises ValueError for p outside (0, 1].
    Nguyen et al. 2024.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, 1, above=True, p=p)
    z = at_least_float32(logits)
    lowest = z.amax(-1, keepdim=True) + math.log(p)
    return logits.masked_fill(z < lowest, -math.inf)


def sample(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A token drawn from softmax(logits): (... v) -> (...).

    The Gumbel trick: the largest of logit + noise falls on each token with its
    probability. The noise is -log(-log u) for uniform u, drawn where the generator is,
    in float32. Raises ValueError as `greedy` does.
    """
    device = logits.device if generator is None else generator.device
    noise = torch.empty(logits.shape, dtype=torch.float32, device=device)
    noise = noise.exponential_(generator=generator)
    # Some devices draw 0, and -log 0 would let a token win that is ruled out.
    limits = torch.finfo(noise.dtype)
    noise = noise.clamp(limits.tiny, limits.max)
    return greedy(logits - noise.log().to(logits.device))


def check_prompt(prompt: Tensor, n_new: int, window: float) -> None:
    """Raise ValueError for a prompt of a wrong shape, or too long with `n_new` more."""
    check_tensor("integers", "... t", prompt=prompt)
    check_whole(0, n_new=n_new)
    n = prompt.shape[-1]
    if prompt.dim() > 2 or prompt.numel() == 0:
        raise ValueError(f"the prompt is {shown(prompt)}; it must hold 1 token or more")
    if n + n_new > window:
        raise ValueError(f"{n} and {n_new} tokens exceed the context_length ({window})")


def generate(
    model, prompt, n_new: int, *, choose=greedy, use_cache=True, cache=None, end=None
) -> Iterator[Tensor]:
    """`n_new` tokens after a prompt, each yielded as it comes: (t) -> (), (b t) -> (b).

    A list of prompts (t) of different lengths -> (b). `choose` turns logits (b v) into
    tokens (b). Past the context window the model sees the last context_length tokens,
    computed anew, or what a `cache` that is given lets it see; the prompt goes on from
    what that holds. A stream that has drawn `end` repeats it; when all have, generation
    stops. Raises ValueError for a prompt that is empty or beyond the context.
    """
    check_whole(0, n_new=n_new, end=0 if end is None else end)
    window = model.config.context_length if cache is None else math.inf
    how = {"n_new": n_new, "choose": choose, "end": end, "window": window}
    how["mode"] = torch.inference_mode if cache is None else torch.no_grad
    if isinstance(prompt, list):
        if not prompt or cache is not None or not use_cache:
            raise ValueError("a list of prompts must hold one, and brings its cache")
        for one in prompt:
            check_tensor("integers", "t", prompt=one)
            check_prompt(one, n_new, window)
        tokens = nn.utils.rnn.pad_sequence(prompt, batch_first=True)
        cache = RaggedCache(tokens.shape[1] + n_new, len(prompt))
        lengths = torch.tensor([len(one) for one in prompt])
        return write(model, tokens, cache, lengths=lengths, **how)
    check_prompt(prompt, 0, window)
    tokens = prompt if prompt.dim() == 2 else prompt[None]
    if use_cache and cache is None:
        cache = model.new_cache(min(window, tokens.shape[1] + n_new))
    written = write(model, tokens, cache, **how)
    return written if prompt.dim() == 2 else (new[0] for new in written)


def write(
    model, tokens, cache, *, n_new, choose, end, window, mode, lengths=None
) -> Iterator[Tensor]:
    """The loop of `generate`: logits after the tokens (b t), one chosen (b), joined on.

    Prompts that were padded to one length have their own `lengths` (b).
    """
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    unread, last = tokens, -1 if lengths is None else lengths - 1
    for _ in range(n_new):
        with evaluating(model), mode():
            if cache is None or tokens.shape[1] > window:
                logits = model(tokens[:, -model.config.context_length :], last=-1)
            else:
                logits = model(unread, cache, last=last)
            if lengths is not None:
                cache.truncate(lengths)  # the padding is forgotten
                lengths, last = None, -1
            new = choose(logits)
        new = new.clone()  # an ordinary tensor, not one of inference mode
        if end is not None:
            new = new.masked_fill(ended, end)
            ended |= new == end
        unread = new[:, None]
        tokens = torch.cat([tokens, unread], 1)
        yield new
        if end is not None and ended.all():
            return
