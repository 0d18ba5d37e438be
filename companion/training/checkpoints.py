"""Checkpoints: a run on disk, whole or not at all, and never unpickled. Chapter 05.

One safetensors file: the tensors of model, optimizer and generator, and in its header a
SHA-256 over the whole file and, as JSON, whose tensors they are and the caller's
metadata.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from ..device import is_joined
from ..files import resolve_target, write_atomically
from ..inputs import shown
from ..interrupts import interrupts_put_off
from .loop import check_trainable
from .processes import full_tensor, shard_like

BLANK = "0" * 64  # where the SHA-256 stands, while it is computed


def save_checkpoint(
    path: Path | str,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    **metadata,
) -> None:
    """Write weights, buffers, optimizer state, generator, metadata (JSON) to one file.

    Only a whole file takes the place of an older one. Of processes that train together
    all must call this, and rank 0 writes. Raises ValueError for what such a file can't
    hold: a model laid out for decoding, an optimizer's state of what is no parameter of
    the model, metadata that aren't JSON.
    """
    check_trainable(model)
    metadata = to_json(metadata)
    tensors = {"generator": generator.get_state()}
    tensors |= {f"model.{name}": x for name, x in model.state_dict().items()}
    numbers = {}
    for name, state in state_by_name(model, optimizer).items():
        for key, x in state.items():
            place = tensors if isinstance(x, Tensor) else numbers
            place[f"optimizer.{name}.{key}"] = x
    about = fingerprint(model, optimizer) | {
        "numbers": to_json(numbers),
        "metadata": metadata,
    }

    # Copies, since safetensors takes no two tensors in one place (tied weights).
    copied = {}
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or x.is_meta or x.layout != torch.strided:
            raise ValueError(f"{name} is {shown(x)}, which a checkpoint can't hold")
        x = full_tensor(x).cpu()
        copied[name] = x.clone(memory_format=torch.contiguous_format)
    if is_joined() and dist.get_rank() > 0:
        return

    header = json.dumps([BLANK, about], sort_keys=True)
    data = save(copied, {"companion": header})
    data = data.replace(BLANK.encode(), sha256(data).hexdigest().encode(), 1)
    write_atomically(Path(path), data)


def load_checkpoint(
    path: Path | str,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    **expected: dict,
) -> dict:
    """Put a checkpoint's contents where they came from; its metadata.

    An optimizer's state is found by its parameters' names, in whatever order it lists
    them. Raises ValueError, and changes nothing, for a file that is damaged or not of
    this package, of another model or optimizer, or with other metadata than `expected`,
    each a dictionary; the first difference is named with both values.
    """
    for kind, value in expected.items():
        if not isinstance(value, dict):
            raise ValueError(f"{kind} is {shown(value)}; it must be a dictionary")
    tensors, about = read_checkpoint(path)
    metadata = about["metadata"]
    check_same(
        path, about | metadata, fingerprint(model, optimizer) | to_json(expected)
    )
    random_state = tensors.pop("generator")
    if random_state.shape != generator.get_state().shape:
        raise ValueError(f"{path} is of a generator of another device than this one")

    weights = {
        name: shard_like(tensors.pop(f"model.{name}"), x)
        for name, x in model.state_dict().items()
    }
    states = {}
    parameters = by_name(model, optimizer)
    for full_name, x in sorted((tensors | about["numbers"]).items()):  # on all ranks so
        name, key = full_name.removeprefix("optimizer.").rsplit(".", 1)
        like = parameters[name]
        if isinstance(x, Tensor) and x.shape == like.shape:
            x = shard_like(x, like)
        states.setdefault(name, {})[key] = x

    with interrupts_put_off(), torch.no_grad():
        generator.set_state(random_state)
        for name, x in model.state_dict().items():
            x.copy_(weights[name])
        put_states(optimizer, parameters, states)
    return metadata


def put_states(optimizer: Optimizer, parameters: dict, states: dict) -> None:
    """Give an optimizer the states of its parameters, both by name."""
    whole = optimizer.state_dict()
    places = {id(p): i for i, p in enumerate(listed(optimizer))}
    whole["state"] = {places[id(parameters[name])]: x for name, x in states.items()}
    optimizer.load_state_dict(whole)
    # PyTorch has rounded float32 to a parameter's 16 bits.
    for name, state in states.items():
        loaded = optimizer.state[parameters[name]]
        for key, x in state.items():
            if isinstance(x, Tensor) and x.dtype != loaded[key].dtype:
                loaded[key] = x.to(loaded[key].device)


def read_checkpoint(path: Path | str) -> tuple[dict[str, Tensor], dict]:
    """A checkpoint's tensors by name, and what its header says, if its SHA-256 fits."""
    data = resolve_target(Path(path)).read_bytes()
    try:
        end = 8 + int.from_bytes(data[:8], "little")  # as safetensors has it
        sha, about = json.loads(json.loads(data[8:end])["__metadata__"]["companion"])
        if sha != sha256(data.replace(sha.encode(), BLANK.encode(), 1)).hexdigest():
            raise ValueError
        if not {"model", "optimizer", "numbers", "metadata"} <= about.keys():
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{path} is damaged, or not a checkpoint of this version of the package:"
            " delete it, and train again"
        ) from None
    return load(data), about


def listed(optimizer: Optimizer) -> list[Tensor]:
    """The optimizer's parameters, in its order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def by_name(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's parameters by their names in the model.

    Raises ValueError for one that is not the model's.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    for p in listed(optimizer):
        if id(p) not in names:
            raise ValueError(
                f"{type(optimizer).__name__} holds a parameter of shape"
                f" {tuple(p.shape)} that is not the model's: make it of"
                " `model.parameters()`"
            )
    return {names[id(p)]: p for p in listed(optimizer)}


def state_by_name(model: nn.Module, optimizer: Optimizer) -> dict[str, dict]:
    """The optimizer's state of each parameter, by its name in the model.

    Raises ValueError for one that keeps state of something else, as of parts.
    """
    parameters = by_name(model, optimizer)
    names = {id(p): name for name, p in parameters.items()}
    for p in optimizer.state:
        if id(p) not in names:
            raise ValueError(
                f"{type(optimizer).__name__} keeps state of {shown(p)}, which is no"
                " parameter of the model: it can't be saved"
            )
    return {names[id(p)]: state for p, state in optimizer.state.items()}


def fingerprint(model: nn.Module, optimizer: Optimizer) -> dict[str, dict]:
    """The model and optimizer that a checkpoint belongs to, in words and numbers.

    Learning rates are left out, for a schedule moves them.
    """
    about_model = dict(vars(model.config)) if hasattr(model, "config") else {}
    for name, x in model.state_dict().items():
        if isinstance(x, Tensor):
            about_model[f"shape of {name}"] = [*x.shape]
            about_model[f"dtype of {name}"] = str(x.dtype)

    names = {id(p): name for name, p in by_name(model, optimizer).items()}
    about_optimizer = {"class": type(optimizer)}
    for i, group in enumerate(optimizer.param_groups):
        moved = ("lr", "initial_lr", "params", "param_names")
        settings = {key: x for key, x in group.items() if key not in moved}
        about_optimizer[f"group {i}"] = settings
        for p in group["params"]:
            about_optimizer[f"group of {names[id(p)]}"] = i
    return to_json({"model": about_model, "optimizer": about_optimizer})


def to_json(thing: dict) -> dict:
    """A dictionary as JSON gives it back: functions by name, and what is set in them.

    Raises ValueError, naming it, for what has no such form.
    """
    return {str(name): as_json(str(name), x) for name, x in thing.items()}


def as_json(name: str, x: object) -> object:
    """x as JSON gives it back; `name` is what it is called where it can't be."""
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, dict):
        return to_json(x)
    if isinstance(x, list | tuple):
        return [as_json(name, part) for part in x]
    if isinstance(x, partial):
        function = as_json(name, x.func)
        return {function: as_json(name, x.args), "with": as_json(name, x.keywords)}
    if callable(x):
        return address(name, x)
    raise ValueError(
        f"{name} is {shown(x)}, which a checkpoint can't hold: give numbers, texts,"
        " lists or dictionaries of them"
    )


def address(name: str, function: Callable) -> str:
    """Where a function or a class is found again: its module, and its name there.

    Raises ValueError where there is no such place, or it is one in which another
    program or notebook has something else.
    """
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", None)
    found = None
    if module and path and module not in ("__main__", "__mp_main__"):
        found = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
    if found is None or found != function:
        raise ValueError(
            f"{name} is {shown(function)}, which a checkpoint can't name: give a"
            " function of a module that is imported, or functools.partial of one"
        )
    return f"{module}.{path}"


def check_same(path: Path | str, saved: dict, here: dict[str, dict]) -> None:
    """Raise ValueError naming the first thing that differs, with both its values."""
    for kind, ours in here.items():
        theirs = saved.get(kind)
        if not isinstance(theirs, dict):
            theirs = {}
        for name in sorted(ours.keys() | theirs.keys()):
            there = theirs.get(name, "missing")
            this = ours.get(name, "missing")
            is_in_both = name in theirs and name in ours
            is_equal = there == this or repr(there) == repr(this)  # nan is not nan
            if not is_in_both or not is_equal:
                raise ValueError(
                    f"{path} is of another {kind}: {name} is {there} there and {this}"
                    " here; give another path, or delete it"
                )
