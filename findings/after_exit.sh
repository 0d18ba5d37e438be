#!/usr/bin/env bash
# nbval 0.11.0, nbclient 0.11.0, ipykernel 6.31.0
#
# What happens: after a cell with `exit()` the kernel lives on for a tenth of a second.
# Quick cells behind it still run, and see what was defined before: nbval reports all of
# them as passed. A slow cell behind it runs to its end, too, and then the *next* one is
# blamed: nbclient raises DeadKernelError there.
# What one would expect: that the cell which ends the kernel is the last that runs. The
# kernel asks for it (a payload "ask_exit" in its reply); neither runner reads it.
# For whom it matters: who puts `exit()` into a notebook so that "Run All" stops there,
# and trusts that a continuous test stops there, too; who grades notebooks, and takes
# the points from the wrong cell.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   quick, nbval     3 passed
#   quick, nbclient  DeadKernelError: False, printed by the cells: ['', '', '7', '7']
#   slow, nbclient   DeadKernelError: True, printed by the cells: ['', '', '7', '']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet nbval==0.11.0 nbclient==0.11.0 \
  ipykernel==6.31.0 pytest==9.2.0
cd "$folder"
PATH="$folder/env/bin:$PATH" python - <<'PYTHON'
import subprocess
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

SLOW = "import time\nfor _ in range(30):\n    time.sleep(0.1)\nprint(a)"


def notebook(*sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


def run(*sources):
    """Whether the kernel died, and what each cell printed."""
    nb = notebook(*sources)
    died = False
    try:
        NotebookClient(nb, kernel_name="python3").execute()
    except DeadKernelError:
        died = True
    printed = ["".join(x.text for x in cell.outputs).strip() for cell in nb.cells]
    return f"DeadKernelError: {died}, printed by the cells: {printed}"


stored = notebook("a = 7", "exit()", "print(a)")
for count, cell in enumerate(stored.cells, 1):
    cell.execution_count = count
stored.cells[-1].outputs = [
    nbformat.v4.new_output("stream", name="stdout", text="7\n")
]
nbformat.write(stored, "exit.ipynb")
command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q"]
result = subprocess.run([*command, "exit.ipynb"], capture_output=True, text=True)

seen = {
    "quick, nbval": result.stdout.splitlines()[-1].split(" in ")[0],
    "quick, nbclient": run("a = 7", "exit()", "print(a)", "print(a)"),
    "slow, nbclient": run("a = 7", "exit()", SLOW, "print(a)"),
}
for name, what in seen.items():
    print(f"{name:<16} {what}")
assert list(seen.values()) == [
    "3 passed",
    "DeadKernelError: False, printed by the cells: ['', '', '7', '7']",
    "DeadKernelError: True, printed by the cells: ['', '', '7', '']",
], seen
PYTHON
