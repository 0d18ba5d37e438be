"""Weights laid out for the kernels that decode: floats, 4 and 8 bits. Chapters 10, 12.

In 4 bits PyTorch's kernel for few rows takes whole numbers from 0 to 15, with a scale
and an offset for each block of 32 inputs, and makes floats of them only where it
multiplies. A decoding step reads all weights once, so what counts is how few bytes they
are.
"""

import sys
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..device import bfloat16_is_faster
from ..inputs import check_tensor, shown
from ..model.gpt import GPT

BLOCK = 32


def linear_layers(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Each linear layer, after the part that holds it and its name there.

    A class that extends nn.Linear is none: it may compute something else.
    """
    pairs = (
        (part, child) for part in model.modules() for child in part.named_children()
    )
    return [(part, name, x) for part, (name, x) in pairs if type(x) is nn.Linear]


def check_no_gradient(x: Tensor) -> None:
    """ValueError where a gradient would have to come back through the kernel."""
    if torch.is_grad_enabled():
        raise ValueError(
            f"{shown(x)} needs a gradient, and these weights have none: they were laid"
            " out or packed to decode; train the model before, or use torch.no_grad()"
        )


class PrepackedLinear(nn.Module):
    """A linear layer, x (... i) -> (... o), whose weight lies as oneDNN wants it.

    Raises ValueError for an x that needs a gradient, and when its state is asked for.
    """

    trainable = False

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.bias, weight = layer.bias, layer.weight.detach()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def _save_to_state_dict(self, destination, prefix: str, keep_vars: bool) -> None:
        raise ValueError(f"{prefix}weight is laid out to decode: save the model before")

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            check_no_gradient(x)
        multiply = torch.ops.mkldnn._linear_pointwise
        return multiply(x, self.weight, self.bias, "none", [], "")


def prepack(model: GPT) -> GPT:
    """The model itself, its linear layers in oneDNN's layout: to decode on a CPU.

    A product of few rows is then up to three times as fast, but in float32 with one
    thread one row gains nothing. The model can't be trained, copied or saved any more:
    none of its parameters has a gradient, and these raise. A tied output matrix lies in
    memory twice. Where oneDNN is missing, and for what is neither float32 nor bfloat16
    that the processor multiplies, nothing changes.
    """
    known = {torch.float32} if torch.backends.mkldnn.is_available() else set()
    if known and bfloat16_is_faster("cpu"):
        known.add(torch.bfloat16)
    for part, name, x in linear_layers(model):
        if x.weight.is_cpu and x.weight.dtype in known:
            setattr(part, name, PrepackedLinear(x).train(x.training))
    if any(isinstance(part, PrepackedLinear) for part in model.modules()):
        model.requires_grad_(False)
    return model


def nearest_bfloat16(x: Tensor) -> Tensor:
    """x rounded to bfloat16, in float32."""
    return x.bfloat16().float()


def in_blocks(weight: Tensor, n_bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers (o n 32) from 0 to 2^n_bits - 1, scales and lows (o n 1).

    A weight (o i) of a block of 32 is scale · number + low, to half a scale. Both are
    as the kernel stores them: the scale in bfloat16, and so the middle of the numbers,
    low + 8 · scale; with 8 bits that is low + 136 · scale, as the sum of two. A scale
    is at most range / (2^n_bits - 1) of its block and a 64th more, to which 4 bits add
    2^-10 of the largest weight, as the middle of weights far from zero is coarse.
    Weights of blocks of 4 bits, as GGUF's Q4_1, have their own numbers again.
    """
    blocks = weight.float().unflatten(1, (-1, BLOCK))
    lows, highs = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    largest = 2**n_bits - 1
    middle = 8 if n_bits == 4 else 136  # the number; 136 is 8 and 8 in the two parts

    # Scales and middles as they are stored.
    exact_scales = (highs - lows) / largest
    scales = nearest_bfloat16(exact_scales)
    exact_middles = lows + middle * exact_scales
    middles = nearest_bfloat16(exact_middles)
    if n_bits == 8:
        middles = middles + nearest_bfloat16(exact_middles - middles)

    # A number stands for half a scale to both sides. Where rounding has put the first
    # or the last weight beyond that, the scale must be larger, and is rounded up.
    to_lowest = (middles - lows) / (middle + 0.5)
    to_highest = (highs - middles) / (largest - middle + 0.5)
    needed = torch.maximum(to_lowest, to_highest)
    rounded_up = nearest_bfloat16(needed * (1 + 2**-7))
    scales = torch.where(scales < needed, rounded_up, scales)

    steps = (blocks - middles) / scales.clamp(min=torch.finfo(torch.float32).tiny)
    numbers = (steps.round() + middle).clamp(0, largest)
    return numbers.int(), scales, middles - middle * scales


class PackedLinear(nn.Module):
    """A linear layer, x (... i) -> (... o), whose weight (o i) lies in 4 or 8 bits.

    No weight is off by more than half the scale that `in_blocks` gives its block. An
    8-bit number is two 4-bit ones, 16 · high + low: two products and their sum. The
    kernel rounds x and each product to bfloat16, and adds in float32; what goes in and
    out is of x's dtype. Raises ValueError for inputs that don't come in blocks of 32,
    and for an x that needs a gradient.
    """

    trainable = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None, n_bits: int = 4):
        super().__init__()
        check_tensor("floats", "o i", weight=weight)
        self.out_features, self.in_features = shape = tuple(weight.shape)
        if n_bits not in (4, 8):
            raise ValueError(f"n_bits is {n_bits!r}; it must be 4 or 8")
        if self.in_features % BLOCK:
            wanted = f"the kernel wants inputs in blocks of {BLOCK}"
            raise ValueError(f"the weight is {shape}; {wanted}")
        self.bias, self.n_bits = bias, n_bits
        # The kernel wants outputs in sixteens: rows of zeros fill the last ones up.
        weight = F.pad(weight.detach(), (0, 0, 0, -self.out_features % 16))
        numbers, scales, lows = in_blocks(weight, n_bits)

        # The kernel's numbers are -8 to 7, so its offset is what 8 stands for here.
        if n_bits == 4:
            parts = [(numbers, scales, lows + 8 * scales)]
        else:
            middles = lows + 136 * scales
            rounded = nearest_bfloat16(middles)
            high = (numbers >> 4, 16 * scales, rounded)
            low = (numbers & 15, scales, middles - rounded)
            parts = [high, low]

        numbers = torch.cat([part.flatten(1) for part, _, _ in parts])
        pairs = torch.cat([torch.cat([s, offset], -1) for _, s, offset in parts])
        packed = torch._convert_weight_to_int4pack_for_cpu(numbers, 1)
        self.register_buffer("packed", packed)
        self.register_buffer("pairs", pairs.transpose(0, 1).bfloat16().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            check_no_gradient(x)
        rows = x.bfloat16().reshape(-1, self.in_features).contiguous()
        multiply = torch._weight_int4pack_mm_for_cpu
        product = multiply(rows, self.packed, BLOCK, self.pairs.bfloat16()).to(x.dtype)
        if self.n_bits == 8:
            high, low = product.chunk(2, -1)
            product = high + low
        if product.shape[1] > self.out_features:
            product = product[:, : self.out_features]
        if self.bias is not None:
            product = product + self.bias
        return product.reshape(*x.shape[:-1], self.out_features)


def kernel_is_here() -> bool:
    """Whether PyTorch multiplies packed weights fast: an x86 processor, no Windows."""
    fast = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    known = hasattr(torch, "_weight_int4pack_mm_for_cpu")
    return fast and known and sys.platform != "win32"


def pack_weights(model: GPT) -> GPT:
    """The model itself, its weights in 4-bit blocks and the output matrix in 8 bits.

    A layer whose inputs don't come in blocks of 32 stays as it is. Where the kernel is
    missing or slow, and where the weights aren't on the CPU, all do, and a warning says
    so. A packed model can't be trained: none of its parameters has a gradient.
    """
    on_cpu = all(x.weight.is_cpu for _, _, x in linear_layers(model))
    if not (kernel_is_here() and on_cpu):
        warnings.warn("no 4-bit kernel here: the weights run unpacked", stacklevel=2)
        return model
    for part, name, x in linear_layers(model):
        if x.in_features % BLOCK == 0:
            n_bits = 8 if name == "unembedding" else 4
            layer = PackedLinear(x.weight, x.bias, n_bits)
            setattr(part, name, layer.train(x.training))
    if any(isinstance(part, PackedLinear) for part in model.modules()):
        model.requires_grad_(False)
    return model
