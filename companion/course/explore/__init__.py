"""Explore: a reader's own model, inside out, in one HTML file. Chapter 05.

The file asks no network for anything. It holds the weights in float16, the forward pass
in plain JavaScript (`forward.js`, one page), the drawing, and a tour (`tour.js`).
"""

import base64
import json
import re
import zlib
from dataclasses import fields, replace
from html import escape
from pathlib import Path
from urllib.parse import quote

import torch
from torch import Tensor, nn

from ...files import write_atomically
from ...model.blocks import LayerNorm, RMSNorm
from ...model.gpt import GPT, GPTConfig, evaluating
from ...model.positions import alibi_slopes
from ...text.tokenizers import BPETokenizer, CharTokenizer
from ...training.checkpoints import read_checkpoint

FOLDER = Path(__file__).parent
OUT = Path("build/explore.html")
TEXT = "JULIET:\nO gentle night, I pray thee, bring my lord to the gate"
FRAME = """<p>Every number of this model: <a href="{0}" target="_blank">{1}</a></p>
<details><summary>Open it here</summary><iframe src="{0}" title="Inside your own model"
loading="lazy" style="width: 100%; height: 85vh; border: 0"></iframe></details>"""


def plain_shapes(config: GPTConfig) -> dict[str, torch.Size]:
    """Returns the shapes that the weights of a GPT have, by their names."""
    with torch.device("meta"):  # without making them
        weights = GPT(config).state_dict()
    return {name: x.shape for name, x in weights.items()}


def check_fits(model: object, tokenizer: object) -> None:
    """Raises ValueError, naming what the page can't show, unless it can show both."""
    for x, classes in ((model, GPT), (tokenizer, CharTokenizer | BPETokenizer)):
        if not isinstance(x, classes):
            raise ValueError(
                "the page shows a GPT with a CharTokenizer or a BPETokenizer, no"
                f" {type(x).__name__}"
            )

    config = model.config
    n_weights = sum(x.numel() for x in model.parameters())
    d_vocab = config.d_vocab
    shapes = {name: x.shape for name, x in model.state_dict().items()}

    if next(model.parameters()).is_meta:
        misfit = "its weights lie on the device meta, which keeps no numbers"
    elif n_weights > 5_000_000:
        misfit = f"{n_weights:,} weights are more than 5,000,000"
    elif d_vocab > 2048:
        misfit = f"{d_vocab:,} tokens are more than 2,048"
    elif not config.pre_norm:
        misfit = "its blocks are post-norm, not pre-norm"
    elif config.positions == "t5":
        misfit = "its positions are T5's relative bias"
    elif not model.causal or shapes != plain_shapes(config):
        misfit = "its parts are not those of a plain GPT"
    elif d_vocab != tokenizer.d_vocab:
        misfit = f"it has {d_vocab} tokens, its tokenizer {tokenizer.d_vocab}"
    else:
        return
    raise ValueError(f"the page can't show this model: {misfit}")


def check_text(tokenizer: CharTokenizer | BPETokenizer, text: str) -> list[int]:
    """Returns the tokens of `text`. Raises ValueError where it has none, or unknown."""
    tokens = tokenizer.encode(text)
    if not tokens:
        raise ValueError("text is ''; it needs one character or more")
    return tokens


def plain_copy(model: GPT, engine: str) -> GPT:
    """Returns the model anew, made as the page makes it: of configuration and weights.

    Two matrices, since a model may have been untied after it was made.
    """
    config = replace(model.config, engine=engine, tie_embeddings=False)
    copy = GPT(config, torch.Generator())  # the global one stays as it is
    copy.load_state_dict(model.state_dict())
    for norm in copy.modules():
        if isinstance(norm, LayerNorm | RMSNorm):
            norm.eps = model.norm.eps
    return copy.to(next(model.parameters())).eval()


@torch.no_grad()
def check_answers(model: GPT, tokens: list[int]) -> None:
    """Raises ValueError where the model's logits aren't those of its plain copy.

    Whatever was changed after the model was made, the page would not know of it.
    """
    x = torch.tensor([tokens[-min(model.config.context_length, 64) :]])
    x = x.to(next(model.parameters()).device)
    expected = plain_copy(model, model.config.engine)(x).float()
    with evaluating(model):
        error = (model(x).float() - expected).abs().max()

    precision = torch.finfo(next(model.parameters()).dtype).eps
    if error > precision**0.5 * expected.abs().max():
        raise ValueError(
            "the page can't show this model: its logits are off by"
            f" {error:.2g} from those of a plain GPT with its configuration and weights"
        )


def contents(model: GPT, tokenizer: CharTokenizer | BPETokenizer, text: str) -> dict:
    """Returns what the page computes with, as JSON can hold it.

    Weights are float16 in base64; a matrix that is the embedding's equal is left out.
    Raises ValueError for a weight that is not finite in float16.
    """
    # The weights, one after the other.
    weights = model.state_dict()
    if torch.equal(weights["unembedding.weight"], weights["embedding.weight"]):
        del weights["unembedding.weight"]
    numbers = torch.cat([x.detach().cpu().flatten() for x in weights.values()]).half()
    if not numbers.isfinite().all():
        raise ValueError("a weight is not finite in float16, whose largest is 65,504")
    data = numbers.numpy().astype("<f2").tobytes()

    # The configuration, and what follows from it.
    config = dict(vars(model.config))
    config["eps"] = model.norm.eps
    config["slopes"] = [0.0] * model.config.n_heads
    if model.config.positions == "alibi":
        config["slopes"] = alibi_slopes(model.config.n_heads).tolist()

    # The tokenizer has one of these.
    characters = None
    merges = []
    if isinstance(tokenizer, CharTokenizer):
        characters = tokenizer.characters
    else:
        merges = [*tokenizer.ranks]

    return {
        "config": config,
        "text": text,
        "characters": characters,
        "merges": merges,
        "sizes": {name: x.numel() for name, x in weights.items()},
        "adler32": zlib.adler32(data),
        "weights": base64.b64encode(data).decode(),
    }


def page(
    model: GPT,
    tokenizer: CharTokenizer | BPETokenizer,
    text: str = TEXT,
    chapters: str | None = None,
) -> str:
    """Returns the whole page as HTML.

    With `chapters`, such as "notebooks/{}.html", it links there. Raises ValueError for
    a model that does not fit, and a text it can't read.
    """
    check_fits(model, tokenizer)
    tokens = check_text(tokenizer, text)
    data = json.dumps(contents(model, tokenizer, text)).replace("<", r"\u003c")
    check_answers(model, tokens)

    # One file of all parts.
    html = (FOLDER / "page.html").read_text("utf-8")
    for name in re.findall(r"@(\w+\.\w+)@", html):
        html = html.replace(f"@{name}@", (FOLDER / name).read_text("utf-8"))

    # Chapters are linked, or only named.
    link = r"\2"
    if chapters:
        address = chapters.format(r"\1")
        # The site shows the page in a frame, which a link should leave.
        link = rf'<a target="_top" href="{address}">\2</a>'
    html = re.sub(r'<a href="(\d\d_\w+)">(.*?)</a>', f"<small>{link}</small>", html)

    config = model.config
    n_weights = sum(x.numel() for x in model.parameters())
    about = (
        f"{n_weights:,} weights, {config.n_layers} blocks, {config.n_heads} heads,"
        f" {config.d_vocab} tokens."
    )
    return html.replace("@about@", about).replace("@model@", data)


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
    weights, with a CharTokenizer or a BPETokenizer of 2,048 tokens.
    """
    html = page(model, tokenizer, text)
    path = Path(path)
    write_atomically(path, html.encode())
    return Page(path, model, tokenizer, text)


def load_model(path: Path) -> GPT:
    """Returns the GPT of a checkpoint, on the CPU.

    Raises ValueError for one that is damaged or of no GPT.
    """
    # Its configuration.
    tensors, about = read_checkpoint(path)
    names = [field.name for field in fields(GPTConfig)]
    for name in names:
        if name not in about["model"]:
            raise ValueError(f"{path} holds another model than a GPT: it has no {name}")
    config = GPTConfig(**{name: about["model"][name] for name in names})

    # Its weights.
    prefix = "model."
    weights = {
        name.removeprefix(prefix): x
        for name, x in tensors.items()
        if name.startswith(prefix)
    }
    shapes = {name: x.shape for name, x in weights.items()}
    plain = plain_shapes(config)
    for name in sorted(shapes.keys() | plain.keys()):
        if shapes.get(name) != plain.get(name):
            raise ValueError(f"{path} holds another model than a GPT: see {name}")

    # A model may have been untied after it was made.
    same = torch.equal(weights["unembedding.weight"], weights["embedding.weight"])
    model = GPT(replace(config, tie_embeddings=config.tie_embeddings and same))
    model.load_state_dict(weights)
    return model.eval()
