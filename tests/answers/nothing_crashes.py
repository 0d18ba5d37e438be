"""Right and wrong answers to the exercises of chapter 16."""

import torch

from companion.course import checks
from companion.course.cabinet import pull_requests

from .wrong import Wrong

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


def at_each_place(machine, seen_before):
    for place in range(1, machine.context_length):
        before, after = changed_at(machine, place)
        seen = seen_before(place)
        if not torch.allclose(before[:, seen], after[:, seen], atol=1e-5):
            return False
    return True


@wrong(checks.later_changes_nothing, "the place before the changed token alone")
def right_before_it(machine):
    return at_each_place(machine, lambda place: slice(place - 1, place))


@wrong(checks.later_changes_nothing, "looks at the first place alone")
def of_the_first(machine):
    return at_each_place(machine, lambda place: slice(1))


@wrong(checks.later_changes_nothing, "looks at some places alone")
def of_the_first_and_right_before_it(machine):
    return of_the_first(machine) and right_before_it(machine)


@wrong(checks.later_changes_nothing, "its tolerance is too wide")
def to_a_tenth(machine):
    for place in range(1, machine.context_length):
        before, after = changed_at(machine, place)
        if not torch.allclose(before[:, :place], after[:, :place], atol=0.1):
            return False
    return True


@wrong(checks.later_changes_nothing, "looks at some places alone")
def by_some_prefixes(machine):
    model = machine.model()
    tokens = tokens_of(machine)
    whole = model(tokens)
    lengths = (1, 2, machine.context_length - 1)
    pairs = [(model(tokens[:, :n]), whole[:, :n]) for n in lengths]
    return all(torch.allclose(*pair, atol=1e-5) for pair in pairs)


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
    saved = machine.save(run)
    steps(machine, 5, run)
    resumed, _ = steps(machine, 5, machine.resume(saved))
    return alike(resumed, run)


@wrong(checks.goes_on, "the losses or the first parameter alone")
def by_losses(machine):
    run, _ = steps(machine, 4)
    saved = machine.save(run)
    _, expected = steps(machine, 4, run)
    return steps(machine, 4, machine.resume(saved))[1] == expected


def at_steps(n_before, n_after, seed):
    """A full comparison, whatever the steps and the text."""

    def answer(machine):
        generator = torch.Generator().manual_seed(seed)
        text = torch.randint(machine.d_vocab, (300,), generator=generator)
        run = machine.start()
        machine.go_on(run, text, n_before)
        saved = machine.save(run)
        machine.go_on(run, text, n_after)
        resumed = machine.resume(saved)
        machine.go_on(resumed, text, n_after)
        return alike(resumed, run)

    return answer


def nothing_is_shared(machine):
    """Another text in between, and a run that never stopped beside it."""
    run, _ = steps(machine, 3)
    saved = machine.save(run)
    machine.go_on(run, torch.arange(300) % machine.d_vocab, 2)
    resumed, _ = steps(machine, 3, machine.resume(saved))
    return alike(resumed, steps(machine, 6)[0])


@wrong(checks.goes_on, "the losses or the first parameter alone")
def of_the_first_parameter(machine):
    run, _ = steps(machine, 3)
    saved = machine.save(run)
    steps(machine, 1, run)
    resumed, _ = steps(machine, 1, machine.resume(saved))
    pairs = zip(run.model.parameters(), resumed.model.parameters(), strict=True)
    for one, other in pairs:
        return torch.equal(one, other)


@wrong(checks.goes_on, "before the first step")
def saved_too_early(machine):
    run = machine.start()
    saved = machine.save(run)
    steps(machine, 4, run)
    resumed, _ = steps(machine, 4, machine.resume(saved))
    return alike(resumed, run)


@wrong(checks.goes_on, "the run's own weights, and no copies")
def resumed_at_once(machine):
    run, _ = steps(machine, 3)
    resumed, _ = steps(machine, 3, machine.resume(machine.save(run)))
    return alike(resumed, steps(machine, 6)[0])


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


# Tests of pull requests.


def sink_inputs(n_queries, n_keys, d, dtype=torch.float64):
    shapes = [(n_queries, d), (n_keys, d), (n_keys, d), ()]
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def sink_results(attend, inputs, cube=True):
    for x in inputs:
        x.grad = None
    result = attend(*inputs)
    (result.pow(3) if cube else result).sum().backward()
    return [result.detach(), *(x.grad for x in inputs)]


def by_differences(attend):
    """Finite differences for the way back, and a definition for the way there."""
    inputs = sink_inputs(3, 11, 5)
    q, k, v, sink = (x.detach() for x in inputs)
    shares = (q @ k.T / 5**0.5).exp()
    expected = shares @ v / (shares.sum(-1, keepdim=True) + sink.exp())
    return torch.allclose(attend(*inputs), expected) and torch.autograd.gradcheck(
        attend, inputs, raise_exception=False
    )


def against_the_first(attend):
    for sizes in ((1, 12, 4), (7, 3, 6), (4, 10, 2)):
        inputs = sink_inputs(*sizes)
        ours = sink_results(attend, inputs)
        theirs = sink_results(pull_requests.sink_in_softmax, inputs)
        for pair in zip(ours, theirs, strict=True):
            torch.testing.assert_close(*pair)
    return True


@wrong(checks.sinks, "it passes every version")
def no_numbers(attend):
    return attend(*sink_inputs(3, 4, 5)).shape == (3, 5)


@wrong(checks.sinks, "looks at the output")
def output_alone(attend):
    inputs = sink_inputs(4, 12, 6)
    return torch.allclose(attend(*inputs), pull_requests.sink_in_softmax(*inputs))


@wrong(checks.sinks, "one query and one key alone|right for one query")
def as_in_the_report(attend):
    q = torch.ones(1, 1, requires_grad=True)
    k = torch.ones(1, 1, requires_grad=True)
    sink = torch.zeros((), requires_grad=True)
    result = attend(q, k, 2 * torch.ones(1, 1), sink)
    result.sum().backward()
    found = [result.detach(), q.grad, k.grad, -sink.grad]
    expected = torch.tensor([1.46211716, *3 * [0.39322387]])
    return torch.allclose(torch.stack([x.flatten()[0] for x in found]), expected)


@wrong(checks.sinks, "only whether there is a gradient")
def any_gradient(attend):
    _, *gradients = sink_results(attend, sink_inputs(4, 12, 6))
    return all(x is not None and x.abs().sum() > 0 for x in gradients)


@wrong(checks.sinks, "compare the gradients of the keys, too")
def queries_alone(attend):
    inputs = sink_inputs(4, 12, 6)
    ours = sink_results(attend, inputs)
    theirs = sink_results(pull_requests.sink_in_softmax, inputs)
    return all(torch.allclose(ours[i], theirs[i]) for i in (0, 1, 4))


@wrong(checks.sinks, "wrong from 9 on")
def few_keys(attend):
    inputs = sink_inputs(4, 5, 6)
    ours = sink_results(attend, inputs)
    theirs = sink_results(pull_requests.sink_in_softmax, inputs)
    return all(map(torch.allclose, ours, theirs))


@wrong(checks.sinks, "allow for it, by `torch.allclose`")
def sinks_to_the_bit(attend):
    inputs = sink_inputs(4, 12, 6)
    ours = sink_results(attend, inputs)
    theirs = sink_results(pull_requests.sink_in_softmax, inputs)
    return all(map(torch.equal, ours, theirs))


@wrong(checks.sinks, "tries no d but squares")
def four_features(attend):
    for sizes in ((1, 12, 4), (7, 3, 4), (4, 10, 16)):
        inputs = sink_inputs(*sizes)
        ours = sink_results(attend, inputs)
        theirs = sink_results(pull_requests.sink_in_softmax, inputs)
        if not all(map(torch.allclose, ours, theirs)):
            return False
    return True


def in_part(attend, parts):
    """Whether some of the result and the four gradients are right."""
    for sizes in ((1, 12, 4), (7, 3, 6), (4, 10, 2)):
        inputs = sink_inputs(*sizes)
        ours = sink_results(attend, inputs, cube=False)
        theirs = sink_results(pull_requests.sink_in_softmax, inputs, cube=False)
        if not all(torch.allclose(ours[i], theirs[i]) for i in parts):
            return False
    return True


@wrong(checks.sinks, "whose values never learn")
def all_but_values(attend):
    return in_part(attend, [0, 1, 2, 4])


@wrong(checks.sinks, "compare the output, too")
def gradients_alone(attend):
    return in_part(attend, [1, 2, 3, 4])


@wrong(checks.sinks, "tries no d but squares")
def one_size(attend):
    inputs = sink_inputs(5, 16, 4)
    ours = sink_results(attend, inputs)
    theirs = sink_results(pull_requests.sink_in_softmax, inputs)
    return all(map(torch.allclose, ours, theirs))


@wrong(checks.sinks, "compare every number, not a sum")
def sums_alone(attend):
    for sizes in ((1, 1, 1), (3, 5, 6), (5, 16, 8)):
        inputs = sink_inputs(*sizes)
        ours = attend(*inputs).sum()
        theirs = pull_requests.sink_in_softmax(*inputs).sum()
        gradients = zip(
            torch.autograd.grad(ours, inputs),
            torch.autograd.grad(theirs, inputs),
            strict=True,
        )
        sums_agree = all(torch.allclose(a.sum(), b.sum()) for a, b in gradients)
        if not (torch.allclose(ours, theirs) and sums_agree):
            return False
    return True


@wrong(checks.sinks, "passes attention without a sink")
def differences_alone(attend):
    return torch.autograd.gradcheck(
        attend, sink_inputs(3, 10, 4), raise_exception=False
    )


@wrong(checks.sinks, "is there a `return`")
def asserted_alone(attend):
    assert against_the_first(attend)


@wrong(checks.sinks, "says now this, now that|flags a version that is right")
def at_random(attend):
    return bool(torch.rand(()) < 0.5)


def share_inputs(n_heads=4, n_rows=30, width=30.0, dtype=torch.float64):
    log_sums = width * (2 * torch.rand(n_heads, n_rows) - 1)
    sinks = width * (2 * torch.rand(n_heads) - 1)
    return [x.to(dtype).requires_grad_() for x in (log_sums, sinks)]


def share_results(version, inputs):
    share = version(*inputs)
    return [share, *torch.autograd.grad(share.sum(), inputs)]


def equal_shares(one, other):
    inputs = share_inputs()
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*pair, rtol=1e-6, atol=1e-11) for pair in pairs)


def equal_logs(one, other):
    """The small shares by their logarithms, and gradients apart."""
    inputs = share_inputs()
    ours, *ours_back = share_results(one, inputs)
    theirs, *theirs_back = share_results(other, inputs)
    far = (ours.log() - theirs.log()).abs().max()
    back = [(a - b).abs().max() for a, b in zip(ours_back, theirs_back, strict=True)]
    return far < 1e-6 and max(back) < 1e-9


@wrong(checks.same_share, "calls all the same")
def same_shapes(one, other):
    inputs = share_inputs()
    return one(*inputs).shape == other(*inputs).shape


# Which of two right versions are alike to the bit depends on the processor.
@wrong(checks.same_share, "compares to the bit|round in another way")
def shares_to_the_bit(one, other):
    inputs = share_inputs()
    return torch.equal(one(*inputs), other(*inputs))


@wrong(checks.same_share, "looks at the shares alone")
def shares_alone(one, other):
    inputs = share_inputs()
    return torch.allclose(one(*inputs), other(*inputs), rtol=1e-8, atol=1e-15)


@wrong(checks.same_share, "try several heads|one head alone")
def one_head(one, other):
    inputs = share_inputs(n_heads=1)
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*pair, rtol=1e-6, atol=1e-11) for pair in pairs)


@wrong(checks.same_share, "below e\\*\\*-20")
def small_scores(one, other):
    inputs = share_inputs(width=3.0)
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*pair, rtol=1e-6, atol=1e-11) for pair in pairs)


@wrong(checks.same_share, "below e\\*\\*-20")
def one_hundred_thousandth(one, other):
    inputs = share_inputs()
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*pair, rtol=0, atol=1e-5) for pair in pairs)


def shares_close(one, other, inputs, rtol=1e-9, atol=1e-12):
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*pair, rtol=rtol, atol=atol) for pair in pairs)


@wrong(checks.same_share, "below e\\*\\*-23")
def one_billionth(one, other):
    return shares_close(one, other, share_inputs(), rtol=0, atol=1e-9)


@wrong(checks.same_share, "30 smaller, too")
def large_sinks(one, other):
    log_sums, _ = share_inputs(width=3.0)
    sinks = 30 + torch.rand(4, dtype=torch.float64)
    return shares_close(one, other, [log_sums, sinks.requires_grad_()], atol=1e-25)


@wrong(checks.same_share, "try several rows")
def one_row(one, other):
    return shares_close(one, other, share_inputs(n_heads=40, n_rows=1))


@wrong(checks.same_share, "sinks get no gradient")
def half_the_way_back(one, other):
    inputs = share_inputs()
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*p, rtol=1e-9, atol=1e-12) for p in [*pairs][:2])


@wrong(checks.same_share, "log-sum-exps get no gradient")
def other_half_of_the_way_back(one, other):
    inputs = share_inputs()
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*p, rtol=1e-9, atol=1e-12) for p in [*pairs][::2])


@wrong(checks.same_share, "calls all different")
def differ(one, other):
    return False


@wrong(checks.same_share, "sinks have three digits|its tolerance hides")
def a_tenth(one, other):
    inputs = share_inputs()
    pairs = zip(share_results(one, inputs), share_results(other, inputs), strict=True)
    return all(torch.allclose(*pair, rtol=0.2, atol=0.3) for pair in pairs)


def mixture(n_tokens=100, n_experts=5, c=7):
    x = torch.randn(n_tokens, c)
    router = torch.randn(n_experts, c, requires_grad=True)
    return x, router, torch.randn(n_experts, c, 4)


def router_gradient(mix, k, of=lambda gradient: gradient.norm(dim=1).min()):
    """By default the least length of a row: each expert is asked by some token."""
    x, router, experts = mixture()
    result = mix(x, router, experts, k)
    if result.requires_grad:
        (result * torch.randn_like(result)).sum().backward()
    return 0.0 if router.grad is None else of(router.grad).item()


def by_gradients(mix):
    return min(router_gradient(mix, k) for k in (1, 2, 3)) > 1e-2


def by_any_loss(mix):
    """In double precision, and beside the gradient of the experts."""
    for k in (1, 2, 3):
        x, router, experts = (t.detach().double() for t in mixture())
        both = [router.requires_grad_(), experts.requires_grad_()]
        mix(x, *both, k).logsumexp(-1).sum().backward()
        if router.grad is None:
            return False
        least = router.grad.abs().sum(1).min()
        if least < 1e-6 * experts.grad.norm():
            return False
    return True


@wrong(checks.router, "one expert's row alone learns")
def by_the_largest(mix):
    sizes = [router_gradient(mix, k, of=lambda g: g.abs().max()) for k in (1, 2, 3)]
    return min(sizes) > 1e-2


@wrong(checks.router, "one expert's row alone learns")
def by_the_first_row(mix):
    sizes = [router_gradient(mix, k, of=lambda g: g[0].abs().max()) for k in (1, 2, 3)]
    return min(sizes) > 1e-2


@wrong(checks.router, "two experts' rows alone learn")
def by_the_last_row(mix):
    sizes = [router_gradient(mix, k, of=lambda g: g[-1].norm()) for k in (1, 2, 3)]
    return min(sizes) > 1e-2


@wrong(checks.router, "whose router gets no gradient")
def by_moving(mix):
    """A router that moves a little moves the result, and nobody is sent elsewhere."""
    for k in (1, 2, 3):
        x, router, experts = mixture()
        before = mix(x, router, experts, k)
        after = mix(x, 1.001 * router, experts, k)
        if (before - after).abs().max() < 1e-5:
            return False
    return True


@wrong(checks.router, "it passes every version")
def no_router(mix):
    x, router, experts = mixture()
    return bool(mix(x, router, experts, 1).isfinite().all())


@wrong(checks.router, "calls a gradient of 1e-7 a gradient")
def anything(mix):
    return all(router_gradient(mix, k) != 0 for k in (1, 2, 3))


@wrong(checks.router, "tries k = 2 or more alone")
def two_and_three(mix):
    return min(router_gradient(mix, k) for k in (2, 3)) > 1e-2


@wrong(checks.router, "k = 1 and 2, and never 3")
def one_and_two(mix):
    return min(router_gradient(mix, k) for k in (1, 2)) > 1e-2


@wrong(checks.router, "k = 1 and 3, and never 2")
def one_and_three(mix):
    return min(router_gradient(mix, k) for k in (1, 3)) > 1e-2


# Where some rows alone learn, the sum is what was drawn, and so is the verdict.
@wrong(checks.router, "always sums to 0|flags a version whose router learns")
def by_the_sum(mix):
    for k in (1, 2, 3):
        x, router, experts = mixture()
        result = mix(x, router, experts, k)
        if not result.requires_grad:
            return False
        result.square().sum().backward()
        if router.grad.sum().abs() < 1e-2:
            return False
    return True


@wrong(checks.router, "tries k = 2 alone")
def two_alone(mix):
    return router_gradient(mix, 2) > 1e-2


@wrong(checks.router, "tries k = 1 alone")
def one_alone(mix):
    return router_gradient(mix, 1) > 1e-2


@wrong(checks.router, "loads are balanced best")
def loads(mix):
    """Whether each expert is asked by some token."""
    x, router, experts = mixture(n_tokens=60)
    used = []
    for i in range(len(experts)):
        experts_without = experts.clone()
        experts_without[i] = 0
        with_it = mix(x, router, experts, 1)
        used.append(not torch.equal(with_it, mix(x, router, experts_without, 1)))
    return all(used)


@wrong(checks.router, "wants the second version's output")
def as_the_fix(mix):
    for k in (1, 2, 3):
        x, router, experts = mixture()
        expected = pull_requests.divided_from_two_on(x, router, experts, k)
        torch.testing.assert_close(mix(x, router, experts, k), expected)
    return by_gradients(mix)


@wrong(checks.router, "it passes the first version")
def true_gradients(mix):
    """Whether the gradient is right: that of a constant is 0, and that is right."""
    x, router, experts = (t.detach().double() for t in mixture(n_tokens=16))
    return all(
        torch.autograd.gradcheck(
            lambda r, k=k: mix(x, r, experts, k),
            router.requires_grad_(),
            raise_exception=False,
        )
        for k in (1, 2)
    )


LENGTHS = ([2, 7], [7, 2], [3, 1, 5, 4])


def read_both_ways(read, lengths, dtype=torch.float64):
    q, k, v = torch.randn(3, sum(lengths), 6).to(dtype)
    packed = read(q, k, v, lengths)
    pieces = zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
    return packed, torch.cat([read(*piece, [len(piece[0])]) for piece in pieces])


def as_if_alone(read):
    return all(torch.allclose(*read_both_ways(read, n)) for n in LENGTHS)


def in_single(read):
    return all(
        torch.allclose(*read_both_ways(read, n, torch.float32), atol=1e-5)
        for n in LENGTHS
    )


@wrong(checks.packed, "only whether texts see each other")
def neighbours_change_nothing(read):
    """Other tokens in other texts leave a text as it is, wherever it stands."""
    lengths = [4, 6, 3]
    inputs = torch.randn(3, 13, 6).double()
    result = read(*inputs, lengths)
    for begin, end in ((0, 4), (4, 10), (10, 13)):
        others = torch.randn(3, 13, 6).double()
        others[:, begin:end] = inputs[:, begin:end]
        again = read(*others, lengths)
        if not torch.allclose(again[begin:end], result[begin:end], atol=1e-9):
            return False
    return True


@wrong(checks.packed, "it passes every version")
def packed_shape(read):
    return read(*torch.randn(3, 9, 6), [4, 5]).shape == (9, 6)


@wrong(checks.packed, "looks at the first text")
def first_text(read):
    packed, alone = read_both_ways(read, [4, 2, 6])
    return torch.allclose(packed[:4], alone[:4])


@wrong(checks.packed, "packs two texts alone")
def two_texts(read):
    return torch.allclose(*read_both_ways(read, [4, 7]))


@wrong(checks.packed, "texts of one length")
def one_length(read):
    return torch.allclose(*read_both_ways(read, [4, 4, 4]))


def texts_alike(read, lengths, places):
    packed, alone = read_both_ways(read, lengths)
    return torch.allclose(packed[places], alone[places])


@wrong(checks.packed, "looks at the last text alone: compare")
def last_text(read):
    return texts_alike(read, [3, 4, 2, 5], slice(-5, None)) and texts_alike(
        read, [2, 6], slice(-6, None)
    )


@wrong(checks.packed, "the last text alone, and at texts of one length")
def last_of_three(read):
    return texts_alike(read, [4, 4, 4], slice(-4, None))


@wrong(checks.packed, "a text in the middle alone")
def middle_text(read):
    return texts_alike(read, [4, 6, 3], slice(4, 10))


@wrong(checks.packed, "last token sees the next text")
def all_but_the_last(read):
    """The last token of each text is left out."""
    for lengths in LENGTHS:
        places = torch.ones(sum(lengths), dtype=torch.bool)
        places[torch.tensor(lengths).cumsum(0) - 1] = False
        if not texts_alike(read, lengths, places):
            return False
    return True


@wrong(checks.packed, "last token of each text|compare all places")
def last_of_each(read):
    lengths = [4, 2, 6]
    packed, alone = read_both_ways(read, lengths)
    ends = torch.tensor(lengths).cumsum(0) - 1
    return torch.allclose(packed[ends], alone[ends])


@wrong(checks.packed, "compare every place, not a mean")
def means_alone(read):
    for lengths in LENGTHS:
        packed, alone = read_both_ways(read, lengths)
        if not torch.allclose(packed.mean(), alone.mean()):
            return False
    return True


@wrong(checks.packed, "a leak of a ten thousandth|takes 10 off the scores")
def one_percent(read):
    return all(torch.allclose(*read_both_ways(read, n), atol=1e-2) for n in LENGTHS)


@wrong(checks.packed, "compares to the bit|rounding differs")
def packed_to_the_bit(read):
    return all(torch.equal(*read_both_ways(read, n)) for n in LENGTHS)


@wrong(checks.packed, "it flags a version that reads each text|it flags every")
def expects_a_change(read):
    """Takes the report at its word: positions that go on are wrong."""
    inputs = torch.randn(3, 9, 6).double()
    reset = pull_requests.positions_reset(*inputs, [4, 5])
    return torch.allclose(read(*inputs, [4, 5]), reset)


RIGHT = [  # of a check the quicker first, which many tests ask
    (checks.later_changes_nothing, by_prefixes),
    (checks.goes_on, two_and_five),
    *((checks.goes_on, at_steps(6, 6, seed)) for seed in range(3)),
    (checks.goes_on, at_steps(1, 1, 1)),
    (checks.goes_on, at_steps(10, 20, 0)),
    (checks.goes_on, nothing_is_shared),
    (checks.cabinet, one_good_test),
    (checks.sinks, against_the_first),
    (checks.sinks, by_differences),
    (checks.same_share, equal_shares),
    (checks.same_share, equal_logs),
    (checks.router, by_gradients),
    (checks.router, by_any_loss),
    (checks.packed, as_if_alone),
    (checks.packed, in_single),
]

WRONG = [
    *wrong,
    (checks.later_changes_nothing, waited_for, "its body never runs: `def`"),
    (checks.goes_on, nearly(1e-2), "in 16 bits: compare every parameter"),
    (checks.goes_on, nearly(1e-8), "by its last bits"),
    (checks.goes_on, nearly(1e-3), "in 16 bits: compare every parameter"),
    (checks.goes_on, nearly(1e-4), "five digits of its weights: compare every"),
    (checks.goes_on, nearly(1e-1), "some steps more before you compare, to the bit"),
]
