"""Write the notebooks for learners: without solutions, without outputs, to student/."""

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
SOLUTION = re.compile(r"### BEGIN SOLUTION\n.*?### END SOLUTION", flags=re.S)


def without_solutions(notebook):
    """The notebook with `...` where solutions stood, and no code hidden or run."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = SOLUTION.sub("# your answer here\n...", cell.source)
            cell.metadata.pop("jupyter", None)
            cell.outputs, cell.execution_count = [], None
    return notebook


if __name__ == "__main__":
    (ROOT / "student").mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = without_solutions(nbformat.read(path, as_version=4))
        nbformat.write(notebook, ROOT / "student" / path.name)
        print(f"student/{path.name}")
