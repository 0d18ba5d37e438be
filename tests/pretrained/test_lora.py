"""Adapters: against `peft` on the same weights and data, and what any weights show."""

import copy
from dataclasses import replace

import pytest
import torch
from common import byte_tokenizer, pack, random, random_tokens, rounding, seeded, shaken
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from companion import GPT, GPTConfig, next_token_loss, save_checkpoint
from companion.pretrained import lora
from companion.pretrained.lora import (
    LoRALinear,
    fingerprint,
    load_adapter,
    merge,
    save_adapter,
    wrap,
)
from companion.pretrained.quantized import PackedLinear, kernel_is_here, prepack
from companion.pretrained.talks import batch_of_talks, encode_talk

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
    wrap(gpt, rank=4, alpha=12, generator=seeded(1))
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
    assert_close(merge(gpt)(TOKENS), expected, **rounding(n, expected))


def test_at_first_nothing_changes_and_then_only_the_adapters_learn():
    plain = base()
    model = wrap(copy.deepcopy(plain), generator=seeded())
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
    model = wrap(base(), rank=3)
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
    learned(wrap(model, names, rank=5, alpha=3))
    wrapped = model(TOKENS)
    assert (wrapped - plain(TOKENS)).abs().max() > 0.1

    assert merge(model) is model
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
    model = learned(wrap(base(d_hidden=128), rank=4))
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
            for refused in (merge, wrap, save):
                with pytest.raises(ValueError, match="to decode|adapter already"):
                    refused(packed)


def save(model):
    save_adapter("never written", model)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "one.safetensors"


def test_a_file_brings_the_same_model_back(path):
    model = learned(wrap(base(), rank=3, alpha=5))
    save_adapter(path, model)
    again = load_adapter(path, base())
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert not any(p.requires_grad for p in again.parameters())
    assert fingerprint(again) == fingerprint(base()) == fingerprint(model)


def test_an_adapter_of_another_base_is_refused_and_nothing_changes(path):
    save_adapter(path, learned(wrap(base())))
    others = [base(), base().double(), base(tie_embeddings=False)]
    others[0].blocks[1].feed_forward.to_gate.weight.data[3, 5] += 1e-6
    for other in others:
        before = other.state_dict().keys()
        with pytest.raises(ValueError, match="was made for another model"):
            load_adapter(path, other)
        assert other.state_dict().keys() == before


def test_files_that_are_no_adapters_are_refused(path):
    model = base()
    path.write_bytes(b"no adapter")
    with pytest.raises(ValueError, match="damaged, or no adapter"):
        load_adapter(path, model)
    optimizer = torch.optim.SGD(model.parameters())
    save_checkpoint(path, model, optimizer, seeded())
    with pytest.raises(ValueError, match="damaged, or no adapter"):
        load_adapter(path, model)
    save_adapter(path, learned(wrap(base())))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged, or no adapter"):
        load_adapter(path, model)
    with pytest.raises(OSError):
        load_adapter(path.with_name("nothing"), model)


def test_what_can_not_be_wrapped_is_refused_with_the_reason():
    for names, words in (
        (["to_querys"], "no linear layer whose name ends with 'to_querys'"),
        (["unembedding"], "embedding.weight and unembedding.weight are one matrix"),
        (["embedding"], "no linear layer"),
    ):
        model = base()
        with pytest.raises(ValueError, match=words):
            wrap(model, names)
        assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(ValueError, match="rank is 0"):
        wrap(base(), rank=0)
    with pytest.raises(ValueError, match="alpha is -1"):
        wrap(base(), alpha=-1)
    with pytest.raises(ValueError, match="has an adapter already"):
        wrap(wrap(base()))
    with pytest.raises(ValueError, match="no adapter to save"):
        save_adapter("never written", base())
    laid_out = base()
    attention = laid_out.blocks[0].attention
    attention.to_output = PackedLinear(attention.to_output.weight)
    with pytest.raises(ValueError, match="laid out to decode"):
        wrap(laid_out)


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
