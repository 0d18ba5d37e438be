"""Run notebooks from top to bottom and store their outputs, without timestamps."""

import ast
import io
import sys
import tempfile
import time
import tokenize
from pathlib import Path

import nbformat
from cells import code_cells, read, tags
from course_gpt import set_apart
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


def is_silenced(source: str) -> bool:
    """Whether a cell ends in a value that IPython doesn't show, for a `;` follows it.

    nbval runs cells without a history, where IPython doesn't look for it.
    """
    try:
        *_, last = ast.parse(source).body
        tokens = [*tokenize.generate_tokens(io.StringIO(source).readline)]
    except (SyntaxError, ValueError, tokenize.TokenError):  # a magic, or nothing
        return False
    blank = tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER
    *_, end = (token for token in tokens if token.type not in blank)
    return isinstance(last, ast.Expr) and end.string == ";"


def is_compared(cell) -> bool:
    """Whether strict nbval compares a cell's output."""
    off = {"nbval-ignore-output", "nbval-skip"}
    marks = "NBVAL_IGNORE_OUTPUT", "NBVAL_SKIP"
    return not off & tags(cell) and not any(mark in cell.source for mark in marks)


def failing(notebook) -> list[str]:
    """The cells, by number and last line, that strict nbval will fail for their `;`."""
    return [
        f"[{cell.execution_count}] {cell.source.strip().splitlines()[-1]}"
        for cell in code_cells(notebook)
        if is_silenced(cell.source) and is_compared(cell)
    ]


def execute(path: Path) -> None:
    """Run one notebook in a new kernel; nothing is written if a cell fails."""
    begin = time.monotonic()
    notebook = read(path)
    client(notebook, record_timing=False).execute(cwd=str(path.parent))
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        kept = ("tags", "jupyter")
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in kept}
    nbformat.write(notebook, path)
    for cell in failing(notebook):
        print(
            f"{path}: {cell}: strict nbval will fail, for it doesn't see the `;`; tag"
            " the cell nbval-ignore-output, or end it otherwise, as in plt.show()"
        )
    print(f"{path}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        set_apart(folder)
        for name in sys.argv[1:]:
            execute(Path(name))
