"""The table of points: a score, and a note of what a number doesn't say.

What was handed in and couldn't be graded has no score, and is not a 0.
"""

import json
from pathlib import Path

from .cells import Given
from .hand_ins import NotTaken, choose, digests

COLUMNS = (
    "assignment,duedate,timestamp,student_id,last_name,first_name,email,"
    "raw_score,late_submission_penalty,score,max_score,note"
).split(",")
SCORES = "raw_score", "late_submission_penalty", "score"
NOTHING = "nothing was handed in"
NOT_GRADED = "not graded: "


def row(assignment, student, submission, note: str) -> dict:
    """A line of the table; `submission` is the gradebook's, or None."""
    line = {
        "assignment": assignment.name,
        "duedate": assignment.duedate,
        "student_id": student.id,
        "last_name": student.last_name,
        "first_name": student.first_name,
        "email": student.email,
        "max_score": assignment.max_score,
        "note": note,
    }
    if submission is None:
        if note == NOTHING:
            line |= dict.fromkeys(SCORES, 0.0)
        return line
    line["timestamp"] = submission.timestamp
    if note.startswith(NOT_GRADED):
        return line
    penalty = submission.late_submission_penalty or 0.0
    score = max(0.0, submission.score - penalty)
    line["raw_score"] = submission.score
    line["late_submission_penalty"] = penalty
    line["score"] = score
    return line


def noted(folder: Path, name: str) -> dict:
    """What was noted when a notebook was graded; empty if there is no grade of it."""
    path = folder / f"{name}.ipynb"
    if not path.exists():
        return {}
    return json.loads(path.read_text("utf-8"))["metadata"].get("grading", {})


def remarks(
    submitted: Path, autograded: Path, notebooks: dict[str, list[Given]]
) -> str:
    """What must be known of a score, from a student's two folders of an assignment."""
    if not submitted.exists() and not autograded.exists():
        return NOTHING
    notes = []
    for name, given in notebooks.items():
        facts = noted(autograded, name)
        notes += facts.get("notes", [])
        if not (autograded / f"{name}.ipynb").exists():
            return NOT_GRADED + why(submitted, name, given)
        if "hand_in" in facts and submitted.exists():
            notes += changed(submitted, name, given, facts)
    return "; ".join(notes)


def why(folder: Path, name: str, given: list[Given]) -> str:
    """Why a hand-in has no grade."""
    try:
        choose(folder, name, given)
    except NotTaken as error:
        return str(error)
    return "it was handed in, and autograde has not been run, or has failed"


def changed(folder: Path, name: str, given: list[Given], facts: dict) -> list[str]:
    """Whether a hand-in or a check is another one than when it was graded."""
    try:
        path, _ = choose(folder, name, given)
    except NotTaken as error:
        return [f"handed in anew, and not graded: {error}"]
    now = digests(path, given)
    words = {
        "hand_in": "handed in anew, and not graded since",
        "checks": "a check has changed, and it was not graded since",
    }
    return [text for key, text in words.items() if now[key] != facts[key]]
