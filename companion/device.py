"""Devices: what a processor or a GPU can do. Chapters 05, 10 and 12."""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Returns x in float32, or in its own precision if that is higher.

    What is summed, divided or compared is computed so: bfloat16 has three digits.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def in_full_precision(x: Tensor) -> AbstractContextManager:
    """Returns a context in which autocast leaves products of x in its own precision."""
    if torch.amp.is_autocast_available(x.device.type):
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()


def is_joined() -> bool:
    """Returns whether this process is talking to others."""
    return dist.is_available() and dist.is_initialized()


def bfloat16_is_faster(device: str) -> bool:
    """Returns whether the device multiplies bfloat16 by itself, not by way of float32.

    Other devices than processors and CUDA's are taken for slower.
    """
    device_type = torch.device(device).type
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device_type == "cpu":
        has_vectors = torch.cpu._is_avx512_bf16_supported()
        has_tiles = torch.cpu._is_amx_tile_supported()
        return has_vectors or has_tiles
    return False
