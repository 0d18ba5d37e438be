"""Devices: what a processor or a GPU can do. Chapters 05, 10 and 12."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

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


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Within, products of float32 have this precision; after, all is as it was."""
    own = torch.backends.mkldnn.matmul
    before = torch.get_float32_matmul_precision()
    own_before = own.fp32_precision
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        own.fp32_precision = own_before  # "none", which the line above doesn't leave


@cache
def onednn_is_as_exact() -> bool:
    """Returns whether oneDNN's products are float32's on this processor, too.

    PyTorch hands it products of float32 where their precision is "medium". That allows
    bfloat16, which oneDNN takes where a processor has tiles for it (AMX). So the errors
    of products are measured against float64, once in a process: bfloat16's are hundreds
    of times float32's. Without AVX-512 there is nothing to gain.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    generator = torch.Generator().manual_seed(0)
    for shape in ((256, 256), (8, 64, 64)):
        a = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        b = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        exact = a.double() @ b.double()
        errors = []
        for precision in ("highest", "medium"):
            with torch.no_grad(), matmul_precision(precision):
                errors.append((a @ b - exact).norm().item())
        if not errors[1] < 4 * errors[0]:
            return False
    return True


@contextmanager
def fast_products() -> Iterator[None]:
    """Within, oneDNN multiplies float32 where it is as exact as what does otherwise.

    With AVX-512 that may be more than twice as fast. It is for training, judging and
    long passes: a product of one row, as in decoding, takes two to four times as long,
    and PyTorch's fused attention five. `@fast_products()` may stand over a function.
    Nothing changes where oneDNN would be less exact, where somebody has chosen a
    precision, and beside an accelerator, whose products the choice would round.
    Chapter 05.
    """
    try:
        is_chosen = torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was chosen for one library, and not for another
        is_chosen = True
    if is_chosen or torch.accelerator.is_available() or not onednn_is_as_exact():
        yield
        return
    with matmul_precision("medium"):
        yield
