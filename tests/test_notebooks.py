"""Gates for the notebooks: what strict nbval can't see by itself."""

import ast
import importlib.util
import re
from pathlib import Path

import nbformat

PATHS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in PATHS}
IGNORED = {"nbval-ignore-output", "nbval-skip"}


def cells(notebook, kind: str) -> list:
    return [c for c in notebook.cells if c.cell_type == kind and c.source.strip()]


CODE = {stem: cells(notebook, "code") for stem, notebook in NOTEBOOKS.items()}
PROSE = {
    stem: "\n\n".join(cell.source for cell in cells(notebook, "markdown"))
    for stem, notebook in NOTEBOOKS.items()
}
ALL_CODE = [(stem, cell) for stem, found in CODE.items() for cell in found]


def tags(cell) -> set[str]:
    return {*cell.metadata.get("tags", [])}


def folded(cell) -> bool:
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def test_each_is_valid_and_every_cell_ran_in_order():
    assert len(NOTEBOOKS) == 13
    for stem, notebook in NOTEBOOKS.items():
        nbformat.validate(notebook)
        counts = [cell.execution_count for cell in CODE[stem]]
        assert counts == [*range(1, len(counts) + 1)], stem


def test_no_error_is_stored_and_no_time():
    """nbval passes a cell that is meant to raise even where nothing is raised."""
    for stem, cell in ALL_CODE:
        errors = [o for o in cell.outputs if o.output_type == "error"]
        assert bool(errors) == ("raises-exception" in tags(cell)), (stem, cell.source)
        assert "execution" not in cell.metadata, (stem, cell.source)


def test_nine_of_ten_printing_cells_are_compared():
    for stem, found in CODE.items():
        printing = [cell for cell in found if cell.outputs]
        ignored = [cell for cell in printing if IGNORED & tags(cell)]
        assert len(ignored) <= 0.1 * len(printing), stem
        assert not any("NBVAL_" in cell.source for cell in found), stem


def test_a_cell_whose_output_is_ignored_is_followed_by_an_assertion():
    """It comes within the next four code cells."""
    for stem, found in CODE.items():
        for i, cell in enumerate(found):
            if IGNORED & tags(cell):
                after = "".join(c.source for c in found[i + 1 : i + 5])
                assert "assert" in after or "checks." in after, (stem, cell.source)


def test_lines_are_short_enough_to_project():
    for stem, found in CODE.items():
        lines = [line for cell in found for line in cell.source.splitlines()]
        assert max(map(len, lines)) <= 88, stem


def test_every_name_in_the_prose_exists():
    for stem, prose in PROSE.items():
        for dotted in re.findall(r"`(companion(?:\.\w+)+)", prose):
            parent, _, name = dotted.rpartition(".")
            if not hasattr(importlib.import_module(parent), name):
                assert importlib.util.find_spec(dotted), f"{stem}: {dotted}"


def test_exercises_are_three_cells_a_question_a_stub_and_a_folded_solution():
    """The stub is the reader's to overwrite; its check is called again on ours."""
    for stem, notebook in NOTEBOOKS.items():
        solutions = [i for i, c in enumerate(notebook.cells) if "solution" in tags(c)]
        assert len(solutions) >= 3, stem
        for i in solutions:
            question, stub, solution = notebook.cells[i - 2 : i + 1]
            (check,) = re.findall(r"^checks\.(\w+)\(solution\)$", solution.source, re.M)
            assert "def solution(" in solution.source, (stem, check)
            assert solution.source.splitlines()[-1] == f"checks.{check}(solution)"
            assert folded(solution) and not folded(stub), (stem, check)
            (name,) = re.findall(r"^def (my_\w+)\(", stub.source, re.M)
            body = f"    raise NotImplementedError\n\nchecks.{check}({name})"
            assert stub.source.endswith(body) and "import " not in stub.source
            assert question.cell_type == "markdown" and f"`{name}" in question.source
            assert stub.outputs[0].text == f"○ {check}: yours to write\n"


def test_every_figure_has_alternative_text():
    for stem, cell in ALL_CODE:
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                alt = output.metadata.get("image/png", {}).get("alt", "")
                assert 40 <= len(alt) <= 500, (stem, cell.source)


def test_a_cell_that_draws_is_folded_and_a_heat_map_has_its_scale():
    for stem, cell in ALL_CODE:
        if "plots.finish(" in cell.source:
            assert folded(cell) and "hide-input" in tags(cell), (stem, cell.source)
        if re.search(r"\.(imshow|matshow|pcolormesh)\(", cell.source):
            assert "colorbar(" in cell.source, (stem, cell.source)


def test_a_folded_cell_says_in_its_first_line_what_it_holds():
    """JupyterLab shows this line in the cell's place."""
    for stem, cell in ALL_CODE:
        assert not folded(cell) or cell.source.startswith("# "), (stem, cell.source)


def test_no_cell_asserts_a_time():
    """No clock is read but in a cell that draws or prints, with ignored output."""
    for stem, cell in ALL_CODE:
        if re.search(r"perf_counter|monotonic|time\.time|timeit", cell.source):
            assert "assert" not in cell.source, (stem, cell.source)


def test_nothing_comes_from_the_network():
    """No picture, script or data by address: only links to read."""
    for stem, found in CODE.items():
        html = "".join(str(o) for cell in found for o in cell.outputs)
        assert not re.search(r"""(src|href)=\\?['"]https?:""", html), stem
        images = r"!\[[^]]*\]\(http|<(img|script|iframe)"
        assert not re.search(images, PROSE[stem]), stem
        code = "\n".join(c.source for c in found if "%" not in c.source[:1])
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] + [getattr(node, "module", "")]
                assert not {"requests", "urllib", "urllib.request", "wget"} & {*names}
