"""Right and wrong answers to the exercises of chapters 07 and 10."""

import numpy as np
import torch

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_cost(n_tokens, d_model):
    """The closed form."""
    triangle = n_tokens * (n_tokens + 1) // 2
    return 24 * n_tokens * d_model**2 + 4 * triangle * d_model


def right_append(room, n_used, new):
    room.narrow(2, n_used, new.shape[2]).copy_(new)
    return room[:, :, : n_used + new.shape[2]]


@wrong(checks.in_place, "rest of `room` is changed")
def zeroing_append(room, n_used, new):
    room[..., n_used:, :] = 0
    return right_append(room, n_used, new)


@wrong(checks.in_place, "rest of `room` is changed")
def zeroed_end(room, n_used, new):
    kept = right_append(room, n_used, new)
    room[..., kept.shape[-2] :, :].zero_()
    return kept


@wrong(checks.in_place, "set them, don't add")
def added(room, n_used, new):
    room[..., n_used : n_used + new.shape[-2], :] += new
    return room[..., : n_used + new.shape[-2], :]


@wrong(checks.in_place, "it gives")
def at_the_end(room, n_used, new):
    room[..., -new.shape[-2] :, :] = new
    return room[..., : n_used + new.shape[-2], :]


def with_end(end):
    """An answer that writes rightly and gives all before end(room, n_used, new)."""

    def append(room, n_used, new):
        right_append(room, n_used, new)
        return room[..., : end(room, n_used, new), :]

    return append


def shifted_append(by):
    return lambda room, n_used, new: right_append(room, n_used + by, new)


@wrong(checks.in_place, "one too early")
def early_append(room, n_used, new):
    right_append(room, n_used - 1, new)
    return room[..., : n_used + new.shape[-2], :]


@wrong(checks.in_place, "what is kept is copied")
def copied_back(room, n_used, new):
    end = n_used + new.shape[-2]
    room[..., :end, :] = torch.cat([room[..., :n_used, :], new], -2)
    return room[..., :end, :]


@wrong(checks.in_place, "what is kept is copied")
def cloned_first(room, n_used, new):
    old = room[..., :n_used, :].clone()
    right_append(room, n_used, new)
    room[..., :n_used, :] = old
    return room[..., : n_used + new.shape[-2], :]


@wrong(checks.in_place, "what is kept is copied")
def idle_clone(room, n_used, new):
    room[..., :n_used, :].clone()
    return right_append(room, n_used, new)


@wrong(checks.in_place, "what is kept is copied")
def joined_first(room, n_used, new):
    both = torch.cat([room[..., :n_used, :], new], -2)
    end = both.shape[-2]
    room[..., n_used:end, :] = both[..., n_used:, :]
    return room[..., :end, :]


@wrong(checks.in_place, "slice the last axis but one")
def no_end(room, n_used, new):
    room[..., n_used:, :] = new
    return room[..., : n_used + new.shape[-2], :]


@wrong(checks.in_place, "slice the last axis but one")
def wrong_axis(room, n_used, new):
    end = n_used + new.shape[-2]
    room[..., n_used:end] = new
    return room[..., :end]


def cloned_new(room, n_used, new):
    return right_append(room, n_used, new.clone())


@wrong(checks.in_place, r"n_used = 5, .* the shape is \(3, 1, 0, 2\)")
def from_the_end(room, n_used, new):
    """Gives nothing where the room is full."""
    end = n_used + new.shape[-2]
    size = room.shape[-2]
    room[..., n_used:end, :] = new
    return room[..., : end - size, :]


@wrong(checks.in_place, "last axis but one")
def along_heads(room, n_used, new):
    room[:, n_used : n_used + new.shape[1]] = new
    return room[:, : n_used + new.shape[1]]


@wrong(checks.in_place, "slice the last axis but one")
def one_place(room, n_used, new):
    room[..., n_used : n_used + 1, :] = new
    return room[..., : n_used + 1, :]


@wrong(checks.in_place, "only one token")
def first_of_new(room, n_used, new):
    return right_append(room, n_used, new[..., :1, :])


def token_by_token(room, n_used, new):
    for i in range(new.shape[2]):
        room[:, :, n_used + i] = new[:, :, i]
    return room[:, :, : n_used + new.shape[2]]


@wrong(checks.in_place, "a copy: write into `room`")
def cat_append(room, n_used, new):
    return torch.cat([room[..., :n_used, :], new], -2)


def right_loop(step, prompt, n_new):
    new = prompt
    kept = None
    written = []
    while len(written) < n_new:
        token, kept = step(new, kept)
        new = [token]
        written += new
    return written


def right_place(n_kept, n_new, width):
    ones = torch.ones(n_new, n_kept + n_new, dtype=torch.bool)
    mask = ones.tril(n_kept) & ones.triu(n_kept - width + 1)
    return torch.arange(n_kept, n_kept + n_new), mask


def looped_place(n_kept, n_new, width):
    at = range(n_kept, n_kept + n_new)
    rows = [[t - width < s <= t for s in range(n_kept + n_new)] for t in at]
    return [torch.tensor([*at]), torch.tensor(rows)]


def filled_place(n_kept, n_new, width):
    mask = torch.zeros(n_new, n_kept + n_new, dtype=torch.bool)
    for i in range(n_new):
        mask[i, max(0, n_kept + i + 1 - width) : n_kept + i + 1] = True
    return n_kept + torch.arange(n_new), mask


def masked_by(see, first=1):
    """An answer whose mask is see(kept, query, key, width), counted from the piece."""

    def place(n, n_new, width):
        at, keys = torch.arange(n_new), torch.arange(n + n_new)
        return first * n + at, see(n, at[:, None], keys, width)

    return place


def placed(change):
    return lambda *case: change(*right_place(*case))


@wrong(checks.place, "a square mask")
def square_place(n_kept, n_new, width):
    ones = torch.ones(n_new, n_new, dtype=torch.bool)
    return torch.arange(n_kept, n_kept + n_new), ones.tril() & ones.triu(1 - width)


def right_talk(step, questions, n_new):
    """The last token of an answer goes in by a call of its own."""
    answers = []
    last = None
    kept = None
    for question in questions:
        if last is not None:
            _, kept = step([last], kept)
        token, kept = step(tuple(question), kept)
        answer = [token]
        while len(answer) < n_new:
            token, kept = step([token], kept)
            answer.append(token)
        last = token
        answers.append(tuple(answer))
    return tuple(answers)


@wrong(checks.talk, "each question begins anew: it is one text")
def each_by_loop(step, questions, n_new):
    return [right_loop(step, question, n_new) for question in questions]


@wrong(checks.talk, "and less saved")
def all_again(step, questions, n_new):
    text, answers = [], []
    for question in questions:
        text = text + question
        answers.append(right_loop(step, text, n_new))
        text = text + answers[-1]
    return answers


@wrong(checks.talk, "last token never goes in")
def last_one_lost(step, questions, n_new, flush=False):
    kept = None
    answers = []
    for new in questions:
        answers.append([])
        for _ in range(n_new):
            token, kept = step(new, kept)
            new = [token]
            answers[-1].append(token)
        if flush:
            _, kept = step(new, kept)
    return answers


@wrong(checks.talk, "the very last token goes in too")
def flushed(*case):
    """Every answer's last token goes in by a call of its own, the very last too."""
    return last_one_lost(*case, flush=True)


def short_talk(step, questions, n_new, before=1, one=False, turned=False):
    """The right one; with other options a wrong one."""
    kept = None
    answers = []
    answer = []
    for question in questions:
        last = answer[-before:] if answers else []
        new = question + last if turned else last + question
        answer = answer if one else []
        for _ in range(n_new):
            token, kept = step(new, kept)
            new = [token]
            answer.append(token)
        answers.append(answer)
    return answers


@wrong(checks.talk, "the whole answer goes in again")
def last_answer_again(*case):
    return short_talk(*case, before=99)


@wrong(checks.talk, "kept is handed over again")
def doubled_talk(step, questions, n_new):
    text = []
    kept = None
    answers = []
    for question in questions:
        text = text + question
        for _ in range(n_new):
            token, kept = step(text, kept)
            text = [*text, token]
        answers.append(text[-n_new:])
    return answers


@wrong(checks.talk, "thrown away")
def forgetful_talk(step, questions, n_new):
    """Within an answer too, nothing is handed on."""
    last, answers = [], []
    for question in questions:
        new = last + question
        answer = []
        for _ in range(n_new):
            token, _ = step(new, None)
            last = new = [token]
            answer.append(token)
        answers.append(answer)
    return answers


@wrong(checks.talk, r"questions = \[\[89\], \[4\]\], n_new = 1")
def zero_lost(step, questions, n_new):
    """Token 0 is taken for none."""
    kept = None
    token = 0
    answers = []
    for question in questions:
        new = ([token] if token else []) + question
        answers.append([])
        for _ in range(n_new):
            token, kept = step(new, kept)
            new = [token]
            answers[-1].append(token)
    return answers


@wrong(checks.talk, r"questions = \[\[89\], \[4\]\], n_new = 1")
def late_last(step, questions, n_new):
    """The newest token is remembered inside the loop only: wrong for n_new = 1."""
    kept = None
    last = []
    answers = []
    for question in questions:
        token, kept = step(last + question, kept)
        answers.append([token])
        while len(answers[-1]) < n_new:
            token, kept = step([token], kept)
            answers[-1].append(token)
            last = [token]
    return answers


@wrong(checks.talk, "changes its input")
def popped_talk(step, questions, n_new):
    questions[0].append(0)
    return right_talk(step, questions, n_new)


def spoken(step, questions, n_new):
    """Every token goes in by a call of its own."""
    kept = None
    answers = []
    last = []
    for question in questions:
        for new in last + question:
            token, kept = step([new], kept)
        answers.append([token])
        for _ in range(n_new - 1):
            token, kept = step([token], kept)
            answers[-1].append(token)
        last = [token]
    return answers


@wrong(checks.talk, r"takes a list: \[")
def bare_token(step, questions, n_new):
    kept = None
    answers = []
    for question in questions:
        token, kept = step(question, kept)
        answers.append([token])
        for _ in range(n_new - 1):
            token, kept = step(token, kept)
            answers[-1].append(token)
    return answers


def by_numpy(room, n_used, new):
    """Writes and slices by NumPy, which shares the memory."""
    end = n_used + new.shape[-2]
    room.numpy()[..., n_used:end, :] = new.numpy()
    return torch.from_numpy(room.numpy()[..., :end, :])


def detached(room, n_used, new):
    return right_append(room, n_used, new).detach()


def by_index_copy(room, n_used, new):
    end = n_used + new.shape[2]
    room.index_copy_(2, torch.arange(n_used, end), new)
    return room.narrow(2, 0, end)


def by_scatter(room, n_used, new):
    at = torch.arange(n_used, n_used + new.shape[2])[:, None].expand(new.shape)
    room.scatter_(2, at, new)
    return room.split(
        [n_used + new.shape[2], room.shape[2] - n_used - new.shape[2]], 2
    )[0]


def copied_before(copy):
    """Right in what it gives, but what is kept is copied on the way."""

    def append(room, n_used, new):
        old = copy(room[..., :n_used, :], n_used)
        kept = right_append(room, n_used, new)
        room[..., :n_used, :] *= torch.isfinite(old.sum())
        return kept

    return append


def stacked(old, n_used):
    return torch.stack(old.unbind(2), 2) if n_used else old


def sized_by(axis):
    def append(room, n_used, new):
        end = n_used + new.shape[axis]
        room[..., n_used:end, :] = new
        return room[..., :end, :]

    return append


def lists_of(kind):
    """The right conversation, each answer of another kind, one after the other."""

    def talk(step, questions, n_new):
        pending = []
        kept = None
        for question in questions:
            pending.extend(question)
            answer = []
            for _ in range(n_new):
                token, kept = step(pending, kept)
                pending[:] = [token]
                answer.append(token)
            yield kind(answer)

    return talk


def by_recursion(step, questions, n_new, last=(), kept=None):
    if not questions:
        return []
    new, answer = [*last, *questions[0]], []
    for _ in range(n_new):
        token, kept = step(new, kept)
        new = [token]
        answer.append(token)
    return [answer, *by_recursion(step, questions[1:], n_new, new, kept)]


def first_call(part):
    """Hands `part` of the first question to `step`."""

    def talk(step, questions, n_new):
        token, _ = step(part(questions[0]), None)
        return [[token]]

    return talk


@wrong(checks.talk, "`step` takes a list of tokens, not")
def pair_as_token(step, questions, n_new):
    kept = None
    answers = []
    last = []
    for question in questions:
        last = [step(last + question, kept)]
        answers.append(last)
    return answers


@wrong(checks.talk, "`step` has nothing to read")
def warmed_up(step, questions, n_new):
    """An empty call first, which hands nothing over."""
    _, kept = step([], None)
    return each_by_loop(
        lambda new, k: step(new, kept if k is None else k), questions, 1
    )


RIGHT = [
    (checks.text_cost, lambda n, d: np.sum(24 * d**2 + 4 * d * np.arange(1, n + 1))),
    (
        checks.text_cost,
        lambda n, d: sum(map(lambda i: 24 * d * d + 4 * d * (n - i), range(n))),
    ),
    (checks.in_place, by_numpy),
    (checks.in_place, detached),
    (checks.in_place, by_index_copy),
    (checks.in_place, by_scatter),
    (checks.place, lambda *case: (x for x in right_place(*case))),
    (checks.talk, lists_of(list)),
    (checks.talk, lists_of(iter)),
    (checks.talk, lists_of(torch.tensor)),
    (checks.talk, lambda *case: np.array(list(lists_of(np.array)(*case)))),
    (checks.talk, by_recursion),
    (checks.text_cost, right_cost),
    (checks.text_cost, lambda *sizes: torch.tensor(right_cost(*sizes))),
    (checks.text_cost, lambda n, d: float(right_cost(n, d))),
    (checks.in_place, right_append),
    (checks.in_place, with_end(lambda room, n, new: n + new.shape[-2])),
    (checks.in_place, token_by_token),
    (checks.in_place, cloned_new),
    (checks.place, right_place),
    (checks.place, looped_place),
    (checks.place, filled_place),
    (checks.talk, right_talk),
    (checks.talk, short_talk),
    (checks.talk, spoken),
    (checks.talk, lambda *case: torch.tensor(right_talk(*case))),
]
WRONG = [
    *wrong,
    (checks.in_place, copied_before(stacked), "what is kept is copied"),
    (checks.in_place, copied_before(lambda x, n: x[..., torch.arange(n), :]), "copied"),
    (
        checks.in_place,
        copied_before(lambda x, n: x.index_select(2, torch.arange(n))),
        "copied",
    ),
    (checks.in_place, copied_before(lambda x, n: x.repeat(1, 1, 1, 1)), "copied"),
    (checks.in_place, copied_before(lambda x, n: x.double()), "copied"),
    (checks.in_place, copied_before(lambda x, n: torch.tensor(x.tolist())), "copied"),
    (checks.in_place, sized_by(-1), r"t is `new.shape\[-2\]`, here d"),
    (checks.in_place, sized_by(0), r"t is `new.shape\[-2\]`, here b"),
    (
        checks.in_place,
        lambda room, n, new: right_append(room, n, new.view(3, 3)),
        r"RuntimeError: shape '\[3, 3\]' is invalid for input of size 48$",
    ),
    (checks.in_place, lambda room, n, new: new @ new, "RuntimeError: [^:]*: .*6, 2.$"),
    (checks.talk, first_call(lambda q: [q]), r"a list of tokens, not \[\[3, 1, 4\]\]$"),
    (
        checks.talk,
        first_call(torch.tensor),
        r"list of tokens, not tensor\(\[3, 1, 4\]\)$",
    ),
    (checks.talk, first_call(str), r"a list of tokens, not '\[3, 1, 4\]'$"),
    (checks.text_cost, lambda n, d: right_cost(n - 1, d) + 24 * d**2, "its own key"),
    (checks.text_cost, lambda n, d: right_cost(n, d) + 24 * d**2, "one step too many"),
    (checks.text_cost, lambda n, d: right_cost(n - 1, d), "last step is missing"),
    (
        checks.text_cost,
        lambda n, d: n * (24 * d**2 + 4 * n * d),
        "every step sees n keys here: not the first",
    ),
    (checks.text_cost, lambda n, d: 24 * d**2 + 4 * n * d, "last step alone"),
    (
        checks.text_cost,
        lambda n, d: sum(i * (24 * d**2 + 4 * i * d) for i in range(1, n + 1)),
        "without a cache",
    ),
    (checks.text_cost, lambda n, d: 24 * n * d**2, "weights alone"),
    (checks.text_cost, lambda n, d: [n, d], r"it gives \[1, 8\], wanted 1568"),
    (checks.text_cost, lambda n, d: right_cost(n, d) // 2, "half of it"),
    (
        checks.text_cost,
        lambda n, d: right_cost(n, d) - 12 * n * d**2,
        "d_model² weights is",
    ),
    (checks.text_cost, lambda n, d: right_cost(n, d) - 16 * n * d**2, "feed-forward"),
    (checks.text_cost, lambda n, d: 4 * n * d * (6 * d + 1), "every step does"),
    (
        checks.text_cost,
        lambda n, d: right_cost(n, d) - n * (n + 1) * d,
        "n keys and n values",
    ),
    (checks.in_place, shifted_append(1), "one too late"),
    (checks.in_place, shifted_append(-1), r"the shape is \(2, 3, 4, 4\), wanted"),
    (checks.in_place, with_end(lambda room, n, new: None), "whole room"),
    (checks.in_place, lambda room, n, new: new, "new ones alone"),
    (checks.in_place, lambda *case: right_append(*case).clone(), "a copy"),
    (
        checks.in_place,
        lambda room, n, new: room.index_copy_(0, torch.tensor([n]), new),
        "stops with|axis",
    ),
    (checks.in_place, lambda *case: [right_append(*case)], "wanted a float32 tensor"),
    (checks.place, placed(lambda at, mask: (at - at[0], mask)), "is n_kept, not 0"),
    (checks.place, placed(lambda at, mask: (at + 1, mask)), "count from 0"),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s <= t) & (s > t - w)),
        "triangle is not moved: n_kept",
    ),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s <= n + t) & (s > t - w)),
        "only the triangle is",
    ),
    (checks.place, masked_by(lambda n, t, s, w: s > n + t - w), "sees those after it"),
    (checks.place, masked_by(lambda n, t, s, w: s <= n + t), "no window"),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s <= n + t) & (s >= n + t - w)),
        "one too many",
    ),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s <= n + t) & (s > n + t - w + 1)),
        "one too few",
    ),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s < n + t) & (s > n + t - w)),
        "does not see itself",
    ),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s <= n + t) & (s >= n + len(t) - w)),
        "each token needs its own",
    ),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s < n) & (s > n + t - w)),
        "sees itself,",
    ),
    (
        checks.place,
        masked_by(lambda n, t, s, w: (s <= n + t) & ((s >= n) | (s > n + t - w))),
        "it gives",
    ),
    (checks.place, placed(lambda at, mask: (at, ~mask)), "not hidden"),
    (checks.place, placed(lambda at, mask: (at, mask.mT)), "columns are keys"),
    (
        checks.place,
        placed(lambda at, mask: (at, mask.float())),
        "dtype is torch.float32, wanted torch.bool",
    ),
    (checks.place, placed(lambda at, mask: (at, mask.long())), "wanted torch.bool"),
    (checks.place, placed(lambda at, mask: mask), "wanted"),
    (
        checks.talk,
        lambda step, questions, n: [
            answer[1:] for answer in right_talk(step, questions, n + 1)
        ],
        "at tokens for `step` it gives",
    ),
    (
        checks.talk,
        lambda *case: sum(map(list, right_talk(*case)), []),
        "at answers it gives",
    ),
    (
        checks.talk,
        lambda *case: short_talk(*case, turned=True),
        "comes before the next",
    ),
    (checks.talk, lambda *case: short_talk(*case, one=True), "it gives"),
    (
        checks.talk,
        lambda *case: right_talk(*case)[-1:],
        "n_new = 2: at answers it gives",
    ),
]
