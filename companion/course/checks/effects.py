"""What an answer leaves behind: undone, and named where it matters."""

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALL_IGNORED = ("ignore", None, Warning, None, 0)


def set_default_device(device: torch.device) -> None:
    """Sets the default device; for the CPU that is None, which costs no call."""
    torch.set_default_device(None if device == torch.device("cpu") else device)


def deterministic() -> tuple[bool, bool]:
    """Whether algorithms are deterministic, and whether others are only warned of."""
    enabled = torch.are_deterministic_algorithms_enabled()
    return enabled, torch.is_deterministic_algorithms_warn_only_enabled()


def set_deterministic(flags: tuple[bool, bool]) -> None:
    """Puts back what `deterministic` has returned."""
    enabled, warn_only = flags
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def all_warnings_ignored() -> bool:
    return ALL_IGNORED in warnings.filters


def leave_to_catch_warnings(ignored: bool) -> None:
    """Does nothing: `catch_warnings` puts the filters back."""


@dataclass(frozen=True)
class Setting:
    """A global setting: how it is read and put back.

    `words` say what an answer has done if the setting has another value afterwards.
    """

    words: str
    read: Callable
    put_back: Callable


SETTINGS = (
    Setting(
        "leaves gradients switched off for everybody: use a context,"
        " `with torch.no_grad():`",
        torch.is_grad_enabled,
        torch.set_grad_enabled,
    ),
    Setting(
        "leaves another default dtype for everybody: give the dtype where a tensor is"
        " made",
        torch.get_default_dtype,
        torch.set_default_dtype,
    ),
    Setting(
        "leaves another default device for everybody: give the device where a tensor"
        " is made",
        torch.get_default_device,
        set_default_device,
    ),
    Setting(
        "leaves another number of threads for everybody: put it back",
        torch.get_num_threads,
        torch.set_num_threads,
    ),
    Setting(
        "leaves deterministic algorithms switched on or off for everybody: put it back",
        deterministic,
        set_deterministic,
    ),
    Setting(
        "leaves products of matrices less exact, or more, for everybody: put it back",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    Setting(
        "leaves PyTorch looking for anomalies for everybody: use"
        " `with torch.autograd.detect_anomaly():`",
        torch.is_anomaly_enabled,
        torch.autograd.set_detect_anomaly,
    ),
    Setting(
        "leaves all warnings switched off for everybody: use"
        " `with warnings.catch_warnings():`",
        all_warnings_ignored,
        leave_to_catch_warnings,
    ),
)


def handed_over(x: object, depth: int = 4) -> tuple[list[Tensor], list[nn.Module]]:
    """Collects the tensors and the modules in an argument, with all their parts."""
    if isinstance(x, Tensor):
        return [x], []
    if isinstance(x, nn.Module):
        return list(x.parameters()), list(x.modules())

    tensors = []
    modules = []
    if isinstance(x, list | tuple | dict) and depth:
        for part in x.values() if isinstance(x, dict) else x:
            tensors_within, modules_within = handed_over(part, depth - 1)
            tensors += tensors_within
            modules += modules_within
    return tensors, modules


@contextmanager
def contained(arguments: tuple, effects: list[str]) -> Iterator[None]:
    """Undoes what its body changes in settings and arguments; names it in `effects`.

    Random numbers go on afterwards as if none had been drawn, which isn't named.
    """
    tensors, modules = handed_over(arguments)
    needs_gradient = [x.requires_grad for x in tensors]
    training = [module.training for module in modules]
    before = [setting.read() for setting in SETTINGS]
    random_state = random.getstate()

    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            try:
                yield
            finally:
                # Read while the filters of warnings are still the answer's.
                after = [setting.read() for setting in SETTINGS]
    finally:
        random.setstate(random_state)
        for setting, old, new in zip(SETTINGS, before, after, strict=True):
            if old != new:
                setting.put_back(old)
                effects.append(setting.words)

    if [x.requires_grad for x in tensors] != needs_gradient:
        effects.append(
            "leaves `requires_grad` changed in what it was given: put it back, or work"
            " on a copy"
        )
    if [module.training for module in modules] != training:
        effects.append(
            "leaves the model in another mode than it was given, `train()` or `eval()`:"
            " put it back"
        )
