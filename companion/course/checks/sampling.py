"""Checks of chapter 06."""

from dataclasses import dataclass

from .compare import Mistake, compare, draw
from .words import describe


def token_list(tokens, taker: str) -> list[int]:
    """The tokens that `taker` was handed, or a Mistake where they are no such list."""
    try:
        return [int(token) for token in tokens]
    except (TypeError, ValueError):
        said = f"`{taker}` takes a list of tokens, not {describe(tokens)}"
        raise Mistake(said) from None


def dart(answer) -> None:
    """`answer(chances, u)`: the character in whose part of the line u falls."""

    def right(p, u, more=0):
        return (p.cumsum(-1) <= u).sum() + more

    some = draw(1).new_tensor
    cases = [(some([0.5, 0.25, 0.25]), 0.7), (some([0.0, 0.75, 0.1875, 0.0625]), 0.0)]
    cases += [(some([0.125, 0.25, 0.5, 0.0625, 0.0625]), 0.375)]
    cases += [(some([0.0625, 0.6875, 0.125, 0.0625, 0.03125, 0.03125]), 0.15)]
    compare(answer, right, [*cases, (draw(7, seed=2).softmax(-1), 0.4)], {
        "the dart decides: this is the likeliest always": lambda p, u: p.argmax(),
        "hold u against the parts' ends, the sums": lambda p, u: (u >= p).sum(),
        "a dart on a border belongs to the part that begins there; else one at 0"
        " could take a character without a chance":
            lambda p, u: (p.cumsum(-1) < u).sum(),
        "the nearest end may be below": lambda p, u: (p.cumsum(-1) - u).abs().argmin(),
        "one too many: hold u against ends, not starts": {"more": 1},
        "count the ends at or before u, not those behind it":
            lambda p, u: (p.cumsum(-1) > u).sum(),
        "don't sort: the parts lie as given":
            lambda p, u: right(p.sort()[0].flip(0), u),
        "the parts differ: each is as wide as its chance": lambda p, u: int(u * len(p)),
        "chances go in: no softmax": lambda p, u: right(p.softmax(-1), u),
        "a number is wanted, not its chance": lambda p, u: p[right(p, u)].item(),
        "a whole number is wanted": {"more": 0.0},
    }, "dart: each character's part is as wide as its chance")  # fmt: skip


@dataclass
class Counting:
    """Stands for a model: from at most `window` of n tokens it makes the next."""

    __qualname__ = "checks.sampling.Counting"  # as a reader can write it
    n: int
    window: int

    def __call__(self, tokens: list[int]) -> int:
        tokens = token_list(tokens, "after")
        if not 0 < len(tokens) <= self.window:
            raise Mistake(f"`after` takes 1 to {self.window} tokens, not {len(tokens)}")
        return sum((i + 1) * (x + 1) for i, x in enumerate(tokens)) % self.n


def write(answer) -> None:
    """`answer(after, prompt, n_new, window)`: new tokens, from the last `window`."""

    def right(
        after, prompt, n_new, window, seen=lambda s, w, n: s[-w:],
        kept=lambda old, new, w: new,
    ):  # fmt: skip
        new = []
        for _ in range(n_new):
            new.append(after(seen([*prompt, *new], window, len(prompt))))
        return kept(prompt, new, window)

    def one_later(after, prompt, n_new, window):
        text = list(prompt)
        for _ in range(n_new):
            text.append(after(text[-window + 1 :]))
        return text[len(prompt) :]

    def all_but_one_kept(after, prompt, n_new, window):
        """Right for every window but 1, where [-0:] is all."""
        seen, new = prompt[-window:], []
        for _ in range(n_new):
            new.append(after(seen))
            seen = seen[-(window - 1) :] + new[-1:]
        return new

    cases = [(Counting(7, 3), [2, 5], 6, 3), (Counting(5, 6), [1, 4, 2], 0, 6)]
    cases += [(Counting(13, 2), [6], 4, 2)]
    cases += [(Counting(11, 5), [1, 4, 9, 3, 8, 2], 9, 5)]
    cases += [(Counting(17, 4), [3, 1, 4, 12, 5, 9, 2, 6], 5, 4)]
    cases += [(Counting(9, 1), [4, 2], 3, 1)]
    compare(answer, right, cases, {
        "the first tokens never change: show the last": {"seen": lambda s, w, n: s[:w]},
        "new tokens belong to the text too": {"seen": lambda s, w, n: s[:n][-w:]},
        "while the text is shorter than the window, length - window is negative:"
        " Python counts that from the end": {"seen": lambda s, w, n: s[len(s) - w :]},
        "show the last `window` tokens": {"seen": lambda s, w, n: s[len(s) - n :][:w]},
        "a token drops out only where the text is longer than the window":
            {"seen": lambda s, w, n: s[len(s) - n :][-w:]},
        "the model sees one token too few": {"seen": lambda s, w, n: s[-w:][1:] or s},
        "the model sees one token too few: [-window + 1:] begins one later": one_later,
        "where the window is 1, -(window - 1) is 0, and [0:] is the whole text":
            all_but_one_kept,
        "return only the new tokens": {"kept": lambda old, new, w: old + new},
        "where n_new is 0, [-n_new:] is the whole text":
            {"kept": lambda old, new, w: (old + new)[-len(new) :]},
        "the text itself is cut, and new tokens with it: cut what `after` sees":
            {"kept": lambda old, new, w: (old + new)[-w - 1 :][len(old) :]},
    }, "write: the window moves along with the text")  # fmt: skip


def crossing(answer) -> None:
    """`answer(chances, p)`: (... v) -> (...), the last character that top-p lets in."""

    def place(sums, p):
        return (sums < p).sum(-1)

    def right(c, p, place=place, falling=True):
        values, tokens = c.sort(dim=-1, descending=falling)
        places = place(values.cumsum(-1), p).clamp(0, c.shape[-1] - 1)
        return tokens.gather(-1, places[..., None])[..., 0]

    some = draw(1).new_tensor
    cases = [(some([0.125, 0.5, 0.0625, 0.25, 0.0625]), 0.75)]
    cases += [((2 * draw(3, 6, seed=3)).softmax(-1), 0.8)]
    cases += [(draw(2, 4, 8, seed=2).softmax(-1), 0.55)]
    cases += [(some([[0.0625, 0.5, 0.1875, 0.25]]), 0.97)]
    compare(answer, right, cases, {
        "this is a place in the sorted list: `sort` gives the characters too":
            lambda c, p: place(c.sort(descending=True)[0].cumsum(-1), p),
        "this is how many stay: the last of them is wanted":
            lambda c, p: place(c.sort(descending=True)[0].cumsum(-1), p) + 1,
        "a sum of exactly p is enough": {"place": lambda s, p: (s <= p).sum(-1)},
        "here the sum is still below p": {"place": lambda s, p: place(s, p) - 1},
        "this is the first that has to go": {"place": lambda s, p: place(s, p) + 1},
        "the nearest may be below p": {"place": lambda s, p: (s - p).abs().argmin(-1)},
        "this is the likeliest alone": lambda c, p: c.argmax(-1),
        "sort: the likeliest come first": lambda c, p: place(c.cumsum(-1), p),
        "the sum begins with the rarest, or 1 - p stands for p": {"falling": False},
        "chances go in: no softmax": lambda c, p: right(c.softmax(-1), p),
    }, "crossing: the one that lifts the sum to p stays")  # fmt: skip


@dataclass
class Language:
    """Stands for a model: log-chances of n letters after a text that hasn't ended."""

    __qualname__ = "checks.sampling.Language"
    n: int
    end: int
    seed: int

    def __call__(self, text: list[int]) -> list[float]:
        text = token_list(text, "after")
        if self.end in text:
            raise Mistake(f"{text} has ended: nothing comes after {self.end}")
        seed = self.seed + sum((x + 1) * 10**i for i, x in enumerate(text))
        return (1.5 * draw(self.n, seed=seed)).log_softmax(-1).tolist()


def ending(answer) -> None:
    """`answer(after, n_beams, n_new, end)`: beam search over texts that may end."""

    def best(beams, n):
        return sorted(beams, reverse=True)[:n]

    def right(after, n, n_new, end, keep=best, ended=lambda s: [s], stops=0, apart=0):
        """If `apart`, ended texts wait outside the race."""
        beams, done = [(0.0, [])], []
        for _ in range(n_new):
            new = [(t, x) for t, s in beams if end in s for x in ended(s)]
            for t, s in beams:
                logs = [] if end in s else enumerate(after(s))
                new += [(t + x, [*s, i]) for i, x in logs]
            beams = keep(new, n)
            if apart:
                done += [beam for beam in beams if end in beam[1]]
                beams = best([beam for beam in new if end not in beam[1]], n)
            if any(end in s for _, s in beams[:stops]):
                break
        return best(beams + done, n) if apart else beams

    def longer(after, beams, end):
        """All texts that haven't ended, with each letter."""
        return [
            (total + log, [*text, letter])
            for total, text in beams
            if end not in text
            for letter, log in enumerate(after(text))
        ]

    def places_for_good(after, n, n_new, end):
        beams = [(0.0, [])]
        for _ in range(n_new):
            done = [beam for beam in beams if end in beam[1]]
            others = best(longer(after, beams, end), n)
            beams = done + others[: max(0, n - len(done))]
        return best(beams, n)

    def more_than_n(after, n, n_new, end):
        beams = [(0.0, [])]
        for _ in range(n_new):
            done = [beam for beam in beams if end in beam[1]]
            beams = done + best(longer(after, beams, end), n)
        return best(beams, n)

    def cut_at_the_end(after, n, n_new, end):
        beams = [(0.0, [])]
        for _ in range(n_new):
            done = [beam for beam in beams if end in beam[1]]
            beams = done + longer(after, beams, end)
        return best(beams, n)

    sizes = (4, 1, 10, 3, 5), (3, 0, 2, 5, 4), (6, 5, 3, 2, 6), (5, 2, 4, 4, 0)
    sizes += ((4, 1, 29, 2, 5),)
    cases = [(Language(n, end, i), beams, new, end) for n, end, i, beams, new in sizes]
    compare(answer, right, cases, {
        "a text that has ended is lost: it stays in the race": {"ended": lambda s: []},
        "an ended text takes one of the n_beams places": {"apart": 1},
        "at most n_beams texts stay after each step, ended ones among them":
            more_than_n,
        "an ended text keeps its place only while n_beams others aren't likelier":
            places_for_good,
        "cut to n_beams texts after each step, not only after the last": cut_at_the_end,
        "append nothing to an ended text": {"ended": lambda s: [s + s[-1:]]},
        "when the best has ended, the others go on": {"stops": 1},
        "when one has ended, the others go on": {"stops": 9},
        "the likeliest come first: sort with reverse=True":
            {"keep": lambda b, n: sorted(b)[:n]},
        "the text's log-chance counts, not its mean":
            {"keep": lambda b, n: sorted(b, key=lambda x: -x[0] / len(x[1]))[:n]},
    }, "ending: a text that has ended waits for the others")  # fmt: skip
