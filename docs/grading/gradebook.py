"""What nbgrader's gradebook has of a notebook, and the notes on a hand-in of it."""

from nbgrader import utils

from .cells import Given, marks


def given_out(book) -> list[Given]:
    """The cells of a notebook in nbgrader's gradebook."""
    points = {x.name: x.max_score for x in [*book.grade_cells, *book.task_cells]}
    checks, answers, tasks = (
        {x.name for x in cells}
        for cells in (book.grade_cells, book.solution_cells, book.task_cells)
    )
    given = []
    for cell in book.source_cells:
        marks = {
            "schema_version": 3,
            "grade_id": cell.name,
            "cell_type": cell.cell_type,
            "checksum": cell.checksum,
            "grade": cell.name in checks,
            "solution": cell.name in answers,
            "locked": cell.locked,
            "task": cell.name in tasks,
        }
        if cell.name in points:
            marks["points"] = points[cell.name]
        given.append(Given(cell.source, cell.cell_type, marks))
    return given


def is_untouched(cell) -> bool:
    """Whether it is as it was given out, even if the teacher has mended it since."""
    try:
        return marks(cell)["checksum"] == utils.compute_checksum(cell)
    except KeyError:
        return False


def note(log, about: dict, words: str) -> None:
    """Writes a line to the log, and keeps it for `grades.csv`.

    `about` says of whom and of what, as nbgrader's resources do: a student and an
    assignment. The words are kept in its `notes`.
    """
    about.setdefault("notes", []).append(words)
    log.error("%s, %s: %s", about["student"], about["assignment"], words)
