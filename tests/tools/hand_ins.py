"""What students hand in for chapter 01: each odd in one way, with what it must get."""

from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

CHAPTER = "01_attention"
NAME = f"{CHAPTER}.ipynb"
ONE, WINDOW, PAD, GRADIENT = (
    "one_query",
    "window_attention",
    "pad_mask",
    "softmax_gradient",
)
HOMEWORK = "n_keys", "text_mask"
EVERY = [
    "set-up",
    *(x for a in (ONE, WINDOW, PAD, GRADIENT) for x in (a, f"check-{a}")),
]
EVERY += [x for a in HOMEWORK for x in (a, f"check-{a}")]


@dataclass
class HandIn:
    """A folder's files, the points for them, and what the log and grades.csv say.

    Where there can't be points, each note says first that it is not graded.
    """

    files: dict  # notebooks or bytes, by their paths
    points: int | None = 4  # of the exercises; None where it can't be graded
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.points is None:
            self.notes = [f"not graded: {note}" for note in self.notes]

    def write(self, folder: Path) -> None:
        for name, what in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(what, bytes):
                path.write_bytes(what)
            else:
                path.write_text(nbformat.writes(what), "utf-8")


def read(step: str, chapter: str):
    return nbformat.read(Path(step, chapter, f"{chapter}.ipynb"), as_version=4)


def facts(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


def named(notebook) -> dict:
    """nbgrader's cells by their names."""
    return {facts(cell)["grade_id"]: cell for cell in notebook.cells if facts(cell)}


def answered(chapter: str, *wanted: str, homework: tuple = ()):
    """What a student hands in who has solved some exercises, or without names all."""
    source = named(read("source", chapter))
    notebook = read("release", chapter)
    every = [name for name, cell in source.items() if facts(cell)["solution"]]
    for name in wanted or [name for name in every if name not in homework]:
        named(notebook)[name].source = source[name].source
    return notebook


def solved(*wanted: str):
    return answered(CHAPTER, *wanted, homework=HOMEWORK)


def given_out():
    return read("release", CHAPTER)


def with_source(name: str, change) -> object:
    """All solved, one cell's source changed by a function."""
    notebook = solved()
    cell = named(notebook)[name]
    cell.source = change(cell.source)
    return notebook


def below_def(source: str, line: str) -> str:
    return source.replace("    ### BEGIN", f"    {line}\n    ### BEGIN")


# A student's own machine, which ends whoever runs it, and what one may keep in it.
MACHINE = b"raise SystemExit('no machine of the teacher')\n"
BEGIN = "from companion.course import kept\n\nkept.begin(chapter=9)"
KEEP = "%%keep\nclass OfTheStudent:\n    pass"


def with_machine(notebook):
    """Its own cells begin the machine, and keep something in it."""
    notebook.cells += [new_code_cell(BEGIN), new_code_cell(KEEP)]
    return notebook


# Honest hand-ins: no note.


def warns():
    """A right answer warns, and writes an empty line to stderr."""
    line = "import sys, warnings; warnings.warn('no mistake'); print(file=sys.stderr)"
    return with_source(ONE, lambda x: below_def(x, line))


def rewritten():
    """An editor has formatted locked cells, and ends its lines as Windows does."""
    notebook = solved()
    for cell in notebook.cells:
        if facts(cell).get("locked"):
            cell.source = cell.source.replace("(", "( ").replace("\n", "  \n") + "\n\n"
    return nbformat.writes(notebook).replace("\n", "\r\n").encode()


def old_format():
    """Format 4.0, whose cells have no ids; one check is gone."""
    notebook = solved()
    notebook.cells.remove(named(notebook)[f"check-{PAD}"])
    notebook.nbformat_minor = 0
    for cell in notebook.cells:
        del cell["id"]
    return notebook


# Damaged ones.


def damaged():
    """All answers but the first, two checks emptied, and two cells without marks."""
    notebook = solved(WINDOW, PAD, GRADIENT)
    cells = named(notebook)
    cells[f"check-{ONE}"].source = cells[f"check-{PAD}"].source = "pass"
    for name in (f"check-{PAD}", GRADIENT):
        del cells[name].metadata["nbgrader"]
    copy = nbformat.from_dict(cells[WINDOW] | {"id": "copy"})
    notebook.cells.insert(notebook.cells.index(cells[WINDOW]), copy)
    return notebook


def lost():
    """All answers are right, and no cell has nbgrader's marks."""
    notebook = solved()
    for cell in notebook.cells:
        cell.metadata.clear()
    return notebook


def moved():
    """A check stands above its answer, and the set-up at the end."""
    notebook = solved()
    cells = named(notebook)
    for name, place in ((f"check-{PAD}", 1), ("set-up", len(notebook.cells) - 1)):
        notebook.cells.remove(cells[name])
        notebook.cells.insert(place, cells[name])
    return notebook


def as_text():
    """An answer was made a text cell, and copied below as it was given out."""
    notebook = solved()
    cells = named(notebook)
    stub = named(given_out())[WINDOW]
    cells[ONE].cell_type = "raw"
    for key in ("outputs", "execution_count"):
        del cells[ONE][key]
    notebook.cells.append(nbformat.from_dict(stub | {"id": "copy"}))
    return notebook


def other_chapter():
    return answered("02_multi_head")


# Kernels that end.


def leaves():
    """`exit()` was left behind below an answer, and another one crashes."""
    notebook = with_source(WINDOW, lambda x: f"{x}\n\nexit()")
    cell = named(notebook)[GRADIENT]
    cell.source = below_def(cell.source, "import os; os._exit(1)")
    return notebook


def all_crash():
    """Each answer ends the kernel, and a cell of the student's own does."""
    notebook = given_out()
    cells = named(notebook)
    for name, line in {
        ONE: "import os; os.kill(os.getpid(), 9)",
        WINDOW: "exit()",
        PAD: "import ctypes; ctypes.string_at(0)",
        GRADIENT: "quit()",
    }.items():
        cells[name].source = cells[name].source.replace(
            "raise NotImplementedError", line
        )
    notebook.cells.insert(2, new_code_cell("import os; os.abort()"))
    return notebook


def hangs():
    """Two answers and one of the homework never end; one can't be interrupted."""
    notebook = solved(PAD, GRADIENT)
    cells = named(notebook)
    forever = "while True:\n        int(1)"
    deaf = "import signal\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n    "
    for name, line in {
        ONE: forever,
        WINDOW: deaf + forever,
        HOMEWORK[0]: forever,
    }.items():
        stub = cells[name].source
        cells[name].source = stub.replace("raise NotImplementedError", line)
    return notebook


def asks():
    """`input()` stands above an answer, in its cell, and in a cell of its own."""
    notebook = with_source(ONE, lambda x: f"width = input()\n\n{x}")
    own = new_code_cell("name = input('Your name? ')")
    notebook.cells.insert(notebook.cells.index(named(notebook)[WINDOW]), own)
    return notebook


# Answers to the homework that tell what is hidden.

TELLS = """
import inspect, sys
from IPython.display import HTML, display, update_display

display(HTML("nothing"), display_id="kept")
TOLD = []

def {function}(argument):
    shell = get_ipython()
    TOLD.append(str(shell.user_ns["In"][-1]))
    frame = sys._getframe(1)
    TOLD.append(inspect.getsource(frame))
    words = "\\n".join(TOLD)
    print("\\u2713 {name}: it passes", words)
    print(words, file=sys.stderr)
    display(HTML(words))
    update_display(HTML(words), display_id="kept")
    open("told.txt", "w").write(words)
    raise {error}
"""


def tells():
    """Homework that prints its check, shows it, writes it, and stops with it."""
    notebook = given_out()
    for name, error in (
        (HOMEWORK[0], "ValueError(words[:90])"),
        (HOMEWORK[1], "type(words[40:90], (Exception,), {})(words)"),
    ):
        text = TELLS.replace("{function}", f"my_{name}").replace("{name}", name)
        named(notebook)[name].source = text.replace("{error}", error)
    notebook.cells.append(new_code_cell("print(TOLD, In)\nIn"))
    return notebook


def endless() -> HandIn:
    """One that is graded with a smaller limit."""
    names = ONE, WINDOW, HOMEWORK[0]
    notes = [f"check-{name} takes too long" for name in names]
    return HandIn({NAME: hangs()}, 2, notes)


def hand_ins() -> dict[str, HandIn]:
    """All others, by their students' names."""
    copied = solved()
    more = {"notes.txt": b"mine", ".ipynb_checkpoints/copy.ipynb": b"{}"}
    missing = [f"the cell {name} is missing" for name in EVERY]
    odd = {
        "untouched": HandIn(
            {NAME: given_out()}, 0, ["every answer is as it was given out"]
        ),
        "warns": HandIn({NAME: warns(), **more}),
        "rewritten": HandIn({NAME: rewritten()}),
        "old": HandIn({NAME: old_format()}, 4, [f"the cell check-{PAD} is missing"]),
        "damaged": HandIn(
            {NAME: damaged()},
            3,
            [
                f"the cell check-{ONE} was changed",
                f"the cell {WINDOW} is there twice",
                f"the cell check-{PAD} is missing",
                f"the cell {GRADIENT} is missing",
            ],
        ),
        "lost": HandIn({NAME: lost()}, 4, missing),
        "moved": HandIn(
            {NAME: moved()},
            4,
            [
                "the cell set-up stood below others",
                f"the cell check-{PAD} stood above {PAD}",
            ],
        ),
        "text": HandIn(
            {NAME: as_text()},
            4,
            [
                f"the cell {ONE} was made a raw cell",
                f"the cell {WINDOW} is there twice",
            ],
        ),
        "leaves": HandIn(
            {NAME: leaves()},
            2,
            [f"the kernel ended in {WINDOW}", f"the kernel ended in check-{GRADIENT}"],
        ),
        "crashes": HandIn(
            {NAME: all_crash()},
            0,
            [
                "the kernel ended in a cell of their own below set-up",
                *(
                    f"the kernel ended in check-{name}"
                    for name in (ONE, WINDOW, PAD, GRADIENT)
                ),
            ],
        ),
        "asks": HandIn(
            {NAME: asks()},
            3,
            [
                f"{ONE} stops with StdinNotImplementedError",
                f"a cell of their own below check-{ONE} stops with"
                " StdinNotImplementedError",
            ],
        ),
        "tells": HandIn({NAME: tells()}, 0),
        "copy": HandIn(
            {"01_attention (1).ipynb": copied},
            4,
            [f"01_attention (1).ipynb was taken for {NAME}"],
        ),
        "beside": HandIn(
            {NAME: given_out(), "01_attention-Copy1.ipynb": copied},
            4,
            [f"01_attention-Copy1.ipynb was taken for {NAME}"],
        ),
        "nested": HandIn(
            {f"{CHAPTER}/{NAME}": copied, f"__MACOSX/._{NAME}": b"\0"},
            4,
            [f"{CHAPTER}/{NAME} was taken for {NAME}"],
        ),
        "suffix": HandIn(
            {f"{NAME}.txt": copied}, 4, [f"{NAME}.txt was taken for {NAME}"]
        ),
        "both": HandIn(
            {NAME: solved(ONE), "new.ipynb": copied},
            1,
            ["beside it, and not graded: new.ipynb"],
        ),
        "several": HandIn(
            {"old.ipynb": solved(ONE), "new.ipynb": copied},
            None,
            [f"several files, and none is {NAME}: new.ipynb, old.ipynb"],
        ),
        "page": HandIn(
            {NAME: b"<html>", "answers.zip": b"PK"},
            None,
            [f"no notebook that can be read: {NAME}, answers.zip"],
        ),
        "chapter": HandIn(
            {NAME: other_chapter()}, None, [f"{NAME}: of another assignment"]
        ),
        "empty": HandIn({".keep": b""}, None, ["the folder is empty"]),
    }
    return odd | {"solved": HandIn({NAME: solved()})}
