"""Checkpoints: a run on disk, whole or not at all, and never unpickled. Chapter 05.

One safetensors file: the tensors of model, optimizer and generator, and in its header a
SHA-256 over the whole file and, as JSON, whose tensors they are and the caller's facts.
"""

import json
import os
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from .processes import full_tensor, is_joined, shard_like

BLANK = "0" * 64  # where the SHA-256 stands, while it is computed


def save_checkpoint(path, model, optimizer, generator, **facts) -> None:
    """Write weights, buffers, optimizer state, generator and facts (JSON) to one file.

    Only a whole file takes the place of an older one. Of processes that train together
    all must call this, and rank 0 writes.
    """
    tensors, numbers = {"generator": generator.get_state()}, {}
    tensors |= {f"model.{name}": x for name, x in model.state_dict().items()}
    for i, state in optimizer.state_dict()["state"].items():
        for key, x in state.items():
            where = tensors if isinstance(x, Tensor) else numbers
            where[f"optimizer.{i}.{key}"] = x
    # Copies, since safetensors takes no two tensors in one place (tied weights).
    copied = {"memory_format": torch.contiguous_format}
    tensors = {n: full_tensor(x).cpu().clone(**copied) for n, x in tensors.items()}
    if is_joined() and dist.get_rank() > 0:
        return
    about = owner(model, optimizer) | {"numbers": numbers, "facts": facts}
    header = json.dumps([BLANK, about], sort_keys=True)
    data = save(tensors, {"companion": header})
    data = data.replace(BLANK.encode(), sha256(data).hexdigest().encode(), 1)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


def load_checkpoint(path, model, optimizer, generator, **expected: dict) -> dict:
    """Put a checkpoint's contents where they came from; its facts.

    Raises ValueError, and changes nothing, for a file that is damaged or not of this
    package, of another model or optimizer, or with other facts than `expected`, each a
    dictionary; the first difference is named with both values.
    """
    tensors, about = read_checkpoint(path)
    check_same(path, about | about["facts"], owner(model, optimizer) | expected)
    generator.set_state(tensors.pop("generator"))
    with torch.no_grad():
        for name, x in model.state_dict().items():
            x.copy_(shard_like(tensors.pop(f"model.{name}"), x))
    whole = optimizer.state_dict()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    whole["state"] = {}
    for name, x in sorted((tensors | about["numbers"]).items()):  # on all ranks alike
        _, i, key = name.split(".")
        like = parameters[int(i)]
        is_part = isinstance(x, Tensor) and x.shape == like.shape
        state = whole["state"].setdefault(int(i), {})
        state[key] = shard_like(x, like) if is_part else x
    optimizer.load_state_dict(whole)
    return about["facts"]


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    """A checkpoint's tensors by name, and what its header says, if its SHA-256 fits."""
    data = Path(path).read_bytes()
    try:
        end = 8 + int.from_bytes(data[:8], "little")  # as safetensors has it
        sha, about = json.loads(json.loads(data[8:end])["__metadata__"]["companion"])
        if sha != sha256(data.replace(sha.encode(), BLANK.encode(), 1)).hexdigest():
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{path} is damaged, or not a checkpoint of this version of the package:"
            " delete it, and train again"
        ) from None
    return load(data), about


def owner(model: nn.Module, optimizer: Optimizer) -> dict[str, dict]:
    """The model and optimizer that a checkpoint belongs to, in words and numbers.

    Learning rates are left out, for a schedule moves them.
    """
    ours = dict(vars(model.config)) if hasattr(model, "config") else {}
    ours |= {f"shape of {n}": [*x.shape] for n, x in model.state_dict().items()}
    kind = {"class": type(optimizer).__name__}
    for i, group in enumerate(optimizer.param_groups):
        settings = {k: v for k, v in group.items() if k not in ("lr", "initial_lr")}
        kind[f"group {i}"] = settings | {"params": len(group["params"])}
    return to_json({"model": ours, "optimizer": kind})


def to_json(thing: dict) -> dict:
    """A dictionary as JSON can hold it: functions by name, and what is set in them."""

    def name(x) -> object:
        return {x.func.__name__: x.keywords} if isinstance(x, partial) else x.__name__

    return json.loads(json.dumps(thing, default=name))


def check_same(path: Path, saved: dict, here: dict[str, dict]) -> None:
    """Raise ValueError naming the first thing that differs, with both its values."""
    for kind, ours in here.items():
        theirs = saved.get(kind, {})
        for name in sorted(ours.keys() | theirs.keys()):
            there, this = theirs.get(name), ours.get(name)
            if there != this:
                raise ValueError(
                    f"{path} is of another {kind}: {name} is {there} there and {this}"
                    " here; give another path, or delete it"
                )
