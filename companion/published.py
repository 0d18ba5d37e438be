"""A published model's weights in our own code: SmolLM2-135M-Instruct. Chapter 12.

The file is in GGUF, as llama.cpp reads it. `read_gguf` and NAMES are all that it takes.
"""

import math
from collections.abc import Iterable
from pathlib import Path

import tiktoken
import torch
from gguf import GGUFReader, dequantize
from torch import Tensor, nn

from .artifacts import SMOLLM2, read
from .inputs import check_text
from .models import GPT, GPTConfig
from .tokenizers import check_ids

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
# Each digit by itself; then as GPT-2. White space before a digit stays whole.
PIECES = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?=\p{N})|\s+(?!\S)|\s+"
)


def read_gguf(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """A file's header, and its tensors in float32, by their names there.

    Raises ValueError for what is no such file, or not whole.
    """
    try:
        reader = GGUFReader(path)
        header = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {
            tensor.name: torch.tensor(dequantize(tensor.data, tensor.tensor_type))
            for tensor in reader.tensors
        }
    except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a whole GGUF file: {error}") from None
    return header, tensors


def config_of(header: dict) -> GPTConfig:
    """What a header of the architecture llama says. ValueError for another one."""
    kind = header.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"the architecture is {kind!r}; only llama's is known here")
    size = {name.partition(".")[2]: value for name, value in header.items()}
    eps = size.get("attention.layer_norm_rms_epsilon", 1e-5)
    if not math.isclose(eps, 1e-5, rel_tol=1e-3):
        raise ValueError(f"the norms' epsilon is {eps}; ours is 1e-5")
    try:
        return GPTConfig(
            d_vocab=size["vocab_size"],
            context_length=size["context_length"],
            d_model=size["embedding_length"],
            n_heads=size["attention.head_count"],
            n_layers=size["block_count"],
            n_kv_heads=size["attention.head_count_kv"],
            d_hidden=size["feed_forward_length"],
            positions="rotary",
            rotary_base=size["rope.freq_base"],
            norm="rms",
            feed_forward="gated",
            activation="silu",
            bias=False,
        )
    except KeyError as missing:
        raise ValueError(f"the header says nothing of {missing}") from None


def named(tensors: dict[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """The tensors by our names; queries and keys rotate the pairs (i, i + d/2).

    Raises ValueError for one that is missing, or that there is no place for.
    """
    found, rest = {}, dict(tensors)
    for theirs, ours in NAMES.items():
        for i in range(config.n_layers if "{}" in theirs else 1):
            name = theirs.format(i)
            if name not in rest:
                raise ValueError(f"the file has no tensor {name}")
            x = rest.pop(name)
            if "attn_q" in name or "attn_k" in name:
                # (head pair which column): all first ones, then all second ones
                pairs = x.unflatten(0, (-1, config.d_model // config.n_heads // 2, 2))
                x = pairs.transpose(1, 2).reshape(x.shape)
            found[ours.format(i)] = x
    if rest:
        raise ValueError(f"there is no place for {min(rest)}")
    return found


@torch.no_grad()
def filled(config: GPTConfig, weights: dict[str, Tensor]) -> GPT:
    """A GPT with these weights. ValueError where one has another shape."""
    with torch.device("meta"):  # no numbers are drawn that would be overwritten
        model = GPT(config)
    for name, parameter in model.named_parameters():
        if parameter.shape != weights[name].shape:
            raise ValueError(
                f"{name} is {tuple(weights[name].shape)} in the file; its sizes make"
                f" it {tuple(parameter.shape)}"
            )
        layer = model.get_submodule(name.rpartition(".")[0])
        weight = torch.empty_like(parameter, device="cpu").copy_(weights[name])
        setattr(layer, name.rpartition(".")[2], nn.Parameter(weight, False))
    if config.tied:
        model.unembedding.weight = model.embedding.weight
    return model.eval()


def byte_of() -> dict[str, int]:
    """Which byte each character of such a vocabulary stands for, as in GPT-2.

    Bytes that can be printed stand for themselves, the others for 256 and up.
    """
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


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
        to_byte = byte_of()
        self.pieces = [
            b"" if token in self.special else bytes(to_byte[x] for x in token)
            for token in tokens
        ]
        ranks = {piece: i for i, piece in enumerate(self.pieces) if piece}
        missing = (bytes([i]) for i in range(256) if bytes([i]) not in ranks)
        ranks |= {byte: self.d_vocab + i for i, byte in enumerate(missing)}
        self.encoding = tiktoken.Encoding(
            "published", pat_str=PIECES, mergeable_ranks=ranks, special_tokens={}
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; a byte that the vocabulary lacks is read as U+FFFD."""
        check_text(text=text)
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

    Allal et al. 2025; Apache-2.0. Raises FileNotFoundError or ValueError where the file
    is missing or damaged.
    """
    read(SMOLLM2)  # raises where it isn't whole
    header, tensors = read_gguf(SMOLLM2.path)
    config = config_of(header)
    return filled(config, named(tensors, config)), PublishedTokenizer(header)
