"""Speculative decoding: cheap guesses, all checked in one pass. Chapter 10.

Leviathan et al. 2023, algorithm 1. The text is distributed as without guesses: a guess
x drawn with chance q(x) is kept with chance min(1, p(x) / q(x)), with the model's p;
the first that is not is replaced by a draw from what p has more than q.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from .cache import RaggedCache
from .inputs import check_tensor, check_whole, given
from .models import evaluating
from .sampling import check_prompt, sample

Guess = tuple[Tensor, Tensor]  # tokens (g), and the chances they were drawn with (g v)


def sure(logits: Tensor) -> Tensor:
    """Chances (... v) that are 1 for the likeliest token: greedy decoding."""
    likeliest = logits.argmax(-1)
    return nn.functional.one_hot(likeliest, logits.shape[-1]).to(logits.dtype)


class LookUp:
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
        return guesses, nn.functional.one_hot(guesses, self.d_vocab).float()


class Smaller:
    """Guesses `n_guesses` tokens by a smaller model of the same vocabulary.

    It keeps a cache of its own, cut back to where text and guesses agree. `chances`
    turns its logits into probabilities, and must not see the text's generator.
    """

    def __init__(
        self,
        model: nn.Module,
        n_guesses: int = 4,
        *,
        chances: Callable[[Tensor], Tensor] = sure,
        generator: torch.Generator | None = None,
    ):
        check_whole(n_guesses=n_guesses)
        self.model, self.n_guesses = model, n_guesses
        self.chances, self.generator = chances, generator
        self.seen = torch.zeros(0, dtype=torch.long)
        capacity = model.config.context_length
        self.caches = [RaggedCache(capacity, 1) for _ in model.new_caches(1)]

    def __call__(self, text: Tensor) -> Guess:
        n = min(len(self.seen), len(text) - 1)
        differ = (self.seen[:n].to(text.device) != text[:n]).nonzero()
        n = int(differ[0]) if len(differ) else n
        n_guesses = min(self.n_guesses, self.caches[0].capacity - len(text))
        guesses, chances = [], []
        with evaluating(self.model), torch.inference_mode():
            for cache in self.caches:
                cache.truncate(torch.tensor([n]))
            for _ in range(n_guesses):
                logits = self.model(text[None, n:], self.caches, at=-1)[0]
                chances.append(self.chances(logits))
                new = sample(chances[-1].log(), self.generator)[None]
                n, text = len(text), torch.cat([text, new])
                guesses.append(new)
        self.seen = text[:n]
        if not guesses:
            none = torch.zeros(0, self.model.config.d_vocab, device=text.device)
            return text[:0], none
        return torch.cat(guesses), torch.stack(chances)


def checked(
    guesses: Tensor, chances: Tensor, wanted: Tensor, generator: torch.Generator | None
) -> Tensor:
    """The guesses (g) kept, and one token more: (1) to (g + 1).

    `chances` (g v) are those they were drawn with, `wanted` (g+1 v) the model's.
    """
    for i, guess in enumerate(guesses):
        kept = wanted[i, guess] / chances[i, guess]
        if torch.rand((), generator=generator) >= kept:
            more = (wanted[i] - chances[i]).clamp(min=0)
            more = more if more.any() else wanted[i]  # equal but for their rounding
            return torch.cat([guesses[:i], sample(more.log(), generator)[None]])
    return torch.cat([guesses, sample(wanted[-1].log(), generator)[None]])


def speculate(
    model: nn.Module,
    prompt: Tensor,
    n_new: int,
    guess: Callable[[Tensor], Guess],
    *,
    chances: Callable[[Tensor], Tensor] = sure,
    generator: torch.Generator | None = None,
    end: int | None = None,
) -> Iterator[Tensor]:
    """`n_new` tokens after a prompt (t), yielded as each pass gives them: (1) or more.

    `guess` takes the text so far (t) and gives tokens (g), with the chances (g v) that
    it drew them with. `chances` turns logits (... v) into probabilities; by default
    all on the likeliest, and then the text is `generate`'s, token for token. Raises
    ValueError for a prompt that is empty, or with n_new beyond the context.
    """
    check_tensor("integers", "t", prompt=prompt)
    check_prompt(prompt, n_new, model.config.context_length)
    length, text = len(prompt) + n_new, prompt
    caches = [RaggedCache(length, 1) for _ in model.new_caches(1)]
    while len(text) < length:
        guessed = guess(text)
        check_guesses(*guessed, model.config.d_vocab)
        guesses, drawn = (x[: length - len(text) - 1] for x in guessed)
        with evaluating(model), torch.inference_mode():
            new = torch.cat([text, guesses])[None, len(caches[0]) :]
            logits = model(new, caches)[0, -len(guesses) - 1 :]
            new = checked(guesses, drawn, chances(logits), generator).clone()
        if end is not None and (ends := (new == end).nonzero()).numel():
            new = new[: int(ends[0]) + 1]
        text = torch.cat([text, new])
        for cache in caches:
            cache.truncate(torch.tensor([len(text) - 1]))  # the last is not seen yet
        yield new
        if new[-1] == end:
            return


def check_guesses(guesses: Tensor, chances: Tensor, d_vocab: int) -> None:
    """Raise ValueError for guesses that are no tokens, or have no chances (g v)."""
    check_tensor("integers", "g", guesses=guesses)
    check_tensor("floats", "g v", chances=chances)
    if chances.shape != (len(guesses), d_vocab):
        raise ValueError(
            f"{len(guesses)} guesses have chances {given(chances)}; they must be"
            f" ({len(guesses)}, {d_vocab})"
        )
