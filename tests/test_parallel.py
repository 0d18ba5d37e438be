"""Many processes: each part of `parallel` beside one alone; who dies or is missing."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from common import random, seeded

from companion import GPT, GPTConfig, MultiHeadAttention, attention, causal_mask
from companion.attention import ENGINES
from companion.parallel import block, cut_attention, cut_feed_forward, merge
from companion.processes import Process

HERE = Path(__file__).parent
SAID = [
    "data parallel: ten steps, the losses of one process within 1e-5",
    "sharded AdamW: the same weights to the bit, a part of the running means",
    "fully sharded by PyTorch: five steps, the losses of one process within 1e-5",
    "tensor parallel: the same text, with {} of 4 heads in each one's cache",
    "ring attention: a text in parts, the answers of the whole, causal or not",
]
ALONE = {"OMP_NUM_THREADS": "1"}


def torchrun(n: int, *what: str, limit: float = 150) -> subprocess.CompletedProcess:
    """Run a module or a script in n processes, and not longer than `limit` seconds."""
    words = "-m torch.distributed.run --rdzv-backend c10d --local-addr 127.0.0.1"
    words += f" --rdzv-endpoint 127.0.0.1:0 --nproc-per-node {n}"
    return subprocess.run(
        [sys.executable, *words.split(), *what],
        env=os.environ | ALONE,
        capture_output=True,
        text=True,
        timeout=limit,
    )


@pytest.mark.parametrize("n", [2, 4])
def test_every_part_follows_one_process(n):
    done = torchrun(n, "-m", "companion.rehearsal")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line.format(4 // n) for line in SAID]


def test_a_number_of_processes_that_does_not_divide_is_named():
    done = torchrun(5, "-m", "companion.rehearsal")
    assert done.returncode and "error: 5 processes; start 2 or 4" in done.stderr


def script(tmp_path: Path, body: str) -> str:
    """A script that joins the others and then does what `body` says."""
    path = tmp_path / "script.py"
    path.write_text(
        "import os, signal, time, torch, torch.distributed as dist\n"
        "from companion.processes import Process\n"
        "from companion.parallel import ring_all_reduce\n"
        "process = Process.this('cpu')\n"
        f"with process.joined(8):\n    {body}\n",
        "utf-8",
    )
    return str(path)


def test_a_process_that_dies_ends_the_run_at_once(tmp_path):
    dies = "process.rank or os.kill(os.getpid(), signal.SIGTERM)"
    begin = time.monotonic()
    done = torchrun(2, script(tmp_path, f"{dies}; ring_all_reduce(torch.ones(9))"))
    assert done.returncode and time.monotonic() - begin < 60
    assert "local_rank: 0" in done.stderr and "SIGTERM" in done.stderr


def test_a_process_that_does_not_answer_is_not_waited_for(tmp_path):
    late = "process.rank == 1 and time.sleep(600)"
    begin = time.monotonic()
    done = torchrun(2, script(tmp_path, f"{late}; ring_all_reduce(torch.ones(9))"))
    assert done.returncode and time.monotonic() - begin < 60
    assert "imed out" in done.stderr


def environment(rank: int, world: int, port: int) -> dict:
    """What torchrun would tell a rank, for one started by hand."""
    told = {"RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    told = {name: str(value) for name, value in told.items()}
    return os.environ | ALONE | told | {"MASTER_ADDR": "127.0.0.1"}


@pytest.mark.parametrize("rank, words", [(0, "[1, 2]"), (1, "rank 0 can't be reached")])
def test_ranks_that_do_not_come_are_named(tmp_path, rank, words):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, script(tmp_path, "pass")],
        env=environment(rank, 3, port),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode and words in done.stderr.splitlines()[-1]


def test_one_that_is_alone_talks_to_nobody():
    with Process("cpu", 0, 1).joined():
        assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("seconds", [0, -1, "1", None])
def test_a_limit_that_is_none_is_refused(seconds):
    two = Process("cpu", 0, 2)
    with pytest.raises(ValueError, match="seconds is"), two.joined(seconds):
        pass


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n_kv_heads", [None, 2])
def test_heads_in_parts_add_up(n_kv_heads, engine, bias):
    layer = MultiHeadAttention(24, 4, bias, n_kv_heads=n_kv_heads, engine=engine)
    x, mask = random(2, 5, 24), causal_mask(5)
    parts = [cut_attention(layer, rank, 2).part for rank in range(2)]
    torch.testing.assert_close(sum(p(x, mask=mask) for p in parts), layer(x, mask=mask))
    n = sum(p.numel() for part in parts for p in part.parameters())
    assert n == sum(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("feed_forward", ["plain", "gated"])
def test_hidden_features_in_parts_add_up(feed_forward):
    config = GPTConfig(
        d_vocab=11, context_length=8, d_model=12, n_heads=2, n_layers=1,
        feed_forward=feed_forward, activation="silu",
    )  # fmt: skip
    layer = GPT(config, seeded()).blocks[0].feed_forward
    torch.nn.init.normal_(layer.to_output.bias, generator=seeded(1))
    x = random(2, 5, 12)
    parts = [cut_feed_forward(layer, rank, 4).part for rank in range(4)]
    torch.testing.assert_close(sum(part(x) for part in parts), layer(x))


@pytest.mark.parametrize(
    "n_kv_heads, world, words", [(6, 4, r"n_heads \(6\)"), (2, 3, r"n_kv_heads \(2\)")]
)
def test_heads_that_do_not_divide_are_refused(n_kv_heads, world, words):
    layer = MultiHeadAttention(24, 6, n_kv_heads=n_kv_heads)
    with pytest.raises(ValueError, match=f"{words} is not divisible by {world} ranks"):
        cut_attention(layer, 0, world)


def test_hidden_features_that_do_not_divide_are_refused():
    config = GPTConfig(
        d_vocab=11, context_length=8, d_model=12, n_heads=2, n_layers=1, d_hidden=10
    )
    layer = GPT(config, seeded()).blocks[0].feed_forward
    with pytest.raises(ValueError, match="10 features are not divisible by 4 ranks"):
        cut_feed_forward(layer, 0, 4)


def test_blocks_merge_in_any_order():
    queries, keys, values = random(3, 2, 4, 30, 8).unbind()
    right = attention(queries, keys, values)
    here = [slice(20, 30), slice(0, 1), slice(1, 20)]
    pieces = [block(queries, keys[:, :, x], values[:, :, x]) for x in here]
    largest, total, out = merge(pieces[0], merge(*pieces[1:]))
    torch.testing.assert_close(out / total, right)


def test_without_a_network_but_its_own():
    """A namespace with only loopback, as a machine that is cut off has it."""
    inside = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        can = subprocess.run([*inside, "true"], capture_output=True).returncode == 0
    except OSError:
        can = False
    if not can:
        return  # no such namespaces here: the tests above ran in what there is
    words = "-m torch.distributed.run --rdzv-backend c10d --local-addr 127.0.0.1"
    words += " --rdzv-endpoint 127.0.0.1:0 --nproc-per-node 2 -m companion.rehearsal"
    how = {"env": os.environ | ALONE, "capture_output": True, "text": True}
    done = subprocess.run([*inside, sys.executable, *words.split()], timeout=150, **how)
    assert done.stdout.splitlines() == [line.format(2) for line in SAID], done.stderr
