"""What all published weights need: our names, and a model of them. Chapter 12."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..model.gpt import GPT, GPTConfig

T = TypeVar("T")  # a tensor, or how it is stored


def rename(tensors: dict[str, T], names: dict, n_blocks: int) -> dict[str, T]:
    """Returns the tensors of a file by our names.

    `names` maps the file's names to ours; {} in both stands for the number of the
    block. Raises ValueError for one that the file lacks, or that has no place in the
    model.
    """
    if n_blocks > len(tensors):
        raise ValueError(f"the file has {len(tensors)} tensors for {n_blocks} blocks")

    # The names of all blocks.
    new_names = {}
    for i in range(n_blocks):
        for old, new in names.items():
            new_names[old.format(i)] = new.format(i)

    differing = sorted(new_names.keys() ^ tensors.keys())
    if differing:
        name = differing[0]
        if name in new_names:
            raise ValueError(f"the file has no tensor {name}")
        raise ValueError(f"no place for {name}")
    return {new_names[name]: x for name, x in tensors.items()}


class Undrawn(TorchFunctionMode):
    """Within, parameters are made and no numbers are drawn for them.

    That saves more than the drawing: on `meta`, which has none, PyTorch's `normal_`
    imports its compiler first, for more than a second.
    """

    drawing = (nn.init.normal_, nn.init.kaiming_uniform_, nn.init.uniform_)
    methods = (Tensor.normal_, Tensor.uniform_)

    def __torch_function__(self, function, types, args=(), kwargs=None) -> Any:
        """Calls a function of PyTorch's, or gives what it would fill."""
        if function in self.drawing or function in self.methods:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def empty(config: GPTConfig) -> GPT:
    """Returns a GPT whose parameters are on `meta`: shapes without numbers."""
    with torch.device("meta"), Undrawn():
        return GPT(config)


def is_finite(x: Tensor) -> bool:
    """Returns whether all of x is finite: looked at once, without a copy."""
    if not x.numel():
        return True
    extremes = torch.stack(x.aminmax())  # both are NaN if one number is
    return bool(extremes.isfinite().all())


def check_weights(weights: dict[str, Tensor], expected: torch.dtype) -> None:
    """Raises ValueError for weights that aren't finite floats of this precision."""
    for name, x in weights.items():
        if x.dtype != expected or not x.is_floating_point():
            raise ValueError(
                f"{name} is {x.dtype} and the embedding {expected}: all must be floats"
                " of one precision"
            )
        if not is_finite(x):
            raise ValueError(
                f"{name} has numbers that aren't finite: get the file anew"
            )


def build(config: GPTConfig, weights: dict[str, Tensor]) -> GPT:
    """Builds a GPT that has these weights. Returns it, to be used and not trained.

    Raises ValueError for weights that aren't finite floats of one precision, and for an
    output matrix of its own where the configuration ties it to the embedding, and
    RuntimeError as `load_state_dict` does.
    """
    check_weights(weights, weights["embedding.weight"].dtype)
    model = empty(config)

    # A file of a tied model need not have its one matrix twice; where it has, loading
    # compares the two.
    if config.tie_embeddings:
        weights = {"unembedding.weight": weights["embedding.weight"]} | weights

    model.load_state_dict(weights, assign=True)
    if config.tie_embeddings:
        # `assign` has given each its own matrix: make them one again.
        model.unembedding.weight = model.embedding.weight
    return model.eval().requires_grad_(False)
