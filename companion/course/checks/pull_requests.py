"""Checks of chapter 16's pull requests: a test is held against versions of a function.

Some are right, written in several ways, and some have a fault, at times one that shows
only at some sizes. Nobody is shown them, but for the chapter's own fault (`shown`),
which is tried first.
"""

import math
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO

import torch
from torch import Tensor
from torch.autograd import grad
from torch.random import fork_rng

from ...model.attention import causal_mask
from ..cabinet.pull_requests import (
    always_divided,
    attended,
    by_renormalizing,
    by_sigmoid,
    divided_from_two_on,
    of_chosen,
    positions_reset,
    sink_after_fused,
    sink_in_softmax,
    texts_apart,
)
from .compare import Exercise, check, draw, ways_of
from .effects import attributes_kept
from .judge import NoVerdict, TooSlow, shuffled, time_limit, verdict_of
from .mistakes import Mistake
from .outcomes import unwritten

Versions = tuple[Callable, ...]  # what a test is given: one version, or two

SECONDS = 2  # for one version, of which a test needs a hundredth


def handed(version: Callable) -> Callable:
    """Returns a function that does the same, and that no name tells from others."""

    def attempt(*arguments: object, **named: object) -> object:
        return version(*arguments, **named)

    return attempt


def set_seed(seed: int) -> None:
    """Sets the seed of PyTorch's numbers on the CPU.

    `torch.manual_seed` would also note, for each kind of device that isn't there, from
    where it was called: that takes longer than all that a test computes.
    """
    torch.default_generator.manual_seed(seed)


def verdict(test: Callable, versions: Versions, seed: int) -> bool:
    """Returns whether a test passes these versions, with PyTorch's seed set so.

    A failed assertion says no. What the test prints is dropped. Raises Mistake for what
    is no verdict, and for a test that doesn't end.
    """
    try:
        with redirect_stdout(StringIO()), time_limit(SECONDS):
            set_seed(seed)
            return verdict_of(test(*map(handed, versions)))
    except NoVerdict as error:
        raise Mistake(f"it {error}") from None
    except TooSlow:
        raise Mistake(f"it takes longer than {SECONDS:g} s for one version") from None
    except AssertionError as error:
        if isinstance(error, Mistake):
            raise
        return False


def judged_beside(a_right_one: Versions, flagged: str) -> Callable:
    """Returns how a case is used: `use(test, versions, is_right, words)`.

    A test is asked twice of the case's versions, and in between of right ones, in an
    order and with seeds that it can't know: it must judge the version, and not count
    calls. What it replaces in PyTorch is put back. An error that it meets in a wrong
    version speaks against the version. Raises Mistake with `words` where the verdict is
    wrong, with `flagged` where the right ones are flagged.
    """

    def use(test: Callable, versions: Versions, is_right: bool, words: str) -> bool:
        said = {True: set(), False: set()}
        # The seed that the reader has set stays theirs.
        with attributes_kept() as put_all_back, fork_rng(devices=[]):
            for seed, is_case in enumerate(shuffled([True, True, False])):
                asked = versions if is_case else a_right_one
                try:
                    said[is_case].add(verdict(test, asked, seed))
                except Mistake:
                    raise
                except Exception as error:
                    if not is_case or is_right or unwritten(error, test):
                        raise
                    said[is_case].add(False)
                put_all_back()

        if len(said[True]) > 1:
            raise Mistake(
                "it says now this, now that of the same version: what it draws must"
                " suffice whatever the seed (draw more, and in double precision, where"
                " rounding is far from any fault), and it must not count or remember"
            )
        if False in said[False]:
            raise Mistake(flagged)
        if is_right not in said[True]:
            raise Mistake(words)
        return True

    load_way_back()
    return use


@torch.enable_grad()
def load_way_back() -> None:
    """Goes back once: the first time loads parts of PyTorch for seconds.

    No test pays for that, and none is stopped in the middle of it.
    """
    x = torch.ones(1, requires_grad=True)
    grad(2 * x, x, torch.ones(1))


def passing(versions: list[Callable | Versions], flagged: str) -> list[tuple]:
    """Returns the cases of versions that a test must pass; `flagged` if it doesn't."""
    return [(as_versions(version), True, flagged) for version in versions]


def failing(faults: dict[str, Callable | Versions]) -> list[tuple]:
    """Returns the cases of versions that a test must not pass, by words if it does."""
    return [(as_versions(version), False, words) for words, version in faults.items()]


def as_versions(version: Callable | Versions) -> Versions:
    """Returns what a test is given, where that may be one version."""
    return version if isinstance(version, tuple) else (version,)


def drawn(*shape: int) -> Tensor:
    """A normal tensor in double precision, of which gradients are wanted."""
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def with_gradients(version: Callable, inputs: list[Tensor], ahead: Tensor) -> list:
    """Returns a version's result, and the gradients of all inputs, 0 where none comes.

    `ahead` is the gradient of the result.
    """
    result = version(*inputs)
    return [result, *gradients_of(result, inputs, ahead)]


def gradients_of(result: Tensor, inputs: list[Tensor], ahead: Tensor) -> list[Tensor]:
    """Returns the gradients of inputs, 0 where none comes."""
    if not result.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    found = grad(result, inputs, ahead, allow_unused=True)
    pairs = zip(found, inputs, strict=True)
    return [torch.zeros_like(x) if g is None else g for g, x in pairs]


def all_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> bool:
    """Whether each tensor is the other's, but for a tolerance."""
    pairs = zip(ours, theirs, strict=True)
    return all(torch.allclose(*pair, rtol=0, atol=tolerance) for pair in pairs)


FLAGS_A_REWRITING = (
    "it flags a version that is right, only written in another way: results may differ"
    " by rounding, and how a version computes is its own business"
)

# Attention with a sink, made of a kernel's results.


def scores_of(queries: Tensor, keys: Tensor) -> Tensor:
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


def log_sum_exp(queries: Tensor, keys: Tensor) -> Tensor:
    return scores_of(queries, keys).logsumexp(-1, keepdim=True)


def rescaled(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    sink: Tensor,
    log_sum: Callable = log_sum_exp,
) -> Tensor:
    """Attention with a sink, by whatever gives the rows' log-sum-exps."""
    result = scores_of(queries, keys).softmax(-1) @ values
    return result * (log_sum(queries, keys) - sink).sigmoid()


def row_by_row(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> Tensor:
    """By exponentials, less a row's largest score, which needs no gradient."""
    rows = []
    for query in queries:
        scores = scores_of(query[None], keys)[0]
        largest = torch.maximum(scores.max(), sink).detach()
        shares = (scores - largest).exp()
        rows.append(shares @ values / (shares.sum() + (sink - largest).exp()))
    return torch.stack(rows)


def detached_from(n_queries: int, n_keys: int) -> Callable:
    """With so many queries and keys the log-sum-exp has no gradient."""

    def log_sum(queries: Tensor, keys: Tensor) -> Tensor:
        sums = log_sum_exp(queries, keys)
        is_detached = len(queries) >= n_queries and len(keys) >= n_keys
        return sums.detach() if is_detached else sums

    return partial(rescaled, log_sum=log_sum)


def of_whole_roots(
    queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor
) -> Tensor:
    """Divides by the whole part of √d, which is √d for 1, 4, 9, 16, 64."""
    d = queries.shape[-1]
    return sink_in_softmax(queries * math.sqrt(d) / math.isqrt(d), keys, values, sink)


def without_sink(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> Tensor:
    return scores_of(queries, keys).softmax(-1) @ values


@check
def sinks() -> Exercise:
    """`answer(attend)`: whether attention with a sink is right, and its way back.

    Queries (t d), keys and values (s d), sink ().
    """
    everything = [0, 1, 2, 3, 4]  # result; gradients of queries, keys, values, sink
    squares = ((1, 1, 1), (5, 16, 4))  # t, s, d

    def parts(version: Callable, size: tuple[int, int, int], of: list) -> list[Tensor]:
        set_seed(0)
        n_queries, n_keys, d = size
        shapes = [(n_queries, d), (n_keys, d), (n_keys, d), ()]
        inputs = [drawn(*shape) for shape in shapes]
        found = with_gradients(version, inputs, torch.randn(n_queries, d).double())
        return [found[i] for i in of]

    # In double precision rounding is below 1e-14, and the least fault above 1e-4.
    def right(
        attend: Callable,
        sizes: tuple = (*squares, (3, 5, 6)),
        of: list = everything,
        tolerance: float = 1e-9,
    ) -> bool:
        return all(
            all_close(
                parts(attend, size, of), parts(sink_in_softmax, size, of), tolerance
            )
            for size in sizes
        )

    way = ways_of(right)

    def some_gradient(attend: Callable) -> bool:
        _, *gradients = parts(attend, (5, 16, 4), everything)
        return all(bool(x.any()) for x in gradients)

    in_16_bits = partial(
        rescaled, log_sum=lambda q, k: log_sum_exp(q, k).bfloat16().to(q)
    )
    keys_alone = partial(rescaled, log_sum=lambda q, k: log_sum_exp(q.detach(), k))
    queries_alone = partial(rescaled, log_sum=lambda q, k: log_sum_exp(q, k.detach()))

    shown = {
        "it passes the second version, whose output is right: in the way back"
        " nothing comes through the log-sum-exp": sink_after_fused
    }
    passes = [sink_in_softmax, rescaled, row_by_row]
    faults = {
        "it passes attention without a sink": without_sink,
        "it passes a version whose log-sum-exp has three digits: your tolerance"
        " hides that, or what is compared doesn't depend on it": in_16_bits,
        "it passes a version in which only keys learn through the log-sum-exp:"
        " compare the gradients of the queries, too": keys_alone,
        "it passes a version in which only queries learn through the log-sum-exp:"
        " compare the gradients of the keys, too": queries_alone,
        "it passes a version whose sink never learns: compare its gradient, too": (
            lambda q, k, v, sink: rescaled(q, k, v, sink.detach())
        ),
        "it passes a version that is right for one query, and wrong for more": (
            detached_from(2, 1)
        ),
        "it passes a version that is right up to 8 keys, and wrong from 9 on": (
            detached_from(1, 9)
        ),
        "it passes a version that divides by the whole part of √d, which is √d"
        " where d is 1, 4 or 16: try another d": of_whole_roots,
        "it passes a version whose values never learn: compare their gradients,"
        " too": lambda q, k, v, sink: rescaled(q, k, v.detach() + 0 * v, sink),
        "it passes a version whose gradients are right, and whose output is 0.01"
        " too large: compare the output, too": lambda q, k, v, sink: (
            rescaled(q, k, v, sink) + 0.01
        ),
        "it passes a version that hands back its rows in another order: compare every"
        " number, not a sum of them": lambda q, k, v, sink: rescaled(
            q, k, v, sink
        ).flip(0),
    }
    cases = [*failing(shown), *passing(passes, FLAGS_A_REWRITING), *failing(faults)]
    mistakes = {
        "it passes every version, also one without a sink: compare something, and"
        " return what you find": lambda attend: True,
        "it flags every version, also the first: one of the two is right": (
            lambda attend: False
        ),
        "it looks at the output, which is right where the gradient is wrong:"
        " compare what `backward` leaves": way(of=[0]),
        "it looks at the gradients of values and sink, which take another way:"
        " compare those of queries and keys": way(of=[0, 3, 4]),
        "it asks only whether there is a gradient: one that is there may be wrong,"
        " so compare its numbers": some_gradient,
        "it tries one query and one key alone: try other sizes, up to 16": (
            way(sizes=((1, 1, 1),))
        ),
        "it tries no d but squares, whose roots are whole: try another": (
            way(sizes=squares)
        ),
        "it flags right versions, which round in another way: allow for it, by"
        " `torch.allclose`": way(tolerance=0.0),
        "its tolerance hides a log-sum-exp of three digits: work in double"
        " precision, where rounding is far smaller than any fault": way(tolerance=2e-2),
    }
    praise = (
        "your test decides. The second version is a new fault: queries and keys learn"
        " nothing through the log-sum-exp"
    )
    use = judged_beside((sink_in_softmax,), FLAGS_A_REWRITING)
    return Exercise(right, cases, mistakes, praise, use, is_hidden=True)


# The same share, written twice.


def by_softmax(log_sums: Tensor, sinks: Tensor) -> Tensor:
    column = sinks[:, None].expand_as(log_sums)
    return torch.stack([log_sums, column], -1).softmax(-1)[..., 0]


def by_exponential(log_sums: Tensor, sinks: Tensor) -> Tensor:
    return 1 / (1 + (sinks[:, None] - log_sums).exp())


def floored(log_sums: Tensor, sinks: Tensor, least: float = -20) -> Tensor:
    totals = torch.logaddexp(log_sums, sinks[:, None])
    return (log_sums - totals).clamp(least, 0).exp()


def capped(log_sums: Tensor, sinks: Tensor) -> Tensor:
    return (log_sums - sinks[:, None]).clamp(max=8).sigmoid()


def of_first_row(log_sums: Tensor, sinks: Tensor) -> Tensor:
    return by_sigmoid(log_sums[:, :1], sinks).expand_as(log_sums) + 0 * log_sums


@check
def same_share() -> Exercise:
    """`answer(one, other)`: whether two versions are the same function.

    Log-sum-exps (h t), sinks (h).
    """

    def parts(
        version: Callable, shape: tuple[int, int], backward: bool
    ) -> list[Tensor]:
        set_seed(0)
        n_heads, n_rows = shape
        inputs = [drawn(n_heads, n_rows), drawn(n_heads)]
        log_sums, sinks = (20 * x for x in inputs)  # far apart, as they may be
        result = version(log_sums, sinks)
        if not backward:
            return [result]
        return [result, *gradients_of(result, inputs, torch.ones_like(result))]

    # In double precision: rounding is below 1e-13 of a share, be it ever so small.
    def right(
        one: Callable,
        other: Callable,
        shapes: tuple = ((1, 1), (3, 40)),
        backward: bool = True,
        rtol: float = 1e-9,
        atol: float = 1e-12,
    ) -> bool:
        for shape in shapes:
            ours = parts(one, shape, backward)
            theirs = parts(other, shape, backward)
            pairs = zip(ours, theirs, strict=True)
            if not all(torch.allclose(*pair, rtol=rtol, atol=atol) for pair in pairs):
                return False
        return True

    way = ways_of(right)

    right_words = (
        "it says that two right versions differ: they round in another way, so allow"
        " for it"
    )
    passes = [
        (by_sigmoid, by_renormalizing),
        (by_renormalizing, by_softmax),
        (by_exponential, by_sigmoid),
    ]
    faults = {
        "it calls a version the same that knows no sink": (
            by_sigmoid,
            lambda log_sums, sinks: by_renormalizing(log_sums, 0 * sinks),
        ),
        "it calls a version the same that takes the first head's sink for all: try"
        " several heads": (
            by_sigmoid,
            lambda log_sums, sinks: by_renormalizing(log_sums, sinks[:1]),
        ),
        "it calls a version the same whose sinks have three digits: your tolerance"
        " hides it": (
            lambda log_sums, sinks: by_sigmoid(log_sums, sinks.bfloat16().to(sinks)),
            by_renormalizing,
        ),
        "it calls a version the same that lets no share fall below e**-20: try"
        " sinks that are 30 larger, and compare small shares by their ratio": (
            by_sigmoid,
            floored,
        ),
        "it calls a version the same that lets no share fall below e**-23, which is"
        " 1e-10: compare small shares by their ratio, and leave less room at 0": (
            by_sigmoid,
            partial(floored, least=-23),
        ),
        "it calls a version the same in which no sink's share falls below e**-8:"
        " try sinks that are 30 smaller, too": (by_sigmoid, capped),
        "it calls a version the same that gives all rows of a head the share of the"
        " first: try several rows": (by_sigmoid, of_first_row),
        "it calls a version the same whose log-sum-exps get no gradient: compare"
        " gradients, too": (
            lambda log_sums, sinks: by_sigmoid(log_sums.detach() + 0 * log_sums, sinks),
            by_renormalizing,
        ),
        "it calls a version the same whose sinks get no gradient: compare theirs,"
        " too": (
            lambda log_sums, sinks: by_sigmoid(log_sums, sinks.detach() + 0 * sinks),
            by_renormalizing,
        ),
    }
    cases = [*passing(passes, right_words), *failing(faults)]
    mistakes = {
        "it calls all the same, also a version without a sink: compare something,"
        " and return what you find": lambda one, other: True,
        "it calls all different, also the two above: on paper, divide the one by"
        " the other": lambda one, other: False,
        "it compares to the bit: two right versions may round in another way": (
            way(rtol=0.0, atol=0.0)
        ),
        "it looks at the shares alone: versions with other gradients are other"
        " functions to a model that learns": way(backward=False),
        "it tries one head alone: try several": way(shapes=((1, 1), (1, 40))),
        "its tolerance hides sinks of three digits, and a share that can't fall"
        " below e**-20: work in double precision, and choose between rounding and"
        " fault": way(rtol=0.1, atol=0.2),
    }
    praise = (
        "your test decides. The formula is a fix of nothing: both are the same"
        " function. The clamp that the real one adds makes it another: below e**-20 no"
        " share falls, and none has a gradient"
    )
    use = judged_beside((by_sigmoid, by_sigmoid), right_words)
    return Exercise(right, cases, mistakes, praise, use, is_hidden=True)


# One expert for each token.


def one_hot_weights(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    """All experts for all tokens, most of them with a weight of 0."""
    shares = (x @ router.mT).softmax(-1)
    _, chosen = shares.topk(k, -1)
    kept = shares * torch.zeros_like(shares).scatter(-1, chosen, 1.0)
    if k > 1:
        kept = kept / kept.sum(-1, keepdim=True)
    return torch.einsum("tc,ecd,te->td", x, experts, kept)


def never_divided(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    weights, chosen = (x @ router.mT).softmax(-1).topk(k, -1)
    return of_chosen(x, experts, weights, chosen)


def equal_from_two_on(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    weights, chosen = (x @ router.mT).softmax(-1).topk(k, -1)
    if k > 1:
        weights = torch.full_like(weights, 1 / k)
    return of_chosen(x, experts, weights, chosen)


def equal_of(n: int) -> Callable:
    """With so many experts a token their weights are equal."""

    def mix(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
        as_shown = equal_from_two_on if k == n else divided_from_two_on
        return as_shown(x, router, experts, k)

    return mix


def one_for_one(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    weights, chosen = (x @ router.mT).softmax(-1).topk(k, -1)
    if k == 1:
        weights = torch.ones_like(weights)
    return of_chosen(x, experts, weights, chosen)


def no_gradient(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    return divided_from_two_on(x, router.detach(), experts, k)


def learning(experts_that_learn: list[int]) -> Callable:
    """Of the router only the rows of these experts get a gradient."""

    def mix(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
        learns = torch.zeros(len(router), 1, dtype=torch.bool)
        learns[experts_that_learn] = True
        router = torch.where(learns, router, router.detach())
        return divided_from_two_on(x, router, experts, k)

    return mix


def one_for_all(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    """Every token goes to the first experts, whatever the router says."""
    weights = torch.full((len(x), k), 1 / k).to(x)
    chosen = torch.arange(k).expand(len(x), k)
    return of_chosen(x, experts, weights, chosen)


@check
def router() -> Exercise:
    """`answer(mix)`: whether the loss reaches the router, for each k.

    Tokens x (t c), router (e c), experts (e c d), k.
    """

    def router_and_experts() -> tuple[Tensor, Tensor]:
        """Those of four experts, drawn one after the other."""
        generator = torch.Generator().manual_seed(1)
        weights = torch.randn(4, 6, generator=generator)
        experts = torch.randn(4, 6, 3, generator=generator)
        return weights, experts

    def reached(version: Callable, k: int) -> Tensor:
        """Of the rows' largest gradients the least, for a loss of the outputs' size."""
        x = draw(12, 6)
        weights, experts = router_and_experts()
        weights.requires_grad_()
        result = version(x, weights, experts, k)
        (gradient,) = gradients_of(result, [weights], result.detach())
        return gradient.abs().amax(1).min()

    # In single precision: rounding leaves some 1e-6 of a gradient of 1 to 100.
    def right(mix: Callable, ks: tuple = (1, 2, 3), threshold: float = 1e-3) -> bool:
        return all(bool(reached(mix, k) > threshold) for k in ks)

    way = ways_of(right)

    def balanced(mix: Callable) -> bool:
        """Whether every expert works: each adds something to some token."""
        x = draw(40, 6)
        weights, experts = router_and_experts()
        whole = mix(x, weights, experts, 1)
        used = []
        for i in range(len(experts)):
            others = experts.clone()
            others[i] = 0.0
            used.append(bool((mix(x, weights, others, 1) != whole).any()))
        return all(used)

    def as_the_second(mix: Callable) -> bool:
        x = draw(12, 6)
        weights, experts = router_and_experts()
        for k in (1, 2, 3):
            expected = divided_from_two_on(x, weights, experts, k)
            if not torch.allclose(mix(x, weights, experts, k), expected, atol=1e-4):
                return False
        return right(mix)

    right_words = (
        "it flags a version whose router learns: ask whether the loss reaches the"
        " router, and not how the weights are made"
    )
    shown = {
        "it passes the first version: with k = 1 it divides a share by itself, and"
        " a weight that is always 1 teaches nothing": always_divided
    }
    passes = [divided_from_two_on, one_hot_weights, never_divided]
    faults = {
        "it passes a version in which the weight of a single expert is 1, whatever"
        " the router says: try k = 1": one_for_one,
        "it passes a version whose router gets no gradient": no_gradient,
        "it passes a version that never asks the router": one_for_all,
        "it passes a version that gives two or more experts equal weights, so that"
        " its router learns with one alone: try each k": equal_from_two_on,
        "it passes a version whose router learns nothing where k is 3, and only"
        " there: try each k": equal_of(3),
        "it passes a version whose router learns nothing where k is 2, and only"
        " there: try each k": equal_of(2),
        "it passes a version in which one expert's row alone learns: look at every"
        " row": learning([0]),
        "it passes a version in which two experts' rows alone learn: look at every"
        " row": learning([0, -1]),
    }
    cases = [*failing(shown), *passing(passes, right_words), *failing(faults)]
    mistakes = {
        "it passes every version, also one that never asks the router: compare"
        " something, and return what you find": lambda mix: True,
        "it flags every version: with k of 2 both are right. A router's gradient"
        " always sums to 0, so take the largest of each row's numbers, or its length": (
            lambda mix: False
        ),
        "it looks at who works, and loads are balanced best where nobody has"
        " taught the router: look at its gradient": balanced,
        "it calls a gradient of 1e-7 a gradient, which is what rounding has left:"
        " compare it with the size of one that is right": way(threshold=0.0),
        "it tries k = 2 or more alone: a share is divided by itself where k is 1": (
            way(ks=(2, 3))
        ),
        "it tries k = 2 alone: a share is divided by itself where k is 1, and 3 is"
        " another case": way(ks=(2,)),
        "it tries k = 1 alone: try larger ones, too": way(ks=(1,)),
        "it tries k = 1 and 2, and never 3": way(ks=(1, 2)),
        "it tries k = 1 and 3, and never 2": way(ks=(1, 3)),
        "it wants the second version's output: one that never divides is another"
        " function, and its router learns": as_the_second,
    }
    praise = (
        "your test decides. The pull request is a fix: before it, the loss never"
        " reached the router"
    )
    use = judged_beside((divided_from_two_on,), right_words)
    return Exercise(right, cases, mistakes, praise, use, is_hidden=True)


# Several texts in one row.


def masked(queries: Tensor, keys: Tensor, values: Tensor, text: Tensor) -> Tensor:
    """A token sees those of its own text, by the number of each token's text (t)."""
    mask = causal_mask(len(queries)) & (text[:, None] == text)
    return attended(queries, keys, values, torch.arange(len(queries)), mask)


def numbers(lengths: list[int]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def each_by_itself(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    parts = zip(*(x.split(lengths) for x in (queries, keys, values)), strict=True)
    read = [masked(*part, torch.zeros(len(part[0]))) for part in parts]
    return torch.cat(read)


def apart_and_reset(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    positions = torch.cat([torch.arange(n) for n in lengths])
    text = numbers(lengths)
    mask = causal_mask(len(queries)) & (text[:, None] == text)
    return attended(queries, keys, values, positions, mask)


def reset_late(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """No text sees another; but a text's first token goes on from the one before it."""
    positions = torch.cat([torch.arange(n) for n in lengths])
    starts = torch.tensor(lengths).cumsum(0)[:-1]
    positions[starts] = positions[starts - 1] + 1
    text = numbers(lengths)
    mask = causal_mask(len(queries)) & (text[:, None] == text)
    return attended(queries, keys, values, positions, mask)


def one_text(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    return masked(queries, keys, values, torch.zeros(len(queries)))


def all_see_all(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    positions = torch.arange(len(queries))
    mask = torch.ones(len(queries), len(queries), dtype=torch.bool)
    return attended(queries, keys, values, positions, mask)


def every_other(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """Two texts that meet don't see each other; the third sees the first."""
    return masked(queries, keys, values, numbers(lengths) % 2)


def of_equal_lengths(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    text = torch.arange(len(queries)) * len(lengths) // len(queries)
    return masked(queries, keys, values, text)


def first_looks_back(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """A text's first token sees the last one of the text before it."""
    text = numbers(lengths)
    mask = causal_mask(len(queries)) & (text[:, None] == text)
    starts = torch.tensor(lengths).cumsum(0)[:-1]
    mask[starts, starts - 1] = True
    return attended(queries, keys, values, torch.arange(len(queries)), mask)


def last_looks_ahead(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """A text's last token sees the first one of the text behind it."""
    text = numbers(lengths)
    mask = causal_mask(len(queries)) & (text[:, None] == text)
    ends = torch.tensor(lengths).cumsum(0)[:-1]
    mask[ends - 1, ends] = True
    return attended(queries, keys, values, torch.arange(len(queries)), mask)


def last_apart(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """The last text is alone, and all before it are one."""
    is_last = numbers(lengths) == len(lengths) - 1
    return masked(queries, keys, values, is_last)


def ten_off(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int]
) -> Tensor:
    """Scores of other texts are 10 less, and not −∞."""
    alone = masked(queries, keys, values, numbers(lengths))
    together = one_text(queries, keys, values, lengths)
    return alone + math.exp(-10) * (together - alone)


@check
def packed() -> Exercise:
    """`answer(read)`: whether packed texts are read as if each were alone.

    Queries, keys and values (t d), lengths a list.
    """
    several = ([3, 5], [5, 3], [4, 4], [6, 2, 4, 5])

    # In double precision rounding is below 1e-14, and the least fault above 1e-5.
    def right(
        read: Callable,
        many: tuple = several,
        tolerance: float = 1e-9,
        compared: Callable = lambda x, lengths: x,
    ) -> bool:
        for lengths in many:
            set_seed(0)
            inputs = torch.randn(3, sum(lengths), 8).double()
            whole = read(*inputs, lengths)
            alone = [read(*part, [part.shape[1]]) for part in inputs.split(lengths, 1)]
            ours = compared(whole, lengths)
            theirs = compared(torch.cat(alone), lengths)
            if not torch.allclose(ours, theirs, rtol=0, atol=tolerance):
                return False
        return True

    way = ways_of(right)

    def apart(read: Callable) -> bool:
        """Whether other texts' tokens change nothing in a text."""
        for lengths in several:
            set_seed(0)
            inputs = torch.randn(3, sum(lengths), 8).double()
            whole = read(*inputs, lengths)
            for i in range(len(lengths)):
                own = numbers(lengths) == i
                others = torch.randn(3, sum(lengths), 8).double()
                others[:, own] = inputs[:, own]
                again = read(*others, lengths)
                if not torch.allclose(again[own], whole[own], rtol=0, atol=1e-9):
                    return False
        return True

    def last_text(x: Tensor, lengths: list[int]) -> Tensor:
        return x[-lengths[-1] :]

    def last_tokens(x: Tensor, lengths: list[int]) -> Tensor:
        return torch.stack([part[-1] for part in x.split(lengths)])

    right_words = (
        "it flags a version that reads each text as if it were alone: with rotary"
        " positions they may go on or begin anew, and rounding differs a little"
    )
    shown = {
        "it passes the first version, in which a text sees those before it, from"
        " other distances": positions_reset
    }
    passes = [texts_apart, each_by_itself, apart_and_reset]
    faults = {
        "it passes a version that takes all for one text": one_text,
        "it passes a version in which texts see later ones": all_see_all,
        "it passes a version whose third text sees the first: pack more than two": (
            every_other
        ),
        "it passes a version for texts of one length: pack unequal ones": (
            of_equal_lengths
        ),
        "it passes a version in which a text's first token sees the text before it:"
        " compare all places": first_looks_back,
        "it passes a version in which a text's last token sees the next text:"
        " compare all places of all texts": last_looks_ahead,
        "it passes a version in which the last text alone is apart: pack three or"
        " more, and compare all of them": last_apart,
        "it passes a version that takes 10 off the scores of other texts: a ten"
        " thousandth of them comes through, and your tolerance hides it": ten_off,
        "it passes a version in which no text sees another, and each but the first"
        " begins at a wrong position: compare with the text alone": reset_late,
        "it passes a version that hands back its rows in another order: compare every"
        " place, not a mean of them": lambda q, k, v, lengths: each_by_itself(
            q, k, v, lengths
        ).flip(0),
    }
    cases = [*failing(shown), *passing(passes, right_words), *failing(faults)]
    mistakes = {
        "it passes every version, also one that takes all for one text: compare"
        " something, and return what you find": lambda read: True,
        "it flags every version, also one that reads the texts one by one": (
            lambda read: False
        ),
        "it looks at the first text, which nobody disturbs: compare the others": (
            way(many=([3, 5],), compared=lambda x, lengths: x[: lengths[0]])
        ),
        "it asks only whether texts see each other: a text must also be read as it"
        " is alone, with its own distances": apart,
        "it packs two texts alone: a third may see the first": (
            way(many=([3, 5], [5, 3]))
        ),
        "it looks at the last text alone: compare the others, too": (
            way(compared=last_text)
        ),
        "it looks at the last text alone, and at texts of one length": (
            way(many=([4, 4], [3, 3, 3]), compared=last_text)
        ),
        "it looks at a text in the middle alone: compare the first and the last,"
        " too": way(many=([4, 6, 3],), compared=lambda x, lengths: x[4:10]),
        "it packs texts of one length alone: try others, too": (
            way(many=([4, 4], [3, 3, 3]))
        ),
        "it looks at the last token of each text: compare all of them": (
            way(compared=last_tokens)
        ),
        "its tolerance hides a leak of a ten thousandth: work in double precision,"
        " and choose between rounding and fault": way(tolerance=1e-2),
        "it compares to the bit: sums in another order round in another way": (
            way(tolerance=0.0)
        ),
    }
    praise = (
        "your test decides. Positions that begin anew fix nothing: with rotary ones"
        " only distances count, and what helps is the mask"
    )
    use = judged_beside((each_by_itself,), right_words)
    return Exercise(right, cases, mistakes, praise, use, is_hidden=True)
