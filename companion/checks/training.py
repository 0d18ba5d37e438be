"""Checks of chapter 05."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from ..training import evaluate, next_token_loss
from .compare import compare, draw


def clip(answer) -> None:
    """`answer(gradients, limit)`: the list scaled to a common norm of at most limit."""

    def norm(gradients):
        return torch.cat([g.flatten() for g in gradients]).norm()

    def scaled(factor):
        return lambda gs, c: [g * factor(gs, c) for g in gs]

    compare(
        answer,
        scaled(lambda gs, c: min(1, c / norm(gs))),
        [
            ([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])], 1.0),
            ([torch.ones(2)], 10.0),
            ([5 * draw(2, 3), draw(4, seed=1), 2 * draw(1, 5, 2, seed=2)], 3.0),
        ],
        {
            "the norm becomes 1 whatever the limit: multiply by limit / norm": scaled(
                lambda gs, c: 1 / norm(gs) if norm(gs) > c else 1
            ),
            "a norm of 1.4 was scaled up to its limit of 10: clipping only shortens": (
                scaled(lambda gs, c: c / norm(gs))
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


def adamw_steps(p, gradients, rate, decay, missing=None) -> Tensor:
    """AdamW, but for one thing that is missing or wrong."""
    m = v = torch.zeros_like(p)
    for t, g in enumerate(gradients, 1):
        t, g = t - (missing == "from 0"), g + (missing == "beside") * decay * p
        if missing == "means":
            m = v = torch.zeros_like(p)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        mean, square = m / (1 - 0.9**t), v / (1 - 0.999**t)
        if missing == "apart":
            m, v = mean, square
        step = (0.001 if missing == "rate" else rate) * mean / (square.sqrt() + 1e-8)
        share = {"decay": 0, "beside": 0, "decay's rate": 1}.get(missing, rate)
        p = p - step - share * decay * (p - step if missing == "before" else p)
    return p


def adamw(answer) -> None:
    """`answer(p, gradients, rate, decay)`: where p ends, a step for each gradient."""
    words = {
        "decay": "the decay is missing: this is Adam",
        "beside": "the decay is in the gradient: take it from p, beside Adam's step",
        "decay's rate": "the decay is not times the rate",
        "before": "the decay is of p after the step: take it of p before",
        "rate": "the step has a rate of 0.001: pass the rate on",
        "apart": "carry m and v on as they were: the divisions are for the step alone",
        "from 0": "t counts from 1: at 0 both divisions are by 0",
        "means": "the means begin at 0 again with each gradient: carry them on",
    }
    compare(
        answer,
        adamw_steps,
        [
            (draw(3), [*draw(4, 3, seed=1)], 0.1, 0.5),
            (draw(2, 5, seed=2), [*1e-4 * draw(7, 2, 5, seed=3)], 0.03, 2.0),
            (2 + draw(4, 1, seed=4), [*5 * draw(2, 4, 1, seed=5)], 0.2, 0.1),
        ],
        {said: partial(adamw_steps, missing=part) for part, said in words.items()},
        "adamw: the decay goes beside the gradient, as in PyTorch",
    )


class Counter(torch.nn.Module):
    """A model without weights whose loss depends on the place in the window."""

    def __init__(self, context_length: int, d_vocab: int):
        super().__init__()
        self.config = SimpleNamespace(context_length=context_length, d_vocab=d_vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        v, n = self.config.d_vocab, self.config.context_length
        if tokens.dim() != 2 or tokens.shape[1] > n:
            raise ValueError(f"tokens are (b t), t at most {n}: {tuple(tokens.shape)}")
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

    def shifted_inside(m, t, more=0):
        parts = t.split(m.config.context_length + more)
        return mean(m, [(w[:-1], w[1:]) for w in parts if len(w) > 1])

    sizes = ((8, 5, 20), (10, 7, 28), (12, 4, 37))
    compare(
        answer,
        evaluate,
        [(Counter(n, v), torch.arange(t) ** 2 // 3 % v) for n, v, t in sizes],
        {
            "the last window is shorter, and counts like a full one: weigh it": (
                lambda m, t: mean(m, pairs(m, t), lambda y: 1)
            ),
            "the predictions after the last full window are left out": (
                lambda m, t: mean(m, [p for p in pairs(m, t) if len(p[0]) >= 8])
            ),
            "there is one prediction fewer than tokens: the first has none": (
                lambda m, t: evaluate(m, t) * (len(t) - 1) / len(t)
            ),
            "the targets are the inputs themselves: they come one token later": (
                lambda m, t: mean(m, [(x, x) for x, _ in pairs(m, t)])
            ),
            "each window loses its first token: shift, then cut": shifted_inside,
            "of windows of n + 1 each begins with the last token of the one before": (
                partial(shifted_inside, more=1)
            ),
            "the window is always 8: take model.config.context_length": (
                lambda m, t: mean(m, pairs(m, t, 8))
            ),
        },
        "whole_split: every token but the first, once, with equal weight",
    )


def best_steps(model, optimizer, batches, judge, missing=None) -> list:
    """Train and keep the best weights, but for one thing that is missing."""
    scores = []
    for x, y in batches:
        loss = next_token_loss(model(x), y)
        if missing != "zero_grad":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.append(judge(model))
        rivals = scores[-2:] if missing == "all" else scores
        if scores[-1] == min(rivals):
            best = model.weight.detach().clone()
    if missing != "load":
        model.weight.data.copy_(best)
    return scores


def best(answer) -> None:
    """`answer(model, optimizer, batches, judge)`: scores; the best weights stay."""

    def with_a_model(loop):
        def outcome(d_vocab, steps):
            """What is learned helps where a step is 1, and harms where it is 2."""
            model = torch.nn.Embedding(d_vocab, d_vocab)
            model.weight.data.copy_(draw(d_vocab, d_vocab, seed=len(steps)))
            x = torch.arange(2 * d_vocab).view(2, -1) % d_vocab
            batches = [(x.clone(), (x + step) % d_vocab) for step in steps]
            optimizer = torch.optim.SGD(model.parameters(), lr=d_vocab / 2)

            def judge(model):
                with torch.no_grad():
                    return next_token_loss(model(x), (x + 1) % d_vocab).item()

            return [loop(model, optimizer, batches, judge), model.weight.detach()]

        return outcome

    words = {
        "load": "the weights are those of the last step. Were the best chosen by judge,"
        " copied, and loaded? (`state_dict()` holds the weights themselves.)",
        "all": "the score was lower than the one before: it must be lower than all",
        "zero_grad": "all gradients add up: zero_grad comes before backward",
    }
    compare(
        with_a_model(answer) if callable(answer) else answer,
        with_a_model(best_steps),
        [(5, [1, 1, 2, 2, 2, 1]), (7, [1] * 7), (4, [2] * 8)],
        {w: with_a_model(partial(best_steps, missing=x)) for x, w in words.items()},
        "best: a copy of the weights, from the step where they were best",
    )
