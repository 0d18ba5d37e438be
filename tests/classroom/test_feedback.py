"""Of a hidden test students read a verdict, and nothing that tells of it."""

import pytest
from grading.feedback import DEPTH, hide, verdict
from nbformat import writes
from nbformat.v4 import new_code_cell, new_output
from released import GIVEN, HIDDEN_CHECK, solved

CHECK = GIVEN[-1]


def graded(words: str | None = None, printed: str = ""):
    """The hidden check's cell, after it has run, and stopped with these words."""
    cell = new_code_cell(CHECK.source, metadata={"nbgrader": dict(CHECK.marks)})
    cell.outputs = [new_output("stream", text=printed)] if printed else []
    if words is not None:
        error = {"ename": "Mistake", "evalue": words, "traceback": [HIDDEN_CHECK]}
        cell.outputs.append(new_output("error", **error))
    return cell


@pytest.mark.parametrize(
    "words, line",
    [
        (None, "✓ second: it passes"),
        ("second: it gives 3, not 2", "✗ second: it gives 3, not 2"),
        ("second: it gives tensor(3), not 2", "✗ second: it gives …, not 2"),
        ("second: yours to write", "✗ second: yours to write"),
        ("the kernel ended here", "✗ second: the kernel ended here"),
        ("it takes too long", "✗ second: it takes too long"),
        (
            "second: it stops with ValueError: assert answer() == 2",
            "✗ second: it stops with ValueError",
        ),
        ("assert answer() == 2", "✗ second: it is wrong"),
        ("second: it gives answer() == 2, not 2", "✗ second: it gives …, not 2"),
        (f"second: it gives {HIDDEN_CHECK}, not 2", "✗ second: it is wrong"),
        ("it stops with " * 9_999, f"✗ second: {'it stops with ' * DEPTH}…"),
    ],
)
def test_a_verdict_has_the_test_s_own_words_alone(words, line):
    assert verdict(graded(words, printed=f"✓ second: it passes {HIDDEN_CHECK}")) == line


def test_nothing_of_a_hidden_test_is_left_on_the_page():
    notebook = solved()
    notebook.cells[-1] = graded("it is assert answer() == 2", printed=HIDDEN_CHECK)
    below = new_code_cell("print(In)", outputs=[])
    below.outputs = [new_output("stream", text=HIDDEN_CHECK)]
    notebook.cells.append(below)
    notebook.cells[1].outputs = [new_output("stream", text="mine")]
    notebook.metadata["widgets"] = {"state": HIDDEN_CHECK}
    hide(notebook)
    text = writes(notebook)
    assert "def check_" not in text and "answer() ==" not in text
    assert "mine" in text and "✗ second: it is wrong" in text
