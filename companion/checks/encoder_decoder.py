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

    right = shift((1, -1))
    longer = torch.tensor([[5, 2, 9, 2, 8, 1], [7, 3, 3, 9, 6, 1], [2] * 6])
    mistakes = {
        "nothing is shifted: the decoder reads the answer": lambda a, b: a,
        "the last token has come round to the front": lambda a, b: a.roll(1, 1),
        "one token too many: after the last nothing is written": shift((1, 0)),
        "shifted the wrong way: it reads what comes after": shift((-1, 1)),
        "the first token is lost": lambda a, b: right(a.roll(-1, 1), b),
        "`begin` stands at the end": lambda a, b: F.pad(a[:, :-1], (0, 1), value=b),
        "a 0 stands in front, not `begin`": lambda a, b: F.pad(a, (1, -1)),
        "`begin` isn't set in front": lambda a, b: torch.hstack([a[:, :1], a[:, :-1]]),
        "overwritten before it is copied": lambda a, b: right(a[:, :1].expand_as(a), b),
        "shifted from row to row: each row is a text": shift((0, 0, 1, -1)),
        "begins as the row above ends": lambda a, b: right(a.flatten(), b).view_as(a),
    }
    cases = [(torch.tensor([[4, 7, 5, 1], [6, 6, 2, 1]]), 3), (longer, 4)]
    praise = "shifted: each position reads all that comes before its answer"
    compare(answer, right, cases, mistakes, praise)


def soft_targets(answer) -> None:
    """`answer(targets, d_vocab, smoothing)`: the probabilities of label smoothing."""

    def soft(y, v, e, of=lambda v, e: (1 - e + e / v, e / v)):
        return torch.where(F.one_hot(y, v) > 0, *of(v, e)).float()

    above, below = "a row's sum is above 1: ", "a row's sum is below 1: "
    pairs = {  # of V and smoothing: the right token's probability, another's
        "nothing is smoothed: spread a share over all": lambda v, e: (1, 0),
        "the share goes to the wrong tokens alone: here the right one gets its part of"
        " it too": lambda v, e: (1 - e, e / (v - 1)),
        below + "the right token gets its part too": lambda v, e: (1 - e, e / v),
        below + "only the right token gives": lambda v, e: (1 - e + e / v, e / v - e),
        above + "what is spread must be taken away": lambda v, e: (1 + e / v, e / v),
        above + "`smoothing` is taken whole": lambda v, e: (1 - e / v, e / v),
        above + "the share is divided among all": lambda v, e: (1, e),
    }
    mistakes = {words: lambda *a, of=of: soft(*a, of) for words, of in pairs.items()}
    mistakes["these are logarithms: give probabilities"] = lambda *a: soft(*a).log()
    few = "the tokens are counted in the batch: there are d_vocab"
    mistakes[few] = lambda y, v, e: soft(y, int(y.max()) + 1, e)
    longer = torch.tensor([[5, 0], [2, 2], [7, 1], [3, 6]])
    cases = [(torch.tensor([[0, 2, 4], [1, 1, 3]]), 6, 0.1), (longer, 10, 0.3)]
    praise = "soft_targets: every token gets a share of each target"
    compare(answer, soft, cases, mistakes, praise)


def padded_loss(answer) -> None:
    """`answer(logits, targets, lengths)`: the mean loss of the real tokens."""

    def at(z, y):
        return z.gather(-1, y[..., None])[..., 0]

    def real(y, n):
        return torch.arange(y.shape[1]) < n[:, None]

    def mean(each=lambda z, y: -at(z.log_softmax(-1), y), more=0, cut=0):
        def loss(z, y, n):
            z, y = z[:, : z.shape[1] - cut], y[:, cut:]
            inside = real(y, n + more - cut)
            return float((each(z, y) * inside).sum() / inside.sum())

        return loss

    def of(what):  # all losses (b t), the kept ones (0 elsewhere), the lengths
        def loss(z, y, n):
            x = -at(z.log_softmax(-1), y)
            return what(x, x * real(y, n), n)

        return loss

    first = 3 * draw(2, 5, 4), torch.tensor([[1, 0, 2, 0, 0], [2, 1, 3, 0, 2]])
    targets = torch.tensor([[4, 0, 0, 2, 0, 0], [3, 6, 5, 0, 4, 1], [5, 2, 0, 0, 0, 0]])
    logits = 2 * draw(3, 6, 7, seed=1)
    logits[1, 2, 5] = 200  # a real token that costs nothing
    cases = [(*first, torch.tensor([2, 5])), (logits, targets, torch.tensor([4, 5, 1]))]
    mistakes = {
        "the padding counts too: leave it out": of(lambda x, k, n: x.mean()),
        "divided by all tokens, padding included": of(lambda x, k, n: k.mean()),
        "a mean of means: count each token": of(lambda x, k, n: (k.sum(1) / n).mean()),
        "this is the sum: the mean is asked for": of(lambda x, k, n: k.sum()),
        "divided by the number of sequences": of(lambda x, k, n: k.sum() / len(n)),
        "the padding costs still": of(lambda x, k, n: x.sum() / n.sum()),
        "cut at the longest: not enough": of(lambda x, k, n: x[:, : max(n)].mean()),
        "a real token may cost 0": of(lambda x, k, n: k.sum() / (k != 0).sum()),
        "targets set to 0 are targets still: the loss must leave them out": (
            lambda z, y, n: F.cross_entropy(z.mT, y * real(y, n))
        ),
        "logits set to 0 cost ln V still: leave out the loss": (
            lambda z, y, n: F.cross_entropy((z * real(y, n)[..., None]).mT, y)
        ),
        "every token 0 is left out: a real one may be 0, only `lengths` says": (
            lambda z, y, n: F.cross_entropy(z.mT, y, ignore_index=0)
        ),
        "nan: leave out the loss, not the logits": lambda *a: 0 * torch.inf,
        "the sign is wrong": mean(lambda z, y: at(z.log_softmax(-1), y)),
        "these are logits: `log_softmax` comes first": mean(lambda z, y: -at(z, y)),
        "softmax over the wrong axis": mean(lambda z, y: -at(z.log_softmax(1), y)),
        "shifted once more: logits and targets fit as they are": mean(cut=1),
        "this is the perplexity: no `exp`": lambda *a: torch.tensor(mean()(*a)).exp(),
        "one token too many: length 2 means 0 and 1": mean(more=1),
        "one token too few: length 2 means 0 and 1": mean(more=-1),
    }

    def trained(logits, targets, lengths):
        loss, free = answer(logits, targets, lengths), logits.clone().requires_grad_()
        if not difference(loss, mean()(logits, targets, lengths)):
            if not getattr(answer(free * 1, targets, lengths), "requires_grad", False):
                raise Mistake("padded_loss: no gradient: give the tensor, no number")
        return loss

    given = trained if callable(answer) else answer
    compare(given, mean(), cases, mistakes, "padded_loss: filling costs nothing")


def read_once(answer) -> None:
    """`answer(layer, x, real)`: `look`, with the keys and values of x made once."""

    def cross(d_model):
        layer = MultiHeadAttention(d_model, 5 if d_model == 15 else 2)
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
            found = [look(part) for part in (y[:, :1], y[:, 1:2], y[:, 1:], y)]
            again = len(made) > 2 and not difference(found, right(x, real, y)[:4])
            return [*found, "made again" if again else "made once"]

        return looks

    def once(a, x, r):
        made = a.keys_and_values(x)
        return lambda y: a(y, made, mask=r)

    right = tried(once)

    def by(mix=attention, q=True, k=True, cut="(h d)", join="(h d)", h=0, end=True):
        def look(a, x, r, y):
            m = a.to_queries(y) if q else y, a.to_keys(x) if k else x, a.to_values(x)
            m = (rearrange(z, f"b t {cut} -> b h t d", h=h or a.n_heads) for z in m)
            heads = rearrange(mix(*m, r), f"b h t d -> b t {join}")
            return a.to_output(heads) if end else heads

        return look

    looks = {
        "keys or values are made anew at each look": lambda a, x, r, y: a(y, x, mask=r),
        "the padding is seen: the attention needs `real`": lambda a, x, r, y: a(y, x),
        "the target asks itself: keys and values come from x": lambda a, x, r, y: a(y),
        "the source asks here: queries come from y": lambda a, x, r, y: a(x, y),
        "keys and values changed places": by(lambda q, k, v, r: attention(q, v, k, r)),
        "keys are given as values too": by(lambda q, k, v, r: attention(q, k, k, r)),
        "the mask is upside down: True is seen": lambda a, x, r, y: a(y, x, mask=~r),
        "the target's keys are appended: only x is asked": lambda a, x, r, y: a(
            y, torch.cat([x, y], 1), mask=F.pad(r, (0, y.shape[1]), value=True)
        ),
        "y goes in as it is: `to_queries` comes first": by(q=False),
        "x goes in as it is: `to_keys` comes first": by(k=False),
        "the output matrix is missing": by(end=False),
        "not divided by √d": by(lambda q, *z: attention(q * q.shape[-1] ** 0.5, *z)),
        "mask scores, not values": by(lambda q, k, v, r: attention(q, k, v * r.mT)),
        "cut feature by feature: (h d) is one head after another": by(cut="(d h)"),
        "joined feature by feature: (h d) is one head after another": by(join="(d h)"),
        "the heads are not cut: there are `n_heads`": by(h=1),
    }
    mistakes = {
        words: tried(lambda *given, look=look: lambda y: look(*given, y))
        for words, look in looks.items()
    }
    few = padding_mask(torch.tensor([2, 3]), 4)
    many = padding_mask(torch.tensor([6, 1, 4]), 8)
    first = draw(2, 4, 15), few, draw(2, 6, 15, seed=1)
    cases = [first, (draw(3, 8, 14), many, draw(3, 5, 14, seed=1))]
    given = tried(answer) if callable(answer) else answer
    praise = "read_once: the target grows, its source stays"
    compare(given, right, cases, mistakes, praise)
