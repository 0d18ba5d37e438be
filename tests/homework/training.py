"""Wrong answers to the homework of chapter 05."""

import torch


def slopes(loss_of, p, difference):
    result = torch.zeros_like(p)
    for i in range(p.numel()):
        unit = torch.zeros_like(p)
        unit.view(-1)[i] = 1
        result.view(-1)[i] = difference(unit)
    return result


def one_sided(loss_of, p, step):
    return slopes(
        loss_of, p, lambda unit: (loss_of(p + step * unit) - loss_of(p)) / step
    )


def undivided_by_two(loss_of, p, step):
    def difference(unit):
        return (loss_of(p + step * unit) - loss_of(p - step * unit)) / step

    return slopes(loss_of, p, difference)


def all_at_once(loss_of, p, step):
    slope = (loss_of(p + step) - loss_of(p - step)) / (2 * step)
    return slope.expand_as(p)


def left_changed(loss_of, p, step):
    result = torch.zeros_like(p)
    for i in range(p.numel()):
        p.view(-1)[i] += step
        above = loss_of(p)
        p.view(-1)[i] -= 2 * step
        result.view(-1)[i] = (above - loss_of(p)) / (2 * step)
    return result


def first_axis(loss_of, p, step):
    result = torch.zeros_like(p)
    for i in range(len(p)):
        unit = torch.zeros_like(p)
        unit[i] = step
        result[i] = (loss_of(p + unit) - loss_of(p - unit)) / (2 * step)
    return result


def surprises(logits, targets):
    return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]


def by_text(logits, targets):
    return surprises(logits, targets).mean(1)


def added_up(logits, targets):
    return surprises(logits, targets).sum(0)


def running_mean(logits, targets):
    means = surprises(logits, targets).mean(0)
    return means.cumsum(0) / torch.arange(1, len(means) + 1)


def of_the_mean_probability(logits, targets):
    return -surprises(logits, targets).neg().exp().mean(0).log()


def without_softmax(logits, targets):
    return -logits.gather(-1, targets[..., None])[..., 0].mean(0)


def softmax_over_places(logits, targets):
    p = logits.softmax(1).gather(-1, targets[..., None])[..., 0]
    return -p.log().mean(0)


WRONG = (
    ("slopes", "go both ways", one_sided),
    ("slopes", "it is not 12.01", undivided_by_two),
    ("slopes", "does one number move", all_at_once),
    ("slopes", "p was left changed", left_changed),
    ("slopes", "does one number move", first_axis),
    ("loss_by_position", "the shape is (2,)", by_text),
    ("loss_by_position", "give ln 4", added_up),
    ("loss_by_position", "not the usual loss", running_mean),
    ("loss_by_position", "give ln 4", of_the_mean_probability),
    ("loss_by_position", "not the usual loss", without_softmax),
    ("loss_by_position", "give ln 4", softmax_over_places),
)
