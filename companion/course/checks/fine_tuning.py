"""Checks of chapter 14: right ways, likely mistakes, cases, praise (see `Exercise`)."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .compare import Exercise, check, ways_of


@check
def trainable() -> Exercise:
    """`answer(shapes, rank)`: how many numbers learn in layers of (in, out)."""

    def right(
        shapes: list,
        rank: int,
        numbers: Callable = lambda n_in, n_out, rank: rank * (n_in + n_out),
    ) -> int:
        return sum(numbers(n_in, n_out, rank) for n_in, n_out in shapes)

    way = ways_of(right)

    cases = [
        ([(576, 576), (576, 192)], 8),
        ([(6, 4)], 2),
        ([(5, 7), (7, 5), (3, 11)], 1),
        ([(6, 4), (2, 3), (6, 4)], 3),
        ([], 4),
    ]
    mistakes = {
        "these are the frozen matrices: A and B learn": way(
            numbers=lambda n_in, n_out, rank: n_in * n_out
        ),
        "B is missing: it has out · rank numbers": way(
            numbers=lambda n_in, n_out, rank: rank * n_in
        ),
        "A is missing: it has rank · in numbers": way(
            numbers=lambda n_in, n_out, rank: rank * n_out
        ),
        "B is as wide as the output, not as the input": way(
            numbers=lambda n_in, n_out, rank: 2 * rank * n_in
        ),
        "only the first layer is counted": lambda shapes, rank: (
            rank * (shapes[0][0] + shapes[0][1])
        ),
        "two layers of one shape are two layers: count each": (
            lambda shapes, rank: right({*shapes}, rank)
        ),
        "the rank is missing: A has that many rows, B that many columns": way(
            numbers=lambda n_in, n_out, rank: n_in + n_out
        ),
        "the frozen matrix doesn't learn: count A and B alone": way(
            numbers=lambda n_in, n_out, rank: rank * (n_in + n_out) + n_in * n_out
        ),
        "A and B are added up, not multiplied": way(
            numbers=lambda n_in, n_out, rank: rank * n_in * n_out
        ),
    }
    praise = "rank times input and output, of each layer"
    return Exercise(right, cases, mistakes, praise)


@check
def merged() -> Exercise:
    """`answer(weight, a, b, alpha)`: one matrix (o i) that does the same."""

    def right(
        weight: Tensor,
        a: Tensor,
        b: Tensor,
        alpha: float,
        factor: Callable = lambda alpha, a: alpha / len(a),
    ) -> Tensor:
        return weight + factor(alpha, a) * b @ a

    way = ways_of(right)

    def case(n_out: int, n_in: int, rank: int, alpha: float) -> tuple:
        generator = torch.Generator().manual_seed(n_out)
        weight = torch.randn(n_out, n_in, generator=generator)
        a = torch.randn(rank, n_in, generator=generator)
        b = torch.randn(n_out, rank, generator=generator)
        return weight, a, b, alpha

    cases = [case(4, 6, 2, 3), case(5, 5, 3, 12), case(7, 3, 1, 0.5)]
    mistakes = {
        "the factor alpha / rank is missing": way(factor=lambda alpha, a: 1),
        "the rank is missing: the factor is alpha / rank": way(
            factor=lambda alpha, a: alpha
        ),
        "alpha is missing: the factor is alpha / rank": way(
            factor=lambda alpha, a: 1 / len(a)
        ),
        "the factor is upside down: it is alpha / rank": way(
            factor=lambda alpha, a: len(a) / alpha
        ),
        "the rank is how many rows A has, not how many columns": way(
            factor=lambda alpha, a: alpha / a.shape[1]
        ),
        "the rank is how many rows A has; B has as many as the weight": (
            lambda weight, a, b, alpha: weight + alpha / len(b) * b @ a
        ),
        "alpha is divided by the rank, not multiplied": way(
            factor=lambda alpha, a: alpha * len(a)
        ),
        "alpha is divided by the rank, not by its root": way(
            factor=lambda alpha, a: alpha / len(a) ** 0.5
        ),
        "alpha / rank needn't be whole: `//` rounds it": way(
            factor=lambda alpha, a: alpha // len(a)
        ),
        "the factor counts once: scale A or B, not both": way(
            factor=lambda alpha, a: (alpha / len(a)) ** 2
        ),
        "weight and factor are missing: add alpha / rank times this to the weight": (
            lambda weight, a, b, alpha: b @ a
        ),
        "the frozen weight is missing": (
            lambda weight, a, b, alpha: right(0 * weight, a, b, alpha)
        ),
        "the product is added, not taken away": way(
            factor=lambda alpha, a: -alpha / len(a)
        ),
        "only the product has the factor: the weight stays as it is": (
            lambda weight, a, b, alpha: alpha / len(a) * (weight + b @ a)
        ),
        "A comes first, so it stands on the right: B A": (
            lambda weight, a, b, alpha: weight + alpha / len(a) * a @ b
        ),
        "this is the matrix transposed": lambda *case: right(*case).T,
        "the product is transposed": (
            lambda weight, a, b, alpha: weight + alpha / len(a) * (b @ a).T
        ),
    }
    praise = "the weight, and the product by its factor"
    return Exercise(right, cases, mistakes, praise)


@check
def answers_alone() -> Exercise:
    """`answer(turns)`: targets of a talk, [(speaker, opening, text), ...].

    `opening` and `text` are ids, and a text's last is the end token. A target is the
    next id where that is the assistant's text, and else -100; the last id has none.
    """

    def right(
        turns: list,
        counts: Callable = lambda ours, opening, text: (
            [False] * len(opening) + [ours] * len(text)
        ),
        first: int = 1,
    ) -> list[int]:
        targets = []
        for speaker, opening, text in turns:
            does_count = counts(speaker == "assistant", opening, text)
            for token, counted in zip([*opening, *text], does_count, strict=True):
                targets.append(token if counted else -100)
        return targets[first:]

    way = ways_of(right)

    renamed = {"system": "assistant"}

    def everything(ours: bool, opening: list, text: list) -> list[bool]:
        return [True] * len(opening + text)

    def of_one_answer(turns: list, which: Callable) -> list[int]:
        answers = [i for i, turn in enumerate(turns) if turn[0] == "assistant"]
        changed = []
        for i, (speaker, opening, text) in enumerate(turns):
            changed.append((speaker if i == which(answers) else "user", opening, text))
        return right(changed)

    cases = [
        ([("user", [1, 7, 3], [20, 21, 2]), ("assistant", [4, 1, 8, 3], [30, 2])],),
        (
            [
                ("system", [1, 9, 3], [10, 2]),
                ("user", [4, 1, 7, 3], [20, 2]),
                ("assistant", [4, 1, 8, 3], [31, 32, 33, 2]),
                ("user", [4, 1, 7, 3], [22, 23, 2]),
                ("assistant", [4, 1, 8, 3], [34, 2]),
            ],
        ),
        (
            [
                ("assistant", [1, 8, 3], [35, 36, 2]),
                ("user", [4, 1, 7, 3], [24, 2]),
                ("assistant", [4, 1, 8, 3], [37, 38, 2]),
                ("user", [4, 1, 7, 3], [25, 26, 27, 2]),
            ],
        ),
    ]
    mistakes = {
        "these are the ids themselves: a target is the next one": way(first=0),
        "not shifted: the target of a place is the id after it": (
            lambda turns: right(turns, first=0)[:-1]
        ),
        "each turn is shifted by itself here: shift the whole talk once": (
            lambda turns: [target for turn in turns for target in right([turn])]
        ),
        "the last id has no target: nothing comes after it": (
            lambda turns: [*right(turns), -100]
        ),
        "all ids count here: only the assistant's texts do": way(counts=everything),
        "nothing is left out here, and nothing shifted": lambda turns: right(
            turns, counts=everything, first=0
        ),
        "nothing is left out or shifted here, and the last id has no target": (
            lambda turns: right(turns, counts=everything, first=0)[:-1]
        ),
        "the system's texts count here, too: only the assistant's do": (
            lambda turns: right([(renamed.get(who, who), *ids) for who, *ids in turns])
        ),
        "the user's texts count here, too: only the assistant's do": way(
            counts=lambda ours, opening, text: (
                [False] * len(opening) + [True] * len(text)
            )
        ),
        "only the ends count here: all of an answer does": way(
            counts=lambda ours, opening, text: (
                [False] * (len(opening) + len(text) - 1) + [ours]
            )
        ),
        'nothing counts here: the speaker is called "assistant"': way(
            counts=lambda ours, opening, text: [False] * len(opening + text)
        ),
        "a target is missing at the end: only the talk's last id has none": (
            lambda turns: right(turns)[:-1]
        ),
        "a target is missing in front: shift by one id, not two": (
            lambda turns: right(turns)[1:]
        ),
        "this is shifted by two: a target is the very next id": (
            lambda turns: [*right(turns)[1:], -100]
        ),
        "an opening keeps its places, as -100": lambda turns: right(
            [(speaker, [], text) for speaker, _, text in turns]
        ),
        "what doesn't count is -100, which PyTorch leaves out; -1 isn't": (
            lambda turns: [-1 if target == -100 else target for target in right(turns)]
        ),
        "an opening is given to the model, it doesn't say it": way(
            counts=lambda ours, opening, text: [ours] * len(opening + text)
        ),
        "the user's texts count here, and the assistant's should": way(
            counts=lambda ours, opening, text: (
                [False] * len(opening) + [not ours] * len(text)
            )
        ),
        "only the last answer counts here: each of the assistant's does": partial(
            of_one_answer, which=max
        ),
        "only the first answer counts here: each does": partial(
            of_one_answer, which=min
        ),
        "the end doesn't count here, so it would never stop": way(
            counts=lambda ours, opening, text: (
                [False] * len(opening) + [ours] * (len(text) - 1) + [False]
            )
        ),
        "the user's end counts here: the model doesn't say that one": way(
            counts=lambda ours, opening, text: (
                [False] * len(opening) + [ours] * (len(text) - 1) + [True]
            )
        ),
        "each answer's first id is missing: it follows the opening": way(
            counts=lambda ours, opening, text: (
                [False] * (len(opening) + 1) + [ours] * (len(text) - 1)
            )
        ),
        "what doesn't count is -100; 0 is a token": (
            lambda turns: [0 if target == -100 else target for target in right(turns)]
        ),
        "what doesn't count keeps its place, as -100": (
            lambda turns: [target for target in right(turns) if target != -100]
        ),
    }
    praise = "each answer and its end, one place early"
    return Exercise(right, cases, mistakes, praise)


@check
def only_adapters() -> Exercise:
    """`answer(names)`: which parameters learn: A and B of adapters."""

    def right(
        names: list, learns: Callable = lambda name: name.endswith((".A", ".B"))
    ) -> list[str]:
        return [name for name in names if learns(name)]

    way = ways_of(right)

    small = ["0.layer.weight", "0.layer.bias", "0.A", "0.B", "2.weight", "2.bias"]
    large = [
        "embedding.weight",
        "blocks.0.attention.to_queries.layer.weight",
        "blocks.0.attention.to_queries.A",
        "blocks.0.attention.to_queries.B",
        "blocks.0.feed_forward.to_output.weight",
        "blocks.1.attention.to_queries.layer.weight",
        "blocks.1.attention.to_queries.A",
        "blocks.1.attention.to_queries.B",
        "norm.gain",
    ]
    odd = [
        "B.weight",
        "tower.A.layer.bias",
        "tower.A.A",
        "tower.A.B",
        "to_A",
        "RGB",
        "0.AB",
    ]
    mistakes = {
        "everything learns: the base must be frozen": way(learns=lambda name: True),
        "B is frozen, too: both learn": way(learns=lambda name: name.endswith(".A")),
        "A is frozen, too: both learn": way(learns=lambda name: name.endswith(".B")),
        "only the wrapped layers are frozen: the rest of the model is base, too": (
            way(learns=lambda name: ".layer." not in name)
        ),
        "these are those that must not learn": way(
            learns=lambda name: not name.endswith((".A", ".B"))
        ),
        "a name with an A or B in it is no adapter: its last part is A or B": way(
            learns=lambda name: "A" in name or "B" in name
        ),
        "a name that ends with an A or B is no adapter: its last part is that alone": (
            way(learns=lambda name: name.endswith(("A", "B")))
        ),
        "only the last part of a name says which parameter it is": way(
            learns=lambda name: {"A", "B"} & {*name.split(".")}
        ),
        "AB is neither A nor B: `in` also finds a part of a word": way(
            learns=lambda name: name.split(".")[-1] in "AB"
        ),
        "keep the order of the names": (
            lambda names: sorted(right(names), key=lambda name: name[-1])
        ),
    }
    praise = "the base stands still, A and B learn"
    return Exercise(right, [(small,), (large,), (odd,)], mistakes, praise)


@check
def choice() -> Exercise:
    """`answer(logs, by_length)`: the number of the likeliest of several answers.

    `logs` are for each answer its tokens' log-probabilities; `by_length`, the mean of
    a token counts, and else their sum.
    """

    def score(logs: list, by_length: bool, total: Callable = sum) -> float:
        return total(logs) / (len(logs) if by_length else 1)

    def right(logs: list, by_length: bool, score: Callable = score) -> int:
        scores = [score(of_one, by_length) for of_one in logs]
        return scores.index(max(scores))

    way = ways_of(right)

    logs = [[-2.5, -0.5], [-0.75, -0.75, -0.75, -1.0], [-4.0], [-0.5, -3.5, -0.25]]
    more = [[-1.0, -9.0], [-0.25, -6.0, -0.5], [-3.0, -2.0, -4.0, -0.125, -0.125]]
    third = [[-5.0, -1.0], [-5.5], [-1.0, -4.0, -2.0]]
    short = [[-0.5, -1.0], [-3.0], [-1.0, -1.5, -2.0]]  # the longest isn't the best
    even = [[-1.0, -1.0, -1.0], [-1.5, -1.5], [-1.25]]
    several = (logs, more, third, short, even)
    cases = [(x, by) for x in several for by in (False, True)]
    mistakes = {
        "by_length is passed over: then divide by the number of tokens": (
            lambda logs, by_length: right(logs, False)
        ),
        "it divides always: only where by_length says so": (
            lambda logs, by_length: right(logs, True)
        ),
        "a mean divides by the number of tokens, not by one less": way(
            score=lambda x, by: sum(x) / (max(1, len(x) - 1) if by else 1)
        ),
        "by_length is read the other way round": (
            lambda logs, by_length: right(logs, not by_length)
        ),
        "this is the least likely: logarithms are below 0, and more is likelier": (
            way(score=lambda *case: -score(*case))
        ),
        "only the first token counts here": way(score=lambda logs, by_length: logs[0]),
        "only the last token counts here": way(score=lambda logs, by_length: logs[-1]),
        "answers are counted from 0": lambda *case: right(*case) + 1,
        "this is the score: give the number of the answer": (
            lambda logs, by_length: max(score(of_one, by_length) for of_one in logs)
        ),
        "where by_length says so this is the longest: divide the sum by the length": (
            way(score=lambda x, by: len(x) if by else sum(x))
        ),
        "this is the shortest": way(score=lambda logs, by_length: -len(logs)),
        "probabilities of tokens are multiplied, so add their logarithms": way(
            score=partial(score, total=lambda logs: sum(map(math.exp, logs)))
        ),
    }
    praise = "the likeliest answer, by its sum or its mean"
    return Exercise(right, cases, mistakes, praise)
