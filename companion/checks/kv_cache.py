"""Checks of chapter 07."""

from contextlib import redirect_stdout

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .compare import Mistake, compare, draw


def text_cost(answer) -> None:
    """`answer(n_tokens, d_model)`: one layer's operations, all tokens one by one."""

    def total(begin=1, end=1, weights=24, keys=4, p=0, q=1, once=0, every=0, less=0):
        return lambda n, d: sum(
            i**p * (weights * d**2 / n**once + keys * n**every * (i - less) ** q * d)
            for i in range(begin, n + end)
        )

    mistakes = {
        "a step sees its own key too: the first sees one": total(0, 0),
        "one step too many: n runs from 1 to n_tokens": total(0),
        "the last step is missing: `range` stops before its end": total(1, 0),
        "every step sees n keys here: the first sees one": total(q=0, every=1),
        "this is the last step alone: add up": lambda n, d: 24 * d**2 + 4 * n * d,
        "this is without a cache: with one, a step computes one token": total(p=1),
        "the weights alone: a step looks at n keys and values too": total(keys=0),
        "24 for the weights: an addition for each product there too": total(weights=12),
        "half of it: multiplication and addition are two": total(1, 1, 12, 2),
        "a step takes 4 n d_model: for n keys and n values": total(keys=2),
        "the weights come once: each step takes them": total(once=1),
        "n is squared: a step takes 4 n d_model, the sum does the rest": total(q=2),
        "1 + 2 + ... + n is n (n + 1) / 2, not n² / 2": total(less=0.5),
    }
    praise = "text_cost: a triangle is left: 2 n (n + 1) d_model beside 24 n d_model²"
    compare(answer, total(), [(1, 8), (3, 16), (10, 64)], mistakes, praise)


def in_place(answer) -> None:
    """`answer(room, n_used, new)`: writes new (b h t d), gives all that is used."""

    class Copies(TorchDispatchMode):
        n = 0  # the numbers that are copied into a tensor

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            self.n += function._opname in ("copy_", "clone", "cat") and made.numel()
            return made

    def append(room, n_used, new):
        room = room.clone()
        try:
            with Copies() as copies:
                kept = answer(room, n_used, new)
        except RuntimeError as error:
            if type(error) is NotImplementedError:
                raise
            said = "`new` may hold several tokens, along the last axis but one: slice"
            raise Mistake(f"in_place: {said} there ({str(error)[:99]})") from None
        if isinstance(kept, Tensor) and not {kept, kept._base} & {room, new}:
            raise Mistake("in_place: a copy: write into `room` and give a slice of it")
        if copies.n > 2 * new.numel():  # room for a copy of the new ones
            raise Mistake("in_place: what is kept is copied: write `new` alone")
        return kept

    def write(begin=0, end=lambda n, t, s: n + t, n_new=None, add=0):
        def append(room, n_used, new):
            first, t, room = n_used + begin, new.shape[-2], room.clone()
            places = room[..., first : first + t, :][..., :n_new, :]
            places.copy_(new[..., :n_new, :] + add * places)
            return room[..., : end(n_used, t, room.shape[-2]), :]

        return append

    def hold(sizes, mistakes):
        cases = [(draw(*room), n, draw(*new, seed=1)) for room, n, new in sizes]
        run = append if callable(answer) else answer
        compare(run, write(), cases, mistakes, "in_place: nothing kept is copied")

    words = {
        "one too early: 3 are used, at 0 to 2, so the next is 3": write(-1),
        "one too late: places count from 0": write(1, lambda n, t, s: n + t + 1),
        "the whole room: its end holds no tokens": write(0, lambda n, t, s: s),
        "the new ones are missing in what it gives": write(0, lambda n, t, s: n),
        "only one token: `new` may hold several": write(0, lambda n, *_: n + 1, 1),
        "the places hold anything: write `new`, do not add it": write(add=1),
        "the new ones alone: give all that is kept": lambda room, n_used, new: new,
    }
    with redirect_stdout(None):
        hold([((2, 3, 8, 4), 3, (2, 3, 2, 4)), ((1, 2, 9, 6), 4, (1, 2, 3, 6))], words)
    hold([((1, 2, 9, 6), 0, (1, 2, 3, 6)), ((3, 1, 7, 2), 5, (3, 1, 2, 2))], {})


def place(answer) -> None:
    """`answer(n_kept, n_new, width)`: positions (t) and mask (t s) of new tokens."""

    def sees(first=1, late=0, triangle=1, window=1, ahead=0, back=0, give=lambda *x: x):
        def found(n, n_new, width):
            at, keys = torch.arange(n_new), torch.arange(n + n_new)
            d = at[:, None] - keys  # how far the key lies before, but for the kept ones
            mask = (d + triangle * n >= -ahead) & (d + window * n < width + back)
            return give(first * n + at + late, mask)

        return found

    def masks(by):
        return sees(give=lambda at, mask: (at, by(mask)))

    mistakes = {
        "the first new position is n_kept, not 0": sees(first=0),
        "the first new position is n_kept: they count from 0": sees(late=1),
        "new tokens stand after the kept: all begins at 0 here": sees(0, 0, 0, 0),
        "the triangle is not moved: n_kept keys come before": sees(1, 0, 0, 0),
        "the triangle is not moved, only the window is": sees(triangle=0),
        "the window is not moved, only the triangle is": sees(window=0),
        "a new token sees those after it": sees(ahead=99),
        "it sees those after it, too": lambda n, t, w: sees(ahead=w - 1)(n, t, w),
        "there is no window: a token sees `width` keys at most": sees(back=99),
        "one too many: the token itself is among the `width`": sees(back=1),
        "one too few: with itself a token sees `width`": sees(back=-1),
        "a token does not see itself": sees(ahead=-1),
        "a square mask: kept keys have columns, too": masks(lambda m: m[:, -len(m) :]),
        "True means may see, not hidden": masks(torch.logical_not),
        "rows are new tokens, columns are keys": masks(lambda m: m.mT),
        "the mask holds True and False, not numbers": masks(Tensor.float),
        "one window for all: each token needs its own": masks(lambda m: m & m[-1]),
        "the first one's window for all: it moves": masks(lambda m: m.cumsum(0) > 0),
        "positions first, then the mask": sees(give=lambda at, m: (m, at)),
        "the keys' positions": sees(give=lambda _, m: (torch.arange(len(m.T)), m)),
    }
    cases = [(5, 3, 4), (0, 4, 2), (2, 5, 3), (6, 1, 3), (3, 2, 9)]
    compare(answer, sees(), cases, mistakes, "place: n_kept moves both")


def talk(answer) -> None:
    """`answer(step, questions, n_new)`: the answers, all in one text and one cache."""

    def plain(x):
        x = x.tolist() if isinstance(x, Tensor) else x
        return [plain(part) for part in x] if isinstance(x, list | tuple) else x

    def traced(function):
        def run(tokens, n_new):
            handed, states = [], {None: []}

            def step(new, kept):
                if not isinstance(new, list | tuple):
                    raise Mistake(f"talk: `step` takes a list: [{new}], not {new}")
                if isinstance(kept, list | dict) or kept not in states:
                    raise Mistake("talk: hand back what `step` kept, at first None")
                handed.extend(new)
                states[kept := object()] = seen = [*states[kept], *new]
                return sum(i * x for i, x in enumerate(seen, 2)) % 89, kept

            written = plain(function(step, tokens, n_new))
            return None if written is None else (handed, written)

        return run if callable(function) else function

    def talks(n_old=1, keep=True, turn=1, flush=False, shape=list, newest=1, hold=True):
        def write(step, questions, n_new):
            text, kept, answers = [], None, []
            for question in questions:
                pieces = text[max(0, len(text) - (n_old or n_new)) :], question
                new, kept = sum(pieces[::turn], []), kept if keep else None
                text += question
                for _ in range(n_new):
                    token, after = step(new, kept)
                    text += [token]
                    new, kept = text[-newest:], after if hold else None
                answers.append(text[-n_new:])
            return shape([answers, flush and step(new, kept)][0])

        return write

    mistakes = {
        "an answer's last token never goes in: put it before the question": talks(-1),
        "each question begins with nothing kept: it is one text": talks(-1, False),
        "the text goes in again: only an answer's end is not kept yet": talks(99),
        "the whole answer goes in again: all but its end is kept": talks(0),
        "all kept is handed over again: only the newest is new": talks(99, newest=99),
        "what is kept is thrown away: hand it to the next call": talks(hold=False),
        "nothing is kept between questions: it is right, and less saved": talks(99, 0),
        "an answer's last token comes before the next question": talks(turn=-1),
        "the very last token goes in too: no step needs it": talks(flush=True),
        "the answers are joined: a list for each": talks(shape=lambda x: sum(x, [])),
        "one list for all: begin it anew": talks(shape=lambda x: [sum(x, [])] * len(x)),
    }
    cases = [([[3, 1, 4], [1, 5]], 2), ([[9], [2, 6], [5, 3, 5]], 3), ([[8], [4]], 1)]
    wrong = {words: traced(mistake) for words, mistake in mistakes.items()}
    praise = "talk: a conversation is one text, cut into pieces"
    try:
        compare(traced(answer), traced(talks()), cases, wrong, praise)
    except Mistake as mistake:
        said = str(mistake).replace("for tokens =", "for questions =")
        for at, what in (": at [0]", "handed to `step`"), (": at [1]", "returned"):
            said = said.replace(f"{at} it", f": {what}: it")
            said = said.replace(f"{at}[", f": {what}: at [")
        raise Mistake(said) from None
