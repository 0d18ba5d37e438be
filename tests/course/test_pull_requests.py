"""Pull requests of chapter 16: what they show is so, and their judge isn't fooled."""

import ast
import inspect
import re
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import nbformat
import pytest
import torch
from answers import nothing_crashes
from common import rounding
from torch.testing import assert_close

from companion.course import checks
from companion.course.cabinet import pull_requests as shown
from companion.course.checks import pull_requests as judge
from companion.course.checks.compare import graded
from companion.course.checks.mistakes import Mistake

CHECKS = [checks.sinks, checks.same_share, checks.router, checks.packed]
each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda x: x.__name__)
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "16_nothing_crashes.ipynb"


def said_of(check, test) -> str:
    try:
        check(test)
    except Mistake as mistake:
        return str(mistake)
    return ""


# The threads' numbers, and what is behind them.


def smallest_case(attend):
    """q = k = 1, v = 2, sink 0: the result, then the gradients."""
    inputs = [torch.full(s, x).double() for s, x in (((1, 1), 1.0), ((1, 1), 1.0))]
    inputs += [torch.full((1, 1), 2.0).double(), torch.tensor(0.0).double()]
    for x in inputs:
        x.requires_grad_()
    result = attend(*inputs)
    return [x.item() for x in (result, *torch.autograd.grad(result, inputs))]


def test_the_sink_s_smallest_case_is_the_report_s():
    right = smallest_case(shown.sink_in_softmax)
    wrong = smallest_case(shown.sink_after_fused)
    # By hand: share s = e / (e + 1), d(2 s)/dq = 2 s (1 - s).
    share = 1 / (1 + torch.tensor(-1.0).double().exp().item())
    slope = 2 * share * (1 - share)
    assert slope == pytest.approx(0.39322387, abs=5e-9)
    assert right == pytest.approx([2 * share, slope, slope, share, -slope], abs=1e-12)
    assert wrong == pytest.approx([2 * share, 0, 0, share, -slope], abs=1e-12)


def test_both_shares_are_one_function():
    generator = torch.Generator().manual_seed(0)
    log_sums = 5 * torch.randn(4, 1000, generator=generator).double()
    sinks = torch.randn(4, generator=generator).double()
    one = shown.by_sigmoid(log_sums, sinks)
    other = shown.by_renormalizing(log_sums, sinks)
    # log_sums up to 30 are subtracted before the exponential: some 30 roundings.
    assert_close(one, other, rtol=64 * torch.finfo(torch.float64).eps, atol=0)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_share_that_is_divided_by_itself_teaches_nothing(k):
    lengths = []
    for mix in (shown.always_divided, shown.divided_from_two_on):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(64, 16, generator=generator)
        router = torch.randn(4, 16, generator=generator, requires_grad=True)
        experts = torch.randn(4, 16, 8, generator=generator)
        mix(x, router, experts, k).square().sum().backward()
        lengths.append(router.grad.norm())
    if k == 1:
        assert lengths[0] < 1e-5 * lengths[1]
    else:
        assert_close(lengths[0], lengths[1])


def test_positions_that_begin_anew_change_nothing_behind_the_mask():
    """With the mask texts are alone; without it they aren't, wherever they begin."""
    inputs = torch.randn(3, 20, 8, generator=torch.Generator().manual_seed(0))
    lengths = [6, 9, 5]
    alone = [shown.texts_apart(*x, [x.shape[1]]) for x in inputs.split(lengths, 1)]
    alone = torch.cat(alone)
    close = rounding(32, alone)  # products of 8, angles up to 20
    assert_close(shown.texts_apart(*inputs, lengths), alone, **close)
    reset = shown.positions_reset(*inputs, lengths)
    assert_close(reset[:6], alone[:6], **close)
    assert ((reset - alone)[6:].abs().amax(-1) > 1e-3).all()


def plain(source: str) -> str:
    """Code without docstrings and annotations."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
            if ast.get_docstring(node):
                node.body.pop(0)
    return ast.unparse(tree)


def test_the_chapter_prints_the_versions_that_the_check_holds():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    printed = "\n".join(re.findall(r"```python\n(.*?)```", prose, re.S))
    names = [node.name for node in ast.parse(printed).body]
    assert len(names) == 8
    sources = "\n".join(inspect.getsource(getattr(shown, name)) for name in names)
    assert plain(printed) == plain(sources)


# The judge.


@each_check
def test_several_versions_are_right_and_several_wrong(check):
    """At least two of each that nobody is shown."""
    cases = check.exercise().cases
    hidden = [
        case
        for case in cases
        if not all(getattr(f, "__name__", "") in vars(shown) for f in case[0])
    ]
    verdicts = [is_right for _, is_right, _ in hidden]
    assert verdicts.count(True) >= 2 and verdicts.count(False) >= 3


@each_check
@pytest.mark.parametrize("n", [1, 4, 13])
def test_a_test_that_counts_is_refused(check, n):
    calls = count()
    assert said_of(check, lambda *versions: next(calls) < n)
    calls = count()
    assert said_of(check, lambda *versions: next(calls) % (n + 1) != n)


@each_check
def test_a_test_that_draws_its_verdict_is_refused(check):
    for p in (0.1, 0.5, 0.9):
        assert said_of(check, lambda *versions, p=p: bool(torch.rand(()) < p))


@each_check
def test_what_a_test_replaces_is_put_back(check):
    right = next(test for of, test in nothing_crashes.RIGHT if of is check)
    before = torch.Tensor.softmax, torch.nn.functional.softmax

    def my_patch(*versions):
        result = right(*versions)
        torch.Tensor.softmax = None
        torch.nn.functional.softmax = None
        return result

    assert said_of(check, my_patch) == ""
    assert (torch.Tensor.softmax, torch.nn.functional.softmax) == before


def yields(*versions):
    yield True


async def waits(*versions):
    return True


def asserts(*versions):
    assert versions


@each_check
@pytest.mark.filterwarnings("error")
def test_what_is_no_verdict_is_named(check):
    assert "not True or False" in said_of(check, yields)
    assert "its body never runs: `def`" in said_of(check, waits)
    assert "is there a `return`" in said_of(check, asserts)
    assert "not True or False" in said_of(check, lambda *versions: "yes")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such signal here")
def test_a_test_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(judge, "SECONDS", 0.2)
    said = said_of(checks.packed, lambda read: time.sleep(60))
    assert "takes longer than 0.2 s for one version" in said


@each_check
def test_names_tell_nothing_of_a_version(check):
    told = set()

    def my_look(*versions):
        for version in versions:
            names = version.__name__, version.__qualname__, version.__module__
            told.add((*names, version.__doc__, version.__code__))
        return True

    assert said_of(check, my_look) and len(told) == 1


@each_check
def test_an_error_of_the_test_s_own_is_told(check):
    said = said_of(check, lambda *versions: 1 / 0)
    assert "it stops with ZeroDivisionError" in said
    with graded(), pytest.raises(Mistake, match="yours to write"):
        check(stub)


def stub(*versions):
    raise NotImplementedError


@each_check
def test_no_word_tells_a_hidden_version_s_code(check):
    wrong = [test for of, test, _ in nothing_crashes.WRONG if of is check]
    for test in wrong[-3:]:
        assert not re.search("lambda|<|versions =", said_of(check, test))


def test_no_test_is_stopped_while_pytorch_loads_what_the_first_way_back_needs():
    """Else a slow machine breaks off an import, and all that follows fails."""
    program = """
import sys
from companion.course.checks import pull_requests as judge
part = "torch.fx.experimental.symbolic_shapes"
assert part not in sys.modules
judge.judged_beside((abs,), "it flags abs")
assert part in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
