"""An adapter in a file, which knows the model that it is for. Chapter 14."""

from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load
from torch import Tensor, nn

from ..device import is_joined
from ..files import resolve_target, write_atomically
from ..inputs import shown
from ..model.blocks import replace_layer
from ..tensor_files import UNREADABLE, pack_tensors, read_words, unpack_tensors
from ..training.checkpoints import to_json
from ..training.processes import check_gathered, full_tensor
from .lora import (
    LoRALinear,
    adapters,
    check_alpha,
    check_own,
    check_plain,
    linear_layer,
    quoted,
)

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
EPSILONS = "norms.eps"  # among the settings: those of a model's norms, sorted


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


def model_settings(model: nn.Module) -> dict[str, Any]:
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

    # Nor does a configuration say the epsilons of the norms.
    found = {getattr(part, "eps", None) for part in model.modules()}
    settings[EPSILONS] = sorted(x for x in found if isinstance(x, Real))
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
        "settings": model_settings(model),
        "alphas": alphas,
    }
    if is_joined() and dist.get_rank() > 0:
        return
    write_atomically(Path(path), pack_tensors(tensors, about))


def check_numbers(name: str, A: Tensor, B: Tensor, alpha: float) -> None:
    """Raises ValueError unless A (r i), B (o r) and alpha are an adapter's."""
    check_alpha(alpha, f"alpha of {quoted(name)}")
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
    fingerprints = about["adapter for"]
    if isinstance(fingerprints, dict) and fingerprints.keys() <= {*map(str, FLOATS)}:
        fingerprints = "".join(fingerprints.values())
    if not isinstance(fingerprints, str) or not fingerprints:
        raise ValueError("it doesn't say for which weights it is")
    if not isinstance(about["settings"], dict | None):
        raise ValueError("it doesn't say for which settings it is")
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
    difference = None
    if about["settings"] is not None:
        difference = settings_difference(about["settings"], model_settings(model))
    if difference:
        raise ValueError(f"{other}: {difference}; {remedy}")

    saved = about["adapter for"]
    dtype = None
    if isinstance(saved, dict):
        found = precisions(model)
        dtype = next((x for x in found if str(x) in saved), None)
        if dtype is None:
            raise ValueError(
                f"{path} was made for weights of {' or '.join(saved)}, with which those"
                f" of {found[0]} here can't be compared: load the model in one of them,"
                " or in float32"
            )
        saved = saved[str(dtype)]
    if saved != fingerprint(model, dtype):
        raise ValueError(f"{other}, whose weights differ: {remedy}")


def settings_difference(saved: dict[str, Any], here: dict[str, Any]) -> str | None:
    """Returns which setting of a file's model isn't this model's, the config's first.

    None where all are. Files that are older don't say the epsilons.
    """
    names = saved.keys() | here.keys()
    if EPSILONS not in saved:
        names.remove(EPSILONS)
    for name in sorted(names, key=lambda name: ("." in name, name)):
        there = saved.get(name, "missing")
        value = here.get(name, "missing")
        if there != value:
            label = name if name in here else quoted(name)
            return f"{label} is {shown(there)} there and {shown(value)} here"
    return None


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
        alpha = about["alphas"][name]
        unused = torch.Generator()  # draws what is overwritten, and no other numbers
        adapter = LoRALinear(layer, len(A), alpha, unused)
        adapter.A.data.copy_(A)
        adapter.B.data.copy_(tensors[f"{name}.B"])
        replace_layer(model, name, adapter.requires_grad_(False).train(layer.training))
    return model
