"""Serving: many requests share one ragged batch. Chapter 10.

Continuous batching: a stream that ends gives its row to the next request in the queue
at once, while the others go on. Yu et al. 2022, section 3.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..inputs import check_tensor, check_whole
from ..interrupts import interrupts_put_off
from ..model.gpt import LanguageModel, check_tokens, evaluating
from ..model.serving_caches import RaggedCache
from .sampling import check_end, check_prompt, greedy


@dataclass(eq=False)
class Request:
    """Asks for at most `n_new` tokens after a prompt (t), fewer if `end` is drawn.

    `choose` turns its logits (1 v) into a token (1), as for `generate`; a sampler of
    its own, with a generator of its own. `written` grows by a token a step. What went
    wrong, if anything did, is in `error`, and the request is `done`. Chapter 10.
    """

    prompt: Tensor
    n_new: int
    choose: Callable[[Tensor], Tensor] = greedy
    end: int | None = None
    written: list[int] = field(default_factory=list)
    error: Exception | None = None
    # How many were written when `choose` drew a token (1), and that token, until it is
    # written. A step that was interrupted in between finds it and doesn't draw again.
    chosen: tuple[int, Tensor] | None = field(default=None, init=False, repr=False)

    @property
    def last(self) -> int:
        """Returns the last token of its text."""
        return self.written[-1] if self.written else int(self.prompt[-1])

    @property
    def done(self) -> bool:
        """Returns whether nothing more is to be written."""
        is_full = len(self.written) >= self.n_new
        has_ended = bool(self.written) and self.written[-1] == self.end
        return self.error is not None or is_full or has_ended


class Plan(NamedTuple):
    """A pass for all rows, of which these are in use, each by its request."""

    rows: list[int]
    requests: list[Request]
    tokens: Tensor  # the one that each row reads, (b 1)
    lengths: Tensor  # how much of each row's text the cache must hold for it, (b)


class Server:
    """Serves a queue of requests by a batch of `n_rows` streams.

    Each request's text is what `generate` would write for it alone, whatever the others
    do, up to ties of the arithmetic: a batch of another size sums in another order. In
    float32 nearly no two logits are that close; in bfloat16, or with packed weights,
    some are. What can't be served ends with its error and leaves the others alone.

    Whatever is raised within a step, by Ctrl-C or by the model, `run` can go on: what
    counts is what each request has written. The next step shortens the cache to it, and
    a request leaves the queue only when it has its row.

    A row holds `capacity` tokens, the context_length by default. Raises ValueError for
    a capacity beyond learned positions. Yu et al. 2022, section 3.
    """

    def __init__(self, model: LanguageModel, n_rows: int, capacity: int | None = None):
        window = model.config.context_length
        self.capacity = window if capacity is None else capacity
        check_whole(n_rows=n_rows, capacity=self.capacity)
        if model.config.positions == "learned" and self.capacity > window:
            raise ValueError(
                f"capacity ({self.capacity}) exceeds the {window} learned positions"
            )
        self.model = model
        self.queue: deque[Request] = deque()
        self.rows: list[Request | None] = [None] * n_rows
        self.cache = RaggedCache(self.capacity, n_rows)

    def submit(self, request: Request) -> None:
        """Puts a request at the end of the queue, or ends it if it can't be served.

        One that has written something already goes on from there. Raises ValueError for
        a request that waits or is served already; other errors are the request's.
        """
        if request in self.queue or request in self.rows:
            raise ValueError("the request is here already; another text needs another")

        try:
            check_tensor("integers", "t", prompt=request.prompt)
            check_prompt(request.prompt, request.n_new, None)
            if len(request.prompt) + request.n_new > self.capacity:
                raise ValueError(
                    f"{len(request.prompt)} and {request.n_new} tokens exceed the"
                    f" server's capacity ({self.capacity})"
                )
            d_vocab = self.model.config.d_vocab
            check_end(request.end, d_vocab)
            check_tokens(self._text(request)[None], d_vocab)
        except ValueError as error:
            request.error = error
        else:
            self.queue.append(request)

    @property
    def busy(self) -> bool:
        """Returns whether a request waits or is served."""
        return bool(self.queue) or any(self.rows)

    @torch.inference_mode()
    def step(self) -> None:
        """Plans a pass, makes it and chooses tokens; free rows take from the queue.

        Raises what the model and Ctrl-C raise; the step may then be made again.
        """
        with evaluating(self.model):
            plan = self._plan()
            if plan.rows:
                logits = self._pass(plan)
                self._choose_tokens(plan.requests, logits[plan.rows])
            self._fill_rows()

    def run(self) -> None:
        """Makes steps until every request is done."""
        while self.busy:
            self.step()

    def _text(self, request: Request) -> Tensor:
        """Returns the prompt and what is written so far (t), on the model's device."""
        written = request.prompt.new_tensor(request.written)
        device = next(self.model.parameters()).device
        return torch.cat([request.prompt, written]).to(device)

    def _free_rows(self) -> None:
        """Frees the rows whose requests are done."""
        for row, request in enumerate(self.rows):
            if request and request.done:
                self.rows[row] = None

    def _plan(self) -> Plan:
        """Returns the next pass: each row in use reads the last token of its text.

        All before it the cache must hold. It holds more if a step was interrupted after
        its pass, or if the row is free and begins anew.
        """
        self._free_rows()  # an interrupted step may not have come to it
        active = {row: request for row, request in enumerate(self.rows) if request}
        tokens = torch.zeros(len(self.rows), 1, dtype=torch.long)  # read by nobody
        lengths = torch.zeros(len(self.rows), dtype=torch.long)
        for row, request in active.items():
            tokens[row] = request.last
            lengths[row] = len(request.prompt) + len(request.written) - 1
        device = next(self.model.parameters()).device
        return Plan([*active], [*active.values()], tokens.to(device), lengths)

    def _pass(self, plan: Plan) -> Tensor:
        """Makes a planned pass. Returns the logits (b v) of each row."""
        self.cache.truncate(plan.lengths)
        return self.model(plan.tokens, self.cache, last=-1)

    def _fill_rows(self) -> None:
        """Gives the free rows to the first requests in the queue."""
        for row in range(len(self.rows)):
            while self.queue and not self.rows[row]:
                self._admit(row)

    def _admit(self, row: int) -> None:
        """Reads the text of the first request in the queue and gives it a row.

        The text is read by itself, in a cache of one stream, which the row then copies.
        The request leaves the queue when it has the row, and not before.
        """
        request = self.queue[0]
        if request.done or request in self.rows:
            self.queue.popleft()
            return

        text = self._text(request)
        cache = self.model.new_cache(len(text))
        logits = self.model(text[None], cache, last=-1)
        self.cache.put(row, cache)
        self.rows[row] = request
        self.queue.popleft()
        self._choose_tokens([request], logits)

    def _choose_tokens(self, requests: list[Request], logits: Tensor) -> None:
        """Lets each of these requests choose a token by its logits (b v), and write it.

        Ctrl-C waits until all have.
        """
        # Within `choose` a generator may have moved while its token isn't held yet: the
        # next step would draw another one. Pressed again, Ctrl-C comes through, for a
        # sampler that hangs.
        with interrupts_put_off(patience=0):
            for request, request_logits in zip(requests, logits, strict=True):
                choose_and_write(request, request_logits)
            self._free_rows()


def choose_and_write(request: Request, logits: Tensor) -> None:
    """Lets a request choose a token by its logits (v); writes it, or the error.

    What it has chosen is held until it is written, whatever is raised in between.
    """
    n_written = len(request.written)
    try:
        if request.chosen is None or request.chosen[0] != n_written:
            request.chosen = (n_written, request.choose(logits[None]))

        _, new = request.chosen
        check_tensor("integers", "b", new=new)
        if len(new) != 1 or not 0 <= int(new) < logits.numel():
            raise ValueError(
                f"choose gives {new.tolist()}; it must be one token, from 0 to"
                f" {logits.numel() - 1}"
            )
        token = int(new)
    except Exception as error:  # a sampler is the caller's own code
        request.error = error
        return

    request.written.append(token)
    request.chosen = None
