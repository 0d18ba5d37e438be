"""A cell as it was given out, and nbgrader's marks in a notebook."""

import re
from dataclasses import dataclass

# What students don't receive of a cell.
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS.*### END HIDDEN TESTS", re.DOTALL)


@dataclass(frozen=True)
class Given:
    """One of nbgrader's cells, as the teacher has given it out."""

    source: str
    cell_type: str
    marks: dict  # what nbgrader writes into its metadata

    @property
    def name(self) -> str:
        return self.marks["grade_id"]

    @property
    def is_answer(self) -> bool:
        return self.marks["solution"]

    @property
    def is_check(self) -> bool:
        return self.marks["grade"] and self.marks["locked"]

    @property
    def is_locked(self) -> bool:
        return self.marks["locked"]

    @property
    def is_hidden(self) -> bool:
        return bool(HIDDEN.search(self.source))


def marks(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


def name_of(cell) -> str | None:
    return marks(cell).get("grade_id")
