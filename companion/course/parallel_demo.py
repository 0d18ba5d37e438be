"""Each part of `parallel` beside one process alone, as chapter 11 runs it in two.

Run by `python -m torch.distributed.run --nproc-per-node 2 -m` and the module's name,
`companion.course.parallel_demo`; 4 processes can be had as well.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.testing import assert_close

from ..decoding.sampling import generate
from ..model.attention import attention, causal_mask
from ..model.gpt import GPT
from ..training.loop import train
from ..training.optimizers import AdamW
from ..training.parallel import (
    ShardedAdamW,
    average_gradients,
    ring_attention,
    shard_blocks,
)
from ..training.processes import Process, shard
from .recipes import RECIPES

RECIPE = RECIPES["fast"]


def train_replica(
    n_steps: int,
    rank: int = 0,
    world: int = 1,
    *,
    make_optimizer: Callable[[GPT], Optimizer] = RECIPE.optimizer,
    distribute: Callable[[GPT], object] | None = None,
) -> tuple[GPT, Optimizer, Tensor]:
    """Trains a model on a rank's part of small batches.

    `distribute` prepares the model for many ranks. Returns the model, its optimizer,
    and the losses, one for each step.
    """
    # The same on every rank.
    torch.manual_seed(11)
    model = GPT(RECIPE.config)
    batches = [*RECIPE.batches(n_steps, None)]

    if distribute is not None:
        distribute(model)
    optimizer = make_optimizer(model)
    parts = []
    for inputs, targets in batches:
        parts.append((inputs[rank:8:world, :32], targets[rank:8:world, :32]))
    losses = train(model, optimizer, parts)
    return model, optimizer, torch.tensor(losses)


def check_losses(
    expected: Tensor, distribute: Callable[[GPT], object], rank: int, world: int
) -> None:
    """Holds the losses of a model on many ranks against `expected`, those of one."""
    _, _, losses = train_replica(len(expected), rank, world, distribute=distribute)
    mean = losses / world
    dist.all_reduce(mean)
    # Losses near 4, some dozen roundings (4e-7 each) apart: 4 steps sum in another
    # order, and drift.
    assert_close(mean, expected, atol=1e-5, rtol=0)


def check_sharded_adamw(world: int) -> None:
    """Holds weights and running means against those of AdamW in one process."""
    alone, _, _ = train_replica(3, make_optimizer=lambda m: AdamW(m.parameters()))
    replica, optimizer, _ = train_replica(
        3, make_optimizer=lambda m: ShardedAdamW(m.parameters())
    )
    assert_close([*replica.parameters()], [*alone.parameters()], atol=0, rtol=0)

    n_means = sum(state["mean"].numel() for state in optimizer.state.values())
    n_weights = sum(p.numel() for p in replica.parameters())
    assert n_means <= n_weights / world * 1.1  # what can't be cut evenly is a little


def check_ring_attention(rank: int, world: int) -> None:
    """Holds a rank's part of the answers against the part of `attention`'s."""
    length = 16 * world
    queries, keys, values = torch.randn(3, 2, 4, length, 8)
    own_queries = queries.chunk(world, -2)[rank]
    own_keys = keys.chunk(world, -2)[rank]
    own_values = values.chunk(world, -2)[rank]
    for mask in (None, causal_mask(length)):
        answers = attention(queries, keys, values, mask)
        own_answers = ring_attention(
            own_queries, own_keys, own_values, causal=mask is not None
        )
        assert_close(own_answers, answers.chunk(world, -2)[rank])


def check_tensor_parallel(alone: GPT) -> int:
    """Holds logits and text, after a step, against those of a model in one piece.

    Returns the number of heads that each rank has.
    """
    sharded = shard_blocks(alone)
    ((tokens, targets),) = RECIPE.batches(1, None)
    for model in (alone, sharded):
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        # The gradients' norm is only a part's: no clipping.
        train(model, sgd, [(tokens, targets)], clip=math.inf)
    # A sum of two parts is rounded otherwise: a hundred epsilons, with a step between.
    assert_close(sharded(tokens), alone(tokens), atol=1e-5, rtol=1e-5)

    prompt = tokens[0, :20]
    expected = torch.stack([*generate(alone, prompt, 20)])
    text = torch.stack([*generate(sharded, prompt, 20)])
    assert torch.equal(text, expected)
    return sharded.blocks[0].attention.part.n_heads


def compare(rank: int, world: int) -> Iterator[str]:
    """Compares what all ranks do with what one does alone, part by part.

    Gives a line for each part, which says what agrees. Raises AssertionError for what
    differs.
    """
    alone, _, losses = train_replica(4)
    check_losses(losses, average_gradients, rank, world)
    yield "data parallel: four steps, the losses of one process within 1e-5"

    check_sharded_adamw(world)
    yield (
        "sharded AdamW: the same weights to the bit, each with its part of the running"
        " means"
    )

    check_losses(losses, partial(shard, world=world), rank, world)
    yield "fully sharded by PyTorch: four steps, the losses of one process within 1e-5"

    n_heads = check_tensor_parallel(alone)
    yield (
        f"tensor parallel: the same text, with {n_heads} of 4 heads in each one's cache"
    )

    check_ring_attention(rank, world)
    yield "ring attention: a text in parts, the answers of the whole, causal or not"


def main() -> None:
    """Compares, and lets rank 0 print what agrees when all of it does."""
    process = Process.current("cpu")
    with process.joined():
        lines = [*compare(process.rank, process.world)]
    if process.rank == 0:
        print(*lines, sep="\n")


if __name__ == "__main__":
    main()
