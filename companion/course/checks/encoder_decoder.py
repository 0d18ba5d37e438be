"""Checks of chapter 08."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from ...model.attention import (
    MultiHeadAttention,
    attention,
    attention_weights,
    padding_mask,
)
from .compare import Mistake, compare, difference, draw, stops
from .watch import Watch

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")  # of matrices


def shifted(answer) -> None:
    """`answer(answers, begin)`: what the decoder reads, from what it is to write."""

    def right(a, b, by=(1, -1)):
        return F.pad(a, by, value=b)

    longer = torch.tensor([[5, 2, 9, 2, 8, 1], [7, 3, 3, 9, 6, 1], [2] * 6])
    cases = [(torch.tensor([[4, 7, 5, 1], [6, 6, 2, 1]]), 3), (longer, 4)]
    compare(answer, right, cases, {
        "nothing is shifted: the decoder reads the answer": lambda a, b: a,
        "the last token has come round to the front": lambda a, b: a.roll(1, 1),
        "one token too many: after the last nothing is written": {"by": (1, 0)},
        "shifted the wrong way: it reads what comes after": {"by": (-1, 1)},
        "`begin` stands at the end": lambda a, b: F.pad(a[:, :-1], (0, 1), value=b),
        "overwritten before it is copied": lambda a, b: right(a[:, :1].expand_as(a), b),
        "the first token is lost": lambda a, b: F.pad(a[:, 1:], (1, 0), value=b),
        "sequences are shifted, not their tokens: t is axis 1": {"by": (0, 0, 1, -1)},
        "as a column `begin` has the shape (b 1), a row for each sequence":
            stops(RuntimeError, "except in dimension 1. Expected size 1 but got size"),
        "t is axis 1, and `torch.cat` joins along axis 0 unless it is told":
            stops(RuntimeError, "except in dimension 0. Expected size 1 but got size"),
        "as a column `begin` has the shape (b 1), two axes":
            stops(RuntimeError, "must have same number of dimensions"),
        "as a column `begin` has the shape (b 1), no single axis":
            stops(IndexError, "[-1, 0], but got 1"),
    }, "shifted: each position reads all that comes before its answer")  # fmt: skip


def soft_targets(answer) -> None:
    """`answer(targets, d_vocab, smoothing)`: the probabilities of label smoothing."""

    def right(y, v, e, of=lambda v, e: (1 - e + e / v, e / v)):
        return torch.where(F.one_hot(y, v) > 0, *of(v, e)).float()

    longer = torch.tensor([[5, 0], [2, 2], [7, 1], [3, 6]])
    cases = [(torch.tensor([[0, 2, 4], [1, 1, 3]]), 6, 0.1), (longer, 10, 0.3)]
    above, below = "a row's sum is above 1: ", "a row's sum is below 1: "
    pairs = {  # of V and smoothing: the right token's probability, another's
        "nothing is smoothed: spread a share over all": lambda v, e: (1, 0),
        "the share goes to the wrong tokens alone: here the right one gets its part of"
        " it too": lambda v, e: (1 - e, e / (v - 1)),
        below + "the right token gets its part too": lambda v, e: (1 - e, e / v),
        above + "what is spread must be taken away": lambda v, e: (1 + e / v, e / v),
        above + "the share is divided among all": lambda v, e: (1, e),
        above + "by V and by V - 1": lambda v, e: (1 - e + e / v, e / (v - 1)),
        below + "the other tokens get their shares too": lambda v, e: (1 - e, 0),
        "1 - smoothing is shared out": lambda v, e: (e + (1 - e) / v, (1 - e) / v),
        "0.1 is the paper's: take `smoothing`": lambda v, e: (0.9 + 0.1 / v, 0.1 / v),
    }
    mistakes = {words: {"of": pair} for words, pair in pairs.items()}
    praise = "soft_targets: every token gets a share of each target"
    compare(answer, right, cases, mistakes, praise)


def padded_loss(answer) -> None:
    """`answer(logits, targets, lengths)`: the mean loss of the real tokens."""

    def real(y, n):
        return torch.arange(y.shape[1]) < n[:, None]

    def right(z, y, n, of=lambda x, kept, n: kept.sum() / n.sum(), more=0):
        """Of all losses (b t), those that are kept (0 elsewhere), and the lengths."""
        x, inside = F.cross_entropy(z.mT, y, reduction="none"), real(y, n + more)
        return of(x, x * inside, inside.sum(1))

    def trained(answer, logits, targets, lengths):
        """The loss, and its gradient, which is 0 where nothing can be trained."""
        z = logits.clone().requires_grad_()
        given = z.clone()  # a tensor that may be written into, unlike a leaf
        loss = answer(given, targets, lengths)
        if not torch.equal(given, z):
            raise Mistake("the function changes its input: work on a copy")
        if z.grad is not None:
            raise Mistake("the loss has gone backward already: give it as it is")
        if isinstance(loss, Tensor) and loss.requires_grad and loss.isfinite().all():
            loss.sum().backward()
        return {"loss": loss, "gradient": 0 * logits if z.grad is None else z.grad}

    first = 3 * draw(2, 5, 4), torch.tensor([[1, 0, 2, 0, 0], [2, 1, 3, 0, 2]])
    targets = torch.tensor([[4, 0, 0, 2, 0, 0], [3, 6, 5, 0, 4, 1], [5, 2, 0, 0, 0, 0]])
    logits = 2 * draw(3, 6, 7, seed=1)
    logits[1, 2, 5] = 200  # a real token that costs nothing
    cases = [(*first, torch.tensor([2, 5])), (logits, targets, torch.tensor([4, 5, 1]))]
    compare(answer, right, cases, {
        "the padding counts too: leave it out": {"of": lambda x, k, n: x.mean()},
        "divided by all tokens, padding included": {"of": lambda x, k, n: k.mean()},
        "a mean of means: count tokens": {"of": lambda x, k, n: (k.sum(1) / n).mean()},
        "this is the sum: the mean is asked for": {"of": lambda x, k, n: k.sum()},
        "divided by sequences: count tokens": {"of": lambda x, k, n: k.sum() / len(n)},
        "the sign: it is -log": {"of": lambda x, k, n: -k.sum() / n.sum()},
        "only the padding counts": {"of": lambda x, k, n: (x - k)[x > k].mean()},
        "the padding costs still": {"of": lambda x, k, n: x.sum() / n.sum()},
        "cut at the longest: not enough": {"of": lambda x, k, n: x[:, : max(n)].mean()},
        "a real token may cost 0": {"of": lambda x, k, n: k.sum() / (k != 0).sum()},
        "targets set to 0 are targets still: the loss must leave them out":
            lambda z, y, n: F.cross_entropy(z.mT, y * real(y, n)),
        "logits set to 0 cost ln V still: leave out the loss":
            lambda z, y, n: F.cross_entropy((z * real(y, n)[..., None]).mT, y),
        "every token 0 is left out: a real one may be 0, only `lengths` says":
            lambda z, y, n: F.cross_entropy(z.mT, y, ignore_index=0),
        "nan: leave out losses, not logits": {"of": lambda *x: x[0].mean() * torch.nan},
        "one token too many: length 2 means 0 and 1": {"more": 1},
        "one token too few: length 2 means 0 and 1": {"more": -1},
        "no gradient leads back to the logits: give the tensor, no number":
            lambda *case: right(*case).detach(),
    }, "padded_loss: filling costs nothing", trained)  # fmt: skip


def read_once(answer) -> None:
    """`answer(layer, x, real)`: `look`, with the keys and values of x made once."""

    def makes_keys(look, y, n):
        """Whether a look at one token makes as many numbers as one text has keys."""
        with Watch() as watch:
            look(y)
        return any(z.numel() >= n for name, z in watch.made if name in PRODUCTS)

    def looks(answer, x, real, y):
        """Four looks, and whether they make keys and values, though they are right."""
        layer = MultiHeadAttention(x.shape[-1], 5 if x.shape[-1] == 15 else 2)
        for i, weights in enumerate(layer.parameters()):
            weights.data = draw(*weights.shape, seed=i) / 2
        given = x.clone()
        look = answer(layer, given, real)
        if not callable(look):
            raise Mistake("it gives no function: return `look` itself")
        found = [look(part) for part in (y[:, :1], y[:, 1:2], y[:, 1:], y)]
        if not torch.equal(given, x):
            raise Mistake("the function changes its input: work on a copy")

        # What was made once asks neither for the source again nor for the weights.
        anew = makes_keys(look, y[:, :1], x[0].numel())
        given.neg_()
        for weights in (layer.to_keys.weight, layer.to_values.weight):
            weights.data = weights.data.flip(0)
        anew = anew or difference(look(y), found[3])
        if anew and difference(found, looks(right, x, real, y)["looks"]):
            anew = None
        return {"looks": found, "keys and values": "made anew" if anew else "kept"}

    def right(a, x, r, mix=attention, cut="(h d)", join="(h d)", h=0, end=True):
        def heads(z):
            return rearrange(z, f"b t {cut} -> b h t d", h=h or a.n_heads)

        def look(y):
            mixed = mix(heads(a.to_queries(y)), keys, values, r)
            joined = rearrange(mixed, f"b h t d -> b t {join}")
            return a.to_output(joined) if end else joined

        keys, values = heads(a.to_keys(x)), heads(a.to_values(x))
        return look

    few = padding_mask(torch.tensor([2, 9]), 12)
    many = padding_mask(torch.tensor([6, 1, 4]), 8)
    cases = [(draw(2, 12, 15), few, draw(2, 6, 15, seed=1))]
    cases += [(draw(3, 8, 14), many, draw(3, 5, 14, seed=1))]
    praise = "read_once: the target grows, its source stays"
    compare(answer, right, cases, {
        "keys or values are made anew at each look":
            lambda a, x, r: lambda y: a(y, x, mask=r),
        "the target asks itself: keys and values come from x": lambda a, x, r: a,
        "the source asks here: queries come from y": lambda a, x, r: lambda y: a(x, y),
        "the padding is seen: the attention needs `real`":
            {"mix": lambda q, k, v, r: attention(q, k, v)},
        "keys and values changed places":
            {"mix": lambda q, k, v, r: attention(q, v, k, r)},
        "keys are given as values too":
            {"mix": lambda q, k, v, r: attention(q, k, k, r)},
        "upside down: True is seen": {"mix": lambda q, k, v, r: attention(q, k, v, ~r)},
        "mask before softmax: the weights no longer sum to 1":
            {"mix": lambda q, k, v, r: attention_weights(q, k) * r @ v},
        "the target's keys are appended: only the source answers":
            lambda a, x, r: lambda y: a(y, torch.cat([x, y], 1),
                                        mask=F.pad(r, (0, y.shape[1]), value=True)),
        "not divided by √d":
            {"mix": lambda q, *z: attention(q * q.shape[-1] ** 0.5, *z)},
        "the output matrix is missing": {"end": False},
        "cut feature by feature: (h d) is one head after another": {"cut": "(d h)"},
        "joined feature by feature: (h d) is one head after another": {"join": "(d h)"},
        "the heads are not cut: there are `n_heads`": {"h": 1},
    }, praise, looks)  # fmt: skip
