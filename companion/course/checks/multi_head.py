"""Checks of chapter 02."""

import torch
from einops import rearrange

from .compare import compare, draw


def head_parameters(answer) -> None:
    """`answer(d_model, n_heads, d_head, bias)`: the numbers of one attention layer."""

    def right(c, h, d, b, output=lambda c, h, d, b: c * (h * d + b)):
        """Three matrices from c to n_heads * d_head numbers, and what `output` says."""
        return 3 * h * d * (c + b) + output(c, h, d, b)

    cases = [(12, 3, 4, True), (20, 5, 6, False), (8, 2, 5, True), (64, 1, 16, True)]
    outputs = {
        "W^O has n_heads * d_head rows, not c": lambda c, h, d, b: c * (c + b),
        "W^O reads all heads, not only one": lambda c, h, d, b: c * (d + b),
        "W^O has biases too, d_model of them": lambda c, h, d, b: c * h * d,
        "W^O is missing: four matrices, not three": lambda c, h, d, b: 0,
    }
    mistakes = {
        "heads have d_head features, not c / h": lambda c, h, d, b: 4 * c * (c + b),
        "heads have d_head features, not d_model": lambda c, h, d, b: right(c, h, c, b),
        "a bias for each output, not one": lambda c, h, d, b: 4 * (h * d * c + b),
        "a head reads all channels, not only its own slice":
            lambda c, h, d, b: 3 * h * d * (d + b) + c * (h * d + b),
        "one head was counted, of n_heads": lambda c, h, d, b: right(c, 1, d, b),
        "W^O has its biases once, not for each head":
            lambda c, h, d, b: 3 * h * d * (c + b) + c * h * (d + b),
        "W^O has d_model outputs, so as many biases":
            lambda c, h, d, b: 4 * h * d * (c + b),
        "the biases are missing": lambda c, h, d, b: 4 * h * d * c,
        "biases are counted although bias is False": lambda *case: right(*case[:3], 1),
    }  # fmt: skip
    mistakes |= {words: {"output": output} for words, output in outputs.items()}
    praise = "head_parameters: what the heads make, and what reads them"
    compare(answer, right, cases, mistakes, praise)


def merge_heads(answer) -> None:
    """`answer(heads)`: (b h t d) to (b t c)."""

    def right(x, pattern="b h t d -> b t (h d)"):
        return rearrange(x, pattern)

    mixed = "mixes positions: move h behind t before you join it with d"
    shapes = (2, 3, 5, 4), (3, 2, 7, 6), (1, 4, 2, 3)
    cases = [(draw(*shape, seed=i),) for i, shape in enumerate(shapes)]
    compare(answer, right, cases, {
        "the heads' features are interleaved: all of head 1 comes first":
            {"pattern": "b h t d -> b t (d h)"},
        f"the shape is right, but a row {mixed}":
            lambda x: x.reshape(len(x), x.shape[2], -1),
        f"d moved in place of h, so a row {mixed}":
            lambda x: x.mT.reshape(len(x), x.shape[2], -1),
        "heads are joined with positions: h and d": {"pattern": "b h t d -> b (h t) d"},
        "`list` takes sequences, the first axis, not heads: `unbind(1)`":
            {"pattern": "b h t d -> h t (b d)"},
        "one head alone: put all of them side by side": lambda x: x[:, 0],
        "the heads are added up: put them side by side": lambda x: x.sum(1),
    }, "merge_heads: what was cut is whole again")  # fmt: skip


def split_heads(answer) -> None:
    """`answer(heads, w_output)`: (b h t d) and (c c) to each head's share (b h t c)."""

    def right(x, w, pattern="(h d) c -> h d c"):
        return x @ rearrange(w, pattern, h=x.shape[1])

    def whole(x, w):
        return rearrange(x, "b h t d -> b t (h d)") @ w

    shapes = (2, 3, 5, 4), (3, 2, 7, 5), (1, 4, 6, 2)
    cases = [(draw(*x, seed=x[0]), draw(x[1] * x[3], x[1] * x[3])) for x in shapes]
    compare(answer, right, cases, {
        "this is the whole output: keep the shares of the heads apart": whole,
        "the output was cut into heads: a share is c wide, and they add up":
            lambda x, w: rearrange(whole(x, w), "b t (h d) -> b h t d", h=x.shape[1]),
        "each head was given the whole output":
            lambda x, w: torch.stack([whole(x, w)] * x.shape[1], 1),
        "every head met the rows of the first": lambda x, w: x @ w[: x.shape[-1]],
        "rows were dealt out in turn: the first d belong to the first head":
            {"pattern": "(d h) c -> h d c"},
        "`view(h, c, d)` doesn't cut rows: `view(h, d, c)` does":
            lambda x, w: x @ w.view(x.shape[1], -1, x.shape[3]).mT,
        "rows of W^O meet features, as they are: it isn't to be transposed":
            lambda x, w: right(x, w.T),
        "the heads are the first axis here: `torch.stack(..., 1)`":
            lambda x, w: right(x, w).transpose(0, 1),
        "(b t h c): the heads are axis 1": lambda x, w: right(x, w).transpose(1, 2),
        "a list: `torch.stack(..., 1)` it": lambda x, w: [*right(x, w).unbind(1)],
    }, "split_heads: the output is what each head adds, summed up")  # fmt: skip
