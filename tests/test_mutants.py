"""`make mutants`: a fault is what the tests run, and every module has its tests."""

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import mutants
import pytest


def value_of(folder: Path) -> int:
    """What the module of a folder says, in a process that compiles as usual."""
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = False
    return import_module("parts.inner.number").VALUE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the tool forks")
def test_a_fault_of_the_same_length_and_second_is_what_runs(tmp_path):
    """Also the module that stands there again, of which a compiled fault is left."""
    path = tmp_path / "parts" / "inner" / "number.py"
    path.parent.mkdir(parents=True)
    for value in (1, 2, 1, 3):
        mutants.put(path, f"VALUE = {value}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))  # one second for all
        assert mutants.in_a_fork(partial(value_of, tmp_path), 60) == value
        assert [*path.parent.glob("__pycache__/number.*")]  # it was compiled


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the tool forks")
def test_a_fault_is_noticed_and_the_module_stands_there_again(tmp_path, monkeypatch):
    """Three faults of the same length, the module itself in between."""
    right = "def double(x):\n    return x + x\n"
    module = tmp_path / "companion" / "inner" / "twice.py"
    module.parent.mkdir(parents=True)
    module.write_text(right)
    (tmp_path / "companion" / "__init__.py").touch()
    test = (
        "from companion.inner.twice import double\n"
        "def test_double():\n    assert double(3) == 6\n"
    )
    for folder in ("inner", ""):
        (tmp_path / "tests" / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "tests" / "inner" / "test_twice.py").write_text(test)
    (tmp_path / "tests" / "test_refusals.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # This process has the true package and tests; the forked ones import the folder's.
    for name in [*sys.modules]:
        if name.split(".")[0] == "companion" or name.startswith("test_"):
            monkeypatch.delitem(sys.modules, name)

    for sign, is_noticed in (("-", True), ("+", False), ("*", True), ("/", True)):
        fault = right.replace("+", sign)
        assert mutants.noticed("inner/twice", fault, 60) == is_noticed
        assert module.read_text() == right


@pytest.mark.parametrize("module", mutants.modules())
def test_each_module_of_the_package_has_tests(module):
    """By its path, or as the table says where they are."""
    for test in mutants.test_files(module):
        assert (mutants.ROOT / test).exists(), f"{module}: there is no {test}"


def test_the_table_has_only_what_the_path_does_not_tell():
    assert mutants.ELSEWHERE.keys() <= {*mutants.modules()}
    for module, names in mutants.ELSEWHERE.items():
        assert names != [mutants.by_path(module)], module


def test_the_default_run_has_the_modules_of_its_rooms_and_no_others():
    found = mutants.modules(*mutants.ROOMS)
    assert {"model/gpt", "text/dates", "pretrained/weights"} < {*found}
    assert {name.partition("/")[0] for name in found} == {*mutants.ROOMS}
