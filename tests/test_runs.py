"""Whole runs: stopped, killed, resumed, refused, and shared among processes."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from common import seeded
from safetensors.torch import load_file

from companion import RECIPES, muon, run, runs, save_checkpoint
from companion.processes import Process
from companion.training import train

HERE = Path(__file__).parent
TINY = replace(
    RECIPES["fast"],
    config=replace(RECIPES["fast"].config, d_model=32, n_layers=2, dropout=0.1),
    batch_size=4,
    n_steps=40,
)
CALM = replace(TINY, config=replace(TINY.config, dropout=0.0), n_steps=12)
RUN = f"""
import sys, torch
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from test_runs import TINY
from companion import run
torch.set_num_threads(1)
run(TINY, Path(sys.argv[1]), every=2, device="cpu", quiet=True)
"""
quietly = partial(run, device="cpu", quiet=True)


def start(path, script=RUN):
    return subprocess.Popen([sys.executable, "-c", script, str(path)])


def stop_at(step, press=lambda: signal.raise_signal(signal.SIGINT)):
    """Press Ctrl-C within the optimizer's step of that number, counted from 1."""
    steps = []

    def optimizer(model):
        made = muon(model)
        update = made.step

        def pressed():
            steps.append(1)
            if len(steps) == step:
                press()
            update()

        made.step = pressed
        return made

    optimizer.__name__ = "muon"
    return replace(TINY, optimizer=optimizer)


def test_killed_at_any_moment_a_run_resumes_to_the_same_file(tmp_path):
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    assert start(whole).wait() == 0
    chance = random.Random(0)
    n_kills = 0
    while n_kills < 3:
        process = start(cut)
        while not cut.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.25))
        process.kill()
        if process.wait() == 0:
            break
        n_kills += 1
    assert n_kills
    assert start(cut).wait() == 0
    assert whole.read_bytes() == cut.read_bytes()


@pytest.mark.parametrize("step", [1, 7, 40])
def test_ctrl_c_saves_the_step_it_fell_in_and_the_same_goes_on(tmp_path, step):
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    quietly(TINY, whole)
    recipe = stop_at(step)
    if step < TINY.n_steps:
        with pytest.raises(KeyboardInterrupt, match=f"after {step} steps.*{cut.name}"):
            quietly(recipe, cut)
    else:
        quietly(recipe, cut)
    _, losses = quietly(TINY, cut)
    assert len(losses) == TINY.n_steps - step
    assert whole.read_bytes() == cut.read_bytes()


def test_ctrl_c_without_a_path_is_no_whole_run_either():
    with pytest.raises(KeyboardInterrupt, match="after 3 steps: not kept"):
        quietly(stop_at(3))


def test_ctrl_c_twice_ends_at_once():
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stopped:
        quietly(stop_at(3, twice))
    assert not stopped.value.args


def test_outside_a_run_ctrl_c_is_python_s_again():
    quietly(replace(TINY, n_steps=1))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def command(*words, **environment):
    how = {"capture_output": True, "text": True, "timeout": 120}
    how |= {"env": os.environ | {"OMP_NUM_THREADS": "1"} | environment}
    return subprocess.run([sys.executable, "-m", "companion", *words], **how)


def test_the_command_line_reports_a_finished_run_and_where_it_lies(tmp_path):
    words = "train --recipe fast --steps 2 --device cpu".split()
    done = command(*words, COMPANION_CACHE=cache(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "validation loss" in done.stdout
    assert "fast-2.safetensors" in done.stdout
    assert (tmp_path / "fast-2.safetensors").exists()


def cache(folder):
    """A cache folder of its own, with the data of the real one."""
    (folder / "tinyshakespeare.txt").write_bytes(
        runs.CACHE.joinpath("tinyshakespeare.txt").read_bytes()
    )
    return str(folder)


INTERRUPTED = """
import signal
from companion import runs
signal.signal(signal.SIGINT, signal.default_int_handler)
train = runs.train
def stopped(model, optimizer, batches, **how):
    def note(step, loss):
        on_step(step, loss)
        if step == 3:
            signal.raise_signal(signal.SIGINT)
    on_step = how.pop("on_step")
    return train(model, optimizer, batches, on_step=note, **how)
runs.train = stopped
runs.main("--recipe fast --steps 9 --device cpu".split())
"""


def test_a_stopped_command_says_how_to_go_on_and_reports_no_loss(tmp_path):
    environment = os.environ | {"COMPANION_CACHE": cache(tmp_path)}
    how = {"capture_output": True, "text": True, "env": environment, "timeout": 120}
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], **how)
    assert done.returncode == 130, done.stderr
    assert "stopped after 4 steps" in done.stdout and "to go on" in done.stdout
    assert "validation" not in done.stdout and "Traceback" not in done.stderr
    assert (tmp_path / "fast-9.safetensors").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batch_size": 8}, "another recipe: batch_size is 4 there and 8 here"),
        ({"n_steps": 41}, "another recipe: n_steps is 40 there and 41 here"),
        ({"warmup": 3}, "another recipe: warmup is 10 there and 3 here"),
        ({"bfloat16": True}, "another recipe: bfloat16 is False there and True here"),
        (
            {"optimizer": partial(muon, weight_decay=0.1)},
            "another optimizer: group 0 .*weight_decay.* 0.0.* there and .* 0.1.* here",
        ),
        (
            {"optimizer": partial(muon, lr=0.1)},
            "another recipe: optimizer is muon there and .*'lr': 0.1.* here",
        ),
        (
            {"schedule": RECIPES["plain"].schedule},
            "another recipe: schedule is warmup_linear there and warmup_cosine here",
        ),
        (
            {"config": replace(TINY.config, n_heads=2)},
            "another model: n_heads is 4 there and 2 here",
        ),
    ],
)
def test_resuming_by_another_recipe_is_refused_by_name(tmp_path, change, message):
    path = tmp_path / "run.safetensors"
    quietly(TINY, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        quietly(replace(TINY, **change), path)
    assert path.read_bytes() == before


def test_resuming_with_another_seed_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    quietly(replace(TINY, n_steps=2), path)
    with pytest.raises(ValueError, match="another recipe: seed is 0 there and 1 here"):
        quietly(replace(TINY, n_steps=2), path, seed=1)


def test_a_second_run_on_one_checkpoint_is_refused_and_harms_nothing(tmp_path):
    path = tmp_path / "run.safetensors"
    process = start(path)
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)
    with pytest.raises(ValueError, match="another run is writing .*run.safetensors"):
        quietly(TINY, path)
    assert process.wait() == 0
    assert quietly(TINY, path)[1] == []


def test_a_lock_left_by_a_killed_run_is_no_obstacle(tmp_path):
    path = tmp_path / "run.safetensors"
    (tmp_path / ".run.safetensors.lock").touch()
    quietly(replace(TINY, n_steps=1), path)
    assert path.exists()


def test_a_run_neither_reads_nor_moves_the_process_s_own_randomness(tmp_path):
    weights = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model, _ = quietly(replace(TINY, n_steps=3))
        weights.append([*model.parameters()])
        assert torch.equal(torch.rand(3), torch.rand(3, generator=seeded(seed)))
    assert all(map(torch.equal, *weights))


def test_a_bar_that_nobody_watches_is_a_few_lines(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    run(TINY, device="cpu")
    assert 1 <= log.getvalue().count("\r") <= 4
    assert "40/40" in log.getvalue()


def test_the_step_in_a_message_counts_from_the_start_of_the_run(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        quietly(stop_at(5), path)

    def broken(model, optimizer, batches, *, first, **how):
        batches = ((x, y.masked_fill(y >= 0, -100)) for x, y in batches)
        return train(model, optimizer, batches, first=first, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "train", broken)
        with pytest.raises(ValueError, match="at step 5"):
            quietly(TINY, path)


def in_two_processes(*words: str) -> None:
    """torchrun, two processes on this machine."""
    torchrun = "-m torch.distributed.run --rdzv-backend c10d --local-addr 127.0.0.1"
    torchrun += " --rdzv-endpoint 127.0.0.1:0 --nproc-per-node 2"
    command = [sys.executable, *torchrun.split(), *words]
    subprocess.run(command, check=True, timeout=120)


def same_weights(one, two, atol=1e-5):
    right, ours = load_file(one), load_file(two)
    assert right.keys() == ours.keys()
    for name in right:
        if name.startswith("model."):
            torch.testing.assert_close(ours[name], right[name], rtol=0, atol=atol)


@pytest.mark.parametrize("more", [[], ["--shard"]])
def test_two_processes_follow_one(tmp_path, more):
    paths = [str(tmp_path / f"{n}.safetensors") for n in (1, 2)]
    options = "-m companion train --recipe plain --steps 4 --device cpu --checkpoint"
    one = [sys.executable, *options.split(), paths[0]]
    subprocess.run(one, check=True, timeout=120)
    in_two_processes(*options.split(), paths[1], *more)
    same_weights(*paths)


def test_a_sharded_run_goes_on_from_one_process_and_one_reads_what_it_wrote(tmp_path):
    paths = [tmp_path / f"{n}.safetensors" for n in (1, 2)]
    quietly(CALM, paths[0])
    with pytest.raises(KeyboardInterrupt):
        quietly(replace(CALM, optimizer=stop_at(5).optimizer), paths[1])
    script = RUN.replace("TINY", "CALM").replace(
        "quiet=True", "quiet=True, sharded=True"
    )
    (tmp_path / "script.py").write_text(script, "utf-8")
    in_two_processes(str(tmp_path / "script.py"), str(paths[1]))
    same_weights(*paths, atol=1e-3)
    model, losses = quietly(CALM, paths[1])
    assert losses == []
    ours = load_file(paths[1])
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, ours[f"model.{name}"])


@pytest.mark.parametrize(
    "words, message",
    [
        ("--steps 0", "error: n_steps is 0; it must be 1 or more"),
        ("--steps -3", "error: n_steps is -3"),
        ("--device cuda", "error: "),
        ("--checkpoint /dev/null/nowhere", "error: "),
        ("--recipe slow", "invalid choice"),
        ("--steps many", "invalid int value"),
    ],
)
def test_the_command_line_ends_with_one_line_and_a_status(capsys, words, message):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit) as end:
        runs.main(["--recipe", "plain", *words.split()])
    assert end.value.code not in (0, None)
    said = f"{end.value.code} {capsys.readouterr().err}"
    assert message in said and "\n" not in str(end.value.code)


def test_an_unknown_command_is_named():
    done = command("fetch")
    assert done.returncode == 1 and "'fetch' is not a command" in done.stderr


@pytest.mark.parametrize("step", [None, -1, 41, "7"])
def test_a_checkpoint_at_an_impossible_step_is_refused(tmp_path, step):
    path = tmp_path / "run.safetensors"
    here = runs.Run(TINY, 0, Process("cpu", 0, 1), None)
    facts = TINY.facts(0) if step is None else TINY.facts(0) | {"step": step}
    save_checkpoint(path, here.model, here.optimizer, here.generator, **facts)
    with pytest.raises(ValueError, match=f"at step {step} of 40: delete it"):
        quietly(TINY, path)


@pytest.mark.parametrize("change", [{"batch_size": 0}, {"n_steps": 0}, {"warmup": -1}])
def test_a_recipe_of_no_steps_or_sizes_is_refused(change):
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        replace(TINY, **change)


def test_a_compiled_run_has_the_checkpoint_of_a_plain_one(tmp_path):
    """Also on a machine without a compiler, so nothing is really compiled here."""
    with torch.compiler.set_stance("force_eager"):
        model, losses = quietly(CALM, tmp_path / "one", compiled=True)
    expected, expected_losses = quietly(CALM, tmp_path / "other")
    assert losses == expected_losses
    assert load_file(tmp_path / "one").keys() == load_file(tmp_path / "other").keys()
    again, _ = quietly(CALM, tmp_path / "one")
    for ours, theirs in zip(again.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)
