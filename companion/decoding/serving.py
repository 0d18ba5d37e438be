"""Serving: many requests share one ragged batch. Chapter 10.

Continuous batching: a stream that ends gives its row to the next request in the queue
at once, while the others go on. Yu et al. 2022, section 3.
"""

import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..inputs import check_tensor, check_whole
from ..model.gpt import evaluating
from ..model.serving_caches import RaggedCache
from ..training.loop import deferred_interrupts
from .sampling import check_prompt, greedy


@dataclass(eq=False)
class Request:
    """A prompt (t), and at most `n_new` tokens after it, fewer if `end` is drawn.

    `choose` turns its logits (1 v) into a token (1), as for `generate`; a sampler of
    its own, with a generator of its own. `written` grows by a token a step. What went
    wrong, if anything did, is in `error`, and the request is `done`.
    """

    prompt: Tensor
    n_new: int
    choose: Callable[[Tensor], Tensor] = greedy
    end: int | None = None
    written: list[int] = field(default_factory=list)
    error: Exception | None = None
    # What `choose` gave, by its place in the text, until it is written.
    chosen: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def last(self) -> int:
        """The last token of its text."""
        return self.written[-1] if self.written else int(self.prompt[-1])

    @property
    def done(self) -> bool:
        full = len(self.written) >= self.n_new
        ended = bool(self.written) and self.written[-1] == self.end
        return self.error is not None or full or ended


class Server:
    """A queue of requests, and a batch of `n_rows` streams that work through it.

    Each request's text is what `generate` would write for it alone, whatever the others
    do, up to ties of the arithmetic: a batch of another size sums in another order. In
    float32 nearly no two logits are that close; in bfloat16, or with packed weights,
    some are. What can't be served ends with its error and leaves the others alone.

    Whatever is raised within a step, by Ctrl-C or by the model, `run` can go on: what
    counts is what each request has written. The next step shortens the cache to it, and
    a request leaves the queue only when it has its row.

    `capacity` is the room of a row in tokens, the context_length by default. Raises
    ValueError for a capacity beyond learned positions.
    """

    def __init__(self, model: nn.Module, n_rows: int, capacity: int | None = None):
        window = model.config.context_length
        self.capacity = window if capacity is None else capacity
        check_whole(n_rows=n_rows, capacity=self.capacity)
        if model.config.positions == "learned" and self.capacity > window:
            raise ValueError(
                f"capacity ({self.capacity}) exceeds the {window} learned positions"
            )
        self.model, self.queue = model, deque()
        self.rows: list[Request | None] = [None] * n_rows
        self.cache = RaggedCache(self.capacity, n_rows)

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue, or end it here if it can't be served.

        One that has written something already goes on from there. Raises ValueError for
        a request that waits or is served already.
        """
        if request in self.queue or request in self.rows:
            raise ValueError("the request is here already; another text needs another")
        try:
            check_tensor("integers", "t", prompt=request.prompt)
            check_prompt(request.prompt, request.n_new, self.capacity)
            text = self._text(request)
            d_vocab = self.model.config.d_vocab
            if text.min() < 0 or text.max() >= d_vocab:
                raise ValueError(
                    f"tokens run from {text.min()} to {text.max()}; the vocabulary is"
                    f" 0 to {d_vocab - 1}"
                )
        except ValueError as reason:
            request.error = reason
        else:
            self.queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self.queue) or any(self.rows)

    @torch.inference_mode()
    def step(self) -> None:
        """One pass for all that are going; then free rows take from the queue."""
        with evaluating(self.model):
            self._free_rows()  # of a step that was interrupted before it did
            going = [row for row, request in enumerate(self.rows) if request]
            if going:
                logits = self._next_logits()
                self._take(going, logits[going])
            for row in range(len(self.rows)):
                while self.queue and not self.rows[row]:
                    self._admit(row)

    def run(self) -> None:
        """Steps until nobody waits."""
        while self.busy:
            self.step()

    def _text(self, request: Request) -> Tensor:
        """The prompt and what is written so far (t), where the model lies."""
        written = request.prompt.new_tensor(request.written)
        device = next(self.model.parameters()).device
        return torch.cat([request.prompt, written]).to(device)

    def _free_rows(self) -> None:
        """Let go of the requests that are done."""
        for row, request in enumerate(self.rows):
            if request and request.done:
                self.rows[row] = None

    def _next_logits(self) -> Tensor:
        """The logits (b v) after the last token of every row's text.

        The cache then holds what comes before that token. It held more if a step was
        interrupted after its pass, or if nobody uses the row, which begins anew.
        """
        lengths = [
            len(each.prompt) + len(each.written) - 1 if each else 0
            for each in self.rows
        ]
        self.cache.truncate(torch.tensor(lengths))
        last = [[each.last if each else 0] for each in self.rows]
        last = torch.tensor(last, device=next(self.model.parameters()).device)
        return self.model(last, self.cache, last=-1)

    def _admit(self, row: int) -> None:
        """Read the text of the first in the queue by itself, and let it go on in a row.

        It leaves the queue when it has the row, and not before.
        """
        request = self.queue[0]
        if request.done or request in self.rows:
            self.queue.popleft()
            return
        text = self._text(request)
        alone = self.model.new_cache(len(text))
        logits = self.model(text[None], alone, last=-1)
        self.cache.put(row, alone)
        self.rows[row] = request
        self.queue.popleft()
        self._take([row], logits)

    def _take(self, rows: list[int], logits: Tensor) -> None:
        """Let each of these rows choose a token by its logits (b v), and write it down.

        Ctrl-C waits until all have: a sampler that has drawn must not draw again.
        """
        with deferred_interrupts() as interrupted:
            for row, its_logits in zip(rows, logits, strict=True):
                choose_and_write(self.rows[row], its_logits)
        self._free_rows()
        if interrupted():
            signal.raise_signal(signal.SIGINT)


def choose_and_write(request: Request, logits: Tensor) -> None:
    """Let a request choose by its logits (v), and write the token or the error down.

    What it has chosen is kept until it is written, whatever is raised in between.
    """
    place = len(request.written)
    try:
        if place not in request.chosen:
            request.chosen = {place: request.choose(logits[None])}
        new = request.chosen[place]
        check_tensor("integers", "b", new=new)
        if len(new) != 1 or not 0 <= int(new) < logits.numel():
            raise ValueError(
                f"choose gives {new.tolist()}; it must be one token, from 0 to"
                f" {logits.numel() - 1}"
            )
        token = int(new)
    except Exception as reason:  # a sampler is the asker's own code
        request.error = reason
        return
    request.written.append(token)
    request.chosen = {}
