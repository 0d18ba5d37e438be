"""Right and wrong answers to the exercises of chapter 08."""

import torch

from companion import checks


def right_shifted(answers, begin):
    first = torch.full_like(answers[:, :1], begin)
    return torch.cat([first, answers[:, :-1]], 1)


def rolled(answers, begin):
    return torch.cat([answers[:, -1:], answers[:, :-1]], 1)


def too_long(answers, begin):
    return torch.cat([torch.full_like(answers[:, :1], begin), answers], 1)


def overwritten(answers, begin):
    result = answers.clone()
    result[:, 0] = begin
    return result


def right_soft(targets, d_vocab, smoothing):
    result = torch.full((*targets.shape, d_vocab), smoothing / d_vocab)
    right = torch.full((*targets.shape, 1), 1 - smoothing + smoothing / d_vocab)
    return result.scatter(-1, targets[..., None], right)


def others_only(targets, d_vocab, smoothing):
    result = torch.full((*targets.shape, d_vocab), smoothing / (d_vocab - 1))
    right = torch.full((*targets.shape, 1), 1 - smoothing)
    return result.scatter(-1, targets[..., None], right)


def too_much(targets, d_vocab, smoothing):
    hard = torch.eye(d_vocab)[targets]
    return hard + smoothing / d_vocab


def losses(logits, targets):
    pairs = zip(logits.flatten(0, 1), targets.flatten(), strict=True)
    each = torch.stack([z.logsumexp(0) - z[y] for z, y in pairs])
    return each.view(targets.shape)


def right_padded(logits, targets, lengths):
    rows = zip(losses(logits, targets), lengths.tolist(), strict=True)
    return torch.cat([row[:n] for row, n in rows]).mean()


def by_sequence(logits, targets, lengths):
    rows = zip(losses(logits, targets), lengths.tolist(), strict=True)
    return torch.stack([row[:n].mean() for row, n in rows]).mean()


def by_all(logits, targets, lengths):
    return right_padded(logits, targets, lengths) * lengths.sum() / targets.numel()


def right_masks(lengths, s, t):
    real = torch.tensor([[i < length for i in range(s)] for length in lengths.tolist()])
    past = torch.tensor([[i <= j for i in range(t)] for j in range(t)])
    return [real[:, None, None], past, real[:, None, None]]


def wrong_axis(lengths, s, t):
    real, past, _ = right_masks(lengths, s, t)
    return [real.mT, past, real.mT]


def wrong_across(lengths, s, t):
    real, past, _ = right_masks(lengths, s, t)
    return [real, past, real.mT]


def future(lengths, s, t):
    real, past, _ = right_masks(lengths, s, t)
    return [real, past.mT, real]


def upside_down(*case):
    return [~mask for mask in right_masks(*case)]


RIGHT = [
    (checks.shifted, right_shifted),
    (checks.soft_targets, right_soft),
    (checks.padded_loss, right_padded),
    (checks.three_masks, right_masks),
]
WRONG = [
    (checks.shifted, lambda a, b: a, "nothing is shifted"),
    (checks.shifted, rolled, "come round to the front"),
    (checks.shifted, too_long, "one token too many"),
    (checks.shifted, overwritten, "overwritten"),
    (checks.soft_targets, lambda y, v, e: torch.eye(v)[y], "nothing is smoothed"),
    (checks.soft_targets, others_only, "wrong tokens alone"),
    (checks.soft_targets, too_much, "sum is above 1"),
    (checks.padded_loss, lambda z, y, n: losses(z, y).mean(), "padding counts"),
    (checks.padded_loss, by_sequence, "each token should"),
    (checks.padded_loss, by_all, "divided by all tokens"),
    (checks.three_masks, wrong_axis, "encoder and across: .*axis of queries"),
    (checks.three_masks, wrong_across, "across: .*axis of queries"),
    (checks.three_masks, future, "sees the future"),
    (checks.three_masks, upside_down, "upside down"),
]
