"""Many processes: gradients, optimizer states, heads and texts in parts. Chapter 11.

Every function here is one rank's side, within `Process.joined`.
`companion.course.parallel_demo` runs all of it.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from ..device import at_least_float32
from ..model.attention import MultiHeadAttention, causal_mask
from ..model.flash_attention import block_scores
from .optimizers import AdamW


def send_to_next(x: Tensor, like: Tensor | None = None) -> Tensor:
    """Sends x to the next rank of the ring. Returns what the one before has sent.

    That has the shape of `like`, by default of x.
    """
    rank = dist.get_rank()
    world = dist.get_world_size()
    shape = x.shape if like is None else like.shape
    arrived = x.new_empty(shape)

    # To send without waiting, or all would wait for each other.
    sending = dist.isend(x.contiguous(), (rank + 1) % world)
    dist.recv(arrived, (rank - 1) % world)
    sending.wait()
    return arrived


def ring_all_reduce(x: Tensor) -> Tensor:
    """Returns the sum over all ranks of their x, of one shape everywhere.

    x goes round in as many parts as there are ranks: once to be added up, once more as
    sums. So each rank sends 2 (p - 1) / p of x's bytes. Patarasuk and Yuan 2009.
    """
    rank = dist.get_rank()
    world = dist.get_world_size()
    parts = list(x.flatten().tensor_split(world))
    for turn in range(2 * (world - 1)):
        to_send = (rank - turn) % world
        to_receive = (rank - turn - 1) % world
        arrived = send_to_next(parts[to_send], like=parts[to_receive])
        if turn < world - 1:  # the first time round
            parts[to_receive] = parts[to_receive] + arrived
        else:
            parts[to_receive] = arrived
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

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
        self.own_parts: dict[Tensor, Tensor] = {}

    def update(self, parameters: list[Tensor], group: dict) -> None:
        """Moves this rank's parts, and fetches the others' from their ranks."""
        rank = dist.get_rank()
        world = dist.get_world_size()

        # A part shares its parameter's memory; AdamW finds its state by it.
        own_parts = []
        for p in parameters:
            if p not in self.own_parts:
                self.own_parts[p] = p.detach().tensor_split(world)[rank]
            part = self.own_parts[p]
            part.grad = p.grad.tensor_split(world)[rank]
            own_parts.append(part)
        super().update(own_parts, group)

        for p in parameters:
            for part_rank, part in enumerate(p.tensor_split(world)):
                dist.broadcast(part, part_rank)


class AllReduce(torch.autograd.Function):
    """The sum of what all ranks' parts give; on the way back each has its gradient."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        """Returns the sum over all ranks."""
        return ring_all_reduce(x)

    @staticmethod
    def backward(ctx: FunctionCtx, d_x: Tensor) -> Tensor:
        """Returns the sum's gradient: each summand has the same."""
        return d_x


class TensorParallel(nn.Module):
    """A rank's part of a layer; an all-reduce each way. Shoeybi et al. 2019."""

    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """Computes the whole layer's output (b t c), with the layer's own options."""
        x = x.view_as(x)  # a tensor of its own: the hook is not meant for the caller's
        if x.requires_grad:  # each rank's part has a share in its gradient
            x.register_hook(ring_all_reduce)
        return AllReduce.apply(self.part(x, **options))


def shard_feed_forward(whole: nn.Module, rank: int, world: int) -> TensorParallel:
    """Returns a rank's hidden features of a feed-forward layer, plain or gated.

    Each of its matrices keeps a share of its outputs, only `to_output` one of its
    inputs. This gives a part of a sum, to which rank 0 alone adds the bias. Raises
    ValueError for features that `world` ranks can't share evenly.
    """
    part = deepcopy(whole)
    for name, layer in part.named_children():
        if not isinstance(layer, nn.Linear):
            continue

        # A weight is (outputs inputs).
        axis = 1 if name == "to_output" else 0
        n_features = layer.weight.shape[axis]
        if n_features % world != 0:
            raise ValueError(
                f"{n_features} features are not divisible by {world} ranks"
            )
        share = layer.weight.detach().chunk(world, axis)[rank]
        layer.weight = nn.Parameter(share.clone())
        layer.out_features, layer.in_features = share.shape

        if layer.bias is None:
            continue
        if axis == 0:
            share = layer.bias.detach().chunk(world)[rank]
            layer.bias = nn.Parameter(share.clone())
        elif rank > 0:
            layer.bias = None
    return TensorParallel(part)


def shard_attention(whole: MultiHeadAttention, rank: int, world: int) -> TensorParallel:
    """Returns a rank's heads of an attention layer; a cache will hold their keys alone.

    Raises ValueError for heads that `world` ranks can't share evenly.
    """
    n_kv_heads = whole.n_heads // whole.n_heads_per_kv_head
    for name, n in (("n_heads", whole.n_heads), ("n_kv_heads", n_kv_heads)):
        if n % world != 0:
            raise ValueError(f"{name} ({n}) is not divisible by {world} ranks")

    # Its matrices are cut as a feed-forward layer's are.
    layer = shard_feed_forward(whole, rank, world)
    layer.part.n_heads = whole.n_heads // world
    return layer


def shard_blocks(model: nn.Module) -> nn.Module:
    """Returns the model with this rank's heads and hidden features.

    All else is everywhere.
    """
    rank = dist.get_rank()
    world = dist.get_world_size()
    model = deepcopy(model)
    for block in model.blocks:
        block.attention = shard_attention(block.attention, rank, world)
        block.feed_forward = shard_feed_forward(block.feed_forward, rank, world)
    return model


class PartialAttention(NamedTuple):
    """Attention to some of the keys, not divided by its sum yet."""

    largest: Tensor  # (b h t 1): each query's largest score
    total: Tensor  # (b h t 1): the sum of exp(score - largest)
    output: Tensor  # (b h t d): the values, weighted by exp(score - largest)


def partial_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
) -> PartialAttention:
    """Computes attention to some of the keys: all that is needed to add the others.

    Queries (b h t d), keys and values (b h s d), mask (t s). All is summed in float32
    where the queries have 16 bits. Milakov and Gimelshein 2018. Chapter 09.
    """
    scores = at_least_float32(block_scores(queries, keys, mask, slice(None)))
    largest = scores.amax(-1, keepdim=True)
    # Where a query may look at none of the keys, all is -inf: that gives 0, not NaN.
    finite = largest.clamp(min=torch.finfo(largest.dtype).min)
    weights = (scores - finite).exp()
    return PartialAttention(
        largest=largest,
        total=weights.sum(-1, keepdim=True),
        output=weights @ at_least_float32(values),
    )


def merge_partials(
    first: PartialAttention, second: PartialAttention
) -> PartialAttention:
    """Returns attention to the keys of both, measured by the larger score.

    Chapter 09.
    """
    largest = torch.maximum(first.largest, second.largest)
    finite = largest.clamp(min=torch.finfo(largest.dtype).min)
    first_scale = (first.largest - finite).exp()
    second_scale = (second.largest - finite).exp()
    return PartialAttention(
        largest=largest,
        total=first_scale * first.total + second_scale * second.total,
        output=first_scale * first.output + second_scale * second.output,
    )


def ring_attention(
    queries: Tensor, keys: Tensor, values: Tensor, causal: bool = True
) -> Tensor:
    """Computes attention over a text of which each rank holds one of p equal parts.

    The ranks hold them in order. Queries (b h t d) stay, keys and values (b h t d) go
    round the ring. Exact, forward only. Liu et al. 2023.
    """
    rank = dist.get_rank()
    world = dist.get_world_size()

    # A rank's own part, of which a query sees what is before it.
    mask = None
    if causal:
        mask = causal_mask(queries.shape[-2], device=queries.device)
    result = partial_attention(queries, keys, values, mask)

    # The others' parts, that of the rank before first.
    for turn in range(1, world):
        keys = send_to_next(keys)
        values = send_to_next(values)
        is_later = turn > rank
        if causal and is_later:
            continue
        result = merge_partials(result, partial_attention(queries, keys, values))
    return (result.output / result.total).to(queries.dtype)
