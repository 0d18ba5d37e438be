"""Right and wrong answers to the exercises of chapter 05."""

import copy
import random

import numpy as np
import torch
import torch.nn.functional as F

import companion
from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def adam(p, g, m, v, t, rate):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    step = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return p - rate * step, m, v


def right_adamw(p, gradients, rate, decay):
    m, v = 0, 0
    for t, g in enumerate(gradients, 1):
        p, m, v = adam(p - rate * decay * p, g, m, v, t, rate)
    return p


def by_the_package(p, gradients, rate, decay):
    moving = p.clone().requires_grad_()
    optimizer = companion.AdamW([moving], lr=rate, weight_decay=decay)
    for g in gradients:
        moving.grad = g.clone()
        optimizer.step()
    return moving.detach()


@wrong(checks.adamw, "the decay is in the gradient")
def in_the_gradient(p, gradients, rate, decay):
    m, v = 0, 0
    for t, g in enumerate(gradients, 1):
        p, m, v = adam(p, g + decay * p, m, v, t, rate)
    return p


@wrong(checks.adamw, "of p after the step")
def decay_after(p, gradients, rate, decay):
    m, v = 0, 0
    for t, g in enumerate(gradients, 1):
        p, m, v = adam(p, g, m, v, t, rate)
        p = p - rate * decay * p
    return p


@wrong(checks.adamw, "t counts from 1")
def from_zero(p, gradients, rate, decay):
    m, v = 0, 0
    for t, g in enumerate(gradients):
        p, m, v = adam(p - rate * decay * p, g, m, v, t, rate)
    return p


@wrong(checks.adamw, "begin at 0 again")
def forgetful(p, gradients, rate, decay):
    for t, g in enumerate(gradients, 1):
        p, _, _ = adam(p - rate * decay * p, g, 0, 0, t, rate)
    return p


def clip_all(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def loop(model, optimizer, batches, judge, keep, clear=True, clip=clip_all, late=None):
    scores = []
    best = None
    for inputs, targets in batches:
        if clear:
            optimizer.zero_grad()
        companion.next_token_loss(model(inputs), targets).backward()
        clip(model)
        optimizer.step()
        if late:
            late(model)
        scores.append(judge(model))
        if scores[-1] == min(scores):
            best = keep(model)
    model.load_state_dict(best)
    return scores


def clones(model):
    return {name: x.clone() for name, x in model.state_dict().items()}


def right_best(*case):
    return loop(*case, keep=clones)


def by_a_whole_copy(model, optimizer, batches, judge):
    lowest = float("inf")
    scores = []
    for inputs, targets in batches:
        loss = torch.nn.functional.cross_entropy(model(inputs).mT, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        score = judge(model)
        scores += [score]
        if score < lowest:
            lowest = score
            best = copy.deepcopy(model)
    model.load_state_dict(best.state_dict())
    return scores


@wrong(checks.best, "were the best copied")
def leaky_best(*case):
    return loop(*case, keep=lambda model: model.state_dict())


@wrong(checks.best, "were the best copied")
def shallow_best(*case):
    return loop(*case, keep=lambda model: model.state_dict().copy())


def by_companion_train(model, optimizer, batches, judge):
    scores, weights = [], []
    for batch in batches:
        companion.train(model, optimizer, [batch])
        scores.append(judge(model))
        weights.append([p.detach().clone() for p in model.parameters()])
    best = weights[scores.index(min(scores))]
    for p, best_p in zip(model.parameters(), best, strict=True):
        p.data.copy_(best_p)
    return tuple(scores)


@wrong(checks.best, "let judge choose")
def by_the_loss(model, optimizer, batches, judge):
    scores, losses = [], []
    for batch in batches:
        losses += companion.train(model, optimizer, [batch])
        scores.append(judge(model))
        if losses[-1] == min(losses):
            best = clones(model)
    model.load_state_dict(best)
    return scores


@wrong(checks.best, "it comes after")
def judged_before(model, optimizer, batches, judge):
    scores = []
    for batch in batches:
        scores.append(judge(model))
        companion.train(model, optimizer, [batch])
        if scores[-1] == min(scores):
            best = clones(model)
    model.load_state_dict(best)
    return scores


@wrong(checks.best, "were the best copied")
def by_another_name(model, optimizer, batches, judge):
    lowest = 99
    scores = []
    best = None
    for batch in batches:
        companion.train(model, optimizer, [batch])
        scores.append(judge(model))
        if scores[-1] < lowest:
            lowest = scores[-1]
            best = copy.deepcopy(model)
    model = best
    return scores


@wrong(checks.best, "the lower the better")
def highest(model, optimizer, batches, judge):
    best = float("-inf")
    scores = []
    for batch in batches:
        companion.train(model, optimizer, [batch])
        scores.append(judge(model))
        if scores[-1] > best:
            best = scores[-1]
            weights = clones(model)
    model.load_state_dict(weights)
    return scores


@wrong(checks.best, "call optimizer.step")
def stuck(model, optimizer, batches, judge):
    scores = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        companion.next_token_loss(model(inputs), targets).backward()
        clip_all(model)
        scores.append(judge(model))
    return scores


@wrong(checks.best, "nothing is returned")
def no_return(*case):
    right_best(*case)


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


def entry_by_entry(gradients, limit):
    total = sum(x**2 for g in gradients for x in g.flatten().tolist())
    factor = limit / max(limit, total**0.5)
    return [torch.clone(g).mul_(factor) for g in gradients]


def factor_of(length):
    return lambda gs, c: [g * min(1, c / length(gs)) for g in gs]


@wrong(checks.clip, "changes its input")
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
    with torch.inference_mode():
        parts = [
            -model(x[None])[0].log_softmax(-1).gather(-1, y[:, None])
            for x, y in windows(model, tokens)
        ]
    return np.float64(torch.cat(parts).mean().item())


def by_weights(model, tokens, n=None):
    pairs = [*windows(model, tokens, n)]
    with torch.no_grad():
        parts = losses(model, pairs)
    total = sum(loss * len(y) for loss, (_, y) in zip(parts, pairs, strict=True))
    return total / (len(tokens) - 1)


@wrong(checks.whole_split, "reaches back")
def last_aligned(model, tokens):
    n = model.config.context_length
    pairs = [*windows(model, tokens)]
    pairs[-1] = tokens[-n - 1 : -1], tokens[-n:]
    total = sum(
        loss.item() * len(y)
        for loss, (_, y) in zip(losses(model, pairs), pairs, strict=True)
    )
    return total / sum(len(y) for _, y in pairs)


@wrong(checks.whole_split, "keeps all for a way back")
def with_its_graph(model, tokens):
    pairs = [*windows(model, tokens)]
    weighed = zip(losses(model, pairs), pairs, strict=True)
    return sum(loss * len(y) for loss, (_, y) in weighed) / (len(tokens) - 1)


def by_starts(model, tokens):
    n = model.config.context_length
    total = 0
    for start in range(0, len(tokens) - 1, n):
        window = tokens[start : start + n + 1]
        (loss,) = losses(model, [(window[:-1], window[1:])])
        total += loss.item() * (len(window) - 1)
    return total / (len(tokens) - 1)


@wrong(checks.whole_split, "of one prediction is left out")
def by_starts_that_end_early(model, tokens):
    n = model.config.context_length
    total = n_in_all = 0
    for start in range(0, len(tokens) - 2, n):
        window = tokens[start : start + n + 1]
        (loss,) = losses(model, [(window[:-1], window[1:])])
        total += loss.item() * (len(window) - 1)
        n_in_all += len(window) - 1
    return total / n_in_all


@wrong(checks.whole_split, "after the full windows is left out")
def full_windows_only(model, tokens):
    n = model.config.context_length
    whole = (len(tokens) - 1) // n * n
    x, y = tokens[:whole].view(-1, n), tokens[1 : whole + 1].view(-1, n)
    return companion.next_token_loss(model(x), y)


@wrong(checks.whole_split, "loses its first token")
def shifted_inside(model, tokens):
    parts = [w for w in tokens.split(model.config.context_length) if len(w) > 1]
    total = sum(losses(model, [(w[:-1], w[1:])])[0] * (len(w) - 1) for w in parts)
    return total / sum(len(w) - 1 for w in parts)


@wrong(checks.whole_split, "the targets are the inputs")
def unshifted(model, tokens):
    pairs = [(x, x) for x, _ in windows(model, tokens)]
    weighed = zip(losses(model, pairs), pairs, strict=True)
    return sum(loss * len(x) for loss, (x, _) in weighed) / (len(tokens) - 1)


@wrong(checks.adamw, "carry m and v on as they were")
def stored_corrected(p, gradients, rate, decay):
    m, v = 0, 0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        m, v = m / (1 - 0.9**t), v / (1 - 0.999**t)
        p = p - rate * (m / (v.sqrt() + 1e-8) + decay * p)
    return p


@wrong(checks.adamw, "the ε is missing")
def adamw_with(p, gradients, rate, decay, first=True, second=True, root=torch.sqrt):
    m = v = torch.zeros_like(p)
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        mean = m / (1 - 0.9**t) if first else m
        square = v / (1 - 0.999**t) if second else v
        p = p * (1 - rate * decay) - rate * mean / root(square)
    return p


def adamw_like(p, gradients, rate, decay, betas=(0.9, 0.999), power=2, sign=-1):
    m = v = torch.zeros_like(p)
    for t, g in enumerate(gradients, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g.abs() ** power
        mean, square = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        p = p * (1 + sign * rate * decay) - rate * mean / with_eps(square)
    return p


def adamw_from(p, gradients, rate, pull):
    """Where the same pull is taken off in each step."""
    m, v = 0, 0
    for t, g in enumerate(gradients, 1):
        p, m, v = adam(p - rate * pull, g, m, v, t, rate)
    return p


def with_eps(square):
    return square.sqrt() + 1e-8


def at_least(square):
    return square.sqrt().clamp(min=1e-12)


@wrong(
    checks.whole_split,
    "for context_length = 6, .*: it stops with UnboundLocalError: [^:]*$",
)
def unbound(model, tokens):
    """Fails where the text has fewer tokens than a window."""
    n = model.config.context_length
    total = 0
    for start in range(0, len(tokens) - n, n):
        window = tokens[start : start + n + 1]
        (loss,) = losses(model, [(window[:-1], window[1:])])
        total, end = total + loss.item() * n, start + n
    if end + 1 < len(tokens):
        (loss,) = losses(model, [(tokens[end:-1], tokens[end + 1 :])])
        total += loss.item() * (len(tokens) - 1 - end)
    return total / (len(tokens) - 1)


def in_place_on_a_copy(p, gradients, rate, decay):
    p, m, v = p.clone(), torch.zeros_like(p), torch.zeros_like(p)
    for i in range(len(gradients)):
        m.mul_(0.9).add_(gradients[i], alpha=0.1)
        v.mul_(0.999).addcmul_(gradients[i], gradients[i], value=0.001)
        p.mul_(1 - rate * decay)
        root = (v / (1 - 0.999 ** (i + 1))).sqrt() + 1e-8
        p.sub_(rate * m / (1 - 0.9 ** (i + 1)) / root)
    return p


@wrong(checks.adamw, "after v is corrected")
def eps_before_the_correction(p, gradients, rate, decay):
    m, v = 0, 0
    for n, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        root = (v.sqrt() + 1e-8) / (1 - 0.999**n) ** 0.5
        p = p - rate * (m / (1 - 0.9**n) / root + decay * p)
    return p


@wrong(checks.adamw, "is `return` in the loop")
def first_only(p, gradients, rate, decay):
    for g in gradients:
        return right_adamw(p, [g], rate, decay)


def by_torch(p, gradients, rate, decay):
    moving = torch.nn.Parameter(p.clone())
    optimizer = torch.optim.AdamW([moving], lr=rate, weight_decay=decay)
    for g in gradients:
        moving.grad = g.clone()
        optimizer.step()
    return moving.detach()


@wrong(checks.best, "lower than all")
def below_the_one_before(model, optimizer, batches, judge):
    scores = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        companion.next_token_loss(model(inputs), targets).backward()
        clip_all(model)
        optimizer.step()
        scores.append(judge(model))
        if len(scores) < 2 or scores[-1] < scores[-2]:
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return scores


@wrong(checks.whole_split, "the last token of the one before")
def without_overlap(model, tokens):
    parts = [w for w in tokens.split(model.config.context_length + 1) if len(w) > 1]
    total = sum(losses(model, [(w[:-1], w[1:])])[0] * (len(w) - 1) for w in parts)
    return total / sum(len(w) - 1 for w in parts)


def padded(model, tokens):
    n = model.config.context_length
    rest = -(len(tokens) - 1) % n
    x = torch.cat([tokens[:-1], tokens.new_zeros(rest)]).view(-1, n)
    y = torch.cat([tokens[1:], tokens.new_full((rest,), -100)]).view(-1, n)
    with torch.inference_mode():
        return companion.next_token_loss(model(x), y)


@wrong(checks.adamw, "1 in every step")
def always_the_first(p, gradients, rate, decay):
    m, v = 0, 0
    for g in gradients:
        p, m, v = adam(p - rate * decay * p, g, m, v, 1, rate)
    return p


@wrong(checks.clip, "it gives 0/0")
def by_division(gradients, limit):
    norm = norm_of(gradients)
    return [g / norm * min(norm, limit) for g in gradients]


def each_clipped_by_itself(model):
    for parameter in model.parameters():
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)


def by_its_l1_norm(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=1)


@wrong(checks.best, "the steps find no gradients: they are cleared")
def cleared_too_late(model, optimizer, batches, judge):
    return loop(
        model, optimizer, batches, judge, clones, clip=lambda m: optimizer.zero_grad()
    )


@wrong(checks.best, "the steps find no gradients: .* of a copy")
def of_a_copy(model, optimizer, batches, judge):
    """The optimizer has the parameters of the model, not those of its copy."""
    return right_best(copy.deepcopy(model), optimizer, batches, judge)


@wrong(checks.best, "load the best only at the end")
def back_after_a_worse_step(model, optimizer, batches, judge):
    scores = []
    for batch in batches:
        companion.train(model, optimizer, [batch])
        scores.append(judge(model))
        if scores[-1] == min(scores):
            best = clones(model)
        else:
            model.load_state_dict(best)
    model.load_state_dict(best)
    return scores


@wrong(checks.best, "not the best so far")
def lowest_so_far(*case):
    scores = right_best(*case)
    return [min(scores[: i + 1]) for i in range(len(scores))]


@wrong(checks.best, "before the first step stay")
def better_than_at_first(model, optimizer, batches, judge):
    """The weights before the first step stay where every step is worse."""
    lowest = judge(model)
    best = clones(model)
    scores = []
    for batch in batches:
        companion.train(model, optimizer, [batch])
        scores.append(judge(model))
        if scores[-1] < lowest:
            lowest = scores[-1]
            best = clones(model)
    model.load_state_dict(best)
    return scores


@wrong(checks.best, "at the number of steps it gives 7, wanted 6")
def one_step_more(*case):
    scores = right_best(*case)
    case[1].step()
    return scores


def right_split(model, tokens):
    with torch.no_grad():
        return with_its_graph(model, tokens)


def after(change):
    """The right answer, but for what `change(model)` leaves behind."""

    def answer(model, tokens):
        change(model)
        return right_split(model, tokens)

    return answer


def frozen_for_a_while(model, tokens):
    for parameter in model.parameters():
        parameter.requires_grad = False
    loss = with_its_graph(model, tokens)
    for parameter in model.parameters():
        parameter.requires_grad = True
    return loss


def judged_in_eval_mode(model, tokens):
    before = model.training
    model.eval()
    loss = right_split(model, tokens)
    model.train(before)
    return loss


@wrong(checks.whole_split, "n_tokens = 3: it gives nan, wanted")
def without_a_rest(model, tokens):
    """The mean of no windows, where the text is shorter than one, is NaN."""
    n = model.config.context_length
    end = (len(tokens) - 1) // n * n
    with torch.no_grad():
        x, y = tokens[:end].view(-1, n), tokens[1 : end + 1].view(-1, n)
        total = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) * end
        if end < len(tokens) - 1:
            rest = model(tokens[end:-1][None]), tokens[end + 1 :][None]
            total += companion.next_token_loss(*rest) * (len(tokens) - 1 - end)
    return total / (len(tokens) - 1)


@wrong(checks.whole_split, "slides by one token")
def slid_by_one(model, tokens):
    n = min(model.config.context_length, len(tokens) - 1)
    pairs = [*zip(tokens[:-1].unfold(0, n, 1), tokens[1:].unfold(0, n, 1), strict=True)]
    with torch.no_grad():
        return sum(loss.item() for loss in losses(model, pairs)) / len(pairs)


@wrong(checks.whole_split, "the windows lie side by side")
def each_after_a_full_window(model, tokens):
    n = model.config.context_length
    total = 0
    with torch.no_grad():
        for i, token in enumerate(tokens[1:].tolist(), 1):
            logits = model(tokens[max(0, i - n) : i][None])[0, -1]
            total -= logits.log_softmax(-1)[token].item()
    return total / (len(tokens) - 1)


@wrong(checks.adamw, "v only grows")
def never_forgetting(p, gradients, rate, decay):
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    for t, g in enumerate(gradients, 1):
        m = torch.lerp(m, g, 0.1)
        v = v + 0.001 * g * g
        step = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-8)
        p = p * (1 - rate * decay) - rate * step
    return p


RIGHT = [
    (checks.clip, lambda gs, c: map(torch.clone, right_clip(gs, c))),
    (checks.clip, lambda gs, c: [g / max(1, norm_of(gs) / c) for g in gs]),
    (
        checks.clip,
        lambda gs, c: [
            g if norm_of(gs) <= c else x
            for g, x in zip(gs, right_clip(gs, c), strict=True)
        ],
    ),
    (checks.adamw, lambda p, gs, *options: right_adamw(p.double(), gs, *options)),
    (checks.adamw, lambda p, gs, *options: right_adamw(p, torch.stack(gs), *options)),
    (checks.best, lambda *case: np.array(right_best(*case))),
    (checks.best, lambda *case: (score for score in right_best(*case))),
    (checks.whole_split, after(lambda model: torch.manual_seed(1))),
    (checks.whole_split, after(lambda model: random.seed(1) or random.random())),
    (checks.whole_split, frozen_for_a_while),
    (checks.whole_split, judged_in_eval_mode),
    (checks.whole_split, lambda m, t: right_split(copy.deepcopy(m).eval(), t)),
    (checks.clip, right_clip),
    (checks.clip, by_parameters),
    (checks.clip, entry_by_entry),
    (checks.adamw, right_adamw),
    (checks.adamw, by_the_package),
    (checks.adamw, by_torch),
    (checks.adamw, in_place_on_a_copy),
    (checks.adamw, lambda *case: adamw_with(*case, root=with_eps)),
    (checks.adamw, adamw_like),
    (checks.best, right_best),
    (checks.best, by_a_whole_copy),
    (checks.best, by_companion_train),
    (checks.whole_split, by_weights),
    (checks.whole_split, by_surprises),
    (checks.whole_split, by_starts),
    (checks.whole_split, padded),
]
WRONG = [
    *wrong,
    (
        checks.best,
        lambda *case: loop(*case, clones, clip=each_clipped_by_itself),
        "each parameter is clipped by itself",
    ),
    (
        checks.best,
        lambda *case: loop(*case, clones, clip=by_its_l1_norm),
        r"Sequential\(.*batches = .*: at the list\[0\] it gives \d",
    ),
    *(
        (checks.whole_split, after(change), f"^whole_split: the answer leaves {words}")
        for change, words in (
            (lambda m: torch.set_grad_enabled(False), "gradients switched off for"),
            (lambda m: torch.no_grad().__enter__(), "gradients switched off for"),
            (lambda m: m.requires_grad_(False), "`requires_grad` changed"),
            (lambda m: next(m.parameters()).requires_grad_(False), "`requires_grad`"),
            (lambda m: m.eval(), "the model in another mode"),
            (lambda m: m.blocks[0].eval(), "the model in another mode"),
            (lambda m: torch.set_default_dtype(torch.double), "another default dtype"),
        )
    ),
    (checks.whole_split, lambda m, t: right_split(m, t).exp(), "it gives"),
    (checks.whole_split, lambda m, t: right_split(m, t)[None], "the shape is"),
    (checks.clip, lambda gs, c: right_clip(gs, c)[0], "the shape is"),
    (checks.clip, lambda gs, c: dict(enumerate(right_clip(gs, c))), "it gives {"),
    (
        checks.clip,
        lambda gs, c: [g * min(1, c / norm_of(gs[:2])) for g in gs],
        "it gives",
    ),
    (
        checks.adamw,
        lambda p, gs, *options: right_adamw(p, gs[::-1], *options),
        "it gives",
    ),
    (
        checks.adamw,
        lambda p, gs, *options: [*right_adamw(p, gs, *options)],
        "wanted tensor",
    ),
    (
        checks.adamw,
        lambda *case: adamw_with(*case, root=lambda v: v.sqrt() + 1e-6),
        "it gives",
    ),
    (
        checks.adamw,
        lambda p, gs, rate, decay: right_adamw(p, gs, rate, decay, t=1),
        "^adamw: it stops with TypeError: right_adamw.. got an unexpected[^:]*$",
    ),
    (
        checks.adamw,
        lambda *case: adamw_with(*case, root=lambda v: (v + 1e-8).sqrt()),
        "inside the root",
    ),
    (checks.adamw, lambda *case: adamw_with(*case, root=at_least), "not an ε"),
    (checks.adamw, lambda *case: adamw_like(*case, betas=(0.999, 0.9)), "it gives"),
    (checks.adamw, lambda *case: adamw_like(*case, power=1), "squares"),
    (checks.adamw, lambda *case: adamw_like(*case, sign=1), "take it away"),
    (
        checks.whole_split,
        lambda m, t: by_weights(m, t) * (len(t) - 1) / len(t),
        "one fewer than tokens",
    ),
    (checks.clip, lambda gs, c: [g.clone() for g in gs], "nothing is shortened"),
    (checks.adamw, lambda p, gs, rate, decay: right_adamw(p, gs, rate, 0), "is Adam"),
    (
        checks.adamw,
        lambda p, gs, rate, decay: right_adamw(p, gs, rate, decay / rate),
        "not times the rate",
    ),
    (checks.adamw, lambda p, gs, rate, decay: p.sub_(rate * gs[0]), "its input"),
    (
        checks.adamw,
        lambda p, gs, r, decay: adamw_from(p, gs, r, decay * p),
        "as it is now, not at the start",
    ),
    (
        checks.adamw,
        lambda *case: adamw_with(*case, root=lambda v: v + 1e-8),
        "the root of v is missing",
    ),
    (
        checks.adamw,
        lambda *case: adamw_with(*case, first=False, second=False, root=with_eps),
        "m and v begin at 0, too small",
    ),
    (
        checks.adamw,
        lambda *case: adamw_with(*case, second=False, root=with_eps),
        "v is not divided",
    ),
    (
        checks.adamw,
        lambda *case: adamw_with(*case, first=False, root=with_eps),
        "m is not divided",
    ),
    (
        checks.best,
        lambda *case: loop(*case, keep=clones, clear=False),
        "zero_grad comes before",
    ),
    (
        checks.best,
        lambda *case: loop(*case, keep=clones, clip=lambda model: None),
        "nothing is clipped",
    ),
    (
        checks.best,
        lambda *case: loop(*case, clones, clip=lambda model: None, late=clip_all),
        "between backward and step",
    ),
    (
        checks.best,
        lambda *case: loop(
            *case,
            clones,
            clip=lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), 1),
        ),
        "single entries are cut off",
    ),
    (checks.best, lambda *case: min(right_best(*case)), r"at the list it gives \d"),
    (checks.clip, only_over(lambda gs, c: 1 / norm_of(gs)), "whatever the limit"),
    (
        checks.clip,
        lambda gs, c: [g * min(1, c / g.norm()) for g in gs],
        "each gradient is clipped by itself",
    ),
    (checks.clip, lambda gs, c: [g.clip(-c, c) for g in gs], "changes the direction"),
    (checks.clip, lambda gs, c: [g * c / norm_of(gs) for g in gs], "only shortens"),
    (checks.clip, factor_of(lambda gs: norm_of(gs) ** 2), "the root is missing"),
    (checks.clip, factor_of(lambda gs: sum(g.abs().sum() for g in gs)), "it gives"),
    (checks.clip, factor_of(lambda gs: sum(g.norm() for g in gs)), "3 and 4 make 5"),
    (checks.clip, factor_of(lambda gs: max(g.norm() for g in gs)), "the largest"),
    (
        checks.clip,
        lambda gs, c: torch.cat([g.flatten() for g in right_clip(gs, c)]),
        r"it gives tensor\(\[.*\]\), wanted \[",
    ),
    (
        checks.whole_split,
        lambda m, t: torch.stack(losses(m, windows(m, t))).mean().item(),
        "counts like a full one",
    ),
    (checks.whole_split, lambda m, t: by_weights(m, t, 64), "stops with"),
    (
        checks.whole_split,
        lambda m, t: companion.next_token_loss(m(t[:-1]), t[1:]),
        "stops with",
    ),
    (
        checks.whole_split,
        lambda m, t: with_its_graph(m, t).item(),
        "keeps all for a way back",
    ),
    (
        checks.whole_split,
        lambda m, t: with_its_graph(m, t).detach(),
        "keeps all for a way back",
    ),
    (
        checks.whole_split,
        lambda m, t: by_weights(m, t) * (len(t) - 1),
        "this is the sum",
    ),
]
