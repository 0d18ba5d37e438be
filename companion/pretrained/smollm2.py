"""A published model's weights in our own code: SmolLM2-135M-Instruct. Chapter 12.

The file is in GGUF, as llama.cpp reads it. Its header gives the configuration
(`config_of`) and the tokenizer (`published_tokenizer`); its tensors get our names
(NAMES), and the rows of queries and keys our order (`weights_of`).
"""

import math

import torch
from torch import Tensor, nn

from ..artifacts import SMOLLM2, find
from ..inputs import shown
from ..model.gpt import GPT, GPTConfig
from .gguf import StoredTensor, open_gguf
from .gguf_header import check_keys, header_size, header_value
from .published_tokenizer import PublishedTokenizer
from .quantized import kernel_is_here, pack_weights
from .weights import build, check_weights, empty, rename

# The file's names and ours; {} is the number of the block.
NAMES = {
    "token_embd.weight": "embedding.weight",
    "output_norm.weight": "norm.gain",
    "blk.{}.attn_norm.weight": "blocks.{}.attention_norm.gain",
    "blk.{}.attn_q.weight": "blocks.{}.attention.to_queries.weight",
    "blk.{}.attn_k.weight": "blocks.{}.attention.to_keys.weight",
    "blk.{}.attn_v.weight": "blocks.{}.attention.to_values.weight",
    "blk.{}.attn_output.weight": "blocks.{}.attention.to_output.weight",
    "blk.{}.ffn_norm.weight": "blocks.{}.feed_forward_norm.gain",
    "blk.{}.ffn_gate.weight": "blocks.{}.feed_forward.to_gate.weight",
    "blk.{}.ffn_up.weight": "blocks.{}.feed_forward.to_hidden.weight",
    "blk.{}.ffn_down.weight": "blocks.{}.feed_forward.to_output.weight",
}
# The keys that `config_of` reads.
SIZE_KEYS = {
    "llama.vocab_size",
    "llama.context_length",
    "llama.embedding_length",
    "llama.block_count",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.rope.freq_base",
}
HEAD_WIDTH_KEYS = {
    "llama.attention.key_length",
    "llama.attention.value_length",
    "llama.rope.dimension_count",
}
# Those that may say one thing only, which is what the model computes.
FIXED_MODEL_KEYS = {
    "general.architecture": "llama",
    "general.type": "model",
    "general.quantization_version": 2,
    "llama.tensor_data_layout": "Meta AI original pth",
    "llama.use_parallel_residual": False,
    "llama.expert_count": 0,
    "llama.expert_used_count": 0,
    "llama.attention.causal": True,
    "llama.attention.sliding_window": 0,
    "llama.rope.scale_linear": 1.0,
    "llama.rope.scaling.type": "none",
    "llama.rope.scaling.factor": 1.0,
    "llama.rope.scaling.finetuned": False,
}


def config_of(header: dict) -> GPTConfig:
    """Returns the configuration that a header of the architecture llama describes.

    What a header may leave out is as in llama.cpp: the vocabulary has as many tokens as
    `tokenizer.ggml.tokens`, each head of queries its own keys (`head_count_kv`), and
    the base of the rotation is 10,000 (`rope.freq_base`). Raises ValueError by its key
    for what else is missing, and for all that this model does not compute. Touvron et
    al. 2023, section 2.2.
    """
    header_value(header, "general.architecture")
    check_keys(
        header,
        ("llama.", "split.", "adapter."),
        SIZE_KEYS | HEAD_WIDTH_KEYS,
        FIXED_MODEL_KEYS,
    )

    # Sizes, with the defaults of what may be missing.
    tokens = header.get("tokenizer.ggml.tokens")
    n_tokens = None if tokens is None else len(tokens)
    d_vocab = header_size(header, "llama.vocab_size", default=n_tokens)
    n_heads = header_size(header, "llama.attention.head_count")
    n_kv_heads = header_size(header, "llama.attention.head_count_kv", default=n_heads)
    d_model = header_size(header, "llama.embedding_length")

    check_heads(header, d_model, n_heads, n_kv_heads)
    check_epsilon(header)
    rotary_base = rotary_base_of(header)

    return GPTConfig(
        d_vocab=d_vocab,
        context_length=header_size(header, "llama.context_length"),
        d_model=d_model,
        n_heads=n_heads,
        n_layers=header_size(header, "llama.block_count"),
        n_kv_heads=n_kv_heads,
        d_hidden=header_size(header, "llama.feed_forward_length"),
        positions="rotary",
        rotary_base=rotary_base,
        norm="rms",
        feed_forward="gated",
        activation="silu",
        bias=False,
    )


def check_heads(header: dict, d_model: int, n_heads: int, n_kv_heads: int) -> None:
    """Raises ValueError, by its key, for heads that don't fit the model's width."""
    if d_model % (2 * n_heads):
        raise ValueError(
            f"llama.embedding_length is {d_model}; each of llama.attention.head_count"
            f" heads needs pairs of features ({n_heads})"
        )
    if n_heads % n_kv_heads:
        raise ValueError(
            f"llama.attention.head_count_kv is {n_kv_heads}; it must divide"
            f" llama.attention.head_count ({n_heads})"
        )
    d_head = d_model // n_heads
    for key in sorted(HEAD_WIDTH_KEYS & header.keys()):
        if header[key] != d_head:
            raise ValueError(
                f"{key} is {shown(header[key])}; only the width of a head, {d_head},"
                " is known here"
            )


def check_epsilon(header: dict) -> None:
    """Raises ValueError for norms with another epsilon than ours."""
    key = "llama.attention.layer_norm_rms_epsilon"
    epsilon = header_value(header, key)
    if not isinstance(epsilon, float) or not math.isclose(epsilon, 1e-5, rel_tol=1e-6):
        raise ValueError(f"{key} is {shown(epsilon)}; ours is 1e-5")


def rotary_base_of(header: dict) -> float:
    """Returns the base of the rotation. Raises ValueError for one below 1."""
    key = "llama.rope.freq_base"
    base = header.get(key, 10_000.0)
    is_number = isinstance(base, float | int) and not isinstance(base, bool)
    if not is_number or not 1 <= base < math.inf:
        raise ValueError(f"{key} is {shown(base)}; it must be 1 or more, and finite")
    return base


def weights_of(tensors: dict[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """Returns a GGUF file's tensors by our names, and in our order of rows.

    Raises ValueError as `rename` and `in_our_order` do.
    """
    weights = rename(tensors, NAMES, config.n_layers)
    d_head = config.d_model // config.n_heads
    return {name: in_our_order(name, x, d_head) for name, x in weights.items()}


def in_our_order(name: str, x: Tensor, d_head: int) -> Tensor:
    """Returns a weight of ours with its rows (o ...) in our order.

    In each head of queries and keys the two rows that rotate together are neighbours in
    the file; here they are half a head apart. Raises ValueError for queries or keys
    that are no whole number of heads.
    """
    if "to_queries" not in name and "to_keys" not in name:
        return x
    if len(x) % d_head:
        raise ValueError(
            f"{name} has {len(x)} rows, no whole number of heads of {d_head} features"
        )
    pairs = x.unflatten(0, (-1, d_head // 2, 2))  # (head pair two column)
    return pairs.transpose(1, 2).reshape(x.shape)


def build_packed(config: GPTConfig, tensors: dict[str, StoredTensor]) -> GPT:
    """Builds what `pack_weights` makes of a file's model, and packs it block by block.

    So its weights are never floats all at once, which takes eight times their memory.
    Raises ValueError and RuntimeError as `weights_of` and `build` do.
    """
    stored = rename(tensors, NAMES, config.n_layers)
    d_head = config.d_model // config.n_heads
    model = empty(config)

    parts: list[tuple[str, nn.Module]] = [("norm.", model.norm)]
    parts.append(("embedding.", model.embedding))
    parts += [(f"blocks.{i}.", block) for i, block in enumerate(model.blocks)]
    for prefix, part in parts:
        weights = {}
        for name, x in stored.items():
            if name.startswith(prefix):
                weights[name] = in_our_order(name, x.floats(), d_head)
        check_weights(weights, torch.float32)
        own = {name.removeprefix(prefix): x for name, x in weights.items()}
        part.load_state_dict(own, assign=True)
        if prefix.startswith("blocks."):
            pack_weights(part)

    # The output matrix is the embedding, which itself stays as it is.
    model.unembedding.weight = model.embedding.weight
    return pack_weights(model.eval().requires_grad_(False))


def load_smollm2(*, packed: bool = False) -> tuple[GPT, PublishedTokenizer]:
    """Loads SmolLM2-135M-Instruct from the cache. Returns model and tokenizer.

    30 blocks; Apache-2.0. `packed`: what `pack_weights` makes of it, in a third of the
    memory and of the time. Raises what `find` does. Allal et al. 2025.
    """
    header, stored = open_gguf(find(SMOLLM2))
    config = config_of(header)
    if packed and kernel_is_here():
        model = build_packed(config, stored)
    else:
        tensors = {name: x.floats() for name, x in stored.items()}
        model = build(config, weights_of(tensors, config))
        if packed:
            model = pack_weights(model)  # which says that nothing is packed here
    return model, PublishedTokenizer(header)
