"""Right and wrong answers to the exercises of chapter 02."""

import numpy as np
import torch
from einops import rearrange

import companion
from companion import checks


def my_count(d_model, n_heads, d_head, bias):
    side_by_side = n_heads * d_head
    return 3 * side_by_side * (d_model + bias) + d_model * (side_by_side + bias)


def my_shares(heads, w_output):
    return heads @ rearrange(w_output, "(h d) c -> h d c", h=heads.shape[1])


def looped_shares(heads, w_output):
    d = heads.shape[-1]
    parts = [x @ w_output[i * d : (i + 1) * d] for i, x in enumerate(heads.unbind(1))]
    return torch.stack(parts, 1)


def silenced_shares(heads, w_output):
    shares = torch.zeros(*heads.shape[:3], len(w_output))
    for i in range(heads.shape[1]):
        alone = torch.zeros_like(heads)
        alone[:, i] = heads[:, i]
        shares[:, i] = my_merge(alone) @ w_output
    return shares


def my_merge(heads):
    return heads.transpose(1, 2).flatten(2)


def my_induction_scores(weights, tokens):
    right = tokens.roll(1) == tokens[:, None]
    right[:, 0] = False
    right = right & companion.causal_mask(len(tokens))
    on_right = (weights * right).sum(-1)
    return on_right[:, right.any(-1)].mean(-1)


def counted_by_head(d_model, n_heads, d_head, bias):
    head = 3 * (d_model * d_head + (d_head if bias else 0)) + d_head * d_model
    return n_heads * head + (d_model if bias else 0)


def counted_by_building(d_model, n_heads, d_head, bias):
    made = n_heads * d_head
    layers = [torch.nn.Linear(d_model, made, bias) for _ in range(3)]
    layers.append(torch.nn.Linear(made, d_model, bias))
    return sum(p.numel() for layer in layers for p in layer.parameters())


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
    (checks.head_parameters, counted_by_building),
    (checks.head_parameters, lambda *sizes: torch.tensor(my_count(*sizes))),
    (checks.head_parameters, lambda *sizes: float(my_count(*sizes))),
    (checks.split_heads, my_shares),
    (checks.split_heads, looped_shares),
    (checks.split_heads, silenced_shares),
    (
        checks.split_heads,
        lambda x, w: torch.einsum("bhtd,hdc->bhtc", x, w.view(*x.shape[1::2], -1)),
    ),
    (
        checks.split_heads,
        lambda x, w: torch.stack(
            [*map(torch.matmul, x.unbind(1), w.split(x.shape[-1]))], 1
        ),
    ),
    (checks.merge_heads, my_merge),
    (checks.merge_heads, lambda heads: torch.cat([*heads.unbind(1)], -1)),
    (checks.merge_heads, lambda heads: rearrange(heads, "b h t d -> b t (h d)")),
    (
        checks.merge_heads,
        lambda x: x.swapaxes(1, 2).contiguous().view(len(x), x.shape[2], -1),
    ),
    (checks.induction_scores, my_induction_scores),
    (checks.induction_scores, looped_induction_scores),
    (checks.induction_scores, shifted_induction_scores),
    (checks.induction_scores, lambda w, x: my_induction_scores(w, x).tolist()),
    (checks.head_parameters, lambda *sizes: np.int64(my_count(*sizes))),
    (
        checks.induction_scores,
        lambda w, x: my_induction_scores(w.clone().mul_(w >= 0), x),
    ),
]


def by_rows(order):
    """The shares by a matrix for each head, (h d c), that `order` makes of w_output."""

    def shares(heads, w_output):
        return heads @ order(w_output, *heads.shape[1::2])

    return shares


def all_in_each(heads, w_output):
    return torch.stack([my_merge(heads) @ w_output] * heads.shape[1], 1)


def cut_output(heads, w_output):
    return (my_merge(heads) @ w_output).unflatten(-1, heads.shape[1::2]).transpose(1, 2)


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


def hit_induction_scores(weights, tokens):
    found = (weights * followers(tokens[:, None] == tokens)).sum(-1)
    return found.sum(-1) / (found > 0).sum(-1)


def careless_induction_scores(weights, tokens):
    """Every copy but the token itself, also one that comes later."""
    scores, n = [], len(tokens)
    for head in weights:
        found = []
        for t in range(n):
            at = [s for s in range(n - 1) if s != t and tokens[s] == tokens[t]]
            if at:
                found.append(sum(head[t, s + 1] for s in at))
        scores.append(sum(found) / len(found))
    return torch.stack(scores)


def first_round(weights, tokens):
    n = len(tokens) // 2
    queries = torch.arange(n, len(tokens))
    return weights[:, queries, queries - n + 1].mean(-1)


def in_place_shares(heads, w_output):
    for i in range(1, heads.shape[1]):
        heads[:, i] = 0
    return heads @ w_output.view(heads.shape[1], heads.shape[3], -1)


def asked(weights, tokens):
    """The sums (h q) of those queries that have a follower, and their number."""
    right = followers(tokens[:, None] == tokens)
    return (weights * right).sum(-1), right.any(-1)


def largest_induction_scores(weights, tokens):
    right = followers(tokens[:, None] == tokens)
    return (weights * right).amax(-1)[:, right.any(-1)].mean(-1)


def late_induction_scores(weights, tokens):
    """Asks also those queries whose copies all come later."""
    has_copy = (tokens[:, None] == tokens).sum(-1) > 1
    return asked(weights, tokens)[0][:, has_copy].mean(-1)


def short_induction_scores(weights, tokens):
    sums, of = asked(weights, tokens)
    return sums[:, :-1][:, of[:-1]].mean(-1)


def counted_induction_scores(weights, tokens):
    scores = []
    for sums in asked(weights, tokens)[0]:
        found = [x for x in sums.tolist() if x]
        scores.append(sum(found) / max(len(found), 1))
    return torch.tensor(scores)


def slotted_shares(heads, w_output):
    shares, d = torch.zeros(*heads.shape[:3], len(w_output)), heads.shape[-1]
    whole = my_merge(heads) @ w_output
    for i in range(heads.shape[1]):
        shares[:, i, :, i * d : (i + 1) * d] = whole[..., i * d : (i + 1) * d]
    return shares


def paired_induction_scores(weights, tokens):
    """Copies of the pair that ends at t, as `again` in the text."""
    found = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for t in range(1, len(tokens)):
        for s in range(2, t + 1):
            pair = tokens[s - 2 : s].tolist()
            found[t, s] = pair == tokens[t - 1 : t + 1].tolist()
    return (weights * found).sum(-1)[:, found.any(-1)].mean(-1)


WRONG = [
    (
        checks.head_parameters,
        lambda c, h, d, bias: 3 * h * d * (c + bias),
        "four matrices",
    ),
    (checks.head_parameters, lambda c, h, d, bias: 4 * h * d * c, "biases are missing"),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 4 * h * d * c + 3 * h * d + c,
        "although bias is False",
    ),
    (checks.head_parameters, lambda c, h, d, bias: 4 * c * (c + bias), "not c / h"),
    (
        checks.head_parameters,
        lambda c, h, d, bias: my_count(c, h, c, bias),
        "not d_model",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: my_count(c, 1, d, bias),
        "one head was counted",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 3 * h * d * (c + bias) + c * (c + bias),
        r"n_heads \* d_head rows, not c",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 3 * h * d * (c + bias) + c * (d + bias),
        "reads all heads, not only one",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 3 * h * d * (d + bias) + c * (h * d + bias),
        "only its own slice",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 4 * h * d * (c + bias),
        "d_model biases",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 4 * h * d * c + (3 * d + c) * bias,
        "biases of its own",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 624,
        "c = 20, h = 5, d = 6, bias = False: it gives 624, wanted 2400",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: h * d * (c + bias) + c * (h * d + bias),
        "have a matrix each",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: h * (3 * d * (c + bias) + c * (d + bias)),
        "biases count once",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 3 * h * d * (c + bias) + c * h * d,
        "has biases too",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 3 * h * d * (c + bias) + h * d * (h * d + bias),
        "gives d_model numbers",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 4 * h * d * c + 4 * c * bias,
        "biases each, not d_model",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 4 * c * (c // h) * h + 4 * c * bias,
        "not c / h",
    ),
    (
        checks.split_heads,
        lambda x, w: my_shares(x, w).sum(1),
        "keep the shares of the heads apart",
    ),
    (checks.split_heads, all_in_each, "given the whole output"),
    (checks.split_heads, lambda x, w: my_shares(x, w) / x.shape[1], "not averaged"),
    (
        checks.split_heads,
        by_rows(lambda w, h, d: w[:d].expand(h, -1, -1)),
        "rows of the first",
    ),
    (
        checks.split_heads,
        by_rows(lambda w, h, d: w.reshape(d, h, -1).transpose(0, 1)),
        "dealt out in turn",
    ),
    (
        checks.split_heads,
        by_rows(lambda w, h, d: w.T.reshape(h, d, -1)),
        "columns of the matrix",
    ),
    (checks.split_heads, cut_output, "cut into heads: a share is c wide"),
    (checks.split_heads, lambda *case: my_shares(*case).transpose(1, 2), "the shape"),
    (
        checks.split_heads,
        lambda x, w: all_in_each(x, w) - my_shares(x, w),
        "other\\* heads: take its own",
    ),
    (checks.split_heads, lambda x, w: all_in_each(x, w) / x.shape[1], "divided evenly"),
    (
        checks.split_heads,
        by_rows(lambda w, h, d: torch.stack([w[i : i + d] for i in range(h)])),
        "yours begin at row i",
    ),
    (checks.split_heads, lambda x, w: x @ w, "stops with RuntimeError"),
    (checks.split_heads, lambda x, w: x, r"the shape is \(2, 3, 5, 4\), wanted"),
    (checks.split_heads, lambda x, w: [*my_shares(x, w)], "wanted a float32 tensor"),
    (checks.split_heads, lambda x, w: [*my_shares(x, w).unbind(1)], "a list: `torch"),
    (checks.split_heads, lambda x, w: my_shares(x, w).cumsum(1), "running sums"),
    (checks.split_heads, in_place_shares, "changes its input"),
    (
        checks.split_heads,
        by_rows(lambda w, h, d: w.view(4, d, -1)),
        "stops with Runtim",
    ),
    (
        checks.split_heads,
        by_rows(lambda w, h, d: w.view(h, d, -1).flip(0)),
        r"at \[0, 0, 0, 0\]",
    ),
    (checks.merge_heads, lambda x: x.permute(0, 2, 3, 1).flatten(2), "interleaved"),
    (
        checks.merge_heads,
        lambda x: x.reshape(len(x), x.shape[2], -1),
        "mixes positions",
    ),
    (checks.merge_heads, lambda x: x.transpose(1, 2), "not joined"),
    (checks.merge_heads, lambda x: x.sum(1), "added up"),
    (checks.merge_heads, lambda x: x.mT.flatten(1, 2), "the shape is"),
    (checks.merge_heads, lambda x: x.mean(1), "averaged: put them side by side"),
    (checks.merge_heads, lambda x: x[:, 0], "one head alone"),
    (checks.merge_heads, lambda x: x.flatten(1, 2), "heads are joined with positions"),
    (
        checks.merge_heads,
        lambda x: torch.cat([*x.unbind(1)], 1),
        "heads are joined with positions",
    ),
    (
        checks.merge_heads,
        lambda x: x.transpose(1, 2).flatten(1, 2),
        "positions are joined with heads",
    ),
    (checks.merge_heads, lambda x: my_merge(x.flip(1)), "reverse order"),
    (
        checks.merge_heads,
        lambda x: x.transpose(2, 3).reshape(len(x), x.shape[2], -1),
        "d moved in place of h",
    ),
    (checks.merge_heads, lambda x: torch.stack([*x.unbind(1)], -1), "the shape is"),
    (
        checks.merge_heads,
        lambda x: torch.stack([*x.unbind(1)], -1).flatten(2),
        "interleaved",
    ),
    (checks.merge_heads, lambda x: my_merge(x[:1])[0], "the shape is"),
    (checks.merge_heads, lambda x: my_merge(x).int(), "the dtype is"),
    (
        checks.merge_heads,
        lambda x: x.transpose(1, 2).view(len(x), x.shape[2], -1),
        "stops with RuntimeError: view size is not compatible",
    ),
    (checks.merge_heads, lambda x: x, r"the shape is \(2, 3, 5, 4\), wanted"),
    (checks.induction_scores, induction(lambda same: same.tril(-1)), "copy itself"),
    (
        checks.induction_scores,
        induction(lambda same: torch.nn.functional.pad(same[:, 1:], (0, 1)).tril()),
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
        induction(lambda same: followers(same) & (followers(same).cumsum(-1) == 1)),
        "only the first",
    ),
    (checks.induction_scores, hit_induction_scores, "queries of weight 0 count"),
    (checks.induction_scores, counted_induction_scores, "left out of the mean"),
    (checks.induction_scores, largest_induction_scores, "only the largest"),
    (checks.induction_scores, late_induction_scores, "only copy comes later"),
    (checks.induction_scores, short_induction_scores, "last query is left out"),
    (
        checks.induction_scores,
        lambda w, x: asked(w, x)[0].sum(-1) / (len(x) - 1),
        "divide by queries with a copy",
    ),
    (
        checks.induction_scores,
        induction(lambda same: same.roll(-1, -1).tril(-1)),
        r"`roll\(-1\)` finds",
    ),
    (
        checks.induction_scores,
        induction(lambda same: torch.nn.functional.pad(same[:, :-2], (2, 0)).tril()),
        "one too far",
    ),
    (
        checks.induction_scores,
        lambda w, x: my_induction_scores(w.mul_(w > 0.2), x),
        "changes its input",
    ),
    (checks.induction_scores, careless_induction_scores, "copies that come later"),
    (
        checks.induction_scores,
        induction(lambda same: unmasked(same).tril(1)),
        "no copy of itself",
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
        induction(
            followers, lambda w, r: ((w * r).sum(-1) / r.sum(-1))[:, r.any(-1)].mean(-1)
        ),
        "are averaged: add up",
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
        "the shape is",
    ),
    (
        checks.induction_scores,
        lambda w, x: w.diagonal(-1, 1, 2).mean(-1),
        "previous token",
    ),
    (checks.induction_scores, first_round, r"w \(3, 6, 6\)|weights \(3, 6, 6\)"),
    (checks.induction_scores, paired_induction_scores, "not of the pair"),
    (
        checks.head_parameters,
        lambda c, h, d, b: h * (3 * d * (c + b) + c * (h * d + b)),
        "one for all heads",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, b: 4 * (h * d * c + b),
        "as many biases as outputs",
    ),
    (
        checks.merge_heads,
        lambda x: x.transpose(1, 3).reshape(len(x), x.shape[2], -1),
        "h and d swapped",
    ),
    (
        checks.merge_heads,
        lambda x: x.permute(2, 0, 1, 3).reshape(len(x), x.shape[2], -1),
        "sequences are mixed",
    ),
    (checks.split_heads, slotted_shares, "these add up, but"),
]
