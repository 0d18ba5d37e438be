"""Other families' weights in our own code: Llama, Qwen 3, OLMo 2. Chapter 12.

A folder has a config.json and safetensors, as on Hugging Face's hub. A GPT is built as
the configuration says. For two things it has no switch, and modules are put together
anew: queries and keys are scaled behind their projections, to a mean square of 1 and by
gains, and a norm after half a block moves behind its output matrix.
"""

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from ..inputs import shown
from ..model.blocks import RMSNorm, replace_layer
from ..model.gpt import GPT, GPTConfig
from ..tensor_files import UNREADABLE
from .anatomy import Anatomy
from .config_json import read_anatomy, read_config
from .model_types import AFTER, ALL_HEADS, FAMILIES
from .weights import build, empty, rename

# The files' names and ours; {} is the number of the block.
NAMES = {
    "model.embed_tokens.weight": "embedding.weight",
    "model.norm.weight": "norm.gain",
    "model.layers.{}.self_attn.q_proj.weight": "blocks.{}.attention.to_queries.weight",
    "model.layers.{}.self_attn.k_proj.weight": "blocks.{}.attention.to_keys.weight",
    "model.layers.{}.self_attn.v_proj.weight": "blocks.{}.attention.to_values.weight",
    "model.layers.{}.self_attn.o_proj.weight": "blocks.{}.attention.to_output.weight",
    "model.layers.{}.mlp.gate_proj.weight": "blocks.{}.feed_forward.to_gate.weight",
    "model.layers.{}.mlp.up_proj.weight": "blocks.{}.feed_forward.to_hidden.weight",
    "model.layers.{}.mlp.down_proj.weight": "blocks.{}.feed_forward.to_output.weight",
}
OUTPUT_NAME = {"lm_head.weight": "unembedding.weight"}
# Of each half of a block its norm, before or after it.
NORM_NAMES = {
    "model.layers.{}.input_layernorm.weight": "blocks.{}.attention_norm.gain",
    "model.layers.{}.post_attention_layernorm.weight": (
        "blocks.{}.feed_forward_norm.gain"
    ),
}
NORM_AFTER_NAMES = {
    "model.layers.{}.post_attention_layernorm.weight": "blocks.{}.attention_norm.gain",
    "model.layers.{}.post_feedforward_layernorm.weight": (
        "blocks.{}.feed_forward_norm.gain"
    ),
}
# What a GPT has no place for: `ScaledHeads` has.
GAIN_NAMES = {
    "model.layers.{}.self_attn.q_norm.weight": "blocks.{}.attention.to_queries.gain",
    "model.layers.{}.self_attn.k_norm.weight": "blocks.{}.attention.to_keys.gain",
}
GAINS = ("to_queries.gain", "to_keys.gain")
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
# Angles of the rotation, which old files carry beside the weights.
ANGLES = "rotary_emb.inv_freq"


class ScaledHeads(nn.Module):
    """Projects x, scales what comes out to a mean square of 1, each feature by a gain.

    As many features as the gain has are scaled together: those of a head, or all.
    Henry et al. 2020; Yang et al. 2025 (Qwen 3); OLMo et al. 2024 (OLMo 2).
    """

    def __init__(self, projection: nn.Module, gain: Tensor, eps: float):
        super().__init__()
        self.projection = projection
        self.gain = nn.Parameter(gain, requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Takes x (b t c) to (b t c), the heads side by side."""
        parts = self.projection(x).unflatten(-1, (-1, len(self.gain)))
        return F.rms_norm(parts, self.gain.shape, self.gain, self.eps).flatten(-2)


def load_family(folder: Path | str) -> tuple[GPT, Tokenizer | None]:
    """Loads a model from a folder of config.json and safetensors, and its tokenizer.

    Returns the model, to be used and not trained, and what the library `tokenizers`
    makes of tokenizer.json, or None where there is no such file. Nothing is read that
    could run code. `read_anatomy` says what the families are, and what can't be held.
    Chapter 12.
    Raises FileNotFoundError for what isn't there, and ValueError for a model that can't
    be held, a file that isn't whole, and tensors that are missing, too many, or of
    another shape.
    """
    folder = Path(folder)
    anatomy = read_anatomy(read_config(folder))
    lacking = anatomy.lacking()
    if lacking:
        raise ValueError(
            f"{anatomy.family} can't be loaded: it has {'; '.join(lacking)}"
        )

    # The tensors, by our names; gains of queries and keys come after.
    config = family_config(anatomy)
    weights = family_weights(read_tensors(folder), anatomy)
    gains = {name: weights.pop(name) for name in [*weights] if name.endswith(GAINS)}
    expected = empty(config).state_dict()
    add_zero_biases(weights, expected)
    check_shapes(weights, expected)
    model = build(config, weights)

    # What there is no switch for.
    family = FAMILIES[anatomy.family]
    if family.qk_norm is not None:
        scale_heads(model, gains, anatomy)
    if family.norms == AFTER:
        move_norms_behind(model)
    for part in model.modules():
        if isinstance(part, RMSNorm):
            part.eps = anatomy.norm_epsilon
    return model, read_tokenizer(folder)


def scale_heads(model: GPT, gains: dict[str, Tensor], anatomy: Anatomy) -> None:
    """Scales all queries and keys to a mean square of 1, by the gains of their names.

    Raises ValueError for a gain that doesn't fit.
    """
    all_heads = FAMILIES[anatomy.family].qk_norm == ALL_HEADS
    for gain_name, gain in gains.items():
        name = gain_name.removesuffix(".gain")
        projection: Any = model.get_submodule(name)
        n_scaled = projection.out_features if all_heads else anatomy.d_head
        if gain.shape != (n_scaled,):
            raise ValueError(
                f"{gain_name} is {shown(gain)}; it must have {n_scaled} numbers"
            )
        replace_layer(model, name, ScaledHeads(projection, gain, anatomy.norm_epsilon))


def move_norms_behind(model: GPT) -> None:
    """Moves the norm before each half of a block behind the half's output matrix."""
    block: Any  # a ModuleList does not say of what class its modules are
    for block in model.blocks:
        for half, norm in (
            (block.attention, block.attention_norm),
            (block.feed_forward, block.feed_forward_norm),
        ):
            half.to_output = nn.Sequential(half.to_output, norm)
        block.attention_norm = nn.Identity()
        block.feed_forward_norm = nn.Identity()


def family_config(anatomy: Anatomy) -> GPTConfig:
    """Returns the configuration of the GPT that such a model's weights go into."""
    return GPTConfig(
        d_vocab=anatomy.d_vocab,
        context_length=anatomy.context_length,
        d_model=anatomy.d_model,
        n_heads=anatomy.n_heads,
        n_layers=anatomy.n_layers,
        n_kv_heads=anatomy.n_kv_heads,
        d_hidden=anatomy.d_hidden,
        positions="rotary",
        rotary_base=anatomy.rotary_base,
        norm="rms",
        feed_forward="gated",
        activation="silu",
        bias=anatomy.attention_bias or anatomy.mlp_bias,
        tie_embeddings=anatomy.is_tied,
    )


def names_of(anatomy: Anatomy) -> dict[str, str]:
    """Returns the names of all tensors that such a model's files have, and ours."""
    family = FAMILIES[anatomy.family]
    names = dict(NAMES)
    names |= NORM_AFTER_NAMES if family.norms == AFTER else NORM_NAMES
    if family.qk_norm is not None:
        names |= GAIN_NAMES
    if not anatomy.is_tied:
        names |= OUTPUT_NAME
    for name, ours in NAMES.items():
        in_attention = anatomy.attention_bias and ".self_attn." in name
        in_feed_forward = anatomy.mlp_bias and ".mlp." in name
        if in_attention or in_feed_forward:
            names[as_bias(name)] = as_bias(ours)
    return names


def as_bias(name: str) -> str:
    """Returns the name of the bias that belongs to a matrix."""
    return name.removesuffix("weight") + "bias"


def family_weights(tensors: dict[str, Tensor], anatomy: Anatomy) -> dict[str, Tensor]:
    """Returns the tensors of a family's files by our names.

    Tables of angles, which old files have, are left out, and so is a tied model's
    second copy of its embedding. Raises ValueError where that is no copy, and as
    `rename` does.
    """
    weights = {name: x for name, x in tensors.items() if not name.endswith(ANGLES)}
    embedding = weights.get("model.embed_tokens.weight")
    if anatomy.is_tied and embedding is not None:
        output = weights.pop("lm_head.weight", embedding)
        if not torch.equal(output, embedding):
            raise ValueError(
                "lm_head.weight is not the embedding; tie_word_embeddings says it is"
            )
    return rename(weights, names_of(anatomy), anatomy.n_layers)


def add_zero_biases(weights: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Adds the biases that the model doesn't have: a GPT has all of them or none."""
    dtype = weights["embedding.weight"].dtype
    for name, x in expected.items():
        if name.endswith(".bias") and name not in weights:
            weights[name] = torch.zeros(x.shape, dtype=dtype)


def check_shapes(weights: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Raises ValueError for a tensor of another shape than config.json says."""
    for name, x in weights.items():
        if x.shape != expected[name].shape:
            raise ValueError(
                f"{name} is {tuple(x.shape)} in the file and"
                f" {tuple(expected[name].shape)} by config.json"
            )


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Reads a folder's safetensors, one file or many. Returns the tensors by name.

    Raises FileNotFoundError where there are none, or one of many is missing, and
    ValueError for a file that isn't whole or doesn't hold what the index says.
    """
    if (folder / INDEX).is_file():
        return read_indexed(folder)
    if (folder / WHOLE).is_file():
        return read_file(folder / WHOLE)
    raise FileNotFoundError(
        f"{folder} has no {WHOLE} and no {INDEX}; other forms of weights, which may"
        " run code, are not read"
    )


def read_indexed(folder: Path) -> dict[str, Tensor]:
    """Reads what an index names, file by file, and raises what `read_tensors` does."""
    index = folder / INDEX
    try:
        file_of = json.loads(index.read_bytes())["weight_map"]
        paths = [folder / name for name in sorted(set(file_of.values()))]
    except UNREADABLE as error:
        raise ValueError(f"{index} is no whole index: {error!r}") from None

    tensors: dict[str, Tensor] = {}
    for path in paths:
        if path.parent != folder or not path.is_file():
            raise FileNotFoundError(
                f"{INDEX} names {path.name}, which isn't in {folder}"
            )
        part = read_file(path)
        differing = part.keys() ^ {x for x in file_of if file_of[x] == path.name}
        if differing:
            raise ValueError(
                f"{path} and {INDEX} don't agree on {sorted(differing)[0]}"
            )
        tensors |= part
    return tensors


def read_file(path: Path) -> dict[str, Tensor]:
    """Reads one file of safetensors. ValueError for what is no such file, or damaged"""
    try:
        return load_file(path)
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} is damaged, or no safetensors: {error}") from None


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Reads tokenizer.json by the library `tokenizers`. Returns None without the file.

    Raises ValueError for a file that isn't whole.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower one
        raise ValueError(f"{path} is no whole tokenizer: {error}") from None
