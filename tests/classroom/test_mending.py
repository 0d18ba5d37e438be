"""A hand-in that came back damaged is mended, and each damage is named."""

from grading.mending import mend
from nbformat import from_dict
from nbformat.v4 import new_code_cell, new_raw_cell
from released import ANSWERS, GIVEN, names, notebook, solved

EVERY = [cell.name for cell in GIVEN]


def mended(handed_in, untouched=()) -> list[str]:
    """What is said; afterwards all that grades is as it was given out."""
    said = mend(handed_in, GIVEN, lambda cell: cell.source in untouched)
    for check in (cell for cell in GIVEN if cell.is_check):
        kept = handed_in.cells[names(handed_in).index(check.name)]
        assert kept.source == check.source
        assert kept.metadata["nbgrader"] == check.marks
    assert len({cell.id for cell in handed_in.cells}) == len(handed_in.cells)
    return said


def answers(handed_in) -> dict:
    places = {name: names(handed_in).index(name) for name in ANSWERS}
    return {name: handed_in.cells[i].source for name, i in places.items()}


def test_an_honest_hand_in_comes_through_without_a_word():
    handed_in = solved()
    handed_in.cells.insert(2, new_code_cell("mine"))
    assert mended(handed_in) == []
    assert answers(handed_in) == ANSWERS
    assert names(handed_in) == [*EVERY[:2], None, *EVERY[2:]]


def test_what_is_only_written_otherwise_or_was_mended_since_is_not_changed():
    handed_in = solved()
    for cell in handed_in.cells:
        cell.source = cell.source.replace("(", "( ") + "  \n"
    before = "assert my_first() == 0"  # the check as it was, before the teacher's
    handed_in.cells[2].source = before
    assert mended(handed_in, untouched=[before]) == []


def test_a_changed_check_and_an_emptied_set_up_are_put_right():
    handed_in = solved()
    handed_in.cells[0].source = ""
    handed_in.cells[2].source = "pass"
    said = ["the cell set-up was changed", "the cell check-first was changed"]
    assert mended(handed_in) == said
    assert names(handed_in) == EVERY and handed_in.cells[0].source == "x = 1"


def test_of_two_answers_the_last_one_that_was_written_counts():
    handed_in = solved()
    stub = notebook().cells[1]
    handed_in.cells.append(from_dict(stub | {"id": handed_in.cells[1].id}))
    assert mended(handed_in) == ["the cell first is there twice"]
    assert answers(handed_in) == ANSWERS


def test_a_missing_check_goes_behind_its_answer_a_lost_one_above_hidden_tests():
    handed_in = solved()
    del handed_in.cells[2]
    assert mended(handed_in) == ["the cell check-first is missing"]
    assert names(handed_in) == EVERY

    handed_in = solved()
    for cell in handed_in.cells[1:3]:
        cell.metadata.clear()
    said = ["the cell first is missing", "the cell check-first is missing"]
    assert mended(handed_in) == said
    wanted = ["set-up", None, None, "second", "check-first", "check-second"]
    assert names(handed_in) == wanted

    handed_in = solved()
    for cell in handed_in.cells:
        cell.metadata.clear()
    assert mended(handed_in) == [f"the cell {name} is missing" for name in EVERY]
    assert names(handed_in)[0] == "set-up"
    assert names(handed_in)[6:] == ["check-first", "check-second"]

    handed_in = solved()
    del handed_in.cells[0]
    assert mended(handed_in) == ["the cell set-up is missing"]
    assert names(handed_in) == EVERY


def test_what_stood_elsewhere_is_put_back():
    handed_in = solved()
    handed_in.cells.insert(0, handed_in.cells.pop(2))
    handed_in.cells.append(handed_in.cells.pop(1))
    said = ["the cell set-up stood below others", "the cell check-first stood above"]
    found = mended(handed_in)
    assert all(line.startswith(words) for line, words in zip(found, said, strict=True))
    assert names(handed_in) == EVERY


def test_an_answer_that_became_text_runs_again():
    handed_in = solved()
    marks = handed_in.cells[1].metadata
    handed_in.cells[1] = new_raw_cell(ANSWERS["first"], metadata=marks)
    assert mended(handed_in) == ["the cell first was made a raw cell"]
    assert handed_in.cells[1].cell_type == "code"
    assert answers(handed_in) == ANSWERS


def test_a_cell_without_an_id_gets_one_and_marks_of_others_go():
    handed_in = solved()
    handed_in.nbformat_minor = 0
    del handed_in.cells[1]["id"]
    handed_in.cells.append(new_code_cell(metadata={"nbgrader": {"grade_id": "other"}}))
    assert mended(handed_in) == []
    assert names(handed_in)[-1] is None and handed_in.nbformat_minor == 5


def test_where_nothing_was_answered_it_is_said():
    handed_in = notebook()
    assert mended(handed_in) == ["every answer is as it was given out"]
