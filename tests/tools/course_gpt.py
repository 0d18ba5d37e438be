"""Write the course's own copy of the machine from what the chapters keep."""

import os
import re
from pathlib import Path

from cells import PATHS, code

from companion.course.kept_file import COURSE, HEAD, TOP, as_text, merged

MAGIC = "%%keep\n"


def kept_cells(path: Path) -> list[str]:
    """What a chapter keeps, cell by cell."""
    return [
        source.removeprefix(MAGIC) for source in code(path) if source.startswith(MAGIC)
    ]


def course_text() -> str:
    """The file as it is after all chapters."""
    sections = {TOP: HEAD}
    for path in PATHS:
        section = ""
        for cell in kept_cells(path):
            section = merged(section, cell)
        if section:
            sections[int(re.match(r"\d+", path.name)[0])] = section
    return as_text(sections)


def set_apart(folder: str) -> None:
    """Lets notebooks keep their cells in a file of this folder, as if all had run.

    So they say the same in any order, and touch nobody's own file.
    """
    path = Path(folder) / "my_gpt.py"
    path.write_text(course_text(), "utf-8")
    os.environ["MY_GPT_FILE"] = str(path)


if __name__ == "__main__":
    COURSE.write_text(course_text(), "utf-8")
