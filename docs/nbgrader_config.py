"""nbgrader's settings for the course that `make assignment` writes."""

import re
import warnings

from nbformat.v4 import new_code_cell
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.preprocessors import NbGraderPreprocessor
from sqlalchemy.exc import SAWarning

# What students don't receive of a cell.
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS.*### END HIDDEN TESTS", re.DOTALL)


class Mend(NbGraderPreprocessor):
    """Names the cells of a submission that are missing, there twice, or changed.

    Of two the last counts, a missing check is put at the end, and what was changed
    though it was locked, nbgrader itself restores.
    """

    def preprocess(self, nb, resources):
        about = resources["nbgrader"]
        cell_of = f"{about['student']}, {about['assignment']}: the cell"
        with Gradebook(about["db_url"]) as gradebook:
            book = gradebook.find_notebook(about["notebook"], about["assignment"])
            released = [(x.name, x.source, x.locked) for x in book.source_cells]
            points = {cell.name: cell.max_score for cell in book.grade_cells}
        for name, source, locked in released:
            found = [cell for cell in nb.cells if facts(cell).get("grade_id") == name]
            if not found:
                self.log.error("%s %s is missing", cell_of, name)
                if name in points:
                    nb.cells.append(check(name, source, points[name]))
            elif len(found) > 1:
                self.log.error("%s %s is there twice", cell_of, name)
                for cell in found[:-1]:
                    del cell.metadata["nbgrader"]
            elif locked and found[0].source.strip() != HIDDEN.sub("", source).strip():
                self.log.error("%s %s was changed", cell_of, name)
        return nb, resources


class Hide(NbGraderPreprocessor):
    """Takes hidden tests out of the feedback, which students receive."""

    def preprocess_cell(self, cell, resources, cell_index):
        if facts(cell).get("grade"):
            cell.source = HIDDEN.sub("", cell.source)
        return cell, resources


def facts(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


def check(name: str, source: str, points: float):
    role = {
        "schema_version": 3,
        "grade_id": name,
        "points": points,
        "grade": True,
        "solution": False,
        "locked": True,
        "task": False,
    }
    return new_code_cell(source, metadata={"nbgrader": role})


# nbgrader's own, about the order in which it fills its gradebook.
warnings.filterwarnings("ignore", category=SAWarning)

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "transformer"
# An answer's stub is that of the chapters.
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError"}
# Seconds a cell; after 30, the default, a submission that trains would be thrown away.
c.Execute.timeout = 600
# To nbgrader a warning is a failure: a right answer would lose its point.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = "."
c.GenerateFeedback.preprocessors = [Hide, *GenerateFeedback.preprocessors.default()]
c.Autograde.sanitize_preprocessors = [Mend, *Autograde.sanitize_preprocessors.default()]
