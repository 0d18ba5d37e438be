"""What chapters need: a seed, the style of the figures, `show`, a trained model."""

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import torch
from IPython.display import Markdown, display

from ..artifacts import VOCABULARY
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


def show(thing: Callable) -> None:
    """Shows the source of a function or class, as the package holds it."""
    display(Markdown(f"```python\n{inspect.getsource(thing)}```"))


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


def launcher(n_processes: int) -> list[str]:
    """Returns the command that starts what follows in processes of this machine."""
    command = [sys.executable, "-m", "torch.distributed.run"]
    # A free port of this machine, whatever its name is in the network.
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command += ["--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(n_processes)]
    return command


def run_in_processes(program: list[str], n_processes: int) -> None:
    """Runs what torch.distributed.run takes; prints what it prints. See `torchrun`."""
    result = subprocess.run(
        [*launcher(n_processes), *program],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    print(result.stdout, end="")
    if result.returncode:
        raise RuntimeError(result.stderr)
