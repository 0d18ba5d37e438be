"""Tells series of a plot apart where colours are printed grey."""

from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

DASHES = ["-", "--", ":", "-."]
MARKERS = ["o", "s", "^", "D", "v"]
HATCHES = ["", "//", "..", "xx", "\\\\", "oo"]
# Two greys whose lightness differs by less look alike on paper (CIE L*, of 0 to 100).
LEAST_DIFFERENCE = 25


def lightness(color: object, alpha: float | None = None) -> float:
    """Returns the CIE lightness L* of a colour on white, 0 for black, 100 for white."""
    *parts, alpha = to_rgba(color, alpha)
    mixed = [part * alpha + 1 - alpha for part in parts]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in mixed
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    if luminance <= 216 / 24389:
        return luminance * 24389 / 27
    return 116 * luminance ** (1 / 3) - 16


@dataclass
class Series:
    """What is drawn in one colour: lines or areas, and the label of the first."""

    artists: list[Artist]
    label: str

    @property
    def is_line(self) -> bool:
        return isinstance(self.artists[0], Line2D)

    def mark(self) -> dict:
        """Returns what can be seen of it in grey."""
        first = self.artists[0]
        if self.is_line:
            return {
                "lightness": round(lightness(first.get_color(), first.get_alpha())),
                "dash": first.get_linestyle(),
                "marker": str(first.get_marker()),
            }
        color = first.get_facecolor()
        color = color if len(color) == 4 else color[0]
        return {"lightness": round(lightness(color)), "hatch": first.get_hatch() or ""}

    def styles(self) -> Iterable[dict]:
        """Gives the marks that it could have, without end."""
        number = 0
        while True:
            dash = DASHES[number % len(DASHES)]
            marker = MARKERS[number % len(MARKERS)]
            if not self.is_line:
                yield {"hatch": HATCHES[number % len(HATCHES)] * (1 + number // 6)}
            elif self.artists[0].get_linestyle() == "None":
                yield {"marker": marker}
            elif self.artists[0].get_marker() == "None" and number < len(DASHES):
                yield {"dash": dash}
            else:
                yield {"dash": dash, "marker": marker}
            number += 1

    def take(self, style: dict, artists: Iterable[Artist]) -> None:
        """Gives a style to artists, its own or those of a legend."""
        for artist in artists:
            if "dash" in style:
                artist.set_linestyle(style["dash"])
            if "marker" in style:
                artist.set_marker(style["marker"])
            if "hatch" in style:
                artist.set(hatch=style["hatch"], edgecolor="white")


def look_alike(one: dict, other: dict) -> bool:
    """Whether two marks can't be told apart in grey."""
    if abs(one["lightness"] - other["lightness"]) >= LEAST_DIFFERENCE:
        return False
    return all(one.get(x) == other.get(x) for x in ("dash", "marker", "hatch"))


def series(axis: Axes) -> list[list[Series]]:
    """Returns the lines and the areas of an axis that are told apart, three or more.

    An unlabelled line of two points is none: it is an arrow, a frame or a mark. Nor are
    unlabelled areas, whose names stand in or beside them.
    """
    lines = [
        ([line], line.get_color(), line.get_label())
        for line in axis.lines
        if len(line.get_xdata()) > 2 or not line.get_label().startswith("_")
    ]
    areas = [
        ([*bars], bars[0].get_facecolor(), bars.get_label())
        for bars in axis.containers
        if isinstance(bars, BarContainer) and len(bars)
    ]
    areas += [
        ([area], area.get_facecolor()[0], area.get_label())
        for area in axis.collections
        if isinstance(area, PolyCollection) and len(area.get_facecolor())
    ]
    labelled = [each for each in areas if not str(each[2]).startswith("_")]
    groups = [by_color(lines), by_color(labelled)]
    return [group for group in groups if len(group) > 2]


def by_color(found: list[tuple]) -> list[Series]:
    """Joins what is drawn in the same colour."""
    made: dict[tuple, Series] = {}
    for artists, color, label in found:
        one = made.setdefault(to_rgb(color), Series([], label))
        one.artists += artists
        if one.label.startswith("_"):
            one.label = label
    return [*made.values()]


def tell_apart(figure: Figure) -> list[list[dict]]:
    """Gives dashes, markers or hatches to series that only their colours tell apart.

    Where an axis has three or more. Returns the marks of all such series, a list for
    the lines or the areas of an axis.
    """
    marks = []
    for axis in figure.axes:
        legends = [axis.get_legend(), *figure.legends]
        for group in series(axis):
            for i, one in enumerate(group):
                if any(look_alike(one.mark(), x.mark()) for x in group[:i]):
                    restyle(one, [x for x in group if x is not one], legends)
            marks.append([one.mark() for one in group])
    return marks


def restyle(one: Series, others: list[Series], legends: list) -> None:
    """Gives a series the first style by which all others differ from it."""
    for style in one.styles():
        mark = one.mark() | style
        if not any(look_alike(mark, other.mark()) for other in others):
            break
    one.take(style, one.artists)
    for legend in filter(None, legends):
        pairs = zip(legend.get_texts(), legend.legend_handles, strict=True)
        handles = [handle for text, handle in pairs if text.get_text() == one.label]
        one.take(style, handles)
