"""nbgrader's settings for the course that `make assignment` writes.

A grade follows what was handed in: `Grading` takes it under its right name, `Mend`
mends it, `Run` runs it, `Feedback` writes the page, and `Grades` writes `grades.csv`.
What a teacher must know of a hand-in is a line in the log, and stands in `grades.csv`.
"""

import ast
import builtins
import copy
import csv
import hashlib
import json
import re
import shutil
import tempfile
import warnings
from pathlib import Path
from queue import Empty

import nbformat
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbclient.util import ensure_async, run_sync
from nbformat.corpus.words import generate_corpus_id
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader import utils
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import api, autogradeapp, generatefeedbackapp
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.plugins import ExportPlugin
from nbgrader.preprocessors import Execute, GetGrades, NbGraderPreprocessor
from sqlalchemy.exc import SAWarning

# What students don't receive of a cell.
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS.*### END HIDDEN TESTS", re.DOTALL)


def facts(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


def note(log, about: dict, words: str) -> None:
    """Writes a line to the log, and keeps it for `grades.csv`."""
    about.setdefault("notes", []).append(words)
    log.error("%s, %s: %s", about["student"], about["assignment"], words)


def sha256(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


# What was handed in


class NotTaken(Exception):
    """Nothing in a folder can be graded; it says why."""


def readable(path: Path):
    """A file's notebook, or None."""
    try:
        notebook = nbformat.reads(path.read_text("utf-8-sig"), as_version=4)
        cells = [(cell.cell_type, cell.source, facts(cell)) for cell in notebook.cells]
    except Exception:
        return None
    return notebook if cells else None


def content(notebook) -> list:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def is_answered(notebook, released: list) -> bool:
    """Whether an answer isn't as it was given out, or has lost its mark."""
    given = {x.name: x.source.strip() for x in released if not x.locked}
    found = {}
    for cell in notebook.cells:
        name = facts(cell).get("grade_id")
        if name in given and cell.source.strip() != given[name]:
            return True
        found[name] = cell
    return not given.keys() <= found.keys()


def is_foreign(notebook, names: set[str]) -> bool:
    """Whether most of its marked cells are those of another assignment."""
    marked = {facts(cell)["grade_id"] for cell in notebook.cells if facts(cell)}
    return len(marked - names) > len(marked & names)


def choose(folder: Path, name: str, released: list) -> tuple[Path, str]:
    """The file that is a hand-in's notebook `name`, and what to say of it.

    The one of the right name, unless it is as it was given out, or no notebook of this
    assignment, and exactly one other has answers. Raises NotTaken where none can be
    chosen.
    """
    right = folder / f"{name}.ipynb"
    names = {cell.name for cell in released}
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(x.startswith(".") for x in path.relative_to(folder).parts)
    ]
    found = {path: readable(path) for path in files}
    found = {path: notebook for path, notebook in found.items() if notebook}
    own = {path: nb for path, nb in found.items() if not is_foreign(nb, names)}
    answered = {path: nb for path, nb in own.items() if is_answered(nb, released)}

    def shown(paths) -> str:
        return ", ".join(str(path.relative_to(folder)) for path in paths)

    if right in answered or (right in own and not answered):
        taken = right
    else:
        others = list(answered or own)
        if not others:
            if found:
                raise NotTaken(f"{shown(found)}: of another assignment")
            if not files:
                raise NotTaken("the folder is empty")
            raise NotTaken(f"no notebook that can be read: {shown(files)}")
        taken = others[0]
        if any(content(own[path]) != content(own[taken]) for path in others):
            raise NotTaken(f"several files, and none is {right.name}: {shown(others)}")
    said = []
    if taken != right:
        said.append(f"{shown([taken])} was taken for {right.name}")
    unlike = [p for p in answered if content(answered[p]) != content(own[taken])]
    if unlike:
        said.append(f"beside it, and not graded: {shown(unlike)}")
    return taken, "; ".join(said)


def fingerprint(path: Path, released: list) -> dict:
    """What a grade depends on: the file, and nbgrader's cells."""
    cells = [text for cell in released for text in (cell.name, cell.source)]
    return {
        "hand_in": hashlib.sha256(path.read_bytes()).hexdigest(),
        "checks": sha256(*cells),
    }


def graded(folder: Path, name: str) -> dict:
    """What was noted when a notebook was graded; empty if there is no grade of it."""
    path = folder / f"{name}.ipynb"
    if not path.exists():
        return {}
    return json.loads(path.read_text("utf-8"))["metadata"].get("grading", {})


def strays(folder: Path, assignments: set[str]) -> list[Path]:
    """What lies in a student's folder, and not in one of an assignment."""
    every = sorted(folder.iterdir()) if folder.is_dir() else []
    return [x for x in every if x.name not in assignments and x.name[0] != "."]


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
        course, assignment = self.coursedir, self.coursedir.assignment_id
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
                except (NotTaken, OSError) as error:
                    n_not += 1
                    about = {"student": student, "assignment": assignment}
                    note(self.log, about, f"not graded: {error}")
                    gradebook.update_or_create_student(student)
                    gradebook.update_or_create_submission(assignment, student)
                    self.forget(student)
        for folder in sorted(submitted.glob(course.student_id)):
            for path in strays(folder, known):
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
        name, released = notebooks[0].name, notebooks[0].source_cells
        path, said = choose(folder, name, released)
        others = shutil.ignore_patterns(".*", "*.ipynb")
        shutil.copytree(folder, copied, ignore=others, ignore_dangling_symlinks=True)
        shutil.copyfile(path, copied / f"{name}.ipynb")
        facts = {"notebook": name, "said": said}
        self.taken[student] = fingerprint(path, released) | facts

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
        before = graded(folder, taken["notebook"])
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


# What is mended


def same_program(one: str, other: str) -> bool:
    """Whether two cells differ at most in how they are written."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError):
        lines = [[x.rstrip() for x in y.strip().splitlines()] for y in (one, other)]
        return lines[0] == lines[1]


def is_untouched(cell) -> bool:
    """Whether it is as it was given out, even if the teacher has mended it since."""
    try:
        return facts(cell)["checksum"] == utils.compute_checksum(cell)
    except KeyError:
        return False


class Mend(NbGraderPreprocessor):
    """Names the cells of a hand-in that are missing, there twice, moved, or changed.

    Of two the last that isn't as it was given out counts. A missing check is put behind
    its answer, or below all; what was locked is as it was, and where it was.
    """

    def preprocess(self, nb, resources):
        self.about = resources["nbgrader"]
        self.with_ids(nb)
        with Gradebook(self.about["db_url"]) as gradebook:
            book = gradebook.find_notebook(
                self.about["notebook"], self.about["assignment"]
            )
            self.roles = roles(book)
            answers = {x.name for x in book.solution_cells}
            self.hidden = {x.name for x in book.source_cells if HIDDEN.search(x.source)}
            self.above = {}  # the last answer above each cell
            last = None
            for cell in book.source_cells:
                self.above[cell.name] = last
                last = cell.name if cell.name in answers else last
            for released in book.source_cells:
                self.mend(nb, released)
            self.put_in_order(nb, [x.name for x in book.source_cells], answers)
            given = {x.name: x.source for x in book.source_cells if x.name in answers}
        for cell in nb.cells:
            if facts(cell) and facts(cell).get("grade_id") not in self.roles:
                del cell.metadata["nbgrader"]  # of another assignment, or a copy
        found = [cell for cell in nb.cells if facts(cell).get("grade_id") in given]
        unlike = [x for x in found if x.source != given[facts(x)["grade_id"]]]
        if found and not unlike:
            note(self.log, self.about, "every answer is as it was given out")
        return nb, resources

    def say(self, name: str, words: str) -> None:
        note(self.log, self.about, f"the cell {name} {words}")

    def with_ids(self, nb) -> None:
        """Gives each cell an id of its own, which older formats don't have."""
        nb.nbformat_minor = max(nb.nbformat_minor, 5)
        seen = set()
        for cell in nb.cells:
            while cell.get("id") is None or cell.id in seen:
                cell.id = generate_corpus_id()
            seen.add(cell.id)

    def mend(self, nb, released) -> None:
        """Makes one of nbgrader's cells be there, once, and as it must be."""
        name = released.name
        found = [cell for cell in nb.cells if facts(cell).get("grade_id") == name]
        if not found:
            self.say(name, "is missing")
            if self.roles[name]["grade"] and released.locked:
                nb.cells.insert(self.place(nb, released), self.made(released))
            return
        if len(found) > 1:
            self.say(name, "is there twice")
        wanted = [cell for cell in found if cell.source != released.source] or found
        kept = found[-1] if released.locked else wanted[-1]
        for cell in found:
            if cell is not kept:
                del cell.metadata["nbgrader"]
        if kept.cell_type != released.cell_type:
            self.say(name, f"was made a {kept.cell_type} cell")
            i = nb.cells.index(kept)
            kept = nb.cells[i] = self.made(released, kept.source)
        if released.locked:
            given = HIDDEN.sub("", released.source)
            if not (is_untouched(kept) or same_program(kept.source, given)):
                self.say(name, "was changed")
            kept.source = released.source
        kept.metadata["nbgrader"] = self.roles[name]

    def place(self, nb, released) -> int:
        """Where a missing check goes: behind its answer, or above the hidden tests."""
        for i, cell in enumerate(nb.cells):
            name = facts(cell).get("grade_id")
            if name and name == self.above[released.name]:
                return i + 1
        for i, cell in enumerate(nb.cells):
            is_hidden = facts(cell).get("grade_id") in self.hidden
            if is_hidden and released.name not in self.hidden:
                return i
        return len(nb.cells)

    def made(self, released, source: str | None = None):
        is_code = released.cell_type == "code"
        make = new_code_cell if is_code else new_markdown_cell
        role = {"nbgrader": self.roles[released.name]}
        return make(released.source if source is None else source, metadata=role)

    def put_in_order(self, nb, names: list[str], answers: set[str]) -> None:
        """Puts what is locked behind the answer that it follows, or above all."""
        above = None  # the last answer of those released before
        for name in names:
            place = {facts(x).get("grade_id"): i for i, x in enumerate(nb.cells)}
            if name in answers:
                above = name
                continue
            if name not in place or (above and above not in place):
                continue
            first = min(place[x] for x in names if x in place)
            if above and place[name] < place[above]:
                self.say(name, f"stood above {above}")
                cell = nb.cells.pop(place[name])
                nb.cells.insert(place[above], cell)
            elif above is None and place[name] > first and name == names[0]:
                self.say(name, "stood below others")
                nb.cells.insert(0, nb.cells.pop(place[name]))


def roles(book) -> dict:
    """What nbgrader writes of a notebook's cells into their metadata, by name."""
    points = {x.name: x.max_score for x in [*book.grade_cells, *book.task_cells]}
    grades, answers, tasks = (
        {x.name for x in cells}
        for cells in (book.grade_cells, book.solution_cells, book.task_cells)
    )
    made = {}
    for cell in book.source_cells:
        made[cell.name] = {
            "schema_version": 3,
            "grade_id": cell.name,
            "cell_type": cell.cell_type,
            "checksum": cell.checksum,
            "grade": cell.name in grades,
            "solution": cell.name in answers,
            "locked": cell.locked,
            "task": cell.name in tasks,
        }
        if cell.name in points:
            made[cell.name]["points"] = points[cell.name]
    return made


# What is run


class Run(Execute):
    """nbgrader's, which gives up a hand-in when its kernel ends, or hangs.

    The cell that ended it has failed. A new kernel runs the answers above it once more,
    and goes on below. Hidden tests change nothing of what was printed above them.
    """

    # What isn't interrupted in this time is ended, seconds.
    patience = 30

    def preprocess(self, nb, resources, km=None):
        self.about = resources["nbgrader"]
        self.ended = []  # the cells that have ended a kernel
        self.printed = None  # what the cells above the first hidden test have printed
        nb, resources = super().preprocess(nb, resources, km)
        for cell, outputs in zip(nb.cells, self.printed or [], strict=False):
            if cell.cell_type == "code":
                cell.outputs = outputs
        return nb, resources

    def preprocess_cell(self, cell, resources, index):
        if HIDDEN.search(cell.source) and self.printed is None:
            above = self.nb.cells[:index]
            self.printed = [copy.deepcopy(x.get("outputs", [])) for x in above]
        if self.runs(cell, index):
            self.say_how_it_stops(cell, index)
        else:
            self.has_ended(cell, index)
            self.begin_anew(index)
        return cell, resources

    def runs(self, cell, index: int) -> bool:
        """Runs a cell. Returns whether there still is a kernel that answers."""
        self.exits = False
        try:
            self.execute_cell(cell, index, store_history=True)
        except (DeadKernelError, CellTimeoutError):
            return False
        if cell.cell_type != "code" or not cell.source.strip():
            return True
        return not self.exits and run_sync(self.answers)()

    def on_cell_executed(self, **kwargs) -> None:
        super().on_cell_executed(**kwargs)
        # After `exit()` a kernel ends the cell, and then itself.
        payload = kwargs["execute_reply"]["content"].get("payload", [])
        self.exits = any(x.get("source") == "ask_exit" for x in payload)

    async def answers(self) -> bool:
        question = await ensure_async(self.kc.kernel_info())
        for _ in range(self.patience):
            try:
                reply = await ensure_async(self.kc.get_shell_msg(timeout=1))
            except Empty:
                if not await ensure_async(self.kc.is_alive()):
                    return False
            else:
                if reply["parent_header"].get("msg_id") == question:
                    return True
        return False

    def has_ended(self, cell, index: int) -> None:
        self.ended.append(cell)
        words = "the kernel ended here"
        error = {"ename": "KernelEnded", "evalue": words, "traceback": [words]}
        cell.outputs.append(new_output("error", **error))
        note(self.log, self.about, f"the kernel ended in {self.named(index)}")

    def begin_anew(self, index: int) -> None:
        """Starts a new kernel, in which what stands above runs, but for the checks."""
        while not self.ran_above(index):
            pass

    def ran_above(self, index: int) -> bool:
        self._cleanup_kernel()
        self.km = self.create_kernel_manager()
        self.start_new_kernel()
        self.start_new_kernel_client()
        for i, cell in enumerate(self.nb.cells[:index]):
            if facts(cell).get("grade") or any(cell is x for x in self.ended):
                continue
            runs = self.runs(copy.deepcopy(cell), i)
            self.nb.cells[i] = cell
            if not runs:
                self.has_ended(cell, i)
                return False
        return True

    def named(self, index: int) -> str:
        """A cell by its name, a student's own by the one above it."""
        above = [facts(cell).get("grade_id") for cell in self.nb.cells[: index + 1]]
        if above[-1]:
            return above[-1]
        last = next((name for name in reversed(above) if name), "the top")
        return f"a cell of their own below {last}"

    def say_how_it_stops(self, cell, index: int) -> None:
        """Names a cell that stops; a check that does says so to the student."""
        errors = [x for x in cell.get("outputs", []) if x.output_type == "error"]
        if errors and not facts(cell).get("grade"):
            words = f"{errors[0].ename}: {errors[0].evalue}".splitlines()[0][:120]
            note(self.log, self.about, f"{self.named(index)} stops with {words}")


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


# What students read


def verdict(cell) -> str:
    """The line of a hidden test, in its own words, whatever an answer has printed."""
    outputs = cell.get("outputs", [])
    found = re.search(r"def check_(\w+)", cell.source)
    name = found[1] if found else facts(cell)["grade_id"]
    errors = [output for output in outputs if output.output_type == "error"]
    if errors:
        words = errors[0].evalue.removeprefix(f"{name}: ")
        return f"✗ {name}: {told(words, sayings(cell.source)) or 'it is wrong'}"
    if not found and any(x.output_type == "execute_result" for x in outputs):
        return ""  # a share of the points, which stands above the cell
    return f"✓ {name}: it passes"


# What all hidden tests say. A name is that of an error, or of what an answer gave.
SAYINGS = [
    ["yours to write"],
    ["there is no function of this name"],
    ["the kernel ended here"],
    ["it stops with ", None],
    ["the shape is ", None, ", not ", None],
    ["a tensor should come out, not ", None],
]
NUMBERS = re.compile(r"[-+\d.,e\[\](){} ]{0,40}|True|False|None")


def sayings(source: str) -> list[list[str | None]]:
    """The words of a hidden test, each in parts; None is what stood in braces."""
    made = list(SAYINGS)
    for node in ast.walk(ast.parse(HIDDEN.search(source)[0])):
        if isinstance(node, ast.JoinedStr):
            made.append([getattr(part, "value", None) for part in node.values])
            made[-1] = [x if isinstance(x, str) else None for x in made[-1]]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            made.append([node.value])
    return made


def told(words: str, every: list) -> str:
    """What an error says, as far as a test says it itself; empty if it says nothing.

    Of what stood in braces numbers stay, names of errors, and the test's other words.
    """
    fitting = (filled(words, parts, every) for parts in every if parts and any(parts))
    return max(fitting, key=len)


def filled(words: str, parts: list[str | None], every: list) -> str:
    """The words, if they are these parts, or their beginning; else an empty text."""
    made, whole = "", words
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        if part is None:
            end = words.find(following) if following else len(words)
            hole, words = (words, "") if end < 0 else (words[:end], words[end:])
            if hole == whole:
                return ""
            made += harmless(hole) or told(hole, every) or "…"
        elif words.startswith(part) or part.startswith(words):
            made, words = made + words[: len(part)], words[len(part) :]
        else:
            return ""
    return "" if words.strip(" .:") else made


def harmless(hole: str) -> str:
    """What may stay of what stood in braces: numbers, and the names of errors."""
    name = hole.partition(":")[0]
    if isinstance(getattr(builtins, name, None), type) or name == "NoneType":
        return name
    return hole if NUMBERS.fullmatch(hole) else ""


class Hide(GetGrades):
    """Writes the points, and takes out hidden tests and what could tell of them.

    An answer can print the check that calls it. So of a hidden test a verdict stays,
    and of a cell below one nothing that it has printed.
    """

    def preprocess(self, nb, resources):
        nb.metadata.pop("widgets", None)
        below = False
        for cell in nb.cells:
            if HIDDEN.search(cell.source) and facts(cell).get("grade"):
                below = True
                line = verdict(cell)
                cell.outputs = [new_output("stream", text=line)] if line else []
                cell.source = HIDDEN.sub("", cell.source)
                cell.execution_count = None
            elif below and cell.cell_type == "code":
                cell.outputs = []
        return super().preprocess(nb, resources)


class Feedback(GenerateFeedback):
    """nbgrader's, which would also hand back the files that an answer has written."""

    def init_assignment(self, assignment_id: str, student_id: str) -> None:
        pass


# What teachers read


class Grades(ExportPlugin):
    """nbgrader's columns, and a note of what a number doesn't say.

    What was handed in and couldn't be graded has no score, and is not a 0.
    """

    COLUMNS = (
        "assignment,duedate,timestamp,student_id,last_name,first_name,email,"
        "raw_score,late_submission_penalty,score,max_score,note"
    )
    SCORES = "raw_score", "late_submission_penalty", "score"

    def export(self, gradebook: Gradebook) -> None:
        self.course = self.parent.coursedir
        with open(self.to or "grades.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, self.COLUMNS.split(","))
            table.writeheader()
            for assignment in gradebook.assignments:
                if self.assignment and assignment.name not in self.assignment:
                    continue
                for student in gradebook.students:
                    if not self.student or student.id in map(str, self.student):
                        table.writerow(self.row(gradebook, assignment, student))

    def row(self, gradebook: Gradebook, assignment, student) -> dict:
        words = self.remarks(assignment, student.id)
        row = {
            "assignment": assignment.name,
            "duedate": assignment.duedate,
            "student_id": student.id,
            "last_name": student.last_name,
            "first_name": student.first_name,
            "email": student.email,
            "max_score": assignment.max_score,
            "note": words,
        }
        try:
            submission = gradebook.find_submission(assignment.name, student.id)
        except MissingEntry:
            if words != "nothing was handed in":
                return row
            scores = dict.fromkeys(self.SCORES, 0.0)
            return row | scores
        row["timestamp"] = submission.timestamp
        if not words.startswith("not graded: "):
            penalty = submission.late_submission_penalty or 0.0
            row["raw_score"] = submission.score
            row["late_submission_penalty"] = penalty
            row["score"] = max(0.0, submission.score - penalty)
        return row

    def folder(self, step: str, student: str, assignment: str) -> Path:
        return Path(self.course.format_path(step, student, assignment))

    def remarks(self, assignment, student: str) -> str:
        """What must be known of a score."""
        folder = self.folder(self.course.submitted_directory, student, assignment.name)
        autograded = self.folder(
            self.course.autograded_directory, student, assignment.name
        )
        if not folder.exists() and not autograded.exists():
            return "nothing was handed in"
        said = []
        for notebook in assignment.notebooks:
            name = notebook.name
            facts = graded(autograded, name)
            said += facts.get("notes", [])
            if not (autograded / f"{name}.ipynb").exists():
                return f"not graded: {self.why(folder, notebook)}"
            if "hand_in" in facts and folder.exists():
                said += self.changed(folder, notebook, facts)
        return "; ".join(said)

    def why(self, folder: Path, notebook) -> str:
        try:
            choose(folder, notebook.name, notebook.source_cells)
        except NotTaken as error:
            return str(error)
        return "it was handed in, and autograde has not been run, or has failed"

    def changed(self, folder: Path, notebook, facts: dict) -> list[str]:
        """Whether a hand-in or a check is another one than when it was graded."""
        try:
            path, _ = choose(folder, notebook.name, notebook.source_cells)
        except NotTaken as error:
            return [f"handed in anew, and not graded: {error}"]
        now = fingerprint(path, notebook.source_cells)
        words = {
            "hand_in": "handed in anew, and not graded since",
            "checks": "a check has changed, and it was not graded since",
        }
        return [text for key, text in words.items() if now[key] != facts[key]]


# nbgrader's own, about the order in which it fills its gradebook.
warnings.filterwarnings("ignore", category=SAWarning)

# nbgrader has settings for the parts of its programs, and none for these two.
autogradeapp.Autograde = api.Autograde = Grading
generatefeedbackapp.GenerateFeedback = api.GenerateFeedback = Feedback

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "transformer"
# An answer's stub is that of the chapters.
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError"}
# A source or a check that was mended is given out, and a grade told, by the same words.
c.GenerateAssignment.force = True
c.GenerateFeedback.force = True
# Seconds a cell; after 30, the default, a submission that trains would be thrown away.
c.Execute.timeout = 600
# To nbgrader a warning is a failure: a right answer would lose its point.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = "(?s)."
c.ExportApp.plugin_class = Grades
c.GenerateFeedback.preprocessors = [
    Hide if x is GetGrades else x for x in GenerateFeedback.preprocessors.default()
]
c.Autograde.sanitize_preprocessors = [Mend, *Autograde.sanitize_preprocessors.default()]
c.Autograde.autograde_preprocessors = [
    Run if x is Execute else x for x in Autograde.autograde_preprocessors.default()
] + [ByHand]
