"""Gates for the notebooks: what strict nbval can't see by itself."""

import ast
import importlib
import re
import statistics
from pathlib import Path

import nbformat
import pytest

import companion

PATHS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
IGNORED = {"nbval-ignore-output", "nbval-skip"}

pytestmark = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list:
    notebook = nbformat.read(path, as_version=4)
    return [c for c in notebook.cells if c.cell_type == kind and c.source.strip()]


def prose(path: Path) -> str:
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


def test_it_is_valid_and_every_cell_ran_in_order(path):
    nbformat.validate(nbformat.read(path, as_version=4))
    counts = [cell.execution_count for cell in cells(path, "code")]
    assert counts == list(range(1, len(counts) + 1))


def test_no_error_is_stored_and_no_time(path):
    for cell in cells(path, "code"):
        tags = cell.metadata.get("tags", [])
        errors = [o for o in cell.outputs if o.output_type == "error"]
        assert not errors or "raises-exception" in tags
        if "raises-exception" in tags:
            assert errors, "nbval passes such a cell even where nothing is raised"
        assert "execution" not in cell.metadata


def test_nine_of_ten_printing_cells_are_compared(path):
    printing = [cell for cell in cells(path, "code") if cell.outputs]
    ignored = [c for c in printing if IGNORED & set(c.metadata.get("tags", []))]
    assert len(ignored) <= 0.1 * len(printing), f"{len(ignored)} of {len(printing)}"
    assert not any("NBVAL_" in cell.source for cell in cells(path, "code"))


def test_a_cell_whose_output_is_ignored_is_followed_by_an_assertion(path):
    """It comes within the next four code cells."""
    notebook = nbformat.read(path, as_version=4)
    for i, cell in enumerate(notebook.cells):
        if IGNORED & set(cell.metadata.get("tags", [])):
            rest = notebook.cells[i + 1 :]
            code = [c.source for c in rest if c.cell_type == "code"]
            assert any("assert" in source or "checks." in source for source in code[:4])


def test_cells_are_short_enough_to_project(path):
    sources = [cell.source for cell in cells(path, "code")]
    lengths = [sum(bool(x.strip()) for x in s.splitlines()) for s in sources]
    assert statistics.median(lengths) <= 5 and max(lengths) <= 20
    assert max(len(x) for s in sources for x in s.splitlines()) <= 88


def test_every_name_in_the_prose_exists(path):
    for dotted in re.findall(r"`(companion(?:\.\w+)+)", prose(path)):
        *parents, name = dotted.split(".")
        module = companion
        for parent in parents[1:]:
            module = importlib.import_module(f"companion.{parent}")
        if not hasattr(module, name):
            importlib.import_module(dotted)


def test_there_are_exercises_with_solutions_and_checks(path):
    solved = [c for c in cells(path, "code") if "### BEGIN SOLUTION" in c.source]
    assert len(solved) >= 3
    for cell in solved:
        assert "### END SOLUTION" in cell.source
        assert cell.source.strip().splitlines()[-1].startswith("checks.")
        assert cell.metadata["jupyter"]["source_hidden"]


def test_nothing_comes_from_the_network(path):
    """No picture, script or data by address: only links to read."""
    html = "".join(str(o) for c in cells(path, "code") for o in c.outputs)
    assert not re.search(r"""(src|href)=\\?['"]https?:""", html)
    assert not re.search(r"!\[[^]]*\]\(http|<(img|script|iframe)", prose(path))
    code = "\n".join(c.source for c in cells(path, "code") if "%" not in c.source[:1])
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] + [getattr(node, "module", "") or ""]
            assert not {"requests", "urllib", "urllib.request", "wget"} & set(names)
