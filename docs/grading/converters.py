"""Two of nbgrader's steps, replaced whole: all that leans on its insides is here.

nbgrader has settings for the parts of its programs, and none for these two. So
`take_their_places` puts ours where its programs look for its own. They override methods
of nbgrader's converters, and call `_format_dest`, none of which it documents: that is
why pyproject.toml allows 0.9 alone. `make classroom` tries all of it.
"""

import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.apps import api, autogradeapp, generatefeedbackapp
from nbgrader.converters import Autograde, GenerateFeedback
from sqlalchemy.exc import SAWarning

from . import grades, hand_ins
from .gradebook import given_out, note


@dataclass(frozen=True)
class Taken:
    """A hand-in whose notebook was taken under its right name."""

    notebook: str  # its name
    remark: str  # which file it was, where that isn't plain
    digests: dict[str, str]  # of what a grade depends on


class Grading(Autograde):
    """nbgrader's, which would look for one file name, and keep the first grade.

    It grades copies under the right names. What was graded before is graded anew if it
    or a check has changed, or with --force; else a line says that it was not.
    """

    def start(self) -> None:
        """Takes what was handed in, and lets nbgrader grade it."""
        course = self.coursedir
        handed_in = course.submitted_directory
        self.taken: dict[str, Taken] = {}  # by student
        with tempfile.TemporaryDirectory(dir=course.root) as copies:
            n_taken, n_refused = self.take_all(Path(copies))
            if n_refused and not n_taken:
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
        assignment = course.assignment_id
        submitted = Path(course.root, course.submitted_directory)
        n_taken = n_refused = 0
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
                    n_refused += 1
                    self.refuse(gradebook, student, str(error))
        for folder in sorted(submitted.glob(course.student_id)):
            for path in hand_ins.strays(folder, known):
                words = "%s: %s is no assignment's folder, and was not graded"
                self.log.error(words, folder.name, path.name)
        return n_taken, n_refused

    def take(self, gradebook: Gradebook, folder: Path, copied: Path) -> None:
        """Copies one hand-in. Where an assignment is one notebook, it gets its name."""
        student, assignment = copied.parts[-2:]
        notebooks = gradebook.find_assignment(assignment).notebooks
        if len(notebooks) > 1:
            shutil.copytree(folder, copied, ignore_dangling_symlinks=True)
            return
        name = notebooks[0].name
        given = given_out(notebooks[0])
        path, remark = hand_ins.choose(folder, name, given)
        others = shutil.ignore_patterns(".*", "*.ipynb")
        shutil.copytree(folder, copied, ignore=others, ignore_dangling_symlinks=True)
        shutil.copyfile(path, copied / f"{name}.ipynb")
        self.taken[student] = Taken(name, remark, hand_ins.digests(path, given))

    def refuse(self, gradebook: Gradebook, student: str, why: str) -> None:
        """Says why a hand-in isn't graded. The gradebook has it, without a grade."""
        assignment = self.coursedir.assignment_id
        about = {"student": student, "assignment": assignment}
        note(self.log, about, f"not graded: {why}")
        gradebook.update_or_create_student(student)
        gradebook.update_or_create_submission(assignment, student)
        self.forget(student)

    def forget(self, student: str) -> None:
        """Takes away an earlier grade's notebook, which isn't what was handed in."""
        old = Path(self._format_dest(self.coursedir.assignment_id, student))
        if old.exists():
            utils.rmtree(str(old))

    # What follows nbgrader calls for each hand-in, in this order.

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        """Whether a hand-in is to be graded. Makes room for its grade if it is."""
        taken = self.taken.get(student_id)
        if not taken:
            return super().init_destination(assignment_id, student_id)
        folder = Path(self._format_dest(assignment_id, student_id))
        before = grades.noted(folder, taken.notebook)
        is_same = all(before.get(key) == x for key, x in taken.digests.items())
        if is_same and not self.force:
            words = "%s, %s: not graded anew: neither it nor a check has changed"
            self.log.warning(words, student_id, assignment_id)
            return False
        self.forget(student_id)
        return True

    def convert_single_notebook(self, notebook_filename: str) -> None:
        """Mends and runs a notebook, and writes into it what was noted of it."""
        student, assignment = Path(notebook_filename).parts[-3:-1]
        taken = self.taken.get(student)
        about = {"student": student, "assignment": assignment, "notes": []}
        if taken and taken.remark:
            note(self.log, about, taken.remark)
        self.notes = about["notes"]
        super().convert_single_notebook(notebook_filename)
        path = Path(self.writer.build_directory, Path(notebook_filename).name)
        notebook = nbformat.read(path, as_version=4)
        digests = taken.digests if taken else {}
        notebook.metadata["grading"] = {**digests, "notes": self.notes}
        nbformat.write(notebook, path)

    # And these two twice within it: once to mend, once to run.

    def init_single_notebook_resources(self, notebook_filename: str) -> dict:
        """What the preprocessors are told: also what was noted before them."""
        resources = super().init_single_notebook_resources(notebook_filename)
        resources["nbgrader"]["notes"] = self.notes
        return resources

    def write_single_notebook(self, output: str, resources) -> None:
        """Writes a notebook, and takes over what the preprocessors have noted."""
        super().write_single_notebook(output, resources)
        self.notes = resources["nbgrader"]["notes"]  # a copy, in which there are more


class Feedback(GenerateFeedback):
    """nbgrader's, which would also hand back the files that an answer has written."""

    def init_assignment(self, assignment_id: str, student_id: str) -> None:
        pass


def take_their_places() -> None:
    """Puts both where nbgrader's commands, and its functions, find its own."""
    autogradeapp.Autograde = api.Autograde = Grading
    generatefeedbackapp.GenerateFeedback = api.GenerateFeedback = Feedback
    # nbgrader's own, about the order in which it fills its gradebook.
    warnings.filterwarnings("ignore", category=SAWarning)
