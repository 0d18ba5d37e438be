"""Right and wrong answers to the exercises of chapter 16."""

import torch

from companion.course import checks


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


def all_compared(machine):
    before, after = changed_at(machine, -1)
    return bool(torch.allclose(before, after))


def nothing_is_changed(machine):
    model = machine.model()
    return torch.equal(model(tokens_of(machine)), model(tokens_of(machine)))


def behind_it(machine):
    before, after = changed_at(machine, 1)
    return torch.allclose(before[:, 1:], after[:, 1:], atol=1e-5)  # as the check


async def waited_for(machine):
    return by_prefixes(machine)


def far_from_it(machine):
    before, after = changed_at(machine, -1)
    return torch.allclose(before[:, :-2], after[:, :-2], atol=1e-5)


def of_the_last_alone(machine):
    before, after = changed_at(machine, -1)
    return torch.allclose(before[:, :-1], after[:, :-1], atol=1e-5)


def far_from_each(machine):
    for place in range(2, machine.context_length):
        before, after = changed_at(machine, place)
        if not torch.allclose(before[:, : place - 1], after[:, : place - 1], atol=1e-5):
            return False
    return True


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


def compared_at_once(machine):
    run, _ = steps(machine, 4)
    return alike(run, machine.resume(machine.save(run)))


def never_saved(machine):
    return alike(steps(machine, 5)[0], steps(machine, 5)[0])


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


def too_many_steps(machine):
    run, _ = steps(machine, 3)
    resumed, _ = steps(machine, 4, machine.resume(machine.save(run)))
    return alike(resumed, steps(machine, 6)[0])


def one_good_test():
    return [by_prefixes]


def none_that_finds():
    return [lambda machine: True]


def one_that_cries_wolf():
    return [by_prefixes, all_compared]


def no_list():
    return by_prefixes


RIGHT = [
    (checks.later_changes_nothing, by_prefixes),
    (checks.goes_on, two_and_five),
    (checks.goes_on, by_losses),
    (checks.cabinet, one_good_test),
]

WRONG = [
    (checks.later_changes_nothing, all_compared, "the changed token's own logits"),
    (checks.later_changes_nothing, behind_it, "compare the places before it"),
    (checks.later_changes_nothing, nothing_is_changed, "it passes every machine"),
    (checks.later_changes_nothing, far_from_it, "the place right before the changed"),
    (checks.later_changes_nothing, of_the_last_alone, "not the last alone"),
    (checks.later_changes_nothing, far_from_each, "the place right before the changed"),
    (checks.later_changes_nothing, turned_round, "True of wrong machines"),
    (checks.later_changes_nothing, waited_for, "its body never runs: `def`"),
    (checks.goes_on, compared_at_once, "make some steps more before"),
    (checks.goes_on, never_saved, "save a run after some steps"),
    (checks.goes_on, saved_at_the_start, "after some steps"),
    (checks.goes_on, nearly(1e-2), "in 16 bits: compare to the bit"),
    (checks.goes_on, nearly(1e-3), "in 16 bits: compare to the bit"),
    (checks.goes_on, nearly(1e-4), "five digits of its weights: compare to the bit"),
    (checks.goes_on, nearly(1e-1), "some steps more before you compare, to the bit"),
    (checks.goes_on, too_many_steps, "must make as many steps"),
    (checks.cabinet, none_that_finds, "no test says anything"),
    (checks.cabinet, one_that_cries_wolf, "all_compared flags a machine that is right"),
    (checks.cabinet, no_list, "return a list of tests"),
]
