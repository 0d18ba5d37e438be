"""Reads a published model's config.json: its sizes and parts. Chapter 12.

Nothing that could change a number is passed over: a key that isn't known here is named.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ..inputs import shown
from .anatomy import Anatomy
from .model_types import (
    ACTIVATIONS,
    FAMILIES,
    FULL,
    OTHER_KEYS,
    PLAIN,
    PLAIN_ROTATION,
    SHARED_KEYS,
    SLIDING,
)

MAX_BYTES = 1_000_000  # a config.json has thousands; a file of weights has millions


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
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON, or not whole: {error}") from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(f"{path} describes no model: it has no model_type")
    return config


def value_of(config: dict[str, Any], key: str) -> Any:
    """Returns what a configuration says, or what its family means by leaving it out."""
    if key in config:
        return config[key]
    return FAMILIES[config["model_type"]].defaults.get(key)


def size_of(
    config: dict[str, Any], key: str, default: int | None = None, *, least: int = 1
) -> int:
    """Returns a size; `default` where nothing or null is said.

    Raises ValueError by its key where it is missing or no size.
    """
    size = value_of(config, key)
    if size is None:
        size = default
    if size is None and key not in config:
        raise ValueError(f"config.json has no {key}")
    if type(size) is not int or size < least:
        raise ValueError(
            f"{key} is {in_json(size)}; it must be a whole number, {least}+"
        )
    return size


def in_json(value: object) -> str:
    """Returns a value in short, as config.json has it where it is null."""
    return "null" if value is None else shown(value)


def flag_of(config: dict[str, Any], key: str) -> bool:
    """Returns a yes or no, which is no where nothing is said. ValueError for another"""
    flag = value_of(config, key)
    if flag is None:
        return False
    if type(flag) is not bool:
        raise ValueError(f"{key} is {shown(flag)}; it must be true or false")
    return flag


def is_number(x: object) -> bool:
    """Returns whether x is a number, no yes or no, and a float can be as large."""
    if not isinstance(x, int | float) or type(x) is bool:
        return False
    return abs(x) <= sys.float_info.max


def slides(config: dict[str, Any], n_layers: int) -> list[bool]:
    """Returns of each layer whether it has a window: by a list, or the family's rule.

    Raises ValueError for kinds of layers that aren't known, or another number of them.
    """
    family = FAMILIES[config["model_type"]]
    if "sliding_window" not in family.further:
        return [False] * n_layers
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
        return [kind == SLIDING for kind in kinds]
    if family.window_every:
        every = family.window_every
        for key in ("sliding_window_pattern", "_sliding_window_pattern"):
            if key in family.further:
                every = size_of(config, key, every)
        return [bool((i + 1) % every) for i in range(n_layers)]
    if not flag_of(config, "use_sliding_window"):
        return [False] * n_layers
    if family.has_experts:
        return [True] * n_layers
    first = size_of(config, "max_window_layers", least=0)
    return [i >= first for i in range(n_layers)]


def windows_of(config: dict[str, Any], n_layers: int) -> list[int | None]:
    """Returns how many tokens each layer sees, None where it is all.

    Raises ValueError as `slides` does, and for a window that is no size.
    """
    has_window = slides(config, n_layers)
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
    no number of 1 or more, and for parameters of another form.
    """
    family = FAMILIES[config["model_type"]]
    parameters = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or {}
    if not isinstance(parameters, dict) or not isinstance(scaling, dict):
        wrong = parameters if not isinstance(parameters, dict) else scaling
        raise ValueError(f"the rotation's parameters are {shown(wrong)}; no table")
    kinds = {FULL, SLIDING} & parameters.keys()
    tables = [parameters[kind] for kind in sorted(kinds)] if kinds else [parameters]

    default = config.get("rope_theta", family.defaults.get("rope_theta", 10_000.0))
    bases = []  # each beside the key that says it
    unsupported = []
    for table in [*tables, scaling]:
        if not isinstance(table, dict):
            raise ValueError(f"the rotation's parameters are {shown(table)}; no table")
        if table is not scaling or "rope_theta" in table:
            bases.append(("rope_theta", table.get("rope_theta", default)))
        for key, plain in PLAIN_ROTATION.items():
            if table.get(key, plain) != plain:
                unsupported.append(f"rotary positions of {key} {shown(table[key])}")
        further = table.keys() - PLAIN_ROTATION.keys() - {"rope_theta"}
        if further and not unsupported:
            unsupported.append(f"rotary positions with {sorted(further)[0]}")

    local = value_of(config, "rope_local_base_freq")
    if local is not None and not kinds:
        bases.append(("rope_local_base_freq", local))
    for key, base in bases:
        if not is_number(base) or base < 1:
            raise ValueError(f"{key} is {in_json(base)}; it must be 1 or more")
    values = [base for _, base in bases]
    if any(base != values[0] for base in values):
        both = " and ".join(f"{base:,.0f}" for base in values)
        unsupported.append(f"rotary positions with bases {both}")
    return values[0], unsupported


def dense_layers_of(config: dict[str, Any], n_layers: int) -> frozenset[int]:
    """Returns the layers without experts. ValueError for no list of whole numbers."""
    plain = value_of(config, "mlp_only_layers") or []
    if not isinstance(plain, list) or any(type(i) is not int for i in plain):
        raise ValueError(f"mlp_only_layers is {shown(plain)}; no list of layers")
    step = size_of(config, "decoder_sparse_step", 1)
    return frozenset(i for i in range(n_layers) if i in plain or (i + 1) % step)


def unsupported_in(config: dict[str, Any]) -> list[str]:
    """Returns what a configuration asks for by a key whose plain value we know."""
    family = FAMILIES[config["model_type"]]
    unsupported = []
    for key, plain in PLAIN.items():
        value = config.get(key, plain)
        if value is not None and value != plain:
            unsupported.append(f"{key} {shown(value)}")

    key, activation = ACTIVATIONS[family.feed_forward]
    if config.get(key, activation) != activation:
        unsupported.append(f"{key} {shown(config[key])}")
    if family.feed_forward == "clipped SwiGLU":
        alpha, limit = (
            value_of(config, key) for key in ("swiglu_alpha", "swiglu_limit")
        )
        unsupported.append(f"a SwiGLU with alpha {alpha}, clipped at {limit}")
    if family.has_experts and "norm_topk_prob" in family.defaults:
        if not flag_of(config, "norm_topk_prob"):
            unsupported.append("experts' weights that don't sum to 1 (norm_topk_prob)")
    twice = config.get("experts_per_token")  # gpt-oss says it by two names
    if twice not in (None, value_of(config, "num_experts_per_tok")):
        unsupported.append(
            f"experts_per_token {shown(twice)} beside num_experts_per_tok"
        )
    scalar = value_of(config, "query_pre_attn_scalar")
    if scalar not in (None, value_of(config, "head_dim")):  # chapter 01 divides by √d
        unsupported.append(
            f"scores divided by √{shown(scalar)} (query_pre_attn_scalar)"
        )
    return unsupported


def read_anatomy(config: dict[str, Any]) -> Anatomy:
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
        raise ValueError(
            f"rms_norm_eps is {in_json(epsilon)}; it must be within 0 and 1"
        )

    n_experts = n_experts_per_token = d_expert = 0
    dense_layers: frozenset[int] = frozenset()
    if family.has_experts:
        key = "num_local_experts" if "num_local_experts" in config else "num_experts"
        n_experts = size_of(config, key)
        n_experts_per_token = size_of(config, "num_experts_per_tok")
        if n_experts_per_token > n_experts:
            raise ValueError(
                f"num_experts_per_tok is {n_experts_per_token} of {n_experts} experts"
            )
        key = "moe_intermediate_size"
        d_expert = size_of(config, key) if key in family.further else d_hidden
        dense_layers = dense_layers_of(config, n_layers)

    windows = windows_of(config, n_layers)
    rotary_base, unsupported_rotation = rotary_of(config)
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
        unsupported=(*unsupported_rotation, *unsupported_in(config)),
        unknown=tuple(sorted(config.keys() - known)),
    )
