"""The teacher's guide agrees with the notebooks, with the checks and with itself."""

import math
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import guide
import pytest
import torch
from cells import PATHS, read
from common import ROOT

import companion
from companion.pretrained import smollm2

TEXT = guide.GUIDE.read_text("utf-8")
QUIZZES = guide.GUIDE.with_name("quizzes.md").read_text("utf-8")
PROJECTS = guide.GUIDE.with_name("projects.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
CELLS = {path.stem: read(path).cells for path in PATHS}


def test_the_mistakes_are_in_the_words_of_today_s_checks():
    assert guide.filled(TEXT) == TEXT, "run `make guide`"


def test_a_piece_must_fit_one_mistake():
    for piece in ("no such words", "the"):
        with pytest.raises(SystemExit, match=f"'{piece}' is in"):
            guide.line(f"one_query: {piece}")


def section(stem: str) -> str:
    """What the guide says of a chapter, under the notebook's own title."""
    title = CELLS[stem][0].source.splitlines()[0]
    (found,) = re.findall(rf"^#{title}\n(.*?)^## ", TEXT, re.S | re.M)
    return found


def exercises(stem: str) -> list[str]:
    sources = [cell.source for cell in CELLS[stem] if cell.cell_type == "code"]
    return re.findall(r"^checks\.(\w+)\(my_", "\n".join(sources), re.M)


def test_a_chapter_has_one_name():
    titles = {s: cells[0].source.splitlines()[0] for s, cells in CELLS.items()}
    for stem, title in titles.items():
        wanted = title.partition(" · ")[2].lower()
        found = re.findall(
            rf"\[([^]]+)\]\([./]*notebooks/{stem}\.ipynb\)", TEXT + README
        )
        assert {*found} - {stem[:2]} == {wanted}, stem


def test_every_chapter_has_its_row_and_its_numbers():
    for stem in CELLS:
        row = rf"^\| {stem[:2]} \| \[.+\]\(\.\./notebooks/{stem}\.ipynb\) "
        numbers = r"\| [\d, ]*\| \d+, \d+ \| \d+ \| \d+( to \d+)? s \|$"
        assert len(re.findall(row + numbers, TEXT, re.M)) == 1, stem


def test_every_exercise_is_there_with_its_mistakes_and_its_outcome():
    for stem in CELLS:
        told, wanted = section(stem), exercises(stem)
        assert wanted and re.findall(r"^- `(\w+)`: \"", told, re.M) == wanted, stem
        (line,) = re.findall(r"^Assessed by: (.*?)\n\n", told, re.S | re.M)
        assessed = dict(re.findall(r"(`\w+`|question [12]) ([a-d])\b", line))
        named = [name.strip("`") for name in assessed if name[0] == "`"]
        assert named == wanted, stem
        outcomes = re.findall(r"^- \*\*([a-d])\*\* ", told, re.M)
        assert 2 <= len(outcomes) <= 4 and {*assessed.values()} == {*outcomes}, stem


def test_every_chapter_has_two_questions_with_an_answer():
    for stem in CELLS:
        told = section(stem)
        (asked,) = re.findall(r"^Discuss:\n\n(.*?)^What goes", told, re.S | re.M)
        questions = re.split(r"^\d\. ", asked.strip(), flags=re.M)[1:]
        answered = [re.search(r"[.?]\s+\*[^*]+\*$", each.strip()) for each in questions]
        assert len(answered) == 2 and all(answered), stem


def named_parts() -> list[tuple[str, str]]:
    """Where README or guide quotes a chapter's headings, behind a link to it."""
    found = []
    for line in (TEXT + README).splitlines():
        for stem, rest in re.findall(r"notebooks/(\w+)\.ipynb\)((?:(?!\]\().)*)", line):
            found += [(stem, heading) for heading in re.findall(r'"([^"]+)"', rest)]
    return found


def test_the_parts_that_are_recommended_exist():
    assert named_parts()
    for stem, heading in named_parts():
        prose = "\n".join(cell.source for cell in CELLS[stem])
        assert re.search(rf"^##+ {re.escape(heading)}$", prose, re.M), (stem, heading)


def blocks(text: str, kind: str) -> list[str]:
    """The code of a page, also that of a list, which is three spaces further in."""
    return re.findall(rf"```{kind}\n(.*?)```", text.replace("\n   ", "\n"), re.S)


def printed(program: str) -> str:
    with redirect_stdout(StringIO()) as out:
        exec(program, {})
    return out.getvalue()


@pytest.mark.parametrize("text, n", [(TEXT, 3), (QUIZZES, 9)], ids=["guide", "quizzes"])
def test_the_programs_print_their_answers(text, n):
    programs = blocks(text, "python")
    assert len(programs) == n and [*map(printed, programs)] == blocks(text, "text")


def test_every_chapter_has_a_quiz_of_five_questions_with_answers():
    asked = re.split(r"^#(?=# \d\d · )", QUIZZES, flags=re.M)[1:]
    titles = [cells[0].source.splitlines()[0] for cells in CELLS.values()]
    assert [quiz.splitlines()[0] for quiz in asked] == titles
    for quiz, stem in zip(asked, CELLS, strict=True):
        parts = quiz.split(f"<details><summary>Answers to {stem[:2]}</summary>\n\n")
        for part in parts:
            assert re.findall(r"^(\d)\. ", part, re.M) == [*"12345"], stem
        assert len(parts) == 2 and parts[1].strip().endswith("</details>"), stem


def test_the_sums_of_the_quizzes_are_right():
    sums = re.findall(r"`([^`\n]+)` =\s(-?[\d,]*\.?\d+)", QUIZZES)
    assert len(sums) == QUIZZES.count("` = ") + QUIZZES.count("` =\n") > 40
    for code, told in sums:
        digits = len(told.partition(".")[2])
        assert f"{eval(code, {'math': math}):,.{digits}f}" == told, code


def projects() -> list[str]:
    _, own, last = re.split("^## ", PROJECTS, flags=re.M)
    return [own, last]


def test_a_project_is_short():
    assert all(len(project.splitlines()) <= 136 for project in projects())


def test_the_project_in_the_middle_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    program = "".join(blocks(projects()[0], "python"))
    every = "dict.fromkeys(paragraphs))"
    shorter = {
        "n_steps = 400": "n_steps = 2",
        "warmup=10": "warmup=1",
        every: f"{every}[:6000]",
    }
    for long, short in shorter.items():
        assert program.count(long) == 1
        program = program.replace(long, short)
    exec(program, {})
    assert "\nThe " in capsys.readouterr().out
    assert {path.name for path in Path("build").iterdir()} == {
        "explore.html",
        "mine.safetensors",
    }


def test_the_final_project_s_test_counts_by_the_character(monkeypatch, capsys):
    tokenizer = companion.CharTokenizer(companion.tiny_shakespeare())

    def blind(tokens):  # all are equally likely
        return torch.zeros(*tokens.shape, tokenizer.d_vocab)

    monkeypatch.setattr(smollm2, "load_smollm2", lambda: (blind, tokenizer))
    program = blocks(projects()[1], "python")[0]
    assert len(program.splitlines()) <= 25
    exec(program, {})
    told = f"{math.log(65):.4f} nats a character: fail\n"
    assert capsys.readouterr().out == told
