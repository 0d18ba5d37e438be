"""Checks of chapter 06."""

import torch

from ..sampling import temperature, top_k, top_p
from .compare import compare, draw


def scaled(answer) -> None:
    """`answer(chances, t)`: chances (... v) at temperature t."""

    def right(p, t):
        return temperature(p.log(), t).softmax(-1)

    compare(
        answer,
        right,
        [
            (draw(2, 5).softmax(-1), 0.5),
            (draw(3, 4, seed=1).softmax(-1), 2.0),
            (draw(6, seed=2).softmax(-1), 0.8),
        ],
        {
            "the chances do not sum to 1: divide by their sum": (
                lambda p, t: p ** (1 / t)
            ),
            "the sum is that of the whole tensor: each row sums to 1, so sum over the"
            " last axis": lambda p, t: p ** (1 / t) / (p ** (1 / t)).sum(),
            "the sum runs over the first axis: each row sums to 1, so take the last": (
                lambda p, t: p ** (1 / t) / (p ** (1 / t)).sum(0)
            ),
            "below 1 is sharper: the power is 1 / t, not t": (
                lambda p, t: right(p, 1 / t)
            ),
            "the power is 1 / t, not t, and then divide by the sum": (
                lambda p, t: p**t
            ),
            "chances divided by t do not sum to 1, and the sum would undo it: logits"
            " are divided, chances get a power": lambda p, t: p / t,
            "it is the logits that are divided by t: take the logarithm first": (
                lambda p, t: (p / t).softmax(-1)
            ),
            "nothing has changed: a factor goes away in the sum, a power stays": (
                lambda p, t: p
            ),
            "these are the logits, divided: softmax makes chances of them": (
                lambda p, t: p.log() / t
            ),
            "softmax takes logits, and these are powers of chances: divide by their"
            " sum": lambda p, t: (p ** (1 / t)).softmax(-1),
        },
        "scaled: a temperature is a power of the chances",
    )


def penalty(answer) -> None:
    """`answer(logits, seen, amount)`: amount less at every token seen, once."""

    def where(logits, seen):
        return torch.tensor([i in seen for i in range(len(logits))])

    def right(logits, seen, amount):
        return logits - amount * where(logits, seen)

    def counted(logits, seen, amount):
        return logits - amount * torch.tensor(
            [seen.count(i) for i in range(len(logits))]
        )

    compare(
        answer,
        right,
        [
            (draw(6), [4, 1, 4], 0.7),
            (draw(9, seed=1), [2, 8, 2, 0], 1.5),
            (draw(5, seed=2), [3], 0.2),
        ],
        {
            "a token that was seen twice pays twice: once is enough": counted,
            "this divides, which raises a negative logit: subtract": (
                lambda z, seen, a: torch.where(where(z, seen), z / a, z)
            ),
            "this multiplies: subtract the amount": (
                lambda z, seen, a: torch.where(where(z, seen), z * a, z)
            ),
            "the amount was added: what was seen must get less likely": (
                lambda z, seen, a: right(z, seen, -a)
            ),
            "0.7 goes off whatever is asked for: take `amount`": (
                lambda z, seen, a: right(z, seen, 0.7)
            ),
            "1 goes off whatever is asked for: take `amount`": (
                lambda z, seen, a: right(z, seen, 1)
            ),
            "only the last token of `seen` pays: all of them do": (
                lambda z, seen, a: right(z, seen[-1:], a)
            ),
            "only the first token of `seen` pays: all of them do": (
                lambda z, seen, a: right(z, seen[:1], a)
            ),
            "it is the other way round: those that were not seen pay": (
                lambda z, seen, a: z - a * ~where(z, seen)
            ),
            "every token pays, which changes no chance: only those in `seen` do": (
                lambda z, seen, a: z - a
            ),
            "what was seen is ruled out: it should only get less likely": (
                lambda z, seen, a: z.masked_fill(where(z, seen), -torch.inf)
            ),
            "nothing has changed: is the result what is returned?": (
                lambda z, seen, a: z
            ),
        },
        "penalty: what was seen gets a little less likely",
    )


def nucleus(answer) -> None:
    """`answer(logits, p)`: top-p for logits (v) in any order."""

    def kept(logits, keep, hidden=-torch.inf):
        return logits.masked_fill(~keep, hidden)

    def before(logits):
        """For each token the chance of all that are likelier."""
        return logits.softmax(-1) @ (logits[:, None] > logits).float()

    def after(logits):
        return 1 - logits.softmax(-1) - before(logits)

    def n_kept(logits, p):
        return int(top_p(logits, p).isfinite().sum())

    def in_order(logits, p):
        return top_p(logits.sort(descending=True).values, p)

    def gathered(logits, p):
        return in_order(logits, p).gather(-1, logits.argsort(descending=True))

    compare(
        answer,
        top_p,
        [
            (torch.tensor([0.0, 1.0, 3.0]), 0.9),
            (draw(9), 0.6),
            (draw(6, seed=1), 0.95),
            (2 * draw(7, seed=2), 0.3),
        ],
        {
            "the logits come back sorted: put each where its token is": in_order,
            "`gather` reads from these places: to put each logit back in its place,"
            " write with `scatter`": gathered,
            "the token that crosses p is dropped: look at the sum before it": (
                lambda z, p: kept(z, before(z) + z.softmax(-1) <= p)
            ),
            "one too many stays: the one that crosses p is the last": (
                lambda z, p: top_k(z, min(n_kept(z, p) + 1, len(z)))
            ),
            "the sum runs in the order of the tokens: sort by likelihood first": (
                lambda z, p: kept(z, z.softmax(-1).cumsum(-1) - z.softmax(-1) < p)
            ),
            "the sum begins with the unlikeliest: sort with `descending=True`": (
                lambda z, p: kept(z, after(z) < p)
            ),
            "this keeps single tokens above a chance: sum the chances": (
                lambda z, p: kept(z, z.softmax(-1) >= 1 - p)
            ),
            "this keeps single tokens that have p alone: sum the chances": (
                lambda z, p: kept(z, z.softmax(-1) >= p)
            ),
            "this is min-p, a bar for each token by itself: sum the chances": (
                lambda z, p: kept(z, z.softmax(-1) >= p * z.softmax(-1).max())
            ),
            "what is cut off has the logit 0, a likely one: it should be -inf": (
                lambda z, p: kept(z, top_p(z, p).isfinite(), 0)
            ),
            "these are chances: give the logits that stay": (
                lambda z, p: top_p(z, p).softmax(-1)
            ),
            "this is the mask: give the logits, -inf where it cuts": (
                lambda z, p: top_p(z, p).isfinite()
            ),
            "nothing is cut off": lambda z, p: z,
        },
        "nucleus: the smallest set that reaches p, every token in its place",
    )
