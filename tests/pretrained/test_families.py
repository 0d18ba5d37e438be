"""Other families: counted, loaded and compared with transformers; what is refused."""

import json
import math

import pytest
import torch
import transformers
from common import ROOT, random, random_tokens, rounding, shaken
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import companion
from companion.commands import describe as describe_command
from companion.pretrained.anatomy import describe
from companion.pretrained.config_json import read_anatomy, read_config
from companion.pretrained.families import load_family
from companion.pretrained.lora import add_adapters, merge_adapters
from companion.pretrained.model_types import FAMILIES

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

D_VOCAB = 96
SIZES = {
    "vocab_size": D_VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
HEADS = {"head_dim": 8}
EXPERTS = {"num_experts_per_tok": 2}
# A family, and what its configuration says beside the sizes.
LOADED = {
    "llama": ("llama", {}),
    "llama, tied, with biases": (
        "llama",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama, biases in attention": ("llama", {"attention_bias": True}),
    "llama, one head of keys, another base": (
        "llama",
        {"num_key_value_heads": 1, "rope_theta": 500_000.0, "rms_norm_eps": 1e-2},
    ),
    "qwen3": ("qwen3", {**HEADS, "rms_norm_eps": 1e-2}),
    "qwen3, tied, with biases": (
        "qwen3",
        {**HEADS, "tie_word_embeddings": True, "attention_bias": True},
    ),
    "olmo2": ("olmo2", {"rms_norm_eps": 1e-2}),
    "olmo2, biases": ("olmo2", {"attention_bias": True}),
    "olmo3 whose windows are wider than its context": ("olmo3", {}),
}
REFUSED = {
    "heads that are not the model's width": ("llama", {"head_dim": 16}, "16 features"),
    "yarn": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
        "'yarn'",
    ),
    "windows in the upper layers": (
        "qwen3",
        {
            **HEADS,
            "use_sliding_window": True,
            "sliding_window": 16,
            "max_window_layers": 3,
        },
        "windows of 16 tokens in 1 layers of 4",
    ),
    "windows in three of four": (
        "olmo3",
        {"sliding_window": 16},
        "windows of 16 tokens in 3 layers of 4",
    ),
    "gemma": (
        "gemma3_text",
        {**HEADS, "sliding_window": 16},
        "before and after each half",
    ),
    "gpt-oss": ("gpt_oss", {**HEADS, "num_local_experts": 4, **EXPERTS}, "a learned"),
    "experts": (
        "qwen3_moe",
        {
            **HEADS,
            "num_experts": 4,
            **EXPERTS,
            "moe_intermediate_size": 16,
            "mlp_only_layers": [1],
        },
        "4 experts of 16 features, 2 for each token",
    ),
}


def save(folder, family: str, extra: dict, **options):
    """A tiny model of transformers with large random weights, saved; returned."""
    config = AutoConfig.for_model(family, **(SIZES | extra))
    model = shaken(AutoModelForCausalLM.from_config(config), std=0.3)
    model.save_pretrained(folder, **options)
    return model


def rewrite(folder, **changes) -> dict:
    """The config.json with these keys, or without those that are None; it is kept."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8")) | changes
    config = {key: value for key, value in config.items() if value is not None}
    path.write_text(json.dumps(config), "utf-8")
    return config


@pytest.fixture
def llama(tmp_path):
    save(tmp_path, "llama", {})
    return tmp_path


@pytest.mark.parametrize("name", LOADED)
@torch.inference_mode()
def test_logits_greedy_text_and_cache_are_transformers(name, tmp_path):
    family, extra = LOADED[name]
    theirs = save(tmp_path, family, extra)
    ours, tokenizer = load_family(tmp_path)
    tokens = random_tokens(2, 40, d_vocab=D_VOCAB)
    expected = theirs(tokens).logits
    close = rounding(48, expected)  # hidden features, the longest sum

    assert tokenizer is None
    torch.testing.assert_close(ours(tokens), expected, **close)
    cache = ours.new_cache(64)
    parts = [ours(part, cache) for part in tokens.split([25, 1, 14], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, **close)

    prompt = tokens[:1, :8]
    text = theirs.generate(
        prompt, do_sample=False, max_new_tokens=12, min_new_tokens=12
    )
    new = [int(x) for x in companion.generate(ours, prompt[0], 12)]
    assert new == text[0, 8:].tolist()


@pytest.mark.parametrize("name", LOADED | REFUSED)
def test_parameters_are_counted_as_transformers_counts_them(name, tmp_path):
    family, extra, *_ = (LOADED | REFUSED)[name]
    model = save(tmp_path, family, extra)
    found = read_anatomy(read_config(tmp_path))
    assert found.n_parameters() == sum(x.numel() for x in model.parameters())
    assert not found.unknown
    text = describe(found)
    assert f"{found.n_parameters():,} parameters" in text


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_gpt_cannot_hold_is_refused_by_what_it_lacks(name, tmp_path):
    family, extra, lack = REFUSED[name]
    save(tmp_path, family, extra)
    with pytest.raises(ValueError, match=lack):
        load_family(tmp_path)
    assert "can't load" in describe(read_anatomy(read_config(tmp_path)))


def test_what_a_loaded_model_would_not_compute_is_not_held(tmp_path):
    """A GPT of a family has a SwiGLU, and takes its embeddings as they are."""
    save(tmp_path, *REFUSED["gemma"][:2])
    lacking = read_anatomy(read_config(tmp_path)).lacking()
    for what in ("embeddings times √d_model", "GEGLU feed-forward"):
        assert any(words.startswith(what) for words in lacking)


@torch.inference_mode()
def test_a_cache_counts_what_transformers_keeps(tmp_path):
    """Full layers keep all, windows what they can see; there it keeps one less.

    transformers drops a window's oldest position before it is needed no more: the new
    token is the window's last.
    """
    found = {}
    for window in (16, 128):
        model = save(tmp_path, "olmo3", {"sliding_window": window})
        past = model(random_tokens(1, 40, d_vocab=D_VOCAB)).past_key_values
        kept = [layer.keys.shape[-2] for layer in past.layers]
        counted = read_anatomy(read_config(tmp_path))
        found[window] = counted.cache_bytes(40, 4)
        n_short = sum(x is not None for x in counted.windows)
        numbers = sum(kept) + n_short * (1 if window < 40 else 0)
        assert counted.cache_bytes(40, 4) == numbers * 2 * 2 * 8 * 4
    assert found[16] < found[128]


def test_the_last_token_costs_what_the_flops_counter_says(tmp_path):
    """It counts the products, not the norms; our parameters have their gains, too."""
    from torch.utils.flop_counter import FlopCounterMode

    save(tmp_path, "llama", {})
    model, _ = load_family(tmp_path)
    for part in model.modules():
        if hasattr(part, "engine"):
            part.engine = "explicit"
    found = read_anatomy(read_config(tmp_path))
    tokens = random_tokens(1, 20, d_vocab=D_VOCAB)
    cache = model.new_cache(20)
    model(tokens[:, :19], cache)
    with FlopCounterMode(display=False) as counter:
        model(tokens[:, 19:], cache)
    n_gains = 9 * 32  # two norms a block and the last
    embedding = 32  # one row, which is looked up
    products = found.operations(20) - 2 * (n_gains + embedding)
    assert products == counter.get_total_flops()


@torch.inference_mode()
def test_shards_and_one_file_are_the_same_model(tmp_path):
    model = save(tmp_path / "one", "llama", {})
    model.save_pretrained(tmp_path / "many", max_shard_size="40KB")
    assert len([*(tmp_path / "many").glob("*.safetensors")]) > 2
    tokens = random_tokens(1, 9, d_vocab=D_VOCAB)
    one, many = (load_family(tmp_path / name)[0](tokens) for name in ("one", "many"))
    assert torch.equal(one, many)


def test_an_older_file_says_its_base_in_another_place(llama):
    config = rewrite(llama, rope_parameters=None, rope_theta=12_345.0, head_dim=None)
    assert (
        read_anatomy(config).rotary_base == 12_345.0
        and read_anatomy(config).d_head == 8
    )
    config["rope_scaling"] = {"type": "linear", "factor": 2.0}
    assert "'linear'" in " ".join(read_anatomy(config).lacking())


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_file_leaves_out_is_as_in_transformers(family, tmp_path):
    """Files of before name only what differs from the family's own defaults."""
    config_class = type(AutoConfig.for_model(family))
    sizes = SIZES | {
        "hidden_size": 256,
        "num_attention_heads": 32,
        "num_hidden_layers": 8,
        "max_position_embeddings": 100_000,
    }
    del sizes["num_key_value_heads"]
    theirs = config_class(**sizes)
    found = read_anatomy(sizes | {"model_type": family})
    assert found.n_kv_heads == theirs.num_key_value_heads
    assert found.norm_epsilon == theirs.rms_norm_eps
    assert found.is_tied == theirs.tie_word_embeddings
    assert found.attention_bias == getattr(theirs, "attention_bias", False)
    assert found.d_head == (getattr(theirs, "head_dim", None) or 8)
    kinds = getattr(theirs, "layer_types", None) or ["full_attention"] * 8
    windows = [
        theirs.sliding_window if kind == "sliding_attention" else None for kind in kinds
    ]
    assert [*found.windows] == windows
    rotation = theirs.rope_parameters
    rotation = rotation.get("full_attention", rotation)
    assert found.rotary_base == rotation["rope_theta"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        ({"hidden_size": None}, "no hidden_size"),
        ({"hidden_size": "32"}, "hidden_size is '32'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_key_value_heads": 3}, "must divide num_attention_heads"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ({"rope_parameters": [1]}, "no table"),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_theta is -1"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "rope_theta is 1000"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is 1000"),
        ({"rope_scaling": {"rope_theta": 7.0}}, "rotary positions with bases"),
        ({"num_hidden_layers": 5}, "no tensor model.layers.4"),
        ({"num_hidden_layers": 3}, "no place for model.layers.3"),
        ({"intermediate_size": 40}, r"\(32, 48\) in the file and \(32, 40\)"),
        ({"attention_bias": True}, "no tensor model.layers.0.self_attn.k_proj.bias"),
        ({"tie_word_embeddings": True}, "lm_head.weight is not the embedding"),
        ({"logits_scaling": 8}, "logits_scaling, which isn't known"),
        ({"quantization_config": {"bits": 4}}, "quantization_config, which isn't"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ],
)
def test_a_configuration_that_says_something_else_is_refused_by_its_key(
    changes, said, llama
):
    rewrite(llama, **changes)
    with pytest.raises(ValueError, match=said):
        load_family(llama)


@torch.inference_mode()
def test_an_adapter_goes_beside_the_projection_that_is_scaled_and_not_behind(tmp_path):
    save(tmp_path, "qwen3", {"head_dim": 8})
    tokens = random_tokens(2, 12, d_vocab=D_VOCAB)
    model, _ = load_family(tmp_path)
    expected, _ = load_family(tmp_path)
    for names in (["to_queries"], ["to_queries", "to_values"]):
        with pytest.raises(ValueError, match="to_queries is no linear layer, but a Sc"):
            add_adapters(model, names)

    add_adapters(model, ["to_queries.projection"], rank=2, alpha=6)
    for i, block in enumerate(model.blocks):
        adapter = block.attention.to_queries.projection
        adapter.B.copy_(random(*adapter.B.shape, seed=i))
        projection = expected.blocks[i].attention.to_queries.projection
        projection.weight.add_(6 / 2 * adapter.B @ adapter.A)

    torch.testing.assert_close(model(tokens), expected(tokens))
    torch.testing.assert_close(merge_adapters(model)(tokens), expected(tokens))


@pytest.mark.parametrize(
    ("model_type", "changes", "said"),
    [
        ("llama", {"hidden_size": None}, "hidden_size is null; it must be a whole"),
        ("llama", {"vocab_size": None}, "vocab_size is null"),
        ("llama", {"rms_norm_eps": None}, "rms_norm_eps is null; it must be within"),
        ("llama", {"rope_parameters": None, "rope_theta": None}, "rope_theta is null"),
        ("gemma3_text", {"sliding_window": None}, "sliding_window is null"),
        ("gpt_oss", {"num_local_experts": None}, "num_local_experts is null"),
        ("gpt_oss", {"num_experts": None}, "num_experts is null"),
    ],
)
def test_null_where_a_number_must_stand_is_called_null(
    model_type, changes, said, llama
):
    config = read_config(llama) | {"model_type": model_type} | changes
    with pytest.raises(ValueError, match=said):
        read_anatomy(config)


@pytest.mark.parametrize(
    "key",
    [
        "num_key_value_heads",
        "head_dim",
        "rope_scaling",
        "rope_parameters",
        "layer_types",
        "attention_bias",
        "partial_rotary_factor",
    ],
)
def test_null_is_as_absent_where_published_files_say_so(key, llama):
    config = read_config(llama) | {"rope_theta": 10_000.0}
    config.pop(key, None)
    absent = read_anatomy(config)
    if key == "layer_types":  # a key of families with windows
        config["model_type"] = "qwen3"
        absent = read_anatomy(config)
    if key == "num_key_value_heads":
        absent = read_anatomy(config | {key: absent.n_heads})
    assert read_anatomy(config | {key: None}) == absent


def test_the_base_of_a_rotation_may_be_what_a_gpt_takes(llama):
    rewrite(llama, rope_parameters={"rope_theta": 1})
    model, _ = load_family(llama)
    assert model.config.rotary_base == 1
    rewrite(llama, rope_parameters={"rope_theta": 0.99})
    with pytest.raises(ValueError, match="rope_theta is 0.99; it must be 1 or more"):
        load_family(llama)


def test_the_base_of_a_window_s_rotation_must_be_a_number(llama):
    config = read_config(llama) | {"model_type": "gemma3_text"}
    del config["rope_parameters"]
    for wrong in ([1], "10", 0, math.inf):
        with pytest.raises(ValueError, match="rope_local_base_freq is"):
            read_anatomy(config | {"rope_local_base_freq": wrong})


PUBLISHED = {  # parameters, and those at work on a token, in billions: model cards
    "SmolLM2-135M-Instruct": (0.135, None),
    "Llama-3.2-1B": (1.24, None),
    "gemma-3-1b-it": (1.0, None),
    "OLMo-2-1124-7B": (7.3, None),
    "Olmo-3-1025-7B": (7.3, None),
    "Qwen3-8B": (8.2, None),
    "gpt-oss-20b": (20.9, 3.6),
    "Qwen3-30B-A3B": (30.5, None),
}


def test_the_site_models_have_the_parameters_of_their_cards():
    paths = [*(ROOT / "docs" / "models").glob("*.json")]
    names = set()
    for path in paths:
        config = read_config(path)
        name = config["_name_or_path"].partition("/")[2]
        total, active = PUBLISHED[name]
        found = read_anatomy(config)
        assert not found.unknown
        assert found.n_parameters() / 1e9 == pytest.approx(total, rel=0.006)
        if active is not None:
            at_work = found.n_parameters(active=True) / 1e9
            assert at_work == pytest.approx(active, rel=0.006)
        names.add(name)
    assert names == PUBLISHED.keys()


def test_scores_divided_by_the_root_of_a_heads_features_are_chapter_01s():
    config = read_config(ROOT / "docs" / "models" / "gemma-3-1b.json")
    for d_head, scalar in ((256, 256), (128, 128), (256, 168), (128, 256)):
        sizes = {"head_dim": d_head, "query_pre_attn_scalar": scalar}
        lacking = " ".join(read_anatomy(config | sizes).lacking())
        assert (f"√{scalar}" in lacking) == (d_head != scalar)


def test_files_that_are_missing_or_cut_short_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        load_family(tmp_path)
    model = save(tmp_path, "llama", {}, max_shard_size="40KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    index = tmp_path / "model.safetensors.index.json"

    # A shard of another model, one cut short, one that is gone.
    whole = shards[1].read_bytes()
    part = load_file(shards[1])
    save_file({f"another.{name}": x for name, x in part.items()}, shards[1])
    with pytest.raises(ValueError, match="don't agree on another"):
        load_family(tmp_path)
    shards[1].write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=f"{shards[1].name} is damaged"):
        load_family(tmp_path)
    shards[1].unlink()
    with pytest.raises(FileNotFoundError, match=shards[1].name):
        load_family(tmp_path)
    for text in ('{"weight_map": [', "[" * 100_000, "5", '{"weight_map": 5}'):
        index.write_text(text, "utf-8")
        with pytest.raises(ValueError, match="no whole index"):
            load_family(tmp_path)

    # Weights that may run code are not opened.
    for path in [index, *tmp_path.glob("*.safetensors")]:
        path.unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="no model.safetensors"):
        load_family(tmp_path)

    config = (tmp_path / "config.json").read_text("utf-8")
    (tmp_path / "config.json").write_text(config[:200], "utf-8")
    with pytest.raises(ValueError, match="not whole"):
        load_family(tmp_path)
    (tmp_path / "config.json").write_text("[]", "utf-8")
    with pytest.raises(ValueError, match="no model_type"):
        load_family(tmp_path)


def test_a_tokenizer_is_read_by_its_library(llama):
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(
        str(llama / "tokenizer.json")
    )
    _, tokenizer = load_family(llama)
    assert tokenizer.encode("b").ids == [1]
    (llama / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(ValueError, match="no whole tokenizer"):
        load_family(llama)


def test_the_command_says_what_a_folder_holds_or_in_one_line_what_is_wrong(
    llama, capsys
):
    describe_command.main([str(llama)])
    assert "load_family can load it" in capsys.readouterr().out
    (llama / "config.json").write_text("{", "utf-8")
    for path in (
        llama,
        llama / "config.json",
        llama / "none",
        llama / "model.safetensors",
    ):
        with pytest.raises(SystemExit, match="^error: [^\n]+$"):
            describe_command.main([str(path)])
