"""Each part of `parallel` beside one process alone, as chapter 11 runs it in two.

Run by `python -m torch.distributed.run --nproc-per-node 2 -m` and the module's name,
`companion.course.parallel_demo`; 4 processes can be had as well.
"""

from functools import partial

import torch
import torch.distributed as dist
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

FAST = RECIPES["fast"]
SAID = """\
data parallel: four steps, the losses of one process within 1e-5
sharded AdamW: the same weights to the bit, each with its part of the running means
fully sharded by PyTorch: four steps, the losses of one process within 1e-5
tensor parallel: the same text, with {} of 4 heads in each one's cache
ring attention: a text in parts, the answers of the whole, causal or not"""


def train_replica(n_steps: int, make=FAST.optimizer, spread=id, rank=0, world=1):
    """A model after steps on its part of small batches, its optimizer and losses."""
    torch.manual_seed(11)
    model, pairs = GPT(FAST.config), [*FAST.batches(n_steps, None)]
    spread(model)
    part = [[x[rank:8:world, :32] for x in pair] for pair in pairs]
    optimizer = make(model)
    return model, optimizer, torch.tensor(train(model, optimizer, part))


def check(rank: int, world: int) -> int:
    """Compare what all ranks do with what one does alone; the heads that each has."""
    alone, _, right = train_replica(4)
    for spread in (average_gradients, partial(shard, world=world)):
        losses = train_replica(4, FAST.optimizer, spread, rank, world)[2] / world
        dist.all_reduce(losses)
        assert_close(losses, right, atol=1e-5, rtol=0)

    one, _, _ = train_replica(3, lambda model: AdamW(model.parameters()))
    ours, parts, _ = train_replica(3, lambda model: ShardedAdamW(model.parameters()))
    assert_close([*ours.parameters()], [*one.parameters()], atol=0, rtol=0)
    kept = sum(state["mean"].numel() for state in parts.state.values())
    assert kept <= sum(p.numel() for p in ours.parameters()) / world * 1.1

    whole = torch.randn(3, 2, 4, 16 * world, 8)
    for mask in (None, causal_mask(16 * world)):
        part = ring_attention(*whole.chunk(world, -2)[rank], causal=mask is not None)
        assert_close(part, attention(*whole, mask).chunk(world, -2)[rank])

    ours, ((tokens, targets),) = shard_blocks(alone), FAST.batches(1, None)
    for model in (alone, ours):  # the gradients' norm is only a part's: no clipping
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, sgd, [(tokens, targets)], clip=1e9)
    assert_close(ours(tokens), alone(tokens), atol=1e-5, rtol=1e-5)
    texts = [torch.stack([*generate(m, tokens[0, :20], 20)]) for m in (ours, alone)]
    assert torch.equal(*texts)
    return ours.blocks[0].attention.part.n_heads


if __name__ == "__main__":
    process = Process.this("cpu")
    with process.joined():
        n_heads = check(process.rank, process.world)
    if process.rank == 0:
        print(SAID.format(n_heads))
