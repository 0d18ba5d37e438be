"""Checks of chapter 14."""

import torch
from torch import Tensor

from .compare import Exercise, check


@check
def trainable() -> Exercise:
    """`answer(shapes, rank)`: how many numbers learn in layers of (in, out)."""

    def right(shapes: list, rank: int) -> int:
        return sum(rank * (n_in + n_out) for n_in, n_out in shapes)

    def whole_matrices(shapes: list, rank: int) -> int:
        return sum(n_in * n_out for n_in, n_out in shapes)

    def only_a(shapes: list, rank: int) -> int:
        return sum(rank * n_in for n_in, _ in shapes)

    def only_b(shapes: list, rank: int) -> int:
        return sum(rank * n_out for _, n_out in shapes)

    def square(shapes: list, rank: int) -> int:
        return sum(2 * rank * n_in for n_in, _ in shapes)

    def one_layer(shapes: list, rank: int) -> int:
        n_in, n_out = shapes[0]
        return rank * (n_in + n_out)

    def no_rank(shapes: list, rank: int) -> int:
        return sum(n_in + n_out for n_in, n_out in shapes)

    def with_the_frozen(shapes: list, rank: int) -> int:
        return right(shapes, rank) + whole_matrices(shapes, rank)

    def product(shapes: list, rank: int) -> int:
        return sum(rank * n_in * n_out for n_in, n_out in shapes)

    cases = [
        ([(576, 576), (576, 192)], 8),
        ([(6, 4)], 2),
        ([(5, 7), (7, 5), (3, 11)], 1),
        ([], 4),
    ]
    mistakes = {
        "these are the frozen matrices: A and B learn": whole_matrices,
        "B is missing: it has out · rank numbers": only_a,
        "A is missing: it has rank · in numbers": only_b,
        "B is as wide as the output, not as the input": square,
        "only the first layer is counted": one_layer,
        "the rank is missing: A has that many rows, B that many columns": no_rank,
        "the frozen matrix doesn't learn: count A and B alone": with_the_frozen,
        "A and B are added up, not multiplied": product,
    }
    praise = "rank times input and output, of each layer"
    return Exercise(right, cases, mistakes, praise)


@check
def merged() -> Exercise:
    """`answer(weight, a, b, alpha)`: one matrix (o i) that does the same."""

    def right(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight + alpha / len(a) * b @ a

    def no_scale(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight + b @ a

    def no_rank(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight + alpha * b @ a

    def no_alpha(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight + b @ a / len(a)

    def upside_down(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight + len(a) / alpha * b @ a

    def by_inputs(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight + alpha / a.shape[1] * b @ a

    def product_alone(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return alpha / len(a) * b @ a

    def taken_away(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight - alpha / len(a) * b @ a

    def all_scaled(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return alpha / len(a) * (weight + b @ a)

    def a_then_b(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return weight + alpha / len(a) * a @ b

    def transposed(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return right(weight, a, b, alpha).T

    def product_transposed(
        weight: Tensor, a: Tensor, b: Tensor, alpha: float
    ) -> Tensor:
        return weight + alpha / len(a) * (b @ a).T

    def case(n_out: int, n_in: int, rank: int, alpha: float) -> tuple:
        generator = torch.Generator().manual_seed(n_out)
        weight = torch.randn(n_out, n_in, generator=generator)
        a = torch.randn(rank, n_in, generator=generator)
        b = torch.randn(n_out, rank, generator=generator)
        return weight, a, b, alpha

    cases = [case(4, 6, 2, 3), case(5, 5, 3, 12), case(7, 3, 1, 0.5)]
    mistakes = {
        "the factor alpha / rank is missing": no_scale,
        "the rank is missing: the factor is alpha / rank": no_rank,
        "alpha is missing: the factor is alpha / rank": no_alpha,
        "the factor is upside down: it is alpha / rank": upside_down,
        "the rank is how many rows A has, not how many columns": by_inputs,
        "the frozen weight is missing": product_alone,
        "the product is added, not taken away": taken_away,
        "only the product has the factor: the weight stays as it is": all_scaled,
        "A comes first, so it stands on the right: B A": a_then_b,
        "this is the matrix transposed": transposed,
        "the product is transposed": product_transposed,
    }
    praise = "the weight, and the product by its factor"
    return Exercise(right, cases, mistakes, praise)


@check
def answers_alone() -> Exercise:
    """`answer(turns)`: targets of a talk, [(speaker, opening, text), ...].

    `opening` and `text` are ids, and a text's last is the end token. A target is the
    next id where that is the assistant's text, and else -100; the last id has none.
    """

    def flat(turns: list) -> tuple[list[int], list[bool]]:
        """What the mistakes share: all ids, and which of them the assistant says."""
        ids = []
        counts = []
        for speaker, opening, text in turns:
            ids += [*opening, *text]
            counts += [False] * len(opening)
            counts += [speaker == "assistant"] * len(text)
        return ids, counts

    def shifted(ids: list[int], counts: list[bool]) -> list[int]:
        targets = []
        for token, does_count in zip(ids[1:], counts[1:], strict=True):
            targets.append(token if does_count else -100)
        return targets

    def right(turns: list) -> list[int]:
        ids = []
        targets = []
        for speaker, opening, text in turns:
            ids += [*opening, *text]
            targets += [-100] * len(opening)
            if speaker == "assistant":
                targets += text
            else:
                targets += [-100] * len(text)
        return targets[1:]

    def not_shifted(turns: list) -> list[int]:
        ids, counts = flat(turns)
        return [i if c else -100 for i, c in zip(ids, counts, strict=True)]

    def not_shifted_but_short(turns: list) -> list[int]:
        return not_shifted(turns)[:-1]

    def one_too_many(turns: list) -> list[int]:
        return [*right(turns), -100]

    def all_count(turns: list) -> list[int]:
        return flat(turns)[0][1:]

    def openings_count(turns: list) -> list[int]:
        ids = []
        counts = []
        for speaker, opening, text in turns:
            ids += [*opening, *text]
            counts += [speaker == "assistant"] * (len(opening) + len(text))
        return shifted(ids, counts)

    def users_count(turns: list) -> list[int]:
        ids, counts = flat(turns)
        opposite = []
        for speaker, opening, text in turns:
            opposite += [False] * len(opening)
            opposite += [speaker != "assistant"] * len(text)
        return shifted(ids, opposite)

    def only_the_last(turns: list) -> list[int]:
        last = max(i for i, turn in enumerate(turns) if turn[0] == "assistant")
        changed = []
        for i, (speaker, opening, text) in enumerate(turns):
            changed.append((speaker if i == last else "user", opening, text))
        return right(changed)

    def only_the_first(turns: list) -> list[int]:
        first = min(i for i, turn in enumerate(turns) if turn[0] == "assistant")
        changed = []
        for i, (speaker, opening, text) in enumerate(turns):
            changed.append((speaker if i == first else "user", opening, text))
        return right(changed)

    def no_ends(turns: list) -> list[int]:
        ids = []
        counts = []
        for speaker, opening, text in turns:
            ids += [*opening, *text]
            counts += [False] * len(opening)
            counts += [speaker == "assistant"] * (len(text) - 1) + [False]
        return shifted(ids, counts)

    def every_end(turns: list) -> list[int]:
        ids = []
        counts = []
        for speaker, opening, text in turns:
            ids += [*opening, *text]
            counts += [False] * len(opening)
            counts += [speaker == "assistant"] * (len(text) - 1) + [True]
        return shifted(ids, counts)

    def first_words_missing(turns: list) -> list[int]:
        ids = []
        counts = []
        for speaker, opening, text in turns:
            ids += [*opening, *text]
            counts += [False] * (len(opening) + 1)
            counts += [speaker == "assistant"] * (len(text) - 1)
        return shifted(ids, counts)

    def zeros(turns: list) -> list[int]:
        return [0 if target == -100 else target for target in right(turns)]

    def left_out(turns: list) -> list[int]:
        return [target for target in right(turns) if target != -100]

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
        "these are the ids themselves: a target is the next one": not_shifted,
        "not shifted: the target of a place is the id after it": not_shifted_but_short,
        "the last id has no target: nothing comes after it": one_too_many,
        "all ids count here: only the assistant's texts do": all_count,
        "an opening is given to the model, it doesn't say it": openings_count,
        "the user's texts count here, and the assistant's should": users_count,
        "only the last answer counts here: each of the assistant's does": only_the_last,
        "only the first answer counts here: each does": only_the_first,
        "the end doesn't count here, so it would never stop": no_ends,
        "the user's end counts here: the model doesn't say that one": every_end,
        "each answer's first id is missing: it follows the opening": (
            first_words_missing
        ),
        "what doesn't count is -100; 0 is a token": zeros,
        "what doesn't count keeps its place, as -100": left_out,
    }
    praise = "each answer and its end, one place early"
    return Exercise(right, cases, mistakes, praise)


@check
def only_adapters() -> Exercise:
    """`answer(names)`: which parameters learn: A and B of adapters."""

    def right(names: list) -> list[str]:
        return [name for name in names if name.endswith((".A", ".B"))]

    def all_learn(names: list) -> list[str]:
        return list(names)

    def only_a(names: list) -> list[str]:
        return [name for name in names if name.endswith(".A")]

    def only_b(names: list) -> list[str]:
        return [name for name in names if name.endswith(".B")]

    def only_wrapped_frozen(names: list) -> list[str]:
        return [name for name in names if ".layer." not in name]

    def the_frozen(names: list) -> list[str]:
        return [name for name in names if not name.endswith((".A", ".B"))]

    def capital_letters(names: list) -> list[str]:
        return [name for name in names if "A" in name or "B" in name]

    def without_the_point(names: list) -> list[str]:
        return [name for name in names if name.endswith(("A", "B"))]

    def a_part_of_the_name(names: list) -> list[str]:
        return [name for name in names if {"A", "B"} & {*name.split(".")}]

    def by_layers(names: list) -> list[str]:
        return sorted(right(names), key=lambda name: name[-1])

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
    odd = ["B.weight", "tower.A.layer.bias", "tower.A.A", "tower.A.B", "to_A", "RGB"]
    mistakes = {
        "everything learns: the base must be frozen": all_learn,
        "B is frozen, too: both learn": only_a,
        "A is frozen, too: both learn": only_b,
        "only the wrapped layers are frozen: the rest of the model is base, too": (
            only_wrapped_frozen
        ),
        "these are those that must not learn": the_frozen,
        "a name with an A or B in it is no adapter: its last part is A or B": (
            capital_letters
        ),
        "a name that ends with an A or B is no adapter: its last part is that alone": (
            without_the_point
        ),
        "only the last part of a name says which parameter it is": a_part_of_the_name,
        "keep the order of the names": by_layers,
    }
    praise = "the base stands still, A and B learn"
    return Exercise(right, [(small,), (large,), (odd,)], mistakes, praise)


@check
def choice() -> Exercise:
    """`answer(logs, by_length)`: the number of the likeliest of several answers.

    `logs` are for each answer its tokens' log-probabilities; `by_length`, the mean of
    a token counts, and else their sum.
    """

    def right(logs: list, by_length: bool) -> int:
        scores = []
        for answer_logs in logs:
            score = sum(answer_logs)
            if by_length:
                score = score / len(answer_logs)
            scores.append(score)
        return scores.index(max(scores))

    def always_sums(logs: list, by_length: bool) -> int:
        return right(logs, False)

    def always_means(logs: list, by_length: bool) -> int:
        return right(logs, True)

    def exchanged(logs: list, by_length: bool) -> int:
        return right(logs, not by_length)

    def least_likely(logs: list, by_length: bool) -> int:
        turned = [[-x for x in answer_logs] for answer_logs in logs]
        return right(turned, by_length)

    def first_token(logs: list, by_length: bool) -> int:
        return right([answer_logs[:1] for answer_logs in logs], by_length)

    def last_token(logs: list, by_length: bool) -> int:
        return right([answer_logs[-1:] for answer_logs in logs], by_length)

    def counted_from_1(logs: list, by_length: bool) -> int:
        return right(logs, by_length) + 1

    def the_score(logs: list, by_length: bool) -> float:
        i = right(logs, by_length)
        return sum(logs[i]) / (len(logs[i]) if by_length else 1)

    def shortest(logs: list, by_length: bool) -> int:
        lengths = [len(answer_logs) for answer_logs in logs]
        return lengths.index(min(lengths))

    def probabilities(logs: list, by_length: bool) -> int:
        scores = []
        for answer_logs in logs:
            score = float(torch.tensor(answer_logs).exp().sum())
            scores.append(score / (len(answer_logs) if by_length else 1))
        return scores.index(max(scores))

    logs = [[-2.5, -0.5], [-0.75, -0.75, -0.75, -1.0], [-4.0], [-0.5, -3.5, -0.25]]
    more = [[-1.0, -9.0], [-0.25, -6.0, -0.5], [-3.0, -2.0, -4.0, -0.125, -0.125]]
    third = [[-5.0, -1.0], [-5.5], [-1.0, -4.0, -2.0]]
    cases = [(x, by) for x in (logs, more, third) for by in (False, True)]
    mistakes = {
        "by_length is passed over: then divide by the number of tokens": always_sums,
        "it divides always: only where by_length says so": always_means,
        "by_length is read the other way round": exchanged,
        "this is the least likely: logarithms are below 0, and more is likelier": (
            least_likely
        ),
        "only the first token counts here": first_token,
        "only the last token counts here": last_token,
        "answers are counted from 0": counted_from_1,
        "this is the score: give the number of the answer": the_score,
        "this is the shortest": shortest,
        "probabilities of tokens are multiplied, so add their logarithms": (
            probabilities
        ),
    }
    praise = "the likeliest answer, by its sum or its mean"
    return Exercise(right, cases, mistakes, praise)
