"""Right and wrong answers to the exercises of chapter 06."""

import heapq
import random
from bisect import bisect_right
from collections import deque
from itertools import accumulate

import numpy as np
import torch

import companion
from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def right_dart(chances, u):
    for token, chance in enumerate(chances.tolist()):
        u -= chance
        if u < 0:
            return token


def ends(chances):
    return chances.cumsum(-1)


@wrong(checks.dart, "a dart on a border")
def open_above(chances, u):
    for token, end in enumerate(ends(chances).tolist()):
        if u <= end:
            return token


def between(chances, u):
    starts = ends(chances) - chances
    return ((starts <= u) & (u < ends(chances))).nonzero()[0, 0]


def kept(chances, u):
    chances = chances.clone()
    for i in range(1, len(chances)):
        chances[i] += chances[i - 1]
    return next(i for i, end in enumerate(chances) if u < end)


@wrong(checks.dart, "changes its input")
def in_place(chances, u):
    return (chances.cumsum_(-1) <= u).sum()


def right_write(after, prompt, n_new, window):
    tokens = prompt[-window:]
    new = []
    while len(new) < n_new:
        new.append(after(tokens))
        tokens = (tokens + new[-1:])[-window:]
    return new


@wrong(checks.write, "show the last")
def from_the_front(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens[:window]))
    return tokens[len(prompt) :]


@wrong(checks.write, "`after` takes 1 to 3 tokens, not 4")
def all_of_it(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens))
    return tokens[len(prompt) :]


@wrong(checks.write, "changes its input")
def in_the_prompt(after, prompt, n_new, window):
    for _ in range(n_new):
        prompt.append(after(prompt[-window:]))
    return prompt[-n_new:]


@wrong(checks.write, "longer than the window")
def always_one_less(after, prompt, n_new, window):
    """A token drops out in each step, as if the window were full at once."""
    seen = list(prompt)
    new = []
    for _ in range(n_new):
        new.append(after(seen[-window:]))
        seen = [*seen[1:], new[-1]]
    return new


def with_a_deque(after, prompt, n_new, window):
    seen = deque(prompt, maxlen=window)
    new = []
    for _ in range(n_new):
        new.append(after([*seen]))
        seen.append(new[-1])
    return tuple(new)


@wrong(checks.write, "`after` takes 1 to 4 tokens, not 7")
def popped_once(after, prompt, n_new, window):
    tokens = list(prompt)
    new = []
    for _ in range(n_new):
        if len(tokens) > window:
            tokens.pop(0)
        new.append(after(tokens))
        tokens.append(new[-1])
    return new


@wrong(checks.write, "where n_new is 0")
def from_the_back(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens[-window:]))
    return tokens[-n_new:]


@wrong(checks.write, "the text itself is cut")
def cut_too_much(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens = tokens[-window:]
        tokens.append(after(tokens))
    return tokens[len(prompt) :]


def shown(part):
    def writes(after, prompt, n_new, window):
        tokens = list(prompt)
        for i in range(n_new):
            tokens.append(after(part(tokens, window, i)))
        return tokens[len(prompt) :]

    return writes


def right_crossing(chances, p):
    rows = chances.reshape(-1, chances.shape[-1]).tolist()
    places = []
    for row in rows:
        total = 0
        order = sorted(range(len(row)), key=lambda i: -row[i])
        while total < p:
            total += row[last := order.pop(0)]
        places.append(last)
    return torch.tensor(places).reshape(chances.shape[:-1])


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


@wrong(checks.crossing, "exactly p is enough")
def last_true(chances, p):
    values, tokens = chances.sort(descending=True)
    return tokens.gather(-1, (values.cumsum(-1) <= p).sum(-1, keepdim=True))[..., 0]


@wrong(checks.crossing, "the nearest may be below p")
def nearest(chances, p):
    values, tokens = chances.sort(descending=True)
    place = (values.cumsum(-1) - p).abs().argmin(-1, keepdim=True)
    return tokens.gather(-1, place)[..., 0]


def by_top_p(chances, p):
    left = companion.top_p(chances.log(), p).isfinite()
    return chances.masked_fill(~left, 2).argmin(-1)


@wrong(checks.crossing, "the shape is")
def without_gather(chances, p):
    values, tokens = chances.sort(descending=True)
    return tokens[..., (values.cumsum(-1) < p).sum(-1)]


@wrong(checks.crossing, r"at \[1\] it gives")
def first_row(chances, p):
    values, tokens = chances.reshape(-1, chances.shape[-1])[0].sort(descending=True)
    token = tokens[(values.cumsum(-1) < p).sum()]
    return token.expand(chances.shape[:-1])


@wrong(checks.crossing, "begins with the rarest")
def rarest_first(chances, p):
    values, tokens = chances.sort()
    place = (values.cumsum(-1) < p).sum(-1, keepdim=True)
    return tokens.gather(-1, place)[..., 0]


@wrong(checks.crossing, "the dtype is torch.float32, wanted torch.int64")
def its_chance(chances, p):
    return chances.gather(-1, right_crossing(chances, p)[..., None])[..., 0]


@wrong(checks.crossing, "place in the sorted list")
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


def padded(after, beam, end):
    total, text = beam
    return [(total, [*text, end])] if text[-1:] == [end] else grown(after, beam, end)


def several(after, beam, end):
    if beam[1][-1:] == [end]:
        return [beam] * 6
    return grown(after, beam, end)


@wrong(checks.ending, "the others go on")
def stops_early(after, n_beams, n_new, end):
    beams = [(0.0, [])]
    for n in range(1, n_new + 1):
        beams = search(waits)(after, n_beams, n, end)
        if beams[0][1][-1] == end:
            break
    return beams


@wrong(checks.ending, "when one has ended")
def stops_at_any(after, n_beams, n_new, end):
    beams = [(0.0, [])]
    for n in range(1, n_new + 1):
        beams = search(waits)(after, n_beams, n, end)
        if any(end in text for _, text in beams):
            break
    return beams


@wrong(checks.ending, r"checks.sampling.Language\(.*n_new = 0.*wanted 1")
def first_apart(after, n_beams, n_new, end):
    firsts = [(x, [token]) for token, x in enumerate(after([]))]
    beams = sorted(firsts, reverse=True)[:n_beams]
    for _ in range(n_new - 1):
        longer = [new for beam in beams for new in waits(after, beam, end)]
        beams = sorted(longer, reverse=True)[:n_beams]
    return beams


@wrong(checks.ending, "not its mean")
def by_the_mean(after, n_beams, n_new, end):
    beams = [(0.0, [])]
    for _ in range(n_new):
        longer = [new for beam in beams for new in waits(after, beam, end)]
        longer.sort(key=lambda beam: beam[0] / len(beam[1]), reverse=True)
        beams = longer[:n_beams]
    return beams


@wrong(checks.ending, "reverse=True")
def least_likely(after, n_beams, n_new, end):
    """The least likely come first, since the sort is not reversed."""
    beams = [(0.0, [])]
    for _ in range(n_new):
        longer = [new for beam in beams for new in waits(after, beam, end)]
        beams = sorted(longer)[:n_beams]
    return beams


def by_index(after, n_beams, n_new, end):
    beams = [(0.0, [])]
    for _ in range(n_new):
        longer = []
        for total, text in beams:
            if end in text:
                longer.append((total, text))
            else:
                logs = torch.tensor(after(text), dtype=torch.float64)
                for token in range(len(logs)):
                    longer.append((total + logs[token].item(), text + [token]))
        longer.sort(key=lambda beam: beam[0])
        beams = longer[: -n_beams - 1 : -1]
    return tuple(beams)


@wrong(checks.ending, "takes one of the n_beams places")
def apart(after, n_beams, n_new, end):
    beams, done = [(0.0, [])], []
    for _ in range(n_new):
        longer = sorted(new for b in beams for new in grown(after, b, end))[::-1]
        done += [beam for beam in longer[:n_beams] if beam[1][-1] == end]
        beams = [beam for beam in longer if beam[1][-1] != end][:n_beams]
    return sorted(done + beams)[::-1][:n_beams]


@wrong(checks.write, "-window . 1:. begins one later")
def one_later(after, prompt, n_new, window):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(after(tokens[-window + 1 :]))
    return tokens[len(prompt) :]


@wrong(checks.write, "where the window is 1")
def all_but_one_kept(after, prompt, n_new, window):
    seen = list(prompt[-window:])
    new = []
    for _ in range(n_new):
        new.append(after(seen))
        seen = [*seen[1 - window :], new[-1]]
    return new


def one_by_one(after, prompt, n_new, window):
    """A generator; the last token alone may be shown as an array."""
    tokens = np.array(prompt)
    for _ in range(n_new):
        tokens = np.append(tokens, after(tokens[-window:]))
        yield tokens[-1]


def by_recursion(after, prompt, n_new, window):
    if n_new == 0:
        return []
    token = after(prompt[-window:])
    return [token, *by_recursion(after, [*prompt, token], n_new - 1, window)]


@wrong(checks.write, r"`after` takes a list of tokens, not \[\[2, 5\]\]")
def nested_tokens(after, prompt, n_new, window):
    return [after([prompt[-window:]]) for _ in range(n_new)]


@wrong(checks.write, "`after` takes a list of tokens, not 5")
def last_token_bare(after, prompt, n_new, window):
    return [after(prompt[-1]) for _ in range(n_new)]


def lazy_ending(after, n_beams, n_new, end):
    """A generator of texts as tuples, with their numbers as tensors."""
    beams = [(torch.tensor(0.0), ())]
    for _ in range(n_new):
        longer = []
        for total, text in beams:
            if text[-1:] == (end,):
                longer.append((total, text))
            else:
                logs = torch.tensor(after(text))
                longer += [(total + x, (*text, i)) for i, x in enumerate(logs)]
        beams = heapq.nlargest(n_beams, longer, key=lambda beam: beam[0])
    yield from beams


def raced(race):
    """A search in which `race(done, longer, n_beams)` says what stays."""

    def answer(after, n_beams, n_new, end):
        beams = [(0.0, [])]
        for _ in range(n_new):
            done = [beam for beam in beams if beam[1][-1:] == [end]]
            alive = [beam for beam in beams if beam[1][-1:] != [end]]
            longer = [new for beam in alive for new in grown(after, beam, end)]
            beams = race(done, sorted(longer, reverse=True), n_beams)
        return sorted(beams, reverse=True)[:n_beams]

    return answer


@wrong(checks.ending, "`after` takes a list of tokens, not 0")
def bare_letter(after, n_beams, n_new, end):
    return [(x, [i]) for i, x in enumerate(after(0))]


@wrong(checks.ending, "not the one with the highest mean")
def ranked_at_the_end(after, n_beams, n_new, end):
    beams = right_ending(after, n_beams, n_new, end)
    beams.sort(key=lambda beam: -beam[0] / (len(beam[1]) or 1))
    return beams


@wrong(checks.ending, "give each text's log-chance, not its mean$")
def means_of_texts(after, n_beams, n_new, end):
    beams = right_ending(after, n_beams, n_new, end)
    return [(total / max(len(text), 1), text) for total, text in beams]


RIGHT = [
    (checks.write, one_by_one),
    (checks.write, by_recursion),
    (checks.ending, lazy_ending),
    (checks.ending, raced(lambda done, new, n: sorted(done + new)[-n:])),
    (checks.dart, right_dart),
    (checks.dart, lambda p, u: torch.searchsorted(ends(p), u, right=True)),
    (checks.dart, lambda p, u: bisect_right(list(accumulate(p.tolist())), u)),
    (checks.dart, lambda p, u: (ends(p) > u).int().argmax()),
    (checks.dart, between),
    (checks.dart, lambda p, u: np.searchsorted(ends(p).numpy(), u, side="right")),
    (checks.dart, kept),
    (checks.write, right_write),
    (checks.write, shown(lambda t, w, i: t[max(0, len(t) - w) :])),
    (checks.write, with_a_deque),
    (checks.crossing, right_crossing),
    (checks.crossing, by_the_cut),
    (checks.crossing, moved(0)),
    (checks.crossing, by_top_p),
    (checks.ending, right_ending),
    (checks.ending, search(waits)),
    (checks.ending, by_index),
]
WRONG = [
    *wrong,
    (checks.ending, lambda *case: sorted(means_of_texts(*case))[::-1], "and the like"),
    (
        checks.ending,
        raced(lambda done, new, n: done + new[: max(0, n - len(done))]),
        "keeps its place only while",
    ),
    (checks.ending, raced(lambda done, new, n: done + new[:n]), "ended ones among"),
    (checks.ending, raced(lambda done, new, n: done + new), "not only after the last"),
    (
        checks.ending,
        raced(lambda done, new, n: sorted(done + new)[-n - 1 :]),
        r"ending: for after = .* it gives",
    ),
    (checks.dart, lambda p, u: (ends(p) > u).sum(), "not those behind it"),
    (checks.crossing, lambda c, p: c.argmax(-1), "the likeliest alone"),
    (checks.crossing, lambda c, p: place(c, p) + 1, "how many stay"),
    (checks.dart, lambda p, u: float(right_dart(p, u)), "a whole number is wanted"),
    (checks.dart, lambda p, u: p.argmax(), "the dart decides"),
    (checks.dart, lambda p, u: (p > u).nonzero()[0], "stops with IndexError"),
    (checks.dart, lambda p, u: p.tolist().index(max(p.tolist())), "the dart decides"),
    (checks.dart, lambda p, u: (u >= p).sum(), "the parts' ends, the sums"),
    (checks.dart, lambda p, u: sum(u >= x for x in p.tolist()), "the parts' ends"),
    (checks.dart, lambda p, u: (ends(p) - u).abs().argmin(), "nearest end"),
    (checks.dart, lambda p, u: (ends(p) > u).nonzero()[0], r"the shape is \(1,\)"),
    (checks.dart, lambda p, u: random.Random(1).randrange(99), "dart: for p = tensor"),
    (checks.dart, lambda p, u: (ends(p) <= u).sum() + 1, "one too many"),
    (checks.dart, lambda p, u: (ends(p) - p > u).int().argmax(), "ends, not starts"),
    (checks.dart, lambda p, u: right_dart(p.sort(descending=True)[0], u), "don't sort"),
    (checks.dart, lambda p, u: int(u * len(p)), "as wide as its chance"),
    (checks.dart, lambda p, u: right_dart(p.softmax(-1), u), "no softmax"),
    (checks.dart, lambda p, u: p[right_dart(p, u)], "not its chance"),
    (checks.dart, lambda p, u: ends(p) > u, r"the shape is \(3,\)"),
    (checks.write, shown(lambda t, w, i: t[len(t) - w :]), "is negative"),
    (checks.write, shown(lambda t, w, i: t[i : i + w]), "show the last `window`"),
    (checks.write, shown(lambda t, w, i: t[: len(t) - i][-w:]), "belong to the text"),
    (checks.write, shown(lambda t, w, i: t[-w:][1:] or t), "one token too few"),
    (
        checks.write,
        lambda after, prompt, n, window: prompt + right_write(after, prompt, n, window),
        "return only the new tokens",
    ),
    (
        checks.write,
        lambda after, prompt, n, window: right_write(after, prompt, n - 1, window),
        "5 things, wanted 6",
    ),
    (checks.crossing, moved(-1), "still below p"),
    (checks.crossing, moved(1), "first that has to go"),
    (checks.crossing, lambda c, p: (c.cumsum(-1) < p).sum(-1), "sort: the likeliest"),
    (checks.crossing, lambda c, p: by_the_cut(c.softmax(-1), p), "no softmax"),
    (checks.crossing, lambda c, p: by_the_cut(c, 1 - p), "or 1 - p stands for p"),
    (checks.crossing, lambda c, p: by_the_cut(c, p)[..., None], "the shape is"),
    (checks.crossing, lambda c, p: by_the_cut(c.flatten(), p), "the shape is"),
    (checks.ending, search(grown), "has ended"),
    (checks.ending, search(lost), "stays in the race"),
    (checks.ending, search(padded), "append nothing"),
    (checks.ending, search(several), "it gives"),
    (checks.ending, lambda f, k, n, e: right_ending(f, k, n, e)[0], "wanted"),
]
