"""Checks of chapter 05: a wrong answer is the right one with one thing `missing`."""

import copy
from functools import partial
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ...model.gpt import GPT, GPTConfig
from ...training.loop import next_token_loss
from .compare import Mistake, compare, difference, draw


def lacking(**words: str) -> dict[str, dict]:
    return {said: {"missing": part} for part, said in words.items()}


def clipped(gs, limit, missing=None) -> list[Tensor]:
    each = torch.stack([g.norm() for g in gs])
    norm = {"together": each, "root": each @ each, "sum": each.sum(), "none": each * 0}
    norm = norm.get(missing, each.norm()).expand(len(gs))
    if missing == "direction":
        return [g.clamp(-limit, limit) for g in gs]
    to = 1 if missing == "limit" else limit
    up = missing == "only" or (missing == "zero" and not each.any())
    norm = [to / n if n > limit or up else 1 for n in norm]
    return [g * n for g, n in zip(gs, norm, strict=True)]


def clip(answer) -> None:
    """`answer(gradients, limit)`: the list scaled to a common norm of at most limit."""
    mistakes = lacking(
        limit="the norm becomes 1 whatever the limit: multiply by limit / norm",
        only="a norm of 1.4 was scaled up to a limit of 10: clipping only shortens",
        together="each gradient is clipped by itself: the norm is that of them all",
        direction="single entries are cut off: that changes the direction",
        root="the squares are added, but the root is missing",
        sum="the lengths are added: 3 and 4 make 5, so add their squares",
        zero="where all are 0 it gives 0/0: multiply by limit / norm or 1",
        none="nothing is shortened (clip_grad_norm_ clips the .grad of parameters)",
    )
    cases = [([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])], 1.0)]
    cases += [([torch.ones(2)], 10.0), ([torch.zeros(3)], 2.0)]
    cases += [([5 * draw(2, 3), draw(4, seed=1), 2 * draw(1, 5, 2, seed=2)], 3.0)]
    praise = "clip: one factor for all, and only when it is needed"
    compare(answer, clipped, cases, mistakes, praise)


def adamw_steps(p, gradients, rate, decay, missing=None) -> Tensor:
    m = v = torch.zeros_like(p)
    for t, g in enumerate(gradients[: 1 if missing == "rest" else None], 1):
        t = 1 if missing == "t" else t - (missing == "from_0")
        g = g + (missing == "beside") * decay * p
        squares = g.abs() if missing == "power" else g**2
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * squares
        mean = m if missing in ("m", "both") else m / (1 - 0.9**t)
        square = v if missing in ("v", "both") else v / (1 - 0.999**t)
        m, v = {"apart": (mean, square), "means": (0, 0)}.get(missing, (m, v))
        inside = 1e-8 if missing in ("inside", "root") else 0
        root = (square + inside) ** (1 if missing == "root" else 0.5)
        root = root.clamp(min=1e-12) if missing == "clamp" else root
        plain = inside or missing in ("eps", "clamp")
        step = rate * mean / (root + (0 if plain else 1e-8))
        share = {"decay": 0, "beside": 0, "alone": 1, "up": -rate}.get(missing, rate)
        p = p - step - share * decay * (p - step if missing == "before" else p)
    return p


def adamw(answer) -> None:
    """`answer(p, gradients, rate, decay)`: where p ends, a step for each gradient."""
    mistakes = lacking(
        decay="the decay is missing: this is Adam",
        beside="the decay is in the gradient: take it from p, beside Adam's step",
        alone="the decay is not times the rate",
        before="the decay is of p after the step: take it of p before",
        apart="carry m and v on as they were: the divisions are for the step alone",
        both="m and v begin at 0, too small: divide by 1 - 0.9**t and 1 - 0.999**t",
        m="m is not divided by 1 - 0.9**t: it begins at 0, too small",
        v="v is not divided by 1 - 0.999**t: it begins at 0, too small",
        eps="where all gradients are 0 it gives 0/0: the ε is missing, 1e-8",
        clamp="a clamp is not an ε: add 1e-8 to the root, also where it is large",
        inside="the ε is inside the root: add it to the root of v",
        power="v is the mean of the gradients' squares: g**2, not |g|",
        up="the decay is added: it pulls p towards 0, so take it away",
        root="the root of v is missing: the size cancels only with it",
        t="t is 1 in every step: it must count them",
        from_0="t counts from 1: at 0 both divisions are by 0",
        means="the means begin at 0 again with each gradient: carry them on",
        rest="only the first gradient makes a step: is `return` in the loop?",
    )
    cases = [(draw(3), [*draw(4, 3, seed=1) * torch.tensor([1, 0, 1])], 0.1, 0.5)]
    cases += [(draw(2, 5, seed=2), [*1e-7 * draw(7, 2, 5, seed=3)], 0.03, 2.0)]
    cases += [(2 + draw(4, 1, seed=4), [*5 * draw(2, 4, 1, seed=5)], 0.2, 0.1)]
    praise = "adamw: the decay goes beside the gradient, as in PyTorch"
    compare(answer, adamw_steps, cases, mistakes, praise)


@torch.no_grad()
def split_loss(model, t, missing=None) -> float:
    n = model.config.context_length
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
    n = 1 if missing == "sum" else sum(weights) + (missing == "tokens")
    return total.item() / (n or float("nan"))


def whole_split(answer) -> None:
    """`answer(model, tokens)`: the mean loss over every token but the first."""
    mistakes = lacking(
        weight="the last window is shorter, and counts like a full one: weigh it",
        rest="the predictions after the last full window are left out",
        sum="this is the sum: divide by the number of predictions",
        tokens="divide by the predictions, one fewer than tokens",
        shift="the targets are the inputs themselves: they come one token later",
        first="each window loses its first token: shift, then cut",
        overlap="a window of n + 1 begins with the last token of the one before",
        back="the last window reaches back to be full: leave it shorter",
    )

    def on_a_model(answer, context_length, d_vocab, n_tokens):
        sizes = {"context_length": context_length, "d_vocab": d_vocab}
        model = GPT(GPTConfig(**sizes, d_model=2, n_heads=1, n_layers=1))
        for i, p in enumerate(model.parameters()):
            p.data.copy_(draw(*p.shape, seed=i))
        tokens = torch.arange(n_tokens) ** 2 // 3 % d_vocab
        kept, counts = WeakSet(), []
        model.register_forward_pre_hook(lambda *_: counts.append(len(kept)))
        with saved_tensors_hooks(lambda x: kept.add(f := partial(int)) or f, id):
            loss = answer(model, tokens)
        grows = sum(counts[2:3]) > 1.5 * sum(counts[1:2])
        keeps = n_tokens > 35 and (grows or getattr(loss, "requires_grad", False))
        if keeps and not difference(loss, split_loss(model, tokens)):
            raise Mistake("it keeps all for a way back: no_grad")
        return loss

    cases = [(8, 5, 20), (10, 7, 31), (12, 4, 40), (6, 4, 3)]
    praise = "whole_split: every token but the first, once, with equal weight"
    compare(answer, split_loss, cases, mistakes, praise, on_a_model)


def best_steps(model, optimizer, batches, judge, missing=None) -> list:
    losses, scores = [], []
    for x, y in batches:
        early, loss = judge(model), next_token_loss(model(x), y)
        if missing != "zero_grad":
            optimizer.zero_grad()
        loss.backward()
        limit = 1e9 if missing == "clip" else 1
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
        losses.append(loss.item())
        scores.append(early if missing == "early" else judge(model))
        rivals = {"all": scores[-2:], "loss": losses}.get(missing, scores)
        if rivals[-1] == (max if missing == "low" else min)(rivals):
            best = {name: x.clone() for name, x in model.state_dict().items()}
    model.load_state_dict(model.state_dict() if missing == "load" else best)
    return scores


def best(answer) -> None:
    """`answer(model, optimizer, batches, judge)`: scores; the best weights stay."""

    def loop(model, batches, judge, update):
        """The whole loop; `update(loss)` is what a step does with it."""
        scores = []
        for x, y in batches:
            update(next_token_loss(model(x), y))
            scores.append(judge(model))
            if scores[-1] == min(scores):
                weights = copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        return scores

    def without_a_step(model, optimizer, batches, judge):
        return loop(model, batches, judge, lambda loss: loss.backward())

    def cleared_too_late(model, optimizer, batches, judge):
        def update(loss):
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()

        return loop(model, batches, judge, update)

    def each_clipped_by_itself(model, optimizer, batches, judge):
        def update(loss):
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                nn.utils.clip_grad_norm_([parameter], 1)
            optimizer.step()

        return loop(model, batches, judge, update)

    mistakes = lacking(
        load="the last weights stay: were the best copied (`clone`), and loaded?",
        all="the score was lower than the one before: it must be lower than all",
        loss="the batch's loss chose the best: let judge choose",
        early="judge saw the weights before the step: it comes after",
        zero_grad="all gradients add up: zero_grad comes before backward",
        clip="nothing is clipped to 1: it belongs between backward and step",
        low="the weights of the highest number stay, and the lower the better",
    ) | {
        "the model never moves: call optimizer.step()": without_a_step,
        "the steps find no gradients: they are cleared after backward, or are those of"
        " a copy of the model": cleared_too_late,
        "each parameter is clipped by itself: one norm is that of all gradients, as in"
        " `clip_grad_norm_(model.parameters(), 1.0)`": each_clipped_by_itself,
    }

    def trained(answer, model, batches):
        n = model[0].num_embeddings
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: 8 * gradient)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        steps = []
        optimizer.register_step_post_hook(lambda *_: steps.append("step"))

        def judge(model, x=batches[0][0]):
            return 5 + next_token_loss(model(x), (x + 1) % n).item()

        numbers = answer(model, optimizer, [*batches], judge)
        return {
            "the list": numbers,
            "the number of steps": len(steps),
            "the first weight": model[0].weight,
            "the second weight": model[1].weight,
        }

    def case(n, shifts, weights=None):
        """A model, and batches in which the next token is so much above the last."""
        model = nn.Sequential(nn.Embedding(n, n), nn.Linear(n, n, bias=False))
        for i, parameter in enumerate(model.parameters()):
            drawn = draw(n, n, seed=len(shifts) + i)
            parameter.data.copy_(weights[i] if weights else drawn)
        x = torch.arange(2 * n).view(2, -1) % n
        return model, [torch.stack([x, (x + shift) % n]) for shift in shifts]

    cases = [case(5, [1, 1, 2, 2, 2, 1]), case(7, [1] * 7), case(4, [2] * 8)]
    # A model that is best before the first step: each one makes it worse.
    cases += [case(3, [2] * 3, [2 * torch.eye(3).roll(-1, 0), 2 * torch.eye(3)])]
    praise = "best: a copy of the weights, from the step where they were best"
    compare(answer, best_steps, cases, mistakes, praise, trained)
