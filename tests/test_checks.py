"""Each exercise's check: right answers pass, wrong ones are told why."""

from collections import Counter
from inspect import isfunction

import pytest
from answers import (
    attention,
    blocks,
    encoder_decoder,
    kv_cache,
    multi_head,
    positional_encodings,
    sampling,
    tokens,
    training,
)

from companion import checks

CHAPTERS = (
    tokens,
    attention,
    multi_head,
    positional_encodings,
    blocks,
    training,
    sampling,
    kv_cache,
    encoder_decoder,
)
RIGHT = [pair for chapter in CHAPTERS for pair in chapter.RIGHT]
WRONG = [triple for chapter in CHAPTERS for triple in chapter.WRONG]


@pytest.mark.parametrize("check, answer", RIGHT)
def test_right_answers_pass(check, answer, capsys):
    check(answer)
    assert capsys.readouterr().out.startswith("✓ ")


@pytest.mark.parametrize("check, answer, words", WRONG)
def test_wrong_answers_are_explained(check, answer, words):
    with pytest.raises(checks.Mistake, match=words):
        check(answer)


def test_every_check_is_tried():
    known = {check for check in vars(checks).values() if isfunction(check)}
    caught = Counter(check for check, _, _ in WRONG)
    assert {check for check, _ in RIGHT} == known
    assert all(caught[check] >= 2 for check in known)
