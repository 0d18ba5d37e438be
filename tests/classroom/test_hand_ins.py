"""A hand-in is taken under its right name, or a line says why it is not."""

import re

import pytest
from grading.cells import Given
from grading.grades import NOTHING, remarks, row
from grading.hand_ins import NotTaken, choose, digests, strays
from nbformat.v4 import new_code_cell, new_notebook
from released import ANSWERS, GIVEN, as_bytes, notebook, solved

UNTOUCHED, SOLVED = as_bytes(notebook()), as_bytes(solved())
HALF = as_bytes(notebook(first=ANSWERS["first"]))
SCRATCH = as_bytes(new_notebook(cells=[new_code_cell("print('scratch')")]))
OTHER = as_bytes(
    new_notebook(
        cells=[new_code_cell(metadata={"nbgrader": {"grade_id": "of another"}})]
    )
)


def handed_in(folder, files: dict):
    for name, what in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(what)
    return choose(folder, "01", GIVEN)


@pytest.mark.parametrize(
    "files, taken, said",
    [
        ({"01.ipynb": SOLVED}, "01.ipynb", ""),
        ({"01.ipynb": UNTOUCHED, "notes.txt": b"mine"}, "01.ipynb", ""),
        ({"01.ipynb": UNTOUCHED, "Untitled.ipynb": SCRATCH}, "01.ipynb", ""),
        ({"01.ipynb": b"\xef\xbb\xbf" + SOLVED}, "01.ipynb", ""),
        ({"01 (1).ipynb": SOLVED}, "01 (1).ipynb", "01 (1).ipynb was taken for"),
        ({"01.ipynb": UNTOUCHED, "b.ipynb": SOLVED}, "b.ipynb", "b.ipynb was taken"),
        ({"in/01.ipynb": SOLVED, ".a.ipynb": HALF}, "in/01.ipynb", "in/01.ipynb was"),
        ({"a.ipynb": SOLVED, "b.ipynb": SOLVED}, "a.ipynb", "a.ipynb was taken"),
        (
            {"01.ipynb": HALF, "b.ipynb": SOLVED},
            "01.ipynb",
            "beside it, and not graded: b.ipynb",
        ),
    ],
)
def test_the_file_with_answers_is_taken(tmp_path, files, taken, said):
    path, words = handed_in(tmp_path, files)
    assert path == tmp_path / taken
    assert words.startswith(said) and bool(words) == bool(said)


@pytest.mark.parametrize(
    "files, why",
    [
        ({}, "the folder is empty"),
        ({".keep": b""}, "the folder is empty"),
        ({"01.ipynb": b"<html>"}, "no notebook that can be read: 01.ipynb"),
        ({"01.ipynb": OTHER}, "01.ipynb: of another assignment"),
        (
            {"a.ipynb": SOLVED, "b.ipynb": HALF},
            "several files, and none is 01.ipynb: a.ipynb, b.ipynb",
        ),
    ],
)
def test_what_can_not_be_taken_is_said(tmp_path, files, why):
    with pytest.raises(NotTaken, match=re.escape(why)):
        handed_in(tmp_path, files)
    assert remarks(tmp_path, tmp_path / "grade", {"01": GIVEN}) == f"not graded: {why}"


def test_a_grade_depends_on_the_file_and_on_the_checks(tmp_path):
    path, _ = handed_in(tmp_path, {"01.ipynb": SOLVED})
    before = digests(path, GIVEN)
    mended = Given(GIVEN[2].source + "\nassert x", "code", GIVEN[2].marks)
    of_another_check = digests(path, [*GIVEN[:2], mended, *GIVEN[3:]])
    assert of_another_check["hand_in"] == before["hand_in"]
    assert of_another_check["checks"] != before["checks"]
    path.write_bytes(HALF)
    assert digests(path, GIVEN)["hand_in"] != before["hand_in"]
    assert digests(path, GIVEN)["checks"] == before["checks"]


def test_a_grade_that_is_older_than_its_hand_in_says_so(tmp_path):
    path, _ = handed_in(tmp_path / "in", {"01.ipynb": SOLVED})
    graded = solved()
    graded.metadata["grading"] = digests(path, GIVEN) | {"notes": ["a note"]}
    out = tmp_path / "out"
    out.mkdir()
    (out / "01.ipynb").write_bytes(as_bytes(graded))
    assert remarks(path.parent, out, {"01": GIVEN}) == "a note"
    path.write_bytes(HALF)
    words = "a note; handed in anew, and not graded since"
    assert remarks(path.parent, out, {"01": GIVEN}) == words
    path.write_bytes(b"<html>")
    words = "a note; handed in anew, and not graded: no notebook that can be read"
    assert remarks(path.parent, out, {"01": GIVEN}).startswith(words)


class Record:
    """What a gradebook tells of an assignment, a student, or a hand-in."""

    name = id = "01"
    duedate = last_name = first_name = email = timestamp = None
    max_score, score, late_submission_penalty = 5.0, 3.0, 4.0


def test_what_was_not_graded_has_no_score_and_what_is_missing_has_0():
    one = Record()
    graded = row(one, one, one, "a note")
    assert (graded["raw_score"], graded["score"]) == (3.0, 0.0)  # late by 4 points
    assert "score" not in row(one, one, one, "not graded: the folder is empty")
    assert "score" not in row(one, one, None, "not graded: the folder is empty")
    assert row(one, one, None, NOTHING)["score"] == 0.0


def test_what_lies_beside_the_assignments_is_found(tmp_path):
    for name in ("01", "O1", ".hidden"):
        (tmp_path / name).mkdir()
    assert strays(tmp_path, {"01"}) == [tmp_path / "O1"]
    assert strays(tmp_path / "nobody", {"01"}) == []
