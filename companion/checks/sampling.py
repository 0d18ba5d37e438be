"""Checks of chapter 06."""

from dataclasses import dataclass

from .compare import compare, draw


def dart(answer) -> None:
    """`answer(chances, u)`: the character in whose part of the line u falls."""

    def part(hit):
        return lambda p, u: int(hit(p.cumsum(-1), u).sum())

    some = draw(1).new_tensor
    compare(
        answer,
        part(lambda ends, u: ends <= u),
        [
            (some([0.5, 0.25, 0.25]), 0.6),
            (some([0.125, 0.25, 0.5, 0.0625, 0.0625]), 0.375),
            (some([0.0, 0.75, 0.25]), 0.0),
            (draw(7, seed=2).softmax(-1), 0.4),
        ],
        {
            "this is the likeliest every time: the dart decides": (
                lambda p, u: int(p.argmax())
            ),
            "the parts end at the running sums of the chances: hold u against those": (
                lambda p, u: int((u >= p).sum())
            ),
            "a dart on a border belongs to the part that begins there; else one at 0"
            " could take a character without a chance": part(lambda ends, u: ends < u),
            "this is the part whose end is nearest to u: the first that ends beyond u"
            " is wanted": lambda p, u: int((p.cumsum(-1) - u).abs().argmin()),
        },
        "dart: each character's part is as wide as its chance",
    )


@dataclass
class Counting:
    """Stands for a model: from at most `window` of n tokens it makes the next."""

    n: int
    window: int

    def __call__(self, tokens: list[int]) -> int:
        if not 0 < len(tokens) <= self.window:
            raise ValueError(f"`after` takes 1 to {self.window}, not {len(tokens)}")
        return sum((i + 1) * (x + 1) for i, x in enumerate(tokens)) % self.n


def write(answer) -> None:
    """`answer(after, prompt, n_new, window)`: new tokens, from the last `window`."""

    def loop(seen):
        def writes(after, prompt, n_new, window):
            new = []
            for _ in range(n_new):
                new.append(after(seen([*prompt, *new], window, len(prompt))))
            return new

        return writes

    right = loop(lambda tokens, window, n: tokens[-window:])
    compare(
        answer,
        right,
        [
            (Counting(7, 3), [2, 5], 6, 3),
            (Counting(11, 5), [1, 4, 9, 3, 8, 2], 9, 5),
            (Counting(13, 2), [6], 4, 2),
        ],
        {
            "the model is shown the first `window` tokens, which never change: show the"
            " last": loop(lambda tokens, window, n: tokens[:window]),
            "while the text is shorter than the window, length - window is negative:"
            " Python counts that from the end": (
                loop(lambda tokens, window, n: tokens[len(tokens) - window :])
            ),
            "the window moves, but doesn't end at the last token": (
                loop(lambda tokens, window, n: tokens[len(tokens) - n :][:window])
            ),
            "the prompt is returned too: only the new tokens are asked for": (
                lambda after, prompt, *sizes: prompt + right(after, prompt, *sizes)
            ),
        },
        "write: the window moves along with the text",
    )


def crossing(answer) -> None:
    """`answer(chances, p)`: (... v) -> (...), the last character that top-p lets in."""

    def token(place=lambda sums, p: (sums < p).sum(-1)):
        def answer(c, p):
            values, tokens = c.sort(dim=-1, descending=True)
            places = place(values.cumsum(-1), p).clamp(0, c.shape[-1] - 1)
            return tokens.gather(-1, places[..., None])[..., 0]

        return answer

    compare(
        answer,
        token(),
        [
            (draw(5).new_tensor([0.125, 0.5, 0.0625, 0.25, 0.0625]), 0.75),
            ((2 * draw(3, 6, seed=3)).softmax(-1), 0.8),
            (draw(2, 4, 8, seed=2).softmax(-1), 0.55),
        ],
        {
            "this is a place in the sorted list: `sort` gives the characters too": (
                lambda c, p: (c.sort(descending=True)[0].cumsum(-1) < p).sum(-1)
            ),
            "exactly p is enough: the sum has to reach p, not to pass it": (
                token(lambda sums, p: (sums <= p).sum(-1))
            ),
            "this one leaves the sum below p, but where it is the first: the next one"
            " crosses": token(lambda sums, p: (sums < p).sum(-1) - 1),
            "this is the first that has to go: the one before it crosses": (
                token(lambda sums, p: (sums < p).sum(-1) + 1)
            ),
            "the sum runs in the order of the vocabulary: the likeliest come first": (
                lambda c, p: (c.cumsum(-1) < p).sum(-1)
            ),
        },
        "crossing: the one that lifts the sum to p stays",
    )


@dataclass
class Language:
    """Stands for a model: log-chances of n letters after a text that hasn't ended."""

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

    def loop(keep=best, ended=lambda t, s: [(t, s)]):
        def search(after, n_beams, n_new, end):
            beams = [(0.0, [])]
            for _ in range(n_new):
                longer = []
                for t, s in beams:
                    new = [] if end in s else enumerate(after(s))
                    longer += ended(t, s) if end in s else []
                    longer += [(t + x, [*s, i]) for i, x in new]
                beams = keep(longer, n_beams)
            return beams

        return search

    def apart(stays):
        """Ended texts wait outside; if one `stays`, its place is taken for good."""

        def search(after, n_beams, n_new, end):
            done = []

            def keep(longer, n):
                longer = best(longer, max(0, n - len(done))) if stays else longer
                done.extend(beam for beam in best(longer, n) if end in beam[1])
                return best([beam for beam in longer if end not in beam[1]], n)

            return best(loop(keep)(after, n_beams, n_new, end) + done, n_beams)

        return search

    compare(
        answer,
        loop(),
        [
            (Language(4, 1, 10), 3, 5, 1),
            (Language(3, 0, 2), 5, 4, 0),
            (Language(6, 5, 3), 2, 6, 5),
        ],
        {
            "a text that has ended is lost: it stays in the race as it is": (
                loop(ended=lambda t, s: [])
            ),
            "an ended text takes one of the n_beams places: here it leaves its place to"
            " another": apart(stays=False),
            "an ended text keeps its place for good: likelier ones must oust it": (
                apart(stays=True)
            ),
        },
        "ending: a text that has ended waits for the others",
    )
