"""Checks of chapter 05."""

import torch

from ..optimizers import clip_gradients
from ..training import evaluate, next_token_loss
from .compare import compare, draw


def perplexity(answer) -> None:
    """`answer(logits, targets)`: e to the mean surprise in nats."""
    loss, targets = next_token_loss, torch.arange(14).view(2, 7) % 5

    def mean_of_exponentials(logits, targets):
        return (1 / logits.softmax(-1).gather(-1, targets[..., None])).mean()

    compare(
        answer,
        lambda z, y: loss(z, y).exp(),
        [(3 * draw(2, 7, 5), targets)],
        [
            ("this is the mean surprise itself: take e to the power of it", loss),
            ("the loss is in nats: the base is e, not 2", lambda z, y: 2 ** loss(z, y)),
            ("first the mean, then the exponential", mean_of_exponentials),
        ],
        "perplexity: as unsure as a fair choice among that many",
    )


def clip(answer) -> None:
    """`answer(gradients, limit)`: the list scaled to a common norm of at most limit."""

    def right(gradients, limit):
        parameters = [torch.zeros_like(g) for g in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        clip_gradients(parameters, limit)
        return [parameter.grad for parameter in parameters]

    def norm(gradients):
        return torch.cat([g.flatten() for g in gradients]).norm()

    large = [torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])]
    compare(
        answer,
        right,
        [(large, 1.0), ([torch.ones(2)], 10.0), (large, 2.0)],
        [
            (
                "the norm is 1 whatever the limit: multiply by limit / norm",
                lambda gs, c: [g / norm(gs) for g in gs] if norm(gs) > c else gs,
            ),
            (
                "each gradient is clipped by itself: the norm is that of all together",
                lambda gs, c: [g * min(1, c / g.norm()) for g in gs],
            ),
            (
                "single entries are cut off at the limit: that changes the direction",
                lambda gs, c: [g.clamp(-c, c) for g in gs],
            ),
            (
                "a norm of 1.4 was scaled up to its limit: clipping only shortens",
                lambda gs, c: [g * c / norm(gs) for g in gs],
            ),
        ],
        "clip: one factor for all, and only when it is needed",
    )


class Counter(torch.nn.Module):
    """A model without weights whose loss depends on the position in the window."""

    class config:  # noqa: N801
        context_length = 8

    def forward(self, tokens):
        logits = torch.nn.functional.one_hot((tokens + 1) % 5, 5).float()
        return logits * torch.arange(1, tokens.shape[1] + 1)[:, None]


def whole_split(answer) -> None:
    """`answer(model, tokens)`: the mean loss over every token but the first."""
    tokens = torch.randint(5, (20,), generator=torch.Generator().manual_seed(1))

    def losses(model, tokens):
        windows = zip(tokens[:-1].split(8), tokens[1:].split(8), strict=True)
        return [next_token_loss(model(x[None]), y[None]) for x, y in windows]

    compare(
        answer,
        evaluate,
        [(Counter(), tokens)],
        [
            (
                "the last window has 3 predictions and counts like one of 8: weigh it",
                lambda m, t: sum(losses(m, t)) / 3,
            ),
            (
                "the 3 predictions after the last full window are left out",
                lambda m, t: sum(losses(m, t)[:2]) / 2,
            ),
            (
                "this is the sum of all surprises: divide by the 19 predictions",
                lambda m, t: evaluate(m, t) * 19,
            ),
        ],
        "whole_split: every token but the first, once, with equal weight",
    )


def mask_scores(answer) -> None:
    """`answer(scores, mask)`: scores that softmax can't see where mask is False."""
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    scores = torch.tensor([[0.0, 1e6, 0.0], [1e4, 0.0, 2e4], [-1e9, -1e9, -1e9]])
    outbid = "a hidden score still counts where the others are low enough: only -inf"
    constants = (0.0, -1.0, -1e4, -1e5, -1e9)
    fills = [lambda z, mask, c=c: z.masked_fill(~mask, c) for c in constants]
    sums = [lambda z, mask, c=c: z + c * ~mask for c in constants]
    compare(
        lambda z, mask: torch.as_tensor(answer(z, mask)).softmax(-1),
        lambda z, mask: z.masked_fill(~mask, -torch.inf).softmax(-1),
        [(scores, mask), (scores - 1e9, mask), (scores * 1e4, mask)],
        [
            (
                "the wrong side is hidden: True is where attention is allowed",
                lambda z, mask: z.masked_fill(mask, -torch.inf).softmax(-1),
            ),
            *(
                (
                    f"{outbid} can't be outbid",
                    lambda z, mask, f=f: f(z, mask).softmax(-1),
                )
                for f in fills + sums
            ),
        ],
        "mask_scores: -inf can't be outbid",
    )
