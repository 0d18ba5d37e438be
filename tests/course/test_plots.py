"""The shared figures: what they show is what they were given."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_rgba

from companion.course import plots


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    """Figures are made and looked into, never shown nor closed."""
    plt.switch_backend("agg")
    plt.close("all")
    monkeypatch.setattr(plots, "display", lambda figure, **how: None)
    monkeypatch.setattr(plots.plt, "close", lambda *figure: None)


def test_a_finished_figure_has_its_words_and_a_legend_only_for_labelled_lines():
    plt.plot([1, 2])
    plots.finish("It rises", "step", "loss", alt="A line that rises.")
    axis = plt.gca()
    assert axis.get_title() == "It rises"
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("step", "loss")
    assert axis.get_legend() is None
    plt.plot([2, 1], label="other")
    plots.finish("It rises", "step", "loss", alt="A line that rises.")
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["other"]


def test_the_alternative_text_is_stored_with_the_picture(monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "display", lambda *what, **how: shown.append(how))
    plt.plot([1, 2])
    plots.finish(alt="A line that rises.")
    assert shown == [{"metadata": {"image/png": {"alt": "A line that rises."}}}]


def test_of_several_axes_each_keeps_its_own_words():
    plt.rcParams.update(plots.STYLE)
    _, axes = plt.subplots(1, 2)
    for axis, word in zip(axes, ("left", "right"), strict=True):
        axis.set_title(word)
    plots.finish(alt="Two empty pictures side by side.")
    assert [axis.get_title("left") for axis in axes] == ["left", "right"]


@pytest.mark.parametrize("part", plots.LIGHTS)
def test_the_machine_is_shown_whole_with_one_part_lit(part, monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "display", lambda *what, **how: shown.append(how))
    plots.you_are_here(part)

    axis = plt.gca()
    boxes = {t: t.get_bbox_patch() for t in axis.texts if t.get_bbox_patch()}
    labels = [text.get_text().replace("-\n", "-") for text in boxes]
    assert len(labels) == 10 and labels[0] == "tokens" and labels[-1] == "logits"
    light = to_rgba(plots.COLORS[4])
    (lit,) = (t for t, box in boxes.items() if box.get_facecolor() == light)
    words = lit.get_text().replace("-\n", "-").replace("\n", " ")
    assert part in words

    alt = shown[0]["metadata"]["image/png"]["alt"]
    assert 40 <= len(alt) <= 500 and alt.endswith(f"lit: {part}.")


def test_a_part_that_the_machine_lacks_is_refused():
    with pytest.raises(ValueError, match="no part 'cache'.*attention, heads"):
        plots.you_are_here("cache")


def test_attention_is_drawn_with_queries_as_rows_on_one_scale():
    plt.rcParams.update(plots.STYLE)
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]], requires_grad=True)
    plots.plot_attention(weights, ["a", "\n"], "one head")
    (image,) = plt.gca().images
    assert image.get_array().tolist() == weights.tolist()
    assert image.get_clim() == (0, 1)
    assert [a.get_ylabel() for a in plt.gcf().axes] == ["attends", "weight"]
    axis = plt.gcf().axes[0]
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["a", "↵"]
    assert not any(line.get_visible() for line in axis.get_xgridlines())


@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (1, 2, 2)])
def test_weights_of_other_tokens_are_refused(shape):
    with pytest.raises(ValueError, match="and must be \\(2, 2\\) for 2 tokens"):
        plots.plot_attention(torch.zeros(shape), ["a", "b"], "one head")


SIGNS = ["$$", "$x", "$\\frac$", "\\", "_^{", "a b\n", "\t", "\x00", "\ud800", "é"]


def test_a_token_is_never_read_as_a_formula():
    plots.plot_attention(torch.eye(10), SIGNS, "signs")
    axis = plt.gcf().axes[0]
    plt.gcf().canvas.draw()  # which fails at a formula that is none
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert not any(label.get_parse_math() for label in labels)
        shown = [label.get_text() for label in labels]
        assert shown[:6] == ["$$", "$x", "$\\frac$", "\\", "_^{", "a␣b↵"]
        assert all(text.isprintable() and text for text in shown)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that a live curve shows, and a clock that is set by hand."""
    figures = []
    clock = {"now": 100.0}

    class Shown:
        def update(self, figure, metadata):
            assert "nats" in metadata["image/png"]["alt"]
            figures.append(figure)

    def display(figure, display_id, metadata):
        assert "nats" in metadata["image/png"]["alt"]
        figures.append(figure)
        return Shown()

    monkeypatch.setattr(plots, "display", display)
    monkeypatch.setattr(plots.time, "monotonic", lambda: clock["now"])
    return figures, clock


def test_the_live_curve_keeps_all_losses_and_draws_the_last_step(drawn):
    figures, clock = drawn
    curve = plots.LiveCurve(4, tokens_per_step=10, every=1000)
    for step in range(4):
        clock["now"] += 0.5
        curve(step, 5.0 - step)
    assert curve.losses == [5, 4, 3, 2]
    (figure,) = figures
    bar, axis = figure.axes
    assert axis.lines[0].get_ydata().tolist() == [5, 4, 3, 2]
    assert axis.lines[1].get_ydata().tolist() == [5, 4.5, 4, 3.5]
    assert bar.patches[0].get_width() == 4 and bar.get_xlim() == (0, 4)
    assert bar.get_title() == "step 4 of 4, loss 2.00, 20 tokens/s, 0 s left"


def test_the_live_curve_is_drawn_again_after_so_many_seconds(drawn):
    figures, clock = drawn
    curve = plots.LiveCurve(100, every=3.0)
    for step in range(12):
        clock["now"] += 1
        curve(step, 1.0)
    assert [len(f.axes[1].lines[0].get_ydata()) for f in figures] == [1, 5, 9]


def test_the_mean_of_the_live_curve_is_over_the_last_twenty(drawn):
    figures, _ = drawn
    curve = plots.LiveCurve(41)
    for step in range(41):
        curve(step, float(step))
    means = figures[-1].axes[1].lines[1].get_ydata().tolist()
    assert means[40] == sum(range(21, 41)) / 20 and means[19] == sum(range(20)) / 20


def test_a_report_without_tokens_says_no_speed(drawn):
    _, clock = drawn
    curve = plots.LiveCurve(50)
    clock["now"] = 900.0  # made in a cell above, long before
    for step in range(10):
        curve(step, 1.25)
        clock["now"] += 0.4
    assert curve.report() == "step 10 of 50, loss 1.25, 16 s left"


def test_a_first_step_tells_no_speed_as_it_has_nothing_to_tell_it_by(drawn):
    curve = plots.LiveCurve(50, tokens_per_step=10)
    curve(0, 1.25)
    assert curve.report() == "step 1 of 50, loss 1.25"


def test_a_second_run_with_the_same_curve_begins_another_picture(monkeypatch):
    """As when a reader runs the cell that trains once more, and it was made above."""
    shown = []
    updated = []

    class Shown:
        def update(self, figure, metadata):
            updated.append(metadata["image/png"]["alt"])

    def display(figure, display_id, metadata):
        shown.append(figure)
        return Shown()

    monkeypatch.setattr(plots, "display", display)
    curve = plots.LiveCurve(3, every=-1)
    for run in (1.0, 2.0):
        for step in range(3):
            curve(step, run)
        assert curve.losses == [run] * 3
    assert len(shown) == 2 and len(updated) == 4
    assert updated[-1].startswith("The loss is 2.0 nats, as it was at first: step 3 of")
    assert shown[-1].axes[0].patches[0].get_width() == 1


def test_a_run_that_goes_on_goes_on_with_its_curve_or_where_it_is(drawn):
    figures, _ = drawn
    curve = plots.LiveCurve(8, every=-1)
    for step in range(4):
        curve(step, float(step))
    curve(4, 4.0)  # another call of `train`, with first_step=4
    assert curve.losses == [0, 1, 2, 3, 4]

    other = plots.LiveCurve(8, every=-1)
    other(6, 1.0)
    other(7, 2.0)
    bar, axis = figures[-1].axes
    assert axis.lines[0].get_xdata().tolist() == [6, 7]
    assert bar.patches[0].get_width() == 8
    assert other.report().startswith("step 8 of 8, loss 2.00")


def test_the_style_has_text_of_twelve_points_or_more():
    plt.rcParams.update(plots.STYLE)
    sizes = ("font.size", "axes.titlesize", "legend.fontsize")
    assert all(plt.rcParams[name] >= 12 for name in sizes)
    assert not plt.rcParams["axes.spines.top"] and not plt.rcParams["axes.spines.right"]


@pytest.mark.parametrize(
    "losses, words",
    [
        ([4.2, 9.0, 3.1], "falls from 4.2 to 3.1 nats"),
        ([3.1, 0.5, 4.2], "rises from 3.1 to 4.2 nats"),
        ([4.21, 1.0, 4.19], "is 4.2 nats, as it was at first"),
        ([4.2], "is 4.2 nats, as it was at first"),
        ([4.2, math.nan], "goes from 4.2 to nan nats"),
        ([math.nan, 4.2], "goes from nan to 4.2 nats"),
        ([math.nan, math.nan], "is nan nats, as it was at first"),
        ([4.2, math.inf], "rises from 4.2 to inf nats"),
    ],
)
def test_a_curve_is_told_as_it_goes(losses, words):
    assert plots.in_words(losses) == words


def test_a_live_curve_s_words_are_those_of_its_smoothed_line(monkeypatch):
    told = []
    monkeypatch.setattr(
        plots,
        "display",
        lambda *_, metadata, **options: told.append(metadata["image/png"]["alt"]),
    )
    curve = plots.LiveCurve(n_steps=3, every=1e9)
    for step, loss in enumerate([2.0, 3.0, 4.0]):
        curve(step, loss)
    assert told[-1].startswith("The loss rises from 2.0 to 3.0 nats: step 3 of 3")
