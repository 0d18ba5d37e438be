"""The faults of chapter 16 are silent, and its invariants find them; nothing else."""

import importlib.util
import inspect
import math
import os
import random
import re
import signal
import sys
import time
from dataclasses import astuple
from functools import cache

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from common import ROOT, rounding
from torch import nn
from torch.testing import assert_close

import companion
from companion import GPT, GPTConfig
from companion.course import checks
from companion.course.cabinet import FAULTS, Machine
from companion.course.cabinet import machine as cabinet
from companion.course.cabinet.disguise import classes_of, original_of, right_in_disguise
from companion.course.checks.judge import (
    complaint,
    in_three_sizes,
    judge,
    right_machines,
)


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
    names = {"torch": torch, "companion": companion, "math": math}
    for cell in nbformat.read(path, as_version=4).cells:
        is_invariant = "invariant" in cell.metadata.get("tags", [])
        if cell.cell_type == "code" and is_invariant:
            exec(cell.source, names)
        check = re.search(r"^checks\.(\w+)\(solution\)$", cell.source, re.M)
        if check and check[1] in ("later_changes_nothing", "goes_on"):
            names["checks"] = NoChecks()
            exec(cell.source, names)
            names["INVARIANTS"].append(names["solution"])
    return names["INVARIANTS"]


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


def test_there_are_twenty_seven_and_ten_of_different_names():
    assert len(FAULTS) == 27 and len(HIDDEN) == 10
    assert len({name_of(fault) for fault in ALL}) == 37


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["WeightsDetached", "NormDetached"])
def test_a_right_forward_may_have_a_wrong_backward(name, seed):
    """The logits are those of the right machine, to the bit; the gradients aren't."""
    (fault,) = (fault for fault in FAULTS if name_of(fault) == name)
    tokens = a_text(Machine())[:32].view(2, 16)
    logits, gradients = [], []
    for machine in (Machine(), fault()):
        model = machine.model(seed)
        logits.append(model(tokens))
        machine.loss(logits[-1], tokens).backward()
        without = [p for p in model.parameters() if p.grad is None]
        for p in without:
            p.grad = torch.zeros_like(p)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.equal(*logits)
    # Rounding would be some 1e-6 of it.
    assert (gradients[0] - gradients[1]).norm() > 0.01 * gradients[0].norm()


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
    machine = in_three_sizes(seeded(fault, first_seed))[first_seed % 3]
    assert any(complaint(test, machine) is not None for test in invariants())


def test_a_false_alarm_is_named_and_finds_nothing():
    def my_alarm(machine):
        return False

    verdict = judge([my_alarm])
    assert verdict.n_found == 0 and verdict.n_faults == 27
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


CHANGES = {
    "torch.softmax": lambda: setattr(torch, "softmax", None),
    "torch.Tensor.softmax": lambda: setattr(torch.Tensor, "softmax", None),
    "torch.Tensor.new": lambda: setattr(torch.Tensor, "all_my_own", 3),
    "F.cross_entropy": lambda: setattr(F, "cross_entropy", None),
    "nn.Linear.forward": lambda: delattr(nn.Linear, "forward"),
    "Machine.rate": lambda: setattr(Machine, "rate", 5),
    "Attention.scores": lambda: setattr(cabinet.Attention, "scores", None),
    "companion.GPT": lambda: setattr(companion, "GPT", None),
    "GPT.forward": lambda: setattr(GPT, "forward", None),
    "math.sqrt": lambda: setattr(math, "sqrt", None),
    "hooks": lambda: nn.modules.module.register_module_forward_hook(lambda *_: 1 / 0),
    "torch's seed": lambda: torch.manual_seed(3),
    "numpy's seed": lambda: np.random.seed(3),
    "random's seed": lambda: random.seed(3),
    "folder": lambda: os.chdir("/"),
    "environment": lambda: os.environ.update(PATH="", MY_OWN="1"),
    "lost environment": lambda: os.environ.pop("PATH"),
}


def world() -> list:
    """What a test could leave changed: names, seeds, folder, environment."""
    owners = (torch, torch.Tensor, F, nn.Linear, Machine, cabinet.Attention, companion)
    names = [dict(vars(owner)) for owner in (*owners, GPT, math)]
    hooks = [*nn.modules.module._global_forward_hooks]
    seeds = [torch.initial_seed(), random.getstate(), np.random.get_state()[1].tolist()]
    return [*names, hooks, *seeds, os.getcwd(), dict(os.environ)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("failing", [False, True])
def test_whatever_a_test_changes_is_put_back_before_the_next(change, failing):
    before = world()

    def my_test(machine):
        found = world()
        CHANGES[change]()
        assert not failing and found[-6:] == before[-6:]
        return True

    for _ in range(2):
        assert (complaint(my_test, Machine()) is None) != failing
        after = world()
        for here, there in zip(after, before, strict=True):
            if isinstance(here, dict) and "PATH" not in here:
                assert here.keys() == there.keys()
                assert all(here[name] is there[name] for name in here)
            else:
                assert here == there
    model = Machine().model()
    assert model(torch.ones(1, 3, dtype=torch.long)).isfinite().all()


def test_an_exercise_s_test_changes_nothing_either():
    def my_test(machine):
        torch.Tensor.softmax = None
        return True

    with pytest.raises(checks.Mistake):
        checks.later_changes_nothing(my_test)
    assert "softmax" not in vars(torch.Tensor)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 25, 28, 29, 30, 31, 32, 33, 34, 45])
def test_a_test_that_counts_finds_nothing(n):
    """Whether it flags all after n calls, or every n-th, or the n-th alone."""
    for flags in (lambda i: i > n, lambda i: i % (n + 1) == n, lambda i: i == n):
        calls = []

        def my_count(machine, flags=flags, calls=calls):
            calls.append(machine)
            return not flags(len(calls))

        verdict = judge([my_count])
        assert verdict.n_found == 0
        assert verdict.alarms or not any(map(flags, range(1, len(calls) + 1)))


def test_a_test_that_remembers_who_came_first_finds_nothing():
    """Of each size and class, the first it saw: in the first round all are right."""
    seen = []

    def my_memory(machine):
        known = str(machine) not in seen
        seen.append(str(machine))
        return known

    (words,) = judge([my_memory]).alarms
    assert (
        "passes a machine that is right, and flags it when it is asked again" in words
    )


def test_a_test_that_fails_at_random_finds_nothing():
    """One in a hundred finds something by luck, so five in ten never do."""
    chance = random.SystemRandom()
    verdicts = [judge([lambda _: chance.random() > 0.1]) for _ in range(10)]
    assert sum(verdict.n_found > 0 for verdict in verdicts) < 5
    assert all(verdict.n_found == 0 for verdict in verdicts if verdict.alarms)


SAID = {
    "my_asserts returns None": "flags a machine that is right: it returns None",
    "my_yield": "my_yield returns a generator, so its body never runs",
    "my_async": "my_async returns a coroutine, so its body never runs",
    "my_stream": "my_stream returns a coroutine, so its body never runs",
    "my_list": "my_list returns [True], not True or False",
    "my_uncalled": "not True or False",
}


def what_returns_no_verdict():
    def my_asserts(machine):
        assert machine.d_vocab

    def my_yield(machine):
        yield False

    async def my_async(machine):
        return False

    async def my_stream(machine):
        yield False

    def my_list(machine):
        return [True]

    def my_uncalled(machine):
        return machine.model

    return [my_asserts, my_yield, my_async, my_stream, my_list, my_uncalled]


@pytest.mark.filterwarnings("error")
def test_what_is_neither_true_nor_false_is_said():
    verdict = judge(what_returns_no_verdict())
    assert verdict.n_found == 0
    for words, alarm in zip(SAID.values(), verdict.alarms, strict=True):
        assert words in alarm, alarm


@pytest.mark.parametrize("kind", [bool, int, float, np.bool_, torch.tensor])
def test_what_counts_as_true_and_false(kind):
    assert complaint(lambda _: kind(True), Machine()) is None
    assert complaint(lambda _: kind(False), Machine()) == "it returns False"


def seen_of(machine) -> list[str]:
    """All that names and words tell of a machine, its parts and their methods."""
    parts = [type(machine), machine.model_class, machine.cache_class]
    block = machine.model_class.block_class
    parts += [block, block.attention_class, block.norm_class]
    told = [repr(machine), repr(machine.model()), str(machine.loss)]
    for part in parts:
        told += [repr(part), part.__name__, part.__qualname__, part.__module__]
        told += [part.__doc__, inspect.getsource(part), inspect.getdoc(part)]
        told += [type(part).__name__, [one.__name__ for one in part.__mro__][0]]
        for name in sorted(x for x in dir(part) if x in vars(original_of(part))):
            method = getattr(part, name)
            if inspect.isfunction(method):
                told += [method.__qualname__, method.__module__, method.__doc__]
                told += [method.__name__, method.__code__.co_qualname]
                if not name.startswith("__"):  # what `dataclass` writes has no source
                    told += [method.__code__.co_filename, inspect.getsource(method)]
    return [re.sub(" at 0x[0-9a-f]+", "", str(x)) for x in told]


def test_names_and_words_tell_nothing():
    """A right machine as it stands in its file, one in disguise, and all others."""
    told = []

    def my_look(machine):
        told.append(seen_of(machine))
        return True

    for machine in [Machine(), right_in_disguise()(), *[fault() for fault in ALL]]:
        before = [repr(vars(part)) for part in (type(machine), *classes_of(machine))]
        assert complaint(my_look, machine) is None
        after = [repr(vars(part)) for part in (type(machine), *classes_of(machine))]
        assert after == before
    assert len(told) == 39 and all(one == told[0] for one in told)


def test_the_class_of_a_part_tells_nothing():
    def my_model_class(machine):
        return machine.model_class is not Machine.model_class

    def my_other_model_class(machine):
        return machine.model_class is Machine.model_class

    def my_methods(machine):
        return type(machine).loss is Machine.loss

    for test in (my_model_class, my_other_model_class, my_methods):
        verdict = judge([test])
        assert verdict.alarms and verdict.n_found == 0


def test_the_right_machine_is_right_at_the_edge():
    """With p = 1 every token stays, ties stay in order, and a tiny p keeps the best."""
    machine = Machine()
    edge = machine.probabilities(torch.tensor([[0.0, -18]]))
    assert_close(edge, torch.tensor([[1.0, math.exp(-18)]]), atol=0, rtol=1e-5)

    generator = torch.Generator().manual_seed(0)
    logits = 8 * torch.randn(2000, 17, generator=generator)
    assert torch.equal(machine.probabilities(logits), logits.softmax(-1))

    for n in (4, 17, 40, 300):
        even = torch.zeros(3, n)
        kept = machine.probabilities(even, p=0.6) > 0
        assert torch.equal(kept, (torch.arange(n) < math.ceil(0.6 * n)).expand(3, n))
    best = machine.probabilities(logits, p=1e-50)
    assert torch.equal(best.argmax(-1), logits.argmax(-1)) and best.max() == 1
    assert torch.equal((best > 0).sum(-1), torch.ones(2000, dtype=torch.long))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999, 1.0])
def test_ties_are_cut_as_the_package_cuts_them(p):
    logits = torch.randint(4, (50, 40), generator=torch.Generator().manual_seed(1))
    logits = logits.float()
    expected = companion.top_p(logits, p).softmax(-1)
    assert_close(Machine().probabilities(logits, p=p), expected)


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
    assert time.monotonic() - begin < 60  # once, not for each machine


def test_the_check_counts_and_never_names(capsys):
    def my_order(machine):
        tokens = torch.arange(machine.d_vocab).repeat(9)
        inputs, targets = machine.batch(tokens, torch.Generator().manual_seed(0))
        return torch.equal((inputs + 1) % machine.d_vocab, targets)

    checks.cabinet(lambda: [my_order])
    said = capsys.readouterr().out
    assert "1 of 27 faults found, no false alarm" in said
    assert not any(name_of(fault) in said for fault in FAULTS)


@pytest.mark.parametrize("answer", [[], None, 3, "test", [3]])
def test_what_is_no_list_of_tests_is_refused(answer):
    with pytest.raises(checks.Mistake, match="return a list of tests"):
        checks.cabinet(lambda: answer)


def test_the_site_has_the_chapter_s_rows_and_those_that_chapters_name():
    notebooks = {
        path.stem: nbformat.read(path, as_version=4).cells
        for path in (ROOT / "notebooks").glob("*.ipynb")
    }
    cells = notebooks["16_nothing_crashes"]
    (table,) = [c.source for c in cells if "| symptom |" in c.source]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    page = (ROOT / "docs" / "symptoms.md").read_text("utf-8")
    told = page.replace("../notebooks/", "").splitlines()
    assert len(rows) == 2 + 12 and [row for row in told if row in rows] == rows

    link = r"\[(?:symptom|the table of symptoms)\]\([^)]*\): \*([^*]+)\*"
    prose = " ".join(c.source for cells in notebooks.values() for c in cells)
    named = re.findall(link, prose.replace("\n", " "))
    assert len(named) > 10
    for symptom in named:
        assert f"| {symptom} |" in page, symptom
