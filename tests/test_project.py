"""The project's files agree with each other, and the package keeps its shape."""

import ast
import doctest
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import rattler
import yaml
from benchmarks.tables import GROUPS, PLACES, taken_over, with_tables
from common import ROOT
from packaging.requirements import Requirement
from test_launch import UPDATE

import companion

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
README = ROOT / "README.md"
# All that tells a reader what to type.
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
TOLD = {path.name: path.read_text("utf-8") for path in PAGES}


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


def test_the_lock_pins_every_package_within_its_bounds():
    pins = locked()
    for requirement in NEEDED + LAB + TEST:
        assert requirement.specifier.contains(pins[requirement.name]), requirement


def test_the_lock_only_pins():
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    assert all(re.match(r"[A-Za-z0-9._-]+==[\w.]+( ; .+)?$", line) for line in lines)


def test_conda_can_read_every_spec():
    for spec in SPECS:
        rattler.MatchSpec(spec, strict=True)
    with pytest.raises(Exception, match="[Ii]nvalid|pars"):
        rattler.MatchSpec("torch>=2,,<3 nonsense =", strict=True)


IMPORT_NAMES = {  # where it is not the distribution's, lower case
    "axe_playwright_python": "axe-playwright-python",
    "dateutil": "python-dateutil",
    "IPython": "ipython",
    "PIL": "pillow",
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
import einops, safetensors, tiktoken, tqdm.auto, IPython  # they may
before = state()
import companion
from companion import artifacts, attention
assert state() == before
assert not artifacts.CACHE.exists()
print("nothing")
"""


def in_a_new_process(program: str, **environment) -> str:
    """What a program prints; a variable that is None is not set."""
    kept = {k: v for k, v in os.environ.items() if k not in environment}
    kept |= {k: v for k, v in environment.items() if v is not None}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_changes_nothing_in_the_process(tmp_path):
    printed = in_a_new_process(
        ON_IMPORT, COMPANION_CACHE=str(tmp_path / "cache"), TIKTOKEN_CACHE_DIR=None
    )
    assert printed == "nothing\n"


OFFLINE = """
import socket
def refuse(*_): raise OSError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
import companion
assert companion.gpt2_tokenizer().encode("Transformers are") == [41762, 364, 389]
from companion.course.notebook import setup
setup(seed=0)
import tiktoken
assert tiktoken.get_encoding("gpt2").n_vocab == 50257
"""


@pytest.mark.parametrize("variable", [None, "elsewhere"])
def test_gpt2_s_vocabulary_is_read_offline_whatever_the_environment(variable):
    in_a_new_process(OFFLINE, TIKTOKEN_CACHE_DIR=variable)


MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "companion").rglob("[a-z]*.py")
)


def test_the_examples_in_the_docstrings_hold():
    modules = [importlib.import_module(name) for name in MODULES]
    results = [doctest.testmod(module) for module in modules]
    assert sum(x.attempted for x in results) >= 4 and not any(x.failed for x in results)


def commands() -> list[str]:
    text = "\n".join(TOLD.values())
    blocks = re.findall(r"```(?:bash|bat)\n(.*?)```", text, flags=re.S)
    return [line.strip() for block in blocks for line in block.splitlines() if line]


def may_be_told(command: str) -> bool:
    """A plain command must stand in the Makefile, where `make` itself runs it.

    Those of nbgrader are run by `make classroom`, those in UPDATE by test_launch.
    """
    words = command.split()
    if words[0] == "make":
        return words[1] in TARGETS
    if words[0] in ("conda", "cd", "source", "nbgrader", "uv") and words[1] != "run":
        files = [word for word in words if word.endswith((".yml", ".lock"))]
        return all((ROOT / name).exists() for name in files)
    plain = command.removeprefix("uv run --no-sync ")
    plain = re.sub(r"^(\.venv[/\\](bin|Scripts)[/\\])?(python3?|py) ", "", plain)
    run_by_make = MAKEFILE.replace("$(PYTHON) ", "").replace("$(VENV)", ".venv")
    return command in UPDATE or plain in run_by_make


def test_every_command_that_is_told_is_a_target_or_part_of_one():
    assert len(commands()) > 20
    assert [x for x in commands() if not may_be_told(x)] == []
    assert not may_be_told("make coffee")


def test_every_target_that_is_named_in_a_sentence_is_there():
    named = {x for text in TOLD.values() for x in re.findall(r"`make ([a-z]+)", text)}
    assert len(named) > 10 and named <= TARGETS


def test_links_lead_to_files():
    for path in PAGES:
        links = re.findall(r"\]\(([^)\s#]+)", TOLD[path.name])
        inside = [link for link in links if not re.match(r"https?:|#", link)]
        made = ("reference.md" if path.name == "index.md" else None,)  # by assemble.py
        gone = [x for x in inside if not (path.parent / x).exists() and x not in made]
        assert gone == [], path.name


def test_only_the_page_that_make_links_fills_in_has_placeholders():
    assert [name for name, text in TOLD.items() if "REPOSITORY" in text] in (
        ["install.md"],
        [],  # a clone that was filled in
    )


def test_every_file_that_make_or_a_page_names_is_there():
    text = MAKEFILE + "".join(TOLD.values()) + (ROOT / ".ci" / "run").read_text("utf-8")
    named = set(re.findall(r"\b(?:tests|docs|companion)/[\w/]+\.py\b", text))
    assert len(named) > 10 and all((ROOT / name).is_file() for name in named)


def make(folder: Path, **environment) -> str:
    """What a recipe of a copied Makefile is told of COMPANION_CACHE."""
    (folder / "Makefile").write_text(MAKEFILE, "utf-8")
    told = 'include Makefile\ntold:\n\t@echo "[$$COMPANION_CACHE]"\n'
    (folder / "told.mk").write_text(told, "utf-8")
    mine = ("COMPANION_CACHE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    kept = {k: v for k, v in os.environ.items() if k not in mine}
    done = subprocess.run(
        ["make", "-f", "told.mk", "told"],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


POSIX = pytest.mark.skipif(
    sys.platform == "win32", reason="a path has several forms for make on Windows"
)


@POSIX
def test_make_hands_on_a_whole_path_for_the_cache(tmp_path):
    assert make(tmp_path) == "[]"
    for place in ("/abso lute", "~/home"):
        assert make(tmp_path, COMPANION_CACHE=place) == f"[{place}]"
    for place in ("near", "near by"):
        assert make(tmp_path, COMPANION_CACHE=place) == f"[{tmp_path}/{place}]"


@POSIX
def test_make_installs_anew_in_a_project_that_was_moved_or_copied(tmp_path):
    ready = tmp_path / ".venv" / "ready"
    ready.parent.mkdir()
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    for place, would_install in (("/elsewhere", True), (tmp_path.resolve(), False)):
        ready.write_text(f"{place}\n")
        make(tmp_path)
        plan = ["make", "--dry-run", ".venv/ready"]
        done = subprocess.run(plan, cwd=tmp_path, capture_output=True, text=True)
        assert ("-m pip install" in done.stdout) == would_install, done
        assert ready.read_text() == f"{place}\n"


def test_the_tables_are_what_was_measured():
    found = json.loads((ROOT / "docs" / "bench.json").read_text("utf-8"))
    for path in PLACES:
        assert with_tables(path, TOLD[path.name], found) == TOLD[path.name]
    found["packed"][-1].update(ours=12_345, theirs=26.44, ratio=1.25)
    path = ROOT / "docs" / "speed.md"
    speed = TOLD["speed.md"]
    made = with_tables(path, speed, found)
    assert "| 12,300 tokens/s | llama.cpp, 26.4 | 1.25 (" in made
    assert with_tables(path, made, found) == made
    readme = with_tables(README, TOLD["README.md"], found)
    assert "| 12,300 tokens/s | llama.cpp: 26.4 |" in readme
    with pytest.raises(ValueError, match="must have one <!-- pairs -->"):
        with_tables(path, speed.replace("<!-- pairs -->", ""), found)


def test_the_tables_take_over_what_was_measured_anew_and_keep_the_rest():
    before = json.loads((ROOT / "docs" / "bench.json").read_text("utf-8"))
    assert taken_over({"machines": {}}, before) == before
    fast = {"machines": {"serving": {"threads": 9}, "nanogpt": {}}, "nanogpt": {}}
    fast["serving"] = [before["serving"][0] | {"ours": 1}]
    found = taken_over(fast, before)
    assert found["serving"][0]["ours"] == 1
    assert found["machines"]["serving"] == {"threads": 9}
    changed = {"serving"}
    for name in {*GROUPS} - changed:
        assert found[name] == before[name]
        assert found["machines"][name] == before["machines"][name]

    turned = dict(reversed(before.items()))
    for path in PLACES:  # in the tables' own order, however they were measured
        made = with_tables(path, TOLD[path.name], taken_over(turned, before))
        assert made == TOLD[path.name]


def test_what_the_tables_lack_is_said_in_a_sentence():
    before = json.loads((ROOT / "docs" / "bench.json").read_text("utf-8"))
    with pytest.raises(ValueError, match="no table knows the group speed"):
        taken_over({"machines": {"speed": {}}, "speed": [1]}, before)
    without = {name: rows for name, rows in before.items() if name != "packed"}
    with pytest.raises(ValueError, match="packed was never measured: run `ROWS=packed"):
        taken_over({"machines": {}}, without)
    raced = [row for row in before["race"] if row["name"] != "all parts but muon"]
    speed = ROOT / "docs" / "speed.md"
    with pytest.raises(ValueError, match="the race differ in all parts but muon: run"):
        with_tables(speed, TOLD["speed.md"], before | {"race": raced})
    before["packed"] = before["packed"][:-2]
    with pytest.raises(ValueError, match="packed has no row against llama.cpp"):
        with_tables(README, TOLD["README.md"], before)


def test_the_tables_know_every_group_that_is_measured():
    """bench.py imports what not every machine has, so it is read."""
    tree = ast.parse((ROOT / "tests" / "benchmarks" / "bench.py").read_text("utf-8"))
    (groups,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "GROUPS"
    )
    assert sorted(key.value for key in groups.keys) == sorted(GROUPS)


def test_the_project_has_one_version(monkeypatch):
    version, day = re.search(
        r"^## (\S+) · (\d{4}-\d\d-\d\d)$", TOLD["CHANGELOG.md"], flags=re.M
    ).groups()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert version == PROJECT["version"] == companion.__version__
    assert version == citation["version"] and day == str(citation["date-released"])
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert runpy.run_path(str(ROOT / "docs" / "conf.py"))["release"] == version


def test_the_forms_for_issues_can_be_read():
    paths = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert [path.stem for path in paths] == ["chapter", "package", "question"]
    for path in paths:
        form = yaml.safe_load(path.read_text("utf-8"))
        assert form.keys() == {"name", "description", "body"}, path.name
        assert {field["type"] for field in form["body"]} <= {"input", "textarea"}
        assert len({field["id"] for field in form["body"]}) == len(form["body"])
        labels = [field["attributes"]["label"] for field in form["body"]]
        assert all(labels) and form["body"][0]["validations"]["required"], path.name


def test_every_tool_is_told():
    folder = ROOT / "tests" / "tools"
    told = set(re.findall(r"`(\w+\.py)`", (folder / "README.md").read_text("utf-8")))
    assert told == {path.name for path in folder.glob("*.py")}
