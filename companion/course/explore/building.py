"""Builds the page: what it computes with, and one file of all its parts."""

import base64
import json
import re
import zlib
from pathlib import Path

import torch

from ...model.gpt import GPT
from ...model.positions import alibi_slopes
from ...text.tokenizers import BPETokenizer, CharTokenizer
from .fits import check_answers, check_fits, check_text

FOLDER = Path(__file__).parent
TEXT = "JULIET:\nO gentle night, I pray thee, bring my lord to the gate"


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
