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


def no_care(largest, totals, outs):
    shrink = (largest - largest.amax(0)).exp()
    return (shrink * outs).sum(0) / (shrink * totals).sum(0)


def parts(part):
    def losses(surprises, real):
        n = sum(int(r.sum()) for r in real)
        return [part(x, r, n, real) for x, r in zip(surprises, real, strict=True)]

    return losses


right_losses = parts(lambda x, r, n, real: torch.where(r, x, 0.0).sum() / n)


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


def one_maximum(largest, totals, outs):
    top = largest.max().clamp(min=-1e30)
    return no_maximum(largest - top, totals, outs)


def clamped(low):
    def answer(largest, totals, outs):
        shrink = (largest - largest.amax(0).clamp(min=low)).exp()
        total = (shrink * totals).sum(0)
        return torch.where(total > 0, (shrink * outs).sum(0) / total, 0.0)

    return answer


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
        one = (x @ directions.T - q * x.square().sum(-1, keepdim=True) / 2).exp()
        two = (y @ directions.T - k * y.square().sum(-1, keepdim=True) / 2).exp()
        return one @ (two.T @ values) / (one @ two.sum(0))[:, None]

    return answer


def with_features(change):
    """Performer's answer from the features of queries and keys, changed somehow."""

    def answer(queries, keys, values, directions):
        def phi(x):
            x = x / x.shape[-1] ** 0.25
            return (x @ directions.T - x.square().sum(-1, keepdim=True) / 2).exp()

        return change(phi(queries), phi(keys), values)

    return answer


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


RIGHT = [
    (checks.block_operations, lambda *x: torch.tensor(right_operations(*x))),
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
    (checks.linear_attention, right_with_table, "sum over the keys first"),
    (
        checks.linear_attention,
        with_features(lambda q, k, v: q @ (k.T @ v) / (q.sum(-1) * k.sum())[:, None]),
        "lost in the denominator",
    ),
    (
        checks.linear_attention,
        long_before,
        r"lengths are taken before dividing by d \*\*",
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
        checks.block_operations,
        lambda t, d, h, kv, f: (
            4 * t * d * d * (1 + kv // h) + 4 * t * t * d + 6 * t * d * f
        ),
        "n_kv_heads // n_heads is 0",
    ),
    (
        checks.accumulated,
        lambda *case: [
            loss if r.any() else 0.0
            for loss, r in zip(right_losses(*case), case[1], strict=True)
        ],
        "can't go backward",
    ),
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
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) - 2 * t * d * d,
        "output projection is missing",
    ),
    (checks.merge_all, no_maximum, "exp overflows"),
    (checks.merge_all, one_maximum, "each query has its own"),
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
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, kv, h, f),
        "upside down",
    ),
    (
        checks.merge_all,
        lambda largest, totals, outs: (
            (largest - largest.amax(0).clamp(min=-1e30)).exp() * outs
        ).sum(0),
        "not divided by the sum of all",
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
        "the pieces are added as they are: shrink",
    ),
    (checks.merge_all, lambda _, totals, outs: outs[0], r"at \[0, 0\] it gives"),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: (
            right_operations(t, d, h, kv, f) + 2 * t * d * (d - d * kv // h)
        ),
        "only the keys are shared: the values are,",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, 4 * d),
        "the hidden layer has d_hidden features,",
    ),
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
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) - 4 * t * t * d,
        "at t² d_model it gives 0, wanted 4",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) * 3,
        "the backward pass isn't asked for",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: (
            right_operations(t, d, h, kv, f) + 4 * t * t * d * (h - 1)
        ),
        "scores and mixing n_heads times",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: (
            right_operations(t, d, h, kv, f) - 4 * t * t * (d - d * kv // h)
        ),
        "fewer key heads save no scores",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) - t * d * f,
        "at t d_model d_hidden it gives 5, wanted 6",
    ),
    (
        checks.block_operations,
        lambda t, d, h, kv, f: right_operations(t, d, h, kv, f) + 2 * t * d,
        "it gives 6720, wanted 6656",
    ),
    (
        checks.block_operations,
        lambda *sizes: {"all": right_operations(*sizes)},
        "give one number, the sum",
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
