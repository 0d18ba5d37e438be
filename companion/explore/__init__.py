"""Explore: a reader's own model, inside out, in one HTML file. Chapters 02, 05, 06.

The file asks no network for anything. It holds the weights in float16, the forward pass
in plain JavaScript (`forward.js`, one page), and the drawing.
"""

import argparse
import base64
import json
import os
import re
import sys
import webbrowser
import zlib
from dataclasses import fields, replace
from html import escape
from pathlib import Path

import torch

from ..artifacts import CACHE
from ..checkpoints import read_checkpoint
from ..data import tiny_shakespeare
from ..models import GPT, GPTConfig
from ..positions import alibi_slopes
from ..recipes import RECIPES
from ..runs import train_recipe
from ..tokenizers import BPETokenizer, CharTokenizer

FOLDER, OUT = Path(__file__).parent, Path("build/explore.html")
TEXT = "JULIET:\nO gentle night, I pray thee, bring my lord to the gate"
FRAME = """<p>Every number of this model: <a href="{0}" target="_blank">{0}</a></p>
<details><summary>Open it here</summary><iframe src="{0}" title="Inside your own model"
loading="lazy" style="width: 100%; height: 85vh; border: 0"></iframe></details>"""


def check_fits(model, tokenizer) -> None:
    """Raise ValueError, naming what the page can't show, unless it can show both."""
    for given, kind in (model, GPT), (tokenizer, CharTokenizer | BPETokenizer):
        if not isinstance(given, kind):
            wanted = "a GPT with a CharTokenizer or a BPETokenizer"
            raise ValueError(f"the page shows {wanted}, no {type(given).__name__}")
    o, n = model.config, sum(x.numel() for x in model.parameters())
    with torch.device("meta"):
        plain = {name: x.shape for name, x in GPT(o).state_dict().items()}
    ours, d = {name: x.shape for name, x in model.state_dict().items()}, o.d_vocab
    for misfit, words in (
        (n > 5_000_000, f"{n:,} weights are more than 5,000,000"),
        (d > 2048, f"{d:,} tokens are more than 2,048"),
        (not o.pre_norm, "its blocks are post-norm, not pre-norm"),
        (o.positions == "t5", "its positions are T5's relative bias"),
        (not model.causal or ours != plain, "its parts are not those of a plain GPT"),
        (d != (v := tokenizer.d_vocab), f"it has {d} tokens, its tokenizer {v}"),
    ):
        if misfit:
            raise ValueError(f"the page can't show this model: {words}")


def contents(model, tokenizer, text: str) -> dict:
    """What the page computes with, as JSON can hold it: weights are float16, base64."""
    weights, o = model.state_dict(), model.config
    if o.tied:
        del weights["unembedding.weight"]
    numbers = torch.cat([x.detach().cpu().flatten() for x in weights.values()]).half()
    if not numbers.isfinite().all():
        raise ValueError("a weight is not finite in float16, whose largest is 65,504")
    data = numbers.numpy().astype("<f2").tobytes()
    slopes = alibi_slopes(o.n_heads) * (o.positions == "alibi")
    return {
        "config": vars(o) | {"eps": model.norm.eps, "slopes": slopes.tolist()},
        "text": text,
        "characters": getattr(tokenizer, "characters", None),
        "merges": [*getattr(tokenizer, "ranks", ())],
        "sizes": {name: x.numel() for name, x in weights.items()},
        "adler32": zlib.adler32(data),
        "weights": base64.b64encode(data).decode(),
    }


def page(model, tokenizer, text: str = TEXT, chapters: str | None = None) -> str:
    """The whole page as HTML; `chapters`, as "notebooks/{}.html", links to them.

    Raises ValueError for a model that does not fit, and a text it can't read.
    """
    check_fits(model, tokenizer)
    if not tokenizer.encode(text):
        raise ValueError("text is ''; it needs one character or more")
    data = json.dumps(contents(model, tokenizer, text)).replace("<", r"\u003c")
    html = (FOLDER / "page.html").read_text("utf-8")
    for name in re.findall(r"@(\w+\.\w+)@", html):
        html = html.replace(f"@{name}@", (FOLDER / name).read_text("utf-8"))
    # The site shows the page in a frame, which a link should leave.
    to = '<a target="_top" href="{}">{}</a>'
    link = to.format(chapters.format(r"\1"), r"\2") if chapters else r"\2"
    html = re.sub(r'<a href="(\d\d_\w+)">(.*?)</a>', f"<small>{link}</small>", html)
    o, n = model.config, sum(x.numel() for x in model.parameters())
    about = (
        f"{n:,} weights, {o.n_layers} blocks, {o.n_heads} heads, {o.d_vocab} tokens."
    )
    return html.replace("@about@", about).replace("@model@", data)


@torch.no_grad()
def last_pattern(model: GPT, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of the last block's heads (t s), and the chances (v) of what follows."""
    seen, copy = [], GPT(replace(model.config, engine="explicit")).eval()
    copy.load_state_dict(model.state_dict())
    pattern = copy.blocks[-1].attention.pattern
    pattern.register_forward_hook(lambda *x: seen.append(x[-1][0]))
    chances = copy(torch.tensor([tokens]), last=-1)[0].softmax(-1)
    return seen[0].mean(0), chances


class Page:
    """A page in a file; a notebook shows a picture of the model, and opens the page."""

    def __init__(self, path: Path, model: GPT, tokenizer, text: str):
        self.path, self.model, self.tokenizer, self.text = path, model, tokenizer, text

    def _ipython_display_(self) -> None:
        from .. import plots  # and matplotlib, for notebooks alone

        tokens, decode = self.tokenizer.encode(self.text), self.tokenizer.decode
        tokens = tokens[-self.model.config.context_length :]
        weights, chances = last_pattern(self.model, tokens)
        pieces, best = [decode([i]) for i in tokens[-24:]], chances.argsort()[-8:]
        _, (left, right) = plots.plt.subplots(1, 2, figsize=(10, 4.5))
        plots.plot_attention(weights[-24:, -24:], pieces, "The last block", left)
        right.barh([repr(decode([i])) for i in best.tolist()], chances[best].tolist())
        alt = "A heat map of attention in the last block, and bars of what comes next."
        plots.finish("What comes next", "chance", alt=alt)
        where = escape(self.path.as_posix())
        plots.display({"text/html": FRAME.format(where), "text/plain": where}, raw=True)


def explore(model, tokenizer, text: str = TEXT, path: Path | str = OUT) -> Page:
    """Write the model's page to `path`: in whole, or the file stays as it was.

    Raises ValueError for a model that does not fit: the page shows a pre-norm GPT of at
    most 5,000,000 weights, with a CharTokenizer or a BPETokenizer of 2,048 tokens.
    """
    html, path = page(model, tokenizer, text), Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(html, "utf-8")
    os.replace(part, path)
    return Page(path, model, tokenizer, text)


def load_model(path: Path) -> GPT:
    """A GPT from its checkpoint. ValueError for one that is damaged or of no GPT."""
    tensors, about = read_checkpoint(path)
    mine = {n[6:]: x for n, x in tensors.items() if n.startswith("model.")}
    try:
        config = {field.name: about["model"][field.name] for field in fields(GPTConfig)}
        model = GPT(GPTConfig(**config))
        model.load_state_dict(mine)
    except (KeyError, RuntimeError):
        raise ValueError(f"{path} holds another model than a GPT") from None
    return model.eval()


def main(arguments: list[str] | None = None) -> None:
    """Write a model's page, chapter 05's by default, and open it in the browser."""
    parser = argparse.ArgumentParser("companion explore", description=main.__doc__)
    parser.add_argument("--checkpoint", type=Path, help="of a run of `train`")
    parser.add_argument("--text", default=TEXT, help="to begin with")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    try:
        if options.checkpoint:
            model = load_model(options.checkpoint)
        else:  # trained now, where it is missing
            model, _ = train_recipe(RECIPES["fast"], CACHE / "fast.safetensors")
        explore(model, CharTokenizer(tiny_shakespeare()), options.text, options.out)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt as stop:
        sys.exit(f"stopped: {stop}")
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, for any browser")
    if os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32"):
        webbrowser.open(options.out.resolve().as_uri())
