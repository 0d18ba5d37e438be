"""Checks of chapter 07: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable

import torch
from torch import Tensor

from .compare import Exercise, check, draw, identity, ways_of
from .mistakes import Mistake
from .sampling import token_list
from .watch import Watch
from .words import describe, listed


@check
def text_cost() -> Exercise:
    """`answer(n_tokens, d_model)`: one layer's operations, all tokens one by one."""

    def right(
        n_tokens: int,
        d_model: int,
        seen: Callable = lambda n: range(1, n + 1),  # the keys of each step
        weights: int = 24,
        looks: int = 4,
    ) -> int:
        keys = seen(n_tokens)
        return sum(weights * d_model**2 + looks * n * d_model for n in keys)

    way = ways_of(right)

    mistakes = {
        # Another number of steps, or of keys in a step.
        "a step sees its own key too: the first sees one": way(seen=range),
        "one step too many: n runs from 1 to n_tokens": way(
            seen=lambda n: range(n + 1)
        ),
        "the last step is missing: `range` stops before its end": way(
            seen=lambda n: range(1, n)
        ),
        "every step sees n keys here: not the first": way(seen=lambda n: n * [n]),
        "this is the last step alone: add up": way(seen=lambda n: [n]),
        "this is without a cache: with one, a step computes one token": way(
            seen=lambda n: [i for i in range(1, n + 1) for _ in range(i)]
        ),
        # Another number of operations in a step.
        "the weights alone: a step looks at n keys and values too": way(looks=0),
        "half of it: multiplication and addition are two": way(weights=12, looks=2),
        "each of 12 d_model² weights is multiplied and added: two": way(weights=12),
        "the feed-forward layer is missing: 8 d_model² weights more": way(weights=8),
        "the last step alone looks back here: every step does": way(
            seen=lambda n: [*(n - 1) * [0], n]
        ),
        "a step takes 4 n d_model: for n keys and n values": way(looks=2),
    }

    cases = [(1, 8), (3, 16), (10, 64)]
    praise = "a triangle is left: 2 n (n + 1) d_model beside 24 n d_model²"
    return Exercise(right, cases, mistakes, praise)


def lies_in(x: Tensor, buffer: Tensor) -> bool:
    """Whether x is a part of the memory of `buffer`, and no copy."""
    if x.numel() == 0:
        return True
    begin = buffer.data_ptr()
    return begin <= x.data_ptr() < begin + buffer.nbytes


@check
def in_place() -> Exercise:
    """`answer(room, n_used, new)`: writes new (b h t d), gives all that is used."""

    def right(
        room: Tensor,
        n_used: int,
        new: Tensor,
        size: Callable = lambda new: new.shape[-2],
    ) -> Tensor:
        end = n_used + size(new)
        room[..., n_used:end, :] = new
        return room[..., :end, :]

    way = ways_of(right)

    def one_early(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        end = n_used + new.shape[-2]
        room[..., n_used - 1 : end - 1, :] = new
        return room[..., :end, :]

    def whole_room(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        right(room, n_used, new)
        return room

    def rest_cleared(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used:, :] = 0
        return right(room, n_used, new)

    def added(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        end = n_used + new.shape[-2]
        room[..., n_used:end, :] += new
        return room[..., :end, :]

    # Another slice: these stop where the sizes don't happen to fit.

    def to_the_end_of_the_room(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used:, :] = new
        return room[..., : n_used + new.shape[-2], :]

    def last_axis(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used : n_used + new.shape[-2]] = new
        return room[..., : n_used + new.shape[-2]]

    def head_axis(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[:, n_used : n_used + new.shape[1]] = new
        return room[:, : n_used + new.shape[1]]

    mistakes = {
        "one too early: 3 are used, at 0 to 2, so the next is 3": one_early,
        "one too late: counted from 0": (
            lambda room, n_used, new: right(room, n_used + 1, new)
        ),
        "the whole room: its end holds no tokens": whole_room,
        "only one token: `new` has several": (
            lambda room, n_used, new: right(room, n_used, new[..., :1, :])
        ),
        "the new ones alone: give all that is kept": lambda room, n_used, new: new,
        "the rest of `room` is changed: write `new`, and nothing else": rest_cleared,
        "the next places hold anything: set them, don't add": added,
        "`new` may hold several tokens: slice the last axis but one up to n_used + t": (
            way(size=lambda new: 1)
        ),
        "slice the last axis but one up to n_used + t, not up to its end": (
            to_the_end_of_the_room
        ),
        "slice the last axis but one: the last holds features": last_axis,
        "slice the last axis but one: the first but one holds heads": head_axis,
        "t is `new.shape[-2]`, here d was taken": way(size=lambda new: new.shape[-1]),
        "t is `new.shape[-2]`, here b was taken": way(size=lambda new: new.shape[0]),
    }

    def written(answer: Callable, room: Tensor, n_used: int, new: Tensor) -> dict:
        """What the answer gives and has written; a Mistake if it copies more."""
        room = room.clone()
        with Watch() as watch:
            used = answer(room, n_used, new)
        if isinstance(used, Tensor) and not (lies_in(used, room) or used is new):
            raise Mistake("a copy: write into `room` and give a slice of it")

        # Numbers that are new in memory, and those that are written into other places.
        n_copied = 0
        for name, x in watch.made:
            is_new = x.is_floating_point() and not lies_in(x, room)
            if (name == "copy_" or is_new) and not lies_in(x, new):
                n_copied += x.numel()
        if n_copied > 2 * new.numel():  # room for a copy of the new ones
            raise Mistake("what is kept is copied: write `new` alone")
        return {"kept": used, "room": room}

    def case(b: int, h: int, s: int, d: int, n_used: int, t: int) -> tuple:
        return draw(b, h, s, d), n_used, draw(b, h, t, d, seed=1)

    cases = [
        case(2, 3, 8, 4, n_used=3, t=2),
        case(1, 2, 9, 6, n_used=4, t=3),
        case(1, 2, 9, 6, n_used=0, t=3),
        (draw(3, 1, 7, 2), 5, draw(3, 1, 2, 2)),
    ]
    praise = "nothing kept is copied"
    return Exercise(right, cases, mistakes, praise, written)


@check
def place() -> Exercise:
    """`answer(n_kept, n_new, width)`: positions (t) and mask (t s) of new tokens."""

    def in_window(queries: Tensor, keys: Tensor, width: int) -> Tensor:
        """Who sees whom (t s), from the positions of queries (t 1) and keys (s)."""
        return (keys <= queries) & (queries - keys < width)

    def right(
        n_kept: int,
        n_new: int,
        width: int,
        seen: Callable = in_window,
        given: Callable = lambda positions, mask: (positions, mask),
    ) -> tuple[Tensor, Tensor]:
        positions = n_kept + torch.arange(n_new)
        keys = torch.arange(n_kept + n_new)
        return given(positions, seen(positions[:, None], keys, width))

    way = ways_of(right)

    # The first query's position, queries[0], is n_kept.
    mistakes = {
        # The positions.
        "the first new position is n_kept, not 0": way(
            given=lambda positions, mask: (positions - positions[0], mask)
        ),
        "the first new position is n_kept: they count from 0": way(
            given=lambda positions, mask: (positions + 1, mask)
        ),
        # The triangle and the window.
        "the triangle is not moved: n_kept come before": way(
            seen=lambda queries, keys, width: in_window(
                queries - queries[0], keys, width
            )
        ),
        "the window is not moved, only the triangle is": way(
            seen=lambda queries, keys, width: (
                (keys <= queries) & (queries - queries[0] - keys < width)
            )
        ),
        "a new token sees those after it": way(
            seen=lambda queries, keys, width: queries - keys < width
        ),
        "there is no window: a token sees `width` keys at most": way(
            seen=lambda queries, keys, width: keys <= queries
        ),
        "a new token sees itself, and the new ones before it": way(
            seen=lambda queries, keys, width: (
                in_window(queries, keys, width) & (keys < queries[0])
            )
        ),
        "one too many: the token itself is among the `width`": way(
            seen=lambda queries, keys, width: in_window(queries, keys, width + 1)
        ),
        "one too few: with itself a token sees `width`": way(
            seen=lambda queries, keys, width: in_window(queries, keys, width - 1)
        ),
        "a token does not see itself": way(
            seen=lambda queries, keys, width: (
                (keys < queries) & (queries - keys < width)
            )
        ),
        # The form of the mask.
        "a square mask: kept keys have columns": way(
            given=lambda positions, mask: (positions, mask[:, -len(mask) :])
        ),
        "True means may see, not hidden": way(
            given=lambda positions, mask: (positions, ~mask)
        ),
        "rows are new tokens, columns are keys": way(
            given=lambda positions, mask: (positions, mask.mT)
        ),
        "one window for all: each token needs its own": way(
            given=lambda positions, mask: (positions, mask & mask[-1])
        ),
    }

    cases = [
        # n_kept, n_new, width
        (5, 3, 4),
        (0, 4, 2),  # the text begins
        (2, 5, 3),
        (6, 1, 3),  # one token
        (3, 2, 9),  # the window is wider than the text
    ]
    praise = "n_kept moves both"
    return Exercise(right, cases, mistakes, praise)


class Kept:
    """What a model keeps of a text, for itself alone."""

    def __init__(self, tokens: list[int]):
        self.tokens = tokens


@check
def talk() -> Exercise:
    """`answer(step, questions, n_new)`: the answers, all in one text and one cache."""

    def right(
        step: Callable,
        questions: list[list[int]],
        n_new: int,
        handed: Callable = lambda text, answer, question: answer[-1:] + question,
        kept: Callable = identity,  # from one question to the next
    ) -> list[list[int]]:
        text = []
        answer = []
        cache = None
        answers = []
        for question in questions:
            new = handed(text, answer, question)
            cache = kept(cache)
            answer = []
            for _ in range(n_new):
                token, cache = step(new, cache)
                answer.append(token)
                new = [token]
            text = text + question + answer
            answers.append(answer)
        return answers

    way = ways_of(right)

    def all_in_each_step(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        text = []

        def step_of_all(new: list[int], cache: Kept | None) -> tuple[int, Kept]:
            text.extend(new)
            return step([*text], cache)

        return right(step_of_all, questions, n_new)

    def very_last_token_too(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        caches = []

        def remembered(new: list[int], cache: Kept | None) -> tuple[int, Kept]:
            token, cache = step(new, cache)
            caches.append(cache)
            return token, cache

        answers = right(remembered, questions, n_new)
        step(answers[-1][-1:], caches[-1])
        return answers

    mistakes = {
        "an answer's last token never goes in: put it in front": way(
            handed=lambda text, answer, question: question
        ),
        "each question begins anew: it is one text": way(
            handed=lambda text, answer, question: question, kept=lambda cache: None
        ),
        "the text goes in again: only an answer's end is not kept yet": way(
            handed=lambda text, answer, question: text + question
        ),
        "the whole answer goes in again: all but its end is kept": way(
            handed=lambda text, answer, question: answer + question
        ),
        "all kept is handed over again: hand the newest": all_in_each_step,
        "what is kept is thrown away: hand it to the next call": (
            lambda step, questions, n_new: right(
                lambda new, cache: step(new, None), questions, n_new
            )
        ),
        "nothing is kept between questions: it is right, and less saved": way(
            handed=lambda text, answer, question: text + question,
            kept=lambda cache: None,
        ),
        "the very last token goes in too: no step needs it": very_last_token_too,
        "an answer's last token comes before the next question": way(
            handed=lambda text, answer, question: question + answer[-1:]
        ),
    }

    def traced(answer: Callable, questions: list[list[int]], n_new: int) -> dict:
        """The answers, and all tokens that have gone through `step`."""
        handed = []

        def step(new: list[int], kept: Kept | None) -> tuple[int, Kept]:
            """Stands for a model: the next token, made from all that it has seen."""
            if isinstance(new, int):
                raise Mistake(f"`step` takes a list: [{new}], not {new}")
            if not isinstance(new, list | tuple):
                raise Mistake(f"`step` takes a list of tokens, not {describe(new)}")
            if kept is not None and not isinstance(kept, Kept):
                raise Mistake("hand back what `step` kept, at first None")
            if len(new) == 0:
                raise Mistake("`step` has nothing to read: hand it a token")

            seen = token_list(new, "step")
            handed.extend(seen)
            if kept is not None:
                seen = [*kept.tokens, *seen]
            token = sum(i * x for i, x in enumerate(seen, 2)) % 89
            return token, Kept(seen)

        answers = answer(step, questions, n_new)
        if isinstance(answers, list | tuple):
            answers = [listed(tokens) for tokens in answers]
        return {"tokens for `step`": handed, "answers": answers}

    cases = [([[3, 1, 4], [1, 5]], 2), ([[9], [2, 6], [5, 3, 5]], 3), ([[89], [4]], 1)]
    praise = "a conversation is one text, cut into pieces"
    return Exercise(right, cases, mistakes, praise, traced)
