"""Checks of chapter 16's pull requests: a test is held against versions of a function.

Some are right, written in several ways, and some have a fault, at times one that shows
only at some sizes. Nobody is shown them.
"""

import math
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO

import torch
from torch import Tensor
from torch.autograd import grad

from companion.model.attention import causal_mask

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
from .compare import Exercise, check
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


def verdict(test: Callable, versions: Versions, seed: int) -> bool:
    """Returns whether a test passes these versions, with PyTorch's seed set so.

    A failed assertion says no. What the test prints is dropped. Raises Mistake for what
    is no verdict, and for a test that doesn't end.
    """
    try:
        with redirect_stdout(StringIO()), time_limit(SECONDS):
            torch.manual_seed(seed)
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
        for seed, is_case in enumerate(shuffled([True, True, False])):
            asked = versions if is_case else a_right_one
            try:
                with attributes_kept():
                    said[is_case].add(verdict(test, asked, seed))
            except Mistake:
                raise
            except Exception as error:
                if not is_case or is_right or unwritten(error, test):
                    raise
                said[is_case].add(False)

        if len(said[True]) > 1:
            raise Mistake(
                "it says now this, now that of the same version: a test must not count"
                " or remember, and what it draws must suffice whatever the seed"
            )
        if False in said[False]:
            raise Mistake(flagged)
        if is_right not in said[True]:
            raise Mistake(words)
        return True

    return use


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
        torch.manual_seed(0)
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

    def some_gradient(attend: Callable) -> bool:
        _, *gradients = parts(attend, (5, 16, 4), everything)
        return all(bool(x.any()) for x in gradients)

    in_16_bits = partial(
        rescaled, log_sum=lambda q, k: log_sum_exp(q, k).bfloat16().to(q)
    )
    keys_alone = partial(rescaled, log_sum=lambda q, k: log_sum_exp(q.detach(), k))
    queries_alone = partial(rescaled, log_sum=lambda q, k: log_sum_exp(q, k.detach()))
    cases = [
        (sink_in_softmax, True, FLAGS_A_REWRITING),
        (
            sink_after_fused,
            False,
            "it passes the second version, whose output is right: in the way back"
            " nothing comes through the log-sum-exp",
        ),
        (rescaled, True, FLAGS_A_REWRITING),
        (row_by_row, True, FLAGS_A_REWRITING),
        (without_sink, False, "it passes attention without a sink"),
        (
            in_16_bits,
            False,
            "it passes a version whose log-sum-exp has three digits: your tolerance"
            " hides that, or what is compared doesn't depend on it",
        ),
        (
            keys_alone,
            False,
            "it passes a version in which only keys learn through the log-sum-exp:"
            " compare the gradients of the queries, too",
        ),
        (
            queries_alone,
            False,
            "it passes a version in which only queries learn through the log-sum-exp:"
            " compare the gradients of the keys, too",
        ),
        (
            lambda q, k, v, sink: rescaled(q, k, v, sink.detach()),
            False,
            "it passes a version whose sink never learns: compare its gradient, too",
        ),
        (
            detached_from(2, 1),
            False,
            "it passes a version that is right for one query, and wrong for more",
        ),
        (
            detached_from(1, 9),
            False,
            "it passes a version that is right up to 8 keys, and wrong from 9 on",
        ),
        (
            of_whole_roots,
            False,
            "it passes a version that divides by the whole part of √d, which is √d"
            " where d is 1, 4 or 16: try another d",
        ),
    ]
    return Exercise(
        right,
        [((version,), is_right, words) for version, is_right, words in cases],
        {
            "it passes every version, also one without a sink: compare something, and"
            " return what you find": lambda attend: True,
            "it flags every version, also the first: one of the two is right": (
                lambda attend: False
            ),
            "it looks at the output, which is right where the gradient is wrong:"
            " compare what `backward` leaves": partial(right, of=[0]),
            "it looks at the gradients of values and sink, which take another way:"
            " compare those of queries and keys": partial(right, of=[0, 3, 4]),
            "it asks only whether there is a gradient: one that is there may be wrong,"
            " so compare its numbers": some_gradient,
            "it tries one query and one key alone: try other sizes, up to 16": partial(
                right, sizes=((1, 1, 1),)
            ),
            "it tries no d but squares, whose roots are whole: try another": partial(
                right, sizes=squares
            ),
            "it flags right versions, which round in another way: allow for it, by"
            " `torch.allclose`": partial(right, tolerance=0.0),
            "its tolerance hides a log-sum-exp of three digits: work in double"
            " precision, where rounding is far smaller than any fault": partial(
                right, tolerance=2e-2
            ),
        },
        "your test decides. The second version is a new fault: queries and keys learn"
        " nothing through the log-sum-exp",
        judged_beside((sink_in_softmax,), FLAGS_A_REWRITING),
        is_hidden=True,
    )


# The same share, written twice.


def by_softmax(log_sums: Tensor, sinks: Tensor) -> Tensor:
    column = sinks[:, None].expand_as(log_sums)
    return torch.stack([log_sums, column], -1).softmax(-1)[..., 0]


def by_exponential(log_sums: Tensor, sinks: Tensor) -> Tensor:
    return 1 / (1 + (sinks[:, None] - log_sums).exp())


def floored(log_sums: Tensor, sinks: Tensor) -> Tensor:
    totals = torch.logaddexp(log_sums, sinks[:, None])
    return (log_sums - totals).clamp(-20, 0).exp()


@check
def same_share() -> Exercise:
    """`answer(one, other)`: whether two versions are the same function.

    Log-sum-exps (h t), sinks (h).
    """

    def parts(
        version: Callable, shape: tuple[int, int], width: float, backward: bool
    ) -> list[Tensor]:
        torch.manual_seed(0)
        n_heads, n_rows = shape
        inputs = [drawn(n_heads, n_rows), drawn(n_heads)]
        log_sums, sinks = (width * x for x in inputs)
        result = version(log_sums, sinks)
        if not backward:
            return [result]
        return [result, *gradients_of(result, inputs, torch.ones_like(result))]

    # In double precision: rounding is below 1e-13 of a share, be it ever so small.
    def right(
        one: Callable,
        other: Callable,
        shapes: tuple = ((1, 1), (3, 40)),
        width: float = 20.0,
        backward: bool = True,
        rtol: float = 1e-9,
        atol: float = 1e-12,
    ) -> bool:
        for shape in shapes:
            ours = parts(one, shape, width, backward)
            theirs = parts(other, shape, width, backward)
            pairs = zip(ours, theirs, strict=True)
            if not all(torch.allclose(*pair, rtol=rtol, atol=atol) for pair in pairs):
                return False
        return True

    def equal(one: Callable, other: Callable) -> bool:
        return right(one, other, rtol=0.0, atol=0.0)

    right_words = (
        "it says that two right versions differ: they round in another way, so allow"
        " for it"
    )
    cases = [
        (by_sigmoid, by_renormalizing, True, right_words),
        (by_renormalizing, by_softmax, True, right_words),
        (by_exponential, by_sigmoid, True, right_words),
        (
            by_sigmoid,
            lambda log_sums, sinks: by_renormalizing(log_sums, 0 * sinks),
            False,
            "it calls a version the same that knows no sink",
        ),
        (
            lambda log_sums, sinks: by_sigmoid(log_sums.detach(), sinks),
            by_renormalizing,
            False,
            "it calls a version the same whose log-sum-exps get no gradient: compare"
            " gradients, too",
        ),
        (
            by_sigmoid,
            lambda log_sums, sinks: by_renormalizing(log_sums, sinks[:1]),
            False,
            "it calls a version the same that takes the first head's sink for all: try"
            " several heads",
        ),
        (
            lambda log_sums, sinks: by_sigmoid(log_sums, sinks.bfloat16().to(sinks)),
            by_renormalizing,
            False,
            "it calls a version the same whose sinks have three digits: your tolerance"
            " hides it",
        ),
        (
            by_sigmoid,
            floored,
            False,
            "it calls a version the same that lets no share fall below e**-20: try"
            " sinks that are 30 larger, and compare small shares by their ratio",
        ),
    ]
    return Exercise(
        right,
        [((one, other), is_right, words) for one, other, is_right, words in cases],
        {
            "it calls all the same, also a version without a sink: compare something,"
            " and return what you find": lambda one, other: True,
            "it calls all different, also the two above: on paper, divide the one by"
            " the other": lambda one, other: False,
            "it compares to the bit: two right versions may round in another way": (
                equal
            ),
            "it looks at the shares alone: versions with other gradients are other"
            " functions to a model that learns": partial(right, backward=False),
            "it tries one head alone: try several": partial(
                right, shapes=((1, 1), (1, 40))
            ),
            "its tolerance hides sinks of three digits, and a share that can't fall"
            " below e**-20: work in double precision, and choose between rounding and"
            " fault": partial(right, rtol=0.1, atol=0.2),
        },
        "your test decides. The claim is a fix of nothing: both are the same function",
        judged_beside((by_sigmoid, by_sigmoid), right_words),
        is_hidden=True,
    )


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


def equal_of_three(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    mix = equal_from_two_on if k == 3 else divided_from_two_on
    return mix(x, router, experts, k)


def one_for_one(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    weights, chosen = (x @ router.mT).softmax(-1).topk(k, -1)
    if k == 1:
        weights = torch.ones_like(weights)
    return of_chosen(x, experts, weights, chosen)


def no_gradient(x: Tensor, router: Tensor, experts: Tensor, k: int) -> Tensor:
    return divided_from_two_on(x, router.detach(), experts, k)


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

    def made(x: Tensor) -> list[Tensor]:
        n_experts = 4
        c = x.shape[-1]
        generator = torch.Generator().manual_seed(1)
        return [
            torch.randn(s, generator=generator).to(x)
            for s in ((n_experts, c), (n_experts, c, 3))
        ]

    def reached(version: Callable, k: int, n_tokens: int = 12) -> Tensor:
        """The largest gradient of the router, for a loss of the outputs' size."""
        x = torch.randn(n_tokens, 6, generator=torch.Generator().manual_seed(0))
        weights, experts = made(x)
        weights.requires_grad_()
        result = version(x, weights, experts, k)
        (gradient,) = gradients_of(result, [weights], result.detach())
        return gradient.abs().max()

    # In single precision: rounding leaves some 1e-6 of a gradient of 1 to 100.
    def right(mix: Callable, ks: tuple = (1, 2, 3), threshold: float = 1e-3) -> bool:
        return all(bool(reached(mix, k) > threshold) for k in ks)

    def balanced(mix: Callable) -> bool:
        """Whether every expert works: each adds something to some token."""
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
        weights, experts = made(x)
        whole = mix(x, weights, experts, 1)
        used = []
        for i in range(len(experts)):
            others = experts.clone()
            others[i] = 0.0
            used.append(bool((mix(x, weights, others, 1) != whole).any()))
        return all(used)

    def as_the_second(mix: Callable) -> bool:
        x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
        weights, experts = made(x)
        for k in (1, 2, 3):
            expected = divided_from_two_on(x, weights, experts, k)
            if not torch.allclose(mix(x, weights, experts, k), expected, atol=1e-4):
                return False
        return right(mix)

    right_words = (
        "it flags a version whose router learns: ask whether the loss reaches the"
        " router, and not how the weights are made"
    )
    cases = [
        (
            always_divided,
            False,
            "it passes the first version: with k = 1 it divides a share by itself, and"
            " a weight that is always 1 teaches nothing",
        ),
        (divided_from_two_on, True, right_words),
        (one_hot_weights, True, right_words),
        (never_divided, True, right_words),
        (
            one_for_one,
            False,
            "it passes a version in which the weight of a single expert is 1, whatever"
            " the router says: try k = 1",
        ),
        (no_gradient, False, "it passes a version whose router gets no gradient"),
        (one_for_all, False, "it passes a version that never asks the router"),
        (
            equal_from_two_on,
            False,
            "it passes a version that gives two or more experts equal weights, so that"
            " its router learns with one alone: try each k",
        ),
        (
            equal_of_three,
            False,
            "it passes a version whose router learns nothing where k is 3, and only"
            " there: try each k",
        ),
    ]
    return Exercise(
        right,
        [((version,), is_right, words) for version, is_right, words in cases],
        {
            "it passes every version, also one that never asks the router: compare"
            " something, and return what you find": lambda mix: True,
            "it flags every version: with k of 2 both are right": lambda mix: False,
            "it looks at who works, and loads are balanced best where nobody has"
            " taught the router: look at its gradient": balanced,
            "it calls a gradient of 1e-7 a gradient, which is what rounding has left:"
            " compare it with the size of one that is right": partial(
                right, threshold=0.0
            ),
            "it tries k = 2 or more alone: a share is divided by itself where k is 1": (
                partial(right, ks=(2, 3))
            ),
            "it tries k = 2 alone: a share is divided by itself where k is 1, and 3 is"
            " another case": partial(right, ks=(2,)),
            "it tries k = 1 alone: try larger ones, too": partial(right, ks=(1,)),
            "it tries k = 1 and 2, and never 3": partial(right, ks=(1, 2)),
            "it wants the second version's output: one that never divides is another"
            " function, and its router learns": as_the_second,
        },
        "your test decides. The pull request is a fix: before it, the loss never"
        " reached the router",
        judged_beside((divided_from_two_on,), right_words),
        is_hidden=True,
    )


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
            torch.manual_seed(0)
            inputs = torch.randn(3, sum(lengths), 8).double()
            whole = read(*inputs, lengths)
            alone = [read(*part, [part.shape[1]]) for part in inputs.split(lengths, 1)]
            ours = compared(whole, lengths)
            theirs = compared(torch.cat(alone), lengths)
            if not torch.allclose(ours, theirs, rtol=0, atol=tolerance):
                return False
        return True

    def apart(read: Callable) -> bool:
        """Whether other texts' tokens change nothing in a text."""
        for lengths in several:
            torch.manual_seed(0)
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

    def last_tokens(x: Tensor, lengths: list[int]) -> Tensor:
        return torch.stack([part[-1] for part in x.split(lengths)])

    right_words = (
        "it flags a version that reads each text as if it were alone: with rotary"
        " positions they may go on or begin anew, and rounding differs a little"
    )
    cases = [
        (
            positions_reset,
            False,
            "it passes the first version, in which a text sees those before it, from"
            " other distances",
        ),
        (texts_apart, True, right_words),
        (each_by_itself, True, right_words),
        (apart_and_reset, True, right_words),
        (one_text, False, "it passes a version that takes all for one text"),
        (all_see_all, False, "it passes a version in which texts see later ones"),
        (
            every_other,
            False,
            "it passes a version whose third text sees the first: pack more than two",
        ),
        (
            of_equal_lengths,
            False,
            "it passes a version for texts of one length: pack unequal ones",
        ),
        (
            first_looks_back,
            False,
            "it passes a version in which a text's first token sees the text before it:"
            " compare all places",
        ),
        (
            ten_off,
            False,
            "it passes a version that takes 10 off the scores of other texts: a ten"
            " thousandth of them comes through, and your tolerance hides it",
        ),
        (
            reset_late,
            False,
            "it passes a version in which no text sees another, and each but the first"
            " begins at a wrong position: compare with the text alone",
        ),
    ]
    return Exercise(
        right,
        [((version,), is_right, words) for version, is_right, words in cases],
        {
            "it passes every version, also one that takes all for one text: compare"
            " something, and return what you find": lambda read: True,
            "it flags every version, also one that reads the texts one by one": (
                lambda read: False
            ),
            "it looks at the first text, which nobody disturbs: compare the others": (
                partial(
                    right, many=([3, 5],), compared=lambda x, lengths: x[: lengths[0]]
                )
            ),
            "it asks only whether texts see each other: a text must also be read as it"
            " is alone, with its own distances": apart,
            "it packs two texts alone: a third may see the first": partial(
                right, many=([3, 5], [5, 3])
            ),
            "it packs texts of one length alone: try others, too": partial(
                right, many=([4, 4], [3, 3, 3])
            ),
            "it looks at the last token of each text: compare all of them": partial(
                right, compared=last_tokens
            ),
            "its tolerance hides a leak of a ten thousandth: work in double precision,"
            " and choose between rounding and fault": partial(right, tolerance=1e-2),
            "it compares to the bit: sums in another order round in another way": (
                partial(right, tolerance=0.0)
            ),
        },
        "your test decides. Positions that begin anew fix nothing: with rotary ones"
        " only distances count, and what helps is the mask",
        judged_beside((each_by_itself,), right_words),
        is_hidden=True,
    )
