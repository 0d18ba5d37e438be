"""Checks of chapter 06: right ways, likely mistakes, cases, praise (see `Exercise`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .compare import Exercise, check, draw, ways_of
from .mistakes import Mistake
from .words import describe


def token_list(tokens: Iterable, taker: str) -> list[int]:
    """The tokens that `taker` was handed, or a Mistake where they are no such list."""
    try:
        return [int(token) for token in tokens]
    except (TypeError, ValueError):
        said = f"`{taker}` takes a list of tokens, not {describe(tokens)}"
        raise Mistake(said) from None


@check
def dart() -> Exercise:
    """`answer(chances, u)`: the character in whose part of the line u falls."""

    def right(chances: Tensor, u: float) -> Tensor:
        ends = chances.cumsum(-1)
        return (ends <= u).sum()  # so many parts lie wholly before u

    mistakes = {
        "the dart decides: this is the likeliest always": (
            lambda chances, u: chances.argmax()
        ),
        "hold u against the parts' ends, the sums": (
            lambda chances, u: (chances <= u).sum()
        ),
        "a dart on a border belongs to the part that begins there; else one at 0"
        " could take a character without a chance": (
            lambda chances, u: (chances.cumsum(-1) < u).sum()
        ),
        "the nearest end may be below": (
            lambda chances, u: (chances.cumsum(-1) - u).abs().argmin()
        ),
        "one too many: hold u against ends, not starts": (
            lambda chances, u: right(chances, u) + 1
        ),
        "count the ends at or before u, not those behind it": (
            lambda chances, u: (chances.cumsum(-1) > u).sum()
        ),
        "don't sort: the parts lie as given": (
            lambda chances, u: right(chances.sort(descending=True).values, u)
        ),
        "the parts differ: each is as wide as its chance": (
            lambda chances, u: int(u * len(chances))
        ),
        "chances go in: no softmax": lambda chances, u: right(chances.softmax(-1), u),
        "a number is wanted, not its chance": (
            lambda chances, u: chances[right(chances, u)].item()
        ),
        "a whole number is wanted": lambda chances, u: right(chances, u).float(),
    }

    cases = [
        (torch.tensor([0.5, 0.25, 0.25]), 0.7),
        (torch.tensor([0.0, 0.75, 0.1875, 0.0625]), 0.0),
        (torch.tensor([0.125, 0.25, 0.5, 0.0625, 0.0625]), 0.375),
        (torch.tensor([0.0625, 0.6875, 0.125, 0.0625, 0.03125, 0.03125]), 0.15),
        (draw(7, seed=2).softmax(-1), 0.4),
    ]
    praise = "each character's part is as wide as its chance"
    return Exercise(right, cases, mistakes, praise)


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
        return sum((i + 1) * (token + 1) for i, token in enumerate(tokens)) % self.n


@check
def write() -> Exercise:
    """`answer(after, prompt, n_new, window)`: new tokens, from the last `window`."""

    def right(
        after: Callable,
        prompt: list[int],
        n_new: int,
        window: int,
        shown: Callable = lambda tokens, window, n_prompt: tokens[-window:],
    ) -> list[int]:
        tokens = list(prompt)
        for _ in range(n_new):
            tokens.append(after(shown(tokens, window, len(prompt))))
        return tokens[len(prompt) :]

    way = ways_of(right)

    def last_but_one_shown(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        """Right for every window but 1, where [-0:] is all."""
        seen = prompt[-window:]
        new = []
        for _ in range(n_new):
            new.append(after(seen))
            seen = [*seen[-(window - 1) :], new[-1]]
        return new

    def counted_from_the_end(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        tokens = prompt + right(after, prompt, n_new, window)
        return tokens[-n_new:]

    def text_cut(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        tokens = list(prompt)
        for _ in range(n_new):
            tokens = tokens[-window:]
            tokens.append(after(tokens))
        return tokens[len(prompt) :]

    mistakes = {
        # Other tokens are shown.
        "the first tokens never change: show the last": way(
            shown=lambda tokens, window, n_prompt: tokens[:window]
        ),
        "new tokens belong to the text too": way(
            shown=lambda tokens, window, n_prompt: tokens[:n_prompt][-window:]
        ),
        "while the text is shorter than the window, length - window is negative:"
        " Python counts that from the end": way(
            shown=lambda tokens, window, n_prompt: tokens[len(tokens) - window :]
        ),
        "show the last `window` tokens": way(
            shown=lambda tokens, window, n_prompt: tokens[-n_prompt:][:window]
        ),
        "a token drops out only where the text is longer than the window": way(
            shown=lambda tokens, window, n_prompt: tokens[-n_prompt:][-window:]
        ),
        "the model sees one token too few": way(
            shown=lambda tokens, window, n_prompt: tokens[-window:][1:] or tokens
        ),
        "the model sees one token too few: [-window + 1:] begins one later": way(
            shown=lambda tokens, window, n_prompt: tokens[-window + 1 :]
        ),
        "where the window is 1, -(window - 1) is 0, and [0:] is the whole text": (
            last_but_one_shown
        ),
        # Other tokens are returned.
        "return only the new tokens": (
            lambda after, prompt, *sizes: prompt + right(after, prompt, *sizes)
        ),
        "where n_new is 0, [-n_new:] is the whole text": counted_from_the_end,
        "the text itself is cut, and new tokens with it: cut what `after` sees": (
            text_cut
        ),
    }

    cases = [
        (Counting(7, 3), [2, 5], 6, 3),
        (Counting(5, 6), [1, 4, 2], 0, 6),
        (Counting(13, 2), [6], 4, 2),
        (Counting(11, 5), [1, 4, 9, 3, 8, 2], 9, 5),
        (Counting(17, 4), [3, 1, 4, 12, 5, 9, 2, 6], 5, 4),
        (Counting(9, 1), [4, 2], 3, 1),
    ]
    praise = "the window moves along with the text"
    return Exercise(right, cases, mistakes, praise)


@check
def crossing() -> Exercise:
    """`answer(chances, p)`: (... v) -> (...), the last character that top-p lets in."""

    def below(sums: Tensor, p: float) -> Tensor:
        return (sums < p).sum(-1)

    def right(
        chances: Tensor, p: float, place: Callable = below, descending: bool = True
    ) -> Tensor:
        values, tokens = chances.sort(descending=descending)
        places = place(values.cumsum(-1), p).clamp(0, chances.shape[-1] - 1)
        return tokens.gather(-1, places[..., None])[..., 0]

    way = ways_of(right)

    def place_alone(chances: Tensor, p: float) -> Tensor:
        return below(chances.sort(descending=True).values.cumsum(-1), p)

    mistakes = {
        "this is a place in the sorted list: `sort` gives the characters too": (
            place_alone
        ),
        "this is how many stay: the last of them is wanted": (
            lambda chances, p: place_alone(chances, p) + 1
        ),
        "a sum of exactly p is enough": way(place=lambda sums, p: (sums <= p).sum(-1)),
        "here the sum is still below p": way(place=lambda sums, p: below(sums, p) - 1),
        "this is the first that has to go": way(
            place=lambda sums, p: below(sums, p) + 1
        ),
        "the nearest may be below p": way(
            place=lambda sums, p: (sums - p).abs().argmin(-1)
        ),
        "this is the likeliest alone": lambda chances, p: chances.argmax(-1),
        "sort: the likeliest come first": lambda chances, p: below(
            chances.cumsum(-1), p
        ),
        "the sum begins with the rarest, or 1 - p stands for p": way(descending=False),
        "chances go in: no softmax": lambda chances, p: right(chances.softmax(-1), p),
    }

    cases = [
        (torch.tensor([0.125, 0.5, 0.0625, 0.25, 0.0625]), 0.75),
        ((2 * draw(3, 6, seed=3)).softmax(-1), 0.8),
        (draw(2, 4, 8, seed=2).softmax(-1), 0.55),
        (torch.tensor([[0.0625, 0.5, 0.1875, 0.25]]), 0.97),
    ]
    praise = "the one that lifts the sum to p stays"
    return Exercise(right, cases, mistakes, praise)


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
        own_seed = sum((letter + 1) * 10**i for i, letter in enumerate(text))
        logits = 1.5 * draw(self.n, seed=self.seed + own_seed)
        return logits.log_softmax(-1).tolist()


Beam = tuple[float, list[int]]  # a text's log-chance, and its letters


@check
def ending() -> Exercise:
    """`answer(after, n_beams, n_new, end)`: beam search over texts that may end."""

    def ended(beams: list[Beam], end: int) -> list[Beam]:
        return [beam for beam in beams if end in beam[1]]

    def grown(after: Callable, beams: list[Beam], end: int) -> list[Beam]:
        """All texts that haven't ended, with each letter."""
        return [
            (total + log_chance, [*text, letter])
            for total, text in beams
            if end not in text
            for letter, log_chance in enumerate(after(text))
        ]

    def likeliest_first(beams: list[Beam]) -> list[Beam]:
        return sorted(beams, reverse=True)

    def together(done: list[Beam], longer: list[Beam], best: Callable) -> list[Beam]:
        return best(done + longer)

    def never(beams: list[Beam], end: int) -> bool:
        return False

    def right(
        after: Callable,
        n_beams: int,
        n_new: int,
        end: int,
        race: Callable = together,
        order: Callable = likeliest_first,
        stops: Callable = never,
    ) -> list[Beam]:
        """`race` says which ended and longer texts stay, `order` which come first."""

        def best(beams: list[Beam]) -> list[Beam]:
            return order(beams)[:n_beams]

        beams = [(0.0, [])]
        for _ in range(n_new):
            done = ended(beams, end)
            longer = grown(after, beams, end)
            beams = race(done, longer, best)
            if stops(beams, end):
                break
        return best(beams)

    way = ways_of(right)

    def ended_apart(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        done = []
        for _ in range(n_new):
            longer = likeliest_first(grown(after, beams, end))
            done += ended(longer[:n_beams], end)
            beams = [beam for beam in longer if end not in beam[1]][:n_beams]
        return likeliest_first(beams + done)[:n_beams]

    def places_for_good(done: list[Beam], longer: list[Beam], best: Callable) -> list:
        n_places = len(best(done + longer))  # n_beams, if there are so many texts
        return (done + best(longer))[:n_places]

    def mean(beam: Beam) -> float:
        return beam[0] / max(1, len(beam[1]))

    def means_given(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = right(after, n_beams, n_new, end)
        return [(mean(beam), beam[1]) for beam in beams]

    mistakes = {
        # Ended texts don't race with the others.
        "a text that has ended is lost: it stays in the race": way(
            race=lambda done, longer, best: best(longer)
        ),
        "an ended text takes one of the n_beams places": ended_apart,
        "at most n_beams texts stay after each step, ended ones among them": way(
            race=lambda done, longer, best: done + best(longer)
        ),
        "an ended text keeps its place only while n_beams others aren't likelier": (
            way(race=places_for_good)
        ),
        "cut to n_beams texts after each step, not only after the last": way(
            race=lambda done, longer, best: done + longer
        ),
        "append nothing to an ended text": way(
            race=lambda done, longer, best: best(
                [(total, [*text, text[-1]]) for total, text in done] + longer
            )
        ),
        # The search stops too early.
        "when the best has ended, the others go on": way(
            stops=lambda beams, end: end in beams[0][1]
        ),
        "when one has ended, the others go on": way(stops=ended),
        # The race has another order.
        "the likeliest come first: sort with reverse=True": way(order=sorted),
        "the text's log-chance counts, not its mean": way(
            order=lambda beams: sorted(beams, key=mean, reverse=True)
        ),
        "in the end, too, the likeliest comes first: not the one with the highest"
        " mean": lambda *case: sorted(right(*case), key=mean, reverse=True),
        "give each text's log-chance, not its mean": means_given,
        "give each text's log-chance, not its mean, and the likeliest first": (
            lambda *case: likeliest_first(means_given(*case))
        ),
    }

    def case(n: int, end: int, seed: int, n_beams: int, n_new: int) -> tuple:
        return Language(n, end, seed), n_beams, n_new, end

    cases = [
        case(4, 1, 10, 3, 5),
        case(3, 0, 2, 5, 4),
        case(6, 5, 3, 2, 6),
        case(5, 2, 4, 4, 0),
        case(4, 1, 29, 2, 5),
    ]
    praise = "a text that has ended waits for the others"
    return Exercise(right, cases, mistakes, praise)
