"""A small assignment: a set-up, two answers with their checks, one of them hidden."""

import nbformat
from grading.cells import HIDDEN, Given
from nbformat.v4 import new_code_cell, new_notebook

STUB = "def my_{}():\n    raise NotImplementedError"
HIDDEN_CHECK = """# Graded.
### BEGIN HIDDEN TESTS
def check_second(answer):
    assert answer() == 2, f"it gives {answer()}, not 2"
check_second(my_second)
### END HIDDEN TESTS"""


def given(name: str, source: str, **role) -> Given:
    marks = {"grade": False, "solution": False, "locked": True, "task": False}
    return Given(source, "code", {"grade_id": name, **marks, **role})


def cell_of(cell: Given):
    """As students receive it."""
    source = HIDDEN.sub("", cell.source)
    return new_code_cell(source, metadata={"nbgrader": dict(cell.marks)})


GIVEN = [
    given("set-up", "x = 1"),
    given("first", STUB.format("first"), solution=True, locked=False),
    given("check-first", "assert my_first() == 1", grade=True),
    given("second", STUB.format("second"), solution=True, locked=False),
    given("check-second", HIDDEN_CHECK, grade=True),
]
ANSWERS = {"first": "def my_first():\n    return x", "second": "my_second = int"}


def notebook(**answers: str):
    """A hand-in, with these answers in place of the stubs."""
    cells = [cell_of(cell) for cell in GIVEN]
    for cell in cells:
        name = cell.metadata["nbgrader"]["grade_id"]
        cell.source = answers.get(name, cell.source)
    return new_notebook(cells=cells)


def solved():
    return notebook(**ANSWERS)


def names(notebook) -> list[str]:
    return [x.metadata.get("nbgrader", {}).get("grade_id") for x in notebook.cells]


def as_bytes(notebook) -> bytes:
    return nbformat.writes(notebook).encode()
