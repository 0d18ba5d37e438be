"""Checks of chapter 10, the loop that serves a queue."""

import functools

from .compare import Mistake, compare


class Machine:
    """Rows whose next token depends on all that went in; its passes are counted."""

    def __init__(self, queue: list, n_rows: int):
        self.rows, self.last, self.passes = [None] * n_rows, [None] * n_rows, 0
        self.waiting = [prompt for prompt, _ in queue]

    def admit(self, prompt, row):
        if not self.waiting or prompt != self.waiting.pop(0):
            raise Mistake(
                f"schedule: {prompt} is admitted out of turn: the queue is served in"
                " order, each request once"
            )
        self.rows[row] = sum(i * x for i, x in enumerate(prompt, 3))
        return self.token(row)

    def token(self, row):
        self.last[row] = self.rows[row] = (31 * self.rows[row] + 7) % 101
        return self.last[row]

    def step(self, last):
        if len(last) != len(self.rows):
            raise Mistake(
                f"schedule: `step` takes a token for each of {len(self.rows)} rows"
            )
        for row, token in enumerate(last):
            if token is not None and token != self.last[row]:
                raise Mistake(
                    f"schedule: row {row} gets {token}: its last token is another"
                )
        self.passes += 1
        if self.passes > 200:
            raise Mistake("schedule: after 200 passes it still goes on: who is done?")
        return [None if x is None else self.token(i) for i, x in enumerate(last)]


def schedule(answer) -> None:
    """`answer(admit, step, queue, n_rows)`: the answers, and no row empty in vain."""

    def on_a_machine(loop):
        def run(queue, n_rows):
            machine = Machine(queue, n_rows)
            found = loop(machine.admit, machine.step, queue, n_rows)
            return [found, f"{machine.passes} passes"]

        return run

    def right(admit, step, queue, n_rows, least=1, together=False, late=False):
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
                    if len(answers[i]) >= queue[i][1]:
                        rows[row] = None
        return answers

    def other(**changed):
        return on_a_machine(functools.partial(right, **changed))

    def changed(change):
        return on_a_machine(lambda *case: change(right(*case)))

    queue = [
        ([3, 1], 4),
        ([5], 1),
        ([2, 2], 2),
        ([9], 3),
        ([4], 1),
        ([6, 1], 5),
        ([8], 3),
    ]
    compare(
        on_a_machine(answer) if callable(answer) else answer,
        on_a_machine(right),
        [
            (queue, 2),
            (queue[1:5], 3),
            (queue, 1),
            ([([7], 1), ([8], 1)], 1),
            ([], 2),
            ([([3], 4)], 1),
            ([([3], 6), ([2], 2)], 2),
        ],
        {
            "an answer of one token got two: it has ended with its prompt's pass": (
                other(least=0)
            ),
            "rows wait for the slowest: a free row takes the next before each pass": (
                other(together=True)
            ),
            "an answer of one token leaves its row free at once: ask the queue again,"
            " with `while` in place of `if`": other(late=True),
            "the first token, which `admit` returns, is missing": (
                changed(lambda answers: [x[1:] for x in answers])
            ),
            "answers hold their prompts, too: give the new tokens": on_a_machine(
                lambda admit, step, queue, n: [
                    [*prompt, *x]
                    for (prompt, _), x in zip(
                        queue, right(admit, step, queue, n), strict=True
                    )
                ]
            ),
        },
        "schedule: free rows first, then one pass for all",
    )
