"""What a hand-in goes through in nbgrader, part by part, in this order.

`nbgrader autograde` mends it, runs it, and names points that were given by hand;
`nbgrader generate_feedback` hides what students don't receive; `nbgrader export` writes
the table. Each part is of a kind that nbgrader documents, a preprocessor or an export
plugin, and hands on to a module here. What a teacher must know of a hand-in is a line
in the log, and stands in `grades.csv`.
"""

import copy
import csv
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import ExportPlugin
from nbgrader.preprocessors import Execute, GetGrades, NbGraderPreprocessor

from . import feedback, grades, mending, running
from .cells import HIDDEN
from .gradebook import given_out, is_untouched, note


class Mend(NbGraderPreprocessor):
    """Mends a hand-in before it is run."""

    def preprocess(self, nb, resources):
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            book = gradebook.find_notebook(about["notebook"], about["assignment"])
            given = given_out(book)
        for words in mending.mend(nb, given, is_untouched):
            note(self.log, about, words)
        return nb, resources


class Run(running.Survivor, Execute):
    """nbgrader's, which gives up a hand-in when its kernel ends, or hangs.

    Hidden tests change nothing of what was printed above them.
    """

    def preprocess(self, nb, resources, km=None):
        self.about = resources["nbgrader"]
        self.printed = None  # what the cells above the first hidden test have printed
        self.begin()
        nb, resources = super().preprocess(nb, resources, km)
        for cell, outputs in zip(nb.cells, self.printed or [], strict=False):
            if cell.cell_type == "code":
                cell.outputs = outputs
        return nb, resources

    def preprocess_cell(self, cell, resources, index):
        if HIDDEN.search(cell.source) and self.printed is None:
            above = self.nb.cells[:index]
            self.printed = [copy.deepcopy(x.get("outputs", [])) for x in above]
        self.run_cell(cell, index)
        return cell, resources

    def say(self, words: str) -> None:
        note(self.log, self.about, words)


class ByHand(NbGraderPreprocessor):
    """Names points that were given by hand, and stay when a hand-in is graded anew."""

    def preprocess(self, nb, resources):
        about = resources["nbgrader"]
        where = about["notebook"], about["assignment"], about["student"]
        with Gradebook(about["db_url"]) as gradebook:
            for grade in gradebook.find_submission_notebook(*where).grades:
                if grade.manual_score is not None:
                    words = f"{grade.manual_score:g} was given by hand, and stays"
                    note(self.log, about, f"{grade.name}: {words}")
        return nb, resources


class Hide(GetGrades):
    """Writes the points, where hidden tests and what could tell of them are gone."""

    def preprocess(self, nb, resources):
        feedback.hide(nb)
        return super().preprocess(nb, resources)


class Grades(ExportPlugin):
    """nbgrader's columns, and a note."""

    def export(self, gradebook: Gradebook) -> None:
        with open(self.to or "grades.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, grades.COLUMNS)
            table.writeheader()
            for assignment in gradebook.assignments:
                if self.assignment and assignment.name not in self.assignment:
                    continue
                for student in gradebook.students:
                    if not self.student or student.id in map(str, self.student):
                        table.writerow(self.row(gradebook, assignment, student))

    def row(self, gradebook: Gradebook, assignment, student) -> dict:
        course = self.parent.coursedir
        submitted, autograded = (
            Path(course.format_path(step, student.id, assignment.name))
            for step in (course.submitted_directory, course.autograded_directory)
        )
        notebooks = {book.name: given_out(book) for book in assignment.notebooks}
        remarks = grades.remarks(submitted, autograded, notebooks)
        try:
            submission = gradebook.find_submission(assignment.name, student.id)
        except MissingEntry:
            submission = None
        return grades.row(assignment, student, submission, remarks)


def with_others(parts: list, others: dict) -> list:
    """A list of nbgrader's preprocessors, some of them replaced."""
    return [others.get(part, part) for part in parts]
