"""Run notebooks from top to bottom and store their outputs, without timestamps."""

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path) -> None:
    """Run one notebook in a new kernel; nothing is written if a cell fails."""
    begin = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, record_timing=False)
    client.execute(cwd=str(path.parent))
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        kept = ("tags", "jupyter")
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in kept}
    nbformat.write(notebook, path)
    print(f"{path}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        execute(Path(name))
