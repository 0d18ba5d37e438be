"""A bad file is named and left alone; a good one gives back everything."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import save_file

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

TINY = replace(RECIPES["fast"].config, d_model=32, n_layers=2)


def checkpoint(tmp_path, config=TINY):
    generator = torch.Generator().manual_seed(0)
    model = GPT(config, generator)
    path = tmp_path / "run.safetensors"
    optimizer = muon(model)
    save_checkpoint(path, model, optimizer, generator, step=7)
    return path, model, optimizer, generator


def test_a_checkpoint_gives_back_everything(tmp_path):
    path, model, _, generator = checkpoint(tmp_path)
    other = GPT(TINY, torch.Generator().manual_seed(1))
    again = torch.Generator().manual_seed(1)
    assert load_checkpoint(path, other, muon(other), again) == {"step": 7}
    for ours, right in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, right) and ours.stride() == right.stride()
    assert torch.equal(
        torch.rand(3, generator=generator), torch.rand(3, generator=again)
    )
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_the_header(path):
    path.write_bytes(path.read_bytes()[:50])


def alter(path):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


def alter_the_header(path):
    content = path.read_bytes()
    changed = re.sub(rb'(step[\\"]+: )7', rb"\g<1>8", content)
    assert changed != content
    path.write_bytes(changed)


def rename_a_tensor(path):
    content = path.read_bytes()
    path.write_bytes(content.replace(b"model.norm.gain", b"model.norm.gone"))


def make_old(path):
    """The header of this package's first form."""
    save_file({"model.x": torch.ones(3)}, path, {"companion": "{}", "sha256": "0"})


def make_empty(path):
    path.write_bytes(b"")


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_foreign(path):
    save_file({"model.x": torch.ones(3)}, path)


def make_text(path):
    path.write_text("not a checkpoint at all")


@pytest.mark.parametrize(
    "damage, words",
    [
        (truncate, "not a whole checkpoint"),
        (cut_in_the_header, "not a whole checkpoint"),
        (alter, "was altered.*train again"),
        (alter_the_header, "was altered.*train again"),
        (rename_a_tensor, "was altered.*train again"),
        (make_old, "another version.*train again"),
        (make_empty, "not a whole checkpoint.*train again"),
        (make_folder, "not a whole checkpoint"),
        (make_foreign, "not a checkpoint of this package"),
        (make_text, "not a whole checkpoint"),
    ],
)
def test_a_bad_checkpoint_is_named_and_nothing_changes(tmp_path, damage, words):
    path, model, optimizer, generator = checkpoint(tmp_path)
    damage(path)
    weights = [p.detach().clone() for p in model.parameters()]
    state = generator.get_state()
    with pytest.raises(ValueError, match=f"run.safetensors.* {words}"):
        load_checkpoint(path, model, optimizer, generator)
    assert torch.equal(generator.get_state(), state) and not optimizer.state
    for now, before in zip(model.parameters(), weights, strict=True):
        assert torch.equal(now, before)


def test_a_checkpoint_of_other_sizes_is_named(tmp_path):
    path, *_ = checkpoint(tmp_path)
    other = GPT(replace(TINY, d_model=64), torch.Generator())
    with pytest.raises(
        ValueError, match="of another model: d_model is 32 there and 64 here"
    ):
        load_checkpoint(path, other, muon(other), torch.Generator())


OPTIMIZERS = {
    "muon": muon,
    "muon by other numbers": lambda model: muon(model, momentum=0.5),
    "AdamW": lambda model: AdamW(model.parameters()),
    "AdamW of some": lambda model: AdamW([*model.parameters()][:-1]),
    "PyTorch's AdamW": lambda model: torch.optim.AdamW(model.parameters()),
    "Adam": lambda model: torch.optim.Adam(model.parameters()),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), momentum=0.9),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters()),
}


def stepped(kind, n_steps, path=None):
    """A model and its optimizer after some steps, or as they lie in a checkpoint."""
    generator = torch.Generator().manual_seed(0)
    model = GPT(TINY, generator)
    optimizer = OPTIMIZERS[kind](model)
    if path:
        load_checkpoint(path, model, optimizer, generator)
    tokens = torch.randint(65, (1000,), generator=torch.Generator().manual_seed(1))
    how = {"batch_size": 2, "context_length": 8, "n_steps": n_steps}
    train(model, optimizer, batches(tokens, **how, generator=generator))
    return model, optimizer, generator


@pytest.mark.parametrize("kind", [x for x in OPTIMIZERS if "some" not in x])
def test_any_optimizer_goes_on_to_the_same_bits(tmp_path, kind):
    path = tmp_path / "run.safetensors"
    save_checkpoint(path, *stepped(kind, 3))
    straight, resumed = stepped(kind, 6)[0], stepped(kind, 3, path)[0]
    assert all(map(torch.equal, straight.parameters(), resumed.parameters()))


@pytest.mark.parametrize("other", [name for name in OPTIMIZERS if name != "muon"])
def test_the_checkpoint_of_another_optimizer_is_refused_before_anything_changes(
    tmp_path, other
):
    path = tmp_path / "run.safetensors"
    save_checkpoint(path, *stepped("muon", 2))
    model, optimizer, generator = stepped(other, 1)
    before = [p.detach().clone() for p in model.parameters()]
    state = generator.get_state()
    with pytest.raises(ValueError, match="of another optimizer: .* there and .* here"):
        load_checkpoint(path, model, optimizer, generator)
    assert all(map(torch.equal, before, model.parameters()))
    assert torch.equal(generator.get_state(), state)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"n_heads": 2}, "n_heads is 4 there and 2 here"),
        ({"activation": "gelu"}, "activation is squared_relu there and gelu here"),
        ({"positions": "alibi"}, "positions is rotary there and alibi here"),
        ({"rotary_base": 500}, "rotary_base is 10000 there and 500 here"),
        ({"norm": "layer"}, "norm is rms there and layer here"),
        ({"context_length": 32}, "context_length is 64 there and 32 here"),
        ({"normalize": False}, "normalize is True there and False here"),
    ],
)
def test_the_checkpoint_of_another_model_is_refused_by_name(tmp_path, change, words):
    path, *_ = checkpoint(tmp_path)
    other = GPT(replace(TINY, **change), torch.Generator())
    with pytest.raises(ValueError, match=f"of another model: {words}"):
        load_checkpoint(path, other, muon(other), torch.Generator())


def test_facts_that_differ_are_named_and_nothing_changes(tmp_path):
    path, model, optimizer, generator = checkpoint(tmp_path)
    save_checkpoint(path, model, optimizer, generator, step=7, recipe={"warmup": 3})
    state = generator.manual_seed(5).get_state()
    with pytest.raises(ValueError, match="another recipe: warmup is 3 there and 4"):
        load_checkpoint(path, model, optimizer, generator, recipe={"warmup": 4})
    assert torch.equal(generator.get_state(), state)
    expected = {"recipe": {"warmup": 3}}
    facts = load_checkpoint(path, model, optimizer, generator, **expected)
    assert facts == {"step": 7} | expected


def test_the_same_run_is_the_same_file(tmp_path):
    paths = [tmp_path / f"{i}.safetensors" for i in range(9)]
    for path in paths:
        save_checkpoint(path, *stepped("muon", 1), step=1, b=2, a=3)
    assert len({path.read_bytes() for path in paths}) == 1


def test_a_checkpoint_is_on_the_disk_before_it_takes_the_place_of_another(tmp_path):
    order = []
    path, *what = checkpoint(tmp_path)
    sync, replaced = os.fsync, os.replace
    with (
        patch("os.fsync", lambda n: order.append("fsync") or sync(n)),
        patch("os.replace", lambda *x: order.append("replace") or replaced(*x)),
    ):
        save_checkpoint(path, *what)
    assert order == ["fsync", "replace"]


def test_a_path_may_be_text(tmp_path):
    path, *what = checkpoint(tmp_path)
    save_checkpoint(str(path), *what, step=8)
    assert load_checkpoint(str(path), *what) == {"step": 8}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_others_may_read_a_checkpoint_as_any_other_file(tmp_path):
    path, *_ = checkpoint(tmp_path)
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_link_still_leads_where_it_led(tmp_path):
    path, *what = checkpoint(tmp_path)
    link = tmp_path / "link"
    try:
        link.symlink_to(path)
    except OSError:
        pytest.skip("no links here")
    save_checkpoint(link, *what, step=8)
    assert link.is_symlink() and load_checkpoint(path, *what) == {"step": 8}


def test_what_a_killed_save_left_goes_and_another_s_does_not(tmp_path):
    path, *what = checkpoint(tmp_path)
    old, new = (tmp_path / f"run.safetensors.{i}.part" for i in (1, 2))
    old.touch()
    os.utime(old, (0, 0))
    new.touch()
    save_checkpoint(path, *what)
    assert new.exists() and not old.exists()


FULL = """
import resource, signal, sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from test_checkpoints import TINY, GPT, muon, save_checkpoint, torch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
generator = torch.Generator()
model = GPT(TINY, generator)
try:
    save_checkpoint(Path(sys.argv[1]), model, muon(model), generator)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of this kind there")
def test_where_there_is_no_room_the_old_file_stays(tmp_path):
    path, *_ = checkpoint(tmp_path)
    before = path.read_bytes()
    folder = str(__file__.rsplit("test_checkpoints", 1)[0])
    command = [sys.executable, "-c", FULL.format(folder=folder), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "could not be written" in done.stdout, done.stderr
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
