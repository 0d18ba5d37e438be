"""Each exercise's check: right answers pass, wrong ones are told why."""

import copy
import fractions
import functools
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
from answers import one_machine, right_ones, training, wrong_ones
from torch import Tensor, nn

from companion.course import checks
from companion.course.checks.compare import Exercise, Raises, compare, draw, graded
from companion.course.checks.differences import difference
from companion.course.checks.mistakes import Mistake
from companion.course.checks.outcomes import is_changed

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
    right = right_ones(check)
    refused = {told(answer): said_of(check, answer) for answer in right}
    assert right and {*refused.values()} == {None}, refused
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(right)
    assert all(line.startswith(f"✓ {check.__name__}: ") for line in printed), printed


@every_check
def test_wrong_answers_are_explained(check):
    wrong = wrong_ones(check)
    others = {}
    for answer, words in wrong:
        said = said_of(check, answer) or "passes"
        if not re.search(words, said):
            others[told(answer)] = f"{said!r} is not {words!r}"
    assert len(wrong) >= 3 and not others, others


@every_check
def test_each_mistake_earns_its_own_words(check):
    if check is checks.cabinet:
        return  # it has no mistakes: it tells what the tests say
    others = {}
    for words, mistake in check.exercise().mistakes.items():
        if not isinstance(mistake, Raises):
            said = said_of(check, mistake) or "passes"
            if not said.endswith(f": {words}"):
                others[words] = said
    assert not others, others


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


def itself(*case):
    return itself


def within_itself() -> list:
    found = []
    found.append(found)
    return found


class Endless:
    """An iterator that gives itself, and never ends."""

    def __iter__(self):
        return self

    def __next__(self):
        return self


class Hostile:
    """Neither comparing it, nor counting or writing it down works."""

    def refuse(self, *_):
        raise RuntimeError("no")

    __eq__ = __len__ = __iter__ = __repr__ = __float__ = refuse
    tolist = refuse


ODD = [
    lambda: None,
    dict,
    lambda: (1, 2, 3),
    lambda: "text",
    lambda: ...,
    lambda: len,
    lambda: 10**400,
    lambda: -(10**5000),
    lambda: [10**5000],
    lambda: math.nan,
    lambda: 1j,
    lambda: torch.ones(3, dtype=torch.complex64),
    lambda: range(10**9),
    itertools.count,
    lambda: [itertools.repeat(1)],
    lambda: bytes(3),
    lambda: {1, 2},
    within_itself,
    Endless,
    Hostile,
    lambda: [Hostile()],
    lambda: X.to_sparse(),
    lambda: [X.to_sparse(), X],
    lambda: torch.ones(3, device="meta"),
    lambda: torch.nested.nested_tensor([X, X[:, :2]]),
    lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
    lambda: torch.nn.Linear(2, 2),
    lambda: np.array([{}, "a"], dtype=object),
    lambda: np.zeros((2, 0)),
    lambda: torch.zeros(0),
]


@every_check
def test_answers_of_a_wrong_type_and_exceptions_become_one_clear_line(check):
    odd = [lambda *case, give=give: give() for give in ODD]
    for answer in (*odd, itself, lambda: 1, astray, None, 1, ...):
        with pytest.raises(Mistake) as caught:
            check(answer)
        said = str(caught.value)
        assert "\n" not in said and len(said) < 600, said
        assert caught.value._render_traceback_() == [f"✗ {said}"]


def test_what_is_no_number_is_named():
    for give, words in (
        (lambda: 10**400, "it gives about 10^400, wanted 1"),
        (lambda: X.to_sparse(), "it gives a sparse tensor: make it dense"),
        (lambda: X.to("meta"), "it gives a tensor on the device `meta`"),
        (lambda: 1j, "it gives 1j, wanted 1"),
        (lambda: torch.tensor(1 + 0j), "the dtype is torch.complex64, wanted"),
        (lambda: square, "it gives a function, wanted 1"),
        (lambda: range(10**9), ": it gives [0, 1, 2, ...], more than 10,000 things"),
    ):
        assert words in compared(lambda x, give=give: give(), lambda x: 1, (X,))


def test_ctrl_c_goes_through():
    def interrupted(*case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checks.fold(interrupted)


KINDS_OF_LISTS = {
    "tuple": tuple,
    "iterator": iter,
    "map": partial(map, lambda x: x),
    "filter": partial(filter, lambda x: True),
    "deque": deque,
    "view": lambda x: dict(enumerate(x)).values(),
}


@pytest.mark.parametrize("kind", KINDS_OF_LISTS)
@every_check
def test_all_kinds_of_lists_are_alike(check, kind):
    right = right_ones(check)[0]

    def answer(*case):
        result = right(*case)
        is_list = isinstance(result, list | tuple)
        return KINDS_OF_LISTS[kind](result) if is_list else result

    assert said_of(check, answer) is None


@every_check
def test_an_array_or_a_tensor_of_the_same_numbers_is_a_list(check):
    right = right_ones(check)[0]
    for kind in (np.array, torch.tensor):

        def answer(*case, kind=kind):
            result = right(*case)
            plain = isinstance(result, list | tuple)
            numbers = plain and all(isinstance(x, int | float) for x in result)
            return kind(result) if numbers else result

        assert said_of(check, answer) is None


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
    if n_calls and check is checks.cabinet:
        return  # it asks its answer once
    right = right_ones(check)[0]
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
    exercise = Exercise(right, [*cases], mistakes or {}, "praise", **how)
    with pytest.raises(Mistake) as caught:
        compare("name", answer, exercise)
    return str(caught.value)


def test_what_is_handed_over_stays_to_the_bit_also_in_a_tuple():
    def spoils(pair):
        total = pair[0] + pair[1]
        pair[0].mul_(1.00005)
        return total

    said = compared(spoils, lambda pair: pair[0] + pair[1], ((X, X.clone()),))
    assert said == "name: the function changes its input: work on a copy"


def first(parts):
    return parts[0].clone()


def of_a(parts):
    return parts["a"].clone()


@pytest.mark.parametrize("amount", [5e-5, 1e-12])
@pytest.mark.parametrize(
    ("right", "case"),
    [
        (first, [X.double() + 1, X]),
        (first, (X.double() + 1, X)),
        (of_a, {"a": X.double() + 1, "b": torch.nan}),
        (lambda parts: of_a(parts[1][0]), (0.5, [{"a": X.double() + 1}])),
        (lambda parts: parts["a"][0][0] + 1, {"a": [(1.0, torch.nan)]}),
    ],
)
def test_what_is_handed_over_stays_to_the_bit_at_every_depth(right, case, amount):
    def spoiled(x):
        """The same with everything a little larger, in place where that can be."""
        if isinstance(x, Tensor) and x.is_floating_point():
            return x.mul_(1 + amount)
        if isinstance(x, list):
            x[:] = [spoiled(part) for part in x]
        elif isinstance(x, dict):
            x.update((key, spoiled(part)) for key, part in x.items())
        elif isinstance(x, tuple):
            return tuple(spoiled(part) for part in x)
        return x * (1 + amount) if isinstance(x, float) else x

    def spoils(parts):
        result = right(parts)
        spoiled(parts)
        return result

    def touches(parts):
        return right(copy.deepcopy(parts))

    assert "the function changes its input" in compared(spoils, right, (case,))
    compare("name", touches, Exercise(right, [(case,)], {}, "praise"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([1, 2], [1, 2.0]),
        ([1], [True]),
        ([0.0], [-0.0]),
        (torch.zeros(2), -torch.zeros(2)),
        ([X], [X.double()]),
        ([X], [X.T]),
        ({"a": 1}, {"a": 1, "b": 1}),
        ({"a": 1, "b": 1}, {"a": 1}),
        ({"seen": {1}}, {"seen": {1, 2}}),
        ((None, "b"), (None, "c")),
        ([None], [1]),
        ([1, 2], [1]),
    ],
)
def test_an_input_is_changed_or_it_is_not(before, after):
    assert is_changed(before, after)
    assert not is_changed(before, copy.deepcopy(before))


def test_nan_is_nan_and_a_model_is_not_looked_at():
    nan = torch.tensor([math.nan, 1])
    assert not is_changed([nan, {"x": math.nan}], [-nan.abs() * -1, {"x": -math.nan}])
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    assert not is_changed(models[:1], models[1:])


def test_a_dictionary_must_have_the_same_keys_and_no_other():
    right = {"loss": 1.5, "seen": [1, 2]}
    assert difference(dict(right), right) is None
    for wrong, words in (
        ({"loss": 1.5}, "it gives nothing for 'seen'"),
        (right | {"again": 1}, "it also gives 'again', which isn't asked for"),
        (right | {"loss": 2.5}, "at loss it gives 2.5, wanted 1.5"),
        (["loss", "seen"], "it gives ['loss', 'seen'], wanted {'loss': 1.5"),
    ):
        assert words in difference(wrong, right)
        assert words in difference([wrong], [right])


def test_a_wrong_answer_is_told_the_input_the_place_and_both_values():
    said = compared(lambda x, n: x * (x < 4) + 4, lambda x, n: x + 4, (X, 2))
    assert said == "name: for x (2, 3), n = 2: at [1, 1] it gives 4, wanted 8"
    said = compared(lambda x: (x, x + 1), lambda x: (x, x), (X,))
    assert said == "name: for x (2, 3): at [1][0, 0] it gives 1, wanted 0"
    said = compared(lambda x: 1.00023, lambda x: 1.0, (X,))
    assert said == "name: for x (2, 3): it gives 1.00023, wanted 1"
    said = compared(lambda n: 1_234_567, lambda n: 1_234_500, (2,))
    assert said == "name: for n = 2: it gives 1234567, wanted 1234500"
    said = compared(lambda f: 0, lambda f: 1, (lambda x: x,))
    assert said == "name: for f = …: it gives 0, wanted 1"


MANY = 3 * 2**59


def test_whole_numbers_are_the_same_or_not():
    """And a quotient of two, which is a float, is it but for rounding."""
    tensor = torch.tensor
    for result, expected in (
        (1_234_567, 1_234_500),
        (MANY + 1, MANY),
        (1_234_567.0, 1_234_566),
        (tensor(1_234_567.0), 1_234_566),
        (tensor([50_001, 1]), tensor([50_000, 1])),
        (tensor(50_001, dtype=torch.int32), 50_000),
        ([7, 50_001], [7, 50_000]),
        (tensor([7.0, 50_001]), [7, 50_000]),
        ({"bytes": 50_001}, {"bytes": 50_000}),
        ((tensor([MANY + 1]), 1), (tensor([MANY]), 1)),
    ):
        words = difference(result, expected)
        assert words and re.search("it gives (.+), wanted (.+)", words)
        gives, wanted = re.search("it gives (.+), wanted (.+)", words).groups()
        assert gives != wanted
    for result, expected in (
        (1_234_567.0, 1_234_567),
        (0.1 * 3 * 10, 3),
        (np.float64(7e5) / 7, 100_000),
        (tensor(1_234_567.0), 1_234_567),
        (tensor([3], dtype=torch.uint16), tensor([3])),
        (MANY + 1, MANY + 1),
        (1.00001, 1.0),
    ):
        assert difference(result, expected) is None


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
    (lambda x: x.clone().requires_grad_(), lambda x: x),
    (lambda x: torch.stack([x, x + 1]), lambda x: (x, x + 1)),
    (lambda x: filter(None, [1, 0, 2]), lambda x: [1, 2]),
    (lambda x: {1: 0, 2: 0}.keys(), lambda x: [1, 2]),
    (lambda x: np.array(["a", "b"]), lambda x: ["a", "b"]),
    (lambda x: np.str_("a"), lambda x: "a"),
    (lambda x: x.long().int(), lambda x: x.long()),
    (lambda x: 12.0, lambda x: 12),
    (lambda x: torch.tensor(12), lambda x: 12),
    (lambda x: np.int64(12), lambda x: torch.tensor(12)),
    (lambda x: [np.float32(0.5)], lambda x: [0.5]),
    (lambda x: 0.5, lambda x: torch.tensor(0.5)),
]


@pytest.mark.parametrize("answer, right", STYLES)
def test_a_right_answer_in_another_style_passes(answer, right, capsys):
    compare("name", answer, Exercise(right, [(X.clone(),)], {}, "praise"))
    assert capsys.readouterr().out == "✓ name: praise\n"


def square(n):
    return n**2


def test_a_mistake_is_a_function_and_explains_every_case():
    mistakes = {"doubled": lambda n: 2 * n, "cubed": lambda n: n**3}
    doubled = compared(lambda n: 2 * n, square, (2,), (3,), mistakes=mistakes)
    assert doubled == "name: doubled"
    cubed = compared(lambda n: n**3, square, (2,), (3,), mistakes=mistakes)
    assert cubed == "name: cubed"
    other = compared(
        lambda n: 6 if n == 3 else 0, square, (2,), (3,), mistakes=mistakes
    )
    assert other == "name: for n = 2: it gives 0, wanted 4"


def test_a_mistake_may_be_an_error_or_share_one_with_the_answer():
    mistakes = {"divide by n": Raises(ZeroDivisionError, "division by zero")}
    said = compared(lambda n: 1 / 0, square, (2,), mistakes=mistakes)
    assert (
        said == "name: it stops with ZeroDivisionError: division by zero: divide by n"
    )
    said = compared(lambda n: n[0], square, (2,), mistakes=mistakes)
    assert said.startswith("name: for n = 2: it stops with TypeError")
    late = {"only small": lambda n: [4][n - 2]}  # both fail for 3
    assert compared(late["only small"], square, (2,), (3,), mistakes=late) == (
        "name: it stops with IndexError: list index out of range: only small"
    )


def test_how_an_answer_is_used_names_what_is_off_and_may_refuse_it():
    def use(function, n, m):
        if m > 3:
            raise Mistake("m is large")
        return {"first": function(n), "second": [function(m)]}

    said = compared(lambda n: 4, square, (2, 3), use=use)
    assert said == "name: for n = 2, m = 3: at second[0] it gives 4, wanted 9"
    with pytest.raises(Mistake, match="^m is large$"):  # the check itself is wrong
        compare("name", square, Exercise(square, [(2, 4)], {}, "praise", use))


def test_drawn_numbers_are_the_same_every_time():
    assert torch.equal(draw(2, 3), draw(2, 3))
    assert not torch.equal(draw(2, 3), draw(2, 3, seed=1))


def divided(n):
    return 6 // (3 - n) - 2


def test_an_error_explains_only_what_stops_in_the_same_words():
    """Each answer is right for 1, and stops for 3."""
    mistakes = {"n may be 3": divided}

    def told_of(stop):
        answer = lambda n: stop() if n == 3 else 1  # noqa: E731
        return compared(answer, lambda n: 1, (1,), (3,), mistakes=mistakes)

    line = "name: it stops with ZeroDivisionError: integer division or modulo by zero"
    assert told_of(lambda: 1 // 0) == f"{line}: n may be 3"
    for stop in (lambda: 1 / 0, lambda: [][0], own_text, lambda: F):  # noqa: F821
        assert told_of(stop).startswith("name: for n = 3: it stops with ")
        assert "may be" not in told_of(stop)


def test_an_error_explains_nothing_where_something_else_is_wrong():
    mistakes = {"n may be 3": Raises(ZeroDivisionError, "by zero")}

    def told_of(answer):
        return compared(answer, lambda n: 1, (1,), (2,), (3,), mistakes=mistakes)

    assert told_of(lambda n: n // n if n < 3 else 1 // 0).endswith("n may be 3")
    assert told_of(lambda n: n if n < 3 else 1 // 0).endswith("it gives 2, wanted 1")


def test_an_error_that_comes_out_of_another_s_code_explains_nothing():
    mistakes = {"don't divide": Raises(ZeroDivisionError, "by zero")}
    said = compared(lambda n: fractions.Fraction(1, n), square, (0,), mistakes=mistakes)
    assert said == "name: for n = 0: it stops with ZeroDivisionError: Fraction(1, 0)"


def test_the_check_s_own_arithmetic_is_not_the_answer_s_error():
    """The answers are those of another module, as a notebook's are."""

    def doubled(function, n):
        return [2 * x for x in function(n)]

    for source, line in (
        ("lambda n: 5", "it gives 5, wanted [3]"),
        ("lambda n: [None]", "it gives [None], wanted [3]"),
        ("lambda n: [1 // n, 1 // (n - 3)]", "it stops with ZeroDivisionError: "),
        ("lambda n: (1 // x for x in [0])", "it stops with ZeroDivisionError: "),
        ("lambda: [1]", "it stops with TypeError: "),
    ):
        said = compared(eval(source, {}), lambda n: [n], (3,), use=doubled)
        assert re.match(rf"name: (for n = 3: )?{re.escape(line)}", said), said


class Forgotten(torch.nn.Module):
    """A module without a `forward`: PyTorch raises NotImplementedError."""


def kept(function):
    @functools.wraps(function)
    def inner(*case):
        return function(*case)

    return inner


class Callable:
    def __call__(self, *case):
        raise NotImplementedError("later")


STUBS = {
    "a function": unwritten,
    "a partial": partial(unwritten, 1),
    "a decorated one": kept(unwritten),
    "without gradients": torch.no_grad()(unwritten),
    "an object": Callable(),
    "a method": Callable().__call__,
    "half of it": lambda *case: [unwritten() for _ in range(2)],
    "in a generator": lambda *case: (unwritten() for _ in range(2)),
}


@pytest.mark.parametrize("stub", STUBS.values(), ids=STUBS)
def test_what_its_own_code_leaves_to_write_is_yours_to_write(stub, capsys):
    compare("name", stub, Exercise(square, [(2,)], {}, "praise"))
    assert capsys.readouterr().out == "○ name: yours to write\n"


NOT_STUBS = [
    lambda x: (x > 0).softmax(0),
    lambda x: torch.fft.fft(x.to(torch.bfloat16)) and torch.eye(2).bool().inverse(),
    lambda x: Forgotten()(x),
    lambda x: (row.bool().softmax(0) for row in x),
]


@pytest.mark.parametrize("answer", NOT_STUBS)
def test_what_pytorch_has_not_implemented_is_no_stub(answer):
    said = compared(answer, lambda x: x, (X,))
    assert said.startswith("name: for x (2, 3): it stops with ")


EFFECTS = {
    "gradients switched off": lambda: torch.set_grad_enabled(False),
    "gradients switched off for": lambda: torch.no_grad().__enter__(),
    "another default dtype": lambda: torch.set_default_dtype(torch.float64),
    "another default device": lambda: torch.set_default_device("meta"),
    "another number of threads": lambda: torch.set_num_threads(2),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "deterministic algorithms switched": lambda: torch.use_deterministic_algorithms(
        True, warn_only=True
    ),
    "less exact": lambda: torch.set_float32_matmul_precision("medium"),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "all warnings switched off": lambda: warnings.simplefilter("ignore"),
}


def state() -> tuple:
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_anomaly_enabled(),
        [*warnings.filters],
        torch.get_rng_state().tolist(),
        random.getstate(),
    )


@pytest.mark.parametrize("words", EFFECTS)
def test_what_an_answer_does_to_everybody_is_named_and_undone(words):
    def answer(n):
        EFFECTS[words]()
        return n**2

    def stopping(n):
        EFFECTS[words]()
        return n // 0

    before = state()
    said = compared(answer, square, (2,))
    assert said.startswith("name: the answer leaves ") and words in said
    assert "ZeroDivisionError" in compared(stopping, square, (2,))
    assert state() == before


def test_a_moved_seed_and_a_filter_of_warnings_are_undone_without_a_word(capsys):
    def answer(n):
        torch.manual_seed(1)
        torch.rand(2)
        random.seed(1)
        warnings.filterwarnings("ignore", message="a single one")
        return n**2

    before = state()
    compare("name", answer, Exercise(square, [(2,), (3,)], {}, "praise"))
    assert state() == before and capsys.readouterr().out == "✓ name: praise\n"


def test_what_is_done_to_a_model_or_a_tensor_is_named():
    for change, words in (
        (lambda m, x: m.eval(), "the model in another mode"),
        (lambda m, x: m[0].eval(), "the model in another mode"),
        (lambda m, x: m.requires_grad_(False), "`requires_grad` changed"),
        (lambda m, x: m[1].bias.requires_grad_(False), "`requires_grad` changed"),
        (lambda m, x: x["deep"][0].requires_grad_(), "`requires_grad` changed"),
    ):
        model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(2, 2))

        def answer(m, x, change=change):
            change(m, x)
            return 1

        said = compared(answer, lambda m, x: 1, (model, {"deep": [X.clone()]}))
        assert said.startswith(f"name: the answer leaves {words}"), said
        assert model.training and all(p.requires_grad for p in model.parameters())


@torch.no_grad()
def zeroed(norm):
    norm.weight.zero_()


def replaced(norm):
    norm.bias = torch.nn.Parameter(norm.bias + 1)


def counted(norm):
    norm.num_batches_tracked += 1


def added_to(norm):
    norm.register_parameter("extra", torch.nn.Parameter(torch.ones(2)))


@pytest.mark.parametrize("spoil", [zeroed, replaced, counted, added_to])
def test_a_module_that_is_handed_over_stays_to_the_bit(spoil):
    """Spoiled after its use, where the answer's own number is right."""
    norms = (torch.nn.BatchNorm1d(3).eval(), torch.nn.BatchNorm1d(3).eval())

    def answer(x, norms):
        result = norms[1](norms[0](x))
        spoil(norms[0])
        return result

    said = compared(answer, lambda x, norms: norms[1](norms[0](x)), (X, norms))
    words = "the answer leaves other weights in the model than it was given"
    assert said == f"name: {words}: work on a copy"


def test_a_model_is_moved_only_beside_its_optimizer(capsys):
    def step(model, optimizer=None):
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.5)
        model(X).sum().backward()
        optimizer.step()
        return model(X)

    def with_optimizer(function, model):
        return function(model, torch.optim.SGD(model.parameters(), lr=0.5))

    case = (torch.nn.Linear(3, 2),)
    assert "leaves other weights in the model" in compared(step, step, case)
    compare("name", step, Exercise(step, [case], {}, "praise", with_optimizer))
    assert capsys.readouterr().out == "✓ name: praise\n"


def test_a_check_leaves_the_reader_s_seed():
    before = torch.get_rng_state()
    checks.sinks.exercise.cache_clear()
    said_of(checks.sinks, lambda attend: 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_where_a_notebook_has_no_gradients_a_right_answer_has_them(capsys):
    with torch.no_grad():
        checks.best(training.right_best)
        for of, answer in one_machine.RIGHT:
            if of is checks.accumulated:
                checks.accumulated(answer)
        assert not torch.is_grad_enabled()
    assert capsys.readouterr().out.count("✓") > 2
