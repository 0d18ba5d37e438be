"""Right and wrong answers to the exercises of chapter 17."""

import math

import torch
import torch.nn.functional as F

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_gates(logits, k):
    p = logits.softmax(-1)
    places = torch.arange(logits.shape[1]).expand_as(p)
    is_chosen = (places[..., None] == p.topk(k, -1).indices[:, None]).any(-1)
    weights = p.where(is_chosen, 0)
    if k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights


@wrong(checks.gates, "all of them are asked")
def from_the_smallest_on(logits, k):
    p = logits.softmax(-1)
    smallest = p.topk(k, -1).values[:, -1:]
    weights = p.where(p >= smallest, 0)
    if k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights


def token_by_token(logits, k):
    rows = []
    for row in logits:
        p = row.softmax(0)
        chosen = row.argsort(descending=True)[:k]
        total = p[chosen].sum() if k > 1 else 1
        weights = torch.zeros(len(row))
        weights[chosen] = p[chosen] / total
        rows.append(weights)
    return torch.stack(rows)


def by_minus_infinity(logits, k):
    if k == 1:
        return logits.softmax(-1) * F.one_hot(logits.argmax(-1), logits.shape[1])
    chosen = logits.topk(k, -1)
    filled = torch.full_like(logits, -math.inf)
    return filled.scatter(-1, chosen.indices, chosen.values).softmax(-1)


@wrong(checks.gates, "whatever the router says")
def softmax_of_the_chosen(logits, k):
    chosen = logits.topk(k, -1)
    weights = chosen.values.softmax(-1)
    return torch.zeros_like(logits).scatter(-1, chosen.indices, weights)


@wrong(checks.gates, "divide by their sum")
def as_they_are(logits, k):
    p = logits.softmax(-1)
    return p * F.one_hot(p.topk(k, -1).indices, p.shape[1]).sum(-2)


@wrong(checks.gates, "depends on the router, too")
def with_the_sum_held(logits, k):
    weights = as_they_are(logits, k)
    if k == 1:
        return weights
    with torch.no_grad():
        total = weights.sum(-1, keepdim=True)
    return weights / total


@wrong(checks.gates, "the weights have no gradient")
@torch.no_grad()
def without_gradient(logits, k):
    return right_gates(logits, k)


@wrong(checks.gates, "softmax first")
def of_zeros(logits, k):
    mask = F.one_hot(logits.topk(k, -1).indices, logits.shape[1]).sum(-2)
    return (logits * mask).softmax(-1)


@wrong(checks.gates, "the shape is")
def the_chosen_alone(logits, k):
    return logits.softmax(-1).topk(k, -1).values


def with_a_column(scores, sinks):
    b, h, t, s = scores.shape
    column = sinks[None, :, None, None].expand(b, h, t, 1)
    return F.softmax(torch.cat([column, scores], -1), -1)[..., 1:]


def scaled_softmax(scores, sinks):
    left = torch.sigmoid(scores.logsumexp(-1) - sinks[:, None])
    return scores.softmax(-1) * left[..., None]


def head_by_head(scores, sinks):
    heads = []
    for i, sink in enumerate(sinks):
        total = torch.logaddexp(scores[:, i].logsumexp(-1), sink)
        heads.append((scores[:, i] - total[..., None]).exp())
    return torch.stack(heads, 1)


def head_by_head_from_the_larger(scores, sinks):
    heads = []
    for i, sink in enumerate(sinks):
        largest = torch.maximum(scores[:, i].amax(-1, keepdim=True), sink)
        powers = (scores[:, i] - largest).exp()
        total = powers.sum(-1, keepdim=True) + (sink - largest).exp()
        heads.append(powers / total)
    return torch.stack(heads, 1)


@wrong(checks.sink_weights, "nothing is clamped")
def with_a_clamp(scores, sinks):
    above = scores.logsumexp(-1, keepdim=True) - sinks.view(-1, 1, 1)
    return scores.softmax(-1) * above.clamp(min=-20).sigmoid()


@wrong(checks.sink_weights, "is rounded to 0")
def one_less_the_share(scores, sinks):
    below = sinks.view(-1, 1, 1) - scores.logsumexp(-1, keepdim=True)
    return scores.softmax(-1) * (1 - below.sigmoid())


@wrong(checks.sink_weights, "a gradient is no number")
def by_the_largest_score(scores, sinks):
    largest = scores.amax(-1, keepdim=True)
    e = (scores - largest).exp()
    of_sink = (sinks.view(-1, 1, 1) - largest).exp()
    return e / (e.sum(-1, keepdim=True) + of_sink)


@wrong(checks.sink_weights, "nothing on its way may be detached")
def with_the_share_held(scores, sinks):
    with torch.no_grad():
        total = scores.logsumexp(-1)
    return scores.softmax(-1) * torch.sigmoid(total - sinks[:, None])[..., None]


@wrong(checks.sink_weights, "use `logsumexp`")
def by_the_largest(scores, sinks):
    largest = scores.max(-1, keepdim=True).values
    return scores.softmax(-1) * torch.sigmoid(largest - sinks[:, None, None])


@wrong(checks.sink_weights, "shared out")
def shared_out(scores, sinks):
    weights = with_a_column(scores, sinks)
    return weights / weights.sum(-1, keepdim=True)


@wrong(checks.sink_weights, "drop it")
def not_dropped(scores, sinks):
    column = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat([scores, column], -1).softmax(-1)


@wrong(checks.sink_weights, "off all scores first")
def naive(scores, sinks):
    powers = torch.exp(scores)
    return powers / (torch.exp(sinks)[:, None, None] + powers.sum(-1, keepdim=True))


@wrong(checks.sink_weights, "each has one of its own")
def one_more(scores, sinks):
    return with_a_column(scores, 0 * sinks)


@wrong(checks.sink_weights, "shift both alike")
def half_shifted(scores, sinks):
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / (powers.sum(-1, keepdim=True) + sinks.exp()[:, None, None])


@wrong(checks.sink_weights, "it gives|it stops")
def along_the_keys(scores, sinks):
    total = scores.logsumexp(-1, keepdim=True)
    return scores.softmax(-1) * torch.sigmoid(total - sinks.mean())


def by_a_loop(n, windows, n_kv_heads, d_head, n_bytes):
    n_numbers = 0
    for window in windows:
        for place in range(n):
            if window is None or place >= n - window:
                n_numbers += 2 * n_kv_heads * d_head
    return n_numbers * n_bytes


def by_kinds(n, windows, n_kv_heads, d_head, n_bytes):
    full = windows.count(None)
    short = sum(min(n, w) for w in windows if w is not None)
    return (n * full + short) * n_kv_heads * d_head * 2 * n_bytes


@wrong(checks.cache_bytes, "the values are kept, too")
def keys_alone(n, windows, n_kv_heads, d_head, n_bytes):
    return by_kinds(n, windows, n_kv_heads, d_head, n_bytes) / 2


@wrong(checks.cache_bytes, "no more than its window")
def all_of_them(n, windows, n_kv_heads, d_head, n_bytes):
    return 2 * n * len(windows) * n_kv_heads * d_head * n_bytes


@wrong(checks.cache_bytes, "doesn't fill it")
def windows_full(n, windows, n_kv_heads, d_head, n_bytes):
    return sum(w or n for w in windows) * 2 * n_kv_heads * d_head * n_bytes


@wrong(checks.cache_bytes, "they keep every token")
def none_is_none(n, windows, n_kv_heads, d_head, n_bytes):
    n_kept = sum(min(n, w) for w in windows if w)
    return n_kept * 2 * n_kv_heads * d_head * n_bytes


RIGHT = [
    (checks.gates, right_gates),
    (checks.gates, token_by_token),
    (checks.gates, by_minus_infinity),
    (checks.sink_weights, with_a_column),
    (checks.sink_weights, scaled_softmax),
    (checks.sink_weights, head_by_head),
    (checks.sink_weights, head_by_head_from_the_larger),
    (checks.cache_bytes, by_a_loop),
    (checks.cache_bytes, by_kinds),
]
WRONG = wrong
