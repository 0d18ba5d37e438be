"""Write the checks' own words into docs/teaching.md: `python tests/tools/guide.py`.

In the guide a comment names exercises, and for each a few pieces of the words that its
check has for mistakes. What stands from there to `<!-- end -->` is written anew:

    <!-- mistakes
    one_query: no scale; take its root
    -->
"""

import re
import sys
from pathlib import Path

from companion.course import checks

GUIDE = Path(__file__).parents[2] / "docs" / "teaching.md"
PLACE = re.compile(r"(<!-- mistakes\n(.*?)-->\n).*?(<!-- end -->)", re.S)


def line(wanted: str) -> str:
    """A line of the guide for `NAME: PIECE; PIECE`, with the whole words."""
    name, _, pieces = wanted.partition(": ")
    known = getattr(checks, name).exercise().mistakes
    chosen = []
    for piece in pieces.split("; "):
        fitting = [words for words in known if piece == words]
        fitting = fitting or [words for words in known if piece in words]
        if len(fitting) != 1:
            sys.exit(f"{name}: {piece!r} is in {len(fitting)} of its check's mistakes")
        chosen.append(f'"{fitting[0]}"'.replace("*", r"\*"))
    return f"- `{name}`: {'; '.join(chosen)}\n"


def filled(guide: str) -> str:
    """The guide with the words that the checks have today."""

    def block(place: re.Match) -> str:
        lines = "".join(map(line, place[2].splitlines()))
        return f"{place[1]}\n{lines}\n{place[3]}"

    return PLACE.sub(block, guide)


if __name__ == "__main__":
    GUIDE.write_text(filled(GUIDE.read_text("utf-8")), "utf-8")
