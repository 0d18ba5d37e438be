"""What many tests draw: generators, numbers, tokens, weights far from their start."""

import torch
from torch import Tensor, nn


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape, seed: int = 0, dtype=torch.float32) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def random_tokens(*shape, d_vocab: int, seed: int = 0) -> Tensor:
    return torch.randint(d_vocab, shape, generator=seeded(seed))


@torch.no_grad()
def shaken(module: nn.Module, std: float = 0.3, seed: int = 0) -> nn.Module:
    """The module with large matrices, and gains and biases that can't be left out."""
    generator = seeded(seed)
    for parameter in module.parameters():
        is_gain = parameter.dim() == 1 and bool((parameter == 1).all())
        noise = std * torch.randn(parameter.shape, generator=generator)
        parameter.copy_(1 + noise if is_gain else noise)
    return module.eval()


def llama(ours: nn.Module):
    """The same weights in transformers' Llama, whose pairs are (i, i + d/2), too."""
    from transformers import LlamaConfig, LlamaForCausalLM  # seconds, for few tests

    config = ours.config
    with torch.device("meta"):
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.d_vocab,
                hidden_size=config.d_model,
                intermediate_size=config.d_hidden,
                num_hidden_layers=config.n_layers,
                num_attention_heads=config.n_heads,
                num_key_value_heads=config.n_kv_heads,
                max_position_embeddings=config.context_length,
                rope_parameters={
                    "rope_type": "default",
                    "rope_theta": config.rotary_base,
                },
                rms_norm_eps=1e-5,
                tie_word_embeddings=True,
            )
        )
    names = {
        "embedding.": "model.embed_tokens.",
        "norm.gain": "model.norm.weight",
        "attention_norm.gain": "input_layernorm.weight",
        "feed_forward_norm.gain": "post_attention_layernorm.weight",
        "attention.to_queries": "self_attn.q_proj",
        "attention.to_keys": "self_attn.k_proj",
        "attention.to_values": "self_attn.v_proj",
        "attention.to_output": "self_attn.o_proj",
        "feed_forward.to_gate": "mlp.gate_proj",
        "feed_forward.to_hidden": "mlp.up_proj",
        "feed_forward.to_output": "mlp.down_proj",
    }
    state = {}
    for name, weight in ours.named_parameters():
        for one, other in names.items():
            if name == one or (one != "norm.gain" and one in name):
                name = name.replace(one, other)
                break
        state[name.replace("blocks.", "model.layers.")] = weight.detach()
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    rotary = type(model.model.rotary_emb)(model.config)  # it was made without numbers
    model.model.rotary_emb = rotary
    return model.eval()
