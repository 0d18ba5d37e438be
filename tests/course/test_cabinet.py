"""The faults of chapter 16 are silent, and its invariants find them; nothing else."""

import importlib.util
import signal
import sys
import time
from dataclasses import astuple
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch
from common import rounding
from torch.testing import assert_close

import companion
from companion import GPT, GPTConfig
from companion.course import checks
from companion.course.cabinet import FAULTS, Machine
from companion.course.checks.judge import complaint, judge, right_machines

ROOT = Path(__file__).parents[2]


def load_hidden():
    path = ROOT / "docs" / "hidden_cabinet.py"
    spec = importlib.util.spec_from_file_location("hidden_cabinet", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HIDDEN = load_hidden().FAULTS
ALL = [*FAULTS, *HIDDEN]


def name_of(fault) -> str:
    """The class that has the fault, under those that put it into a machine."""
    if fault.__name__ != "WithFault":
        return fault.__name__
    model = fault.model_class
    if model.__name__ != "OtherGPT":
        is_cache = model is Machine.model_class
        return fault.cache_class.__name__ if is_cache else model.__name__
    block = model.block_class
    parts = (block, block.attention_class, block.norm_class)
    return next(p.__name__ for p in parts if changed(p))


def changed(part) -> bool:
    module = sys.modules.get("companion.course.cabinet.machine")
    return part.__name__ not in ("OtherBlock", *vars(module))


each_fault = pytest.mark.parametrize("fault", ALL, ids=name_of)


@cache
def invariants() -> list:
    """The tests that the chapter writes, from its cells."""
    path = ROOT / "notebooks" / "16_nothing_crashes.ipynb"
    names = {"torch": torch, "companion": companion}
    for cell in nbformat.read(path, as_version=4).cells:
        is_invariant = "invariant" in cell.metadata.get("tags", [])
        if cell.cell_type == "code" and is_invariant:
            exec(cell.source, names)
        if cell.cell_type == "code" and "solution" in cell.metadata.get("tags", []):
            names["checks"] = NoChecks()
            exec(cell.source, names)
            names["INVARIANTS"].append(names["solution"])
    *found, _ = names["INVARIANTS"]  # the last solution is a list of tests
    return found


class NoChecks:
    """In place of the checks, which take seconds."""

    def __getattr__(self, name):
        return lambda answer: None


def seeded(machine_class: type[Machine], first_seed: int) -> type[Machine]:
    """The same machine with other weights, whatever seed a test asks for."""

    class Seeded(machine_class):
        def model(self, seed: int = 0):
            return super().model(seed + first_seed)

    return Seeded


def a_text(machine: Machine) -> torch.Tensor:
    """Tokens that can be learned: mostly the next one, at times another."""
    generator = torch.Generator().manual_seed(0)
    jumps = torch.randint(1, 3, (600,), generator=generator)
    return jumps.cumsum(0) % machine.d_vocab


def test_there_are_twenty_and_ten_of_different_names():
    assert len(FAULTS) == 20 and len(HIDDEN) == 10
    assert len({name_of(fault) for fault in ALL}) == 30


@each_fault
def test_each_fault_is_silent(fault):
    """No error, right shapes, and a loss that falls."""
    machine = fault(d_vocab=11, context_length=8, d_model=16, n_heads=2)
    run = machine.start(0)
    losses = machine.go_on(run, a_text(machine), 80)
    assert all(loss == loss for loss in losses)
    assert sum(losses[-10:]) / 10 < sum(losses[:3]) / 3

    model = run.model.eval()
    tokens = a_text(machine)[:20].view(4, 5)
    logits = model(tokens)
    assert logits.shape == (4, 5, machine.d_vocab) and logits.isfinite().all()
    assert machine.write(model, tokens, 3).shape == (4, 3)
    drawn = machine.sample(logits[:, -1], torch.Generator().manual_seed(0), 0.7, 0.9)
    assert drawn.shape == (4,)
    assert machine.resume(machine.save(run)).step <= run.step


@pytest.mark.parametrize("machine", right_machines(), ids=str)
def test_the_right_machine_is_the_package_s_gpt(machine):
    config = GPTConfig(
        d_vocab=machine.d_vocab,
        context_length=machine.context_length,
        d_model=machine.d_model,
        n_heads=machine.n_heads,
        n_layers=machine.n_layers,
        positions="rotary",
        norm="rms",
        activation="squared_relu",
        bias=False,
    )
    model = machine.model()
    package_model = GPT(config)
    package_model.load_state_dict(model.state_dict())
    tokens = a_text(machine)[: machine.context_length][None]
    expected = package_model.eval()(tokens)
    assert_close(model(tokens), expected, **rounding(4 * machine.d_model, expected))


def test_the_right_machine_cuts_shares_as_the_package_does():
    logits = torch.randn(4, 17, generator=torch.Generator().manual_seed(0))
    for p in (0.3, 0.8, 0.95):
        expected = companion.top_p(logits / 0.7, p).softmax(-1)
        assert_close(Machine().probabilities(logits, 0.7, p), expected)


def test_filler_in_the_cache_stays_unseen():
    machine = Machine()
    model = machine.model()
    tokens = torch.arange(12).view(1, 12)
    is_text = torch.arange(12)[None] >= 3

    cache = machine.cache_class()
    model(tokens[:, :7], cache, is_text[:, :7])
    for place in range(7, 12):
        alone = model(tokens[:, 3 : place + 1])[:, -1]
        with_filler = model(tokens[:, [place]], cache, is_text[:, : place + 1])[:, -1]
        close = rounding(4 * machine.d_model, alone)  # its hidden features
        assert_close(with_filler, alone, **close)


@pytest.mark.parametrize("first_seed", range(5))
@pytest.mark.parametrize("machine", right_machines(), ids=str)
def test_no_invariant_flags_a_right_machine(machine, first_seed):
    other = seeded(type(machine), first_seed)(*astuple(machine))
    said = {test.__name__: complaint(test, other) for test in invariants()}
    assert not any(said.values()), said


@pytest.mark.parametrize("first_seed", range(5))
@each_fault
def test_an_invariant_finds_each_fault(fault, first_seed):
    machine = seeded(fault, first_seed)()
    assert any(complaint(test, machine) is not None for test in invariants())


def test_a_false_alarm_is_named_and_finds_nothing():
    def my_alarm(machine):
        return False

    verdict = judge([my_alarm])
    assert verdict.n_found == 0 and verdict.n_faults == 20
    (words,) = verdict.alarms
    assert words == "my_alarm flags a machine that is right: it returns False"


def test_what_a_test_does_beside_judging_is_undone(capsys):
    def my_messy(machine):
        print("loud")
        torch.manual_seed(1)
        torch.set_num_threads(3)
        torch.set_grad_enabled(False)
        raise SystemExit

    threads = torch.get_num_threads()
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    verdict = judge([my_messy], FAULTS[:1])
    assert "SystemExit" in verdict.alarms[0] and capsys.readouterr() == ("", "")
    assert torch.get_num_threads() == threads and torch.is_grad_enabled()
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such signal here")
def test_a_test_that_hangs_is_ended_also_where_it_catches_all():
    def my_endless(machine):
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                pass

    begin = time.monotonic()
    verdict = judge([my_endless], seconds=0.2)
    assert "my_endless takes longer than 0.2 s" in verdict.alarms[0]
    assert time.monotonic() - begin < 60  # once, not for each of twenty machines


def test_the_check_counts_and_never_names(capsys):
    def my_order(machine):
        tokens = torch.arange(machine.d_vocab).repeat(9)
        inputs, targets = machine.batch(tokens, torch.Generator().manual_seed(0))
        return torch.equal((inputs + 1) % machine.d_vocab, targets)

    checks.cabinet(lambda: [my_order])
    said = capsys.readouterr().out
    assert "1 of 20 faults found, no false alarm" in said
    assert not any(name_of(fault) in said for fault in FAULTS)


@pytest.mark.parametrize("answer", [[], None, 3, "test", [3]])
def test_what_is_no_list_of_tests_is_refused(answer):
    with pytest.raises(checks.Mistake, match="return a list of tests"):
        checks.cabinet(lambda: answer)


def test_the_site_has_the_chapter_s_table():
    cells = nbformat.read(
        ROOT / "notebooks" / "16_nothing_crashes.ipynb", as_version=4
    ).cells
    (table,) = [c.source for c in cells if "| symptom |" in c.source]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    page = (ROOT / "docs" / "symptoms.md").read_text("utf-8")
    told = [line for line in page.splitlines() if line.startswith("|")]
    assert [row.replace("../notebooks/", "") for row in told] == rows and len(rows) > 25
