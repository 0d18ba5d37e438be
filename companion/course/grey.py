"""Tells series of a plot apart where colours are printed grey.

A series is what an axis has in one colour. Its mark is what can be seen of it in grey:
how light it is, and its dash and marker, or its hatch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

DASHES = ["-", "--", ":", "-."]
MARKERS = ["o", "s", "^", "D", "v"]
HATCHES = ["", "//", "..", "xx", "\\\\", "oo"]
# Two greys whose lightness differs by less look alike on paper (CIE L*, of 0 to 100).
LEAST_DIFFERENCE = 25


def lightness(color: object, alpha: float | None = None) -> float:
    """Returns the CIE lightness L* of a colour on white, 0 for black, 100 for white."""
    *parts, alpha = to_rgba(color, alpha)
    on_white = [part * alpha + 1 - alpha for part in parts]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in on_white
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    if luminance <= 216 / 24389:
        return luminance * 24389 / 27
    return 116 * luminance ** (1 / 3) - 16


@dataclass
class Lines:
    """The lines of one colour, and the label of the first that has one."""

    artists: list[Line2D]
    label: str

    def mark(self) -> dict:
        """Returns what can be seen of them in grey."""
        first = self.artists[0]
        return {
            "lightness": round(lightness(first.get_color(), first.get_alpha())),
            "dash": first.get_linestyle(),
            "marker": str(first.get_marker()),
        }

    def styles(self) -> Iterator[dict]:
        """Gives the dashes and markers that they could have."""
        first = self.artists[0]
        has_line = first.get_linestyle() != "None"
        has_markers = first.get_marker() != "None"
        for number in range(len(DASHES) * len(MARKERS)):
            dash = DASHES[number % len(DASHES)]
            marker = MARKERS[number % len(MARKERS)]
            if not has_line:
                yield {"marker": marker}
            elif not has_markers and number < len(DASHES):
                yield {"dash": dash}
            else:
                yield {"dash": dash, "marker": marker}


@dataclass
class Areas:
    """The bars or areas of one colour, and the label of the first that has one."""

    artists: list[Artist]
    label: str

    def mark(self) -> dict:
        """Returns what can be seen of them in grey."""
        first = self.artists[0]
        return {
            "lightness": round(lightness(face_color(first))),
            "hatch": first.get_hatch() or "",
        }

    def styles(self) -> Iterator[dict]:
        """Gives the hatches that they could have, ever denser, without end."""
        density = 1
        while True:
            for hatch in HATCHES:
                yield {"hatch": hatch * density}
            density += 1


def face_color(area: Artist) -> object:
    """Returns the colour of a bar, or of a collection's first area."""
    color = area.get_facecolor()
    if isinstance(area, PolyCollection):
        return color[0]
    return color


def look_alike(one: dict, other: dict) -> bool:
    """Whether two marks can't be told apart in grey."""
    if abs(one["lightness"] - other["lightness"]) >= LEAST_DIFFERENCE:
        return False
    return all(one.get(x) == other.get(x) for x in ("dash", "marker", "hatch"))


def lines_of(axis: Axes) -> list[Lines]:
    """Returns the lines of an axis by their colours.

    An unlabelled line of two points is left out: it is an arrow, a frame or a mark.
    """
    by_color: dict[tuple, Lines] = {}
    for line in axis.lines:
        label = line.get_label()
        if len(line.get_xdata()) <= 2 and label.startswith("_"):
            continue
        same_color = by_color.setdefault(to_rgb(line.get_color()), Lines([], label))
        same_color.artists.append(line)
        if same_color.label.startswith("_"):
            same_color.label = label
    return [*by_color.values()]


def areas_of(axis: Axes) -> list[Areas]:
    """Returns the labelled bars and areas of an axis by their colours.

    Those without a label have their names in them, or beside them.
    """
    labelled = []
    for bars in axis.containers:
        if isinstance(bars, BarContainer) and len(bars):
            labelled.append((str(bars.get_label()), [*bars]))
    for area in axis.collections:
        if isinstance(area, PolyCollection) and len(area.get_facecolor()):
            labelled.append((str(area.get_label()), [area]))

    by_color: dict[tuple, Areas] = {}
    for label, artists in labelled:
        if label.startswith("_"):
            continue
        color = to_rgb(face_color(artists[0]))
        by_color.setdefault(color, Areas([], label)).artists += artists
    return [*by_color.values()]


def tell_apart(figure: Figure) -> list[list[dict]]:
    """Gives dashes, markers or hatches to series that only their colours tell apart.

    Where an axis has three or more. Returns the marks of all such series, a list for
    the lines or the areas of an axis.
    """
    marks = []
    for axis in figure.axes:
        legends = [legend for legend in (axis.get_legend(), *figure.legends) if legend]
        for group in (lines_of(axis), areas_of(axis)):
            if len(group) < 3:
                continue
            for i, series in enumerate(group):
                mark = series.mark()
                if any(look_alike(mark, earlier.mark()) for earlier in group[:i]):
                    restyle(series, [*group[:i], *group[i + 1 :]], legends)
            marks.append([series.mark() for series in group])
    return marks


def restyle(
    series: Lines | Areas, others: list[Lines | Areas], legends: list[Legend]
) -> None:
    """Gives a series the first style by which all others differ from it."""
    for style in series.styles():
        mark = series.mark() | style
        if not any(look_alike(mark, other.mark()) for other in others):
            break
    put_on(style, series.artists)
    for legend in legends:
        pairs = zip(legend.get_texts(), legend.legend_handles, strict=True)
        put_on(style, [sign for text, sign in pairs if text.get_text() == series.label])


def put_on(style: dict, artists: Iterable[Artist]) -> None:
    """Gives a style to artists, a series' own or its signs in a legend."""
    for artist in artists:
        if "dash" in style:
            artist.set_linestyle(style["dash"])
        if "marker" in style:
            artist.set_marker(style["marker"])
        if "hatch" in style:
            artist.set(hatch=style["hatch"], edgecolor="white")
