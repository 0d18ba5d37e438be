"""All that computes runs wherever its tensors lie.

The `meta` device holds shapes and no numbers, so it shows on any machine what a GPU
would: a tensor made on the CPU by mistake fails, and so does every look at a number.
Only three functions look, once a step each; here they are replaced.
"""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from common import seeded
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from companion import (
    GPT,
    TRANSFORMER_BASE,
    AdamW,
    ConcatenatingCache,
    EncoderDecoder,
    GPTConfig,
    Int8Cache,
    PreallocatedCache,
    RaggedCache,
    SinkCache,
    SlidingWindowCache,
    beam_search,
    causal_mask,
    evaluate,
    generate,
    muon,
    next_token_loss,
    padding_mask,
    rotate,
    sample,
    top_k,
    top_p,
    train,
)
from companion.decoding.beam_search import Candidate
from companion.model.positions import POSITIONS
from companion.training.processes import Process

META = torch.device("meta")
ENGINES = ["fused", "explicit", "flash"]
CACHES = {
    "concatenating": ConcatenatingCache,
    "preallocated": lambda: PreallocatedCache(9),
    "ragged": lambda: RaggedCache(9, 2),
    "window": lambda: SlidingWindowCache(3),
    "sinks": lambda: SinkCache(3, 1),
    "int8": lambda: Int8Cache(9),
}
# Every scheme of positions and every engine once, not each with each.
PAIRS = [*zip(POSITIONS, ENGINES * 2, strict=False)]


def tiny(**options) -> GPT:
    sizes = {"d_vocab": 11, "context_length": 9, "d_model": 8, "n_heads": 2}
    with META:
        return GPT(GPTConfig(**sizes | {"n_layers": 2} | options))


def tokens(*shape):
    return torch.zeros(shape, dtype=torch.long, device=META)


@contextmanager
def nothing_to_read():
    """What reads numbers back gives zeros instead; whatever else tries to, fails."""

    def first_tokens(beams, log_probs, n):
        n_found = min(n, log_probs.numel())
        return [Candidate(0.0, 0, token) for token in range(n_found)]

    read = "companion.training.loop.read_finite"
    grown = "companion.decoding.beam_search.expand_beams"
    with patch(read, lambda *what: 0.0), patch(grown, first_tokens):
        yield


def test_looking_at_a_number_fails_there():
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.zeros((), device=META).item()


@pytest.mark.parametrize("positions, engine", PAIRS)
def test_a_training_step_runs_there(positions, engine):
    model = tiny(positions=positions, engine=engine, n_kv_heads=1, qk_norm=True)
    batch = (tokens(3, 9), tokens(3, 9))
    for optimizer in (AdamW(model.parameters()), muon(model)):
        with nothing_to_read():
            train(model, optimizer, [batch] * 2)
    assert all(p.grad.device == META for p in model.parameters())


def test_a_step_reads_numbers_back_once():
    model = tiny()
    batch = (tokens(3, 9), tokens(3, 9))
    with patch("companion.training.loop.read_finite", side_effect=[0.0, 0.0]) as read:
        train(model, AdamW(model.parameters()), [batch] * 2)
    assert read.call_count == 2


def test_evaluation_reads_numbers_once_and_moves_its_windows_to_the_model():
    read = []
    with patch.object(torch.Tensor, "tolist", lambda self: read.append(self) or [0.0]):
        evaluate(tiny(), torch.zeros(25, dtype=torch.long))
    assert [x.device for x in read] == [META]


@pytest.mark.parametrize("positions, engine", PAIRS)
@pytest.mark.parametrize("kind", CACHES)
@torch.no_grad()
def test_every_cache_works_there_with_all_positions(kind, positions, engine):
    model, cache = tiny(positions=positions, engine=engine), CACHES[kind]()
    for n in (3, 1, 2):
        assert model(tokens(2, n), cache).shape == (2, n, 11)
    if kind == "ragged":
        cache.truncate(torch.tensor([4, 6]))
    cache.reorder(torch.tensor([1, 0]))
    logits = model(tokens(2, 1), cache, last=torch.tensor([0, 0]))
    assert logits.device == META and logits.shape == (2, 11)


class Crossings(TorchDispatchMode):
    """Within, notes how many numbers each tensor has that goes to another device."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        parts = tree_leaves((args, kwargs, out))
        tensors = [x for x in parts if isinstance(x, torch.Tensor)]
        if len({x.device for x in tensors}) > 1:
            self.sizes.append(tensors[0].numel())
        return out


@pytest.mark.parametrize("last", [-1, torch.zeros(2, 1, dtype=torch.long)])
@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
@torch.no_grad()
def test_a_second_pass_waits_for_no_number_from_the_processor(positions, last):
    """What does not change, as a rotation's frequencies, is there after the first."""
    model = tiny(positions=positions)
    places = last if isinstance(last, int) else last.to(META)
    model(tokens(2, 3), last=places)
    with Crossings() as crossings:
        model(tokens(2, 3), last=places)
    assert not crossings.sizes


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_text_is_written_there_past_the_window(positions, use_cache):
    model, generator = tiny(positions=positions), seeded()

    def choose(logits):
        return sample(top_p(top_k(logits, 3), 0.9), generator)

    prompt = tokens(2, 4)
    new = list(generate(model, prompt, 9, choose=choose, use_cache=use_cache))
    assert [x.shape for x in new] == [(2,)] * 9 and new[0].device == META


def test_prompts_of_different_lengths_go_on_there():
    new = list(generate(tiny(), [tokens(4), tokens(1)], 5))
    assert [x.shape for x in new] == [(2,)] * 5


def test_beams_are_searched_there():
    with nothing_to_read():
        found = beam_search(tiny(), tokens(3), 4, 5)
    assert len(found) == 4


@pytest.mark.parametrize("positions", ["sinusoidal", "t5"])
def test_an_encoder_and_its_decoder_run_there(positions):
    config = replace(
        TRANSFORMER_BASE,
        d_vocab=11,
        context_length=12,
        d_model=8,
        n_heads=2,
        n_layers=2,
        positions=positions,
    )
    with META:
        model = EncoderDecoder(config)
    source, target = tokens(3, 7), tokens(3, 5)
    for lengths in (None, torch.tensor([7, 2, 4]), tokens(3)):
        logits = model(source, target, lengths)
        next_token_loss(logits, tokens(3, 5)).backward()
        list(generate(model.read(source, lengths), target[:, :1], 4))
    with nothing_to_read():
        assert beam_search(model.read(source[:1]), tokens(1), 3, 4)


def test_masks_and_positions_lie_where_they_are_asked_for():
    assert causal_mask(3, 5, device=META).device == META
    assert padding_mask(tokens(2), 5).device == META
    assert rotate(torch.zeros(1, 1, 3, 4, device=META), tokens(3)).device == META


def test_noise_is_the_same_wherever_the_logits_lie():
    drawn = []
    with patch.object(torch.Tensor, "log", lambda x: drawn.append(x.clone()) or x):
        sample(torch.zeros(3, 5), seeded())
        sample(torch.zeros(3, 5, device=META), seeded())
    assert torch.equal(*drawn)


def test_each_process_of_a_machine_takes_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Process.current().device == "cuda:0"
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert Process.current() == Process("cuda:1", 3, 4)
    assert Process.current("cuda").device == "cuda:1"
    assert Process.current("cpu").device == "cpu"
