"""Checks of chapter 05."""

import copy
import math
from collections.abc import Callable, Iterator
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ...model.gpt import GPT, GPTConfig
from ...training.loop import next_token_loss
from .compare import Exercise, Mistake, check, difference, draw


@check
def clip() -> Exercise:
    """`answer(gradients, limit)`: the list scaled to a common norm of at most limit."""

    def common_norm(gradients: list[Tensor]) -> Tensor:
        return torch.cat([gradient.flatten() for gradient in gradients]).norm()

    def right(gradients: list[Tensor], limit: float) -> list[Tensor]:
        norm = common_norm(gradients)
        return [gradient * min(1, limit / norm) for gradient in gradients]

    def always_to_1(gradients: list[Tensor], limit: float) -> list[Tensor]:
        norm = common_norm(gradients)
        if norm <= limit:
            return gradients
        return [gradient / norm for gradient in gradients]

    def also_lengthened(gradients: list[Tensor], limit: float) -> list[Tensor]:
        norm = common_norm(gradients)
        return [gradient * (limit / norm) for gradient in gradients]

    def each_by_itself(gradients: list[Tensor], limit: float) -> list[Tensor]:
        return [g * min(1, limit / g.norm()) for g in gradients]

    def entries_cut_off(gradients: list[Tensor], limit: float) -> list[Tensor]:
        return [gradient.clamp(-limit, limit) for gradient in gradients]

    def no_root(gradients: list[Tensor], limit: float) -> list[Tensor]:
        squares = sum(gradient.square().sum() for gradient in gradients)
        return [gradient * min(1, limit / squares) for gradient in gradients]

    def lengths_added(gradients: list[Tensor], limit: float) -> list[Tensor]:
        norm = sum(gradient.norm() for gradient in gradients)
        return [gradient * min(1, limit / norm) for gradient in gradients]

    def zero_by_zero(gradients: list[Tensor], limit: float) -> list[Tensor]:
        norm = common_norm(gradients)
        return [gradient / norm * min(norm, limit) for gradient in gradients]

    def nothing_shortened(gradients: list[Tensor], limit: float) -> list[Tensor]:
        return gradients

    mistakes = {
        "the norm becomes 1 whatever the limit: multiply by limit / norm": always_to_1,
        "a norm of 1.4 was scaled up to a limit of 10: clipping only"
        " shortens": also_lengthened,
        "each gradient is clipped by itself: the norm is that of them"
        " all": each_by_itself,
        "single entries are cut off: that changes the direction": entries_cut_off,
        "the squares are added, but the root is missing": no_root,
        "the lengths are added: 3 and 4 make 5, so add their squares": lengths_added,
        "where all are 0 it gives 0/0: multiply by limit / norm or 1": zero_by_zero,
        "nothing is shortened (clip_grad_norm_ clips the .grad of"
        " parameters)": nothing_shortened,
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

    def right(p: Tensor, gradients: list[Tensor], rate: float, decay: float) -> Tensor:
        m = 0
        v = 0
        for t, g in enumerate(gradients, 1):
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            step = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
            p = p - rate * (step + decay * p)
        return p

    def averages(gradients: list[Tensor]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Gives t, m and v of each step, before they are divided."""
        m = 0
        v = 0
        for t, g in enumerate(gradients, 1):
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            yield t, m, v

    def corrected(m: Tensor, v: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """m and v, divided for having begun at 0."""
        return m / (1 - 0.9**t), v / (1 - 0.999**t)

    def adam_step(m: Tensor, v: Tensor, t: int) -> Tensor:
        """The right step of Adam, but for the rate."""
        mean, square = corrected(m, v, t)
        return mean / (square.sqrt() + 1e-8)

    # The decay.

    def no_decay(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            p = p - rate * adam_step(m, v, t)
        return p

    def decay_in_the_gradient(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        m = 0
        v = 0
        for t, gradient in enumerate(gradients, 1):
            g = gradient + decay * p
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            p = p - rate * adam_step(m, v, t)
        return p

    def decay_without_rate(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            p = p - rate * adam_step(m, v, t) - decay * p
        return p

    def decay_after_the_step(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            p = p - rate * adam_step(m, v, t)
            p = p - rate * decay * p
        return p

    def decay_added(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            p = p - rate * adam_step(m, v, t) + rate * decay * p
        return p

    # The averages, and the divisions that correct them.

    def divided_for_good(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        m = 0
        v = 0
        for t, g in enumerate(gradients, 1):
            m = (0.9 * m + 0.1 * g) / (1 - 0.9**t)
            v = (0.999 * v + 0.001 * g**2) / (1 - 0.999**t)
            step = m / (v.sqrt() + 1e-8)
            p = p - rate * (step + decay * p)
        return p

    def nothing_divided(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for _, m, v in averages(gradients):
            step = m / (v.sqrt() + 1e-8)
            p = p - rate * (step + decay * p)
        return p

    def m_not_divided(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            step = m / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
            p = p - rate * (step + decay * p)
        return p

    def v_not_divided(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            step = m / (1 - 0.9**t) / (v.sqrt() + 1e-8)
            p = p - rate * (step + decay * p)
        return p

    def absolute_values(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        m = 0
        v = 0
        for t, g in enumerate(gradients, 1):
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g.abs()
            p = p - rate * (adam_step(m, v, t) + decay * p)
        return p

    def begun_again(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, g in enumerate(gradients, 1):
            m = 0.1 * g
            v = 0.001 * g**2
            p = p - rate * (adam_step(m, v, t) + decay * p)
        return p

    # The root, and the ε.

    def no_epsilon(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            mean, square = corrected(m, v, t)
            step = mean / square.sqrt()
            p = p - rate * (step + decay * p)
        return p

    def clamped(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            mean, square = corrected(m, v, t)
            step = mean / square.sqrt().clamp(min=1e-12)
            p = p - rate * (step + decay * p)
        return p

    def epsilon_inside(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            mean, square = corrected(m, v, t)
            step = mean / (square + 1e-8).sqrt()
            p = p - rate * (step + decay * p)
        return p

    def no_root(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            mean, square = corrected(m, v, t)
            step = mean / (square + 1e-8)
            p = p - rate * (step + decay * p)
        return p

    # The steps.

    def always_the_first(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for _, m, v in averages(gradients):
            p = p - rate * (adam_step(m, v, 1) + decay * p)
        return p

    def counted_from_0(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        for t, m, v in averages(gradients):
            p = p - rate * (adam_step(m, v, t - 1) + decay * p)
        return p

    def first_step_only(
        p: Tensor, gradients: list[Tensor], rate: float, decay: float
    ) -> Tensor:
        return right(p, gradients[:1], rate, decay)

    mistakes = {
        "the decay is missing: this is Adam": no_decay,
        "the decay is in the gradient: take it from p, beside Adam's"
        " step": decay_in_the_gradient,
        "the decay is not times the rate": decay_without_rate,
        "the decay is of p after the step: take it of p before": decay_after_the_step,
        "carry m and v on as they were: the divisions are for the step"
        " alone": divided_for_good,
        "m and v begin at 0, too small: divide by 1 - 0.9**t and 1 -"
        " 0.999**t": nothing_divided,
        "m is not divided by 1 - 0.9**t: it begins at 0, too small": m_not_divided,
        "v is not divided by 1 - 0.999**t: it begins at 0, too small": v_not_divided,
        "where all gradients are 0 it gives 0/0: the ε is missing, 1e-8": no_epsilon,
        "a clamp is not an ε: add 1e-8 to the root, also where it is large": clamped,
        "the ε is inside the root: add it to the root of v": epsilon_inside,
        "v is the mean of the gradients' squares: g**2, not |g|": absolute_values,
        "the decay is added: it pulls p towards 0, so take it away": decay_added,
        "the root of v is missing: the size cancels only with it": no_root,
        "t is 1 in every step: it must count them": always_the_first,
        "t counts from 1: at 0 both divisions are by 0": counted_from_0,
        "the means begin at 0 again with each gradient: carry them on": begun_again,
        "only the first gradient makes a step: is `return` in the"
        " loop?": first_step_only,
    }

    # In the first case one entry has no gradient at all, in the second all are small.
    sparse = [*draw(4, 3, seed=1) * torch.tensor([1, 0, 1])]
    small = [*1e-7 * draw(7, 2, 5, seed=3)]
    large = [*5 * draw(2, 4, 1, seed=5)]
    cases = [
        (draw(3), sparse, 0.1, 0.5),
        (draw(2, 5, seed=2), small, 0.03, 2.0),
        (2 + draw(4, 1, seed=4), large, 0.2, 0.1),
    ]
    praise = "the decay goes beside the gradient, as in PyTorch"
    return Exercise(right, cases, mistakes, praise)


class Saved:
    """Stands for a tensor that autograd keeps for the way back."""


@check
def whole_split() -> Exercise:
    """`answer(model, tokens)`: the mean loss over every token but the first."""

    @torch.no_grad()
    def right(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        windows = zip(tokens[:-1].split(n), tokens[1:].split(n), strict=True)
        total = 0
        for x, y in windows:
            total += next_token_loss(model(x[None]), y[None]) * len(y)
        return total.item() / (len(tokens) - 1)

    def cut(model: GPT, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The right windows: pairs of inputs and targets."""
        n = model.config.context_length
        return [*zip(tokens[:-1].split(n), tokens[1:].split(n), strict=True)]

    @torch.no_grad()
    def losses(model: GPT, windows: list[tuple[Tensor, Tensor]]) -> list[float]:
        """The mean loss of each window."""
        return [next_token_loss(model(x[None]), y[None]).item() for x, y in windows]

    def sum_of_losses(model: GPT, windows: list[tuple[Tensor, Tensor]]) -> float:
        """The loss of all predictions, added up."""
        pairs = zip(losses(model, windows), windows, strict=True)
        return sum(loss * len(y) for loss, (_, y) in pairs)

    def mean_loss(model: GPT, windows: list[tuple[Tensor, Tensor]]) -> float:
        """The mean loss of all predictions."""
        return sum_of_losses(model, windows) / sum(len(y) for _, y in windows)

    def not_weighed(model: GPT, tokens: Tensor) -> float:
        windows = cut(model, tokens)
        return sum(losses(model, windows)) / len(windows)

    def rest_left_out(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        full = [(x, y) for x, y in cut(model, tokens) if len(y) == n]
        if not full:
            return math.nan
        return mean_loss(model, full)

    def not_divided(model: GPT, tokens: Tensor) -> float:
        return sum_of_losses(model, cut(model, tokens))

    def divided_by_tokens(model: GPT, tokens: Tensor) -> float:
        return sum_of_losses(model, cut(model, tokens)) / len(tokens)

    def not_shifted(model: GPT, tokens: Tensor) -> float:
        return mean_loss(model, [(x, x) for x, _ in cut(model, tokens)])

    def shifted_within(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        parts = [part for part in tokens.split(n) if len(part) > 1]
        return mean_loss(model, [(part[:-1], part[1:]) for part in parts])

    def no_overlap(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        parts = [part for part in tokens.split(n + 1) if len(part) > 1]
        return mean_loss(model, [(part[:-1], part[1:]) for part in parts])

    def slid(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        n_windows = max(1, len(tokens) - n)
        starts = [tokens[i : i + n + 1] for i in range(n_windows)]
        return mean_loss(model, [(window[:-1], window[1:]) for window in starts])

    def seen_from_n_before(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        seen = [tokens[max(0, i - n) : i] for i in range(1, len(tokens))]
        with torch.no_grad():
            last = [model(x[None])[:, -1] for x in seen]
        return next_token_loss(torch.stack(last, 1), tokens[None, 1:]).item()

    def last_reaches_back(model: GPT, tokens: Tensor) -> float:
        n = model.config.context_length
        last = (tokens[-n - 1 : -1], tokens[-n:])
        return mean_loss(model, [*cut(model, tokens)[:-1], last])

    mistakes = {
        "the last window is shorter, and counts like a full one: weigh it": not_weighed,
        "the predictions after the last full window are left out": rest_left_out,
        "this is the sum: divide by the number of predictions": not_divided,
        "divide by the predictions, one fewer than tokens": divided_by_tokens,
        "the targets are the inputs themselves: they come one token later": not_shifted,
        "each window loses its first token: shift, then cut": shifted_within,
        "a window of n + 1 begins with the last token of the one before": no_overlap,
        "the window slides by one token, so most tokens count several times: begin"
        " each where the one before ends": slid,
        "the window slides, so each token sees a full one: the windows lie side by"
        " side": seen_from_n_before,
        "the last window reaches back to be full: leave it shorter": last_reaches_back,
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

        # Count before each pass what the passes before it have left for a way back.
        alive = WeakSet()
        n_alive = []

        def pack(tensor: Tensor) -> Saved:
            saved = Saved()
            alive.add(saved)
            return saved

        def unpack(saved: Saved) -> int:
            """No tensor is there: nothing goes back in this exercise."""
            return id(saved)

        model.register_forward_pre_hook(lambda *_: n_alive.append(len(alive)))
        with saved_tensors_hooks(pack, unpack):
            loss = answer(model, tokens)

        # Only a right loss, of several windows, is told that it keeps too much.
        if n_tokens > 35:
            grows = len(n_alive) > 2 and n_alive[2] > 1.5 * n_alive[1]
            keeps = grows or getattr(loss, "requires_grad", False)
            if keeps and not difference(loss, right(model, tokens)):
                raise Mistake("it keeps all for a way back: no_grad")
        return loss

    cases = [(8, 5, 20), (10, 7, 31), (12, 4, 40), (6, 4, 3)]
    praise = "every token but the first, once, with equal weight"
    return Exercise(right, cases, mistakes, praise, on_a_model)


@check
def best() -> Exercise:
    """`answer(model, optimizer, batches, judge)`: scores; the best weights stay."""

    def right(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        scores = []
        for inputs, targets in batches:
            loss = next_token_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scores.append(judge(model))
            if scores[-1] == min(scores):
                best = {name: x.clone() for name, x in model.state_dict().items()}
        model.load_state_dict(best)
        return scores

    def right_step(
        model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor
    ) -> float:
        """Takes the right step. Returns the batch's loss before it."""
        inputs, targets = batch
        loss = next_token_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    # Other weights stay.

    def last_weights(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        scores = []
        for batch in batches:
            right_step(model, optimizer, batch)
            scores.append(judge(model))
        return scores

    def lower_than_the_one_before(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        scores = []
        for batch in batches:
            right_step(model, optimizer, batch)
            scores.append(judge(model))
            if scores[-1] == min(scores[-2:]):
                weights = copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        return scores

    def chosen_by_the_loss(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        losses = []
        scores = []
        for batch in batches:
            losses.append(right_step(model, optimizer, batch))
            scores.append(judge(model))
            if losses[-1] == min(losses):
                weights = copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        return scores

    def judged_before_the_step(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        scores = []
        for batch in batches:
            scores.append(judge(model))
            right_step(model, optimizer, batch)
            if scores[-1] == min(scores):
                weights = copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        return scores

    def highest(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        scores = []
        for batch in batches:
            right_step(model, optimizer, batch)
            scores.append(judge(model))
            if scores[-1] == max(scores):
                weights = copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        return scores

    # The step is another one.

    def loop(
        model: nn.Module, batches: list[Tensor], judge: Callable, update: Callable
    ) -> list[float]:
        """The whole loop; `update(loss)` is what a step does with it."""
        scores = []
        for inputs, targets in batches:
            update(next_token_loss(model(inputs), targets))
            scores.append(judge(model))
            if scores[-1] == min(scores):
                weights = copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        return scores

    def gradients_added_up(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        def update(loss: Tensor) -> None:
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return loop(model, batches, judge, update)

    def not_clipped(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        def update(loss: Tensor) -> None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return loop(model, batches, judge, update)

    def without_a_step(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        def update(loss: Tensor) -> None:
            loss.backward()

        return loop(model, batches, judge, update)

    def cleared_too_late(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        def update(loss: Tensor) -> None:
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()

        return loop(model, batches, judge, update)

    def each_clipped_by_itself(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: list[Tensor],
        judge: Callable,
    ) -> list[float]:
        def update(loss: Tensor) -> None:
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                nn.utils.clip_grad_norm_([parameter], 1.0)
            optimizer.step()

        return loop(model, batches, judge, update)

    mistakes = {
        "the last weights stay: were the best copied (`clone`), and"
        " loaded?": last_weights,
        "the score was lower than the one before: it must be lower than"
        " all": lower_than_the_one_before,
        "the batch's loss chose the best: let judge choose": chosen_by_the_loss,
        "judge saw the weights before the step: it comes after": judged_before_the_step,
        "all gradients add up: zero_grad comes before backward": gradients_added_up,
        "nothing is clipped to 1: it belongs between backward and step": not_clipped,
        "the weights of the highest number stay, and the lower the better": highest,
        "the model never moves: call optimizer.step()": without_a_step,
        "the steps find no gradients: they are cleared after backward, or are those of"
        " a copy of the model": cleared_too_late,
        "each parameter is clipped by itself: one norm is that of all gradients, as in"
        " `clip_grad_norm_(model.parameters(), 1.0)`": each_clipped_by_itself,
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
