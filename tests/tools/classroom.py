"""Hold a course with nbgrader, in a temporary folder, from the sources to the feedback.

Each chapter is handed in solved; chapter 01 also as it was given out, with one right
answer that warns, damaged, and with all of nbgrader's marks lost. Homework, whose right
answers aren't in public, is handed in as it was given out. Chapter 01 goes by the
guide's own commands, the others by nbgrader's functions, which takes less time.
"""

import os
import re
import subprocess
import sys
import tempfile
from contextlib import chdir
from itertools import pairwise
from pathlib import Path

import nbformat
from assignment import (
    CAPSTONE,
    HIDDEN,
    NOTEBOOKS,
    ROOT,
    STUB,
    body,
    is_solution,
    write_course,
)
from bank import BANK, questions
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from nbgrader.apps.api import NbGraderAPI

BIN = Path(sys.executable).parent
BY_HAND = "01_attention"
# What nbgrader itself logs of a cell with a hidden test.
CHANGED_SUM = r"\[WARNING\] Attribute 'checksum' for cell {} has changed!.*"
# What the chapter's own solution, of three tests, finds among the teacher's ten faults.
N_FOUND_OF_THE_HIDDEN = 2
HOMEWORK = {path.stem: questions(path) for path in BANK}
GUIDE = (ROOT / "docs" / "teaching.md").read_text("utf-8")
COMMANDS = re.findall(r"^nbgrader .*", GUIDE, re.M)
CHAPTERS = [path.stem for path in NOTEBOOKS]


def read(step: str, chapter: str):
    return nbformat.read(Path(step, chapter, f"{chapter}.ipynb"), as_version=4)


def facts(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


def named(notebook) -> dict:
    """nbgrader's cells by their names."""
    return {facts(cell)["grade_id"]: cell for cell in notebook.cells if facts(cell)}


def exercises(chapter: str) -> list[str]:
    cells = named(read("source", chapter))
    homework = [question.name for question in HOMEWORK.get(chapter, [])]
    every = [name for name, cell in cells.items() if facts(cell)["solution"]]
    return [name for name in every if name not in homework]


def hold_against_the_chapter(chapter: str) -> None:
    """What is given out has the chapter's stubs, none of its solutions, no outputs."""
    released = read("release", chapter)
    cells = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4).cells
    pairs = [pair for pair in pairwise(cells) if is_solution(pair[1])]
    for name, (stub, solution) in zip(exercises(chapter), pairs, strict=True):
        given, call = stub.source.rsplit("\n\n", 1)
        assert named(released)[name].source == given, (chapter, name)
        assert call in named(released)[f"check-{name}"].source, (chapter, name)
        told = body(solution.source, STUB.search(stub.source)[2])
        assert not any(told in cell.source for cell in released.cells), (chapter, name)
    assert "SOLUTION" not in nbformat.writes(released)
    assert "HIDDEN" not in nbformat.writes(released)
    assert HIDDEN.stem not in nbformat.writes(released)
    for question in HOMEWORK.get(chapter, []):
        assert named(released)[question.name].source == question.stub, question.name
        assert "check_" not in named(released)[f"check-{question.name}"].source
    assert "def check_" not in nbformat.writes(released)
    assert not any(cell.get("outputs") for cell in released.cells)


def answered(chapter: str, *wanted: str):
    """What a student hands in who has solved some exercises, or without names all."""
    source, notebook = named(read("source", chapter)), read("release", chapter)
    for name in wanted or exercises(chapter):
        named(notebook)[name].source = source[name].source
    return notebook


def warns():
    """One right answer, and it warns."""
    notebook = answered(BY_HAND, "one_query")
    cell = named(notebook)["one_query"]
    warning = "import warnings; warnings.warn('no mistake')"
    cell.source = cell.source.replace("### BEGIN", f"{warning}\n    ### BEGIN")
    return notebook


def damaged():
    """All answers but the first, two checks emptied, and two cells without marks."""
    one, twice, bare_check, bare = exercises(BY_HAND)
    notebook = answered(BY_HAND, twice, bare_check, bare)
    cells = named(notebook)
    cells[f"check-{one}"].source = cells[f"check-{bare_check}"].source = "pass"
    for name in (f"check-{bare_check}", bare):
        del cells[name].metadata["nbgrader"]
    copy = nbformat.from_dict(cells[twice] | {"id": "copy"})
    notebook.cells.insert(notebook.cells.index(cells[twice]), copy)
    return notebook


def lost():
    """All answers are right, and no cell has nbgrader's marks."""
    notebook = answered(BY_HAND)
    for cell in notebook.cells:
        cell.metadata.clear()
    return notebook


def expected() -> dict:
    """The points that each student must get."""
    points = {("untouched", BY_HAND): 0, ("warns", BY_HAND): 1}
    points |= {("damaged", BY_HAND): 3, ("lost", BY_HAND): 4}
    points |= {("solved", name): len(exercises(name)) for name in CHAPTERS}
    points["solved", CAPSTONE] += N_FOUND_OF_THE_HIDDEN
    return points


def hold_against_the_damage(log: str) -> None:
    """Each damaged cell is named, with its student, and no other."""
    one, twice, bare_check, bare = exercises(BY_HAND)
    fates = {
        f"check-{one}": "was changed",
        twice: "is there twice",
        f"check-{bare_check}": "is missing",
        bare: "is missing",
    }
    wanted = [f"damaged, {BY_HAND}: the cell {k} {v}" for k, v in fates.items()]
    every = named(read("release", BY_HAND))
    wanted += [f"lost, {BY_HAND}: the cell {name} is missing" for name in every]
    found = re.findall(r"\w+, \w+: the cell .*", log)
    assert sorted(found) == sorted(wanted), found


def hold_against_the_points() -> None:
    """The gradebook has them, and each page of feedback says why."""
    with Gradebook("sqlite:///gradebook.db") as book:
        all_in = [s for assignment in book.assignments for s in assignment.submissions]
        found = {(s.student.id, s.assignment.name): s.score for s in all_in}
    wrong = {k: found.get(k) for k, v in expected().items() if found.get(k) != v}
    assert not wrong and len(found) == len(expected()), wrong
    for (student, chapter), points in expected().items():
        page = Path("feedback", student, chapter, f"{chapter}.html").read_text("utf-8")
        if (student, chapter) == ("solved", CAPSTONE):
            points -= N_FOUND_OF_THE_HIDDEN  # of which no page tells
        assert "def check_" not in page and "HIDDEN" not in page, (student, chapter)
        missed = len(exercises(chapter)) + len(HOMEWORK.get(chapter, [])) - points
        assert len({*re.findall(r"✓ (\w+):", page)}) == points, (student, chapter)
        assert page.count("✗") == page.count(": yours to write") == missed


def run(act, *arguments) -> str:
    """One of nbgrader's functions, which must succeed: the warnings that it logs."""
    result = act(*arguments)
    if not result["success"]:
        sys.exit(f"{act.__name__}{arguments}: {result.get('log')}{result['error']}")
    return result.get("log", "")


def shell(command: str) -> str:
    """A command, which must succeed: the warnings that it logs."""
    result = subprocess.run(
        [*command.split(), "--log-level=WARN"], capture_output=True, text=True
    )
    if result.returncode:
        sys.exit(f"{command}: {result.stderr}")
    return result.stderr


def submissions(chapter: str) -> dict:
    """What each student hands in."""
    notebooks = {"solved": answered(chapter)}
    if chapter == BY_HAND:
        notebooks["untouched"] = read("release", chapter)
        notebooks["warns"] = warns()
        notebooks["damaged"] = damaged()
        notebooks["lost"] = lost()
    return notebooks


def hand_out_and_in(api: NbGraderAPI, generate: str) -> None:
    for chapter in CHAPTERS:
        if chapter == BY_HAND:
            shell(generate)
        else:
            run(api.generate_assignment, chapter)
        hold_against_the_chapter(chapter)
        for student, notebook in submissions(chapter).items():
            folder = Path("submitted", student, chapter)
            folder.mkdir(parents=True)
            nbformat.write(notebook, folder / f"{chapter}.ipynb")


def grade(api: NbGraderAPI, autograde: str, feedback: str) -> None:
    for chapter in CHAPTERS:
        if chapter == BY_HAND:
            hold_against_the_damage(shell(autograde))
            shell(feedback)
        else:
            log = run(api.autograde, chapter, "solved")
            hidden = [f"check-{x.name}" for x in HOMEWORK.get(chapter, [])]
            for name in ("second-cabinet", *hidden):
                log = re.sub(CHANGED_SUM.format(name), "", log)
            assert not log.strip(), log
            run(api.generate_feedback, chapter)
        print(chapter, "is graded", flush=True)


def main() -> None:
    generate, autograde, feedback, export = COMMANDS
    write_course(Path(), bank=True)
    app = NbGraderApp()
    app.initialize([])
    api = NbGraderAPI(config=app.config, log_level="WARN")
    hand_out_and_in(api, generate)
    grade(api, autograde, feedback)
    hold_against_the_points()
    shell(export)
    assert len(Path("grades.csv").read_text("utf-8").splitlines()) > len(expected())
    print(f"{len(expected())} submissions got the points that they deserve")


if __name__ == "__main__":
    # nbgrader starts `alembic` by its name, as an activated environment finds it.
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        main()
