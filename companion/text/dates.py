"""Dates as people write them, and what they mean: the task of chapter 08.

Everything is drawn from a generator. Days and forms are split, so that a model is
judged by days it has never seen, written in ways that the training never put together.
"""

import datetime
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..inputs import check_between, check_whole
from .tokenizers import CharTokenizer

MONTHS = (
    "January February March April May June July August September October November"
    " December"
).split()
ROMAN = "I II III IV V VI VII VIII IX X XI XII".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
# d: 3, dd: 03, th: 3rd; m, mm, March, Mar, III: the month; y: 1999, yy: 99
PATTERNS = [
    "{d} {March} {y}",
    "{th} of {March}, {y}",
    "the {th} of {March} {y}",
    "{th} {March} {y}",
    "{March} {d}, {y}",
    "{March} {th}, {y}",
    "{March} the {th}, {y}",
    "{y}, {March} {d}",
    "{d} {March} {yy}",
    "{Mar} {d} {yy}",
    "{Mar}. {d}, '{yy}",
    "{d} {Mar} {y}",
    "{d}-{Mar}-{yy}",
    "{dd}-{Mar}-{y}",
    "{Mar} {th} {y}",
    "{dd}/{mm}/{y}",
    "{d}/{m}/{y}",
    "{d}/{m}/{yy}",
    "{dd}.{mm}.{y}",
    "{d}.{m}.{yy}",
    "{dd}-{mm}-{y}",
    "{y}/{mm}/{dd}",
    "{y}.{m}.{d}",
    "{y}{mm}{dd}",
    "{d} {III} {y}",
    "{d}.{III}.{y}",
    "{d}/{III}/{yy}",
]
PREFIXES = ["", "{Wed} ", "{Wednesday}, "]
CASES: list[Callable[[str], str]] = [str, str.upper, str.lower]

# Two digits of a year are enough within one hundred of them.
FIRST_DAY = datetime.date(1950, 1, 1)
LAST_DAY = datetime.date(2049, 12, 31)
DAYS = [
    datetime.date.fromordinal(number)
    for number in range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1)
]


def is_test_day(day: datetime.date) -> bool:
    """Returns whether a day is kept for the test: about every tenth, well scattered."""
    return day.toordinal() * 7919 % 10_007 < 1000


TEST_DAYS = [day for day in DAYS if is_test_day(day)]
TRAINING_DAYS = [day for day in DAYS if not is_test_day(day)]

# The target stands between these two.
BEGIN = "^"
END = "$"
ALPHABET = CharTokenizer(
    BEGIN + END + "0123456789 ,.'/-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)


def ordinal(day: int) -> str:
    """Returns 1st, 2nd, 3rd, 4th, ... 11th, ... 21st."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    if day // 10 == 1:  # 11th, 12th, 13th
        return f"{day}th"
    return f"{day}{endings.get(day % 10, 'th')}"


class Form(NamedTuple):
    """How a day is written: one of PREFIXES, of PATTERNS and of CASES."""

    prefix: str
    pattern: str
    case: Callable[[str], str]


def write(
    day: datetime.date, form: Form, slip: Callable[[str], str] | None = None
) -> str:
    """Returns the day as the form writes it; `slip` may misspell the long names."""
    month = MONTHS[day.month - 1]
    weekday = WEEKDAYS[day.weekday()]
    long_month = month
    long_weekday = weekday
    if slip is not None:
        long_month = slip(month)
        long_weekday = slip(weekday)

    text = (form.prefix + form.pattern).format(
        d=day.day,
        dd=f"{day.day:02}",
        th=ordinal(day.day),
        m=day.month,
        mm=f"{day.month:02}",
        III=ROMAN[day.month - 1],
        March=long_month,
        Mar=month[:3],
        y=day.year,
        yy=f"{day.year % 100:02}",
        Wed=weekday[:3],
        Wednesday=long_weekday,
    )
    return form.case(text)


def different_forms() -> list[Form]:
    """Returns all forms; of those that write every day alike, the last.

    They are found by a day that shows a 0 before both its numbers.
    """
    day = datetime.date(1954, 3, 2)
    forms = {}
    for prefix, pattern, case in itertools.product(PREFIXES, PATTERNS, CASES):
        form = Form(prefix, pattern, case)
        forms[write(day, form)] = form
    return list(forms.values())


# Every fifth is kept for the test, though all its parts occur in other forms.
FORMS = different_forms()
TEST_FORMS = FORMS[::5]
TRAINING_FORMS = [form for form in FORMS if form not in TEST_FORMS]


def pick(options: Sequence[Any], generator: torch.Generator) -> Any:
    """Returns one of the options, each as likely as the others."""
    return options[int(torch.randint(len(options), (), generator=generator))]


def misspell(name: str, generator: torch.Generator) -> str:
    """Returns a name with two letters swapped, one left out, or one doubled."""
    i = int(torch.randint(len(name) - 1, (), generator=generator))
    a, b = name[i], name[i + 1]
    swapped = b + a
    left_out = b
    doubled = a + a + b
    return name[:i] + pick([swapped, left_out, doubled], generator) + name[i + 2 :]


def dates(
    n: int, generator: torch.Generator, *, test: bool = False, slips: float = 0.1
) -> list[tuple[str, str]]:
    """Draws `n` dates, (as somebody wrote it, ISO 8601), between 1950 and 2049.

    Of three numbers the day comes first, unless the year does. With probability `slips`
    a long name has two letters swapped, one left out or one doubled. `test` draws from
    days and forms that are never drawn without it. Chapter 08.
    """
    check_whole(0, n=n)
    check_between(0, 1, slips=slips)

    def slip(name: str) -> str:
        if len(name) < 4 or torch.rand((), generator=generator) >= slips:
            return name
        return misspell(name, generator)

    days = TEST_DAYS if test else TRAINING_DAYS
    forms = TEST_FORMS if test else TRAINING_FORMS
    pairs = []
    for day in [pick(days, generator) for _ in range(n)]:
        form = pick(forms, generator)
        pairs.append((write(day, form, slip), day.isoformat()))
    return pairs


def pad(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Returns tokens (b s), padded at the end with token 0, and their lengths (b)."""
    rows = [torch.tensor(ALPHABET.encode(text), dtype=torch.long) for text in texts]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return padded, lengths


def date_batches(
    batch_size: int, n_steps: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Draws `n_steps` batches of dates for the training of an encoder and decoder.

    Yields the source (b s), the target (b t), the source's lengths (b), and the target
    one character later (b t). Chapter 08.
    """
    check_whole(batch_size=batch_size)
    check_whole(0, n_steps=n_steps)

    def draw() -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        for _ in range(n_steps):
            texts, days = zip(*dates(batch_size, generator), strict=True)
            source, lengths = pad(texts)
            target, _ = pad([BEGIN + day + END for day in days])
            yield source, target[:, :-1], lengths, target[:, 1:]

    return draw()
