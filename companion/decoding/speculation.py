"""Speculative decoding: cheap guesses, all checked in one pass. Chapter 10.

Leviathan et al. 2023, algorithm 1. The text is distributed as without guesses: a guess
x drawn with chance q(x) is kept with chance min(1, p(x) / q(x)), with the model's p;
the first that is not is replaced by a draw from what p has more than q.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..inputs import check_tensor, check_whole
from ..model.gpt import evaluating
from ..model.serving_caches import RaggedCache
from .sampling import at_least_float32, check_prompt, greedy, sample

# Tokens (g), and the probabilities (g v) that they were drawn with.
Guess = tuple[Tensor, Tensor]


def greedy_probabilities(logits: Tensor) -> Tensor:
    """Probabilities (... v) that are 1 for the likeliest token: greedy decoding."""
    likeliest = greedy(logits)
    return nn.functional.one_hot(likeliest, logits.shape[-1]).to(logits.dtype)


class PromptLookup:
    """Guesses what followed when the last `n_same` tokens stood in the text before.

    Called with a text (t): at most `n_guesses` tokens, none where they never stood.
    Saxena 2023 (prompt look-up decoding).
    """

    def __init__(self, d_vocab: int, n_guesses: int = 4, n_same: int = 3):
        check_whole(d_vocab=d_vocab, n_guesses=n_guesses, n_same=n_same)
        self.d_vocab, self.n_guesses, self.n_same = d_vocab, n_guesses, n_same

    def __call__(self, text: Tensor) -> Guess:
        n = self.n_same
        guesses = text[:0]
        if len(text) > n:
            same = (text.unfold(0, n, 1)[:-1] == text[-n:]).all(-1).nonzero()
            if len(same):
                start = int(same[-1]) + n
                guesses = text[start : start + self.n_guesses]
        return guesses, nn.functional.one_hot(guesses.long(), self.d_vocab).float()


def accept(guesses: Tensor, probabilities: Tensor, wanted: Tensor, generator) -> Tensor:
    """The guesses (g) kept, and one token more: (1) to (g + 1).

    `probabilities` (g v) are those they were drawn with, `wanted` (g+1 v) the model's.
    """
    probabilities = at_least_float32(probabilities)  # their differences are small
    wanted = at_least_float32(wanted)
    for i, guess in enumerate(guesses):
        kept = wanted[i, guess] / probabilities[i, guess]
        if not torch.rand((), generator=generator) < kept:  # nor where it is 0 / 0
            more = (wanted[i] - probabilities[i]).clamp(min=0)
            more = more if more.any() else wanted[i]  # equal but for their rounding
            return torch.cat([guesses[:i], sample(more.log(), generator)[None]])
    return torch.cat([guesses, sample(wanted[-1].log(), generator)[None]])


def speculate(
    model,
    prompt: Tensor,
    n_new: int,
    guess: Callable[[Tensor], Guess],
    *,
    probabilities=greedy_probabilities,
    generator=None,
    end=None,
) -> Iterator[Tensor]:
    """`n_new` tokens after a prompt (t), yielded as each pass gives them: (1) or more.

    `guess` takes the text so far (t) and gives tokens (g), with the probabilities (g v)
    that it drew them with. `probabilities` turns logits (... v), which it is given in
    float32 at least, into such; by default all is on the likeliest, and the text is
    `generate`'s, token for token, up to ties of the arithmetic: a pass of several
    tokens sums in another order than passes of one. In float32 nearly no two logits are
    that close; in bfloat16, or with packed weights, some are. Raises ValueError for a
    prompt that is empty, or with n_new beyond the context, and as `greedy` does.
    """
    check_tensor("integers", "t", prompt=prompt)
    check_prompt(prompt, n_new, model.config.context_length)
    length, text = len(prompt) + n_new, prompt
    cache = RaggedCache(length, 1)
    while len(text) < length:
        guesses, drawn = (x[: length - len(text) - 1] for x in guess(text))
        with evaluating(model), torch.inference_mode():
            new = torch.cat([text, guesses])[None, len(cache) :]
            logits = model(new, cache)[0, -len(guesses) - 1 :]
            wanted = probabilities(at_least_float32(logits))
            new = accept(guesses, drawn, wanted, generator).clone()
        if end is not None and (ends := (new == end).nonzero()).numel():
            new = new[: int(ends[0]) + 1]
        text = torch.cat([text, new])
        cache.truncate(torch.tensor([len(text) - 1]))  # the last is not seen yet
        yield new
        if new[-1] == end:
            return
