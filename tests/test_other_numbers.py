"""Every row of docs/other_numbers.md: what differs, by how much, how both agree.

A row is run here, or by a script in findings/ where its library isn't in the lock.
"""

import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import nbformat
import peft
import pytest
import torch
import torch.nn.functional as F
import transformers
from common import EXACT, ROOT, random, random_tokens, rounding, seeded, shaken
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils.data import DistributedSampler
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj import modeling_gptj
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.m2m_100 import modeling_m2m_100
from transformers.models.marian import modeling_marian
from transformers.models.t5.modeling_t5 import T5Attention

import companion
from companion.artifacts import GPT2_VOCABULARY, SMOLLM2, find
from companion.model.blocks import Block, FeedForward, LayerNorm, RMSNorm
from companion.pretrained import gguf, smollm2
from companion.pretrained.lora import adapters, add_adapters
from companion.pretrained.published_tokenizer import PublishedTokenizer
from companion.pretrained.weights import build
from companion.text.tokenizers import printable_bytes
from companion.training.reward import advantages

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

PAGE = (ROOT / "docs" / "other_numbers.md").read_text("utf-8")
ROWS = [
    line.strip("|").replace("\\|", "|").split(" | ")
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| you compare with")
]
MEASURES: dict[str, Callable[[], list]] = {}


def row(words: str) -> Callable[[Callable[[], list]], Callable[[], list]]:
    """Says which row a function measures: the one that has these words.

    The function returns the numbers as the row gives them, and asserts that both sides
    agree by the way that the row names.
    """

    def register(measure: Callable[[], list]) -> Callable[[], list]:
        MEASURES[words] = measure
        return measure

    return register


def gpt2(**options) -> GPT2LMHeadModel:
    """A tiny GPT-2 of transformers', with weights that make a difference."""
    sizes = {"vocab_size": 60, "n_positions": 32, "n_embd": 16, "n_head": 2}
    off = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    ends = {"bos_token_id": 0, "eos_token_id": 59}
    config = GPT2Config(**sizes, **off, **ends, n_layer=2, **options)
    return shaken(GPT2LMHeadModel(config))


def llama() -> LlamaForCausalLM:
    """A tiny Llama of transformers'."""
    sizes = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24}
    config = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2)
    return shaken(LlamaForCausalLM(config))


def close(x, expected, n: int = 64) -> None:
    assert_close(x, expected, **rounding(n, expected))


# 00


@row("puts a space before the text")
def prefix() -> list:
    vocabulary = json.loads(find(GPT2_VOCABULARY).read_text("utf-8"))
    ids = []
    for options in ({}, {"add_prefix_space": False}):
        pieces = pre_tokenizers.ByteLevel(**options).pre_tokenize_str("Hello")
        ids += [vocabulary[piece] for piece, _ in pieces]
    assert [ids[1]] == companion.gpt2_tokenizer().encode("Hello")
    return ids


def byte_tokenizer() -> Tokenizer:
    vocabulary = {character: i for i, character in enumerate(printable_bytes())}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


@row("`<|endoftext|>` in a text")
def special() -> list:
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer())
    ours = companion.gpt2_tokenizer()
    text = "<|endoftext|>"
    with pytest.raises(ValueError, match="disallowed"):
        ours.encode(text)
    n_theirs = len(theirs(text)["input_ids"])
    n_ours = len(ours.encode(text, disallowed_special=()))
    assert len(ours.encode(text, allowed_special="all")) == n_theirs
    assert len(theirs(text, split_special_tokens=True)["input_ids"]) == len(text)
    return [f"{n_theirs} token", f"{n_ours} tokens"]


@row("`decode` leaves special tokens out")
def decoded() -> list:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a"))
    words.add_special_tokens(["<end>"])
    theirs = words.decode([0, 1, 2])
    assert words.decode([0, 1, 2], skip_special_tokens=False) == "a b <end>"
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
    assert wrapped.decode([0, 1, 2]) == "a b <end>"
    return [f"`{theirs}`", "`a b <end>`"]


@row("merges equally frequent pairs")
def merged() -> list:
    """Ours; the script has the others'."""
    (pair,) = companion.train_bpe(" cd ab xy cd ab xy", 257)
    return [f"here it is `{bytes(pair).decode()}`"]


# 01


def heads(n_queries: int = 2, n_keys: int = 5) -> tuple:
    queries = random(1, 1, n_queries, 8)
    keys = random(1, 1, n_keys, 8, seed=1)
    values = random(1, 1, n_keys, 8, seed=2)
    return queries, keys, values


@row("aligns the first query with the first key")
def aligned() -> list:
    queries, keys, values = heads()
    attend = F.scaled_dot_product_attention
    out = attend(queries, keys, values, is_causal=True)
    close(out, attend(queries, keys, values, torch.ones(2, 5).tril().bool()))
    mask = companion.causal_mask(2, 5)
    ours = companion.attention(queries, keys, values, mask)
    close(attend(queries, keys, values, mask), ours)
    return [f"{int(torch.ones(2, 5).tril()[0].sum())} key", int(mask[0].sum())]


def multi_head(**options) -> nn.MultiheadAttention:
    return shaken(nn.MultiheadAttention(8, 2, batch_first=True, **options))


@row("True in a mask hides")
def hides() -> list:
    x = random(1, 3, 8)
    attend = multi_head()
    mask = companion.causal_mask(3)
    weights = attend(x, x, x, attn_mask=mask)[1]
    assert weights[0, 0, 0] == 0 and weights[0, 2].isnan().all()
    assert (attend(x, x, x, attn_mask=~mask)[1][0].triu(1) == 0).all()
    return ["NaN"]


@row("a row in which all is hidden is NaN")
def empty() -> list:
    x = random(1, 3, 8)
    attend = multi_head(bias=False)
    nothing = torch.ones(3, 3, dtype=torch.bool)
    with_weights = attend(x, x, x, attn_mask=nothing)[0]
    without = attend(x, x, x, attn_mask=nothing, need_weights=False)[0]
    assert with_weights.isnan().all()
    assert (without == companion.attention(x, x, x, ~nothing)).all()
    return ["NaN", f"{without.abs().max():.0f}"]


@row("`torch.finfo(dtype).min` stands for −∞")
def finite() -> list:
    queries, keys, values = heads()
    lowest = torch.full((2, 5), torch.finfo(torch.float32).min)
    out = F.scaled_dot_product_attention(queries, keys, values, lowest)
    close(out, values.mean(-2, keepdim=True).expand(1, 1, 2, 8))
    nothing = torch.full_like(lowest, -math.inf)
    ours = companion.attention(queries, keys, values, nothing)
    assert (F.scaled_dot_product_attention(queries, keys, values, nothing) == 0).all()
    assert (ours == 0).all()
    return ["mean of all values"]


@row("ones and zeros as floats are added")
def added() -> list:
    zeros = torch.zeros(1, 1, 1, 4)
    keys = torch.zeros(1, 1, 2, 4)
    values = torch.tensor([[[[0.0], [1.0]]]])  # of the key that is hidden
    mask = torch.tensor([[1.0, 0.0]])
    attend = F.scaled_dot_product_attention
    kept = attend(zeros, keys, values, mask).item()
    assert attend(zeros, keys, values, mask.bool()).item() == 0
    return [f"{kept:.2f}"]


# 02


@row("averaged over the heads")
def averaged() -> list:
    x = random(1, 3, 8)
    attend = multi_head()
    weights = attend(x, x, x)[1]
    by_head = attend(x, x, x, average_attn_weights=False)[1]
    close(by_head.mean(1), weights)
    ours = companion.attention_weights(random(1, 2, 3, 4), random(1, 2, 3, 4))
    assert by_head.shape == ours.shape
    return [f"{weights.dim()} axes", f"{by_head.dim()}"]


@row("the first axis is the position")
def batch_second() -> list:
    attend = shaken(nn.MultiheadAttention(8, 2))
    other = shaken(nn.MultiheadAttention(8, 2, batch_first=True))
    x = random(2, 5, 8)
    changed = x.clone()
    changed[1] += 1
    change = (attend(changed, changed, changed)[0] - attend(x, x, x)[0])[0]
    assert (change.abs().amax(-1) > 0.01).all()  # every token of the other text
    same = (other(changed, changed, changed)[0] - other(x, x, x)[0])[0]
    assert (same == 0).all()
    return ["sees the other"]


# 03


@row("pairs neighbours, 2i and 2i + 1")
def pairs() -> list:
    d = 8
    positions = torch.arange(5)
    sines = modeling_gptj.create_sinusoidal_positions(5, d)[None]
    sin, cos = sines.chunk(2, -1)

    def theirs(x):  # (b h t d); GPT-J keeps its heads behind the positions
        turned = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos)
        return turned.transpose(1, 2)

    first = torch.zeros(1, 1, 5, d)
    first[..., 0] = 1
    partner = theirs(first)[0, 0, 1].nonzero()[-1].item()
    ours = companion.rotate(first, positions)[0, 0, 1].nonzero()[-1].item()
    x = random(1, 2, 5, d)
    turned = companion.interleave(companion.rotate(x, positions))
    close(theirs(companion.interleave(x)), turned)
    return [f"partner is {partner}", f"{ours}"]


@row("all sines, then all cosines")
def halves() -> list:
    embedding = modeling_marian.MarianSinusoidalPositionalEmbedding(6, 8)
    theirs = embedding.create_weight()
    ours = companion.sinusoidal(6, 8)
    close(theirs, companion.deinterleave(ours))
    return [f"{(theirs - ours).abs().max():.0f}"]


@row("divides by d/2 − 1")
def spread() -> list:
    embedding = modeling_m2m_100.M2M100SinusoidalPositionalEmbedding
    theirs = embedding.get_embedding(6, 8)
    difference = (theirs - companion.deinterleave(companion.sinusoidal(6, 8))).abs()
    frequencies = 10_000 ** (-torch.arange(4) / 3)
    angles = torch.arange(6)[:, None] * frequencies
    close(theirs, torch.cat([angles.sin(), angles.cos()], -1))
    return [f"{difference.max():.2f}"]


@row("grows with the key's position")
def bloom() -> list:
    theirs = build_alibi_tensor(torch.ones(1, 5), 4, torch.float32).reshape(4, 1, 5)
    ours = companion.alibi(4, 5, 5)
    mask = companion.causal_mask(5)
    difference = (theirs - ours).masked_fill(~mask, 0)
    x = random(1, 4, 5, 8)
    weights = [
        companion.attention_weights(x, x, bias.masked_fill(~mask, -math.inf))
        for bias in (theirs, ours)
    ]
    close(*weights)
    return [f"{difference.max():.0f}"]


@row("leaves out the scale 1/√d")
def unscaled() -> list:
    config = transformers.T5Config(d_model=16, d_kv=64, num_heads=2, dropout_rate=0)
    theirs = shaken(T5Attention(config))
    x = random(1, 5, 16)
    queries, keys, values = (
        layer(x).unflatten(-1, (2, 64)).transpose(1, 2)
        for layer in (theirs.q, theirs.k, theirs.v)
    )
    factor = math.sqrt(64)
    ours = companion.attention(factor * queries, keys, values)
    close(theirs(x)[0], theirs.o(ours.transpose(1, 2).flatten(2)), 128)
    return [f"{factor:.0f} times"]


# 04


@row("the exact GELU")
def gelu() -> list:
    x = torch.linspace(-6, 6, 120_001, dtype=torch.float64)
    difference = (nn.GELU()(x) - F.gelu(x, approximate="tanh")).abs()
    where = x[difference.argmax()].abs()
    gelu_new = transformers.activations.ACT2FN["gelu_new"]
    assert_close(gelu_new(x), F.gelu(x, approximate="tanh"), **EXACT)
    return [f"{difference.max():.5f}", f"{where:.1f}"]


@row("eps is 1.2e-7")
def root_mean_square() -> list:
    x = torch.full((4,), 1e-3)
    theirs = nn.RMSNorm(4)(x)
    ours = RMSNorm(4)(x)
    close(nn.RMSNorm(4, eps=1e-5)(x), ours)
    return [f"{theirs[0]:.2f}", f"{ours[0]:.2f}", f"{torch.finfo().eps:.1e}"[:3]]


@row("divides by n − 1")
def unbiased() -> list:
    x = random(4)
    ratio = x.std() / x.std(correction=0)
    by_hand = (x - x.mean()) / x.std(correction=0)
    close(companion.LayerNorm(4, eps=0)(x), by_hand)
    return [f"{ratio:.3f}"]


@row("rounds before the gain")
def rounded_twice() -> list:
    x = random(1000, 64).bfloat16()
    gain = (1 + 0.3 * random(64, seed=1)).bfloat16()
    theirs = LlamaRMSNorm(64, eps=1e-5)
    ours = RMSNorm(64)
    theirs.weight.data = gain
    ours.gain.data = gain
    share = (theirs(x) != ours(x)).float().mean()
    same = (theirs(x) == F.rms_norm(x, (64,), eps=1e-5) * gain).float().mean()
    assert same > 0.99  # another order of the sum may turn a rounding
    return [f"{share:.0%}"]


@row("norm after the sum, ReLU, dropout")
def encoder_layer() -> list:
    as_it_is = nn.TransformerEncoderLayer(16, 2)
    assert not as_it_is.norm_first and not as_it_is.self_attn.batch_first
    assert as_it_is.activation is F.relu
    options = {"batch_first": True, "norm_first": True, "activation": "gelu"}
    theirs = nn.TransformerEncoderLayer(16, 2, 64, dropout=0, **options)
    theirs = shaken(theirs).train()
    attention = companion.MultiHeadAttention(16, 2)
    ours = Block(attention, FeedForward(16, 64), partial(LayerNorm, 16))
    with torch.no_grad():
        weights = theirs.self_attn.in_proj_weight.chunk(3)
        biases = theirs.self_attn.in_proj_bias.chunk(3)
        layers = (attention.to_queries, attention.to_keys, attention.to_values)
        for layer, weight, bias in zip(layers, weights, biases, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    attention.to_output = theirs.self_attn.out_proj
    ours.feed_forward.to_hidden = theirs.linear1
    ours.feed_forward.to_output = theirs.linear2
    norms = [
        (ours.attention_norm, theirs.norm1),
        (ours.feed_forward_norm, theirs.norm2),
    ]
    for own, other in norms:
        own.gain = other.weight
        own.bias = other.bias
    x = random(2, 5, 16)
    close(ours(x), theirs(x), 128)
    return [as_it_is.dropout.p]


@row("its layers are copies")
def copies() -> list:
    layer = nn.TransformerEncoderLayer(16, 2)
    theirs = nn.TransformerEncoder(layer, 3).layers
    assert torch.equal(theirs[0].linear1.weight, theirs[2].linear1.weight)
    config = companion.GPTConfig(d_vocab=9, d_model=16, n_heads=2)
    ours = companion.GPT(config, seeded()).blocks
    first, second = (ours[i].feed_forward.to_hidden.weight for i in (0, 1))
    return [f"{int((first == second).sum())} of 1,024"]


# 05


@row("shifts the labels itself")
def shifted() -> list:
    model = gpt2()
    tokens = random_tokens(2, 12, d_vocab=60)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    logits = model(inputs).logits
    twice = model(inputs, labels=targets).loss
    close(twice, companion.next_token_loss(logits[:, :-1], targets[:, 1:]))
    ours = companion.next_token_loss(logits, targets)
    close(model(tokens, labels=tokens).loss, ours)
    assert abs(twice - ours) > 0.01
    return ["after next"]


@row("the first step's factor is 0")
def scheduled() -> list:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, 4, 12)
    theirs = []
    for _ in range(12):
        theirs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    ours = [companion.warmup_cosine(i - 1, warmup=3, total=11) for i in range(1, 12)]
    assert theirs[1:] == pytest.approx(ours)
    first = companion.warmup_cosine(0, warmup=4, total=12)
    return [f"{theirs[0]:.0f} in place of {first}"]


@row("orthogonalises in bfloat16")
def newton_schulz() -> list:
    """Five steps in bfloat16, whose epsilon is 0.8%, and then rank one."""
    gradient = random(64, 16)
    one = random(16, 1, seed=2) @ random(1, 16, seed=3)
    moved = []
    seconds = []
    for optimizer in (torch.optim.Muon, companion.Muon):
        for gradients, kept in ((gradient, moved), (one, seconds)):
            p = nn.Parameter(torch.zeros_like(gradients))
            p.grad = gradients.clone()
            optimizer([p], lr=1.0, weight_decay=0.0).step()
            kept.append(p.detach())
    theirs, ours = moved
    assert 0.004 < (theirs - ours).norm() / ours.norm() < 0.04
    theirs, ours = (torch.linalg.svdvals(x)[1] for x in seconds)
    assert theirs > 0.05 and ours < 1e-3
    return ["2%"]


@row("means in the parameters' own bfloat16")
def means() -> list:
    squares = []
    for dtype in (torch.bfloat16, torch.float32):
        for optimizer in (torch.optim.AdamW, companion.AdamW):
            p = nn.Parameter(torch.zeros(1, dtype=dtype))
            p.grad = torch.ones_like(p)
            moving = optimizer([p], weight_decay=0)
            for _ in range(2000):
                moving.step()
            state = moving.state[p]
            square = state["square"] if "square" in state else state["exp_avg_sq"]
            squares.append(square.item())
    theirs, *others = squares
    # 2,000 roundings of 6e-8 are 1e-4 at worst.
    assert others == pytest.approx([1 - 0.999**2000] * 3, rel=1e-3)
    return [f"{theirs:.2f}", f"{others[0]:.2f}"]


# 06


@row("samples among 50 tokens")
def fifty() -> list:
    model = gpt2()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.transformer.ln_f.bias[0] = 1
        model.transformer.wte.weight[:, 0] = torch.linspace(0, 0.1, 60)
    prompts = torch.full((4000, 1), 2)
    drawn = []
    options = {"do_sample": True, "max_new_tokens": 1, "pad_token_id": 0}
    for k in ({}, {"top_k": 0}):
        torch.manual_seed(0)
        tokens = model.generate(prompts, **options, **k)[:, 1]
        drawn.append(len(tokens.unique()))
    assert model.generation_config.top_k is None
    return [f"{drawn[0]} of {drawn[1]}"]


@row("keeps all that tie with the k-th")
def tied() -> list:
    logits = torch.tensor([[2.0, 1, 1, 1, 0]])
    theirs = transformers.TopKLogitsWarper(2)(None, logits)
    ours = companion.top_k(logits, 2)
    untied = torch.tensor([[2.0, 1.2, 1.1, 1, 0]])
    same = transformers.TopKLogitsWarper(2)(None, untied)
    assert torch.equal(same, companion.top_k(untied, 2))
    return [int(theirs.isfinite().sum()), int(ours.isfinite().sum())]


@row("beams are divided by their length")
def beams() -> list:
    model = gpt2()
    prompt = torch.tensor([[3, 4, 5]])
    options = {"num_beams": 3, "max_new_tokens": 6, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_scores": True}
    options |= {"eos_token_id": None}
    divided = model.generate(prompt, **options)
    summed = model.generate(prompt, **options, length_penalty=0.0)
    log_p = model(summed.sequences).logits.log_softmax(-1)[:, 2:-1]
    total = log_p.gather(-1, summed.sequences[:, 3:, None]).sum()
    close(summed.sequences_scores[0], total)
    return [f"{(total / divided.sequences_scores[0]).item():.0f}"]


@row("gives the prompt back, too")
def whole() -> list:
    out = gpt2().generate(torch.tensor([[3, 4, 5]]), pad_token_id=0, eos_token_id=None)
    return [f"{out.shape[1]} tokens", 20]


@row("several draws at once")
def drawn() -> list:
    logits = random(65)
    one_each = logits.expand(1000, 65)
    ours = companion.sample(one_each, seeded())
    singly = torch.multinomial(one_each.softmax(-1), 1, generator=seeded())[:, 0]
    at_once = torch.multinomial(logits.softmax(-1), 1000, True, generator=seeded())
    # One at a time both take the largest of p / noise; rounding may turn a tie.
    assert (singly == ours).float().mean() > 0.99
    # Two free draws of 65 tokens agree with a chance of the sum of p², here 0.04.
    assert (at_once == ours).float().mean() < 0.1
    return ["nearly all"]


# 07


@row("begins a new text")
def jumps() -> list:
    model = llama()
    tokens = random_tokens(1, 8, d_vocab=60)
    jumping = torch.tensor([[0, 1, 2, 3, 10, 11, 12, 13]])
    packed = model(tokens, position_ids=jumping, use_cache=False).logits
    close(packed[:, 4:], model(tokens[:, 4:]).logits)
    ones = torch.ones_like(tokens)
    one = model(tokens, position_ids=jumping, attention_mask=ones, use_cache=False)
    assert (one.logits - packed)[:, 4:].abs().max() > 0.01
    close(one.logits, model(tokens, position_ids=jumping, use_cache=True).logits)
    return ["none of the first 4"]


@row("counts the padding on the left")
def padded() -> list:
    model = gpt2()
    tokens = random_tokens(1, 6, d_vocab=60)
    filled = torch.cat([torch.zeros(1, 3, dtype=torch.long), tokens], 1)
    mask = torch.tensor([[0] * 3 + [1] * 6])
    alone = model(tokens).logits
    assert (model(filled, attention_mask=mask).logits[:, 3:] - alone).abs().max() > 0.1
    late = model(tokens, position_ids=torch.arange(3, 9)[None]).logits
    close(model(filled, attention_mask=mask).logits[:, 3:], late)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    mended = model(filled, attention_mask=mask, position_ids=places)
    close(mended.logits[:, 3:], alone)
    return ["3 to 8", "0 to 5"]


# 08


@row("padding comes out as 0")
@torch.no_grad()
def nested() -> list:
    layer = nn.TransformerEncoderLayer(16, 2, batch_first=True)
    theirs = shaken(nn.TransformerEncoder(layer, 2))
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    plain.load_state_dict(theirs.state_dict())
    plain.eval()
    x = random(2, 5, 16)
    padding = torch.arange(5) >= torch.tensor([[5], [2]])
    out = theirs(x, src_key_padding_mask=padding)
    other = plain(x, src_key_padding_mask=padding)
    assert (out[1, 2:] == 0).all() and (other[1, 2:].abs() > 0.01).any()
    close(out[~padding], other[~padding], 128)
    return [f"{int((out[1] == 0).all(-1).sum())} of 5"]


# 09


@row("counts nothing for fused attention")
def counted() -> list:
    queries, keys, values = (random(1, 2, 16, 8, seed=i) for i in range(3))
    totals = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter, sdpa_kernel(backend):
            F.scaled_dot_product_attention(queries, keys, values)
        totals.append(counter.get_total_flops())
    with FlopCounterMode(display=False) as counter:
        companion.attention(queries, keys, values)
    assert totals[1] == counter.get_total_flops() == 2 * 2 * 2 * 16 * 16 * 8
    return [totals[0], f"{totals[1]:,}"]


@row("softmax and norms stay in bfloat16")
def autocast() -> list:
    x = random(4, 8)
    targets = torch.zeros(4, dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x.T @ x
        assert y.softmax(-1).dtype == F.layer_norm(y, (8,)).dtype == torch.bfloat16
        assert F.cross_entropy(y, targets).dtype == torch.float32
        assert y.float().softmax(-1).dtype == torch.float32
    return ["8 bits"]


@row("an embedding's gradient stops at 256")
def stuck() -> list:
    gradients = []
    for dtype in (torch.bfloat16, torch.float32):
        embedding = nn.Embedding(2, 4, dtype=dtype)
        embedding(torch.zeros(1000, dtype=torch.long)).sum().backward()
        gradients.append(embedding.weight.grad[0, 0].item())
    return [f"{gradients[0]:.0f} for {gradients[1]:,.0f}"]


# 11


@row("fills the last batch up")
def filled() -> list:
    def all_ranks(**options):
        ranks = []
        for rank in range(4):
            sampler = DistributedSampler(range(10), 4, rank, shuffle=False, **options)
            ranks += list(sampler)
        return ranks

    assert len(set(all_ranks())) == 10
    dropped = all_ranks(drop_last=True)
    assert len(dropped) == len(set(dropped)) == 8
    return [f"{len(all_ranks())} texts of 10"]


# 12


@row("loads the weights in the file's own precision")
def precision() -> list:
    with tempfile.TemporaryDirectory() as folder:
        llama().bfloat16().save_pretrained(folder)
        theirs = LlamaForCausalLM.from_pretrained(folder)
        exact = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert theirs.dtype == torch.bfloat16 and exact.dtype == torch.float32
    tokens = random_tokens(1, 8, d_vocab=60)
    assert (theirs(tokens).logits.float() - exact(tokens).logits).abs().max() > 1e-3
    return ["bfloat16"]


@row("ignores `tokenizer.ggml.pre`")
def pre_tokenized() -> list:
    header, _ = gguf.read_gguf(SMOLLM2.path)
    ours = PublishedTokenizer(header)
    theirs = transformers.AutoTokenizer.from_pretrained(
        SMOLLM2.path.parent, gguf_file=SMOLLM2.path.name
    )
    as_it_is = len(theirs("x  3")["input_ids"])
    backend = theirs.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    assert backend.encode("x  3").ids == ours.encode("x  3")
    return [f"{as_it_is} tokens", len(ours.encode("x  3"))]


@row("rounds what it multiplies to 8 bits")
@torch.no_grad()
def exact_products() -> list:
    """Ours; the script has llama.cpp's."""
    header, tensors = gguf.read_gguf(SMOLLM2.path)
    config = smollm2.config_of(header)
    model = build(config, smollm2.weights_of(tensors, config))
    tokenizer = PublishedTokenizer(header)
    tokens = torch.tensor([tokenizer.encode("The capital of France is")])
    log_p = model(tokens, last=-1).log_softmax(-1)[0]
    (london,) = tokenizer.encode(" London")
    return [f"−{-log_p[london]:.2f}"]


# 13


@row("the last of `hidden_states`")
def normed() -> list:
    model = gpt2()
    out = model(random_tokens(1, 8, d_vocab=60), output_hidden_states=True)
    last = out.hidden_states[-1]
    close(model.lm_head(last), out.logits)
    twice = model.lm_head(model.transformer.ln_f(last))
    assert (twice - out.logits).abs().max() > 0.1
    return ["twice"]


@row("`output_attentions=True` gives nothing")
def attentions() -> list:
    tokens = random_tokens(1, 8, d_vocab=60)
    fused = gpt2()(tokens, output_attentions=True).attentions
    eager = gpt2(attn_implementation="eager")(tokens, output_attentions=True).attentions
    return [f"{len(fused)} in place of {len(eager)}"]


# 14


class Layer(nn.Module):
    """What peft wraps: a model with one linear layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return self.layer(x)


def adapted(**options):
    config = peft.LoraConfig(target_modules=["layer"], **options)
    model = peft.get_peft_model(Layer(), config)
    return model, model.base_model.model.layer


@row("`lora_alpha` is 8")
def alpha() -> list:
    _, layer = adapted()
    model = companion.GPT(companion.GPTConfig(d_vocab=9, d_model=8, n_heads=2))
    ours = next(iter(adapters(add_adapters(model)).values()))
    _, same = adapted(r=ours.rank, lora_alpha=ours.alpha)
    assert same.scaling["default"] == ours.alpha / ours.rank
    return [f"{layer.scaling['default']:.0f}", f"{ours.alpha / ours.rank:.0f}"]


@row('`add_weighted_adapter` with "linear"')
@torch.no_grad()
def summed() -> list:
    model, layer = adapted(r=4)
    model.add_adapter("other", peft.LoraConfig(target_modules=["layer"], r=4))
    for kind in ("lora_A", "lora_B"):
        matrices = getattr(layer, kind)
        matrices["default"].weight.copy_(random(*matrices["default"].weight.shape))
        matrices["other"].weight.copy_(matrices["default"].weight)
    both = ["default", "other"]
    for kind in ("linear", "cat"):
        model.add_weighted_adapter(both, [0.5, 0.5], kind, combination_type=kind)
    delta = layer.get_delta_weight("default")
    ratio = (layer.get_delta_weight("linear") / delta).median()
    close(layer.get_delta_weight("cat"), delta)
    return [f"{ratio:.0f} times"]


@row("hides every end token")
def collated() -> list:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<end>": 2, "<pad>": 3}, "a"))
    texts = [{"input_ids": [0, 1, 2]}, {"input_ids": [0, 2]}]
    counts = []
    for pad in ("<end>", "<pad>"):
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=words, eos_token="<end>", pad_token=pad
        )
        collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
        counts.append(int((collate(texts)["labels"] == 2).sum()))
    return [f"{counts[0]} of {counts[1]}"]


# 15


@row("n − 1 answers")
def deviations() -> list:
    """Ours; the script has trl's."""
    rewards = torch.tensor([[1.0, 0, 0, 0]])
    scaled = advantages(rewards, scale=True)
    plain = advantages(rewards)
    theirs = plain / (rewards.std(1, keepdim=True) + 1e-4)
    return [f"{theirs[0, 0]:.2f}", f"{scaled[0, 0]:.2f}", f"{plain[0, 0]:.2f}"]


# 16


@row("NaN begins at row 512")
def blocks() -> list:
    x = random(1, 1, 1000, 8)
    values = x.clone()
    values[..., -1, :] = math.nan
    attend = F.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        fused = attend(x, x, values, is_causal=True).isnan().any(-1)[0, 0]
    mask = companion.causal_mask(1000)
    ours = companion.attention(x, x, values, mask).isnan().any(-1)
    assert fused.nonzero()[0] == 512
    return [f"{int(fused.sum())} of 1,000", f"{int(ours.sum()):,}"]


@row("one number more, and nearly all are others")
def redrawn() -> list:
    few = torch.randn(16, generator=seeded())
    more = torch.randn(17, generator=seeded())
    assert torch.equal(more, torch.randn(17, generator=seeded()))
    return [f"{int((few == more[:16]).sum())} of 16"]


@row("a cell that ends in `;`")
def semicolon() -> list:
    cells = []
    for count, source in enumerate(("5;", "_ = 5"), 1):
        cells.append(nbformat.v4.new_code_cell(source, execution_count=count))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "semicolon.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        options = "-p no:cacheprovider --nbval --nbval-current-env"
        command = [sys.executable, "-m", "pytest", "-rA", *options.split(), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    outcomes = re.findall(r"^(FAILED|PASSED) .*::Cell (\d)", done.stdout, re.M)
    assert sorted(outcomes) == [("FAILED", "0"), ("PASSED", "1")], done.stdout
    return ["fails"]


@pytest.mark.parametrize("words", MEASURES)
def test_a_row_is_as_it_says(words):
    (found,) = [cells for cells in ROWS if words in " | ".join(cells)]
    assert len(found) == 4, found
    for number in MEASURES[words]():
        assert str(number) in found[2], f"measured {number}, and the row: {found[2]}"


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[1].strip()[:40])
def test_every_row_is_run_here_or_by_a_script(cells):
    line = " | ".join(cells)
    scripts = re.findall(r"findings/(\w+\.sh)", line)
    assert all((ROOT / "findings" / script).is_file() for script in scripts)
    assert scripts or any(words in line for words in MEASURES)


def test_the_versions_are_those_of_the_lock_and_of_the_scripts():
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    locked = dict(re.findall(r"^([\w-]+)==([\w.]+)", lock, re.M))
    scripts = "".join(x.read_text("utf-8") for x in (ROOT / "findings").glob("*.sh"))
    pinned = dict(re.findall(r"([\w-]+)==([\w.]+)", scripts))
    said = re.findall(r"`([\w-]+)`\s(\d[\w.]*\d)", PAGE.partition("##")[0])
    assert len(said) == 11
    for name, number in said:
        if name in locked:
            assert number == locked[name] == version(name).partition("+")[0], name
        else:
            assert number == pinned[name], name
