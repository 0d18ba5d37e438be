"""What chapters need: a seed, the style of the figures, `show`, a trained model."""

import inspect
import os
import subprocess
import sys

import torch
from IPython.display import Markdown, display

from ..artifacts import CACHE, VOCABULARY
from ..model.gpt import GPT
from . import plots
from .recipes import RECIPES, shakespeare_tokens
from .runs import train_recipe


def setup(seed: int) -> torch.Generator:
    """Seed PyTorch, style the figures; return the generator that the chapter uses.

    Also shows tiktoken where GPT-2's vocabulary lies, so that its plain
    `get_encoding("gpt2")` needs no network.
    """
    os.environ["TIKTOKEN_CACHE_DIR"] = str(VOCABULARY)
    torch.manual_seed(seed)
    plots.plt.rcParams.update(plots.STYLE)
    return torch.Generator().manual_seed(seed)


def show(thing) -> None:
    """The source of a function or class, as the package holds it."""
    display(Markdown(f"```python\n{inspect.getsource(thing)}```"))


def torchrun(module: str, n_processes: int) -> None:
    """Run a module in processes that can talk to each other; print what it prints.

    Each has one thread. Raises RuntimeError, with what it said, where one fails.
    """
    here = "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --local-addr 127.0.0.1"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", *here.split()),
            *("--nproc-per-node", str(n_processes), "-m", module),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(done.stderr)


def trained(name: str = "fast") -> GPT:
    """The model that chapter 05 has trained, or one that is trained now, a minute long.

    A checkpoint that can't be used, damaged or of another recipe, stays as it is, and
    so does a cache that can't be written. The model is then trained beside it. Raises
    what has nothing to do with the checkpoint: a text that is missing, a loss that is
    no number.
    """
    recipe = RECIPES[name]
    path = CACHE / f"{name}.safetensors"
    shakespeare_tokens()  # raises where the text is missing, whatever the checkpoint
    try:
        model, _ = train_recipe(recipe, path, device="cpu")
    except (ValueError, OSError) as reason:
        if isinstance(reason, ValueError) and not str(reason).startswith(str(path)):
            raise
        print(f"{reason}. Here a model is trained for this chapter alone.")
        model, _ = train_recipe(recipe, device="cpu")
    return model.eval()
