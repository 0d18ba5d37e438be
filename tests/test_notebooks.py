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


def tagged(cell, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def folded(cell) -> bool:
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def test_exercises_are_three_cells_a_question_a_stub_and_a_folded_solution(path):
    """The stub is the reader's to overwrite; its check is called again on ours."""
    notebook = nbformat.read(path, as_version=4)
    solutions = [i for i, c in enumerate(notebook.cells) if tagged(c, "solution")]
    assert len(solutions) >= 3
    for i in solutions:
        question, stub, solution = notebook.cells[i - 2 : i + 1]
        check = re.findall(r"^checks\.(\w+)\(solution\)$", solution.source, re.M)
        assert len(check) == 1 and "def solution(" in solution.source
        assert solution.source.splitlines()[-1] == f"checks.{check[0]}(solution)"
        assert folded(solution) and not folded(stub)
        (name,) = re.findall(r"^def (my_\w+)\(", stub.source, re.M)
        body = f"    raise NotImplementedError\n\nchecks.{check[0]}({name})"
        assert stub.source.endswith(body) and "import " not in stub.source
        assert question.cell_type == "markdown" and f"`{name}" in question.source
        assert stub.outputs[0].text == f"○ {check[0]}: yours to write\n"


def pictures(path) -> list:
    found = [(c, o) for c in cells(path, "code") for o in c.outputs]
    return [pair for pair in found if "image/png" in pair[1].get("data", {})]


def test_every_figure_has_alternative_text(path):
    for cell, output in pictures(path):
        alt = output.metadata.get("image/png", {}).get("alt", "")
        assert 40 <= len(alt) <= 500, cell.source


def test_a_cell_that_draws_is_folded_and_a_heat_map_has_its_scale(path):
    for cell in cells(path, "code"):
        if "plots.finish(" in cell.source:
            assert folded(cell) and tagged(cell, "hide-input"), cell.source
        if re.search(r"\.(imshow|matshow|pcolormesh)\(", cell.source):
            assert "colorbar(" in cell.source, cell.source


def test_no_cell_asserts_a_time(path):
    """No clock is read but in a cell that draws or prints, with ignored output."""
    for cell in cells(path, "code"):
        if re.search(r"perf_counter|monotonic|time\.time|timeit", cell.source):
            assert "assert" not in cell.source


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
