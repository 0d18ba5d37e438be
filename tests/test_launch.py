"""The ways to begin and to go on without `make`, as far as they go with no network."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import own_remote
import pytest
from common import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

INSTALL = own_remote.INSTALL.read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Binder and cp are POSIX")

(block,) = re.findall(
    r"^## Getting what is new\n.*?```bash\n(.*?)```", INSTALL, re.S | re.M
)
UPDATE = block.splitlines()


def test_a_dev_container_has_a_python_that_will_do_and_runs_what_ci_runs():
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8")
    container = json.loads(text)
    name, version = container["image"].split(":")
    assert name == "python" and version in SpecifierSet(PROJECT["requires-python"])
    command = container["postCreateCommand"]
    assert command in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    python = container["customizations"]["vscode"]["settings"]
    assert python["python.defaultInterpreterPath"].endswith("}/.venv/bin/python")


@POSIX
def test_binder_s_last_step_finds_the_data():
    """Binder would overlook environment.yml beside a folder of its own."""
    assert not (ROOT / "binder").exists() and not (ROOT / ".binder").exists()
    assert os.access(ROOT / "postBuild", os.X_OK)
    here = Path(sys.executable).parent
    path = {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([ROOT / "postBuild"], env=os.environ | path, cwd=ROOT, check=True)


# OWNER/REPOSITORY, or in a clone what `make links` has put there.
WHERE = re.search(r"https://codespaces\.new/([\w.-]+/[\w.-]+)", INSTALL)[1]
ADDRESSES = re.findall(r"^\| [^|]+ \| `(https://[^`]+)` \|$", INSTALL, re.M)


def test_every_address_leads_to_this_repository_and_a_notebook_that_is_there():
    assert len(ADDRESSES) == 5
    for split in map(urlsplit, ADDRESSES):
        query = {name: value for name, (value,) in parse_qs(split.query).items()}
        whole = " ".join([split.path, *query.values()])
        assert WHERE in whole
        if split.netloc != "codespaces.new":
            (notebook,) = re.findall(r"notebooks/\w+\.ipynb", whole)
            assert (ROOT / notebook).exists()


def test_make_links_fills_in_where_a_clone_comes_from():
    for remote in ("git@github.com:ada/engine.git\n", "https://github.com/ada/engine"):
        made = own_remote.filled("OWNER/REPOSITORY %2FOWNER%2FREPOSITORY&", remote)
        assert made == "ada/engine %2Fada%2Fengine&"
    for remote in ("", "git@github.com:ada", "https://example.org/ada/engine"):
        with pytest.raises(ValueError, match="is no repository on GitHub"):
            own_remote.filled(INSTALL, remote)


def test_two_lines_install_what_the_package_needs_and_leave_a_runtime_as_it_is():
    """Colab's own IPython must do, for its runtime breaks with another."""
    (lines,) = re.findall(r"```python\n(%pip.*?)```", INSTALL, re.S)
    where, fetch = lines.splitlines()
    assert where == f"%pip install -q git+https://github.com/{WHERE}"
    assert fetch == "!python -m companion"
    needs = {Requirement(text).name: text for text in PROJECT["dependencies"]}
    assert not {"jupyterlab", "notebook", "ipykernel", "ipywidgets"} & set(needs)
    assert "7.34.0" in Requirement(needs["ipython"]).specifier
    assert not any("==" in text for text in needs.values())


def git(folder: Path, *words: str) -> subprocess.CompletedProcess:
    who = ["-c", "user.name=reader", "-c", "user.email=reader@localhost"]
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture
def clone(tmp_path):
    """A clone in which a notebook was run, and changed at its source since."""
    source, mine = tmp_path / "source", tmp_path / "clone"
    name = "notebooks/07_kv_cache.ipynb"
    (source / "notebooks").mkdir(parents=True)
    shutil.copy(ROOT / name, source / name)
    text = (source / name).read_text("utf-8")
    git(source, "init", "--quiet", "--initial-branch=main")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message=old")
    git(tmp_path, "clone", "--quiet", str(source), str(mine))
    (mine / name).write_text(text.replace("The invariant", "answered"), "utf-8")
    (source / name).write_text(text.replace("The invariant", "improved"), "utf-8")
    git(source, "commit", "--quiet", "--all", "--message=new")
    return mine


@POSIX
def test_a_clone_with_answers_is_updated_as_the_page_says(clone):
    assert git(clone, "pull").returncode != 0
    assert UPDATE[-1] == "make lab"
    for command in UPDATE[:-1]:
        subprocess.run(command.split(), cwd=clone, check=True)
    new, old = (
        clone / folder / "07_kv_cache.ipynb" for folder in ("notebooks", "mine")
    )
    assert "improved" in new.read_text("utf-8") and "answered" in old.read_text("utf-8")


@POSIX
def test_a_stash_leaves_marks_where_both_have_changed_a_cell(clone):
    assert git(clone, "stash").returncode == git(clone, "pull").returncode == 0
    assert git(clone, "stash", "pop").returncode != 0
    with pytest.raises(json.JSONDecodeError):
        json.loads((clone / "notebooks" / "07_kv_cache.ipynb").read_text("utf-8"))
