"""Data: the text, its split, and batches of windows."""

import pytest
import torch
from common import seeded

from companion import batches, split, tiny_shakespeare


def test_tiny_shakespeare_has_its_published_size():
    text = tiny_shakespeare()
    assert len(text) == 1_115_394
    assert len(set(text)) == 65
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me")


def test_the_split_is_in_order_and_has_the_known_sizes():
    tokens = torch.arange(1_115_394)
    training, validation = split(tokens)
    assert (len(training), len(validation)) == (1_003_854, 111_540)
    assert torch.equal(torch.cat([training, validation]), tokens)


@pytest.mark.parametrize("fraction", [-0.5, 0.05, 1.0, None])
def test_a_split_with_an_empty_part_is_refused(fraction):
    with pytest.raises(
        ValueError, match=f"{fraction} of 10 tokens|fraction is {fraction}"
    ):
        split(torch.arange(10), fraction)


def test_targets_are_the_inputs_one_token_later():
    tokens = torch.randint(100, (50,), generator=seeded())
    windows = tokens.unfold(0, 8, 1).tolist()
    drawn = list(
        batches(tokens, batch_size=3, context_length=7, n_steps=5, generator=seeded())
    )
    assert len(drawn) == 5
    for inputs, targets in drawn:
        assert inputs.shape == targets.shape == (3, 7)
        for x, y in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert x[1:] == y[:-1]
            assert [*x, y[-1]] in windows


def test_every_window_is_drawn_about_equally_often_from_the_first_to_the_last():
    ((inputs, targets),) = batches(
        torch.arange(7),
        batch_size=4000,
        context_length=3,
        n_steps=1,
        generator=seeded(),
    )
    counts = torch.bincount(inputs[:, 0]).tolist()
    assert len(counts) == 4
    assert all(abs(n - 1000) < 150 for n in counts)
    assert targets.max() == 6


def test_the_generator_alone_decides():
    def draw(seed, other):
        torch.manual_seed(other)
        drawn = batches(
            torch.arange(100),
            batch_size=9,
            context_length=4,
            n_steps=3,
            generator=seeded(seed),
        )
        return torch.stack([inputs for inputs, _ in drawn])

    assert torch.equal(draw(1, 0), draw(1, 5))
    assert not torch.equal(draw(1, 0), draw(2, 0))


def test_a_text_too_short_for_one_window_is_refused_at_once():
    with pytest.raises(ValueError, match=r"\(8\) .*9 tokens.* 8$"):
        batches(torch.arange(8), batch_size=1, context_length=8, n_steps=1)
    ((inputs, targets),) = batches(
        torch.arange(9), batch_size=1, context_length=8, n_steps=1
    )
    assert targets.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]


def test_inputs_and_targets_share_no_memory():
    tokens = torch.arange(20)
    ((inputs, targets),) = batches(
        tokens, batch_size=2, context_length=4, n_steps=1, generator=seeded()
    )
    right = targets.clone()
    inputs.zero_()
    assert torch.equal(targets, right) and torch.equal(tokens, torch.arange(20))
