"""GPT-2's published weights in our own code. Chapter 12.

Three traps: matrices are stored turned over; queries, keys and values lie side by side
in one; and `attn.bias` is a mask, no weight. Radford et al. 2019.
"""

from pathlib import Path

import tiktoken
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .artifacts import GPT2, read
from .models import GPT, GPTConfig
from .published import filled
from .tokenizers import gpt2_tokenizer

# Theirs and ours; {} is the number of the block, and each has a weight and a bias.
BLOCK = {
    "h.{}.ln_1": "blocks.{}.attention_norm",
    "h.{}.attn.c_attn": "blocks.{}.attention",
    "h.{}.attn.c_proj": "blocks.{}.attention.to_output",
    "h.{}.ln_2": "blocks.{}.feed_forward_norm",
    "h.{}.mlp.c_fc": "blocks.{}.feed_forward.to_hidden",
    "h.{}.mlp.c_proj": "blocks.{}.feed_forward.to_output",
}
MASKS = (".attn.bias", ".attn.masked_bias")


def named(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by our names. ValueError for one that is missing or has no place."""
    rest = {name.removeprefix("transformer."): x for name, x in tensors.items()}
    rest = {name: x for name, x in rest.items() if not name.endswith(MASKS)}
    rest.pop("lm_head.weight", None)  # the embedding once more

    def take(name: str) -> Tensor:
        if name not in rest:
            raise ValueError(f"the file has no tensor {name}")
        return rest.pop(name)

    found = {
        "embedding.weight": take("wte.weight"),
        "positions.table.weight": take("wpe.weight"),
        "norm.gain": take("ln_f.weight"),
        "norm.bias": take("ln_f.bias"),
    }
    for i in range(count_blocks(rest)):
        for theirs, ours in BLOCK.items():
            weight, bias = (take(f"{theirs}.{x}".format(i)) for x in ("weight", "bias"))
            found |= placed(ours.format(i), weight, bias)
    if rest:
        raise ValueError(f"there is no place for {min(rest)}")
    return found


def count_blocks(tensors: dict[str, Tensor]) -> int:
    """How many blocks names such as h.11.ln_1.weight belong to."""
    return 1 + max((int(name.split(".")[1]) for name in tensors), default=-1)


def placed(ours: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """A norm's two vectors, or a layer's matrix, the right way round, and bias."""
    if weight.dim() == 1:
        return {f"{ours}.gain": weight, f"{ours}.bias": bias}
    if not ours.endswith("attention"):
        return {f"{ours}.weight": weight.T, f"{ours}.bias": bias}
    found = {}
    parts = zip(weight.chunk(3, dim=1), bias.chunk(3), strict=True)
    for name, (part, offset) in zip(("queries", "keys", "values"), parts, strict=True):
        found[f"{ours}.to_{name}.weight"] = part.T
        found[f"{ours}.to_{name}.bias"] = offset
    return found


def load_gpt2(path: Path | None = None) -> tuple[GPT, tiktoken.Encoding]:
    """GPT-2 from the cache, or from a file of one of its four sizes; its tokenizer.

    `python -m companion gpt2` fetches it, 548 MB. Raises FileNotFoundError where it
    isn't there, ValueError where it is damaged or a tensor is missing or misshapen.
    """
    if path is None:
        read(GPT2)  # raises where it isn't whole
        path = GPT2.path
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
    weights = named(tensors)
    d_vocab, d_model = weights["embedding.weight"].shape
    config = GPTConfig(
        d_vocab=d_vocab,
        context_length=len(weights["positions.table.weight"]),
        d_model=d_model,
        n_heads=max(1, d_model // 64),  # 64 features a head in all four sizes
        n_layers=sum(name.endswith("attention_norm.gain") for name in weights),
    )
    return filled(config, weights), gpt2_tokenizer()
