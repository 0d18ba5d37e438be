"""What every chapter's first cell needs: a seed, the style of the figures, `show`."""

import inspect

import torch
from IPython.display import Markdown, display

from . import plots


def setup(seed: int) -> torch.Generator:
    """Seed PyTorch, style the figures; return the generator that the chapter uses."""
    torch.manual_seed(seed)
    plots.set_style()
    return torch.Generator().manual_seed(seed)


def show(thing) -> None:
    """The source of a function or class, as the package holds it."""
    display(Markdown(f"```python\n{inspect.getsource(thing)}```"))
