"""Many processes: gradients, optimizer states, heads and texts in parts. Chapter 11.

Every function here is one rank's side, within `Process.joined`. `companion.rehearsal`
runs all of it.
"""

import math
from copy import deepcopy

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .attention import MultiHeadAttention, causal_mask
from .blocks import Block
from .inputs import check_attention, given
from .optimizers import AdamW


def pass_on(x: Tensor, like: Tensor | None = None) -> Tensor:
    """Send x to the next rank of the ring; what the one before sent, shaped `like`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(x if like is None else like)
    sent = dist.isend(x, (rank + 1) % world)
    dist.recv(arrived, (rank - 1) % world)
    sent.wait()
    return arrived


def ring_all_reduce(x: Tensor) -> Tensor:
    """The sum over all ranks of their x, of one shape everywhere.

    x goes round in as many parts as there are ranks: once to be added up, once more as
    sums. So each rank sends 2 (p - 1) / p of x's bytes. Patarasuk and Yuan 2009.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [*x.flatten().tensor_split(world)]
    for turn in range(2 * (world - 1)):
        sent, got = (rank - turn) % world, (rank - turn - 1) % world
        arrived = pass_on(parts[sent], parts[got])
        parts[got] = parts[got] + arrived if turn < world - 1 else arrived
    return torch.cat(parts).view(x.shape)


def average_gradients(model: nn.Module) -> None:
    """From now on `backward` leaves the mean of all ranks' gradients on each rank."""

    def average(parameter: Tensor) -> None:
        mean = ring_all_reduce(parameter.grad) / dist.get_world_size()
        parameter.grad.copy_(mean)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)


class ShardedAdamW(AdamW):
    """AdamW of which each rank keeps the running means of its own part, and moves it.

    A parameter is cut along its first axis. All ranks must have the same gradients
    (`average_gradients`). Rajbhandari et al. 2020, stage 1.
    """

    def __init__(self, params, **settings):
        super().__init__(params, **settings)
        self.mine: dict[Tensor, Tensor] = {}

    def update(self, parameters: list[Tensor], group: dict) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        for whole in parameters:
            part = whole.detach().tensor_split(world)[rank]  # it shares whole's memory
            part = self.mine.setdefault(whole, part)
            part.grad = whole.grad.tensor_split(world)[rank]
        super().update([self.mine[whole] for whole in parameters], group)
        for whole in parameters:
            for owner, part in enumerate(whole.tensor_split(world)):
                moved = part.contiguous()
                dist.broadcast(moved, owner)
                part.copy_(moved)


class HandOut(torch.autograd.Function):
    """The same x for all ranks' parts; on the way back their gradients add up."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, d_x):
        return ring_all_reduce(d_x)


class AddUp(torch.autograd.Function):
    """The sum of what all ranks' parts give; on the way back each has its gradient."""

    @staticmethod
    def forward(ctx, x):
        return ring_all_reduce(x)

    @staticmethod
    def backward(ctx, d_x):
        return d_x


class Branch(nn.Module):
    """A rank's part of attention or feed-forward; forward, one all-reduce.

    Shoeybi et al. 2019, section 3.
    """

    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def forward(self, x: Tensor, **how) -> Tensor:
        return AddUp.apply(self.part(HandOut.apply(x), **how))


def cut(layer: nn.Linear, axis: int, rank: int, world: int) -> None:
    """Leave a rank's share of a layer: of its outputs (axis 0) or its inputs (1).

    What reads a share of the inputs gives a part of a sum; rank 0 alone adds the bias.
    """
    if layer.weight.shape[axis] % world:
        raise ValueError(
            f"{layer.weight.shape[axis]} features are not divisible by {world} ranks"
        )
    share = layer.weight.detach().chunk(world, axis)[rank]
    layer.weight = nn.Parameter(share.clone())
    layer.out_features, layer.in_features = share.shape
    if layer.bias is not None and axis == 0:
        layer.bias = nn.Parameter(layer.bias.detach().chunk(world)[rank].clone())
    elif rank:
        layer.bias = None


def cut_attention(whole: MultiHeadAttention, rank: int, world: int) -> Branch:
    """A rank's heads of an attention layer; a cache will hold their keys alone.

    Raises ValueError where its heads of queries or keys are not divisible.
    """
    n_kv_heads = whole.n_heads // whole.n_shared
    for name, n in (("n_heads", whole.n_heads), ("n_kv_heads", n_kv_heads)):
        if n % world:
            raise ValueError(f"{name} ({n}) is not divisible by {world} ranks")
    part = deepcopy(whole)
    part.n_heads //= world
    for layer in (part.to_queries, part.to_keys, part.to_values):
        cut(layer, 0, rank, world)
    cut(part.to_output, 1, rank, world)
    return Branch(part)


def cut_feed_forward(whole: nn.Module, rank: int, world: int) -> Branch:
    """A rank's hidden features of a feed-forward layer, plain or gated."""
    part = deepcopy(whole)
    for name, layer in part.named_children():
        if isinstance(layer, nn.Linear):
            cut(layer, int(name == "to_output"), rank, world)
    return Branch(part)


def cut_blocks(model: nn.Module) -> nn.Module:
    """The model with this rank's heads and hidden features; all else is everywhere.

    Raises ValueError for a model without blocks, or with what is not divisible.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    model = deepcopy(model)
    blocks = [module for module in model.modules() if type(module) is Block]
    if not blocks:
        raise ValueError(f"{given(model)} has no blocks to cut")
    for block in blocks:
        block.attention = cut_attention(block.attention, rank, world)
        block.feed_forward = cut_feed_forward(block.feed_forward, rank, world)
    return model


def block(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention to some of the keys: largest score, sum and output, not divided yet."""
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    largest = scores.amax(-1, keepdim=True)
    weights = (scores - largest).exp()
    return largest, weights.sum(-1, keepdim=True), weights @ values


def merge(one: tuple[Tensor, ...], two: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Two of `block`'s answers as one, each by its own largest score. Chapter 09."""
    largest = torch.maximum(one[0], two[0])
    shrink_one, shrink_two = (one[0] - largest).exp(), (two[0] - largest).exp()
    total = shrink_one * one[1] + shrink_two * two[1]
    return largest, total, shrink_one * one[2] + shrink_two * two[2]


def ring_attention(
    queries: Tensor, keys: Tensor, values: Tensor, causal: bool = True
) -> Tensor:
    """Attention over a text of which each rank holds one of p equal parts, in order.

    Queries (b h t d) stay, keys and values go round the ring. Exact, forward only.
    Liu et al. 2023.
    """
    check_attention(queries, keys, values, None, None)
    rank, world = dist.get_rank(), dist.get_world_size()
    mask = causal_mask(*queries.shape[-2:-1], device=queries.device) if causal else None
    found = block(queries, keys, values, mask)
    for turn in range(1, world):
        keys, values = pass_on(keys), pass_on(values)
        if turn <= rank or not causal:  # else they are of a later part
            found = merge(found, block(queries, keys, values))
    return found[2] / found[1]
