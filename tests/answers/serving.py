"""Right and wrong answers to the exercises of chapter 10."""

from collections import deque

import numpy as np
import torch

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


@wrong(checks.pages_in_use, "its own copy of the page")
def natural_pages(n_shared, lengths, size):
    rest = sum(-(-(n - n_shared) // size) for n in lengths)
    return -(-n_shared // size) + rest


def right_int8(x, to=torch.int8):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(to) * scale


@wrong(checks.int8, "wraps to -128")
def by_128(x):
    scale = x.abs().amax(-1, keepdim=True) / 128
    return (x / scale).round().short().to(torch.int8) * scale


@wrong(checks.int8, "8 bits go up to 127")
def by_128_in_floats(x):
    scale = x.abs().amax(-1, keepdim=True) / 128
    return (x / scale).round() * scale


@wrong(checks.int8, "`torch.uint8` has no negative numbers")
def by_way_of_bytes(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(torch.uint8).to(torch.int8) * scale


@wrong(checks.int8, "no integer of 8 bits")
def with_a_decoy(x):
    torch.zeros(1, dtype=torch.int8)
    return right_int8(x, x.dtype)


def vector_by_vector(x):
    vectors = [right_int8(vector) for vector in x.reshape(-1, x.shape[-1])]
    return torch.stack(vectors).view(x.shape)


@wrong(checks.int8, "round to the nearest")
def down(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).floor().to(torch.int8) * scale


@wrong(checks.int8, "over the last axis")
def of_the_first_axis(x):
    scale = x.abs().amax(0) / 127
    return (x / scale).round().to(torch.int8) * scale


@wrong(checks.int8, "by 255, but 8 bits go from -128 to 127")
def by_255(x):
    scale = x.abs().amax(-1, keepdim=True) / 255
    return (x / scale).round() * scale


@wrong(checks.int8, "round them")
def cut_off(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).to(torch.int8) * scale


@wrong(checks.int8, "only -1, 0 and 1")
def by_the_largest(x):
    scale = x.abs().amax(-1, keepdim=True)
    return (x / scale).round() * scale


@wrong(checks.int8, "absolute value first")
def by_sign(x):
    scale = x.amax(-1, keepdim=True) / 127
    return (x / scale).round().short().to(torch.int8) * scale


@wrong(checks.int8, "one scale for all")
def one_scale(x):
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


@wrong(checks.int8, "whole numbers: multiply by the scale")
def integers(x):
    return (x / x.abs().amax(-1, keepdim=True) * 127).round()


def right_pages(n_shared, lengths, size):
    """Every page by its number: shared ones are the same in all talks."""
    pages = set()
    for talk, n in enumerate(lengths):
        for start in range(0, n, size):
            common = start + size <= n_shared
            pages.add((None if common else talk, start))
    return len(pages)


@wrong(checks.pages_in_use, "writes its own tokens into it")
def shared_too_far(n_shared, lengths, size):
    pages = set()
    for talk, n in enumerate(lengths):
        for start in range(0, n, size):
            pages.add((None if start < n_shared else talk, start))
    return len(pages)


def serve(least=1, together=False, again=True, skip_first=False, over=0):
    """A loop over the states of rows, with the faults that are asked for."""

    def loop(admit, step, queue, n_rows):
        answers = {}
        waiting = list(range(len(queue)))
        states = {row: None for row in range(n_rows)}
        while waiting or any(x is not None for x in states.values()):
            empty = [row for row, i in states.items() if i is None]
            if not together or len(empty) == n_rows:
                for row in reversed(empty):
                    while waiting and states[row] is None:
                        i = waiting.pop(0)
                        prompt, n = queue[i]
                        first = admit(prompt, row)
                        answers[i] = [first]
                        states[row] = i if n > least else None
                        if not again:
                            break
            if all(x is None for x in states.values()):
                continue
            last = [
                answers[i][-1] if (i := states[row]) is not None else None
                for row in range(n_rows)
            ]
            for row, token in enumerate(step(last)):
                if token is None:
                    continue
                i = states[row]
                answers[i].append(token)
                if len(answers[i]) >= queue[i][1] + over:
                    states[row] = None
        return [answers[i][int(skip_first) :] for i in range(len(queue))]

    return loop


@wrong(checks.schedule, "hold their prompts")
def with_prompts(admit, step, queue, n_rows):
    answers = serve()(admit, step, queue, n_rows)
    return [prompt + x for (prompt, _), x in zip(queue, answers, strict=True)]


@wrong(checks.schedule, "one after the other")
def one_by_one(admit, step, queue, n_rows):
    answers = []
    for prompt, n in queue:
        answers.append([admit(prompt, 0)])
        while len(answers[-1]) < n:
            last = [answers[-1][-1]] + [None] * (n_rows - 1)
            answers[-1].append(step(last)[0])
    return answers


@wrong(checks.schedule, "a token for each of 2 rows")
def too_short(admit, step, queue, n_rows):
    admit(queue[0][0], 0)
    return step([None])


@wrong(checks.schedule, r"answers\[0\] it gives 1, wanted 4")
def first_tokens(admit, step, queue, n_rows):
    return [[admit(prompt, i % n_rows)] for i, (prompt, _) in enumerate(queue)]


def lazily(admit, step, queue, n_rows):
    return (torch.tensor(each) for each in serve()(admit, step, queue, n_rows))


@wrong(checks.schedule, "its last token is another")
def stale(admit, step, queue, n_rows):
    return [step([0] * n_rows) for prompt, _ in queue if admit(prompt, 0)]


def in_another_order(key):
    """The shortest, or the newest, is served first."""

    def loop(admit, step, queue, n_rows):
        order = sorted(range(len(queue)), key=lambda i: key(i, queue[i][1]))
        answers = serve()(admit, step, [queue[i] for i in order], n_rows)
        return [answers[order.index(i)] for i in range(len(queue))]

    return loop


@wrong(checks.schedule, "passes .* 8, wanted 7")
def late(admit, step, queue, n_rows):
    """A row that becomes free rests for a pass."""
    answers = [[] for _ in queue]
    rows = [None] * n_rows
    resting = [False] * n_rows
    begun = 0
    while begun < len(queue) or rows != [None] * n_rows:
        for row in range(n_rows):
            while rows[row] is None and not resting[row] and begun < len(queue):
                prompt, n = queue[begun]
                answers[begun].append(admit(prompt, row))
                rows[row] = begun if n > 1 else None
                begun += 1
        resting = [False] * n_rows
        if rows == [None] * n_rows:
            continue
        new = step([None if i is None else answers[i][-1] for i in rows])
        for row, i in enumerate(rows):
            if i is not None:
                answers[i].append(new[row])
                if len(answers[i]) == queue[i][1]:
                    rows[row] = None
                    resting[row] = True
    return answers


@wrong(checks.schedule, "who is done")
def endless(admit, step, queue, n_rows):
    while True:
        step([None] * n_rows)


def ranged_pages(n_shared, lengths, size):
    full = n_shared // size
    return full + sum(len(range(full * size, n, size)) for n in lengths)


def recursive_pages(n_shared, lengths, size):
    full = n_shared // size
    if not lengths:
        return full
    return recursive_pages(n_shared, lengths[1:], size) + -(-lengths[0] // size) - full


def int8_in_place(x):
    """In place, but in tensors of its own."""
    numbers = torch.empty_like(x, dtype=torch.int8)
    scale = x.abs().amax(-1) / 127
    numbers[...] = x.div(scale[..., None]).round_()
    return torch.einsum("...d,...->...d", numbers.float(), scale)


def int8_by_numpy(x):
    scale = np.abs(x.numpy()).max(-1, keepdims=True) / 127
    numbers = torch.from_numpy(np.rint(x.numpy() / scale).astype(np.int8))
    return numbers * torch.from_numpy(scale)


def int8_held(low, high, steps):
    def answer(x):
        scale = x.abs().amax(-1, keepdim=True) / steps
        return (x / scale).round().clamp(low, high).to(torch.int8) * scale

    return answer


@wrong(checks.int8, "are made, but not used")
def not_assigned(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    numbers = (x / scale).round()
    numbers.to(torch.int8)
    return numbers * scale


@wrong(checks.int8, "a scale alone is asked for")
def from_lowest_to_highest(x):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    scale = (high - low) / 255
    zero = (-128 - low / scale).round()
    return ((x / scale + zero).round().clamp(-128, 127).to(torch.int8) - zero) * scale


def taken_from(make_queue, take):
    """Serves what it takes from a queue, and appends to the prompts it was given."""

    def loop(admit, step, queue, n_rows):
        waiting = make_queue(queue)
        answers = []
        rows = {}
        while waiting or rows:
            for row in range(n_rows):
                while row not in rows and waiting:
                    prompt, n = take(waiting)
                    begin = len(prompt)
                    prompt.append(admit(prompt, row))
                    answers.append((prompt, begin))
                    if n > 1:
                        rows[row] = prompt, begin + n
            if not rows:
                break
            last = (rows[i][0][-1] if i in rows else None for i in range(n_rows))
            new = step(last)
            for row in list(rows):
                text, end = rows[row]
                text.append(new[row])
                if len(text) == end:
                    del rows[row]
        return [text[begin:] for text, begin in answers]

    return loop


def passed_on(new_admit=None, new_step=None):
    """The right loop, with something between it and the machine."""

    def loop(admit, step, queue, n_rows):
        through = new_admit or (lambda admit, prompt, row: admit(prompt, row))
        other = new_step or (lambda step, last: step(last))
        return serve()(
            lambda prompt, row: through(admit, prompt, row),
            lambda last: other(step, last),
            queue,
            n_rows,
        )

    return loop


@wrong(checks.schedule, "tokens for rows whose answer is complete")
def never_none(admit, step, queue, n_rows):
    """A row whose answer is complete goes on, with its last token."""
    newest = [None] * n_rows

    def begin(prompt, row):
        newest[row] = admit(prompt, row)
        return newest[row]

    def go_on(last):
        newest[:] = step(newest)
        return [None if x is None else new for x, new in zip(last, newest, strict=True)]

    return serve()(begin, go_on, queue, n_rows)


@wrong(checks.int8, "largest absolute value / 127, whatever its sign")
def either_side(x):
    highest = x.amax(-1, keepdim=True).clamp(min=0) / 127
    lowest = x.amin(-1, keepdim=True).clamp(max=0) / -128
    scale = torch.maximum(highest, lowest)
    return (x / scale).round().to(torch.int8) * scale


@wrong(checks.schedule, "a pass for rows that are all free")
def one_pass_in_vain(admit, step, queue, n_rows):
    answers = serve()(admit, step, queue, n_rows)
    if queue and max(n for _, n in queue) == 1:
        step([None] * n_rows)
    return answers


RIGHT = [
    (checks.schedule, taken_from(lambda queue: queue, lambda queue: queue.pop(0))),
    (checks.schedule, taken_from(deque, deque.popleft)),
    (checks.schedule, passed_on(lambda admit, prompt, row: admit((*prompt,), row))),
    (checks.schedule, lambda *case: map(iter, serve()(*case))),
    (checks.schedule, lambda *case: [map(int, answer) for answer in serve()(*case)]),
    (checks.schedule, lambda *case: [np.array(answer) for answer in serve()(*case)]),
    (checks.int8, int8_in_place),
    (checks.int8, int8_by_numpy),
    (checks.int8, int8_held(-127, 127, 127)),
    (checks.pages_in_use, ranged_pages),
    (checks.pages_in_use, recursive_pages),
    (
        checks.pages_in_use,
        lambda n, talks, size: (
            n // size + np.sum(np.ceil(np.array(talks) / size) - n // size)
        ),
    ),
    (checks.schedule, serve()),
    (checks.schedule, lazily),
    (checks.int8, right_int8),
    (checks.int8, vector_by_vector),
    (checks.int8, lambda x: right_int8(x.double())),
    (checks.pages_in_use, right_pages),
    (checks.pages_in_use, lambda *case: torch.tensor(right_pages(*case))),
    (checks.pages_in_use, lambda *case: float(right_pages(*case))),
]
WRONG = [
    *wrong,
    (
        checks.schedule,
        passed_on(lambda admit, prompt, row: admit(prompt, row + 1)),
        "rows are numbered from 0 to 1: 2 is none",
    ),
    (
        checks.schedule,
        passed_on(lambda admit, prompt, row: admit(row, prompt)),
        "`admit` takes a list of tokens, not 1",
    ),
    (
        checks.schedule,
        passed_on(None, lambda step, last: step(last[0])),
        "`step` takes a list, a token for each row, not ",
    ),
    (
        checks.schedule,
        lambda *case: dict(enumerate(serve()(*case))),
        "give a list of answers, not {",
    ),
    (
        checks.int8,
        int8_held(-128, 127, 128),
        "a largest above 0 is off by a whole scale",
    ),
    (checks.int8, int8_held(-127, 127, 128), "the largest is off by a whole scale"),
    (checks.int8, int8_held(-128, 127, 64), "off by more than half a scale it gives 1"),
    (
        checks.int8,
        int8_held(-128, 127, 126),
        r"times \(the largest / 127\)\[1\] it gives",
    ),
    (
        checks.pages_in_use,
        lambda n, talks, size: (
            n // size + sum(x // size + 1 - n // size for x in talks)
        ),
        "needs no further one",
    ),
    (
        checks.pages_in_use,
        lambda n, talks, size: n / size + sum((x - n) / size for x in talks),
        "a page is given out whole",
    ),
    (
        checks.pages_in_use,
        lambda n, talks, size: sum(-(-x // size) for x in talks) / len(5),
        r"TypeError: object of type 'int' has no len\(\)$",
    ),
    (checks.schedule, serve(least=0), "one token got two"),
    (checks.schedule, serve(together=True), "wait for the slowest"),
    (checks.schedule, serve(again=False), "`while` in place of `if`"),
    (checks.schedule, serve(skip_first=True), "which `admit` returns, is missing"),
    (checks.schedule, serve(least=0, over=1), "n in all"),
    (
        checks.schedule,
        lambda *case: serve()(*case)[1:],
        "lengths of the answers it gives .*, 6 things, wanted 7",
    ),
    (checks.schedule, in_another_order(lambda i, n: n), "out of turn"),
    (checks.schedule, in_another_order(lambda i, n: -i), "out of turn"),
    (
        checks.pages_in_use,
        lambda n, lengths, size: right_pages(n, [x + n for x in lengths], size),
        "shared tokens included",
    ),
    (checks.int8, lambda x: right_int8(x, x.dtype), "no integer of 8 bits"),
    (checks.int8, lambda x: right_int8(x, torch.int16), "no integer of 8 bits"),
    (
        checks.int8,
        lambda x: integers(x).to(torch.int8),
        "these are the integers: multiply by the",
    ),
    (checks.int8, lambda x: x.clone(), "nothing is rounded"),
    (
        checks.pages_in_use,
        lambda n, lengths, size: sum(-(-x // size) for x in lengths),
        "nothing is shared",
    ),
    (
        checks.pages_in_use,
        lambda n, lengths, size: right_pages(n, lengths, size) - n // size,
        "in use, once",
    ),
    (
        checks.pages_in_use,
        lambda n, lengths, size: right_pages(n, [max(lengths)], size),
        "wanted",
    ),
    (
        checks.pages_in_use,
        lambda n, talks, size: n // size + sum(-(-(x - n) // size) for x in talks),
        "fill no page are missing",
    ),
]
