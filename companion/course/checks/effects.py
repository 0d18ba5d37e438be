"""What an answer leaves behind: undone, and named where it matters."""

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import is_
from types import ModuleType

import numpy as np
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
    """Whether there is a filter that drops every warning."""
    return ALL_IGNORED in warnings.filters


@dataclass(frozen=True)
class Setting:
    """A global setting: how it is read and put back.

    `words` say what an answer has done if the setting has another value afterwards.
    Without `put_back` a context puts it back.
    """

    words: str
    read: Callable
    put_back: Callable | None = None


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
        all_warnings_ignored,  # `catch_warnings` puts the filters back
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


def state_of(arguments: tuple) -> list[Tensor]:
    """Collects the parameters and buffers of the modules in some arguments.

    There are none where an optimizer is handed over, too: that model is there to learn.
    """
    if any(isinstance(x, torch.optim.Optimizer) for x in arguments):
        return []
    _, modules = handed_over(arguments)
    state = []
    for module in modules:
        state += [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return state


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are of one shape and dtype, and hold the same numbers."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or torch.allclose(
        one, other, rtol=0, atol=0, equal_nan=True
    )


@contextmanager
def contained(arguments: tuple, effects: list[str]) -> Iterator[None]:
    """Undoes what its body changes in settings and arguments; names it in `effects`.

    Random numbers go on afterwards as if none had been drawn, in the folder and with
    the environment of before, which isn't named.
    """
    tensors, modules = handed_over(arguments)
    needs_gradient = [x.requires_grad for x in tensors]
    training = [module.training for module in modules]
    weights = [x.detach().clone() for x in state_of(arguments)]
    before = [setting.read() for setting in SETTINGS]
    random_state = random.getstate()
    numpy_state = np.random.get_state()
    folder = os.getcwd()
    environment = dict(os.environ)

    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            try:
                yield
            finally:
                # Read while the filters of warnings are still the answer's.
                after = [setting.read() for setting in SETTINGS]
    finally:
        random.setstate(random_state)
        np.random.set_state(numpy_state)
        if os.environ != environment:
            os.environ.clear()
            os.environ.update(environment)
        with suppress(OSError):  # one that was deleted
            os.chdir(folder)
        for setting, old, new in zip(SETTINGS, before, after, strict=True):
            if old != new:
                if setting.put_back:
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
    weights_after = state_of(arguments)
    is_kept = len(weights_after) == len(weights)
    if not is_kept or not all(map(same_bits, weights, weights_after)):
        effects.append(
            "leaves other weights in the model than it was given: work on a copy"
        )


# Modules whose attributes a test may replace, and whose classes' attributes; of
# `companion` all are.
MODULES = frozenset(
    """builtins copy einops math numpy os random time torch torch.autograd torch.linalg
    torch.nn torch.nn.functional torch.nn.init torch.nn.modules.module torch.nn.utils
    torch.optim torch.optim.optimizer torch.testing""".split()
)


@contextmanager
def attributes_kept(*classes: type) -> Iterator[Callable[[], None]]:
    """Puts back what its body replaces in modules, in their classes and in these.

    Hooks that are registered for all modules or optimizers are taken away again. The
    body gets a function that does the same at once, for one that asks several times.
    """
    names = [
        name
        for name in list(sys.modules)
        if name in MODULES or name.partition(".")[0] == "companion"
    ]
    owners = [*owners_in(tuple(names)), *classes]
    before = [(owner, dict(vars(owner))) for owner in owners]
    registries = [(hooks, dict(hooks)) for hooks in hooks_for_all()]

    def put_all_back() -> None:
        for owner, attributes in before:
            now = vars(owner)
            is_same = len(now) == len(attributes)
            if not is_same or not all(map(is_, now.values(), attributes.values())):
                put_back(owner, attributes)
        for hooks, entries in registries:
            if hooks != entries:
                hooks.clear()
                hooks.update(entries)

    try:
        yield put_all_back
    finally:
        put_all_back()


@lru_cache(maxsize=1)
def owners_in(names: tuple[str, ...]) -> list[ModuleType | type]:
    """Returns these modules, and the classes in them that are PyTorch's or ours."""
    modules = [sys.modules[name] for name in names]
    classes = {}
    for module in modules:
        for value in vars(module).values():
            if not isinstance(value, type):
                continue
            if value.__module__.partition(".")[0] in ("torch", "companion"):
                classes |= dict.fromkeys(value.__mro__)
    return [*modules, *classes]


def hooks_for_all() -> Iterator[dict]:
    """Returns PyTorch's dictionaries of global hooks.

    What an answer puts there is called for every module or optimizer of the process.
    """
    for name in ("torch.nn.modules.module", "torch.optim.optimizer"):
        for key, value in vars(sys.modules[name]).items():
            if key.startswith("_global") and isinstance(value, dict):
                yield value


def put_back(owner: ModuleType | type, attributes: dict) -> None:
    """Gives a module or a class the attributes that it had.

    A module that has been loaded meanwhile stays where it is.
    """
    for name, value in list(vars(owner).items()):
        is_new = name not in attributes
        if is_new and not isinstance(value, ModuleType):
            delattr(owner, name)
    for name, value in attributes.items():
        if vars(owner).get(name, owner) is not value:
            setattr(owner, name, value)
