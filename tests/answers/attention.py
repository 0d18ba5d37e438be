"""Right and wrong answers to the exercises of chapter 01."""

import math

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

import companion
from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


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


def mixed(weights, values):
    columns = zip(*values, strict=True)
    return [sum(w * v for w, v in zip(weights, c, strict=True)) for c in columns]


def by_hand(shift=max, before=lambda d, s, c: d**0.5, after=mixed):
    """Attention for one query in plain Python; `shift` is taken from the scores."""

    def answer(query, keys, values):
        dots = [sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
        root = before(len(query), len(keys), len(values[0]))
        scores = [dot / root for dot in dots]
        terms = [math.exp(score - shift(scores)) for score in scores]
        return after([term / sum(terms) for term in terms], values)

    return answer


@wrong(checks.one_query, "the very numbers that e is raised to")
def unscaled_largest(query, keys, values):
    dots = [sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    terms = [math.exp(dot / len(query) ** 0.5 - max(dots)) for dot in dots]
    return mixed([term / sum(terms) for term in terms], values)


def in_one_pass(query, keys, values):
    """The largest score so far, and what was summed before it is made smaller."""
    largest = -math.inf
    total = 0
    taken = [0] * len(values[0])
    for key, value in zip(keys, values, strict=True):
        score = sum(map(math.prod, zip(query, key, strict=True))) / len(query) ** 0.5
        old = largest
        largest = max(largest, score)
        shrink = math.exp(old - largest)
        term = math.exp(score - largest)
        total = total * shrink + term
        taken = [a * shrink + term * b for a, b in zip(taken, value, strict=True)]
    return tuple(a / total for a in taken)


def slices(begin):
    """A loop over positions, each with its slice of keys and values."""

    def answer(q, k, v, n):
        rows = []
        for t in range(q.shape[-2]):
            near = slice(begin(t - n + 1), t + 1)
            row = q[..., t : t + 1, :], k[..., near, :], v[..., near, :]
            rows.append(companion.attention(*row))
        return torch.cat(rows, -2)

    return answer


def filled(q, k, v, n):
    scores = scores_of(q, k)
    for t in range(q.shape[-2]):
        for s in range(q.shape[-2]):
            if s > t or t - s >= n:
                scores[..., t, s] = -torch.inf
    return torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), v)


def seen(see, times=lambda d: 1):
    """Attention with a mask by how far back a key lies, and the width."""

    def answer(q, k, v, n):
        t = torch.arange(q.shape[-2])
        q = q * times(q.shape[-1])
        return companion.attention(q, k, v, see(t[:, None] - t, n))

    return answer


def real(lengths, n):
    return torch.arange(n) < lengths[:, None]


def total(x, axis=-1):
    return x.sum(axis, keepdim=True)


def by_rates(weights, g):
    n = weights.shape[1]
    gradient = torch.zeros_like(weights)
    for row, w in enumerate(weights):
        for i in range(n):
            for j in range(n):
                rate = w[j] * (1 - w[j]) if i == j else -w[i] * w[j]
                gradient[row, j] += g[row, i] * rate
    return gradient


@wrong(checks.one_query, "it gives")
def best_on_overflow(query, keys, values):
    try:
        return by_hand(shift=lambda z: 0)(query, keys, values)
    except (OverflowError, ZeroDivisionError):
        return by_hand(after=lambda w, v: v[w.index(max(w))])(query, keys, values)


@wrong(checks.one_query, "cut off they become equal")
def cut_off(query, keys, values):
    dots = [sum(map(math.prod, zip(query, key, strict=True))) for key in keys]
    scores = [max(-700, min(700, dot / len(query) ** 0.5)) for dot in dots]
    terms = [math.exp(score) for score in scores]
    return mixed([term / sum(terms) for term in terms], values)


def scored(change):
    return taken(lambda q, k: change(k @ q / len(q) ** 0.5).softmax(0))


@wrong(checks.one_query, "inf/inf and 0/0 are NaN")
def with_numpy(query, keys, values):
    with np.errstate(all="ignore"):
        terms = np.exp(np.array(keys) @ query / len(query) ** 0.5)
        return terms / terms.sum() @ np.array(values)


def hidden_by(low):
    def answer(q, k, v, n):
        hidden = ~band(q.shape[-2], n)
        return scores_of(q, k).masked_fill(hidden, low).softmax(-1) @ v

    return answer


@wrong(checks.window_attention, "0 divided by 0 is NaN")
def shared_again(q, k, v, n):
    left = scores_of(q, k).softmax(-1) * band(q.shape[-2], n)
    return left / left.sum(-1, keepdim=True) @ v


def fused(query, keys, values):
    lists = map(torch.tensor, ([query], keys, values))
    return scaled_dot_product_attention(*lists)[0]


@wrong(checks.one_query, "out of range'[)]: before exp take away")
def e_to_the_power(query, keys, values):
    dots = [sum(map(math.prod, zip(query, key, strict=True))) for key in keys]
    terms = [math.e ** (dot / len(query) ** 0.5) for dot in dots]
    return mixed([term / sum(terms) for term in terms], values)


def by_autograd(weights, g):
    scores = weights.clamp(min=1e-30).log().requires_grad_()
    scores.softmax(-1).backward(g)
    return scores.grad


@wrong(checks.window_attention, "serve everybody")
def cropped(q, k, v, n):
    return companion.attention(q, k[:, :, -n:], v[:, :, -n:])


@wrong(checks.window_attention, "only the last `width` positions are left:")
def all_cropped(q, k, v, n):
    q, k, v = (x[:, :, -n:] for x in (q, k, v))
    return companion.attention(q, k, v, companion.causal_mask(q.shape[2]))


@wrong(checks.window_attention, "have no key here")
def cropped_under_a_triangle(q, k, v, n):
    mask = companion.causal_mask(q.shape[2])[:, -n:]
    return companion.attention(q, k[:, :, -n:], v[:, :, -n:], mask)


RIGHT = [
    (checks.one_query, lambda *lists: map(float, by_hand()(*lists))),
    (checks.one_query, lambda *lists: torch.tensor(by_hand()(*lists))),
    (
        checks.softmax_gradient,
        lambda w, g: (
            (w.diag_embed() - w[:, :, None] * w[:, None]) @ g[..., None]
        ).squeeze(-1),
    ),
    (checks.softmax_gradient, lambda w, g: w * (g - (w @ g.T).diag()[:, None])),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            (scores_of(q, k) + band(q.shape[-2], n).float().log()).softmax(-1) @ v
        ),
    ),
    (checks.window_attention, hidden_by(torch.finfo(torch.float32).min)),
    (checks.pad_mask, companion.padding_mask),
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
        lambda q, k, v, n: scaled_dot_product_attention(q, k, v, band(q.shape[-2], n)),
    ),
    (checks.softmax_gradient, by_autograd),
    (checks.one_query, in_one_pass),
    (checks.window_attention, slices(lambda begin: max(0, begin))),
    (checks.window_attention, filled),
    (checks.window_attention, seen(lambda back, n: (back >= 0) & (back < n))),
    (
        checks.pad_mask,  # as wide as the scores: the same for all queries
        lambda lengths, n: companion.padding_mask(lengths, n).expand(-1, 1, n, n),
    ),
    (checks.one_query, lambda *lists: np.array(by_hand()(*lists))),
    (checks.one_query, lambda *lists: [np.float64(x) for x in by_hand()(*lists)]),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            masked(scores_of(q, k), band(q.shape[-2], n)).double() @ v.double()
        ),
    ),
    (
        checks.pad_mask,
        lambda lengths, n: torch.tensor(
            [[[[s < length for s in range(n)]]] for length in lengths.tolist()]
        ),
    ),
    (checks.softmax_gradient, by_rates),
]

WRONG = [
    *wrong,
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(*(x[:, :, -n:] for x in (q, k, v))),
        "and see each other",
    ),
    *(
        (checks.one_query, by_hand(shift=shift), "begins at a number that all may lie")
        for shift in (
            lambda z: max(-9_999, *z),
            lambda z: max(-1e9, *z),
            lambda z: max(-1e12, *z),
        )
    ),
    (
        checks.one_query,
        by_hand(shift=lambda z: sorted(z)[-2]),  # the largest but one
        "OverflowError.*no other number",
    ),
    (
        checks.one_query,
        lambda *lists: [1 / 0 for _ in by_hand()(*lists)],
        "for .*: it stops with ZeroDivisionError: [^:]*$",
    ),
    (
        checks.one_query,
        lambda *lists: [round(x, 3) for x in by_hand()(*lists)],
        "it gives -0.609, wanted",
    ),
    (checks.window_attention, hidden_by(-1e6), "-1,000,000 is no low score"),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            (w := scores_of(q, k).exp() * band(q.shape[-2], n)) / total(w) @ v
        ),
        "exp overflows",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(q, k, v, width=n),
        "^window_attention: it stops with TypeError: attention.. got an unexpected",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(q, k, v, band(q.shape[-1], n)),
        "for q .*: it stops with ValueError: mask",
    ),
    # Shapes that don't fit, though not for want of keepdim.
    (checks.softmax_gradient, lambda w, g: w * (g - w @ g.T), "RuntimeError: [^:]*$"),
    (checks.softmax_gradient, lambda w, g: w * (g - w @ g), "RuntimeError: [^:]*$"),
    (
        checks.softmax_gradient,
        lambda w, g: w * (g - (w * g).sum(-1).unsqueeze(0)),
        "give it keepdim=True",
    ),
    (
        checks.softmax_gradient,
        lambda w, g: w.softmax(-1) * (g - total(w.softmax(-1) * g)),
        "weights already: no softmax",
    ),
    (
        checks.softmax_gradient,
        lambda w, g: w.requires_grad_().detach() * (g - total(w * g)),
        "^softmax_gradient: the answer leaves `requires_grad` changed",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: torch.arange(n) < lengths,
        "for .*: it stops with RuntimeError: [^:]*$",
    ),
    (checks.one_query, by_hand(before=lambda d, s, c: 1), "no scale: divide"),
    (checks.one_query, by_hand(before=lambda d, s, c: d), "its root"),
    (
        checks.one_query,
        by_hand(shift=lambda z: 0),
        "OverflowError.*largest score before exp, not 0",
    ),
    (
        checks.one_query,
        by_hand(shift=lambda z: max(0, *z)),
        "ZeroDivisionError.*never below 0",
    ),
    (checks.one_query, by_hand(shift=lambda z: max(map(abs, z))), "by `abs`"),
    (checks.one_query, by_hand(shift=lambda z: z[0]), "OverflowError.*no other number"),
    (
        checks.one_query,
        by_hand(shift=lambda z: z[-1]),
        "OverflowError.*no other number",
    ),
    (
        checks.one_query,
        by_hand(shift=lambda z: sum(z) / len(z)),
        "OverflowError.*no other number",
    ),
    (checks.one_query, by_hand(shift=min), "OverflowError.*no other number"),
    (
        checks.one_query,
        by_hand(before=lambda d, s, c: s**0.5),
        "d is not the number of keys",
    ),
    (
        checks.one_query,
        lambda q, k, v: [
            x / len(q) ** 0.5 for x in by_hand(before=lambda d, s, c: 1)(q, k, v)
        ],
        "by the root, not the weights",
    ),
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
        "raise e to the scores before dividing",
    ),
    (checks.one_query, taken(lambda q, k: k @ q / len(q) ** 0.5), "softmax is missing"),
    (checks.one_query, lambda q, k, v: [2 * x for x in by_hand()(q, k, v)], "it gives"),
    (
        checks.window_attention,
        lambda q, k, v, n: (scores_of(q, k) * band(q.shape[-2], n)).softmax(-1) @ v,
        "hidden scores are 0, not -inf",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (
            torch.arange(n) < lengths.clamp(min=1)[:, None]  # never empty
        )[:, None, None],
        "a length may be 0",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e + (w * e).sum(-1, keepdim=True)),
        "the sum is to be taken away",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - e.sum(-1, keepdim=True)),
        "the sum is to be weighed by w",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - e.mean(-1, keepdim=True)),
        "weigh by w, no plain mean",
    ),
    (checks.softmax_gradient, lambda w, e: e - w * total(e), "this is for log softmax"),
    (
        checks.softmax_gradient,
        lambda w, e: w * e - total(w * e),
        "the sum, too, has the factor w",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: scores_of(q, k).softmax(-1) * band(q.shape[-2], n) @ v,
        "mask before softmax, not after",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            masked(scores_of(q, k), band(q.shape[-2], n) | band(q.shape[-2], n).T) @ v
        ),
        "a position sees later ones, too",
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
        "itself is one of the width",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(
            q, k, v, companion.causal_mask(q.shape[-2])
        ),
        "causal, but without a window",
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
        "queries are hidden, not keys",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) >= lengths[:, None])[:, None, None],
        "upside down",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: torch.arange(n) < lengths[:, None],
        r"\(b s\) meets \(b h t s\) as \(t s\): four axes",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None],
        r"\(b h s\) is no mask for \(b h t s\)",
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
        "hide keys, not queries",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None, None].float(),
        "wanted torch.bool",
    ),
    (checks.softmax_gradient, lambda w, e: w * (1 - w) * e, "moves the other weights"),
    (
        checks.softmax_gradient,
        lambda w, e: e - (w * e).sum(-1, keepdim=True),
        "the factor w in front is missing",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * ((w * e).sum(-1, keepdim=True) - e),
        "sign is turned",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - (w * e).sum(-1)),
        "give it keepdim=True",
    ),
    (checks.softmax_gradient, lambda w, e: w * e, "sum over the other weights"),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - (w * e).sum(0, keepdim=True)),
        "runs over queries",
    ),
    (
        checks.one_query,
        by_hand(shift=lambda z: z[len(z) // 2]),  # not the largest
        "OverflowError.*no other number",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            companion.attention_weights(q, k, companion.causal_mask(q.shape[-2]))
            * band(q.shape[-2], n)
            @ v
        ),
        "the window, too, is cut before softmax",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            scores_of(q, k).masked_fill(~band(q.shape[-2], n), -100).softmax(-1) @ v
        ),
        "leaves weight",
    ),
    (
        checks.one_query,
        lambda q, k, v: [  # the terms, no shares
            sum(math.exp(a - max(z)) * b for a, b in zip(z, c, strict=True))
            for z in [[sum(map(math.prod, zip(q, x))) / len(q) ** 0.5 for x in k]]  # noqa: B905
            for c in zip(*v, strict=True)
        ],
        "divide the terms by their sum",
    ),
    (
        checks.window_attention,
        seen(lambda back, n: (back >= 0) & (back < n), lambda d: d**0.5),
        "no scale: divide by root d",
    ),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            scores_of(q, k).masked_fill(~band(q.shape[-2], n), -torch.inf).softmax(-2)
            @ v
        ),
        "softmax over queries",
    ),
    (checks.window_attention, seen(lambda back, n: back == back), "nothing is masked"),
    (
        checks.window_attention,
        lambda q, k, v, n: companion.attention(
            q,
            k,
            v,
            companion.causal_mask(q.shape[-2])
            & ((t := torch.arange(q.shape[-2]))[:, None] // n == t // n),
        ),
        "blocks of `width`: each query looks back",
    ),
    (
        checks.window_attention,  # never narrower than 2
        seen(lambda back, n: (back >= 0) & (back < max(n, 2))),
        "n = 1: at",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: real(lengths, n).flip(-1)[:, None, None],
        "filler stands at the end",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: real(lengths, n)[None, None],
        "sentences are the first axis",
    ),
    (
        checks.pad_mask,
        lambda lengths, n: real(lengths.amax().expand_as(lengths), n)[:, None, None],
        "each has its own length",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * w * e - w * total(w * e),
        "moves its own weight",
    ),
    (checks.one_query, by_hand(before=lambda d, s, c: c**0.5), "a query's length"),
    (checks.one_query, scored(lambda z: z / z.max()), "don't divide by it"),
    (checks.one_query, scored(lambda z: z.where(z == z.max(), -1e38)), "every key"),
    (checks.window_attention, hidden_by(-1e3), "leaves weight"),
    (checks.window_attention, hidden_by(-1e4), "-10,000 is no low score"),
    (
        checks.window_attention,
        lambda q, k, v, n: (
            (scores_of(q, k) + band(q.shape[-2], n).float()).softmax(-1) @ v
        ),
        "True is added as 1",
    ),
    (
        checks.window_attention,
        seen(lambda back, n: back.abs() <= n // 2),
        "half of the window lies ahead",
    ),
    (
        checks.pad_mask,  # four heads that nobody asked for
        lambda lengths, n: real(lengths, n)[:, None, None].repeat(1, 4, n, 1),
        "the shape is",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - (w * e).sum()),
        "along a row, not over all",
    ),
    (
        checks.window_attention,  # what is too far back is hidden, the future is not
        lambda q, k, v, n: companion.attention(
            q, k, v, ~companion.causal_mask(q.shape[-2]).tril(-n)
        ),
        "the future is seen",
    ),
    (
        checks.softmax_gradient,
        lambda w, e: w * (e - (w * e).mean(-1, keepdim=True)),
        "a sum over the row, no mean",
    ),
]
