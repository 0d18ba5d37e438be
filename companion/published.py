"""A published model's weights in our own code: SmolLM2-135M-Instruct. Chapter 12.

The file is in GGUF, as llama.cpp reads it. `read_gguf` and NAMES are all that it takes.
"""

import math
from collections.abc import Iterable
from pathlib import Path

import torch
from gguf import GGUFReader, dequantize
from torch import Tensor

from .artifacts import SMOLLM2, find
from .models import GPT, GPTConfig
from .tokenizers import check_ids, encoding, printable_bytes

# Theirs and ours; {} is the number of the block.
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
SIZES = {
    "vocab_size": "d_vocab",
    "context_length": "context_length",
    "embedding_length": "d_model",
    "attention.head_count": "n_heads",
    "block_count": "n_layers",
    "attention.head_count_kv": "n_kv_heads",
    "feed_forward_length": "d_hidden",
    "rope.freq_base": "rotary_base",
}
# Each digit by itself; then as GPT-2. White space before a digit stays whole.
PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
PIECES += r"|\s+(?=\p{N})|\s+(?!\S)|\s+"


def read_gguf(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """A file's header, and its tensors in float32, by their names there.

    Raises ValueError for what is no such file, or not whole.
    """
    try:
        reader = GGUFReader(path)
        header = {name: field.contents() for name, field in reader.fields.items()}
        arrays = {x.name: dequantize(x.data, x.tensor_type) for x in reader.tensors}
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{path} is not a whole GGUF file: {error}") from None
    return header, {name: torch.tensor(x) for name, x in arrays.items()}


def config_of(header: dict) -> GPTConfig:
    """What a header of the architecture llama says. ValueError for another one."""
    kind = header.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"the architecture is {kind!r}; only llama's is known here")
    size = {name.partition(".")[2]: value for name, value in header.items()}
    eps = size.get("attention.layer_norm_rms_epsilon", 1e-5)
    if not math.isclose(eps, 1e-5, rel_tol=1e-3):
        raise ValueError(f"the norms' epsilon is {eps}; ours is 1e-5")
    sizes = {ours: size[theirs] for theirs, ours in SIZES.items()}
    kinds = {"norm": "rms", "feed_forward": "gated", "activation": "silu"}
    return GPTConfig(**sizes, **kinds, positions="rotary", bias=False)


def rename(tensors: dict[str, Tensor], names: dict, n_blocks: int) -> dict[str, Tensor]:
    """The tensors by our names; {} in `names` stands for the number of the block.

    Raises ValueError for one that the file lacks, or that has no place in the model.
    """
    blocks = range(n_blocks)
    ours = {a.format(i): b.format(i) for a, b in names.items() for i in blocks}
    if differing := sorted(ours.keys() ^ tensors.keys()):
        what = "the file has no tensor" if differing[0] in ours else "no place for"
        raise ValueError(f"{what} {differing[0]}")
    return {ours[name]: x for name, x in tensors.items()}


def weights_of(tensors: dict[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """A GGUF file's tensors by our names, the rows of queries and keys in our order.

    In each head the two rows that rotate together are neighbours in the file; here
    they are half a head apart. Raises ValueError as `rename` does.
    """
    weights = rename(tensors, NAMES, config.n_layers)
    half = config.d_model // config.n_heads // 2
    for name, x in weights.items():
        if "to_queries" in name or "to_keys" in name:
            pairs = x.unflatten(0, (-1, half, 2))  # (head pair two column)
            weights[name] = pairs.transpose(1, 2).reshape(x.shape)
    return weights


def build(config: GPTConfig, weights: dict[str, Tensor]) -> GPT:
    """A GPT that has these weights, to be used and not trained."""
    with torch.device("meta"):  # no numbers are drawn that would be overwritten
        model = GPT(config)
    output = {"unembedding.weight": weights["embedding.weight"]} if config.tied else {}
    model.load_state_dict(weights | output, assign=True)
    if config.tied:
        model.unembedding.weight = model.embedding.weight
    return model.eval().requires_grad_(False)


class PublishedTokenizer:
    """Byte-pair encoding by a GGUF header's vocabulary, with special tokens.

    `encode` never makes a special token of a text, whatever it says; `chat` does.
    """

    def __init__(self, header: dict):
        tokens = header["tokenizer.ggml.tokens"]
        kinds = header["tokenizer.ggml.token_type"]  # 3: special
        self.d_vocab, self.end = len(tokens), header["tokenizer.ggml.eos_token_id"]
        pairs = zip(tokens, kinds, strict=True)
        self.special = {t: i for i, (t, kind) in enumerate(pairs) if kind == 3}
        to_byte = printable_bytes()
        self.pieces = [
            b"" if token in self.special else bytes(to_byte[x] for x in token)
            for token in tokens
        ]
        ranks = {piece: i for i, piece in enumerate(self.pieces) if piece}
        missing = (bytes([i]) for i in range(256) if bytes([i]) not in ranks)
        ranks |= {byte: self.d_vocab + i for i, byte in enumerate(missing)}
        self.encoding = encoding(ranks, PIECES)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; a byte that the vocabulary lacks is read as U+FFFD."""
        unknown = self.encoding.encode_ordinary("\ufffd")
        ids = self.encoding.encode_ordinary(text)
        return [x for i in ids for x in ([i] if i < self.d_vocab else unknown)]

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of `tokens`, special ones left out; broken characters become U+FFFD."""
        ids = check_ids(tokens, self.d_vocab)
        return b"".join(self.pieces[i] for i in ids).decode(errors="replace")

    def chat(self, messages: list[tuple[str, str]]) -> list[int]:
        """Tokens of a talk, [(role, text), ...], up to where the model answers."""
        ids = []
        for role, text in messages:
            ids += [self.special["<|im_start|>"], *self.encode(f"{role}\n{text}")]
            ids += [self.special["<|im_end|>"], *self.encode("\n")]
        return [*ids, self.special["<|im_start|>"], *self.encode("assistant\n")]


def load_smollm2() -> tuple[GPT, PublishedTokenizer]:
    """SmolLM2-135M-Instruct from the cache: the model, 30 blocks, and its tokenizer.

    Allal et al. 2025; Apache-2.0. Raises what `find` does.
    """
    header, tensors = read_gguf(find(SMOLLM2))
    config = config_of(header)
    return build(config, weights_of(tensors, config)), PublishedTokenizer(header)
