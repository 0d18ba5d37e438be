"""The ladder's figures: rungs beside those before them, or what each gains."""

import math
from collections.abc import Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ..plots import COLORS, finish
from .stored_rungs import gains, measured, stored


def draw(
    rungs: dict[str, float], title: str, says: str, *, last: str | None = None
) -> None:
    """Draws these rungs, and the stored ones that come before the last of them.

    `last` is a stored rung to end with, where that comes later. The title states the
    finding. A black line in a bar spans the three seeds that are
    stored. `says` is what a model of the last rung writes. Raises ValueError for a rung
    that is no finite number.
    """
    check_finite(rungs)
    known = stored()
    names = [*known]
    ends = [i + 1 for i, name in enumerate(names) if name in {*rungs, last}]
    shown = names[: max(ends, default=len(names))]
    losses = {name: measured(name) for name in shown} | rungs
    rows = [
        f"{known[name]['chapter']} · {name}" if name in known else name
        for name in losses
    ]

    _, axis = plt.subplots(figsize=(11, 1.4 + 0.4 * len(losses)))
    colors = [COLORS[0] if name in rungs else "0.78" for name in losses]
    bars = axis.barh(range(len(losses)), losses.values(), 0.72, color=colors)
    axis.bar_label(bars, fmt="%.2f", padding=8)
    for i, name in enumerate(losses):
        if name in known:
            nats = known[name]["nats"]
            axis.plot([min(nats), max(nats)], [i, i], color="black", lw=4)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.1 * max(losses.values()))
    axis.grid(axis="y", visible=False)

    label = "validation loss (nats a character)"
    seen = f"a bar for each of {len(rows)} rungs"
    finish_ladder(rows, title, label, seen, rungs, says)


def gained(rungs: dict[str, float], names: Sequence[str], *, luck: str) -> None:
    """Draws what some rungs gained over the first, and writes it beside their points.

    Points and band are those of `compare`. Raises ValueError for a rung that is no
    finite number.
    """
    check_finite(rungs)
    _, axis = plt.subplots(figsize=(11, 1.3 + 0.45 * len(names)))
    width = draw_gains(axis, rungs, names, luck)
    told = []
    for i, name in enumerate(names):
        numbers = ", ".join(f"{gain:+.3f}" for gain in gains(rungs, name))
        axis.text(1.02, i, numbers, transform=axis.get_yaxis_transform(), va="center")
        told.append(f"{name} {numbers}")
    axis.set_yticks(range(len(names)), names)
    points = [gain for name in names for gain in gains(rungs, name)]
    reach = max(width, *map(abs, points))
    axis.set_xlim(-1.15 * reach, 1.15 * reach)
    beyond = sum(abs(gain) > width for gain in points)
    finish(
        f"{beyond} of {len(points)} points lie beyond a change of nothing",
        "nats a character gained (right is better)",
        alt=f"Points for what each seed gained, your own first: {'; '.join(told)}. The"
        f" band reaches to {width:.3f} on both sides.",
    )


def compare(rungs: dict[str, float], title: str, says: str, *, luck: str) -> None:
    """Draws what each rung gains over the first of them, a row of points for each.

    The title states the finding. A run is compared with the first rung's of the same
    seed: large points are these runs, small ones the three that are stored. `luck`
    names a rung in which nothing has changed but the start: the grey band reaches to
    each side as far as its farthest point. `says` is what a model of the last rung
    writes. Raises ValueError for a rung that is no finite number, and where there is
    none to compare with the first.
    """
    check_finite(rungs)
    if len(rungs) < 2:
        raise ValueError(f"{len(rungs)} rungs can't be compared: give at least 2")
    first, *others = rungs
    _, axis = plt.subplots(figsize=(11, 1.8 + 0.5 * len(others)))
    draw_gains(axis, rungs, others, luck)

    label = f"nats a character gained over “{first}” of the same seed (right is better)"
    ordered = sorted(others, key=lambda name: sum(gains(rungs, name)))
    seen = f"points for {len(others)} rungs, from {ordered[0]} to {ordered[-1]}"
    finish_ladder(others, title, label, seen, rungs, says)


def draw_gains(
    axis: Axes, rungs: dict[str, float], names: Sequence[str], luck: str
) -> float:
    """Draws a row of points for each name, over the band. Returns the band's width."""
    width = max(abs(gain) for gain in gains(rungs, luck))
    axis.axvspan(-width, width, color="0.9", zorder=0)
    axis.axvline(0, color="black", lw=1)
    for i, name in enumerate(names):
        now, *before = gains(rungs, name)
        axis.plot(before, [i] * len(before), "o", color="0.45", ms=6, zorder=3)
        axis.plot(now, i, "o", color=COLORS[0], ms=11)
    axis.set_ylim(len(names) - 0.5, -0.5)
    return width


def check_finite(rungs: dict[str, float]) -> None:
    """Raises ValueError for a rung that can't be drawn, as after a failed training."""
    for name, loss in rungs.items():
        if not math.isfinite(loss):
            raise ValueError(
                f"the rung {name!r} has a loss of {loss}, which can't be drawn: look at"
                " its training"
            )


def finish_ladder(
    rows: list[str],
    title: str,
    label: str,
    seen: str,
    rungs: dict[str, float],
    says: str,
) -> None:
    """Names a drawing's rows, and writes beside it what all of it is, as text too.

    `seen` is what one sees, as in "a bar for each of 3 rungs"; `says`, what a model
    writes, stands below.
    """
    plt.gca().set_yticks(range(len(rows)), rows)
    line = says.replace("\n", "↵ ")
    plt.gcf().supxlabel(line, family="monospace", fontsize=12, parse_math=False)
    numbers = ", ".join(f"{name} {loss:.3f}" for name, loss in rungs.items())
    finish(
        title,
        label,
        alt=f"The ladder: {seen}. The rungs of this chapter: {numbers}. It"
        f" writes: {line}",
    )
