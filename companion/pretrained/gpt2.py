"""GPT-2's published weights in our own code. Chapter 12.

Three traps: matrices are stored transposed; queries, keys and values lie side by side
in one matrix; and `attn.bias` is a mask, no weight. Radford et al. 2019.
"""

from pathlib import Path

import tiktoken
import torch
from safetensors.torch import load_file
from torch import Tensor

from ..artifacts import GPT2, find
from ..model.gpt import GPT, GPTConfig
from ..text.tokenizers import gpt2_tokenizer
from .smollm2 import build, rename

# Theirs and ours; {} is the number of the block.
NORMS = {
    "ln_f": "norm",
    "h.{}.ln_1": "blocks.{}.attention_norm",
    "h.{}.ln_2": "blocks.{}.feed_forward_norm",
}
LAYERS = {
    "h.{}.attn.c_attn": "blocks.{}.attention.all",
    "h.{}.attn.c_proj": "blocks.{}.attention.to_output",
    "h.{}.mlp.c_fc": "blocks.{}.feed_forward.to_hidden",
    "h.{}.mlp.c_proj": "blocks.{}.feed_forward.to_output",
}
NAMES = {"wte.weight": "embedding.weight", "wpe.weight": "positions.table.weight"}
NAMES |= {f"{theirs}.weight": f"{ours}.gain" for theirs, ours in NORMS.items()}
NAMES |= {f"{theirs}.weight": f"{ours}.weight" for theirs, ours in LAYERS.items()}
NAMES |= {f"{theirs}.bias": f"{ours}.bias" for theirs, ours in (NORMS | LAYERS).items()}
MASKS = (".attn.bias", ".attn.masked_bias")
# The four sizes: width and blocks, and the heads, which no file says.
HEADS = {(768, 12): 12, (1024, 24): 16, (1280, 36): 20, (1600, 48): 25}


def weights_of(tensors: dict[str, Tensor], n_blocks: int) -> dict[str, Tensor]:
    """GPT-2's tensors by our names, each matrix turned to (outputs, inputs)."""
    weights = rename(tensors, NAMES, n_blocks)
    for name in [name for name in weights if name.startswith("blocks")]:
        x = weights.pop(name).t()
        if ".all." in name:
            for part, rows in zip(
                ("queries", "keys", "values"), x.chunk(3), strict=True
            ):
                weights[name.replace("all", f"to_{part}")] = rows
        else:
            weights[name] = x
    plain = {"memory_format": torch.contiguous_format}
    return {name: x.clone(**plain) for name, x in weights.items()}


def n_heads_of(d_model: int, n_blocks: int) -> int:
    """The heads of one of GPT-2's four sizes. ValueError for another size."""
    if (d_model, n_blocks) not in HEADS:
        sizes = ", ".join(f"{width} x {blocks}" for width, blocks in HEADS)
        raise ValueError(
            f"a file of width {d_model} with {n_blocks} blocks is none of GPT-2's sizes"
            f" ({sizes}), and a file does not say its heads: give n_heads"
        )
    return HEADS[d_model, n_blocks]


def load_gpt2(
    path: Path | None = None, n_heads: int | None = None
) -> tuple[GPT, tiktoken.Encoding]:
    """GPT-2 from the cache, or from a file of one of its four sizes; its tokenizer.

    A file of another size, but else of GPT-2's parts, needs its `n_heads`. An output
    matrix `lm_head.weight` that differs from the embedding is the model's own.
    `python -m companion gpt2` fetches it, 548 MB. Raises what `find` and `rename` do,
    ValueError for a size whose heads aren't known, and RuntimeError where a tensor has
    another shape.
    """
    tensors = {
        name.removeprefix("transformer."): x
        for name, x in load_file(find(GPT2) if path is None else path).items()
        if not name.endswith(MASKS)
    }
    output = tensors.pop("lm_head.weight", None)
    numbers = {name.split(".")[1] for name in tensors if name.startswith("h.")}
    n_blocks = max(1, len(numbers))
    weights = weights_of(tensors, n_blocks)

    d_vocab, d_model = weights["embedding.weight"].shape
    if n_heads is None:
        n_heads = n_heads_of(d_model, n_blocks)
    tied = output is None or torch.equal(output, weights["embedding.weight"])
    if not tied:
        weights["unembedding.weight"] = output
    config = GPTConfig(
        d_vocab=d_vocab,
        context_length=len(weights["positions.table.weight"]),
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_blocks,
        tie_embeddings=tied,
    )
    return build(config, weights), gpt2_tokenizer()
