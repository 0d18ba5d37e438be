"""Checks of chapter 17: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .compare import Exercise, check, draw, identity, ways_of
from .differences import safe_difference
from .mistakes import Mistake


def with_gradients(
    answer: Callable,
    inputs: list[Tensor],
    *rest: object,
    read: Callable = identity,
    name: str = "the weights",
) -> dict:
    """What is read of an answer's weights, and what its loss sends to each input."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    weights = answer(*leaves, *rest)
    gradients: list[Tensor] = []
    if isinstance(weights, Tensor) and weights.shape == inputs[0].shape:
        if not weights.requires_grad:
            raise Mistake(
                "the weights have no gradient, so nothing can learn from them"
            )
        weights = read(weights)
        factors = draw(*weights.shape, seed=1)
        back = torch.autograd.grad((factors * weights).sum(), leaves, allow_unused=True)
        gradients = [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves, back, strict=True)
        ]
    return {name: weights, "the gradient": gradients}


@check
def gates() -> Exercise:
    """`answer(logits, k)`: a router's logits (t e) -> the experts' weights (t e)."""

    def over_experts(logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def of_chosen(p: Tensor, k: int) -> Tensor:
        """Those of the k likeliest experts (t e), and 0 for the others."""
        chosen = p.topk(k, -1).indices
        return torch.zeros_like(p).scatter(-1, chosen, p.gather(-1, chosen))

    def divided(weights: Tensor) -> Tensor:
        return weights / weights.sum(-1, keepdim=True)

    def right(
        logits: Tensor,
        k: int,
        softmax: Callable = over_experts,
        choose: Callable = of_chosen,
        divides: Callable = lambda k: k > 1,
        divided: Callable = divided,
    ) -> Tensor:
        weights = choose(softmax(logits), k)
        return divided(weights) if divides(k) else weights

    way = ways_of(right)

    def filled_with_zeros(logits: Tensor, k: int) -> Tensor:
        return of_chosen(logits, k).softmax(-1)

    def alike(p: Tensor, k: int) -> Tensor:
        weights = of_chosen(p, k)
        return (weights > 0) / k + 0 * weights

    def all_equals(p: Tensor, k: int) -> Tensor:
        return p.where(p >= p.topk(k, -1).values[:, -1:], 0)

    def use(answer: Callable, logits: Tensor, k: int) -> Tensor | dict:
        """Of equally likely experts any may be asked: how many are counts."""
        if not torch.equal(logits, ties):
            return with_gradients(answer, [logits], k)
        weights = answer(logits, k)
        return {"the number of experts asked": (weights != 0).sum(-1)}

    ties = torch.tensor([[1.0, 1, 0, 1], [0, 2, -1, 2], [0, 0, 0, 0]])
    cases = [(2 * draw(5, 4), 1), (draw(7, 6), 2), (draw(3, 8, seed=2), 3)]
    cases += [(ties, 1), (ties, 2)]
    mistakes = {
        "one weight divided by its own sum is 1, whatever the router says, and its"
        " gradient is 0: with k = 1 the probability itself is the weight": way(
            divides=lambda k: True
        ),
        "the weights of several chosen experts don't sum to 1: divide by their sum": (
            way(divides=lambda k: False)
        ),
        "the gradient isn't that of the weights: the sum that divides them depends on"
        " the router, too": way(divided=lambda w: w / w.sum(-1, keepdim=True).detach()),
        "all experts have a weight: only the k likeliest are asked": way(
            choose=lambda p, k: p
        ),
        "where several are equally likely, all of them are asked: ask k, whichever": (
            way(choose=all_equals)
        ),
        "softmax runs over the tokens: a token's experts are along the last axis": (
            way(softmax=partial(torch.softmax, dim=0))
        ),
        "a logit of 0 isn't a weight of 0: softmax first, or put -inf in the place of"
        " those that aren't chosen": filled_with_zeros,
        "these are the unlikeliest": way(
            choose=lambda p, k: p - of_chosen(p, p.shape[-1] - k)
        ),
        "logits aren't probabilities: softmax first": way(softmax=identity),
        "the chosen count alike, so the router learns nothing: weigh them by their"
        " probabilities": way(choose=alike),
    }
    praise = "k experts a token, and the router learns from each of their weights"
    return Exercise(right, cases, mistakes, praise, use)


class Overflow(Mistake):
    """Gives the right weights, and at a larger sink no gradient that is a number."""

    has_example = False


@check
def sink_weights() -> Exercise:
    """`answer(scores, sinks)`: (b h t s) and (h) -> attention's weights (b h t s)."""

    def right(
        scores: Tensor,
        sinks: Tensor,
        total: Callable = lambda scores: scores.logsumexp(-1, keepdim=True),
        left: Callable = torch.sigmoid,
    ) -> Tensor:
        """What a sink leaves of softmax's weights: 1 less its share."""
        above = total(scores) - sinks.view(-1, 1, 1)
        return scores.softmax(-1) * left(above)

    way = ways_of(right)

    def by_powers(
        scores: Tensor, sinks: Tensor, of_sink: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """e to the scores, less their largest, over their sum and what a sink adds."""
        sinks = sinks.view(-1, 1, 1)
        largest = scores.amax(-1, keepdim=True)
        powers = (scores - largest).exp()
        return powers / (powers.sum(-1, keepdim=True) + of_sink(sinks))

    def column(scores: Tensor, sinks: Tensor) -> Tensor:
        """The sink as one more key, (b h t s + 1)."""
        sinks = sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], -1).softmax(-1)

    def not_shifted(scores: Tensor, sinks: Tensor) -> Tensor:
        powers = scores.exp()
        return powers / (powers.sum(-1, keepdim=True) + sinks.view(-1, 1, 1).exp())

    def logarithms(weights: Tensor) -> Tensor:
        return weights.clamp(min=1e-30).log()

    def use(answer: Callable, scores: Tensor, sinks: Tensor) -> dict:
        """A large sink leaves so little that only logarithms tell it from nothing."""
        if sinks.max() < 20:
            return with_gradients(answer, [scores, sinks])
        compared = partial(
            with_gradients, read=logarithms, name="the weights' logarithms"
        )
        found = compared(answer, [scores, sinks])
        wanted = compared(right, [scores, sinks])
        if safe_difference(found, wanted) is None:
            # Where it is right, larger ones, too: from 89 on a power is infinite.
            larger = with_gradients(answer, [scores, sinks + 60])
            if not all(x.isfinite().all() for x in larger["the gradient"]):
                raise Overflow(
                    "e to a sink of 90 is infinite, and then a gradient is no number:"
                    " use `logsumexp`, or take the larger of scores and sink off both"
                )
        return found

    hidden = 2 * draw(2, 3, 4, 5, seed=2)
    hidden[:, :, torch.ones(4, 5).triu(2).bool()] = -torch.inf
    large = draw(1, 2, 3, 6, seed=3)
    large[:, :, 1] += 200
    cases = [
        (draw(2, 4, 3, 5), torch.tensor([0.5, -2, 3, 0])),
        (hidden, torch.tensor([1.5, -1, 0.2])),
        (large, torch.tensor([0.7, 2])),
        (draw(1, 2, 2, 4, seed=4), torch.tensor([30.0, 40])),
    ]
    mistakes = {
        "each row still sums to 1: what the sink takes is lost, not shared out": (
            lambda scores, sinks: scores.softmax(-1)
        ),
        "the sink's own column is still there: it has no value to fetch, so drop it": (
            column
        ),
        "the values are right and the gradient isn't: what divides the scores learns,"
        " too, so nothing on its way may be detached": way(
            total=lambda scores: scores.logsumexp(-1, keepdim=True).detach()
        ),
        "the weights are right and the sinks get no gradient: they are to be learned": (
            lambda scores, sinks: right(scores, sinks.detach())
        ),
        "the largest score isn't the log of the sum: use `logsumexp`": way(
            total=lambda scores: scores.amax(-1, keepdim=True)
        ),
        "nothing is clamped: a large sink leaves less than e**-20, and a gradient": way(
            left=lambda above: above.clamp(min=-20).sigmoid()
        ),
        "1 less a share that is nearly 1 is rounded to 0: take the sigmoid of the total"
        " less the sink": way(left=lambda above: 1 - (-above).sigmoid()),
        "a sink is a score: e to the sink is added to the sum, not the sink": partial(
            by_powers, of_sink=identity
        ),
        "scores are shifted by the largest, and the sink isn't: shift both alike": (
            partial(by_powers, of_sink=torch.exp)
        ),
        "a sink of 0 for all heads: each has one of its own": (
            lambda scores, sinks: right(scores, torch.zeros_like(sinks))
        ),
        "e to a score of 200 is infinite: take the largest off all scores first": (
            not_shifted
        ),
        "this is the sink's share of each weight: what is left is 1 less it": way(
            left=lambda above: (-above).sigmoid()
        ),
    }
    praise = "a row sums to less than 1, and both gradients are right"
    return Exercise(right, cases, mistakes, praise, use)


@check
def cache_bytes() -> Exercise:
    """`answer(n, windows, n_kv_heads, d_head, n_bytes)`: the bytes of a text's cache.

    `windows` has for each layer its window, or None where it keeps all n tokens.
    """

    def kept_of(n: int, window: int | None) -> int:
        return n if window is None else min(n, window)

    def right(
        n: int,
        windows: list[int | None],
        n_kv_heads: int,
        d_head: int,
        n_bytes: int,
        kept: Callable = kept_of,
    ) -> int:
        n_kept = sum(kept(n, window) for window in windows)
        return 2 * n_kv_heads * d_head * n_bytes * n_kept

    way = ways_of(right)

    cases = [
        (100, [16, 16, 16, None], 4, 8, 2),
        (10, [16, None, 4], 3, 5, 4),
        (1000, [None, 128] * 6, 8, 64, 2),
        (6, [None], 1, 7, 1),
    ]
    mistakes = {
        "keys alone: the values are kept, too": lambda *case: right(*case) // 2,
        "all tokens in every layer: one with a window keeps no more than its window": (
            way(kept=lambda n, window: n)
        ),
        "a text shorter than the window doesn't fill it": way(
            kept=lambda n, window: n if window is None else window
        ),
        "the layers without a window are missing: they keep every token": way(
            kept=lambda n, window: 0 if window is None else min(n, window)
        ),
        "a window of w keeps w tokens, the newest among them": way(
            kept=lambda n, window: n if window is None else min(n, window - 1)
        ),
        "numbers, not bytes: each has n_bytes": (
            lambda n, windows, h, d, n_bytes: right(n, windows, h, d, 1)
        ),
        "of one head: there are n_kv_heads": (
            lambda n, windows, h, d, n_bytes: right(n, windows, 1, d, n_bytes)
        ),
        "for each token, not for the whole text": lambda n, *case: right(n, *case) / n,
        "the mean of the layers: each has keys and values of its own": (
            lambda n, windows, *case: right(n, windows, *case) / len(windows)
        ),
    }
    praise = "full layers keep all, the others their window"
    return Exercise(right, cases, mistakes, praise)
