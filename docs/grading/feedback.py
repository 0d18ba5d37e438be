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

# What all hidden tests say, each in parts; None is a number, the name of an error, or
# what an answer gave.
SAYINGS = [
    ["yours to write"],
    ["there is no function of this name"],
    [ENDED],
    [TOO_LONG],
    ["it stops with ", None],
    ["the shape is ", None, ", not ", None],
    ["a tensor should come out, not ", None],
]
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
        return f"✗ {name}: {told(words, sayings(cell.source)) or 'it is wrong'}"
    if not found and any(x.output_type == "execute_result" for x in outputs):
        return ""  # a share of the points, which stands above the cell
    return f"✓ {name}: it passes"


def sayings(source: str) -> list[list[str | None]]:
    """The words of a hidden test, each in parts; None is what stood in braces."""
    all_parts = list(SAYINGS)
    for node in ast.walk(ast.parse(HIDDEN.search(source)[0])):
        if isinstance(node, ast.JoinedStr):
            values = [getattr(part, "value", None) for part in node.values]
            all_parts.append([x if isinstance(x, str) else None for x in values])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            all_parts.append([node.value])
    return all_parts


def told(words: str, every: list) -> str:
    """What an error says, as far as a test says it itself; empty if it says nothing.

    Of what stood in braces numbers stay, names of errors, and the test's other words.
    """
    fitting = (filled(words, parts, every) for parts in every if parts and any(parts))
    return max(fitting, key=len)


def filled(words: str, parts: list[str | None], every: list) -> str:
    """The words, if they are these parts, or their beginning; else an empty text."""
    kept = ""
    whole = words
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        if part is None:
            end = words.find(following) if following else len(words)
            if end < 0:
                end = len(words)
            hole = words[:end]
            words = words[end:]
            if hole == whole:
                return ""
            kept += harmless(hole) or told(hole, every) or "…"
        elif words.startswith(part) or part.startswith(words):
            kept += words[: len(part)]
            words = words[len(part) :]
        else:
            return ""
    return "" if words.strip(" .:") else kept


def harmless(hole: str) -> str:
    """What may stay of what stood in braces: numbers, and the names of errors."""
    name = hole.partition(":")[0]
    if isinstance(getattr(builtins, name, None), type) or name == "NoneType":
        return name
    return hole if NUMBERS.fullmatch(hole) else ""
