"""Checks of chapter 08."""

import torch

from ..attention import causal_mask, padding_mask
from ..training import next_token_loss
from .compare import compare, draw


def shifted(answer) -> None:
    """`answer(answers, begin)`: what the decoder reads, from what it is to write."""

    def right(answers, begin):
        return torch.nn.functional.pad(answers, (1, -1), value=begin)

    compare(
        answer,
        right,
        [(torch.tensor([[4, 7, 5, 1], [6, 6, 2, 1]]), 3)],
        [
            ("nothing is shifted: the decoder reads the answer", lambda a, b: a),
            (
                "the last token has come round to the front: `begin` belongs there",
                lambda a, b: a.roll(1, 1),
            ),
            (
                "one token too many: nothing is to be written after the last",
                lambda a, b: torch.nn.functional.pad(a, (1, 0), value=b),
            ),
            (
                "shifted the wrong way: a position reads what comes after its answer",
                lambda a, b: torch.nn.functional.pad(a, (-1, 1), value=b),
            ),
            (
                "the first token is overwritten: it must move to the second place",
                lambda a, b: torch.cat([torch.full_like(a[:, :1], b), a[:, 1:]], 1),
            ),
        ],
        "shifted: each position reads all that comes before its answer",
    )


def soft_targets(answer) -> None:
    """`answer(targets, d_vocab, smoothing)`: the probabilities of label smoothing."""

    def hard(targets, v):
        return torch.nn.functional.one_hot(targets, v).float()

    def right(targets, v, smoothing):
        return (1 - smoothing) * hard(targets, v) + smoothing / v

    compare(
        answer,
        right,
        [(torch.tensor([[0, 2, 4], [1, 1, 3]]), 5, 0.1)],
        [
            ("nothing is smoothed", lambda y, v, e: hard(y, v)),
            (
                "the share goes to the wrong tokens alone: the right one gets its part"
                " of it too",
                lambda y, v, e: torch.where(hard(y, v) > 0, 1 - e, e / (v - 1)),
            ),
            (
                "the sum is above 1: what is spread must be taken from the right token",
                lambda y, v, e: hard(y, v) + e / v,
            ),
            (
                "every token gets the whole share: it is divided among all",
                lambda y, v, e: (1 - e) * hard(y, v) + e,
            ),
            (
                "the right token keeps only the share: smoothing and the rest have"
                " changed places",
                lambda y, v, e: right(y, v, 1 - e),
            ),
        ],
        "soft_targets: a little of every target for every token",
    )


def padded_loss(answer) -> None:
    """`answer(logits, targets, lengths)`: the mean loss of the real tokens."""

    def real(targets, lengths):
        return torch.arange(targets.shape[1]) < lengths[:, None]

    def each(z, y):
        return -z.log_softmax(-1).gather(-1, y[..., None])[..., 0]

    def kept(z, y, n):
        return each(z, y) * real(y, n)

    compare(
        answer,
        lambda z, y, n: next_token_loss(z, y.masked_fill(~real(y, n), -100)),
        [
            (
                3 * draw(2, 5, 4),
                torch.tensor([[1, 3, 2, 0, 0], [2] * 5]),
                torch.tensor([2, 5]),
            )
        ],
        [
            ("the padding counts too", lambda z, y, n: each(z, y).mean()),
            (
                "divided by all tokens: the padded ones are in the number still",
                lambda z, y, n: kept(z, y, n).mean(),
            ),
            (
                "each sequence counts the same here: each token should",
                lambda z, y, n: (kept(z, y, n).sum(1) / n).mean(),
            ),
            ("this is the sum: the mean is asked for", lambda *a: kept(*a).sum()),
            (
                "the real tokens are left out and the padding is kept",
                lambda z, y, n: each(z, y)[~real(y, n)].mean(),
            ),
        ],
        "padded_loss: filling costs nothing",
    )


def three_masks(answer) -> None:
    """`answer(lengths, s, t)`: encoder (b 1 1 s), decoder (t t), across (b 1 1 s)."""

    def right(lengths, s, t):
        real = padding_mask(lengths, s)
        return [real, causal_mask(t), real]

    def changed(*at, by):
        return lambda *case: [
            by(mask) if i in at else mask for i, mask in enumerate(right(*case))
        ]

    axis = "the padding lies on the axis of queries: real queries still see it"
    compare(
        answer,
        right,
        [(torch.tensor([2, 4, 3]), 4, 5)],
        [
            (f"encoder and across: {axis}", changed(0, 2, by=lambda m: m.mT)),
            (f"encoder: {axis}", changed(0, by=lambda m: m.mT)),
            (f"across: {axis}", changed(2, by=lambda m: m.mT)),
            (
                "all three are upside down: here True may attend",
                changed(0, 1, 2, by=lambda m: ~m),
            ),
            (
                "decoder: it sees the future and not the past",
                changed(1, by=lambda m: m.mT),
            ),
            ("decoder: a position may see itself", changed(1, by=lambda m: m.tril(-1))),
            (
                "the padding has no axes for heads and queries: (b s) must become"
                " (b 1 1 s)",
                changed(0, 2, by=lambda m: m[:, 0, 0]),
            ),
        ],
        "three_masks: padded keys are hidden from all, the future from the past",
    )
