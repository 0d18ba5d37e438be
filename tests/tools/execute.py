"""Run notebooks from top to bottom and store their outputs, without timestamps."""

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.output_widget import OutputWidget

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Silent(OutputWidget):
    """What `interact` draws into. nbclient's own answers the kernel from within, and
    now and then loses the reply to the cell: of 150 sliders about one waits for ever.
    """

    def send(self, *_, **__) -> None:
        pass


def client(notebook, **options) -> NotebookClient:
    """A client for a notebook in a new kernel; a cell may take ten minutes."""
    # On a busy machine a line comes in several parts; stored they are one.
    made = NotebookClient(notebook, timeout=600, coalesce_streams=True, **options)
    made.widget_registry = {"@jupyter-widgets/output": {"OutputModel": Silent}}
    return made


def execute(path: Path) -> None:
    """Run one notebook in a new kernel; nothing is written if a cell fails."""
    begin = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    client(notebook, record_timing=False).execute(cwd=str(path.parent))
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        kept = ("tags", "jupyter")
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in kept}
    nbformat.write(notebook, path)
    print(f"{path}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        execute(Path(name))
