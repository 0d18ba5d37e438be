"""Weights laid out for the kernels that decode: floats, 4 and 8 bits. Chapters 10, 12.

In 4 bits PyTorch's kernel for few rows takes whole numbers from 0 to 15, with a scale
and an offset for each block of 32 inputs, and makes floats of them only where it
multiplies. A decoding step reads all weights once, so what counts is how few bytes they
are.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..device import bfloat16_is_faster
from ..inputs import check_tensor, shown
from ..model.blocks import is_plain_linear
from ..model.gpt import GPT
from ..training.processes import check_not_sharded
from .joined import join_layers

BLOCK = 32  # inputs that share a scale and an offset
GROUP = 64  # outputs that lie together in the kernel's own order
N_ROWS = 4 * GROUP  # outputs that are packed at once
Network = TypeVar("Network", bound=nn.Module)
# Which of the numbers 0 to 15, or 0 to 255, the kernel takes for 0: its own begin at
# -8. Of 8 bits both halves do, in 16 * high + low.
CENTER = {4: 8, 8: 16 * 8 + 8}


def linear_layers(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Returns each linear layer, after the part that holds it and its name there.

    One that isn't plain is none: it may compute something else. Raises ValueError for
    a model of which `shard` has left each rank a part.
    """
    check_not_sharded(model, "lay the whole model out to decode")
    layers = []
    for part in model.modules():
        for name, child in part.named_children():
            if is_plain_linear(child):
                layers.append((part, name, child))
    return layers


def private_operation(namespace: Any, name: str) -> Callable[..., Tensor]:
    """Returns one of PyTorch's own operations, which any version may do without.

    Raises ValueError where this one does.
    """
    operation = getattr(namespace, name, None)
    if operation is None:
        raise ValueError(
            f"PyTorch {torch.__version__} has no {name}, which lays weights out or"
            " multiplies by them: decode with the model as it is, without prepack or"
            " pack_weights"
        )
    return operation


def check_no_gradient(x: Tensor) -> None:
    """Raises ValueError where a gradient would have to come back through the kernel."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{shown(x)} needs a gradient, and these weights have none: they were laid"
            " out or packed to decode; train the model before, or use torch.no_grad()"
        )


class PrepackedLinear(nn.Module):
    """A linear layer, x (... i) -> (... o), whose weight lies as oneDNN wants it.

    Raises ValueError for an x that needs a gradient, when its state is asked for, and
    where PyTorch can't lay it out.
    """

    trainable = False  # so training and saving are refused

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.bias = layer.bias
        reorder = private_operation(torch.ops.mkldnn, "_reorder_linear_weight")
        self.weight = reorder(layer.weight.detach(), None)

    def _save_to_state_dict(self, destination, prefix: str, keep_vars: bool) -> None:
        raise ValueError(f"{prefix}weight is laid out to decode: save the model before")

    def forward(self, x: Tensor) -> Tensor:
        check_no_gradient(x)
        multiply = private_operation(torch.ops.mkldnn, "_linear_pointwise")
        return multiply(x, self.weight, self.bias, "none", [], "")


def prepack(model: GPT) -> GPT:
    """Lays linear layers out as oneDNN wants, to decode on a CPU. Returns the model.

    A product of few rows is then up to three times as fast, but in float32 with one
    thread one row gains nothing. The model can't be trained, copied or saved any more:
    none of its parameters has a gradient, and these raise. A tied output matrix lies in
    memory twice. Where oneDNN is missing, and for what is neither float32 nor bfloat16
    that the processor multiplies, nothing changes. Chapter 10.
    """
    dtypes = []
    if torch.backends.mkldnn.is_available():
        dtypes.append(torch.float32)
        # ONEDNN_MAX_CPU_ISA can forbid oneDNN what the processor has.
        is_allowed = private_operation(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
        if bfloat16_is_faster("cpu") and is_allowed():
            dtypes.append(torch.bfloat16)

    for part, name, layer in linear_layers(model):
        if layer.weight.is_cpu and layer.weight.dtype in dtypes:
            setattr(part, name, PrepackedLinear(layer).train(layer.training))

    if any(isinstance(part, PrepackedLinear) for part in model.modules()):
        model.requires_grad_(False)
    return model


def nearest_bfloat16(x: Tensor) -> Tensor:
    """Returns x rounded to bfloat16, in float32."""
    return x.bfloat16().float()


def in_blocks(weight: Tensor, n_bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts a weight (o i) into blocks of 32: weight = scale * number + minimum.

    Returns the numbers (o n 32), whole ones from 0 to 2^n_bits - 1, and each block's
    scale and minimum (o n 1). No weight is off by more than half a scale.

    The kernel stores a scale and an offset, the weight that the number at the CENTER
    stands for. Both are rounded to bfloat16; of 8 bits the offset is the sum of two
    such. The minimum follows from them. Weights that come from blocks of 4 bits, as
    GGUF's Q4_1, have their own numbers again. Chapter 12.
    """
    largest = 2**n_bits - 1
    center = CENTER[n_bits]
    blocks = weight.float().unflatten(1, (-1, BLOCK))
    minimums = blocks.amin(-1, keepdim=True)
    maximums = blocks.amax(-1, keepdim=True)

    # Scales and offsets as they are stored.
    exact_scales = (maximums - minimums) / largest
    scales = nearest_bfloat16(exact_scales)
    exact_offsets = minimums + center * exact_scales
    offsets = nearest_bfloat16(exact_offsets)
    if n_bits == 8:
        offsets = offsets + nearest_bfloat16(exact_offsets - offsets)

    # A number stands for half a scale to both sides. Where rounding has put the first
    # or the last weight beyond that, the scale must be larger, and is rounded up, by
    # bfloat16's largest step.
    to_lowest = (offsets - minimums) / (center + 0.5)
    to_highest = (maximums - offsets) / (largest - center + 0.5)
    needed = torch.maximum(to_lowest, to_highest)
    rounded_up = nearest_bfloat16(needed * (1 + 2**-7))
    scales = torch.where(scales < needed, rounded_up, scales)

    steps = (blocks - offsets) / scales.clamp(min=torch.finfo(torch.float32).tiny)
    numbers = (steps.round() + center).clamp(0, largest)
    return numbers.int(), scales, offsets - center * scales


def in_kernel_order(
    numbers: Tensor, scales: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Lays whole groups of rows out as the kernel wants them.

    Returns numbers of 4 bits, two a byte (o i/2), and for each block n a pair of scale
    and offset, in bfloat16 (n o 2).
    """
    convert = private_operation(torch, "_convert_weight_to_int4pack_for_cpu")
    pairs = torch.cat([scales, offsets], -1).transpose(0, 1)
    return convert(numbers.flatten(1), 1), pairs.bfloat16()


class PackedLinear(nn.Module):
    """A linear layer, x (... i) -> (... o), whose weight (o i) lies in 4 or 8 bits.

    No weight is off by more than half the scale that `in_blocks` gives its block. An
    8-bit number is two 4-bit ones, 16 · high + low: two products and their sum. The
    kernel rounds x and each product to bfloat16, and adds in float32; what goes in and
    out is of x's dtype. Raises ValueError for inputs that don't come in blocks of 32,
    for an x that needs a gradient, and where PyTorch has no such kernel.
    """

    trainable = False  # so training is refused, and `save_checkpoint`

    def __init__(self, weight: Tensor, bias: Tensor | None = None, n_bits: int = 4):
        super().__init__()
        check_tensor("floats", "o i", weight=weight)
        self.out_features, self.in_features = weight.shape
        if n_bits not in (4, 8):
            raise ValueError(f"n_bits is {n_bits!r}; it must be 4 or 8")
        if self.in_features % BLOCK:
            raise ValueError(
                f"the weight is {tuple(weight.shape)}; the kernel wants inputs in"
                f" blocks of {BLOCK}"
            )
        self.bias = bias
        self.n_bits = n_bits

        # Of 8 bits, the high halves of all numbers, and below them the low ones. Rows
        # of zeros fill the last group up.
        n_halves = n_bits // 4
        n_rows = self.out_features + -self.out_features % GROUP
        n_bytes = self.in_features // 2
        packed = torch.empty(n_halves, n_rows, n_bytes, dtype=torch.uint8)
        n_blocks = self.in_features // BLOCK
        pairs = torch.empty(n_blocks, n_halves, n_rows, 2, dtype=torch.bfloat16)

        # Few rows at a time, for what lies between takes many times the memory.
        for start in range(0, n_rows, N_ROWS):
            rows = weight[start : start + N_ROWS].detach()
            rows = F.pad(rows, (0, 0, 0, -len(rows) % GROUP))
            numbers, scales, minimums = in_blocks(rows, n_bits)
            offsets = minimums + CENTER[n_bits] * scales
            halves = [(numbers, scales, offsets)]
            if n_bits == 8:
                to_high = nearest_bfloat16(offsets)
                halves = [
                    (numbers >> 4, 16 * scales, to_high),
                    (numbers & 15, scales, offsets - to_high),
                ]
            place = slice(start, start + len(rows))
            for i, half in enumerate(halves):
                packed[i, place], pairs[:, i, place] = in_kernel_order(*half)
        self.register_buffer("packed", packed.flatten(0, 1))
        self.register_buffer("scales_and_offsets", pairs.flatten(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        check_no_gradient(x)

        # Rows of inputs, and pairs even of a model that was converted, in bfloat16.
        rows = x.bfloat16().reshape(-1, self.in_features).contiguous()
        pairs = self.scales_and_offsets.bfloat16()
        multiply = private_operation(torch, "_weight_int4pack_mm_for_cpu")
        product = multiply(rows, self.packed, BLOCK, pairs).to(x.dtype)

        # The halves of 8 bits are added, and the rows of zeros left out.
        if self.n_bits == 8:
            high, low = product.chunk(2, -1)
            product = high + low
        if product.shape[1] > self.out_features:
            product = product[:, : self.out_features]
        if self.bias is not None:
            product = product + self.bias
        return product.reshape(*x.shape[:-1], self.out_features)


def kernel_is_here() -> bool:
    """Returns whether PyTorch multiplies packed weights fast here.

    It does on an x86 processor, but not on Windows.
    """
    is_fast = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    is_known = hasattr(torch, "_weight_int4pack_mm_for_cpu")
    return is_fast and is_known and sys.platform != "win32"


def pack_weights(model: Network) -> Network:
    """Packs weights into 4 bits, the output matrix into 8. Returns the model itself.

    Attention and gated layers are joined first (`joined`): their parts then have other
    names. A layer whose inputs don't come in blocks of 32 stays as it is. Where the
    kernel is missing or slow, and where the weights aren't on the CPU, all do, and a
    warning says so. A packed model can't be trained: none of its parameters has a
    gradient. Raises ValueError for a model that `prepack` has laid out already.
    Chapter 12.
    """
    if any(isinstance(part, PrepackedLinear) for part in model.modules()):
        raise ValueError("the model is prepacked: pack its weights in place of that")
    is_on_cpu = all(layer.weight.is_cpu for _, _, layer in linear_layers(model))
    if not kernel_is_here() or not is_on_cpu:
        warnings.warn("no 4-bit kernel here: the weights run unpacked", stacklevel=2)
        return model

    def packed(layer: nn.Linear, n_bits: int = 4) -> PackedLinear:
        return PackedLinear(layer.weight, layer.bias, n_bits)

    def fits(layer: nn.Linear) -> bool:
        return layer.in_features % BLOCK == 0

    join_layers(model, packed, fits)
    paths = {id(part): path.split(".") for path, part in model.named_modules()}
    for part, name, layer in linear_layers(model):
        if fits(layer):
            # With an adapter the output matrix is `unembedding.layer`.
            n_bits = 8 if "unembedding" in paths[id(layer)] else 4
            setattr(part, name, packed(layer, n_bits).train(layer.training))

    if any(isinstance(part, PackedLinear) for part in model.modules()):
        model.requires_grad_(False)
    return model
