"""A run can be killed at any moment, and a bad file is named and left alone."""

import random
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from companion import GPT, RECIPES, load_checkpoint, muon, run, save_checkpoint

TINY = replace(
    RECIPES["fast"],
    config=replace(RECIPES["fast"].config, d_model=32, n_layers=2, dropout=0.1),
    batch_size=4,
    n_steps=40,
)
RUN = """
import sys, torch
from pathlib import Path
sys.path.insert(0, {folder!r})
from test_checkpoints import TINY
from companion import run
torch.set_num_threads(1)
torch.manual_seed(3)
run(TINY, Path(sys.argv[1]), every=2, device="cpu", quiet=True)
"""


def start(path):
    folder = str(__file__.rsplit("test_checkpoints", 1)[0])
    command = [sys.executable, "-c", RUN.format(folder=folder), str(path)]
    return subprocess.Popen(command)


def test_killed_at_any_moment_a_run_resumes_to_the_same_bits(tmp_path):
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    assert start(whole).wait() == 0
    chance = random.Random(0)
    n_kills = 0
    while n_kills < 3:
        process = start(cut)
        while not cut.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.25))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        n_kills += 1
    assert n_kills
    assert start(cut).wait() == 0
    right, ours = load_file(whole), load_file(cut)
    assert right.keys() == ours.keys()
    for name, tensor in right.items():
        assert torch.equal(tensor, ours[name]), name


def checkpoint(tmp_path, config=TINY.config):
    generator = torch.Generator().manual_seed(0)
    model = GPT(config, generator)
    path = tmp_path / "run.safetensors"
    optimizer = muon(model)
    save_checkpoint(path, model, optimizer, generator, step=7)
    return path, model, optimizer, generator


def test_a_checkpoint_gives_back_everything(tmp_path):
    path, model, _, generator = checkpoint(tmp_path)
    other = GPT(TINY.config, torch.Generator().manual_seed(1))
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


def make_foreign(path):
    save_file({"model.x": torch.ones(3)}, path)


def make_text(path):
    path.write_text("not a checkpoint at all")


@pytest.mark.parametrize(
    "damage, words",
    [
        (truncate, "not a whole checkpoint"),
        (cut_in_the_header, "not a whole checkpoint"),
        (alter, "was altered"),
        (make_foreign, "not a checkpoint of this package"),
        (make_text, "not a whole checkpoint"),
    ],
)
def test_a_bad_checkpoint_is_named_and_nothing_changes(tmp_path, damage, words):
    path, model, optimizer, generator = checkpoint(tmp_path)
    damage(path)
    content = path.read_bytes()
    weights = [p.detach().clone() for p in model.parameters()]
    state = generator.get_state()
    with pytest.raises(ValueError, match=f"run.safetensors.* {words}"):
        load_checkpoint(path, model, optimizer, generator)
    assert path.read_bytes() == content
    assert torch.equal(generator.get_state(), state) and not optimizer.state
    for now, before in zip(model.parameters(), weights, strict=True):
        assert torch.equal(now, before)


def test_a_checkpoint_of_other_sizes_is_named(tmp_path):
    path, *_ = checkpoint(tmp_path)
    other = GPT(replace(TINY.config, d_model=64), torch.Generator())
    with pytest.raises(
        ValueError, match=r"of another model: .* \(32, 32\) there and \(64, 64\) here"
    ):
        load_checkpoint(path, other, muon(other), torch.Generator())


def test_a_run_that_is_past_its_end_is_refused(tmp_path):
    path, *_ = checkpoint(tmp_path)
    with pytest.raises(ValueError, match="at step 7, past the 5 asked for"):
        run(replace(TINY, n_steps=5), path, device="cpu", quiet=True)


def test_two_processes_follow_one(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    paths = [tmp_path / f"{n}.safetensors" for n in (1, 2)]
    options = "-m companion.training --recipe plain --steps 4 --device cpu --checkpoint"
    torchrun = "-m torch.distributed.run --master-addr 127.0.0.1 --nproc-per-node 2"
    one = [sys.executable, *options.split(), str(paths[0])]
    two = [*torchrun.split(), f"--master-port={port}", *options.split(), str(paths[1])]
    subprocess.run(one, check=True, timeout=120)
    subprocess.run([sys.executable, *two], check=True, timeout=120)
    right, ours = load_file(paths[0]), load_file(paths[1])
    for name in right:
        if name.startswith("model."):
            torch.testing.assert_close(ours[name], right[name], rtol=0, atol=1e-5)
