"""Interrupts: Ctrl-C and its like, put off until what must not be cut in two is whole.

Every context here leaves alone what was ignored when the process began, as by `nohup`
or a shell's `&`, and does nothing in a thread, which no signal reaches.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from .device import is_joined

# Ctrl-C, `kill` and a batch system, a terminal that is closed; Windows lacks the last.
STOPS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
]


class DeferringHandler:
    """A handler of signals that remembers what came, until it is delivered.

    What comes `patience` seconds after the first, or later, raises KeyboardInterrupt.
    """

    def __init__(self, patience: float):
        self.patience = patience
        self.signals: list[int] = []
        self.first_time = 0.0  # when the first of them came, in seconds
        self.replaced: dict[int, object] = {}  # the handlers in whose place it stands

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.signals:
            self.first_time = time.monotonic()
        elif time.monotonic() - self.first_time >= self.patience:
            raise KeyboardInterrupt
        self.signals.append(number)

    @contextmanager
    def installed(self, ends_a_loop: bool) -> Iterator[None]:
        """Within, this is the handler; afterwards what came takes its course.

        Where Ctrl-C `ends_a_loop` it has had its effect, but for a loop around this.
        """
        with ExitStack() as stack:  # the last that is put on it is done first
            stack.callback(self.deliver, ends_a_loop)
            for number in STOPS:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):
                    self.replaced[number] = handler
                    stack.callback(signal.signal, number, handler)
                    signal.signal(number, self)
            yield

    def deliver(self, ends_a_loop: bool) -> None:
        """Sends again what came, Ctrl-C last."""
        for number in reversed(STOPS):
            has_ended_a_loop = number == signal.SIGINT and ends_a_loop
            is_nested = isinstance(self.replaced.get(number), DeferringHandler)
            if has_ended_a_loop and not is_nested:
                continue
            if number in self.signals:
                signal.raise_signal(number)


@contextmanager
def deferred_interrupts(patience: float = 0) -> Iterator[Callable[[], bool]]:
    """Within, Ctrl-C is only noted, for a loop to end between two steps.

    Gives a function that says whether it was pressed; pressed again, `patience` seconds
    later or more, it raises KeyboardInterrupt at once. SIGTERM and SIGHUP are noted
    alike, and take their course afterwards. Ctrl-C works as usual among several
    processes, which would not all end with the same step.
    """
    if is_joined() or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    handler = DeferringHandler(patience)
    with handler.installed(ends_a_loop=True):
        yield lambda: bool(handler.signals)


@contextmanager
def interrupts_put_off(patience: float = math.inf) -> Iterator[None]:
    """Within, nothing is interrupted; what came takes its course afterwards.

    What comes again, `patience` seconds later or more, raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    handler = DeferringHandler(patience)
    with handler.installed(ends_a_loop=False):
        yield
