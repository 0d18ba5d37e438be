"""Many processes: gradients, optimizer states, heads and texts in parts. Chapter 11.

Every function here is one rank's side, within `Process.joined`.
`companion.course.parallel_demo` runs all of it.
"""

from collections.abc import Collection
from copy import deepcopy
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from ..device import at_least_float32
from ..inputs import check_between, check_whole
from ..model.attention import MultiHeadAttention, causal_mask
from ..model.blocks import FEED_FORWARDS, is_plain_linear
from ..model.scores import attention_scores
from .optimizers import AdamW
from .processes import blocks_of, check_not_sharded, is_sharded

Layer = TypeVar("Layer", bound=nn.Module)


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
    assert sending is not None  # None only where this rank is not in the group
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
    """From now on `backward` leaves the mean of all ranks' gradients on each rank.

    It does for the parameters that the model has now, those too that are frozen and
    will learn later; adapters are put in before. Raises ValueError for a model of which
    `shard` has left each rank a part: PyTorch averages its gradients already.
    """
    check_not_sharded(model, "its gradients are averaged already")

    def average(parameter: Tensor) -> None:
        assert parameter.grad is not None  # it has just been made
        parameter.grad = ring_all_reduce(parameter.grad) / dist.get_world_size()

    for parameter in model.parameters():
        if not parameter.is_floating_point():
            continue  # it never has a gradient
        # PyTorch takes a hook only where a gradient is wanted.
        is_learning = parameter.requires_grad
        parameter.requires_grad_(True)
        parameter.register_post_accumulate_grad_hook(average)
        parameter.requires_grad_(is_learning)


class ShardedAdamW(AdamW):
    """AdamW of which each rank keeps the running means of its own part, and moves it.

    A parameter is cut along its first axis. All ranks must have the same gradients
    (`average_gradients`). It is neither saved nor loaded: a rank's part of the means is
    not an optimizer's state. Raises ValueError for that, and for a parameter of which
    `shard` has left each rank a part. Rajbhandari et al. 2020, stage 1.
    """

    def __init__(self, *settings: Any, **named_settings: Any):
        super().__init__(*settings, **named_settings)
        # Each parameter's part that this rank moves, as of the last step.
        self.own_parts: dict[Tensor, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Without them a copy would not find the running means, and begin anew.
        return super().__getstate__() | {"own_parts": self.own_parts}

    def state_dict(self) -> NoReturn:
        """Raises ValueError: PyTorch's form has a place for whole parameters alone."""
        raise ValueError(
            "ShardedAdamW keeps state of a part of each parameter, which can't be saved"
            " or loaded: for a run that goes on later take AdamW"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> NoReturn:
        """Raises ValueError: it would not find the running means, and begin anew."""
        self.state_dict()

    def add_param_group(self, param_group: dict) -> None:
        """Adds parameters, as PyTorch's own. Raises ValueError for parts of some."""
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if is_sharded(p):
                raise ValueError(
                    f"of a parameter of shape {tuple(p.shape)} this rank holds a part"
                    " alone (`shard`), and its optimizer's numbers with it: use AdamW"
                )

    def update(self, parameters: list[Tensor], group: dict) -> None:
        """Moves this rank's parts, and fetches the others' from their ranks."""
        rank = dist.get_rank()
        world = dist.get_world_size()

        # A part shares its parameter's memory, which may be another than in the last
        # step: weights are swapped, moved, converted. AdamW finds its state by it.
        moved = []
        for p in parameters:
            share = cut(p.detach(), world)[rank]
            part = self.own_parts.setdefault(p, share)
            part.data = share
            assert p.grad is not None  # as `step` has made sure
            part.grad = cut(p.grad, world)[rank]
            moved.append(part)
        super().update(moved, group)

        for p in parameters:
            for part_rank, part in enumerate(cut(p, world)):
                sent = part.contiguous()
                dist.broadcast(sent, part_rank)
                if sent is not part:  # gloo takes no turned matrix
                    part.copy_(sent)


def cut(x: Tensor, world: int) -> tuple[Tensor, ...]:
    """Returns views of x, one for each rank, cut along its first axis."""
    return torch.atleast_1d(x).tensor_split(world)


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

    gathered = False  # so saving is refused

    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """Computes the whole layer's output (b t c), with the layer's own options."""
        return AllReduce.apply(self.part(sum_gradients(x), **options))


class TensorParallelAttention(TensorParallel):
    """A rank's heads of an attention layer: of `n_heads` those of its `rank`."""

    def __init__(self, part: MultiHeadAttention, n_heads: int, rank: int):
        super().__init__(part)
        self.n_heads = n_heads
        self.n_own_heads = part.n_heads
        self.rank = rank

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """Computes the whole layer's output (b t c), with the layer's own options.

        Of a mask with a row for each head (b h t s) it takes those of its heads. Raises
        ValueError for keys and values that were made before.
        """
        if isinstance(context, tuple):
            raise ValueError(
                "the context is keys and values of all heads, of which this rank has"
                f" {self.n_own_heads} of {self.n_heads}: give the context itself"
            )
        if context is not None:
            context = sum_gradients(context)
        if isinstance(mask, Tensor):
            mask = sum_gradients(mask)  # T5's bias learns
            if mask.dim() >= 3 and mask.shape[-3] == self.n_heads:
                first = self.rank * self.n_own_heads
                mask = mask.narrow(-3, first, self.n_own_heads)
        return super().forward(x, context=context, mask=mask, **options)


def sum_gradients(x: Tensor) -> Tensor:
    """Returns x, whose gradient is the sum of those that all ranks' parts give it."""
    x = x.view_as(x)  # a tensor of its own: the hook is not meant for the caller's
    if x.requires_grad:
        x.register_hook(ring_all_reduce)
    return x


def check_can_be_cut(
    layer: nn.Module, classes: Collection[type], name: str = "the layer"
) -> None:
    """Raises ValueError, by name, for a layer whose parts wouldn't add up.

    It must be of one of these classes, and all in it plain linear layers: one with an
    adapter, packed, sharded or with something of its own would be cut wrongly.
    """
    known = " or ".join(each.__name__ for each in classes)
    if type(layer) not in classes:
        raise ValueError(
            f"{name} is a {type(layer).__name__}, and only a {known} is cut here"
        )
    if layer._forward_hooks or layer._forward_pre_hooks:
        raise ValueError(f"{name} has a hook, which would see a part: cut it before")
    for own_name, child in layer.named_children():
        is_pattern = type(child) is nn.Identity  # of attention, which has no weight
        if not is_pattern and not is_plain_linear(child):
            raise ValueError(
                f"{name}.{own_name} is a {type(child).__name__} that isn't plain, and"
                " only plain linear layers are cut here: merge adapters, and cut before"
                " anything is packed or hooked"
            )
    check_not_sharded(layer, "cut the whole model, or leave it so")


def shard_feed_forward(whole: nn.Module, rank: int, world: int) -> TensorParallel:
    """Returns a rank's hidden features of a feed-forward layer, plain or gated.

    What it returns gives the whole layer's output, of a part of the work. Raises
    ValueError for features that `world` ranks can't share evenly, and for a layer that
    isn't plain: with adapters, packed, or of another class.
    """
    check_can_be_cut(whole, [*FEED_FORWARDS.values()])
    return TensorParallel(part_of(whole, rank, world))


def part_of(whole: Layer, rank: int, world: int) -> Layer:
    """Returns a layer with a rank's share of each of its linear layers.

    Each of its matrices keeps a share of its outputs, only `to_output` one of its
    inputs. This gives a part of a sum, to which rank 0 alone adds the bias. Raises
    ValueError for features that `world` ranks can't share evenly.
    """
    check_whole(world=world)
    check_whole(0, rank=rank)
    check_between(0, world - 1, rank=rank)
    part = deepcopy(whole)
    for name, layer in part.named_children():
        if not is_plain_linear(layer):
            continue  # attention's pattern, as `check_can_be_cut` has made sure

        # A weight is (outputs inputs).
        axis = 1 if name == "to_output" else 0
        n_features = layer.weight.shape[axis]
        if n_features % world != 0:
            raise ValueError(
                f"{n_features} features are not divisible by {world} ranks"
            )
        layer.weight = share_of(layer.weight, rank, world, axis)
        layer.out_features, layer.in_features = layer.weight.shape

        if layer.bias is None:
            continue
        if axis == 0:
            layer.bias = share_of(layer.bias, rank, world)
        elif rank > 0:
            layer.register_parameter("bias", None)
    return part


def share_of(x: Tensor, rank: int, world: int, axis: int = 0) -> nn.Parameter:
    """Returns a rank's share of a parameter, which learns if that does."""
    share = x.detach().chunk(world, axis)[rank]
    return nn.Parameter(share.clone(), x.requires_grad)


def shard_attention(whole: MultiHeadAttention, rank: int, world: int) -> TensorParallel:
    """Returns a rank's heads of an attention layer; a cache will hold their keys alone.

    Raises ValueError for heads that `world` ranks can't share evenly, and for a layer
    that isn't plain: with adapters, packed, or of another class.
    """
    check_can_be_cut(whole, [MultiHeadAttention])
    n_kv_heads = whole.n_heads // whole.n_heads_per_kv_head
    for name, n in (("n_heads", whole.n_heads), ("n_kv_heads", n_kv_heads)):
        if n % world != 0:
            raise ValueError(f"{name} ({n}) is not divisible by {world} ranks")

    # Its matrices are cut as a feed-forward layer's are.
    part = part_of(whole, rank, world)
    part.n_heads = whole.n_heads // world
    return TensorParallelAttention(part, whole.n_heads, rank)


def shard_blocks(model: nn.Module) -> nn.Module:
    """Returns the model with this rank's heads and hidden features.

    All else is everywhere. Raises ValueError, by its name, for a layer that isn't
    plain: with adapters, packed, or of another class; and for dropout.
    """
    for name, part in model.named_modules():
        if isinstance(part, nn.Dropout) and part.p > 0:
            raise ValueError(
                f"{name} drops features, and other ones on each rank: cut a model"
                " without dropout"
            )
    for i, block in enumerate(blocks_of(model)):
        name = f"blocks.{i}"
        check_can_be_cut(block.attention, [MultiHeadAttention], f"{name}.attention")
        check_can_be_cut(
            block.feed_forward, [*FEED_FORWARDS.values()], f"{name}.feed_forward"
        )

    rank = dist.get_rank()
    world = dist.get_world_size()
    model = deepcopy(model)
    for block in blocks_of(model):
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
    scores = at_least_float32(attention_scores(queries, keys, mask))
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
