"""Right and wrong answers to the exercises of chapter 14."""

import itertools
import math
import re
import statistics

import numpy as np
import torch

from companion.course import checks

from .wrong import Wrong

wrong = Wrong()


def trainable_in_a_loop(shapes, rank):
    n = 0
    for n_in, n_out in shapes:
        n += torch.empty(rank, n_in).numel() + torch.empty(n_out, rank).numel()
    return n


def merged_by_columns(weight, a, b, alpha):
    """What the layer does to each unit vector, side by side."""
    columns = []
    for unit in torch.eye(weight.shape[1]):
        columns.append(weight @ unit + alpha / a.shape[0] * (b @ (a @ unit)))
    return torch.stack(columns, 1)


def merged_by_einsum(weight, a, b, alpha):
    product = torch.einsum("or,ri->oi", b, a)
    return torch.add(weight, product, alpha=alpha / b.size(1))


def targets_by_pairs(turns):
    flags = []
    for speaker, opening, text in turns:
        flags += [(i, False) for i in opening]
        flags += [(i, speaker == "assistant") for i in text]
    return [i if counts else -100 for i, counts in flags[1:]]


def targets_by_arrays(turns):
    ids = np.concatenate([[*opening, *text] for _, opening, text in turns])
    counts = np.concatenate(
        [[0] * len(o) + [s == "assistant"] * len(t) for s, o, t in turns]
    )
    return np.where(counts, ids, -100)[1:].tolist()


def lazy_targets(turns):
    parts = (
        itertools.chain(
            (-100 for _ in opening),
            (i if speaker == "assistant" else -100 for i in text),
        )
        for speaker, opening, text in turns
    )
    return list(itertools.islice(itertools.chain.from_iterable(parts), 1, None))


def counted(is_counted):
    """Targets of a talk where `is_counted(speaker, is_text, is_end)` says which."""

    def answer(turns):
        targets = []
        for speaker, opening, text in turns:
            for i in opening:
                targets.append(i if is_counted(speaker, False, False) else -100)
            for place, i in enumerate(text, 1):
                counts = is_counted(speaker, True, place == len(text))
                targets.append(i if counts else -100)
        return targets[1:]

    return answer


def adapters_in_a_loop(names):
    learning = []
    for name in names:
        *_, last = name.split(".")
        if last == "A" or last == "B":
            learning.append(name)
    return learning


def those(test):
    return lambda names: [name for name in names if test(name)]


def choice_by_numpy(logs, by_length):
    score = np.mean if by_length else np.sum
    return int(np.argmax([score(x) for x in logs]))


def choice_by_products(logs, by_length):
    """The probability of the whole, or its geometric mean."""
    best = -1.0
    place = None
    for i, x in enumerate(logs):
        probability = math.prod(map(math.exp, x))
        if by_length:
            probability **= 1 / len(x)
        if probability > best:
            best, place = probability, i
    return place


def by(score):
    return lambda logs, by_length: max(
        range(len(logs)), key=lambda i: score(logs[i], by_length)
    )


def plain(x, by_length):
    return statistics.fmean(x) if by_length else sum(x)


@wrong(checks.choice, "this is the longest")
def longest_by_length(logs, by_length):
    scores = [len(each) if by_length else sum(each) for each in logs]
    return max(range(len(logs)), key=scores.__getitem__)


RIGHT = [
    (checks.trainable, trainable_in_a_loop),
    (checks.trainable, lambda s, r: r * sum(map(sum, s))),
    (checks.trainable, lambda s, r: int(r * np.array(s).sum())),
    (checks.merged, merged_by_columns),
    (checks.merged, merged_by_einsum),
    (checks.merged, lambda w, a, b, c: w + (b * (c / len(a))).matmul(a)),
    (checks.answers_alone, targets_by_pairs),
    (checks.answers_alone, targets_by_arrays),
    (checks.answers_alone, lazy_targets),
    (checks.answers_alone, counted(lambda who, text, end: text and who[0] == "a")),
    (checks.only_adapters, adapters_in_a_loop),
    (checks.only_adapters, lambda names: [x for x in names if x[-2:] in (".A", ".B")]),
    (checks.only_adapters, those(re.compile(r".*\.[AB]$").match)),
    (checks.choice, choice_by_numpy),
    (checks.choice, choice_by_products),
    (checks.choice, by(plain)),
]

WRONG = [
    *wrong,
    (checks.trainable, lambda s, r: sum(i * o for i, o in s), "frozen matrices"),
    (checks.trainable, lambda s, r: sum(r * i for i, o in s), "B is missing"),
    (checks.trainable, lambda s, r: sum(o * r for i, o in s), "A is missing"),
    (checks.trainable, lambda s, r: sum(2 * r * i for i, o in s), "as wide as the out"),
    (checks.trainable, lambda s, r: sum(i + o for i, o in s), "rank is missing"),
    (checks.trainable, lambda s, r: sum(r * i * o for i, o in s), "added up"),
    (checks.trainable, lambda s, r: r * sum(s[0]), "only the first layer|stops with"),
    (checks.trainable, lambda s, r: r * sum(map(sum, s)) + 1, "wanted"),
    (checks.trainable, lambda s, r: r * sum(map(sum, set(s))), "count each"),
    (checks.merged, lambda w, a, b, c: w + b @ a, "alpha / rank is missing"),
    (checks.merged, lambda w, a, b, c: w + c * b @ a, "the rank is missing"),
    (checks.merged, lambda w, a, b, c: w + b @ a / len(a), "alpha is missing"),
    (checks.merged, lambda w, a, b, c: c / len(a) * b @ a, "weight is missing"),
    (checks.merged, lambda w, a, b, c: w - c / len(a) * b @ a, "not taken away"),
    (checks.merged, lambda w, a, b, c: w + c / len(a) * a @ b, "stands on the right"),
    (checks.merged, lambda w, a, b, c: (w + c / len(a) * b @ a).T, "transposed"),
    (checks.merged, lambda w, a, b, c: w.add_(c / len(a) * b @ a), "its input"),
    (checks.merged, lambda w, a, b, c: w + c / len(w) * b @ a, "how many rows A has"),
    (checks.merged, lambda w, a, b, c: w + c * len(a) * b @ a, "not multiplied"),
    (checks.merged, lambda w, a, b, c: w + c / len(a) ** 0.5 * b @ a, "not by its roo"),
    (checks.merged, lambda w, a, b, c: w + c // len(a) * b @ a, "needn't be whole"),
    (checks.merged, lambda w, a, b, c: w + (c / len(a)) ** 2 * b @ a, "counts once"),
    (checks.merged, lambda w, a, b, c: b @ a, "weight and factor are missing"),
    (checks.merged, lambda w, a, b, c: c * (w + b @ a), "wanted"),
    (checks.answers_alone, counted(lambda who, text, end: True), "all ids count here"),
    (
        checks.answers_alone,
        counted(lambda who, text, end: text and who != "assistant"),
        "the user's texts count",
    ),
    (
        checks.answers_alone,
        counted(lambda who, text, end: text and not end and who == "assistant"),
        "would never stop",
    ),
    (
        checks.answers_alone,
        counted(lambda who, text, end: end or text and who == "assistant"),
        "the user's end counts",
    ),
    (
        checks.answers_alone,
        counted(lambda who, text, end: who == "assistant"),
        "an opening is given",
    ),
    (
        checks.answers_alone,
        counted(lambda who, text, end: text and who != "user"),
        "the system's texts count",
    ),
    (checks.answers_alone, counted(lambda who, text, end: text), "texts count here, t"),
    (
        checks.answers_alone,
        counted(lambda who, text, end: end and who == "assistant"),
        "only the ends count",
    ),
    (
        checks.answers_alone,
        counted(lambda who, text, end: who == "Assistant"),
        "nothing counts here",
    ),
    (
        checks.answers_alone,
        lambda t: [i for _, *x in t for i in sum(x, [])],
        "nothing is left out here",
    ),
    (
        checks.answers_alone,
        lambda t: [i for _, *x in t for i in sum(x, [])][:-1],
        "left out or shifted",
    ),
    (checks.answers_alone, lambda t: targets_by_pairs(t)[:-1], "missing at the end"),
    (checks.answers_alone, lambda t: targets_by_pairs(t)[1:], "missing in front"),
    (
        checks.answers_alone,
        lambda t: [*targets_by_pairs(t)[1:], -100],
        "shifted by two",
    ),
    (
        checks.answers_alone,
        lambda t: targets_by_pairs([(who, [], text) for who, _, text in t]),
        "keeps its places",
    ),
    (
        checks.answers_alone,
        lambda t: [max(i, -1) for i in targets_by_pairs(t)],
        "-1 isn't",
    ),
    (checks.answers_alone, lambda t: [*targets_by_pairs(t), -100], "last id has no"),
    (
        checks.answers_alone,
        lambda t: [-100, *targets_by_pairs(t)],
        "target is the next one",
    ),
    (checks.answers_alone, lambda t: [-100, *targets_by_pairs(t)[:-1]], "not shifted"),
    (
        checks.answers_alone,
        lambda t: [max(i, 0) for i in targets_by_pairs(t)],
        "0 is a token",
    ),
    (
        checks.answers_alone,
        lambda t: [i for i in targets_by_pairs(t) if i >= 0],
        "keeps its place",
    ),
    (checks.answers_alone, lambda t: targets_by_pairs(t)[::-1], "wanted"),
    (
        checks.answers_alone,
        lambda t: sum((targets_by_arrays([turn]) for turn in t), []),
        "the whole talk once",
    ),
    (checks.only_adapters, those(lambda x: True), "everything learns"),
    (checks.only_adapters, those(lambda x: ".layer" not in x), "only the wrapped lay"),
    (checks.only_adapters, those(lambda x: x[-2:] not in (".A", ".B")), "must not"),
    (checks.only_adapters, those(lambda x: x.endswith(".A")), "B is frozen"),
    (checks.only_adapters, those(lambda x: x.endswith(".B")), "A is frozen"),
    (checks.only_adapters, those(lambda x: "B" in x or "A" in x), "last part is A or"),
    (checks.only_adapters, those(lambda x: x[-1] in "AB"), "that alone"),
    (checks.only_adapters, those(lambda x: x.split(".")[-1] in "AB"), "neither A nor"),
    (checks.only_adapters, lambda n: adapters_in_a_loop(n)[::-1], "wanted"),
    (checks.only_adapters, lambda n: len(adapters_in_a_loop(n)), "wanted"),
    (checks.choice, by(lambda x, by_length: sum(x)), "by_length is passed over"),
    (checks.choice, by(lambda x, by_length: sum(x) / len(x)), "divides always"),
    (checks.choice, by(lambda x, by_length: plain(x, not by_length)), "other way"),
    (checks.choice, by(lambda x, by_length: -plain(x, by_length)), "least likely"),
    (
        checks.choice,
        by(lambda x, by: sum(x) / max(1, len(x) - 1) if by else sum(x)),
        "one less",
    ),
    (checks.choice, by(lambda x, by_length: x[0]), "first token"),
    (checks.choice, by(lambda x, by_length: x[-1]), "last token"),
    (checks.choice, by(lambda x, by_length: -len(x)), "the shortest"),
    (checks.choice, lambda x, by: choice_by_numpy(x, by) + 1, "counted from 0"),
    (checks.choice, lambda x, by: max(plain(y, by) for y in x), "this is the score"),
    (
        checks.choice,
        by(lambda x, by: plain([math.exp(y) for y in x], by)),
        "add their logarithms",
    ),
]
