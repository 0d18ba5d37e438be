"""The few figures that chapters share, in one style."""

import math
import time
from collections import deque
from collections.abc import Sequence

import matplotlib.pyplot as plt
from IPython.display import DisplayHandle, display
from matplotlib.axes import Axes
from torch import Tensor

from .grey import tell_apart

# Okabe and Ito's colours, told apart by colour-blind readers too, in this order.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLE = {
    "figure.figsize": (8, 4),
    "figure.facecolor": "white",  # also where a notebook's theme is dark
    "figure.constrained_layout.use": True,
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.titlelocation": "left",
    "axes.prop_cycle": plt.cycler(color=COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 2,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "image.cmap": "Blues",
}


def finish(
    title: str | None = None, x: str | None = None, y: str | None = None, *, alt: str
) -> None:
    """Sets a title, labels of the axes, and a legend of labelled lines; shows it all.

    `alt` says what is seen, for those who can't see it; it is stored with the picture.
    What is left out of the rest stays as it is: of several axes each has its own.
    Where three or more series share an axis, dashes, markers or hatches tell apart
    those that would be alike in grey print.
    """
    axis = plt.gca()
    marks = tell_apart(plt.gcf())
    if title is not None:
        axis.set_title(title)
    if x is not None:
        axis.set_xlabel(x)
    if y is not None:
        axis.set_ylabel(y)

    labelled, _ = axis.get_legend_handles_labels()
    if labelled and not axis.get_legend():
        axis.legend()

    seen: dict[str, object] = {"alt": alt}
    if marks:
        seen["series"] = marks
    display(plt.gcf(), metadata={"image/png": seen})
    plt.close()


# The machine of chapter 04 in one row: its places, what is written there, and where
# the middle of it stands.
MACHINE = {
    "tokens": ("tokens", 0.0),
    "embedding": ("embedding", 1.45),
    "positions": ("positions", 2.95),
    "attention norm": ("norm", 4.4),
    "attention": ("attention", 5.75),
    "feed-forward norm": ("norm", 7.1),
    "feed-forward": ("feed-\nforward", 8.3),
    "last norm": ("norm", 9.75),
    "output matrix": ("output\nmatrix", 10.95),
    "logits": ("logits", 12.2),
}
# The parts that a chapter may light.
LIGHTS = (
    "embedding",
    "positions",
    "attention",
    "heads",
    "feed-forward",
    "output matrix",
)


def you_are_here(part: str) -> None:
    """Shows the machine of chapter 04 in one row, with one part lit.

    `part` is one of `LIGHTS`; anything else is a ValueError.
    """
    if part not in LIGHTS:
        parts = ", ".join(LIGHTS)
        raise ValueError(f"the machine has no part {part!r}; its parts: {parts}")
    lit = "attention" if part == "heads" else part

    _, axis = plt.subplots(figsize=(13, 1.8))
    axis.plot(
        [0, MACHINE["logits"][1]], [0, 0], color="0.5", linewidth=1
    )  # behind the boxes
    for place, (label, x) in MACHINE.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": "0.95", "edgecolor": "0.6"}
        if place == lit:
            box = {**box, "facecolor": COLORS[4], "edgecolor": "black"}
            if part == "heads":
                label = "attention\nin heads"
        if place in ("tokens", "logits"):  # they go in and come out
            box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "linewidth": 0}
        axis.text(x, 0, label, ha="center", va="center", bbox=box, fontsize=13)

    # What comes in goes past a part, too, and is added to what it found.
    for start, end in ((3.75, 6.4), (6.75, 8.97)):
        past = [start, start, end, end]
        axis.plot(past, [0, 0.6, 0.6, 0], color="0.5", linewidth=1, zorder=0)
        axis.text(end, 0, "+", ha="center", va="center", fontsize=15)

    # A frame around the block, which is repeated.
    axis.add_patch(plt.Rectangle((3.6, -0.75), 5.6, 1.5, fill=False, linestyle=":"))
    axis.text(6.43, 0.82, "one block, of many in a row", ha="center", va="bottom")
    axis.set(xlim=(-0.5, 12.7), ylim=(-0.8, 1.25))
    axis.axis("off")

    finish(
        f"You are here: {part}",
        alt="The machine of chapter 04 in one row: tokens, embedding, positions, then a"
        " block of norm, attention, norm and feed-forward, one of many in a row, with"
        " lines past both halves, then norm, output matrix, logits. One part is lit:"
        f" {part}.",
    )


def visible(text: str) -> str:
    """Returns a token's text with signs for what can't be seen.

    >>> visible(" to\\n\\x00")
    '␣to↵\\\\x00'
    """
    signs = []
    for character in text.replace("\n", "↵").replace(" ", "␣"):
        if not character.isprintable():
            character = character.encode("unicode_escape").decode("ascii")
        signs.append(character)
    return "".join(signs)


def plot_attention(
    weights: Tensor, tokens: Sequence[str], title: str, axis: Axes | None = None
) -> None:
    """Draws one head's weights (t s): rows attend, columns are attended to.

    Tokens are shown letter by letter, also where matplotlib would read a formula
    between dollar signs. Raises ValueError unless there is a token for each row and for
    each column.
    """
    n_tokens = len(tokens)
    if weights.shape != (n_tokens, n_tokens):
        shape = tuple(weights.shape)
        raise ValueError(
            f"weights are {shape}, and must be {(n_tokens, n_tokens)} for {n_tokens}"
            " tokens: one head's, of one text"
        )
    if axis is None:
        axis = plt.gca()
    image = axis.imshow(weights.detach().cpu(), vmin=0, vmax=1)
    axis.figure.colorbar(image, ax=axis, label="weight", shrink=0.8)

    labels = [visible(token) for token in tokens]
    for set_ticks in (axis.set_xticks, axis.set_yticks):
        set_ticks(
            range(len(labels)),
            labels,
            fontfamily="monospace",
            fontsize=12,
            parse_math=False,
        )

    axis.set(title=title, xlabel="attended to", ylabel="attends")
    axis.grid(False)


def in_words(losses: Sequence[float]) -> str:
    """Says where a curve of losses leads, in nats, as far as one digit shows it.

    >>> in_words([4.2, 5.0, 3.1])
    'falls from 4.2 to 3.1 nats'
    """
    first = losses[0]
    last = losses[-1]
    if f"{first:.1f}" == f"{last:.1f}":
        return f"is {last:.1f} nats, as it was at first"
    verb = "falls" if last < first else "rises"
    if math.isnan(first) or math.isnan(last):  # neither is larger
        verb = "goes"
    return f"{verb} from {first:.1f} to {last:.1f} nats"


class LiveCurve:
    """A progress bar over a loss curve, redrawn in place every `every` seconds.

    Pass it as `train`'s `on_step`; `tokens_per_step` is for the speed it reports. Loss
    is in nats, smoothed over the last 20 steps. `losses` keeps all of them. A run whose
    first step isn't the next one begins a new curve, in a picture of its own.
    """

    def __init__(self, n_steps: int, tokens_per_step: int = 0, every: float = 3.0):
        self.n_steps = n_steps
        self.tokens_per_step = tokens_per_step
        self.every = every
        self.begin(first_step=0)

    def begin(self, first_step: int) -> None:
        """Forgets the run before; the next loss is that of `first_step`."""
        self.first_step = first_step
        self.losses: list[float] = []
        self.times: deque[float] = deque(maxlen=100)  # when the last steps ended
        self.last_drawn = 0.0
        self.handle: DisplayHandle | None = None  # of the picture in the notebook

    def __call__(self, step: int, loss: float) -> None:
        """Notes a step's loss, and draws where it is time or the last step."""
        if step != self.first_step + len(self.losses):
            self.begin(step)
        self.losses.append(loss)
        self.times.append(time.monotonic())
        is_last = step + 1 == self.n_steps
        if is_last or time.monotonic() - self.last_drawn > self.every:
            self.draw()
            self.last_drawn = time.monotonic()

    def draw(self) -> None:
        """Draws the bar and the curve in place of the picture before."""
        n = len(self.losses)
        n_done = self.first_step + n
        report = self.report()
        figure, (bar, axis) = plt.subplots(2, height_ratios=(1, 12))
        bar.barh(0, n_done, color=COLORS[2])
        bar.set(xlim=(0, self.n_steps), title=report)
        bar.axis("off")

        steps = range(self.first_step, n_done)
        axis.plot(steps, self.losses, alpha=0.3)
        recent = [self.losses[max(0, i - 19) : i + 1] for i in range(n)]
        smoothed = [sum(window) / len(window) for window in recent]
        axis.plot(steps, smoothed, color=COLORS[0])
        axis.set(xlim=(0, self.n_steps), xlabel="step", ylabel="loss (nats)")
        plt.close(figure)

        alt = f"The loss {in_words(smoothed)}: {report}"
        metadata = {"image/png": {"alt": alt}}
        if self.handle:
            self.handle.update(figure, metadata=metadata)
        else:
            self.handle = display(figure, display_id=True, metadata=metadata)

    def report(self) -> str:
        """Returns step, loss, speed and time left in one line.

        Speed and time are reckoned from the last 100 steps, and begin with the second.
        """
        n_done = self.first_step + len(self.losses)
        parts = [f"step {n_done} of {self.n_steps}", f"loss {self.losses[-1]:.2f}"]
        if len(self.times) > 1:
            seconds = self.times[-1] - self.times[0] + 1e-9
            seconds_per_step = seconds / (len(self.times) - 1)
            if self.tokens_per_step:
                speed = self.tokens_per_step / seconds_per_step
                parts.append(f"{speed:,.0f} tokens/s")
            n_left = max(0, self.n_steps - n_done)
            parts.append(f"{seconds_per_step * n_left:.0f} s left")
        return ", ".join(parts)
