"""Checks of chapter 06."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .compare import Exercise, Mistake, check, draw
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

    def nearest_end(chances: Tensor, u: float) -> Tensor:
        ends = chances.cumsum(-1)
        return (ends - u).abs().argmin()

    def sorted_first(chances: Tensor, u: float) -> Tensor:
        values, _ = chances.sort(descending=True)
        return right(values, u)

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
        "the nearest end may be below": nearest_end,
        "one too many: hold u against ends, not starts": (
            lambda chances, u: right(chances, u) + 1
        ),
        "count the ends at or before u, not those behind it": (
            lambda chances, u: (chances.cumsum(-1) > u).sum()
        ),
        "don't sort: the parts lie as given": sorted_first,
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

    def right(after: Callable, prompt: list[int], n_new: int, window: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(n_new):
            tokens.append(after(tokens[-window:]))
        return tokens[len(prompt) :]

    # Other tokens are shown.

    def first_shown(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        tokens = list(prompt)
        for _ in range(n_new):
            tokens.append(after(tokens[:window]))
        return tokens[len(prompt) :]

    def prompt_alone(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        return [after(prompt[-window:]) for _ in range(n_new)]

    def negative_start(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        tokens = list(prompt)
        for _ in range(n_new):
            tokens.append(after(tokens[len(tokens) - window :]))
        return tokens[len(prompt) :]

    def one_drops_out_at_the_front(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        seen = list(prompt)
        new = []
        for _ in range(n_new):
            new.append(after(seen[:window]))
            seen = [*seen[1:], new[-1]]
        return new

    def one_always_drops_out(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        seen = list(prompt)
        new = []
        for _ in range(n_new):
            new.append(after(seen[-window:]))
            seen = [*seen[1:], new[-1]]
        return new

    def one_too_few(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        tokens = list(prompt)
        for _ in range(n_new):
            seen = tokens[-window:][1:]
            if not seen:
                seen = tokens
            tokens.append(after(seen))
        return tokens[len(prompt) :]

    def one_later(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        tokens = list(prompt)
        for _ in range(n_new):
            tokens.append(after(tokens[-window + 1 :]))
        return tokens[len(prompt) :]

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

    # Other tokens are returned.

    def prompt_too(
        after: Callable, prompt: list[int], n_new: int, window: int
    ) -> list[int]:
        return prompt + right(after, prompt, n_new, window)

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
        "the first tokens never change: show the last": first_shown,
        "new tokens belong to the text too": prompt_alone,
        "while the text is shorter than the window, length - window is negative:"
        " Python counts that from the end": negative_start,
        "show the last `window` tokens": one_drops_out_at_the_front,
        "a token drops out only where the text is longer than the"
        " window": one_always_drops_out,
        "the model sees one token too few": one_too_few,
        "the model sees one token too few: [-window + 1:] begins one later": one_later,
        "where the window is 1, -(window - 1) is 0, and [0:] is the whole"
        " text": last_but_one_shown,
        "return only the new tokens": prompt_too,
        "where n_new is 0, [-n_new:] is the whole text": counted_from_the_end,
        "the text itself is cut, and new tokens with it: cut what `after`"
        " sees": text_cut,
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

    def right(chances: Tensor, p: float) -> Tensor:
        values, tokens = chances.sort(descending=True)
        places = (values.cumsum(-1) < p).sum(-1, keepdim=True)
        return tokens.gather(-1, places)[..., 0]

    def sums_and_tokens(chances: Tensor) -> tuple[Tensor, Tensor]:
        """The sums from the likeliest on, and whose each is (... v)."""
        values, tokens = chances.sort(descending=True)
        return values.cumsum(-1), tokens

    def tokens_at(tokens: Tensor, places: Tensor) -> Tensor:
        """The tokens (...) of the sorted (... v) at places (...), or the nearest."""
        places = places.clamp(0, tokens.shape[-1] - 1)
        return tokens.gather(-1, places[..., None])[..., 0]

    def place_alone(chances: Tensor, p: float) -> Tensor:
        sums, _ = sums_and_tokens(chances)
        return (sums < p).sum(-1)

    def number_that_stays(chances: Tensor, p: float) -> Tensor:
        return place_alone(chances, p) + 1

    def more_than_p(chances: Tensor, p: float) -> Tensor:
        sums, tokens = sums_and_tokens(chances)
        return tokens_at(tokens, (sums <= p).sum(-1))

    def one_before(chances: Tensor, p: float) -> Tensor:
        sums, tokens = sums_and_tokens(chances)
        return tokens_at(tokens, (sums < p).sum(-1) - 1)

    def one_behind(chances: Tensor, p: float) -> Tensor:
        sums, tokens = sums_and_tokens(chances)
        return tokens_at(tokens, (sums < p).sum(-1) + 1)

    def nearest(chances: Tensor, p: float) -> Tensor:
        sums, tokens = sums_and_tokens(chances)
        return tokens_at(tokens, (sums - p).abs().argmin(-1))

    def rarest_first(chances: Tensor, p: float) -> Tensor:
        values, tokens = chances.sort()
        return tokens_at(tokens, (values.cumsum(-1) < p).sum(-1))

    mistakes = {
        "this is a place in the sorted list: `sort` gives the characters"
        " too": place_alone,
        "this is how many stay: the last of them is wanted": number_that_stays,
        "a sum of exactly p is enough": more_than_p,
        "here the sum is still below p": one_before,
        "this is the first that has to go": one_behind,
        "the nearest may be below p": nearest,
        "this is the likeliest alone": lambda chances, p: chances.argmax(-1),
        "sort: the likeliest come first": (
            lambda chances, p: (chances.cumsum(-1) < p).sum(-1)
        ),
        "the sum begins with the rarest, or 1 - p stands for p": rarest_first,
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

    def right(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            longer = []
            for total, text in beams:
                if text[-1:] == [end]:
                    longer.append((total, text))
                    continue
                for letter, log_chance in enumerate(after(text)):
                    longer.append((total + log_chance, [*text, letter]))
            beams = sorted(longer, reverse=True)[:n_beams]
        return beams

    def likeliest(beams: list[Beam], n: int) -> list[Beam]:
        return sorted(beams, reverse=True)[:n]

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

    # Ended texts don't race with the others.

    def ended_lost(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            beams = likeliest(grown(after, beams, end), n_beams)
        return beams

    def ended_apart(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        done = []
        for _ in range(n_new):
            longer = grown(after, beams, end)
            done += ended(likeliest(longer, n_beams), end)
            beams = likeliest([beam for beam in longer if end not in beam[1]], n_beams)
        return likeliest(beams + done, n_beams)

    def more_than_n(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            beams = ended(beams, end) + likeliest(grown(after, beams, end), n_beams)
        return likeliest(beams, n_beams)

    def places_for_good(
        after: Callable, n_beams: int, n_new: int, end: int
    ) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            done = ended(beams, end)
            n_left = max(0, n_beams - len(done))
            beams = done + likeliest(grown(after, beams, end), n_left)
        return likeliest(beams, n_beams)

    def cut_at_the_end(
        after: Callable, n_beams: int, n_new: int, end: int
    ) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            beams = ended(beams, end) + grown(after, beams, end)
        return likeliest(beams, n_beams)

    def end_repeated(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            done = [(total, [*text, end]) for total, text in ended(beams, end)]
            beams = likeliest(done + grown(after, beams, end), n_beams)
        return beams

    # The search stops too early.

    def stops_with_the_best(
        after: Callable, n_beams: int, n_new: int, end: int
    ) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            beams = likeliest(ended(beams, end) + grown(after, beams, end), n_beams)
            if end in beams[0][1]:
                break
        return beams

    def stops_with_any(
        after: Callable, n_beams: int, n_new: int, end: int
    ) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            beams = likeliest(ended(beams, end) + grown(after, beams, end), n_beams)
            if ended(beams, end):
                break
        return beams

    # The race has another order.

    def least_likely(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            longer = ended(beams, end) + grown(after, beams, end)
            beams = sorted(longer)[:n_beams]
        return beams

    def by_the_mean(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = [(0.0, [])]
        for _ in range(n_new):
            longer = ended(beams, end) + grown(after, beams, end)
            longer.sort(key=lambda beam: beam[0] / len(beam[1]), reverse=True)
            beams = longer[:n_beams]
        return beams

    def mean(beam: Beam) -> float:
        return beam[0] / max(1, len(beam[1]))

    def ranked_by_the_mean(
        after: Callable, n_beams: int, n_new: int, end: int
    ) -> list[Beam]:
        return sorted(right(after, n_beams, n_new, end), key=mean, reverse=True)

    def means_given(after: Callable, n_beams: int, n_new: int, end: int) -> list[Beam]:
        beams = right(after, n_beams, n_new, end)
        return [(mean(beam), beam[1]) for beam in beams]

    def ranked_and_given(
        after: Callable, n_beams: int, n_new: int, end: int
    ) -> list[Beam]:
        return likeliest(means_given(after, n_beams, n_new, end), n_beams)

    mistakes = {
        "a text that has ended is lost: it stays in the race": ended_lost,
        "an ended text takes one of the n_beams places": ended_apart,
        "at most n_beams texts stay after each step, ended ones among"
        " them": more_than_n,
        "an ended text keeps its place only while n_beams others aren't"
        " likelier": places_for_good,
        "cut to n_beams texts after each step, not only after the last": cut_at_the_end,
        "append nothing to an ended text": end_repeated,
        "when the best has ended, the others go on": stops_with_the_best,
        "when one has ended, the others go on": stops_with_any,
        "the likeliest come first: sort with reverse=True": least_likely,
        "the text's log-chance counts, not its mean": by_the_mean,
        "in the end, too, the likeliest comes first: not the one with the highest"
        " mean": ranked_by_the_mean,
        "give each text's log-chance, not its mean": means_given,
        "give each text's log-chance, not its mean, and the likeliest first": (
            ranked_and_given
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
