"""A published model's weights in our own code: SmolLM2-135M-Instruct. Chapter 12.

The file is in GGUF, as llama.cpp reads it. Its header gives the configuration
(`config_of`) and the tokenizer (`PublishedTokenizer`); its tensors get our names
(NAMES), and the rows of queries and keys our order (`weights_of`).
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..artifacts import SMOLLM2, find
from ..inputs import shown
from ..model.gpt import GPT, GPTConfig
from ..text.tokenizers import WHITE_SPACE, check_ids, encoding, printable_bytes
from .gguf import StoredTensor, open_gguf
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
# The same for the tokenizer. Numbers of special tokens don't change how text is cut.
TOKENIZER_KEYS = {
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.scores",  # of another kind of tokenizer
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.seperator_token_id",  # GGUF's own spelling
    "tokenizer.ggml.mask_token_id",
}
FIXED_TOKENIZER_KEYS = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.ggml.add_eos_token": False,
    "tokenizer.ggml.add_sep_token": False,
    "tokenizer.ggml.add_space_prefix": False,
    "tokenizer.ggml.remove_extra_whitespaces": False,
}
# Each digit by itself; then as GPT-2. White space before a digit stays whole: ++ takes
# all of it or nothing.
PIECE_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
PIECE_PATTERN += rf"|\s++(?=\p{{N}})|{WHITE_SPACE}(?!\S)|\s+"


def header_value(header: dict, key: str) -> Any:
    """Returns what the header says under a key. ValueError where it says nothing."""
    if key not in header:
        raise ValueError(f"the header has no {key}")
    return header[key]


def header_size(header: dict, key: str, default: int | None = None) -> int:
    """Returns a size, the same for all blocks. ValueError by its key for another."""
    if default is None:
        size = header_value(header, key)
    else:
        size = header.get(key, default)
    if type(size) is not int or size < 1:
        raise ValueError(
            f"{key} is {shown(size)}; it must be one whole number, 1 or more"
        )
    return size


def check_keys(
    header: dict, prefixes: tuple[str, ...], read: set[str], fixed: dict
) -> None:
    """Checks that the header says nothing that would be passed over.

    Raises ValueError by its key for a value that is not the `fixed` one, and for a key
    that begins with one of the `prefixes` and is neither fixed nor one of those `read`.
    """
    for key, value in header.items():
        if key in fixed:
            if value != fixed[key]:
                raise ValueError(
                    f"{key} is {shown(value)}; only {fixed[key]!r} is known here"
                )
        elif key.startswith(prefixes) and key not in read:
            raise ValueError(f"{key} is {shown(value)}; this key is not known here")


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


def special_tokens(header: dict) -> dict[str, int]:
    """Returns the special tokens of a header, and their numbers.

    Raises ValueError for a type of token that is cut out of a text in another way.
    """
    key = "tokenizer.ggml.token_type"
    tokens = header["tokenizer.ggml.tokens"]
    token_types = header_value(header, key)
    if len(token_types) != len(tokens):
        raise ValueError(
            f"{key} has {len(token_types)} entries for {len(tokens)} tokens"
        )

    special = {}
    for i, token_type in enumerate(token_types):
        if token_type == 3:
            special[tokens[i]] = i
        elif token_type != 1:
            raise ValueError(
                f"{key} of token {i} is {token_type}; only 1, normal, and 3, special,"
                " are known here"
            )
    return special


def check_merges(header: dict, special: dict[str, int]) -> None:
    """Checks that every longer token is one merge, in the order of its number.

    Only then may a token's number be the rank of its merge. Raises ValueError where it
    is not so.
    """
    numbers = {token: i for i, token in enumerate(header["tokenizer.ggml.tokens"])}
    longer = []
    for token, i in numbers.items():
        if len(token) > 1 and token not in special:
            longer.append(i)

    merges = header_value(header, "tokenizer.ggml.merges")
    merged = [numbers.get("".join(pair.split(" "))) for pair in merges]
    if merged != longer:
        raise ValueError(
            f"tokenizer.ggml.merges has {len(merges)} merges; it must have the longer"
            " tokens, each once, in the order of tokens"
        )


def bytes_of(tokens: list[str], special: dict[str, int]) -> list[bytes]:
    """Returns the bytes that each token stands for, none for a special one.

    Raises ValueError for a token whose characters stand for no bytes.
    """
    to_byte = printable_bytes()
    pieces = []
    for i, token in enumerate(tokens):
        if token in special:
            pieces.append(b"")
        elif set(token) <= to_byte.keys():
            pieces.append(bytes(to_byte[character] for character in token))
        else:
            raise ValueError(
                f"tokenizer.ggml.tokens: {i} is {token!r}; its characters must stand"
                " for bytes, as GPT-2's do"
            )
    return pieces


class PublishedTokenizer:
    """Encodes by the byte pairs of a GGUF header, and knows its special tokens.

    `encode` never makes a special token of a text, whatever it says; `chat` does. An
    answer is over with any of them: `ends` has their numbers, and `end` is the one that
    the model has learned to end with.
    Raises ValueError by its key for what the header lacks, and for another way to cut
    text than SmolLM2's. Sennrich et al. 2016, on bytes.
    """

    def __init__(self, header: dict):
        # What the header must say, and nothing else about how text is cut.
        check_keys(header, ("tokenizer.ggml.",), TOKENIZER_KEYS, FIXED_TOKENIZER_KEYS)
        header_value(header, "tokenizer.ggml.model")
        header_value(header, "tokenizer.ggml.pre")
        tokens = header_value(header, "tokenizer.ggml.tokens")
        self.d_vocab = len(tokens)
        self.end = header_value(header, "tokenizer.ggml.eos_token_id")
        self.template = header.get("tokenizer.chat_template", "")
        self.special = special_tokens(header)
        self.ends = {self.end, *self.special.values()}
        self.pieces = bytes_of(tokens, self.special)
        check_merges(header, self.special)

        # A token's number is the rank of its merge. tiktoken needs all 256 bytes: those
        # that the vocabulary lacks are numbered after it, and `encode` replaces them.
        ranks = {piece: i for i, piece in enumerate(self.pieces) if piece}
        next_rank = self.d_vocab
        for i in range(256):
            byte = bytes([i])
            if byte not in ranks:
                ranks[byte] = next_rank
                next_rank += 1
        self.encoding = encoding(ranks, PIECE_PATTERN)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text; a byte that no token stands for reads as U+FFFD.

        Of a special token's name they are those of its characters.
        """
        unknown = self.encoding.encode_ordinary("\ufffd")
        ids = []
        for i in self.encoding.encode_ordinary(text):
            if i < self.d_vocab:
                ids.append(i)
            else:
                ids.extend(unknown)
        return ids

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of token ids, without the special ones.

        Bytes that are no character become U+FFFD. Raises ValueError for another id.
        """
        ids = check_ids(tokens, self.d_vocab)
        return b"".join(self.pieces[i] for i in ids).decode(errors="replace")

    def chat(self, messages: list[tuple[str, str]]) -> list[int]:
        """Returns the ids of a talk, [(role, text), ...], up to the model's answer.

        Raises ValueError where the header's own form of a talk is another.
        """
        for mark in ("<|im_start|>", "<|im_end|>"):
            if mark not in self.special or mark not in self.template:
                raise ValueError(f"tokenizer.chat_template has no special token {mark}")
        start = self.special["<|im_start|>"]
        end = self.special["<|im_end|>"]

        ids = []
        for role, text in messages:
            ids += [start, *self.encode(f"{role}\n{text}")]
            ids += [end, *self.encode("\n")]
        ids += [start, *self.encode("assistant\n")]
        return ids


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
