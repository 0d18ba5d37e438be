"""What a chapter's first cell calls, and the model that chapter 05 leaves behind."""

import ast
import os
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from cells import code_cells, read, tags
from common import rounding
from safetensors.torch import save_file
from torch import nn

import companion
from companion import artifacts
from companion.course import kept, kept_file, notebook, runs


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
    warmup=1,
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, for the checkpoint of a recipe that takes no time."""
    monkeypatch.setattr(runs, "CACHE", tmp_path)
    monkeypatch.setattr(runs, "MY_GPT", tmp_path / "my_gpt.safetensors")
    monkeypatch.setattr(runs, "RECIPES", {"fast": TINY, "other": TINY})
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

    monkeypatch.setattr(runs, "train_recipe", fail)
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
    model = notebook.trained()
    assert all(map(torch.equal, model.parameters(), right.parameters()))
    assert "for this chapter alone" in capsys.readouterr().out
    assert before is None or cache.read_bytes() == before


def weights():
    """What a reader's own model might have learned, by its names."""
    model = companion.GPT(TINY.config, torch.Generator().manual_seed(7))
    return model.state_dict()


def test_a_recipe_that_there_is_not_is_named(cache):
    with pytest.raises(ValueError, match="name is 'slow', not in .*'fast'"):
        notebook.trained("slow")


def test_the_reader_s_own_model_comes_first_and_nothing_is_trained(cache, monkeypatch):
    monkeypatch.setattr(runs, "train_recipe", lambda *_: pytest.fail("trains"))
    save_file(weights(), runs.MY_GPT)
    before = torch.get_rng_state()
    model = notebook.trained()
    assert isinstance(model, companion.GPT) and model.config == TINY.config
    assert not model.training and torch.equal(before, torch.get_rng_state())
    state = model.state_dict()
    assert all(torch.equal(state[name], x) for name, x in weights().items())


def test_the_reader_s_own_model_stands_for_no_other_recipe(cache):
    save_file(weights(), runs.MY_GPT)
    other = notebook.trained("other").state_dict()
    assert not torch.equal(other["norm.gain"], weights()["norm.gain"])
    assert (cache.parent / "other.safetensors").exists() and not cache.exists()


MATRIX = "blocks.0.attention.to_keys.weight"


@pytest.mark.parametrize(
    "words, changed",
    [
        (f"{MATRIX} is .32, 64., and must be .32, 32.", {MATRIX: torch.ones(32, 64)}),
        (f"{MATRIX} holds numbers", {MATRIX: torch.full((32, 32), torch.nan)}),
        ("norm.gain holds numbers", {"norm.gain": torch.full((32,), torch.inf)}),
        ("has positions.table, which", {"positions.table": torch.ones(2)}),
        ("has no norm.gain", {"norm.gain": None}),
        ("can't be read", None),
    ],
)
def test_a_file_of_the_reader_s_that_can_t_be_used_is_told_and_left(
    cache, words, changed, capsys
):
    recipe = notebook.trained()
    if changed is None:
        runs.MY_GPT.write_bytes(b"not a file of weights")
    else:
        state = weights() | changed
        save_file({k: x for k, x in state.items() if x is not None}, runs.MY_GPT)
    before = runs.MY_GPT.read_bytes()

    model = notebook.trained()
    assert all(map(torch.equal, model.parameters(), recipe.parameters()))
    said = capsys.readouterr().out
    assert re.search(words, said) and said.count("\n") == 1
    assert str(runs.MY_GPT) in said and "recipe" in said
    assert runs.MY_GPT.read_bytes() == before


def test_a_folder_in_the_place_of_the_reader_s_file_is_told(cache, capsys):
    runs.MY_GPT.mkdir()
    assert isinstance(notebook.trained(), companion.GPT)
    assert "my_gpt.safetensors can't be read" in capsys.readouterr().out


CHAPTER = Path(__file__).parents[2] / "notebooks" / "05_training.ipynb"


def training_chapter():
    """Chapter 05's machine, and the functions of its own cells; the last of a name."""
    names = {"torch": torch, "nn": nn, "companion": companion}
    sections = kept_file.read_sections(kept_file.COURSE)
    names |= vars(kept.run(kept_file.sections_before(6, sections)))
    body = []
    for cell in code_cells(read(CHAPTER)):
        if not cell.source.startswith("%") and "solution" not in tags(cell):
            for node in ast.parse(cell.source).body:
                named = isinstance(node, ast.FunctionDef)
                if named and re.match("my_|new_start", node.name):
                    if not any(isinstance(x, ast.Name) for x in node.args.defaults):
                        body.append(node)
    exec(compile(ast.Module(body, []), CHAPTER.name, "exec"), names)
    return names


def test_the_chapter_s_own_class_and_loop_make_the_recipe_s_steps():
    """Of the whole run, 400 steps, the first twenty."""
    chapter = training_chapter()
    model, generator = chapter["new_start"]()
    recipe = companion.RECIPES["fast"]
    twenty = replace(
        recipe,
        n_steps=20,
        schedule=lambda step, **_: companion.warmup_linear(step, warmup=10, total=400),
    )
    _, expected = companion.train_recipe(twenty, device="cpu", quiet=True)
    losses = chapter["my_train"](
        model,
        companion.muon(model),
        recipe.batches(20, generator),
        chapter["my_schedule"],
    )
    close = rounding(512, torch.tensor(expected))  # hidden features
    torch.testing.assert_close(losses, expected, **close)
    assert losses[-1] < losses[0] - 1

    config = {"d_vocab": 65, "n_layers": 4, "n_heads": 4, "d_model": 128}
    assert config.items() <= vars(recipe.config).items()
    gpt = companion.GPT(recipe.config)
    gpt.load_state_dict(model.state_dict())
    tokens = torch.arange(64)[None]
    torch.testing.assert_close(gpt(tokens), model(tokens))


def test_the_chapter_s_run_has_ended_where_the_recipe_ends():
    """The recipe's 1.7075 was measured with `python -m companion train`."""
    outputs = [output for cell in code_cells(read(CHAPTER)) for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    (loss,) = re.findall(r"^validation loss (\d\.\d{4})$", text, re.M)
    assert abs(float(loss) - 1.7075) < 0.01
