"""Right and wrong answers to the exercises of chapter 02."""

import torch
from einops import rearrange

import companion
from companion import checks
from companion.attention import softmax


def my_count(d_model, n_heads, bias):
    return 4 * d_model * (d_model + bias)


def my_split_heads(x, w_queries, w_keys, w_values, w_output):
    q, k, v = (
        torch.einsum("btc,hcd->bhtd", x, w) for w in (w_queries, w_keys, w_values)
    )
    heads = companion.attention(q, k, v)
    return torch.einsum("bhtd,hdc->btc", heads, w_output)


def looped_split_heads(x, w_queries, w_keys, w_values, w_output):
    out = 0
    for wq, wk, wv, wo in zip(w_queries, w_keys, w_values, w_output, strict=True):
        scores = (x @ wq) @ (x @ wk).mT / wq.shape[-1] ** 0.5
        out = out + scores.softmax(-1) @ (x @ wv) @ wo
    return out


def broadcast_split_heads(x, w_queries, w_keys, w_values, w_output):
    q, k, v = (x[:, None] @ w for w in (w_queries, w_keys, w_values))
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return heads.transpose(1, 2).flatten(2) @ w_output.flatten(0, 1)


def my_merge(heads):
    return heads.transpose(1, 2).flatten(2)


def my_induction_scores(weights, tokens):
    right = tokens.roll(1) == tokens[:, None]
    right[:, 0] = False
    right = right & companion.causal_mask(len(tokens))
    on_right = (weights * right).sum(-1)
    return on_right[:, right.any(-1)].mean(-1)


def counted_by_head(d_model, n_heads, bias):
    d = d_model / n_heads
    head = 3 * (d_model * d + (d if bias else 0)) + d * d_model
    return n_heads * head + (d_model if bias else 0)


def looped_induction_scores(weights, tokens):
    scores = []
    for head in weights.tolist():
        found = []
        for t, row in enumerate(head):
            places = [s for s in range(1, t + 1) if tokens[s - 1] == tokens[t]]
            if places:
                found.append(sum(row[s] for s in places))
        scores.append(sum(found) / len(found))
    return torch.tensor(scores)


def shifted_induction_scores(weights, tokens):
    copies = (tokens[:, None] == tokens).tril(-1)  # key s is an earlier copy of t
    right = torch.nn.functional.pad(copies[:, :-1], (1, 0))
    asked = copies.any(-1)
    return torch.einsum("hts,ts->h", weights, right.float()) / asked.sum()


RIGHT = [
    (checks.head_parameters, my_count),
    (checks.head_parameters, counted_by_head),
    (checks.head_parameters, lambda c, h, bias: torch.tensor(my_count(c, h, bias))),
    (checks.split_heads, my_split_heads),
    (checks.split_heads, looped_split_heads),
    (checks.split_heads, broadcast_split_heads),
    (checks.merge_heads, my_merge),
    (checks.merge_heads, lambda heads: torch.cat([*heads.unbind(1)], -1)),
    (checks.merge_heads, lambda heads: rearrange(heads, "b h t d -> b t (h d)")),
    (checks.induction_scores, my_induction_scores),
    (checks.induction_scores, looped_induction_scores),
    (checks.induction_scores, shifted_induction_scores),
]


def split_by(weigh, scale=lambda d, c: d**0.5):
    """The layer of exercise 3 with other weights or another scale."""

    def layer(x, w_queries, w_keys, w_values, w_output):
        q, k, v = (x[:, None] @ w for w in (w_queries, w_keys, w_values))
        weights = weigh(q @ k.mT / scale(q.shape[-1], x.shape[-1]))
        return torch.einsum("bhtd,hdc->btc", weights @ v, w_output)

    return layer


def shares(x, w_queries, w_keys, w_values, w_output):
    q, k, v = (x[:, None] @ w for w in (w_queries, w_keys, w_values))
    return companion.attention(q, k, v) @ w_output


def side_by_side(x, w_queries, w_keys, w_values, w_output):
    q, k, v = (x[:, None] @ w for w in (w_queries, w_keys, w_values))
    return companion.attention(q, k, v).transpose(1, 2).flatten(2)


def one_head_for_all(x, w_queries, w_keys, w_values, w_output):
    q, k, v = (
        torch.einsum("btc,hcd->btd", x, w) for w in (w_queries, w_keys, w_values)
    )
    heads = companion.attention(q, k, v)
    return torch.einsum("btd,hdc->btc", heads, w_output)


def reshaped(x, w_queries, w_keys, w_values, w_output):
    h, c, d = w_queries.shape
    q, k, v = (
        (x @ w.reshape(c, h * d)).unflatten(-1, (h, d)).transpose(1, 2)
        for w in (w_queries, w_keys, w_values)
    )
    heads = companion.attention(q, k, v).transpose(1, 2).flatten(2)
    return heads @ w_output.reshape(h * d, c)


def only_slices(x, w_queries, w_keys, w_values, w_output):
    h, c, d = w_queries.shape
    parts = x.unflatten(-1, (h, -1)).transpose(1, 2)
    return companion.attention(parts, parts, parts).transpose(1, 2).flatten(2)


def induction(where, reduce=None):
    """Scores on the keys that `where(copies)` chooses, copies (t s) of each token."""

    def scores(weights, tokens):
        right = where(tokens[:, None] == tokens)
        if reduce:
            return reduce(weights, right)
        return (weights * right).sum(-1)[:, right.any(-1)].mean(-1)

    return scores


def followers(copies):
    return torch.nn.functional.pad(copies.tril(-1)[:, :-1], (1, 0))


def last_follower(copies):
    right = followers(copies)
    return right & (right.flip(-1).cumsum(-1).flip(-1) == 1)


def unmasked(copies):
    return torch.nn.functional.pad(copies[:, :-1], (1, 0))


def first_round(weights, tokens):
    n = len(tokens) // 2
    queries = torch.arange(n, len(tokens))
    return weights[:, queries, queries - n + 1].mean(-1)


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
    (checks.split_heads, split_by(softmax, lambda d, c: 1), "are not scaled"),
    (checks.split_heads, split_by(softmax, lambda d, c: c**0.5), "not of all c"),
    (checks.split_heads, split_by(softmax, lambda d, c: d), "not by d"),
    (checks.split_heads, split_by(lambda s: s), "softmax is missing"),
    (checks.split_heads, split_by(lambda s: s.softmax(-2)), "over the last axis"),
    (checks.split_heads, split_by(lambda s: softmax(s.mT)), "are swapped"),
    (
        checks.split_heads,
        split_by(lambda s: softmax(s.sum(1, keepdim=True))),
        "a softmax of its own",
    ),
    (
        checks.split_heads,
        split_by(lambda s: softmax(s).mean(1, keepdim=True)),
        "weights of all heads were averaged",
    ),
    (
        checks.split_heads,
        split_by(lambda s: softmax(s + torch.full(s.shape, -torch.inf).triu(1))),
        "a causal mask",
    ),
    (checks.split_heads, shares, r"\(b h t c\): add them up"),
    (checks.split_heads, lambda *w: shares(*w).mean(1), "shares .* averaged"),
    (checks.split_heads, side_by_side, "side by side, but the output"),
    (checks.split_heads, reshaped, "as if c stood first"),
    (checks.split_heads, one_head_for_all, r"at \[0, 0, 0\] it gives"),
    (checks.split_heads, only_slices, "wanted|stops with"),
    (checks.split_heads, lambda x, *w: None, "return"),
    (checks.split_heads, lambda x, *w: x, r"at \[0, 0, 0\] it gives"),
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
    (checks.induction_scores, induction(lambda same: same.tril(-1)), "copy itself"),
    (
        checks.induction_scores,
        induction(lambda same: torch.nn.functional.pad(same[:, 1:], (0, 1)).tril(-2)),
        "before the copy",
    ),
    (
        checks.induction_scores,
        induction(lambda same: same.roll(1, -1).tril()),
        "`roll` brings the last one",
    ),
    (checks.induction_scores, induction(unmasked), "copies that come later"),
    (
        checks.induction_scores,
        induction(lambda same: followers(same).tril(-1)),
        "s may be t",
    ),
    (checks.induction_scores, induction(last_follower), "only the last"),
    (
        checks.induction_scores,
        induction(lambda x: followers(x) & (followers(x).cumsum(-1) == 1)),
        "only the first of",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: (w * right).sum(-1).mean(-1)),
        "over all queries: leave out",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: (w * right).sum((1, 2))),
        "sum over the queries",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: w[:, right].mean(-1)),
        "the mean over all pairs: add up",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: (w * right).mean((1, 2))),
        "all pairs, right or not",
    ),
    (
        checks.induction_scores,
        induction(
            followers, lambda w, r: ((w * r).sum(-1) / r.sum(-1))[:, r.any(-1)].mean(-1)
        ),
        "are averaged: add up",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, r: (w * r).amax(-1)[:, r.any(-1)].mean(-1)),
        "the largest of a query's",
    ),
    (checks.induction_scores, lambda w, x: my_induction_scores(w.mT, x), "swapped"),
    (
        checks.induction_scores,
        lambda w, x: my_induction_scores(w, x).mean(),
        "for each head is wanted, not one",
    ),
    (
        checks.induction_scores,
        induction(followers, lambda w, right: (w * right).sum(-1)),
        "take the mean over the queries",
    ),
    (
        checks.induction_scores,
        lambda w, x: w.diagonal(-1, 1, 2).mean(-1),
        "previous token",
    ),
    (checks.induction_scores, first_round, r"w \(3, 6, 6\)|weights \(3, 6, 6\)"),
]
