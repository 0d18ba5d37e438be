"""Right and wrong answers to the exercises of chapter 09."""

from fractions import Fraction
from functools import reduce

import numpy as np
import torch

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_seconds(n, weights, kept, sharing, bandwidth, peak):
    n_bytes = 2 * weights + sum(2 * kept for _ in range(n))
    operations = sum(2 * weights + 2 * sharing * kept for _ in range(n))
    return (
        n_bytes / bandwidth
        if n_bytes * peak > operations * bandwidth
        else operations / peak
    )


def by_row(reading, computing):
    """The longer of both, each from a text's, and from what all share."""
    return lambda *case: max(reading(*case), computing(*case))


def right_merge(largest, totals, outs):
    shrink = (largest - largest.amax(0).clamp(min=-1e30)).exp()
    return (shrink * outs).sum(0) / (shrink * totals).sum(0).clamp(min=1)


def merge_by_logs(largest, totals, outs):
    weights = torch.softmax(largest + totals.log(), 0).nan_to_num()
    return (weights * outs / totals.clamp(min=1)).sum(0)


@wrong(checks.merge_all, "a query without any key")
def no_care(largest, totals, outs):
    shrink = (largest - largest.amax(0)).exp()
    return (shrink * outs).sum(0) / (shrink * totals).sum(0)


def parts(part):
    def losses(surprises, real):
        n = sum(int(r.sum()) for r in real)
        return [part(x, r, n, real) for x, r in zip(surprises, real, strict=True)]

    return losses


right_losses = parts(lambda x, r, n, real: torch.where(r, x, 0.0).sum() / n)


@wrong(checks.merge_all, "exp overflows")
def no_maximum(largest, totals, outs):
    grow = largest.exp()
    total = (grow * totals).sum(0)
    return torch.where(total > 0, (grow * outs).sum(0) / total, 0.0)


def shrunk(which):
    def merge(largest, totals, outs):
        shrink = (largest - largest.amax(0).clamp(min=-1e30)).exp()
        total = shrink * totals if which == "totals" else totals
        out = shrink * outs if which == "outs" else outs
        return out.sum(0) / total.sum(0).clamp(min=1)

    return merge


@wrong(checks.merge_all, "each query has its own")
def one_maximum(largest, totals, outs):
    top = largest.max().clamp(min=-1e30)
    return no_maximum(largest - top, totals, outs)


def clamped(low):
    def answer(largest, totals, outs):
        shrink = (largest - largest.amax(0).clamp(min=low)).exp()
        total = (shrink * totals).sum(0)
        return torch.where(total > 0, (shrink * outs).sum(0) / total, 0.0)

    return answer


@wrong(checks.linear_attention, "sum over the keys first")
def right_with_table(queries, keys, values, directions):
    d = queries.shape[-1]
    phi = [
        ((x / d**0.25) @ directions.T - (x / d**0.25).pow(2).sum(1)[:, None] / 2).exp()
        for x in (queries, keys)
    ]
    weights = phi[0] @ phi[1].T
    return weights @ values / weights.sum(-1, keepdim=True)


def linear_with(q=1, k=1, root=0.25):
    """Such an answer with other parts of |q|² and |k|² subtracted."""

    def answer(queries, keys, values, directions):
        d = queries.shape[-1]
        x, y = queries / d**root, keys / d**root
        of_q = (x @ directions.T - q * x.square().sum(-1, keepdim=True) / 2).exp()
        of_k = (y @ directions.T - k * y.square().sum(-1, keepdim=True) / 2).exp()
        return of_q @ (of_k.T @ values) / (of_q @ of_k.sum(0))[:, None]

    return answer


def with_features(change):
    """Performer's answer from the features of queries and keys, changed somehow."""

    def answer(queries, keys, values, directions):
        def phi(x):
            x = x / x.shape[-1] ** 0.25
            return (x @ directions.T - x.square().sum(-1, keepdim=True) / 2).exp()

        return change(phi(queries), phi(keys), values)

    return answer


@wrong(checks.linear_attention, r"lengths are taken before dividing by d \*\*")
def long_before(queries, keys, values, directions):
    def phi(x):
        scaled = x / x.shape[-1] ** 0.25
        return (scaled @ directions.T - x.square().sum(-1, keepdim=True) / 2).exp()

    q, k = phi(queries), phi(keys)
    return q @ (k.T @ values) / (q @ k.sum(0))[:, None]


def linear_without_exponential(queries, keys, values, directions):
    q, k = (
        x @ directions.T - x.square().sum(-1, keepdim=True) / 2
        for x in (queries / queries.shape[-1] ** 0.25, keys / keys.shape[-1] ** 0.25)
    )
    return q @ (k.T @ values) / (q @ k.sum(0))[:, None]


def by_log_sum_exp(largest, totals, outs):
    logs = largest + totals.log()
    weights = (logs - logs.logsumexp(0)).exp()
    return (weights * outs / totals).nan_to_num().sum(0)


def by_logaddexp(largest, totals, outs):
    """One piece after the other, in log-space."""
    log = torch.full_like(largest[0], -torch.inf)
    result = 0 * outs[0]
    for score, total, out in zip(largest, totals, outs, strict=True):
        new = torch.logaddexp(log, score + total.log())
        result = (log - new).exp() * result + (score - new).exp() * out
        result = result.nan_to_num()
        log = new
    return result


def running(start):
    """One piece after the other, with a largest score that begins somewhere."""

    def merge(largest, totals, outs):
        top = torch.full_like(largest[0], start)
        total = 0
        out = 0
        for x, more, piece in zip(largest, totals, outs, strict=True):
            new = torch.maximum(top, x)
            total = total * (top - new).exp() + more * (x - new).exp()
            out = out * (top - new).exp() + piece * (x - new).exp()
            top = new
        return torch.where(total > 0, out / total, 0)

    return merge


def merge_in_pairs(largest, totals, outs):
    def two(a, b):
        top = torch.maximum(a[0], b[0])
        of_a, of_b = ((x[0] - top.clamp(min=-1e30)).exp() for x in (a, b))
        return top, of_a * a[1] + of_b * b[1], of_a * a[2] + of_b * b[2]

    _, total, out = reduce(two, zip(largest, totals, outs, strict=True))
    return out / (total + (total == 0))


def merge_by_numpy(largest, totals, outs):
    top = largest.numpy().max(0)
    top[np.isinf(top)] = 0
    shrink = np.exp(largest.numpy() - top)
    total = (shrink * totals.numpy()).sum(0)
    total[total == 0] = 1
    return torch.from_numpy((shrink * outs.numpy()).sum(0) / total)


def merge_by_einsum(largest, totals, outs):
    weights = (largest - largest.amax(0).nan_to_num(neginf=0)).exp_()
    total = torch.einsum("nti,nti->ti", weights, totals)
    result = torch.einsum("nti,ntd->td", weights, outs)
    result /= total.masked_fill_(total == 0, 1)
    return result


def lazy_losses(surprises, real):
    n = sum(int(r.sum()) for r in real)
    for x, r in zip(surprises, real, strict=True):
        x = x.clone()
        x[~r] = 0
        yield x.sum() / n


def recursive_losses(surprises, real, n=None):
    if n is None:
        n = sum(r.sum() for r in real)
    if not surprises:
        return []
    first = torch.einsum("bt,bt->", surprises[0], real[0].float()) / n
    return [first, *recursive_losses(surprises[1:], real[1:], n)]


@wrong(checks.accumulated, "changes its input: work on a copy")
def written_into(surprises, real):
    n = sum(r.sum() for r in real)
    return [x.mul_(r).sum() / n for x, r in zip(surprises, real, strict=True)]


@wrong(checks.accumulated, "have gone backward already")
def gone_backward(surprises, real):
    losses = right_losses(surprises, real)
    for loss in losses:
        loss.backward()
    return losses


def key_by_key(queries, keys, values, directions):
    def features(x):
        x = x / x.shape[-1] ** 0.25
        return (x @ directions.T - x.square().sum(-1, keepdim=True) / 2).exp()

    table, total = 0, 0
    for feature, value in zip(features(keys), values, strict=True):
        table = table + torch.outer(feature, value)
        total = total + feature
    return torch.stack([(x @ table) / (x @ total) for x in features(queries)])


def row_by_row(queries, keys, values):
    """Never a whole table, but all of its rows, one after the other."""
    weights = (keys @ query for query in queries)
    return torch.stack([row @ values / row.sum() for row in weights])


def chunk_by_chunk(queries, keys, values):
    tables = [part @ keys.T for part in queries.split(20)]
    return torch.cat([w @ values / w.sum(1, keepdim=True) for w in tables])


@wrong(checks.linear_attention, "are added: subtract")
def with_lengths_added(queries, keys, values, directions):
    q, k = (
        (x @ directions.T + x.square().sum(-1, keepdim=True) / 2).exp()
        for x in (queries / queries.shape[-1] ** 0.25, keys / keys.shape[-1] ** 0.25)
    )
    return q @ (k.T @ values) / (q @ k.sum(0))[:, None]


RIGHT = [
    (checks.pass_seconds, right_seconds),
    (checks.pass_seconds, lambda *x: np.float64(right_seconds(*x))),
    (checks.pass_seconds, lambda *x: torch.tensor(right_seconds(*x))),
    (checks.pass_seconds, lambda *x: Fraction(right_seconds(*x))),
    (checks.merge_all, by_log_sum_exp),
    (checks.merge_all, by_logaddexp),
    (checks.merge_all, running(-1e30)),
    (checks.merge_all, merge_in_pairs),
    (checks.merge_all, merge_by_numpy),
    (checks.merge_all, merge_by_einsum),
    (checks.accumulated, lazy_losses),
    (checks.accumulated, recursive_losses),
    (checks.accumulated, lambda *case: map(torch.sum, right_losses(*case))),
    (checks.linear_attention, key_by_key),
    (
        checks.linear_attention,
        with_features(
            lambda q, k, v: (
                torch.einsum("tm,md->td", q, torch.einsum("sm,sd->md", k, v))
                / torch.einsum("tm,m->t", q, k.sum(0))[:, None]
            )
        ),
    ),
    (checks.merge_all, right_merge),
    (checks.merge_all, merge_by_logs),
    (checks.merge_all, lambda *case: right_merge(*(x.flip(0) for x in case))),
    (checks.accumulated, right_losses),
    (
        checks.linear_attention,
        with_features(lambda q, k, v: q @ (k.T @ v) / (q @ k.sum(0, keepdim=True).T)),
    ),
    # A query's own length is in all its weights alike, and goes when they are divided.
    (checks.linear_attention, linear_with(q=0)),
    (checks.accumulated, lambda *case: (*right_losses(*case),)),
    (checks.accumulated, lambda *case: (loss for loss in right_losses(*case))),
    (checks.accumulated, lambda *case: torch.stack(right_losses(*case))),
]
WRONG = [
    *wrong,
    (
        checks.pass_seconds,
        lambda n, w, k, g, b, p: 2 * (w + n * k) / b + 2 * n * (w + g * k) / p,
        "both times are added",
    ),
    (
        checks.pass_seconds,
        lambda n, w, k, g, b, p: min(2 * (w + n * k) / b, 2 * n * (w + g * k) / p),
        "the shorter time",
    ),
    (
        checks.pass_seconds,
        lambda n, w, k, g, b, p: 2 * (w + n * k) / b,
        "reading alone",
    ),
    (
        checks.pass_seconds,
        lambda n, w, k, g, b, p: 2 * n * (w + g * k) / p,
        "computing alone",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: (w + n * k) / b,
            lambda n, w, k, g, b, p: 2 * n * (w + g * k) / p,
        ),
        "in bfloat16, not 1",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 4 * (w + n * k) / b,
            lambda n, w, k, g, b, p: 2 * n * (w + g * k) / p,
        ),
        "in bfloat16, not 4",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * w / b,
            lambda n, w, k, g, b, p: 2 * n * (w + g * k) / p,
        ),
        "only the weights are read",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * (w + k) / b,
            lambda n, w, k, g, b, p: 2 * n * (w + g * k) / p,
        ),
        "one cache is read",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * n * (w + k) / b,
            lambda n, w, k, g, b, p: 2 * n * (w + g * k) / p,
        ),
        "the weights are read for each text",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * (w + n * g * k) / b,
            lambda n, w, k, g, b, p: 2 * n * (w + g * k) / p,
        ),
        "shared keys are read for each head",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * (w + n * k) / b,
            lambda n, w, k, g, b, p: n * (w + g * k) / p,
        ),
        "multiplications alone",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * (w + n * k) / b,
            lambda n, w, k, g, b, p: 2 * (w + g * k) / p,
        ),
        "the operations of one text",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * (w + n * k) / b,
            lambda n, w, k, g, b, p: 2 * n * w / p,
        ),
        "scores and mixing are missing",
    ),
    (
        checks.pass_seconds,
        by_row(
            lambda n, w, k, g, b, p: 2 * (w + n * k) / b,
            lambda n, w, k, g, b, p: 2 * n * (w + k) / p,
        ),
        "a kept number is used once",
    ),
    (checks.merge_all, running(-9_999.0), "merge_all: for .* it gives 0, wanted"),
    (checks.merge_all, running(-99_999.0), "merge_all: for .* it gives 0, wanted"),
    (checks.linear_attention, with_features(row_by_row), "sum over the keys first"),
    (checks.linear_attention, with_features(chunk_by_chunk), "sum over the keys first"),
    (
        checks.linear_attention,
        with_features(lambda q, k, v: q @ (k.T @ v) / (q @ k.mean(0))[:, None]),
        "by the mean over the keys",
    ),
    (
        checks.accumulated,
        lambda *case: dict(enumerate(right_losses(*case))),
        "give a list with a loss for each piece, not {",
    ),
    (
        checks.accumulated,
        lambda *case: [[loss] for loss in right_losses(*case)],
        r"loss 0 is \[tensor\(0.1922\)\], wanted a tensor of one number",
    ),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: (x * r).sum(1) / n),
        r"at losses\[0\] the shape is \(2,\), wanted \(\)",
    ),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x[r].sum() / len(5)),
        r"it stops with TypeError: object of type 'int' has no len\(\)$",
    ),
    (
        checks.linear_attention,
        with_features(lambda q, k, v: q @ (k.T @ v) / (q.sum(-1) * k.sum())[:, None]),
        "lost in the denominator",
    ),
    (checks.linear_attention, linear_with(k=0), "keys' own lengths"),
    (checks.linear_attention, linear_with(q=0, k=0), "keys' own lengths"),
    (checks.linear_attention, linear_with(q=2, k=2), "half of it"),
    (checks.linear_attention, linear_with(root=0), "root of d is missing"),
    (checks.linear_attention, linear_with(root=0.5), "together that is d"),
    (
        checks.linear_attention,
        lambda q, k, v, r: torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v,
        "attention itself",
    ),
    (
        checks.linear_attention,
        lambda q, k, v, r: right_with_table(q, k, v, r)[:, :1] + 0 * v[:1],
        "wanted",
    ),
    (
        checks.accumulated,
        lambda *case: [
            loss if r.any() else 0.0
            for loss, r in zip(right_losses(*case), case[1], strict=True)
        ],
        "can't go backward",
    ),
    (checks.merge_all, clamped(0), "above some number"),
    (
        checks.accumulated,
        parts(
            lambda x, r, n, real: torch.tensor(
                x[r].sum().item() / n, requires_grad=True
            )
        ),
        "the surprises are cut off, by `detach`,",
    ),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: (x[r].sum() / n).detach().requires_grad_()),
        "the surprises are cut off, by `detach`,",
    ),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x[r].detach().sum() / n + 0 * x.sum()),
        "the surprises are cut off, by `detach`,",
    ),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x[r].mean() * r.sum() / n),
        "has no mean",
    ),
    (
        checks.merge_all,
        lambda largest, totals, outs: (
            (largest - largest.amax(0).clamp(min=-1e30)).exp() * outs
        ).sum(0),
        "not divided by the sum of all",
    ),
    (
        checks.merge_all,
        lambda _, totals, outs: (outs / totals.clamp(min=1e-9)).mean(0),
        "larger scores counts more",
    ),
    (
        checks.merge_all,
        lambda _, totals, outs: outs.sum(0) / totals.sum(0).clamp(min=1),
        "the pieces are added as they are: shrink",
    ),
    (checks.merge_all, lambda _, totals, outs: outs[0], r"at \[0, 0\] it gives"),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x[r].mean() / len(real)),
        "mean counts alike: ",
    ),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x.sum() / sum(r.numel() for r in real)),
        "padding is counted",
    ),
    (checks.accumulated, parts(lambda x, r, n, real: x.sum() / n), "in the sums"),
    (checks.accumulated, parts(lambda x, r, n, real: x[r].sum()), "these are sums"),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x[r].sum() / sum(r.numel() for r in real)),
        "divided by all places",
    ),
    (checks.accumulated, parts(lambda x, r, n, real: x[r].mean()), "own means"),
    (checks.accumulated, lambda *case: sum(right_losses(*case)), "give a list"),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x[r].sum().item() / n),
        "can't go backward",
    ),
    (
        checks.merge_all,
        lambda largest, totals, outs: right_merge(
            largest.masked_fill(largest == -torch.inf, 0), totals, outs
        ),
        "largest of 0 here",
    ),
    (
        checks.accumulated,
        lambda surprises, real: torch.cat(surprises).mean(),
        "stops with RuntimeError",
    ),
    (checks.merge_all, shrunk("totals"), "only the sums are shrunk"),
    (checks.merge_all, shrunk("outs"), "only the outputs are shrunk"),
    (
        checks.accumulated,
        lambda xs, real: [
            loss
            for loss, r in zip(right_losses(xs, real), real, strict=True)
            if r.any()
        ],
        "3 things, wanted 4",
    ),
    (
        checks.linear_attention,
        with_features(lambda q, k, v: q @ (k.T @ v)),
        "the answers are not divided: weights sum",
    ),
    (
        checks.merge_all,
        lambda largest, totals, outs: right_merge(largest, totals, outs * totals),
        "don't multiply them by the sums again",
    ),
    (
        checks.merge_all,
        lambda largest, totals, outs: (
            torch.softmax(largest, 0).nan_to_num() * outs / totals.clamp(min=1)
        ).sum(0),
        "multiply by its sum",
    ),
    (
        checks.merge_all,
        lambda largest, totals, outs: right_merge(largest, totals, outs)[None],
        r"the shape is \(1, 2, 5\), wanted \(2, 5\)",
    ),
    (
        checks.accumulated,
        parts(lambda x, r, n, real: x[r].sum() / sum(len(r) for r in real)),
        "texts are counted",
    ),
    (
        checks.linear_attention,
        lambda q, k, v, r: (q @ r.T) @ ((k @ r.T).T @ v),
        "wanted",
    ),
    (
        checks.linear_attention,
        lambda q, k, v, r: linear_without_exponential(q, k, v, r),
        "the exponential is missing",
    ),
]
