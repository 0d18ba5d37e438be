"""Bad input: what a public function refuses, and the words that say why.

Here stand inputs that would else give a wrong result in silence, or a riddle. Where
Python's or PyTorch's own error is clear, nothing is checked.
"""

import math
from dataclasses import replace

import pytest
import torch
from common import random, random_tokens, seeded

import companion as c
from companion.decoding.sampling import prefill
from companion.decoding.speculation import accept
from companion.training.reward import answer_logits, chosen, kl_divergence, reward_loss

CONFIG = c.GPTConfig(d_vocab=11, context_length=8, d_model=8, n_heads=2, n_layers=2)
GPT = c.GPT(CONFIG, seeded())
DEEPER = c.GPT(replace(CONFIG, n_layers=3))
PAIR = c.EncoderDecoder(CONFIG, seeded())
TOKENS = random_tokens(2, 5, d_vocab=11)
LONG = random_tokens(100, d_vocab=11)
HEADS = random(2, 3, 5, 4)
LOGITS = random(2, 11)
LAYER = c.MultiHeadAttention(4, 2)
INTEGERS = torch.arange(3)
ONE = TOKENS[0]
WEIGHTS = [torch.nn.Parameter(torch.ones(3, 3))]
NO_TARGETS = torch.full_like(TOKENS, -100)
WHOLE = "a whole number"
ABOVE = "it must be above 0"
ROW = "row 2 is not within 2 streams"
BEFORE = "rows [-1] are not within"
FLAT = "it must be integers (t)"
FLOATS = "must be floats (... t d)"
NEEDS = "needs 101 tokens or more, there are 100"


def row_of(x: float) -> torch.Tensor:
    """Logits whose second row can't be drawn from."""
    return torch.tensor([[1.0, 0, 0], [x, -math.inf, -math.inf]])


def context() -> list:
    """What the decoder of PAIR reads."""
    return PAIR.decoder.project_context(*PAIR.encode(TOKENS))


def cached(cache, n_streams: int = 2):
    """The cache after a pass of three tokens."""
    with torch.no_grad():
        GPT(TOKENS[:n_streams, :3], cache)
    return cache


def heads(function) -> list:
    """What attention of queries, keys and values can't take."""
    x = HEADS
    mask = torch.ones(4, 5) > 0
    return [
        (lambda: function(x.long(), x, x), "queries is torch.int64"),
        (lambda: function(x, x[..., :3], x), "4 features and keys 3"),
        (lambda: function(x, x, x[:, :, :2]), "5 keys have 2 values"),
        (lambda: function(x.double(), x, x), "queries are torch.float64 and keys"),
        (lambda: function(x, x, x, mask), "mask (4, 5) does not fit 5 queries"),
        (lambda: function(x, x, x, mask.long()), "must be bool, True = may attend"),
        (lambda: function(x, x, x, torch.ones(2, 5, 5) > 0), "has three axes"),
    ]


def decoding(function) -> list:
    """What every way to go on from a prompt (t) refuses."""
    return [
        (lambda: function(ONE.float(), 2), "it must be integers"),
        (lambda: function(ONE[:0], 2), "must hold 1 token"),
        (lambda: function(ONE, -1), "n_new is -1; it must be 0 or more"),
        (lambda: function(ONE, 4), "exceed the context_length (8)"),
    ]


def refusing(function, *pairs) -> list:
    """(input, words) pairs as calls."""
    return [(lambda x=x: function(x), words) for x, words in pairs]


BAD = {
    # data and tokens
    "split": [
        (lambda: c.split(LONG, 1.5), "at most 1"),
        (lambda: c.split(LONG[:1]), "leaves one part empty"),
        (lambda: c.split(LONG.float()), "it must be integers (t)"),
    ],
    "batches": [
        (lambda: c.batches(LONG, batch_size=2, context_length=100, n_steps=1), NEEDS),
        (lambda: c.batches(LONG, batch_size=0, context_length=4, n_steps=1), WHOLE),
        (lambda: c.batches(TOKENS, batch_size=1, context_length=1, n_steps=1), FLAT),
    ],
    "CharTokenizer": [
        (lambda: c.CharTokenizer(""), "one character or more"),
        (lambda: c.CharTokenizer("ab").encode("abc"), "'c'"),
        (lambda: c.CharTokenizer("ab").decode([-1]), "-1 is outside 0 to 1"),
    ],
    "BPETokenizer": [
        (lambda: c.BPETokenizer([(300, 1)]), "merge 0 is (300, 1)"),
        (lambda: c.BPETokenizer([(1, 2), (1, 2)]), "merge 1 is (1, 2); its bytes"),
        (lambda: c.BPETokenizer([(1, 2)]).decode([257]), "257 is outside 0 to 256"),
    ],
    "train_bpe": [(lambda: c.train_bpe("text", 255), "256 or more")],
    "dates": [
        (lambda: c.dates(-1, seeded()), WHOLE),
        (lambda: c.dates(2, seeded(), slips=1.1), "at most 1"),
    ],
    "date_batches": [(lambda: c.date_batches(0, 1, seeded()), WHOLE)],
    # attention and positions
    "softmax": [(lambda: c.softmax(INTEGERS), "it must be floats")],
    "causal_mask": [
        (lambda: c.causal_mask(-1), WHOLE),
        (lambda: c.causal_mask(3, 2), "3 queries need as many keys, there are 2"),
    ],
    "padding_mask": [
        (lambda: c.padding_mask(torch.tensor([5]), 4), "do not lie within 0 to 4"),
        (lambda: c.padding_mask(torch.ones(2), 4), "it must be integers (b)"),
    ],
    "attention": heads(c.attention),
    "attention_weights": [
        pair for pair in heads(lambda q, k, v, *mask: c.attention_weights(q, k, *mask))
        if "values" not in pair[1]
    ],
    "flash_attention": [
        *heads(c.flash_attention),
        (lambda: c.flash_attention(HEADS, HEADS, HEADS, size=0), WHOLE),
    ],
    "MultiHeadAttention": [
        (lambda: c.MultiHeadAttention(10, 4), "(10) is not divisible by n_heads (4)"),
        (lambda: c.MultiHeadAttention(8, 0), WHOLE),
        (lambda: c.MultiHeadAttention(8, 4, n_kv_heads=3), "(4) is not divisible"),
        (lambda: c.MultiHeadAttention(8, 2, engine="blocks"), "engine is 'blocks'"),
    ],
    "MultiHeadAttention.forward": refusing(
        lambda mask: LAYER(HEADS[:, 0], mask=mask),
        ("causal", "'causal'; it must be bool, True = may attend"),
        (torch.ones(5, 5).int(), "must be bool, True = may attend"),
        (torch.ones(2, 5, 5) > 0, "mask (2, 5, 5) has three axes"),
    ),
    "MultiHeadAttention.forward's context": refusing(
        lambda context: LAYER(HEADS[:, 0], context),
        ((HEADS[:, 0], None), "of shape (2, 5, 4), None; it must be keys and values"),
        ((HEADS[:, 0], torch.ones(2, 1, 1, 5) > 0), "a mask goes beside it"),
        ((HEADS[:, 0, :, :3],) * 2, "keys and values (b s 4) that were made before"),
    ),
    "alibi": [
        (lambda: c.alibi(2, 5, 4), "5 queries need as many keys, there are 4"),
        (lambda: c.alibi(2, -1, 4), WHOLE),
        (lambda: c.alibi(0, 4, 4), WHOLE),
    ],
    "sinusoidal": [
        (lambda: c.sinusoidal(4, 3), "3 features"),
        (lambda: c.sinusoidal(2.5, 4), "n_positions is 2.5"),
    ],
    "rotary": [
        (lambda: c.rotary(INTEGERS, 3), "3 features"),
        *refusing(
            lambda base: c.rotary(INTEGERS, 4, base),
            (0, "base is 0; it must be 1 or more, and finite"),
            (0.5, "base is 0.5; it must be 1 or more"),
            (math.inf, "base is inf; it must be 1 or more, and finite"),
        ),
    ],
    "rotate": [
        (lambda: c.rotate(HEADS[..., :3], torch.arange(5)), "3 features"),
        (lambda: c.rotate(HEADS.long(), torch.arange(5)), FLOATS),
        (lambda: c.apply_rotary(INTEGERS[None], c.rotary(INTEGERS, 4)), FLOATS),
        *refusing(
            lambda x: c.rotate(HEADS, x),
            (torch.tensor([1]), "positions (1,) don't fit x"),
            (torch.arange(4), "positions (4,) don't fit x"),
            (torch.zeros(3, 5), "positions (3, 5) don't fit x"),
            (torch.zeros(2, 3, 5), "positions (2, 3, 5) don't fit x"),
            (torch.tensor(1), "positions () don't fit x"),
        ),
        (lambda: c.rotate(HEADS[0], torch.zeros(3, 5)), "for x (b h t d), with t = 5"),
    ],
    "relative_buckets": [
        (lambda: c.relative_buckets(INTEGERS + 0.5), "distances is torch.float32"),
        (lambda: c.relative_buckets(INTEGERS, 1), "2 or more"),
        (lambda: c.relative_buckets(INTEGERS, 32, 16), "17 or more"),
        (lambda: c.relative_buckets(INTEGERS, 2, causal=False), "4 or more"),
    ],
    # caches
    "Cache.reorder": [
        (lambda: cached(c.PreallocatedCache(4)).reorder(torch.tensor([-1])), BEFORE),
        (lambda: cached(c.ConcatenatingCache()).reorder(torch.tensor([2])), "rows [2]"),
        (lambda: cached(c.PreallocatedCache(4)).reorder(torch.ones(2)), "integers (b)"),
        *[
            (lambda empty=empty: empty.reorder(torch.tensor([7, -3])), "the 0 streams")
            for empty in (c.ConcatenatingCache(), c.Int8Cache(4), c.SinkCache(4, 1))
        ],
        (lambda: c.RaggedCache(4, 2).reorder(torch.tensor([-1, 0])), "the 2 streams"),
    ],
    "PreallocatedCache": [
        (lambda: c.PreallocatedCache(0), WHOLE),
        (lambda: cached(c.PreallocatedCache(2)), "capacity (2)"),
        (lambda: cached(cached(c.PreallocatedCache(8)), 1), "2 streams"),
        (lambda: DEEPER(ONE[None], cached(c.PreallocatedCache(8), 1)), "model has 3"),
    ],
    "SlidingWindowCache": [
        (lambda: c.SlidingWindowCache(0), WHOLE),
        (lambda: cached(cached(c.SlidingWindowCache(4)), 1), "2 streams"),
    ],
    "Int8Cache": [(lambda: cached(c.Int8Cache(2)), "capacity (2)")],
    "SinkCache": [
        (lambda: c.SinkCache(0, 1), WHOLE),
        (lambda: c.SinkCache(4, 0), WHOLE),
        (lambda: cached(cached(c.SinkCache(4, 1)), 1), "2 streams"),
    ],
    "RaggedCache": [
        (lambda: c.RaggedCache(4, 0), WHOLE),
        (lambda: cached(c.RaggedCache(8, 2), 1), "2 streams"),
        *refusing(
            lambda x: cached(c.RaggedCache(8, 2)).truncate(x),
            (torch.tensor([4, 3]), "lengths [4, 3]"),
            (torch.tensor([-1, 0]), "lengths [-1, 0]"),
            (torch.tensor([0]), "2 streams"),
            (torch.zeros(2), "integers (b)"),
        ),
        *refusing(
            lambda cache: c.RaggedCache(4, 2).put(1, cache),
            (c.PreallocatedCache(4), "the cache holds 0 positions"),
            (cached(c.PreallocatedCache(4)), "3 positions of 2 streams"),
        ),
        (lambda: c.RaggedCache(8, 2).put(1, cached(c.Int8Cache(4), 1)), "not Int8"),
        (lambda: c.RaggedCache(8, 2).put(2, cached(c.PreallocatedCache(8), 1)), ROW),
    ],
    "quantize": [(lambda: c.quantize(INTEGERS), "it must be floats")],
    # blocks and models
    "FeedForward": [
        (lambda: c.FeedForward(8, 0), WHOLE),
        (lambda: c.GatedFeedForward(8, activation="swish"), "activation is 'swish'"),
    ],
    "Block": [(lambda: PAIR.decoder.blocks[0](random(2, 3, 8)), "none was given")],
    "GPTConfig": [
        (lambda: c.GPTConfig(n_layers=0), WHOLE),
        (lambda: c.GPTConfig(n_kv_heads=True), WHOLE),
        (lambda: c.GPTConfig(positions="rope"), "not in ['learned'"),
        (lambda: c.GPTConfig(dropout=-0.1), "at most 1"),
        *refusing(
            lambda base: c.GPTConfig(rotary_base=base),
            (0, "rotary_base is 0; it must be 1 or more, and finite"),
            (-5, "rotary_base is -5"),
            (0.5, "rotary_base is 0.5"),
            (math.inf, "rotary_base is inf"),
        ),
        *[
            (lambda name=name, x=x: c.GPTConfig(**{name: x}), f"{name} is {x!r}; it")
            for name, default in vars(CONFIG).items() if isinstance(default, bool)
            for x in ("False", 0, None)
        ],
    ],
    "cross": [
        (lambda: PAIR.decoder(TOKENS), "0 blocks, and 2 of this model's read one"),
        (lambda: next(c.generate(PAIR.decoder, ONE, 1)), "`project_context` of a"),
        (lambda: PAIR.decoder(TOKENS, context=context()[:1]), "1 blocks, and 2"),
        (lambda: GPT(TOKENS, context=context()), "2 blocks, and 0"),
        (lambda: GPT.project_context(HEADS[:, 0]), "no block reads a context"),
    ],
    "GPT": [
        *refusing(
            GPT,
            ([[1, 2]], "must be integers (b t)"),
            (TOKENS.float(), "must be integers (b t)"),
            (ONE, "must be integers (b t)"),
            (TOKENS.byte(), "must be integers (b t), of 64 or 32 bits"),
            (TOKENS + 11, "vocabulary is 0 to 10"),
            (TOKENS - 11, "vocabulary is 0 to 10"),
            (TOKENS.repeat(1, 2), "10 positions exceed context_length (8)"),
        ),
        *refusing(
            lambda mask: GPT(TOKENS, mask=mask),
            (torch.ones(5, 4) > 0, "mask (5, 4) does not fit 5 queries and 5 keys"),
            (torch.ones(2, 5, 5) > 0, "mask (2, 5, 5) has three axes, the first of"),
            (torch.ones(2, 1, 5) > 0, "say (b 1 t s) or (1 h t s)"),
            ("padding", "must be bool, True = may attend"),
        ),
        *refusing(
            lambda last: GPT(TOKENS, last=last),
            (5, "last runs from 5 to 5; 5 tokens stand at 0 to 4, and from the end"),
            (-6, "last is -6; it must be -5 or more, a whole number"),
            (True, "last is True"),
            (1.0, "last is 1.0"),
            ([0, 1], "last is [0, 1]"),
            (torch.tensor([0, 5]), "last runs from 0 to 5; 5 tokens stand at 0 to 4"),
            (torch.tensor([0, -6]), "last runs from -6 to 0; 5 tokens stand at 0 to 4"),
            (torch.tensor([[0, 1], [2, 7]]), "last runs from 0 to 7"),
        ),
        (
            lambda: GPT(TOKENS[:, :2], cached(c.PreallocatedCache(8)), last=4),
            "last runs from 4 to 4; 2 tokens stand at 0 to 1",
        ),
        (lambda: PAIR.encoder(TOKENS, c.PreallocatedCache(8)), "takes no cache"),
        (lambda: GPT.new_cache(0), WHOLE),
    ],
    "EncoderDecoder": [
        (lambda: PAIR(TOKENS[:0], TOKENS[:0]), "source is (0, 5)"),
        (
            lambda: c.EncoderDecoder(CONFIG, d_vocab_source=5, shared=True),
            "can't be shared",
        ),
        (lambda: PAIR(TOKENS, TOKENS[:1]), "2 sources"),
        (lambda: PAIR(TOKENS[:, :0], TOKENS), "a source is empty"),
        (lambda: PAIR(TOKENS.repeat(1, 2), TOKENS), "the context_length is 8"),
        (lambda: PAIR(TOKENS, TOKENS, torch.tensor([5])), "1 lengths"),
        (lambda: PAIR(TOKENS, TOKENS, torch.tensor([5, 6])), "lengths [5, 6]"),
        (lambda: PAIR(TOKENS, TOKENS, torch.tensor([0, 5])), "are [0, 5]"),
        (
            lambda: c.EncoderDecoder(CONFIG, shared=True).load_state_dict(
                PAIR.state_dict()
            ),
            "decoder.embedding.weight is not encoder.embedding.weight",
        ),
    ],
    # optimizers, training, runs
    "schedules": [
        (lambda: c.warmup_cosine(-1, warmup=1, total=9), WHOLE),
        (lambda: c.warmup_linear(1, warmup=-1, total=9), WHOLE),
        (lambda: c.warmup_linear(1, warmup=20, total=10), "warmup (20) is longer than"),
        (lambda: c.warmup_cosine(0, warmup=10, total=9), "than total (9)"),
        (lambda: c.noam(0, d_model=8), WHOLE),
    ],
    "AdamW": refusing(
        lambda settings: c.AdamW(WEIGHTS, **settings),
        ({"lr": -1e-3}, "lr is -0.001; it must be 0 or more"),
        ({"weight_decay": math.nan}, "weight_decay is nan"),
        ({"lr": math.inf}, "lr is inf; it must be 0 or more, and finite"),
        ({"weight_decay": math.inf}, "weight_decay is inf"),
        ({"eps": -1}, "eps is -1"),
        ({"eps": 0}, "eps is 0"),
        ({"eps": 1e-50}, "eps is 1e-50"),  # which is 0 in float32
        ({"eps": math.inf}, "eps is inf"),
        ({"betas": (0.9, 1)}, "each must be 0 or more, below 1"),
    ),
    "Muon": [
        (lambda: c.Muon(WEIGHTS, lr=-1), "lr is -1; it must be 0 or more"),
        *refusing(
            lambda momentum: c.Muon(WEIGHTS, momentum=momentum),
            (1.5, "momentum is 1.5; it must be below 1"),
            (1.0, "momentum is 1.0; it must be below 1"),
            (-1.0, "momentum is -1.0; it must be 0 or more"),
            (math.nan, "momentum is nan"),
        ),
        (lambda: c.muon(GPT, momentum=1), "momentum is 1; it must be below 1"),
        (lambda: c.Muon([{"params": WEIGHTS, "momentum": 2}]), "momentum is 2"),
        (lambda: c.Muon([{"params": WEIGHTS, "muon": "False"}]), "muon is 'False'"),
        (lambda: c.orthogonalize(torch.ones(3, 3), 0), WHOLE),
        (lambda: c.Muon([torch.nn.Parameter(torch.ones(3))]), "takes matrices, not"),
        (lambda: c.muon(torch.nn.Linear(2, 2)), "no blocks; use AdamW"),
        (lambda: c.orthogonalize(torch.ones(3)), "floats (... r c)"),
    ],
    "next_token_loss": [
        (lambda: c.next_token_loss(LOGITS, ONE), "targets are (5,)"),
        (
            lambda: c.next_token_loss(LOGITS, torch.tensor([-100, 11])),
            "targets run from 11 to 11; the vocabulary is 0 to 10",
        ),
        (
            lambda: c.next_token_loss(LOGITS, torch.tensor([3, -1]), smoothing=0.1),
            "targets run from -1 to 3; the vocabulary is 0 to 10",
        ),
        (lambda: c.next_token_loss(LOGITS[:0], ONE[:0]), "none of the 0 targets"),
        *[
            (lambda x=x: c.next_token_loss(GPT(TOKENS), TOKENS, x), f"smoothing is {x}")
            for x in (-0.5, 1.5, math.nan)
        ],
        (
            lambda: c.next_token_loss(GPT(TOKENS), NO_TARGETS),
            "none of the 10 targets counts, so their loss has no mean: all are -100",
        ),
    ],
    "train": [
        (lambda: c.train(GPT, c.AdamW(GPT.parameters()), [], clip=0), ABOVE),
        (
            lambda: c.train(GPT, c.AdamW(GPT.parameters()), [(TOKENS, NO_TARGETS)]),
            "none of the 10 targets counts",
        ),
    ],
    "prefill": [
        (lambda: prefill(GPT, [ONE, ONE[:0]], 1), "it must hold 1 token or more"),
    ],
    "answer_logits": [
        (
            lambda: answer_logits(GPT, [ONE[:3], ONE[:0]], TOKENS[:, :2]),
            "it must hold 1 token or more",
        ),
    ],
    "accept": [
        (
            lambda: accept(ONE[:2], LOGITS.softmax(-1), LOGITS.softmax(-1)),
            "for 2 drafted tokens: they must be 2 and 3",
        ),
        *refusing(
            lambda token: accept(torch.tensor([token]), LOGITS[:1], LOGITS),
            (11, "draft_tokens run from 11 to 11; the vocabulary is 0 to 10"),
            (-1, "draft_tokens run from -1 to -1"),
        ),
        (
            lambda: accept(ONE[:1] * 0, 1 - torch.eye(11)[:1], LOGITS.softmax(-1)),
            "token 0 was drafted in row 0, whose draft_probabilities give it 0",
        ),
        (
            lambda: accept(ONE[:1], torch.ones(1, 11), LOGITS.softmax(-1)),
            "row 0 of draft_probabilities sums to 11; it must sum to 1",
        ),
        (
            lambda: accept(ONE[:1], torch.eye(11)[ONE[:1]], torch.ones(2, 11) / 10),
            "row 0 of target_probabilities sums to 1.1; it must sum to 1",
        ),
    ],
    "chosen": [
        (lambda: chosen(LOGITS, INTEGERS), "logits (2, 11) for tokens (3,)"),
        (lambda: chosen(LOGITS, INTEGERS[:1]), "logits (2, 11) for tokens (1,)"),
        (lambda: chosen(LOGITS, torch.ones(2)), "it must be integers"),
        *refusing(
            lambda token: chosen(LOGITS, torch.tensor([0, token])),
            (11, "tokens run from 0 to 11; the vocabulary is 0 to 10"),
            (-1, "tokens run from -1 to 0"),
        ),
    ],
    "reward_loss": [
        (
            lambda: reward_loss(-torch.ones(2), torch.tensor([1.0, -1]), ONE[:2] > -1),
            "log_probabilities is torch.float32 of shape (2,); it must be floats (b n)",
        ),
    ],
    "kl_divergence": [
        (lambda: kl_divergence(LOGITS, LOGITS[:1]), "(2, 11) and reference (1, 11)"),
    ],
    "evaluate": [
        (lambda: c.evaluate(GPT, LONG[:1]), "2 or more"),
        *[
            (
                lambda t=t: c.evaluate(GPT, torch.tensor([1, 2, 3, t])),
                "; the vocabulary is 0 to 10",
            )
            for t in (-100, -1, 11)
        ],
        (lambda: c.evaluate(GPT, TOKENS), "it must be integers (t)"),
        (lambda: c.evaluate(GPT, LONG, 0), WHOLE),
    ],
    "train_recipe": refusing(
        c.train_recipe,
        (replace(c.RECIPES["fast"], batch_size=0), WHOLE),
        (replace(c.RECIPES["fast"], n_steps=0), WHOLE),
        (replace(c.RECIPES["fast"], warmup=-1), WHOLE),
        (replace(c.RECIPES["fast"], floor=2), "at most 1"),
    ),
    # sampling and serving
    "samplers": [
        (lambda: c.temperature(LOGITS, 0), ABOVE),
        (lambda: c.top_k(LOGITS, 12), "1 to 11"),
        (lambda: c.top_k(LOGITS, 0), WHOLE),
        (lambda: c.top_p(LOGITS, 0), ABOVE),
        (lambda: c.min_p(LOGITS, 1.1), "at most 1"),
        *[
            (lambda cut=cut: cut(INTEGERS, 1), "logits is torch.int64 of shape (3,)")
            for cut in (c.temperature, c.top_k, c.top_p, c.min_p)
        ],
        *[
            (lambda cut=cut, x=x: cut(row_of(x), 1), f"is {x} in row [1]; it must be")
            for cut in (c.temperature, c.top_k, c.top_p, c.min_p)
            for x in (math.nan, math.inf, -math.inf)
        ],
    ],
    "generate": [
        *decoding(lambda prompt, n_new: c.generate(GPT, [prompt], n_new)),
        (lambda: c.generate(GPT, TOKENS[:, :0], 2), "must hold 1 token"),
        (lambda: c.generate(GPT, [], 2), "a list of prompts must hold one"),
        (
            lambda: c.generate(GPT, ONE, 2, cache=GPT.new_cache(), use_cache=False),
            "a cache is passed in, and use_cache is False",
        ),
        (lambda: c.generate(GPT, ONE, 2, end=-1), WHOLE),
        (lambda: c.generate(GPT, ONE, 2, end=11), "the vocabulary is 0 to 10"),
    ],
    "beam_search": [
        *decoding(lambda prompt, n_new: c.beam_search(GPT, prompt, 2, n_new)),
        (lambda: c.beam_search(GPT, ONE, 12, 2), "the 11 tokens"),
        (lambda: c.beam_search(GPT, ONE, 2, 2, end="x"), "end is 'x'"),
        (lambda: c.beam_search(GPT, ONE, 2, 2, end=-1), WHOLE),
        (lambda: c.beam_search(GPT, ONE, 2, 2, length_penalty=1.1), "at most 1"),
    ],
    "speculate": [
        *decoding(lambda prompt, n: c.speculate(GPT, prompt, n, c.PromptLookup(11))),
        (lambda: c.PromptLookup(11, n_guesses=0), WHOLE),
        (
            lambda: c.PromptLookup(7, n_same=1)(torch.tensor([2, 9, 2])),
            "tokens run from 2 to 9; the vocabulary is 0 to 6",
        ),
        *refusing(
            lambda end: c.speculate(GPT, ONE, 2, c.PromptLookup(11), end=end),
            ("x", "end is 'x'; it must be 0 or more, a whole number"),
            (-1, "end is -1"),
            (1.5, "end is 1.5"),
            (11, "end is 11; the vocabulary is 0 to 10"),
        ),
    ],
    "Server": [(lambda: c.Server(GPT, 0), WHOLE)],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_the_numbers_and_the_reason(name):
    wrong = []
    for i, (call, words) in enumerate(BAD[name]):
        try:
            call()
            found = "nothing is raised"
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if not (found.startswith("ValueError: ") and words in found):
            wrong.append(f"{name}, call {i}, {words!r}: {found}")
    assert wrong == []


@pytest.mark.parametrize("engine", ["fused", "explicit", "flash"])
def test_a_mask_of_other_streams_is_refused_and_the_cache_stays(engine):
    model = c.GPT(replace(CONFIG, engine=engine), seeded()).eval()
    cache = model.new_cache()
    mask = torch.ones(3, 1, 5, 5, dtype=torch.bool)
    with torch.no_grad():
        with pytest.raises(
            ValueError, match=r"mask \(3, 1, 5, 5\) is of other streams"
        ):
            model(TOKENS[:1], cache, mask=mask)
        torch.testing.assert_close(model(TOKENS[:1], cache), model(TOKENS[:1]))


@pytest.mark.parametrize("function", [c.attention, c.flash_attention])
def test_keys_of_other_streams_or_heads_are_refused(function):
    queries = HEADS[:1]
    for keys in HEADS, HEADS[:1, :2]:
        with pytest.raises(ValueError, match="keys .* are of other streams or heads"):
            function(queries, keys, keys)


def test_a_context_is_of_one_source_or_of_one_for_each_stream():
    reader = PAIR.read(TOKENS)
    with pytest.raises(ValueError, match="of 2 sources, and the tokens of 3 streams"):
        reader(random_tokens(3, 1, d_vocab=11))
    with pytest.raises(ValueError, match="source is .* must be integers"):
        PAIR.read(TOKENS[0])
