"""What a chapter's first cell calls."""

import os
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch

import companion
from companion import artifacts
from companion.course import notebook


def test_setup_seeds_both_and_styles_the_figures(monkeypatch):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    drawn = []
    for seed in (3, 3, 4):
        plt.rcdefaults()
        generator = notebook.setup(seed)
        drawn.append([torch.rand(2), torch.rand(2, generator=generator)])
    assert torch.equal(drawn[0][0], drawn[0][1])
    assert all(map(torch.equal, drawn[0], drawn[1]))
    assert not any(map(torch.equal, drawn[0], drawn[2]))
    assert plt.rcParams["font.size"] > 12 and plt.rcParams["figure.figsize"] == [8, 4]
    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(artifacts.VOCABULARY)


def test_show_shows_the_source_as_code(monkeypatch):
    shown = []
    monkeypatch.setattr(notebook, "display", shown.append)
    notebook.show(companion.causal_mask)
    assert shown[0].data.startswith("```python\ndef causal_mask(")
    assert shown[0].data.endswith("```")


def message():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.send(torch.tensor([7]), dst=1)
    else:
        arrived = torch.zeros(1, dtype=torch.long)
        dist.recv(arrived, src=0)
        print(arrived.tolist(), torch.get_num_threads())
    dist.destroy_process_group()


def needs_a_name_from_outside():
    print(companion)


def test_a_function_runs_in_processes_that_have_its_source_alone(capfd):
    notebook.torchrun(message, n_processes=2)
    assert capfd.readouterr().out == "[7] 1\n"
    with pytest.raises(RuntimeError, match="name 'companion' is not defined"):
        notebook.torchrun(needs_a_name_from_outside, n_processes=1)


TINY = replace(
    companion.RECIPES["fast"],
    config=replace(companion.RECIPES["fast"].config, d_model=32, n_layers=1),
    n_steps=2,
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, for the checkpoint of a recipe that takes no time."""
    monkeypatch.setattr(notebook, "CACHE", tmp_path)
    monkeypatch.setattr(notebook, "RECIPES", {"fast": TINY})
    return tmp_path / "fast.safetensors"


def test_a_chapter_reads_the_trained_model_or_trains_it_once(cache, capsys):
    first = notebook.trained()
    written = cache.read_bytes()
    again = notebook.trained()
    assert not again.training and cache.read_bytes() == written
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("error", [ValueError("the loss is nan"), KeyError("a slip")])
def test_what_has_nothing_to_do_with_the_checkpoint_is_raised_once(
    cache, error, monkeypatch, capsys
):
    tries = []

    def fail(*given, **options):
        tries.append(given)
        raise error

    monkeypatch.setattr(notebook, "train_recipe", fail)
    with pytest.raises(type(error), match=str(error)):
        notebook.trained()
    assert len(tries) == 1 and capsys.readouterr().out == ""


def test_a_text_that_is_missing_is_not_blamed_on_the_checkpoint(
    cache, monkeypatch, capsys, tmp_path
):
    companion.course.recipes.shakespeare_tokens.cache_clear()
    shakespeare = replace(artifacts.SHAKESPEARE, path=tmp_path / "none.txt")
    monkeypatch.setattr("companion.text.shakespeare.SHAKESPEARE", shakespeare)
    with pytest.raises(FileNotFoundError, match="none.txt.*-m companion"):
        notebook.trained()
    assert capsys.readouterr().out == ""


def damaged(path):
    path.write_bytes(path.read_bytes()[:-1])


def a_folder(path):
    path.unlink()
    path.mkdir()


def of_another_recipe(path):
    path.unlink()
    companion.train_recipe(replace(TINY, batch_size=3), path, device="cpu", quiet=True)


@pytest.mark.parametrize("spoil", [damaged, a_folder, of_another_recipe])
def test_a_chapter_works_whatever_became_of_the_checkpoint(cache, spoil, capsys):
    right = notebook.trained()
    spoil(cache)
    before = cache.read_bytes() if cache.is_file() else None
    found = notebook.trained()
    assert all(map(torch.equal, found.parameters(), right.parameters()))
    assert "for this chapter alone" in capsys.readouterr().out
    assert before is None or cache.read_bytes() == before
