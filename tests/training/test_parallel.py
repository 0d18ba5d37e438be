"""Many processes: each part of `parallel` beside one alone, and one that is silent."""

import copy
import functools
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from common import random, random_tokens, rounding, seeded, shaken
from processes import together
from torch import nn
from torch.multiprocessing import ProcessRaisedException
from torch.nn.utils.parametrizations import weight_norm
from torch.testing import assert_close

from companion import (
    GPT,
    AdamW,
    EncoderDecoder,
    GPTConfig,
    MultiHeadAttention,
    attention,
    causal_mask,
    next_token_loss,
    save_checkpoint,
    train,
)
from companion.course import parallel_demo
from companion.model.attention import ENGINES
from companion.model.blocks import FeedForward
from companion.pretrained import adapter_files, lora
from companion.pretrained.quantized import PackedLinear, prepack
from companion.training.parallel import (
    ShardedAdamW,
    average_gradients,
    merge_partials,
    partial_attention,
    ring_all_reduce,
    shard_attention,
    shard_blocks,
    shard_feed_forward,
)
from companion.training.processes import Process, shard


def run_demo():
    """Each part beside one process; one head of four is left to each."""
    process = Process.current("cpu")
    with process.joined():
        lines = [*parallel_demo.compare(process.rank, process.world)]
    assert len(lines) == 5
    assert "with 1 of 4 heads" in lines[3]


def test_every_part_follows_one_process():
    """Chapter 11 runs it in two; in four, left and right of a ring are different."""
    together(4, run_demo)


def fall_silent():
    process = Process.current("cpu")
    with process.joined(2):
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


def test_a_part_of_which_a_query_may_see_nothing_adds_nothing():
    queries, keys, values = random(3, 2, 4, 9, 8).unbind()
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    mask[4] = False
    parts = [slice(5, 9), slice(0, 3), slice(3, 5)]
    partials = [
        partial_attention(queries, keys[:, :, part], values[:, :, part], mask[:, part])
        for part in parts
    ]
    merged = functools.reduce(merge_partials, partials)
    output = merged.output / merged.total.clamp(min=1)  # no key at all gives 0
    torch.testing.assert_close(output, attention(queries, keys, values, mask))
    assert not output[:, :, 4].any()


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


SMALL = GPTConfig(
    d_vocab=11, context_length=8, d_model=24, n_heads=4, n_layers=2, n_kv_heads=2
)
TOKENS = random_tokens(4, 8, d_vocab=11)


class OtherLinear(nn.Linear):
    """Computes something else than W x + b."""

    def forward(self, x):
        return 2 * super().forward(x)


class OtherFeedForward(FeedForward):
    """Divides by what all hidden features are together."""

    def forward(self, x):
        return self.to_output(self.to_hidden(x).softmax(-1))


def with_child(name: str, new) -> nn.Module:
    """A layer of which one child is what `new` makes of it."""
    layer = feed_forward("plain", 48) if name == "to_hidden" else new_attention()
    setattr(layer, name, new(getattr(layer, name)))
    return layer


def new_attention() -> MultiHeadAttention:
    return MultiHeadAttention(24, 4)


def adapted(layer: nn.Linear) -> nn.Module:
    return lora.LoRALinear(layer, 2, 4)


def extended(layer: nn.Linear) -> nn.Module:
    return OtherLinear(layer.in_features, layer.out_features)


def normed(layer: nn.Linear) -> nn.Module:
    return nn.Sequential(layer, nn.LayerNorm(layer.out_features))


def hooked(layer: nn.Linear) -> nn.Module:
    layer.register_forward_hook(lambda layer, inputs, x: x.softmax(-1))
    return layer


def hooked_backward(layer: nn.Linear) -> nn.Module:
    layer.register_full_backward_hook(lambda layer, inputs, outputs: None)
    return layer


def patched(layer: nn.Linear) -> nn.Module:
    layer.forward = lambda x: nn.Linear.forward(layer, x).softmax(-1)
    return layer


NOT_PLAIN = [adapted, extended, normed, hooked, hooked_backward, patched, weight_norm]


@pytest.mark.parametrize("name", ["to_hidden", "to_values"])
@pytest.mark.parametrize("new", NOT_PLAIN)
def test_what_is_no_plain_linear_layer_is_not_cut_but_named(name, new):
    """Each would add up to something else than the whole layer's output."""
    shard_layer = shard_feed_forward if name == "to_hidden" else shard_attention
    shard_layer(with_child(name, lambda layer: layer), 0, 2)
    with pytest.raises(ValueError, match=f"{name} is a .* only plain linear layers"):
        shard_layer(with_child(name, new), 0, 2)


def test_packed_and_unknown_layers_are_not_cut_but_named():
    packed = feed_forward("plain", 48)
    packed.to_hidden = PackedLinear(torch.ones(48, 32))
    laid_out = prepack(GPT(SMALL))
    two_layers = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 12))
    gated = feed_forward("gated", 48)
    gated.register_forward_hook(lambda layer, inputs, x: x / x.norm())
    for call, words in (
        (lambda: shard_feed_forward(packed, 0, 2), "to_hidden is a PackedLinear"),
        (lambda: shard_feed_forward(OtherFeedForward(12), 0, 2), "OtherFeedForward"),
        (lambda: shard_feed_forward(two_layers, 0, 2), "is a Sequential, and only a"),
        (lambda: shard_feed_forward(gated, 0, 2), "has a hook"),
        (lambda: shard_attention(nn.MultiheadAttention(24, 4), 0, 2), "MultiheadAtt"),
        (lambda: shard_attention(new_attention(), 2, 2), "rank is 2; .* at most 1"),
        (lambda: shard_blocks(laid_out), "blocks.0.attention.to_queries is a Prep"),
        (
            lambda: shard_blocks(lora.add_adapters(GPT(SMALL))),
            "blocks.0.attention.to_queries is a LoRALinear .* merge adapters",
        ),
        (lambda: shard_blocks(EncoderDecoder(SMALL)), "EncoderDecoder has no blocks"),
        (
            lambda: shard_blocks(GPT(replace(SMALL, dropout=0.1))),
            "dropout drops features, and other ones on each rank",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_part_of_what_is_frozen_is_frozen():
    part = shard_attention(new_attention().requires_grad_(False), 0, 2).part
    assert not any(p.requires_grad for p in part.parameters())


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    loss = next_token_loss(model(TOKENS[:, :-1]), TOKENS[:, 1:])
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def check_cut_models(rank: int):
    """Each scheme of positions, and what has a number for each head."""
    for positions in ("alibi", "t5", "rotary", "learned"):
        config = GPTConfig(**vars(SMALL) | {"positions": positions, "qk_norm": True})
        whole = shaken(GPT(config))
        cut = shard_blocks(whole)
        assert_close(cut(TOKENS), whole(TOKENS), atol=1e-5, rtol=1e-5)
        own_mask = random(1, 4, 8, 8, seed=3) > -1  # each head's own
        own_mask |= torch.eye(8, dtype=torch.bool)
        masked = [model(TOKENS, mask=own_mask) for model in (cut, whole)]
        assert_close(*masked, atol=1e-5, rtol=1e-5)

        # What is everywhere has the whole gradient everywhere.
        expected = gradients(whole)
        for name, gradient in gradients(cut).items():
            if ".part." not in name:
                assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="this rank's part of a layer"):
        save_checkpoint("never written", cut, AdamW(cut.parameters()), seeded())
    with pytest.raises(ValueError, match="this rank's part of a layer"):
        train(cut, AdamW(cut.parameters()), [])
    with pytest.raises(ValueError, match="this rank's part of a layer"):
        lora.add_adapters(cut)

    # Another text's features, of which both ranks' keys have a share.
    whole = shaken(new_attention())
    x, context = random(2, 3, 24), random(2, 5, 24, seed=1).requires_grad_()
    found = []
    for layer in (whole, shard_attention(whole, rank, 2)):
        context.grad = None
        layer(x, context).square().sum().backward()
        found.append(context.grad)
    assert_close(*found, atol=1e-4, rtol=1e-4)


def check_averages(rank: int):
    """Of adapters, and of what learns only later."""
    alone = lora.add_adapters(GPT(SMALL, seeded()), generator=seeded(1))
    many = copy.deepcopy(alone)
    average_gradients(many)
    for _ in range(2):
        expected = gradients(alone)
        own = TOKENS.chunk(2)[rank]
        next_token_loss(many(own[:, :-1]), own[:, 1:]).backward()
        found = {n: p.grad for n, p in many.named_parameters() if p.grad is not None}
        assert_close(found, expected, atol=1e-6, rtol=1e-4)
        for model in (alone, many):
            model.zero_grad()
            model.requires_grad_(True)


def check_swapped_weights():
    """An average of weights swapped in, a precision changed, a matrix turned."""
    for swap in (
        lambda x: x.clone() / 2,
        lambda x: x.bfloat16(),
        lambda x: x.T.contiguous().T if x.dim() == 2 else x,
    ):
        models = []
        for make in (AdamW, ShardedAdamW):
            torch.manual_seed(0)
            model = nn.Linear(6, 5)
            model.scale = nn.Parameter(torch.tensor(2.0))  # no axis to be cut along
            optimizer = make(model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                x = random(7, 6, dtype=model.weight.dtype)
                (model.scale * model(x)).square().sum().backward()
                optimizer.step()
                before = model.weight.detach().clone()
                for p in model.parameters():
                    p.data = swap(p.data)
            models.append(model)
            assert make is AdamW or len(optimizer.own_parts) == 3
        after = [[*model.parameters()] for model in models]
        assert_close(after[1], after[0], atol=0, rtol=0)
        assert not torch.equal(before, torch.zeros_like(before))


def check_copied_optimizer():
    """A copy of model and optimizer goes on with the running means they have."""
    torch.manual_seed(0)
    model = nn.Linear(6, 5)
    pair = (model, ShardedAdamW(model.parameters(), 0.1))
    x = random(7, 6)

    def take_step(model, optimizer):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    for _ in range(3):
        take_step(*pair)
    copied = copy.deepcopy(pair)
    take_step(*pair)
    take_step(*copied)
    assert_close(copied[0].weight, pair[0].weight, atol=0, rtol=0)


def check_states_are_refused():
    """AdamW's running means would lie where no part finds them."""
    whole = AdamW([nn.Parameter(torch.ones(4, 3))])
    parts = ShardedAdamW([nn.Parameter(torch.ones(4, 3))])
    with pytest.raises(ValueError, match="a part of each parameter"):
        parts.load_state_dict(whole.state_dict())
    with pytest.raises(ValueError, match="a part of each parameter"):
        parts.state_dict()


def check_sharded_adapters(rank: int, folder: Path):
    """What `shard` has parted is put together, or refused by name."""
    whole = lora.add_adapters(shaken(GPT(SMALL)), rank=2, generator=seeded(1))
    for adapter in lora.adapters(whole).values():
        adapter.B.data.normal_(0, 0.1, generator=seeded(2))
    parted = copy.deepcopy(whole)
    shard(parted, 2)
    assert adapter_files.fingerprint(parted) == adapter_files.fingerprint(whole)
    adapter_files.save_adapter(folder / str(rank), parted)
    dist.barrier()
    assert [path.name for path in folder.iterdir()] == ["0"]
    again = adapter_files.load_adapter(folder / "0", shaken(GPT(SMALL)))
    assert torch.equal(again(TOKENS), whole(TOKENS))

    plain = shaken(GPT(SMALL))
    shard(plain, 2)
    for call in (
        lambda: lora.add_adapters(plain),
        lambda: adapter_files.load_adapter(folder / "0", plain),
        lambda: lora.merge_adapters(parted),
        lambda: average_gradients(plain),
        lambda: shard_feed_forward(plain.blocks[0].feed_forward, 0, 2),
        lambda: prepack(plain),
        lambda: ShardedAdamW(plain.parameters()),
    ):
        with pytest.raises(ValueError, match=r"part alone \(`shard`\)"):
            call()


def take_part(folder: Path):
    process = Process.current("cpu")
    with process.joined():
        check_cut_models(process.rank)
        check_averages(process.rank)
        check_swapped_weights()
        check_copied_optimizer()
        check_states_are_refused()
        check_sharded_adapters(process.rank, folder)


def test_cut_averaged_swapped_and_sharded_models_are_the_whole_ones(tmp_path):
    together(2, take_part, tmp_path)
