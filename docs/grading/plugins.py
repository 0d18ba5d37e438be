"""What nbgrader calls: each part is nbgrader's own, and hands on to a module here.

What a teacher must know of a hand-in is a line in the log, and stands in `grades.csv`.
"""

import copy
import csv
import shutil
import tempfile
import warnings
from pathlib import Path

import nbformat
from nbgrader import utils
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import api, autogradeapp, generatefeedbackapp
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.plugins import ExportPlugin
from nbgrader.preprocessors import Execute, GetGrades, NbGraderPreprocessor
from sqlalchemy.exc import SAWarning

from . import feedback, grades, hand_ins, mending, running
from .cells import HIDDEN, Given, marks


def note(log, about: dict, words: str) -> None:
    """Writes a line to the log, and keeps it for `grades.csv`."""
    about.setdefault("notes", []).append(words)
    log.error("%s, %s: %s", about["student"], about["assignment"], words)


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


class Grading(Autograde):
    """nbgrader's, which would look for one file name, and keep the first grade.

    It grades copies under the right names. What was graded before is graded anew if it
    or a check has changed, or with --force; else a line says that it was not.
    """

    def start(self) -> None:
        course = self.coursedir
        handed_in = course.submitted_directory
        with tempfile.TemporaryDirectory(dir=course.root) as copies:
            n_taken, n_not = self.take_all(Path(copies))
            if n_not and not n_taken:
                return
            if n_taken:  # without any nbgrader itself says what is missing
                course.submitted_directory = Path(copies).name
            try:
                super().start()
            finally:
                course.submitted_directory = handed_in

    def take_all(self, copies: Path) -> tuple[int, int]:
        """Copies what can be graded. Returns how many can be, and how many not."""
        course = self.coursedir
        assignment = self.coursedir.assignment_id
        submitted = Path(course.root, course.submitted_directory)
        self.taken = {}  # what a grade depends on, by student
        n_taken = n_not = 0
        with Gradebook(course.db_url, course.course_id) as gradebook:
            known = {x.name for x in gradebook.assignments}
            if assignment not in known:
                return 0, 0
            for folder in sorted(submitted.glob(f"{course.student_id}/{assignment}")):
                student = folder.parent.name
                try:
                    self.take(gradebook, folder, copies / student / assignment)
                    n_taken += 1
                except (hand_ins.NotTaken, OSError) as error:
                    n_not += 1
                    about = {"student": student, "assignment": assignment}
                    note(self.log, about, f"not graded: {error}")
                    gradebook.update_or_create_student(student)
                    gradebook.update_or_create_submission(assignment, student)
                    self.forget(student)
        for folder in sorted(submitted.glob(course.student_id)):
            for path in hand_ins.strays(folder, known):
                words = "%s: %s is no assignment's folder, and was not graded"
                self.log.error(words, folder.name, path.name)
        return n_taken, n_not

    def take(self, gradebook: Gradebook, folder: Path, copied: Path) -> None:
        """Copies one hand-in. Where an assignment is one notebook, it gets its name."""
        student, assignment = copied.parts[-2:]
        notebooks = gradebook.find_assignment(assignment).notebooks
        if len(notebooks) > 1:
            shutil.copytree(folder, copied, ignore_dangling_symlinks=True)
            return
        name = notebooks[0].name
        given = given_out(notebooks[0])
        path, said = hand_ins.choose(folder, name, given)
        others = shutil.ignore_patterns(".*", "*.ipynb")
        shutil.copytree(folder, copied, ignore=others, ignore_dangling_symlinks=True)
        shutil.copyfile(path, copied / f"{name}.ipynb")
        facts = {"notebook": name, "said": said}
        self.taken[student] = hand_ins.digests(path, given) | facts

    def forget(self, student: str) -> None:
        """Takes away an earlier grade's notebook, which isn't what was handed in."""
        old = Path(self._format_dest(self.coursedir.assignment_id, student))
        if old.exists():
            utils.rmtree(str(old))

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        taken = self.taken.get(student_id)
        if not taken:
            return super().init_destination(assignment_id, student_id)
        folder = Path(self._format_dest(assignment_id, student_id))
        before = grades.noted(folder, taken["notebook"])
        same = all(before.get(key) == taken[key] for key in ("hand_in", "checks"))
        if same and not self.force:
            words = "%s, %s: not graded anew: neither it nor a check has changed"
            self.log.warning(words, student_id, assignment_id)
            return False
        self.forget(student_id)
        return True

    def init_single_notebook_resources(self, notebook_filename: str) -> dict:
        resources = super().init_single_notebook_resources(notebook_filename)
        resources["nbgrader"]["notes"] = self.notes
        return resources

    def write_single_notebook(self, output: str, resources) -> None:
        super().write_single_notebook(output, resources)
        self.notes = resources["nbgrader"]["notes"]  # a copy, in which there are more

    def convert_single_notebook(self, notebook_filename: str) -> None:
        student, assignment = Path(notebook_filename).parts[-3:-1]
        taken = self.taken.get(student, {})
        about = {"student": student, "assignment": assignment, "notes": []}
        if taken.get("said"):
            note(self.log, about, taken["said"])
        self.notes = about["notes"]
        super().convert_single_notebook(notebook_filename)
        path = Path(self.writer.build_directory, Path(notebook_filename).name)
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata["grading"] = taken | {"notes": self.notes}
        nbformat.write(notebook, path)


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


class Feedback(GenerateFeedback):
    """nbgrader's, which would also hand back the files that an answer has written."""

    def init_assignment(self, assignment_id: str, student_id: str) -> None:
        pass


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
        said = grades.remarks(submitted, autograded, notebooks)
        try:
            submission = gradebook.find_submission(assignment.name, student.id)
        except MissingEntry:
            submission = None
        return grades.row(assignment, student, submission, said)


def take_their_places() -> None:
    """nbgrader has settings for the parts of its programs, and none for these two."""
    autogradeapp.Autograde = api.Autograde = Grading
    generatefeedbackapp.GenerateFeedback = api.GenerateFeedback = Feedback
    # nbgrader's own, about the order in which it fills its gradebook.
    warnings.filterwarnings("ignore", category=SAWarning)


def with_others(parts: list, others: dict) -> list:
    """A list of nbgrader's preprocessors, some of them replaced."""
    return [others.get(part, part) for part in parts]
