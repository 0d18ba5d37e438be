"""Adapters: a frozen model learns in two small matrices beside a layer. Chapter 14.

A layer W x becomes W x + (alpha / r) B A x, where A (r i) and B (o r) have rank r and
W stays as it is. Hu et al. 2022, section 4.1.
"""

import math
import sys
from collections.abc import Collection
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..device import at_least_float32
from ..inputs import check_whole, shown
from ..model.blocks import is_plain_linear, replace_layer
from ..training.processes import check_gathered, check_not_sharded

# The layers that learn by default: those of the chapter.
ADAPTED_LAYERS = ("to_queries", "to_values", "to_hidden", "feed_forward.to_output")


class LoRALinear(nn.Module):
    """A frozen linear layer with two matrices that learn: x (... i) -> (... o).

    A is drawn from `generator`, uniformly between ±1/√i, as Hu et al.'s own code and
    `peft` have it, and B is 0, so at first the layer computes what it did before. Both
    are in float32 even beside a weight of 16 bits, which would round most of a small
    step away. The frozen layer is the child `layer`, and may be packed to decode.
    Raises ValueError for a rank that is no whole number from 1, an alpha that isn't
    above 0, and a layer that isn't plain.
    """

    def __init__(
        self,
        layer: nn.Linear,
        rank: int,
        alpha: float,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_whole(rank=rank)
        check_alpha(alpha)
        if not is_plain_linear(layer):
            raise ValueError(
                f"a {type(layer).__name__} can't have an adapter: it goes beside a"
                " plain nn.Linear alone, without hooks"
            )
        self.layer = layer.requires_grad_(False)
        self.alpha = alpha

        bound = 1 / math.sqrt(layer.in_features)
        A = torch.empty(rank, layer.in_features, dtype=torch.float32)
        A.uniform_(-bound, bound, generator=generator)
        weight = layer.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        self.A = nn.Parameter(A.to(weight.device, dtype))
        B = torch.zeros(layer.out_features, rank, device=weight.device, dtype=dtype)
        self.B = nn.Parameter(B)

    @property
    def rank(self) -> int:
        """The number of A's rows."""
        return len(self.A)

    def forward(self, x: Tensor) -> Tensor:
        change = F.linear(F.linear(x.to(self.A.dtype), self.A), self.B)
        out = self.layer(x)
        return out + (self.alpha / self.rank * change).to(out.dtype)

    def _apply(self, fn, recurse: bool = True) -> nn.Module:
        """Moves or converts all, as `bfloat16()` does, but leaves A and B exact."""
        exact = {"A": self.A.data, "B": self.B.data}
        super()._apply(fn, recurse)
        for name, x in exact.items():
            parameter = getattr(self, name)
            if at_least_float32(parameter).dtype != parameter.dtype:
                parameter.data = x.to(parameter.device)
        return self


def check_alpha(alpha: object, name: str = "alpha") -> None:
    """Raises ValueError, by this name, unless it is a number above 0, and finite."""
    if isinstance(alpha, Real) and not isinstance(alpha, bool):
        if alpha <= sys.float_info.max and not alpha <= 0:
            return
    raise ValueError(f"{name} is {shown(alpha)}; it must be above 0, and finite")


def adapters(model: nn.Module) -> dict[str, LoRALinear]:
    """Returns the layers of a model that have an adapter, by their names."""
    layers = {}
    for name, part in model.named_modules():
        if isinstance(part, LoRALinear):
            layers[name] = part
    return layers


def check_plain(model: nn.Module) -> None:
    """Raises ValueError for a model that can't be given adapters as it is now.

    It has some, is laid out to decode, or this rank has parts of its layers alone.
    """
    for name, part in model.named_modules():
        if isinstance(part, LoRALinear):
            raise ValueError(
                f"{name} has an adapter already: merge the model, or load it anew"
            )
        if getattr(part, "trainable", True) is False:
            raise ValueError(
                f"{name} is a {type(part).__name__}, laid out to decode: give the model"
                " its adapter first, and pack it then"
            )
    check_gathered(model)
    check_not_sharded(model, "give the model its adapters first, and shard it then")


def layers_named(model: nn.Module, names: Collection[str]) -> dict[str, nn.Linear]:
    """Returns the linear layers whose names are, or end with, one of `names`.

    Raises ValueError for no names, for a name that no layer has or one that isn't a
    plain linear layer, and for a weight that another part of the model uses as well.
    """
    if isinstance(names, str):
        raise ValueError(f"names is {names!r}; it must be a list: [{names!r}]")
    names = [*names]
    if not names:
        raise ValueError("names is empty: nothing would learn; name a layer")

    layers = {}
    missing = set(names)
    for name, _ in model.named_modules():
        endings = {ending for ending in names if f".{name}".endswith(f".{ending}")}
        if name and endings:
            missing -= endings
            layers[name] = linear_layer(model, name)
    if missing:
        raise ValueError(
            f"the model has no linear layer whose name ends with {min(missing)!r}"
        )
    return layers


def linear_layer(model: nn.Module, name: str) -> nn.Linear:
    """Returns the plain linear layer that a model has under this very name.

    Raises ValueError where it has none, and where another part uses its weight.
    """
    layer = dict(model.named_modules()).get(name)
    if layer is None or not name:
        raise ValueError(f"the model has no linear layer {quoted(name)}")
    if not is_plain_linear(layer):
        kind = type(layer).__name__
        raise ValueError(
            f"{name} is no linear layer, but a {kind}: an adapter goes beside a"
            " plain nn.Linear alone, without hooks"
        )
    shared = []
    for other, weight in model.named_parameters(remove_duplicate=False):
        if weight is layer.weight:
            shared.append(other)
    if len(shared) > 1:
        raise ValueError(
            f"{' and '.join(shared)} are one matrix, which can't have an adapter in"
            " one of its places"
        )
    return layer


def add_adapters(
    model: nn.Module,
    names: Collection[str] = ADAPTED_LAYERS,
    rank: int = 8,
    alpha: float = 16,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Freezes a model, and gives some of its linear layers adapters that learn.

    They are those whose names, such as "blocks.0.feed_forward.to_hidden", end with one
    of `names`. Returns the model itself, which computes what it did before. Raises
    ValueError for no names, for a name that no layer has or one that isn't a plain
    linear layer, for one matrix in two places, and for a model that has adapters
    already, is packed to decode, or lies in parts on many ranks. Hu et al. 2022.
    Chapter 14.
    """
    check_whole(rank=rank)
    check_alpha(alpha)
    check_plain(model)
    layers = layers_named(model, names)

    model.requires_grad_(False)
    for name, layer in layers.items():
        adapter = LoRALinear(layer, rank, alpha, generator)
        replace_layer(model, name, adapter.train(layer.training))
    return model


def check_own(name: str, adapter: LoRALinear, remedy: str) -> None:
    """Raises ValueError for an adapter that isn't just W x + (alpha / r) B A x."""
    layer = adapter.layer
    if type(adapter) is not LoRALinear:
        raise ValueError(
            f"{name} is a {type(adapter).__name__}, and may compute more than a"
            " LoRALinear does"
        )
    if getattr(layer, "trainable", True) is False:
        raise ValueError(f"{name} is packed or laid out to decode: {remedy}")
    if not is_plain_linear(layer):
        raise ValueError(f"{name}.layer is no plain linear layer, or has a hook")


@torch.no_grad()
def merge_adapters(model: nn.Module) -> nn.Module:
    """Adds each adapter's product to its layer's weight. Returns the model itself.

    It has no adapters any more, computes what it did, and is as fast as before; the
    weights that it was made of stay as they are. Weights of 16 bits round the sum.
    Raises ValueError for a layer that is laid out to decode or isn't plain, and for a
    model that lies in parts on many ranks. Hu et al. 2022, section 4.1. Chapter 14.
    """
    layers = adapters(model)
    check_not_sharded(model, "save the adapter, and merge it in one process")
    for name, adapter in layers.items():
        check_own(name, adapter, "merge first, and pack then")

    for name, adapter in layers.items():
        layer = adapter.layer
        with torch.autocast(layer.weight.device.type, enabled=False):
            change = adapter.alpha / adapter.rank * (adapter.B @ adapter.A)
        # A new tensor: the old one may be another model's, too.
        weight = (layer.weight + change).to(layer.weight.dtype)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        replace_layer(model, name, layer)
    return model


def quoted(name: str) -> str:
    """Returns a name that a file gives, in one line that isn't long."""
    words = repr(name)
    return words if len(words) <= 100 else f"{words[:100]}..."
