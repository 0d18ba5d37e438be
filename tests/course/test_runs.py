"""Whole runs: stopped, killed, resumed, refused, and shared among processes."""

import io
import os
import random
import re
import signal
import subprocess
import sys
import time
import types
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from common import seeded
from ctrl_c import count_steps, press, press_twice, step_in, stopping
from limits import POSIX, files_of_at_most, handler
from processes import together, torchrun
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_pre_hook

from companion import RECIPES, AdamW, Recipe, muon, save_checkpoint, train_recipe
from companion.commands import train
from companion.course import runs
from companion.training.checkpoints import CheckpointError
from companion.training.processes import Process

HERE = Path(__file__).parent
POSIX_HERE = sys.platform != "win32"
TINY = replace(
    RECIPES["fast"],
    config=replace(RECIPES["fast"].config, d_model=32, n_layers=2, dropout=0.1),
    batch_size=4,
    n_steps=40,
    warmup=1,
)
SHORT = replace(RECIPES["plain"], n_steps=4, warmup=4)
RUN = f"""
import sys, torch
from pathlib import Path
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
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


def pressing_muon(model):
    """Ctrl-C while the run is being set up."""
    press()
    return muon(model)


def test_ctrl_c_while_a_run_is_set_up_keeps_what_was_there(path):
    recipe = replace(TINY, optimizer=pressing_muon, n_steps=9)
    for _ in range(2):
        with count_steps() as steps, pytest.raises(KeyboardInterrupt) as stop:
            quietly(recipe, path)
        assert len(steps) == 0 and not path.exists()
        assert f"there is no checkpoint in {path}" in str(stop.value)


@pytest.mark.parametrize("number", [signal.SIGTERM, getattr(signal, "SIGHUP", None)])
def test_a_signal_that_ends_a_process_waits_for_the_checkpoint(number, path):
    if number is None:
        pytest.skip("Windows has no SIGHUP")
    steps = []
    with handler(number, lambda *_: steps.append(step_in(path))):
        with stopping(3, lambda: press(number)), pytest.raises(KeyboardInterrupt):
            quietly(TINY, path)
    assert steps == [3]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX has signals")
def test_sigterm_ends_a_process_as_ever_and_no_part_stays(path):
    process = start(path)
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    assert process.wait() in (-signal.SIGTERM, 0)
    assert step_in(path) and [x.name for x in path.parent.iterdir()] == [path.name]


def test_ctrl_c_that_was_ignored_at_the_start_stays_ignored(path):
    """As by `nohup`, and by a shell's `&`."""
    with handler(signal.SIGINT, signal.SIG_IGN), stopping(2):
        _, losses = quietly(replace(TINY, n_steps=4), path)
    assert len(losses) == step_in(path) == 4


@POSIX
def test_a_disk_that_fills_up_keeps_the_last_checkpoint_and_says_which(path):
    with stopping(3), pytest.raises(KeyboardInterrupt):
        quietly(TINY, path)
    before = path.read_bytes()
    with files_of_at_most(len(before) // 2), pytest.raises(OSError) as error:
        quietly(TINY, path)
    assert f"to go on after step 3, from {path}" in str(error.value)
    assert [x.name for x in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_a_step_that_a_second_ctrl_c_breaks_off_is_told_with_what_is_kept(
    command, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(runs, "PATIENCE", 0)
    monkeypatch.setattr(train, "PATIENCE", 0)
    stops = [
        (1, "stopped: no step is whole, and there is no checkpoint in "),
        (3, "stopped: run it again to go on after step 1, from "),
    ]

    for step, words in stops:
        with stopping(step, press_twice), pytest.raises(SystemExit) as end:
            command("--device cpu --steps 9")
        assert end.value.code == 130
        assert capsys.readouterr().out.splitlines()[-1].startswith(words)
    quietly(replace(TINY, n_steps=9), tmp_path / "straight")
    command("--device cpu --steps 9")
    expected = (tmp_path / "straight").read_bytes()
    assert (tmp_path / "fast-9.safetensors").read_bytes() == expected


def test_ctrl_c_while_the_model_is_judged_says_that_the_run_is_whole(
    command, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(train, "evaluate", lambda *_: press())
    with pytest.raises(SystemExit) as end:
        command("--device cpu --steps 2")
    assert end.value.code == 130
    path = tmp_path / "fast-2.safetensors"
    said = capsys.readouterr().out
    assert said == f"stopped: all 2 steps are made, checkpoint in {path}\n"
    assert step_in(path) == 2


@pytest.mark.parametrize(
    "other, words",
    [
        (replace(TINY, batch_size=8), "another recipe: batch_size is 8 there and 4"),
        (
            replace(TINY, config=replace(TINY.config, n_heads=2)),
            "another model: n_heads is 2 there and 4 here",
        ),
    ],
)
def test_of_two_runs_into_one_file_one_stops_and_the_other_is_whole(
    other, words, path, tmp_path
):
    """The other begins and ends before the first has written anything."""
    other = replace(other, n_steps=3)
    quietly(other, tmp_path / "alone")
    with stopping(1, lambda: quietly(other, path)):
        with pytest.raises(ValueError, match=f"another run has written to .*{words}"):
            quietly(TINY, path)
    assert path.read_bytes() == (tmp_path / "alone").read_bytes()


def test_the_same_run_started_twice_ends_as_one(path, tmp_path):
    """As two chapters do that need a trained model at the same time."""
    recipe = replace(TINY, n_steps=5)
    quietly(recipe, tmp_path / "straight")
    with stopping(2, lambda: quietly(recipe, path)):
        quietly(recipe, path)
    assert path.read_bytes() == (tmp_path / "straight").read_bytes()


def test_what_is_deleted_while_a_run_goes_on_is_written_anew(path):
    with stopping(3, path.unlink):
        quietly(replace(TINY, n_steps=4), path)
    assert step_in(path) == 4


@POSIX
def test_a_disk_that_is_full_is_found_by_the_first_step(path):
    with files_of_at_most(10_000), count_steps() as steps:
        with pytest.raises(OSError, match="step 1 can't be saved .*no checkpoint"):
            quietly(TINY, path)
    assert len(steps) == 1 and not any(path.parent.iterdir())


def test_a_path_that_can_not_be_written_is_found_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    bad = [tmp_path / "file" / "below", tmp_path, Path(""), Path("/"), Path("..")]
    bad += ["", "."]
    if sys.platform == "linux":
        bad += [Path("/proc/run.safetensors"), Path("/dev/null")]
    for path in bad:
        with count_steps() as steps, pytest.raises(OSError):
            quietly(TINY, path)
        assert len(steps) == 0


def test_a_whole_run_needs_no_place_to_write(path):
    """As in a class's cache that is read-only."""
    recipe = replace(TINY, n_steps=2)
    quietly(recipe, path)
    with files_of_at_most(0) if POSIX_HERE else nullcontext():
        assert quietly(recipe, path)[1] == []


@POSIX
def test_a_linked_checkpoint_is_written_where_it_lies(path, tmp_path):
    path.symlink_to(tmp_path / "elsewhere")
    quietly(replace(TINY, n_steps=2), path)
    assert path.is_symlink() and step_in(tmp_path / "elsewhere") == 2


@contextmanager
def nobody_reads(monkeypatch, name):
    """A stream of this process is a pipe at whose other end nobody is any more."""
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    stream = open(writing_end, "w", buffering=1)
    monkeypatch.setattr(sys, name, stream)
    yield
    with pytest.raises(BrokenPipeError):
        stream.write("nobody reads this\n")
    with suppress(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_run_goes_on_where_nobody_reads_it(name, command, tmp_path, monkeypatch):
    with nobody_reads(monkeypatch, name):
        command("--steps 3 --device cpu")
    assert step_in(tmp_path / "fast-3.safetensors") == 3


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_run_goes_on_where_a_stream_is_closed(name, command, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, name, None)
    command("--steps 3 --device cpu")
    assert step_in(tmp_path / "fast-3.safetensors") == 3


@POSIX
def test_a_command_whose_reader_is_gone_ends_without_a_traceback():
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    command = [sys.executable, "-m", "companion", "train", "--help"]
    done = subprocess.run(
        command, stdout=writing_end, stderr=subprocess.PIPE, text=True
    )
    os.close(writing_end)
    # 128 + SIGPIPE's 13, as a shell says it; without a buffer argparse hides it.
    assert done.returncode in (0, 141) and done.stderr == ""


@pytest.fixture
def command(monkeypatch, tmp_path):
    """The command line, with a small model and a cache of its own."""
    monkeypatch.setattr(train, "RECIPES", {"fast": TINY})
    monkeypatch.setattr(train, "CACHE", tmp_path)
    monkeypatch.setattr(train, "evaluate", lambda model, tokens: 1.25)
    return lambda words: train.main(words.split())


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
    assert step_in(Path(said.split(", from ")[1])) == 3


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


THREE_STEPS = replace(TINY, n_steps=3)


@pytest.mark.parametrize(
    "other, seed, message",
    [
        (
            replace(THREE_STEPS, batch_size=8),
            0,
            "another recipe: batch_size is 4 there and 8 here",
        ),
        (
            replace(THREE_STEPS, n_steps=4),
            0,
            "another recipe: n_steps is 3 there and 4 here",
        ),
        (
            replace(THREE_STEPS, bfloat16=True),
            0,
            "another recipe: bfloat16 is False there and True here",
        ),
        (
            replace(THREE_STEPS, optimizer=partial(muon, lr=0.1)),
            0,
            r"recipe: optimizer is \S+\.muon there and .*muon.*'lr': 0.1.* here",
        ),
        (
            replace(THREE_STEPS, schedule=RECIPES["plain"].schedule),
            0,
            r"another recipe: schedule is \S+\.warmup_linear there and \S+cosine here",
        ),
        (
            replace(THREE_STEPS, config=replace(TINY.config, n_heads=2)),
            0,
            "another model: n_heads is 4 there and 2 here",
        ),
        (THREE_STEPS, 1, "another recipe: seed is 0 there and 1 here"),
    ],
)
def test_resuming_by_another_recipe_or_seed_is_refused_by_name(
    path, other, seed, message
):
    quietly(THREE_STEPS, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        quietly(other, path, seed=seed, bfloat16=other.bfloat16)
    assert path.read_bytes() == before


def test_a_checkpoint_without_a_step_is_no_run_s(path):
    recipe = replace(THREE_STEPS, n_steps=1)
    model, _ = quietly(recipe)
    settings = recipe.settings(0)
    save_checkpoint(path, model, muon(model), torch.Generator(), recipe=settings)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="without the number of its step"):
        quietly(recipe, path)
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
        factor = TINY.schedule(step, warmup=1, total=40)
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
        _, losses = quietly(recipe, bfloat16=None)
        _, plain_losses = quietly(recipe, bfloat16=False)
        assert (losses != plain_losses) == faster


def test_a_run_in_bfloat16_follows_the_one_in_float32():
    """It can't if autocast keeps the weights that it has once converted."""
    config = replace(TINY.config, dropout=0.0)
    recipe = replace(TINY, config=config, batch_size=8, n_steps=60)
    halves, wholes = (quietly(recipe, bfloat16=half)[1] for half in (True, False))
    learned = wholes[0] - wholes[-1]
    assert learned > 1
    # Weights that are kept stay at the start, and learn nothing.
    assert halves[0] - halves[-1] > 0.75 * learned
    assert halves != wholes


def of_two_modules(monkeypatch) -> list:
    """Two schedules of one name."""
    for name, factor in (("one", 1.0), ("two", 0.5)):
        module = types.ModuleType(name)
        exec(f"def schedule(step, warmup, total, floor): return {factor}", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
    return [sys.modules[name].schedule for name in ("one", "two")]


def scaled(factor, step, warmup, total, floor):
    """A schedule, once its factor is set."""
    return factor


def test_two_schedules_are_two_recipes_whatever_they_are_called(path, monkeypatch):
    nested = [partial(partial(scaled, x), floor=0.0) for x in (0.5, 0.25)]
    pairs = [
        of_two_modules(monkeypatch),
        [partial(scaled, 1.0), partial(scaled, 0.5)],
        nested,
        [partial(scaled, 1), scaled],
    ]
    for schedule, other in pairs:
        path.unlink(missing_ok=True)
        quietly(replace(TINY, n_steps=2, schedule=schedule), path)
        with pytest.raises(ValueError, match="another recipe: schedule is .* there"):
            quietly(replace(TINY, n_steps=2, schedule=other), path)
        assert quietly(replace(TINY, n_steps=2, schedule=schedule), path)[1] == []


class Constant:
    """What can be called, and has no name to be found by."""

    def __call__(self, step, **numbers):
        return 1.0

    def factor(self, step, **numbers):
        return 1.0


class AdamWs:
    def __call__(self, model):
        return AdamW(model.parameters())


def lambda_named_like_another():
    """It has the module and the name of one that is found there, and is another."""
    schedule = lambda step, **numbers: 1.0  # noqa: E731
    schedule.__module__ = __name__
    schedule.__qualname__ = "scaled"
    return schedule


def of_a_notebook(step, **numbers):
    return 1.0


of_a_notebook.__module__ = "__main__"


@pytest.mark.parametrize(
    "name, value",
    [
        ("schedule", lambda step, **numbers: 1.0),
        ("schedule", Constant()),
        ("schedule", Constant().factor),
        ("schedule", partial(lambda x, step, **numbers: x, 1.0)),
        ("schedule", partial(scaled, torch.ones(()))),
        ("schedule", lambda_named_like_another()),
        ("schedule", of_a_notebook),
        ("optimizer", lambda model: AdamW(model.parameters())),
        ("optimizer", AdamWs()),
    ],
)
def test_what_has_no_name_is_refused_when_the_run_begins(name, value, path):
    """Without a checkpoint it is as good as any."""
    recipe = replace(TINY, n_steps=2, **{name: value})
    with count_steps() as steps:
        with pytest.raises(ValueError, match=f"^{name} is .* can't (name|hold): give"):
            quietly(recipe, path)
        assert len(steps) == 0 and not path.exists()
        assert len(quietly(recipe)[1]) == 2


def test_a_recipe_of_another_class_is_another(path):
    quietly(replace(TINY, n_steps=2), path)
    other = Other(**vars(replace(TINY, n_steps=2)))
    with pytest.raises(ValueError, match=r"class is \S+\.Recipe there and \S+\.Other"):
        quietly(other, path)


class Other(Recipe):
    """It could draw other batches."""


def test_each_seed_has_a_dropout_of_its_own():
    """Python's hash takes -1 for -2, and 0 for 2^61 - 1."""
    seeds = [*range(-9, 10), -(2**32), -(2**63), 2**60, 2**64 - 10]
    seeds += [2**61 - 1 + i for i in range(-3, 4)]
    drawn = {runs.seed_of(seed, 3, 0) for seed in seeds}
    assert len(drawn) == len(seeds)
    assert len({runs.seed_of(7, step, rank) for step in (0, 1) for rank in (0, 1)}) == 4


@pytest.mark.parametrize("seed", [1.5, "1", True, None, 2**64])
def test_a_seed_is_a_whole_number_that_a_generator_takes(seed, path):
    with count_steps() as steps, pytest.raises(ValueError, match="seed is .*; it must"):
        quietly(TINY, path, seed=seed)
    assert len(steps) == 0 and not path.exists()


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_a_checkpoint_every_so_many_steps_is_a_whole_number_of_them(every, path):
    with pytest.raises(ValueError, match=f"every is {every}; it must be 1 or more"):
        quietly(TINY, path, every=every)


@pytest.mark.parametrize(
    "name, value", [("batch_size", 0), ("n_steps", 0), ("warmup", -1), ("floor", 2.0)]
)
def test_a_recipe_of_impossible_numbers_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        quietly(replace(TINY, **{name: value}))


@pytest.mark.parametrize("launched", ["processes", "sharded, by torchrun"])
def test_two_processes_go_on_with_what_one_began(launched, path, tmp_path):
    alone = tmp_path / "one"
    quietly(SHORT, alone)
    with stopping(2), pytest.raises(KeyboardInterrupt):
        quietly(SHORT, path)

    # Two go on.
    if launched == "processes":
        together(2, quietly, SHORT, path)
    else:
        words = "-m companion train --recipe plain --steps 4 --device cpu --shard"
        done = torchrun(2, *words.split(), "--checkpoint", str(path))
        assert done.returncode == 0, done.stderr

    # The end is the one that the single process came to.
    model, losses = quietly(SHORT, path)
    assert losses == []
    expected, tensors = load_file(alone), load_file(path)
    assert expected.keys() == tensors.keys()
    for name in expected:
        if not name.startswith("generator"):
            # The first step of the warm-up moves weights by 1e-5, and gradients of two
            # halves add up to those of the whole but for rounding.
            torch.testing.assert_close(tensors[name], expected[name], rtol=0, atol=1e-5)
    torch.testing.assert_close(model.norm.gain, tensors["model.norm.gain"])


def test_a_batch_that_processes_can_not_share_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="3 processes can't share a batch of 4"):
        quietly(TINY)
