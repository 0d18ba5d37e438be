"""Checks of chapter 10, guesses."""

import functools

import torch

from .compare import compare, draw


def guess_chances(answer) -> None:
    """`answer(logits, guess_logits, t)`: (v) to keep each guess, (v) to draw anew."""

    def more(p, q):
        above = (p - q).clamp(min=0)
        return above / above.sum()

    def right(logits, guess_logits, t, kept=None, anew=None, ours=1.0):
        p, q = (logits / ours).softmax(-1), (guess_logits / t).softmax(-1)
        keep = (p / q).clamp(max=1)
        return kept(p, q) if kept else keep, anew(p, q) if anew else more(p, q)

    def other(**changed):
        return functools.partial(right, **changed)

    compare(
        answer,
        right,
        [
            (2 * draw(4, seed=1), draw(4, seed=2), 0.7),
            (draw(5, seed=4), 3 * draw(5, seed=5), 2.0),
            (draw(6, seed=3), draw(6, seed=6), 1.0),
        ],
        {
            "one draws anew from p itself: what q gave already comes twice": (
                other(anew=lambda p, q: p)
            ),
            "what is drawn from doesn't sum to 1: divide it by its sum": (
                other(anew=lambda p, q: (p - q).clamp(min=0))
            ),
            "p - q is below 0 somewhere: no chance is": (
                other(anew=lambda p, q: p - q)
            ),
            "a chance above 1: min(1, p / q)": other(kept=lambda p, q: p / q),
            "p and q are exchanged: keep with min(1, p / q)": (
                other(kept=lambda p, q: (q / p).clamp(max=1))
            ),
            "this is the chance that a guess is drawn and kept: it was drawn already": (
                other(kept=torch.minimum)
            ),
            "one draws from where q lies above p: it must be where p lies above q": (
                other(anew=lambda p, q: more(q, p))
            ),
            "what lies below q counts as well: max(0, p - q)": (
                other(anew=lambda p, q: (p - q).abs() / (p - q).abs().sum())
            ),
            "this is the chance that a guess isn't kept": (
                other(kept=lambda p, q: 1 - (p / q).clamp(max=1))
            ),
            "the guesses' logits are divided by t, the text's aren't": (
                lambda logits, guess_logits, t: right(logits, guess_logits, t, ours=t)
            ),
            "the guesses' logits are divided by t": (
                lambda logits, guess_logits, t: right(logits, guess_logits, 1.0)
            ),
            "t belongs to the guesses' logits, not to the text's": (
                lambda logits, guess_logits, t: right(logits, guess_logits, 1.0, ours=t)
            ),
            "the logits are multiplied by t: divide them": (
                lambda logits, guess_logits, t: right(logits, guess_logits, 1 / t)
            ),
            "the two are exchanged: first the chances to keep": (
                lambda *case: right(*case)[::-1]
            ),
        },
        "guess_chances: kept with min(1, p / q), else drawn from what p has more",
    )
