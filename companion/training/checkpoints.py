"""Checkpoints: a run on disk, whole or not at all, and never unpickled. Chapter 05.

One safetensors file (`tensor_files`): the tensors of model, optimizer and generator,
and in its header whose tensors they are and the caller's metadata.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from ..device import is_joined
from ..files import resolve_target, write_atomically
from ..inputs import shown
from ..interrupts import interrupts_put_off
from ..tensor_files import pack_tensors, unpack_tensors
from .loop import check_trainable
from .optimizers import optimized_parameters
from .processes import check_gathered, full_tensor, shard_like


class CheckpointError(ValueError):
    """A checkpoint that can't be gone on from: damaged, or of something else."""


def save_checkpoint(
    path: Path | str,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    **metadata: Any,
) -> None:
    """Writes weights, buffers, optimizer state, generator and metadata to one file.

    Metadata must be what JSON can hold. Only a whole file replaces an older one. All
    processes that train together must call this; rank 0 writes. Raises ValueError for
    what such a file can't hold: a model laid out for decoding, or of which each rank
    has other parts, an optimizer's state of what is no parameter of the model, metadata
    that aren't JSON. Chapter 05.
    """
    check_trainable(model)
    check_gathered(model)
    metadata = to_json(metadata)

    # Whatever is a tensor, under one name each; the optimizer has numbers, too.
    tensors = {"generator": generator.get_state()}
    for name, x in model.state_dict().items():
        tensors[f"model.{name}"] = x
    numbers = {}
    for name, state in state_by_name(model, optimizer).items():
        for key, x in state.items():
            if isinstance(x, Tensor):
                tensors[f"optimizer.{name}.{key}"] = x
            else:
                numbers[f"optimizer.{name}.{key}"] = x
    header = settings_of(model, optimizer)
    header["numbers"] = to_json(numbers)
    header["metadata"] = metadata

    # Copies, since safetensors takes no two tensors in one place (tied weights).
    copies = {}
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or x.is_meta or x.layout != torch.strided:
            raise ValueError(f"{name} is {shown(x)}, which a checkpoint can't hold")
        x = full_tensor(x).cpu()
        copies[name] = x.clone(memory_format=torch.contiguous_format)
    if is_joined() and dist.get_rank() > 0:
        return

    write_atomically(Path(path), pack_tensors(copies, header))


def load_checkpoint(
    path: Path | str,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    **expected: dict,
) -> dict[str, Any]:
    """Puts a checkpoint's contents where they came from. Returns its metadata.

    An optimizer's state is found by its parameters' names, in whatever order it lists
    them. Its learning rates stay as they are, for a schedule sets them by the step;
    where none does, set them yourself. Raises CheckpointError, and changes nothing, for
    a file that is damaged or not of this package, of another model or optimizer, or
    with other metadata than `expected`, each a dictionary; the first difference is
    named with both values. Chapter 05.
    """
    for name, value in expected.items():
        if not isinstance(value, dict):
            raise ValueError(f"{name} is {shown(value)}; it must be a dictionary")

    # Make sure that it is this run's.
    tensors, header = read_checkpoint(path)
    metadata = header["metadata"]
    check_same(path, saved=header, here=settings_of(model, optimizer))
    check_same(path, saved=metadata, here=to_json(expected))
    random_state = tensors.pop("generator", None)
    here = generator.get_state()
    if not has_form(random_state, here):
        raise CheckpointError(
            f"{path} is of a generator of another device than this one: its state is"
            f" {shown(random_state)} there and {shown(here)} here"
        )

    # Deal out: the model's tensors, then what is left, the optimizer's.
    weights = {}
    for name, x in model.state_dict().items():
        stored = tensors.pop(f"model.{name}", None)
        if not has_form(stored, x):
            raise CheckpointError(
                f"{path} is damaged: model.{name} is {shown(stored)} there and"
                f" {shown(x)} here; give another path, or delete it"
            )
        weights[name] = shard_like(stored, x)
    parameters = parameters_by_name(model, optimizer)
    states: dict[str, dict[str, Any]] = {}
    # Sorted, for all ranks must ask for their parts in one order.
    for full_name, x in sorted((tensors | header["numbers"]).items()):
        name, _, key = full_name.removeprefix("optimizer.").rpartition(".")
        if name not in parameters:
            raise CheckpointError(
                f"{path} is damaged: no parameter here has the state"
                f" {shown(full_name)}; give another path, or delete it"
            )
        parameter = parameters[name]
        if isinstance(x, Tensor) and x.shape == parameter.shape:
            x = shard_like(x, parameter)
        states.setdefault(name, {})[key] = x

    # Nothing has changed so far; from here on nothing is refused.
    with interrupts_put_off(), torch.no_grad():
        generator.set_state(random_state)
        for name, x in model.state_dict().items():
            x.copy_(weights[name])
        put_states(optimizer, parameters, states)
    return metadata


def has_form(x: Tensor | None, like: Tensor) -> TypeGuard[Tensor]:
    """Returns whether x is a tensor of the dtype and shape of `like`."""
    return x is not None and x.dtype == like.dtype and x.shape == like.shape


def put_states(
    optimizer: Optimizer,
    parameters: dict[str, Tensor],
    states: dict[str, dict[str, Any]],
) -> None:
    """Gives an optimizer the states of its parameters, both by name."""
    # PyTorch's own form has a number for each parameter.
    places = {id(p): i for i, p in enumerate(optimized_parameters(optimizer))}
    whole = optimizer.state_dict()
    whole["state"] = {places[id(parameters[name])]: x for name, x in states.items()}
    optimizer.load_state_dict(whole)

    # It has rounded float32 to a parameter's 16 bits.
    for name, state in states.items():
        loaded = optimizer.state[parameters[name]]
        for key, x in state.items():
            if isinstance(x, Tensor) and x.dtype != loaded[key].dtype:
                loaded[key] = x.to(loaded[key].device)


def read_checkpoint(path: Path | str) -> tuple[dict[str, Tensor], dict[str, dict]]:
    """Reads a checkpoint. Returns its tensors by name, and what its header says.

    The header has the dictionaries "model", "optimizer", "numbers" and "metadata".
    Raises CheckpointError for a file whose SHA-256 doesn't fit, and for one of another
    program or of an older version, whose settings have other names.
    """
    data = resolve_target(Path(path)).read_bytes()
    try:
        tensors, header = unpack_tensors(data)
        for part in ("model", "optimizer", "numbers", "metadata"):
            if not isinstance(header.get(part), dict):
                raise ValueError(f"it says nothing about {part}")
    except ValueError:
        raise CheckpointError(
            f"{path} is damaged, or not a checkpoint of this version of the package:"
            " delete it, and train again"
        ) from None
    return tensors, header


def parameters_by_name(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Returns the optimizer's parameters by their names in the model.

    Raises ValueError for one that is not the model's.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    parameters = {}
    for p in optimized_parameters(optimizer):
        if id(p) not in names:
            raise ValueError(
                f"{type(optimizer).__name__} holds a parameter of shape"
                f" {tuple(p.shape)} that is not the model's: make it of"
                " `model.parameters()`"
            )
        parameters[names[id(p)]] = p
    return parameters


def state_by_name(model: nn.Module, optimizer: Optimizer) -> dict[str, dict[str, Any]]:
    """Returns the optimizer's state of each parameter, by its name in the model.

    Raises ValueError for one that keeps state of something else, as of parts.
    """
    parameters = parameters_by_name(model, optimizer)
    names = {id(p): name for name, p in parameters.items()}
    states = {}
    for p, state in optimizer.state.items():
        if id(p) not in names:
            raise ValueError(
                f"{type(optimizer).__name__} keeps state of {shown(p)}, which is no"
                " parameter of the model: it can't be saved"
            )
        states[names[id(p)]] = state
    return states


def settings_of(model: nn.Module, optimizer: Optimizer) -> dict[str, dict]:
    """Describes the model and optimizer that a checkpoint belongs to, as JSON.

    Learning rates are left out, for a schedule moves them.
    """
    model_settings = {}
    if hasattr(model, "config"):
        model_settings.update(vars(model.config))
    for name, x in model.state_dict().items():
        if isinstance(x, Tensor):
            model_settings[f"shape of {name}"] = list(x.shape)
            model_settings[f"dtype of {name}"] = str(x.dtype)

    parameters = parameters_by_name(model, optimizer)
    names = {id(p): name for name, p in parameters.items()}
    optimizer_settings: dict[str, Any] = {"class": type(optimizer)}
    for i, group in enumerate(optimizer.param_groups):
        left_out = ("lr", "initial_lr", "params", "param_names")
        settings = {name: x for name, x in group.items() if name not in left_out}
        optimizer_settings[f"group {i}"] = settings
        for p in group["params"]:
            optimizer_settings[f"group of {names[id(p)]}"] = i
    return to_json({"model": model_settings, "optimizer": optimizer_settings})


def to_json(dictionary: dict) -> dict[str, Any]:
    """Returns a dictionary as JSON gives it back.

    Functions become their names, with what is set in them. Raises ValueError, naming
    it, for what has no such form.
    """
    return {str(name): as_json(str(name), x) for name, x in dictionary.items()}


def as_json(name: str, x: object) -> object:
    """Returns x as JSON gives it back; `name` is for the error where it can't be."""
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
    """Returns where a function or a class is found again: its module, its name there.

    Raises ValueError where there is no such place, or it is one in which another
    program or notebook has something else; `name` is what the error calls it.
    """
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", None)
    result = None
    if module and path and module not in ("__main__", "__mp_main__"):
        result = sys.modules.get(module)
        for part in path.split("."):
            result = getattr(result, part, None)

    if result is None or result != function:
        raise ValueError(
            f"{name} is {shown(function)}, which a checkpoint can't name: give a"
            " function of a module that is imported, or functools.partial of one"
        )
    return f"{module}.{path}"


def check_same(
    path: Path | str, saved: dict[str, Any], here: dict[str, dict[str, Any]]
) -> None:
    """Raises CheckpointError naming the first thing that differs, with both values."""
    for part, settings_here in here.items():
        settings_there = saved.get(part)
        if not isinstance(settings_there, dict):
            settings_there = {}
        for name in sorted(settings_here.keys() | settings_there.keys()):
            there = settings_there.get(name, "missing")
            value = settings_here.get(name, "missing")
            is_in_both = name in settings_there and name in settings_here
            is_equal = there == value or repr(there) == repr(value)  # nan is not nan
            if not is_in_both or not is_equal:
                raise CheckpointError(
                    f"{path} is of another {part}: {name} is {there} there and {value}"
                    " here; give another path, or delete it"
                )
