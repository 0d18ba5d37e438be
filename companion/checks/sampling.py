"""Checks of chapter 06."""

from dataclasses import dataclass

from .compare import compare, draw


def dart(answer) -> None:
    """`answer(chances, u)`: the character in whose part of the line u falls."""

    def part(p, u, more=0):
        return int((p.cumsum(-1) <= u).sum()) + more

    def by(hit):
        return lambda p, u: int(hit(p.cumsum(-1), u))

    some = draw(1).new_tensor
    cases = [
        (some([0.5, 0.25, 0.25]), 0.7),
        (some([0.125, 0.25, 0.5, 0.0625, 0.0625]), 0.375),
        (some([0.0, 0.75, 0.1875, 0.0625]), 0.0),
        (draw(7, seed=2).softmax(-1), 0.4),
        (some([0.0625, 0.6875, 0.125, 0.0625, 0.03125, 0.03125]), 0.15),
    ]
    mistakes = {
        "the dart decides: this is the likeliest always": lambda p, u: int(p.argmax()),
        "hold u against the parts' ends, the sums": lambda p, u: int((u >= p).sum()),
        "a dart on a border belongs to the part that begins there; else one at 0"
        " could take a character without a chance": by(lambda e, u: (e < u).sum()),
        "the nearest end may lie before u": by(lambda e, u: (e - u).abs().argmin()),
        "one too few: count all that end at or before u": lambda p, u: part(p, u, -1),
        "one too many: hold u against ends, not starts": lambda p, u: part(p, u, 1),
        "don't sort: the parts lie as given": lambda p, u: part(p.sort()[0].flip(0), u),
        "the parts differ: each is as wide as its chance": lambda p, u: int(u * len(p)),
        "chances go in: no softmax": lambda p, u: part(p.softmax(-1), u),
        "a number is wanted, not its chance": lambda p, u: p[part(p, u)].item(),
    }
    praise = "dart: each character's part is as wide as its chance"
    compare(answer, part, cases, mistakes, praise)


@dataclass
class Counting:
    """Stands for a model: from at most `window` of n tokens it makes the next."""

    __qualname__ = "checks.sampling.Counting"  # as a reader can write it
    n: int
    window: int

    def __call__(self, tokens: list[int]) -> int:
        if not 0 < len(tokens) <= self.window:
            raise ValueError(f"`after` takes 1 to {self.window}, not {len(tokens)}")
        return sum((i + 1) * (x + 1) for i, x in enumerate(tokens)) % self.n


def write(answer) -> None:
    """`answer(after, prompt, n_new, window)`: new tokens, from the last `window`."""

    def loop(seen=lambda s, w, n: s[-w:], kept=lambda old, new, n, w: new):
        def writes(after, prompt, n_new, window):
            new = []
            for _ in range(n_new):
                new.append(after(seen([*prompt, *new], window, len(prompt))))
            return kept(prompt, new, n_new, window)

        return writes

    cases = [
        (Counting(7, 3), [2, 5], 6, 3),
        (Counting(11, 5), [1, 4, 9, 3, 8, 2], 9, 5),
        (Counting(13, 2), [6], 4, 2),
        (Counting(17, 4), [3, 1, 4, 12, 5, 9, 2, 6], 5, 4),
        (Counting(5, 6), [1, 4, 2], 0, 6),
    ]
    mistakes = {
        "the first tokens never change: show the last": loop(lambda s, w, n: s[:w]),
        "new tokens belong to the text too": loop(lambda s, w, n: s[:n][-w:]),
        "while the text is shorter than the window, length - window is negative:"
        " Python counts that from the end": loop(lambda s, w, n: s[len(s) - w :]),
        "show the last `window` tokens": loop(lambda s, w, n: s[len(s) - n :][:w]),
        "the model is shown one token too few": loop(lambda s, w, n: s[-w:][1:] or s),
        "show window tokens, not window - 1": loop(lambda s, w, n: s[-(w - 1) :]),
        "return only the new tokens": loop(kept=lambda old, new, n, w: old + new),
        "where n_new is 0, [-n_new:] is the whole text": (
            loop(kept=lambda old, new, n, w: (old + new)[-n:])
        ),
        "the text itself is cut, and new tokens with it: cut what `after` sees": (
            loop(kept=lambda old, new, n, w: (old + new)[-w - 1 :][len(old) :])
        ),
    }
    praise = "write: the window moves along with the text"
    compare(answer, loop(), cases, mistakes, praise)


def crossing(answer) -> None:
    """`answer(chances, p)`: (... v) -> (...), the last character that top-p lets in."""

    def at(place=lambda sums, p: (sums < p).sum(-1), falling=True):
        def answer(c, p):
            values, tokens = c.sort(dim=-1, descending=falling)
            places = place(values.cumsum(-1), p).clamp(0, c.shape[-1] - 1)
            return tokens.gather(-1, places[..., None])[..., 0]

        return answer

    cases = [
        (draw(5).new_tensor([0.125, 0.5, 0.0625, 0.25, 0.0625]), 0.75),
        ((2 * draw(3, 6, seed=3)).softmax(-1), 0.8),
        (draw(2, 4, 8, seed=2).softmax(-1), 0.55),
        (draw(4).new_tensor([[0.0625, 0.5, 0.1875, 0.25]]), 0.97),
    ]
    mistakes = {
        "this is a place in the sorted list: `sort` gives the characters too": (
            lambda c, p: (c.sort(descending=True)[0].cumsum(-1) < p).sum(-1)
        ),
        "a sum of exactly p is enough": at(lambda s, p: (s <= p).sum(-1)),
        "here the sum is still below p": at(lambda s, p: (s < p).sum(-1) - 1),
        "this is the first that has to go": at(lambda s, p: (s < p).sum(-1) + 1),
        "the nearest sum may be below p": at(lambda s, p: (s - p).abs().argmin(-1)),
        "sort: the likeliest come first": lambda c, p: (c.cumsum(-1) < p).sum(-1),
        "the sum begins with the rarest, or 1 - p stands for p": at(falling=False),
        "chances go in: no softmax": lambda c, p: at()(c.softmax(-1), p),
    }
    praise = "crossing: the one that lifts the sum to p stays"
    compare(answer, at(), cases, mistakes, praise)


@dataclass
class Language:
    """Stands for a model: log-chances of n letters after a text that hasn't ended."""

    __qualname__ = "checks.sampling.Language"
    n: int
    end: int
    seed: int

    def __call__(self, text: list[int]) -> list[float]:
        if self.end in text:
            raise ValueError(f"{text} has ended: nothing comes after {self.end}")
        seed = self.seed + sum((x + 1) * 10**i for i, x in enumerate(text))
        return (1.5 * draw(self.n, seed=seed)).log_softmax(-1).tolist()


def ending(answer) -> None:
    """`answer(after, n_beams, n_new, end)`: beam search over texts that may end."""

    def best(beams, n):
        return sorted(beams, reverse=True)[:n]

    def loop(keep=best, ended=lambda s: [s], stops=0, apart=False, stays=False):
        """If `apart`, ended texts wait outside, or have a place for good (`stays`)."""

        def search(after, n, n_new, end):
            beams, done = [(0.0, [])], []
            for _ in range(n_new):
                new = [(t, x) for t, s in beams if end in s for x in ended(s)]
                for t, s in beams:
                    logs = [] if end in s else enumerate(after(s))
                    new += [(t + x, [*s, i]) for i, x in logs]
                beams = keep(new, n - len(done) * stays)
                if apart:
                    done += [beam for beam in beams if end in beam[1]]
                    alive = beams if stays else new
                    beams = best([beam for beam in alive if end not in beam[1]], n)
                if any(end in s for _, s in beams[:stops]):
                    break
            return best(beams + done, n) if apart else beams

        return search

    cases = [
        (Language(4, 1, 10), 3, 5, 1),
        (Language(3, 0, 2), 5, 4, 0),
        (Language(6, 5, 3), 2, 6, 5),
        (Language(5, 2, 4), 4, 0, 2),
    ]
    mistakes = {
        "a text that has ended is lost: it stays in the race": loop(ended=lambda s: []),
        "an ended text takes one of the n_beams places: here it leaves its place to"
        " another": loop(apart=True),
        "an ended text keeps its place for good: likelier ones must oust it": (
            loop(apart=True, stays=True)
        ),
        "append nothing to an ended text": loop(ended=lambda s: [s + s[-1:]]),
        "when the best has ended, the others go on": loop(stops=1),
        "when one has ended, the others go on": loop(stops=9),
        "the text's log-chance counts, not its mean": (
            loop(lambda b, n: sorted(b, key=lambda x: -x[0] / len(x[1]))[:n])
        ),
        "a text keeps its `end`": lambda *case: [
            (t, [x for x in s if x != case[-1]]) for t, s in loop()(*case)
        ],
        "texts that haven't ended count too": lambda *case: [
            beam for beam in loop()(*case) if case[-1] in beam[1]
        ],
    }
    praise = "ending: a text that has ended waits for the others"
    compare(answer, loop(), cases, mistakes, praise)
