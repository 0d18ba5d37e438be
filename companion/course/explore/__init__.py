"""Explore: a reader's own model, inside out, in one HTML file. Chapter 05.

The file asks no network for anything. It holds the weights in float16, the forward pass
in plain JavaScript (`forward.js`, one page), the drawing, and a tour (`tour.js`).
"""

from html import escape
from pathlib import Path
from urllib.parse import quote

import torch
from torch import Tensor, nn

from ...files import write_atomically
from ...model.gpt import GPT
from ...text.tokenizers import BPETokenizer, CharTokenizer
from ..stored_models import (
    load_model as load_model,  # for chapter 05, which finds it here
)
from .building import TEXT, page
from .fits import plain_copy

OUT = Path("build/explore.html")
FRAME = """<p>Every number of this model: <a href="{0}" target="_blank">{1}</a></p>
<details><summary>Open it here</summary><iframe src="{0}" title="Inside your own model"
loading="lazy" style="width: 100%; height: 85vh; border: 0"></iframe></details>"""


@torch.no_grad()
def last_pattern(model: GPT, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """Returns the mean of the last block's heads (t s), and the next's chances (v).

    Both on the CPU in float32.
    """
    copy = plain_copy(model, "explicit").cpu().float()
    patterns = []

    def note(part: nn.Module, inputs: tuple, weights: Tensor) -> None:
        patterns.append(weights)  # (b h t s)

    copy.blocks[-1].attention.pattern.register_forward_hook(note)
    logits = copy(torch.tensor([tokens]), last=-1)
    return patterns[0][0].mean(0), logits[0].softmax(-1)


class Page:
    """A page in a file; a notebook shows a picture of the model, and opens the page."""

    def __init__(
        self, path: Path, model: GPT, tokenizer: CharTokenizer | BPETokenizer, text: str
    ):
        self.path = path
        self.model = model
        self.tokenizer = tokenizer
        self.text = text

    def _ipython_display_(self) -> None:
        from .. import plots  # and matplotlib, for notebooks alone

        decode = self.tokenizer.decode
        tokens = self.tokenizer.encode(self.text)
        tokens = tokens[-self.model.config.context_length :]
        weights, chances = last_pattern(self.model, tokens)
        best = chances.argsort()[-8:]

        # Left, who attends to whom.
        _, (left, right) = plots.plt.subplots(1, 2, figsize=(10, 4.5))
        pieces = [decode([token]) for token in tokens[-24:]]
        title = "Last block, mean of all heads"
        plots.plot_attention(weights[-24:, -24:], pieces, title, left)

        # Right, what comes next. The bars stand at numbers, since two tokens may look
        # the same; a token's text is never a formula.
        right.barh(range(len(best)), chances[best].tolist())
        labels = [repr(decode([token])) for token in best.tolist()]
        right.set_yticks(range(len(best)), labels, parse_math=False)
        alt = "A heat map of attention in the last block, the mean of its heads, for"
        alt += " the last 24 tokens at most: weights on earlier ones are cut off."
        alt += " Beside it, bars of what comes next."
        plots.finish("What comes next", "chance", alt=alt)

        path = self.path.as_posix()
        frame = FRAME.format(quote(path, safe="/:"), escape(path))
        plots.display({"text/html": frame, "text/plain": path}, raw=True)


def explore(
    model: GPT,
    tokenizer: CharTokenizer | BPETokenizer,
    text: str = TEXT,
    path: Path | str = OUT,
) -> Page:
    """Writes the model's page to `path`: in whole, or the file stays as it was.

    Returns the page, which a notebook shows. Chapter 05. Raises ValueError
    for a model that does not fit: the page shows a pre-norm GPT of at most 5,000,000
    weights, with a CharTokenizer or a BPETokenizer of at most 2,048.
    """
    html = page(model, tokenizer, text)
    path = Path(path)
    write_atomically(path, html.encode())
    return Page(path, model, tokenizer, text)
