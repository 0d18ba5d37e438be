"""Checks of chapter 07."""

from collections.abc import Callable

import torch
from torch import Tensor

from .compare import Exercise, Mistake, check, draw
from .sampling import token_list
from .watch import Watch
from .words import describe, listed


@check
def text_cost() -> Exercise:
    """`answer(n_tokens, d_model)`: one layer's operations, all tokens one by one."""

    def right(n_tokens: int, d_model: int) -> int:
        seen = range(1, n_tokens + 1)
        return sum(24 * d_model**2 + 4 * n * d_model for n in seen)

    # Another number of steps, or of keys in a step.

    def own_key_missing(n_tokens: int, d_model: int) -> int:
        seen = range(n_tokens)
        return sum(24 * d_model**2 + 4 * n * d_model for n in seen)

    def one_step_more(n_tokens: int, d_model: int) -> int:
        seen = range(n_tokens + 1)
        return sum(24 * d_model**2 + 4 * n * d_model for n in seen)

    def one_step_fewer(n_tokens: int, d_model: int) -> int:
        seen = range(1, n_tokens)
        return sum(24 * d_model**2 + 4 * n * d_model for n in seen)

    def all_keys_in_each_step(n_tokens: int, d_model: int) -> int:
        return n_tokens * (24 * d_model**2 + 4 * n_tokens * d_model)

    def last_step(n_tokens: int, d_model: int) -> int:
        return 24 * d_model**2 + 4 * n_tokens * d_model

    def without_a_cache(n_tokens: int, d_model: int) -> int:
        seen = range(1, n_tokens + 1)
        return sum(n * (24 * d_model**2 + 4 * n * d_model) for n in seen)

    def last_step_looks_back(n_tokens: int, d_model: int) -> int:
        return 24 * n_tokens * d_model**2 + 4 * n_tokens * d_model

    # Another number of operations in a step.

    def weights_alone(n_tokens: int, d_model: int) -> int:
        return 24 * n_tokens * d_model**2

    def multiplications_alone(n_tokens: int, d_model: int) -> int:
        seen = range(1, n_tokens + 1)
        return sum(12 * d_model**2 + 2 * n * d_model for n in seen)

    def weights_counted_once(n_tokens: int, d_model: int) -> int:
        seen = range(1, n_tokens + 1)
        return sum(12 * d_model**2 + 4 * n * d_model for n in seen)

    def no_feed_forward(n_tokens: int, d_model: int) -> int:
        seen = range(1, n_tokens + 1)
        return sum(8 * d_model**2 + 4 * n * d_model for n in seen)

    def keys_without_values(n_tokens: int, d_model: int) -> int:
        seen = range(1, n_tokens + 1)
        return sum(24 * d_model**2 + 2 * n * d_model for n in seen)

    mistakes = {
        "a step sees its own key too: the first sees one": own_key_missing,
        "one step too many: n runs from 1 to n_tokens": one_step_more,
        "the last step is missing: `range` stops before its end": one_step_fewer,
        "every step sees n keys here: not the first": all_keys_in_each_step,
        "this is the last step alone: add up": last_step,
        "this is without a cache: with one, a step computes one token": without_a_cache,
        "the weights alone: a step looks at n keys and values too": weights_alone,
        "half of it: multiplication and addition are two": multiplications_alone,
        "each of 12 d_model² weights is multiplied and added: two": (
            weights_counted_once
        ),
        "the feed-forward layer is missing: 8 d_model² weights more": no_feed_forward,
        "the last step alone looks back here: every step does": last_step_looks_back,
        "a step takes 4 n d_model: for n keys and n values": keys_without_values,
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

    def right(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        end = n_used + new.shape[-2]
        room[..., n_used:end, :] = new
        return room[..., :end, :]

    # The right numbers in the wrong place.

    def one_early(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        end = n_used + new.shape[-2]
        room[..., n_used - 1 : end - 1, :] = new
        return room[..., :end, :]

    def one_late(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        end = n_used + new.shape[-2]
        room[..., n_used + 1 : end + 1, :] = new
        return room[..., : end + 1, :]

    # Too much or too little is written, or given.

    def whole_room(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        right(room, n_used, new)
        return room

    def first_new_token(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        return right(room, n_used, new[..., :1, :])

    def new_alone(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        return new

    def rest_cleared(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used:, :] = 0
        return right(room, n_used, new)

    def added(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        end = n_used + new.shape[-2]
        room[..., n_used:end, :] += new
        return room[..., :end, :]

    # Another slice: these stop where the sizes don't happen to fit.

    def one_place(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used : n_used + 1, :] = new
        return room[..., : n_used + 1, :]

    def to_the_end_of_the_room(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used:, :] = new
        return room[..., : n_used + new.shape[-2], :]

    def last_axis(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used : n_used + new.shape[-2]] = new
        return room[..., : n_used + new.shape[-2]]

    def head_axis(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[:, n_used : n_used + new.shape[1]] = new
        return room[:, : n_used + new.shape[1]]

    def size_of_the_last_axis(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used : n_used + new.shape[-1], :] = new
        return room[..., : n_used + new.shape[-1], :]

    def size_of_the_first_axis(room: Tensor, n_used: int, new: Tensor) -> Tensor:
        room[..., n_used : n_used + new.shape[0], :] = new
        return room[..., : n_used + new.shape[0], :]

    mistakes = {
        "one too early: 3 are used, at 0 to 2, so the next is 3": one_early,
        "one too late: counted from 0": one_late,
        "the whole room: its end holds no tokens": whole_room,
        "only one token: `new` has several": first_new_token,
        "the new ones alone: give all that is kept": new_alone,
        "the rest of `room` is changed: write `new`, and nothing else": rest_cleared,
        "the next places hold anything: set them, don't add": added,
        "`new` may hold several tokens: slice the last axis but one up to n_used + t": (
            one_place
        ),
        "slice the last axis but one up to n_used + t, not up to its end": (
            to_the_end_of_the_room
        ),
        "slice the last axis but one: the last holds features": last_axis,
        "slice the last axis but one: the first but one holds heads": head_axis,
        "t is `new.shape[-2]`, here d was taken": size_of_the_last_axis,
        "t is `new.shape[-2]`, here b was taken": size_of_the_first_axis,
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

    def right_positions(n_kept: int, n_new: int) -> Tensor:
        return n_kept + torch.arange(n_new)

    def distances(n_kept: int, n_new: int) -> Tensor:
        """How far before each query (t) each key (s) stands: (t s)."""
        return right_positions(n_kept, n_new)[:, None] - torch.arange(n_kept + n_new)

    def right(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        before = distances(n_kept, n_new)
        return right_positions(n_kept, n_new), (before >= 0) & (before < width)

    # The positions.

    def from_0(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        positions, mask = right(n_kept, n_new, width)
        return positions - n_kept, mask

    def from_1(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        positions, mask = right(n_kept, n_new, width)
        return positions + 1, mask

    # The triangle and the window.

    def nothing_moved(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        queries = torch.arange(n_new)
        before = queries[:, None] - torch.arange(n_kept + n_new)
        mask = (before >= 0) & (before < width)
        return right_positions(n_kept, n_new), mask

    def window_not_moved(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        before = distances(n_kept, n_new)
        mask = (before >= 0) & (before - n_kept < width)
        return right_positions(n_kept, n_new), mask

    def no_triangle(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        return right_positions(n_kept, n_new), distances(n_kept, n_new) < width

    def no_window(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        return right_positions(n_kept, n_new), distances(n_kept, n_new) >= 0

    def kept_alone(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        positions, mask = right(n_kept, n_new, width)
        return positions, mask & (torch.arange(n_kept + n_new) < n_kept)

    def one_too_many(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        before = distances(n_kept, n_new)
        mask = (before >= 0) & (before <= width)
        return right_positions(n_kept, n_new), mask

    def one_too_few(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        before = distances(n_kept, n_new)
        mask = (before >= 0) & (before < width - 1)
        return right_positions(n_kept, n_new), mask

    def not_itself(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        before = distances(n_kept, n_new)
        mask = (before > 0) & (before < width)
        return right_positions(n_kept, n_new), mask

    def one_window(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        positions, mask = right(n_kept, n_new, width)
        return positions, mask & mask[-1]

    # The form of the mask.

    def square_mask(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        positions, mask = right(n_kept, n_new, width)
        return positions, mask[:, n_kept:]

    def true_hides(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        positions, mask = right(n_kept, n_new, width)
        return positions, ~mask

    def rows_are_keys(n_kept: int, n_new: int, width: int) -> tuple[Tensor, Tensor]:
        positions, mask = right(n_kept, n_new, width)
        return positions, mask.mT

    mistakes = {
        "the first new position is n_kept, not 0": from_0,
        "the first new position is n_kept: they count from 0": from_1,
        "the triangle is not moved: n_kept come before": nothing_moved,
        "the window is not moved, only the triangle is": window_not_moved,
        "a new token sees those after it": no_triangle,
        "there is no window: a token sees `width` keys at most": no_window,
        "a new token sees itself, and the new ones before it": kept_alone,
        "one too many: the token itself is among the `width`": one_too_many,
        "one too few: with itself a token sees `width`": one_too_few,
        "a token does not see itself": not_itself,
        "a square mask: kept keys have columns": square_mask,
        "True means may see, not hidden": true_hides,
        "rows are new tokens, columns are keys": rows_are_keys,
        "one window for all: each token needs its own": one_window,
    }

    cases = [(5, 3, 4), (0, 4, 2), (2, 5, 3), (6, 1, 3), (3, 2, 9)]
    praise = "n_kept moves both"
    return Exercise(right, cases, mistakes, praise)


class Kept:
    """What a model keeps of a text, for itself alone."""

    def __init__(self, tokens: list[int]):
        self.tokens = tokens


@check
def talk() -> Exercise:
    """`answer(step, questions, n_new)`: the answers, all in one text and one cache."""

    def replied(
        step: Callable, new: list[int], cache: Kept | None, n_new: int
    ) -> tuple[list[int], Kept]:
        """The right answer to the tokens that are `new`, and what is kept then."""
        answer = []
        for _ in range(n_new):
            token, cache = step(new, cache)
            answer.append(token)
            new = [token]
        return answer, cache

    def right(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        last = []
        cache = None
        answers = []
        for question in questions:
            answer, cache = replied(step, last + question, cache, n_new)
            last = answer[-1:]
            answers.append(answer)
        return answers

    # What goes in before a question.

    def last_token_lost(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        cache = None
        answers = []
        for question in questions:
            answer, cache = replied(step, question, cache, n_new)
            answers.append(answer)
        return answers

    def begun_anew(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        answers = []
        for question in questions:
            answer, _ = replied(step, question, None, n_new)
            answers.append(answer)
        return answers

    def whole_text_again(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        text = []
        cache = None
        answers = []
        for question in questions:
            text += question
            answer, cache = replied(step, list(text), cache, n_new)
            text += answer
            answers.append(answer)
        return answers

    def whole_answer_again(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        answer = []
        cache = None
        answers = []
        for question in questions:
            answer, cache = replied(step, answer + question, cache, n_new)
            answers.append(answer)
        return answers

    def last_token_behind(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        answer = []
        cache = None
        answers = []
        for question in questions:
            answer, cache = replied(step, question + answer[-1:], cache, n_new)
            answers.append(answer)
        return answers

    # What a step gets, and what it keeps.

    def all_in_each_step(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        text = []
        cache = None
        answers = []
        for question in questions:
            text += question
            for _ in range(n_new):
                token, cache = step(list(text), cache)
                text.append(token)
            answers.append(text[-n_new:])
        return answers

    def thrown_away(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        last = []
        answers = []
        for question in questions:
            new = last + question
            answer = []
            for _ in range(n_new):
                token, _ = step(new, None)
                answer.append(token)
                new = [token]
            last = new
            answers.append(answer)
        return answers

    def nothing_kept_between(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        text = []
        answers = []
        for question in questions:
            text += question
            answer, _ = replied(step, list(text), None, n_new)
            text += answer
            answers.append(answer)
        return answers

    def very_last_token_too(
        step: Callable, questions: list[list[int]], n_new: int
    ) -> list[list[int]]:
        last = []
        cache = None
        answers = []
        for question in questions:
            answer, cache = replied(step, last + question, cache, n_new)
            last = answer[-1:]
            answers.append(answer)
        step(last, cache)
        return answers

    mistakes = {
        "an answer's last token never goes in: put it in front": last_token_lost,
        "each question begins anew: it is one text": begun_anew,
        "the text goes in again: only an answer's end is not kept yet": (
            whole_text_again
        ),
        "the whole answer goes in again: all but its end is kept": whole_answer_again,
        "all kept is handed over again: hand the newest": all_in_each_step,
        "what is kept is thrown away: hand it to the next call": thrown_away,
        "nothing is kept between questions: it is right, and less saved": (
            nothing_kept_between
        ),
        "the very last token goes in too: no step needs it": very_last_token_too,
        "an answer's last token comes before the next question": last_token_behind,
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

    cases = [([[3, 1, 4], [1, 5]], 2), ([[9], [2, 6], [5, 3, 5]], 3), ([[8], [4]], 1)]
    praise = "a conversation is one text, cut into pieces"
    return Exercise(right, cases, mistakes, praise, traced)
