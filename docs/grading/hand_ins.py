"""Which file of a hand-in is its notebook, and what a grade of it depends on."""

import hashlib
from pathlib import Path

import nbformat

from .cells import HIDDEN, Given, marks, name_of


class NotTaken(Exception):
    """Nothing in a folder can be graded; it says why."""


def readable(path: Path):
    """A file's notebook, or None."""
    try:
        notebook = nbformat.reads(path.read_text("utf-8-sig"), as_version=4)
        cells = [(cell.cell_type, cell.source, marks(cell)) for cell in notebook.cells]
    except Exception:
        return None
    return notebook if cells else None


def content(notebook) -> list:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def is_answered(notebook, given: list[Given]) -> bool:
    """Whether an answer isn't as it was given out, or has lost its mark."""
    stubs = {cell.name: cell.source.strip() for cell in given if not cell.is_locked}
    found = set()
    for cell in notebook.cells:
        name = name_of(cell)
        if name in stubs and cell.source.strip() != stubs[name]:
            return True
        found.add(name)
    return not stubs.keys() <= found


def is_foreign(notebook, given: list[Given]) -> bool:
    """Whether most of its marked cells are those of another assignment.

    One without any mark is foreign if nothing stands in it that was given out.
    """
    names = {cell.name for cell in given}
    marked = {name_of(cell) for cell in notebook.cells if marks(cell)}
    if marked:
        return len(marked - names) > len(marked & names)
    shown = {HIDDEN.sub("", cell.source).strip() for cell in given} - {""}
    return not any(text in cell.source for cell in notebook.cells for text in shown)


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, but for what is hidden there."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def choose(folder: Path, name: str, given: list[Given]) -> tuple[Path, str]:
    """The file that is a hand-in's notebook `name`, and what to say of it.

    The one of the right name, unless it is as it was given out, or no notebook of this
    assignment, and exactly one other has answers. Raises NotTaken where none can be
    chosen.
    """
    right = folder / f"{name}.ipynb"
    files = files_in(folder)
    read = {path: readable(path) for path in files}
    found = {path: notebook for path, notebook in read.items() if notebook}
    own = {path: nb for path, nb in found.items() if not is_foreign(nb, given)}
    answered = {path: nb for path, nb in own.items() if is_answered(nb, given)}

    def shown(paths) -> str:
        return ", ".join(str(path.relative_to(folder)) for path in paths)

    if right in answered or (right in own and not answered):
        taken = right
    else:
        others = list(answered or own)
        if not files:
            raise NotTaken("the folder is empty")
        if not found:
            raise NotTaken(f"no notebook that can be read: {shown(files)}")
        if not others:
            raise NotTaken(f"{shown(found)}: of another assignment")
        taken = others[0]
        if any(content(own[path]) != content(own[taken]) for path in others):
            raise NotTaken(f"several files, and none is {right.name}: {shown(others)}")

    remarks = []
    if taken != right:
        remarks.append(f"{shown([taken])} was taken for {right.name}")
    unlike = [p for p in answered if content(answered[p]) != content(own[taken])]
    if unlike:
        remarks.append(f"beside it, and not graded: {shown(unlike)}")
    return taken, "; ".join(remarks)


def digests(path: Path, given: list[Given]) -> dict[str, str]:
    """SHA-256s of what a grade depends on: the hand-in, and nbgrader's cells."""
    texts = []
    for cell in given:
        texts += [cell.name, cell.source, str(cell.marks.get("points"))]
    return {
        "hand_in": hashlib.sha256(path.read_bytes()).hexdigest(),
        "checks": hashlib.sha256("\0".join(texts).encode()).hexdigest(),
    }


def strays(folder: Path, assignments: set[str]) -> list[Path]:
    """What lies in a student's folder, and not in one of an assignment."""
    every = sorted(folder.iterdir()) if folder.is_dir() else []
    return [x for x in every if x.name not in assignments and x.name[0] != "."]
