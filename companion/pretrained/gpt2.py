"""GPT-2's published weights in our own code. Chapter 12.

Three traps: matrices are stored transposed; queries, keys and values lie side by side
in one matrix; and `attn.bias` is a mask, no weight. Radford et al. 2019.
"""

from pathlib import Path

import tiktoken
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..artifacts import GPT2, find
from ..inputs import shown
from ..model.gpt import GPT, GPTConfig
from ..text.tokenizers import gpt2_tokenizer
from .weights import build, rename

# The file's names and ours; {} is the number of the block. `attention.all` stands for
# queries, keys and values, which `gpt2_weights` parts.
NAMES = {
    "wte.weight": "embedding.weight",
    "wpe.weight": "positions.table.weight",
    "h.{}.ln_1.weight": "blocks.{}.attention_norm.gain",
    "h.{}.ln_1.bias": "blocks.{}.attention_norm.bias",
    "h.{}.attn.c_attn.weight": "blocks.{}.attention.all.weight",
    "h.{}.attn.c_attn.bias": "blocks.{}.attention.all.bias",
    "h.{}.attn.c_proj.weight": "blocks.{}.attention.to_output.weight",
    "h.{}.attn.c_proj.bias": "blocks.{}.attention.to_output.bias",
    "h.{}.ln_2.weight": "blocks.{}.feed_forward_norm.gain",
    "h.{}.ln_2.bias": "blocks.{}.feed_forward_norm.bias",
    "h.{}.mlp.c_fc.weight": "blocks.{}.feed_forward.to_hidden.weight",
    "h.{}.mlp.c_fc.bias": "blocks.{}.feed_forward.to_hidden.bias",
    "h.{}.mlp.c_proj.weight": "blocks.{}.feed_forward.to_output.weight",
    "h.{}.mlp.c_proj.bias": "blocks.{}.feed_forward.to_output.bias",
    "ln_f.weight": "norm.gain",
    "ln_f.bias": "norm.bias",
}
MASKS = (".attn.bias", ".attn.masked_bias")
# The four sizes: width and blocks, and the heads, which no file says.
HEADS = {(768, 12): 12, (1024, 24): 16, (1280, 36): 20, (1600, 48): 25}


def gpt2_weights(tensors: dict[str, Tensor], n_blocks: int) -> dict[str, Tensor]:
    """Returns GPT-2's tensors by our names, each matrix turned to (outputs, inputs).

    Raises ValueError as `rename` does.
    """
    weights = {}
    for name, x in rename(tensors, NAMES, n_blocks).items():
        if name.startswith("blocks"):
            x = x.t()  # which leaves vectors, of norms and biases, as they are
        if ".all." in name:
            queries, keys, values = x.tensor_split(3)  # three of whatever size
            weights[name.replace("all", "to_queries")] = queries
            weights[name.replace("all", "to_keys")] = keys
            weights[name.replace("all", "to_values")] = values
        else:
            weights[name] = x

    # No two may share memory, or safetensors would not save a model of them.
    return {
        name: x.clone(memory_format=torch.contiguous_format)
        for name, x in weights.items()
    }


def n_heads_of(d_model: int, n_blocks: int) -> int:
    """Returns the heads of one of GPT-2's four sizes. ValueError for another size."""
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
    """Loads GPT-2 from the cache, or a file of its form. Returns model and tokenizer.

    A file of none of the four sizes, but else of GPT-2's parts, needs its `n_heads`. An
    output matrix `lm_head.weight` that differs from the embedding is the model's own.
    `python -m companion gpt2` fetches the smallest, 548 MB. Raises what `find` and
    `rename` do, ValueError for a damaged file and a size whose heads aren't known, and
    RuntimeError where a tensor has another shape. Radford et al. 2019.
    """
    # Some files say "transformer." before each name but the output matrix's.
    path = find(GPT2) if path is None else path
    try:
        stored = load_file(path)
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} is damaged, or no safetensors: {error}") from None
    tensors = {}
    for stored_name, x in stored.items():
        name = stored_name.removeprefix("transformer.")
        if name in tensors:
            raise ValueError(f"{path} has {name} twice, once as transformer.{name}")
        if not name.endswith(MASKS):
            tensors[name] = x
    output = tensors.pop("lm_head.weight", None)

    numbers = {name.split(".")[1] for name in tensors if name.startswith("h.")}
    n_blocks = max(1, len(numbers))
    weights = gpt2_weights(tensors, n_blocks)
    for name in ("wte.weight", "wpe.weight"):  # which say the sizes
        if tensors[name].dim() != 2:
            raise RuntimeError(f"{name} is {shown(tensors[name])}; it must be a matrix")
    embedding = weights["embedding.weight"]
    d_vocab, d_model = embedding.shape
    if n_heads is None:
        n_heads = n_heads_of(d_model, n_blocks)

    is_tied = output is None or torch.equal(output, embedding)
    if output is not None and not is_tied:
        weights["unembedding.weight"] = output
    config = GPTConfig(
        d_vocab=d_vocab,
        context_length=len(weights["positions.table.weight"]),
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_blocks,
        tie_embeddings=is_tied,
    )
    return build(config, weights), gpt2_tokenizer()
