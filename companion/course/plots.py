"""The few figures that chapters share, in one style."""

import time

import matplotlib.pyplot as plt
from IPython.display import display
from torch import Tensor

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


def finish(title=None, x=None, y=None, *, alt: str) -> None:
    """Title, axis labels, a legend where lines are labelled; then show the figure.

    `alt` says what is seen, for those who can't see it; it is stored with the picture.
    What is left out of the rest stays as it is: of several axes each has its own.
    """
    axis, words = plt.gca(), {"title": title, "xlabel": x, "ylabel": y}
    axis.set(**{name: word for name, word in words.items() if word is not None})
    if axis.get_legend_handles_labels()[0] and not axis.get_legend():
        axis.legend()
    display(plt.gcf(), metadata={"image/png": {"alt": alt}})
    plt.close()


def visible(text: str) -> str:
    """Returns a token's text with signs for what can't be seen.

    >>> visible(" to\\n\\x00")
    '␣to↵\\\\x00'
    """
    text = text.replace("\n", "↵").replace(" ", "␣")
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def plot_attention(weights: Tensor, tokens, title: str, axis=None, scale=True) -> None:
    """One head's weights (t s) as a picture: rows attend, columns are attended to.

    `scale` draws the bar that says which colour is which weight. Tokens are shown
    letter by letter, also where matplotlib would read a formula between dollar signs.
    """
    axis = axis or plt.gca()
    image = axis.imshow(weights.detach().cpu(), vmin=0, vmax=1)
    if scale:
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


class LiveCurve:
    """A progress bar over a loss curve, redrawn in place every `every` seconds.

    Pass it as `train`'s `on_step`; `tokens_per_step` is for the speed it reports. Loss
    is in nats, smoothed over the last 20 steps. `losses` keeps all of them.
    """

    def __init__(self, n_steps: int, tokens_per_step: int = 0, every: float = 3.0):
        self.n_steps, self.tokens_per_step = n_steps, tokens_per_step
        self.every, self.begin, self.drawn = every, time.monotonic(), 0.0
        self.losses, self.handle = [], None

    def __call__(self, step: int, loss: float) -> None:
        self.losses.append(loss)
        if step + 1 == self.n_steps or time.monotonic() - self.drawn > self.every:
            self.draw()
            self.drawn = time.monotonic()

    def draw(self) -> None:
        n, report = len(self.losses), self.report()
        figure, (bar, axis) = plt.subplots(2, height_ratios=(1, 12))
        bar.barh(0, n, color=COLORS[2])
        bar.set(xlim=(0, self.n_steps), title=report)
        bar.axis("off")
        axis.plot(self.losses, alpha=0.3)
        recent = [self.losses[max(0, i - 19) : i + 1] for i in range(n)]
        axis.plot([sum(window) / len(window) for window in recent], color=COLORS[0])
        axis.set(xlim=(0, self.n_steps), xlabel="step", ylabel="loss (nats)")
        plt.close(figure)
        alt = f"The loss falls from {self.losses[0]:.1f} nats: {report}"
        how = {"metadata": {"image/png": {"alt": alt}}}
        if self.handle:
            self.handle.update(figure, **how)
        else:
            self.handle = display(figure, display_id=True, **how)

    def report(self) -> str:
        """Step, loss, speed and time left in one line."""
        n, seconds = len(self.losses), time.monotonic() - self.begin + 1e-9
        left = seconds / n * (self.n_steps - n)
        done = f"step {n} of {self.n_steps}, loss {self.losses[-1]:.2f}"
        speed = f", {n * self.tokens_per_step / seconds:,.0f} tokens/s"
        return f"{done}{speed if self.tokens_per_step else ''}, {left:.0f} s left"
