"""Read the teacher's bank: docs/bank/ has two or more questions for each chapter.

Behind a file's head, a docstring and imports, come cells, each after a line `# %%`: a
question's prompt, the stub of its answer, and its check, three by three. Editors that
know such cells show them as a notebook.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANK = sorted((ROOT / "docs" / "bank").glob("*.py"))
CELL = re.compile(r"^# %%.*\n", re.M)


@dataclass(frozen=True)
class Question:
    """One question: what is asked, and what the teacher alone has."""

    name: str  # of the check, without `check_`
    function: str  # the name of the student's function
    prompt: str  # markdown
    stub: str
    imports: str  # what the check needs
    check: str

    def compiled(self) -> Callable:
        """Returns the check, a function of the student's function."""
        names: dict = {}
        exec(f"{self.imports}\n{self.check}", names)
        return names[f"check_{self.name}"]


def questions(path: Path) -> list[Question]:
    """Returns the questions of one file, in its order."""
    head, *cells = CELL.split(path.read_text("utf-8"))
    docstring = ast.parse(head).body[0]
    imports = "\n".join(head.splitlines()[docstring.end_lineno :]).strip()
    found = []
    for prompt, stub, check in zip(cells[::3], cells[1::3], cells[2::3], strict=True):
        text = re.sub(r"^# ?", "", prompt, flags=re.M).strip()
        function = re.match(r"def (\w+)", stub.strip())[1]
        name = re.match(r"def check_(\w+)", check.strip())[1]
        found.append(
            Question(name, function, text, stub.strip(), imports, check.strip())
        )
    return found
