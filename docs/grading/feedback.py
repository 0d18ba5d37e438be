"""What students read of a hidden test: a verdict, in the test's own words.

An answer can print the check that calls it. So of a hidden test a verdict stays, and of
a cell below one nothing that it has printed.
"""

import ast
import builtins
import re

from nbformat.v4 import new_output

from .cells import HIDDEN, marks, name_of
from .running import ENDED, TOO_LONG

# What a test says, in parts. None is a hole, braces in the test's source: a number
# fills it, the name of an error, or what an answer gave.
Saying = list[str | None]
SAID_BY_ALL: list[Saying] = [
    ["yours to write"],
    ["there is no function of this name"],
    [ENDED],
    [TOO_LONG],
    ["it stops with ", None],
    ["the shape is ", None, ", not ", None],
    ["a tensor should come out, not ", None],
]
DEPTH = 4  # of sayings in holes of one another
NUMBERS = re.compile(r"[-+\d.,e\[\](){} ]{0,40}|True|False|None")


def hide(notebook) -> None:
    """Takes out hidden tests, and what could tell of them."""
    notebook.metadata.pop("widgets", None)
    below = False
    for cell in notebook.cells:
        if HIDDEN.search(cell.source) and marks(cell).get("grade"):
            below = True
            line = verdict(cell)
            cell.outputs = [new_output("stream", text=line)] if line else []
            cell.source = HIDDEN.sub("", cell.source)
            cell.execution_count = None
        elif below and cell.cell_type == "code":
            cell.outputs = []


def verdict(cell) -> str:
    """The line of a hidden test, in its own words, whatever an answer has printed."""
    outputs = cell.get("outputs", [])
    found = re.search(r"def check_(\w+)", cell.source)
    name = found[1] if found else name_of(cell)
    errors = [output for output in outputs if output.output_type == "error"]
    if errors:
        words = errors[-1].evalue.removeprefix(f"{name}: ")
        return f"✗ {name}: {allowed(words, sayings_of(cell.source)) or 'it is wrong'}"
    if not found and any(x.output_type == "execute_result" for x in outputs):
        return ""  # a share of the points, which stands above the cell
    return f"✓ {name}: it passes"


def sayings_of(source: str) -> list[Saying]:
    """All that a hidden test can say."""
    found = list(SAID_BY_ALL)
    for node in ast.walk(ast.parse(HIDDEN.search(source)[0])):
        if isinstance(node, ast.JoinedStr):
            values = [getattr(part, "value", None) for part in node.values]
            found.append([x if isinstance(x, str) else None for x in values])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append([node.value])
    return found


def allowed(words: str, sayings: list[Saying], depth: int = DEPTH) -> str:
    """What of an error's words a test can say by itself; empty if it says nothing.

    Of what fills a hole numbers stay, names of errors, and the test's other words.
    """
    readings = [""]
    for saying in sayings if depth else []:
        reading = ""
        for part, text in zip(saying, texts_of(saying, words), strict=False):
            if part is None:
                text = harmless(text) or allowed(text, sayings, depth - 1) or "…"
            reading += text
        readings.append(reading)
    return max(readings, key=len)


def texts_of(saying: Saying, words: str) -> list[str]:
    """Each part's text in words that are a saying, or its beginning; else none.

    Words that fill a single hole are no saying: anything would be.
    """
    texts = []
    rest = words
    for part, following in zip(saying, [*saying[1:], None], strict=True):
        if part is None:
            end = rest.find(following) if following else -1
            if end < 0:
                end = len(rest)
            if end == len(words):
                return []
        elif rest.startswith(part) or part.startswith(rest):
            end = len(part)
        else:
            return []
        texts.append(rest[:end])
        rest = rest[end:]
    return [] if rest.strip(" .:") else texts


def harmless(filling: str) -> str:
    """What may stay of what fills a hole: numbers, and the names of errors."""
    name = filling.partition(":")[0]
    if isinstance(getattr(builtins, name, None), type) or name == "NoneType":
        return name
    return filling if NUMBERS.fullmatch(filling) else ""
