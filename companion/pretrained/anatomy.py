"""What a published model is made of, read off its config.json. Chapter 12.

`read_config` reads the file and `anatomy` says what it describes: sizes, parts with the
chapter that derives each, and what this package doesn't have. Nothing that could change
a number is passed over: a key that isn't known here is named.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..inputs import check_whole, shown

MAX_BYTES = 1_000_000  # a config.json has thousands; a file of weights has millions


# Where a block's norms stand, and what of queries and keys is scaled to unit length.
BEFORE, AFTER, BOTH = "before", "after", "before and after"
EACH_HEAD, ALL_HEADS = "each head by itself", "all heads together"
# The two kinds of layers.
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the models of one `model_type` differ from Llama, the plainest of them.

    window_every: of so many layers all but the last see a window; 0: by another rule.
    defaults: what a configuration means by leaving a key out. further: the keys that
    only this family has.
    """

    norms: str = BEFORE
    qk_norm: str | None = None
    feed_forward: str = "SwiGLU"
    window_every: int = 0
    has_experts: bool = False
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
SIZE_KEYS = {
    "vocab_size",
    "max_position_embeddings",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
}
SHARED_KEYS = SIZE_KEYS | {
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


def read_config(path: Path | str) -> dict[str, Any]:
    """Reads a model's config.json, or the one in a folder. Returns what it says.

    Raises FileNotFoundError where there is none, and ValueError for a file that isn't
    whole, isn't JSON, or describes no model.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is too large for a config.json: is it the weights?")
    try:
        config = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON, or not whole: {error}") from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(f"{path} describes no model: it has no model_type")
    return config


@dataclass(frozen=True)
class Part:
    """A part of a model, in the course's words.

    `chapter` derives it, if one does; `is_held`: `load_family` can load it.
    """

    what: str
    chapter: str | None = None
    is_held: bool = True


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What a model is made of, as `anatomy` reads it off a configuration.

    windows: how many tokens each layer sees, None: all; n_experts: 0 without experts;
    dense_layers: those with one feed-forward among such with experts; odd: keys whose
    value asks for something that isn't known here; unknown: keys that aren't known, and
    might change the numbers.
    """

    family: str
    d_vocab: int
    context_length: int
    d_model: int
    d_head: int
    d_hidden: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    rotary_base: float
    norm_epsilon: float
    attention_bias: bool
    mlp_bias: bool
    is_tied: bool
    windows: tuple[int | None, ...]
    n_experts: int
    n_experts_per_token: int
    d_expert: int
    dense_layers: frozenset[int]
    odd: tuple[str, ...]
    unknown: tuple[str, ...]

    def n_parameters(self, *, active: bool = False) -> int:
        """Counts the parameters; with `active` those that one token goes through.

        Of an embedding that is no output matrix as well one row is active.
        """
        family = FAMILIES[self.family]
        d = self.d_model
        d_queries = self.n_heads * self.d_head
        d_keys = self.n_kv_heads * self.d_head

        # Attention and norms, the same in each layer.
        each = 2 * d * d_queries + 2 * d * d_keys
        if self.attention_bias:
            each += d_queries + 2 * d_keys + d
        if family.qk_norm == EACH_HEAD:
            each += 2 * self.d_head
        elif family.qk_norm == ALL_HEADS:
            each += d_queries + d_keys
        if family.has_sinks:
            each += self.n_heads
        each += d * (4 if family.norms == BOTH else 2)

        # Feed-forward, or experts and their router.
        dense = 3 * d * self.d_hidden
        if self.mlp_bias:
            dense += 2 * self.d_hidden + d
        expert = 3 * d * self.d_expert
        router = d * self.n_experts
        if family.has_sinks:  # gpt-oss has biases there, too
            expert += 2 * self.d_expert + d
            router += self.n_experts
        n_used = self.n_experts_per_token if active else self.n_experts

        n_dense = len(self.dense_layers) if self.n_experts else self.n_layers
        total = self.n_layers * each + n_dense * dense + d  # with the last norm
        total += (self.n_layers - n_dense) * (router + n_used * expert)

        # Embedding and output matrix.
        matrix = self.d_vocab * d
        if self.is_tied:
            return total + matrix
        return total + matrix + (d if active else matrix)

    def n_seen(self, n_positions: int) -> int:
        """Returns how many positions the last of a text sees, summed over layers."""
        check_whole(n_positions=n_positions)
        return sum(
            n_positions if window is None else min(window, n_positions)
            for window in self.windows
        )

    def cache_bytes(self, n_positions: int, bytes_per_number: int = 2) -> int:
        """Returns the bytes of keys and values of a text. ValueError for no such size.

        A layer with a window keeps no more than its window. Chapters 07 and 09.
        """
        check_whole(bytes_per_number=bytes_per_number)
        n_numbers = self.n_seen(n_positions) * 2 * self.n_kv_heads * self.d_head
        return n_numbers * bytes_per_number

    def operations(self, n_positions: int) -> int:
        """Returns the operations of a text's last token. ValueError for no such size.

        Two for each active weight, and four for each feature of a position that a head
        sees: one product with the query, one with its weight. Chapter 09.
        """
        products = 4 * self.n_seen(n_positions) * self.n_heads * self.d_head
        return 2 * self.n_parameters(active=True) + products

    def parts(self) -> list[Part]:
        """Returns the model's parts, in the order in which a token meets them."""
        family = FAMILIES[self.family]
        tie = "also the output matrix" if self.is_tied else "and an output matrix"
        found = [Part(f"embedding of {self.d_vocab:,} tokens, {tie}", "04")]
        if family.scales_embeddings:
            found.append(Part("embeddings times √d_model", "08"))
        found.append(Part(f"rotary positions, base {self.rotary_base:,.0f}", "03"))

        is_held = family.norms != BOTH
        chapter = "05" if family.norms == BEFORE else None
        where = f"{family.norms} each half of a block"
        found.append(Part(f"RMSNorm {where}", chapter, is_held))
        heads = f"{self.n_heads} heads of {self.d_head} features"
        fits_width = self.n_heads * self.d_head == self.d_model
        if not fits_width:
            heads += f", together not d_model ({self.d_model:,})"
        found.append(Part(heads, "02", fits_width))
        if self.n_kv_heads < self.n_heads:
            n_sharing = self.n_heads // self.n_kv_heads
            text = f"keys and values shared by {n_sharing} heads each"
            found.append(Part(text, "09"))
        if self.attention_bias:
            found.append(Part("biases in attention", "02"))
        if family.qk_norm:
            text = f"queries and keys to unit length, {family.qk_norm}, with gains"
            found.append(Part(text, "05"))
        widths = [window for window in self.windows if window is not None]
        if widths:
            text = f"windows of {widths[0]:,} tokens in {len(widths)} layers of"
            found.append(Part(f"{text} {self.n_layers}", "07", False))
        if family.has_sinks:
            found.append(Part("a learned sink for each head", "17", False))

        width = f"{self.d_hidden:,} features"
        if self.n_experts:
            text = f"{self.n_experts} experts of {self.d_expert:,} features,"
            text += f" {self.n_experts_per_token} for each token"
            found.append(Part(text, "17", False))
        if not self.n_experts or self.dense_layers:
            found.append(Part(f"{family.feed_forward} feed-forward of {width}", "12"))
        if self.mlp_bias:
            found.append(Part("biases in the feed-forward", "04"))
        return found

    def lacking(self) -> list[str]:
        """Returns what stands between this model and `load_family`, if anything."""
        parts = [part.what for part in self.parts() if not part.is_held]
        unknown = [f"{key}, which isn't known here" for key in self.unknown]
        return [*parts, *self.odd, *unknown]


def value_of(config: dict[str, Any], key: str) -> Any:
    """Returns what a configuration says, or what its family means by leaving it out."""
    if key in config:
        return config[key]
    return FAMILIES[config["model_type"]].defaults.get(key)


def size_of(
    config: dict[str, Any], key: str, default: int | None = None, *, least: int = 1
) -> int:
    """Returns a size. Raises ValueError by its key where it is missing or none."""
    size = value_of(config, key)
    if size is None:
        size = default
    if size is None:
        raise ValueError(f"config.json has no {key}")
    if type(size) is not int or size < least:
        raise ValueError(f"{key} is {shown(size)}; it must be a whole number, {least}+")
    return size


def flag_of(config: dict[str, Any], key: str) -> bool:
    """Returns a yes or no, which is no where nothing is said. ValueError for another"""
    flag = value_of(config, key)
    if flag is None:
        return False
    if type(flag) is not bool:
        raise ValueError(f"{key} is {shown(flag)}; it must be true or false")
    return flag


def is_number(x: object) -> bool:
    """Returns whether x is a finite number, and no yes or no."""
    return isinstance(x, int | float) and type(x) is not bool and math.isfinite(x)


def windows_of(config: dict[str, Any], n_layers: int) -> list[int | None]:
    """Returns how many tokens each layer sees, None where it is all.

    Raises ValueError for kinds of layers that aren't known, or another number of them.
    """
    family = FAMILIES[config["model_type"]]
    if "sliding_window" not in family.further:
        return [None] * n_layers

    # Which layers have a window: a list says it, or a rule of the family.
    kinds = config.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != n_layers:
            raise ValueError(
                f"layer_types is {shown(kinds)}; it must name {n_layers} layers"
            )
        for kind in kinds:
            if kind not in (FULL, SLIDING):
                raise ValueError(
                    f"layer_types has {shown(kind)}; known are {FULL} and {SLIDING}"
                )
        has_window = [kind == SLIDING for kind in kinds]
    elif family.window_every:
        every = family.window_every
        for key in ("sliding_window_pattern", "_sliding_window_pattern"):
            if key in family.further:
                every = size_of(config, key, every)
        has_window = [bool((i + 1) % every) for i in range(n_layers)]
    elif not flag_of(config, "use_sliding_window"):
        has_window = [False] * n_layers
    elif family.has_experts:
        has_window = [True] * n_layers
    else:
        first = size_of(config, "max_window_layers", least=0)
        has_window = [i >= first for i in range(n_layers)]

    if not any(has_window):
        return [None] * n_layers
    window = size_of(config, "sliding_window")
    if window >= size_of(config, "max_position_embeddings"):
        return [None] * n_layers  # it never forbids anything
    return [window if is_sliding else None for is_sliding in has_window]


def rotary_of(config: dict[str, Any]) -> tuple[float, list[str]]:
    """Returns the base of the rotation, and what else is asked of it.

    A file of transformers 5 has `rope_parameters`, for all layers or for each kind; one
    of before has `rope_theta` and `rope_scaling`. Raises ValueError for a base that is
    no number above 1, and for parameters of another form.
    """
    family = FAMILIES[config["model_type"]]
    parameters = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or {}
    if not isinstance(parameters, dict) or not isinstance(scaling, dict):
        wrong = parameters if not isinstance(parameters, dict) else scaling
        raise ValueError(f"the rotation's parameters are {shown(wrong)}; no table")
    kinds = {FULL, SLIDING} & parameters.keys()
    tables = [parameters[kind] for kind in sorted(kinds)] if kinds else [parameters]

    base = config.get("rope_theta", family.defaults.get("rope_theta", 10_000.0))
    bases = []
    odd = []
    for table in [*tables, scaling]:
        if not isinstance(table, dict):
            raise ValueError(f"the rotation's parameters are {shown(table)}; no table")
        if table is not scaling:
            bases.append(table.get("rope_theta", base))
        for key, plain in PLAIN_ROTATION.items():
            if table.get(key, plain) != plain:
                odd.append(f"rotary positions of {key} {shown(table[key])}")
        further = table.keys() - PLAIN_ROTATION.keys() - {"rope_theta"}
        if further and not odd:
            odd.append(f"rotary positions with {sorted(further)[0]}")

    for base in bases:
        if not is_number(base) or base <= 1:
            raise ValueError(f"rope_theta is {shown(base)}; it must be above 1")
    local = value_of(config, "rope_local_base_freq")
    if local is not None and not kinds:
        bases.append(local)
    if any(base != bases[0] for base in bases):
        both = " and ".join(f"{base:,.0f}" for base in bases)
        odd.append(f"rotary positions with bases {both}")
    return bases[0], odd


def dense_layers_of(config: dict[str, Any], n_layers: int) -> frozenset[int]:
    """Returns the layers without experts. ValueError for no list of whole numbers."""
    plain = value_of(config, "mlp_only_layers") or []
    if not isinstance(plain, list) or any(type(i) is not int for i in plain):
        raise ValueError(f"mlp_only_layers is {shown(plain)}; no list of layers")
    step = size_of(config, "decoder_sparse_step", 1)
    return frozenset(i for i in range(n_layers) if i in plain or (i + 1) % step)


def odd_of(config: dict[str, Any]) -> list[str]:
    """Returns what a configuration asks for by a key whose plain value we know."""
    family = FAMILIES[config["model_type"]]
    odd = []
    for key, plain in PLAIN.items():
        value = config.get(key, plain)
        if value is not None and value != plain:
            odd.append(f"{key} {shown(value)}")

    key, activation = ACTIVATIONS[family.feed_forward]
    if config.get(key, activation) != activation:
        odd.append(f"{key} {shown(config[key])}")
    if family.feed_forward == "clipped SwiGLU":
        alpha, limit = (
            value_of(config, key) for key in ("swiglu_alpha", "swiglu_limit")
        )
        odd.append(f"a SwiGLU with alpha {alpha}, clipped at {limit}")
    if family.has_experts and "norm_topk_prob" in family.defaults:
        if not flag_of(config, "norm_topk_prob"):
            odd.append("experts' weights that don't sum to 1 (norm_topk_prob)")
    twice = config.get("experts_per_token")  # gpt-oss says it by two names
    if twice not in (None, value_of(config, "num_experts_per_tok")):
        odd.append(f"experts_per_token {shown(twice)} beside num_experts_per_tok")
    scalar = value_of(config, "query_pre_attn_scalar")
    if scalar is not None:
        odd.append(f"scores divided by √{shown(scalar)} (query_pre_attn_scalar)")
    return odd


def anatomy(config: dict[str, Any]) -> Anatomy:
    """Reads off a config.json what the model is made of.

    The families are FAMILIES, as transformers 5 writes them, and as older files have
    them. Raises ValueError by its key for another family, for a size that is missing or
    no whole number, and for what doesn't fit together.
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"model_type is {shown(name)}; known are {[*FAMILIES]}")
    family = FAMILIES[name]

    d_model = size_of(config, "hidden_size")
    d_hidden = size_of(config, "intermediate_size")
    n_layers = size_of(config, "num_hidden_layers")
    n_heads = size_of(config, "num_attention_heads")
    n_kv_heads = size_of(config, "num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise ValueError(
            f"num_key_value_heads is {n_kv_heads}; it must divide num_attention_heads"
            f" ({n_heads})"
        )
    if value_of(config, "head_dim") is None and d_model % n_heads:
        raise ValueError(
            f"hidden_size is {d_model}, no multiple of num_attention_heads ({n_heads})"
        )
    d_head = size_of(config, "head_dim", d_model // n_heads)
    if d_head % 2:
        raise ValueError(f"head_dim is {d_head}; a rotation needs pairs of features")
    epsilon = value_of(config, "rms_norm_eps")
    if not is_number(epsilon) or not 0 < epsilon < 1:
        raise ValueError(f"rms_norm_eps is {shown(epsilon)}; it must be within 0 and 1")

    n_experts = n_experts_per_token = d_expert = 0
    dense_layers: frozenset[int] = frozenset()
    if family.has_experts:
        key = "num_local_experts" if "num_local_experts" in config else "num_experts"
        n_experts = size_of(config, key, family.defaults["num_experts"])
        n_experts_per_token = size_of(config, "num_experts_per_tok")
        if n_experts_per_token > n_experts:
            raise ValueError(
                f"num_experts_per_tok is {n_experts_per_token} of {n_experts} experts"
            )
        key = "moe_intermediate_size"
        d_expert = size_of(config, key) if key in family.further else d_hidden
        dense_layers = dense_layers_of(config, n_layers)

    windows = windows_of(config, n_layers)
    rotary_base, odd_rotation = rotary_of(config)
    known = SHARED_KEYS | OTHER_KEYS | PLAIN.keys() | family.further
    known |= {ACTIVATIONS[family.feed_forward][0]}
    return Anatomy(
        family=name,
        d_vocab=size_of(config, "vocab_size"),
        context_length=size_of(config, "max_position_embeddings"),
        d_model=d_model,
        d_head=d_head,
        d_hidden=d_hidden,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        rotary_base=rotary_base,
        norm_epsilon=epsilon,
        attention_bias=flag_of(config, "attention_bias"),
        mlp_bias=flag_of(config, "mlp_bias"),
        is_tied=flag_of(config, "tie_word_embeddings"),
        windows=tuple(windows),
        n_experts=n_experts,
        n_experts_per_token=n_experts_per_token,
        d_expert=d_expert,
        dense_layers=dense_layers,
        odd=(*odd_rotation, *odd_of(config)),
        unknown=tuple(sorted(config.keys() - known)),
    )


def describe(found: Anatomy) -> str:
    """Writes what a model is made of, one thing a line. Returns the text."""
    lines = [
        f"{found.family}: {found.n_layers} blocks, d_model {found.d_model:,},"
        f" context {found.context_length:,}"
    ]
    for part in found.parts():
        where = "not in this course"
        if part.chapter is not None:
            where = f"chapter {part.chapter}"
        lines.append(f"  {part.what:<66} {where}")

    n_all = found.n_parameters()
    n_active = found.n_parameters(active=True)
    size = f"{n_all:,} parameters"
    if n_active != n_all:
        size += f", {n_active:,} at work on a token"
    lines.append(size)
    context = found.context_length
    for n_positions in (1, context):
        kept = found.cache_bytes(n_positions)
        work = found.operations(n_positions)
        lines.append(
            f"at position {n_positions:,}: {kept:,} bytes of cache in 16 bits,"
            f" {work:,} operations for the token"
        )

    for thing in found.odd:
        lines.append(f"not in this course: {thing}")
    for key in found.unknown:
        lines.append(f"not known here, and might change the numbers: {key}")
    lines.append(
        "load_family can't load it" if found.lacking() else "load_family can load it"
    )
    return "\n".join(lines)
