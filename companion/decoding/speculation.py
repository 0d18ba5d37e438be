"""Speculative decoding: a cheap draft, checked by the model in one pass. Chapter 10.

Leviathan et al. 2023, algorithm 1. The text is distributed as without a draft: a token
x drafted with probability q(x) is accepted with probability min(1, p(x) / q(x)), with
the model's p; the first that is not is replaced by a draw from what p has more than q.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..device import at_least_float32
from ..inputs import check_in_vocabulary, check_tensor, check_whole
from ..model.gpt import LanguageModel, evaluating
from ..model.serving_caches import RaggedCache
from .sampling import check_end, check_prompt, greedy, sample

# Tokens (g), and the probabilities (g v) that they were drawn with.
Draft = tuple[Tensor, Tensor]


def greedy_probabilities(logits: Tensor) -> Tensor:
    """Returns probabilities (... v) that are 1 for the likeliest token of each row.

    So speculation decodes greedily. Raises ValueError as `greedy` does.
    """
    likeliest = greedy(logits)
    return nn.functional.one_hot(likeliest, logits.shape[-1]).to(logits.dtype)


class PromptLookup:
    """Drafts what followed when the last `n_same` tokens stood in the text before.

    Called with a text (t), it returns at most `n_guesses` tokens, none where the last
    ones never stood before, and their probabilities, which are 1. Raises ValueError for
    a token beyond `d_vocab`. Saxena 2023 (prompt look-up decoding).
    """

    def __init__(self, d_vocab: int, n_guesses: int = 4, n_same: int = 3):
        check_whole(d_vocab=d_vocab, n_guesses=n_guesses, n_same=n_same)
        self.d_vocab = d_vocab
        self.n_guesses = n_guesses
        self.n_same = n_same

    def __call__(self, text: Tensor) -> Draft:
        n = self.n_same
        draft_tokens = text[:0]
        if len(text) > n:
            windows = text.unfold(0, n, 1)[:-1]  # all but the last tokens themselves
            found = (windows == text[-n:]).all(-1).nonzero()
            if len(found):
                start = int(found[-1]) + n
                draft_tokens = text[start : start + self.n_guesses]
        check_in_vocabulary(self.d_vocab, tokens=draft_tokens)
        one_hot = nn.functional.one_hot(draft_tokens.long(), self.d_vocab)
        return draft_tokens, one_hot.float()


def check_drawn(tokens: Tensor, probabilities: Tensor) -> None:
    """Raises ValueError for a token (g) that its row (g v) gives no chance."""
    for i, token in enumerate(tokens.tolist()):
        chance = probabilities[i, token].item()
        if not chance > 0:
            raise ValueError(
                f"token {token} was drafted in row {i}, whose draft_probabilities give"
                f" it {chance:g}: hand over those that it was drawn with"
            )


def check_sums(name: str, probabilities: Tensor) -> None:
    """Raises ValueError for a row (... v) that doesn't sum to 1, up to its rounding."""
    # A softmax divides by a sum of v terms, each rounded by half an eps at most, and
    # the quotients may come in a coarser dtype. Here no more rounding is added.
    d_vocab = probabilities.shape[-1]
    eps = torch.finfo(torch.float32).eps
    if probabilities.is_floating_point():
        eps = max(eps, torch.finfo(probabilities.dtype).eps)
    tolerance = d_vocab * torch.finfo(torch.float32).eps + 2 * eps
    for i, total in enumerate(probabilities.double().sum(-1).tolist()):
        if abs(total - 1) > tolerance:
            raise ValueError(f"row {i} of {name} sums to {total:g}; it must sum to 1")


def accept(
    draft_tokens: Tensor,
    draft_probabilities: Tensor,
    target_probabilities: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Accepts the first drafted tokens (g), and draws one more: (1) to (g + 1).

    They were drawn with draft_probabilities (g v); the model's own, the target, are
    (g+1 v). Raises ValueError as `sample` does, for another number of rows, for a token
    that can't have been drawn so, and for a row that doesn't sum to 1; on an
    accelerator, where to look is to wait, these two aren't looked for. Leviathan et al.
    2023, algorithm 1.
    """
    n_rows = len(draft_probabilities), len(target_probabilities)
    n_drafted = len(draft_tokens)
    if n_rows != (n_drafted, n_drafted + 1):
        raise ValueError(
            f"{n_rows[0]} rows of draft_probabilities and {n_rows[1]} of"
            f" target_probabilities for {n_drafted} drafted tokens: they must be"
            f" {n_drafted} and {n_drafted + 1}"
        )

    check_in_vocabulary(target_probabilities.shape[-1], draft_tokens=draft_tokens)

    # In bfloat16 the small differences of the two would be lost.
    draft = at_least_float32(draft_probabilities)
    target = at_least_float32(target_probabilities)
    if draft.is_cpu:
        check_drawn(draft_tokens, draft)
        check_sums("draft_probabilities", draft_probabilities)
        check_sums("target_probabilities", target_probabilities)

    device = None if generator is None else generator.device
    for i, token in enumerate(draft_tokens):
        acceptance = target[i, token] / draft[i, token]
        drawn = torch.rand((), generator=generator, device=device)
        if drawn < acceptance:
            continue

        # The first that is rejected is replaced by what was drafted too rarely.
        residual = (target[i] - draft[i]).clamp(min=0)
        if not residual.any():
            residual = target[i]  # the two are equal but for their rounding
        replacement = sample(residual.log(), generator)
        return torch.cat([draft_tokens[:i], replacement[None]])

    # All were accepted, and the pass has given the probabilities of the next as well.
    following = sample(target[-1].log(), generator)
    return torch.cat([draft_tokens, following[None]])


def speculate(
    model: LanguageModel,
    prompt: Tensor,
    n_new: int,
    guess: Callable[[Tensor], Draft],
    *,
    probabilities: Callable[[Tensor], Tensor] = greedy_probabilities,
    generator: torch.Generator | None = None,
    end: int | None = None,
) -> Iterator[Tensor]:
    """Writes `n_new` tokens after a prompt (t). Returns each pass's: (1) or more.

    guess: takes the text so far (t) and drafts tokens (g), with the probabilities (g v)
    that it drew them with, as a `PromptLookup` does.
    probabilities: turns the model's logits (... v), in float32 at least, into such. By
    default all is on the likeliest.
    generator: draws what is accepted, and what replaces the rest.
    end: the text ends with this token.

    The text is distributed as without a draft. By default it is `generate`'s, token for
    token, up to ties of the arithmetic: a pass of several tokens sums in another order
    than passes of one. In float32 nearly no two logits are that close; in bfloat16, or
    with packed weights, some are. Then nothing is drawn, and no generator moves. Raises
    ValueError at once for a prompt that is empty, or with n_new beyond the context, and
    in a pass as `greedy` does. Leviathan et al. 2023, algorithm 1.
    """
    check_tensor("integers", "t", prompt=prompt)
    check_prompt(prompt, n_new, model.config.context_length)
    check_end(end, model.config.d_vocab)
    if probabilities is greedy_probabilities:
        generator = torch.Generator(prompt.device)  # whatever it draws, one is sure
    return passes(model, prompt, n_new, guess, probabilities, generator, end)


def passes(
    model: LanguageModel,
    prompt: Tensor,
    n_new: int,
    guess: Callable[[Tensor], Draft],
    probabilities: Callable[[Tensor], Tensor],
    generator: torch.Generator | None,
    end: int | None,
) -> Iterator[Tensor]:
    """Runs the loop of `speculate`. Returns what each pass has written."""
    text = prompt
    length = len(prompt) + n_new
    cache = RaggedCache(length, 1)  # the one that can forget wrong guesses

    while len(text) < length:
        # Each pass adds a token to those that are accepted.
        n_most = length - len(text) - 1
        draft_tokens, draft_probabilities = guess(text)
        draft_tokens = draft_tokens[:n_most]
        draft_probabilities = draft_probabilities[:n_most]

        # One pass gives the logits after the text and after each drafted token.
        with evaluating(model), torch.inference_mode():
            unread = torch.cat([text, draft_tokens])[None, len(cache) :]
            logits = model(unread, cache)[0, -len(draft_tokens) - 1 :]
            target_probabilities = probabilities(at_least_float32(logits))
            new = accept(
                draft_tokens, draft_probabilities, target_probabilities, generator
            )
        new = new.clone()  # an ordinary tensor, not one of inference mode

        if end is not None:
            ends = (new == end).nonzero()
            if len(ends):
                new = new[: int(ends[0]) + 1]
        text = torch.cat([text, new])
        cache.truncate(torch.tensor([len(text) - 1]))  # the last is not read yet
        yield new
        if end is not None and new[-1] == end:
            return
