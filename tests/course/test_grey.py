"""Series are told apart in grey print: in plots as they are drawn, and as stored."""

import io
from base64 import b64decode
from collections import Counter
from itertools import combinations

import matplotlib.pyplot as plt
import pytest
from cells import PATHS, pictures, read
from matplotlib.colors import to_rgb
from PIL import Image

from companion.course.grey import LEAST_DIFFERENCE, lightness, look_alike, tell_apart
from companion.course.plots import COLORS, STYLE


@pytest.mark.parametrize(
    ("color", "value"),
    [("black", 0), ("white", 100), ("#777777", 50.03), ("red", 53.24)],
)
def test_lightness_is_that_of_cie(color, value):
    assert lightness(color) == pytest.approx(value, abs=0.01)


def drawn(kind: str, n: int):
    """An axis with n series of a kind, and its legend."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots()
    for i in range(n):
        heights = [i + 1, 2, 3]
        if kind == "bars":
            axis.bar([0, 1, 2], heights, color=COLORS[i], label=f"series {i}")
        else:
            style = {"lines": "-", "points": "o-", "marks": "o"}[kind]
            axis.plot(heights, style, color=COLORS[i], label=f"series {i}")
    if kind == "areas":
        axis.clear()
        axis.stackplot([0, 1], [[1, 2]] * n, labels=range(n), colors=COLORS[:n])
    return figure, axis


def marks_of(figure) -> list:
    """What a second look finds, once all is told apart."""
    return [mark for group in tell_apart(figure) for mark in group]


def test_more_series_than_there_are_signs_come_to_an_end():
    figure, axis = plt.subplots()
    for i in range(30):
        grey = (0.4 + i / 300,) * 3
        axis.plot([1, 2], "o", color=grey, label=f"series {i}")
    assert len(marks_of(figure)) == 30
    plt.close(figure)


@pytest.mark.parametrize("kind", ["lines", "points", "marks", "bars"])
@pytest.mark.parametrize("n", range(3, 8))
def test_three_or_more_series_differ_and_so_do_their_signs_in_the_legend(kind, n):
    figure, axis = drawn(kind, n)
    axis.legend()
    marks = marks_of(figure)
    plt.close(figure)
    assert len(marks) == n
    assert not any(look_alike(*pair) for pair in combinations(marks, 2))
    for mark, sign in zip(marks, axis.get_legend().legend_handles, strict=True):
        if kind == "bars":
            assert (sign.get_hatch() or "") == mark["hatch"]
        else:
            assert sign.get_marker() == mark["marker"]
            assert sign.get_linestyle() == mark["dash"]


def test_areas_on_each_other_differ():
    figure, axis = plt.subplots()
    axis.stackplot([0, 1], [[1, 2]] * 4, labels="abcd", colors=COLORS[:4], alpha=0.8)
    marks = marks_of(figure)
    plt.close(figure)
    assert len(marks) == 4
    assert not any(look_alike(*pair) for pair in combinations(marks, 2))


def test_two_series_and_what_differs_already_stay_as_they_are():
    figure, axis = drawn("lines", 2)
    assert tell_apart(figure) == []
    for i, style in enumerate(("--", ":")):
        axis.plot([1, 2, 3], style, color=COLORS[2 + i], label=style)
    before = [line.get_linestyle() for line in axis.lines]
    axis.lines[1].set_color("black")
    assert len(marks_of(figure)) == 4
    assert [line.get_linestyle() for line in axis.lines] == before
    plt.close(figure)


def stored() -> list:
    """Every stored figure of the chapters, with its cell and what it says of itself."""
    found = []
    for path in PATHS:
        for cell in read(path).cells:
            for output in pictures(cell):
                said = output.metadata.get("image/png", {})
                found.append((path.stem, cell.source, output, said))
    return found


# Where each colour has its name or number in place, stands on an axis of names, or has
# markers of its own: how the first lines of these cells begin.
NAMED = (
    "# Draws when each part of a date is learned",
    "# Draws the loss, the share of right answers",
    "# Draws what a larger vocabulary changes",
    "# Draws the weights for three divisors",
    "# Draws how the queries of one sequence are cut",
    "# Draws the five losses as bars",
    "# Draws both stacks, the way from one to the other",
    "# Draws six heads of queries over six, three and one",
    "# Draws nine answers on four rows",
    "# Draws the five ways: who has which weights",
    "# Draws four of the seven states",
    "# Draws a sharded step",
    "# Draws who holds what",
    "# Draws one step of stage 2",
    "# Draws a block with its shortcuts, and where each of the four",
    "# Draws a feed-forward layer whose hidden features",
    "# Draws who works when",
    "# Draws which keys come by in which turn",
    "# Draws how many of the file's numbers each part",
    "# Draws what the three models write",
    "# Draws e's, surprise and the loss on Shakespeare",
    "# Draws the two heads' work on four cards.",
    "# Draws which test finds which fault",
    "# Draws the answers, three by each model",
)


def colors_in(output) -> list[str]:
    """The palette's colours of which a stored picture has more than a line of text."""
    data = io.BytesIO(b64decode(output.data["image/png"]))
    picture = Image.open(data).convert("RGB")
    counts = Counter(picture.get_flattened_data())
    least = picture.width * picture.height / 2000
    hues = [name for name in COLORS if name != "#000000"]  # black is text
    parts = {name: tuple(round(255 * x) for x in to_rgb(name)) for name in hues}
    return [name for name, part in parts.items() if counts[part] > least]


def test_every_stored_figure_with_three_series_tells_them_apart_in_grey():
    """What is not a series of `tell_apart` has names in place, and is listed."""
    assert len(stored()) > 60
    n_told = 0
    for chapter, source, output, said in stored():
        groups = said.get("series", [])
        n_told += len(groups)
        for group in groups:
            pairs = combinations(group, 2)
            assert not any(look_alike(*pair) for pair in pairs), chapter
        found = colors_in(output)
        alike = [
            pair
            for pair in combinations(map(lightness, found), 2)
            if abs(pair[0] - pair[1]) < LEAST_DIFFERENCE
        ]
        is_named = source.startswith(NAMED)
        if len(found) > 2 and alike:
            assert groups or is_named, (chapter, source.splitlines()[0], found)
    assert n_told > 10
