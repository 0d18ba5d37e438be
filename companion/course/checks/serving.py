"""Checks of chapter 10: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from .compare import Exercise, check, draw, identity, ways_of
from .differences import difference
from .mistakes import Mistake
from .sampling import token_list
from .watch import Watch
from .words import describe, listed


@check
def pages_in_use() -> Exercise:
    """`answer(n_shared, lengths, size)`: pages of talks that begin alike."""

    def rounded_up(n: int, size: int) -> int:
        return -(-n // size)

    def right(
        n_shared: int,
        lengths: list[int],
        size: int,
        shared: Callable = lambda n, size: n // size,
        pages: Callable = rounded_up,
    ) -> int:
        n = shared(n_shared, size)
        return n + sum(pages(length, size) - n for length in lengths)

    way = ways_of(right)

    def rest_in_new_pages(n_shared: int, lengths: list[int], size: int) -> int:
        own = [rounded_up(n - n_shared, size) for n in lengths]
        return rounded_up(n_shared, size) + sum(own)

    cases = [
        (40, [70, 45, 48, 45], 16),
        (32, [33, 64, 32], 8),
        (5, [30, 6, 20, 21], 7),
        (40, [41, 42, 43], 16),
        (5, [5, 9], 4),
    ]
    mistakes = {
        "nothing is shared: full pages of shared tokens are there once": way(
            shared=lambda n, size: 0
        ),
        "a talk goes on in its own copy of the page that is not full": (
            rest_in_new_pages
        ),
        "lengths are those of the whole talks, shared tokens included": (
            lambda n, lengths, size: right(n, [length + n for length in lengths], size)
        ),
        "a page that is not full of shared tokens is shared: each talk writes its own"
        " tokens into it": way(shared=rounded_up),
        "the last page of a talk counts, however few tokens it holds": way(
            pages=lambda n, size: n // size
        ),
        "shared tokens that fill no page are missing: each talk keeps its own": (
            lambda n, lengths, size: right(n, [x - n % size for x in lengths], size)
        ),
        "a talk that fills its last page needs no further one: n // size + 1 is too"
        " many there": way(pages=lambda n, size: n // size + 1),
        "a page is given out whole: round up": way(
            shared=lambda n, size: n / size, pages=lambda n, size: n / size
        ),
        "the shared pages are left out: they are in use, once": (
            lambda n, lengths, size: right(n, lengths, size) - n // size
        ),
    }
    praise = "full shared pages once, all others for each talk"
    return Exercise(right, cases, mistakes, praise)


class WatchUse(Watch):
    """Also notes every tensor that an operation takes, and what it has no bits for."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[Tensor] = []
        self.lost_signs = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.used += [x for x in args if isinstance(x, Tensor)]
        if (kwargs or {}).get("dtype") == torch.uint8:
            x = args[0]
            self.lost_signs |= x.is_floating_point() and bool((x < 0).any())
        return super().__torch_dispatch__(function, types, args, kwargs)


@check
def int8() -> Exercise:
    """`answer(x)`: x (... d) as it comes back from 8 bits and a scale for each d.

    The scale is a vector's largest absolute value, divided by 127.
    """

    def scale_of(x: Tensor, steps: int = 127) -> Tensor:
        return x.abs().amax(-1, keepdim=True) / steps

    def right(
        x: Tensor,
        scale: Callable = scale_of,
        whole: Callable = lambda x: x.round().to(torch.int8),
    ) -> Tensor:
        step = scale(x)
        return whole(x / step) * step

    way = ways_of(right)

    def wrapped(x: Tensor) -> Tensor:
        """8 bits of integers: 128 becomes -128, by way of 16 bits on every machine."""
        return x.round().to(torch.int16).to(torch.int8)

    def with_a_zero_point(x: Tensor) -> Tensor:
        lowest = x.amin(-1, keepdim=True)
        highest = x.amax(-1, keepdim=True)
        scale = (highest - lowest) / 255
        zero = (-128 - lowest / scale).round()
        return ((x / scale + zero).round().clamp(-128, 127) - zero) * scale

    def largest_of_both_sides(x: Tensor) -> Tensor:
        above = x.amax(-1, keepdim=True) / 127
        return torch.maximum(above, x.amin(-1, keepdim=True) / -128)

    def watched(answer: Callable, x: Tensor) -> dict[str, object]:
        """What comes back, with 8-bit integers on the way."""
        with WatchUse() as watch:
            result = answer(x)

        # For a single vector it isn't asked how the numbers came about.
        n_made = sum(y.numel() for _, y in watch.made if y.dtype == torch.int8)
        n_used = sum(y.numel() for y in watch.used if y.dtype == torch.int8)
        is_right = not difference(result, right(x))
        if is_right and x.dim() > 1:
            if watch.lost_signs:
                raise Mistake(
                    "`torch.uint8` has no negative numbers: what becomes of them"
                    " differs from processor to processor"
                )
            if n_made < x.numel():
                raise Mistake("no integer of 8 bits is made: `.to(torch.int8)`")
            if n_used < x.numel():
                raise Mistake(
                    "integers of 8 bits are made, but not used: `.to` gives them"
                )

        n_far = 0
        if isinstance(result, Tensor) and result.shape == x.shape:
            half = x.abs().amax(-1, keepdim=True) / 127 / 2
            n_far = ((result - x).abs() > 1.001 * half).sum().item()
        return {
            "numbers off by more than half a scale": n_far,
            "int8 times (the largest / 127)": result,
        }

    cases = [
        (torch.tensor([1.0, -0.4]),),
        (draw(2, 4, 6, seed=1),),
        (draw(3, 5) * torch.tensor([[1.0], [9], [0.1]]),),
    ]
    mistakes = {
        # The number of steps.
        "the largest becomes 128, which wraps to -128: divide by 127": way(
            scale=lambda x: scale_of(x, 128), whole=wrapped
        ),
        "by 128, and held at 127: a largest above 0 is off by a whole scale": way(
            scale=lambda x: scale_of(x, 128), whole=lambda x: x.round().clamp(-128, 127)
        ),
        "by 128, and held at 127 and -127: the largest is off by a whole scale": (
            way(
                scale=lambda x: scale_of(x, 128),
                whole=lambda x: x.round().clamp(-127, 127),
            )
        ),
        "a scale and a zero for each vector: a scale alone is asked for": (
            with_a_zero_point
        ),
        "by 255, but 8 bits go from -128 to 127": way(
            scale=lambda x: scale_of(x, 255), whole=torch.round
        ),
        "by 128, but 8 bits go up to 127": way(
            scale=lambda x: scale_of(x, 128), whole=torch.round
        ),
        # Rounding.
        "cut off up to a whole scale away: round them": way(
            whole=lambda x: x.to(torch.int8)
        ),
        "rounded down: round to the nearest": way(whole=torch.floor),
        # The scale.
        "one scale for all vectors: a large one spoils the small ones": way(
            scale=lambda x: x.abs().max() / 127
        ),
        "a scale for each place: take the largest over the last axis": way(
            scale=lambda x: x.abs().amax(0, keepdim=True) / 127
        ),
        "the largest by sign: take the absolute value first": way(
            scale=lambda x: x.amax(-1, keepdim=True) / 127, whole=wrapped
        ),
        "a lowest number that is the largest is divided by 128: the scale is the"
        " largest absolute value / 127, whatever its sign": way(
            scale=largest_of_both_sides
        ),
        "only -1, 0 and 1 are left: divide the largest by 127": way(
            scale=lambda x: scale_of(x, 1)
        ),
        "these are the integers: multiply by the scale": (
            lambda x: (x / scale_of(x)).round().to(torch.int8)
        ),
        "whole numbers: multiply by the scale": lambda x: (x / scale_of(x)).round(),
        "nothing is rounded: these are the numbers that went in": identity,
    }
    praise = "no number is off by more than half a scale"
    return Exercise(right, cases, mistakes, praise, watched)


class Machine:
    """Rows whose next token depends on all that went in; its passes are counted."""

    def __init__(self, queue: list[tuple], n_rows: int) -> None:
        self.waiting = [*queue]
        self.states: list[int | None] = [None] * n_rows
        self.last: list[int | None] = [None] * n_rows  # each row's last token
        self.left = [0] * n_rows  # tokens that an answer still lacks
        self.passes = 0
        self.in_vain = 0  # tokens for rows whose answer is complete

    def admit(self, prompt: list[int], row: int) -> int:
        """Begins the next prompt in a row. Returns its first token."""
        prompt = token_list(prompt, "admit")
        if not self.waiting or prompt != self.waiting[0][0]:
            raise Mistake(f"{prompt} is admitted out of turn, or twice: keep the order")
        if row not in range(len(self.states)):
            last = len(self.states) - 1
            raise Mistake(
                f"rows are numbered from 0 to {last}: {describe(row)} is none"
            )

        _, n = self.waiting.pop(0)
        self.left[row] = n - 1
        self.states[row] = sum(i * token for i, token in enumerate(prompt, start=3))
        return self.next_token(row)

    def next_token(self, row: int) -> int:
        """A row's next token, which is its new state as well."""
        token = (31 * self.states[row] + 7) % 101
        self.states[row] = token
        self.last[row] = token
        return token

    def step(self, last: list[int | None]) -> list[int | None]:
        """One pass over all rows. Returns a token for each that has brought one."""
        try:
            last = [*last]
        except TypeError:
            raise Mistake(
                f"`step` takes a list, a token for each row, not {describe(last)}"
            ) from None
        if len(last) != len(self.states):
            raise Mistake(f"`step` takes a token for each of {len(self.states)} rows")
        for row, token in enumerate(last):
            if token is None:
                continue
            if token != self.last[row]:
                raise Mistake(f"row {row} gets {token}: its last token is another")
            if self.left[row] <= 0:
                self.in_vain += 1
            self.left[row] -= 1

        self.passes += 1
        if self.passes > 200:
            raise Mistake("after 200 passes it still goes on: who is done?")
        tokens = []
        for row, token in enumerate(last):
            tokens.append(None if token is None else self.next_token(row))
        return tokens


@check
def schedule() -> Exercise:
    """`answer(admit, step, queue, n_rows)`: the answers, and no row empty in vain."""

    def right(
        admit: Callable,
        step: Callable,
        queue: list,
        n_rows: int,
        n_least: int = 1,  # tokens of an answer that is complete with its prompt
        once: bool = False,  # a row asks the queue once a pass
        may_begin: Callable = lambda rows: True,
        is_idle: Callable = lambda rows: rows == [None] * len(rows),
    ) -> list:
        answers = [[] for _ in queue]
        rows = [None] * n_rows  # the number of the answer that each row writes
        begun = 0
        while begun < len(queue) or rows != [None] * n_rows:
            # Free rows take from the queue. An answer of one token is done at once.
            asking = range(n_rows) if may_begin(rows) else []
            for row in asking:
                while rows[row] is None and begun < len(queue):
                    prompt, n = queue[begun]
                    answers[begun].append(admit(prompt, row))
                    if n > n_least:
                        rows[row] = begun
                    begun += 1
                    if once:
                        break
            if is_idle(rows):
                continue

            # One pass for all. A row whose answer is complete becomes free.
            last = [None if i is None else answers[i][-1] for i in rows]
            for row, token in enumerate(step(last)):
                i = rows[row]
                if i is None:
                    continue
                answers[i].append(token)
                if len(answers[i]) >= queue[i][1]:
                    rows[row] = None
        return answers

    way = ways_of(right)

    def one_token_too_many(
        admit: Callable, step: Callable, queue: list, n_rows: int
    ) -> list:
        longer = [(prompt, n + 1) for prompt, n in queue]
        return right(admit, step, longer, n_rows)

    def one_after_the_other(
        admit: Callable, step: Callable, queue: list, n_rows: int
    ) -> list:
        answers = []
        others = [None] * (n_rows - 1)
        for prompt, n in queue:
            tokens = [admit(prompt, 0)]
            while len(tokens) < n:
                tokens.append(step([tokens[-1], *others])[0])
            answers.append(tokens)
        return answers

    def with_prompts(admit: Callable, step: Callable, queue: list, n_rows: int) -> list:
        answers = right(admit, step, queue, n_rows)
        pairs = zip(queue, answers, strict=True)
        return [prompt + tokens for (prompt, _), tokens in pairs]

    def on_a_machine(
        answer: Callable, queue: list[tuple], n_rows: int
    ) -> dict[str, object]:
        machine = Machine(queue, n_rows)
        # A copy, as one may take from a queue what one serves.
        result = answer(machine.admit, machine.step, copy.deepcopy(queue), n_rows)
        if not isinstance(result, list | tuple | Tensor):
            raise Mistake(f"give a list of answers, not {describe(result)}")

        answers = [listed(tokens) for tokens in result]
        lengths = []
        for tokens in answers:
            lengths.append(len(tokens) if hasattr(tokens, "__len__") else 0)
        in_vain = "tokens for rows whose answer is complete, in place of None,"
        return {
            "lengths of the answers": lengths,
            "answers": answers,
            "passes": machine.passes,
            in_vain: machine.in_vain,
        }

    queue = [([3, 1], 4), ([5], 1), ([2, 2], 2), ([9], 3), ([4], 1), ([6], 5), ([8], 3)]
    cases = [
        (queue, 2),
        (queue[1:5], 3),
        (queue, 1),
        ([([7], 1), ([8], 1)], 1),
        ([], 2),
        ([([3], 4)], 1),
        ([([3], 6), ([2], 2)], 2),
        ([([7], 1), ([8], 1), ([9], 1)], 2),
        ([([3], 2), ([2], 4), ([5], 3)], 2),
    ]
    mistakes = {
        "an answer of one token got two: it ended with its prompt": way(n_least=0),
        "the token that `admit` returns counts: n in all": one_token_too_many,
        "rows wait for the slowest: a free row takes the next": way(
            may_begin=lambda rows: rows == [None] * len(rows)
        ),
        "one after the other: a pass is for all rows": one_after_the_other,
        "an answer of one token leaves its row free at once: ask the queue again, with"
        " `while` in place of `if`": way(once=True),
        "a pass for rows that are all free: each answer ended with its prompt": (
            way(is_idle=lambda rows: False)
        ),
        "the first token, which `admit` returns, is missing": (
            lambda *case: [tokens[1:] for tokens in right(*case)]
        ),
        "answers hold their prompts, too: give the new tokens": with_prompts,
    }
    praise = "free rows first, then one pass for all"
    return Exercise(right, cases, mistakes, praise, on_a_machine)
