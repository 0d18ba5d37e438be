"""A fair trial of chapter 17: what it refuses, and why, and what it lets pass."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import companion
from companion.course import kept
from companion.course.checks.mistakes import Mistake
from companion.course.checks.trial import fair_trial
from companion.course.kept_file import COURSE, read_sections

my_gpt = kept.run(read_sections(COURSE))
CONFIG = companion.GPTConfig(
    d_vocab=11,
    context_length=64,
    d_model=16,
    n_heads=2,
    n_layers=2,
    d_hidden=24,
    bias=False,
)


def plain(**sizes) -> nn.Module:
    return my_gpt.MyGPT(replace(CONFIG, **sizes))


def with_attention(attention: type, config=CONFIG) -> nn.Module:
    gpt = my_gpt.MyGPT(config)
    for block in gpt.blocks:
        block.attention = attention(config)
    return gpt


def with_feed_forward(feed_forward: type) -> nn.Module:
    gpt = plain()
    for block in gpt.blocks:
        block.feed_forward = feed_forward(CONFIG)
    return gpt


class Near(my_gpt.MyAttention):
    """A window of 8, with the positions of the pass, so that a cache is no matter."""

    window = 8

    def attend(self, queries, keys, values, now):
        key_positions = torch.arange(keys.shape[-2])
        back = now.positions[:, None] - key_positions
        near = (back >= 0) & (back < self.window)
        return super().attend(queries, keys, values, my_gpt.Pass(now.positions, near))


class FromZero(Near):
    """The same for a whole text; in a piece it counts from 0 again."""

    def attend(self, queries, keys, values, now):
        now = my_gpt.Pass(torch.arange(queries.shape[-2]), now.mask)
        return super().attend(queries, keys, values, now)


class AsWideAsTheText(Near):
    window = 64


class OneAhead(my_gpt.MyAttention):
    def attend(self, queries, keys, values, now):
        seen = torch.arange(keys.shape[-2]) <= now.positions[:, None] + 1
        return super().attend(queries, keys, values, my_gpt.Pass(now.positions, seen))


class Gated(my_gpt.MyAttention):
    def __init__(self, config):
        super().__init__(config)
        self.to_gate = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x, now):
        return self.to_gate(x).sigmoid() * super().forward(x, now)


class GateDetached(Gated):
    def forward(self, x, now):
        gate = self.to_gate(x).sigmoid().detach()
        return gate * my_gpt.MyAttention.forward(self, x, now)


class LessTheOthers(my_gpt.MyFeedForward):
    """It takes the mean of all texts of a batch away."""

    def forward(self, x):
        mean = x.mean(0, keepdim=True) if len(x) > 1 else 0.1 * x
        return super().forward(x - mean)


class GateForgotten(Gated):
    def forward(self, x, now):
        return my_gpt.MyAttention.forward(self, x, now)


class Renamed(nn.Module):
    """The feed-forward as it was, by another name."""

    def __init__(self, config):
        super().__init__()
        self.inner = my_gpt.MyFeedForward(config)

    def forward(self, x):
        return self.inner(x)


class Squared(nn.Module):
    """Another feed-forward, of two matrices."""

    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.d_model, 36, bias=False)
        self.down = nn.Linear(36, config.d_model, bias=False)

    def forward(self, x):
        return self.down(self.up(x).relu() ** 2)


class Dropped(my_gpt.MyFeedForward):
    """It drops features while it learns, and is the same where it is judged."""

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, self.training))


class Previous(my_gpt.MyFeedForward):
    """It sees the token before, too, and knows no cache."""

    def forward(self, x):
        return super().forward(x + nn.functional.pad(x, (0, 0, 1, -1)))


class Frozen(Near):
    """It stops where there is more than one piece."""

    def attend(self, queries, keys, values, now):
        assert queries.shape[-2] == 64, "64 at once"
        return super().attend(queries, keys, values, now)


class NoNumbers(my_gpt.MyFeedForward):
    def forward(self, x):
        return super().forward(x) / 0


def said_of(with_change, control=plain, plain=plain) -> str:
    with pytest.raises(Mistake) as caught:
        fair_trial(with_change, control, plain, my_gpt.MyCache)
    said = str(caught.value)
    assert said.startswith("fair_trial: ") and "\n" not in said
    return said.removeprefix("fair_trial: ")


near = partial(with_attention, Near)
gated = partial(with_attention, Gated)


@pytest.mark.parametrize(
    ("with_change", "control"),
    [
        (near, plain),
        (gated, partial(plain, d_hidden=30)),
        (partial(with_feed_forward, Squared), plain),
        (partial(with_feed_forward, Dropped), plain),
        (partial(plain, d_hidden=48), partial(plain, d_hidden=48, n_heads=1)),
    ],
    ids=["window", "gate", "feed-forward", "dropout", "other heads beside it"],
)
def test_a_fair_trial_passes_and_says_what_was_compared(with_change, control, capsys):
    before = torch.get_rng_state()
    assert fair_trial(with_change, control, plain, my_gpt.MyCache) is True
    assert torch.equal(torch.get_rng_state(), before) and torch.is_grad_enabled()
    said = capsys.readouterr().out
    sizes = [sum(p.numel() for p in f().parameters()) for f in (control, with_change)]
    assert said.startswith("✓ fair_trial: no token sees a later one; ")
    assert f"have {sizes[0]:,} and {sizes[1]:,} parameters" in said
    assert said.endswith("with a cache its logits are the same\n")


@pytest.mark.parametrize(
    ("with_change", "words"),
    [
        (partial(with_attention, FromZero), "with a cache its logits are others"),
        (partial(with_feed_forward, Previous), "with a cache its logits are others"),
        (partial(with_attention, Frozen), "it stops with AssertionError: 64 at once"),
    ],
)
def test_what_a_cache_breaks_is_named_and_no_obstacle(with_change, words, capsys):
    assert fair_trial(with_change, plain, plain, my_gpt.MyCache) is True
    said = capsys.readouterr().out
    assert words in said and said.endswith("so it can't write yet\n")


def unwritten():
    raise NotImplementedError


@pytest.mark.parametrize("functions", [(unwritten, plain), (near, unwritten)])
def test_what_is_to_be_written_gets_one_quiet_line(functions, capsys):
    assert fair_trial(*functions, plain, my_gpt.MyCache) is False
    assert capsys.readouterr().out == "○ fair_trial: yours to write\n"


def test_what_never_learns_is_named():
    said = said_of(partial(with_attention, GateDetached), partial(plain, d_hidden=30))
    assert "attention.to_gate.weight gets no gradient" in said


def half_frozen() -> nn.Module:
    gpt = plain(d_hidden=30)
    gpt.blocks[0].feed_forward.requires_grad_(False)
    return gpt


def test_a_control_that_never_learns_is_refused():
    said = said_of(gated, half_frozen)
    assert said.startswith("control's blocks.0.feed_forward.")


def test_texts_that_mix_are_refused():
    assert "mixes the texts" in said_of(partial(with_feed_forward, LessTheOthers))


def test_one_that_looks_ahead_is_told_where():
    said = said_of(partial(with_attention, OneAhead))
    assert "looks ahead: another token at place 1 changes the logits of place 0" in said


@pytest.mark.parametrize(
    "with_change",
    [
        plain,
        partial(with_attention, AsWideAsTheText),
        partial(with_attention, GateForgotten),
        partial(with_feed_forward, Renamed),
    ],
    ids=["nothing done", "a window that hides nothing", "not used", "another name"],
)
def test_the_machine_as_it_was_is_no_change(with_change):
    said = said_of(with_change, partial(plain, d_hidden=30))
    assert "with_change gives the machine as it was" in said


def test_a_control_with_the_change_is_none():
    assert "control has the change, too" in said_of(near, near)
    assert "control has the change, too" in said_of(gated, gated)


def test_the_sizes_of_both_are_told_where_they_are_too_far_apart():
    sizes = [sum(p.numel() for p in f().parameters()) for f in (plain, gated)]
    said = said_of(gated)
    assert f"the control has {sizes[0]:,} parameters and the changed" in said
    assert f"{sizes[1]:,}: let them differ by 2% at most" in said


def test_what_is_no_machine_of_its_own_is_named():
    assert "with_change returns None, not a machine" in said_of(lambda: None)
    assert "control returns 3, not a machine" in said_of(near, lambda: 3)
    assert "give the function with_change itself" in said_of(near())
    assert "give the function control itself" in said_of(near, None)
    one = near()
    assert "two calls of with_change give machines that share" in said_of(lambda: one)
    said = said_of(lambda: near() + 1)
    assert said.startswith("with_change: it stops with TypeError: ")


def test_logits_that_are_none_are_named():
    class Sum(my_gpt.MyGPT):
        def forward(self, tokens, cache=None):
            return super().forward(tokens, cache).sum(-1)

    class Stops(my_gpt.MyGPT):
        def forward(self, tokens, cache=None):
            raise ValueError("no")

    assert "gives a float32 tensor (1, 64), where the" in said_of(lambda: Sum(CONFIG))
    said = said_of(lambda: Stops(CONFIG))
    assert said == "with_change's machine: it stops with ValueError: no"
    assert "are no numbers" in said_of(partial(with_feed_forward, NoNumbers))
