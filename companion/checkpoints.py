"""Checkpoints: a run on disk, whole or not at all, and never unpickled. Chapter 05.

One safetensors file: the tensors of model, optimizer and generator, and in its header,
as JSON, whose they are, the caller's facts, and a SHA-256 over all of it.
"""

import hashlib
import json
import os
import time
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from .inputs import given
from .processes import parted, whole

FORMAT = 2


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    **facts,
) -> None:
    """Write weights, optimizer state and generator to one file, whole or not at all.

    The file is on the disk before it takes the place of an older one. Nothing is
    pickled, so loading runs no code. Raises ValueError for facts that are no JSON and
    for what is no model, optimizer or generator, OSError where the file can't be
    written; what was there stays.
    """
    check_whole_run(path, model, optimizer, generator)
    path = Path(path).resolve()  # where a link leads, it still leads afterwards
    tensors, numbers = tensors_of(model, optimizer, generator)
    about = whose(model, optimizer) | {"numbers": numbers, "facts": facts}
    try:
        about = json.dumps(about, sort_keys=True)
    except TypeError as error:
        raise ValueError(f"facts {[*facts]} must be JSON: {error}") from None
    header = {"companion": json.dumps([FORMAT, digest(tensors, about), about])}
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{path.name}.*.part"):
        if time.time() - left.stat().st_mtime > 3600:  # by a run that was killed
            left.unlink(missing_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        save_file(tensors, part, header)
        part.chmod(0o666 & ~current_umask())  # others may read it, as any other file
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except SafetensorError as error:  # a full disk, for one
        raise OSError(f"{path} could not be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)


def check_whole_run(path, model, optimizer, generator) -> None:
    """Raise ValueError for what is no path, model, optimizer or generator."""
    wanted = {
        "path": (path, str | os.PathLike),
        "model": (model, nn.Module),
        "optimizer": (optimizer, Optimizer),
        "generator": (generator, torch.Generator),
    }
    for name, (thing, kind) in wanted.items():
        if not isinstance(thing, kind):
            raise ValueError(f"{name} is {given(thing)}; it must be a {name}")


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    **expected: dict,
) -> dict:
    """Put a checkpoint's contents where they came from; its facts.

    Raises ValueError, and changes nothing, for a file that is truncated, altered, not a
    checkpoint of this package, of another model or optimizer, or with other facts than
    `expected`, each a dictionary; the first difference is named with both values.
    """
    check_whole_run(path, model, optimizer, generator)
    for name, fact in expected.items():
        if not isinstance(fact, dict):
            raise ValueError(f"{name} is {given(fact)}; it must be a dictionary")
    path = Path(path)
    tensors, about = read_checkpoint(path)
    facts = about["facts"]
    same_or_raise(path, about | facts, whose(model, optimizer) | expected)
    generator.set_state(tensors["generator"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(parted(tensors[f"model.{name}"], parameter))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for name, x in tensors.items():
        if name.startswith("optimizer."):
            _, i, key = name.split(".")
            parameter = parameters[int(i)]
            if x.shape == parameter.shape:  # in the parameter's layout, on its device
                here = torch.empty_like(parameter, dtype=x.dtype)
                x = here.copy_(parted(x, parameter))
            optimizer.state[parameter][key] = x
    for i, key, number in about["numbers"]:
        optimizer.state[parameters[i]][key] = number
    return facts


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    """A checkpoint's tensors by name, and what its header says, after all its tests."""
    try:
        with safe_open(path, "pt") as file:
            header = (file.metadata() or {}).get("companion")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is not a whole checkpoint: {error}; delete it, and train again"
        ) from None
    if header is None:
        raise ValueError(f"{path} is not a checkpoint of this package: no such header")
    try:
        version, sha256, about = json.loads(header)
    except ValueError:
        version = None
    if version != FORMAT:
        raise ValueError(
            f"{path} was written by another version of this package: delete it, and"
            " train again"
        )
    if sha256 != digest(tensors, about):
        raise ValueError(
            f"{path} was altered: its contents do not have its SHA-256; delete it, and"
            " train again"
        )
    return tensors, json.loads(about)


def current_umask() -> int:
    """What this process takes off the permissions of new files."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def whose(model: nn.Module, optimizer: Optimizer) -> dict[str, dict]:
    """What model and optimizer a checkpoint belongs to, in words and numbers.

    Learning rates are left out: a schedule moves them.
    """
    config = getattr(model, "config", None)
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    groups = [
        {k: v for k, v in group.items() if k not in ("params", "lr", "initial_lr")}
        | {"parameters": len(group["params"])}
        for group in optimizer.param_groups
    ]
    config = described(config) if is_dataclass(config) else {}
    kind = {"class": type(optimizer).__name__}
    kind |= {f"group {i}": described(group) for i, group in enumerate(groups)}
    return {"model": config, "parameters": shapes, "optimizer": kind}


def described(thing) -> object:
    """A value as JSON can hold it: functions by name, partial ones with what is set."""
    if is_dataclass(thing):
        thing = {field: getattr(thing, field) for field in thing.__dataclass_fields__}
    if isinstance(thing, dict):
        return {key: described(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [described(value) for value in thing]
    if isinstance(thing, partial):
        return {thing.func.__name__: described(thing.keywords)}
    if callable(thing):
        return thing.__name__
    return thing


def same_or_raise(path: Path, saved: dict, here: dict) -> None:
    """Raise ValueError naming the first thing that differs, with both its values."""
    for about, ours in here.items():
        theirs = saved.get(about, {})
        for name in sorted(ours.keys() | theirs.keys()):
            there, this = theirs.get(name), ours.get(name)
            if there != this:
                kind = "model" if about == "parameters" else about
                raise ValueError(
                    f"{path} is of another {kind}: {name} is {there} there and {this}"
                    " here; give another path, or delete it"
                )


def tensors_of(
    model: nn.Module, optimizer: Optimizer, generator: torch.Generator
) -> tuple[dict[str, Tensor], list]:
    """All tensors of a run by name, on the CPU, and its optimizer's numbers.

    Where parameters are sharded, every process must ask.
    """
    tensors = {f"model.{name}": p for name, p in model.named_parameters()}
    state, numbers = optimizer_state(optimizer)
    tensors |= state | {"generator": generator.get_state()}
    return {
        name: whole(x.detach()).cpu().contiguous() for name, x in tensors.items()
    }, numbers


def optimizer_state(optimizer: Optimizer) -> tuple[dict[str, Tensor], list]:
    """Its tensors, by the place of their parameter, and its numbers likewise."""
    tensors, numbers = {}, []
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for i, parameter in enumerate(parameters):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{i}.{key}"] = value
            elif value is not None:
                numbers.append([i, key, value])
    return tensors, numbers


def digest(tensors: dict[str, Tensor], about: str) -> str:
    """SHA-256 over a header and the names, dtypes, shapes and bytes of tensors."""
    found = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        x = tensors[name].contiguous()
        found.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        found.update(x.flatten().view(torch.uint8).numpy())
    return found.hexdigest()
