"""Right and wrong answers to the exercises of chapter 01."""

import torch

import companion
from companion import checks


def masked(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def scores_of(queries, keys):
    return queries @ keys.mT / queries.shape[-1] ** 0.5


def band(n, width):
    return companion.causal_mask(n) & ~companion.causal_mask(n).tril(-width)


RIGHT = [
    (checks.one_query, lambda q, k, v: (k @ q / len(q) ** 0.5).softmax(0) @ v),
    (checks.one_query, lambda q, k, v: companion.fused_attention(q[None], k, v)[0]),
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
]

WRONG = [
    (checks.one_query, lambda q, k, v: (k @ q).softmax(0) @ v, "scale is missing"),
    (checks.one_query, lambda q, k, v: (k @ q / len(q)).softmax(0) @ v, "its root"),
    (
        checks.one_query,
        lambda q, k, v: (k @ q / len(k) ** 0.5).softmax(0) @ v,
        "not of the number of keys",
    ),
    (
        checks.one_query,
        lambda q, k, v: (k @ q / len(q) ** 0.5).softmax(0),
        "these are the weights",
    ),
    (checks.one_query, lambda q, k, v: None, "is there a `return`"),
    (checks.one_query, lambda q, k, v: v.mean(0), r"at \[0\] it gives -0.5218"),
    (checks.one_query, lambda q, k, v: v[(k @ q).argmax()], "average all by softmax"),
    (
        checks.one_query,
        lambda q, k, v: (k @ q * len(q) ** 0.5).softmax(0) @ v,
        "divide by it",
    ),
    (checks.one_query, lambda q, k, v: (k @ q / 8**0.5).softmax(0) @ v, "always the"),
    (
        checks.one_query,
        lambda q, k, v: (-k @ q / len(q) ** 0.5).softmax(0) @ v,
        "wrong sign",
    ),
    (checks.one_query, companion.attention, "it stops with ValueError"),
    (
        checks.one_query,
        lambda q, k, v: (
            (e := (k @ q / len(q) ** 0.5).exp()) / e.sum() @ v  # overflows
        ),
        "take away the largest first",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: masked(q @ k.mT, band(q.shape[-2], n)) @ v,
        "the scale is missing",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (scores_of(q, k) * band(q.shape[-2], n)).softmax(-1) @ v,
        "has the score 0",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None] - 1)[:, None, None],
        "one key too few",
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
        "read as \\(t s\\)",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None],
        "read as \\(h t s\\)",
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
        "a mask is bool",
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
    (checks.softmax_gradient, lambda w, e: w * (e - (w * e).sum()), "all rows at once"),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - e.mean(-1, keepdim=True)),
        "plain mean",
    ),
]
