"""Right and wrong answers to the exercises of chapter 06."""

import heapq
import random
from bisect import bisect_right
from itertools import accumulate

import torch

from companion import checks


def right_dart(chances, u):
    for token, chance in enumerate(chances.tolist()):
        u -= chance
        if u < 0:
            return token


def ends(chances):
    return chances.cumsum(-1)


def open_above(chances, u):
    for token, end in enumerate(ends(chances).tolist()):
        if u <= end:
            return token


def right_write(after, prompt, n_new, window):
    tokens = prompt[-window:]
    new = []
    while len(new) < n_new:
        new.append(after(tokens))
        tokens = (tokens + new[-1:])[-window:]
    return new


def from_the_front(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens[:window]))
    return tokens[len(prompt) :]


def all_of_it(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens))
    return tokens[len(prompt) :]


def in_the_prompt(after, prompt, n_new, window):
    for _ in range(n_new):
        prompt.append(after(prompt[-window:]))
    return prompt[-n_new:]


def shown(part):
    def writes(after, prompt, n_new, window):
        tokens = list(prompt)
        for i in range(n_new):
            tokens.append(after(part(tokens, window, i)))
        return tokens[len(prompt) :]

    return writes


def right_crossing(chances, p):
    rows = chances.reshape(-1, chances.shape[-1]).tolist()
    found = []
    for row in rows:
        total, order = 0, sorted(range(len(row)), key=lambda i: -row[i])
        while total < p:
            total += row[last := order.pop(0)]
        found.append(last)
    return torch.tensor(found).reshape(chances.shape[:-1])


def by_the_cut(chances, p):
    values, tokens = chances.sort(descending=True)
    stays = values.cumsum(-1) - values < p
    return tokens.gather(-1, stays.sum(-1, keepdim=True) - 1)[..., 0]


def moved(n):
    def answer(chances, p):
        values, tokens = chances.sort(descending=True)
        place = (values.cumsum(-1) < p).sum(-1, keepdim=True) + n
        return tokens.gather(-1, place.clamp(0, chances.shape[-1] - 1))[..., 0]

    return answer


def last_true(chances, p):
    values, tokens = chances.sort(descending=True)
    return tokens.gather(-1, (values.cumsum(-1) <= p).sum(-1, keepdim=True))[..., 0]


def nearest(chances, p):
    values, tokens = chances.sort(descending=True)
    place = (values.cumsum(-1) - p).abs().argmin(-1, keepdim=True)
    return tokens.gather(-1, place)[..., 0]


def place(chances, p):
    return (chances.sort(descending=True).values.cumsum(-1) < p).sum(-1)


def right_ending(after, n_beams, n_new, end):
    alive, done = [(0.0, [])], []
    for _ in range(n_new):
        longer = [
            (total + x, [*text, token])
            for total, text in alive
            for token, x in enumerate(after(text))
        ]
        race = heapq.nlargest(n_beams, longer + done)
        done = [beam for beam in race if end in beam[1]]
        alive = [beam for beam in race if end not in beam[1]]
    return sorted(done + alive, reverse=True)


def search(step):
    def answer(after, n_beams, n_new, end):
        beams = [(0.0, [])]
        for _ in range(n_new):
            longer = []
            for beam in beams:
                longer += step(after, beam, end)
            beams = sorted(longer, reverse=True)[:n_beams]
        return beams

    return answer


def grown(after, beam, end):
    total, text = beam
    return [(total + x, [*text, i]) for i, x in enumerate(after(text))]


def waits(after, beam, end):
    return [beam] if beam[1][-1:] == [end] else grown(after, beam, end)


def lost(after, beam, end):
    return [] if beam[1][-1:] == [end] else grown(after, beam, end)


def never_ousted(after, n_beams, n_new, end):
    beams, done = [(0.0, [])], []
    for _ in range(n_new):
        longer = sorted(new for b in beams for new in grown(after, b, end))[::-1]
        longer = longer[: n_beams - len(done)]
        done += [beam for beam in longer if beam[1][-1] == end]
        beams = [beam for beam in longer if beam[1][-1] != end]
    return sorted(done + beams)[::-1]


def apart(after, n_beams, n_new, end):
    beams, done = [(0.0, [])], []
    for _ in range(n_new):
        longer = sorted(new for b in beams for new in grown(after, b, end))[::-1]
        done += [beam for beam in longer[:n_beams] if beam[1][-1] == end]
        beams = [beam for beam in longer if beam[1][-1] != end][:n_beams]
    return sorted(done + beams)[::-1][:n_beams]


RIGHT = [
    (checks.dart, right_dart),
    (checks.dart, lambda p, u: torch.searchsorted(ends(p), u, right=True)),
    (checks.dart, lambda p, u: bisect_right(list(accumulate(p.tolist())), u)),
    (checks.dart, lambda p, u: (ends(p) > u).int().argmax()),
    (checks.write, right_write),
    (checks.write, shown(lambda t, w, i: t[max(0, len(t) - w) :])),
    (checks.crossing, right_crossing),
    (checks.crossing, by_the_cut),
    (checks.crossing, moved(0)),
    (checks.ending, right_ending),
    (checks.ending, search(waits)),
]
WRONG = [
    (checks.dart, lambda p, u: p.argmax(), "the dart decides"),
    (checks.dart, lambda p, u: (p > u).nonzero()[0], "stops with IndexError"),
    (checks.dart, lambda p, u: (u >= p).sum(), "at the running sums"),
    (checks.dart, open_above, "a dart on a border"),
    (checks.dart, lambda p, u: (ends(p) - u).abs().argmin(), "nearest to u"),
    (checks.dart, lambda p, u: (ends(p) > u).nonzero()[0], r"the shape is \(1,\)"),
    (checks.dart, lambda p, u: random.Random(1).randrange(99), "dart: for p = tensor"),
    (checks.write, from_the_front, "show the last"),
    (checks.write, all_of_it, "`after` takes 1 to 3, not 4"),
    (checks.write, shown(lambda t, w, i: t[len(t) - w :]), "is negative"),
    (checks.write, shown(lambda t, w, i: t[i : i + w]), "end at the last token"),
    (checks.write, in_the_prompt, "changes its input"),
    (
        checks.write,
        lambda after, prompt, n, window: prompt + right_write(after, prompt, n, window),
        "prompt is returned too",
    ),
    (
        checks.write,
        lambda after, prompt, n, window: right_write(after, prompt, n - 1, window),
        "5 things, wanted 6",
    ),
    (checks.crossing, place, "place in the sorted list"),
    (checks.crossing, nearest, "it gives"),
    (checks.crossing, last_true, "exactly p is enough"),
    (checks.crossing, moved(-1), "the next one crosses"),
    (checks.crossing, moved(1), "first that has to go"),
    (checks.crossing, lambda c, p: (c.cumsum(-1) < p).sum(-1), "of the vocabulary"),
    (checks.crossing, lambda c, p: by_the_cut(c, p)[..., None], "the shape is"),
    (checks.crossing, lambda c, p: by_the_cut(c.flatten(), p), "the shape is"),
    (checks.ending, search(grown), "has ended"),
    (checks.ending, search(lost), "stays in the race"),
    (checks.ending, apart, "takes one of the n_beams places"),
    (checks.ending, never_ousted, "keeps its place for good"),
    (checks.ending, lambda f, k, n, e: right_ending(f, k, n, e)[0], "wanted"),
]
