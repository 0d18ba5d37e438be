"""Serving: many requests share one ragged batch. Chapter 10.

Continuous batching: a stream that ends gives its row to the next request in the queue
at once, while the others go on. Yu et al. 2022, section 3.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .cache import RaggedCache
from .inputs import check_tensor, check_whole
from .models import GPT, GPTConfig, evaluating
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

    @property
    def done(self) -> bool:
        full = len(self.written) == self.n_new
        ended = bool(self.written) and self.written[-1] == self.end
        return self.error is not None or full or ended


class Server:
    """A queue of requests, and a batch of `n_rows` streams that work through it.

    Each request's text is what `generate` would write for it alone, whatever the others
    do. What can't be served ends with its error and leaves the others alone. `capacity`
    is the room of a row in tokens, the context_length by default.
    """

    def __init__(self, model: nn.Module, n_rows: int, capacity: int | None = None):
        window = model.config.context_length
        self.capacity = window if capacity is None else capacity
        check_whole(n_rows=n_rows, capacity=self.capacity)
        self.model, self.queue = model, deque()
        self.rows: list[Request | None] = [None] * n_rows
        self.caches = [RaggedCache(self.capacity, n_rows) for _ in model.new_caches(1)]

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
                self._forget()
                last = [[each.written[-1] if each else 0] for each in self.rows]
                last = torch.tensor(last, device=next(self.model.parameters()).device)
                logits = self.model(last, self.caches, at=-1)
                for row in going:
                    self._take(row, logits[row])
            for row in range(len(self.rows)):
                while self.queue and not self.rows[row]:
                    self._admit(row, self.queue.popleft())

    def run(self) -> None:
        """Steps until nobody waits."""
        while self.busy:
            self.step()

    def _forget(self) -> None:
        """Empty the rows that nobody uses: their next token is written at 0."""
        used = torch.tensor([request is not None for request in self.rows])
        for cache in self.caches:
            cache.truncate(cache.lengths * used)

    def _admit(self, row: int, request: Request) -> None:
        """Read a prompt by itself, and let its stream go on in the batch."""
        if request.done:  # no token was wanted
            return
        caches = self.model.new_caches(len(request.prompt))
        try:
            logits = self.model(request.prompt[None], caches, at=-1)[0]
        except Exception as reason:
            request.error = reason
            return
        for batch, alone in zip(self.caches, caches, strict=True):
            batch.put(row, alone)
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


def main() -> None:
    """Tokens a second for 32 requests at GPT-2 small's shape, by number of rows."""
    model, draw = GPT(GPTConfig(), torch.Generator().manual_seed(0)), random.Random(0)
    sizes = [(draw.randint(4, 64), draw.randint(8, 96)) for _ in range(32)]
    for n_rows in (1, 2, 4, 8, 16):
        server, start = Server(model, n_rows), time.perf_counter()
        for length, n_new in sizes:
            server.submit(Request(torch.ones(length, dtype=torch.long), n_new))
        server.run()
        rate = sum(n for _, n in sizes) / (time.perf_counter() - start)
        print(f"{n_rows:2} rows: {rate:6.1f} tokens a second", flush=True)


if __name__ == "__main__":
    main()
