"""Right and wrong answers to the exercises of chapter 02."""

import torch
from einops import rearrange

from companion import checks


def my_count(d_model, n_heads, bias):
    return 4 * d_model * (d_model + bias)


def my_split(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def my_merge(heads):
    return heads.transpose(1, 2).flatten(2)


def my_induction_scores(weights, n):
    queries = torch.arange(n, weights.shape[1])
    return weights[:, queries, queries - n + 1].mean(-1)


def counted_by_head(d_model, n_heads, bias):
    d = d_model / n_heads
    head = 3 * (d_model * d + (d if bias else 0)) + d * d_model
    return n_heads * head + (d_model if bias else 0)


def looped_induction_scores(weights, n):
    t = weights.shape[1]
    return torch.stack(
        [sum(w[q, q - n + 1] for q in range(n, t)) / (t - n) for w in weights]
    )


RIGHT = [
    (checks.head_parameters, my_count),
    (checks.head_parameters, counted_by_head),
    (checks.head_parameters, lambda c, h, bias: torch.tensor(my_count(c, h, bias))),
    (checks.split_heads, my_split),
    (checks.split_heads, lambda x, h: torch.stack(x.chunk(h, -1), 1)),
    (
        checks.split_heads,
        lambda x, h: x.view(*x.shape[:2], h, -1).permute(0, 2, 1, 3).contiguous(),
    ),
    (checks.merge_heads, my_merge),
    (checks.merge_heads, lambda heads: torch.cat([*heads.unbind(1)], -1)),
    (checks.merge_heads, lambda heads: rearrange(heads, "b h t d -> b t (h d)")),
    (checks.induction_scores, my_induction_scores),
    (checks.induction_scores, looped_induction_scores),
    (checks.induction_scores, lambda w, n: w[:, n:].diagonal(1, 1, 2).mean(-1)),
]


def diagonal(offset, reduce=torch.mean):
    """The weights on a diagonal that begins at the second round's first query."""
    return lambda w, n: reduce(w[:, n:].diagonal(offset, 1, 2), -1)


def previous_token(weights, n):
    return weights.diagonal(-1, 1, 2)[:, n - 1 :].mean(-1)


WRONG = [
    (checks.head_parameters, lambda c, h, bias: 3 * c * (c + bias), "four matrices"),
    (checks.head_parameters, lambda c, h, bias: 4 * c * c, "biases are missing"),
    (
        checks.head_parameters,
        lambda c, h, bias: 4 * c * c + 4 * c,
        "although bias is False",
    ),
    (checks.head_parameters, lambda c, h, bias: 4 * h * c * (c + bias), "more heads"),
    (checks.head_parameters, lambda c, h, bias: 4 * (c * c + bias), "each output"),
    (
        checks.head_parameters,
        lambda c, h, bias: 4 * (c // h) * c,
        "d_model|c = 12, h = 3, bias = True: it gives 192, wanted 624",
    ),
    (
        checks.head_parameters,
        lambda c, h, bias: 4 * (c // h) * (c + bias),
        "these are the numbers of one head",
    ),
    (
        checks.head_parameters,
        lambda c, h, bias: 3 * h * c * (c + bias) + c * (c + bias),
        "not d_model of its own",
    ),
    (
        checks.head_parameters,
        lambda c, h, bias: 3 * h * c * (c + bias) + h * c * c + c * bias,
        "one output matrix serves",
    ),
    (
        checks.head_parameters,
        lambda c, h, bias: 4 * h * ((c // h) ** 2 + bias * (c // h)),
        "a head reads all channels",
    ),
    (
        checks.head_parameters,
        lambda c, h, bias: 4 * c * c + 3 * c * bias,
        "output matrix has a bias, too",
    ),
    (checks.head_parameters, lambda c, h, bias: 4 * c * c + c * bias, "not only one"),
    (
        checks.head_parameters,
        lambda c, h, bias: 4 * c * (c if bias else c + 1),
        "the other way round",
    ),
    (checks.head_parameters, lambda c, h, bias: 624, "c = 20, h = 5, bias = False"),
    (
        checks.split_heads,
        lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
        "mix positions",
    ),
    (checks.split_heads, lambda x, h: x.unflatten(-1, (h, -1)), "not moved"),
    (
        checks.split_heads,
        lambda x, h: rearrange(x, "b t (d h) -> b h t d", h=h),
        "every n-th channel",
    ),
    (checks.split_heads, lambda x, h: my_split(x, h).mT, "swapped"),
    (checks.split_heads, lambda x, h: None, "return"),
    (checks.split_heads, lambda x, h: x.unflatten(-1, (-1, h)), "cut the wrong way"),
    (checks.split_heads, lambda x, h: torch.stack(x.chunk(h, -1)), "before the batch"),
    (checks.split_heads, lambda x, h: my_split(x, h).flatten(0, 1), "four axes"),
    (checks.split_heads, lambda x, h: [*x.chunk(h, -1)], "stack them as axis 1"),
    (checks.split_heads, lambda x, h: x.view(2, 5, 3, 4).mT, r"the shape is \(2, 5, 4"),
    (
        checks.split_heads,
        lambda x, h: x.view(2, 5, 3, 4).transpose(1, 2),
        r"x \(3, 7, 8\), h = 2: it stops with RuntimeError",
    ),
    (checks.split_heads, lambda x, h: my_split(x, 3), "stops with RuntimeError"),
    (checks.merge_heads, lambda x: x.permute(0, 2, 3, 1).flatten(2), "interleaved"),
    (
        checks.merge_heads,
        lambda x: x.reshape(len(x), x.shape[2], -1),
        "mixes positions",
    ),
    (checks.merge_heads, lambda x: x.transpose(1, 2), "not joined"),
    (checks.merge_heads, lambda x: x.sum(1), "added up"),
    (checks.merge_heads, lambda x: x.mean(1), "averaged"),
    (checks.merge_heads, lambda x: x.flatten(1, 2), "joined with the positions"),
    (checks.merge_heads, lambda x: x.mT.flatten(1, 2), r"this is \(b c t\)"),
    (
        checks.merge_heads,
        lambda x: x.transpose(1, 2).view(len(x), x.shape[2], -1),
        "stops with RuntimeError: view size is not compatible",
    ),
    (checks.merge_heads, lambda x: x, r"the shape is \(2, 3, 5, 4\), wanted"),
    (checks.induction_scores, diagonal(0), "earlier copy itself"),
    (checks.induction_scores, diagonal(1, torch.sum), "sum over the queries"),
    (checks.induction_scores, previous_token, "previous token"),
    (checks.induction_scores, lambda w, n: my_induction_scores(w.mT, n), "swapped"),
    (
        checks.induction_scores,
        lambda w, n: my_induction_scores(w, n).mean(),
        "for each head",
    ),
    (
        checks.induction_scores,
        lambda w, n: w[:, n + 1 :].diagonal(0, 1, 2).mean(-1),
        "before the copy",
    ),
    (
        checks.induction_scores,
        lambda w, n: w.diagonal(0, 1, 2)[:, n:].mean(-1),
        "on themselves",
    ),
    (
        checks.induction_scores,
        lambda w, n: w[:, n:].diagonal(1, 1, 2)[:, 1:].mean(-1),
        "is left out: begin at n",
    ),
    (
        checks.induction_scores,
        lambda w, n: w[:, n:].diagonal(1, 1, 2).sum(-1) / (n - 1),
        "divided by n - 1",
    ),
    (
        checks.induction_scores,
        lambda w, n: w[:, n:].diagonal(1, 1, 2).sum(-1) / n,
        "divided by n:",
    ),
    (
        checks.induction_scores,
        lambda w, n: w[:, n:].diagonal(1, 1, 2).sum(-1) / w.shape[1],
        "the mean over all queries",
    ),
    (
        checks.induction_scores,
        lambda w, n: w.diagonal(n - w.shape[1], 1, 2)[:, 2 * n - w.shape[1] :].mean(-1),
        "wherever the game was cut off|it gives",
    ),
    (
        checks.induction_scores,
        lambda w, n: my_induction_scores(w, (w.shape[1] + 1) // 2),
        "not half of the sequence",
    ),
    (
        checks.induction_scores,
        lambda w, n: w.diagonal(-3, 1, 2)[:, 1:].mean(-1),
        r"w \(2, 10, 10\), n = 5: at \[0\] it gives",
    ),
    (
        checks.induction_scores,
        lambda w, n: w.diagonal(1 - n, 1, 2).mean(-1),
        "begin at n",
    ),
]
