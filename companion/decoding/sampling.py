"""Sampling: from logits to tokens, and from a prompt to text. Chapter 06.

`temperature`, `top_k`, `top_p` and `min_p` take logits (... v) and return new ones, so
they compose in any order; a token that is ruled out has a logit of -inf. Like `greedy`
they raise ValueError for a row whose largest logit isn't finite.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from ..device import at_least_float32
from ..inputs import check_between, check_tensor, check_whole, shown
from ..model.cache import Cache
from ..model.gpt import LanguageModel, evaluating
from ..model.serving_caches import RaggedCache

N_SORTED = 4096  # so many tokens are sorted without looking for the likely ones


def greedy(logits: Tensor) -> Tensor:
    """Takes the likeliest token, the first of equals: logits (... v) -> (...).

    Raises ValueError where the largest logit of a row isn't finite: one is NaN or has
    overflowed, or all tokens are ruled out. On an accelerator, where to look at a
    number is to wait for it, such a row's token is -1 instead, which no vocabulary
    has. Chapter 06.
    """
    largest, tokens = logits.max(-1)
    if not logits.is_cpu:
        return tokens.masked_fill(~largest.isfinite(), -1)

    check_largest(largest)
    return tokens


def check_largest(largest: Tensor) -> None:
    """Raises ValueError where a row's largest logit (...) isn't finite, and names it.

    On an accelerator nothing is looked at.
    """
    if not largest.is_cpu or largest.isfinite().all():
        return
    row = (~largest.isfinite()).nonzero()[0].tolist()
    number = largest[tuple(row)].item()
    where = f" in row {row}" if row else ""
    raise ValueError(
        f"the largest logit is {number}{where}; it must be finite: one is NaN or has"
        " overflowed, or all tokens are ruled out"
    )


def temperature(logits: Tensor, t: float) -> Tensor:
    """Divides logits (... v) by t. Returns sharper ones below 1, flatter ones above.

    Where the largest would overflow, and always in half precision, it is subtracted
    from its row first: probabilities stay, and large quotients aren't rounded to one.
    Raises ValueError for t <= 0. Hinton et al. 2015, eq. 1.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, above=True, t=t)  # greedy is the limit of 0
    z = at_least_float32(logits)
    limits = torch.finfo(z.dtype)
    t = min(max(t, limits.tiny), limits.max)  # 0 / 0 and -inf / inf would be NaN

    # The rows that need it are shifted until their largest logit is 0.
    highest = z.amax(-1, keepdim=True)
    check_largest(highest[..., 0])
    is_shifted = highest.isfinite()
    if z.dtype == logits.dtype:
        is_shifted = is_shifted & ~(highest / t).isfinite()
    shift = highest.masked_fill(~is_shifted, 0)
    return ((z - shift) / t).to(logits.dtype)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Rules out all but the k largest logits (... v), exactly k even with ties.

    What was ruled out before stays so, also where fewer than k are left. Raises
    ValueError for k outside 1 to v. Fan et al. 2018.
    """
    check_tensor("floats", "... v", logits=logits)
    check_whole(k=k)
    if k > logits.shape[-1]:
        raise ValueError(f"k is {k}; it must be from 1 to {logits.shape[-1]} tokens")
    values, tokens = logits.topk(k)
    check_largest(values[..., 0])
    return torch.full_like(logits, -math.inf).scatter(-1, tokens, values)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Rules out all but the smallest set of likeliest tokens with a mass of p or more.

    A token stays if those before it do not reach p yet: the one that crosses p is in,
    and the likeliest always; of equals, the first. The masses of logits (... v) are
    summed in float64 on a CPU, so that p is reached where it should be by 50,000 small
    ones, too; elsewhere in float32 at least. Raises ValueError for p outside (0, 1].
    Holtzman et al. 2020, eq. 2.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, 1, above=True, p=p)
    check_largest(logits.amax(-1))
    exact = logits.double() if logits.is_cpu else at_least_float32(logits)
    masses = exact.softmax(-1)

    # Tokens of less than a share of what p leaves hold less than that together: none of
    # them is kept. Where few others are in every row, these alone are sorted.
    d_vocab = logits.shape[-1]
    if d_vocab > N_SORTED and logits.is_cpu:
        n_likely = (masses >= (1 - p) / d_vocab).sum(-1).flatten().tolist()
        n_most = max(n_likely, default=d_vocab)
        if n_most <= N_SORTED:
            tokens = logits.topk(n_most).indices.sort(-1).values
            likely = logits.gather(-1, tokens)
            kept, order = nucleus(likely, masses.gather(-1, tokens), p)
            shaped = torch.full_like(logits, -math.inf)
            return shaped.scatter(-1, tokens.gather(-1, order), kept)

    kept, order = nucleus(logits, masses, p)
    return torch.empty_like(logits).scatter(-1, order, kept)


def nucleus(logits: Tensor, masses: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Sorts logits (... n), and rules out those before which the mass is p already.

    Returns the logits from the likeliest on, equals in their order, and where each
    stood.
    """
    values, order = logits.sort(descending=True, stable=True)
    masses = masses.gather(-1, order)
    before = masses.cumsum(-1) - masses
    ruled_out = (before >= p) & (p < 1)
    ruled_out[..., 0] = False  # a tiny p would be rounded to 0
    return values.masked_fill(ruled_out, -math.inf), order


def min_p(logits: Tensor, p: float) -> Tensor:
    """Rules out the tokens less than `p` times as likely as the likeliest.

    The logits (... v) are compared in float32 at least. Raises ValueError for p outside
    (0, 1]. Nguyen et al. 2024.
    """
    check_tensor("floats", "... v", logits=logits)
    check_between(0, 1, above=True, p=p)
    z = at_least_float32(logits)
    highest = z.amax(-1, keepdim=True)
    check_largest(highest[..., 0])
    lowest = highest + math.log(p)
    return logits.masked_fill(z < lowest, -math.inf)


def sample(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draws a token from softmax(logits): (... v) -> (...).

    The Gumbel trick: the largest of logit + noise falls on each token with its
    probability. The noise is -log(-log u) for uniform u, drawn where the generator is,
    in float32. Raises ValueError as `greedy` does. Maddison et al. 2014.
    """
    device = logits.device if generator is None else generator.device
    noise = torch.empty(logits.shape, dtype=torch.float32, device=device)
    noise = noise.exponential_(generator=generator)  # -log u

    # Some devices draw 0, and -log 0 would let any token win. They draw in steps of
    # 2**-24, and half a step stands for what is rounded to 0.
    noise = noise.clamp(2**-25, torch.finfo(noise.dtype).max)
    return greedy(logits - noise.log().to(logits.device))


def check_prompt(prompt: Tensor, n_new: int, window: int | None) -> None:
    """Checks a prompt (t) or (b t), and that `n_new` tokens more fit a window.

    A `window` of None has no end. Raises ValueError for another shape, and for what is
    too long.
    """
    check_tensor("integers", "... t", prompt=prompt)
    check_whole(0, n_new=n_new)
    n = prompt.shape[-1]
    if prompt.dim() > 2 or prompt.numel() == 0:
        raise ValueError(f"the prompt is {shown(prompt)}; it must hold 1 token or more")
    if window is not None and n + n_new > window:
        raise ValueError(f"{n} and {n_new} tokens exceed the context_length ({window})")


def check_end(end: int | None, d_vocab: int) -> None:
    """Raises ValueError for an `end` that no token is, so that no text would end."""
    if end is None:
        return
    check_whole(0, end=end)
    if end >= d_vocab:
        raise ValueError(f"end is {end}; the vocabulary is 0 to {d_vocab - 1}")


def prefill(
    model: LanguageModel, prompts: list[Tensor], n_new: int
) -> tuple[RaggedCache, Tensor]:
    """Reads prompts (t) of different lengths in one pass, padded at the end.

    Returns a cache that holds them without their padding, with room for `n_new` tokens
    more, and the logits (b v) after each prompt. Raises ValueError for an empty one.
    Chapter 10.
    """
    for prompt in prompts:
        check_prompt(prompt, n_new, None)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    tokens = nn.utils.rnn.pad_sequence(prompts, batch_first=True)
    cache = RaggedCache(tokens.shape[1] + n_new, len(prompts))
    logits = model(tokens, cache, last=lengths - 1)
    cache.truncate(lengths)
    return cache, logits


def generate(
    model: LanguageModel,
    prompt: Tensor | list[Tensor],
    n_new: int,
    *,
    choose: Callable[[Tensor], Tensor] = greedy,
    use_cache: bool = True,
    cache: Cache | None = None,
    end: int | None = None,
) -> Iterator[Tensor]:
    """Writes `n_new` tokens after a prompt. Returns each as it comes.

    prompt: (t) gives tokens (); a batch of prompts (b t) gives tokens (b), and so does
    a list of b prompts (t) of different lengths.
    choose: turns logits (b v) into tokens (b).
    use_cache: keys and values are kept; without, each token is a pass over the text.
    cache: one that is kept beyond. The prompt goes on from what it holds, and it says
    how far the model sees. It doesn't hold the last token that was written, with which
    the next prompt begins. Without one it sees the last context_length tokens, all
    computed anew for each token past them.
    end: a stream that has drawn it repeats it; when all have, generation stops.

    Raises ValueError at once for a prompt that is empty or beyond the context, and for
    options that do not fit. Chapters 06 and 07.
    """
    check_whole(0, n_new=n_new)
    check_end(end, model.config.d_vocab)
    if cache is not None and not use_cache:
        raise ValueError("a cache is passed in, and use_cache is False: choose one")

    if isinstance(prompt, list):
        if not prompt or cache is not None or not use_cache:
            raise ValueError("a list of prompts must hold one, and brings its cache")
        tokens, read = start_ragged(model, prompt, n_new)
    else:
        tokens, read = start_one_length(model, prompt, n_new, use_cache, cache)

    # Inference mode decodes a small model 6 to 10% faster than `no_grad`, but what is
    # made in it takes no part in a training: not for the cache of a caller, who may
    # train on.
    without_gradients: Callable[[], AbstractContextManager[object]] = torch.no_grad
    if cache is None:
        without_gradients = torch.inference_mode
    parts = [*model.modules()]  # found once, not for every token

    def next_tokens(tokens: Tensor) -> Tensor:
        with evaluating(model, parts), without_gradients():
            new = choose(read(tokens))
        return new.clone()  # an ordinary tensor, not one of inference mode

    written = decode(next_tokens, tokens, n_new, end)
    if isinstance(prompt, Tensor) and prompt.dim() == 1:
        return (new[0] for new in written)
    return written


def start_one_length(
    model: LanguageModel,
    prompt: Tensor,
    n_new: int,
    use_cache: bool,
    cache: Cache | None,
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Returns the prompt (b t), and `read`: all tokens so far -> the logits (b v) then.

    Raises ValueError for a prompt that is empty or beyond the context.
    """
    # A caller's cache says by itself how far the model sees. One text may outgrow the
    # window, which then slides; a ragged batch can't.
    window = model.config.context_length if cache is None else None
    check_prompt(prompt, 0, window)
    first = prompt if prompt.dim() == 2 else prompt[None]
    if use_cache and window is not None:
        cache = model.new_cache(min(window, first.shape[1] + n_new))
    n_read = 0

    def read(tokens: Tensor) -> Tensor:
        nonlocal n_read
        text = tokens if window is None else tokens[:, -window:]
        slides = text.shape[1] < tokens.shape[1]
        if cache is None or slides:
            return model(text, last=-1)

        # What a cache holds need not be read again, until the window slides.
        unread = tokens[:, n_read:]
        n_read = tokens.shape[1]
        return model(unread, cache, last=-1)

    return first, read


def start_ragged(
    model: LanguageModel, prompts: list[Tensor], n_new: int
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Returns no tokens (b 0), and `read`: all that were written -> the logits (b v).

    The prompts (t), of different lengths, come before them, and are not joined on to.
    Raises ValueError for one that is empty or beyond the context.
    """
    for prompt in prompts:
        check_tensor("integers", "t", prompt=prompt)
        check_prompt(prompt, n_new, model.config.context_length)
    cache: Cache | None = None

    def read(written: Tensor) -> Tensor:
        nonlocal cache
        if cache is None:
            cache, logits = prefill(model, prompts, n_new)
            return logits
        return model(written[:, -1:], cache, last=-1)

    return prompts[0].new_empty(len(prompts), 0), read


def decode(
    next_tokens: Callable[[Tensor], Tensor], tokens: Tensor, n_new: int, end: int | None
) -> Iterator[Tensor]:
    """Runs the loop of `generate` after tokens (b t). Returns the next ones, each (b).

    `next_tokens` takes all tokens so far (b t) and chooses those that follow (b).
    """
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(n_new):
        new = next_tokens(tokens)
        if end is not None:
            new = new.masked_fill(ended, end)
            ended = ended | (new == end)
        tokens = torch.cat([tokens, new[:, None]], 1)
        yield new
        if end is not None and ended.all():
            return
