"""The shared figures: what they show is what they were given."""

import matplotlib.pyplot as plt
import pytest
import torch

from companion import plots


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    """Figures are made and looked into, never shown."""
    plt.switch_backend("agg")
    monkeypatch.setattr(plots.plt, "show", lambda: None)
    yield
    plt.close("all")


def test_a_finished_figure_has_its_words_and_a_legend_only_for_labelled_lines():
    plt.plot([1, 2])
    plots.finish("It rises", "step", "loss")
    axis = plt.gca()
    assert (axis.get_title("left"), axis.get_title()) in (
        ("It rises", ""),
        ("", "It rises"),
    )
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("step", "loss")
    assert axis.get_legend() is None
    plt.plot([2, 1], label="other")
    plots.finish("It rises", "step", "loss")
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["other"]


def test_attention_is_drawn_with_queries_as_rows_on_one_scale():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]], requires_grad=True)
    plots.plot_attention(weights, ["a", "\n"], "one head")
    (image,) = plt.gca().images
    assert image.get_array().tolist() == weights.tolist()
    assert image.get_clim() == (0, 1)
    labels = [label.get_text() for label in plt.gca().get_yticklabels()]
    assert labels == ["a", "↵"]
    assert plt.gca().get_ylabel() == "attends"


def test_the_live_curve_keeps_all_losses_and_draws_the_last_step(monkeypatch):
    drawn = []

    class Shown:
        def update(self, figure):
            drawn.append(figure)

    monkeypatch.setattr(
        plots, "display", lambda figure, **how: drawn.append(figure) or Shown()
    )
    curve = plots.LiveCurve(5, tokens_per_step=10, every=1e9)
    for step in range(5):
        curve(step, 5.0 - step)
    assert curve.losses == [5, 4, 3, 2, 1]
    bar, axis = drawn[-1].axes
    assert axis.lines[0].get_ydata().tolist() == [5, 4, 3, 2, 1]
    assert axis.lines[1].get_ydata().tolist() == [5, 4.5, 4, 3.5, 3]
    assert bar.patches[0].get_width() == 5
    title = bar.get_title("left") or bar.get_title()
    assert "step 5 of 5, loss 1.00" in title and "0 s left" in title


def test_the_style_has_text_of_twelve_points_or_more():
    plots.set_style()
    sizes = ("font.size", "axes.titlesize", "legend.fontsize")
    assert all(plt.rcParams[name] >= 12 for name in sizes)
