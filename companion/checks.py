"""Checks for the exercises: one line when it is right, the likely mistake when not."""

import math

import torch

from .training import evaluate, next_token_loss


class Mistake(AssertionError):
    """A wrong answer, shown in a notebook as its one line, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


def expect(right: bool, words: str) -> None:
    """Raise Mistake with `words` unless `right`."""
    if not right:
        raise Mistake(words)


def close(ours, right, tolerance: float = 1e-4) -> bool:
    """Whether two numbers or tensors of one shape agree, relatively or absolutely."""
    ours, right = torch.as_tensor(ours).double(), torch.as_tensor(right).double()
    return ours.shape == right.shape and torch.allclose(
        ours, right, rtol=tolerance, atol=tolerance
    )


def passed(words: str) -> None:
    print(f"✓ {words}")


def perplexity(answer) -> None:
    """`answer(logits, targets)`: e to the mean surprise in nats. Chapter 05."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 7, 5, generator=generator)
    targets = torch.randint(5, (2, 7), generator=generator)
    surprise = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="none"
    )
    ours = answer(logits, targets)
    expect(ours is not None, "the function returns nothing: is there a `return`?")
    expect(
        not close(ours, surprise.mean()),
        "this is the mean surprise itself: take e to the power of it",
    )
    expect(
        not close(ours, 2 ** surprise.mean()),
        "the loss is in nats, so the base is e, not 2",
    )
    expect(
        not close(ours, surprise.exp().mean()),
        "the mean comes first and the exponential after it, not the other way round",
    )
    expect(close(ours, surprise.mean().exp()), f"expected {surprise.mean().exp():.4f}")
    passed("perplexity: as unsure as a fair choice among that many")


def clip(answer) -> None:
    """`answer(gradients, limit)`: the list scaled to a common norm. Chapter 05."""
    large, small = [torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])], [torch.ones(2)]
    before = [g.clone() for g in large]
    ours = answer([g.clone() for g in large], 1.0)
    expect(ours is not None, "the function returns nothing: is there a `return`?")
    norm = torch.cat([g.flatten() for g in ours]).norm()
    expect(
        not close(norm, math.sqrt(2)),
        "each gradient is clipped by itself: the norm is that of all of them together",
    )
    expect(
        not all((g.abs() <= 1).all() and g.max() == 1 for g in ours),
        "single entries are cut off at the limit: that changes the direction",
    )
    expect(
        close(norm, 1.0),
        f"the common norm is {norm:.3f} after clipping 13 to a limit of 1",
    )
    expect(
        all(close(g, b / 13) for g, b in zip(ours, before, strict=True)),
        "the norm is right but the direction changed: scale all by one factor",
    )
    expect(
        close(answer([g.clone() for g in small], 10.0)[0], small[0]),
        "a norm of 1.4 under a limit of 10 was scaled up: clipping only shortens",
    )
    passed("clip: one factor for all, and only when it is needed")


class Counter(torch.nn.Module):
    """A model without weights whose loss depends on the position in the window."""

    class config:  # noqa: N801
        context_length = 8

    def forward(self, tokens):
        logits = torch.nn.functional.one_hot((tokens + 1) % 5, 5).float()
        return logits * torch.arange(1, tokens.shape[1] + 1)[:, None]


def whole_split(answer) -> None:
    """`answer(model, tokens)`: the mean loss over every token but the first. 05."""
    tokens = torch.randint(5, (20,), generator=torch.Generator().manual_seed(1))
    model = Counter()
    ours, right = answer(model, tokens), evaluate(model, tokens)
    expect(ours is not None, "the function returns nothing: is there a `return`?")
    losses = [
        next_token_loss(model(x[None]), y[None]).item()
        for x, y in zip(tokens[:-1].split(8), tokens[1:].split(8), strict=True)
    ]
    expect(
        not close(ours, sum(losses) / 3),
        "the last window has 3 predictions and counts like one of 8: weigh by length",
    )
    expect(
        not close(ours, sum(losses[:2]) / 2),
        "the 3 predictions after the last full window are left out",
    )
    expect(
        not close(ours, sum(a * b for a, b in zip(losses, (8, 8, 3), strict=True))),
        "this is the sum of all surprises: divide by the number of predictions, 19",
    )
    expect(close(ours, right), f"expected {right:.4f}, got {float(ours):.4f}")
    passed("whole_split: every token but the first, once, with equal weight")


def mask_scores(answer) -> None:
    """`answer(scores, mask)`: scores that softmax can't see where mask is False. 05."""
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    scores = torch.tensor([[0.0, 1e6, 0.0], [1e4, 0.0, 2e4], [-1e9, -1e9, -1e9]])
    ours = answer(scores.clone(), mask)
    expect(ours is not None, "the function returns nothing: is there a `return`?")
    weights = ours.softmax(-1)
    expect(
        not close(weights[2], torch.tensor([1 / 3] * 3)) or close(weights[0, 0], 1.0),
        "a score of a million outbids your constant: only -inf can't be outbid",
    )
    expect(
        close(weights[0], torch.tensor([1.0, 0.0, 0.0])),
        "position 0 still sees position 1: is True where attention is allowed?"
        if weights[0, 0] == 0 and not torch.isinf(ours[0, 1])
        else "position 0 does not see itself alone: True means may attend",
    )
    expect(bool((ours[mask] == scores[mask]).all()), "a score that is allowed changed")
    passed("mask_scores: -inf can't be outbid")
