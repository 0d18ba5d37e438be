"""Adapters: against `peft` on the same weights and data, and what any weights show."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from common import random, random_tokens, rounding, seeded, shaken
from hypothesis import given, settings
from hypothesis import strategies as st
from published import byte_tokenizer, pack
from safetensors import torch as safetensors
from torch import nn
from torch.testing import assert_close

from companion import GPT, GPTConfig, next_token_loss, save_checkpoint
from companion.model.blocks import RMSNorm
from companion.pretrained import adapter_files, lora
from companion.pretrained.adapter_files import fingerprint, load_adapter, save_adapter
from companion.pretrained.lora import LoRALinear, add_adapters, merge_adapters
from companion.pretrained.quantized import (
    PackedLinear,
    kernel_is_here,
    pack_weights,
    prepack,
)
from companion.pretrained.talks import batch_of_talks, encode_talk
from companion.tensor_files import pack_tensors, unpack_tensors

CONFIG = GPTConfig(
    d_vocab=40,
    context_length=64,
    d_model=64,
    n_heads=4,
    n_kv_heads=2,
    n_layers=2,
    d_hidden=96,
    positions="rotary",
    norm="rms",
    feed_forward="gated",
    activation="silu",
    bias=False,
)


def base(**changes) -> GPT:
    return shaken(GPT(replace(CONFIG, **changes)), 0.2)


def learned(model: nn.Module, seed: int = 5) -> nn.Module:
    """The model with adapters as after a training: no B is 0."""
    generator = seeded(seed)
    for adapter in lora.adapters(model).values():
        adapter.B.data.normal_(0, 0.1, generator=generator)
    return model


TOKENS = random_tokens(3, 20, d_vocab=40)


def test_ten_steps_lose_what_they_lose_in_peft():
    """The same Llama, the same adapters, AdamW, and the answers alone count.

    peft's drawing of A is its own, so its numbers are copied; B is 0 in both. Two right
    programs drift apart from step to step, since AdamW makes a whole step of a gradient
    that is only rounding: so each step begins with the same adapters in both.
    """
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM

    gpt = base()
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000},
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
        )
    )
    names = {
        "attention.to_queries": "self_attn.q_proj",
        "attention.to_keys": "self_attn.k_proj",
        "attention.to_values": "self_attn.v_proj",
        "attention.to_output": "self_attn.o_proj",
        "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.to_gate": "mlp.gate_proj",
        "feed_forward.to_hidden": "mlp.up_proj",
        "feed_forward.to_output": "mlp.down_proj",
    }
    state = {
        "model.embed_tokens.weight": gpt.embedding.weight,
        "lm_head.weight": gpt.embedding.weight,
        "model.norm.weight": gpt.norm.gain,
    }
    for i in range(2):
        for name, other in names.items():
            part = gpt.get_submodule(f"blocks.{i}.{name}")
            weight = part.gain if "norm" in name else part.weight
            state[f"model.layers.{i}.{other}.weight"] = weight
    llama.load_state_dict(state)
    n = 96  # the longest sum's terms: d_hidden
    expected = llama(TOKENS).logits
    assert_close(gpt(TOKENS), expected, **rounding(n, expected))

    # The same four matrices of each block, rank 4, alpha 12.
    add_adapters(gpt, rank=4, alpha=12, generator=seeded(1))
    targets = ["q_proj", "v_proj", "up_proj", "down_proj"]
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets)
    llama = peft.get_peft_model(llama, config)
    n_learning = sum(p.numel() for p in gpt.parameters() if p.requires_grad)
    n_learning_in_peft = sum(p.numel() for p in llama.parameters() if p.requires_grad)
    assert n_learning == n_learning_in_peft
    pairs = []
    for name, adapter in lora.adapters(gpt).items():
        block, _, place = name.removeprefix("blocks.").partition(".")
        path = f"base_model.model.model.layers.{block}.{names[place]}"
        layer = llama.get_submodule(path)
        A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        bound = adapter.A.shape[1] ** -0.5
        for drawn in (A, adapter.A):
            # Of 256 numbers between ±bound, some lie in its last tenth (all but 2e-12).
            assert 0.9 * bound < drawn.abs().max() <= bound
        assert not B.any() and not adapter.B.any()
        pairs += [(adapter.A, A), (adapter.B, B)]

    ours = [p for p, _ in pairs]
    optimizer = torch.optim.AdamW(ours, lr=1e-2, weight_decay=0)
    losses = []
    for step in range(10):
        with torch.no_grad():
            for p, twin in pairs:
                twin.copy_(p)
        tokens = random_tokens(4, 13, d_vocab=40, seed=step)
        answers = tokens[:, 1:].clone()
        answers[:, :6] = -100
        places = torch.arange(6, 12).expand(4, -1)
        logits = gpt(tokens[:, :-1], last=places)
        loss = next_token_loss(logits, answers[:, 6:])
        labels = torch.cat([tokens[:, :1] * 0 - 100, answers], 1)
        expected = llama(tokens, labels=labels).loss
        # A loss is off by no more than the logits.
        assert_close(loss, expected, **rounding(n, logits))

        gradients = torch.autograd.grad(loss, ours)
        theirs = torch.autograd.grad(expected, [twin for _, twin in pairs])
        for gradient, right in zip(gradients, theirs, strict=True):
            assert_close(gradient, right, **rounding(2 * n, right))  # there and back
        for p, gradient in zip(ours, gradients, strict=True):
            p.grad = gradient
        optimizer.step()
        losses.append(loss.item())
    assert losses[9] < losses[0] - 0.1

    with torch.no_grad():
        for p, twin in pairs:
            twin.copy_(p)
    expected = llama.merge_and_unload()(TOKENS).logits
    assert_close(merge_adapters(gpt)(TOKENS), expected, **rounding(n, expected))


def test_at_first_nothing_changes_and_then_only_the_adapters_learn():
    plain = base()
    model = add_adapters(copy.deepcopy(plain), generator=seeded())
    assert torch.equal(model(TOKENS), plain(TOKENS))

    loss = next_token_loss(model(TOKENS[:, :-1]), TOKENS[:, 1:])
    loss.backward()
    for name, p in model.named_parameters():
        assert p.requires_grad == name.endswith((".A", ".B")), name
        assert (p.grad is not None) == p.requires_grad
    for adapter in lora.adapters(model).values():  # B is 0, so A can't move yet
        assert not adapter.A.grad.any() and adapter.B.grad.any()


def test_the_numbers_that_learn_are_those_of_the_ranks():
    """SmolLM2's are 1,474,560 at rank 8; here by the shapes."""
    model = add_adapters(base(), rank=3)
    shapes = [(64, 64), (64, 32), (64, 96), (96, 64)]  # in and out
    expected = 2 * sum(3 * (i + o) for i, o in shapes)
    n = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert n == expected and len(lora.adapters(model)) == 8


@pytest.mark.parametrize(
    "names", [["to_queries"], list(lora.ADAPTED_LAYERS), ["to_output"]]
)
@pytest.mark.parametrize("bias", [False, True])
def test_merged_a_model_computes_what_it_did_wrapped(names, bias):
    plain = base(bias=bias)
    model = copy.deepcopy(plain)
    weights = [p.clone() for p in model.parameters()]
    parts = list(model.parameters())
    learned(add_adapters(model, names, rank=5, alpha=3))
    wrapped = model(TOKENS)
    assert (wrapped - plain(TOKENS)).abs().max() > 0.1

    assert merge_adapters(model) is model
    assert_close(model(TOKENS), wrapped, **rounding(96, wrapped))
    assert not lora.adapters(model)
    assert model.state_dict().keys() == plain.state_dict().keys()
    for before, part in zip(weights, parts, strict=True):
        assert torch.equal(before, part)  # another model may have it


def test_an_adapter_has_its_own_scale_and_start():
    layer = nn.Linear(6, 4)
    first = LoRALinear(layer, 3, 6, seeded(1))
    second = LoRALinear(layer, 3, 6, seeded(1))
    assert torch.equal(first.A, second.A)
    first.B.data.fill_(1)
    x = torch.randn(2, 6)
    expected = layer(x) + 2 * (x @ first.A.T).sum(-1, keepdim=True)
    assert_close(first(x), expected)


@pytest.mark.usefixtures("processor")
def test_packed_a_wrapped_model_answers_and_can_not_be_trained():
    """Where there is no kernel, it is the model that it was."""
    model = learned(add_adapters(base(d_hidden=128), rank=4))
    before = model(TOKENS)
    prepacked = prepack(copy.deepcopy(model))
    assert_close(prepacked(TOKENS), before, **rounding(128, before))

    packed = pack(model)
    if not kernel_is_here():
        assert torch.equal(packed(TOKENS), before)
        return
    assert not any(p.requires_grad for p in packed.parameters())
    for adapter in lora.adapters(packed).values():
        if type(adapter.layer) is PackedLinear:
            x = random(5, adapter.layer.in_features)
            change = adapter.alpha / adapter.rank * (x @ adapter.A.T @ adapter.B.T)
            assert_close(adapter(x), adapter.layer(x) + change)
            for refused in (merge_adapters, add_adapters, save):
                with pytest.raises(ValueError, match="to decode|adapter already"):
                    refused(packed)


def save(model):
    save_adapter("never written", model)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "one.safetensors"


def test_a_file_brings_the_same_model_back(path):
    model = learned(add_adapters(base(), rank=3, alpha=5))
    save_adapter(path, model)
    again = load_adapter(path, base())
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert not any(p.requires_grad for p in again.parameters())
    assert fingerprint(again) == fingerprint(base()) == fingerprint(model)


def test_an_adapter_that_is_read_moves_nobody_s_random_numbers(path):
    save_adapter(path, learned(add_adapters(base(), rank=3)))
    model = base()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    load_adapter(path, model)
    assert torch.equal(torch.rand(3), expected)


def test_an_adapter_of_another_base_is_refused_and_nothing_changes(path):
    save_adapter(path, learned(add_adapters(base())))
    others = [base(), base(tie_embeddings=False), base(n_layers=3)]
    others[0].blocks[1].feed_forward.to_gate.weight.data[3, 5] += 1e-6
    for other in others:
        before = other.state_dict().keys()
        with pytest.raises(ValueError, match="was made for another model"):
            load_adapter(path, other)
        assert other.state_dict().keys() == before


DIFFERENT = {
    "n_heads": 2,
    "rotary_base": 500,
    "activation": "gelu",
    "norm": "layer",
    "positions": "alibi",
    "pre_norm": False,
    "qk_norm": True,
    "scale_embeddings": True,
    "tie_embeddings": False,
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_same_weights_in_another_model_are_refused_by_what_differs(path, name):
    save_adapter(path, learned(add_adapters(base(n_kv_heads=4))))
    changes = {"n_kv_heads": 4, name: DIFFERENT[name]}
    if name == "n_heads":
        changes["n_kv_heads"] = 2  # so that the shapes are the same
    words = f"another model than this one: {name} is .* there and .* here; load"
    with pytest.raises(ValueError, match=words):
        load_adapter(path, base(**changes))


def test_what_was_changed_after_the_making_and_an_encoder_are_refused(path):
    model = base()
    save_adapter(path, learned(add_adapters(base())))
    model.positions = type(model.positions)(16, 500)
    with pytest.raises(ValueError, match="positions.base is 10000 there and 500 here"):
        load_adapter(path, model)
    encoder = shaken(GPT(CONFIG, causal=False), 0.2)
    with pytest.raises(ValueError, match="causal is True there and False here"):
        load_adapter(path, encoder)


def test_norms_with_another_epsilon_are_refused_where_the_file_says_theirs(path):
    save_adapter(path, learned(add_adapters(base())))
    other = base()
    for part in other.modules():
        if isinstance(part, RMSNorm):
            part.eps = 0.5
    with pytest.raises(ValueError, match=r"norms.eps is \[1e-05\] there and \[0.5\]"):
        load_adapter(path, other)

    tensors, about = unpack_tensors(path.read_bytes())
    del about["settings"][adapter_files.EPSILONS]  # as files said nothing of them
    path.write_bytes(pack_tensors(tensors, about))
    assert lora.adapters(load_adapter(path, other))


def test_what_changes_no_answer_is_the_same_model(path):
    model = learned(add_adapters(base()))
    save_adapter(path, model)
    again = load_adapter(path, base(engine="explicit", dropout=0.5, context_length=32))
    assert_close(again(TOKENS), model(TOKENS), atol=1e-5, rtol=1e-5)


def test_the_same_weights_in_another_precision_are_the_same_model(path):
    """What comes out is what the model of that precision gives with the adapter."""
    exact = learned(add_adapters(base()))
    save_adapter(path, exact)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        with pytest.raises(ValueError, match="whose weights differ"):
            load_adapter(path, shaken(GPT(CONFIG), 0.2, seed=1).to(dtype))
        model = load_adapter(path, base().to(dtype))
        expected = learned(add_adapters(base().to(dtype)))
        for name, adapter in lora.adapters(expected).items():
            adapter.A.data.copy_(exact.get_submodule(name).A)
            adapter.B.data.copy_(exact.get_submodule(name).B)
        assert torch.equal(model(TOKENS), expected(TOKENS))

    # And from fewer bits to more, but not from one sort of 16 bits to the other.
    for dtype, other in (
        (torch.bfloat16, torch.float16),
        (torch.float16, torch.bfloat16),
    ):
        save_adapter(path, learned(add_adapters(base().to(dtype))))
        load_adapter(path, base())
        with pytest.raises(ValueError, match=f"{dtype}, with which those of {other}"):
            load_adapter(path, base().to(other))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_adapter_on_16_bits_learns_in_32(path, dtype, when):
    """Steps of 1e-5 are lost in 16 bits: most of A, of about 0.1, stands still."""
    model = base()
    if when == "before":
        model.to(dtype)
    add_adapters(model, generator=seeded())
    model.to(dtype)
    learning = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert {p.dtype for p in learning.values()} == {torch.float32}
    start = {name: p.detach().clone() for name, p in learning.items()}
    original = add_adapters(base(), generator=seeded())
    for name, p in original.named_parameters():
        assert not p.requires_grad or torch.equal(p, start[name])

    optimizer = torch.optim.AdamW(learning.values(), lr=1e-5, weight_decay=0)
    for _ in range(3):
        optimizer.zero_grad()
        logits = model(TOKENS[:, :-1])
        assert logits.dtype == dtype
        next_token_loss(logits, TOKENS[:, 1:]).backward()
        optimizer.step()
    for name, p in learning.items():
        if p.grad.any():
            assert (p != start[name])[p.grad != 0].float().mean() > 0.9

    wrapped = model(TOKENS)
    save_adapter(path, model)
    again = load_adapter(path, base().to(dtype))
    assert torch.equal(again(TOKENS), wrapped)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_merged_weight_is_the_sum_rounded_once(dtype, autocast):
    model = learned(add_adapters(base().to(dtype), rank=3, alpha=5))
    expected = {}
    for name, adapter in lora.adapters(model).items():
        change = 5 / 3 * adapter.B.double() @ adapter.A.double()
        expected[name] = adapter.layer.weight.double() + change
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        merge_adapters(model)
    for name, weight in expected.items():
        merged = model.get_submodule(name).weight
        assert merged.dtype == dtype
        # Half a step of its last bit, and in float32 the product's own rounding.
        unit = torch.finfo(dtype).eps
        allowed = unit * (weight.abs() + torch.finfo(torch.float32).eps)
        allowed += 8 * torch.finfo(torch.float32).eps
        assert ((merged.double() - weight).abs() <= allowed).all()


def check_refused(path, words="damaged, or no adapter"):
    model = base()
    with pytest.raises(ValueError, match=words) as info:
        load_adapter(path, model)
    assert "\n" not in str(info.value)
    assert not lora.adapters(model) and all(p.requires_grad for p in model.parameters())


def test_files_that_are_no_adapters_are_refused(path):
    model = base()
    path.write_bytes(b"no adapter")
    check_refused(path)
    optimizer = torch.optim.SGD(model.parameters())
    save_checkpoint(path, model, optimizer, seeded())
    check_refused(path)
    for metadata in (None, {"format": "pt"}, {"companion": "[" * 99_999}):
        path.write_bytes(safetensors.save({"x": torch.ones(2)}, metadata))
        check_refused(path)
    save_adapter(path, learned(add_adapters(base())))
    path.write_bytes(path.read_bytes()[:-100])
    check_refused(path)
    with pytest.raises(OSError):
        load_adapter(path.with_name("nothing"), model)


def test_one_flipped_bit_is_seen_wherever_it_is(path):
    save_adapter(path, learned(add_adapters(base(), rank=1)))
    data = path.read_bytes()
    places = [*range(0, 2000, 7), *range(2000, len(data), 97), len(data) - 1]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged, or no adapter"):
            adapter_files.read_adapter(path)


LAYER = "blocks.0.attention.to_queries"


def change(part, name, value):
    """What sets, or with None leaves out, one thing of a file's two dictionaries."""

    def changed(tensors, about):
        place = {"tensors": tensors, "about": about, "alphas": about["alphas"]}[part]
        if value is None:
            del place[name]
        else:
            place[name] = value

    return changed


def rename_layer(new):
    def changed(tensors, about):
        about["alphas"][new] = about["alphas"].pop(LAYER)
        for matrix in "AB":
            tensors[f"{new}.{matrix}"] = tensors.pop(f"{LAYER}.{matrix}")

    return changed


def together_of(a, b):
    def changed(tensors, about):
        tensors[f"{LAYER}.A"], tensors[f"{LAYER}.B"] = a, b

    return changed


INF = math.inf
ODD = [  # how a file is changed, and what is said of it; its SHA-256 fits
    (change("tensors", f"{LAYER}.A", torch.tensor(1.0)), r"A' is .* of shape \(\)"),
    (change("tensors", f"{LAYER}.A", torch.ones(64)), "must be a matrix of floats"),
    (change("tensors", f"{LAYER}.A", torch.ones(3, 64).int()), "is torch.int32"),
    (change("tensors", f"{LAYER}.A", torch.ones(3, 64) + 1j), "is torch.complex64"),
    (change("tensors", f"{LAYER}.A", torch.full((3, 64), INF)), "aren't finite"),
    (change("tensors", f"{LAYER}.B", torch.full((64, 3), math.nan)), "aren't finite"),
    (change("tensors", f"{LAYER}.B", torch.ones(64, 2)), "rank 3 and a B of rank 2"),
    (
        change("tensors", f"{LAYER}.B", torch.ones(63, 3)),
        r"\(63, 64\), and the model's",
    ),
    (change("tensors", f"{LAYER}.A", torch.ones(3, 1)), r"\(64, 1\), and the model's"),
    (together_of(torch.ones(0, 64), torch.ones(64, 0)), "the rank 1 or more"),
    (change("tensors", f"{LAYER}.C", torch.ones(2)), "damaged"),
    (change("tensors", f"{LAYER}.A", None), "damaged"),
    (rename_layer("to_queries"), "has no linear layer 'to_queries'"),
    (rename_layer(""), "has no linear layer ''"),
    (rename_layer("a\nb"), "has no linear layer"),
    (rename_layer("blocks.0.attention"), "is no linear layer, but a MultiHead"),
    (rename_layer("embedding"), "is no linear layer, but a Embedding"),
    (rename_layer("unembedding"), "are one matrix"),
    (change("alphas", LAYER, 0), "alpha of .* is 0; it must be above 0"),
    (change("alphas", LAYER, -1.5), "is -1.5; it must be above 0"),
    (change("alphas", LAYER, INF), "is inf"),
    (change("alphas", LAYER, math.nan), "is nan"),
    (change("alphas", LAYER, 10**400), "a whole number|is 1000"),
    (change("alphas", LAYER, "16"), "is '16'"),
    (change("alphas", LAYER, True), "is True"),
    (change("alphas", LAYER, [16]), r"is \[16\]"),
    (change("about", "alphas", [LAYER]), "damaged"),
    (change("about", "alphas", {}), "damaged"),
    (change("about", "alphas", 16), "damaged"),
    (change("about", "alphas", None), "damaged"),
    (change("about", "adapter for", 5), "damaged"),
    (change("about", "adapter for", {}), "damaged"),
    (change("about", "adapter for", {"torch.float32": 5}), "damaged"),
    (change("about", "adapter for", {"x\ny": "ab"}), "damaged"),
    (change("about", "settings", []), "damaged"),
    (change("about", "settings", {"x\ny": 1}), "another model than this one"),
    (change("about", "dropout", 0.5), "damaged"),
]


@pytest.mark.parametrize("changed, words", ODD)
def test_what_a_file_says_is_looked_at(path, changed, words):
    save_adapter(path, learned(add_adapters(base(), rank=3)))
    tensors, about = unpack_tensors(path.read_bytes())
    changed(tensors, about)
    path.write_bytes(pack_tensors(tensors, about))
    check_refused(path, words)


def save_as_0_1_0(path, model, **changes):
    """As version 0.1.0 wrote it, which had neither SHA-256 nor settings."""
    save_adapter(path, model)
    tensors, about = unpack_tensors(path.read_bytes())
    old = {"adapter for": fingerprint(model), "alphas": about["alphas"]}
    path.write_bytes(
        safetensors.save(tensors, {"companion": json.dumps(old | changes)})
    )


def test_a_file_of_version_0_1_0_loads_if_it_is_sound(path):
    model = learned(add_adapters(base(), rank=3, alpha=5))
    save_as_0_1_0(path, model)
    assert torch.equal(load_adapter(path, base())(TOKENS), model(TOKENS))
    with pytest.raises(ValueError, match="another model than this one, whose weights"):
        load_adapter(path, shaken(GPT(CONFIG), 0.2, seed=1))
    for changes in ({"alphas": [LAYER]}, {"adapter for": 3}, {"more": 1}):
        save_as_0_1_0(path, model, **changes)
        check_refused(path)

    # It had adapters of 16 bits, too.
    half = learned(add_adapters(base().bfloat16(), rank=3, alpha=5))
    save_as_0_1_0(path, half)
    words = adapter_files.read_words(path.read_bytes())
    tensors = {
        name: x.bfloat16() for name, x in safetensors.load(path.read_bytes()).items()
    }
    path.write_bytes(safetensors.save(tensors, {"companion": json.dumps(words)}))
    again = load_adapter(path, base().bfloat16())
    assert {x.A.dtype for x in lora.adapters(again).values()} == {torch.float32}


class Extended(nn.Linear):
    """A linear layer that may compute something else."""


class ExtendedAdapter(LoRALinear):
    """An adapter that may compute something else."""


def test_layers_of_other_classes_are_named_and_never_passed_over(path):
    model = base()
    queries = model.blocks[1].attention.to_queries
    model.blocks[1].attention.to_queries = Extended(64, 64)
    words = "blocks.1.attention.to_queries is no linear layer, but a Extended"
    with pytest.raises(ValueError, match=words):
        add_adapters(model)
    assert not lora.adapters(model)
    model.blocks[1].attention.to_queries = ExtendedAdapter(queries, 2, 4)
    for call in (merge_adapters, lambda model: save_adapter(path, model)):
        with pytest.raises(ValueError, match="to_queries is a ExtendedAdapter"):
            call(model)
    with pytest.raises(ValueError, match="Extended can't have an adapter"):
        LoRALinear(Extended(3, 3), 2, 4)


def test_all_of_a_base_is_in_the_fingerprint():
    """Also what is called `layer` itself, and what is no parameter."""

    def of(**changes):
        model = nn.Module()
        model.weight = nn.Parameter(torch.ones(2))
        model.layer = nn.Linear(2, 2)
        nn.init.ones_(model.layer.weight)
        nn.init.ones_(model.layer.bias)
        model.register_buffer("mean", torch.ones(2))
        for name, x in changes.items():
            model.get_parameter(name).data = x
        return model

    other = of()
    other.mean *= 2
    models = [of(), of(weight=torch.zeros(2)), other]
    models.append(of(**{"layer.weight": torch.zeros(2, 2)}))
    assert len({fingerprint(model) for model in models}) == 4
    assert fingerprint(add_adapters(of(), ["layer"])) == fingerprint(of())


def test_numbers_that_are_not_finite_are_not_saved(path):
    model = learned(add_adapters(base()))
    lora.adapters(model)[LAYER].B.data[3, 1] = math.nan
    with pytest.raises(ValueError, match=f"{LAYER}.B' has numbers that aren't finite"):
        save_adapter(path, model)
    assert not path.exists()


@pytest.mark.skipif(not kernel_is_here(), reason="no 4-bit kernel")
def test_beside_an_adapter_the_output_matrix_is_packed_in_8_bits():
    model = pack_weights(add_adapters(base(tie_embeddings=False), ["unembedding"]))
    assert model.unembedding.layer.n_bits == 8


def test_what_can_not_be_wrapped_is_refused_with_the_reason():
    for names, words in (
        (["to_querys"], "no linear layer whose name ends with 'to_querys'"),
        (["unembedding"], "embedding.weight and unembedding.weight are one matrix"),
        (["embedding"], "no linear layer"),
        (["feed_forward"], "blocks.0.feed_forward is no linear layer"),
        ([], "names is empty"),
        ("to_queries", r"names is 'to_queries'; it must be a list"),
    ):
        model = base()
        with pytest.raises(ValueError, match=words):
            add_adapters(model, names)
        assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(ValueError, match="rank is 0"):
        add_adapters(base(), rank=0)
    for alpha in (-1, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"alpha is {alpha}"):
            add_adapters(base(), alpha=alpha)
    with pytest.raises(ValueError, match="has an adapter already"):
        add_adapters(add_adapters(base()))
    with pytest.raises(ValueError, match="no adapter to save"):
        save_adapter("never written", base())
    laid_out = base()
    attention = laid_out.blocks[0].attention
    attention.to_output = PackedLinear(attention.to_output.weight)
    with pytest.raises(ValueError, match="laid out to decode"):
        add_adapters(laid_out)


# Talks.

TOKENIZER = byte_tokenizer()
START, END = 256, 257
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(turns=st.lists(texts, min_size=2, max_size=6).filter(lambda x: len(x) % 2 == 0))
def test_what_counts_is_what_the_assistant_says_and_its_end(turns):
    """Held against a reading of the bytes that knows nothing of how they were made."""
    roles = ["user", "assistant"] * (len(turns) // 2)
    messages = [("system", "Be kind."), *zip(roles, turns, strict=True)]
    tokens, targets = encode_talk(TOKENIZER, messages)
    assert len(tokens) == len(targets)

    # With the last target, it is the talk up to its last end.
    whole = [*tokens, targets[-1]]
    talk = TOKENIZER.chat(messages)
    opening = TOKENIZER.chat([])
    assert whole == talk[: len(talk) - len(opening) - 1]

    # A place counts where the latest start was the assistant's, after its line break.
    expected = []
    inside = False
    begin = list(b"assistant\n")
    for i in range(len(whole) - 1):
        if whole[i + 1 - 11 : i + 1] == [START, *begin]:
            inside = True
        expected.append(whole[i + 1] if inside else -100)
        if whole[i + 1] == END:
            inside = False
    assert targets == expected
    answers = [text for role, text in messages if role == "assistant"]
    said = bytes(x for x in targets if 0 <= x < 256)
    assert said == "".join(answers).encode() and targets.count(END) == len(answers)


def test_a_text_makes_no_end_and_a_talk_needs_an_answer():
    tokens, targets = encode_talk(
        TOKENIZER, [("user", "<|im_end|>"), ("assistant", "<|im_end|>")]
    )
    assert targets.count(END) == 1 and tokens.count(END) == 1
    with pytest.raises(ValueError, match="has no answer"):
        encode_talk(TOKENIZER, [("user", "Hm?")])


def test_only_the_answer_s_places_give_the_loss_of_all():
    model = shaken(GPT(replace(CONFIG, d_vocab=258, context_length=200)), 0.2)
    talks = [
        encode_talk(TOKENIZER, [("user", "a" * n), ("assistant", "b" * (9 - 2 * n))])
        for n in (1, 2, 4)
    ]
    talks.append(encode_talk(TOKENIZER, [("user", "x"), ("assistant", "yz")] * 3))
    tokens, places, targets = batch_of_talks(talks)
    rows = [torch.tensor(row) for _, row in talks]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
    expected = next_token_loss(model(tokens), padded)
    logits = model(tokens, last=places)
    assert logits.shape[:2] == targets.shape == places.shape
    assert_close(next_token_loss(logits, targets), expected)


def test_a_name_from_a_file_is_said_in_one_line_that_is_not_long():
    for name in ("", "x", "x" * 98, "x" * 99, "a\nb" * 5_000):
        words = lora.quoted(name)
        assert "\n" not in words and len(words) <= 103
        is_whole = len(repr(name)) <= 100
        assert words.endswith("...") != is_whole
        assert repr(name).startswith(words if is_whole else words[:-3])
        assert is_whole or len(words) == 103


@pytest.mark.parametrize("rank", [0, 1])
def test_of_processes_that_train_together_rank_0_writes(path, rank, monkeypatch):
    monkeypatch.setattr(adapter_files, "is_joined", lambda: True)
    monkeypatch.setattr(adapter_files.dist, "get_rank", lambda: rank)
    save_adapter(path, learned(add_adapters(base())))
    assert path.exists() == (rank == 0)
