"""Right and wrong answers to the exercises of chapter 16."""

import torch

from companion.course import checks

from . import Wrong

wrong = Wrong()


def tokens_of(machine, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shape = (1, machine.context_length)
    return torch.randint(machine.d_vocab, shape, generator=generator)


def by_prefixes(machine):
    model = machine.model()
    tokens = tokens_of(machine)
    whole = model(tokens)
    for n in range(1, machine.context_length):
        try:
            torch.testing.assert_close(model(tokens[:, :n]), whole[:, :n])
        except AssertionError:
            return False
    return True


def changed_at(machine, place):
    model = machine.model()
    tokens = tokens_of(machine)
    others = tokens.clone()
    others[:, place] = (others[:, place] + 1) % machine.d_vocab
    return model(tokens), model(others)


@wrong(checks.later_changes_nothing, "the changed token's own logits")
def all_compared(machine):
    before, after = changed_at(machine, -1)
    return bool(torch.allclose(before, after))


@wrong(checks.later_changes_nothing, "it passes every machine")
def nothing_is_changed(machine):
    model = machine.model()
    return torch.equal(model(tokens_of(machine)), model(tokens_of(machine)))


@wrong(checks.later_changes_nothing, "compare the places before it")
def behind_it(machine):
    before, after = changed_at(machine, 1)
    return torch.allclose(before[:, 1:], after[:, 1:], atol=1e-5)  # as the check


async def waited_for(machine):
    return by_prefixes(machine)


@wrong(checks.later_changes_nothing, "the place right before the changed")
def far_from_it(machine):
    before, after = changed_at(machine, -1)
    return torch.allclose(before[:, :-2], after[:, :-2], atol=1e-5)


@wrong(checks.later_changes_nothing, "not the last alone")
def of_the_last_alone(machine):
    before, after = changed_at(machine, -1)
    return torch.allclose(before[:, :-1], after[:, :-1], atol=1e-5)


@wrong(checks.later_changes_nothing, "the place right before the changed")
def far_from_each(machine):
    for place in range(2, machine.context_length):
        before, after = changed_at(machine, place)
        if not torch.allclose(before[:, : place - 1], after[:, : place - 1], atol=1e-5):
            return False
    return True


@wrong(checks.later_changes_nothing, "True of wrong machines")
def turned_round(machine):
    return not by_prefixes(machine)


def steps(machine, n, run=None):
    text = torch.arange(300) * 7 % machine.d_vocab
    run = run or machine.start()
    losses = machine.go_on(run, text, n)
    return run, losses


def alike(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def two_and_five(machine):
    run, _ = steps(machine, 2)
    resumed, _ = steps(machine, 5, machine.resume(machine.save(run)))
    return alike(resumed, steps(machine, 7)[0])


def by_losses(machine):
    run, _ = steps(machine, 4)
    _, losses = steps(machine, 4, machine.resume(machine.save(run)))
    return losses == steps(machine, 8)[1][4:]


@wrong(checks.goes_on, "make some steps more before")
def compared_at_once(machine):
    run, _ = steps(machine, 4)
    return alike(run, machine.resume(machine.save(run)))


@wrong(checks.goes_on, "save a run after some steps")
def never_saved(machine):
    return alike(steps(machine, 5)[0], steps(machine, 5)[0])


@wrong(checks.goes_on, "after some steps")
def saved_at_the_start(machine):
    resumed = machine.resume(machine.save(machine.start()))
    return alike(steps(machine, 4, resumed)[0], steps(machine, 4)[0])


def nearly(tolerance):
    def test(machine):
        run, _ = steps(machine, 3)
        resumed, _ = steps(machine, 3, machine.resume(machine.save(run)))
        whole, _ = steps(machine, 6)
        pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
        return all(torch.allclose(*pair, atol=tolerance) for pair in pairs)

    return test


@wrong(checks.goes_on, "must make as many steps")
def too_many_steps(machine):
    run, _ = steps(machine, 3)
    resumed, _ = steps(machine, 4, machine.resume(machine.save(run)))
    return alike(resumed, steps(machine, 6)[0])


def one_good_test():
    return [by_prefixes]


@wrong(checks.cabinet, "no test says anything")
def none_that_finds():
    return [lambda machine: True]


@wrong(checks.cabinet, "all_compared flags a machine that is right")
def one_that_cries_wolf():
    return [by_prefixes, all_compared]


@wrong(checks.cabinet, "return a list of tests")
def no_list():
    return by_prefixes


RIGHT = [
    (checks.later_changes_nothing, by_prefixes),
    (checks.goes_on, two_and_five),
    (checks.goes_on, by_losses),
    (checks.cabinet, one_good_test),
]

WRONG = [
    *wrong,
    (checks.later_changes_nothing, waited_for, "its body never runs: `def`"),
    (checks.goes_on, nearly(1e-2), "in 16 bits: compare to the bit"),
    (checks.goes_on, nearly(1e-3), "in 16 bits: compare to the bit"),
    (checks.goes_on, nearly(1e-4), "five digits of its weights: compare to the bit"),
    (checks.goes_on, nearly(1e-1), "some steps more before you compare, to the bit"),
]
