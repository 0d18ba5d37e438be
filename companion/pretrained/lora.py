"""Adapters: a frozen model learns in two small matrices beside a layer. Chapter 14.

A layer W x becomes W x + (alpha / r) B A x, where A (r i) and B (o r) have rank r and
W stays as it is. Hu et al. 2022, section 4.1.
"""

import json
import math
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ..files import resolve_target, write_atomically
from ..inputs import check_between, check_whole

# The layers that learn by default: those of the chapter.
ADAPTED_LAYERS = ("to_queries", "to_values", "to_hidden", "feed_forward.to_output")


class LoRALinear(nn.Module):
    """A frozen linear layer with two matrices that learn: x (... i) -> (... o).

    A is drawn from `generator`, uniformly between ±1/√i, as Hu et al.'s own code and
    `peft` have it, and B is 0, so at first the layer computes what it did before. The
    frozen layer is the child `layer`, and may be packed to decode.
    """

    def __init__(
        self,
        layer: nn.Linear,
        rank: int,
        alpha: float,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.rank = rank
        self.alpha = alpha

        bound = 1 / math.sqrt(layer.in_features)
        A = torch.empty(rank, layer.in_features)
        A.uniform_(-bound, bound, generator=generator)
        self.A = nn.Parameter(A.to(layer.weight))
        self.B = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        change = F.linear(F.linear(x, self.A), self.B)
        return self.layer(x) + self.alpha / self.rank * change


def adapters(model: nn.Module) -> dict[str, LoRALinear]:
    """Returns the layers of a model that have an adapter, by their names."""
    layers = {}
    for name, part in model.named_modules():
        if isinstance(part, LoRALinear):
            layers[name] = part
    return layers


def put(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Puts a layer in the place of the one that a model has under this name."""
    parent, _, own_name = name.rpartition(".")
    setattr(model.get_submodule(parent), own_name, layer)


def check_plain(model: nn.Module) -> None:
    """Raises ValueError for a model that has adapters, or is laid out to decode."""
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


def layers_named(model: nn.Module, names: Collection[str]) -> dict[str, nn.Linear]:
    """Returns the linear layers whose names are, or end with, one of `names`.

    Raises ValueError for a name that no layer has, and for a weight that another part
    of the model uses as well.
    """
    owners = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(weight), []).append(name)

    layers = {}
    missing = set(names)
    for name, layer in model.named_modules():
        endings = {ending for ending in names if f".{name}".endswith(f".{ending}")}
        if type(layer) is not nn.Linear or not endings:
            continue
        missing -= endings
        layers[name] = layer
        shared = owners[id(layer.weight)]
        if len(shared) > 1:
            raise ValueError(
                f"{' and '.join(shared)} are one matrix, which can't have an adapter in"
                " one of its places"
            )
    if missing:
        raise ValueError(
            f"the model has no linear layer whose name ends with {min(missing)!r}"
        )
    return layers


def wrap(
    model: nn.Module,
    names: Collection[str] = ADAPTED_LAYERS,
    rank: int = 8,
    alpha: float = 16,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Freezes a model, and gives some of its linear layers adapters that learn.

    They are those whose names, such as "blocks.0.feed_forward.to_hidden", end with one
    of `names`. Returns the model itself, which computes what it did before. Raises
    ValueError for a name that no layer has, for one matrix in two places, and for a
    model that has adapters already or is packed to decode. Hu et al. 2022. Chapter 14.
    """
    check_whole(rank=rank)
    check_between(0, above=True, alpha=alpha)
    check_plain(model)
    layers = layers_named(model, names)

    model.requires_grad_(False)
    for name, layer in layers.items():
        adapter = LoRALinear(layer, rank, alpha, generator)
        put(model, name, adapter.train(layer.training))
    return model


@torch.no_grad()
def merge(model: nn.Module) -> nn.Module:
    """Adds each adapter's product to its layer's weight. Returns the model itself.

    It has no adapters any more, computes what it did, and is as fast as before; the
    weights that it was made of stay as they are. Raises ValueError for a layer that is
    laid out to decode. Hu et al. 2022, section 4.1. Chapter 14.
    """
    layers = adapters(model)
    for name, adapter in layers.items():
        if type(adapter.layer) is not nn.Linear:
            raise ValueError(
                f"{name} holds a {type(adapter.layer).__name__}, laid out to decode:"
                " merge first, and pack then"
            )

    for name, adapter in layers.items():
        layer = adapter.layer
        change = adapter.alpha / adapter.rank * (adapter.B @ adapter.A)
        # A new tensor: the old one may be another model's, too.
        layer.weight = nn.Parameter(layer.weight + change, requires_grad=False)
        put(model, name, layer)
    return model


def fingerprint(model: nn.Module) -> str:
    """Returns a SHA-256 of a model's weights, adapters left out."""
    digest = sha256()
    layers = adapters(model)
    parameters = {}
    for name, x in model.named_parameters():
        place, _, own_name = name.rpartition(".")
        if place in layers:
            continue  # A or B
        parameters[f"{place.removesuffix('.layer')}.{own_name}"] = x

    for name, x in sorted(parameters.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def save_adapter(path: Path | str, model: nn.Module) -> None:
    """Writes a model's adapters to a file, with a fingerprint of what they are for.

    Only a whole file takes the place of an older one. Raises ValueError for a model
    that has no adapters, or is packed, and OSError where nothing can be written.
    """
    layers = adapters(model)
    if not layers:
        raise ValueError("the model has no adapter to save: `wrap` gives it some")
    tensors = {}
    alphas = {}
    for name, adapter in layers.items():
        if type(adapter.layer) is not nn.Linear:
            raise ValueError(f"{name} is packed to decode: save the adapter before")
        tensors[f"{name}.A"] = adapter.A.detach().cpu().contiguous()
        tensors[f"{name}.B"] = adapter.B.detach().cpu().contiguous()
        alphas[name] = adapter.alpha

    header = {"adapter for": fingerprint(model), "alphas": alphas}
    text = json.dumps(header, sort_keys=True)
    write_atomically(Path(path), save(tensors, {"companion": text}))


def read_adapter(path: Path | str) -> tuple[dict[str, Tensor], dict]:
    """Reads an adapter's file. Returns its tensors by name, and its header.

    Raises ValueError for a file that is no adapter, or damaged.
    """
    data = resolve_target(Path(path)).read_bytes()
    try:
        tensors = load(data)
        end = 8 + int.from_bytes(data[:8], "little")  # as safetensors has it
        header = json.loads(json.loads(data[8:end])["__metadata__"]["companion"])
        names = {f"{name}.{matrix}" for name in header["alphas"] for matrix in "AB"}
        if names != tensors.keys() or not isinstance(header["adapter for"], str):
            raise ValueError
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{path} is damaged, or no adapter: `python -m companion tune` makes one"
        ) from None
    return tensors, header


def load_adapter(path: Path | str, model: nn.Module) -> nn.Module:
    """Gives a model the adapters of a file. Returns the model itself, to be used.

    Raises ValueError, and changes nothing, for a file that is no adapter, for one that
    was made for other weights, and for a model that has adapters already or is packed;
    OSError where there is no such file. Chapter 14.
    """
    tensors, header = read_adapter(path)
    check_plain(model)
    if header["adapter for"] != fingerprint(model):
        raise ValueError(
            f"{path} was made for another model than this one, whose weights differ:"
            " load the model that it was trained with, or train it anew"
        )

    layers = layers_named(model, header["alphas"])
    new = {}
    for name, alpha in header["alphas"].items():
        adapter = LoRALinear(layers[name], len(tensors[f"{name}.A"]), alpha)
        for matrix, parameter in (("A", adapter.A), ("B", adapter.B)):
            x = tensors[f"{name}.{matrix}"]
            if x.shape != parameter.shape:
                raise ValueError(
                    f"{path}: {name}.{matrix} is {tuple(x.shape)}, and the model's"
                    f" layer takes {tuple(parameter.shape)}"
                )
            parameter.data.copy_(x)
        new[name] = adapter

    model.requires_grad_(False)
    for name, adapter in new.items():
        put(model, name, adapter.requires_grad_(False).train(layers[name].training))
    return model
