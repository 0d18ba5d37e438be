"""Checks of chapter 05: a wrong answer is the right one with one thing `missing`."""

from functools import partial
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ..models import GPT, GPTConfig
from ..training import evaluate, next_token_loss
from .compare import Mistake, compare, difference, draw


def lacking(right, words: dict, wrap=lambda function: function) -> dict:
    return {said: wrap(partial(right, missing=part)) for part, said in words.items()}


def clipped(gs, limit, missing=None) -> list[Tensor]:
    entries, each = torch.cat([g.flatten() for g in gs]), [g.norm() for g in gs]
    norms = {"root": entries @ entries, "sum": sum(each)}
    if missing == "direction":
        return [g.clamp(-limit, limit) for g in gs]
    if missing != "together":
        each = [norms.get(missing, entries.norm())] * len(gs)
    to, up = 1 if missing == "limit" else limit, missing == "only"
    up = up or (missing == "zero" and not entries.any())
    factors = [to / norm if norm > limit or up else 1 for norm in each]
    return [g * factor for g, factor in zip(gs, factors, strict=True)]


def clip(answer) -> None:
    """`answer(gradients, limit)`: the list scaled to a common norm of at most limit."""
    words = {
        "limit": "the norm becomes 1 whatever the limit: multiply by limit / norm",
        "only": "a norm of 1.4 was scaled up to a limit of 10: clipping only shortens",
        "together": "each gradient is clipped by itself: the norm is that of them all",
        "direction": "single entries are cut off: that changes the direction",
        "root": "the squares are added, but the root is missing",
        "sum": "the lengths are added: 3 and 4 make 5, so add their squares",
        "zero": "where all are 0 it gives 0/0: multiply by limit / norm or 1",
    }
    cases = [
        ([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])], 1.0),
        ([torch.ones(2)], 10.0),
        ([torch.zeros(3)], 2.0),
        ([5 * draw(2, 3), draw(4, seed=1), 2 * draw(1, 5, 2, seed=2)], 3.0),
    ]
    praise = "clip: one factor for all, and only when it is needed"
    compare(answer, clipped, cases, lacking(clipped, words), praise)


def adamw_steps(p, gradients, rate, decay, missing=None) -> Tensor:
    m = v = torch.zeros_like(p)
    for t, g in enumerate(gradients[: 1 if missing == "rest" else None], 1):
        t = 1 if missing == "t" else t - (missing == "from 0")
        g = g + (missing == "beside") * decay * p
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        mean = m if missing in ("m", "both") else m / (1 - 0.9**t)
        square = v if missing in ("v", "both") else v / (1 - 0.999**t)
        m, v = {"apart": (mean, square), "means": (0, 0)}.get(missing, (m, v))
        others = {"eps": square.sqrt(), "root": square + 1e-8}
        root = others.get(missing, square.sqrt() + 1e-8)
        step = {"rate": 0.001, "up": -rate}.get(missing, rate) * mean / root
        share = {"decay": 0, "beside": 0, "alone": 1, "away": -rate}.get(missing, rate)
        p = p - step - share * decay * (p - step if missing == "before" else p)
    return p


def adamw(answer) -> None:
    """`answer(p, gradients, rate, decay)`: where p ends, a step for each gradient."""
    words = {
        "decay": "the decay is missing: this is Adam",
        "up": "the step goes up the gradient: subtract it",
        "beside": "the decay is in the gradient: take it from p, beside Adam's step",
        "alone": "the decay is not times the rate",
        "before": "the decay is of p after the step: take it of p before",
        "away": "the decay is added: it pulls p towards 0, so subtract it",
        "rate": "the step has a rate of 0.001: pass the rate on",
        "apart": "carry m and v on as they were: the divisions are for the step alone",
        "both": "m and v begin at 0, too small: divide by 1 - 0.9**t and 1 - 0.999**t",
        "m": "m is not divided by 1 - 0.9**t: it begins at 0, too small",
        "v": "v is not divided by 1 - 0.999**t: it begins at 0, too small",
        "eps": "where all gradients are 0 it gives 0/0: the ε is missing, 1e-8",
        "root": "the root of v is missing: the size cancels only with it",
        "t": "t is 1 in every step: it must count them",
        "from 0": "t counts from 1: at 0 both divisions are by 0",
        "means": "the means begin at 0 again with each gradient: carry them on",
        "rest": "only the first gradient makes a step: is `return` in the loop?",
    }
    cases = [
        (draw(3), [*draw(4, 3, seed=1) * torch.tensor([1, 0, 1])], 0.1, 0.5),
        (draw(2, 5, seed=2), [*1e-4 * draw(7, 2, 5, seed=3)], 0.03, 2.0),
        (2 + draw(4, 1, seed=4), [*5 * draw(2, 4, 1, seed=5)], 0.2, 0.1),
    ]
    praise = "adamw: the decay goes beside the gradient, as in PyTorch"
    compare(answer, adamw_steps, cases, lacking(adamw_steps, words), praise)


@torch.no_grad()
def split_loss(model, t, missing=None) -> float:
    n = 8 if missing == "8" else model.config.context_length
    x, y = t[:-1].split(n), t[1:].split(n)
    if missing == "back":
        x, y = (*x[:-1], t[-n - 1 : -1]), (*y[:-1], t[-n:])
    if missing in ("first", "overlap"):
        parts = [w for w in t.split(n + (missing == "overlap")) if len(w) > 1]
        x, y = [w[:-1] for w in parts], [w[1:] for w in parts]
    y = x if missing == "shift" else y
    last = {"weight": n, "rest": len(x[-1]) // n * n}.get(missing, len(x[-1]))
    weights = [*map(len, x[:-1]), last]
    parts = zip(x, y, weights, strict=True)
    total = sum(next_token_loss(model(a[None]), b[None]) * w for a, b, w in parts)
    return total.item() / {"sum": 1, "none": len(t)}.get(missing, sum(weights))


def whole_split(answer) -> None:
    """`answer(model, tokens)`: the mean loss over every token but the first."""
    words = {
        "weight": "the last window is shorter, and counts like a full one: weigh it",
        "rest": "the predictions after the last full window are left out",
        "none": "there is one prediction fewer than tokens: the first has none",
        "sum": "this is the sum: divide by the number of predictions",
        "shift": "the targets are the inputs themselves: they come one token later",
        "first": "each window loses its first token: shift, then cut",
        "overlap": "a window of n + 1 begins with the last token of the one before",
        "8": "the window is always 8: take model.config.context_length",
        "back": "the last window reaches back to be full: leave it shorter",
    }

    def on_a_model(judge, context_length, d_vocab, n_tokens):
        sizes = {"context_length": context_length, "d_vocab": d_vocab}
        model = GPT(GPTConfig(**sizes, d_model=2, n_heads=1, n_layers=1))
        for i, p in enumerate(model.parameters()):
            p.data.copy_(draw(*p.shape, seed=i))
        tokens = torch.arange(n_tokens) ** 2 // 3 % d_vocab
        kept, counts = WeakSet(), []
        model.register_forward_pre_hook(lambda *_: counts.append(len(kept)))
        with saved_tensors_hooks(lambda x: kept.add(f := partial(int)) or f, id):
            loss = judge(model, tokens)
        grows = sum(counts[2:3]) > 1.5 * sum(counts[1:2])
        keeps = n_tokens > 35 and (grows or getattr(loss, "requires_grad", False))
        if keeps and not difference(loss, evaluate(model, tokens)):
            raise Mistake("whole_split: it keeps all for a way back: no_grad")
        return loss

    answer = partial(on_a_model, answer) if callable(answer) else answer
    cases = [(8, 5, 20), (10, 7, 31), (12, 4, 40)]
    mistakes = lacking(split_loss, words, partial(partial, on_a_model))
    praise = "whole_split: every token but the first, once, with equal weight"
    compare(answer, partial(on_a_model, evaluate), cases, mistakes, praise)


def best_steps(model, optimizer, batches, judge, missing=None) -> list:
    losses, scores = [], []
    for x, y in batches:
        early, loss = judge(model), next_token_loss(model(x), y)
        if missing != "zero_grad":
            optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e9 if missing == "clip" else 1)
        optimizer.step()
        losses.append(loss.item())
        scores.append(early if missing == "early" else judge(model))
        rivals = {"all": scores[-2:], "loss": losses}.get(missing, scores)
        if rivals[-1] == min(rivals):
            best = {name: x.clone() for name, x in model.state_dict().items()}
    model.load_state_dict(model.state_dict() if missing == "load" else best)
    return scores


def best(answer) -> None:
    """`answer(model, optimizer, batches, judge)`: scores; the best weights stay."""
    words = {
        "load": "the last weights stay: were the best copied (`clone`), and loaded?",
        "all": "the score was lower than the one before: it must be lower than all",
        "loss": "the batch's loss chose the best: let judge choose",
        "early": "judge saw the weights before the step: it comes after",
        "zero_grad": "all gradients add up: zero_grad comes before backward",
        "clip": "nothing is clipped to 1: it belongs between backward and step",
    }

    def trained(loop, d_vocab, steps):
        model = nn.Embedding(d_vocab, d_vocab)
        model.weight.data.copy_(draw(d_vocab, d_vocab, seed=len(steps)))
        model.weight.register_hook(lambda gradient: 8 * gradient)
        x = torch.arange(2 * d_vocab).view(2, -1) % d_vocab
        batches = [(x.clone(), (x + step) % d_vocab) for step in steps]
        optimizer = torch.optim.SGD(model.parameters(), lr=d_vocab / 2)

        def judge(model):
            return 5 + next_token_loss(model(x), (x + 1) % d_vocab).item()

        return [loop(model, optimizer, batches, judge), model.weight]

    cases = [(5, [1, 1, 2, 2, 2, 1]), (7, [1] * 7), (4, [2] * 8)]
    answer = partial(trained, answer) if callable(answer) else answer
    mistakes = lacking(best_steps, words, partial(partial, trained))
    praise = "best: a copy of the weights, from the step where they were best"
    compare(answer, partial(trained, best_steps), cases, mistakes, praise)
