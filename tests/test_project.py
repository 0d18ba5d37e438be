"""The project's files agree with each other, and the package keeps its shape."""

import ast
import doctest
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import rattler
import yaml
from benchmarks.tables import with_tables
from packaging.requirements import Requirement
from test_launch import UPDATE

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NEEDED = [Requirement(text) for text in PROJECT["dependencies"]]
LAB, TEST = (
    [Requirement(text) for text in PROJECT["optional-dependencies"][name]]
    for name in ("lab", "test")
)
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
SPECS = [spec for spec in ENVIRONMENT["dependencies"] if isinstance(spec, str)]
CONDA_NAMES = {"matplotlib": "matplotlib-base", "torch": "pytorch"}
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, flags=re.M))
README = (ROOT / "README.md").read_text("utf-8")


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}


def test_conda_and_pip_name_the_same_packages_with_the_same_bounds():
    conda = {spec for spec in SPECS if not re.match(r"(python|pip)\b", spec)}
    pip = {
        CONDA_NAMES.get(r.name, r.name)
        + re.sub(r"(<.*),(>=.*)", r"\2,\1", str(r.specifier))
        for r in NEEDED + LAB
    }
    assert conda == pip


@pytest.mark.parametrize("requirement", NEEDED + LAB + TEST, ids=lambda r: r.name)
def test_the_lock_pins_every_package_within_its_bounds(requirement):
    assert requirement.specifier.contains(locked()[requirement.name])


def test_the_lock_only_pins():
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    assert all(re.match(r"[A-Za-z0-9._-]+==[\w.]+( ; .+)?$", line) for line in lines)


@pytest.mark.parametrize("spec", SPECS)
def test_conda_can_read_every_spec(spec):
    rattler.MatchSpec(spec, strict=True)


def test_conda_s_check_can_fail():
    with pytest.raises(Exception, match="[Ii]nvalid|pars"):
        rattler.MatchSpec("torch>=2,,<3 nonsense =", strict=True)


IMPORT_NAMES = {  # where it is not the distribution's, lower case
    "axe_playwright_python": "axe-playwright-python",
    "dateutil": "python-dateutil",
    "IPython": "ipython",
    "cosmic_ray": "cosmic-ray",
    "rattler": "py-rattler",
    "yaml": "pyyaml",
}


def imported(folder: str) -> set[str]:
    """The distributions that the Python files of a folder import by themselves."""
    names = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module)
    own = {path.stem for part in ("docs", "tests") for path in (ROOT / part).rglob("*")}
    own.add("companion")
    names = {name.split(".")[0] for name in names} - own - sys.stdlib_module_names
    return {IMPORT_NAMES.get(name, name) for name in names}


def test_the_package_declares_exactly_what_it_imports():
    assert imported("companion") == {requirement.name for requirement in NEEDED}


def test_the_tests_declare_all_that_they_import():
    extras = PROJECT["optional-dependencies"].values()
    declared = {Requirement(text).name for extra in extras for text in extra}
    declared |= {requirement.name for requirement in NEEDED}
    assert imported("tests") | imported("docs") <= declared


ON_IMPORT = """
import os, signal, sys, warnings
import torch
def state():
    return (dict(os.environ), [*map(str, warnings.filters)], torch.get_num_threads(),
            torch.get_rng_state().tolist(), signal.getsignal(signal.SIGINT),
            torch.get_default_dtype(), torch.is_grad_enabled(), sys.path[:])
import einops, filelock, safetensors, tiktoken, tqdm.auto, IPython  # they may
before = state()
import companion
from companion import artifacts, attention
assert state() == before
assert not artifacts.CACHE.exists()
print("nothing")
"""


@pytest.mark.parametrize("variable", [None, "", "elsewhere"])
def test_importing_the_package_changes_nothing_in_the_process(tmp_path, variable):
    environment = os.environ | {"COMPANION_CACHE": str(tmp_path / "cache")}
    environment.pop("TIKTOKEN_CACHE_DIR", None)
    if variable is not None:
        environment["TIKTOKEN_CACHE_DIR"] = variable
    command = [sys.executable, "-c", ON_IMPORT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "nothing\n", done.stderr


OFFLINE = """
import socket
def refuse(*_): raise OSError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
import companion
assert companion.gpt2_tokenizer().encode("Transformers are") == [41762, 364, 389]
{more}
"""
PLAIN = """
from companion.notebook import setup
setup(seed=0)
import tiktoken
assert tiktoken.get_encoding("gpt2").n_vocab == 50257
"""


@pytest.mark.parametrize("variable", [None, "", "elsewhere"])
@pytest.mark.parametrize("more", ["", PLAIN])
def test_gpt2_s_vocabulary_is_read_offline_whatever_the_environment(variable, more):
    environment = os.environ | {"TIKTOKEN_CACHE_DIR": variable or ""}
    if variable is None:
        del environment["TIKTOKEN_CACHE_DIR"]
    command = [sys.executable, "-c", OFFLINE.format(more=more)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


MODULES = sorted(path.stem for path in (ROOT / "companion").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_hold(name):
    module = importlib.import_module(f"companion.{name}")
    assert not doctest.testmod(module).failed


def test_some_docstrings_have_examples():
    modules = [importlib.import_module(f"companion.{name}") for name in MODULES]
    assert sum(doctest.testmod(module).attempted for module in modules) >= 4


def commands() -> list[str]:
    blocks = re.findall(r"```(?:bash|bat)\n(.*?)```", README, flags=re.S)
    return [line.strip() for block in blocks for line in block.splitlines() if line]


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_readme_is_a_target_or_part_of_one(command):
    """A plain command must stand in the Makefile, where `make` itself runs it.

    Those of nbgrader are run as they stand there by `make classroom`.
    """
    words = command.split()
    if words[0] == "make":
        assert words[1] in TARGETS
        return
    if words[0] in ("conda", "cd", "source", "nbgrader"):
        files = [word for word in words if word.endswith(".yml")]
        assert all((ROOT / name).exists() for name in files)
        return
    if command in UPDATE:  # test_launch runs them
        return
    plain = re.sub(r"^(\.venv[/\\](bin|Scripts)[/\\])?(python3?|py) ", "", command)
    run_by_make = MAKEFILE.replace("$(PYTHON) ", "").replace("$(VENV)", ".venv")
    assert plain in run_by_make


def test_modules_import_only_from_those_above_them():
    order = [
        "inputs", "processes", "artifacts", "data", "tokenizers", "dates",
        "block_attention", "attention", "positions", "cache", "blocks", "models",
        "joined", "quantized", "encoder_decoder", "optimizers", "parallel", "training",
        "checkpoints", "recipes", "runs", "sampling", "published", "published_gpt2",
        "chat", "speculation", "serving", "rehearsal", "plots", "checks", "notebook",
    ]  # fmt: skip
    for path in (ROOT / "companion").rglob("*.py"):
        inside = path.parent.name == "checks"
        name = "checks" if inside else path.stem
        if name.startswith("__"):
            continue
        above = set(order[: order.index(name)])
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 1 + inside:
                modules = [node.module] if node.module else [a.name for a in node.names]
                assert set(modules) <= above, f"{path.name} imports {modules}"


def make(folder: Path, **environment) -> str:
    """What a recipe of a copied Makefile is told of COMPANION_CACHE."""
    (folder / "Makefile").write_text(MAKEFILE, "utf-8")
    told = 'include Makefile\ntold:\n\t@echo "[$$COMPANION_CACHE]"\n'
    (folder / "told.mk").write_text(told, "utf-8")
    mine = ("COMPANION_CACHE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    kept = {k: v for k, v in os.environ.items() if k not in mine}
    how = {"cwd": folder, "env": kept | environment, "capture_output": True}
    done = subprocess.run(["make", "-f", "told.mk", "told"], text=True, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


POSIX = pytest.mark.skipif(
    sys.platform == "win32", reason="a path has several forms for make on Windows"
)


@POSIX
@pytest.mark.parametrize("given", [None, "/abso lute", "~/home", "near", "near by"])
def test_make_hands_on_a_whole_path_for_the_cache(tmp_path, given):
    wanted = f"{tmp_path}/{given}" if given and "near" in given else given or ""
    environment = {"COMPANION_CACHE": given} if given else {}
    assert make(tmp_path, **environment) == f"[{wanted}]"


@POSIX
def test_make_installs_anew_in_a_project_that_was_moved_or_copied(tmp_path):
    ready = tmp_path / ".venv" / "ready"
    ready.parent.mkdir()
    ready.write_text("/elsewhere\n")
    make(tmp_path)
    assert not ready.exists()
    ready.write_text(f"{tmp_path.resolve()}\n")
    make(tmp_path)
    assert ready.exists()


def test_the_tables_of_the_readme_are_what_was_measured():
    found = json.loads((ROOT / "docs" / "bench.json").read_text("utf-8"))
    assert with_tables(README, found) == README
    found["packed"][0] |= {"ours": 12_345, "theirs": 26.44, "ratio": 1.25}
    made = with_tables(README, found)
    assert "| 12,300 tokens/s | unpacked, 26.4 | 1.25 (" in made
    assert with_tables(made, found) == made
    with pytest.raises(ValueError, match="must have one <!-- pairs -->"):
        with_tables(README.replace("<!-- pairs -->", ""), found)
