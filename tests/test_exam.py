"""Each question of `make exam` is worked out anew, from what is printed alone."""

import csv
import re
import sys
from collections import Counter
from fractions import Fraction
from html.parser import HTMLParser
from itertools import pairwise

import exam
import exam_questions
import pytest

from companion.course import checks

SEEDS = range(200)
ROSTER = "id,first_name,last_name,email\nada,Ada,Lovelace,a@b.org\nt<1,Alan,\n\nx y,,\n"


class Words(HTMLParser):
    """What a reader sees of HTML: its words."""

    def __init__(self, html: str):
        super().__init__()
        self.words: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def plain(html: str) -> str:
    return " ".join(Words(html).words).replace("−", "-")


def whole(text: str) -> list[int]:
    """All whole numbers of a text, 1,000 as one and (1, 0) as two."""
    found = re.findall(r"-?\d{1,3}(?:,\d{3})+|-?\d+", text)
    return [int(x.replace(",", "")) for x in found]


def vectors(text: str) -> list[list[int]]:
    return [whole(x) for x in re.findall(r"\((-?\d[-\d, ]*)\)", text)]


def attention(text: str) -> Fraction:
    """By fractions: a term is 2 to the power of half the dot product."""
    query, *keys = vectors(text)
    values = whole(re.search(r"values (.*?)\.", text)[1])
    dots = [sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    assert len(query) == 4 and len(keys) == len(values) == 3
    assert not any(dot % 2 for dot in dots), "a power of two isn't whole"
    terms = [2 ** (dot // 2) for dot in dots]
    pairs = zip(terms, values, strict=True)
    return sum(Fraction(term, sum(terms)) * value for term, value in pairs)


def joined(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    made = []
    for token in tokens:
        if made and (made[-1], token) == pair:
            made[-1] = "".join(pair)
        else:
            made.append(token)
    return made


def two_merges(text: str) -> int:
    """By strings; a count with overlaps and one without find the same single pair."""
    tokens = list(re.search(r"from\s+([abc]+)", text)[1])
    for _ in range(2):
        overlapping = Counter(pairwise(tokens))
        apart = {pair: len(tokens) - len(joined(tokens, pair)) for pair in overlapping}
        most = max(overlapping.values())
        for counts in (overlapping, apart):
            best = [pair for pair, n in counts.items() if n >= most]
            assert most > 1 and len(best) == 1, f"a tie in {tokens}"
        tokens = joined(tokens, best[0])
    return len(tokens)


def cache_bytes(text: str) -> int:
    layers, heads, kept_heads, features = whole(text)[:4]
    assert heads % kept_heads == 0
    n_tokens = whole(text)[-1]
    bytes_a_number = {"float32": 4, "bfloat16": 2}[re.search(r"b?float\d+", text)[0]]
    one_token = layers * kept_heads * features * bytes_a_number
    return n_tokens * (one_token + one_token)  # a key and a value


def advantage(text: str) -> Fraction:
    column, row = whole(re.search(r"advantage of (.*?) within", text)[1])
    group = vectors(text)[row - 1]
    mean = Fraction(sum(group), len(group))
    variance = sum((x - mean) ** 2 for x in group) / len(group)
    deviation = round(float(variance) ** 0.5)
    assert deviation**2 == variance, "the deviation isn't whole"
    return (group[column - 1] - mean) / deviation


def offset(text: str) -> float:
    """By complex numbers: a quarter is a factor i."""
    *_, query, key = (complex(*vector) for vector in vectors(text))
    t, s = whole(re.search(r"stands at position (.*)", text)[1])[::3]
    return (query * 1j ** (t % 4) * (key * 1j ** (s % 4)).conjugate()).real


def window_mask(text: str) -> str:
    """Token by token, by the rule as it is told."""
    _, last, width = whole(text)[:3]
    rows = []
    for t in range(last + 1, last + 4):
        seen = [s for s in range(t + 1) if t - s < width]
        rows.append(f"{seen[0]}–{seen[-1]}")
    assert whole(text)[-3:] == [last + 1, last + 2, last + 3]  # the grid's rows
    return ", ".join(rows)


SOLVERS = [attention, two_merges, cache_bytes, advantage, offset, window_mask]


@pytest.mark.parametrize(
    "title, solve", [*zip(exam_questions.TEMPLATES, SOLVERS, strict=True)]
)
def test_what_is_right_is_what_the_printed_question_asks_for(title, solve):
    """For 200 seeds, and no mistake gives it; it is short, and not always the same."""
    met = set()
    for seed in SEEDS:
        question = exam_questions.draw_questions(str(seed), "ada", [title])[title]
        printed = exam_questions.number(question.right).replace("−", "-")
        right = solve(plain(question.text))
        if isinstance(right, str):
            assert printed == right
            assert right not in question.mistakes.values()
        else:
            assert Fraction(printed.replace(",", "")) == right, (seed, question)
            assert len(printed) <= 5 or right % 1000 == 0, "an ugly answer"
            # A mistake that is rounded to one decimal is still told from it.
            near = [x for x in question.mistakes.values() if abs(x - right) < 0.05]
            assert near == []
        met.add(printed)
    assert len(met) >= 5


def test_a_key_s_mistakes_are_worked_out_by_hand():
    """One of each kind, in a way of its own."""
    title, merges, cache, group, turned, mask = exam_questions.TEMPLATES
    for seed in map(str, range(20)):
        asked = exam_questions.draw_questions(seed, "ada")

        query, *keys = vectors(plain(asked[title].text))
        values = whole(re.search(r"values (.*?)\.", asked[title].text)[1])
        dots = [sum(map(int.__mul__, query, key)) for key in keys]
        terms = [2**dot for dot in dots]  # not divided by the root
        wrong = sum(map(int.__mul__, terms, values)) / sum(terms)
        assert list(asked[title].mistakes.values())[0] == pytest.approx(wrong)

        letters = re.search("[abc]{13,}", asked[merges].text)[0]
        given = asked[merges].mistakes
        assert (
            given["each pair is joined once, not wherever it stands"]
            == len(letters) - 2
        )
        pair, n = Counter(pairwise(letters)).most_common(1)[0]
        assert given["one merge alone"] == len(letters) - n

        assert asked[cache].mistakes["bits, not bytes"] == 8 * asked[cache].right

        text = plain(asked[group].text)
        column, row = whole(re.search(r"advantage of (.*?) within", text)[1])
        rewards = vectors(text)[row - 1]
        wrong = rewards[column - 1] - sum(rewards) / 5
        assert asked[group].mistakes["the deviation is missing"] == wrong

        *_, query, key = vectors(plain(asked[turned].text))
        wrong = query[0] * key[0] + query[1] * key[1]
        assert asked[turned].mistakes["nothing is turned"] == wrong

        _, last, width = whole(plain(asked[mask].text))[:3]
        wrong = ", ".join(f"0–{t}" for t in range(last + 1, last + 4))
        words = "there is no window: a token sees `width` keys at most"
        assert asked[mask].mistakes[words] == wrong


def test_an_unclear_question_is_drawn_again():
    questions = [
        exam_questions.Question("", right, "", {"a slip": given})
        for right, given in [(2.0, 2.01), ("0–3", "0–3"), (2.0, 2.1)]
    ]
    assert exam_questions.drawn(lambda draw: draw.pop(0), [*questions]) is questions[2]
    with pytest.raises(ValueError, match="template: a mistake gives what is right"):

        def template(draw):
            return questions[0]

        exam_questions.drawn(template, None)


def test_words_that_no_check_has_are_refused():
    for piece in ("no such words", "the"):
        with pytest.raises(ValueError, match=f"'{piece}' is in"):
            exam_questions.known_mistakes(checks.one_query, piece)


@pytest.fixture
def roster(tmp_path):
    def write(text: str, encoding: str = "utf-8"):
        path = tmp_path / "students.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_roster_is_nbgrader_s(roster, encoding):
    assert exam.read_roster(roster(ROSTER, encoding)) == {
        "ada": "Ada Lovelace",
        "t<1": "Alan",
        "x y": "x y",
    }
    spaced = roster("id, first_name\nada, Ada\n")
    assert exam.read_roster(spaced) == {"ada": "Ada"}
    assert exam.read_roster(roster("id\r\nada\r\nbob\r\n")) == {
        "ada": "ada",
        "bob": "bob",
    }


@pytest.mark.parametrize(
    "text, encoding, words",
    [
        ("", "utf-8", "has no column id"),
        ("ada\nbob\n", "utf-8", "has no column id.*'ada'"),
        ("id;first_name\nada;Ada\n", "utf-8", "has no column id.*id;first_name"),
        ("id,first_name,id\nada,Ada,bob\n", "utf-8", "has two columns id"),
        ("id,first_name\n", "utf-8", "names nobody"),
        ("id,first_name\n\n,\n", "utf-8", "names nobody"),
        ("id\nada\nbob\nada\n", "utf-8", "'ada' twice, as student 1 and 3"),
        ("id\nada\n ADA \n", "utf-8", "'ADA' twice, as student 1 and 2"),
        ("id\n\u00e9\ne\u0301\n", "utf-8", "twice, as student 1 and 2"),
        ("id,first_name\nada,Ada\n,Bob\n", "utf-8", "student 2 of 2 has no id"),
        ("id,first_name\nada,\u00c9va\n", "latin-1", "is no CSV file in UTF-8"),
    ],
)
def test_a_bad_roster_is_refused_in_one_line_and_nothing_is_written(
    roster, tmp_path, monkeypatch, text, encoding, words
):
    monkeypatch.setattr(exam, "OUT", tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["exam", str(roster(text, encoding))])
    with pytest.raises(SystemExit, match=f"^error: .*{words}[^\n]*$"):
        exam.main()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (["", "--seed", "a"], "say for whom: make exam roster=students.csv"),
        (["none.csv", "--seed", "a"], "none.csv"),
        (["ROSTER", "--seed", "../a"], "seed '../a' must be letters"),
    ],
)
def test_what_else_can_t_be_used_is_said_in_one_line(roster, monkeypatch, words, said):
    path = roster(ROSTER)
    words = [str(path) if word == "ROSTER" else word for word in words]
    monkeypatch.setattr(sys, "argv", ["exam", *words])
    with pytest.raises(SystemExit, match=f"^error: .*{re.escape(said)}[^\n]*$"):
        exam.main()


def pages(html: str) -> list[str]:
    return re.findall(r"<section class='sheet'>.*?</section>", html, re.S)


def test_the_same_seed_writes_the_same_pages_and_a_name_keeps_its_own(roster, tmp_path):
    written = []
    longer = ROSTER.replace("ada,", "new,New,,\nada,")
    for text, seed in ((ROSTER, "1"), (ROSTER, "1"), (longer, "1"), (ROSTER, "2")):
        sheets, key = exam.write_exam(roster(text), seed, tmp_path)
        written.append((pages(sheets.read_text("utf-8")), key.read_text("utf-8")))
    first, again, with_new, other = written
    assert first == again and first[0] == with_new[0][1:]
    assert len({*first[0], *other[0]}) == 6


def test_each_name_has_a_page_and_the_key_has_all(roster, tmp_path):
    sheets, key = exam.write_exam(roster(ROSTER), "s-1", tmp_path)
    found = pages(sheets.read_text("utf-8"))
    marking = plain(key.read_text("utf-8"))
    names = [["Ada Lovelace", "ada"], ["Alan", "t<1"], ["x y", "x y"]]
    for html, (name, student) in zip(found, names, strict=True):
        text = plain(html)
        assert name in text and student in text and "exam s-1" in text
        assert html.count("class='box'") == len(exam_questions.TEMPLATES)
        for question in exam_questions.draw_questions("s-1", student).values():
            assert plain(question.text) in text
            for x in (question.right, *question.mistakes.values()):
                assert exam_questions.number(x).replace("−", "-") in marking
    assert "exam s-1" in marking and "Show your way" not in marking
    words = plain(sheets.read_text("utf-8"))
    assert "no scale" not in words  # no student sees the key


def test_a_new_exam_has_a_seed_that_nobody_knows(roster, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(exam, "ROOT", tmp_path)
    monkeypatch.setattr(exam.write_exam, "__defaults__", (tmp_path / "out",))
    monkeypatch.setattr(sys, "argv", ["exam", str(roster(ROSTER))])
    exam.main()
    exam.main()
    said = capsys.readouterr().out.split()
    assert len({*said}) == 4 and all((tmp_path / path).exists() for path in said)


def test_the_roster_s_form_is_one_that_python_s_csv_writes(roster, tmp_path):
    path = roster("")
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["last_name", "id"])
        table.writeheader()
        table.writerow({"last_name": 'O"Hara, the\nelder', "id": "a"})
    assert exam.read_roster(path) == {"a": 'O"Hara, the elder'}
