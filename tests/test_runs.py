"""Whole runs: stopped, killed, resumed, refused, and shared among processes."""

import io
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from common import seeded, together, torchrun
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_pre_hook

from companion import RECIPES, muon, runs, train_recipe
from companion.checkpoints import read_checkpoint
from companion.processes import Process

HERE = Path(__file__).parent
TINY = replace(
    RECIPES["fast"],
    config=replace(RECIPES["fast"].config, d_model=32, n_layers=2, dropout=0.1),
    batch_size=4,
    n_steps=40,
)
SHORT = replace(RECIPES["plain"], n_steps=4)
RUN = f"""
import sys, torch
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from test_runs import TINY, train_recipe
torch.set_num_threads(1)
train_recipe(TINY, Path(sys.argv[1]), every=2, device="cpu", quiet=True)
"""
quietly = partial(train_recipe, device="cpu", quiet=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def start(path):
    return subprocess.Popen([sys.executable, "-c", RUN, str(path)])


def press(number=signal.SIGINT):
    signal.raise_signal(number)


@contextmanager
def stopping(step, press=press):
    """Ctrl-C falls in the optimizer's step of that number, counted from 1."""
    count = iter(range(1, 999))
    hook = register_optimizer_step_pre_hook(
        lambda *_: press() if next(count) == step else None
    )
    try:
        yield
    finally:
        hook.remove()


def step_in(path) -> int:
    return read_checkpoint(path)[1]["facts"]["step"]


def test_killed_at_any_moment_a_run_resumes_to_the_same_file(path, tmp_path):
    quietly(TINY, tmp_path / "straight")
    chance = random.Random(0)
    for _ in range(2):
        process = start(path)
        while not path.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        process.wait()
    quietly(TINY, path)
    assert (tmp_path / "straight").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("step", [1, 7, 40])
def test_ctrl_c_saves_the_step_it_fell_in_and_the_same_goes_on(step, path, tmp_path):
    quietly(TINY, tmp_path / "straight")
    with stopping(step):
        if step < TINY.n_steps:
            with pytest.raises(KeyboardInterrupt, match=f"after step {step}, from "):
                quietly(TINY, path)
        else:
            quietly(TINY, path)
    assert step_in(path) == step
    _, losses = quietly(TINY, path)
    assert len(losses) == TINY.n_steps - step
    assert (tmp_path / "straight").read_bytes() == path.read_bytes()


def test_ctrl_c_without_a_path_is_no_whole_run_and_says_that_nothing_is_kept(capsys):
    with stopping(3), pytest.raises(KeyboardInterrupt, match="nothing is kept"):
        quietly(TINY)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("n_times", [2, 3, 9])
def test_ctrl_c_many_times_still_saves_the_step_it_fell_in(n_times, path, tmp_path):
    """As of a key that is held down."""

    def often():
        for _ in range(n_times):
            press()

    quietly(replace(TINY, n_steps=5), tmp_path / "straight")
    with stopping(3, often), pytest.raises(KeyboardInterrupt, match="after step 3"):
        quietly(replace(TINY, n_steps=5), path)
    assert step_in(path) == 3
    quietly(replace(TINY, n_steps=5), path)
    assert (tmp_path / "straight").read_bytes() == path.read_bytes()


@pytest.fixture
def command(monkeypatch, tmp_path):
    """The command line, with a small model and a cache of its own."""
    monkeypatch.setattr(runs, "RECIPES", {"fast": TINY})
    monkeypatch.setattr(runs, "CACHE", tmp_path)
    monkeypatch.setattr(runs, "evaluate", lambda model, tokens: 1.25)
    return lambda words: runs.main(words.split())


def test_the_command_line_says_what_came_out_and_what_was_there(command, capsys):
    command("--steps 3 --device cpu")
    said = capsys.readouterr()
    assert said.out.startswith("validation loss 1.2500, checkpoint in ")
    assert said.out.endswith("fast-3.safetensors\n")
    assert "3/3" in said.err and re.search(r"loss \d\.\d{3}\]\n$", said.err)
    command("--steps 3 --device cpu")
    said = capsys.readouterr()
    assert said.out.startswith("already at step 3 of 3\nvalidation loss")
    assert said.err == ""


def test_a_stopped_command_says_once_what_there_is_to_go_on_from(command, capsys):
    with stopping(3), pytest.raises(SystemExit) as end:
        command("--device cpu")
    assert end.value.code == 130
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("stopped: run it again to go on after step 3, from ")
    assert step_in(said.split(", from ")[1]) == 3


@pytest.mark.parametrize(
    "words, message",
    [
        ("--steps 0", "--steps is 0; it must be 1 or more"),
        ("--steps -3", "--steps is -3"),
        ("--device cuda", "error: device is 'cuda', not in ['cpu']"),
        ("--checkpoint /dev/null/nowhere --device cpu", "error: "),
        ("--recipe slow", "invalid choice"),
        ("--steps many", "invalid int value"),
    ],
)
def test_the_command_line_ends_with_one_line_and_a_status(
    command, capsys, monkeypatch, words, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(SystemExit) as end:
        command(words)
    assert end.value.code not in (0, None) and "\n" not in str(end.value.code)
    assert message in f"{end.value.code} {capsys.readouterr().err}"


def test_the_package_is_a_command():
    command = [sys.executable, "-m", "companion", "train", "--steps", "-1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "--steps is -1; it must be" in done.stderr


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batch_size": 8}, "another recipe: batch_size is 4 there and 8 here"),
        ({"n_steps": 4}, "another recipe: n_steps is 3 there and 4 here"),
        ({"bfloat16": True}, "another recipe: bfloat16 is False there and True here"),
        (
            {"optimizer": partial(muon, lr=0.1)},
            r"recipe: optimizer is \S+\.muon there and .*muon.*'lr': 0.1.* here",
        ),
        (
            {"schedule": RECIPES["plain"].schedule},
            r"another recipe: schedule is \S+\.warmup_linear there and \S+cosine here",
        ),
        (
            {"config": replace(TINY.config, n_heads=2)},
            "another model: n_heads is 4 there and 2 here",
        ),
        ({"seed": 1}, "another recipe: seed is 0 there and 1 here"),
    ],
)
def test_resuming_by_another_recipe_or_seed_is_refused_by_name(path, change, message):
    recipe, seed = replace(TINY, n_steps=3), change.pop("seed", 0)
    quietly(recipe, path)
    before = path.read_bytes()
    bfloat16 = change.get("bfloat16", False)
    with pytest.raises(ValueError, match=message):
        quietly(replace(recipe, **change), path, seed=seed, bfloat16=bfloat16)
    assert path.read_bytes() == before


def test_every_step_and_process_has_its_own_dropout():
    seeds = set()
    for rank in (0, 1):
        run = runs.Run(TINY, 0, Process("cpu", rank, 2), None, False)
        with torch.random.fork_rng():
            for _ in run.batches():
                seeds.add(torch.initial_seed())
                run.step += 1
    assert len(seeds) == 2 * TINY.n_steps


def test_a_run_neither_reads_nor_moves_the_process_s_own_randomness():
    weights = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model, _ = quietly(replace(TINY, n_steps=3))
        weights.append([*model.parameters()])
        assert torch.equal(torch.rand(3), torch.rand(3, generator=seeded(seed)))
    assert all(map(torch.equal, *weights))


def test_a_bar_that_nobody_watches_is_a_few_lines():
    with redirect_stderr(io.StringIO()) as log:
        train_recipe(TINY, device="cpu")
    assert 1 <= log.getvalue().count("\r") <= 4
    assert "40/40" in log.getvalue()


def test_the_rates_and_the_steps_of_a_resumed_run_are_those_of_the_whole(path):
    with stopping(5), pytest.raises(KeyboardInterrupt):
        quietly(TINY, path)
    seen = []

    def note(optimizer, *_):
        seen.append([group["lr"] for group in optimizer.param_groups])

    hook = register_optimizer_step_pre_hook(note)
    _, losses = quietly(TINY, path)
    hook.remove()
    assert len(seen) == len(losses) == 35
    for step, rates in enumerate(seen, 5):
        factor = TINY.schedule(step, warmup=10, total=40)
        assert rates == pytest.approx([0.02 * factor, 0.01 * factor])


def test_a_compiled_run_has_the_checkpoint_of_a_plain_one(path, tmp_path):
    """Also on a machine without a compiler, so nothing is really compiled here."""
    recipe = replace(TINY, n_steps=3)
    with torch.compiler.set_stance("force_eager"):
        quietly(recipe, path, compiled=True)
    quietly(recipe, tmp_path / "plain")
    assert path.read_bytes() == (tmp_path / "plain").read_bytes()


def test_a_recipe_s_bfloat16_is_used_where_it_is_faster(monkeypatch):
    for faster in (True, False):
        monkeypatch.setattr(
            runs, "bfloat16_is_faster", lambda device, is_it=faster: is_it
        )
        recipe = replace(TINY, n_steps=1, bfloat16=True)
        loss, plain = (quietly(recipe, bfloat16=how)[1] for how in (None, False))
        assert (loss != plain) == faster


def test_a_run_in_bfloat16_follows_the_one_in_float32():
    """It can't if autocast keeps the weights that it has once converted."""
    config = replace(TINY.config, dropout=0.0)
    recipe = replace(TINY, config=config, batch_size=8, n_steps=60)
    halves, wholes = (quietly(recipe, bfloat16=half)[1] for half in (True, False))
    assert wholes[-1] < wholes[0] - 1
    assert halves[-1] == pytest.approx(wholes[-1], abs=0.05)
    assert halves != wholes


@pytest.mark.parametrize(
    "change", [{"batch_size": 0}, {"n_steps": 0}, {"warmup": -1}, {"floor": 2.0}]
)
def test_a_recipe_of_impossible_numbers_is_refused(change):
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        quietly(replace(TINY, **change))


@pytest.mark.parametrize("how", ["processes", "sharded, by torchrun"])
def test_two_processes_go_on_with_what_one_began(how, path, tmp_path):
    one = tmp_path / "one"
    quietly(SHORT, one)
    with stopping(2), pytest.raises(KeyboardInterrupt):
        quietly(SHORT, path)
    if how == "processes":
        together(2, quietly, SHORT, path)
    else:
        what = "-m companion train --recipe plain --steps 4 --device cpu --shard"
        done = torchrun(2, *what.split(), "--checkpoint", str(path))
        assert done.returncode == 0, done.stderr
    model, losses = quietly(SHORT, path)
    assert losses == []
    right, ours = load_file(one), load_file(path)
    assert right.keys() == ours.keys()
    for name in right:
        if not name.startswith("generator"):
            torch.testing.assert_close(ours[name], right[name], rtol=0, atol=1e-5)
    torch.testing.assert_close(model.norm.gain, ours["model.norm.gain"])


def test_a_batch_that_processes_can_not_share_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="3 processes can't share a batch of 4"):
        quietly(TINY)
