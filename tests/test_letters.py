"""The page of letters and names: what it lists is there, and chapters link to it."""

import re
import sys

from cells import PATHS, prose
from common import ROOT

import companion

PAGE = (ROOT / "docs" / "letters.md").read_text("utf-8")
LINK = "[Letters and names](../docs/letters.md)"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    table = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[1:]]


def test_the_axes_are_those_of_the_package():
    legend = companion.__doc__.partition("einops")[2].partition("These names")[0]
    letters = re.findall(r"(?<!\w)([a-z]) (?=[a-z]+)", legend)
    found = [cell.strip("`") for cell, *_ in rows("Axes")]
    assert sorted(found) == sorted({*letters} & {*found}) and len(found) == 7


def test_each_letter_and_name_has_one_meaning():
    for heading in ("Axes", "Sizes", "Names"):
        names = [row[0] for row in rows(heading) if row[0]]
        assert len(names) == len({*names}), heading


def test_each_is_in_the_chapter_that_introduces_it():
    words = {"`my_…`, `My…`": "my_", "`companion.Place`": ".place("}
    for name, *_, chapter in rows("Names") + rows("Sizes"):
        (path,) = [path for path in PATHS if path.name.startswith(chapter)]
        text = path.read_text("utf-8")
        assert words.get(name, name.strip("`$")).lower() in text.lower(), (
            name,
            chapter,
        )


def test_the_other_names_of_the_package_exist():
    for name in re.findall(r"`companion\.(\w+)`", PAGE):
        assert hasattr(companion, name), name


def test_a_chapter_links_to_pages_that_exist():
    linked = 0
    for path in PATHS:
        for target in re.findall(r"\]\((\.\./[^)#]+)", prose(path)):
            assert (path.parent / target).is_file(), (path.stem, target)
        linked += LINK in prose(path)
    assert linked >= 3 and LINK in prose(PATHS[0])


def test_the_site_finds_the_page_from_a_chapter(monkeypatch):
    """There docs/ and notebooks/ lie otherwise than in the clone."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from chapters import prepared

    text = PATHS[0].read_text("utf-8")
    for suffix in (".md", ".html"):
        shown = "".join(cell.source for cell in prepared(text, suffix).cells)
        assert f"[Letters and names](../letters{suffix})" in shown
        assert "../docs/" not in shown
