"""Checks of chapter 07."""

from itertools import accumulate

import torch

from ..attention import causal_mask
from .compare import Mistake, compare


def next_positions(answer) -> None:
    """`answer(cached, n_new)`: (b) tokens so far -> (b t), positions of the next."""

    def right(cached, n_new):
        return cached[:, None] + torch.arange(n_new)

    def like(stream):
        return lambda cached, n: right(stream(cached).expand(len(cached)), n)

    compare(
        answer,
        right,
        [(torch.tensor([3, 5]), 3), (torch.tensor([9, 2, 4]), 1)],
        {
            "every piece begins at 0 again: it goes on where its stream stopped": (
                lambda cached, n: torch.arange(n).expand(len(cached), n)
            ),
            "one too far: with 5 cached, at 0 to 4, the next position is 5": (
                lambda cached, n: right(cached, n) + 1
            ),
            "one too early: with 5 cached, at 0 to 4, the next position is 5": (
                lambda cached, n: right(cached, n) - 1
            ),
            "all streams go on from the longest: each has a count of its own": like(
                torch.max
            ),
            "all streams go on from the first: each has a count of its own": like(
                lambda cached: cached[:1]
            ),
            "only one position a stream: there are n_new of them": (
                lambda cached, n: cached[:, None]
            ),
            "the shape is (t b): a row is a stream": lambda cached, n: (
                right(cached, n).T
            ),
            "these are floats: a position is a whole number": (
                lambda cached, n: right(cached, n).float()
            ),
        },
        "next_positions: no pointer, nothing to put back",
    )


def offset_mask(answer) -> None:
    """`answer(lengths)`: for pieces of these lengths a list of masks (t s), bool."""

    def right(n_new, n_old):
        return causal_mask(n_new, n_old + n_new)

    def band(n_new, n_old, last):
        """Each query sees keys up to `last` beyond the key of its own number."""
        return torch.ones(n_new, n_old + n_new).tril(last).bool()

    def pieces(mask, begin=0):
        """`mask` of each piece, given its length and how many tokens came before."""

        def masks(lengths):
            olds = accumulate(lengths, initial=begin)
            return [mask(n, old) for n, old in zip(lengths, olds, strict=False)]

        return masks

    compare(
        answer,
        pieces(right),
        [([3, 2],), ([1, 2, 4, 1],), ([2, 5, 3],)],
        {
            "each piece starts at key 0 again: it stands after the kept keys": (
                pieces(lambda n, old: band(n, old, 0))
            ),
            "only the new keys are there: the kept ones come before them": (
                pieces(lambda n, old: causal_mask(n))
            ),
            "only the piece before is kept: all earlier ones are": (
                lambda lengths: [
                    right(n, old)
                    for n, old in zip(lengths, [0, *lengths], strict=False)
                ]
            ),
            "there are columns for keys to come: a piece has those up to its end": (
                lambda lengths: list(causal_mask(sum(lengths)).split(lengths))
            ),
            "this is one mask for the whole text: give one for each piece": (
                lambda lengths: causal_mask(sum(lengths))
            ),
            "the piece is counted among the kept ones too: they end before it": (
                lambda lengths: [
                    right(n, old)
                    for n, old in zip(lengths, accumulate(lengths), strict=True)
                ]
            ),
            "a query does not see its own key: use >=, not >": (
                pieces(lambda n, old: band(n, old, old - 1))
            ),
            "one too far: a query also sees the key after its own": (
                pieces(lambda n, old: band(n, old, old + 1))
            ),
            "True and False are swapped: True means may attend": (
                pieces(lambda n, old: ~right(n, old))
            ),
            "all queries see all keys: the last of the piece must not show early": (
                pieces(lambda n, old: torch.ones(n, old + n, dtype=torch.bool))
            ),
            "the kept keys are hidden: every new query sees all of them": (
                pieces(lambda n, old: right(n, old) & (torch.arange(old + n) >= old))
            ),
            "a query also sees what comes after it: the comparison is turned round": (
                pieces(lambda n, old: ~band(n, old, old - 1))
            ),
            "the axes are swapped: a query is a row, a key a column": (
                pieces(lambda n, old: right(n, old).mT)
            ),
            "there is a row for each old token too: only the new ones ask": (
                pieces(lambda n, old: causal_mask(old + n))
            ),
            "these are numbers: a mask is bool, as a comparison gives it": (
                pieces(lambda n, old: right(n, old).float())
            ),
            "these are integers: a mask is bool, as a comparison gives it": (
                pieces(lambda n, old: right(n, old).int())
            ),
            "this is what is added to the scores (0 and -inf): the mask is bool": (
                pieces(lambda n, old: right(n, old).float().log())
            ),
        },
        "offset_mask: in each piece the last query meets the last key in the corner",
    )


def loop(answer) -> None:
    """`answer(step, prompt, n_new)`: the new tokens, each token handed over once.

    `step(new, kept)` takes lists and gives the next token and what is kept then.
    """

    def traced(function):
        """What a loop writes, and all tokens that it hands to its `step`, in order."""

        def run(prompt, n_new):
            handed = []

            def step(new, kept):
                if isinstance(new, int):
                    raise Mistake(f"loop: `step` takes a list: [{new}], not {new}")
                handed.extend(new)
                kept = [*kept, *new]
                return sum(i * x for i, x in enumerate(kept, 2)) % 89, kept

            return function(step, prompt, n_new), handed

        return run

    def writes(new, keeps=True, ends=None):
        """A loop that hands over `new(prompt, written)` each time."""

        def write(step, prompt, n_new):
            written, kept = [], []
            for _ in range(n_new):
                token, after = step(new(prompt, written), kept)
                written, kept = [*written, token], after if keeps else []
            return ends(prompt, written) if ends else written

        return traced(write)

    def once(prompt, written):
        return written[-1:] or prompt

    def whole(prompt, written):
        return [*prompt, *written]

    compare(
        traced(answer) if callable(answer) else answer,
        writes(once),
        [([3, 1, 4], 4), ([5], 6), ([2, 7, 1, 8, 2], 3)],
        {
            "it hands over what is kept already: after the prompt only the newest token"
            " is new": writes(whole),
            "it keeps nothing and hands over the whole text every time: the tokens are"
            " right, and nothing is saved": writes(whole, keeps=False),
            "what is kept is thrown away: hand it to the next call": (
                writes(once, keeps=False)
            ),
            "the cache sees the last token of the prompt alone: hand over all": (
                writes(lambda prompt, written: whole(prompt, written)[-1:])
            ),
            "the prompt is handed over every time: after the first call the newest"
            " token is": writes(lambda prompt, written: prompt),
            "all new tokens are handed over every time: only the newest is not kept": (
                writes(lambda prompt, written: written or prompt)
            ),
            "the prompt is among them: give the new tokens alone": (
                writes(once, ends=whole)
            ),
        },
        "loop: each token is handed over once",
    )
