"""Checks of chapter 07."""

import torch
from torch import Tensor

from .compare import Mistake, compare, draw
from .sampling import token_list
from .watch import Watch
from .words import describe, listed


def text_cost(answer) -> None:
    """`answer(n_tokens, d_model)`: one layer's operations, all tokens one by one."""

    def right(n, d, begin=1, end=1, weights=24, keys=4, times=lambda i: 1, of=0):
        steps = range(begin, n + end)
        return sum(times(i) * (weights * d**2 + keys * (of or i) * d) for i in steps)

    praise = "text_cost: a triangle is left: 2 n (n + 1) d_model beside 24 n d_model²"
    compare(answer, right, [(1, 8), (3, 16), (10, 64)], {
        "a step sees its own key too: the first sees one": {"begin": 0, "end": 0},
        "one step too many: n runs from 1 to n_tokens": {"begin": 0},
        "the last step is missing: `range` stops before its end": {"end": 0},
        "every step sees n keys here: not the first": lambda n, d: right(n, d, of=n),
        "this is the last step alone: add up": lambda n, d: 24 * d**2 + 4 * n * d,
        "this is without a cache: with one, a step computes one token":
            {"times": lambda i: i},
        "the weights alone: a step looks at n keys and values too": {"keys": 0},
        "half of it: multiplication and addition are two": {"weights": 12, "keys": 2},
        "each of 12 d_model² weights is multiplied and added: two": {"weights": 12},
        "the feed-forward layer is missing: 8 d_model² weights more": {"weights": 8},
        "the last step alone looks back here: every step does":
            lambda n, d: 24 * n * d**2 + 4 * n * d,
        "a step takes 4 n d_model: for n keys and n values": {"keys": 2},
    }, praise)  # fmt: skip


def in_place(answer) -> None:
    """`answer(room, n_used, new)`: writes new (b h t d), gives all that is used."""

    def lies_in(x, room):
        """Whether x is a part of the memory of `room`, and no copy."""
        begin = room.data_ptr()
        return begin <= x.data_ptr() < begin + room.nbytes or x.numel() == 0

    def written(answer, room, n_used, new):
        room = room.clone()
        with Watch() as watch:
            kept = answer(room, n_used, new)
        if isinstance(kept, Tensor) and not (lies_in(kept, room) or kept is new):
            raise Mistake("a copy: write into `room` and give a slice of it")

        # Numbers that are new in memory, and those that are written into other places.
        copied = sum(
            x.numel()
            for name, x in watch.made
            if name == "copy_" or (x.is_floating_point() and not lies_in(x, room))
            if not lies_in(x, new)
        )
        if copied > 2 * new.numel():  # room for a copy of the new ones
            raise Mistake("what is kept is copied: write `new` alone")
        return {"kept": kept, "room": room}

    def right(room, n, new):
        end = n + new.shape[-2]
        room[..., n:end, :] = new
        return room[..., :end, :]

    def one_early(room, n, new):
        end = n + new.shape[-2]
        room[..., n - 1 : end - 1, :] = new
        return room[..., :end, :]

    def one_early_by_narrow(room, n, new):
        end = n + new.shape[-2]
        room.narrow(-2, n - 1, new.shape[-2]).copy_(new)
        return room[..., :end, :]

    def one_late(room, n, new):
        end = n + new.shape[-2]
        room[..., n + 1 : end + 1, :] = new
        return room[..., : end + 1, :]

    def one_late_by_narrow(room, n, new):
        end = n + new.shape[-2]
        room.narrow(-2, n + 1, new.shape[-2]).copy_(new)
        return room[..., : end + 1, :]

    def whole_room(room, n, new):
        right(room, n, new)
        return room

    def first_new_token(room, n, new):
        return right(room, n, new[..., :1, :])

    def rest_cleared(room, n, new):
        room[..., n:, :] = 0
        return right(room, n, new)

    def added(room, n, new):
        end = n + new.shape[-2]
        room[..., n:end, :] += new
        return room[..., :end, :]

    def one_place(room, n, new):
        room[..., n : n + 1, :] = new
        return room[..., : n + 1, :]

    def to_the_end_of_the_room(room, n, new):
        room[..., n:, :] = new
        return room[..., : n + new.shape[-2], :]

    def last_axis(room, n, new):
        room[..., n : n + new.shape[-2]] = new
        return room[..., : n + new.shape[-2]]

    def head_axis(room, n, new):
        room[:, n : n + new.shape[1]] = new
        return room[:, : n + new.shape[1]]

    def size_of_the_last_axis(room, n, new):
        room[..., n : n + new.shape[-1], :] = new
        return room[..., : n + new.shape[-1], :]

    def size_of_the_first_axis(room, n, new):
        room[..., n : n + new.shape[0], :] = new
        return room[..., : n + new.shape[0], :]

    sizes = ((2, 3, 8, 4), 3, 2), ((1, 2, 9, 6), 4, 3), ((1, 2, 9, 6), 0, 3)
    cases = [(draw(*s), n, draw(*s[:2], t, s[3], seed=1)) for s, n, t in sizes]
    cases += [(draw(3, 1, 7, 2), 5, draw(3, 1, 2, 2))]
    compare(answer, right, cases, {
        "one too early: 3 are used, at 0 to 2, so the next is 3": one_early,
        "one too early: 3 are used, at 0 to 2, and the next is 3": one_early_by_narrow,
        "one too late: counted from 0": one_late,
        "one too late: places are counted from 0": one_late_by_narrow,
        "the whole room: its end holds no tokens": whole_room,
        "only one token: `new` has several": first_new_token,
        "the new ones alone: give all that is kept": lambda room, n, new: new,
        "the rest of `room` is changed: write `new`, and nothing else": rest_cleared,
        "the next places hold anything: set them, don't add": added,
        "`new` may hold several tokens: slice the last axis but one up to n_used + t":
            one_place,
        "slice the last axis but one up to n_used + t, not up to its end":
            to_the_end_of_the_room,
        "slice the last axis but one: the last holds features": last_axis,
        "slice the last axis but one: the first but one holds heads": head_axis,
        "t is `new.shape[-2]`, here d was taken": size_of_the_last_axis,
        "t is `new.shape[-2]`, here b was taken": size_of_the_first_axis,
    }, "in_place: nothing kept is copied", written)  # fmt: skip


def place(answer) -> None:
    """`answer(n_kept, n_new, width)`: positions (t) and mask (t s) of new tokens."""

    def right(
        n, n_new, width, first=1, late=0, triangle=1, window=1, ahead=0, back=0,
        mask=lambda m: m,
    ):  # fmt: skip
        at, keys = torch.arange(n_new), torch.arange(n + n_new)
        d = at[:, None] - keys  # how far the key lies before, but for the kept ones
        seen = (d + triangle * n >= -ahead) & (d + window * n < width + back)
        return first * n + at + late, mask(seen)

    cases = [(5, 3, 4), (0, 4, 2), (2, 5, 3), (6, 1, 3), (3, 2, 9)]
    compare(answer, right, cases, {
        "the first new position is n_kept, not 0": {"first": 0},
        "the first new position is n_kept: they count from 0": {"late": 1},
        "the triangle is not moved: n_kept come before": {"triangle": 0, "window": 0},
        "the window is not moved, only the triangle is": {"window": 0},
        "a new token sees those after it": {"ahead": 99},
        "there is no window: a token sees `width` keys at most": {"back": 99},
        "a new token sees itself, and the new ones before it":
            {"mask": lambda m: m & (torch.arange(m.shape[1]) < m.shape[1] - len(m))},
        "one too many: the token itself is among the `width`": {"back": 1},
        "one too few: with itself a token sees `width`": {"back": -1},
        "a token does not see itself": {"ahead": -1},
        "a square mask: kept keys have columns": {"mask": lambda m: m[:, -len(m) :]},
        "True means may see, not hidden": {"mask": torch.logical_not},
        "rows are new tokens, columns are keys": {"mask": lambda m: m.mT},
        "one window for all: each token needs its own": {"mask": lambda m: m & m[-1]},
    }, "place: n_kept moves both")  # fmt: skip


class Kept:
    """What a model keeps of a text, for itself alone."""

    def __init__(self, tokens: list[int]):
        self.tokens = tokens


def talk(answer) -> None:
    """`answer(step, questions, n_new)`: the answers, all in one text and one cache."""

    def traced(answer, questions, n_new):
        handed = []

        def step(new, kept):
            if isinstance(new, int):
                raise Mistake(f"`step` takes a list: [{new}], not {new}")
            if not isinstance(new, list | tuple):
                raise Mistake(f"`step` takes a list of tokens, not {describe(new)}")
            if kept is not None and not isinstance(kept, Kept):
                raise Mistake("hand back what `step` kept, at first None")
            if len(new) == 0:
                raise Mistake("`step` has nothing to read: hand it a token")
            new = token_list(new, "step")
            handed.extend(new)
            seen = [*kept.tokens, *new] if kept else new
            return sum(i * x for i, x in enumerate(seen, 2)) % 89, Kept(seen)

        answers = answer(step, questions, n_new)
        if isinstance(answers, list | tuple):
            answers = [listed(one) for one in answers]
        return {"tokens for `step`": handed, "answers": answers}

    def right(
        step, questions, n_new, n_old=1, keep=True, newest=1, hold=True, flush=False,
        turned=False,
    ):  # fmt: skip
        text, kept, answers = [], None, []
        for question in questions:
            old = text[max(0, len(text) - (n_old or n_new)) :]
            new = question + old if turned else old + question
            kept = kept if keep else None
            text += question
            for _ in range(n_new):
                token, after = step(new, kept)
                text += [token]
                new, kept = text[-newest:], after if hold else None
            answers.append(text[-n_new:])
        if flush:
            step(new, kept)
        return answers

    cases = [([[3, 1, 4], [1, 5]], 2), ([[9], [2, 6], [5, 3, 5]], 3), ([[8], [4]], 1)]
    compare(answer, right, cases, {
        "an answer's last token never goes in: put it in front": {"n_old": -1},
        "each question begins anew: it is one text": {"n_old": -1, "keep": False},
        "the text goes in again: only an answer's end is not kept yet": {"n_old": 99},
        "the whole answer goes in again: all but its end is kept": {"n_old": 0},
        "all kept is handed over again: hand the newest": {"n_old": 99, "newest": 99},
        "what is kept is thrown away: hand it to the next call": {"hold": False},
        "nothing is kept between questions: it is right, and less saved":
            {"n_old": 99, "keep": False},
        "the very last token goes in too: no step needs it": {"flush": True},
        "an answer's last token comes before the next question": {"turned": True},
    }, "talk: a conversation is one text, cut into pieces", traced)  # fmt: skip
