"""What every chapter's first cell needs: a seed, the style of the figures, `show`."""

import inspect
import os

import torch
from IPython.display import Markdown, display

from . import plots
from .artifacts import VOCABULARY


def setup(seed: int) -> torch.Generator:
    """Seed PyTorch, style the figures; return the generator that the chapter uses.

    Also shows tiktoken where GPT-2's vocabulary lies, so that its plain
    `get_encoding("gpt2")` needs no network.
    """
    os.environ["TIKTOKEN_CACHE_DIR"] = str(VOCABULARY)
    torch.manual_seed(seed)
    plots.set_style()
    return torch.Generator().manual_seed(seed)


def show(thing) -> None:
    """The source of a function or class, as the package holds it."""
    display(Markdown(f"```python\n{inspect.getsource(thing)}```"))
