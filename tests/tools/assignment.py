"""Write an nbgrader course, the chapters' exercises, to build/course/.

With `--bank` each chapter has more questions, whose checks students don't receive.
"""

import argparse
import ast
import hashlib
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import nbformat
from bank import BANK, Question, questions
from cells import PATHS, ROOT, code_cells, read, tags
from execute import KERNEL
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

COURSE = ROOT / "build" / "course"
CONFIG = ROOT / "docs" / "nbgrader_config.py"
GRADING = ROOT / "docs" / "grading"  # what the settings call
BEGIN, END = "    ### BEGIN SOLUTION", "    ### END SOLUTION"
CAPSTONE = "16_nothing_crashes"
HIDDEN = ROOT / "docs" / "hidden_cabinet.py"
HIDDEN_POINTS = 10
# For assistants, beside the exercises: what a tutor may do, and how a talk goes.
TUTOR = {
    "AGENTS.md": ROOT / "docs" / "tutor.md",
    "TUTOR.md": ROOT / "notebooks" / "TUTOR.md",
}
STUB = re.compile(r"    raise NotImplementedError\n\nchecks\.(\w+)\((my_\w+)\)$")
HEAD = """{title}: exercises

The exercises of `notebooks/{path.name}`: what they call "above", or name without
explaining it, stands there. Write each answer in place of `raise NotImplementedError`;
an import that it needs belongs there too. The check below it says that it is right,
names a likely mistake, or shows where it differs. Until there is an answer, the check
fails."""

HOMEWORK = """## Homework

More questions, a point each. You don't receive the checks that grade them, so test each
answer with cases of your own."""


def is_solution(cell) -> bool:
    return "solution" in tags(cell)


def needs_the_chapter(cell) -> bool:
    """Whether a cell among the exercises shows something with the chapter's names."""
    return "chapter" in tags(cell)


def is_given(cell) -> bool:
    """Whether a cell above the exercises defines what their answers may call."""
    return "given" in tags(cell)


def nbgrader(grade_id: str, **role) -> dict:
    """A cell's metadata: by default it is locked, and neither answer nor check."""
    facts = {
        "schema_version": 3,
        "grade_id": grade_id,
        "locked": True,
        "grade": False,
        "solution": False,
        "task": False,
    }
    return {"nbgrader": facts | role}


def body(source: str, name: str) -> str:
    """The lines above and in `def solution`, as the body of a function `name`."""
    source = source.removeprefix("# A solution.\n")
    tree = ast.parse(source)
    lines = source.splitlines()
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    above = [f"    {line}" for line in lines[: function.lineno - 1]]
    inside = lines[function.body[0].lineno - 1 : function.end_lineno]
    return re.sub(r"\bsolution\b", name, "\n".join(above + inside))


def answer_and_check(stub: str, solution: str) -> list:
    """The two cells made of an exercise's last two."""
    end = STUB.search(stub)
    check, name = end.groups()
    answer = f"{stub[: end.start()]}{BEGIN}\n{body(solution, name)}\n{END}"
    test = f"with checks.compare.graded():\n    checks.{check}({name})"
    role = nbgrader(check, solution=True, locked=False)
    grade = nbgrader(f"check-{check}", grade=True, points=1)
    return [
        new_code_cell(answer, id=check, metadata=role),
        new_code_cell(test, id=f"check-{check}", metadata=grade),
    ]


def hidden_test() -> list:
    """Two cells that grade the tests of the capstone by the teacher's own faults.

    nbgrader takes what stands between the marks out of what students receive. The last
    number of a cell is its share of the points.
    """
    text = (
        f"**The second cabinet.** {HIDDEN_POINTS} more faults, which nobody is shown."
        " Each that your tests find is a point, and a false alarm costs all of them."
    )
    faults = HIDDEN.read_text("utf-8")
    program = f"""### BEGIN HIDDEN TESTS
{faults}
from companion.course.checks.judge import judge

try:
    verdict = judge(my_tests(), FAULTS)
    n_found = 0 if verdict.alarms else verdict.n_found
except Exception:  # a traceback would show students what is hidden
    n_found = 0
n_found
### END HIDDEN TESTS"""
    grade = nbgrader("second-cabinet", grade=True, points=HIDDEN_POINTS)
    return [
        new_markdown_cell(text, id="second-cabinet-text"),
        new_code_cell(program, id="second-cabinet", metadata=grade),
    ]


def homework(question: Question) -> list:
    """Three cells: the prompt, the stub as an answer, and the check between the marks.

    Without nbgrader's marks a whole answer cell would become its stub.
    """
    stub = question.stub.removesuffix("    raise NotImplementedError")
    answer = f"{stub}{BEGIN}\n    raise NotImplementedError\n{END}"
    program = f"""# Graded by a check that you don't receive.
### BEGIN HIDDEN TESTS
{question.imports}

{question.check}

from companion.course.checks.homework import grade

grade(check_{question.name}, globals().get("{question.function}"))
### END HIDDEN TESTS"""
    name = question.name
    role = nbgrader(name, solution=True, locked=False)
    grade = nbgrader(f"check-{name}", grade=True, points=1)
    return [
        new_markdown_cell(question.prompt, id=f"homework-{name}"),
        new_code_cell(answer, id=name, metadata=role),
        new_code_cell(program, id=f"check-{name}", metadata=grade),
    ]


def bank_of(chapter: str) -> list:
    """The cells of a chapter's homework, none where the bank has no file for it."""
    found = [question for p in BANK if p.stem == chapter for question in questions(p)]
    cells = [cell for question in found for cell in homework(question)]
    return [new_markdown_cell(HOMEWORK, id="homework"), *cells] if cells else []


def without_machine(source: str) -> str:
    """A set-up without the reader's machine: no exercise needs it.

    So no `my_gpt.py`, a student's or the grader's, is read or written by a hand-in.
    """
    lines = source.splitlines()
    machine = ("kept.begin(", "from my_gpt import")
    return "\n".join(line for line in lines if not line.startswith(machine))


def assignment(path: Path, bank: bool = False):
    """The chapter's first code cell and its exercises, all that stands among them.

    Between the two are the cells tagged "given".

    With `bank` the chapter's homework follows.
    """
    notebook = read(path)
    cells = notebook.cells
    set_up = code_cells(notebook)[0].source
    title = cells[0].source.splitlines()[0]
    made = [
        new_markdown_cell(HEAD.format(title=title, path=path), id="head"),
        new_code_cell(
            without_machine(set_up), id="set-up", metadata=nbgrader("set-up")
        ),
    ]
    begin = next(i for i, cell in enumerate(cells) if "**1. " in cell.source)
    end = max(i for i, cell in enumerate(cells) if is_solution(cell))
    given = [cell for cell in cells[:begin] if is_given(cell)]
    made += [new_code_cell(cell.source, id=cell.id) for cell in given]
    # The first question, without the chapter's heading and words above it.
    first = cells[begin]
    question = first.source[first.source.index("**1. ") :]
    made.append(new_markdown_cell(question, id=first.id))
    for cell, following in pairwise(cells[begin + 1 : end + 1]):
        if is_solution(following):
            made += answer_and_check(cell.source, following.source)
        elif not is_solution(cell) and not needs_the_chapter(cell):
            new = new_code_cell if cell.cell_type == "code" else new_markdown_cell
            made.append(new(cell.source, id=cell.id))
    if path.stem == CAPSTONE:
        made += hidden_test()
    if bank:
        made += bank_of(path.stem)
    return new_notebook(cells=made, metadata={"kernelspec": KERNEL})


def digest_of_cells(notebook) -> str:
    """A SHA-256 of what a teacher would edit: the cells, without their outputs."""
    kept = ("cell_type", "source", "metadata", "attachments")
    cells = [
        {key: cell[key] for key in kept if cell.get(key)} for cell in notebook.cells
    ]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def write(notebook, path: Path) -> bool:
    """Write a source, which then knows how it was written.

    Returns False, and writes nothing, where the file that is there was edited.
    """
    if path.exists():
        try:
            there = read(path)
        except Exception:
            return False
        if digest_of_cells(there) not in (
            there.metadata.get("written"),
            digest_of_cells(notebook),
        ):
            return False
    notebook.metadata["written"] = digest_of_cells(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return True


def copy(source: Path, path: Path) -> bool:
    """Copy a page if there is none. Returns False where there is another one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path)
    return path.read_bytes() == source.read_bytes()


def copy_folder(source: Path, folder: Path) -> bool:
    """Copy a folder of modules if there is none. Returns False where it is another."""
    if not folder.exists():
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    here, there = (
        {path.name: path.read_bytes() for path in place.glob("*.py")}
        for place in (source, folder)
    )
    return here == there


def write_course(folder: Path, bank: bool = False) -> list[Path]:
    """Write the sources anew; settings, grading and tutor's pages if there are none.

    What was edited stays as it is; returned are the files that do. nbgrader hands out
    what lies beside a notebook with it.
    """
    settings = folder / CONFIG.name
    kept = [] if copy(CONFIG, settings) else [settings]
    if not copy_folder(GRADING, folder / GRADING.name):
        kept.append(folder / GRADING.name)
    for path in PATHS:
        source = folder / "source" / path.stem
        if not write(assignment(path, bank), source / path.name):
            kept.append(source / path.name)
        for name, page in TUTOR.items():
            if not copy(page, source / name):
                kept.append(source / name)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bank", action="store_true", help="with homework")
    kept = write_course(COURSE, parser.parse_args().bank)
    for path in kept:
        print(
            f"kept: {path.relative_to(ROOT)} was edited, or is another version's;"
            " move it away to have it written anew"
        )
    print(COURSE.relative_to(ROOT))


if __name__ == "__main__":
    main()
