"""Checkpoints: a run on disk, whole or not at all, and never unpickled. Chapter 05."""

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    **facts,
) -> None:
    """Write weights, optimizer state and generator to one file, whole or not at all.

    Tensors go into safetensors; `facts`, which must be JSON, into its header with the
    SHA-256 of the tensors. Nothing is pickled, so loading runs no code.
    """
    tensors = checkpoint_tensors(model, optimizer)
    tensors |= {"generator": generator.get_state(), "torch": torch.get_rng_state()}
    tensors = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    header = {"companion": json.dumps(facts), "sha256": digest(tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        save_file(tensors, partial, header)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: Optimizer, generator: torch.Generator
) -> dict:
    """Put a checkpoint's contents where they came from; its facts.

    Raises ValueError, and changes nothing, for a file that is truncated, altered, not a
    checkpoint of this package, or of a model of other sizes.
    """
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole checkpoint: {error}") from None
    if "companion" not in header:
        raise ValueError(f"{path} is not a checkpoint of this package: no such header")
    if header.get("sha256") != digest(tensors):
        raise ValueError(f"{path} was altered: its tensors do not have its SHA-256")
    generator_state, torch_state = tensors.pop("generator"), tensors.pop("torch")
    own = dict(model.named_parameters())
    saved = {n.removeprefix("model."): x for n, x in tensors.items() if n[:2] == "mo"}
    for name in sorted(own.keys() | saved.keys()):
        here, there = (
            tuple(x[name].shape) if name in x else None for x in (own, saved)
        )
        if here != there:
            raise ValueError(
                f"{path} is of another model: {name} is {there} there and {here} here"
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, i, key = name.split(".")
            parameter = parameters[int(i)]
            kept = (
                torch.empty_like(parameter).copy_(value)
                if value.dim()
                else value.item()
            )
            optimizer.state[parameter][key] = kept
    generator.set_state(generator_state)
    torch.set_rng_state(torch_state)
    return json.loads(header["companion"])


def checkpoint_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """All tensors of both, by name; the optimizer's by the place of their parameter."""
    tensors = {f"model.{name}": p for name, p in model.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for i, parameter in enumerate(parameters):
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{i}.{key}"] = torch.as_tensor(value)
    return tensors


def digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names and bytes, in the order of the names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()
