"""The course for nbgrader has every exercise, and gives no solution away."""

import re
import subprocess
import sys

import nbformat
import pytest
from assignment import (
    BEGIN,
    CAPSTONE,
    END,
    GRADING,
    HIDDEN_POINTS,
    STUB,
    TUTOR,
    assignment,
    is_given,
    is_solution,
    write_course,
)
from cells import PATHS
from hand_ins import facts

from companion.course import checks

KEYS = {"schema_version", "grade_id", "grade", "solution", "locked", "task"}


def chapter(path) -> list[tuple[str, str]]:
    """The stubs of a chapter, each with its check's name."""
    cells = nbformat.read(path, as_version=4).cells
    pairs = zip(cells, cells[1:], strict=False)
    stubs = [cell.source for cell, following in pairs if is_solution(following)]
    return [(STUB.search(stub)[1], stub) for stub in stubs]


def hold_against_the_chapter(path) -> None:
    """Every exercise is an answer and then its check, both with nbgrader's marks."""
    made = assignment(path)
    nbformat.validate(made)
    marked = [cell for cell in made.cells if facts(cell)]
    names = [name for name, _ in chapter(path)]
    wanted = ["set-up", *(x for name in names for x in (name, f"check-{name}"))]
    if path.stem == CAPSTONE:
        *marked, hidden = marked
        assert facts(hidden)["points"] == HIDDEN_POINTS
        assert hidden.source.startswith("### BEGIN HIDDEN TESTS\n")
        assert hidden.source.endswith("\n### END HIDDEN TESTS")
    assert [facts(cell)["grade_id"] for cell in marked] == wanted
    for cell in marked:
        role = {key: facts(cell)[key] for key in ("solution", "grade", "locked")}
        kind = facts(cell)["grade_id"] in names, "points" in facts(cell)
        assert [*role.values()] == [*kind, not kind[0]]
        assert facts(cell).keys() - {"points"} == KEYS
        assert facts(cell)["schema_version"] == 3 and not facts(cell)["task"]
        assert cell.metadata.keys() == {"nbgrader"} and not cell.outputs
    for answer, check in zip(marked[1::2], marked[2::2], strict=True):
        place = made.cells.index(answer)
        assert made.cells[place + 1] is check and facts(check)["points"] == 1


def test_every_exercise_has_an_answer_and_then_its_check():
    assert PATHS
    for path in PATHS:
        hold_against_the_chapter(path)


def test_without_what_stands_between_the_marks_it_has_the_chapter_s_stubs():
    for path in PATHS:
        cells = assignment(path).cells
        made = {facts(cell).get("grade_id"): cell.source for cell in cells}
        for name, stub in chapter(path):
            unwritten = "    raise NotImplementedError"
            answer = re.sub(f"(?s){BEGIN}.*{END}", unwritten, made[name])
            call = made[f"check-{name}"].splitlines()[-1].strip()
            assert f"{answer}\n\n{call}" == stub
            head = "with checks.compare.graded():\n"
            assert made[f"check-{name}"].startswith(head)
        others = [cell.source for cell in cells if not facts(cell)]
        assert not any("solution" in text or "folded" in text for text in others)


def test_an_assignment_uses_no_name_that_only_the_chapter_has(tmp_path):
    write_course(tmp_path)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821"]
    done = subprocess.run(
        [*ruff, "source"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_what_the_chapter_gives_is_there_once_and_before_the_first_question():
    n_given = 0
    for path in PATHS:
        cells = assignment(path).cells
        first = next(i for i, cell in enumerate(cells) if "**1. " in cell.source)
        for cell in filter(is_given, nbformat.read(path, as_version=4).cells):
            places = [i for i, x in enumerate(cells) if x.source == cell.source]
            assert len(places) == 1 and places[0] < first, (path, cell.source)
            n_given += 1
    assert n_given


def test_no_assignment_reads_or_writes_a_machine():
    """Whose my_gpt.py lies beside a hand-in must not decide about its points."""
    for path in PATHS:
        text = "\n".join(cell.source for cell in assignment(path).cells)
        assert not re.search(r"my_gpt|kept\.begin|%%keep", text), path


def test_settings_that_a_teacher_has_changed_stay_and_are_named(tmp_path):
    assert write_course(tmp_path) == []
    settings = tmp_path / "nbgrader_config.py"
    settings.write_text("mine")
    assert write_course(tmp_path) == [settings]
    assert settings.read_text() == "mine"
    assert len([*tmp_path.glob("source/*/*.ipynb")]) == len(PATHS)


def test_a_teacher_s_own_grading_stays_and_is_named(tmp_path):
    write_course(tmp_path)
    folder = tmp_path / "grading"
    given = {path.name for path in GRADING.glob("*.py")}
    assert {path.name for path in folder.iterdir()} == given
    (folder / "running.py").write_text("mine")
    assert write_course(tmp_path) == [folder]
    assert (folder / "running.py").read_text() == "mine"


def other_text(notebook):
    notebook.cells[0].source += " Hand in by Friday."


def other_points(notebook):
    facts(notebook.cells[-1])["points"] = 3


def one_cell_less(notebook):
    del notebook.cells[-2:]


def no_marks(notebook):
    del notebook.metadata["written"]
    other_text(notebook)


@pytest.mark.parametrize("edit", [other_text, other_points, one_cell_less, no_marks])
def test_a_teacher_s_edit_of_a_source_stays_and_is_named(tmp_path, edit):
    write_course(tmp_path)
    path = tmp_path / "source" / "01_attention" / "01_attention.ipynb"
    notebook = nbformat.read(path, as_version=4)
    edit(notebook)
    nbformat.write(notebook, path)
    before = path.read_bytes()
    assert write_course(tmp_path, bank=True) == [path]
    assert path.read_bytes() == before
    path.unlink()
    assert write_course(tmp_path, bank=True) == []


def test_a_source_that_nobody_has_edited_is_written_anew(tmp_path):
    """Also one that was run, and one of a course whose questions have changed since."""
    write_course(tmp_path)
    path = tmp_path / "source" / "01_attention" / "01_attention.ipynb"
    notebook = nbformat.read(path, as_version=4)
    n_cells = len(notebook.cells)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", text="printed")]
    nbformat.write(notebook, path)
    assert write_course(tmp_path, bank=True) == []
    assert len(nbformat.read(path, as_version=4).cells) > n_cells
    assert write_course(tmp_path) == []
    assert len(nbformat.read(path, as_version=4).cells) == n_cells


def test_a_source_that_can_not_be_read_stays(tmp_path):
    write_course(tmp_path)
    path = tmp_path / "source" / "01_attention" / "01_attention.ipynb"
    path.write_text("<<<<<<< mine")
    assert write_course(tmp_path) == [path]
    assert path.read_text() == "<<<<<<< mine"


@pytest.mark.parametrize("name", TUTOR)
def test_a_tutor_s_page_goes_with_every_chapter_and_a_teacher_s_own_stays(
    tmp_path, name
):
    write_course(tmp_path)
    pages = sorted(tmp_path.glob(f"source/*/{name}"))
    assert [page.parent.name for page in pages] == [path.stem for path in PATHS]
    text = TUTOR[name].read_text("utf-8")
    assert all(page.read_text("utf-8") == text for page in pages)
    assert "](" not in text  # from there a link would lead nowhere
    pages[0].write_text("mine")
    assert write_course(tmp_path) == [pages[0]]
    assert pages[0].read_text() == "mine"


def test_what_the_tutor_s_page_quotes_is_in_the_chapter_and_its_check():
    text = TUTOR["TUTOR.md"].read_text("utf-8")
    heading, chapter = re.search(r'"([^"]+)" in chapter (\d\d)', text).groups()
    (path,) = (path for path in PATHS if path.stem.startswith(chapter))
    assert f"\n## {heading}" in "\n" + "\n".join(
        cell.source for cell in nbformat.read(path, as_version=4).cells
    )
    (check,) = re.findall(r"`checks\.(\w+)`", text)
    (said,) = re.findall(r'It says "([^"]+)"', text)
    assert any(said in words for words in getattr(checks, check).exercise().mistakes)


def test_an_assistant_that_is_opened_beside_the_notebooks_gets_the_rules():
    page = PATHS[0].parent / "AGENTS.md"
    text = page.read_text("utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    pages = [(page.parent / link).resolve() for link in links]
    assert pages == [path.resolve() for path in TUTOR.values()]
    assert "raise NotImplementedError" in text
