"""Each exercise's check: right answers pass, wrong ones are told why."""

import inspect
import itertools
import math
import random
import re
import sys
import warnings
from collections import deque
from functools import partial

import numpy as np
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
from companion.checks.compare import Mistake, compare, draw, graded, stops

CHAPTERS = (tokens, attention, multi_head, positional_encodings, blocks, training)
CHAPTERS += (sampling, kv_cache, encoder_decoder, one_machine, serving, many_machines)
CHAPTERS += (published_weights,)
CHECKS = [x for x in vars(checks).values() if inspect.isfunction(x)]
X = torch.arange(6.0).view(2, 3)
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda x: x.__name__)


def told(answer) -> str:
    """Where an answer stands, for the message of a test that fails."""
    code = getattr(answer, "__code__", None)
    where = f" in {code.co_filename}:{code.co_firstlineno}" if code else ""
    return f"{getattr(answer, '__name__', answer)}{where}"


def said_of(check, answer) -> str | None:
    try:
        check(answer)
    except Mistake as mistake:
        return str(mistake)


@every_check
def test_right_answers_pass(check, capsys):
    right = [answer for c in CHAPTERS for of, answer in c.RIGHT if of is check]
    refused = {told(answer): said_of(check, answer) for answer in right}
    assert right and {*refused.values()} == {None}, refused
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(right)
    assert all(line.startswith(f"✓ {check.__name__}: ") for line in printed), printed


@every_check
def test_wrong_answers_are_explained(check):
    wrong = [x[1:] for c in CHAPTERS for x in c.WRONG if x[0] is check]
    others = {}
    for answer, words in wrong:
        said = said_of(check, answer) or "passes"
        if not re.search(words, said):
            others[told(answer)] = f"{said!r} is not {words!r}"
    assert len(wrong) >= 3 and not others, others


def unwritten(*case):
    raise NotImplementedError


@every_check
def test_an_unwritten_answer_gets_one_quiet_line_or_no_points(check, capsys):
    line = f"{check.__name__}: yours to write"
    check(unwritten)
    assert capsys.readouterr().out == f"○ {line}\n"
    with graded(), pytest.raises(Mistake, match=f"^{line}$"):
        check(unwritten)
    assert capsys.readouterr().out == ""


def test_where_it_is_graded_an_answer_half_written_is_a_mistake():
    with graded(), pytest.raises(Mistake, match="yours to write"):
        checks.read_once(lambda *case: unwritten)
    with graded(), pytest.raises(Mistake, match="yours to write"):
        checks.text_cost(lambda n, d: 24 * d**2 + 4 * d if n == 1 else unwritten())


def astray(*case):
    raise KeyError("where")


@every_check
def test_answers_of_a_wrong_type_and_exceptions_become_one_clear_line(check):
    odd = [lambda *case, x=x: x for x in (None, {}, (1, 2, 3), "text", ...)]
    for answer in (*odd, lambda: 1, astray, None, 1, ...):
        with pytest.raises(Mistake) as caught:
            check(answer)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
        assert caught.value._render_traceback_() == [f"✗ {caught.value}"]


def own_text():
    raise ValueError("the sizes don't fit")


def deep(n=0):
    return deep(n + 1)


ERRORS = [  # that have nothing to do with any exercise
    lambda: F.linear(X, X),  # noqa: F821
    lambda: unbound(),
    lambda: __import__("nothing"),
    lambda: X.sofmax(0),
    lambda: eval("1 +* 2"),
    lambda: deep(m=1),
    lambda: [1] + (2,),
    lambda: X @ X,
    lambda: torch.ones(31) + torch.ones(37),
    lambda: X.view(-1, 41),
    lambda: {}["where"],
    lambda: [][0],
    lambda: X[50],
    lambda: 1 // 0,
    lambda: float(10**400),
    deep,
    b"a\xff".decode,
    own_text,
    lambda: [a for a, b in [[1]]],
    lambda: torch.tensor([True]).softmax(0),
    lambda: next(iter([])),
    lambda: sys.exit(3),
    sys.exit,
]


def unbound():
    if not X.numel():
        end = 1
    return end


def line_of(error) -> str:
    try:
        error()
    except BaseException as raised:
        said = str(raised)[:99].splitlines()[:1]
        return f"it stops with {': '.join([type(raised).__name__, *said])}".strip(" .:")


LINES = [*map(line_of, ERRORS)]
LATER = ("must match", "mat1", "is invalid", "index 50", "by zero", "don't fit")


def test_the_errors_are_those_that_are_meant():
    kinds = {line.split()[3].strip(":") for line in LINES}
    assert len(kinds) > 14 and "NotImplementedError" in kinds and "SystemExit" in kinds


@pytest.mark.parametrize("n_calls", [0, 1], ids=["at once", "later"])
@every_check
def test_an_error_that_has_nothing_to_do_with_it_is_told_not_explained(check, n_calls):
    """Also of an answer that is right at first, and stops in a later case."""
    right = next(answer for c in CHAPTERS for of, answer in c.RIGHT if of is check)
    others = []
    for error, line in zip(ERRORS, LINES, strict=True):
        if n_calls and not any(words in line for words in LATER):
            continue  # of these a check knows nothing, whenever they come
        calls = itertools.count()

        def answer(*case, error=error, calls=calls):
            return error() if next(calls) >= n_calls else right(*case)

        said = said_of(check, answer) or "passes"
        where = rf"{check.__name__}: (for .*: )?"
        if not re.fullmatch(where + re.escape(line), said):
            others.append(said)
    assert not others, others


def test_a_slip_of_the_pen_needs_no_example():
    said = said_of(checks.fold, lambda *case: F.linear(X, X))  # noqa: F821
    assert said == "fold: it stops with NameError: name 'F' is not defined"


def compared(answer, right, *cases, mistakes=None, **how) -> str:
    with pytest.raises(Mistake) as caught:
        compare(answer, right, [*cases], mistakes or {}, "name: praise", **how)
    return str(caught.value)


def test_a_wrong_answer_is_told_the_input_the_place_and_both_values():
    said = compared(lambda x, n: x * (x < 4) + 4, lambda x, n: x + 4, (X, 2))
    assert said == "name: for x (2, 3), n = 2: at [1, 1] it gives 4, wanted 8"
    said = compared(lambda x: (x, x + 1), lambda x: (x, x), (X,))
    assert said == "name: for x (2, 3): at [1][0, 0] it gives 1, wanted 0"
    said = compared(lambda x: 1.00023, lambda x: 1.0, (X,))
    assert said == "name: for x (2, 3): it gives 1.00023, wanted 1"
    said = compared(lambda f: 0, lambda f: 1, (lambda x: x,))
    assert said == "name: for f = …: it gives 0, wanted 1"


WRONG = {
    r"the shape is \(3, 2\), wanted \(2, 3\)": lambda x: x.T,
    r"the shape is \(1, 2, 3\), wanted \(2, 3\)": lambda x: x[None],
    "the dtype is torch.int64, wanted torch.float32": lambda x: x.long(),
    "the dtype is torch.bool, wanted torch.float32": lambda x: x > 0,
    r"it gives \[.*\], wanted a float32 tensor \(2, 3\)": lambda x: x.tolist(),
    "wanted a float32 tensor": lambda x: [x, x],
    "is there a `return`": lambda x: None,
    "changes its input": lambda x: x.add_(1),
    "stops with IndexError": lambda x: x[5],
    r"at \[0, 0\] it gives nan, wanted 0": lambda x: x * torch.nan,
}


@pytest.mark.parametrize("words", WRONG)
def test_shape_dtype_type_exceptions_and_changed_inputs_are_named(words):
    assert re.search(words, compared(WRONG[words], lambda x: x, (X.clone(),)))


STYLES = [
    (lambda x: (1, 2), lambda x: [1, 2]),
    (lambda x: torch.tensor([1, 2]), lambda x: [1, 2]),
    (lambda x: np.array([1, 2]), lambda x: [1, 2]),
    (lambda x: (i for i in (1, 2)), lambda x: [1, 2]),
    (lambda x: range(1, 3), lambda x: [1, 2]),
    (lambda x: zip((1, 3), (2, 4), strict=True), lambda x: [(1, 2), (3, 4)]),
    (lambda x: map(iter, [[1], [2]]), lambda x: [[1], [2]]),
    (lambda x: [x, x], lambda x: (x, x)),
    (lambda x: x.T.contiguous().T, lambda x: x),
    (lambda x: x.double(), lambda x: x),
    (lambda x: x.requires_grad_(), lambda x: x),
    (lambda x: x.long().int(), lambda x: x.long()),
    (lambda x: 12.0, lambda x: 12),
    (lambda x: torch.tensor(12), lambda x: 12),
    (lambda x: np.int64(12), lambda x: torch.tensor(12)),
    (lambda x: [np.float32(0.5)], lambda x: [0.5]),
    (lambda x: 0.5, lambda x: torch.tensor(0.5)),
]


@pytest.mark.parametrize("answer, right", STYLES)
def test_a_right_answer_in_another_style_passes(answer, right, capsys):
    compare(answer, right, [(X.clone(),)], {}, "name: praise")
    assert capsys.readouterr().out == "✓ name: praise\n"


def square(n, power=2, times=1):
    return times * n**power


def test_a_mistake_is_a_function_or_options_and_explains_every_case():
    mistakes = {"doubled": lambda n: 2 * n, "cubed": {"power": 3}}
    doubled = compared(lambda n: 2 * n, square, (2,), (3,), mistakes=mistakes)
    assert doubled == "name: doubled"
    cubed = compared(lambda n: n**3, square, (2,), (3,), mistakes=mistakes)
    assert cubed == "name: cubed"
    other = compared(
        lambda n: 6 if n == 3 else 0, square, (2,), (3,), mistakes=mistakes
    )
    assert other == "name: for n = 2: it gives 0, wanted 4"


def test_a_mistake_may_be_an_error_or_share_one_with_the_answer():
    mistakes = {"divide by n": (ZeroDivisionError, OverflowError)}
    said = compared(lambda n: 1 / 0, square, (2,), mistakes=mistakes)
    assert (
        said == "name: it stops with ZeroDivisionError: division by zero: divide by n"
    )
    said = compared(lambda n: n[0], square, (2,), mistakes=mistakes)
    assert said.startswith("name: for n = 2: it stops with TypeError")
    late = {"only small": lambda n: [4][n - 2]}  # both fail for 3
    assert compared(late["only small"], square, (2,), (3,), mistakes=late) == (
        "name: only small"
    )


def test_how_an_answer_is_used_names_what_is_off_and_may_refuse_it():
    def use(function, n, m):
        if m > 3:
            raise Mistake("m is large")
        return {"first": function(n), "second": [function(m)]}

    said = compared(lambda n: 4, square, (2, 3), use=use)
    assert said == "name: for n = 2, m = 3: at second[0] it gives 4, wanted 9"
    assert compared(lambda n: 0, square, (2, 3), (2, 4), use=use).endswith("wanted 4")
    with pytest.raises(Mistake, match="^m is large$"):  # the check itself is wrong
        compare(square, square, [(2, 4)], {}, "name: praise", use)


def test_drawn_numbers_are_the_same_every_time():
    assert torch.equal(draw(2, 3), draw(2, 3))
    assert not torch.equal(draw(2, 3), draw(2, 3, seed=1))
