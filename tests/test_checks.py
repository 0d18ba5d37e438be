"""Each exercise's check: right answers pass, wrong ones are told why."""

import inspect
from collections import Counter

import pytest
import torch
from answers import (
    attention,
    blocks,
    encoder_decoder,
    kv_cache,
    many_machines,
    multi_head,
    one_machine,
    positional_encodings,
    published_weights,
    sampling,
    serving,
    tokens,
    training,
)

from companion import checks
from companion.checks.compare import Mistake, compare, graded

CHAPTERS = (
    tokens,
    attention,
    multi_head,
    positional_encodings,
    blocks,
    training,
    sampling,
    kv_cache,
    serving,
    encoder_decoder,
    one_machine,
    many_machines,
    published_weights,
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


CHECKS = [x for x in vars(checks).values() if inspect.isfunction(x)]


def test_every_check_is_tried():
    caught = Counter(check for check, _, _ in WRONG)
    assert {check for check, _ in RIGHT} == set(CHECKS)
    assert not {check.__name__ for check in CHECKS if caught[check] < 3}


def unwritten(*case):
    raise NotImplementedError


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_unwritten_answer_gets_one_quiet_line(check, capsys):
    check(unwritten)
    assert capsys.readouterr().out == f"○ {check.__name__}: yours to write\n"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_where_it_is_graded_an_unwritten_answer_is_a_mistake(check, capsys):
    with graded(), pytest.raises(Mistake) as caught:
        check(unwritten)
    assert str(caught.value) == f"{check.__name__}: yours to write"
    assert capsys.readouterr().out == ""
    check(unwritten)
    assert capsys.readouterr().out == f"○ {check.__name__}: yours to write\n"


def test_where_it_is_graded_an_answer_half_written_is_a_mistake():
    with graded(), pytest.raises(Mistake, match="yours to write"):
        checks.read_once(lambda *case: unwritten)
    with graded(), pytest.raises(Mistake, match="yours to write"):
        checks.text_cost(lambda n, d: 24 * d**2 + 4 * d if n == 1 else unwritten())


def stops(*case):
    raise KeyError("where")


ODD = (
    lambda *case: None,
    lambda *case: {},
    lambda *case: (1, 2, 3),
    lambda *case: "text",
    lambda *case: ...,
    lambda: 1,
    stops,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("answer", [*ODD, None, 1, ...])
def test_answers_of_a_wrong_type_and_exceptions_become_one_clear_line(check, answer):
    with pytest.raises(Mistake) as caught:
        check(answer)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    assert caught.value._render_traceback_() == [f"✗ {caught.value}"]


def said_of(answer, right, *cases, mistakes=None) -> str:
    with pytest.raises(Mistake) as caught:
        compare(answer, right, [*cases], mistakes or {}, "name: praise")
    return str(caught.value)


X = torch.arange(6.0).view(2, 3)


def test_a_wrong_answer_is_told_the_input_the_place_and_both_values():
    said = said_of(lambda x, n: x * (x < 4) + 4, lambda x, n: x + 4, (X, 2))
    assert said == "name: for x (2, 3), n = 2: at [1, 1] it gives 4, wanted 8"
    said = said_of(lambda x: (x, x + 1), lambda x: (x, x), (X,))
    assert said == "name: for x (2, 3): at [1][0, 0] it gives 1, wanted 0"


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda x: x.T, r"the shape is \(3, 2\), wanted \(2, 3\)"),
        (lambda x: x[None], r"the shape is \(1, 2, 3\), wanted \(2, 3\)"),
        (lambda x: x.long(), "the dtype is torch.int64, wanted torch.float32"),
        (lambda x: x > 0, "the dtype is torch.bool, wanted torch.float32"),
        (lambda x: x.tolist(), r"it gives \[.*\], wanted a float32 tensor \(2, 3\)"),
        (lambda x: [x, x], "wanted a float32 tensor"),
        (lambda x: x.add_(1), "changes its input"),
        (lambda x: x[5], "stops with IndexError"),
        (lambda x: x.fill_(torch.nan).clone(), "changes its input"),
        (lambda x: x * torch.nan, r"at \[0, 0\] it gives nan, wanted 0"),
    ],
)
def test_shape_dtype_type_exceptions_and_changed_inputs_are_named(answer, words):
    with pytest.raises(Mistake, match=words):
        compare(answer, lambda x: x, [(X.clone(),)], {}, "name: praise")


@pytest.mark.parametrize(
    "answer, right",
    [
        (lambda x: (1, 2), lambda x: [1, 2]),
        (lambda x: torch.tensor([1, 2]), lambda x: [1, 2]),
        (lambda x: [x, x], lambda x: (x, x)),
        (lambda x: x.T.contiguous().T, lambda x: x),
        (lambda x: x.double(), lambda x: x),
        (lambda x: x.requires_grad_(), lambda x: x),
        (lambda x: x.long().int(), lambda x: x.long()),
        (lambda x: 12.0, lambda x: 12),
        (lambda x: torch.tensor(12), lambda x: 12),
        (lambda x: torch.tensor([12]).numpy()[0], lambda x: 12),
        (lambda x: [*torch.tensor([0.5]).numpy()], lambda x: [0.5]),
        (lambda x: torch.tensor([1, 2]).numpy(), lambda x: [1, 2]),
        (lambda x: 0.5, lambda x: torch.tensor(0.5)),
    ],
)
def test_a_right_answer_in_another_style_passes(answer, right, capsys):
    compare(answer, right, [(X.clone(),)], {}, "name: praise")
    assert capsys.readouterr().out == "✓ name: praise\n"


def test_a_mistake_is_named_only_if_it_explains_every_case():
    right, mistakes = lambda n: n * n, {"doubled": lambda n: 2 * n}
    doubled = said_of(lambda n: 2 * n, right, (2,), (3,), mistakes=mistakes)
    assert doubled == "name: doubled"
    other = said_of(lambda n: 6 if n == 3 else 0, right, (2,), (3,), mistakes=mistakes)
    assert other == "name: for n = 2: it gives 0, wanted 4"
