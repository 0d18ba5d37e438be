"""Many processes: each part of `parallel` beside one alone, and one that is silent."""

import functools
import time

import pytest
import torch
from common import random, rounding, seeded, together
from torch.multiprocessing import ProcessRaisedException

from companion import GPT, GPTConfig, MultiHeadAttention, attention, causal_mask
from companion.course import parallel_demo
from companion.model.attention import ENGINES
from companion.training.parallel import (
    merge_partials,
    partial_attention,
    ring_all_reduce,
    shard_attention,
    shard_feed_forward,
)
from companion.training.processes import Process


def run_demo():
    """Each part beside one process; one head of four is left to each."""
    process = Process.this("cpu")
    with process.joined():
        assert parallel_demo.check(process.rank, process.world) == 1


def test_every_part_follows_one_process():
    """Chapter 11 runs it in two; in four, left and right of a ring are different."""
    together(4, run_demo)


def fall_silent():
    process = Process.this("cpu")
    with process.joined(10):
        assert ring_all_reduce(torch.arange(3)).tolist() == [0, 2, 4]
        if process.rank == 1:
            time.sleep(600)
        ring_all_reduce(torch.ones(9))


def test_a_process_that_does_not_answer_is_not_waited_for():
    with pytest.raises(ProcessRaisedException, match="imed out"):
        together(2, fall_silent)


def test_one_that_is_alone_talks_to_nobody():
    with Process("cpu", 0, 1).joined():
        assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n_kv_heads", [None, 2])
def test_heads_in_parts_add_up(n_kv_heads, engine, bias):
    layer = MultiHeadAttention(24, 4, bias, n_kv_heads=n_kv_heads, engine=engine)
    x, mask = random(2, 5, 24), causal_mask(5)
    parts = [shard_attention(layer, rank, 2).part for rank in range(2)]
    torch.testing.assert_close(sum(p(x, mask=mask) for p in parts), layer(x, mask=mask))
    n = sum(p.numel() for part in parts for p in part.parameters())
    assert n == sum(p.numel() for p in layer.parameters())


def feed_forward(name: str, d_hidden: int) -> torch.nn.Module:
    config = GPTConfig(
        d_vocab=11, context_length=8, d_model=12, n_heads=2, n_layers=1,
        feed_forward=name, activation="silu", d_hidden=d_hidden,
    )  # fmt: skip
    layer = GPT(config, seeded()).blocks[0].feed_forward
    torch.nn.init.normal_(layer.to_output.bias, generator=seeded(1))
    return layer


@pytest.mark.parametrize("name", ["plain", "gated"])
def test_hidden_features_in_parts_add_up(name):
    layer, x = feed_forward(name, 48), random(2, 5, 12)
    parts = [shard_feed_forward(layer, rank, 4).part for rank in range(4)]
    torch.testing.assert_close(sum(part(x) for part in parts), layer(x))


def test_what_does_not_divide_is_refused_with_both_numbers():
    bad = [
        (shard_attention, MultiHeadAttention(24, 6), 4, r"n_heads \(6\)"),
        (
            shard_attention,
            MultiHeadAttention(24, 6, n_kv_heads=2),
            3,
            r"n_kv_heads \(2\)",
        ),
        (shard_feed_forward, feed_forward("plain", 10), 4, "10 features"),
    ]
    for cut, layer, world, words in bad:
        with pytest.raises(ValueError, match=f"{words} .* divisible by {world} ranks"):
            cut(layer, 0, world)


def test_parts_of_attention_merge_in_any_order():
    queries, keys, values = random(3, 2, 4, 30, 8).unbind()
    keys = 20 * keys  # so that the largest scores decide
    right = attention(queries, keys, values)
    parts = [slice(20, 30), slice(0, 1), slice(1, 20)]
    first, second, third = (
        partial_attention(queries, keys[:, :, part], values[:, :, part])
        for part in parts
    )
    merged = merge_partials(first, merge_partials(second, third))
    # A score that is rounded by an epsilon of itself moves a weight by as large a part.
    score = (queries @ keys.mT).abs().max().item() / 8**0.5
    close = rounding(score, values)
    torch.testing.assert_close(merged.output / merged.total, right, **close)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parts_of_16_bits_are_summed_in_32(dtype):
    """Of the same scores, the answer is as good with many parts as with one."""
    queries, keys, values = random(3, 1, 2, 256, 8).to(dtype).unbind()
    right = attention(queries.double(), keys.double(), values.double())
    whole = partial_attention(queries, keys, values)
    partials = [
        partial_attention(queries, keys[:, :, part], values[:, :, part])
        for part in torch.arange(256).split(4)
    ]
    merged = functools.reduce(merge_partials, partials)
    assert merged.total.dtype == torch.float32

    def mean_error(partial):
        return (partial.output / partial.total - right).abs().mean().item()

    # Both have errors of 16 bits, and merging in float32 adds a thousandth of them; in
    # 16 bits it would add as much again.
    assert mean_error(merged) == pytest.approx(mean_error(whole), rel=1e-2)
