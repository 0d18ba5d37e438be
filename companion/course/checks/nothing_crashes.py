"""Checks of chapter 16: tests are held against machines, right and wrong ones."""

from collections.abc import Callable
from functools import partial

import torch

from ..cabinet import faults
from ..cabinet.disguise import classes_of, disguised
from ..cabinet.machine import Cache, Machine, Run, SmallGPT
from .compare import GRADED, Exercise, check
from .effects import attributes_kept
from .judge import NoVerdict, judge, right_machines, verdict_of
from .mistakes import Mistake, Stop
from .outcomes import raised_by, unwritten
from .words import TooMany, describe, listed, unreadable


def passes(test: Callable, machine: Machine) -> bool:
    """Whether a test passes a machine; an error of PyTorch's comparison says no."""
    try:
        with attributes_kept(*classes_of(machine)), disguised(machine):
            return verdict_of(test(machine))
    except NoVerdict as error:
        raise Mistake(f"it {error}") from None
    except AssertionError as error:
        if isinstance(error, Mistake):
            raise
        return False


def small(machine: type[Machine], n_layers: int = 2) -> Machine:
    """A machine of few numbers, so that a check takes no time."""
    return machine(
        d_vocab=11, context_length=7, d_model=16, n_heads=2, n_layers=n_layers
    )


class LastPlaceLeaks(SmallGPT):
    """The first place sees the last one."""

    seen_by_the_first = slice(-1, None)

    def mask(
        self, n_seen: int, n_new: int, is_text: torch.Tensor | None
    ) -> torch.Tensor:
        mask = super().mask(n_seen, n_new, is_text).clone()
        mask[..., 0, self.seen_by_the_first] = True
        return mask


class SecondPlaceLeaks(LastPlaceLeaks):
    """The first place sees the second one, and no other sees anything later."""

    seen_by_the_first = slice(1, 2)


class ThirdPlaceLeaks(SmallGPT):
    """The second place sees the third one, and no other sees anything later."""

    def mask(
        self, n_seen: int, n_new: int, is_text: torch.Tensor | None
    ) -> torch.Tensor:
        mask = super().mask(n_seen, n_new, is_text).clone()
        mask[..., 1:2, 2:3] = True
        return mask


class FifthPlaceLeaks(SmallGPT):
    """The third place sees the fifth one, and no other sees anything later."""

    def mask(
        self, n_seen: int, n_new: int, is_text: torch.Tensor | None
    ) -> torch.Tensor:
        mask = super().mask(n_seen, n_new, is_text).clone()
        mask[..., 2:3, 4:5] = True
        return mask


class FaintLeak(SmallGPT):
    """Each place has a little of the next one's logits."""

    def forward(
        self,
        tokens: torch.Tensor,
        cache: Cache | None = None,
        is_text: torch.Tensor | None = None,
    ) -> torch.Tensor:
        logits = super().forward(tokens, cache, is_text)
        return logits + 0.003 * torch.nn.functional.pad(logits[:, 1:], (0, 0, 0, 1))


@check
def later_changes_nothing() -> Exercise:
    """`answer(machine)`: whether no token changes the logits before it."""

    def tokens_of(machine: Machine) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        shape = (2, machine.context_length)
        return torch.randint(machine.d_vocab, shape, generator=generator)

    def logits_before_and_after(
        machine: Machine, place: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        model = machine.model()
        tokens = tokens_of(machine)
        others = tokens.clone()
        others[:, place] = (others[:, place] + 1) % machine.d_vocab
        with torch.no_grad():
            return model(tokens), model(others)

    # To 1e-5, a hundred roundings of float32; a fault moves a logit by a thousandth.
    def compared(machine: Machine, n_left_out: int = 0, atol: float = 1e-5) -> bool:
        for place in range(1 + n_left_out, machine.context_length):
            before, after = logits_before_and_after(machine, place)
            seen = slice(place - n_left_out)
            if not torch.allclose(before[:, seen], after[:, seen], atol=atol):
                return False
        return True

    def right(machine: Machine) -> bool:
        return compared(machine)

    def one_place_alone(machine: Machine, seen_before: Callable) -> bool:
        """Whether, for each token that is changed, one place keeps its logits."""
        for place in range(1, machine.context_length):
            before, after = logits_before_and_after(machine, place)
            seen = seen_before(place)
            if not torch.allclose(before[:, seen], after[:, seen], atol=1e-5):
                return False
        return True

    def place_before_alone(machine: Machine) -> bool:
        return one_place_alone(machine, lambda place: place - 1)

    def first_place_alone(machine: Machine) -> bool:
        return one_place_alone(machine, lambda place: 0)

    def first_place_and_the_one_before(machine: Machine) -> bool:
        return first_place_alone(machine) and place_before_alone(machine)

    def one_place_left_out(machine: Machine) -> bool:
        return compared(machine, 1)

    def too_wide(machine: Machine) -> bool:
        return compared(machine, atol=0.03)

    def last_changed_alone(machine: Machine, n_left_out: int = 0) -> bool:
        before, after = logits_before_and_after(machine, -1)
        seen = slice(-1 - n_left_out)
        return torch.allclose(before[:, seen], after[:, seen], atol=1e-5)

    def last_changed_one_left_out(machine: Machine) -> bool:
        return last_changed_alone(machine, 1)

    def all_places_compared(machine: Machine) -> bool:
        before, after = logits_before_and_after(machine, -1)
        return torch.allclose(before, after, atol=1e-5)

    def nothing_changed(machine: Machine) -> bool:
        return True

    def wrong_way_round(machine: Machine) -> bool:
        return not right(machine)

    wrong_models = [
        faults.OneAhead,
        LastPlaceLeaks,
        faults.with_attention(faults.SoftmaxOverQueries),
        faults.with_norm(faults.NormOverTime),
        FaintLeak,
    ]
    cases = [(small(Machine),), (right_machines()[1],)]
    cases += [(small(faults.model_fault(model)),) for model in wrong_models]
    # With one layer a leak goes no further than its own place.
    one_layer = [faults.OneAhead, SecondPlaceLeaks, ThirdPlaceLeaks, LastPlaceLeaks]
    one_layer += [FifthPlaceLeaks]
    cases += [(small(faults.model_fault(model), 1),) for model in one_layer]
    mistakes = {
        "it flags every machine: the changed token's own logits, and later ones,"
        " may change: compare the places before it": all_places_compared,
        "it passes every machine: change a token, and compare the logits before"
        " it": nothing_changed,
        "it says True of wrong machines, and False of right ones": wrong_way_round,
        "it passes a machine whose places look one ahead, with one layer: compare"
        " the place right before the changed token, too": one_place_left_out,
        "it passes a machine whose first place sees the second: change every token"
        " in turn, not the last alone": last_changed_alone,
        "it changes the last token alone, and leaves out the place right before the"
        " changed one: change every token in turn, and compare all places before it": (
            last_changed_one_left_out
        ),
        "it compares the place before the changed token alone: the first place may"
        " see the last": place_before_alone,
        "it looks at the first place alone: the second may see the third": (
            first_place_alone
        ),
        "its tolerance is too wide: a leak may move a logit by a thousandth, rounding"
        " moves it by less than a hundred-thousandth": too_wide,
        "it looks at some places alone: compare all before the changed token": (
            first_place_and_the_one_before
        ),
    }
    praise = "it finds who looks ahead, and flags nobody else"
    return Exercise(right, cases, mistakes, praise, passes)


class OptimizerForgotten(Machine):
    """A resumed run begins with a new optimizer."""

    def resume(self, saved: dict) -> Run:
        run = super().resume(saved)
        run.optimizer = self.optimizer(run.model)
        return run


class StepForgotten(Machine):
    """A resumed run warms up once more."""

    def resume(self, saved: dict) -> Run:
        run = super().resume(saved)
        run.step = 0
        return run


class NoCopies(Machine):
    """A checkpoint holds the run's own weights, which go on changing."""

    def save(self, run: Run) -> dict:
        saved = super().save(run)
        return saved | {
            "weights": run.model.state_dict(),
            "optimizer": run.optimizer.state_dict(),
        }


class WeightsIn16Bits(Machine):
    """A checkpoint has 16 bits for each weight."""

    def save(self, run: Run) -> dict:
        saved = super().save(run)
        weights = saved["weights"].items()
        return saved | {"weights": {name: w.half() for name, w in weights}}


class WeightsInFiveDigits(Machine):
    """A checkpoint is a text, and has five digits for each weight."""

    def resume(self, saved: dict) -> Run:
        run = super().resume(saved)
        for weight in run.model.parameters():
            digits = [float(f"{x:.5g}") for x in weight.flatten().tolist()]
            weight.data = torch.tensor(digits).view_as(weight)
        return run


class LastBitMoved(Machine):
    """A resumed run has one gain that is the next number of its kind."""

    def resume(self, saved: dict) -> Run:
        run = super().resume(saved)
        gain = next(p for p in run.model.parameters() if p.dim() == 1)
        gain.data[0] = gain.data[0].nextafter(torch.tensor(2.0))
        return run


class IdleNumberMoved(Machine):
    """A resumed run has one number that is the eighth after it, and moves no other.

    It multiplies a hidden feature that is 0 for every text, so no loss tells, and no
    other parameter; and it gets no gradient, so it is never rounded right again.
    """

    def model(self, seed: int = 0) -> SmallGPT:
        model = super().model(seed)
        model.blocks[0].feed_forward.to_hidden.weight.data[0] = 0
        return model

    def resume(self, saved: dict) -> Run:
        run = super().resume(saved)
        weight = run.model.blocks[0].feed_forward.to_output.weight
        for _ in range(8):
            weight.data[0, 0] = weight.data[0, 0].nextafter(torch.tensor(2.0))
        return run


@check
def goes_on() -> Exercise:
    """`answer(machine)`: whether a run that is saved and resumed goes on to the bit."""

    def text_of(machine: Machine) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(machine.d_vocab, (300,), generator=generator)

    def in_one_piece(machine: Machine, n_steps: int) -> Run:
        run = machine.start()
        machine.go_on(run, text_of(machine), n_steps)
        return run

    def equal(one: Run, other: Run) -> bool:
        weights = one.model.state_dict()
        others = other.model.state_dict()
        return all(torch.equal(weights[name], others[name]) for name in weights)

    def both(machine: Machine, n_before: int, n_after: int) -> tuple[Run, Run]:
        """A run that goes on after it was saved, and one that goes on from there."""
        run = in_one_piece(machine, n_before)
        saved = machine.save(run)
        machine.go_on(run, text_of(machine), n_after)
        resumed = machine.resume(saved)
        machine.go_on(resumed, text_of(machine), n_after)
        return run, resumed

    def both_at_once(machine: Machine, n_before: int, n_after: int) -> tuple[Run, Run]:
        """A run that never stops, and one that is resumed as soon as it is saved."""
        resumed = machine.resume(machine.save(in_one_piece(machine, n_before)))
        machine.go_on(resumed, text_of(machine), n_after)
        return in_one_piece(machine, n_before + n_after), resumed

    def right(machine: Machine) -> bool:
        return equal(*both(machine, 1, 1))

    def resumed_at_once(machine: Machine) -> bool:
        return equal(*both_at_once(machine, 1, 1))

    def all_pass(machine: Machine) -> bool:
        return True

    def saved_at_the_start(machine: Machine) -> bool:
        return equal(*both(machine, 0, 2))

    def first_alone(machine: Machine) -> bool:
        """As a loop that returns in its first round."""
        run, resumed = both(machine, 1, 1)
        one, other = next(run.model.parameters()), next(resumed.model.parameters())
        return torch.equal(one, other)

    def more_steps(machine: Machine) -> bool:
        resumed = machine.resume(machine.save(in_one_piece(machine, 1)))
        machine.go_on(resumed, text_of(machine), 2)
        return equal(in_one_piece(machine, 2), resumed)

    def compared_at_once(machine: Machine) -> bool:
        run = in_one_piece(machine, 1)
        return equal(run, machine.resume(machine.save(run)))

    def close(machine: Machine, tolerance: float, runs: Callable) -> bool:
        run, resumed = runs(machine, 3, 3)
        pairs = zip(run.model.parameters(), resumed.model.parameters(), strict=True)
        return all(torch.allclose(*pair, atol=tolerance) for pair in pairs)

    wrong_machines = [faults.GeneratorForgotten, OptimizerForgotten, StepForgotten]
    wrong_machines += [NoCopies, WeightsIn16Bits, WeightsInFiveDigits]
    wrong_machines += [LastBitMoved, IdleNumberMoved]
    cases = [(small(machine, 1),) for machine in (Machine, *wrong_machines)]
    mistakes = {
        "it passes every machine: save a run after some steps, resume it, and make"
        " some steps more before you compare, to the bit": all_pass,
        "it finds nothing but weights in fewer digits: save after some steps, and"
        " make some steps more before you compare": compared_at_once,
        "it passes a machine whose checkpoint is the run's own weights, and no copies:"
        " let the run go on between `save` and `resume`": resumed_at_once,
        "it compares the losses or the first parameter alone (a `return` in the loop's"
        " first round?): compare every parameter": first_alone,
        "it saves before the first step, where there is nothing to forget: save a run"
        " after some steps": saved_at_the_start,
        "it flags right machines: both runs must make as many steps, and their weights"
        " are compared, not their models": more_steps,
    }
    tolerances = {
        "saves its weights in 16 bits": 1e-2,
        "saves five digits of its weights": 1e-4,
        "moves one number by its last bits": 1e-8,
    }
    for what, tolerance in tolerances.items():
        words = f"it passes a machine that {what}: compare every parameter, to the bit"
        mistakes[words] = partial(close, tolerance=tolerance, runs=both)
        words += "; and let the run go on between `save` and `resume`"
        mistakes[words] = partial(close, tolerance=tolerance, runs=both_at_once)
    praise = "it finds what a checkpoint forgets"
    return Exercise(right, cases, mistakes, praise, passes)


def cabinet(answer: Callable) -> None:
    """`answer()`: a list of tests, each a function of a machine. Prints what they find.

    Raises Mistake where one flags a machine that is right, or none finds anything.
    """
    if not callable(answer):
        raise Mistake(f"cabinet: give the function itself, not {describe(answer)}")
    try:
        tests = listed(answer())
        words = unreadable(tests)
    except TooMany as many:
        raise Mistake(f"cabinet: it gives {many}") from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if not unwritten(error, answer):
            raise Mistake(f"cabinet: {Stop(error, raised_by(error, answer))}") from None
        if GRADED.get():
            raise Mistake("cabinet: yours to write") from None
        print("○ cabinet: yours to write")
        return
    if words:
        raise Mistake(f"cabinet: it gives {words}")
    is_list = isinstance(tests, list | tuple) and all(callable(test) for test in tests)
    if not is_list or not tests:
        raise Mistake(
            "cabinet: return a list of tests, functions of a machine, not"
            f" {describe(tests)}"
        )

    verdict = judge(tests)
    if verdict.alarms:
        raise Mistake(f"cabinet: {'; '.join(verdict.alarms)}. {verdict}")
    if not verdict.n_found:
        raise Mistake(f"cabinet: {verdict}: no test says anything against any machine")
    print(f"✓ cabinet: {verdict}, no false alarm")
