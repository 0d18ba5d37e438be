"""The teacher's guide agrees with the notebooks, with the checks and with itself."""

import re
import subprocess
import sys
from pathlib import Path

import guide
import nbformat
import pytest

ROOT = Path(__file__).parent.parent
TEXT = guide.GUIDE.read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
NOTEBOOKS = {
    path.stem: nbformat.read(path, as_version=4).cells
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
}


def test_the_mistakes_are_in_the_words_of_today_s_checks():
    assert guide.filled(TEXT) == TEXT, "run `make guide`"


def test_a_piece_must_fit_one_mistake():
    for piece in ("no such words", "the"):
        with pytest.raises(SystemExit, match=f"'{piece}' is in"):
            guide.line(f"one_query: {piece}")


def section(stem: str) -> str:
    """What the guide says of a chapter, under the notebook's own title."""
    title = NOTEBOOKS[stem][0].source.splitlines()[0]
    (found,) = re.findall(rf"^#{title}\n(.*?)^## ", TEXT, re.S | re.M)
    return found


def exercises(stem: str) -> list[str]:
    sources = [cell.source for cell in NOTEBOOKS[stem] if cell.cell_type == "code"]
    return re.findall(r"^checks\.(\w+)\(my_", "\n".join(sources), re.M)


def test_a_chapter_has_one_name():
    titles = {s: cells[0].source.splitlines()[0] for s, cells in NOTEBOOKS.items()}
    for stem, title in titles.items():
        wanted = title.partition(" · ")[2].lower()
        found = re.findall(
            rf"\[([^]]+)\]\([./]*notebooks/{stem}\.ipynb\)", TEXT + README
        )
        assert {*found} - {stem[:2]} == {wanted}, stem


def test_every_chapter_has_its_row_and_its_numbers():
    for stem in NOTEBOOKS:
        row = rf"^\| {stem[:2]} \| \[.+\]\(\.\./notebooks/{stem}\.ipynb\) "
        numbers = r"\| [\d, ]*\| \d+, \d+ \| \d+ \| \d+( to \d+)? s \|$"
        assert len(re.findall(row + numbers, TEXT, re.M)) == 1, stem


def test_every_exercise_is_there_with_its_mistakes_and_its_outcome():
    for stem in NOTEBOOKS:
        told, wanted = section(stem), exercises(stem)
        assert wanted and re.findall(r"^- `(\w+)`: \"", told, re.M) == wanted, stem
        (line,) = re.findall(r"^Assessed by: (.*?)\n\n", told, re.S | re.M)
        assessed = dict(re.findall(r"(`\w+`|question [12]) ([a-d])\b", line))
        named = [name.strip("`") for name in assessed if name[0] == "`"]
        assert named == wanted, stem
        outcomes = re.findall(r"^- \*\*([a-d])\*\* ", told, re.M)
        assert 2 <= len(outcomes) <= 4 and {*assessed.values()} == {*outcomes}, stem


def test_every_chapter_has_two_questions_with_an_answer():
    for stem in NOTEBOOKS:
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
        prose = "\n".join(cell.source for cell in NOTEBOOKS[stem])
        assert re.search(rf"^##+ {re.escape(heading)}$", prose, re.M), (stem, heading)


def test_the_programs_of_the_self_test_print_their_answers():
    blocks = re.findall(r"```(\w+)\n(.*?)```", TEXT.replace("\n   ", "\n"), re.S)
    programs = [code for kind, code in blocks if kind == "python"]
    answers = [answer for kind, answer in blocks if kind == "text"]
    how = {"capture_output": True, "text": True}
    done = [subprocess.run([sys.executable, "-c", code], **how) for code in programs]
    assert len(programs) == 3 and [each.stdout for each in done] == answers
