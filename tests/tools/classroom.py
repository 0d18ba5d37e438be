"""Hold a course with nbgrader, in a temporary folder, from the sources to the feedback.

Each chapter is handed in solved; chapter 01 also in all the odd ways of `hand_ins.py`,
then some of it once more, and with a check that was mended. Homework, whose right
answers aren't in public, is handed in as it was given out. Chapter 01 goes by the
guide's own commands, the others by nbgrader's functions, which takes less time.
"""

import csv
import os
import re
import subprocess
import sys
import tempfile
from contextlib import chdir
from itertools import pairwise
from pathlib import Path

import nbformat
from assignment import CAPSTONE, HIDDEN, STUB, body, is_solution, write_course
from bank import BANK, questions
from cells import NOTEBOOKS, PATHS, ROOT
from hand_ins import (
    MACHINE,
    NAME,
    HandIn,
    answered,
    endless,
    facts,
    hand_ins,
    named,
    read,
    solved,
    with_machine,
)
from nbgrader.apps import NbGraderApp
from nbgrader.apps.api import NbGraderAPI

BIN = Path(sys.executable).parent
BY_HAND = "01_attention"
# What the chapter's own solution, of three tests, finds among the teacher's ten faults.
N_FOUND_OF_THE_HIDDEN = 2
HOMEWORK = {path.stem: questions(path) for path in BANK}
GUIDE = (ROOT / "docs" / "teaching.md").read_text("utf-8")
COMMANDS = re.findall(r"^nbgrader .*", GUIDE, re.M)
CHAPTERS = [path.stem for path in PATHS]
NOT_ANEW = "not graded anew: neither it nor a check has changed"


def exercises(chapter: str) -> list[str]:
    cells = named(read("source", chapter))
    homework = [question.name for question in HOMEWORK.get(chapter, [])]
    every = [name for name, cell in cells.items() if facts(cell)["solution"]]
    return [name for name in every if name not in homework]


def hold_against_the_chapter(chapter: str) -> None:
    """What is given out has the chapter's stubs, none of its solutions, no outputs."""
    released = read("release", chapter)
    cells = nbformat.read(NOTEBOOKS / f"{chapter}.ipynb", as_version=4).cells
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


def points(chapter: str) -> int:
    """What a student gets who has solved all exercises."""
    found = len(exercises(chapter))
    return found + N_FOUND_OF_THE_HIDDEN if chapter == CAPSTONE else found


def said(log: str, student: str, chapter: str) -> list[str]:
    """What a log says of a hand-in."""
    return re.findall(rf"\] {student}, {chapter}: (.*)", log)


def hold_against_the_log(log: str, students: dict[str, HandIn]) -> None:
    """It says of each hand-in what it must, and nothing else."""
    for student, hand_in in students.items():
        found = said(log, student, BY_HAND)
        fits = len(found) == len(hand_in.notes) and all(
            any(line.startswith(note) for line in found) for note in hand_in.notes
        )
        assert fits, (student, found, hand_in.notes)
    others = [
        line
        for line in log.splitlines()
        if line.strip()
        and not re.search(rf"\] \w+, {BY_HAND}: ", line)
        and "Kernel died while waiting" not in line  # nbclient's, before ours
    ]
    assert not others, others


def rows() -> dict:
    """The lines of grades.csv by student and chapter."""
    with open("grades.csv", newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        return {(row["student_id"], row["assignment"]): row for row in table}


def hold_against_the_table(students: dict[str, HandIn]) -> None:
    """grades.csv has all points, no number for what wasn't graded, and says why."""
    table = rows()
    for student, hand_in in students.items():
        row = table[student, BY_HAND]
        wanted = "" if hand_in.points is None else str(float(hand_in.points))
        assert row["score"] == row["raw_score"] == wanted, (student, row)
        assert all(note in row["note"] for note in hand_in.notes), (student, row)
        assert bool(row["note"]) == bool(hand_in.notes), (student, row)
    for chapter in CHAPTERS:
        row = table["solved", chapter]
        assert float(row["score"]) == points(chapter) and not row["note"], row
    nothing = table["untouched", CAPSTONE]
    assert nothing["score"] == "0.0", nothing
    assert nothing["note"] == "nothing was handed in", nothing


def page_of(student: str, chapter: str) -> str:
    return Path("feedback", student, chapter, f"{chapter}.html").read_text("utf-8")


def hold_against_the_page(student: str, chapter: str, hand_in: HandIn) -> None:
    """Feedback has a verdict for each point, and nothing of a hidden test."""
    folder = Path("feedback", student, chapter)
    if hand_in.points is None:
        assert not folder.exists(), student
        return
    assert [path.name for path in folder.iterdir()] == [f"{chapter}.html"], student
    page = page_of(student, chapter)
    homework = HOMEWORK.get(chapter, [])
    for secret in ("def check_", "HIDDEN", "FAULTS", "homework import"):
        assert secret not in page, (student, chapter, secret)
    for question in homework:
        told = [x.strip() for x in question.check.splitlines() if len(x.strip()) > 20]
        assert not any(line in page for line in told), (student, chapter)
        assert len(re.findall(rf"[✓✗] {question.name}\b", page)) == 1, student
    right = {*re.findall(r"✓ (\w+): ", page)} - {x.name for x in homework}
    n_right = hand_in.points - (N_FOUND_OF_THE_HIDDEN if chapter == CAPSTONE else 0)
    assert len(right) == n_right, (student, chapter, right)


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


def hand_out_and_in(api: NbGraderAPI, generate: str) -> None:
    for chapter in CHAPTERS:
        if chapter == BY_HAND:
            shell(generate)
        else:
            run(api.generate_assignment, chapter)
        hold_against_the_chapter(chapter)
        if chapter != BY_HAND:
            homework = tuple(x.name for x in HOMEWORK.get(chapter, []))
            whole = with_machine(answered(chapter, homework=homework))
            folder = Path("submitted", "solved", chapter)
            files = {f"{chapter}.ipynb": whole, "my_gpt.py": MACHINE}
            HandIn(files).write(folder)


def grade_by_hand(autograde: str, feedback: str, export: str) -> None:
    """Chapter 01, by the guide's commands: all odd hand-ins, each of them named."""
    students = hand_ins()
    for student, hand_in in students.items():
        hand_in.write(Path("submitted", student, BY_HAND))
    hold_against_the_log(shell(autograde), students)
    shell(feedback)
    shell(export)
    for student, hand_in in students.items():
        hold_against_the_page(student, BY_HAND, hand_in)
    print(BY_HAND, "is graded", flush=True)


def grade_what_hangs(autograde: str, feedback: str, export: str) -> None:
    """Answers that never end cost their own points, and one limit each."""
    hand_in = endless()
    hand_in.write(Path("submitted", "hangs", BY_HAND))
    log = shell(f"{autograde} --student=hangs --Execute.timeout=15")
    assert said(log, "hangs", BY_HAND) == hand_in.notes, log
    shell(feedback)
    shell(export)
    row = rows()["hangs", BY_HAND]
    assert row["score"] == str(float(hand_in.points)), row
    assert row["note"] == "; ".join(hand_in.notes), row
    hold_against_the_page("hangs", BY_HAND, hand_in)
    verdict = "✗ n_keys: it takes too long"
    assert verdict in page_of("hangs", BY_HAND)
    print("what hangs is graded", flush=True)


def hand_in_again(autograde: str, feedback: str, export: str) -> None:
    """The same commands, once more: of all that has changed, and of nothing else."""
    better = HandIn({NAME: solved()})
    for student in ("untouched", "page"):
        better.write(Path("submitted", student, BY_HAND))
    HandIn({NAME: b"<html>"}).write(Path("submitted", "warns", BY_HAND))
    shell(export)
    stale = "handed in anew, and not graded"
    assert rows()["untouched", BY_HAND]["note"].endswith(f"{stale} since")
    assert stale in rows()["warns", BY_HAND]["note"]

    log = shell(autograde)
    shell(feedback)
    shell(export)
    table = rows()
    for student in ("untouched", "page"):
        assert said(log, student, BY_HAND) == []
        assert table[student, BY_HAND]["score"] == "4.0"
        assert not table[student, BY_HAND]["note"]
        hold_against_the_page(student, BY_HAND, better)
    assert said(log, "solved", BY_HAND) == [NOT_ANEW]
    assert table["solved", BY_HAND]["score"] == "4.0"
    assert table["warns", BY_HAND]["score"] == ""
    assert said(log, "warns", BY_HAND) == [f"not graded: {no_notebook(NAME)}"]


def no_notebook(*names: str) -> str:
    files = sorted([*names, "notes.txt"])
    return f"no notebook that can be read: {', '.join(files)}"


def mend_a_check(generate: str, autograde: str, export: str) -> None:
    """The teacher mends a check, and the same commands grade it anew."""
    for folder in Path("submitted").glob(f"*/{BY_HAND}"):
        if folder.parent.name != "solved":
            folder.rename(folder.with_name("away"))
    source = read("source", BY_HAND)
    named(source)["check-one_query"].source += "\nassert False, 'mended'"
    nbformat.write(source, Path("source", BY_HAND, NAME))
    shell(generate)
    shell(export)
    changed = "a check has changed, and it was not graded since"
    assert rows()["solved", BY_HAND]["note"] == changed
    log = shell(autograde)
    assert NOT_ANEW not in log, log
    shell(export)
    row = rows()["solved", BY_HAND]
    assert (row["score"], row["note"]) == ("3.0", ""), row


def grade(api: NbGraderAPI) -> None:
    for chapter in CHAPTERS:
        if chapter != BY_HAND:
            log = run(api.autograde, chapter, "solved")
            assert not log.strip(), log
            run(api.generate_feedback, chapter)
            hold_against_the_page("solved", chapter, HandIn({}, points(chapter)))
            print(chapter, "is graded", flush=True)


def main() -> None:
    generate, autograde, feedback, export = COMMANDS
    teachers = Path("my_gpt.py").absolute()
    teachers.write_text("the teacher's")
    os.environ["MY_GPT_FILE"] = str(teachers)
    write_course(Path(), bank=True)
    app = NbGraderApp()
    app.initialize([])
    api = NbGraderAPI(config=app.config, log_level="WARN")
    hand_out_and_in(api, generate)
    grade_by_hand(autograde, feedback, export)
    grade_what_hangs(autograde, feedback, export)
    grade(api)
    shell(export)
    students = hand_ins()
    hold_against_the_table(students)
    hand_in_again(autograde, feedback, export)
    mend_a_check(generate, autograde, export)
    assert teachers.read_text() == "the teacher's"
    n_all = len(students) + len(CHAPTERS) - 1
    print(f"{n_all} submissions got the points that they deserve")


if __name__ == "__main__":
    # nbgrader starts `alembic` by its name, as an activated environment finds it.
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        main()
