"""The families of published models, by the `model_type` in their config.json.

The tables say which keys each family's files may have, and what a missing one means.
Chapter 12.
"""

from dataclasses import dataclass, field
from typing import Any

# Where a block's norms stand, and what of queries and keys gets a mean square of 1.
BEFORE, AFTER, BOTH = "before", "after", "before and after"
EACH_HEAD, ALL_HEADS = "each head by itself", "all heads together"
# The two kinds of layers.
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the models of one `model_type` differ from Llama, the plainest of them.

    norms: where they stand in a block.
    qk_norm: what of queries and keys gets a mean square of 1, if anything.
    feed_forward: its kind, one of ACTIVATIONS.
    window_every: of so many layers all but the last see a window; 0: by another rule.
    has_experts: many feed-forwards and a router, in all layers or most of them.
    has_expert_biases: the experts and their router add a vector.
    has_sinks: each head has a score that no key belongs to.
    scales_embeddings: embeddings are multiplied by √d_model.
    defaults: what a configuration means by leaving a key out.
    further: the keys that not all families share.
    """

    norms: str = BEFORE
    qk_norm: str | None = None
    feed_forward: str = "SwiGLU"
    window_every: int = 0
    has_experts: bool = False
    has_expert_biases: bool = False
    has_sinks: bool = False
    scales_embeddings: bool = False
    defaults: dict[str, Any] = field(default_factory=dict)
    further: frozenset[str] = frozenset()


WINDOW_KEYS = {"layer_types", "sliding_window"}
QWEN_WINDOW_KEYS = WINDOW_KEYS | {"use_sliding_window", "max_window_layers"}
EXPERT_KEYS = {"num_experts", "num_local_experts", "num_experts_per_tok"}
QWEN_DEFAULTS = {
    "rms_norm_eps": 1e-6,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
FAMILIES = {
    "llama": Family(
        defaults={"rms_norm_eps": 1e-6, "mlp_bias": False},
        further=frozenset({"mlp_bias"}),
    ),
    "qwen3": Family(
        qk_norm=EACH_HEAD,
        defaults=QWEN_DEFAULTS | {"head_dim": 128},
        further=frozenset(QWEN_WINDOW_KEYS),
    ),
    "olmo2": Family(norms=AFTER, qk_norm=ALL_HEADS, defaults={"rms_norm_eps": 1e-5}),
    "olmo3": Family(
        norms=AFTER,
        qk_norm=ALL_HEADS,
        window_every=4,
        defaults={
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "sliding_window": 4096,
        },
        further=frozenset(WINDOW_KEYS),
    ),
    "gemma3_text": Family(
        norms=BOTH,
        qk_norm=EACH_HEAD,
        feed_forward="GEGLU",
        window_every=6,
        scales_embeddings=True,
        defaults={
            "rms_norm_eps": 1e-6,
            "head_dim": 256,
            "num_key_value_heads": 4,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "sliding_window": 4096,
            "query_pre_attn_scalar": 256,
            "tie_word_embeddings": True,
        },
        further=frozenset(
            WINDOW_KEYS
            | {"query_pre_attn_scalar", "rope_local_base_freq"}
            | {"sliding_window_pattern", "_sliding_window_pattern"}
        ),
    ),
    "gpt_oss": Family(
        feed_forward="clipped SwiGLU",
        window_every=2,
        has_experts=True,
        has_expert_biases=True,
        has_sinks=True,
        defaults={
            "rms_norm_eps": 1e-5,
            "head_dim": 64,
            "num_key_value_heads": 8,
            "rope_theta": 150_000.0,
            "sliding_window": 128,
            "attention_bias": True,
            "num_experts": 128,
            "num_experts_per_tok": 4,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
        },
        further=frozenset(
            WINDOW_KEYS
            | EXPERT_KEYS
            | {"swiglu_alpha", "swiglu_limit"}
            | {"experts_per_token", "initial_context_length"}  # said twice
        ),
    ),
    "qwen3_moe": Family(
        qk_norm=EACH_HEAD,
        has_experts=True,
        defaults=QWEN_DEFAULTS
        | {
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": False,
        },
        further=frozenset(
            QWEN_WINDOW_KEYS
            | EXPERT_KEYS
            | {"moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers"}
            | {"norm_topk_prob"}
        ),
    ),
}
# The keys that all families share.
SHARED_KEYS = {
    "vocab_size",
    "max_position_embeddings",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "model_type",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "attention_bias",
    "tie_word_embeddings",
    "rope_parameters",
    "rope_theta",
    "rope_scaling",
}
# Those that change no number of a model that is read: marks, training, bookkeeping.
OTHER_KEYS = {
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "cache_implementation",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
# What each may say without changing anything; another value is something we lack.
PLAIN = {
    "attn_logit_softcapping": None,
    "clip_qkv": None,
    "final_logit_softcapping": None,
    "partial_rotary_factor": 1.0,
    "use_bidirectional_attention": False,
}
PLAIN_ROTATION = {
    "rope_type": "default",
    "type": "default",
    "partial_rotary_factor": 1.0,
}
# Each kind of feed-forward: its key, and the activation that it must name.
ACTIVATIONS = {
    "SwiGLU": ("hidden_act", "silu"),
    "clipped SwiGLU": ("hidden_act", "silu"),
    "GEGLU": ("hidden_activation", "gelu_pytorch_tanh"),
}
