"""Checks of chapter 08: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from ...model.attention import (
    MultiHeadAttention,
    attention,
    attention_weights,
    causal_mask,
    padding_mask,
)
from ...model.blocks import FeedForward, LayerNorm
from .compare import Exercise, Raises, check, draw, ways_of
from .differences import difference
from .mistakes import Mistake
from .watch import Watch

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")  # of matrices


@check
def shifted() -> Exercise:
    """`answer(answers, begin)`: what the decoder reads, from what it is to write."""

    def column(answers: Tensor, begin: int) -> Tensor:
        """`begin` for each sequence, (b 1)."""
        return torch.full_like(answers[:, :1], begin)

    def right(answers: Tensor, begin: int) -> Tensor:
        return torch.cat([column(answers, begin), answers[:, :-1]], 1)

    shorter = torch.tensor([[4, 7, 5, 1], [6, 6, 2, 1]])
    longer = torch.tensor([[5, 2, 9, 2, 8, 1], [7, 3, 3, 9, 6, 1], [2] * 6])
    cases = [(shorter, 3), (longer, 4)]
    mistakes = {
        "nothing is shifted: the decoder reads the answer": lambda y, begin: y,
        "the last token has come round to the front": lambda y, begin: y.roll(1, 1),
        "one token too many: after the last nothing is written": (
            lambda y, begin: torch.cat([column(y, begin), y], 1)
        ),
        "shifted the wrong way: it reads what comes after": (
            lambda y, begin: torch.cat([y[:, 1:], column(y, begin)], 1)
        ),
        "`begin` stands at the end": (
            lambda y, begin: torch.cat([y[:, :-1], column(y, begin)], 1)
        ),
        "overwritten before it is copied": (
            lambda y, begin: right(y[:, :1].expand_as(y), begin)
        ),
        "the first token is lost": (
            lambda y, begin: torch.cat([column(y, begin), y[:, 1:]], 1)
        ),
        "sequences are shifted, not their tokens: t is axis 1": (
            lambda y, begin: right(y.mT, begin).mT
        ),
        "as a column `begin` has the shape (b 1), a row for each sequence": Raises(
            RuntimeError, "except in dimension 1. Expected size 1 but got size"
        ),
        "t is axis 1, and `torch.cat` joins along axis 0 unless it is told": Raises(
            RuntimeError, "except in dimension 0. Expected size 1 but got size"
        ),
        "as a column `begin` has the shape (b 1), two axes": Raises(
            RuntimeError, "must have same number of dimensions"
        ),
        "as a column `begin` has the shape (b 1), no single axis": Raises(
            IndexError, "[-1, 0], but got 1"
        ),
    }
    praise = "each position reads all that comes before its answer"
    return Exercise(right, cases, mistakes, praise)


@check
def soft_targets() -> Exercise:
    """`answer(targets, d_vocab, smoothing)`: the probabilities of label smoothing."""

    def right(
        targets: Tensor,
        d_vocab: int,
        smoothing: float,
        own: Callable = lambda s, v: 1 - s + s / v,
        others: Callable = lambda s, v: s / v,
    ) -> Tensor:
        is_target = F.one_hot(targets, d_vocab) > 0
        probability = own(smoothing, d_vocab)
        return torch.where(is_target, probability, others(smoothing, d_vocab))

    way = ways_of(right)

    wide = torch.tensor([[0, 2, 4], [1, 1, 3]])
    long = torch.tensor([[5, 0], [2, 2], [7, 1], [3, 6]])
    cases = [(wide, 6, 0.1), (long, 10, 0.3)]
    mistakes = {
        "nothing is smoothed: spread a share over all": way(
            own=lambda s, v: 1.0, others=lambda s, v: 0.0
        ),
        "the share goes to the wrong tokens alone: here the right one gets its part of"
        " it too": way(own=lambda s, v: 1 - s, others=lambda s, v: s / (v - 1)),
        "a row's sum is below 1: the right token gets its part too": way(
            own=lambda s, v: 1 - s
        ),
        "a row's sum is above 1: what is spread must be taken away": way(
            own=lambda s, v: 1 + s / v
        ),
        "a row's sum is above 1: the share is divided among all": way(
            own=lambda s, v: 1.0, others=lambda s, v: s
        ),
        "a row's sum is above 1: by V and by V - 1": way(
            others=lambda s, v: s / (v - 1)
        ),
        "a row's sum is below 1: the other tokens get their shares too": way(
            own=lambda s, v: 1 - s, others=lambda s, v: 0.0
        ),
        "1 - smoothing is shared out": lambda y, v, s: right(y, v, 1 - s),
        "0.1 is the paper's: take `smoothing`": lambda y, v, s: right(y, v, 0.1),
    }
    praise = "every token gets a share of each target"
    return Exercise(right, cases, mistakes, praise)


@check
def padded_loss() -> Exercise:
    """`answer(logits, targets, lengths)`: the mean loss of the real tokens."""

    def each(logits: Tensor, targets: Tensor, real: Tensor) -> Tensor:
        """The loss of every token (b t), padding included."""
        return F.cross_entropy(logits.mT, targets, reduction="none")

    def right(
        logits: Tensor,
        targets: Tensor,
        lengths: Tensor,
        losses: Callable = each,
        mean: Callable = lambda losses, real: (losses * real).sum() / real.sum(),
    ) -> Tensor:
        real = torch.arange(targets.shape[1]) < lengths[:, None]
        return mean(losses(logits, targets, real), real)

    way = ways_of(right)

    def of_all(losses: Tensor, real: Tensor) -> Tensor:
        return losses.mean()

    def trained(
        answer: Callable, logits: Tensor, targets: Tensor, lengths: Tensor
    ) -> dict[str, object]:
        """The loss, and its gradient, which is 0 where nothing can be trained."""
        leaf = logits.clone().requires_grad_()
        copied = leaf.clone()  # a tensor that may be written into, unlike a leaf
        loss = answer(copied, targets, lengths)
        if not torch.equal(copied, leaf):
            raise Mistake("the function changes its input: work on a copy")
        if leaf.grad is not None:
            raise Mistake("the loss has gone backward already: give it as it is")

        if isinstance(loss, Tensor) and loss.requires_grad and loss.isfinite().all():
            loss.sum().backward()
        gradient = 0 * logits if leaf.grad is None else leaf.grad
        return {"loss": loss, "gradient": gradient}

    few_logits = 3 * draw(2, 5, 4)
    few_logits[1, 0, 3] = 200  # a sure mistake costs as much
    few_logits[0, 4, 1] = 200  # one in the padding costs nothing
    few_targets = torch.tensor([[1, 0, 2, 0, 0], [2, 1, 3, 0, 2]])
    more_logits = 2 * draw(3, 6, 7, seed=1)
    more_logits[1, 2, 5] = 200  # a real token that costs nothing
    more_targets = torch.tensor(
        [[4, 0, 0, 2, 0, 0], [3, 6, 5, 0, 4, 1], [5, 2, 0, 0, 0, 0]]
    )
    cases = [
        (few_logits, few_targets, torch.tensor([2, 5])),
        (more_logits, more_targets, torch.tensor([4, 5, 1])),
    ]
    mistakes = {
        # What is added up, and by what it is divided.
        "the padding counts too: leave it out": way(mean=of_all),
        "divided by all tokens, padding included": way(
            mean=lambda losses, real: (losses * real).mean()
        ),
        "a mean of means: count tokens": way(
            mean=lambda losses, real: ((losses * real).sum(1) / real.sum(1)).mean()
        ),
        "this is the sum: the mean is asked for": way(
            mean=lambda losses, real: (losses * real).sum()
        ),
        "divided by sequences: count tokens": way(
            mean=lambda losses, real: (losses * real).sum() / len(real)
        ),
        "the sign: it is -log": lambda *case: -right(*case),
        "only the padding counts": way(mean=lambda losses, real: losses[~real].mean()),
        "the padding costs still": way(
            mean=lambda losses, real: losses.sum() / real.sum()
        ),
        "cut at the longest: not enough": way(
            mean=lambda losses, real: losses[:, : real.sum(1).max()].mean()
        ),
        "a real token may cost 0": way(
            mean=lambda losses, real: (
                (losses * real).sum() / (losses * real).count_nonzero()
            )
        ),
        "a sure mistake costs 200: add nothing to a probability before its log": way(
            losses=lambda z, y, real: (
                -(z.softmax(-1) + 1e-9).log().gather(-1, y[..., None])[..., 0]
            )
        ),
        # How padding is left out.
        "targets set to 0 are targets still: the loss must leave them out": way(
            losses=lambda z, y, real: each(z, y * real, real), mean=of_all
        ),
        "logits set to 0 cost ln V still: leave out the loss": way(
            losses=lambda z, y, real: each(z * real[..., None], y, real), mean=of_all
        ),
        "every token 0 is left out: a real one may be 0, only `lengths` says": (
            lambda z, y, lengths: F.cross_entropy(z.mT, y, ignore_index=0)
        ),
        "nan: leave out losses, not logits": way(
            losses=lambda z, y, real: each(
                z.masked_fill(~real[..., None], -torch.inf), y, real
            ),
            mean=of_all,
        ),
        "one token too many: length 2 means 0 and 1": (
            lambda z, y, lengths: right(z, y, lengths + 1)
        ),
        "one token too few: length 2 means 0 and 1": (
            lambda z, y, lengths: right(z, y, lengths - 1)
        ),
        "no gradient leads back to the logits: give the tensor, no number": (
            lambda *case: right(*case).detach()
        ),
    }
    praise = "filling costs nothing"
    return Exercise(right, cases, mistakes, praise, trained)


class Parts(nn.Module):
    """What a decoder's block is made of, with drawn weights: no `forward`."""

    def __init__(self, d_model: int):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, 2)
        self.cross_attention = MultiHeadAttention(d_model, 2)
        self.feed_forward = FeedForward(d_model)
        self.attention_norm = LayerNorm(d_model)
        self.cross_attention_norm = LayerNorm(d_model)
        self.feed_forward_norm = LayerNorm(d_model)
        for i, weights in enumerate(self.parameters()):
            weights.data = draw(*weights.shape, seed=i) / 2
            weights.requires_grad = False


@check
def pre_norm_block() -> Exercise:
    """`answer(block, y, causal, x, real)`: the decoder's block in pre-norm order."""

    def attend(block: Parts, y: Tensor, causal: Tensor) -> Tensor:
        return y + block.attention(block.attention_norm(y), mask=causal)

    def look(block: Parts, y: Tensor, x: Tensor, real: Tensor) -> Tensor:
        normed = block.cross_attention_norm(y)
        return y + block.cross_attention(normed, x, mask=real)

    def feed(block: Parts, y: Tensor) -> Tensor:
        return y + block.feed_forward(block.feed_forward_norm(y))

    def right(
        block: Parts,
        y: Tensor,
        causal: Tensor,
        x: Tensor,
        real: Tensor,
        attend: Callable = attend,
        look: Callable = look,
        feed: Callable = feed,
    ) -> Tensor:
        y = attend(block, y, causal)
        y = look(block, y, x, real)
        return feed(block, y)

    way = ways_of(right)

    def post_norm(block: Parts, y: Tensor, causal: Tensor, x: Tensor, real: Tensor):
        y = block.attention_norm(y + block.attention(y, mask=causal))
        y = block.cross_attention_norm(y + block.cross_attention(y, x, mask=real))
        return block.feed_forward_norm(y + block.feed_forward(y))

    def of_normed(block: Parts, y: Tensor, causal: Tensor, x: Tensor, real: Tensor):
        y = block.attention_norm(y)
        y = block.cross_attention_norm(y + block.attention(y, mask=causal))
        y = block.feed_forward_norm(y + block.cross_attention(y, x, mask=real))
        return y + block.feed_forward(y)

    def normed_after(block: Parts, y: Tensor, causal: Tensor, x: Tensor, real: Tensor):
        y = y + block.attention_norm(block.attention(y, mask=causal))
        looked = block.cross_attention(y, x, mask=real)
        y = y + block.cross_attention_norm(looked)
        return y + block.feed_forward_norm(block.feed_forward(y))

    def beside(block: Parts, y: Tensor, causal: Tensor, x: Tensor, real: Tensor):
        parts = attend(block, y, causal), look(block, y, x, real), feed(block, y)
        return sum(parts) - 2 * y

    def one_norm(block: Parts, y: Tensor, causal: Tensor, x: Tensor, real: Tensor):
        normed = block.attention_norm(y)
        y = y + block.attention(normed, mask=causal)
        y = y + block.cross_attention(normed, x, mask=real)
        return y + block.feed_forward(normed)

    def fed_first(block: Parts, y: Tensor, causal: Tensor, x: Tensor, real: Tensor):
        return look(block, feed(block, attend(block, y, causal)), x, real)

    def on_parts(
        answer: Callable, y: Tensor, causal: Tensor, x: Tensor, real: Tensor
    ) -> object:
        given = y.clone(), x.clone()
        result = answer(Parts(y.shape[-1]), given[0], causal, given[1], real)
        if not (torch.equal(given[0], y) and torch.equal(given[1], x)):
            raise Mistake("the function changes its input: work on a copy")
        return result

    few = padding_mask(torch.tensor([3, 6]), 6)
    many = padding_mask(torch.tensor([7, 2, 4]), 7)
    cases = [
        (draw(2, 6, 8), causal_mask(6), draw(2, 6, 8, seed=1), few),
        (draw(3, 4, 12), causal_mask(4), draw(3, 7, 12, seed=1), many),
    ]
    mistakes = {
        "this is the post-norm order: here each part reads a norm": post_norm,
        "the shortcut carries the norm: add each part to y itself": of_normed,
        "the three parts read the same y: each reads what the one before has left": (
            beside
        ),
        "one norm is read by all three parts: norm y anew before each part": one_norm,
        "the first part's norm is used for all three: each part has its own": way(
            look=lambda block, y, x, real: (
                y + block.cross_attention(block.attention_norm(y), x, mask=real)
            ),
            feed=lambda block, y: y + block.feed_forward(block.attention_norm(y)),
        ),
        "the feed-forward comes before the look across: it is the last of the three": (
            fed_first
        ),
        "a norm is added at the end: a block gives the stream itself, without a norm": (
            lambda *given: given[0].feed_forward_norm(right(*given))
        ),
        # The masks.
        "the future is seen: the first part needs `causal`": way(
            attend=lambda block, y, causal: attend(block, y, None)
        ),
        "the padding is seen: the second part needs `real`": way(
            look=lambda block, y, x, real: look(block, y, x, None)
        ),
        "the masks have changed places: `causal` is for y, and `real` for x": (
            lambda block, y, causal, x, real: right(block, y, real, x, causal)
        ),
        # Who asks whom.
        "the target asks itself again: the second part asks x": way(
            look=lambda block, y, x, real: (
                y + block.cross_attention(block.cross_attention_norm(y))
            )
        ),
        "the source is normed: only what asks goes through the norm": way(
            look=lambda block, y, x, real: look(
                block, y, block.cross_attention_norm(x), real
            )
        ),
        "the source asks the target: `cross_attention` is given what asks first, here"
        " the norm of y, and x second": way(
            look=lambda block, y, x, real: (
                y + block.cross_attention(x, block.cross_attention_norm(y), mask=real)
            )
        ),
        "the source is normed, and asks the target: the norm of y asks, and x is asked"
        " as it is": way(
            look=lambda block, y, x, real: (
                y + block.cross_attention(block.cross_attention_norm(x), y, mask=real)
            )
        ),
        # What is left out.
        "nobody asks the source": way(look=lambda block, y, x, real: y),
        "the feed-forward is left out": way(feed=lambda block, y: y),
        "a shortcut is missing: the first part is added to y": way(
            attend=lambda block, y, causal: attend(block, y, causal) - y
        ),
        "a shortcut is missing: the second part is added to y": way(
            look=lambda block, y, x, real: look(block, y, x, real) - y
        ),
        "a shortcut is missing: the third part is added to y": way(
            feed=lambda block, y: feed(block, y) - y
        ),
        "a norm is put on what a part gives, not on what it reads": normed_after,
        "the third part has no norm": way(
            feed=lambda block, y: y + block.feed_forward(y)
        ),
        "the first part's norm is used again: each part has its own": way(
            look=lambda block, y, x, real: (
                y + block.cross_attention(block.attention_norm(y), x, mask=real)
            )
        ),
        "the second part's norm is used again: the feed-forward has its own": way(
            feed=lambda block, y: y + block.feed_forward(block.cross_attention_norm(y))
        ),
        "the second part has no norm": way(
            look=lambda block, y, x, real: y + block.cross_attention(y, x, mask=real)
        ),
    }
    praise = "the stream goes through, and three parts read it"
    return Exercise(right, cases, mistakes, praise, on_parts)


@check
def read_once() -> Exercise:
    """`answer(layer, x, real)`: `look`, with the keys and values of x made once."""

    def cut(layer: MultiHeadAttention, features: Tensor) -> Tensor:
        return rearrange(features, "b t (h d) -> b h t d", h=layer.n_heads)

    def joined(layer: MultiHeadAttention, mixed: Tensor) -> Tensor:
        return layer.to_output(rearrange(mixed, "b h t d -> b t (h d)"))

    def right(
        layer: MultiHeadAttention,
        x: Tensor,
        real: Tensor,
        cut: Callable = cut,
        attend: Callable = attention,
        joined: Callable = joined,
    ) -> Callable:
        keys = cut(layer, layer.to_keys(x))
        values = cut(layer, layer.to_values(x))

        def look(y: Tensor) -> Tensor:
            queries = cut(layer, layer.to_queries(y))
            return joined(layer, attend(queries, keys, values, real))

        return look

    way = ways_of(right)

    def target_appended(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        def look(y: Tensor) -> Tensor:
            mask = F.pad(real, (0, y.shape[1]), value=True)
            return layer(y, torch.cat([x, y], 1), mask=mask)

        return look

    def not_scaled(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        return (q @ k.mT).masked_fill(~real, -torch.inf).softmax(-1) @ v

    def of_the_first(layer: MultiHeadAttention, x: Tensor, real: Tensor) -> Callable:
        if not hasattr(layer, "first"):
            layer.first = right(layer, x, real)
        return layer.first

    # How an answer is looked at.

    def makes_keys(look: Callable, y: Tensor, n_keys: int) -> bool:
        """Whether a look at one token makes as many numbers as one text has keys."""
        with Watch() as watch:
            look(y)
        return any(
            result.numel() >= n_keys for name, result in watch.made if name in PRODUCTS
        )

    def looks(
        answer: Callable, x: Tensor, real: Tensor, y: Tensor
    ) -> dict[str, object]:
        """Five looks, and whether they make keys and values, though they are right."""
        d_model = x.shape[-1]
        layer = MultiHeadAttention(d_model, 5 if d_model == 15 else 2)
        for i, weights in enumerate(layer.parameters()):
            weights.data = draw(*weights.shape, seed=i) / 2

        source = x.clone()
        look = answer(layer, source, real)
        if not callable(look):
            raise Mistake("it gives no function: return `look` itself")
        results = [look(part) for part in (y[:, :1], y[:, 1:2], y[:, 1:], y)]
        if not torch.equal(source, x):
            raise Mistake("the function changes its input: work on a copy")

        # Two sources at a time: each look has its own.
        other = answer(layer, 2 * source, real)(y)
        if difference(look(y), results[3]) is not None:
            raise Mistake(
                "a second source changes the first look: keep keys and values in the"
                " function that you return, not in the layer or a global"
            )
        results.append(other)

        # What was made once asks neither for the source again nor for the weights.
        is_anew = makes_keys(look, y[:, :1], x[0].numel())
        source.neg_()
        for weights in (layer.to_keys.weight, layer.to_values.weight):
            weights.data = weights.data.flip(0)
        if not is_anew:
            is_anew = difference(look(y), results[3]) is not None

        # Of a wrong answer its numbers alone are told.
        if is_anew and difference(results, looks(right, x, real, y)["looks"]):
            is_anew = False
        return {"looks": results, "keys and values": "made anew" if is_anew else "kept"}

    few = padding_mask(torch.tensor([2, 9]), 12)
    many = padding_mask(torch.tensor([6, 1, 4]), 8)
    cases = [
        (draw(2, 12, 15), few, draw(2, 6, 15, seed=1)),
        (draw(3, 8, 14), many, draw(3, 5, 14, seed=1)),
    ]
    mistakes = {
        # The source: who asks, and what is made when.
        "keys or values are made anew at each look": (
            lambda layer, x, real: lambda y: layer(y, x, mask=real)
        ),
        "the target asks itself: keys and values come from x": (
            lambda layer, x, real: lambda y: layer(y)
        ),
        "the source asks here: queries come from y": (
            lambda layer, x, real: lambda y: layer(x, y)
        ),
        # What goes into the attention.
        "the padding is seen: the attention needs `real`": way(
            attend=lambda q, k, v, real: attention(q, k, v)
        ),
        "keys and values changed places": way(
            attend=lambda q, k, v, real: attention(q, v, k, real)
        ),
        "keys are given as values too": way(
            attend=lambda q, k, v, real: attention(q, k, k, real)
        ),
        "upside down: True is seen": way(
            attend=lambda q, k, v, real: attention(q, k, v, ~real)
        ),
        "mask before softmax: the weights no longer sum to 1": way(
            attend=lambda q, k, v, real: (attention_weights(q, k) * real) @ v
        ),
        "the target's keys are appended: only the source answers": target_appended,
        "a second source gets the first one's keys: make them in each call": (
            of_the_first
        ),
        "not divided by √d": way(attend=not_scaled),
        # The heads.
        "the output matrix is missing": way(
            joined=lambda layer, mixed: rearrange(mixed, "b h t d -> b t (h d)")
        ),
        "cut feature by feature: (h d) is one head after another": way(
            cut=lambda layer, features: rearrange(
                features, "b t (d h) -> b h t d", h=layer.n_heads
            )
        ),
        "joined feature by feature: (h d) is one head after another": way(
            joined=lambda layer, mixed: layer.to_output(
                rearrange(mixed, "b h t d -> b t (d h)")
            )
        ),
        "the heads are not cut: there are `n_heads`": way(
            cut=lambda layer, features: features[:, None]
        ),
    }
    praise = "the target grows, its source stays"
    return Exercise(right, cases, mistakes, praise, looks)
