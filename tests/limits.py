"""A disk that is full, and a signal's handler, for a while: for tests of files."""

import signal
import sys
from contextlib import contextmanager

import pytest

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="limits and links of POSIX")


@contextmanager
def files_of_at_most(n_bytes: int):
    """Within, a longer file fails as on a full disk, when a part of it is written."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def handler(number, function):
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)
