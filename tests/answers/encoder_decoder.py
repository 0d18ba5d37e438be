"""Right and wrong answers to the exercises of chapter 08."""

import torch

import companion
from companion import checks


def right_shifted(answers, begin):
    first = torch.full_like(answers[:, :1], begin)
    return torch.cat([first, answers[:, :-1]], 1)


def shifted_in_place(answers, begin):
    result = answers.roll(1, 1)
    result[:, 0] = begin
    return result


def shifted_by_lists(answers, begin):
    return torch.tensor([[begin, *row[:-1]] for row in answers.tolist()])


def rolled(answers, begin):
    return torch.cat([answers[:, -1:], answers[:, :-1]], 1)


def too_long(answers, begin):
    return torch.cat([torch.full_like(answers[:, :1], begin), answers], 1)


def overwritten(answers, begin):
    result = answers.clone()
    result[:, 0] = begin
    return result


def overwritten_input(answers, begin):
    answers[:, 1:] = answers[:, :-1].clone()
    answers[:, 0] = begin
    return answers


def wrong_way(answers, begin):
    last = torch.full_like(answers[:, :1], begin)
    return torch.cat([answers[:, 1:], last], 1)


def from_zeros(answers, begin):
    result = torch.zeros(answers.shape)
    result[:, 0], result[:, 1:] = begin, answers[:, :-1]
    return result


def filled(targets, d_vocab, others, right):
    result = torch.full((*targets.shape, d_vocab), others)
    return result.scatter(-1, targets[..., None], right)


def right_soft(targets, d_vocab, smoothing):
    share = smoothing / d_vocab
    return filled(targets, d_vocab, share, 1 - smoothing + share)


def others_only(targets, d_vocab, smoothing):
    return filled(targets, d_vocab, smoothing / (d_vocab - 1), 1 - smoothing)


def too_little(targets, d_vocab, smoothing):
    return filled(targets, d_vocab, smoothing / d_vocab, 1 - smoothing)


def too_much(targets, d_vocab, smoothing):
    hard = torch.eye(d_vocab)[targets]
    return hard + smoothing / d_vocab


def undivided(targets, d_vocab, smoothing):
    return (1 - smoothing) * torch.eye(d_vocab)[targets] + smoothing


def from_batch(targets, d_vocab, smoothing):
    hard = torch.nn.functional.one_hot(targets)
    return (1 - smoothing) * hard + smoothing / hard.shape[-1]


def losses(logits, targets):
    pairs = zip(logits.flatten(0, 1), targets.flatten(), strict=True)
    each = torch.stack([z.logsumexp(0) - z[y] for z, y in pairs])
    return each.view(targets.shape)


def real(targets, lengths):
    return torch.arange(targets.shape[1]) < lengths[:, None]


def right_padded(logits, targets, lengths):
    rows = zip(losses(logits, targets), lengths.tolist(), strict=True)
    return torch.cat([row[:n] for row, n in rows]).mean()


def divided(logits, targets, lengths):
    return (losses(logits, targets) * real(targets, lengths)).sum() / lengths.sum()


def by_sequence(logits, targets, lengths):
    rows = zip(losses(logits, targets), lengths.tolist(), strict=True)
    return torch.stack([row[:n].mean() for row, n in rows]).mean()


def by_all(logits, targets, lengths):
    return right_padded(logits, targets, lengths) * lengths.sum() / targets.numel()


def without_zeros(logits, targets, lengths):
    return companion.next_token_loss(logits, targets.masked_fill(targets == 0, -100))


def zero_logits(logits, targets, lengths):
    hidden = ~real(targets, lengths)
    return companion.next_token_loss(logits.masked_fill(hidden[..., None], 0), targets)


def one_too_many(logits, targets, lengths):
    longer = torch.arange(targets.shape[1]) > lengths[:, None]
    return companion.next_token_loss(logits, targets.masked_fill(longer, -100))


def right_masks(lengths, s, t):
    real = torch.tensor([[i < length for i in range(s)] for length in lengths.tolist()])
    past = torch.tensor([[i <= j for i in range(t)] for j in range(t)])
    return [real[:, None, None], past, real[:, None, None]]


def as_tuple(lengths, s, t):
    real = torch.arange(s) < lengths.view(-1, 1, 1, 1)
    return real, torch.arange(t)[:, None] >= torch.arange(t), real


def masks(*at, by):
    """The right masks, but those `at` these places, which are changed."""

    def wrong(*case):
        right = enumerate(right_masks(*case))
        return [by(mask) if i in at else mask for i, mask in right]

    return wrong


def causal_encoder(lengths, s, t):
    real, past, across = right_masks(lengths, s, t)
    return [real & companion.causal_mask(s), past, across]


def causal_across(lengths, s, t):
    real, past, _ = right_masks(lengths, s, t)
    return [real, past, real & (torch.arange(t)[:, None] >= torch.arange(s))]


def one_key_more(lengths, s, t):
    _, past, _ = right_masks(lengths, s, t)
    real = torch.arange(s) <= lengths[:, None, None, None]
    return [real, past, real]


RIGHT = [
    (checks.shifted, right_shifted),
    (checks.shifted, shifted_in_place),
    (checks.shifted, shifted_by_lists),
    (checks.soft_targets, right_soft),
    (checks.soft_targets, lambda y, v, e: torch.eye(v)[y] * (1 - e) + e / v),
    (checks.padded_loss, right_padded),
    (checks.padded_loss, divided),
    (checks.three_masks, right_masks),
    (checks.three_masks, as_tuple),
]
WRONG = [
    (checks.shifted, lambda a, b: a, "nothing is shifted"),
    (checks.shifted, rolled, "come round to the front"),
    (checks.shifted, too_long, "one token too many"),
    (checks.shifted, overwritten, "overwritten: it must move"),
    (checks.shifted, overwritten_input, "changes its input"),
    (checks.shifted, wrong_way, "shifted the wrong way"),
    (checks.shifted, lambda a, b: right_shifted(a, 0), "a 0 stands in front"),
    (checks.shifted, lambda a, b: right_shifted(a, 3), "always 3"),
    (checks.shifted, lambda a, b: right_shifted(a.T, b).T, "from row to row"),
    (checks.shifted, from_zeros, "tokens are integers"),
    (checks.shifted, lambda a, b: right_shifted(a, b)[:, 1:], r"the shape is \(2, 3\)"),
    (checks.soft_targets, lambda y, v, e: torch.eye(v)[y], "nothing is smoothed"),
    (checks.soft_targets, others_only, "wrong tokens alone"),
    (checks.soft_targets, too_little, "has too little"),
    (checks.soft_targets, too_much, "sum is above 1"),
    (checks.soft_targets, undivided, "divided among all"),
    (checks.soft_targets, lambda y, v, e: right_soft(y, v, 1 - e), "changed places"),
    (checks.soft_targets, lambda y, v, e: right_soft(y, v, 0.1), "always 0.1"),
    (checks.soft_targets, from_batch, "counted in the batch"),
    (checks.soft_targets, lambda y, v, e: right_soft(y, 6, e), "it stops with"),
    (checks.soft_targets, lambda y, v, e: right_soft(y, v, e).mT, "the shape is"),
    (checks.padded_loss, lambda z, y, n: losses(z, y).mean(), "padding counts"),
    (checks.padded_loss, by_sequence, "each token should"),
    (checks.padded_loss, by_all, "divided by all tokens"),
    (checks.padded_loss, lambda *a: divided(*a) * a[2].sum(), "this is the sum"),
    (
        checks.padded_loss,
        lambda z, y, n: losses(z, y)[~real(y, n)].mean(),
        "the padding is kept",
    ),
    (checks.padded_loss, without_zeros, "a real one may be 0"),
    (checks.padded_loss, one_too_many, "one token too many"),
    (checks.padded_loss, zero_logits, "they cost ln V"),
    (checks.padded_loss, lambda *a: -divided(*a), "sign is turned"),
    (checks.padded_loss, lambda *a: divided(*a).item(), "wanted tensor"),
    (checks.three_masks, masks(0, 2, by=lambda m: m.mT), "encoder and across: .*axis"),
    (checks.three_masks, masks(0, by=lambda m: m.mT), ": encoder: .*axis of queries"),
    (checks.three_masks, masks(2, by=lambda m: m.mT), ": across: .*axis of queries"),
    (checks.three_masks, masks(0, by=lambda m: m & m.mT), "as a query too"),
    (checks.three_masks, causal_encoder, "read as a whole"),
    (checks.three_masks, causal_across, "across: the future is hidden"),
    (checks.three_masks, masks(0, 1, 2, by=lambda m: ~m), "all three are upside down"),
    (checks.three_masks, masks(0, 2, by=lambda m: ~m), "across are upside down"),
    (checks.three_masks, masks(1, by=lambda m: ~m), "decoder: it is upside down"),
    (checks.three_masks, masks(1, by=lambda m: m.mT), "sees the future"),
    (checks.three_masks, masks(1, by=lambda m: m.tril(-1)), "may see itself"),
    (checks.three_masks, lambda n, s, t: right_masks(n, s, s), "size is the target's"),
    (checks.three_masks, masks(0, 2, by=lambda m: m[:, 0, 0]), r"read as \(t s\)"),
    (
        checks.three_masks,
        lambda n, s, t: right_masks(n, n.max(), t),
        "that of the longest source",
    ),
    (checks.three_masks, one_key_more, "one key too many"),
    (checks.three_masks, masks(0, 1, 2, by=lambda m: m.float()), "a mask is bool"),
    (checks.three_masks, masks(0, 1, 2, by=lambda m: m.float().log()), "0 and -inf"),
    (checks.three_masks, lambda *case: right_masks(*case)[:2], "2 things, wanted 3"),
]
