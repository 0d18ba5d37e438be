"""One thread a worker: on a busy machine two workers of two threads wait in turn."""

import signal

import elsewhere
import matplotlib.pyplot as plt
import pytest
import torch

from companion.artifacts import SMOLLM2
from companion.pretrained import gguf, smollm2
from companion.pretrained.published_tokenizer import PublishedTokenizer
from companion.pretrained.weights import build

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_raises():
    """Also where whoever started the tests ignores Ctrl-C, as a shell's `&` does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def figures_have_their_own_style():
    """What a test sets of matplotlib's style, the next doesn't find."""
    with plt.rc_context():
        yield


@pytest.fixture(params=["as it is", "plain"])
def processor(request, monkeypatch):
    """This machine's processor, and one that can only do what all can."""
    if request.param == "plain":
        elsewhere.become("plain", monkeypatch.setattr)


@pytest.fixture(scope="session")
def smollm2_file():
    """SmolLM2's header and tensors."""
    return gguf.read_gguf(SMOLLM2.path)


@pytest.fixture(scope="session")
def smollm2_loaded(smollm2_file):
    """SmolLM2 and its tokenizer."""
    header, tensors = smollm2_file
    config = smollm2.config_of(header)
    model = build(config, smollm2.weights_of(tensors, config))
    return model, PublishedTokenizer(header)
