"""Checks of chapter 05."""

import functools
import math
from types import SimpleNamespace

import torch
from torch import Tensor

from ..attention import causal_mask
from ..optimizers import clip_gradients
from ..training import evaluate, next_token_loss
from .compare import compare, draw


def perplexity(answer) -> None:
    """`answer(logits, targets)`: e to the mean surprise in nats."""
    loss = next_token_loss

    def each(z, y):
        return -z.log_softmax(-1).gather(-1, y[..., None])[..., 0]

    compare(
        answer,
        lambda z, y: loss(z, y).exp().item(),
        [
            (3 * draw(2, 7, 5), torch.arange(14).view(2, 7) % 5),
            (2 * draw(3, 4, 9, seed=1), torch.arange(12).view(3, 4) % 9),
        ],
        {
            "this is the mean surprise itself: take e to the power of it": loss,
            "the loss is in nats: the base is e, not 2": lambda z, y: 2 ** loss(z, y),
            "the sign of the surprise is turned": lambda z, y: (-loss(z, y)).exp(),
            "first the mean, then the power": lambda z, y: each(z, y).exp().mean(),
            "the mean is over all characters, not over one sequence at a time": (
                lambda z, y: each(z, y).mean(-1).exp().mean()
            ),
            "one number for all: take the mean first": lambda z, y: each(z, y).exp(),
        },
        "perplexity: as unsure as a fair choice among that many",
    )


def clip(answer) -> None:
    """`answer(gradients, limit)`: the list scaled to a common norm of at most limit."""

    def right(gradients, limit):
        parameters = [SimpleNamespace(grad=gradient) for gradient in gradients]
        clip_gradients(parameters, limit)
        return [parameter.grad for parameter in parameters]

    def norm(gradients):
        return torch.cat([g.flatten() for g in gradients]).norm()

    def scaled(factor):
        return lambda gs, c: [g * factor(gs, c) for g in gs]

    compare(
        answer,
        right,
        [
            ([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])], 1.0),
            ([torch.ones(2)], 10.0),
            ([5 * draw(2, 3), draw(4, seed=1), 2 * draw(1, 5, 2, seed=2)], 3.0),
        ],
        {
            "the norm becomes 1 whatever the limit: multiply by limit / norm": scaled(
                lambda gs, c: 1 / norm(gs) if norm(gs) > c else 1
            ),
            "the factor is the limit itself: it must be limit / norm": scaled(
                lambda gs, c: c if norm(gs) > c else 1
            ),
            "a norm of 1.4 was scaled up to its limit of 10: clipping only shortens": (
                scaled(lambda gs, c: c / norm(gs))
            ),
            "the root is missing: the norm is the root of the sum of squares": scaled(
                lambda gs, c: min(1, c / norm(gs) ** 2)
            ),
            "the norms are added: add the squares of all, take the root once": scaled(
                lambda gs, c: min(1, c / sum(g.norm() for g in gs))
            ),
            "each gradient is clipped by itself: the norm is that of all together": (
                lambda gs, c: [g * min(1, c / g.norm()) for g in gs]
            ),
            "single entries are cut off at the limit: that changes the direction": (
                lambda gs, c: [g.clamp(-c, c) for g in gs]
            ),
        },
        "clip: one factor for all, and only when it is needed",
    )


class Counter(torch.nn.Module):
    """A model without weights whose loss depends on the place in the window."""

    def __init__(self, context_length: int, d_vocab: int):
        super().__init__()
        self.config = SimpleNamespace(context_length=context_length, d_vocab=d_vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        v, n = self.config.d_vocab, self.config.context_length
        if tokens.dim() != 2:
            raise ValueError(f"tokens are (b t), not {tuple(tokens.shape)}")
        if tokens.shape[1] > n:
            raise ValueError(f"{tokens.shape[1]} tokens do not fit into {n} positions")
        guess = torch.nn.functional.one_hot((tokens + 1) % v, v)
        return guess * torch.arange(1.0, tokens.shape[1] + 1)[:, None]


def whole_split(answer) -> None:
    """`answer(model, tokens)`: the mean loss over every token but the first."""

    def pairs(m, t, n=None):
        n = n or m.config.context_length
        return [*zip(t[:-1].split(n), t[1:].split(n), strict=True)]

    def mean(m, pairs, weigh=len):
        losses = [next_token_loss(m(x[None]), y[None]) * weigh(y) for x, y in pairs]
        return sum(losses) / sum(weigh(y) for _, y in pairs)

    def shifted_inside(m, t):
        parts = t.split(m.config.context_length)
        return mean(m, [(w[:-1], w[1:]) for w in parts if len(w) > 1])

    def case(context, v, n):
        generator = torch.Generator().manual_seed(n)
        return Counter(context, v), torch.randint(v, (n,), generator=generator)

    compare(
        answer,
        evaluate,
        [case(8, 5, 20), case(10, 7, 28), case(12, 4, 37)],
        {
            "the last window is shorter, and counts like a full one: weigh it": (
                lambda m, t: mean(m, pairs(m, t), lambda y: 1)
            ),
            "the predictions after the last full window are left out": (
                lambda m, t: mean(m, [p for p in pairs(m, t) if len(p[0]) >= 8])
            ),
            "this is the sum of all surprises: divide by the number of predictions": (
                lambda m, t: evaluate(m, t) * (len(t) - 1)
            ),
            "there is one prediction fewer than tokens: the first has none": (
                lambda m, t: evaluate(m, t) * (len(t) - 1) / len(t)
            ),
            "the targets are the inputs themselves: they come one token later": (
                lambda m, t: mean(m, [(x, x) for x, _ in pairs(m, t)])
            ),
            "each window loses its first token: shift, then cut": shifted_inside,
            "the window is always 8: take model.config.context_length": (
                lambda m, t: mean(m, pairs(m, t, 8))
            ),
            "where the windows come out even, an empty one is left over: skip it": (
                lambda m, t: math.nan if len(t) == 37 else evaluate(m, t)
            ),
        },
        "whole_split: every token but the first, once, with equal weight",
    )


def mask_scores(answer) -> None:
    """`answer(scores, mask)`: scores that softmax can't see where mask is False."""

    @functools.wraps(answer)
    def lowest_hides(scores, mask):  # nothing is below the lowest float: it hides too
        found = answer(scores, mask)
        if isinstance(found, Tensor) and found.is_floating_point():
            return found.masked_fill(found < -3.4e38, -torch.inf)
        return found

    def filled(fill):
        return lambda z, mask: z.masked_fill(~mask, fill(z))

    right = filled(lambda z: -torch.inf)
    mask, longer = causal_mask(3), causal_mask(4, 6)
    scores = torch.tensor([[0.0, 1e6, 0.0], [1e4, 0.0, 2e4], [-1e9, -1e9, -1e9]])
    mistakes = {
        "the wrong side is hidden: True is where attention is allowed": (
            lambda z, mask: z.masked_fill(mask, -torch.inf)
        ),
        "0 times infinity is not a number: choose, by torch.where or masked_fill": (
            lambda z, mask: z + -torch.inf * ~mask
        ),
        "give scores: softmax comes later": lambda z, mask: right(z, mask).softmax(-1),
        "the lowest score less 1 still gets a share: only -inf gets none": (
            filled(lambda z: z.min() - 1)
        ),
    }
    for c in (0.0, *(-(10.0**k) for k in (0, 1, 2, 3, 4, 5, 6, 9, 10, 12, 20, 30))):
        why = f"{c:g} can be outbid, by scores that are lower still: only -inf can't"
        mistakes[why] = filled(lambda z, c=c: c)
        mistakes[f"added, {why}"] = lambda z, mask, c=c: z + c * ~mask
    compare(
        lowest_hides if callable(answer) else answer,
        right,
        [(scores, mask), (scores * 1e4, mask), (draw(2, 3, 4, 6), longer)],
        mistakes,
        "mask_scores: -inf can't be outbid",
    )
