"""Checks of chapter 08."""

import torch
import torch.nn.functional as F
from einops import rearrange

from ..attention import MultiHeadAttention, attention, padding_mask
from .compare import Mistake, compare, difference, draw


def shifted(answer) -> None:
    """`answer(answers, begin)`: what the decoder reads, from what it is to write."""

    def shift(by):
        return lambda a, b: F.pad(a, by, value=b)

    compare(
        answer,
        shift((1, -1)),
        [
            (torch.tensor([[4, 7, 5, 1], [6, 6, 2, 1]]), 3),
            (torch.tensor([[5, 2, 9, 2, 8, 1], [7, 3, 3, 9, 6, 1], [2] * 6]), 4),
        ],
        {
            "nothing is shifted: the decoder reads the answer": lambda a, b: a,
            "the last token has come round to the front": lambda a, b: a.roll(1, 1),
            "one token too many: after the last nothing is written": shift((1, 0)),
            "shifted the wrong way: it reads what comes after": shift((-1, 1)),
            "the first token is lost": lambda a, b: F.pad(a[:, 1:], (1, 0), value=b),
            "`begin` stands at the end": lambda a, b: F.pad(a[:, :-1], (0, 1), value=b),
            "a 0 stands in front, not `begin`": lambda a, b: F.pad(a, (1, -1)),
            "`begin` stands there twice": shift((2, -2)),
            "shifted from row to row: each row is a text": shift((0, 0, 1, -1)),
            "a row begins with the end of the row above: each begins with `begin`": (
                lambda a, b: shift((1, -1))(a.flatten(), b).view_as(a)
            ),
        },
        "shifted: each position reads all that comes before its answer",
    )


def soft_targets(answer) -> None:
    """`answer(targets, d_vocab, smoothing)`: the probabilities of label smoothing."""

    def hard(y, v, e=0):
        return F.one_hot(y, v).float()

    def two(right, wrong=lambda v, e: e / v):  # of the right token, of the others
        return lambda y, v, e: torch.where(hard(y, v) > 0, right(v, e), wrong(v, e))

    right = two(lambda v, e: 1 - e + e / v)
    compare(
        answer,
        right,
        [
            (torch.tensor([[0, 2, 4], [1, 1, 3]]), 6, 0.1),
            (torch.tensor([[5, 0], [2, 2], [7, 1], [3, 6]]), 10, 0.3),
        ],
        {
            "nothing is smoothed: spread a share over all": hard,
            "the share goes to the wrong tokens alone: here the right one gets its part"
            " of it too": two(lambda v, e: 1 - e, lambda v, e: e / (v - 1)),
            "the right token has too little: beside 1 - smoothing it gets its part of"
            " the share": two(lambda v, e: 1 - e),
            "the sum is above 1: what is spread must be taken from the right token": (
                two(lambda v, e: 1 + e / v)
            ),
            "the sum is above 1: the right token gives the whole share, not a part": (
                two(lambda v, e: 1 - e / v)
            ),
            "the sum is above 1, two conventions are mixed: divide by V for all": (
                two(lambda v, e: 1 - e + e / v, lambda v, e: e / (v - 1))
            ),
            "every token gets the whole share: it is divided among all": (
                two(lambda v, e: 1, lambda v, e: e)
            ),
            "the tokens are counted in the batch: there are d_vocab, also where the"
            " last never comes": lambda y, v, e: right(y, int(y.max()) + 1, e),
        },
        "soft_targets: a little of every target for every token",
    )


def padded_loss(answer) -> None:
    """`answer(logits, targets, lengths)`: the mean loss of the real tokens."""

    def real(y, n):
        return torch.arange(y.shape[1]) < n[:, None]

    def each(z, y):
        return -z.log_softmax(-1).gather(-1, y[..., None])[..., 0]

    def kept(z, y, n):
        return each(z, y) * real(y, n)

    def right(z, y, n, more=0):
        return float(kept(z, y, n + more).sum() / real(y, n + more).sum())

    first = 3 * draw(2, 5, 4), torch.tensor([[1, 0, 2, 0, 0], [2, 1, 3, 0, 2]])
    targets = torch.tensor([[4, 0, 0, 2, 0, 0], [3, 6, 5, 0, 4, 1], [5, 2, 0, 0, 0, 0]])
    logits = 2 * draw(3, 6, 7, seed=1)
    logits[1, 2, 5] = 200  # a real token that costs nothing
    compare(
        answer,
        right,
        [(*first, torch.tensor([2, 5])), (logits, targets, torch.tensor([4, 5, 1]))],
        {
            "the padding counts too: leave it out": lambda z, y, n: each(z, y).mean(),
            "divided by all tokens, padding included": lambda *a: kept(*a).mean(),
            "each sequence counts the same here: each token should": (
                lambda z, y, n: (kept(z, y, n).sum(1) / n).mean()
            ),
            "this is the sum: the mean is asked for": lambda *a: kept(*a).sum(),
            "divided by the number of sequences": lambda *a: kept(*a).sum() / len(a[2]),
            "the padding costs still": lambda z, y, n: each(z, y).sum() / n.sum(),
            "targets set to 0 are targets still: the loss must leave them out": (
                lambda z, y, n: each(z, y * real(y, n)).mean()
            ),
            "logits set to 0 cost ln V still: leave out the loss": (
                lambda z, y, n: each(z * real(y, n)[..., None], y).mean()
            ),
            "nan: leave out the loss, not the logits": lambda *a: 0 * torch.inf,
            "counted where the loss isn't 0: a real token may cost nothing": (
                lambda *a: kept(*a).sum() / (kept(*a) != 0).sum()
            ),
            "every token 0 is left out: a real one may be 0, only `lengths` says": (
                lambda z, y, n: each(z, y)[y != 0].mean()
            ),
            "one token too many: length 2 means 0 and 1": lambda *a: right(*a, 1),
            "one token too few: length 2 means 0 and 1": lambda *a: right(*a, -1),
        },
        "padded_loss: filling costs nothing",
    )


def read_once(answer) -> None:
    """`answer(layer, x, real)`: `look`, with the keys and values of x made once."""

    def cross(d_model):
        layer = MultiHeadAttention(d_model, d_model // 4)
        for i, weights in enumerate(layer.parameters()):
            weights.data = draw(*weights.shape, seed=i) / 2
        return layer

    def tried(read):
        def looks(x, real, y):
            layer, made = cross(x.shape[-1]), []
            for part in (layer.to_keys, layer.to_values):
                part.register_forward_hook(lambda *_: made.append(1))
            look = read(layer, x, real)
            if not callable(look):
                raise Mistake("read_once: it gives no function: return `look` itself")
            found = [look(part) for part in (y[:, :1], y[:, 1:], y)]
            again = len(made) > 2 and not difference(found, right(x, real, y)[:3])
            return [*found, "made again" if again else "made once"]

        return looks

    def once(a, x, r):
        made = a.keys_and_values(x)
        return lambda y: a(y, made, mask=r)

    right = tried(once)

    def heads(a, x, r, y):
        return a.attend(a.split(a.to_queries(y)), *a.keys_and_values(x), r)

    def whole(a, x, r, y):
        return attention(a.to_queries(y), a.to_keys(x), a.to_values(x), r[:, 0])

    mistakes = {
        "keys or values are made anew at each look": lambda a, x, r, y: a(y, x, mask=r),
        "the padding is seen: the attention needs `real`": lambda a, x, r, y: a(y, x),
        "the target asks itself: keys and values come from x": lambda a, x, r, y: a(y),
        "the source asks here: queries come from y": lambda a, x, r, y: a(x, y),
        "keys and values have changed places": (
            lambda a, x, r, y: a(y, a.keys_and_values(x)[::-1], mask=r)
        ),
        "the keys are given as values too": (
            lambda a, x, r, y: a(y, (a.keys_and_values(x)[0],) * 2, mask=r)
        ),
        "the mask is upside down: True is seen": lambda a, x, r, y: a(y, x, mask=~r),
        "the output matrix is missing": (
            lambda *case: rearrange(heads(*case), "b h t d -> b t (h d)")
        ),
        "the heads are joined feature by feature: (h d), one head after another": (
            lambda *c: c[0].to_output(rearrange(heads(*c), "b h t d -> b t (d h)"))
        ),
        "the heads are not cut: `split` does it": lambda *c: c[0].to_output(whole(*c)),
    }
    wrong = {
        words: tried(lambda *given, look=look: lambda y: look(*given, y))
        for words, look in mistakes.items()
    }
    first = draw(2, 5, 8), padding_mask(torch.tensor([3, 4]), 5), draw(2, 4, 8, seed=1)
    mask = padding_mask(torch.tensor([6, 1, 4]), 7)
    cases = [first, (draw(3, 7, 12), mask, draw(3, 3, 12, seed=1))]
    given = tried(answer) if callable(answer) else answer
    compare(given, right, cases, wrong, "read_once: the target grows, its source stays")
