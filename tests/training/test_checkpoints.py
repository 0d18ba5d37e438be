"""A bad file is named and changes nothing; a good one gives back everything."""

import json
import math
import pickle
import re
import sys
import types
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from common import random, seeded
from processes import together
from safetensors import safe_open
from safetensors.torch import load, save, save_file
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
from companion.pretrained.quantized import PackedLinear, prepack
from companion.tensor_files import pack_tensors, unpack_tensors
from companion.training.checkpoints import CheckpointError
from companion.training.parallel import ShardedAdamW
from companion.training.processes import Process, full_tensor, shard
from companion.training.resumable import Resumable

TINY = replace(RECIPES["fast"].config, d_model=32, n_layers=2)


def fresh(config=TINY, seed=0, make_optimizer=muon):
    """A model, its optimizer and a generator, as nobody has trained them."""
    generator = seeded(seed)
    model = GPT(config, generator)
    return model, make_optimizer(model), generator


@pytest.fixture
def path(tmp_path):
    """A checkpoint at step 7."""
    save_checkpoint(tmp_path / "run.safetensors", *fresh(), step=7)
    return tmp_path / "run.safetensors"


def everything(model, optimizer, generator) -> list[torch.Tensor]:
    """All that a checkpoint can change."""
    tensors = [*model.state_dict().values(), generator.get_state()]
    for p in model.parameters():
        if p in optimizer.state:
            tensors += [x for _, x in sorted(optimizer.state[p].items())]
    return [torch.as_tensor(x).clone() for x in tensors]


def check_refused(path, state, words, **expected):
    before = everything(*state)
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(path, *state, **expected)
    after = everything(*state)
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
    model, _, generator = fresh()
    other_model, other_optimizer, other_generator = fresh(seed=1)
    metadata = load_checkpoint(str(path), other_model, other_optimizer, other_generator)
    assert metadata == {"step": 7}
    assert all(map(torch.equal, model.parameters(), other_model.parameters()))
    drawn = torch.rand(3, generator=generator)
    assert torch.equal(drawn, torch.rand(3, generator=other_generator))
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
    loaded = again[0].state_dict()
    for name, x in model.state_dict().items():
        assert torch.equal(x, loaded[name])
    assert loaded["1.running_mean"].any()


def test_facts_may_have_any_name(path):
    save_checkpoint(
        path, *fresh(), parameters={"x": [3]}, numbers=5, metadata="m", sha256="0" * 64
    )
    assert load_checkpoint(path, *fresh()) == {
        "parameters": {"x": [3]},
        "numbers": 5,
        "metadata": "m",
        "sha256": "0" * 64,
    }
    load_checkpoint(path, *fresh(), parameters={"x": [3]})


def muon_with_half_the_momentum(model):
    """Only its first group differs."""
    optimizer = muon(model)
    optimizer.param_groups[0]["momentum"] = 0.5
    return optimizer


OPTIMIZERS = {
    "muon": muon,
    "muon with half the momentum": muon_with_half_the_momentum,
    "AdamW": lambda model: AdamW(model.parameters()),
    "AdamW of some": lambda model: AdamW([*model.parameters()][:-1]),
    "PyTorch's AdamW": lambda model: torch.optim.AdamW(model.parameters()),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), momentum=0.9),
}


def stepped(name, n_steps, path=None):
    """A model and its optimizer after some steps, or as they lie in a checkpoint."""
    model, optimizer, generator = fresh(make_optimizer=OPTIMIZERS[name])
    if path:
        load_checkpoint(path, model, optimizer, generator)
    train_on_random_tokens(model, optimizer, generator, n_steps)
    return model, optimizer, generator


def train_on_random_tokens(model, optimizer, generator, n_steps):
    tokens = torch.randint(65, (1000,), generator=seeded(1))
    drawn = batches(
        tokens, batch_size=2, context_length=8, n_steps=n_steps, generator=generator
    )
    train(model, optimizer, drawn)


@pytest.mark.parametrize("name", ["muon", "AdamW", "PyTorch's AdamW", "SGD"])
def test_any_optimizer_goes_on_to_the_same_bits(path, name):
    save_checkpoint(path, *stepped(name, 3))
    straight = stepped(name, 6)
    resumed = stepped(name, 3, path)
    assert all(map(torch.equal, everything(*straight), everything(*resumed)))


def two_groups(parameters: list) -> AdamW:
    """In the order in which they are given, but by number of axes."""
    groups = [[p for p in parameters if p.dim() == n] for n in (1, 2)]
    return AdamW([{"params": group} for group in groups if group])


@pytest.mark.parametrize("make", [AdamW, two_groups, torch.optim.AdamW])
def test_every_parameter_finds_its_own_state_in_whatever_order_they_are(path, make):
    """The layers are of one shape, so that a mistake would fit."""

    def of(order, n_steps):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
        optimizer = make(order([*model.parameters()]))
        batch = random(5, 4), random(5, 4, seed=1)
        train(model, optimizer, [batch] * n_steps, loss_function=nn.MSELoss())
        return model, optimizer, seeded()

    model, optimizer, generator = of(list, 3)
    save_checkpoint(path, model, optimizer, generator)
    loaded, loaded_optimizer, generator = of(lambda parameters: parameters[::-1], 1)
    load_checkpoint(path, loaded, loaded_optimizer, generator)
    for p, q in zip(model.parameters(), loaded.parameters(), strict=True):
        state = optimizer.state[p]
        loaded_state = loaded_optimizer.state[q]
        assert state.keys() == loaded_state.keys() and torch.equal(p, q)
        for key, x in state.items():
            assert torch.equal(torch.as_tensor(x), torch.as_tensor(loaded_state[key]))


def test_parameters_in_other_groups_are_another_optimizer(path):
    def of(n):
        model, _, generator = fresh()
        parameters = [*model.parameters()]
        groups = [{"params": parameters[:n]}, {"params": parameters[n:]}]
        return model, AdamW(groups), generator

    save_checkpoint(path, *of(3))
    check_refused(path, of(4), "another optimizer: group of .* is 1 there and 0 here")


@pytest.mark.parametrize("make", [AdamW, torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_of_the_same_name_from_elsewhere_is_another(path, make):
    class AdamW(make):  # of the same settings
        pass

    def of(optimizer_class):
        model, _, generator = fresh()
        return model, optimizer_class(model.parameters(), lr=0.1), generator

    AdamW.__module__, AdamW.__qualname__ = "elsewhere", "AdamW"
    sys.modules["elsewhere"] = types.SimpleNamespace(AdamW=AdamW)
    try:
        save_checkpoint(path, *of(make))
        words = r"of another optimizer: class is \S+ there and elsewhere.AdamW here"
        check_refused(path, of(AdamW), words)
    finally:
        del sys.modules["elsewhere"]


@pytest.mark.parametrize(
    "make",
    [
        muon,
        lambda model: AdamW(model.parameters(), weight_decay=0),
        lambda model: torch.optim.AdamW(model.parameters()),
    ],
    ids=["muon", "AdamW", "PyTorch's AdamW"],
)
def test_a_model_of_16_bits_goes_on_to_the_same_bits(path, make):
    """Its optimizer's running means have 32, which PyTorch rounds when it loads."""

    def steps(n_steps, path=None):
        model, _, generator = fresh()
        model.bfloat16()
        optimizer = make(model)
        if path:
            load_checkpoint(path, model, optimizer, generator)
        train_on_random_tokens(model, optimizer, generator, n_steps)
        return model, optimizer, generator

    save_checkpoint(path, *steps(3))
    assert all(map(torch.equal, everything(*steps(6)), everything(*steps(3, path))))
    of_32_bits = fresh(make_optimizer=make)
    check_refused(path, of_32_bits, r"dtype of \S+ is torch.bfloat16 there")


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "muon"])
def test_the_checkpoint_of_another_optimizer_is_refused(path, name):
    save_checkpoint(path, *stepped("muon", 2))
    words = "of another optimizer: .* there and .* here"
    check_refused(path, stepped(name, 1), words)


def test_the_checkpoint_of_more_parameters_is_refused(path):
    save_checkpoint(path, *stepped("AdamW", 2))
    words = "of another optimizer: group of unembedding.weight is 0 there and missing"
    check_refused(path, stepped("AdamW of some", 1), words)


@pytest.mark.parametrize(
    "config, words",
    [
        (replace(TINY, d_model=64), "d_model is 32 there and 64 here"),
        (
            replace(TINY, activation="gelu"),
            "activation is squared_relu there and gelu here",
        ),
        (replace(TINY, rotary_base=500), "rotary_base is 10000 there and 500 here"),
        (replace(TINY, qk_norm=False), "qk_norm is True there and False here"),
    ],
)
def test_the_checkpoint_of_another_model_is_refused_by_name(path, config, words):
    words = f"of another model: {words}; give another path"
    check_refused(path, fresh(config), words)


def test_a_model_without_a_config_is_known_by_its_tensors(path):
    def of(n):
        model = nn.Linear(4, n, bias=False)
        return model, torch.optim.SGD(model.parameters()), seeded()

    save_checkpoint(path, *of(4))
    words = r"shape of weight is \[4, 4\] there and \[5, 4\] here"
    check_refused(path, of(5), words)


def test_facts_that_differ_are_named(path):
    save_checkpoint(path, *fresh(), recipe={"warmup": 3, "seed": 0})
    words = "of another recipe: warmup is 3 there and 4 here"
    check_refused(path, fresh(), words, recipe={"warmup": 4, "seed": 0})
    words = "of another recipe: seed is 0 there and missing here"
    check_refused(path, fresh(), words, recipe={"warmup": 3})
    load_checkpoint(path, *fresh(), recipe={"warmup": 3, "seed": 0})


FACTS = {
    "a tuple": (0.9, (1, 2)),
    "not a number": math.nan,
    "infinity": -math.inf,
    "a number as a name": {1: [2.5]},
    "nothing": None,
    "a function": partial(muon, lr=(0.1, 0.2)),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_file_is_read_with_the_facts_that_it_was_written_with(path, name):
    save_checkpoint(path, *fresh(), recipe={"x": FACTS[name]})
    load_checkpoint(path, *fresh(), recipe={"x": FACTS[name]})
    for other in ({"x": 7}, {"x": "missing"}, {}):
        check_refused(path, fresh(), "another recipe: x is .* there", recipe=other)


def test_missing_is_not_none(path):
    save_checkpoint(path, *fresh(), recipe={"x": None})
    check_refused(path, fresh(), "x is None there and missing here", recipe={})
    save_checkpoint(path, *fresh(), recipe={})
    check_refused(path, fresh(), "x is missing there and None here", recipe={"x": None})


def test_an_expected_fact_that_is_no_dictionary_is_refused(path):
    with pytest.raises(ValueError, match="step is 7; it must be a dictionary"):
        load_checkpoint(path, *fresh(), step=7)
    save_checkpoint(path, *fresh(), recipe=5)
    check_refused(path, fresh(), "another recipe: x is missing", recipe={"x": 5})


def test_a_checkpoint_with_a_setting_of_another_name_is_refused_in_words(path):
    """As an older or a newer version of the package writes it."""
    model, *others = fresh()
    renamed_config = types.SimpleNamespace()
    renamed_config.__dict__.update(vars(model.config))
    renamed_config.formerly = renamed_config.__dict__.pop("qk_norm")
    model.config = renamed_config
    save_checkpoint(path, model, *others)
    words = "another model: formerly is True there and missing here; give another path"
    check_refused(path, fresh(), words)


@pytest.mark.parametrize(
    "name, x, words",
    [
        ("generator", torch.ones(3), "a generator of another device"),
        ("model.norm.gain", torch.ones(1), r"model.norm.gain is .* of shape \(1,\)"),
        ("model.norm.gain", torch.ones(32).int(), "model.norm.gain is torch.int32"),
        ("optimizer.nothing.mean", torch.ones(2), "no parameter here has the state"),
        ("odd", torch.ones(2), "no parameter here has the state 'odd'"),
    ],
)
def test_tensors_that_are_others_than_the_header_says_change_nothing(
    path, name, x, words
):
    tensors, header = unpack_tensors(path.read_bytes())
    path.write_bytes(pack_tensors(tensors | {name: x}, header))
    check_refused(path, fresh(seed=1), words)


def rewrite_header(path, change):
    """Change what a checkpoint's header says, and give it the SHA-256 that fits."""
    with safe_open(path, "pt") as file:
        _, header = json.loads(file.metadata()["companion"])
    change(header)
    blank = "0" * 64
    text = json.dumps([blank, header])
    data = save(load(path.read_bytes()), {"companion": text})
    digest = sha256(data).hexdigest()
    path.write_bytes(data.replace(blank.encode(), digest.encode(), 1))


OLD_NAMES = {
    "qk_norm": "normalize",
    "tie_embeddings": "tied",
    "scale_embeddings": "scaled",
}


def with_old_name(new):
    def change(header):
        header["model"][OLD_NAMES[new]] = header["model"].pop(new)

    return change


def with_old_engine(header):
    header["model"]["engine"] = "blocks"


def with_all_old_names(header):
    for new in OLD_NAMES:
        with_old_name(new)(header)
    header["facts"] = header.pop("metadata")


@pytest.mark.parametrize(
    "change, words",
    [
        (with_old_name("qk_norm"), "normalize is True there and missing here"),
        (with_old_name("scale_embeddings"), "scale_embeddings is missing there"),
        (with_old_name("tie_embeddings"), "tie_embeddings is missing there"),
        (with_old_engine, "engine is blocks there and fused here"),
    ],
)
def test_a_checkpoint_with_old_names_is_refused_by_what_is_to_be_done(
    path, change, words
):
    rewrite_header(path, change)
    words = f"another model: {words}.*; give another path, or delete it"
    check_refused(path, fresh(), words)


def test_a_checkpoint_as_the_older_version_wrote_it_is_to_be_made_anew(path):
    """What are metadata was called facts, and the settings had other names, too."""
    rewrite_header(path, lambda header: None)
    load_checkpoint(path, *fresh())
    rewrite_header(path, with_all_old_names)
    words = "not a checkpoint of this version .*: delete it, and train again"
    check_refused(path, fresh(), words)


def laid_out():
    model, _, generator = fresh()
    prepack(model)
    return model, AdamW(model.parameters()), generator


def packed():
    model, _, generator = fresh()
    layer = model.blocks[0].feed_forward
    layer.to_output = PackedLinear(layer.to_output.weight)
    return model, AdamW(model.parameters()), generator


def with_a_foreign_parameter():
    model, _, generator = fresh()
    stranger = nn.Parameter(torch.ones(3))
    return model, AdamW([*model.parameters(), stranger]), generator


def with_state_of_parts():
    """As ShardedAdamW, which keeps the running means of a part of each parameter."""
    model, optimizer, generator = fresh(make_optimizer=OPTIMIZERS["AdamW"])
    part = next(model.parameters()).detach()[:2]
    optimizer.state[part] = {"mean": torch.zeros_like(part)}
    return model, optimizer, generator


def on_meta():
    config = replace(TINY, dropout=0.0)
    with torch.device("meta"):
        model = GPT(config)
    return model, AdamW(model.parameters()), seeded()


@pytest.mark.parametrize(
    "make, words",
    [
        (laid_out, "to_queries is a PrepackedLinear, whose weights"),
        (packed, "blocks.0.feed_forward.to_output is a PackedLinear, whose weights"),
        (with_a_foreign_parameter, r"AdamW holds a parameter of shape \(3,\)"),
        (with_state_of_parts, "AdamW keeps state of .* no parameter of the model"),
        (on_meta, "which a checkpoint can't hold"),
    ],
)
def test_what_a_file_can_not_hold_is_refused_and_the_old_one_stays(path, make, words):
    if make is laid_out and not torch.backends.mkldnn.is_available():
        pytest.skip("no oneDNN")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=words):
        save_checkpoint(path, *make())
    assert path.read_bytes() == before


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
    process = Process.current("cpu")
    with process.joined():
        saved = sharded(0)
        loaded = sharded(1)
        tokens = torch.arange(32).view(2, 16)[process.rank, None]
        model, optimizer, _ = saved
        train(model, optimizer, [(tokens, tokens)] * 2)

        dealt = GPT(TINY, seeded())
        parts = ShardedAdamW(dealt.parameters())
        train(dealt, parts, [(tokens, tokens)])
        with pytest.raises(ValueError, match="ShardedAdamW keeps state of"):
            save_checkpoint(folder / "dealt", dealt, parts, seeded())

        save_checkpoint(folder / str(process.rank), *saved)
        dist.barrier()  # the file of the first is there
        load_checkpoint(folder / "0", *loaded)
        for x, y in zip(everything(*saved), everything(*loaded), strict=True):
            assert type(x) is type(y)
            assert torch.equal(full_tensor(x), full_tensor(y))


def test_sharded_parts_come_back_and_only_the_first_process_writes(tmp_path):
    together(2, share, tmp_path / "made/too")
    assert [path.name for path in (tmp_path / "made/too").iterdir()] == ["0"]


@pytest.mark.parametrize("name", ["step", "path", "model", "generator", "recipe"])
def test_a_note_with_a_name_that_is_taken_is_refused_and_nothing_is_written(
    name, tmp_path
):
    settings = {"recipe": {"warmup": 3}}
    new = partial(
        Resumable,
        *fresh(),
        n_steps=9,
        factor=lambda step: 1.0,
        path=tmp_path / "run",
        settings=settings,
    )
    run = new()
    run.step = 4
    run.notes["before"] = [0.5]
    run.save()
    run.notes[name] = 7
    written = (tmp_path / "run").read_bytes()
    with pytest.raises(ValueError, match=f"a note is called '{name}'"):
        run.save()
    assert (tmp_path / "run").read_bytes() == written
    again = new()
    assert (again.step, again.notes) == (4, {"before": [0.5]})
