"""The chapters as they lie in the notebooks: their files, and what stands in them."""

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def chapters(beginnings: Sequence[str] = ()) -> list[Path]:
    """The chapters whose names begin as given, as "05" and "16_n"; or all of them.

    Ends the program where one of them begins none.
    """
    if not beginnings:
        return PATHS
    for beginning in beginnings:
        if not any(path.name.startswith(beginning) for path in PATHS):
            sys.exit(
                f"error: no chapter's name begins with {beginning!r}; say 05 for 05"
            )
    return [path for path in PATHS if path.name.startswith(tuple(beginnings))]


def read(path: Path) -> NotebookNode:
    """A notebook, in the form of today."""
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """A notebook's cells of code, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def code(path: Path) -> list[str]:
    """What a notebook's cells of code say, in order."""
    return [cell.source for cell in code_cells(read(path))]


def prose(path: Path) -> str:
    """What a notebook's cells of text say, one after the other."""
    texts = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    return "\n\n".join(texts)


def tags(cell: NotebookNode) -> set[str]:
    """A cell's tags, such as "solution"."""
    return {*cell.metadata.get("tags", [])}


def pictures(cell: NotebookNode) -> list[NotebookNode]:
    """A cell's outputs that are pictures."""
    outputs = cell.get("outputs", [])
    return [output for output in outputs if "image/png" in output.get("data", {})]
