"""Several processes: a function in each of them, and torchrun."""

import multiprocessing
import os
import subprocess
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from companion.training.processes import torchrun_command

# Python and PyTorch are started once, and not for each process.
FORK = "forkserver" in multiprocessing.get_all_start_methods()
SLOW = ["companion.course.parallel_demo", "torch._dynamo", "torch.distributed.fsdp"]
multiprocessing.set_forkserver_preload(SLOW)


def without_network() -> list[str]:
    """What runs a command cut off from all networks, where that can be had."""
    command = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        can = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        can = False
    return command if can else []


def torchrun(n: int, *words: str, limit: float = 150) -> subprocess.CompletedProcess:
    """Run a module or a script in n processes, and not longer than `limit` seconds."""
    return subprocess.run(
        [*without_network(), *torchrun_command(n), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=limit,
    )


def enter(rank: int, n: int, port: int, function, args: tuple) -> None:
    """Call a function where the environment is as torchrun would have it."""
    os.environ["RANK"] = str(rank)
    os.environ["LOCAL_RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(n)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    torch.set_num_threads(1)
    function(*args)


def together(n: int, function, *args) -> None:
    """Call a function of a module in n processes that can talk to each other.

    Raises what the first that fails raises, and ends the others.
    """
    store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), False)
    method = "forkserver" if FORK else "spawn"
    start_processes(enter, (n, store.port, function, args), n, start_method=method)
