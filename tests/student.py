"""Write the notebooks for learners: without solutions, without outputs, to student/."""

from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent


def without_solutions(notebook):
    """The notebook without the folded solutions and without outputs."""
    notebook.cells = [
        cell
        for cell in notebook.cells
        if "solution" not in cell.metadata.get("tags", [])
    ]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


if __name__ == "__main__":
    (ROOT / "student").mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = without_solutions(nbformat.read(path, as_version=4))
        nbformat.write(notebook, ROOT / "student" / path.name)
        print(f"student/{path.name}")
