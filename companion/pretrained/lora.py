"""Adapters: a frozen model learns in two small matrices beside a layer. Chapter 14.

A layer W x becomes W x + (alpha / r) B A x, where A (r i) and B (o r) have rank r and
W stays as it is. Hu et al. 2022, section 4.1.
"""

import math
import sys
from collections.abc import Collection
from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor, nn

from ..device import at_least_float32, is_joined
from ..files import resolve_target, write_atomically
from ..inputs import check_between, check_whole, shown
from ..model.blocks import is_plain_linear
from ..tensor_files import UNREADABLE, pack_tensors, read_words, unpack_tensors
from ..training.checkpoints import to_json
from ..training.processes import check_gathered, check_not_sharded, full_tensor

# The layers that learn by default: those of the chapter.
ADAPTED_LAYERS = ("to_queries", "to_values", "to_hidden", "feed_forward.to_output")
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# The precisions to which weights of each can be rounded, so that they are compared.
COARSER = {
    torch.float64: FLOATS,
    torch.float32: FLOATS[1:],
    torch.bfloat16: (torch.bfloat16,),
    torch.float16: (torch.float16,),
}
# Settings that change nothing of what a model with the same weights computes.
WITHOUT_EFFECT = (
    "context_length",
    "d_hidden",
    "dropout",
    "engine",
    "n_kv_heads",
    "zero_init",
)


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
        check_alpha(alpha=alpha)
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


def check_alpha(**alphas: object) -> None:
    """Raises ValueError unless each is a number above 0, and finite."""
    check_between(0, sys.float_info.max, above=True, **alphas)


def adapters(model: nn.Module) -> dict[str, LoRALinear]:
    """Returns the layers of a model that have an adapter, by their names."""
    layers = {}
    for name, part in model.named_modules():
        if isinstance(part, LoRALinear):
            layers[name] = part
    return layers


def replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Puts a layer in the place of the one that a model has under this name."""
    parent, _, own_name = name.rpartition(".")
    setattr(model.get_submodule(parent), own_name, layer)


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
    check_alpha(alpha=alpha)
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


def base_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns a model's parameters and buffers by name, as they were without adapters.

    The names are sorted.
    """
    layers = adapters(model)
    tensors = {}
    for name, x in [*model.named_parameters(), *model.named_buffers()]:
        place, _, own_name = name.rpartition(".")
        if place in layers:
            continue  # A or B
        parent, _, child = place.rpartition(".")
        if parent in layers and child == "layer":
            place = parent
        tensors[f"{place}.{own_name}"] = x
    return dict(sorted(tensors.items()))


def fingerprint(model: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Returns a SHA-256 of a model's weights, adapters left out.

    They are taken as they are, or rounded to `dtype`. Of a model that `shard` has
    parted all ranks must call this. Raises ValueError for a rank's part of a model that
    can't be gathered.
    """
    check_gathered(model)
    digest = sha256()
    for name, x in base_tensors(model).items():
        x = full_tensor(x.detach()).cpu()
        if dtype is not None and x.is_floating_point():
            x = x.to(dtype)
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def precisions(model: nn.Module) -> list[torch.dtype]:
    """Returns the precisions that all of a model's weights have or can be rounded to.

    The finest comes first. Raises ValueError where there is none.
    """
    found = list(FLOATS)
    dtypes = {x.dtype for x in base_tensors(model).values() if x.is_floating_point()}
    for dtype in dtypes:
        found = [each for each in found if each in COARSER.get(dtype, ())]
    if not found:
        names = " and ".join(sorted(map(str, dtypes)))
        raise ValueError(
            f"the model's weights are of {names}, which can't be compared: give all one"
            " precision, as by model.float()"
        )
    return found


def settings_of(model: nn.Module) -> dict[str, Any]:
    """Returns what a model computes by, beside its weights, as JSON."""
    config = getattr(model, "config", None)
    settings = to_json(getattr(config, "__dict__", {}))
    if settings.get("positions") != "rotary":
        settings.pop("rotary_base", None)
    for name in WITHOUT_EFFECT:
        settings.pop(name, None)
    if hasattr(model, "causal"):
        settings["causal"] = model.causal

    # The scheme of positions may have been changed since.
    for name, x in vars(getattr(model, "positions", nn.Module())).items():
        is_own = not name.startswith("_") and name != "training"
        if is_own and isinstance(x, Real):
            settings[f"positions.{name}"] = x
    return settings


def save_adapter(path: Path | str, model: nn.Module) -> None:
    """Writes a model's adapters to a file, with a fingerprint of what they are for.

    Only a whole file takes the place of an older one. All processes that train together
    must call this; rank 0 writes. Raises ValueError for a model that has no adapters,
    is packed or a rank's part, for numbers that aren't finite, and OSError where
    nothing can be written.
    """
    layers = adapters(model)
    if not layers:
        raise ValueError(
            "the model has no adapter to save: `add_adapters` gives it some"
        )
    tensors = {}
    alphas = {}
    for name, adapter in layers.items():
        check_own(name, adapter, "save the adapter before")
        A = full_tensor(adapter.A.detach()).cpu()
        B = full_tensor(adapter.B.detach()).cpu()
        check_numbers(name, A, B, adapter.alpha)
        tensors[f"{name}.A"] = A.clone(memory_format=torch.contiguous_format)
        tensors[f"{name}.B"] = B.clone(memory_format=torch.contiguous_format)
        alphas[name] = float(adapter.alpha)

    about = {
        "adapter for": {str(x): fingerprint(model, x) for x in precisions(model)},
        "settings": settings_of(model),
        "alphas": alphas,
    }
    if is_joined() and dist.get_rank() > 0:
        return
    write_atomically(Path(path), pack_tensors(tensors, about))


def quoted(name: str) -> str:
    """Returns a name that a file gives, in one line that isn't long."""
    words = repr(name)
    return words if len(words) <= 100 else f"{words[:100]}..."


def check_numbers(name: str, A: Tensor, B: Tensor, alpha: float) -> None:
    """Raises ValueError unless A (r i), B (o r) and alpha are an adapter's."""
    check_alpha(**{f"alpha of {quoted(name)}": alpha})
    for matrix, x in (("A", A), ("B", B)):
        own_name = quoted(f"{name}.{matrix}")
        if x.dtype not in FLOATS or x.dim() != 2 or not x.numel():
            raise ValueError(
                f"{own_name} is {shown(x)}; it must be a matrix of floats, and the rank"
                " 1 or more"
            )
        if not x.isfinite().all():
            raise ValueError(f"{own_name} has numbers that aren't finite")
    if len(A) != B.shape[1]:
        raise ValueError(
            f"{quoted(name)} has an A of rank {len(A)} and a B of rank {B.shape[1]}"
        )


def read_adapter(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads an adapter's file. Returns its tensors by name, and what it says of them.

    That is "adapter for", fingerprints by precision, "settings" of the model, and
    "alphas" by layer. Files of version 0.1.0 have no SHA-256 and no settings, and one
    fingerprint. Raises ValueError for a file that is no adapter, or damaged.
    """
    data = resolve_target(Path(path)).read_bytes()
    try:
        about = read_words(data)
        if isinstance(about, dict):  # of version 0.1.0
            tensors = load(data)
            about = {"settings": None} | about
        else:
            tensors, about = unpack_tensors(data)
        check_about(about, tensors)
    except UNREADABLE:
        raise ValueError(
            f"{path} is damaged, or no adapter: `python -m companion tune` makes one"
        ) from None
    try:
        for name, alpha in about["alphas"].items():
            check_numbers(name, tensors[f"{name}.A"], tensors[f"{name}.B"], alpha)
    except ValueError as error:
        raise ValueError(
            f"{path} is no adapter that can be used: {error}: train it anew"
        ) from None
    return tensors, about


def check_about(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Raises ValueError unless a file says all of an adapter, and nothing more."""
    if about.keys() != {"adapter for", "settings", "alphas"}:
        raise ValueError("it says more or less")
    prints = about["adapter for"]
    if isinstance(prints, dict) and prints.keys() <= {str(x) for x in FLOATS}:
        prints = "".join(prints.values())
    is_known = isinstance(about["settings"], dict | None)
    if not isinstance(prints, str) or not prints or not is_known:
        raise ValueError("it doesn't say what it is for")
    alphas = about["alphas"]
    if not isinstance(alphas, dict):
        raise ValueError("its alphas have no names")
    names = {f"{name}.{matrix}" for name in alphas for matrix in "AB"}
    if not names or names != tensors.keys():
        raise ValueError("its tensors are others than it says")


def check_made_for(path: Path | str, about: dict[str, Any], model: nn.Module) -> None:
    """Raises ValueError, naming what differs, for another model than a file's.

    Weights are compared in the finest precision that both can have: an adapter for
    float32 is one for the same weights in bfloat16, too.
    """
    other = f"{path} was made for another model than this one"
    remedy = "load the model that it was trained with, or train it anew"

    saved = about["settings"]
    here = settings_of(model)
    if saved is not None:
        names = saved.keys() | here.keys()
        for name in sorted(names, key=lambda name: ("." in name, name)):
            there = saved.get(name, "missing")
            value = here.get(name, "missing")
            if there != value:
                label = name if name in here else quoted(name)
                raise ValueError(
                    f"{other}: {label} is {shown(there)} there and {shown(value)} here;"
                    f" {remedy}"
                )

    prints = about["adapter for"]
    if isinstance(prints, str):  # of version 0.1.0
        if prints == fingerprint(model):
            return
        raise ValueError(f"{other}, whose weights differ: {remedy}")
    found = precisions(model)
    for dtype in found:
        if str(dtype) in prints:
            if prints[str(dtype)] == fingerprint(model, dtype):
                return
            raise ValueError(f"{other}, whose weights differ: {remedy}")
    raise ValueError(
        f"{path} was made for weights of {' or '.join(prints)}, with which those of"
        f" {found[0]} here can't be compared: load the model in one of them, or in"
        " float32"
    )


def load_adapter(path: Path | str, model: nn.Module) -> nn.Module:
    """Gives a model the adapters of a file. Returns the model itself, to be used.

    Raises ValueError, and changes nothing, for a file that is no adapter, for one that
    was made for another model, and for a model that has adapters already, is packed, or
    lies in parts on many ranks; OSError where there is no such file. Chapter 14.
    """
    tensors, about = read_adapter(path)
    check_plain(model)
    check_made_for(path, about, model)

    layers = {}
    for name in about["alphas"]:
        layer = linear_layer(model, name)
        shape = (tensors[f"{name}.B"].shape[0], tensors[f"{name}.A"].shape[1])
        if layer.weight.shape != shape:
            raise ValueError(
                f"{path}: the matrices of {name} are for a weight of {shape}, and the"
                f" model's is {tuple(layer.weight.shape)}"
            )
        layers[name] = layer

    model.requires_grad_(False)
    for name, layer in layers.items():
        A = tensors[f"{name}.A"]
        adapter = LoRALinear(layer, len(A), about["alphas"][name])
        adapter.A.data.copy_(A)
        adapter.B.data.copy_(tensors[f"{name}.B"])
        replace_layer(model, name, adapter.requires_grad_(False).train(layer.training))
    return model
