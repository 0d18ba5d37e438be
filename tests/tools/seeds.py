"""Run chapters with other seeds: `python tests/tools/seeds.py [-n N] [CHAPTER ...]`.

A line for each chapter and seed, and for each cell that raises. Nothing is written but
what the chapters themselves keep, and that goes to a folder of its own.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cells import chapters, read, tags
from course_gpt import set_apart
from execute import client
from nbformat import NotebookNode

from companion.artifacts import ARTIFACTS, CACHE

SEED = re.compile(r"(setup\(seed=|manual_seed\()(\d+)")


def shifted(path: Path, shift: int) -> NotebookNode:
    """A chapter in which every seed is `shift` larger."""
    notebook = read(path)
    for cell in notebook.cells:
        cell.source = SEED.sub(lambda s: f"{s[1]}{int(s[2]) + shift}", cell.source)
    return notebook


@contextmanager
def cache_of_its_own() -> Iterator[None]:
    """Within, chapters keep what they keep in a folder that goes with them."""
    with tempfile.TemporaryDirectory() as folder:
        for artifact in ARTIFACTS:
            there = Path(folder) / artifact.path.relative_to(CACHE)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(artifact.path.read_bytes())
        before = os.environ.copy()
        os.environ["COMPANION_CACHE"] = folder
        set_apart(folder)
        try:
            yield
        finally:  # neither of the two folders is there any more
            os.environ.clear()
            os.environ.update(before)


def failures(path: Path, shift: int) -> list[str]:
    """The first lines of the cells that raise where every seed is `shift` larger."""
    notebook = shifted(path, shift)
    client(notebook, allow_errors=True).execute(cwd=str(path.parent))
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            meant = "raises-exception" in tags(cell)
            if output.output_type == "error" and not meant:
                line = cell.source.splitlines()[0]
                found.append(f"{line}: {output.ename}: {output.evalue[:200]}")
    return found


def main() -> int:
    """All chapters, or those whose names begin as given; 1 where a cell raised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=3, help="how many seeds")
    parser.add_argument("chapters", nargs="*")
    options = parser.parse_args()
    n_raised = 0
    with cache_of_its_own():
        for shift in range(100, 100 * options.n + 1, 100):
            for path in chapters(options.chapters):
                begin = time.monotonic()
                found = failures(path, shift)
                seconds = time.monotonic() - begin
                n_raised += len(found)
                verdict = f"{len(found)} raise" if found else "ok"
                print(f"{path.stem}, seed + {shift}: {verdict}, {seconds:.0f} s")
                for line in found:
                    print(f"    {line}", flush=True)
    return 1 if n_raised else 0


if __name__ == "__main__":
    sys.exit(main())
