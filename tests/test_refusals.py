"""Bad input: every public name refuses it with what was given and what is wanted."""

import os
import re
import types
from functools import partial

import pytest
import torch
from common import random, random_tokens, seeded

import companion as c

BAD_SIZES = (0, -1, 2.5, "4", True)
NO_FLOATS = ([1.0, 2.0], "text", None, torch.arange(3), torch.ones(3) > 0)
NO_INTEGERS = ([1, 2], "text", None, torch.ones(3), torch.ones(3) > 0)
NO_TEXT = (None, 5, b"bytes", ["a"], 1.5)
NOT_POSITIVE = (0, -1, "1", None, float("nan"))
NO_SHARE = (-0.1, 1.1, "half", None, float("nan"))

CONFIG = c.GPTConfig(
    d_vocab=11, context_length=8, d_model=8, n_heads=2, n_layers=2, bias=False
)
GPT = c.GPT(CONFIG, seeded())
PAIR = c.EncoderDecoder(CONFIG, seeded())
TOKENS = random_tokens(2, 5, d_vocab=11)
LONG = random_tokens(100, d_vocab=11)
BPE = c.BPETokenizer([(104, 105)])
HEADS = random(2, 3, 5, 4)


def each(function, bad) -> list:
    """A call of the function for each bad input."""
    return [partial(function, x) for x in bad]


def heads(function) -> list:
    """Calls of a function of queries, keys (and values) with what does not fit."""
    x = HEADS
    values = (x,) if function is not c.attention_weights else ()
    mixed = [lambda: function(x, x, x.double())] if values else []
    return [
        *mixed,
        lambda: function(x.long(), x, *values),
        lambda: function(x, x.tolist(), *values),
        lambda: function(x, x[..., :3], *values),
        lambda: function(x, x[:, :2], *values),
        lambda: function(x[0, 0, 0], x, *values),
        lambda: function(x.double(), x, *values),
        lambda: function(x, x, *values, torch.ones(5, 5)),
        lambda: function(x, x, *values, torch.ones(4, 5).bool()),
        lambda: function(x, x, *values, torch.ones(7, 1, 5, 5).bool()),
        lambda: function(x, x, *values, None, torch.ones(7, 5, 5)),
        lambda: function(x, x, *values, None, torch.ones(5, 5).bool()),
    ]


def speculate(prompt, n_new, guess=None) -> list:
    return list(c.speculate(GPT, prompt, n_new, guess or c.LookUp(11)))


def caches(make) -> list:
    """Appends and other calls that no cache can follow."""
    x = HEADS

    def held():
        cache = make(4)
        cache.append(x[:, :, :2], x[:, :, :2])
        return cache

    return [
        lambda: held().append(x, x[:, :, :1]),
        lambda: held().append(x[0], x[0]),
        lambda: held().append(x.long(), x.long()),
        lambda: held().append(x.tolist(), x),
        lambda: held().append(x[:1, :, :1], x[:1, :, :1]),
        lambda: held().append(x[:, :1, :1], x[:, :1, :1]),
        lambda: held().append(x[..., :1, :3], x[..., :1, :3]),
        lambda: held().append(x[:, :, :1].double(), x[:, :, :1].double()),
        lambda: held().reorder([0, 1]),
        lambda: held().reorder(torch.tensor([2])),
        lambda: held().reorder(torch.tensor([-1])),
        lambda: held().reorder(torch.ones(2)),
        lambda: held().positions(-1),
        lambda: held().positions(1.5),
    ]


def ragged(capacity) -> c.RaggedCache:
    return c.RaggedCache(capacity, 2)


def layers(layer) -> list:
    """What a layer of 8 features can't take."""
    right = random(2, 3, 8)
    return [
        *each(layer, NO_FLOATS),
        lambda: layer(right[..., :7]),
        lambda: layer(right.long()),
        lambda: layer(right.bool()),
    ]


def config(**bad) -> list:
    return [partial(c.GPTConfig, **{name: x}) for name, xs in bad.items() for x in xs]


def samplers(sampler, bad) -> list:
    logits = [partial(sampler, x, 1) for x in NO_FLOATS]
    return logits + [partial(sampler, random(2, 11), x) for x in bad]


def attend(*arguments, **options):
    return c.MultiHeadAttention(8, 2)(*arguments, **options)


def block(kind, *norms, **options):
    n = 2 if kind is c.CrossBlock else 1
    attentions = [c.MultiHeadAttention(8, 2) for _ in range(n)]
    return kind(*attentions, c.FeedForward(8), norms, **options)


NORM = c.LayerNorm(8)
BLOCK = block(c.Block, NORM, NORM)
CROSS = block(c.CrossBlock, NORM, NORM, NORM)
X = random(2, 3, 8)


def optimizers(kind, **more) -> list:
    weights = [torch.nn.Parameter(torch.ones(3, 3))]
    bad = {
        "lr": (-1, "fast", None, float("nan")),
        "eps": (-1, "small"),
        "weight_decay": (-0.1, None),
        "betas": ((1.0, 0.9), (0.9,), 0.9, (0.9, -0.1), ("a", 0.5)),
    }
    calls = [
        partial(kind, weights, **{k: x}) for k, xs in (bad | more).items() for x in xs
    ]
    return [*calls, partial(kind, [{"params": weights, "rate": 1}]), partial(kind, [])]


def run(**bad):
    recipe = {"config": CONFIG, "batch_size": 2, "n_steps": 2, "warmup": 0}
    return c.Recipe(**recipe | bad)


RECIPE = run()
MODEL = c.GPT(CONFIG, seeded())
ADAM = c.AdamW(MODEL.parameters())
WHOLE = ("x", MODEL, ADAM, seeded())


def without(i: int, bad) -> tuple:
    return (*WHOLE[:i], bad, *WHOLE[i + 1 :])


BAD = {
    # data and tokens
    "split": each(c.split, NO_INTEGERS)
    + [partial(c.split, LONG, x) for x in NO_SHARE]
    + [lambda: c.split(LONG, 0), lambda: c.split(LONG[:1]), lambda: c.split(TOKENS)],
    "pack": [
        partial(c.pack, x, 0) for x in ([5], ["ab"], [[1.5]], [[-1]], [["a"]], [[None]])
    ]
    + [partial(c.pack, [[1]], x) for x in (-1, 1.5, "0", None)],
    "batches": [
        *(lambda o=o: c.batches(LONG, **{"batch_size": 2, "context_length": 4} | o)
          for o in ({"n_steps": -1}, {"n_steps": 1.5}, {"n_steps": 1, "batch_size": 0},
                    {"n_steps": 1, "context_length": 100},
                    {"n_steps": 1, "context_length": 0})),
        *(partial(c.batches, x, batch_size=2, context_length=1, n_steps=1)
          for x in (*NO_INTEGERS, TOKENS)),
    ],
    "CharTokenizer": [*each(c.CharTokenizer, (*NO_TEXT, ""))]
    + each(c.CharTokenizer("ab").encode, (*NO_TEXT, "abc"))
    + each(
        c.CharTokenizer("ab").decode, ([2], [-1], [0.5], 5, None, torch.ones(2), "ab")
    ),
    "BPETokenizer": each(
        c.BPETokenizer, ([(300, 1)], [(-1, 5)], [(1, 2, 3)], [5], ["ab"], [(1.5, 2)])
    )
    + each(BPE.encode, (*NO_TEXT, "\ud800"))
    + each(BPE.decode, ([257], [-1], [0.5], 5, None, torch.ones(2), "ab")),
    "train_bpe": [partial(c.train_bpe, x, 256) for x in NO_TEXT]
    + [partial(c.train_bpe, "text", x) for x in (255, 0, -1, 300.5, "300", None)],
    "dates": [partial(c.dates, x, seeded()) for x in (-1, 2.5, "3", None, True)]
    + [partial(c.dates, 2, seeded(), slips=x) for x in NO_SHARE],
    "date_batches": [partial(c.date_batches, x, 1, seeded()) for x in BAD_SIZES]
    + [partial(c.date_batches, 1, x, seeded()) for x in (-1, 2.5, "4", None)],
    # attention
    "softmax": each(c.softmax, NO_FLOATS)
    + [partial(c.softmax, random(2, 3), dim=x) for x in (2, -3, 0.5, "last", None)],
    "causal_mask": each(c.causal_mask, (-1, 2.5, "4", None, True))
    + [partial(c.causal_mask, 3, x) for x in (2, -1, 3.5, "4")],
    "padding_mask": [partial(c.padding_mask, x, 4) for x in (*NO_INTEGERS, TOKENS)]
    + [partial(c.padding_mask, torch.tensor(x), 4) for x in ([-1], [5])]
    + [partial(c.padding_mask, torch.tensor([1]), x) for x in (-1, 2.5, None)],
    "attention_weights": heads(c.attention_weights),
    "attention": heads(c.attention)
    + [lambda: c.attention(HEADS, HEADS, HEADS[:, :, :2])],
    "fused_attention": heads(c.fused_attention)
    + [lambda: c.fused_attention(HEADS, HEADS, HEADS[:, :, [0] * 50])],
    "MultiHeadAttention": [partial(c.MultiHeadAttention, x, 2) for x in (*BAD_SIZES, 9)]
    + [partial(c.MultiHeadAttention, 8, x) for x in (*BAD_SIZES, 3)]
    + [partial(c.MultiHeadAttention, 8, 2, n_kv_heads=x) for x in (0, 3, -1, "2")]
    + [partial(c.MultiHeadAttention, 8, 2, engine=x) for x in ("flash", None, 1)]
    + layers(attend)
    + each(partial(attend, X), (X[..., :7], X.long(), X[:1].repeat(3, 1, 1), "text"))
    + [lambda: attend(X, X, turn=c.rotary(torch.arange(3), 4))]
    + [lambda: attend(X, X, cache=c.ConcatenatingCache())]
    + [partial(attend, X, mask=x) for x in (X, torch.ones(2, 2).bool(), "causal")],
    # positions
    "sinusoidal": [partial(c.sinusoidal, 4, x) for x in (*BAD_SIZES, 3)]
    + [partial(c.sinusoidal, x, 4) for x in (-1, 2.5, "4", None)],
    "rotary": [partial(c.rotary, torch.arange(3), x) for x in (*BAD_SIZES, 3)]
    + [partial(c.rotary, torch.arange(3), 4, x) for x in NOT_POSITIVE]
    + [partial(c.rotary, x, 4) for x in ([1, 2], None, 3, torch.zeros(1, 1, 1))]
    + each(c.rotary(torch.arange(3), 4), (HEADS, HEADS[:, :, :3, :3]))
    + each(c.rotary(torch.ones(4, 5), 4), (HEADS, HEADS[..., :3])),
    "rotate": [partial(c.rotate, x, torch.arange(5)) for x in NO_FLOATS]
    + [lambda: c.rotate(HEADS[..., :3], torch.arange(5))]
    + [partial(c.rotate, HEADS, torch.arange(x)) for x in (4, 6)]
    + [partial(c.rotate, HEADS, torch.arange(5), x) for x in NOT_POSITIVE],
    "alibi": [partial(c.alibi, x, 2, 2) for x in BAD_SIZES]
    + [partial(c.alibi, 2, x, 2) for x in (-1, 1.5, "2", None)],
    "alibi_slopes": each(c.alibi_slopes, BAD_SIZES),
    "relative_buckets": [*each(c.relative_buckets, NO_INTEGERS)]
    + [partial(c.relative_buckets, torch.arange(3), x) for x in (1, 0, -2, 2.5, "32")]
    + [partial(c.relative_buckets, torch.arange(3), 32, x) for x in (16, 0, 1.5, None)]
    + [partial(c.relative_buckets, torch.arange(3), 2, causal=False)],
    "interleave": each(
        c.interleave, (random(2, 3), torch.tensor(1.0), [1, 2], "ab", None)
    ),
    "deinterleave": each(
        c.deinterleave, (random(2, 3), torch.tensor(1.0), [1, 2], "ab", None)
    ),
    "Positions": [
        partial(c.GPT(CONFIG), x) for x in (*NO_INTEGERS, TOKENS[0], TOKENS[None])
    ],
    "LearnedPositions": [partial(c.LearnedPositions, x, 4) for x in BAD_SIZES]
    + [partial(c.LearnedPositions, 4, x) for x in BAD_SIZES],
    "SinusoidalPositions": [
        partial(c.SinusoidalPositions().embed, random(1, 3, d), c.Place(TOKENS))
        for d in (1, 3, 5, 7, 9)
    ],
    "RotaryPositions": [partial(c.RotaryPositions, x) for x in (*BAD_SIZES, 3)]
    + [partial(c.RotaryPositions, 4, x) for x in NOT_POSITIVE],
    "ALiBi": each(c.ALiBi, BAD_SIZES),
    "RelativeBias": each(c.RelativeBias, BAD_SIZES)
    + [partial(c.RelativeBias, 2, x) for x in (1, 0, 2.5, "32")]
    + [partial(c.RelativeBias, 2, 32, x) for x in (16, 0, "128")],
    "Place": each(c.Place, (*NO_INTEGERS, torch.tensor(1))),
    # caches
    "Cache": [lambda x=x: c.Cache().positions(x) for x in (-1, 1.5, "2", None, True)],
    "ConcatenatingCache": caches(lambda capacity: c.ConcatenatingCache()),
    "PreallocatedCache": caches(c.PreallocatedCache)
    + each(c.PreallocatedCache, BAD_SIZES)
    + [lambda: c.PreallocatedCache(4).append(HEADS, HEADS)],
    "RaggedCache": caches(ragged)
    + [partial(c.RaggedCache, 4, x) for x in BAD_SIZES]
    + [lambda x=x: ragged(4).truncate(x)
       for x in ([0, 0], torch.tensor([1, 0]), torch.tensor([-1, 0]), torch.zeros(2),
                 torch.tensor([0]), torch.tensor([[0, 0]]))],
    "SlidingWindowCache": caches(c.SlidingWindowCache)
    + each(c.SlidingWindowCache, BAD_SIZES)
    + [partial(c.SlidingWindowCache, 4, x) for x in (-1, 1.5, "2", None)],
    "Int8Cache": caches(c.Int8Cache) + each(c.Int8Cache, BAD_SIZES),
    "quantize": each(c.quantize, (*NO_FLOATS, torch.tensor(1.0))),
    # blocks
    "LayerNorm": each(c.LayerNorm, BAD_SIZES)
    + [partial(c.LayerNorm, 8, eps=x) for x in (-1, "small", None)]
    + layers(NORM),
    "RMSNorm": each(c.RMSNorm, BAD_SIZES)
    + [partial(c.RMSNorm, 8, x) for x in (-1, "small", None)]
    + layers(c.RMSNorm(8)),
    "gelu": each(c.gelu, NO_FLOATS),
    "gelu_tanh": each(c.gelu_tanh, NO_FLOATS),
    "gelu_sigmoid": each(c.gelu_sigmoid, NO_FLOATS),
    "squared_relu": each(c.squared_relu, NO_FLOATS),
    "FeedForward": each(c.FeedForward, BAD_SIZES)
    + [partial(c.FeedForward, 8, x) for x in BAD_SIZES]
    + [partial(c.FeedForward, 8, activation=x) for x in ("swish", None, torch.relu)]
    + layers(c.FeedForward(8)),
    "GatedFeedForward": each(c.GatedFeedForward, BAD_SIZES)
    + [partial(c.GatedFeedForward, 8, x) for x in BAD_SIZES]
    + [partial(c.GatedFeedForward, 8, activation=x) for x in ("swish", None)]
    + layers(c.GatedFeedForward(8)),
    "Block": layers(BLOCK)
    + [lambda: block(c.Block, NORM), lambda: block(c.Block, NORM, NORM, NORM)]
    + [partial(block, c.Block, NORM, NORM, dropout=x) for x in NO_SHARE],
    "CrossBlock": layers(lambda x: CROSS(x, X))
    + layers(lambda x: CROSS(X, x))
    + [lambda: block(c.CrossBlock, NORM, NORM)]
    + [lambda: CROSS(X, X[:1].repeat(3, 1, 1))],
    # models
    "GPTConfig": config(
        d_vocab=BAD_SIZES,
        n_layers=BAD_SIZES,
        n_kv_heads=BAD_SIZES,
        positions=("rope", None, 1),
        norm=("batch", None),
        activation=("swish",),
        engine=("flash",),
        tied=("yes", 1, None),
        dropout=NO_SHARE,
        rotary_base=NOT_POSITIVE,
    ),
    "Stack": each(c.Stack, ({}, None, "small", 8, CONFIG.__dict__))
    + each(c.Stack(CONFIG), (*NO_INTEGERS, TOKENS + 11, TOKENS - 11))
    + [lambda: c.Stack(CONFIG)(TOKENS, mask=torch.ones(5, 5))],
    "GPT": each(c.GPT, ({}, None, "small", 8, c.GPTConfig))
    + each(GPT, (*NO_INTEGERS, TOKENS + 11, TOKENS[0], TOKENS.repeat(1, 2)))
    + [partial(GPT, TOKENS, x)
       for x in ([], GPT.new_caches()[:1], GPT.new_caches() * 2, "caches",
                 GPT.new_caches(2))]
    + each(GPT.new_caches, BAD_SIZES),
    "EncoderDecoder": each(c.EncoderDecoder, ({}, "small", 8))
    + [partial(c.EncoderDecoder, CONFIG, d_source=x) for x in BAD_SIZES]
    + [partial(c.EncoderDecoder, CONFIG, d_source=5, shared=True)]
    + [partial(PAIR, x, TOKENS) for x in (*NO_INTEGERS, TOKENS[0], TOKENS[:1])]
    + [partial(PAIR, TOKENS, x) for x in (*NO_INTEGERS, TOKENS[0], TOKENS[:1])]
    + [partial(PAIR, TOKENS, TOKENS, x)
       for x in ([5, 5], torch.ones(2), torch.tensor([0, 5]), torch.tensor([5]),
                 torch.tensor([5, 6]), torch.tensor([[5, 5]]))]
    + [partial(PAIR.given, x) for x in (TOKENS[:, :0], TOKENS.repeat(1, 2), None)],
    # optimizers and training
    "warmup_cosine": [partial(c.warmup_cosine, x, warmup=1, total=9)
                      for x in (-1, 1.5, "2", None, True)]
    + [partial(c.warmup_cosine, 1, warmup=1, total=9, floor=x) for x in NO_SHARE],
    "warmup_linear": [partial(c.warmup_linear, 1, warmup=x, total=9)
                      for x in (-1, 1.5, "2", None, True)]
    + [partial(c.warmup_linear, 1, warmup=1, total=x) for x in (-1, 1.5, None)],
    "noam": [partial(c.noam, x, d_model=8) for x in BAD_SIZES]
    + [partial(c.noam, 1, d_model=x) for x in BAD_SIZES]
    + [partial(c.noam, 1, d_model=8, warmup=x) for x in BAD_SIZES],
    "AdamW": optimizers(c.AdamW),
    "Muon": optimizers(c.Muon, momentum=(1.0, -0.1, "0.9"))
    + [lambda: c.Muon([torch.nn.Parameter(torch.ones(3))])],
    "muon": each(c.muon, (torch.nn.Linear(2, 2), None, [torch.ones(2)], {}, "model"))
    + [partial(c.muon, MODEL, lr=x) for x in (-1, None)],
    "orthogonalize": each(c.orthogonalize, NO_FLOATS)
    + [partial(c.orthogonalize, random(3, 3), x) for x in (-1, 1.5, None)],
    "clip_gradients": [partial(c.clip_gradients, MODEL.parameters(), x)
                       for x in NOT_POSITIVE] + [lambda: c.clip_gradients(X, 1.0)],
    "next_token_loss": [partial(c.next_token_loss, x, TOKENS) for x in (*NO_FLOATS, X)]
    + [partial(c.next_token_loss, random(2, 5, 11), x)
       for x in (*NO_INTEGERS, TOKENS.float(), TOKENS + 11, TOKENS[:, :4])]
    + [partial(c.next_token_loss, random(2, 5, 11), TOKENS, x) for x in NO_SHARE],
    "bits_per_character": [partial(c.bits_per_character, 1.0, x, 5) for x in BAD_SIZES]
    + [partial(c.bits_per_character, 1.0, 5, x) for x in BAD_SIZES]
    + [partial(c.bits_per_character, x, 5, 5) for x in (-1, None, "1", float("nan"))],
    "train": [partial(c.train, MODEL, ADAM, [], clip=x) for x in NOT_POSITIVE]
    + [partial(c.train, MODEL, ADAM, [(TOKENS, x)])
       for x in (TOKENS[:1], TOKENS + 11, TOKENS.float(), TOKENS * 0 - 100)]
    + [partial(c.train, MODEL, ADAM, [(TOKENS.float(), TOKENS)])]
    + [partial(c.train, MODEL, ADAM, [], first=x) for x in (-1, 0.5, None)],
    "evaluate": [partial(c.evaluate, MODEL, x)
                 for x in (*NO_INTEGERS, TOKENS, LONG[:1], LONG[:0], LONG + 11)]
    + [partial(c.evaluate, MODEL, LONG, x) for x in BAD_SIZES],
    # checkpoints and runs
    "save_checkpoint": [partial(c.save_checkpoint, *without(i, None)) for i in range(4)]
    + [partial(c.save_checkpoint, *WHOLE, fact=x) for x in (X, len, {1, 2})],
    "load_checkpoint": [partial(c.load_checkpoint, *without(i, None)) for i in range(4)]
    + [partial(c.load_checkpoint, *WHOLE, recipe=3), partial(c.load_checkpoint, *WHOLE)]
    + [partial(c.load_checkpoint, *without(0, os.devnull))],
    "Recipe": [partial(run, batch_size=x) for x in BAD_SIZES]
    + [partial(run, n_steps=x) for x in BAD_SIZES]
    + [partial(run, warmup=x) for x in (-1, 1.5)]
    + [partial(run, floor=x) for x in NO_SHARE]
    + [partial(run, config=x) for x in (None, {}, "small")],
    "run": each(c.run, ("fast", None, {}, CONFIG))
    + [partial(c.run, RECIPE, every=x) for x in BAD_SIZES]
    + [partial(c.run, RECIPE, seed=x) for x in (-1, 1.5, "0")]
    + [partial(c.run, RECIPE, device=x) for x in ("gpu", "tpu", 0)],
    # sampling
    "greedy": each(c.greedy, NO_FLOATS),
    "temperature": samplers(c.temperature, NOT_POSITIVE),
    "top_k": samplers(c.top_k, (*BAD_SIZES, 12)),
    "top_p": samplers(c.top_p, (*NO_SHARE, 0)),
    "min_p": samplers(c.min_p, (*NO_SHARE, 0)),
    "sample": each(c.sample, NO_FLOATS),
    "generate": [partial(c.generate, GPT, x, 2)
                 for x in (*NO_INTEGERS, [], [TOKENS], TOKENS[:, :0], TOKENS[None],
                           torch.tensor(1), [TOKENS[0], [1]])]
    + [partial(c.generate, GPT, TOKENS, x) for x in (-1, 1.5, "2", None, True)]
    + [partial(c.generate, GPT, TOKENS, 1, end=x) for x in (-1, 1.5, "end")]
    + [lambda o=o: next(iter(c.generate(GPT, TOKENS, 1, **o)))
       for o in ({"choose": lambda z: z}, {"choose": lambda z: z.argmax()},
                 {"caches": []}, {"caches": GPT.new_caches()[:1]})],
    "beam_search": [partial(c.beam_search, GPT, x, 2, 2)
                    for x in (*NO_INTEGERS, TOKENS, TOKENS[0, :0])]
    + [partial(c.beam_search, GPT, TOKENS[0], x, 2) for x in (*BAD_SIZES, 12)]
    + [partial(c.beam_search, GPT, TOKENS[0], 2, x) for x in (-1, 1.5, "2", None, 9)]
    + [partial(c.beam_search, GPT, TOKENS[0], 2, 2, length_penalty=x) for x in NO_SHARE]
    + [partial(c.beam_search, GPT, TOKENS[0], 2, 2, end=x) for x in (-1, 1.5, "end")],
    "block_attention": heads(c.block_attention)
    + [partial(c.block_attention, HEADS, HEADS, HEADS, size=x) for x in BAD_SIZES],
    "LookUp": each(c.LookUp, BAD_SIZES)
    + [partial(c.LookUp, 11, **{name: x})
       for name in ("n_guesses", "n_same") for x in BAD_SIZES],
    "Smaller": [partial(c.Smaller, GPT, x) for x in BAD_SIZES],
    "speculate": [partial(speculate, x, 2) for x in (*NO_INTEGERS, TOKENS, LONG)]
    + [partial(speculate, TOKENS[0], x) for x in (-1, 1.5, "2", None, 9)]
    + [partial(speculate, TOKENS[0], 2, lambda text, x=x: x)
       for x in (([1], [1]), (TOKENS[0], TOKENS[0]), (TOKENS[0, :1], torch.ones(2, 11)),
                 (TOKENS[0, :1], torch.ones(1, 5)))],
    "Server": [partial(c.Server, GPT, x) for x in BAD_SIZES]
    + [partial(c.Server, GPT, 2, x) for x in BAD_SIZES],
}  # fmt: skip

# These take nothing, or are no functions; the first two read files (test_artifacts.py),
# and what is wrong with a Request is said when it is served (test_serving.py).
OTHERS = {
    "tiny_shakespeare",
    "gpt2_tokenizer",
    "CACHE",
    "RECIPES",
    "TRANSFORMER_BASE",
    "Request",
}


def test_every_public_name_is_tried_with_five_bad_inputs_or_more():
    names = {n for n, x in vars(c).items() if not n.startswith("_")}
    modules = {n for n in names if isinstance(getattr(c, n), types.ModuleType)}
    assert names - modules - OTHERS == set(BAD)
    assert not {name for name, calls in BAD.items() if len(calls) < 5}


CASES = [(name, call) for name, calls in BAD.items() for call in calls]


@pytest.mark.parametrize(
    "name, call", CASES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(CASES)]
)
def test_bad_input_is_refused_with_what_was_given_and_what_is_wanted(
    name, call, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:
        call()
    words = str(caught.value)
    assert "\n" not in words and 20 <= len(words) < 400, words
    assert re.search(r"\d|None|empty|'|must|use |not |; ", words), words
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole + b"\n",
        lambda whole: whole[:1000] + b"\0" + whole[1001:],
        lambda whole: whole[::-1],
    ],
)
@pytest.mark.parametrize("name", ["SHAKESPEARE", "GPT2_MERGES", "GPT2_VOCABULARY"])
def test_what_reads_a_file_refuses_a_damaged_one(name, spoil, tmp_path, monkeypatch):
    artifact = getattr(c.artifacts, name)
    path = tmp_path / "file"
    path.write_bytes(spoil(artifact.path.read_bytes()))
    spoiled = type(artifact)(**vars(artifact) | {"path": path})
    for module in (c.artifacts, c.data, c.tokenizers):
        monkeypatch.setattr(module, name, spoiled, raising=False)
    with pytest.raises(ValueError, match="truncated or altered.*make lab"):
        c.tiny_shakespeare() if name == "SHAKESPEARE" else c.gpt2_tokenizer()


def test_what_is_prepared_once_is_checked_too():
    """`keys_and_values` and `read` are called without `forward`."""
    config = c.GPTConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1)
    prepared = (
        c.MultiHeadAttention(8, 2).keys_and_values,
        c.GPT(config, cross=True).read,
    )
    for prepare in prepared:
        with pytest.raises(ValueError, match=r"it must be floats \(\.\.\. 8\)"):
            prepare(torch.zeros(1, 3, 7))
