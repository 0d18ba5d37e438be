"""Checks of chapter 02."""

from functools import wraps

import torch
from einops import rearrange

from .compare import compare, draw


def head_parameters(answer) -> None:
    """`answer(d_model, n_heads, d_head, bias)`: the numbers of one attention layer."""

    def plus(output):
        """Three matrices from c to n_heads * d_head numbers, and what `output` says."""
        return lambda c, h, d, b: 3 * h * d * (c + b) + output(c, h, d, b)

    right = plus(lambda c, h, d, b: c * (h * d + b))
    cases = [(12, 3, 4, True), (20, 5, 6, False), (8, 2, 5, True), (64, 1, 16, True)]
    mistakes = {
        "heads have d_head features, not c / h": lambda c, h, d, b: 4 * c * (c + b),
        "heads have d_head features, not d_model": lambda c, h, d, b: right(c, h, c, b),
        "W^O has n_heads * d_head rows, not c": plus(lambda c, h, d, b: c * (c + b)),
        "W^O reads all heads, not only one": plus(lambda c, h, d, b: c * (d + b)),
        "W^O gives d_model numbers": plus(lambda c, h, d, b: h * d * (h * d + b)),
        "W^O: its biases count once": plus(lambda c, h, d, b: h * c * (d + b)),
        "W^O is one for all heads": plus(lambda c, h, d, b: h * c * (h * d + b)),
        "as many biases as outputs": lambda c, h, d, b: 4 * (h * d * c + b),
        "W^O has biases too, d_model of them": plus(lambda c, h, d, b: c * h * d),
        "W^O is missing: four matrices, not three": plus(lambda *case: 0),
        "queries, keys and values have a matrix each: with W^O four, and here are only"
        " two": lambda c, h, d, b: h * d * (c + b) + c * (h * d + b),
        "a head reads all channels, not only its own slice: its matrices have d_model"
        " rows": lambda c, h, d, b: 3 * h * d * (d + b) + c * (h * d + b),
        "one head was counted, of n_heads": lambda c, h, d, b: right(c, 1, d, b),
        "the biases are missing": lambda c, h, d, b: 4 * h * d * c,
        "W^O has d_model biases": lambda c, h, d, b: 4 * h * d * (c + b),
        "queries, keys and values have n_heads * d_head biases each, not d_model, as"
        " W^O has": lambda c, h, d, b: 4 * (h * d * c + c * b),
        "each head has biases of its own, d_head in each of the three matrices that it"
        " has": lambda c, h, d, b: 4 * h * d * c + b * (3 * d + c),
        "biases are counted although bias is False": lambda *case: right(*case[:3], 1),
    }
    praise = "head_parameters: what the heads make, and what reads them"
    compare(answer, right, cases, mistakes, praise)


def merge_heads(answer) -> None:
    """`answer(heads)`: (b h t d) to (b t c)."""

    def to(pattern):
        return lambda x: rearrange(x, pattern)

    def flat(x, like):
        return x.reshape(len(like), like.shape[2], -1)

    right, inner = to("b h t d -> b t (h d)"), to("b h t d -> b t (d h)")
    shapes = (2, 3, 5, 4), (3, 2, 7, 6), (1, 4, 2, 3)
    cases = [(draw(*shape, seed=i),) for i, shape in enumerate(shapes)]
    mixed = "mixes positions: move h behind t before you join it with d"
    mistakes = {
        "the heads' features are interleaved: all of head 1 comes first": inner,
        f"the shape is right, but a row {mixed}": lambda x: flat(x, x),
        f"d moved in place of h, so a row {mixed}": lambda x: flat(x.mT, x),
        f"h and d swapped, so a row {mixed}": lambda x: flat(x.transpose(1, 3), x),
        "sequences are mixed: b stays first": lambda x: flat(x.permute(2, 0, 1, 3), x),
        "the heads stand in reverse order": lambda x: right(x.flip(1)),
        "heads are joined with positions: join h with d": to("b h t d -> b (h t) d"),
        "positions are joined with heads: join h with d": to("b h t d -> b (t h) d"),
        "moved, but not joined: this is (b t h d)": to("b h t d -> b t h d"),
        "one head alone: put all of them side by side": lambda x: x[:, 0],
        "the heads are averaged: put them side by side": lambda x: x.mean(1),
        "the heads are added up: put them side by side": lambda x: x.sum(1),
    }
    compare(answer, right, cases, mistakes, "merge_heads: what was cut is whole again")


def split_heads(answer) -> None:
    """`answer(heads, w_output)`: (b h t d) and (c c) to each head's share (b h t c)."""

    def shares(pattern):
        return lambda x, w: x @ rearrange(w, pattern, h=x.shape[1])

    def whole(x, w):
        return rearrange(x, "b h t d -> b t (h d)") @ w

    def each(f):
        return lambda x, w: torch.stack([f(x, w, i) for i in range(x.shape[1])], 1)

    def cut(x, w):
        return rearrange(whole(x, w), "b t (h d) -> b h t d", h=x.shape[1])

    right, dealt = shares("(h d) c -> h d c"), shares("(d h) c -> h d c")
    shapes = (2, 3, 5, 4), (3, 2, 7, 5), (1, 4, 6, 2)
    cases = [(draw(*x, seed=x[0]), draw(x[1] * x[3], x[1] * x[3])) for x in shapes]
    mistakes = {
        "this is the whole output: keep the shares of the heads apart": whole,
        "the output was cut into heads: a share is c wide, and they add up": cut,
        "each head was given the whole output": each(lambda x, w, i: whole(x, w)),
        "the output was divided evenly: a share depends on the features of its head"
        " alone": each(lambda x, w, i: whole(x, w) / x.shape[1]),
        "the shares are not averaged": lambda x, w: right(x, w) / x.shape[1],
        "every head met the rows of the first": lambda x, w: x @ w[: x.shape[-1]],
        "rows were dealt out in turn: the first d belong to the first head": dealt,
        "columns of the matrix: a feature meets a *row*": shares("c (h d) -> h d c"),
        "head i has the d rows that begin at row i * d, but yours begin at row i and so"
        " overlap": each(lambda x, w, i: x[:, i] @ w[i : i + x.shape[-1]]),
        "all *other* heads: take its own": each(
            lambda x, w, i: whole(x, w) - right(x, w)[:, i]
        ),
        "these add up, but a share is made of its own head's features": each(
            lambda x, w, i: whole(x, w) * (torch.arange(len(w)) // x.shape[-1] == i)
        ),
        "running sums: each head alone": lambda x, w: right(x, w).cumsum(1),
        "a list: `torch.stack(..., 1)` it": lambda x, w: [*right(x, w).unbind(1)],
    }
    praise = "split_heads: the output is what each head adds, summed up"
    compare(answer, right, cases, mistakes, praise)


def induction_scores(answer) -> None:
    """`answer(weights, tokens)`: each head's mean weight on a token's followers."""

    @wraps(answer)
    def listed(*case):
        found = answer(*case)
        floats = isinstance(found, list) and all(isinstance(f, float) for f in found)
        return torch.tensor(found) if floats else found

    def after(x, shift=1):
        """(t s): whether key s stands `shift` places after a copy of t, at any time."""
        at = torch.arange(len(x)) - shift
        there = (at >= 0) & (at < len(x))
        return (x[at % len(x)] == x[:, None]) & there

    def on(where):
        """The sum over the keys `where`, averaged over the queries that have one."""
        return lambda w, x: (w * where(x)).sum(-1)[:, where(x).any(-1)].mean(-1)

    def near(shift=1, until=0):
        return on(lambda x: after(x, shift).tril(until))

    def by(reduce):
        """What `reduce` makes of the sums (h t) and of where followers are (t s)."""
        return lambda w, x: reduce((w * (at := after(x).tril())).sum(-1), at)

    def first(at):
        return at & (at.cumsum(-1) == 1)

    texts = [5, 2, 2, 7, 5, 2], [1, 0, 3, 1, 4, 0, 1, 1, 3], [8, 6, 8, 8, 6, 9, 8, 4]
    tokens = [torch.tensor(text) for text in (*texts, [1, 2] * 4)]
    heads = zip((3, 2, 4), tokens, strict=False)
    soft = [draw(h, len(x), len(x), seed=h).softmax(-1) for h, x in heads]
    hard = torch.eye(8)[torch.tensor([[0, 0, 0, 0, 3, 0, 0, 0], [0] * 8])]
    cases = [*zip([*soft, hard], tokens, strict=True)]
    right = near()
    mistakes = {
        "this looks at the copy itself: its follower is one further": near(0, -1),
        "one too far: a follower comes directly after the copy": near(2),
        "the token before the copy: a follower comes *after* it": near(-1),
        "`roll(-1)` finds the token before the copy: try `roll(1)`": near(-1, -1),
        "nothing stands before the first token, `roll` brings the last one: key 0 is no"
        " follower": on(lambda x: (x.roll(1) == x[:, None]).tril()),
        "copies that come later count too: only earlier ones should": on(after),
        "copies that come later do not count (the token itself is left out, as it"
        " should)": on(lambda x: after(x) & ~torch.eye(len(x)).roll(1, 1).bool()),
        "a token is no copy of itself: the key after it is in the future": near(1, 1),
        "a token may be its own follower, as in 7 7: s may be t": near(1, -1),
        "only the last of a query's followers counts: add up the weights on them"
        " all": on(lambda x: first(after(x).tril().flip(-1)).flip(-1)),
        "only the first of a query's followers counts: add up the weights on them"
        " all": on(lambda x: first(after(x).tril())),
        "only the largest of a query's weights counts: add them up": lambda w, x: by(
            lambda f, at: (w * at).amax(-1)[:, at.any(-1)].mean(-1)
        )(w, x),
        "queries of weight 0 count": by(lambda f, at: f.sum(-1) / (f > 0).sum(-1)),
        "a query whose followers get no weight counts too: it was left out of the"
        " mean": by(lambda f, at: f.sum(-1) / (f > 0).sum(-1).clamp(min=1)),
        "over all queries: leave out new tokens": by(lambda f, at: f.mean(-1)),
        "queries whose only copy comes later are no queries to ask": lambda w, x: by(
            lambda f, at: f[:, (x[:, None] == x).sum(-1) > 1].mean(-1)
        )(w, x),
        "divide by queries with a copy": by(lambda f, a: f.sum(-1) / (len(a) - 1)),
        "the last query is left out": by(
            lambda f, at: f[:, :-1][:, at[:-1].any(-1)].mean(-1)
        ),
        "the sum over the queries: take their mean": by(lambda f, at: f.sum(-1)),
        "the mean over all pairs: add up a query's followers, then take the mean over"
        " queries": by(lambda f, at: f.sum(-1) / at.sum()),
        "a query's followers are averaged: add up their weights, and take the mean over"
        " the queries": by(lambda f, at: (f / at.sum(-1))[:, at.any(-1)].mean(-1)),
        "a copy of the token alone is wanted, not of the pair with the one before": on(
            lambda x: after(x).tril() & after(x, 2)[torch.arange(len(x)) - 1]
        ),
        "queries and keys are swapped: (h t s)": lambda w, x: right(w.mT, x),
        "one number for each head is wanted, not one": lambda w, x: right(w, x).mean(),
        "the weights on the previous token": lambda w, x: w.diagonal(-1, 1, 2).mean(-1),
    }
    praise = "induction_scores: the tokens that followed the same token before"
    compare(listed if callable(answer) else answer, right, cases, mistakes, praise)
