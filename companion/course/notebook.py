"""What chapters need: a seed, the style of the figures, processes, a trained model."""

import inspect
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import torch

from ..artifacts import VOCABULARY
from ..training.processes import torchrun_command
from . import plots
from .runs import MY_GPT as MY_GPT  # for chapters, which find both here
from .runs import trained as trained


def setup(seed: int) -> torch.Generator:
    """Seeds PyTorch and styles the figures. Returns the generator for the chapter.

    Also shows tiktoken where GPT-2's vocabulary lies, so that its plain
    `get_encoding("gpt2")` needs no network.
    """
    os.environ["TIKTOKEN_CACHE_DIR"] = str(VOCABULARY)
    torch.manual_seed(seed)
    plots.plt.rcParams.update(plots.STYLE)
    return torch.Generator().manual_seed(seed)


def torchrun(program: str | Callable[[], None], n_processes: int) -> None:
    """Runs a program in processes that can talk to each other; prints what it prints.

    It is a module's name, or a function, of which each process gets the source alone:
    what it needs, it imports itself. Each has one thread. Raises RuntimeError, with
    what it said, where one fails.
    """
    if isinstance(program, str):
        run_in_processes(["-m", program], n_processes)
        return

    source = dedent(inspect.getsource(program))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(f"{source}\n\n{program.__name__}()\n", "utf-8")
        run_in_processes([str(path)], n_processes)


def run_in_processes(program: list[str], n_processes: int) -> None:
    """Runs what `torchrun_command` takes; prints what it prints. See `torchrun`."""
    result = subprocess.run(
        [*torchrun_command(n_processes), *program],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    print(result.stdout, end="")
    if result.returncode:
        raise RuntimeError(result.stderr)
