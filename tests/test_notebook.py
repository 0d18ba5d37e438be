"""What a chapter's first cell calls."""

import os

import matplotlib.pyplot as plt
import torch

import companion
from companion import artifacts, notebook


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
    assert shown[0].data.startswith("```python\ndef causal_mask(n_queries")
    assert shown[0].data.endswith("```")
