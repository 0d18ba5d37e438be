"""Right and wrong answers to the exercises of chapter 05."""

import torch

import companion
from companion import checks

INF = float("inf")


def each_clipped(gradients, limit):
    return [g * min(1, limit / g.norm()) for g in gradients]


def right_clip(gradients, limit):
    norm = sum(g.square().sum() for g in gradients).sqrt()
    return [g * (limit / norm if norm > limit else 1) for g in gradients]


def always_scaled(gradients, limit):
    norm = sum(g.square().sum() for g in gradients).sqrt()
    return [g * limit / norm for g in gradients]


def in_place_clip(gradients, limit):
    torch.nn.utils.get_total_norm(gradients)
    for g in gradients:
        g.mul_(limit / 13)
    return gradients


def losses_of_windows(model, tokens):
    n = model.config.context_length
    pairs = zip(tokens[:-1].split(n), tokens[1:].split(n), strict=True)
    return [companion.next_token_loss(model(x[None]), y[None]) for x, y in pairs]


def full_windows_only(model, tokens):
    n = model.config.context_length
    whole = (len(tokens) - 1) // n * n
    x, y = tokens[:whole].view(-1, n), tokens[1 : whole + 1].view(-1, n)
    return companion.next_token_loss(model(x), y)


RIGHT = [
    (checks.perplexity, lambda z, y: companion.next_token_loss(z, y).exp()),
    (checks.clip, right_clip),
    (
        checks.whole_split,
        lambda m, t: (
            sum(
                loss * n
                for loss, n in zip(losses_of_windows(m, t), (8, 8, 3), strict=True)
            )
            / 19
        ),
    ),
    (checks.mask_scores, lambda z, mask: torch.where(mask, z, -INF)),
    (checks.mask_scores, lambda z, mask: z + torch.where(mask, 0.0, -INF)),
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
        checks.clip,
        lambda gs, c: [
            g / torch.cat([x.flatten() for x in gs]).norm() if len(gs) == 2 else g
            for g in gs
        ],
        "whatever the limit",
    ),
    (checks.clip, each_clipped, "each gradient is clipped by itself"),
    (checks.clip, lambda gs, c: [g.clip(-c, c) for g in gs], "changes the direction"),
    (checks.clip, always_scaled, "only shortens"),
    (checks.clip, in_place_clip, "changes its input"),
    (
        checks.whole_split,
        lambda m, t: torch.stack(losses_of_windows(m, t)).mean(),
        "counts like one of 8",
    ),
    (checks.whole_split, full_windows_only, "are left out"),
    (checks.mask_scores, lambda z, mask: z.masked_fill(~mask, -1e9), "can't be outbid"),
    (
        checks.mask_scores,
        lambda z, mask: z + torch.where(mask, 0.0, -1e4),
        "can't be outbid",
    ),
    (
        checks.mask_scores,
        lambda z, mask: z.masked_fill(mask, -INF),
        "the wrong side is hidden",
    ),
]
