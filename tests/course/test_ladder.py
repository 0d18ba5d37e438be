"""The ladder: one budget for all, an honest figure, rungs that stay where they are."""

import json
import re
from functools import partial

import matplotlib.pyplot as plt
import pytest
import torch
from common import seeded
from ctrl_c import stopping
from test_notebooks import CODE
from test_project import TOLD

import companion
from companion.course import ladder, plots
from companion.course.ladder import drawings, measuring, stored_rungs
from companion.course.recipes import shakespeare_tokens

CHAPTERS = {each["chapter"] for each in ladder.stored().values()}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No line is shown, and figures are kept."""
    monkeypatch.setattr(measuring.DisplayHandle, "display", lambda *_, **__: None)
    monkeypatch.setattr(measuring.DisplayHandle, "update", lambda *_, **__: None)


def small(d_vocab=65) -> companion.GPT:
    config = companion.GPTConfig(
        d_vocab=d_vocab, context_length=64, d_model=8, n_heads=1, n_layers=1
    )
    return companion.GPT(config, seeded())


class Pairs(torch.nn.Module):
    """The chances of each character after each, as they were counted."""

    def __init__(self):
        super().__init__()
        training, _ = shakespeare_tokens()
        counts = torch.full((65, 65), 0.1)
        for before, after in training.unfold(0, 2, 1).unique(dim=0).tolist():
            times = (training[:-1] == before) & (training[1:] == after)
            counts[before, after] += times.sum()
        self.logits = counts.log()

    def forward(self, tokens):
        return self.logits[tokens]


def test_the_loss_is_that_of_every_character_of_the_validation_text_but_the_first():
    model = Pairs()
    _, validation = shakespeare_tokens()
    chances = model.logits.softmax(-1)[validation[:-1], validation[1:]]
    expected = -chances.double().log().mean().item()
    assert ladder.validation_loss(model) == pytest.approx(expected, rel=1e-5)


def test_a_loss_in_byte_pairs_is_counted_by_the_character():
    tokenizer = companion.BPETokenizer([(116, 104), (32, 256)])  # th, and then th
    model = small(258)
    _, validation = ladder.parts_of(tokenizer)
    _, characters = shakespeare_tokens()
    assert len(validation) < len(characters)
    by_token = companion.evaluate(model, validation)
    by_character = by_token * (len(validation) - 1) / (len(characters) - 1)
    found = ladder.validation_loss(model, tokenizer)
    assert found == pytest.approx(by_character, rel=1e-5)


def test_a_rung_is_its_model_after_so_many_steps_at_rates_that_rise_and_fall():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rates = []
    take = optimizer.step

    def step():
        rates.append(optimizer.param_groups[0]["lr"])
        take()

    optimizer.step = step
    loss = ladder.rung(model, seeded(), optimizer, n_steps=30)
    assert len(rates) == 30 and max(rates) == 1.0 and rates.index(1.0) < 11
    assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:])[::-1]
    assert 0 < rates[-1] < 0.1
    assert optimizer.param_groups[0]["lr"] == 1.0  # for another run
    assert loss == ladder.validation_loss(model) < 4 and not model.training


def test_the_batches_come_from_the_generator_and_a_rung_repeats():
    losses = [ladder.rung(small(), seeded(seed), n_steps=3) for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_a_rung_that_is_stopped_is_no_rung():
    """Its loss, after fewer steps, would stand beside the others."""
    with pytest.raises(KeyboardInterrupt), stopping(3):
        ladder.rung(small(), seeded(), n_steps=30)


@pytest.mark.parametrize("n_steps", [0, -1, 2.5, True])
def test_a_number_of_steps_that_is_none_is_refused(n_steps):
    with pytest.raises(ValueError, match=f"n_steps is {n_steps}"):
        ladder.rung(small(), seeded(), n_steps=n_steps)


def test_a_model_writes_after_its_cue_by_its_own_chances():
    def stutters(tokens):  # each character again
        return 100 * torch.nn.functional.one_hot(tokens, 65).float()

    assert ladder.write(stutters, seeded(), n_characters=5) == "ROMEO::::::"
    tokenizer = companion.BPETokenizer([(116, 104)])
    model = small(257).eval()
    lines = [ladder.write(model, seeded(s), tokenizer=tokenizer) for s in (0, 0, 1)]
    assert lines[0] == lines[1] != lines[2]
    assert all(len(x) == 66 and x.startswith("ROMEO:") for x in lines)


STORED = {
    "counts": {"chapter": "00", "nats": [3.0, 3.0, 3.0]},
    "one head": {"chapter": "01", "nats": [2.50, 2.52, 2.51]},
    "many heads": {"chapter": "02", "nats": [2.40, 2.44, 2.41]},
    "positions": {"chapter": "03", "nats": [2.2, 2.2, 2.2]},
}


def store(rungs, path, monkeypatch):
    """These are the rungs that are stored, in a file at `path`."""
    path.write_text(json.dumps(rungs), "utf-8")
    monkeypatch.setattr(stored_rungs, "STORED", path)


def test_a_rung_is_judged_by_its_seeds_and_a_typical_range(monkeypatch, tmp_path):
    store(STORED, tmp_path / "rungs.json", monkeypatch)
    assert ladder.band("one head") == pytest.approx((2.44, 2.58))
    assert ladder.band("many heads") == pytest.approx((2.32, 2.52))
    assert ladder.within({"one head": 2.45, "my own": 9.0})
    assert not ladder.within({"one head": 2.59})
    assert not ladder.within({"one head": 2.5, "positions": 2.1})
    assert not ladder.within({"one head": float("nan")})


def test_the_figure_has_what_came_before_and_the_rungs_of_now(monkeypatch, tmp_path):
    shown = []
    store(STORED, tmp_path / "rungs.json", monkeypatch)
    monkeypatch.setattr(plots, "display", lambda figure, **how: shown.append(how))
    monkeypatch.setattr(plots.plt, "close", lambda *figure: None)
    plt.close("all")
    ladder.draw({"many heads": 2.43, "my own": 2.3}, "They help", "ROMEO:\nAy $x_")

    axis = plt.gca()
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["00 · counts", "01 · one head", "02 · many heads", "my own"]
    widths = [bar.get_width() for bar in axis.patches]
    assert widths == pytest.approx([3.0, 2.51, 2.43, 2.3])
    assert [bar.get_x() for bar in axis.patches] == [0] * 4 and axis.get_xlim()[0] == 0
    spans = [line.get_xdata() for line in axis.lines]
    assert [list(span) for span in spans] == [[3, 3], [2.50, 2.52], [2.40, 2.44]]
    alt = shown[0]["metadata"]["image/png"]["alt"]
    assert "many heads 2.430, my own 2.300" in alt and "ROMEO:↵ Ay $x_" in alt
    plt.gcf().canvas.draw()


def test_a_comparison_is_with_the_first_rung_of_the_same_seed(monkeypatch, tmp_path):
    shown = []
    known = {
        "plain": {"chapter": "17", "nats": [2.0, 2.2, 2.1]},
        "again": {"chapter": "17", "nats": [2.1, 2.25, 2.1]},
        "better": {"chapter": "17", "nats": [1.9, 2.0, 2.1]},
    }
    store(known, tmp_path / "rungs.json", monkeypatch)
    monkeypatch.setattr(drawings.plt, "close", lambda: None)
    monkeypatch.setattr(plots, "display", lambda _, **more: shown.append(more))
    rungs = {"plain": 2.05, "again": 2.04, "better": 2.0, "new": 2.1}
    assert ladder.gains(rungs, "better") == pytest.approx([0.05, 0.1, 0.2, 0])
    assert ladder.gains(rungs, "new") == pytest.approx([-0.05])
    ladder.compare(rungs, "Some", "ROMEO:\nAy", luck="again")

    axis = plt.gca()
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["again", "better", "new"]
    points = [[*line.get_xdata()] for line in axis.lines[1:]]
    assert points[2] == pytest.approx([0.1, 0.2, 0]) and points[4] == []
    assert [points[3], points[5]] == [pytest.approx([0.05]), pytest.approx([-0.05])]
    (band,) = axis.patches  # as far to each side as the luckiest of "again"
    assert band.get_x() == pytest.approx(-0.1)
    assert band.get_width() == pytest.approx(0.2)
    alt = shown[0]["metadata"]["image/png"]["alt"]
    assert "plain 2.050, again 2.040, better 2.000" in alt and "ROMEO:↵ Ay" in alt

    ladder.gained(rungs, ["better", "new"], luck="again")
    alt = shown[1]["metadata"]["image/png"]["alt"]
    assert "better +0.050, +0.100, +0.200, +0.000; new -0.050." in alt
    assert plt.gca().get_title().startswith("1 of 5 points lie beyond")


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "drawing", [ladder.draw, partial(ladder.compare, luck="one head")]
)
def test_a_rung_that_can_t_be_drawn_is_named(drawing, loss):
    with pytest.raises(ValueError, match=f"rung 'many heads' has a loss of {loss}"):
        drawing({"one head": 2.5, "many heads": loss}, "They help", "ROMEO:")


def test_a_drawing_ends_with_its_last_rung_or_a_stored_one_that_is_named(monkeypatch):
    drawn = []
    monkeypatch.setattr(drawings, "finish_ladder", lambda rows, *_: drawn.append(rows))
    names = [*ladder.stored()]
    for last in None, names[1], names[4]:
        ladder.draw({names[2]: 2.0}, "They help", "ROMEO:", last=last)
    rows = [[row.partition(" · ")[2] for row in each] for each in drawn]
    assert rows == [names[:3], names[:3], names[:5]]


def test_a_rung_alone_can_t_be_compared():
    with pytest.raises(ValueError, match="1 rungs can't be compared"):
        ladder.compare({"one head": 2.5}, "They help", "ROMEO:", luck="one head")


def rungs_seen(stem: str) -> dict[str, float]:
    """The rungs of a chapter's figures, as they stand in their alternative texts."""
    outputs = [output for cell in CODE[stem] for output in cell.outputs]
    alts = [o.get("metadata", {}).get("image/png", {}).get("alt", "") for o in outputs]
    found = {}
    for alt in alts:
        if alt.startswith("The ladder:"):
            said = re.search(r"of this chapter: (.*?)\. It writes: ", alt)[1]
            pairs = [part.rsplit(" ", 1) for part in said.split(", ")]
            found |= {name: float(loss) for name, loss in pairs}
    return found


@pytest.mark.parametrize("chapter", sorted(CHAPTERS))
def test_every_rung_of_a_chapter_is_stored_and_within_its_band(chapter):
    (stem,) = (stem for stem in CODE if stem.startswith(chapter))
    seen = rungs_seen(stem)
    of_chapter = [k for k, v in ladder.stored().items() if v["chapter"] == chapter]
    assert [*seen] == [name for name in of_chapter if name in seen]
    # What would take minutes is shown as it is stored.
    is_patient = any("patient = False" in cell.source for cell in CODE[stem])
    assert len(seen) == len(of_chapter) or is_patient
    assert ladder.within(seen)
    drawn = [
        cell.source
        for cell in CODE[stem]
        if re.search(r"ladder\.(draw|compare)\(", cell.source)
    ]
    assert drawn and all("assert ladder.within(rungs)" in source for source in drawn)


def test_the_readme_has_every_rung_of_one_price_as_it_is_stored():
    readme = TOLD["README.md"]
    rows = re.findall(r"^(\d\d) (.+?) +(\d\.\d\d) (█+)$", readme, re.M)
    stored = {k: v for k, v in ladder.stored().items() if v["chapter"] <= "05"}
    means = [sum(each["nats"]) / 3 for each in stored.values()]
    chapters = [each["chapter"] for each in stored.values()]
    told = [f"{loss:.2f}" for loss in means]
    assert [row[:3] for row in rows] == [*zip(chapters, stored, told, strict=True)]
    # A block is an eighth of a nat.
    assert [len(row[3]) / 8 for row in rows] == pytest.approx(means, abs=1 / 15)


def test_three_seeds_are_stored_of_each_rung_in_the_chapters_order():
    assert all(len(each["nats"]) == 3 for each in ladder.stored().values())
    chapters = [each["chapter"] for each in ladder.stored().values()]
    assert chapters == sorted(chapters)
    assert (
        ladder.STORED.read_text("utf-8") == json.dumps(ladder.stored(), indent=1) + "\n"
    )
