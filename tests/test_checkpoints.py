"""A bad file is named and changes nothing; a good one gives back everything."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from common import random, seeded, together
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from companion import (
    GPT,
    RECIPES,
    AdamW,
    batches,
    load_checkpoint,
    muon,
    save_checkpoint,
    train,
)
from companion.processes import Process, full_tensor, shard

TINY = replace(RECIPES["fast"].config, d_model=32, n_layers=2)


def fresh(config=TINY, seed=0, kind=muon):
    """A model, its optimizer and a generator, as nobody has trained them."""
    generator = seeded(seed)
    model = GPT(config, generator)
    return model, kind(model), generator


@pytest.fixture
def path(tmp_path):
    """A checkpoint at step 7."""
    save_checkpoint(tmp_path / "run.safetensors", *fresh(), step=7)
    return tmp_path / "run.safetensors"


def everything(model, optimizer, generator) -> list[torch.Tensor]:
    """All that a checkpoint can change."""
    kept = [optimizer.state[p] for p in model.parameters() if p in optimizer.state]
    state = [x for about in kept for _, x in sorted(about.items())]
    tensors = [*model.state_dict().values(), generator.get_state(), *state]
    return [torch.as_tensor(x).clone() for x in tensors]


def check_refused(path, what, words, **expected):
    before = everything(*what)
    with pytest.raises(ValueError, match=words):
        load_checkpoint(path, *what, **expected)
    after = everything(*what)
    assert len(after) == len(before) and all(map(torch.equal, before, after))


def flip(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def renamed(content):
    return content.replace(b"model.norm.gain", b"model.norm.gone")


def at_step_8(content):
    return re.sub(rb'(step[\\"]+: )7', rb"\g<1>8", content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-100],
        lambda content: content + b"0",
        lambda content: content[:50],
        lambda content: b"",
        lambda content: b"not a checkpoint at all",
        lambda content: pickle.dumps({"model": [1, 2]}),
        lambda content: flip(content, len(content) - 1000),
        lambda content: flip(content, 40),
        renamed,
        at_step_8,
    ],
)
def test_a_damaged_checkpoint_is_named_and_nothing_changes(path, damage):
    content = path.read_bytes()
    assert damage(content) != content
    path.write_bytes(damage(content))
    check_refused(path, fresh(seed=1), "run.safetensors is damaged, or .*: delete it")


@pytest.mark.parametrize(
    "header", [None, {"companion": "{}"}, {"companion": '[2, "a", "{}"]'}]
)
def test_a_file_of_another_program_or_an_older_version_is_named(path, header):
    save_file({"model.x": torch.ones(3)}, path, header)
    check_refused(path, fresh(), "not a checkpoint of this version .*: delete it")


def test_a_checkpoint_gives_back_weights_generator_and_facts(path):
    (model, _, generator), other = fresh(), fresh(seed=1)
    assert load_checkpoint(str(path), *other) == {"step": 7}
    assert all(map(torch.equal, model.parameters(), other[0].parameters()))
    drawn = [torch.rand(3, generator=one) for one in (generator, other[2])]
    assert torch.equal(*drawn)
    assert [p.name for p in path.parent.iterdir()] == ["run.safetensors"]


def test_other_programs_can_read_the_weights(path):
    with safe_open(path, "pt") as file:
        weight = file.get_tensor("model.embedding.weight")
    assert torch.equal(weight, fresh()[0].embedding.weight)


def test_buffers_and_tied_and_turned_weights_are_kept(tmp_path):
    def make(seed):
        generator = seeded(seed)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        model[0].weight.data = random(4, 4, seed=seed).mT
        return model, torch.optim.SGD(model.parameters()), generator

    (model, *others), again = make(0), make(1)
    model(random(9, 4))
    save_checkpoint(tmp_path / "x", model, *others)
    load_checkpoint(tmp_path / "x", *again)
    right, found = model.state_dict(), again[0].state_dict()
    assert all(torch.equal(right[name], found[name]) for name in right)
    assert found["1.running_mean"].any()


def test_facts_may_have_any_name(path):
    facts = {"parameters": {"x": [3]}, "numbers": 5, "facts": "f", "sha256": "0" * 64}
    save_checkpoint(path, *fresh(), **facts)
    assert load_checkpoint(path, *fresh()) == facts


def muon_with_half_the_momentum(model):
    """Only its first group differs."""
    made = muon(model)
    made.param_groups[0]["momentum"] = 0.5
    return made


OPTIMIZERS = {
    "muon": muon,
    "muon with half the momentum": muon_with_half_the_momentum,
    "AdamW": lambda model: AdamW(model.parameters()),
    "AdamW of some": lambda model: AdamW([*model.parameters()][:-1]),
    "PyTorch's AdamW": lambda model: torch.optim.AdamW(model.parameters()),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), momentum=0.9),
}


def stepped(kind, n_steps, path=None):
    """A model and its optimizer after some steps, or as they lie in a checkpoint."""
    what = fresh(kind=OPTIMIZERS[kind])
    if path:
        load_checkpoint(path, *what)
    tokens = torch.randint(65, (1000,), generator=seeded(1))
    how = {"batch_size": 2, "context_length": 8, "n_steps": n_steps}
    train(*what[:2], batches(tokens, **how, generator=what[2]))
    return what


@pytest.mark.parametrize("kind", ["muon", "AdamW", "PyTorch's AdamW", "SGD"])
def test_any_optimizer_goes_on_to_the_same_bits(path, kind):
    save_checkpoint(path, *stepped(kind, 3))
    straight, resumed = stepped(kind, 6), stepped(kind, 3, path)
    assert all(map(torch.equal, everything(*straight), everything(*resumed)))


@pytest.mark.parametrize("kind", [name for name in OPTIMIZERS if name != "muon"])
def test_the_checkpoint_of_another_optimizer_is_refused(path, kind):
    save_checkpoint(path, *stepped("muon", 2))
    words = "of another optimizer: .* there and .* here"
    check_refused(path, stepped(kind, 1), words)


def test_the_checkpoint_of_more_parameters_is_refused(path):
    save_checkpoint(path, *stepped("AdamW", 2))
    words = "of another optimizer: group of unembedding.weight is 0 there and missing"
    check_refused(path, stepped("AdamW of some", 1), words)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"d_model": 64}, "d_model is 32 there and 64 here"),
        ({"activation": "gelu"}, "activation is squared_relu there and gelu here"),
        ({"rotary_base": 500}, "rotary_base is 10000 there and 500 here"),
        ({"normalize": False}, "normalize is True there and False here"),
    ],
)
def test_the_checkpoint_of_another_model_is_refused_by_name(path, change, words):
    other = fresh(replace(TINY, **change))
    check_refused(path, other, f"of another model: {words}; give another path")


def test_a_model_without_a_config_is_known_by_its_tensors(path):
    models = [nn.Linear(4, n, bias=False) for n in (4, 5)]
    what = [(m, torch.optim.SGD(m.parameters()), seeded()) for m in models]
    save_checkpoint(path, *what[0])
    words = r"shape of weight is \[4, 4\] there and \[5, 4\] here"
    check_refused(path, what[1], words)


def test_facts_that_differ_are_named(path):
    save_checkpoint(path, *fresh(), recipe={"warmup": 3, "seed": 0})
    words = "of another recipe: warmup is 3 there and 4 here"
    check_refused(path, fresh(), words, recipe={"warmup": 4, "seed": 0})
    words = "of another recipe: seed is 0 there and missing here"
    check_refused(path, fresh(), words, recipe={"warmup": 3})
    load_checkpoint(path, *fresh(), recipe={"warmup": 3, "seed": 0})


def test_the_same_run_is_the_same_file(tmp_path):
    paths = [tmp_path / f"{i}" for i in range(5)]
    for path in paths:
        save_checkpoint(path, *stepped("muon", 1), step=1, b=2, a=3)
    assert len({path.read_bytes() for path in paths}) == 1


def test_where_it_can_not_be_written_the_old_file_stays(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="step is torch.float32 of shape"):
        save_checkpoint(path, *fresh(), step=torch.ones(2))
    assert path.read_bytes() == before


def sharded(seed):
    model, generator = GPT(TINY, seeded(seed)), seeded(seed)
    shard(model, 2)
    return model, muon(model), generator


def share(folder: Path):
    process = Process.this("cpu")
    with process.joined():
        ours, theirs = sharded(0), sharded(1)
        tokens = torch.arange(32).view(2, 16)[process.rank, None]
        train(*ours[:2], [(tokens, tokens)] * 2)
        save_checkpoint(folder / str(process.rank), *ours)
        dist.barrier()  # the file of the first is there
        load_checkpoint(folder / "0", *theirs)
        for one, other in zip(everything(*ours), everything(*theirs), strict=True):
            assert type(one) is type(other)
            assert torch.equal(full_tensor(one), full_tensor(other))


def test_sharded_parts_come_back_and_only_the_first_process_writes(tmp_path):
    together(2, share, tmp_path / "made/too")
    assert [path.name for path in (tmp_path / "made/too").iterdir()] == ["0"]
