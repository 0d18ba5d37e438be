"""What must hold of a change before its gain says anything. Chapter 17."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...model.gpt import evaluating
from ...training.loop import next_token_loss
from .mistakes import Mistake, Stop
from .outcomes import raised_by, unwritten
from .words import describe

MOST = 0.02  # by which the control's parameters may differ
PIECES = 30, 1, 3, 30  # tokens of a text that is read through a cache
New = Callable[[], nn.Module]


def fair_trial(with_change: New, control: New, plain: New, cache_class: type) -> bool:
    """Whether the machines that three functions make can be compared.

    Prints a line if they can, and returns True. Where one is still to be written it
    says so, and returns False. Raises Mistake, with words, where they can't. A text in
    pieces, through a cache, may give other logits: training never asks for that, so it
    is told in the line.
    """
    # What is drawn here leaves the notebook's own numbers as they are.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            as_it_was = new_machine(plain, "plain")
            other = new_machine(control, "control")
            changed = new_machine(with_change, "with_change")
        except NotImplementedError:
            print("○ fair_trial: yours to write")
            return False
        try:
            words = compared(as_it_was, other, changed, cache_class)
        except Mistake as mistake:
            raise Mistake(f"fair_trial: {mistake}") from None
    print(f"✓ fair_trial: {words}")
    return True


def new_machine(function: New, name: str) -> nn.Module:
    """Returns a new machine of a function's, with numbers in all of its parameters.

    Raises NotImplementedError where that is still to be written, and Mistake for what
    is no machine, or none of its own.
    """
    if not callable(function) or isinstance(function, nn.Module):
        raise Mistake(
            f"fair_trial: give the function {name} itself, not {describe(function)}"
        )
    machines = []
    for _ in range(2):
        try:
            machine = function()
        except Exception as error:
            if unwritten(error, function):
                raise
            stop = Stop(error, raised_by(error, function))
            raise Mistake(f"fair_trial: {name}: {stop}") from None
        if not isinstance(machine, nn.Module):
            raise Mistake(
                f"fair_trial: {name} returns {describe(machine)}, not a machine: is"
                " there a `return`?"
            )
        machines.append(machine)
    one, another = ({id(p) for p in machine.parameters()} for machine in machines)
    if one & another:
        raise Mistake(
            f"fair_trial: two calls of {name} give machines that share parameters: each"
            " call must build its own, or the second seed goes on where the first ended"
        )

    # Far from a start of zeros, where most changes change nothing.
    generator = torch.Generator().manual_seed(0)
    for p in machine.parameters():
        p += 0.1 * torch.randn(p.shape, generator=generator)
    return machine


def compared(
    plain: nn.Module, control: nn.Module, changed: nn.Module, cache_class: type
) -> str:
    """Returns what is said of a fair comparison. Raises Mistake where it is none."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, sum(PIECES))
    tokens = torch.randint(plain.config.d_vocab, shape, generator=generator)
    wanted = plain(tokens)
    for name, machine in ("control", control), ("with_change", changed):
        with evaluating(machine):
            logits = logits_of(machine, tokens, name)
        if not isinstance(logits, Tensor) or logits.shape != wanted.shape:
            raise Mistake(
                f"{name}'s machine gives {describe(logits)}, where the plain one gives"
                f" {describe(wanted)}"
            )
        if not logits.isfinite().all():
            raise Mistake(f"{name}'s machine gives logits that are no numbers")

    with evaluating(changed):
        must_not_look_ahead(changed, tokens)
        must_not_mix(changed, tokens)
    if is_same(plain, changed, tokens):
        raise Mistake(
            "with_change gives the machine as it was: the same logits with the same"
            f" weights, for {tokens.shape[1]} tokens. Is what is new put in and used?"
        )
    if is_same(changed, control, tokens):
        raise Mistake("control has the change, too: it is the machine as it was, wider")
    must_learn(changed, "with_change", tokens)
    must_learn(control, "control", tokens)
    sizes = must_be_as_large(control, changed)
    cached = through_a_cache(changed, tokens, cache_class)
    return f"no token sees a later one; {sizes}; {cached}"


def logits_of(machine: nn.Module, tokens: Tensor, name: str) -> Tensor:
    """Returns a machine's logits. Raises Mistake where an error stops it."""
    try:
        return machine(tokens)
    except Exception as error:
        raise Mistake(f"{name}'s machine: {Stop(error, own=False)}") from None


def far(one: Tensor, other: Tensor) -> bool:
    """Whether two logits differ by more than rounding."""
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def must_not_look_ahead(changed: nn.Module, tokens: Tensor) -> None:
    """Raises Mistake where a later token changes an earlier place's logits."""
    before = changed(tokens)
    for place in range(1, tokens.shape[1]):
        others = tokens.clone()
        others[:, place] = (others[:, place] + 1) % before.shape[-1]
        after = changed(others)
        for seen in range(place):
            if far(before[:, seen], after[:, seen]):
                raise Mistake(
                    "with_change's machine looks ahead: another token at place"
                    f" {place} changes the logits of place {seen}, so the loss is that"
                    " of a peep"
                )


def must_not_mix(changed: nn.Module, tokens: Tensor) -> None:
    """Raises Mistake where a text's logits depend on who else is in the batch."""
    both = torch.cat([tokens, tokens.flip(1)])
    alone = torch.cat([changed(text) for text in both.split(1)])
    if far(changed(both), alone):
        raise Mistake(
            "with_change's machine mixes the texts of a batch: two together have other"
            " logits than each alone"
        )


@torch.enable_grad()
def must_learn(machine: nn.Module, name: str, tokens: Tensor) -> None:
    """Raises Mistake for a parameter that the loss doesn't reach."""
    machine.zero_grad()
    next_token_loss(machine(tokens)[:, :-1], tokens[:, 1:]).backward()
    for part, p in machine.named_parameters():
        if p.grad is None:
            raise Mistake(
                f"{name}'s {part} gets no gradient, so it never learns: is it used, and"
                " is nothing detached on the way?"
            )


def is_same(one: nn.Module, other: nn.Module, tokens: Tensor) -> bool:
    """Whether both give the same logits in training, where they have the same weights.

    The other gets the one's parameters, by their names; by their order where a
    parameter has another name, and all have the same shapes.
    """
    given = dict(one.named_parameters())
    own = dict(other.named_parameters())
    if [p.shape for p in given.values()] == [p.shape for p in own.values()]:
        given = dict(zip(own, given.values(), strict=True))
    for name, p in own.items():
        if name in given and given[name].shape == p.shape:
            p.copy_(given[name])
    return not far(one.train()(tokens), other.train()(tokens))


def must_be_as_large(control: nn.Module, changed: nn.Module) -> str:
    """Says how many parameters both have. Raises Mistake where they differ too much."""
    n_control, n_changed = (
        sum(p.numel() for p in machine.parameters()) for machine in (control, changed)
    )
    if abs(n_control - n_changed) > MOST * n_changed:
        raise Mistake(
            f"the control has {n_control:,} parameters and the changed machine"
            f" {n_changed:,}: let them differ by {MOST:.0%} at most, by the control's"
            " d_hidden"
        )
    return f"control and change have {n_control:,} and {n_changed:,} parameters"


def through_a_cache(changed: nn.Module, tokens: Tensor, cache_class: type) -> str:
    """Says whether a text in pieces, through a cache, gives the logits of the whole."""
    changed.eval()
    cache = cache_class()
    try:
        pieces = [changed(piece, cache) for piece in tokens.split(PIECES, dim=1)]
    except Exception as error:
        return f"with a cache {Stop(error, own=False)}, so it can't write yet"
    if far(torch.cat(pieces, 1), changed(tokens)):
        return "with a cache its logits are others, so it can't write yet"
    return "with a cache its logits are the same"
