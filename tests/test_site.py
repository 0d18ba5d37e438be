"""The site's first page has every chapter, and a slide ends where a sentence does."""

import re

import assemble
import pytest
import slides
from chapters import PATHS, prepared


def test_a_colon_in_the_middle_of_a_sentence_does_not_end_it():
    prose = ["You saw *dogs* stand out: *bark* is a plural. That is attention."]
    assert slides.words_to_read(prose, 40, announces=False) == prose[0]
    assert slides.words_to_read(prose, 5, announces=False) == ""


def test_what_announces_a_thing_is_said_only_where_the_thing_is_shown():
    prose = ["Two parts are new. Here they are:"]
    assert slides.words_to_read(prose, 40, announces=True) == "Here they are:"
    assert slides.words_to_read(prose, 40, announces=False) == "Two parts are new."


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_slide_ends_where_its_text_has_an_end(path):
    cells = slides.deck(prepared(path.read_text("utf-8"))).cells
    places = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells]
    for i, place in enumerate(places):
        _, _, words = cells[i].source.partition("\n\n")
        if place == "slide" and words:
            notes = places.index("notes", i)
            said = cells[notes].source
            shown = notes > i + 1
            ends = r"[.!?][*)\"]*$" + r"|:\**$" * shown
            assert re.search(ends, words), words
            if words.endswith(":"):  # then its paragraph ends there, too
                assert re.search(re.escape(words) + r"\s*(\n\n|$)", said), words


def test_the_first_page_has_every_chapter_once_in_four_groups():
    page = assemble.contents()["index.md"].decode()
    found = re.findall(r"^  \[\d\d · .+\]\(notebooks/(\w+)\.ipynb\)$", page, re.M)
    assert found == [path.stem for path in PATHS]
    assert page.count("{.chapters}\n- ") == 4 and "CHAPTERS" not in page


def test_the_first_page_has_the_whole_ladder():
    found = assemble.contents()
    page = found["index.md"].decode()
    (alt,) = re.findall(r"^!\[(.+)\]\(pictures/ladder\.png\)$", page, re.M)
    assert "a counter beside it" in alt and found["pictures/ladder.png"][1:4] == b"PNG"


def test_links_of_a_page_lead_from_where_it_lies_on_the_site():
    text = "[00](../notebooks/00.ipynb), [teaching](docs/teaching.md), [x](x.md)"
    expected = "[00](notebooks/00.ipynb), [teaching](teaching.md), [x](x.md)"
    assert assemble.relinked(text) == expected
