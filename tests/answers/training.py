"""Right and wrong answers to the exercises of chapter 05."""

import torch

import companion
from companion import checks

INF = float("inf")


def norm_of(gradients):
    return sum(g.square().sum() for g in gradients).sqrt()


def right_clip(gradients, limit):
    norm = norm_of(gradients)
    return [g * (limit / norm if norm > limit else 1) for g in gradients]


def by_parameters(gradients, limit):
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(parameters, limit)
    return tuple(parameter.grad for parameter in parameters)


def only_over(limit_factor):
    return lambda gs, c: [g * limit_factor(gs, c) if norm_of(gs) > c else g for g in gs]


def in_place_clip(gradients, limit):
    for g in gradients:
        g.mul_(limit / norm_of(gradients))
    return gradients


def windows(model, tokens, n=None):
    n = n or model.config.context_length
    return zip(tokens[:-1].split(n), tokens[1:].split(n), strict=True)


def losses(model, pairs):
    return [companion.next_token_loss(model(x[None]), y[None]) for x, y in pairs]


def by_surprises(model, tokens):
    parts = [
        -model(x[None])[0].log_softmax(-1).gather(-1, y[:, None])
        for x, y in windows(model, tokens)
    ]
    return torch.cat(parts).mean().item()


def by_weights(model, tokens, n=None):
    pairs = [*windows(model, tokens, n)]
    total = sum(
        loss * len(y) for loss, (_, y) in zip(losses(model, pairs), pairs, strict=True)
    )
    return total / (len(tokens) - 1)


def by_starts(model, tokens):
    n, total = model.config.context_length, 0
    for start in range(0, len(tokens) - 1, n):
        window = tokens[start : start + n + 1]
        (loss,) = losses(model, [(window[:-1], window[1:])])
        total += loss.item() * (len(window) - 1)
    return total / (len(tokens) - 1)


def full_windows_only(model, tokens):
    n = model.config.context_length
    whole = (len(tokens) - 1) // n * n
    x, y = tokens[:whole].view(-1, n), tokens[1 : whole + 1].view(-1, n)
    return companion.next_token_loss(model(x), y)


def full_and_rest(model, tokens):
    n = model.config.context_length
    whole, total = (len(tokens) - 1) // n * n, 0
    for part in (slice(whole), slice(whole, len(tokens) - 1)):
        x, y = tokens[:-1][part], tokens[1:][part]
        pairs = zip(x.split(n), y.split(n), strict=True)
        total += torch.stack(losses(model, pairs)).mean() * len(y)
    return total / (len(tokens) - 1)


def shifted_inside(model, tokens):
    parts = [w for w in tokens.split(model.config.context_length) if len(w) > 1]
    total = sum(losses(model, [(w[:-1], w[1:])])[0] * (len(w) - 1) for w in parts)
    return total / sum(len(w) - 1 for w in parts)


def unshifted(model, tokens):
    pairs = [(x, x) for x, _ in windows(model, tokens)]
    weighed = zip(losses(model, pairs), pairs, strict=True)
    return sum(loss * len(x) for loss, (x, _) in weighed) / (len(tokens) - 1)


RIGHT = [
    (checks.perplexity, lambda z, y: companion.next_token_loss(z, y).exp()),
    (
        checks.perplexity,
        lambda z, y: 1 / z.softmax(-1).gather(-1, y[..., None]).log().mean().exp(),
    ),
    (checks.clip, right_clip),
    (checks.clip, by_parameters),
    (checks.whole_split, by_weights),
    (checks.whole_split, by_surprises),
    (checks.whole_split, by_starts),
    (checks.mask_scores, lambda z, mask: torch.where(mask, z, -INF)),
    (checks.mask_scores, lambda z, mask: z + torch.where(mask, 0.0, -INF)),
    (checks.mask_scores, lambda z, mask: z + mask.float().log()),
    (
        checks.mask_scores,
        lambda z, mask: z.masked_fill(~mask, torch.finfo(z.dtype).min),
    ),
]
WRONG = [
    (checks.perplexity, companion.next_token_loss, "take e to the power"),
    (
        checks.perplexity,
        lambda z, y: 2 ** companion.next_token_loss(z, y),
        "base is e, not 2",
    ),
    (
        checks.perplexity,
        lambda z, y: (-z.log_softmax(-1).gather(-1, y[..., None])).exp().mean(),
        "first the mean",
    ),
    (
        checks.perplexity,
        lambda z, y: torch.nn.functional.cross_entropy(z.mT, y, reduction="none").exp(),
        "one number for all",
    ),
    (
        checks.perplexity,
        lambda z, y: (
            torch.nn.functional.cross_entropy(z.mT, y, reduction="none")
            .mean(1)
            .exp()
            .mean()
        ),
        "not over one sequence at a time",
    ),
    (
        checks.perplexity,
        lambda z, y: z.log_softmax(-1).gather(-1, y[..., None]).mean().exp(),
        "sign of the surprise",
    ),
    (
        checks.perplexity,
        lambda z, y: torch.special.entr(z.softmax(-1)).sum(-1).mean().exp(),
        r"for z \(2, 7, 5\), y \(2, 7\): it gives .*, wanted \d",
    ),
    (checks.perplexity, lambda z, y: companion.perplexity(z, y), "AttributeError"),
    (checks.clip, only_over(lambda gs, c: 1 / norm_of(gs)), "whatever the limit"),
    (checks.clip, only_over(lambda gs, c: c), "must be limit / norm"),
    (
        checks.clip,
        lambda gs, c: [g * min(1, c / g.norm()) for g in gs],
        "each gradient is clipped by itself",
    ),
    (checks.clip, lambda gs, c: [g.clip(-c, c) for g in gs], "changes the direction"),
    (checks.clip, lambda gs, c: [g * c / norm_of(gs) for g in gs], "only shortens"),
    (
        checks.clip,
        lambda gs, c: [g * min(1, c / norm_of(gs) ** 2) for g in gs],
        "the root is missing",
    ),
    (
        checks.clip,
        lambda gs, c: [g * min(1, c / sum(x.norm() for x in gs)) for g in gs],
        "the norms are added",
    ),
    (checks.clip, in_place_clip, "changes its input"),
    (
        checks.clip,
        lambda gs, c: torch.cat([g.flatten() for g in right_clip(gs, c)]),
        r"it gives tensor\(\[.*\]\), wanted \[",
    ),
    (
        checks.whole_split,
        lambda m, t: torch.stack(losses(m, windows(m, t))).mean(),
        "counts like a full one",
    ),
    (checks.whole_split, full_windows_only, "are left out"),
    (checks.whole_split, lambda m, t: by_weights(m, t, 8), "is always 8"),
    (checks.whole_split, lambda m, t: by_weights(m, t, 64), "do not fit into 8"),
    (
        checks.whole_split,
        lambda m, t: companion.next_token_loss(m(t[:-1]), t[1:]),
        r"tokens are \(b t\), not \(19,\)",
    ),
    (
        checks.whole_split,
        lambda m, t: by_weights(m, t) * (len(t) - 1),
        "divide by the number of predictions",
    ),
    (
        checks.whole_split,
        lambda m, t: by_weights(m, t) * (len(t) - 1) / len(t),
        "one prediction fewer than tokens",
    ),
    (checks.whole_split, shifted_inside, "loses its first token"),
    (checks.whole_split, unshifted, "the targets are the inputs"),
    (checks.whole_split, full_and_rest, "an empty one is left over"),
    (
        checks.mask_scores,
        lambda z, mask: z.masked_fill(~mask, -1e9),
        r"-1e\+09 can be outbid",
    ),
    (
        checks.mask_scores,
        lambda z, mask: z.masked_fill(~mask, -1e10),
        r"-1e\+10 can be outbid",
    ),
    (
        checks.mask_scores,
        lambda z, mask: z + torch.where(mask, 0.0, -1e4),
        "added, -10000 can be outbid",
    ),
    (checks.mask_scores, lambda z, mask: z * mask, "0 can be outbid"),
    (
        checks.mask_scores,
        lambda z, mask: torch.where(mask, z, -12345.0),
        r"at \[0, 1\] it gives -12345, wanted -inf",
    ),
    (
        checks.mask_scores,
        lambda z, mask: z.masked_fill(~mask, (z.min() - 1).item()),
        "still gets a share",
    ),
    (
        checks.mask_scores,
        lambda z, mask: z.masked_fill(mask, -INF),
        "the wrong side is hidden",
    ),
    (checks.mask_scores, lambda z, mask: z + ~mask * -INF, "0 times infinity"),
    (
        checks.mask_scores,
        lambda z, mask: z.masked_fill(~mask, -INF).softmax(-1),
        "softmax comes later",
    ),
    (checks.mask_scores, lambda z, mask: z.masked_fill_(~mask, -INF), "its input"),
    (
        checks.mask_scores,
        lambda z, mask: mask,
        "the dtype is torch.bool, wanted torch.float32",
    ),
]
