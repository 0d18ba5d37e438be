"""The project's files agree with each other, and the package keeps its shape."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import rattler
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NEEDED = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRA = [Requirement(text) for text in PROJECT["optional-dependencies"]["test"]]
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
        for r in NEEDED
    }
    assert conda == pip


@pytest.mark.parametrize("requirement", NEEDED + EXTRA, ids=lambda r: r.name)
def test_the_lock_pins_every_package_within_its_bounds(requirement):
    assert requirement.specifier.contains(locked()[requirement.name])


def test_the_lock_pins_torch_and_only_pins():
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    assert "torch==2.13.0" in lines
    assert all(re.match(r"[A-Za-z0-9._-]+==[\w.]+( ; .+)?$", line) for line in lines)


@pytest.mark.parametrize("spec", SPECS)
def test_conda_can_read_every_spec(spec):
    rattler.MatchSpec(spec, strict=True)


def test_conda_s_check_can_fail():
    with pytest.raises(Exception, match="[Ii]nvalid|pars"):
        rattler.MatchSpec("torch>=2,,<3 nonsense =", strict=True)


def commands() -> list[str]:
    blocks = re.findall(r"```(?:bash|bat)\n(.*?)```", README, flags=re.S)
    return [line.strip() for block in blocks for line in block.splitlines() if line]


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_readme_is_a_target_or_part_of_one(command):
    """A plain command must stand in the Makefile, where `make` itself runs it."""
    words = command.split()
    if words[0] == "make":
        assert words[1] in TARGETS
        return
    if words[0] in ("conda", "git", "cd"):
        files = [word for word in words if word.endswith(".yml")]
        assert all((ROOT / name).exists() for name in files)
        return
    plain = re.sub(r"^(\.venv[/\\](bin|Scripts)[/\\])?(python3?|py) ", "", command)
    run_by_make = MAKEFILE.replace("$(PYTHON) ", "").replace("$(VENV)", ".venv")
    assert plain in run_by_make


def test_modules_import_only_from_those_above_them():
    order = [
        "data", "tokenizers", "dates", "attention", "positions", "cache", "blocks",
        "models", "optimizers", "checkpoints", "training", "sampling", "plots",
        "checks", "notebook",
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


def test_no_file_speaks_of_a_machine_s_folders():
    for path in [
        *ROOT.glob("companion/*"),
        *ROOT.glob("tests/**/*.py"),
        ROOT / "Makefile",
    ]:
        if path.is_file() and path != Path(__file__):
            assert not re.search(r"/(home|root|work)/\w", path.read_text("utf-8")), path
