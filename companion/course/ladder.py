"""The ladder: what each part of the machine buys, at one price, on one bar chart.

Each chapter from 00 to 05 ends on its rung. A rung is the loss on the whole validation
text, in nats a character, of a model that was trained for 300 steps of 24 windows of 64
characters. Chapter 17 compares its rungs with each other, after 150 steps each. `make
ladder` runs these chapters with three other seeds and stores theirs.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, median

import torch
from IPython.display import DisplayHandle
from matplotlib import pyplot as plt
from torch import Tensor, nn
from torch.optim import Optimizer

from ..decoding.sampling import sample
from ..inputs import check_whole
from ..model.gpt import evaluating
from ..text.shakespeare import batches, tiny_shakespeare
from ..text.tokenizers import BPETokenizer, CharTokenizer
from ..training.loop import next_token_loss, train
from ..training.optimizers import AdamW, scale_rates, warmup_linear
from .plots import COLORS, finish
from .recipes import shakespeare_tokens

N_STEPS = 300
BATCH_SIZE = 24
CONTEXT_LENGTH = 64
LEARNING_RATE = 0.003  # of AdamW
STORED = Path(__file__).with_name("ladder.json")

Tokenizer = CharTokenizer | BPETokenizer


@cache
def parts_of(tokenizer: Tokenizer | None) -> tuple[Tensor, Tensor]:
    """Returns the training and the validation text as tokens (t); None: characters."""
    if tokenizer is None:
        return shakespeare_tokens()
    text = tiny_shakespeare()
    n_training = len(shakespeare_tokens()[0])
    texts = text[:n_training], text[n_training:]
    training, validation = (torch.tensor(tokenizer.encode(text)) for text in texts)
    return training, validation


def rung(
    model: nn.Module,
    generator: torch.Generator,
    optimizer: Optimizer | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    n_steps: int = N_STEPS,
) -> float:
    """Trains a model on the ladder's budget. Returns its validation loss.

    `model` maps tokens (b t) to logits (b t v). The loss is in nats a character, over
    the whole validation text. `optimizer` is by default AdamW at 0.003; its rates rise
    for 10 steps, or for all of fewer, and fall evenly to 0. `generator` draws the
    batches. With a `tokenizer` of byte pairs the windows hold 64 of its tokens. One
    line tells how far it is.
    """
    check_whole(n_steps=n_steps)
    training, _ = parts_of(tokenizer)
    optimizer = optimizer or AdamW(model.parameters(), lr=LEARNING_RATE)
    rates = [group["lr"] for group in optimizer.param_groups]

    def set_rates(step: int) -> None:
        factor = warmup_linear(step, warmup=min(10, n_steps), total=n_steps)
        scale_rates(optimizer, rates, factor)

    # Its first words are its last: strict nbval sees the first, and stores the last.
    words = f"{n_steps} steps of {BATCH_SIZE} windows of {CONTEXT_LENGTH} tokens"
    line = DisplayHandle()
    line.display(Line(words))

    def after(step: int, loss: float) -> None:
        n_done = step + 1
        if n_done < n_steps:
            set_rates(n_done)
        if n_done % 20 == 0:
            line.update(Line(f"{words}: {n_done} done, loss {loss:.2f}"))

    set_rates(0)
    drawn = batches(
        training,
        batch_size=BATCH_SIZE,
        context_length=CONTEXT_LENGTH,
        n_steps=n_steps,
        generator=generator,
    )
    train(model, optimizer, drawn, on_step=after)
    line.update(Line(words))
    model.eval()
    return validation_loss(model, tokenizer)


class Line(str):
    """A line of text that a notebook shows without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


@torch.no_grad()
def validation_loss(model: nn.Module, tokenizer: Tokenizer | None = None) -> float:
    """Returns a model's loss on the whole validation text, in nats a character.

    The text is cut into windows of 64 tokens, and every token but the first is
    predicted once. `model` maps tokens (b t) to logits (b t v).
    """
    _, tokens = parts_of(tokenizer)
    n_whole = (len(tokens) - 1) // CONTEXT_LENGTH * CONTEXT_LENGTH
    windows = [*tokens[:n_whole].view(-1, CONTEXT_LENGTH).split(128)]
    targets = [*tokens[1 : n_whole + 1].view(-1, CONTEXT_LENGTH).split(128)]
    if n_whole < len(tokens) - 1:  # what is left is a shorter window
        windows.append(tokens[n_whole:-1][None])
        targets.append(tokens[n_whole + 1 :][None])

    total = 0.0
    with evaluating(model):
        for x, y in zip(windows, targets, strict=True):
            total += next_token_loss(model(x), y).item() * y.numel()

    # The first token is given.
    n_characters = len(shakespeare_tokens()[1])
    n_given = 1 if tokenizer is None else len(tokenizer.decode(tokens[:1].tolist()))
    return total / (n_characters - n_given)


@torch.no_grad()
def write(
    model: Callable[[Tensor], Tensor],
    generator: torch.Generator,
    *,
    tokenizer: Tokenizer | None = None,
    n_characters: int = 60,
) -> str:
    """Returns what a model writes after `ROMEO:`, drawn by its own probabilities.

    `model` maps tokens (b t) to logits (b t v); it sees the last 64.
    """
    tokenizer = tokenizer or CharTokenizer(tiny_shakespeare())
    text = "ROMEO:"
    tokens = tokenizer.encode(text)
    n_in_all = len(text) + n_characters
    while len(text) < n_in_all:
        logits = model(torch.tensor([tokens[-CONTEXT_LENGTH:]]))
        tokens.append(sample(logits[0, -1], generator).item())
        text = tokenizer.decode(tokens)
    return text[:n_in_all]


def stored() -> dict[str, dict]:
    """Returns the rungs that `make ladder` measured, in order, by their names.

    Each has its `chapter`, as in "03", and its `nats`, a list of one number a seed.
    """
    return json.loads(STORED.read_text("utf-8"))


def measured(name: str) -> float:
    """Returns the mean of a stored rung's seeds, in nats a character."""
    return mean(stored()[name]["nats"])


def band(name: str) -> tuple[float, float]:
    """Returns between which losses a rung is as it was for other seeds.

    A fourth seed falls outside of three others half the time, so their range is widened
    on both sides by twice itself: of numbers that scatter normally 1 in 1,000 is
    farther out. Three seeds may lie close by chance, so what is taken for a range is at
    least the median of all rungs that depend on a seed.
    """
    ranges = {k: max(v["nats"]) - min(v["nats"]) for k, v in stored().items()}
    typical = median([width for width in ranges.values() if width > 0])
    width = 2 * max(ranges[name], typical)
    nats = stored()[name]["nats"]
    return min(nats) - width, max(nats) + width


def within(rungs: dict[str, float]) -> bool:
    """Says whether all of these rungs that have been stored lie within their bands."""
    for name in rungs.keys() & stored().keys():
        low, high = band(name)
        if not low <= round(rungs[name], 4) <= high:  # as they are stored
            return False
    return True


def draw(rungs: dict[str, float], title: str, says: str) -> None:
    """Draws these rungs, and the stored ones that come before the last of them.

    The title states the finding. A black line in a bar spans the three seeds that are
    stored. `says` is what a model of the last rung writes.
    """
    known = stored()
    names = [*known]
    ends = [i + 1 for i, name in enumerate(names) if name in rungs]
    shown = names[: max(ends, default=len(names))]
    losses = {name: measured(name) for name in shown} | rungs
    labels = [
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
    axis.set_yticks(range(len(losses)), labels)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.1 * max(losses.values()))
    axis.grid(axis="y", visible=False)

    marks = f"a bar for each of {len(losses)} rungs"
    finish_ladder(title, "validation loss (nats a character)", marks, rungs, says)


def compare(rungs: dict[str, float], title: str, says: str) -> None:
    """Draws what each rung gains over the first of them, a row of points for each.

    The title states the finding. A run is compared with the first rung's of the same
    seed: large points are these runs, small ones the three that are stored. The grey
    band is as wide as the first rung's own losses lie apart: what stays within it may
    be luck. `says` is what a model of the last rung writes.
    """
    known = stored()
    first, *others = rungs
    own = [rungs[first], *known.get(first, {}).get("nats", [])]
    width = max(own) - min(own)

    _, axis = plt.subplots(figsize=(11, 1.8 + 0.5 * len(others)))
    axis.axvspan(-width, width, color="0.9", zorder=0)
    axis.axvline(0, color="black", lw=1)
    for i, name in enumerate(others):
        pairs = zip(own[1:], known.get(name, {}).get("nats", []), strict=False)
        gains = [before - after for before, after in pairs]
        axis.plot(gains, [i] * len(gains), "o", color="0.45", ms=6)
        axis.plot(rungs[first] - rungs[name], i, "o", color=COLORS[0], ms=11)
    axis.set_yticks(range(len(others)), others)
    axis.set_ylim(len(others) - 0.5, -0.5)

    label = f"nats a character gained over “{first}” of the same seed (right is better)"
    finish_ladder(title, label, f"points for {len(others)} rungs", rungs, says)


def finish_ladder(
    title: str, label: str, marks: str, rungs: dict[str, float], says: str
) -> None:
    """Writes beside a drawing what all of it is, as text too: `marks` is what one sees.

    `says`, what a model writes, stands below.
    """
    line = says.replace("\n", "↵ ")
    plt.gcf().supxlabel(line, family="monospace", fontsize=12, parse_math=False)
    numbers = ", ".join(f"{name} {loss:.3f}" for name, loss in rungs.items())
    finish(
        title,
        label,
        alt=f"The ladder: {marks}. The rungs of this chapter: {numbers}. It writes:"
        f" {line}",
    )
