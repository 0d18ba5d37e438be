"""One thread a worker: on a busy machine two workers of two threads wait in turn."""

import signal

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_raises():
    """Also where whoever started the tests ignores Ctrl-C, as a shell's `&` does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
