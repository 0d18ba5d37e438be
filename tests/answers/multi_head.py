"""Right and wrong answers to the exercises of chapter 02."""

import numpy as np
import torch
from einops import rearrange

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


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


def counted_by_head(d_model, n_heads, d_head, bias):
    head = 3 * (d_model * d_head + (d_head if bias else 0)) + d_head * d_model
    return n_heads * head + (d_model if bias else 0)


def counted_by_building(d_model, n_heads, d_head, bias):
    d_heads = n_heads * d_head
    layers = [torch.nn.Linear(d_model, d_heads, bias) for _ in range(3)]
    layers.append(torch.nn.Linear(d_heads, d_model, bias))
    return sum(p.numel() for layer in layers for p in layer.parameters())


@wrong(checks.split_heads, "equal shares of the output")
def equal_shares(heads, w_output):
    h = heads.shape[1]
    output = heads.transpose(1, 2).flatten(2) @ w_output
    return (output / h)[:, None].repeat(1, h, 1, 1)


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
    (checks.head_parameters, lambda *sizes: np.int64(my_count(*sizes))),
]


def by_rows(order):
    """The shares by a matrix for each head, (h d c), that `order` makes of w_output."""

    def shares(heads, w_output):
        return heads @ order(w_output, *heads.shape[1::2])

    return shares


@wrong(checks.split_heads, "given the whole output")
def all_in_each(heads, w_output):
    return torch.stack([my_merge(heads) @ w_output] * heads.shape[1], 1)


@wrong(checks.split_heads, "cut into heads: a share is c wide")
def cut_output(heads, w_output):
    return (my_merge(heads) @ w_output).unflatten(-1, heads.shape[1::2]).transpose(1, 2)


@wrong(checks.split_heads, "changes its input")
def in_place_shares(heads, w_output):
    for i in range(1, heads.shape[1]):
        heads[:, i] = 0
    return heads @ w_output.view(heads.shape[1], heads.shape[3], -1)


WRONG = [
    *wrong,
    (
        checks.head_parameters,
        lambda c, h, d, b: 3 * h * d * (c + b) + c * h * (d + b),
        "its biases once",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, b: 4 * h * d * (c + b),
        "d_model outputs, so as many biases",
    ),
    (checks.head_parameters, lambda *sizes: 10**400, r"it gives about 10\^400, wanted"),
    (checks.head_parameters, lambda *sizes: -(10**5000), r"it gives about -10\^5000"),
    (checks.merge_heads, lambda x: torch.cat([*x.unbind(1)][::-1], -1), "it gives"),
    (
        checks.merge_heads,
        lambda x: x.transpose(1, 2).view(len(x), x.shape[2], -1),
        "it stops with RuntimeError: view size is not compatible[^:]*$",
    ),
    (checks.merge_heads, lambda x: x.transpose(1, 2), "the shape is"),
    (checks.split_heads, lambda x, w: my_shares(x, w.T), "to be transposed"),
    (
        checks.split_heads,
        lambda x, w: my_shares(x, w).transpose(0, 1),
        "the heads are the first axis here",
    ),
    (checks.split_heads, lambda x, w: my_shares(x, w).to_sparse(), "a sparse tensor:"),
    (checks.split_heads, lambda x, w: my_shares(x, w).to("meta"), "device `meta`"),
    (checks.merge_heads, lambda x: torch.cat(list(x), -1), "`list` takes sequences"),
    (checks.split_heads, by_rows(lambda w, h, d: w.view(h, -1, d).mT), "cut rows"),
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
        lambda c, h, d, bias: 624,
        "c = 20, h = 5, d = 6, bias = False: it gives 624, wanted 2400",
    ),
    (
        checks.head_parameters,
        lambda c, h, d, bias: 3 * h * d * (c + bias) + c * h * d,
        "has biases too",
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
        lambda *case: my_shares(*case).transpose(1, 2),
        "heads are axis 1",
    ),
    (checks.split_heads, lambda x, w: x @ w, "stops with RuntimeError"),
    (checks.split_heads, lambda x, w: x, r"the shape is \(2, 3, 5, 4\), wanted"),
    (checks.split_heads, lambda x, w: [*my_shares(x, w)], "wanted a float32 tensor"),
    (checks.split_heads, lambda x, w: [*my_shares(x, w).unbind(1)], "a list: `torch"),
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
    (checks.merge_heads, lambda x: x.sum(1), "added up"),
    (checks.merge_heads, lambda x: x.mT.flatten(1, 2), "the shape is"),
    (checks.merge_heads, lambda x: x[:, 0], "one head alone"),
    (checks.merge_heads, lambda x: x.flatten(1, 2), "heads are joined with positions"),
    (
        checks.merge_heads,
        lambda x: torch.cat([*x.unbind(1)], 1),
        "heads are joined with positions",
    ),
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
    (
        checks.head_parameters,
        lambda c, h, d, b: 4 * (h * d * c + b),
        "a bias for each output, not one",
    ),
]
