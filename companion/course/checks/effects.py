"""What an answer leaves behind: undone, and named where it matters."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

ALL_IGNORED = ("ignore", None, Warning, None, 0)


def set_default_device(device: torch.device) -> None:
    """None in place of the CPU, so that nothing stands between PyTorch's calls."""
    torch.set_default_device(None if device == torch.device("cpu") else device)


def deterministic() -> tuple[bool, bool]:
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warn_only


def set_deterministic(flags: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])


# What it does to everybody: the words, how one looks, and how it is put back.
GLOBAL = (
    (
        "leaves gradients switched off for everybody: use a context,"
        " `with torch.no_grad():`",
        torch.is_grad_enabled,
        torch.set_grad_enabled,
    ),
    (
        "leaves another default dtype for everybody: give the dtype where a tensor is"
        " made",
        torch.get_default_dtype,
        torch.set_default_dtype,
    ),
    (
        "leaves another default device for everybody: give the device where a tensor"
        " is made",
        torch.get_default_device,
        set_default_device,
    ),
    (
        "leaves another number of threads for everybody: put it back",
        torch.get_num_threads,
        torch.set_num_threads,
    ),
    (
        "leaves deterministic algorithms switched on or off for everybody: put it back",
        deterministic,
        set_deterministic,
    ),
    (
        "leaves products of matrices less exact, or more, for everybody: put it back",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    (
        "leaves PyTorch looking for anomalies for everybody: use"
        " `with torch.autograd.detect_anomaly():`",
        torch.is_anomaly_enabled,
        torch.autograd.set_detect_anomaly,
    ),
    (
        "leaves all warnings switched off for everybody: use"
        " `with warnings.catch_warnings():`",
        lambda: ALL_IGNORED in warnings.filters,
        lambda before: None,  # `catch_warnings` puts them back
    ),
)


def handed_over(x, depth: int = 4) -> tuple[list[Tensor], list[nn.Module]]:
    """The tensors and the modules, with all their parts, among what is handed over."""
    tensors, modules = [], []
    if isinstance(x, Tensor):
        tensors.append(x)
    elif isinstance(x, nn.Module):
        tensors += x.parameters()
        modules += x.modules()
    elif isinstance(x, list | tuple | dict) and depth:
        for part in x.values() if isinstance(x, dict) else x:
            found = handed_over(part, depth - 1)
            tensors += found[0]
            modules += found[1]
    return tensors, modules


@contextmanager
def contained(arguments: tuple, effects: list[str]) -> Iterator[None]:
    """Undo what happens within it to everybody and to the arguments; name it in a list.

    Random numbers go on afterwards as if none had been drawn, which needs no name.
    """
    tensors, modules = handed_over(arguments)
    needed = [x.requires_grad for x in tensors]
    training = [module.training for module in modules]
    before = [get() for _, get, _ in GLOBAL]
    state = random.getstate()

    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            try:
                yield
            finally:
                after = [get() for _, get, _ in GLOBAL]
    finally:
        random.setstate(state)
        for (words, _, put_back), old, new in zip(GLOBAL, before, after, strict=True):
            if old != new:
                put_back(old)
                effects.append(words)

    if [x.requires_grad for x in tensors] != needed:
        effects.append(
            "leaves `requires_grad` changed in what it was given: put it back, or work"
            " on a copy"
        )
    if [module.training for module in modules] != training:
        effects.append(
            "leaves the model in another mode than it was given, `train()` or `eval()`:"
            " put it back"
        )
