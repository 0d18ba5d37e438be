"""Many processes: gradients, optimizer states, heads and texts in parts. Chapter 11.

Every function here is one rank's side, within `Process.joined`.
`companion.course.parallel_demo` runs all of it.
"""

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..model.attention import MultiHeadAttention, causal_mask
from ..model.flash_attention import block_scores
from .optimizers import AdamW
from .processes import widened


def send_to_next(x: Tensor, like: Tensor | None = None) -> Tensor:
    """Send x to the next rank of the ring; what the one before sent, shaped `like`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    arrived = x.new_empty((x if like is None else like).shape)
    sent = dist.isend(x.contiguous(), (rank + 1) % world)
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
        arrived = send_to_next(parts[sent], parts[got])
        parts[got] = parts[got] + arrived if turn < world - 1 else arrived
    return torch.cat(parts).view(x.shape)


def average_gradients(model: nn.Module) -> None:
    """From now on `backward` leaves the mean of all ranks' gradients on each rank."""

    def average(parameter: Tensor) -> None:
        parameter.grad = ring_all_reduce(parameter.grad) / dist.get_world_size()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)


class ShardedAdamW(AdamW):
    """AdamW of which each rank keeps the running means of its own part, and moves it.

    A parameter is cut along its first axis. All ranks must have the same gradients
    (`average_gradients`). Rajbhandari et al. 2020, stage 1.
    """

    def __init__(self, params, **settings):
        super().__init__(params, **settings)
        self.own_parts: dict[Tensor, Tensor] = {}

    def update(self, parameters: list[Tensor], group: dict) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        for whole in parameters:
            part = whole.detach().tensor_split(world)[rank]  # it shares whole's memory
            part = self.own_parts.setdefault(whole, part)
            part.grad = whole.grad.tensor_split(world)[rank]
        super().update([self.own_parts[whole] for whole in parameters], group)
        for whole in parameters:
            for owner, part in enumerate(whole.tensor_split(world)):
                dist.broadcast(part, owner)


class AllReduce(torch.autograd.Function):
    """The sum of what all ranks' parts give; on the way back each has its gradient."""

    @staticmethod
    def forward(ctx, x):
        return ring_all_reduce(x)

    @staticmethod
    def backward(ctx, d_x):
        return d_x


class TensorParallel(nn.Module):
    """A rank's part of a layer; an all-reduce each way. Shoeybi et al. 2019."""

    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def forward(self, x: Tensor, **how) -> Tensor:
        x = x.view_as(x)
        if x.requires_grad:  # each rank's part has a share in its gradient
            x.register_hook(ring_all_reduce)
        return AllReduce.apply(self.part(x, **how))


def shard_feed_forward(whole: nn.Module, rank: int, world: int) -> TensorParallel:
    """A rank's hidden features of a feed-forward layer, plain or gated.

    Each of its matrices keeps a share of its outputs, only `to_output` one of its
    inputs. This gives a part of a sum, to which rank 0 alone adds the bias.
    """
    part = deepcopy(whole)
    matrices = {n: x for n, x in part.named_children() if isinstance(x, nn.Linear)}
    for name, layer in matrices.items():
        axis, bias = int(name == "to_output"), layer.bias
        if (n := layer.weight.shape[axis]) % world:
            raise ValueError(f"{n} features are not divisible by {world} ranks")
        share = layer.weight.detach().chunk(world, axis)[rank]
        layer.weight = nn.Parameter(share.clone())
        layer.out_features, layer.in_features = share.shape
        if axis == 0 and bias is not None:
            layer.bias = nn.Parameter(bias.detach().chunk(world)[rank].clone())
        elif rank:
            layer.bias = None
    return TensorParallel(part)


def shard_attention(whole: MultiHeadAttention, rank: int, world: int) -> TensorParallel:
    """A rank's heads of an attention layer; a cache will hold their keys alone."""
    heads = {
        "n_heads": whole.n_heads,
        "n_kv_heads": whole.n_heads // whole.n_heads_per_kv_head,
    }
    for name, n in heads.items():
        if n % world:
            raise ValueError(f"{name} ({n}) is not divisible by {world} ranks")
    branch = shard_feed_forward(whole, rank, world)
    branch.part.n_heads //= world
    return branch


def shard_blocks(model: nn.Module) -> nn.Module:
    """The model with this rank's heads and hidden features; all else is everywhere."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = deepcopy(model)
    for block in model.blocks:
        block.attention = shard_attention(block.attention, rank, world)
        block.feed_forward = shard_feed_forward(block.feed_forward, rank, world)
    return model


def partial_attention(queries: Tensor, keys: Tensor, values: Tensor, mask=None):
    """Attention to some of the keys: largest score, sum and output, not divided yet.

    All three are summed in float32 where the queries have 16 bits.
    """
    scores = widened(block_scores(queries, keys, mask, slice(None)))
    largest = scores.amax(-1, keepdim=True)
    weights = (scores - largest).exp()
    return largest, weights.sum(-1, keepdim=True), weights @ widened(values)


def merge_partials(one: tuple, two: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """Two of `partial_attention`'s answers as one, by the larger score. Chapter 09."""
    largest = torch.maximum(one[0], two[0])
    shrink_one, shrink_two = (one[0] - largest).exp(), (two[0] - largest).exp()
    total = shrink_one * one[1] + shrink_two * two[1]
    return largest, total, shrink_one * one[2] + shrink_two * two[2]


def ring_attention(
    queries: Tensor, keys: Tensor, values: Tensor, causal=True
) -> Tensor:
    """Attention over a text of which each rank holds one of p equal parts, in order.

    Queries (b h t d) stay, keys and values go round the ring. Exact, forward only.
    Liu et al. 2023.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    mask = causal_mask(*queries.shape[-2:-1], device=queries.device) if causal else None
    found = partial_attention(queries, keys, values, mask)
    for turn in range(1, world):
        keys, values = send_to_next(keys), send_to_next(values)
        if turn <= rank or not causal:  # otherwise they are of a later part
            found = merge_partials(found, partial_attention(queries, keys, values))
    return (found[2] / found[1]).to(queries.dtype)
