"""A cell that ends its kernel, or doesn't end, fails; all others count."""

from grading.running import ENDED, TOO_LONG, Survivor
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

NEVER = "while True: int(1)"
NOT_EVEN_INTERRUPTED = f"import signal\nsignal.signal(2, signal.SIG_IGN)\n{NEVER}"


class Hooks:
    """nbclient's hook as a method, which it is in nbgrader's Execute."""

    def on_cell_executed(self, **kwargs) -> None:
        pass


class Client(Survivor, Hooks, NotebookClient):
    """With nbgrader's settings, but for the seconds."""

    def say(self, words: str) -> None:
        self.said.append(words)


def run(cells: dict[str, str], timeout: int) -> tuple[dict, list[str]]:
    """Runs cells by their names. Returns what each gave, and what is said."""
    made = []
    for name, source in cells.items():
        marks = {"grade_id": name, "grade": name.startswith("check")}
        metadata = {} if name.startswith("own") else {"nbgrader": marks}
        made.append(new_code_cell(source, metadata=metadata))
    client = Client(
        new_notebook(cells=made),
        timeout=timeout,
        iopub_timeout=1,
        interrupt_on_timeout=True,
        raise_on_iopub_timeout=True,
        error_on_timeout={"ename": "CellTimeoutError", "evalue": "", "traceback": []},
        allow_errors=True,
        shutdown_kernel="immediate",
    )
    client.said = []
    client.begin()
    with client.setup_kernel():
        for index, cell in enumerate(client.nb.cells):
            client.run_cell(cell, index)
    gave = [[x.get("evalue", x.get("text")) for x in cell.outputs] for cell in made]
    return dict(zip(cells, gave, strict=True)), client.said


def test_a_kernel_that_ends_takes_only_its_own_cell_with_it():
    gave, said = run(
        {
            "set-up": "x = 1",
            "own": "import os\nos._exit(1)",
            "first": "x += 1\nprint(x)",
            "check-first": "x = 10\nexit()",
            "second": "print(x)\nname",
            "check-second": "print(x + 1)",
        },
        timeout=60,
    )
    assert gave == {
        "set-up": [],
        "own": [ENDED],
        "first": ["2\n"],
        "check-first": [ENDED],
        "second": ["2\n", "name 'name' is not defined"],  # a check isn't run again
        "check-second": ["3\n"],
    }
    assert said == [
        "the kernel ended in a cell of their own below set-up",
        "the kernel ended in check-first",
        "second stops with NameError: name 'name' is not defined",
    ]


def test_a_cell_that_does_not_end_in_time_fails_and_no_other_does():
    """Whether it can be interrupted, goes on when it is, or takes no notice."""
    gave, said = run(
        {
            "set-up": "x = 1",
            "own": NOT_EVEN_INTERRUPTED,
            "first": f"x += 1\ntry:\n    {NEVER}\nexcept KeyboardInterrupt: x += 1",
            "check-first": NEVER,
            "second": "print(x)",
        },
        timeout=1,
    )
    assert gave == {
        "set-up": [],
        "own": [TOO_LONG],
        "first": [TOO_LONG],
        "check-first": ["", TOO_LONG],
        "second": ["3\n"],
    }
    assert said == [
        "a cell of their own below set-up takes too long",
        "first takes too long",
        "check-first takes too long",
    ]
