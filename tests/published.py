"""Beside published models: a small tokenizer, transformers' Llama, packed weights."""

import pytest
import torch
from torch import Tensor

from companion import GPT
from companion.pretrained.published_tokenizer import PublishedTokenizer
from companion.pretrained.quantized import kernel_is_here, pack_weights
from companion.text.tokenizers import printable_bytes


def byte_header() -> dict:
    """The header of a chat's tokenizer of the bytes, and two special tokens."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.tokens": [*printable_bytes(), "<|im_start|>", "<|im_end|>"],
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3],
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.chat_template": "<|im_start|> a turn <|im_end|>",
    }


def byte_tokenizer() -> PublishedTokenizer:
    """A chat's tokenizer whose tokens are the bytes, and two special ones."""
    return PublishedTokenizer(byte_header())


def llama(header: dict, tensors: dict[str, Tensor]):
    """transformers' Llama with a GGUF file's own tensors, by its own names.

    Its heads rotate the pairs (i, i + d/2); llama.cpp's converter has interleaved them.
    """
    from transformers import LlamaConfig, LlamaForCausalLM  # seconds, for few tests

    size = {name.removeprefix("llama."): value for name, value in header.items()}
    heads, kv_heads = size["attention.head_count"], size["attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=size["vocab_size"],
        hidden_size=size["embedding_length"],
        intermediate_size=size["feed_forward_length"],
        num_hidden_layers=size["block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=size["context_length"],
        rope_parameters={"rope_type": "default", "rope_theta": size["rope.freq_base"]},
        rms_norm_eps=size["attention.layer_norm_rms_epsilon"],
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)

    def halves(x: Tensor, n_heads: int) -> Tensor:
        rows = x.reshape(n_heads, len(x) // n_heads // 2, 2, -1)
        return rows.swapaxes(1, 2).reshape(x.shape)

    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "lm_head.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
    }
    for i in range(config.num_hidden_layers):
        block, layer = f"blk.{i}.", f"model.layers.{i}."
        for name_in_file, name in (
            ("attn_norm", "input_layernorm"),
            ("ffn_norm", "post_attention_layernorm"),
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
        ):
            state[f"{layer}{name}.weight"] = tensors[f"{block}{name_in_file}.weight"]
        for name_in_file, name, n in (
            ("attn_q", "self_attn.q_proj", heads),
            ("attn_k", "self_attn.k_proj", kv_heads),
        ):
            turned = halves(tensors[f"{block}{name_in_file}.weight"], n)
            state[f"{layer}{name}.weight"] = turned
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # it had no numbers
    return model.eval()


def pack(model: GPT) -> GPT:
    """`pack_weights`; where the kernel is missing, it must say so."""
    if kernel_is_here():
        return pack_weights(model)
    with pytest.warns(UserWarning, match="run unpacked"):
        return pack_weights(model)
