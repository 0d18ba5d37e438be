"""Serving: many requests share one ragged batch. Chapter 10.

Continuous batching: a stream that ends gives its row to the next request in the queue
at once, while the others go on. Yu et al. 2022, section 3.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .inputs import check_tensor, check_whole
from .models import evaluating
from .sampling import check_prompt, greedy
from .serving_caches import RaggedCache


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

    @property
    def done(self) -> bool:
        full = len(self.written) == self.n_new
        ended = bool(self.written) and self.written[-1] == self.end
        return self.error is not None or full or ended


class Server:
    """A queue of requests, and a batch of `n_rows` streams that work through it.

    Each request's text is what `generate` would write for it alone, whatever the others
    do. What can't be served ends with its error and leaves the others alone. `capacity`
    is the room of a row in tokens, the context_length by default. Raises ValueError for
    a capacity beyond learned positions.
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
        """Put a request at the end of the queue, or end it here if it can't fit."""
        try:
            check_tensor("integers", "t", prompt=request.prompt)
            check_prompt(request.prompt, request.n_new, self.capacity)
            self.queue.append(request)
        except ValueError as reason:
            request.error = reason

    @property
    def busy(self) -> bool:
        return bool(self.queue) or any(self.rows)

    @torch.inference_mode()
    def step(self) -> None:
        """One pass for all that are going; then free rows take from the queue."""
        going = [row for row, request in enumerate(self.rows) if request]
        with evaluating(self.model):
            if going:
                # A row that nobody uses begins anew, and writes its token at 0.
                used = torch.tensor([each is not None for each in self.rows])
                self.cache.truncate(self.cache.n_seen * used)
                last = [[each.written[-1] if each else 0] for each in self.rows]
                last = torch.tensor(last, device=next(self.model.parameters()).device)
                logits = self.model(last, self.cache, last=-1)
                for row in going:
                    self._take(row, logits[row])
            for row in range(len(self.rows)):
                while self.queue and not self.rows[row]:
                    self._admit(row, self.queue.popleft())

    def run(self) -> None:
        """Steps until nobody waits."""
        while self.busy:
            self.step()

    def _admit(self, row: int, request: Request) -> None:
        """Read a prompt by itself, and let its stream go on in the batch."""
        if request.done:  # no token was wanted
            return
        alone = self.model.new_cache(len(request.prompt))
        try:
            logits = self.model(request.prompt[None], alone, last=-1)[0]
        except Exception as reason:
            request.error = reason
            return
        self.cache.put(row, alone)
        self.rows[row] = request
        self._take(row, logits)

    def _take(self, row: int, logits: Tensor) -> None:
        """Choose the token of one stream, and free its row if that was the last."""
        request = self.rows[row]
        try:
            new = request.choose(logits[None])
            check_tensor("integers", "b", new=new)
            if len(new) != 1 or not 0 <= int(new) < logits.numel():
                raise ValueError(
                    f"choose gives {new.tolist()}; it must be one token, from 0 to"
                    f" {logits.numel() - 1}"
                )
            request.written.append(int(new))
        except Exception as reason:  # a sampler is the asker's own code
            request.error = reason
        if request.done:
            self.rows[row] = None
