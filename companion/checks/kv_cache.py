"""Checks of chapter 07."""

from contextlib import redirect_stdout

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

    compare(
        answer,
        total(),
        [(1, 8), (3, 16), (10, 64)],
        {
            "a step sees its own key too: the first sees one": total(0, 0),
            "one step too many: n runs from 1 to n_tokens": total(0),
            "the last step is missing: `range` stops before its end": total(1, 0),
            "every step sees n keys here: the first sees one": total(q=0, every=1),
            "this is the last step alone: add up": lambda n, d: 24 * d**2 + 4 * n * d,
            "this is without a cache: with one, a step computes one token": total(p=1),
            "the weights alone: a step looks at n keys and values too": total(keys=0),
            "half of it: multiplication and addition are two": total(1, 1, 12, 2),
            "a step takes 4 n d_model: for n keys and n values": total(keys=2),
            "the weights come once: each step takes them": total(once=1),
            "n is squared: a step takes 4 n d_model, the sum does the rest": total(q=2),
            "1 + 2 + ... + n is n (n + 1) / 2, not n² / 2": total(less=0.5),
        },
        "text_cost: a triangle is left: 2 n (n + 1) d_model beside 24 n d_model²",
    )


def in_place(answer) -> None:
    """`answer(room, n_used, new)`: writes new (b h t d), gives all that is used."""

    class Copies(TorchDispatchMode):
        n = 0  # the numbers that are copied into a tensor

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.n += args[0].numel() if function._opname == "copy_" else 0
            return function(*args, **(kwargs or {}))

    def append(room, n_used, new):
        room = room.clone()
        try:
            with Copies() as copies:
                kept = answer(room, n_used, new)
        except RuntimeError as error:
            if type(error) is NotImplementedError:
                raise
            said = "`new` may hold several tokens, along the last axis but one"
            raise Mistake(f"in_place: {said} ({str(error)[:99]})") from None
        if isinstance(kept, Tensor) and not {kept, kept._base} & {room, new}:
            raise Mistake("in_place: a copy: write into `room` and give a slice of it")
        if copies.n > new.numel():
            raise Mistake("in_place: what is kept is written again: write `new` alone")
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
        praise = "in_place: nothing that is kept is copied"
        compare(run, write(), cases, mistakes, praise)

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


def compare_steps(answer, right, tokens, cases, mistakes, praise) -> None:
    """`compare` for loops, by what goes to `step` and what they give for `tokens`."""
    name = praise.partition(":")[0]

    def plain(x):
        x = x.tolist() if isinstance(x, Tensor) else x
        return [plain(part) for part in x] if isinstance(x, list | tuple) else x

    def traced(function):
        def run(tokens, n_new):
            handed, states = [], {None: []}

            def step(new, kept):
                if not isinstance(new, list | tuple):
                    raise Mistake(f"{name}: `step` takes a list: [{new}], not {new}")
                if isinstance(kept, list | dict) or kept not in states:
                    raise Mistake(f"{name}: hand back what `step` kept, at first None")
                handed.extend(new)
                seen, kept = [*states[kept], *new], object()
                states[kept] = seen
                return sum(i * x for i, x in enumerate(seen, 2)) % 89, kept

            written = plain(function(step, tokens, n_new))
            return None if written is None else (handed if n_new else [], written)

        return run if callable(function) else function

    mistakes = {words: traced(wrong) for words, wrong in mistakes.items()}
    try:
        compare(traced(answer), traced(right), cases, mistakes, praise)
    except Mistake as mistake:
        said = str(mistake).replace("for tokens =", f"for {tokens} =")
        for place, what in (": at [0]", "handed to `step`"), (": at [1]", "returned"):
            said = said.replace(f"{place} it", f": {what}: it")
            said = said.replace(f"{place}[", f": {what}: at [")
        raise Mistake(said) from None


def loop(answer) -> None:
    """`answer(step, prompt, n_new)`: the new tokens; each token is handed over once."""

    def writes(new=slice, keep="last", twice=0, extra=0, least=0, cut=slice):
        def write(step, prompt, n_new):
            text, kept, n_new = [*prompt], None, max(n_new, least)
            for i in range(-twice, n_new + extra):
                first = len(text) - 1 if i + twice else 0
                token, after = step(text[new(first, len(text))], kept)
                text += [token] * (i >= 0)
                kept = {"last": after, "first": kept or after, "no": None}[keep]
            return text[cut(len(prompt), len(prompt) + n_new)]

        return write

    def whole(begin, end):
        return slice(end)

    mistakes = {
        "what is kept is handed over again: only the newest is new": writes(whole),
        "nothing is kept: right tokens, and nothing is saved": writes(whole, "no"),
        "what is kept is thrown away: hand it to the next call": writes(keep="no"),
        "what is kept stays that of the first call": writes(keep="first"),
        "the model never saw the prompt": writes(lambda b, e: slice(e - 1, e)),
        "the prompt's end goes in twice: its call gives a token": writes(twice=1),
        "one call too many: no step needs the last new token": writes(extra=1),
        "for n_new = 0 there is a token: look at n_new first": writes(least=1),
        "the prompt is among them: give the new tokens alone": writes(cut=whole),
        "for n_new = 0, [-0:] is all": writes(cut=lambda b, e: slice(b - e, None)),
    }
    cases = [([3, 1, 4], 4), ([5], 6), ([4, 4], 0), ([2, 7, 1, 8, 2], 3)]
    praise = "loop: each token is handed over once"
    compare_steps(answer, writes(), "prompt", cases, mistakes, praise)


def talk(answer) -> None:
    """`answer(step, questions, n_new)`: the answers, all in one text and one cache."""

    def talks(n_old=1, keep=True, turn=1, flush=False, shape=list):
        def write(step, questions, n_new):
            text, kept, answers = [], None, []
            for question in questions:
                pieces = text[max(0, len(text) - n_old) :], question
                new, kept = sum(pieces[::turn], []), kept if keep else None
                text += question
                for _ in range(n_new):
                    token, kept = step(new, kept)
                    text += (new := [token])
                answers.append(text[-n_new:])
            return shape([answers, flush and step(new, kept)][0])

        return write

    mistakes = {
        "an answer's last token never goes in: put it before the question": talks(0),
        "each question begins with nothing kept: it is one text": talks(0, False),
        "the text goes in again: only an answer's end is not kept yet": talks(99),
        "nothing is kept between questions: it is right, and less saved": talks(99, 0),
        "an answer's last token comes before the next question": talks(turn=-1),
        "the very last token goes in too: no step needs it": talks(flush=True),
        "the answers are joined: a list for each": talks(shape=lambda x: sum(x, [])),
        "one list for all: begin it anew": talks(shape=lambda x: [sum(x, [])] * len(x)),
    }
    cases = [([[3, 1, 4], [1, 5]], 2), ([[9], [2, 6], [5, 3, 5]], 3), ([[8, 9, 7]], 1)]
    praise = "talk: a conversation is one text, cut into pieces"
    compare_steps(answer, talks(), "questions", cases, mistakes, praise)
