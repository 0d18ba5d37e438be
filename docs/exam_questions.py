"""The questions of `make exam`: each is drawn with numbers of its own.

What is right comes from the course's own functions, and what the likely mistakes give
from those of the chapters' checks.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

import companion
from companion.course import checks
from companion.model.cache import PreallocatedCache
from companion.model.serving_caches import SlidingWindowCache
from companion.text.tokenizers import BPETokenizer, merge, train_bpe
from companion.training.reward import advantages


@dataclass(frozen=True)
class Question:
    """A question with its numbers.

    What is asked is HTML. The rest is the key's: what is right, a few words of the way
    to it, and by the words for each likely mistake what comes out with it.
    """

    text: str
    right: float | str
    way: str
    mistakes: dict[str, float] | dict[str, str]

    def is_clear(self) -> bool:
        """Whether no mistake gives what is right, or nearly."""
        return not any(alike(self.right, wrong) for wrong in self.mistakes.values())


def alike(a: float | str, b: float | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return abs(a - b) < 0.05


def number(x: float | str) -> str:
    """A number in print, with three decimals at most; words as they are."""
    if isinstance(x, str):
        return x
    text = f"{round(x, 3) + 0.0:,.3f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def vector(numbers: list[int]) -> str:
    return f"({', '.join(map(number, numbers))})"


def known_mistakes(check: Callable, *pieces: str) -> dict[str, Callable]:
    """A check's mistakes by their words: each piece is found in the words of one."""
    mistakes = {}
    for piece in pieces:
        fitting = {w: f for w, f in check.exercise().mistakes.items() if piece in w}
        if len(fitting) != 1:
            raise ValueError(f"{piece!r} is in {len(fitting)} of the check's mistakes")
        mistakes |= fitting
    return mistakes


def attention(draw: random.Random) -> Question:
    """Each score is a multiple of ln 2, so the terms are powers of two."""
    while True:
        query = draw.choices(range(4), k=4)
        keys = [draw.choices(range(3), k=4) for _ in range(3)]
        values = draw.sample(range(13), k=3)
        dots = [sum(map(math.prod, zip(query, key, strict=True))) for key in keys]
        terms = [2 ** (dot // 2) for dot in dots]  # divided by the root of 4
        total = sum(map(math.prod, zip(terms, values, strict=True)))
        is_plain = query.count(0) < 3 and len({*dots}) > 1 and max(dots) <= 6
        is_even = all(dot % 2 == 0 for dot in dots)
        if is_plain and is_even and total % sum(terms) == 0:
            break

    case = ([x * math.log(2) for x in query], keys, [[x] for x in values])
    tensors = [torch.tensor(x, dtype=torch.double) for x in case]
    right = companion.attention(tensors[0][None], *tensors[1:])
    mistakes = known_mistakes(
        checks.one_query,
        "no scale",
        "divided by d",
        "d is not the number of keys",
        "not the weights",
        "softmax is missing",
        "raise e to the scores",
        "not the best alone",
    )
    text = (
        f"A query is ln 2 · {vector(query)}. Three keys are {vector(keys[0])},"
        f" {vector(keys[1])} and {vector(keys[2])}, and their values {values[0]},"
        f" {values[1]} and {values[2]}. What does attention give? (e to the power of"
        " n · ln 2 is 2<sup>n</sup>.)"
    )
    weights = ", ".join(f"{term}/{sum(terms)}" for term in terms)
    return Question(
        text,
        right.item(),
        f"weights {weights}",
        {words: f(*case)[0] for words, f in mistakes.items()},
    )


def leaders(tokens: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """The pairs of neighbours and how often they come, the commonest first."""
    commonest = Counter(pairwise(tokens)).most_common()
    return [pair for pair, _ in commonest], [n for _, n in commonest]


def two_merges(draw: random.Random) -> Question:
    """What is merged is commoner than all else, and can't overlap itself."""
    while True:
        letters = "".join(draw.choices("abc", k=draw.randint(13, 19)))
        ids = list(letters.encode())
        pairs, counts = leaders(ids)
        after_one = merge(ids, pairs[0], 256)
        then_pairs, then_counts = leaders(after_one)
        if min(len(pairs), len(then_pairs)) < 3:
            continue
        is_clear = counts[0] > counts[1] > counts[2] and then_counts[0] > then_counts[1]
        if is_clear and all(left != right for left, right in (pairs[0], then_pairs[0])):
            break

    tokenizer = BPETokenizer(train_bpe(letters, 258))
    tokens = tokenizer.encode(letters)
    text = (
        f"Byte-pair encoding learns two merges from <code>{letters}</code>. Which are"
        " they, and how many tokens is the text then? The answer is the number of"
        " tokens."
    )
    return Question(
        text,
        len(tokens),
        " | ".join(tokenizer.vocabulary[token].decode() for token in tokens),
        {
            "one merge alone": len(after_one),
            "each pair is joined once, not wherever it stands": len(letters) - 2,
            "the second pair is taken from the first count: count anew": len(
                merge(after_one, pairs[1], 257)
            ),
            "the kinds of tokens: count all of them": len({*tokens}),
        },
    )


def cache_bytes(draw: random.Random) -> Question:
    """Heads of queries share those of keys and values."""
    n_layers = draw.choice([5, 6, 10, 12, 20])
    n_kv_heads = draw.choice([2, 3, 4])
    n_heads = n_kv_heads * draw.choice([3, 4, 5])
    d_head = draw.choice([32, 50, 64, 100])
    n_tokens = draw.choice([500, 1000, 2000])
    kind, dtype = draw.choice(
        [("float32", torch.float32), ("bfloat16", torch.bfloat16)]
    )

    # A cache that is filled: on the device meta a tensor has sizes and no numbers.
    cache = PreallocatedCache(n_tokens)
    new = torch.empty(1, n_kv_heads, 1, d_head, dtype=dtype, device="meta")
    for layer in range(n_layers):
        cache.append(layer, new, new)
    right = sum(x.nbytes for kept in cache.layers.values() for x in kept)
    text = (
        f"A model has {n_layers} layers. In each, {n_heads} heads of queries share"
        f" {n_kv_heads} heads of keys and values, of {d_head} features. How many bytes"
        f" does its cache take in {kind} for a text of {number(n_tokens)} tokens?"
    )
    return Question(
        text,
        right,
        f"2 · {n_layers} · {n_kv_heads} · {d_head} · {n_tokens} · {dtype.itemsize}",
        {
            "keys alone: values are kept, too": right / 2,
            "every head of queries has keys of its own here": (
                right / n_kv_heads * n_heads
            ),
            "one layer alone": right / n_layers,
            "numbers, not bytes": right / dtype.itemsize,
            "bits, not bytes": right * 8,
        },
    )


def group_of_five(draw: random.Random) -> list[int]:
    """Five rewards whose mean is whole, and whose deviation is 2 or 4."""
    while True:
        rewards = draw.choices(range(13), k=5)
        mean = sum(rewards) // 5
        variance = sum((reward - mean) ** 2 for reward in rewards) / 5
        if sum(rewards) % 5 == 0 and variance in (4, 16):
            return rewards


def advantage(draw: random.Random) -> Question:
    """Mean and deviation are whole, so an advantage has two decimals."""
    rows = [group_of_five(draw), group_of_five(draw)]
    row = draw.randrange(2)
    column = draw.randrange(5)

    rewards = torch.tensor(rows, dtype=torch.double)
    right = advantages(rewards, scale=True)[row, column]
    mistakes = known_mistakes(
        checks.group_advantages,
        "divide by g, not g - 1",
        "with its own group",
        "a row is a group",
        "the deviation is missing",
        "the root of the variance",
        "the mean is missing",
    )
    text = (
        f"Five answers to prompt 1 earn {vector(rows[0])}, and five to prompt 2 earn"
        f" {vector(rows[1])}. What is the advantage of answer {column + 1} to prompt"
        f" {row + 1} within its group, in units of the group's deviation?"
    )
    mean = sum(rows[row]) // 5
    deviation = rewards[row].std(correction=0).item()
    return Question(
        text,
        right.item(),
        f"mean {mean}, deviation {number(deviation)}",
        {words: f(rewards)[row, column].item() for words, f in mistakes.items()},
    )


def offset(draw: random.Random) -> Question:
    """A pair of features that turns by a quarter a position."""
    query = draw.choices([-3, -2, -1, 1, 2, 3], k=2)
    key = draw.choices([-3, -2, -1, 1, 2, 3], k=2)
    s = draw.randint(1000, 1020)
    t = s + draw.choice([1, 3, 5, 7, 9])

    vectors = torch.tensor([query, key], dtype=torch.double)

    def product(turned: Callable[[Tensor, Tensor], Tensor], *positions: int) -> float:
        quarters = torch.tensor(positions, dtype=torch.double) * math.pi / 2
        new_query, new_key = turned(vectors, quarters)
        return (new_query @ new_key).item()

    def turned(x: Tensor, positions: Tensor) -> Tensor:
        return companion.rotate(x[None, None], positions)[0, 0]

    def by_check(mistake: Callable) -> float:
        return product(lambda x, positions: mistake(x, positions, 2), t, s)

    mistakes = known_mistakes(
        checks.neighbours, "turns the other way", "both sines have a plus", "the new a"
    )
    text = (
        "A head has one pair of features, which rotary positions turn by 90° a"
        " position: (1, 0) at position 1 becomes (0, 1). The query"
        f" {vector(query)} stands at position {number(t)}, the key {vector(key)} at"
        f" {number(s)}. What is the dot product of the two once they are turned?"
    )
    return Question(
        text,
        product(turned, t, s),
        f"offset {t - s}, so the query is {(t - s) % 4 * 90}° ahead",
        {
            **{words: by_check(f) for words, f in mistakes.items()},
            "nothing is turned": product(turned, 0, 0),
            "the query alone is turned": product(turned, t, 0),
            "the positions are added: their difference counts": product(turned, t, -s),
        },
    )


def seen(mask: Tensor) -> str:
    """The first and the last position that each new token may see."""
    rows = [row.nonzero()[:, 0].tolist() for row in mask]
    return ", ".join(f"{row[0]}–{row[-1]}" if row else "none" for row in rows)


def window_mask(draw: random.Random) -> Question:
    """Three tokens come after some that are kept."""
    n_kept = draw.randint(3, 7)
    width = draw.randint(2, n_kept)
    end = n_kept + 3

    right = SlidingWindowCache(width).visible(
        torch.arange(n_kept, end), torch.arange(end)
    )
    mistakes = known_mistakes(
        checks.place,
        "the triangle is not moved",
        "the window is not moved",
        "sees those after it",
        "there is no window",
        "one too many",
        "one too few",
        "does not see itself",
        "one window for all",
    )
    squares = "<td></td>" * end
    names = "".join(f"<th>{position}</th>" for position in range(end))
    rows = "".join(f"<tr><th>{t}</th>{squares}</tr>" for t in range(n_kept, end))
    text = (
        f"A cache holds the tokens at positions 0 to {n_kept - 1}. Three more come at"
        f" once. A token sees {width} tokens at most: itself and those just before it."
        " Mark what each of the three may see, and write its first and last position"
        f" for each, as in 0–9. <table><tr><th></th>{names}</tr>{rows}</table>"
    )
    return Question(
        text,
        seen(right),
        f"position t sees t − {width - 1} to t",
        {words: seen(f(n_kept, 3, width)[1]) for words, f in mistakes.items()},
    )


TEMPLATES = {
    "Attention over three keys": attention,
    "Two merges": two_merges,
    "What a cache takes": cache_bytes,
    "An advantage": advantage,
    "A rotation": offset,
    "A mask": window_mask,
}


def drawn(template: Callable, draw: random.Random) -> Question:
    """A question in which no mistake gives what is right."""
    for _ in range(1000):
        question = template(draw)
        if question.is_clear():
            return question
    raise ValueError(f"{template.__name__}: a mistake gives what is right in each draw")


def draw_questions(
    seed: str, student: str, titles: Iterable[str] = TEMPLATES
) -> dict[str, Question]:
    """A student's questions by their titles; each is drawn by itself."""
    return {
        title: drawn(TEMPLATES[title], random.Random(f"{seed} {student} {title}"))
        for title in titles
    }
