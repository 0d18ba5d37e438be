"""What chapter 11 derives, for real: each part of `parallel` beside one process alone.

`python -m torch.distributed.run --nproc-per-node 2 -m companion.rehearsal`; any number
of processes that divides the batch of 24 and the 4 heads.
"""

import sys
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing import assert_close

from .attention import attention, causal_mask
from .data import batches
from .models import GPT
from .optimizers import AdamW
from .parallel import ShardedAdamW, average_gradients, cut_blocks, ring_attention
from .processes import Process, shard
from .recipes import RECIPES
from .runs import shakespeare_tokens
from .sampling import generate
from .training import train

FAST = RECIPES["fast"]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def drawn(n_steps: int, process: Process | None = None) -> list[tuple[Tensor, ...]]:
    """The recipe's first batches; or a process's part of each."""
    length = FAST.config.context_length
    how = {"context_length": length, "n_steps": n_steps, "generator": seeded()}
    pairs = batches(shakespeare_tokens()[0], batch_size=FAST.batch_size, **how)
    if process is None:
        return [*pairs]
    return [tuple(x[process.rank :: process.world] for x in pair) for pair in pairs]


def mean(losses: list[float], process: Process) -> list[float]:
    """The mean over all processes of each of their losses."""
    total = torch.tensor(losses)
    dist.all_reduce(total)
    return (total / process.world).tolist()


def data_parallel(process: Process) -> str:
    """Ten steps of chapter 05's recipe, by gradients averaged round the ring."""
    alone, ours = (GPT(FAST.config, seeded()) for _ in range(2))
    expected = train(alone, FAST.optimizer(alone), drawn(10))
    average_gradients(ours)
    losses = train(ours, FAST.optimizer(ours), drawn(10, process))
    assert_close(mean(losses, process), expected, atol=1e-5, rtol=0)
    return "data parallel: ten steps, the losses of one process within 1e-5"


def sharded_optimizer(process: Process) -> str:
    """Three steps of AdamW whose running means lie in parts."""
    alone, ours = (GPT(FAST.config, seeded()) for _ in range(2))
    usual, parts = AdamW(alone.parameters()), ShardedAdamW(ours.parameters())
    train(alone, usual, drawn(3))
    train(ours, parts, drawn(3))
    assert_close([*ours.parameters()], [*alone.parameters()], atol=0, rtol=0)
    all_, kept = (
        sum(state["mean"].numel() for state in optimizer.state.values())
        for optimizer in (usual, parts)
    )
    assert kept <= all_ / process.world * 1.1
    return "sharded AdamW: the same weights to the bit, a part of the running means"


def fully_sharded(process: Process) -> str:
    """Five steps with PyTorch's own sharding of weights, gradients and optimizer."""
    alone, ours = (GPT(FAST.config, seeded()) for _ in range(2))
    expected = train(alone, FAST.optimizer(alone), drawn(5))
    shard(ours, process.world, "cpu")
    losses = train(ours, FAST.optimizer(ours), drawn(5, process))
    assert_close(mean(losses, process), expected, atol=1e-5, rtol=0)
    kept = sum(p.to_local().numel() for p in ours.parameters())
    assert kept < 1.1 * sum(p.numel() for p in alone.parameters()) / process.world
    return "fully sharded by PyTorch: five steps, the losses of one process within 1e-5"


def tensor_parallel(process: Process) -> str:
    """A model cut by heads and hidden features: gradients, then text from caches."""
    config = replace(FAST.config, zero_init=False)
    alone = GPT(config, seeded())
    ours = cut_blocks(alone)
    tokens, targets = drawn(1)[0]
    for model in (alone, ours):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, [(tokens, targets)], clip=1e9)  # its norm is a part's
    assert_close(ours(tokens), alone(tokens), atol=1e-5, rtol=1e-5)
    prompt = tokens[0, :20]
    texts = [torch.stack([*generate(m, prompt, 20)]) for m in (ours, alone)]
    assert torch.equal(*texts)
    caches = ours.new_caches()
    ours(prompt[None], caches)
    heads = caches[0].append(*torch.zeros(2, 1, 4 // process.world, 1, 32))[0].shape[1]
    return (
        f"tensor parallel: the same text, with {heads} of 4 heads in each one's cache"
    )


def ring(process: Process) -> str:
    """Attention over a text of which each holds a part."""
    queries, keys, values = torch.randn(
        3, 2, 4, 16 * process.world, 8, generator=seeded()
    )
    here = slice(16 * process.rank, 16 * process.rank + 16)
    for mask in (None, causal_mask(16 * process.world)):
        right = attention(queries, keys, values, mask)[:, :, here]
        mine = (x[:, :, here].contiguous() for x in (queries, keys, values))
        assert_close(ring_attention(*mine, causal=mask is not None), right)
    return "ring attention: a text in parts, the answers of the whole, causal or not"


PARTS = data_parallel, sharded_optimizer, fully_sharded, tensor_parallel, ring


def main() -> None:
    """Run every part; rank 0 says what came out."""
    process = Process.this("cpu")
    if process.world == 1 or FAST.batch_size % process.world or 4 % process.world:
        sys.exit(
            f"error: {process.world} processes; start 2 or 4 of them by `python -m"
            " torch.distributed.run --nproc-per-node 2 -m companion.rehearsal`"
        )
    with process.joined():
        for part in PARTS:
            said = part(process)
            if process.rank == 0:
                print(said, flush=True)


if __name__ == "__main__":
    main()
