"""Checks of chapter 02: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import torch
from einops import rearrange
from torch import Tensor

from .compare import Exercise, check, draw


@check
def head_parameters() -> Exercise:
    """`answer(d_model, n_heads, d_head, bias)`: the numbers of one attention layer."""

    def right(d_model: int, n_heads: int, d_head: int, bias: bool) -> int:
        width = n_heads * d_head  # the heads side by side
        return 3 * width * (d_model + bias) + d_model * (width + bias)

    # Below a size is one letter: d_model is c, n_heads is h, and d_head is d.

    def three(c: int, h: int, d: int, bias: bool) -> int:
        """The matrices that make queries, keys and values."""
        return 3 * h * d * (c + bias)

    mistakes = {
        "heads have d_head features, not c / h": (
            lambda c, h, d, bias: 4 * c * (c + bias)
        ),
        "heads have d_head features, not d_model": (
            lambda c, h, d, bias: right(c, h, c, bias)
        ),
        "a bias for each output, not one": lambda c, h, d, bias: 4 * (h * d * c + bias),
        "a head reads all channels, not only its own slice": (
            lambda c, h, d, bias: 3 * h * d * (d + bias) + c * (h * d + bias)
        ),
        "one head was counted, of n_heads": lambda c, h, d, bias: right(c, 1, d, bias),
        "W^O has its biases once, not for each head": (
            lambda c, h, d, bias: three(c, h, d, bias) + c * h * (d + bias)
        ),
        "W^O has d_model outputs, so as many biases": (
            lambda c, h, d, bias: 4 * h * d * (c + bias)
        ),
        "the biases are missing": lambda c, h, d, bias: right(c, h, d, False),
        "biases are counted although bias is False": (
            lambda c, h, d, bias: right(c, h, d, True)
        ),
        "W^O has n_heads * d_head rows, not c": (
            lambda c, h, d, bias: three(c, h, d, bias) + c * (c + bias)
        ),
        "W^O reads all heads, not only one": (
            lambda c, h, d, bias: three(c, h, d, bias) + c * (d + bias)
        ),
        "W^O has biases too, d_model of them": (
            lambda c, h, d, bias: three(c, h, d, bias) + c * h * d
        ),
        "W^O is missing: four matrices, not three": three,
    }

    cases = [(12, 3, 4, True), (20, 5, 6, False), (8, 2, 5, True), (64, 1, 16, True)]
    praise = "what the heads make, and what reads them"
    return Exercise(right, cases, mistakes, praise)


@check
def merge_heads() -> Exercise:
    """`answer(heads)`: (b h t d) to (b t c)."""

    def right(heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def reshaped(heads: Tensor) -> Tensor:
        b, _, t, _ = heads.shape
        return heads.reshape(b, t, -1)

    def d_moved(heads: Tensor) -> Tensor:
        b, _, t, _ = heads.shape
        return heads.mT.reshape(b, t, -1)

    mixed = "mixes positions: move h behind t before you join it with d"
    mistakes = {
        "the heads' features are interleaved: all of head 1 comes first": (
            lambda heads: rearrange(heads, "b h t d -> b t (d h)")
        ),
        f"the shape is right, but a row {mixed}": reshaped,
        f"d moved in place of h, so a row {mixed}": d_moved,
        "heads are joined with positions: h and d": (
            lambda heads: rearrange(heads, "b h t d -> b (h t) d")
        ),
        "`list` takes sequences, the first axis, not heads: `unbind(1)`": (
            lambda heads: rearrange(heads, "b h t d -> h t (b d)")
        ),
        "one head alone: put all of them side by side": lambda heads: heads[:, 0],
        "the heads are added up: put them side by side": lambda heads: heads.sum(1),
    }

    cases = [
        (draw(2, 3, 5, 4, seed=0),),
        (draw(3, 2, 7, 6, seed=1),),
        (draw(1, 4, 2, 3, seed=2),),
    ]
    return Exercise(right, cases, mistakes, "what was cut is whole again")


@check
def split_heads() -> Exercise:
    """`answer(heads, w_output)`: (b h t d) and (c c) to each head's share (b h t c)."""

    def right(heads: Tensor, w_output: Tensor) -> Tensor:
        rows = rearrange(w_output, "(h d) c -> h d c", h=heads.shape[1])
        return heads @ rows

    def whole_output(heads: Tensor, w_output: Tensor) -> Tensor:
        return rearrange(heads, "b h t d -> b t (h d)") @ w_output

    def output_cut(heads: Tensor, w_output: Tensor) -> Tensor:
        output = whole_output(heads, w_output)
        return rearrange(output, "b t (h d) -> b h t d", h=heads.shape[1])

    def whole_output_for_each(heads: Tensor, w_output: Tensor) -> Tensor:
        output = whole_output(heads, w_output)
        return torch.stack([output] * heads.shape[1], 1)

    def equal_shares(heads: Tensor, w_output: Tensor) -> Tensor:
        return whole_output_for_each(heads, w_output) / heads.shape[1]

    def rows_of_the_first(heads: Tensor, w_output: Tensor) -> Tensor:
        return heads @ w_output[: heads.shape[-1]]

    def rows_dealt_out(heads: Tensor, w_output: Tensor) -> Tensor:
        rows = rearrange(w_output, "(d h) c -> h d c", h=heads.shape[1])
        return heads @ rows

    def rows_cut_by_view(heads: Tensor, w_output: Tensor) -> Tensor:
        _, h, _, d = heads.shape
        return heads @ w_output.view(h, -1, d).mT

    mistakes = {
        "this is the whole output: keep the shares of the heads apart": whole_output,
        "the output was cut into heads: a share is c wide, and they add up": output_cut,
        "each head was given the whole output": whole_output_for_each,
        "equal shares of the output: a share depends on its own head alone": (
            equal_shares
        ),
        "every head met the rows of the first": rows_of_the_first,
        "rows were dealt out in turn: the first d belong to the first head": (
            rows_dealt_out
        ),
        "`view(h, c, d)` doesn't cut rows: `view(h, d, c)` does": rows_cut_by_view,
        "rows of W^O meet features, as they are: it isn't to be transposed": (
            lambda x, w: right(x, w.T)
        ),
        "the heads are the first axis here: `torch.stack(..., 1)`": (
            lambda x, w: right(x, w).transpose(0, 1)
        ),
        "(b t h c): the heads are axis 1": lambda x, w: right(x, w).transpose(1, 2),
        "a list: `torch.stack(..., 1)` it": lambda x, w: list(right(x, w).unbind(1)),
    }

    cases = [
        (draw(2, 3, 5, 4, seed=2), draw(12, 12)),
        (draw(3, 2, 7, 5, seed=3), draw(10, 10)),
        (draw(1, 4, 6, 2, seed=1), draw(8, 8)),
    ]
    praise = "the output is what each head adds, summed up"
    return Exercise(right, cases, mistakes, praise)
