"""Right and wrong answers to the exercises of chapter 01."""

import math

import torch

import companion
from companion import checks


def masked(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def scores_of(queries, keys):
    return queries @ keys.mT / queries.shape[-1] ** 0.5


def band(n, width):
    return companion.causal_mask(n) & ~companion.causal_mask(n).tril(-width)


def taken(weigh):
    """What a query takes home, from lists to a list."""

    def take(query, keys, values):
        query, keys, values = map(torch.tensor, (query, keys, values))
        return (weigh(query, keys) @ values).tolist()

    return take


def by_hand(shift=max, before=lambda d: d**0.5, after=lambda d: 1):
    """Attention for one query in plain Python; `shift` is taken from the scores."""

    def answer(query, keys, values):
        d = len(query)
        dots = [sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
        scores = [dot / before(d) for dot in dots]
        terms = [math.exp(score - shift(scores)) for score in scores]
        weights = [term / sum(terms) / after(d) for term in terms]
        columns = zip(*values, strict=True)
        return [sum(w * v for w, v in zip(weights, c, strict=True)) for c in columns]

    return answer


def fused(query, keys, values):
    lists = [query], keys, values
    return companion.fused_attention(*map(torch.tensor, lists))[0]


def by_autograd(weights, g):
    scores = weights.clamp(min=1e-30).log().requires_grad_()
    scores.softmax(-1).backward(g)
    return scores.grad


RIGHT = [
    (checks.one_query, by_hand()),
    (checks.one_query, fused),
    (checks.one_query, taken(lambda q, k: (k @ q / len(q) ** 0.5).softmax(0))),
    (
        checks.window_attention,
        lambda q, k, v, n: masked(scores_of(q, k), band(q.shape[-2], n)) @ v,
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None, None],
    ),
    (checks.softmax_gradient, lambda w, e: w * (e - (w * e).sum(-1, keepdim=True))),
    (
        checks.softmax_gradient,
        lambda w, e: torch.einsum(
            "tij,tj->ti", w.diag_embed() - w[:, :, None] * w[:, None], e
        ),
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.fused_attention(q, k, v, band(q.shape[-2], n)),
    ),
    (checks.softmax_gradient, by_autograd),
]

WRONG = [
    (checks.one_query, by_hand(before=lambda d: 1), "scale is missing"),
    (checks.one_query, by_hand(before=lambda d: d), "its root"),
    (checks.one_query, by_hand(shift=lambda z: 0), "query: e to a large score over"),
    (
        checks.one_query,
        lambda q, k, v: taken(lambda q, k: (k @ q / len(q) ** 0.5).softmax(0))(
            q, k, torch.eye(len(k)).tolist()
        ),
        "these are the weights",
    ),
    (checks.one_query, lambda q, k, v: by_hand()(q, k, k), "the keys are averaged"),
    (checks.one_query, lambda q, k, v: None, "is there a `return`"),
    (checks.one_query, companion.attention, "it stops with ValueError"),
    (
        checks.one_query,
        taken(lambda q, k: (s := k @ q / len(q) ** 0.5) / s.sum()),
        "divided by their sum",
    ),
    (checks.one_query, taken(lambda q, k: k @ q / len(q) ** 0.5), "softmax is missing"),
    (checks.one_query, lambda q, k, v: [2 * x for x in by_hand()(q, k, v)], "it gives"),
    (
        checks.window_attention,
        lambda q, k, v, n: (scores_of(q, k) * band(q.shape[-2], n)).softmax(-1) @ v,
        "has the score 0",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (
            torch.arange(n) < lengths.clamp(min=1)[:, None]  # never empty
        )[:, None, None],
        "it gives 1, wanted 0",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e + (w * e).sum(-1, keepdim=True)),
        "a sign",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - e.sum(-1, keepdim=True)),
        "weighted by the weights",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: scores_of(q, k).softmax(-1) * band(q.shape[-2], n) @ v,
        "applied after softmax",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            masked(scores_of(q, k), band(q.shape[-2], n) | band(q.shape[-2], n).T) @ v
        ),
        "the future is to hide",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(q, k, v, band(q.shape[-2], n + 1)),
        "one too wide",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(
            q, k, v, band(q.shape[-2], n + 1) & ~torch.eye(q.shape[-2]).bool()
        ),
        "does not see itself",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(
            q, k, v, companion.causal_mask(q.shape[-2])
        ),
        "has no window",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(q, k, v, band(q.shape[-2], n - 1)),
        "one too narrow",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(q, k, v, band(q.shape[-2], n).T),
        "it looks ahead",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(q, k, v, ~band(q.shape[-2], n)),
        "upside down",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None, :, None],
        "queries are hidden instead of keys",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) >= lengths[:, None])[:, None, None],
        "upside down",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: torch.arange(n) < lengths[:, None],
        "the shape is",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None],
        "the shape is",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) <= lengths[:, None])[:, None, None],
        "one key too many",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (
            (real := torch.arange(n) < lengths[:, None])[:, None, None]
            & real[:, None, :, None]
        ),
        "hide keys only",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None, None].float(),
        "wanted torch.bool",
    ),
    (checks.softmax_gradient, lambda w, e: w * (1 - w) * e, "only i = j"),
    (
        checks.softmax_gradient,
        lambda w, e: e - (w * e).sum(-1, keepdim=True),
        "factor in front",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * ((w * e).sum(-1, keepdim=True) - e),
        "sign is turned",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - (w * e).sum(-1)),
        "it stops with RuntimeError|the shape|it gives",
    ),
    (checks.softmax_gradient, lambda w, e: w * e, "sum over the other weights"),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - (w * e).sum(0, keepdim=True)),
        "runs over the queries",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: companion.padding_mask(lengths, n).expand(-1, 1, n, n),
        "axis of queries has length 1",
    ),
    (
        checks.one_query,
        by_hand(shift=lambda z: z[len(z) // 2]),  # not the largest
        "e to a large score overflows",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            companion.attention_weights(q, k, companion.causal_mask(q.shape[-2]))
            * band(q.shape[-2], n)
            @ v
        ),
        "window cut out after softmax",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            scores_of(q, k).masked_fill(~band(q.shape[-2], n), -100).softmax(-1) @ v
        ),
        "it gives",
    ),
    (
        checks.one_query,
        lambda q, k, v: [  # the terms, no shares
            sum(math.exp(a - max(z)) * b for a, b in zip(z, c, strict=True))
            for z in [[sum(map(math.prod, zip(q, x))) / len(q) ** 0.5 for x in k]]  # noqa: B905
            for c in zip(*v, strict=True)
        ],
        "divide them by their sum",
    ),
    (checks.softmax_gradient, lambda w, e: w * (1 - w), "multiply each by its g"),
]
