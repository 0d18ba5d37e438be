"""Processes that train together, as torchrun starts them. Chapters 05 and 11."""

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..inputs import check_name

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor  # half a second, for few runs


@dataclass(frozen=True)
class Process:
    """One of the `world` processes that train together, and the device it has."""

    device: str
    rank: int
    world: int

    @classmethod
    def current(cls, device: str | None = None) -> "Process":
        """Returns this process, as torchrun tells it in the environment.

        `device` is "cuda", "mps" or "cpu", by default the fastest there is. Raises
        ValueError for one that isn't there.
        """
        backends = {"cuda": torch.cuda, "mps": torch.backends.mps, "cpu": torch.cpu}
        available = [
            name for name, backend in backends.items() if backend.is_available()
        ]
        device = device or available[0]
        check_name(available, device=device)
        if device == "cuda":  # each process of a machine has a GPU of its own
            device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"

        rank = int(os.environ.get("RANK", 0))
        world = int(os.environ.get("WORLD_SIZE", 1))
        return cls(device, rank, world)

    @contextmanager
    def joined(self, seconds: float = 60) -> Iterator[None]:
        """Within, it can talk to the others; one that is alone does nothing here.

        Raises RuntimeError where another one died, or doesn't answer within `seconds`.
        """
        if self.world == 1:
            yield
            return

        backend = "nccl" if self.device.startswith("cuda") else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
        try:
            yield
            gc.collect()  # wrapped models go before the group, or the exit can hang
            dist.barrier()
        finally:
            dist.destroy_process_group()


def shard(model: nn.Module, world: int) -> None:
    """Leaves each of `world` ranks a part of every parameter; PyTorch fetches the rest.

    A block's weights are put together when it runs, and let go after it. Gradients are
    averaged. Make the optimizer afterwards, so that it keeps the parts. Raises
    ValueError for a model without `blocks`. Rajbhandari et al. 2020, stage 3.
    """
    from torch.distributed.fsdp import fully_shard  # half a second, for few runs

    blocks = blocks_of(model)
    device_type = next(model.parameters()).device.type
    mesh = dist.init_device_mesh(device_type, (world,))
    for part in [*blocks, model]:
        fully_shard(part, mesh=mesh)


def blocks_of(model: nn.Module) -> Iterable[Any]:
    """Returns a model's blocks, which are shared among ranks; of whatever class.

    Raises ValueError for a model that has none.
    """
    blocks = getattr(model, "blocks", None)
    if blocks is None:
        raise ValueError(
            f"{type(model).__name__} has no blocks, which the ranks would share: give a"
            " GPT"
        )
    return blocks


def is_sharded(x: Tensor) -> "TypeGuard[DTensor]":
    """Returns whether this rank holds only a part of x, as `shard` leaves it."""
    return hasattr(x, "full_tensor")


def check_not_sharded(model: nn.Module, remedy: str) -> None:
    """Raises ValueError, with the remedy, where `shard` has parted a parameter."""
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise ValueError(
                f"of {name} this rank holds a part alone (`shard`): {remedy}"
            )


def check_gathered(model: nn.Module) -> None:
    """Raises ValueError for layers of which each rank has a part that no call gathers.

    Parts that say `gathered = False` are such: those of `shard_blocks`.
    """
    for name, part in model.named_modules():
        if getattr(part, "gathered", True) is False:
            raise ValueError(
                f"{name or 'the model'} is this rank's part of a layer, and the others"
                " are on other ranks: use the whole model that was cut"
            )


def full_tensor(x: Tensor) -> Tensor:
    """Returns x, with all its parts if it is sharded; then all ranks must call this."""
    if is_sharded(x):
        return x.full_tensor()
    return x


def shard_like(x: Tensor, like: Tensor) -> Tensor:
    """Returns x, or this rank's part of it where `like` is sharded.

    Then all ranks must call this.
    """
    if not is_sharded(like):
        return x
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x.to(like.device), like.device_mesh, like.placements)
