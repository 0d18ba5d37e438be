"""Write a paper exam with numbers of its own for each name of a roster: `make exam`.

Each name gets one page with six questions. The key has what is right, by the course's
own functions, and what the likely mistakes give. An exam is drawn by its seed and a
student's id alone, so the same seed and roster write the same pages again.
"""

import argparse
import csv
import re
import secrets
import sys
import unicodedata
from html import escape
from pathlib import Path
from string import ascii_uppercase

from exam_questions import Question, draw_questions, number

from companion.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "exam"
STYLE = ROOT / "docs" / "exam.css"


def read_roster(path: Path) -> dict[str, str]:
    """The names by the ids of a roster, as `nbgrader db student import` reads it.

    A CSV file whose columns are `id` and, if they are there, `first_name` and
    `last_name`. Raises ValueError for one without students, and for an id that is
    missing or comes twice.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            table = csv.DictReader(file, skipinitialspace=True)
            columns = table.fieldnames or []
            rows = [row for row in table if any(row.values())]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(
                f"{path} is no CSV file in UTF-8: {error}; save it as such"
            ) from error
    if "id" not in columns:
        raise ValueError(
            f"{path} has no column id: its first line is {','.join(columns)!r}; it"
            " should be like 'id,first_name,last_name'"
        )
    for column in ("id", "first_name", "last_name"):
        if columns.count(column) > 1:
            raise ValueError(f"{path} has two columns {column}: keep one")
    if not rows:
        raise ValueError(f"{path} names nobody: below its first line it is empty")

    names: dict[str, str] = {}
    met: dict[str, int] = {}  # in which row; ids are folders, which may ignore case
    for n, row in enumerate(rows, 1):
        student = (row["id"] or "").strip()
        if not student:
            raise ValueError(f"{path}: student {n} of {len(rows)} has no id")
        folder = unicodedata.normalize("NFC", student).casefold()
        if folder in met:
            raise ValueError(
                f"{path} has {student!r} twice, as student {met[folder]} and {n}: each"
                " needs an id of their own"
            )
        met[folder] = n
        both = [row.get("first_name") or "", row.get("last_name") or ""]
        names[student] = " ".join(" ".join(both).split()) or student
    return names


def shown(student: str, name: str) -> str:
    """A student's name and id, as HTML."""
    rest = f" {escape(student)}" if name != student else ""
    return f"<b>{escape(name)}</b>{rest}"


def sheet(seed: str, student: str, name: str, questions: dict[str, Question]) -> str:
    """A student's page."""
    parts = [
        f"<li><h2>{title}</h2><p>{question.text}</p><div class='box'></div></li>"
        for title, question in questions.items()
    ]
    return (
        f"<section class='sheet'><header><p>{shown(student, name)}</p>"
        f"<p>exam {seed}</p></header><p>A point each. Paper and pen are enough, and no"
        " answer needs rounding. Show your way, on the back if you need room, and write"
        f" the answer into the box.</p><ol>{''.join(parts)}</ol></section>"
    )


def answer_row(question: Question) -> str:
    """A line of the key: what is right, and what each lettered mistake gives."""
    letters: dict[str, str] = {}
    for letter, x in zip(ascii_uppercase, question.mistakes.values(), strict=False):
        letters[number(x)] = letters.get(number(x), "") + letter
    wrong = " ".join(f"<span><i>{who}</i> {x}</span>" for x, who in letters.items())
    return f"<td><b>{number(question.right)}</b><td>{question.way}<td>{wrong}"


def key(seed: str, names: dict[str, str], questions: dict[str, dict]) -> str:
    """The pages for marking: the letters of the mistakes, then a table a student."""
    legend = ""
    for title, question in next(iter(questions.values())).items():
        words = "".join(f"<li>{escape(each)}" for each in question.mistakes)
        words = words.replace("`", "")
        legend += f"<li><b>{title}</b><ol type='A'>{words}</ol></li>"
    students = ""
    for student, name in names.items():
        rows = "".join(
            f"<tr><th>{i}{answer_row(question)}</tr>"
            for i, question in enumerate(questions[student].values(), 1)
        )
        students += f"<table><caption>{shown(student, name)}</caption>{rows}</table>"
    return (
        f"<section class='key'><header><p><b>Key</b></p><p>exam {seed}</p></header>"
        "<p>What is right, the way to it, and what comes out with a likely mistake, by"
        f" its letter:</p><ol>{legend}</ol>{students}</section>"
    )


def page(title: str, body: str) -> str:
    style = STYLE.read_text("utf-8")
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        f"<title>{title}</title>\n<style>{style}</style>\n{body}\n</html>\n"
    )


def write_exam(roster: Path, seed: str, folder: Path = OUT) -> list[Path]:
    """Write the sheets and the key of a roster; returns both paths.

    Raises ValueError for a roster that can't be used, and for a seed that can't be part
    of a file's name.
    """
    if not re.fullmatch("[A-Za-z0-9-]{1,40}", seed):
        raise ValueError(f"seed {seed!r} must be letters, digits and -, 40 at most")
    names = read_roster(roster)
    questions = {student: draw_questions(seed, student) for student in names}
    sheets = [
        sheet(seed, student, names[student], questions[student]) for student in names
    ]
    pages = {
        folder / f"sheets-{seed}.html": page("Exam", "\n".join(sheets)),
        folder / f"key-{seed}.html": page("Key", key(seed, names, questions)),
    }
    for path, html in pages.items():
        write_atomically(path, html.encode())
    return [*pages]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roster", help="a CSV file with a column id")
    parser.add_argument("--seed", help="of an exam that is to be written again")
    options = parser.parse_args()
    try:
        if not options.roster:
            raise ValueError("say for whom: make exam roster=students.csv")
        # Who knows the seed can compute the exam, so it isn't the same every time.
        seed = options.seed or secrets.token_hex(4)
        for path in write_exam(Path(options.roster), seed):
            print(path.relative_to(ROOT))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
