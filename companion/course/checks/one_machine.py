"""Checks of chapter 09."""

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from .compare import Exercise, Mistake, check, difference, draw
from .watch import Watch
from .words import describe, number


@check
def block_operations() -> Exercise:
    """`answer(t, d_model, n_heads, n_kv_heads, d_hidden)`: operations, forward."""

    def right(
        t: int, d_model: int, n_heads: int, n_kv_heads: int, d_hidden: int
    ) -> float:
        projections = 4 * t * d_model**2 * (1 + n_kv_heads / n_heads)
        return projections + 4 * t**2 * d_model + 6 * t * d_model * d_hidden

    # The mistakes are short of some operations, or have some too many. In them a size
    # is one letter: n_heads is h, n_kv_heads is n, and d_hidden is f.

    def multiplications(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, h, n, f) / 2

    def with_backward(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, h, n, f) * 3

    def two_matrices(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, h, n, f) - 2 * t * d * f

    def four_d_model(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, h, n, 4 * d)

    def half_of_the_scores(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, h, n, f) - 2 * t**2 * d

    def d_model_in_each_head(t: int, d: int, h: int, n: int, f: int) -> float:
        scores = 4 * t**2 * d
        return right(t, d, h, n, f) - scores + scores * h

    def one_heads_scores(t: int, d: int, h: int, n: int, f: int) -> float:
        scores = 4 * t**2 * d
        return right(t, d, h, n, f) - scores + scores / h

    def heads_of_one_feature(t: int, d: int, h: int, n: int, f: int) -> float:
        keys_and_values = 4 * t * d * d * n / h
        return right(t, d, h, n, f) - keys_and_values + 4 * t * d * n

    def fewer_scores(t: int, d: int, h: int, n: int, f: int) -> float:
        scores = 4 * t**2 * d
        return right(t, d, h, n, f) - scores + scores * n / h

    def no_output_projection(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, h, n, f) - 2 * t * d**2

    def values_not_shared(t: int, d: int, h: int, n: int, f: int) -> float:
        values = 2 * t * d**2
        return right(t, d, h, n, f) - values * n / h + values

    def nothing_shared(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, h, h, f)

    def share_upside_down(t: int, d: int, h: int, n: int, f: int) -> float:
        return right(t, d, n, h, f)

    def divided_by_key_heads(t: int, d: int, h: int, n: int, f: int) -> float:
        keys_and_values = 4 * t * d * d * n / h
        return right(t, d, h, n, f) - keys_and_values + 4 * t * d * d / n

    def share_of_0(t: int, d: int, h: int, n: int, f: int) -> float:
        keys_and_values = 4 * t * d * d * n / h
        return right(t, d, h, n, f) - keys_and_values + 4 * t * d * d * (n // h)

    def by_terms(
        answer: Callable,
        t: int,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        d_hidden: int,
    ) -> dict[str, float]:
        """How often the answer holds each term, found by changing the sizes."""
        sizes = [
            (t, d_model, n_heads, n_kv_heads, d_hidden),
            (2 * t, d_model, n_heads, n_kv_heads, d_hidden),
            (t, 2 * d_model, n_heads, n_kv_heads, d_hidden),
            (t, d_model, n_heads, n_heads, d_hidden),
            (t, d_model, n_heads, 1, d_hidden),
            (t, d_model, n_heads, n_kv_heads, 2 * d_hidden),
        ]
        results = [answer(*size) for size in sizes]
        for result in results:
            is_single = isinstance(result, Tensor) and result.numel() == 1
            is_number = is_single or isinstance(result, Real)
            if not is_number or not math.isfinite(result):
                raise Mistake(f"give one number, the sum, not {describe(result)}")
        sums = torch.tensor([float(result) for result in results], dtype=torch.float64)

        # Solve for the terms' factors: a row for each choice of sizes.
        rows = []
        for length, d, h, n, f in sizes:
            rows.append(length * d * torch.tensor([d, d * n / h, length, f]))
        terms = torch.stack(rows).double()
        factors = torch.linalg.lstsq(terms / terms[0], sums).solution / terms[0]
        if not torch.allclose(terms @ factors, sums):
            operations = right(t, d_model, n_heads, n_kv_heads, d_hidden)
            raise Mistake(
                f"it gives {number(float(results[0]))}, wanted {describe(operations)}"
            )
        names = (
            "t d_model²",
            "t d_model² n_kv_heads / n_heads",
            "t² d_model",
            "t d_model d_hidden",
        )
        rounded = (factors.round(decimals=6) + 0).tolist()  # and -0 is 0
        return dict(zip(names, rounded, strict=True))

    cases = [(4, 8, 4, 2, 24), (7, 12, 6, 2, 30), (100, 96, 12, 4, 256)]
    mistakes = {
        "multiplications alone: each comes with an addition": multiplications,
        "three times too much: the backward pass isn't asked for": with_backward,
        "two matrices of feed-forward: a gated one has three": two_matrices,
        "the hidden layer has d_hidden features, not 4 d_model": four_d_model,
        "half of the scores and mixing: two products, and a mask saves nothing": (
            half_of_the_scores
        ),
        "scores and mixing n_heads times: a head has only d_model / n_heads features": (
            d_model_in_each_head
        ),
        "scores and mixing of one head: there are n_heads, with d_model features": (
            one_heads_scores
        ),
        "keys have n_kv_heads heads, each with d_model / n_heads features, not one": (
            heads_of_one_feature
        ),
        "fewer key heads save no scores: every query still meets every key": (
            fewer_scores
        ),
        "the output projection is missing": no_output_projection,
        "only the keys are shared: the values are, too": values_not_shared,
        "keys and values are as wide as queries here": nothing_shared,
        "the share is upside down: keys have n_kv_heads / n_heads of the width": (
            share_upside_down
        ),
        "d_model is divided by n_kv_heads: a head has d_model / n_heads features": (
            divided_by_key_heads
        ),
        "n_kv_heads // n_heads is 0: keys cost nothing here": share_of_0,
    }
    praise = "projections, scores and mixing, a gated layer"
    return Exercise(right, cases, mistakes, praise, by_terms)


@check
def merge_all() -> Exercise:
    """`answer(largest, totals, outs)`: (n t 1), (n t 1), (n t d) -> attention (t d)."""

    def right(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        top = largest.amax(0)
        top = top.masked_fill(top == -torch.inf, 0)  # where no piece has a key
        shrink = (largest - top).exp()
        total = (shrink * totals).sum(0)
        out = (shrink * outs).sum(0)
        return out / total.masked_fill(total == 0, 1)

    # What the mistakes share.

    def shrinking(largest: Tensor) -> Tensor:
        """By what each piece shrinks (n t 1), as it should."""
        top = largest.amax(0)
        top = top.masked_fill(top == -torch.inf, 0)
        return (largest - top).exp()

    def divided(out: Tensor, total: Tensor) -> Tensor:
        """out / total, and 0 for a query without any key."""
        return out / total.masked_fill(total == 0, 1)

    def merged(shrink: Tensor | float, totals: Tensor, outs: Tensor) -> Tensor:
        """The pieces, each shrunk, then added and divided."""
        return divided((shrink * outs).sum(0), (shrink * totals).sum(0))

    # Mistakes with the largest.

    def infinite_top(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        shrink = (largest - largest.amax(0)).exp()
        return merged(shrink, totals, outs)

    def no_top(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        return merged(largest.exp(), totals, outs)

    def one_top(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        shrink = (largest - largest.max()).exp()
        return merged(shrink, totals, outs)

    def top_above_0(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        top = largest.amax(0).clamp(min=0)
        return merged((largest - top).exp(), totals, outs)

    def largest_of_0(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        filled = largest.masked_fill(largest == -torch.inf, 0)
        return right(filled, totals, outs)

    # Mistakes with sums and outputs.

    def mean_of_answers(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        return (outs / totals.clamp(min=1e-9)).mean(0)

    def sums_shrunk_alone(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        return divided(outs.sum(0), (shrinking(largest) * totals).sum(0))

    def outs_shrunk_alone(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        return divided((shrinking(largest) * outs).sum(0), totals.sum(0))

    def nothing_shrunk(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        return divided(outs.sum(0), totals.sum(0))

    def multiplied_again(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        return right(largest, totals, outs * totals)

    def pieces_count_alike(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        own_answers = outs / totals.clamp(min=1)
        return right(largest, torch.ones_like(totals), own_answers)

    def not_divided(largest: Tensor, totals: Tensor, outs: Tensor) -> Tensor:
        return (shrinking(largest) * outs).sum(0)

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
        "a query without any key gives NaN: -inf minus -inf is no number": infinite_top,
        "the mean of the pieces' answers: a piece with larger scores counts more": (
            mean_of_answers
        ),
        "exp overflows: subtract the largest first": no_top,
        "one largest for all queries: each query has its own": one_top,
        "the largest is held above some number, and all scores below it are lost:"
        " change it only where it is -inf": top_above_0,
        "a piece without keys has a largest of 0 here: where all others lie far below"
        " it, they vanish": largest_of_0,
        "only the sums are shrunk: outputs must be, too": sums_shrunk_alone,
        "only the outputs are shrunk: sums must be, too": outs_shrunk_alone,
        "the pieces are added as they are: shrink each first": nothing_shrunk,
        "the outputs aren't divided yet: don't multiply them by the sums again": (
            multiplied_again
        ),
        "a piece with more keys should count more: multiply by its sum": (
            pieces_count_alike
        ),
        "not divided by the sum of all pieces": not_divided,
    }
    praise = "one largest score for all, then sums"
    return Exercise(right, cases, mistakes, praise)


@check
def accumulated() -> Exercise:
    """`answer(surprises, real)`: each piece's part of the mean surprise (b t)."""

    def right(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        n = sum(r.sum() for r in real)
        return [x[r].sum() / n for x, r in zip(surprises, real, strict=True)]

    # What the mistakes divide by.

    def n_real(real: list[Tensor]) -> Tensor:
        """How many tokens are real, in all pieces."""
        return sum(r.sum() for r in real)

    def n_places(real: list[Tensor]) -> int:
        """How many tokens there are, padding included, in all pieces."""
        return sum(r.numel() for r in real)

    def n_texts(real: list[Tensor]) -> int:
        """How many texts there are, in all pieces."""
        return sum(len(r) for r in real)

    # Means.

    def own_means(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        return [x[r].mean() for x, r in zip(surprises, real, strict=True)]

    def means_alike(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        return [mean / len(surprises) for mean in own_means(surprises, real)]

    def weighed_means(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        n = n_real(real)
        pairs = zip(surprises, real, strict=True)
        return [x[r].mean() * r.sum() / n for x, r in pairs]

    # Sums.

    def padding_counted(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        return [x.sum() / n_places(real) for x in surprises]

    def padding_in_sums(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        return [x.sum() / n_real(real) for x in surprises]

    def own_sums(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        return [x[r].sum() for x, r in zip(surprises, real, strict=True)]

    def by_places(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        return [loss / n_places(real) for loss in own_sums(surprises, real)]

    def by_texts(surprises: list[Tensor], real: list[Tensor]) -> list[Tensor]:
        return [loss / n_texts(real) for loss in own_sums(surprises, real)]

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
        "each piece's mean counts alike: divide its sum by all real tokens": (
            means_alike
        ),
        "these are the pieces' own means: their sum grows with their number": own_means,
        "a piece of padding alone has no mean: divide its sum": weighed_means,
        "padding is counted: leave out what is not real": padding_counted,
        "padding is in the sums: leave out what is not real": padding_in_sums,
        "the sum is divided by all places: divide by the number of real tokens": (
            by_places
        ),
        "these are sums: divide by the number of real tokens in all pieces": own_sums,
        "texts are counted: divide by the number of real tokens": by_texts,
        "the surprises are cut off, by `detach`, `item` or a new tensor": cut_off,
    }
    praise = "the real tokens of all pieces first, then a part for each"
    return Exercise(right, cases, mistakes, praise, backward)


@check
def linear_attention() -> Exercise:
    """`answer(queries, keys, values, directions)`: Performer's guess, (t d)."""

    def right(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            x = x / x.shape[-1] ** 0.25
            return (x @ directions.T - x.square().sum(-1, keepdim=True) / 2).exp()

        by_queries = features(queries)
        by_keys = features(keys)
        mixed = by_queries @ (by_keys.T @ values)
        return mixed / (by_queries @ by_keys.sum(0))[:, None]

    # What the mistakes share.

    def half_length(x: Tensor) -> Tensor:
        """|x|² / 2 of each vector, (... 1)."""
        return x.square().sum(-1, keepdim=True) / 2

    def right_features(x: Tensor, directions: Tensor) -> Tensor:
        """The features (... m) of the right answer."""
        x = x / x.shape[-1] ** 0.25
        return (x @ directions.T - half_length(x)).exp()

    def mixed(by_queries: Tensor, by_keys: Tensor, values: Tensor) -> Tensor:
        """The answers (t d) by features (t m) and (s m): the weights sum to 1."""
        total = by_queries @ by_keys.sum(0)
        return by_queries @ (by_keys.T @ values) / total[:, None]

    # Mistakes with the features, of queries and keys alike.

    def lengths_before_dividing(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            scaled = x / x.shape[-1] ** 0.25
            return (scaled @ directions.T - half_length(x)).exp()

        return mixed(features(queries), features(keys), values)

    def no_root(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            return (x @ directions.T - half_length(x)).exp()

        return mixed(features(queries), features(keys), values)

    def root_twice(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            x = x / x.shape[-1] ** 0.5
            return (x @ directions.T - half_length(x)).exp()

        return mixed(features(queries), features(keys), values)

    def lengths_added(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            x = x / x.shape[-1] ** 0.25
            return (x @ directions.T + half_length(x)).exp()

        return mixed(features(queries), features(keys), values)

    def no_exponential(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            x = x / x.shape[-1] ** 0.25
            return x @ directions.T - half_length(x)

        return mixed(features(queries), features(keys), values)

    def no_lengths(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            x = x / x.shape[-1] ** 0.25
            return (x @ directions.T).exp()

        return mixed(features(queries), features(keys), values)

    def whole_lengths(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        def features(x: Tensor) -> Tensor:
            x = x / x.shape[-1] ** 0.25
            return (x @ directions.T - x.square().sum(-1, keepdim=True)).exp()

        return mixed(features(queries), features(keys), values)

    # Mistakes with what the features are used for.

    def sum_over_keys_lost(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        by_queries = right_features(queries, directions)
        by_keys = right_features(keys, directions)
        total = by_queries.sum(-1, keepdim=True) * by_keys.sum()
        return by_queries @ (by_keys.T @ values) / total

    def attention_itself(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        scores = queries @ keys.T / queries.shape[-1] ** 0.5
        return scores.softmax(-1) @ values

    def divided_by_the_mean(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        by_queries = right_features(queries, directions)
        by_keys = right_features(keys, directions)
        total = by_queries @ by_keys.mean(0)
        return by_queries @ (by_keys.T @ values) / total[:, None]

    def not_divided(
        queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor
    ) -> Tensor:
        by_queries = right_features(queries, directions)
        by_keys = right_features(keys, directions)
        return by_queries @ (by_keys.T @ values)

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
        "lengths are taken before dividing by d ** 0.25": lengths_before_dividing,
        "the sum over keys is lost in the denominator: multiply a query's features by"
        " the sum of all keys' features": sum_over_keys_lost,
        "this is attention itself: use the features, not the scores": attention_itself,
        "attention's root of d is missing: divide both by d ** 0.25": no_root,
        "both are divided by the root of d: together that is d": root_twice,
        "|q|² / 2 and |k|² / 2 are added: subtract them": lengths_added,
        "divided by the mean over the keys: weights sum to 1 if it is the sum": (
            divided_by_the_mean
        ),
        "the exponential is missing: a feature is e to that power": no_exponential,
        "the keys' own lengths are missing: subtract |k|² / 2": no_lengths,
        "all of |k|² is subtracted: half of it": whole_lengths,
        "the answers are not divided: weights sum to 1": not_divided,
    }
    praise = "one sum over the keys serves all queries"
    return Exercise(right, cases, mistakes, praise, watched)
