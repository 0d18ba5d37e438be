"""Checks of chapter 05: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import torch
from torch import Tensor, nn

from ...model.gpt import GPT, GPTConfig
from ...training.loop import next_token_loss
from .compare import Exercise, check, draw, ways_of
from .differences import difference
from .mistakes import Mistake
from .watch import count_kept


@check
def clip() -> Exercise:
    """`answer(gradients, limit)`: the list scaled to a common norm of at most limit."""

    def common_norm(gradients: list[Tensor]) -> Tensor:
        return torch.cat([gradient.flatten() for gradient in gradients]).norm()

    def at_most_1(limit: float, norm: Tensor) -> Tensor | int:
        return min(1, limit / norm)

    def right(
        gradients: list[Tensor],
        limit: float,
        norm: Callable = common_norm,
        factor: Callable = at_most_1,
    ) -> list[Tensor]:
        size = norm(gradients)
        return [gradient * factor(limit, size) for gradient in gradients]

    way = ways_of(right)

    mistakes = {
        "the norm becomes 1 whatever the limit: multiply by limit / norm": way(
            factor=lambda limit, norm: 1 if norm <= limit else 1 / norm
        ),
        "a norm of 1.4 was scaled up to a limit of 10: clipping only shortens": way(
            factor=lambda limit, norm: limit / norm
        ),
        "each gradient is clipped by itself: the norm is that of them all": (
            lambda gradients, limit: [right([g], limit)[0] for g in gradients]
        ),
        "single entries are cut off: that changes the direction": (
            lambda gradients, limit: [g.clamp(-limit, limit) for g in gradients]
        ),
        "the squares are added, but the root is missing": way(
            norm=lambda gradients: common_norm(gradients) ** 2
        ),
        "the lengths are added: 3 and 4 make 5, so add their squares": way(
            norm=lambda gradients: sum(g.norm() for g in gradients)
        ),
        "the largest length alone: add all squares": way(
            norm=lambda gradients: max(g.norm() for g in gradients)
        ),
        "where all are 0 it gives 0/0: multiply by limit / norm or 1": way(
            factor=lambda limit, norm: min(norm, limit) / norm
        ),
        "nothing is shortened (clip_grad_norm_ clips the .grad of parameters)": (
            lambda gradients, limit: gradients
        ),
    }

    several = [5 * draw(2, 3), draw(4, seed=1), 2 * draw(1, 5, 2, seed=2)]
    cases = [
        ([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])], 1.0),
        ([torch.ones(2)], 10.0),
        ([torch.zeros(3)], 2.0),
        (several, 3.0),
    ]
    praise = "one factor for all, and only when it is needed"
    return Exercise(right, cases, mistakes, praise)


@check
def adamw() -> Exercise:
    """`answer(p, gradients, rate, decay)`: where p ends, a step for each gradient."""

    # A step has four parts, and most mistakes have another one of them.

    def averaged(m: Tensor, v: Tensor, g: Tensor, t: int) -> tuple[Tensor, Tensor]:
        return 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2

    def corrected(m: Tensor, v: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """m and v, divided for having begun at 0."""
        return m / (1 - 0.9**t), v / (1 - 0.999**t)

    def divided(mean: Tensor, square: Tensor) -> Tensor:
        return mean / (square.sqrt() + 1e-8)

    def moved(p: Tensor, step: Tensor, rate: float, decay: float) -> Tensor:
        return p - rate * (step + decay * p)

    def right(
        p: Tensor,
        gradients: list[Tensor],
        rate: float,
        decay: float,
        averaged: Callable = averaged,
        corrected: Callable = corrected,
        divided: Callable = divided,
        moved: Callable = moved,
        pull: Callable = lambda decay, p: 0,  # in the gradient
    ) -> Tensor:
        m = 0
        v = 0
        for t, g in enumerate(gradients, 1):
            m, v = averaged(m, v, g + pull(decay, p), t)
            step = divided(*corrected(m, v, t))
            p = moved(p, step, rate, decay)
        return p

    way = ways_of(right)

    mistakes = {
        # The decay.
        "the decay is missing: this is Adam": way(
            moved=lambda p, step, rate, decay: p - rate * step
        ),
        "the decay is in the gradient: take it from p, beside Adam's step": way(
            pull=lambda decay, p: decay * p,
            moved=lambda p, step, rate, decay: p - rate * step,
        ),
        "the decay is not times the rate": way(
            moved=lambda p, step, rate, decay: p - rate * step - decay * p
        ),
        "the decay is of p after the step: take it of p before": way(
            moved=lambda p, step, rate, decay: (p - rate * step) * (1 - rate * decay)
        ),
        "the decay is of p as it is now, not at the start": (
            lambda start, gradients, rate, decay: right(
                start,
                gradients,
                rate,
                decay,
                moved=lambda p, step, *_: p - rate * (step + decay * start),
            )
        ),
        # The averages, and the divisions that correct them.
        "carry m and v on as they were: the divisions are for the step alone": way(
            averaged=lambda m, v, g, t: corrected(*averaged(m, v, g, t), t),
            corrected=lambda m, v, t: (m, v),
        ),
        "m and v begin at 0, too small: divide by 1 - 0.9**t and 1 - 0.999**t": way(
            corrected=lambda m, v, t: (m, v)
        ),
        "m is not divided by 1 - 0.9**t: it begins at 0, too small": way(
            corrected=lambda m, v, t: (m, v / (1 - 0.999**t))
        ),
        "v is not divided by 1 - 0.999**t: it begins at 0, too small": way(
            corrected=lambda m, v, t: (m / (1 - 0.9**t), v)
        ),
        # The root, and the ε.
        "where all gradients are 0 it gives 0/0: the ε is missing, 1e-8": way(
            divided=lambda mean, square: mean / square.sqrt()
        ),
        "a clamp is not an ε: add 1e-8 to the root, also where it is large": way(
            divided=lambda mean, square: mean / square.sqrt().clamp(min=1e-12)
        ),
        "the ε is inside the root: add it to the root of v": way(
            divided=lambda mean, square: mean / (square + 1e-8).sqrt()
        ),
        "the ε is added after v is corrected, to its root": way(
            corrected=lambda m, v, t: (m / (1 - 0.9**t) * math.sqrt(1 - 0.999**t), v)
        ),
        "v is the mean of the gradients' squares: g**2, not |g|": way(
            averaged=lambda m, v, g, t: (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g.abs())
        ),
        "v only grows: 0.999 of it stays, and 0.001 of the square comes in": way(
            averaged=lambda m, v, g, t: (0.9 * m + 0.1 * g, v + 0.001 * g**2)
        ),
        "the decay is added: it pulls p towards 0, so take it away": way(
            moved=lambda p, step, rate, decay: p - rate * (step - decay * p)
        ),
        "the root of v is missing: the size cancels only with it": way(
            divided=lambda mean, square: mean / (square + 1e-8)
        ),
        # The steps.
        "t is 1 in every step: it must count them": way(
            corrected=lambda m, v, t: corrected(m, v, 1)
        ),
        "t counts from 1: at 0 both divisions are by 0": way(
            corrected=lambda m, v, t: corrected(m, v, t - 1)
        ),
        "the means begin at 0 again with each gradient: carry them on": way(
            averaged=lambda m, v, g, t: averaged(0, 0, g, t)
        ),
        "only the first gradient makes a step: is `return` in the loop?": (
            lambda p, gradients, rate, decay: right(p, gradients[:1], rate, decay)
        ),
    }

    # In the first case one entry has no gradient at all, in the second all are small,
    # and in the last v has to forget large ones.
    sparse = [*draw(4, 3, seed=1) * torch.tensor([1, 0, 1])]
    small = [*1e-7 * draw(7, 2, 5, seed=3)]
    large = [*5 * draw(2, 4, 1, seed=5)]
    fading = [*draw(60, 2, seed=7) / torch.arange(1, 61)[:, None]]
    cases = [
        (draw(3), sparse, 0.1, 0.5),
        (draw(2, 5, seed=2), small, 0.03, 2.0),
        (2 + draw(4, 1, seed=4), large, 0.2, 0.1),
        (draw(2, seed=6), fading, 0.1, 0.1),
    ]
    praise = "the decay goes beside the gradient, as in PyTorch"
    return Exercise(right, cases, mistakes, praise)


@check
def whole_split() -> Exercise:
    """`answer(model, tokens)`: the mean loss over every token but the first."""

    def side_by_side(tokens: Tensor, n: int) -> list[tuple[Tensor, Tensor]]:
        """The right windows: pairs of inputs and targets."""
        return [*zip(tokens[:-1].split(n), tokens[1:].split(n), strict=True)]

    def summed(losses: list[float], sizes: list[int]) -> float:
        """The loss of all predictions, with `sizes` of them in each window's mean."""
        return sum(map(math.prod, zip(losses, sizes, strict=True)))

    def weighed(losses: list[float], sizes: list[int]) -> float:
        return summed(losses, sizes) / sum(sizes) if sizes else math.nan

    @torch.no_grad()
    def right(
        model: GPT,
        tokens: Tensor,
        windows: Callable = side_by_side,
        mean: Callable = weighed,
    ) -> float:
        pairs = windows(tokens, model.config.context_length)
        losses = [next_token_loss(model(x[None]), y[None]).item() for x, y in pairs]
        return mean(losses, [len(y) for _, y in pairs])

    way = ways_of(right)

    def shifted(parts: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Windows that are shifted after they were cut."""
        return [(part[:-1], part[1:]) for part in parts if len(part) > 1]

    @torch.no_grad()
    def seen_from_n_before(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        seen = [tokens[max(0, i - n) : i] for i in range(1, len(tokens))]
        last = [model(x[None])[:, -1] for x in seen]
        return next_token_loss(torch.stack(last, 1), tokens[None, 1:]).item()

    @torch.no_grad()
    def full_windows_at_once(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        end = (len(tokens) - 1) // n * n
        x = tokens[:end].view(-1, n)
        y = tokens[1 : end + 1].view(-1, n)
        return next_token_loss(model(x), y).item()

    mistakes = {
        "the last window is shorter, and counts like a full one: weigh it": way(
            mean=lambda losses, sizes: sum(losses) / len(losses)
        ),
        "the predictions after the last full window are left out": way(
            windows=lambda tokens, n: [
                (x, y) for x, y in side_by_side(tokens, n) if len(y) == n
            ]
        ),
        "a last window of one prediction is left out": way(
            windows=lambda tokens, n: [
                (x, y) for x, y in side_by_side(tokens, n) if len(y) > 1
            ]
        ),
        "what comes after the full windows is left out, and where no window is full"
        " that is all": full_windows_at_once,
        "this is the sum: divide by the number of predictions": way(mean=summed),
        "divide by the predictions, one fewer than tokens": way(
            mean=lambda losses, sizes: summed(losses, sizes) / (sum(sizes) + 1)
        ),
        "the targets are the inputs themselves: they come one token later": way(
            windows=lambda tokens, n: [(x, x) for x in tokens[:-1].split(n)]
        ),
        "each window loses its first token: shift, then cut": way(
            windows=lambda tokens, n: shifted(tokens.split(n))
        ),
        "a window of n + 1 begins with the last token of the one before": way(
            windows=lambda tokens, n: shifted(tokens.split(n + 1))
        ),
        "the window slides by one token, so most tokens count several times: begin"
        " each where the one before ends": way(
            windows=lambda tokens, n: shifted(
                [tokens[i : i + n + 1] for i in range(max(1, len(tokens) - n))]
            )
        ),
        "the window slides, so each token sees a full one: the windows lie side by"
        " side": seen_from_n_before,
        "the last window reaches back to be full: leave it shorter": way(
            windows=lambda tokens, n: [
                *side_by_side(tokens, n)[:-1],
                (tokens[-n - 1 : -1], tokens[-n:]),
            ]
        ),
    }

    def on_a_model(
        answer: Callable, context_length: int, d_vocab: int, n_tokens: int
    ) -> float | Tensor:
        """The answer's loss of a small model; a Mistake if it keeps every graph."""
        config = GPTConfig(
            context_length=context_length,
            d_vocab=d_vocab,
            d_model=2,
            n_heads=1,
            n_layers=1,
        )
        model = GPT(config)
        for i, p in enumerate(model.parameters()):
            p.data.copy_(draw(*p.shape, seed=i))
        tokens = torch.arange(n_tokens) ** 2 // 3 % d_vocab

        with count_kept(model) as n_kept:
            loss = answer(model, tokens)

        # Only a right loss, of several windows, is told that it keeps too much.
        if n_tokens > 35:
            grows = len(n_kept) > 2 and n_kept[2] > 1.5 * n_kept[1]
            keeps = grows or getattr(loss, "requires_grad", False)
            if keeps and not difference(loss, right(model, tokens)):
                raise Mistake("it keeps all for a way back: no_grad")
        return loss

    cases = [(8, 5, 20), (10, 7, 31), (12, 4, 40), (8, 5, 18), (6, 4, 3)]
    praise = "every token but the first, once, with equal weight"
    return Exercise(right, cases, mistakes, praise, on_a_model)


@check
def best() -> Exercise:
    """`answer(model, optimizer, batches, judge)`: scores; the best weights stay."""

    def move(
        name: str, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor
    ) -> None:
        """Makes one move of a step."""
        parameters = list(model.parameters())
        if name == "clear":
            optimizer.zero_grad()
        elif name == "backward":
            loss.backward()
        elif name == "clip":
            nn.utils.clip_grad_norm_(parameters, 1.0)
        elif name == "clip each":
            for parameter in parameters:
                nn.utils.clip_grad_norm_([parameter], 1.0)
        elif name == "clip entries":
            nn.utils.clip_grad_value_(parameters, 1.0)
        else:
            optimizer.step()

    def right(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Iterable[Tensor],
        judge: Callable,
        moves: tuple[str, ...] = ("clear", "backward", "clip", "step"),
        is_best: Callable = lambda scores, losses: scores[-1] == min(scores),
        go_on: Callable = lambda model, best: None,  # after each step
    ) -> list[float]:
        scores = []
        losses = []
        for inputs, targets in batches:
            loss = next_token_loss(model(inputs), targets)
            for name in moves:
                move(name, model, optimizer, loss)
            losses.append(loss.item())
            scores.append(judge(model))
            if is_best(scores, losses):
                best = copy.deepcopy(model.state_dict())
            go_on(model, best)
        model.load_state_dict(best)
        return scores

    way = ways_of(right)

    def judged_before_the_step(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        scores = []

        def judged() -> Iterator[Tensor]:
            for batch in batches:
                scores.append(judge(model))
                yield batch

        return right(model, optimizer, judged(), lambda model: scores[-1])

    def those_at_first_too(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        at_first = judge(model)
        weights = copy.deepcopy(model.state_dict())
        scores = right(model, optimizer, batches, judge)
        if at_first <= min(scores):
            model.load_state_dict(weights)
        return scores

    mistakes = {
        "the last weights stay: were the best copied (`clone`), and loaded?": way(
            is_best=lambda scores, losses: True
        ),
        "the score was lower than the one before: it must be lower than all": way(
            is_best=lambda scores, losses: scores[-1] == min(scores[-2:])
        ),
        "the batch's loss chose the best: let judge choose": way(
            is_best=lambda scores, losses: losses[-1] == min(losses)
        ),
        "judge saw the weights before the step: it comes after": judged_before_the_step,
        "all gradients add up: zero_grad comes before backward": way(
            moves=("backward", "clip", "step")
        ),
        "nothing is clipped to 1: it belongs between backward and step": way(
            moves=("clear", "backward", "step")
        ),
        "the weights of the highest number stay, and the lower the better": way(
            is_best=lambda scores, losses: scores[-1] == max(scores)
        ),
        "the model never moves: call optimizer.step()": way(moves=("backward",)),
        "the steps find no gradients: they are cleared after backward, or are those of"
        " a copy of the model": way(moves=("backward", "clear", "step")),
        "each parameter is clipped by itself: one norm is that of all gradients, as in"
        " `clip_grad_norm_(model.parameters(), 1.0)`": way(
            moves=("clear", "backward", "clip each", "step")
        ),
        "single entries are cut off: clip the common length": way(
            moves=("clear", "backward", "clip entries", "step")
        ),
        "training goes on from the last weights: load the best only at the end": way(
            go_on=lambda model, best: model.load_state_dict(best)
        ),
        "return each step's number, not the best so far": (
            lambda *case: [*accumulate(right(*case), min)]
        ),
        "the weights before the first step stay: only those after a step count": (
            those_at_first_too
        ),
    }

    def trained(answer: Callable, model: nn.Sequential, batches: list[Tensor]) -> dict:
        """The answer's numbers, and what has become of the model."""
        n = model[0].num_embeddings
        for parameter in model.parameters():
            # Gradients so large that clipping makes a difference.
            parameter.register_hook(lambda gradient: 8 * gradient)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        steps = []
        optimizer.register_step_post_hook(lambda *_: steps.append("step"))
        inputs = batches[0][0]

        def judge(model: nn.Module) -> float:
            return 5 + next_token_loss(model(inputs), (inputs + 1) % n).item()

        numbers = answer(model, optimizer, [*batches], judge)
        return {
            "the list": numbers,
            "the number of steps": len(steps),
            "the first weight": model[0].weight,
            "the second weight": model[1].weight,
        }

    def case(n: int, shifts: list[int], weights: list[Tensor] | None = None) -> tuple:
        """A model, and batches in which the next token is so much above the last."""
        model = nn.Sequential(nn.Embedding(n, n), nn.Linear(n, n, bias=False))
        if weights is None:
            seed = len(shifts)
            weights = [draw(n, n, seed=seed), draw(n, n, seed=seed + 1)]
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.data.copy_(weight)
        x = torch.arange(2 * n).view(2, -1) % n
        return model, [torch.stack([x, (x + shift) % n]) for shift in shifts]

    # A model that is best before the first step: each one makes it worse.
    at_its_best = [2 * torch.eye(3).roll(-1, 0), 2 * torch.eye(3)]
    cases = [
        case(5, [1, 1, 2, 2, 2, 1]),
        case(7, [1] * 7),
        case(4, [2] * 8),
        case(3, [2] * 3, at_its_best),
    ]
    praise = "a copy of the weights, from the step where they were best"
    return Exercise(right, cases, mistakes, praise, trained)
