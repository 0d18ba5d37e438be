"""Measure the ladder: `python tests/tools/ladder.py [CHAPTER ...]`.

Runs the chapters that draw a ladder, or those of them whose names begin as given, with
three other seeds, as far as their rungs, and stores these in the package's data in
place of theirs. The README's ladder is drawn anew.
"""

import json
import re
import sys
from pathlib import Path

from cells import chapters, code
from execute import client
from nbformat.v4 import new_code_cell
from seeds import cache_of_its_own, shifted

from companion.course import ladder

SHIFTS = 100, 200, 300
READ = "import json\nprint(json.dumps(rungs))"
DRAWING = re.compile(r"ladder\.(draw|compare)\(")  # after a chapter's last rung
README = Path(__file__).parents[2] / "README.md"
FIGURE = re.compile(r"(?<=<!-- ladder -->\n).*?(?=<!-- /ladder -->)", re.S)


def with_rungs(paths: list[Path]) -> list[Path]:
    """Those of these chapters that draw a ladder. Ends the program where none does."""
    found = [path for path in paths if any(map(DRAWING.search, code(path)))]
    if not found:
        sys.exit(f"error: {paths[0].stem} draws no ladder")
    return found


def rungs_of(path: Path, shift: int) -> dict[str, float]:
    """The rungs of a chapter where every seed is `shift` larger."""
    notebook = shifted(path, shift)
    cells = notebook.cells
    for cell in cells:  # rungs that a chapter has stored, for want of time
        cell.source = cell.source.replace("patient = False", "patient = True")
    last = max(i for i, cell in enumerate(cells) if DRAWING.search(cell.source))
    notebook.cells = [*cells[: last + 1], new_code_cell(READ)]
    client(notebook, allow_errors=True).execute(cwd=str(path.parent))
    return json.loads(notebook.cells[-1].outputs[0].text)


def check_whole_ladder(chapter: str, before: set[str], runs: list[dict]) -> None:
    """Ends the program where a cell that sets a rung has failed, in one run or in all.

    A rung that a chapter no longer has is to be deleted from the stored ones first.
    """
    for run in runs:
        if lost := (before | runs[0].keys()) - run.keys():
            sys.exit(f"error: {chapter} has lost a rung: {', '.join(sorted(lost))}")


def with_ladder(text: str) -> str:
    """The README's text with the rungs of 00 to 05, eight blocks a nat.

    Those of 17 have another price.
    """
    rows = ["```text"]
    for name, rung in ladder.stored().items():
        if rung["chapter"] > "05":
            continue
        loss = ladder.measured(name)
        bar = "█" * round(8 * loss)
        rows.append(f"{rung['chapter']} {name:20} {loss:.2f} {bar}")
    figure = "\n".join([*rows, "```\n"])
    return FIGURE.sub(lambda _: figure, text)


def main() -> None:
    """Measures, prints and stores, a chapter at a time."""
    known = ladder.stored() if ladder.STORED.exists() else {}
    with cache_of_its_own():
        for path in with_rungs(chapters(sys.argv[1:])):
            chapter = path.name[:2]
            runs = [rungs_of(path, shift) for shift in SHIFTS]
            before = {k for k, v in known.items() if v["chapter"] == chapter}
            check_whole_ladder(chapter, before, runs)
            known = {k: v for k, v in known.items() if v["chapter"] != chapter}
            for name in runs[0]:
                nats = [round(run[name], 4) for run in runs]
                known[name] = {"chapter": chapter, "nats": nats}
                print(chapter, name, *nats, flush=True)
            known = dict(sorted(known.items(), key=lambda each: each[1]["chapter"]))
            ladder.STORED.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    README.write_text(with_ladder(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
