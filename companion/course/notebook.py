"""What chapters need: a seed, the style of the figures, `show`, a trained model."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable

import torch
from IPython.display import Markdown, display

from ..artifacts import VOCABULARY
from . import plots
from .runs import MY_GPT, trained

__all__ = ["MY_GPT", "setup", "show", "torchrun", "trained"]


def setup(seed: int) -> torch.Generator:
    """Seeds PyTorch and styles the figures. Returns the generator for the chapter.

    Also shows tiktoken where GPT-2's vocabulary lies, so that its plain
    `get_encoding("gpt2")` needs no network.
    """
    os.environ["TIKTOKEN_CACHE_DIR"] = str(VOCABULARY)
    torch.manual_seed(seed)
    plots.plt.rcParams.update(plots.STYLE)
    return torch.Generator().manual_seed(seed)


def show(thing: Callable) -> None:
    """Shows the source of a function or class, as the package holds it."""
    display(Markdown(f"```python\n{inspect.getsource(thing)}```"))


def torchrun(module: str, n_processes: int) -> None:
    """Runs a module in processes that can talk to each other; prints what it prints.

    Each has one thread. Raises RuntimeError, with what it said, where one fails.
    """
    command = [sys.executable, "-m", "torch.distributed.run"]
    # A free port of this machine, whatever its name is in the network.
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command += ["--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(n_processes)]
    result = subprocess.run(
        [*command, "-m", module],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    print(result.stdout, end="")
    if result.returncode:
        raise RuntimeError(result.stderr)
