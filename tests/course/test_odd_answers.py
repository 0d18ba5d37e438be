"""What the checks from chapter 06 on say of all kinds of lists, and of odd answers."""

from collections import deque

import numpy as np
import pytest
import torch
from answers import CHAPTERS, right_ones

from companion.course import checks
from companion.course.checks.mistakes import Mistake

LATER = CHAPTERS[6:]  # from 06 on
CHECKS = list(dict.fromkeys(check for c in LATER for check, _ in c.RIGHT))

LISTS = (checks.write, checks.ending, checks.talk, checks.schedule, checks.accumulated)
LISTS += (checks.plan, checks.parts, checks.equal_work, checks.rows, checks.chat)
LISTS += (checks.answers_alone, checks.only_adapters)
INNER_LISTS = (checks.talk, checks.schedule, checks.equal_work)
KINDS = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "map": lambda parts: map(lambda part: part, parts),
    "generator": lambda parts: (part for part in parts),
    "deque": deque,
    "values": lambda parts: dict(enumerate(parts)).values(),
}


def said_of(check, answer) -> str | None:
    try:
        check(answer)
    except Mistake as mistake:
        return str(mistake)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", LISTS, ids=lambda check: check.__name__)
def test_whatever_gives_things_in_order_counts_as_a_list(check, kind):
    right = right_ones(check)[0]
    assert said_of(check, lambda *case: KINDS[kind]([*right(*case)])) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", INNER_LISTS, ids=lambda check: check.__name__)
def test_whatever_gives_things_in_order_counts_within_a_list(check, kind):
    right = right_ones(check)[0]
    assert said_of(check, lambda *case: [KINDS[kind](x) for x in right(*case)]) is None


FLAT = (checks.write, checks.rows, checks.chat, checks.equal_work)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("check", FLAT, ids=lambda check: check.__name__)
def test_an_array_of_numbers_counts_as_a_list(check, make):
    right = right_ones(check)[0]
    assert said_of(check, lambda *case: make([*right(*case)])) is None


ODD = {
    "nan": float("nan"),
    "complex": 1j,
    "tensor of three axes": torch.ones(2, 3, 4),
    "NaN tensor": torch.full((3,), torch.nan),
    "no numbers": torch.ones(0),
    "list of None": [None, None],
    "list of words": ["one", "two"],
    "nested lists": [[[1.0], [2.0]], [[3.0]]],
    "lists of other lengths": [[1, 2], [3], []],
    "tensors of other shapes": [torch.ones(2), torch.ones(3, 1)],
    "dictionary": {0: torch.ones(2), 1: torch.ones(2)},
    "empty list": [],
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_answer_is_told_that_it_stops_where_the_check_would(check, odd):
    said = said_of(check, lambda *case: ODD[odd])
    assert said is not None and "it stops with" not in said
    assert said.startswith(f"{check.__name__}: ") and "\n" not in said


# What an answer may call by mistake, where a list of tokens or a text belongs.
TOYS = {
    checks.write: lambda odd: lambda after, *_: after(odd),
    checks.ending: lambda odd: lambda after, *_: after(odd),
    checks.talk: lambda odd: lambda step, *_: step(odd, None),
    checks.schedule: lambda odd: lambda admit, *_: admit(odd, 0),
    checks.chat: lambda odd: lambda messages, encode, *_: encode(odd),
}


@pytest.mark.parametrize("odd", [None, 3, [[1, 2]], ["one"], [None], object])
@pytest.mark.parametrize("check", TOYS, ids=lambda check: check.__name__)
def test_a_toy_says_what_it_takes(check, odd):
    said = said_of(check, TOYS[check](odd))
    assert "takes a" in said and "it stops with" not in said
