"""Checks of chapter 10."""

import copy

import torch
from torch import Tensor

from ...model.cache import quantize
from .compare import Mistake, compare, difference, draw
from .sampling import token_list
from .watch import Watch
from .words import describe, listed


def blocks_in_use(answer) -> None:
    """`answer(n_shared, lengths, size)`: blocks of talks that begin alike."""

    def right(n_shared, lengths, size, shared=None):
        shared = n_shared // size if shared is None else shared
        return shared + sum(-(-n // size) - shared for n in lengths)

    def one_more(n_shared, lengths, size):
        shared = n_shared // size
        return shared + sum(n // size + 1 - shared for n in lengths)

    def in_parts(n_shared, lengths, size):
        shared = n_shared / size
        return shared + sum(n / size - shared for n in lengths)

    cases = [(40, [70, 45, 48, 45], 16), (32, [33, 64, 32], 8), (5, [30, 6, 20, 21], 7)]
    praise = "blocks_in_use: full shared blocks once, all others for each talk"
    compare(answer, right, [*cases, (40, [41, 42, 43], 16), (5, [5, 9], 4)], {
        "nothing is shared: full blocks of shared tokens are there once": {"shared": 0},
        "a talk goes on in its own copy of the block that is not full":
            lambda n, all, size: -(-n // size) + sum(-(-(x - n) // size) for x in all),
        "lengths are those of the whole talks, shared tokens included":
            lambda n, lengths, size: right(n, [x + n for x in lengths], size),
        "a block that is not full of shared tokens is shared: each talk writes its own"
        " tokens into it":
            lambda n, lengths, size: right(n, lengths, size, -(-n // size)),
        "the last block of a talk counts, however few tokens it holds":
            lambda n, talks, size: right(n, [x // size * size for x in talks], size),
        "shared tokens that fill no block are missing: each talk keeps its own":
            lambda n, talks, size: right(n, [x - n % size for x in talks], size),
        "a talk that fills its last block needs no further one: n // size + 1 is too"
        " many there": one_more,
        "a block is given out whole: round up": in_parts,
        "the shared blocks are left out: they are in use, once":
            lambda n, lengths, size: right(n, lengths, size) - n // size,
    }, praise)  # fmt: skip


class WatchUse(Watch):
    """Also notes in `used` every tensor that an operation takes."""

    def __init__(self):
        super().__init__()
        self.used: list[Tensor] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.used += [x for x in args if isinstance(x, Tensor)]
        return super().__torch_dispatch__(function, types, args, kwargs)


def int8(answer) -> None:
    """`answer(x)`: x (... d) as it comes back from 8 bits and a scale for each d."""

    def right(x, steps=127, whole=lambda z: z.round().short().char(), of=torch.abs):
        scale = of(x).amax(-1, keepdim=True) / steps
        return whole(x / scale) * scale

    def watched(answer, x):
        with WatchUse() as watch:
            found = answer(x)
        is_right = not difference(found, right(x))
        eight = sum(y.numel() for _, y in watch.made if y.dtype == torch.int8)
        used = sum(y.numel() for y in watch.used if y.dtype == torch.int8)
        if is_right and eight < x.numel() and x.dim() > 1:
            raise Mistake("no integer of 8 bits is made: `.to(torch.int8)`")
        if is_right and used < x.numel() and x.dim() > 1:
            raise Mistake("integers of 8 bits are made, but not used: `.to` gives them")

        half = x.abs().amax(-1, keepdim=True) / 127 / 2
        alike = isinstance(found, Tensor) and found.shape == x.shape
        far = ((found - x).abs() > 1.001 * half).sum().item() if alike else 0
        return {
            "numbers off by more than half a scale": far,
            "int8 times (the largest / 127)": found,
        }

    def by_128_held(x):
        scale = x.abs().amax(-1, keepdim=True) / 128
        return (x / scale).round().clamp(-128, 127) * scale

    def by_128_held_on_both_sides(x):
        scale = x.abs().amax(-1, keepdim=True) / 128
        return (x / scale).round().clamp(-127, 127) * scale

    def with_a_zero_point(x):
        lowest, highest = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        scale = (highest - lowest) / 255
        zero = (-128 - lowest / scale).round()
        return ((x / scale + zero).round().clamp(-128, 127) - zero) * scale

    cases = [(torch.tensor([1.0, -0.4]),), (draw(2, 4, 6, seed=1),)]
    cases += [(draw(3, 5) * torch.tensor([[1.0], [9], [0.1]]),)]
    compare(answer, right, cases, {
        "the largest becomes 128, which wraps to -128: divide by 127": {"steps": 128},
        "by 128, and held at 127: a largest above 0 is off by a whole scale":
            by_128_held,
        "by 128, and held at 127 and -127: the largest is off by a whole scale":
            by_128_held_on_both_sides,
        "a scale and a zero for each vector: a scale alone is asked for":
            with_a_zero_point,
        "by 255, but 8 bits go from -128 to 127": {"steps": 255, "whole": torch.round},
        "by 128, but 8 bits go up to 127": {"steps": 128, "whole": torch.round},
        "cut off up to a whole scale away: round them": {"whole": torch.Tensor.char},
        "rounded down: round to the nearest": {"whole": torch.floor},
        "one scale for all vectors: a large one spoils the small ones":
            lambda x: right(x.flatten()).view(x.shape),
        "a scale for each place: take the largest over the last axis":
            lambda x: right(x.movedim(0, -1)).movedim(-1, 0),
        "the largest by sign: take the absolute value first": {"of": torch.clone},
        "only -1, 0 and 1 are left: divide the largest by 127": {"steps": 1},
        "these are the integers: multiply by the scale": lambda x: quantize(x)[0],
        "whole numbers: multiply by the scale": lambda x: quantize(x)[0].float(),
        "nothing is rounded: these are the numbers that went in": lambda x: x,
    }, "int8: no number is off by more than half a scale", watched)  # fmt: skip


class Machine:
    """Rows whose next token depends on all that went in; its passes are counted."""

    def __init__(self, queue: list, n_rows: int):
        self.rows, self.last, self.passes = [None] * n_rows, [None] * n_rows, 0
        self.left = [0] * n_rows  # tokens that an answer still lacks
        self.in_vain = 0  # tokens for rows whose answer is complete
        self.waiting = [*queue]

    def admit(self, prompt, row):
        prompt = token_list(prompt, "admit")
        if not self.waiting or prompt != self.waiting[0][0]:
            raise Mistake(f"{prompt} is admitted out of turn, or twice: keep the order")
        if row not in range(len(self.rows)):
            last = len(self.rows) - 1
            raise Mistake(
                f"rows are numbered from 0 to {last}: {describe(row)} is none"
            )
        _, n = self.waiting.pop(0)
        self.left[row] = n - 1
        self.rows[row] = sum(i * x for i, x in enumerate(prompt, 3))
        return self.token(row)

    def token(self, row):
        self.last[row] = self.rows[row] = (31 * self.rows[row] + 7) % 101
        return self.last[row]

    def step(self, last):
        try:
            last = [*last]
        except TypeError:
            said = f"`step` takes a list, a token for each row, not {describe(last)}"
            raise Mistake(said) from None
        if len(last) != len(self.rows):
            raise Mistake(f"`step` takes a token for each of {len(self.rows)} rows")
        for row, token in enumerate(last):
            if token is None:
                continue
            if token != self.last[row]:
                raise Mistake(f"row {row} gets {token}: its last token is another")
            self.in_vain += self.left[row] <= 0
            self.left[row] -= 1
        self.passes += 1
        if self.passes > 200:
            raise Mistake("after 200 passes it still goes on: who is done?")
        return [None if x is None else self.token(i) for i, x in enumerate(last)]


def schedule(answer) -> None:
    """`answer(admit, step, queue, n_rows)`: the answers, and no row empty in vain."""

    def on_a_machine(answer, queue, n_rows):
        machine = Machine(queue, n_rows)
        # A copy, as one may take from a queue what one serves.
        found = answer(machine.admit, machine.step, copy.deepcopy(queue), n_rows)
        if not isinstance(found, list | tuple | Tensor):
            raise Mistake(f"give a list of answers, not {describe(found)}")
        answers = [listed(one) for one in found]
        return {
            "lengths of the answers": [
                len(one) if hasattr(one, "__len__") else 0 for one in answers
            ],
            "answers": answers,
            "passes": machine.passes,
            "tokens for rows whose answer is complete, in place of None,": (
                machine.in_vain
            ),
        }

    def right(admit, step, queue, n_rows, least=1, together=False, late=False, over=0):
        answers, rows, todo = [[] for _ in queue], [None] * n_rows, [*enumerate(queue)]
        while todo or any(i is not None for i in rows):
            free = [row for row in range(n_rows) if rows[row] is None]
            for row in free if not together or len(free) == n_rows else []:
                while rows[row] is None and todo:
                    i, (prompt, n) = todo.pop(0)
                    answers[i].append(admit(prompt, row))
                    rows[row] = i if n > least else None
                    if late:
                        break
            if all(i is None for i in rows):
                continue
            new = step([None if i is None else answers[i][-1] for i in rows])
            for row, i in enumerate(rows):
                if i is not None:
                    answers[i].append(new[row])
                    if len(answers[i]) >= queue[i][1] + over:
                        rows[row] = None
        return answers

    queue = [([3, 1], 4), ([5], 1), ([2, 2], 2), ([9], 3), ([4], 1), ([6], 5), ([8], 3)]
    cases = [(queue, 2), (queue[1:5], 3), (queue, 1), ([([7], 1), ([8], 1)], 1)]
    cases += [([], 2), ([([3], 4)], 1), ([([3], 6), ([2], 2)], 2)]
    compare(answer, right, cases, {
        "an answer of one token got two: it ended with its prompt": {"least": 0},
        "the token that `admit` returns counts: n in all": {"least": 0, "over": 1},
        "rows wait for the slowest: a free row takes the next": {"together": True},
        "one after the other: a pass is for all rows":
            lambda *c: right(c[0], lambda x: c[1](x + [None] * (c[3] - 1)), c[2], 1),
        "an answer of one token leaves its row free at once: ask the queue again, with"
        " `while` in place of `if`": {"late": True},
        "the first token, which `admit` returns, is missing":
            lambda *case: [x[1:] for x in right(*case)],
        "answers hold their prompts, too: give the new tokens":
            lambda *c: [q[0] + x for q, x in zip(c[2], right(*c), strict=True)],
    }, "schedule: free rows first, then one pass for all", on_a_machine)  # fmt: skip
