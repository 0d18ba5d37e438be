"""Processes that train together, as torchrun starts them. Chapters 05 and 11."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .inputs import check_between


@dataclass(frozen=True)
class Process:
    """One of the `world` processes that train together, and the device it has."""

    device: str
    rank: int
    world: int

    @classmethod
    def this(cls, device: str | None = None) -> "Process":
        """This one, as torchrun tells it; `device` by default the accelerator here."""
        if device is None:
            mps = "mps" if torch.backends.mps.is_available() else "cpu"
            device = "cuda" if torch.cuda.is_available() else mps
        if device not in ("cuda", "mps", "cpu"):
            raise ValueError(f"device is {device!r}; it must be cuda, mps or cpu")
        if device == "cuda":  # each process of a machine has a GPU of its own
            device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        rank, world = os.environ.get("RANK", 0), os.environ.get("WORLD_SIZE", 1)
        return cls(device, int(rank), int(world))

    @contextmanager
    def joined(self, seconds: float = 60) -> Iterator[None]:
        """Within, it can talk to the others; one that is alone does nothing here.

        Raises ValueError naming the ranks that haven't come after `seconds`. Who waits
        longer for an answer later on gets a RuntimeError, at once where the other died.
        """
        check_between(0, above=True, seconds=seconds)
        if self.world == 1:
            yield
            return
        cuda, limit = self.device.startswith("cuda"), timedelta(seconds=seconds)
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            store=dist.PrefixStore("companion", self.meet(limit)),
            rank=self.rank,
            world_size=self.world,
            timeout=limit,
        )
        try:
            yield
            gc.collect()  # wrapped models go before the group, or the exit can hang
            dist.barrier()
        finally:
            dist.destroy_process_group()

    def meet(self, limit: timedelta) -> dist.Store:
        """The store where all ranks have said that they are there."""
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        torchruns = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        opens = self.rank == 0 and not torchruns
        came = [f"rank {rank} came" for rank in range(self.world)]
        try:
            store = dist.TCPStore(
                address, port, self.world, opens, limit, wait_for_workers=False
            )
            store.set(came[self.rank], "")
            store.wait(came, limit)
        except dist.DistNetworkError as error:
            raise ValueError(f"rank 0 can't be reached at {address}:{port}") from error
        except dist.DistStoreError:
            late = [rank for rank, word in enumerate(came) if not store.check([word])]
            raise ValueError(
                f"of {self.world} ranks these have not come after {limit}: {late}"
            ) from None
        return store


def bfloat16_is_faster(device: str) -> bool:
    """Whether the device multiplies bfloat16 by itself, and not by way of float32."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    by_vectors = torch.cpu._is_avx512_bf16_supported()
    return kind == "cpu" and (by_vectors or torch.cpu._is_amx_tile_supported())


def shard(model: nn.Module, world: int, kind: str) -> None:
    """Leave each of `world` ranks a part of every parameter; PyTorch fetches the rest.

    A block's weights are put together when it runs, and let go after it: stage 3 of
    Rajbhandari et al. 2020, by `fully_shard`. Gradients are averaged. Make the
    optimizer after this, for it is to keep the parts. `kind` is "cpu" or "cuda".
    """
    from torch.distributed.fsdp import fully_shard  # half a second, for few runs

    mesh = dist.init_device_mesh(kind, (world,))
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()
    for part in [*model.blocks, model]:
        fully_shard(part, mesh=mesh)


def whole(x: Tensor) -> Tensor:
    """x, with all its parts if it is sharded; then all ranks must ask."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def parted(x: Tensor, like: Tensor) -> Tensor:
    """x, or this rank's part of it where `like` is sharded; then all ranks must ask."""
    if not hasattr(like, "full_tensor"):
        return x
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x.to(like.device), like.device_mesh, like.placements)
