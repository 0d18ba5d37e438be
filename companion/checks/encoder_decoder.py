"""Checks of chapter 08."""

import torch
import torch.nn.functional as F

from ..attention import causal_mask, padding_mask
from ..training import next_token_loss
from .compare import compare, draw


def shifted(answer) -> None:
    """`answer(answers, begin)`: what the decoder reads, from what it is to write."""

    def right(answers, begin):
        return F.pad(answers, (1, -1), value=begin)

    compare(
        answer,
        right,
        [
            (torch.tensor([[4, 7, 5, 1], [6, 6, 2, 1]]), 3),
            (torch.tensor([[5, 2, 9, 2, 8, 1], [7, 3, 3, 9, 6, 1], [2] * 6]), 4),
        ],
        {
            "nothing is shifted: the decoder reads the answer": lambda a, b: a,
            "the last token has come round to the front: `begin` belongs there": (
                lambda a, b: a.roll(1, 1)
            ),
            "one token too many: nothing is to be written after the last": (
                lambda a, b: F.pad(a, (1, 0), value=b)
            ),
            "shifted the wrong way: a position reads what comes after its answer": (
                lambda a, b: F.pad(a, (-1, 1), value=b)
            ),
            "the first token is overwritten: it must move to the second place": (
                lambda a, b: F.pad(a[:, 1:], (1, 0), value=b)
            ),
            "a 0 stands in front, not `begin`": lambda a, b: F.pad(a, (1, -1)),
            "`begin` is always 3: take the argument": lambda a, b: right(a, 3),
            "shifted from row to row: the axes are (b t), and the text runs along t": (
                lambda a, b: F.pad(a, (0, 0, 1, -1), value=b)
            ),
            "these are floats, tokens are integers": lambda a, b: right(a, b).float(),
        },
        "shifted: each position reads all that comes before its answer",
    )


def soft_targets(answer) -> None:
    """`answer(targets, d_vocab, smoothing)`: the probabilities of label smoothing."""

    def hard(targets, v):
        return F.one_hot(targets, v).float()

    def right(targets, v, smoothing):
        return (1 - smoothing) * hard(targets, v) + smoothing / v

    compare(
        answer,
        right,
        [
            (torch.tensor([[0, 2, 4], [1, 1, 3]]), 6, 0.1),
            (torch.tensor([[5, 0], [2, 2], [7, 1], [3, 6]]), 10, 0.3),
        ],
        {
            "nothing is smoothed: spread a share over all": lambda y, v, e: hard(y, v),
            "the share goes to the wrong tokens alone: here the right one gets its part"
            " of it too": lambda y, v, e: torch.where(
                hard(y, v) > 0, 1 - e, e / (v - 1)
            ),
            "the right token has too little: beside 1 - smoothing it gets its part of"
            " the share": lambda y, v, e: torch.where(hard(y, v) > 0, 1 - e, e / v),
            "the sum is above 1: what is spread must be taken from the right token": (
                lambda y, v, e: hard(y, v) + e / v
            ),
            "every token gets the whole share: it is divided among all": (
                lambda y, v, e: (1 - e) * hard(y, v) + e
            ),
            "the right token keeps only the share: smoothing and the rest have changed"
            " places": lambda y, v, e: right(y, v, 1 - e),
            "smoothing is always 0.1 here": lambda y, v, e: right(y, v, 0.1),
            "the tokens are counted in the batch: there are d_vocab, also where the"
            " last never comes": lambda y, v, e: right(y, int(y.max()) + 1, e),
        },
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

    def right(z, y, n):
        return next_token_loss(z, y.masked_fill(~real(y, n), -100))

    first = 3 * draw(2, 5, 4), torch.tensor([[1, 0, 2, 0, 0], [2, 1, 3, 0, 2]])
    second = torch.tensor([[4, 0, 0, 2, 0, 0], [3, 6, 5, 0, 4, 1], [5, 2, 0, 0, 0, 0]])
    compare(
        answer,
        right,
        [
            (*first, torch.tensor([2, 5])),
            (2 * draw(3, 6, 7, seed=1), second, torch.tensor([4, 5, 1])),
        ],
        {
            "the padding counts too: leave it out": lambda z, y, n: each(z, y).mean(),
            "divided by all tokens: the padded ones are in the number still": (
                lambda z, y, n: kept(z, y, n).mean()
            ),
            "each sequence counts the same here: each token should": (
                lambda z, y, n: (kept(z, y, n).sum(1) / n).mean()
            ),
            "this is the sum: the mean is asked for": lambda *a: kept(*a).sum(),
            "the real tokens are left out and the padding is kept": (
                lambda z, y, n: each(z, y)[~real(y, n)].mean()
            ),
            "every token 0 is left out: a real one may be 0, only `lengths` says": (
                lambda z, y, n: each(z, y)[y != 0].mean()
            ),
            "one token too many: with length 2 the positions 0 and 1 are real": (
                lambda z, y, n: right(z, y, n + 1)
            ),
            "logits of 0 are not free: they cost ln V; leave the padding out": (
                lambda z, y, n: each(z * real(y, n)[..., None], y).mean()
            ),
            "the sign is turned: a loss is minus a logarithm": lambda *a: -right(*a),
        },
        "padded_loss: filling costs nothing",
    )


def three_masks(answer) -> None:
    """`answer(lengths, s, t)`: encoder (b 1 1 s), decoder (t t), across (b 1 1 s)."""

    def given(real, t):
        return [real, causal_mask(t), real]

    def right(lengths, s, t):
        return given(padding_mask(lengths, s), t)

    def changed(*at, by):
        return lambda *case: [
            by(mask) if i in at else mask for i, mask in enumerate(right(*case))
        ]

    axis = "the padding lies on the axis of queries: real queries still see it"
    down = "upside down: here True may attend"
    compare(
        answer,
        right,
        [(torch.tensor([2, 4, 3]), 4, 5), (torch.tensor([5, 1]), 7, 3)],
        {
            f"encoder and across: {axis}": changed(0, 2, by=lambda m: m.mT),
            f"encoder: {axis}": changed(0, by=lambda m: m.mT),
            f"across: {axis}": changed(2, by=lambda m: m.mT),
            "encoder: filler is hidden as a query too: hide keys only, (b 1 1 s)": (
                changed(0, by=lambda m: m & m.mT)
            ),
            "encoder: it is causal, but a source is read as a whole": (
                changed(0, by=lambda m: m & causal_mask(m.shape[-1]))
            ),
            "across: the future is hidden here too, but the source is no future": (
                lambda n, s, t: [
                    *right(n, s, t)[:2],
                    padding_mask(n, s) & torch.ones(t, s).tril().bool(),
                ]
            ),
            f"all three are {down}": changed(0, 1, 2, by=lambda m: ~m),
            f"encoder and across are {down}": changed(0, 2, by=lambda m: ~m),
            f"decoder: it is {down}": changed(1, by=lambda m: ~m),
            "decoder: it sees the future, not the past": changed(1, by=lambda m: m.mT),
            "decoder: a position may see itself": changed(1, by=lambda m: m.tril(-1)),
            "decoder: its size is the target's, t": lambda n, s, t: right(n, s, s),
            "a mask (b s) would be read as (t s): the padding's axes are (b 1 1 s)": (
                changed(0, 2, by=lambda m: m[:, 0, 0])
            ),
            "the width is that of the longest source: it is s, which may be more": (
                lambda n, s, t: right(n, int(n.max()), t)
            ),
            "one key too many: with length 2 the keys 0 and 1 are real": (
                lambda n, s, t: given(torch.arange(s) <= n.view(-1, 1, 1, 1), t)
            ),
            "these are numbers: a mask is bool, as a comparison gives it": (
                changed(0, 1, 2, by=lambda m: m.float())
            ),
            "this is what is added to the scores (0 and -inf): the masks are bool": (
                changed(0, 1, 2, by=lambda m: m.float().log())
            ),
        },
        "three_masks: padded keys are hidden from all, the future from the past",
    )
