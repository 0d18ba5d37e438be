"""Checks of chapter 09: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from .compare import Exercise, check, draw, ways_of
from .differences import difference
from .mistakes import Mistake
from .watch import Watch
from .words import describe


@check
def pass_seconds() -> Exercise:
    """`answer(n_texts, n_weights, n_kept, n_sharing, bandwidth, peak)`: least time."""

    def right(
        n_texts: int,
        n_weights: int,
        n_kept: int,
        n_sharing: int,
        bandwidth: float,
        peak: float,
        n_read: Callable = lambda n, weights, kept, sharing: weights + n * kept,
        n_used: Callable = lambda n, weights, kept, sharing: (
            n * (weights + sharing * kept)
        ),
        size: float = 2,
        operations: float = 2,
        longer: Callable = max,
    ) -> float:
        sizes = n_texts, n_weights, n_kept, n_sharing
        reading = size * n_read(*sizes) / bandwidth
        computing = operations * n_used(*sizes) / peak
        return longer(reading, computing)

    way = ways_of(right)

    cases = [
        (3, 100, 20, 4, 10, 1000),
        (5, 90, 20, 2, 100, 10),
        (4, 50, 30, 5, 8, 40),
        (7, 300, 11, 3, 16, 1e6),
    ]
    mistakes = {
        # The roof.
        "both times are added: it reads while it computes, so the longer one counts": (
            way(longer=lambda reading, computing: reading + computing)
        ),
        "the shorter time: both must end, so the longer one counts": way(longer=min),
        "reading alone: with many rows computing takes longer": way(
            longer=lambda reading, computing: reading
        ),
        "computing alone: with few rows reading takes longer": way(
            longer=lambda reading, computing: computing
        ),
        # Bytes.
        "a number has 2 bytes in bfloat16, not 1": way(size=1),
        "a number has 2 bytes in bfloat16, not 4": way(size=4),
        "only the weights are read: each text's cache is, too": way(
            n_read=lambda n, weights, kept, sharing: weights
        ),
        "one cache is read: each text has its own": way(
            n_read=lambda n, weights, kept, sharing: weights + kept
        ),
        "the weights are read for each text: once for all rows": way(
            n_read=lambda n, weights, kept, sharing: n * (weights + kept)
        ),
        "shared keys are read for each head of queries: they are kept once": way(
            n_read=lambda n, weights, kept, sharing: weights + n * sharing * kept
        ),
        # Operations.
        "multiplications alone: each comes with an addition": way(operations=1),
        "the operations of one text: each is a row of its own": way(
            n_used=lambda n, weights, kept, sharing: weights + sharing * kept
        ),
        "scores and mixing are missing: each kept number is used, too": way(
            n_used=lambda n, weights, kept, sharing: n * weights
        ),
        "a kept number is used once: each of n_sharing heads of queries uses it": way(
            n_used=lambda n, weights, kept, sharing: n * (weights + kept)
        ),
    }
    praise = "weights once, caches for each text, and the longer of two times"
    return Exercise(right, cases, mistakes, praise)


@check
def merge_all() -> Exercise:
    """`answer(largest, totals, outs)`: (n t 1), (n t 1), (n t d) -> attention (t d)."""

    def own_top(largest: Tensor) -> Tensor:
        """Each query's largest score (t 1), and 0 where no piece has a key."""
        top = largest.amax(0)
        return top.masked_fill(top == -torch.inf, 0)

    def shrunk(shrink: Tensor, x: Tensor) -> Tensor:
        return (shrink * x).sum(0)

    def as_they_are(shrink: Tensor, x: Tensor) -> Tensor:
        return x.sum(0)

    def divided(out: Tensor, total: Tensor) -> Tensor:
        return out / total.masked_fill(total == 0, 1)

    def right(
        largest: Tensor,
        totals: Tensor,
        outs: Tensor,
        top: Callable = own_top,
        out: Callable = shrunk,
        total: Callable = shrunk,
        divided: Callable = divided,
    ) -> Tensor:
        shrink = (largest - top(largest)).exp()
        return divided(out(shrink, outs), total(shrink, totals))

    way = ways_of(right)

    def pieces_count_alike(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        own_answers = outs / totals.clamp(min=1)
        return right(largest, torch.ones_like(totals), own_answers)

    def case(
        n: int,
        t: int,
        d: int,
        *,
        hidden: tuple = (),
        shift: Tensor | float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """n pieces of 5 keys, of which those at `hidden` are not seen."""
        scores = 4 * draw(n, t, 5).to(dtype) + shift
        values = draw(n, 5, d, seed=1).to(dtype)
        for place in hidden:
            scores[place] = -torch.inf
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - largest.clamp(min=-1e30)).exp()
        return largest, weights.sum(-1, keepdim=True), weights @ values

    far = torch.tensor([[200.0], [-200]])
    cases = [
        case(3, 2, 5, shift=far),
        case(3, 2, 4),
        # In float64, so that it is exact by logarithms too.
        case(3, 3, 2, hidden=((0, 1),), shift=-200_000, dtype=torch.float64),
        case(3, 2, 4, hidden=((0, 0), (1, 0))),
        case(4, 1, 2, hidden=(0, 1)),
        case(2, 3, 5, hidden=((0, 0), (1, 0), (1, 2))),
        case(1, 6, 3),
    ]
    mistakes = {
        "a query without any key gives NaN: -inf minus -inf is no number": way(
            top=lambda largest: largest.amax(0)
        ),
        "the mean of the pieces' answers: a piece with larger scores counts more": (
            lambda largest, totals, outs: (outs / totals.clamp(min=1e-9)).mean(0)
        ),
        "exp overflows: subtract the largest first": way(top=lambda largest: 0),
        "one largest for all queries: each query has its own": way(top=torch.max),
        "the largest is held above some number, and all scores below it are lost:"
        " change it only where it is -inf": way(
            top=lambda largest: largest.amax(0).clamp(min=0)
        ),
        "a piece without keys has a largest of 0 here: where all others lie far below"
        " it, they vanish": lambda largest, totals, outs: right(
            largest.masked_fill(largest == -torch.inf, 0), totals, outs
        ),
        "only the sums are shrunk: outputs must be, too": way(out=as_they_are),
        "only the outputs are shrunk: sums must be, too": way(total=as_they_are),
        "the pieces are added as they are: shrink each first": way(
            out=as_they_are, total=as_they_are
        ),
        "the outputs aren't divided yet: don't multiply them by the sums again": (
            lambda largest, totals, outs: right(largest, totals, outs * totals)
        ),
        "a piece with more keys should count more: multiply by its sum": (
            pieces_count_alike
        ),
        "not divided by the sum of all pieces": way(divided=lambda out, total: out),
    }
    praise = "one largest score for all, then sums"
    return Exercise(right, cases, mistakes, praise)


@check
def accumulated() -> Exercise:
    """`answer(surprises, real)`: each piece's part of the mean surprise (b t)."""

    def right(
        surprises: list[Tensor],
        real: list[Tensor],
        added: Callable = lambda x, real: x[real].sum(),
        number: Callable = lambda real: sum(r.sum() for r in real),
    ) -> list[Tensor]:
        n = number(real)
        return [added(x, r) / n for x, r in zip(surprises, real, strict=True)]

    way = ways_of(right)

    def n_places(real: list[Tensor]) -> int:
        """How many tokens there are, padding included, in all pieces."""
        return sum(r.numel() for r in real)

    def cut_off(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        losses = right(surprises, real)
        return [torch.tensor(loss.item(), requires_grad=True) for loss in losses]

    def backward(
        answer: Callable, surprises: list[Tensor], real: list[Tensor]
    ) -> dict[str, list]:
        """The losses, and the gradients that their sum gives the surprises."""
        leaves = [x.clone().requires_grad_() for x in surprises]
        copies = [x.clone() for x in leaves]  # that may be written into, unlike leaves
        losses = answer([*copies], real)
        for copied, leaf in zip(copies, leaves, strict=True):
            if not torch.equal(copied, leaf):
                raise Mistake("the function changes its input: work on a copy")
        if any(leaf.grad is not None for leaf in leaves):
            raise Mistake(
                "the losses have gone backward already: give them as they are"
            )

        # A list of tensors, each of which knows where it comes from.
        is_single = isinstance(losses, Tensor) and losses.dim() == 0
        if is_single or not isinstance(losses, list | tuple | Tensor):
            raise Mistake(
                f"give a list with a loss for each piece, not {describe(losses)}"
            )
        for i, loss in enumerate(losses):
            if not isinstance(loss, Tensor | Real):
                raise Mistake(
                    f"loss {i} is {describe(loss)}, wanted a tensor of one number"
                )
        if not all(getattr(loss, "requires_grad", False) for loss in losses):
            raise Mistake("a number can't go backward: sum, even where nothing is real")

        sum(loss.sum() for loss in losses).backward()
        gradients = []
        for leaf in leaves:
            gradients.append(0 * leaf if leaf.grad is None else leaf.grad)
        return {"losses": [*losses], "gradients": gradients}

    def case(*pieces: tuple[int, list[int]]) -> tuple[list[Tensor], list[Tensor]]:
        """For each piece the width and the real tokens of each of its texts."""
        real = [torch.arange(t) < torch.tensor(n)[:, None] for t, n in pieces]
        surprises = [draw(*r.shape, seed=len(r)).abs() for r in real]
        surprises[0][0, 0] = 0  # a token that was certain
        return surprises, real

    cases = [
        case((3, [1, 3]), (5, [4, 2, 5])),
        case((4, [2, 1, 4]), (7, [6]), (2, [1, 2]), (2, [0])),
    ]
    mistakes = {
        # Means.
        "each piece's mean counts alike: divide its sum by all real tokens": way(
            added=lambda x, real: x[real].mean(), number=len
        ),
        "these are the pieces' own means: their sum grows with their number": way(
            added=lambda x, real: x[real].mean(), number=lambda real: 1
        ),
        "a piece of padding alone has no mean: divide its sum": way(
            added=lambda x, real: x[real].mean() * real.sum()
        ),
        # Sums.
        "padding is counted: leave out what is not real": way(
            added=lambda x, real: x.sum(), number=n_places
        ),
        "padding is in the sums: leave out what is not real": way(
            added=lambda x, real: x.sum()
        ),
        "the sum is divided by all places: divide by the number of real tokens": (
            way(number=n_places)
        ),
        "these are sums: divide by the number of real tokens in all pieces": way(
            number=lambda real: 1
        ),
        "texts are counted: divide by the number of real tokens": way(
            number=lambda real: sum(map(len, real))
        ),
        "the surprises are cut off, by `detach`, `item` or a new tensor": cut_off,
    }
    praise = "the real tokens of all pieces first, then a part for each"
    return Exercise(right, cases, mistakes, praise, backward)


@check
def linear_attention() -> Exercise:
    """`answer(queries, keys, values, directions)`: Performer's guess, (t d)."""

    def right(
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        directions: Tensor,
        power: float = 0.25,
        feature: Callable = lambda dots, half_length, d: (dots - half_length).exp(),
        total: Callable = lambda by_queries, by_keys: by_queries @ by_keys.sum(0),
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            d = x.shape[-1]
            x = x / d**power
            half_length = x.square().sum(-1, keepdim=True) / 2
            return feature(x @ directions.T, half_length, d)

        by_queries = features(queries)
        by_keys = features(keys)
        mixed = by_queries @ (by_keys.T @ values)
        return mixed / total(by_queries, by_keys)[:, None]

    way = ways_of(right)

    def attention_itself(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        scores = queries @ keys.T / queries.shape[-1] ** 0.5
        return scores.softmax(-1) @ values

    def watched(answer: Callable, q: Tensor, k: Tensor, v: Tensor, r: Tensor) -> Tensor:
        """The answers, of which no table of all queries and keys may be made."""
        with Watch() as watch:
            result = answer(q, k, v, r)
        n_made = sum(x.numel() for _, x in watch.made)
        n_table = len(q) * len(k)
        if n_made >= n_table > 10_000 and not difference(result, right(q, k, v, r)):
            raise Mistake(
                f"right, but {n_made:,} numbers are made where a table has"
                f" {n_table:,}: sum over the keys first"
            )
        return result

    def case(t: int, s: int, d: int, m: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """t queries, s keys and values of d features, and m directions."""
        queries = draw(t, d)
        keys = draw(s, d, seed=1)
        values = draw(s, d, seed=2)
        directions = draw(m, d, seed=3)
        return queries, keys, values, directions

    cases = [case(3, 5, 4, 7), case(6, 2, 8, 3), case(300, 200, 4, 3)]
    mistakes = {
        "lengths are taken before dividing by d ** 0.25": way(
            feature=lambda dots, half_length, d: (dots - d**0.5 * half_length).exp()
        ),
        "the sum over keys is lost in the denominator: multiply a query's features by"
        " the sum of all keys' features": way(
            total=lambda by_queries, by_keys: by_queries.sum(-1) * by_keys.sum()
        ),
        "this is attention itself: use the features, not the scores": attention_itself,
        "attention's root of d is missing: divide both by d ** 0.25": way(power=0),
        "both are divided by the root of d: together that is d": way(power=0.5),
        "|q|² / 2 and |k|² / 2 are added: subtract them": way(
            feature=lambda dots, half_length, d: (dots + half_length).exp()
        ),
        "divided by the mean over the keys: weights sum to 1 if it is the sum": way(
            total=lambda by_queries, by_keys: by_queries @ by_keys.mean(0)
        ),
        "the exponential is missing: a feature is e to that power": way(
            feature=lambda dots, half_length, d: dots - half_length
        ),
        "the keys' own lengths are missing: subtract |k|² / 2": way(
            feature=lambda dots, half_length, d: dots.exp()
        ),
        "all of |k|² is subtracted: half of it": way(
            feature=lambda dots, half_length, d: (dots - 2 * half_length).exp()
        ),
        "the answers are not divided: weights sum to 1": way(
            total=lambda by_queries, by_keys: torch.ones(len(by_queries))
        ),
    }
    praise = "one sum over the keys serves all queries"
    return Exercise(right, cases, mistakes, praise, watched)
