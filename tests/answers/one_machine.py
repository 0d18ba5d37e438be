"""Right and wrong answers to the exercises of chapter 09."""

import torch

from companion import checks


def right_operations(t, d_model, n_heads, n_kv_heads, d_hidden):
    d_kv = d_model // n_heads * n_kv_heads
    products = [
        *(2 * [(t, d_model, d_model)]),
        *(2 * [(t, d_model, d_kv)]),
        *(2 * n_heads * [(t, d_model // n_heads, t)]),
        *(3 * [(t, d_model, d_hidden)]),
    ]
    return sum(2 * a * b * c for a, b, c in products)


def right_merge(largest, totals, outs):
    shrink = (largest - largest.amax(0).clamp(min=-1e30)).exp()
    return (shrink * outs).sum(0) / (shrink * totals).sum(0).clamp(min=1)


def merge_by_logs(largest, totals, outs):
    weights = torch.softmax(largest + totals.log(), 0).nan_to_num()
    return (weights * outs / totals.clamp(min=1)).sum(0)


def merge_two_at_a_time(largest, totals, outs):
    top, total, out = largest[0], totals[0], outs[0]
    for most, n, x in zip(largest[1:], totals[1:], outs[1:], strict=True):
        new = torch.maximum(top, most)
        one, two = (top - new).exp(), (most - new).exp()
        top, total, out = new, one * total + two * n, one * out + two * x
    return out / total


def no_care(largest, totals, outs):
    shrink = (largest - largest.amax(0)).exp()
    return (shrink * outs).sum(0) / (shrink * totals).sum(0)


def right_accumulated(surprises, real):
    return torch.cat([x[r] for x, r in zip(surprises, real, strict=True)]).mean()


def no_maximum(largest, totals, outs):
    grow = largest.exp()
    total = (grow * totals).sum(0)
    return torch.where(total > 0, (grow * outs).sum(0) / total, 0.0)


def one_maximum(largest, totals, outs):
    top = largest.max().clamp(min=-1e30)
    return no_maximum(largest - top, totals, outs)


def softmax_of_largest(largest, totals, outs):
    shares = torch.softmax(largest, 0).nan_to_num()
    return (shares * outs / totals.clamp(min=1e-9)).sum(0)


def like_the_first(surprises, real):
    cut = [r[0].expand(r.shape) for r in real]
    return right_accumulated(surprises, cut)


def weighted_by_piece(surprises, real):
    total = 0.0
    for x, r in zip(surprises, real, strict=True):
        means = torch.stack([a[b].mean() for a, b in zip(x, r, strict=True)])
        total += means.mean() * r.sum()
    return total / sum(r.sum() for r in real)


RIGHT = [
    (checks.block_operations, right_operations),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: (
            4 * t * d * d * (1 + kv / h) + 4 * t * t * d + 6 * t * d * f
        ),
    ),
    (checks.merge_all, right_merge),
    (checks.merge_all, merge_by_logs),
    (checks.merge_all, lambda *case: right_merge(*(x.flip(0) for x in case))),
    (checks.accumulated, right_accumulated),
    (checks.accumulated, lambda *case: right_accumulated(*case).item()),
]
WRONG = [
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) / 2,
        "each comes with an addition",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: 8 * t * d**2 + 4 * t**2 * d + 6 * t * d * f,
        "as wide as queries",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) - 2 * t * d * f,
        "a gated one has three",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) + 2 * t * t * d,
        "values are not multiplied with keys",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) - 2 * t * d * d,
        "output projection is missing",
    ),
    (checks.merge_all, merge_two_at_a_time, "a piece without keys"),
    (checks.merge_all, no_maximum, "exp overflows"),
    (checks.merge_all, one_maximum, "each query has its own"),
    (checks.merge_all, softmax_of_largest, "by its whole sum"),
    (checks.accumulated, like_the_first, "cut like its first"),
    (checks.accumulated, weighted_by_piece, "weighted by its piece"),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: 3 * right_operations(t, d, h, kv, f),
        "only forward",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) - 2 * t * t * d,
        "a mask saves nothing",
    ),
    (checks.merge_all, no_care, "a query without any key"),
    (
        checks.merge_all,
        lambda _, totals, outs: (outs / totals.clamp(min=1e-9)).mean(0),
        "larger scores counts more",
    ),
    (
        checks.merge_all,
        lambda _, totals, outs: outs.sum(0) / totals.sum(0).clamp(min=1),
        "another largest score",
    ),
    (checks.merge_all, lambda _, totals, outs: outs[0], r"at \[0, 0\] it gives"),
    (
        checks.accumulated,
        lambda surprises, real: (
            sum(x[r].mean() for x, r in zip(surprises, real, strict=True)) / len(real)
        ),
        "mean of the pieces' means",
    ),
    (
        checks.accumulated,
        lambda surprises, real: torch.cat([x.flatten() for x in surprises]).mean(),
        "padding is counted",
    ),
    (
        checks.accumulated,
        lambda surprises, real: sum(
            x[r].sum() for x, r in zip(surprises, real, strict=True)
        ),
        "this is a sum",
    ),
    (
        checks.accumulated,
        lambda surprises, real: torch.cat(surprises).mean(),
        "stops with RuntimeError",
    ),
]
