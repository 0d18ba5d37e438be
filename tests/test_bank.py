"""The teacher's bank: checks that reject wrong answers, and that students don't get."""

import importlib
import re
from pathlib import Path

import pytest
import torch
from assignment import assignment
from bank import BANK, questions
from cells import PATHS
from hand_ins import facts

from companion.course.checks.homework import agree, grade
from companion.course.checks.mistakes import Mistake

MARKS = r"(?s)### BEGIN HIDDEN TESTS\n.*### END HIDDEN TESTS"
every_chapter = pytest.mark.parametrize("path", BANK, ids=lambda path: path.stem)


def wrong(path: Path) -> tuple:
    """The wrong answers to a chapter's questions: (question, words, answer)."""
    return importlib.import_module(f"homework.{path.stem[3:]}").WRONG


def said_of(check, answer) -> str:
    try:
        grade(check, answer)
    except Mistake as mistake:
        return str(mistake)
    return ""


def test_every_chapter_has_homework():
    assert [path.stem for path in BANK] == [path.stem for path in PATHS]


@every_chapter
def test_there_are_two_questions_or_more_each_with_a_prompt_and_a_stub(path):
    found = questions(path)
    assert len(found) >= 2
    for number, question in enumerate(found, 1):
        assert question.prompt.startswith(f"**{number}. ")
        assert 40 <= len(question.prompt.split()) <= 95
        assert f"`{question.function}(" in question.prompt
        assert question.stub.endswith("\n    raise NotImplementedError")
        assert question.function.startswith("my_")


@every_chapter
def test_every_check_rejects_the_stub_and_at_least_two_mistakes_with_words(path):
    for question in questions(path):
        check = question.compiled()
        names = {}
        exec(question.stub, names)
        unwritten = f"{question.name}: yours to write"
        assert said_of(check, names[question.function]) == unwritten
        mistakes = [row[1:] for row in wrong(path) if row[0] == question.name]
        assert len(mistakes) >= 2
        for words, answer in mistakes:
            assert words in said_of(check, answer), (answer, said_of(check, answer))


@every_chapter
def test_homework_is_an_answer_and_a_hidden_check_behind_the_exercises(path):
    notebook = next(n for n in PATHS if n.stem == path.stem)
    plain = assignment(notebook).cells
    cells = assignment(notebook, bank=True).cells
    assert [c.source for c in cells[: len(plain)]] == [c.source for c in plain]
    assert len({c.id for c in cells}) == len(cells)
    title, *added = cells[len(plain) :]
    assert title.source.startswith("## Homework")
    assert len(added) == 3 * len(questions(path))
    for i, question in enumerate(questions(path)):
        prompt, answer, check = added[3 * i : 3 * i + 3]
        assert prompt.source == question.prompt
        assert facts(answer)["solution"] and not facts(answer)["locked"]
        assert facts(check)["grade"] and facts(check)["points"] == 1
        # What nbgrader takes out is the check, all of it.
        assert question.check in check.source
        released = re.sub(MARKS, "", check.source).strip()
        assert released == "# Graded by a check that you don't receive."


def test_an_answer_that_is_missing_or_stops_is_told_in_one_line():
    def check_sum(answer):
        assert answer(2, 3) == 5, "2 and 3 are 5"

    assert said_of(check_sum, lambda a, b: a + b) == ""
    assert said_of(check_sum, lambda a, b: a * b) == "sum: 2 and 3 are 5"
    assert said_of(check_sum, None) == "sum: there is no function of this name"
    stops = said_of(check_sum, lambda a, b: a / 0)
    assert stops == "sum: it stops with ZeroDivisionError: division by zero"


def test_values_agree_or_are_told_by_type_shape_and_words():
    x = torch.tensor([1.0, 2.0])
    agree(x.double() + 1e-7, x, "other numbers")
    agree(x > 1, x > 1, "other booleans")
    many = torch.tensor([50_000, 2**60])
    agree(many.int()[:1], many[:1], "other numbers")
    with pytest.raises(AssertionError, match="other numbers"):
        agree(many + 1, many, "other numbers")
    for result, words in (
        ([1.0, 2.0], "a tensor should come out, not list"),
        (x[None], r"the shape is \(1, 2\), not \(2,\)"),
        (torch.tensor([1, 2]), "the dtype is torch.int64, not torch.float32"),
        (x > 0, "the dtype is torch.bool, not torch.float32"),
        (x + 0.01, "other numbers"),
        (x * torch.nan, "other numbers"),
    ):
        with pytest.raises(AssertionError, match=words):
            agree(result, x, "other numbers")


def test_without_the_bank_there_is_no_homework():
    for path in PATHS:
        assert not any("Homework" in cell.source for cell in assignment(path).cells)
