"""Checks of chapter 06."""

import torch

from ..sampling import temperature, top_k
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
            "only the last token of `seen` pays: all of them do": (
                lambda z, seen, a: right(z, seen[-1:], a)
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


class Counting:
    """Stands for a model: from at most `window` of n tokens it makes the next."""

    def __init__(self, n: int, window: int):
        self.n, self.window = n, window

    def __repr__(self) -> str:
        return f"a model of {self.n} tokens"

    def __call__(self, tokens: list[int]) -> int:
        if not 0 < len(tokens) <= self.window:
            raise ValueError(f"`after` takes 1 to {self.window}, not {len(tokens)}")
        return sum((i + 1) * (x + 1) for i, x in enumerate(tokens)) % self.n


def write(answer) -> None:
    """`answer(after, prompt, n_new, window)`: new tokens, from the last `window`."""

    def loop(seen):
        def writes(after, prompt, n_new, window):
            new = []
            for _ in range(n_new):
                new.append(after(seen([*prompt, *new], window, len(prompt))))
            return new

        return writes

    right = loop(lambda tokens, window, n: tokens[-window:])
    compare(
        answer,
        right,
        [
            (Counting(7, 3), [2, 5], 6, 3),
            (Counting(11, 5), [1, 4, 9, 3, 8, 2], 9, 5),
            (Counting(13, 2), [6], 4, 2),
        ],
        {
            "the model is shown the first `window` tokens, which never change: show the"
            " last": loop(lambda tokens, window, n: tokens[:window]),
            "the model is shown the prompt again and again: append what it gives": (
                loop(lambda tokens, window, n: tokens[:n][-window:])
            ),
            "the model is shown one token only: it may see the last `window`": (
                loop(lambda tokens, window, n: tokens[-1:])
            ),
            "the window is one too narrow: the last `window` tokens are seen": (
                loop(lambda tokens, window, n: tokens[-max(1, window - 1) :])
            ),
            "the prompt is returned too: only the new tokens are asked for": (
                lambda after, prompt, *sizes: prompt + right(after, prompt, *sizes)
            ),
        },
        "write: the window moves along with the text",
    )


def entropy(answer) -> None:
    """`answer(logits)`: the entropy of softmax(logits) over the last axis, in nats."""

    def right(z):
        return torch.special.entr(z.softmax(-1)).sum(-1)

    def surprise(z):
        return -z.log_softmax(-1)

    compare(
        answer,
        right,
        [(top_k(2 * draw(3, 6), 4),), (draw(2, 4, 5, seed=1),), (draw(7, seed=2),)],
        {
            "0 times infinity is not a number: what has no chance adds nothing": (
                lambda z: (z.softmax(-1) * surprise(z)).sum(-1)
            ),
            "these are bits: take the natural logarithm": (
                lambda z: right(z) / torch.tensor(2.0).log()
            ),
            "the sign is wrong: a surprise is minus the logarithm": lambda z: -right(z),
            "this is a mean over the tokens, without their chances: weigh each by its"
            " own": lambda z: surprise(z).masked_fill(z.isinf(), 0).mean(-1),
            "this is a mean: the chances are the weights already, so sum": (
                lambda z: right(z) / z.shape[-1]
            ),
            "this is the surprise at the likeliest alone: all count, by their chance": (
                lambda z: surprise(z).amin(-1)
            ),
            "logits of -inf have become 0, a likely one: they have no chance": (
                lambda z: right(z.masked_fill(z.isinf(), 0))
            ),
        },
        "entropy: what has no chance adds nothing",
    )
