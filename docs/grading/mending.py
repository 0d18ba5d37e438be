"""Mends a hand-in: cells that are missing, there twice, moved, or changed.

Of two the last that isn't as it was given out counts. A missing check is put behind its
answer, or below all; what was locked is as it was, and where it was.
"""

import ast
from collections.abc import Callable
from itertools import takewhile

from nbformat.corpus.words import generate_corpus_id
from nbformat.v4 import new_code_cell, new_markdown_cell

from .cells import HIDDEN, Given, marks, name_of


def mend(notebook, given: list[Given], is_untouched: Callable) -> list[str]:
    """Mends a notebook where it stands. Returns what a teacher must know of it.

    `is_untouched` says of a cell whether it is as it was given out, even if the teacher
    has mended it since.
    """
    notes = []
    give_ids(notebook)
    for cell in given:
        notes += mend_cell(notebook, cell, given, is_untouched)
    notes += put_in_order(notebook, given)
    names = {cell.name for cell in given}
    for cell in notebook.cells:
        if marks(cell) and name_of(cell) not in names:
            del cell.metadata["nbgrader"]  # of another assignment, or a copy
    stubs = {cell.name: cell.source for cell in given if cell.is_answer}
    answers = [cell for cell in notebook.cells if name_of(cell) in stubs]
    if answers and all(cell.source == stubs[name_of(cell)] for cell in answers):
        notes.append("every answer is as it was given out")
    return notes


def give_ids(notebook) -> None:
    """Gives each cell an id of its own, which older formats don't have."""
    notebook.nbformat_minor = max(notebook.nbformat_minor, 5)
    seen = set()
    for cell in notebook.cells:
        while cell.get("id") is None or cell.id in seen:
            cell.id = generate_corpus_id()
        seen.add(cell.id)


def mend_cell(notebook, cell: Given, given: list[Given], is_untouched) -> list[str]:
    """Makes one of nbgrader's cells be there, once, and as it must be."""
    notes = []
    found = [x for x in notebook.cells if name_of(x) == cell.name]
    if not found:
        if cell.is_locked and cell.cell_type == "code":
            place = 0 if cell is given[0] else place_of(notebook, cell, given)
            notebook.cells.insert(place, new_cell(cell))
        return [f"the cell {cell.name} is missing"]

    if len(found) > 1:
        notes.append(f"the cell {cell.name} is there twice")
    changed = [x for x in found if x.source != cell.source] or found
    kept = found[-1] if cell.is_locked else changed[-1]
    for other in found:
        if other is not kept:
            del other.metadata["nbgrader"]

    if kept.cell_type != cell.cell_type:
        notes.append(f"the cell {cell.name} was made a {kept.cell_type} cell")
        i = notebook.cells.index(kept)
        kept = notebook.cells[i] = new_cell(cell, kept.source)
    if cell.is_locked:
        shown = HIDDEN.sub("", cell.source)
        if not (is_untouched(kept) or same_program(kept.source, shown)):
            notes.append(f"the cell {cell.name} was changed")
        kept.source = cell.source
    kept.metadata["nbgrader"] = dict(cell.marks)
    return notes


def same_program(one: str, other: str) -> bool:
    """Whether two cells differ at most in how they are written."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError):
        lines = [[x.rstrip() for x in y.strip().splitlines()] for y in (one, other)]
        return lines[0] == lines[1]


def new_cell(cell: Given, source: str | None = None):
    """A new cell in the place of one that was given out."""
    make = new_code_cell if cell.cell_type == "code" else new_markdown_cell
    text = cell.source if source is None else source
    return make(text, metadata={"nbgrader": dict(cell.marks)})


def answer_above(cell: Given, given: list[Given]) -> str | None:
    """The last answer above a cell, as they were given out."""
    above = takewhile(lambda other: other.name != cell.name, given)
    answers = [other.name for other in above if other.is_answer]
    return answers[-1] if answers else None


def place_of(notebook, check: Given, given: list[Given]) -> int:
    """Where a missing check goes: behind its answer, or above the hidden tests."""
    names = [name_of(cell) for cell in notebook.cells]
    answer = answer_above(check, given)
    if answer in names and answer:
        return names.index(answer) + 1
    hidden = {cell.name for cell in given if cell.is_hidden}
    places = [i for i, name in enumerate(names) if name in hidden]
    return places[0] if places and not check.is_hidden else len(names)


def put_in_order(notebook, given: list[Given]) -> list[str]:
    """Puts what is locked behind the answer that it follows, the set-up above all."""
    notes = []
    order = [cell.name for cell in given]
    for cell in given:
        names = [name_of(x) for x in notebook.cells]
        if cell.is_answer or cell.name not in names:
            continue
        i = names.index(cell.name)
        above = answer_above(cell, given)
        if above in names and above and i < names.index(above):
            notes.append(f"the cell {cell.name} stood above {above}")
            notebook.cells.insert(names.index(above), notebook.cells.pop(i))
        elif above is None and cell.name == order[0]:
            first = min(names.index(name) for name in order if name in names)
            if i > first:
                notes.append(f"the cell {cell.name} stood below others")
                notebook.cells.insert(0, notebook.cells.pop(i))
    return notes
