"""Dates as people write them, and what they mean: the task of chapter 08.

Everything is drawn from a generator. Days and forms are split, so that a model is
judged by days it has never seen, written in ways that the training never put together.
"""

import datetime
import itertools

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
PATTERNS = (
    "{d} {March} {y}|{th} of {March}, {y}|the {th} of {March} {y}|{th} {March} {y}"
    "|{March} {d}, {y}|{March} {th}, {y}|{March} the {th}, {y}|{y}, {March} {d}"
    "|{d} {March} {yy}|{Mar} {d} {yy}|{Mar}. {d}, '{yy}|{d} {Mar} {y}|{d}-{Mar}-{yy}"
    "|{dd}-{Mar}-{y}|{Mar} {th} {y}|{dd}/{mm}/{y}|{d}/{m}/{y}|{d}/{m}/{yy}"
    "|{dd}.{mm}.{y}|{d}.{m}.{yy}|{dd}-{mm}-{y}|{y}/{mm}/{dd}|{y}.{m}.{d}|{y}{mm}{dd}"
    "|{d} {III} {y}|{d}.{III}.{y}|{d}/{III}/{yy}"
).split("|")
PREFIXES = ("", "{Wed} ", "{Wednesday}, ")
CASES = (str, str.upper, str.lower)
# Two digits of a year are enough within one hundred of them.
FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
DAYS = [*map(datetime.date.fromordinal, range(FIRST.toordinal(), LAST.toordinal() + 1))]
TEST_DAYS = [day for day in DAYS if day.toordinal() * 7919 % 10_007 < 1000]
TRAINING_DAYS = [day for day in DAYS if day.toordinal() * 7919 % 10_007 >= 1000]
BEGIN, END = "^$"  # around the target
ALPHABET = CharTokenizer(
    BEGIN + END + "0123456789 ,.'/-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)


def ordinal(day: int) -> str:
    """1st, 2nd, 3rd, 4th, ... 11th, ... 21st."""
    ending = "th" if day // 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def write(day: datetime.date, form: tuple, slip=lambda name: name) -> str:
    """The day in one of FORMS; `slip` may misspell the long names."""
    prefix, pattern, case = form
    weekday, month = WEEKDAYS[day.weekday()], MONTHS[day.month - 1]
    parts = {"d": day.day, "dd": f"{day.day:02}", "th": ordinal(day.day)}
    parts |= {"m": day.month, "mm": f"{day.month:02}", "III": ROMAN[day.month - 1]}
    parts |= {"March": slip(month), "Mar": month[:3]}
    parts |= {"y": day.year, "yy": f"{day.year % 100:02}"}
    parts |= {"Wed": weekday[:3], "Wednesday": slip(weekday)}
    return case((prefix + pattern).format(**parts))


# A form is a pattern, a weekday before it or none, and upper or lower case; those that
# write a day alike are one (of a day that shows a 0 before both its numbers). Every
# fifth is kept for the test, though all its parts occur in other forms.
ALL = itertools.product(PREFIXES, PATTERNS, CASES)
FORMS = [*{write(datetime.date(1954, 3, 2), form): form for form in ALL}.values()]
TEST_FORMS = FORMS[::5]
TRAINING_FORMS = [form for form in FORMS if form not in TEST_FORMS]


def pick(options, generator: torch.Generator):
    """One of the options, each as likely as the others."""
    return options[torch.randint(len(options), (), generator=generator)]


def misspell(name: str, generator: torch.Generator) -> str:
    """A name with two letters swapped, one left out, or one doubled."""
    i = int(torch.randint(len(name) - 1, (), generator=generator))
    a, b = name[i : i + 2]
    return name[:i] + pick((b + a, b, a + a + b), generator) + name[i + 2 :]


def dates(n: int, generator: torch.Generator, *, test=False, slips=0.1) -> list[tuple]:
    """`n` random dates, (as somebody wrote it, ISO 8601), between 1950 and 2049.

    Of three numbers the day comes first, unless the year does. With probability `slips`
    a long name has two letters swapped, one left out or one doubled. `test` draws from
    days and forms that are never drawn without it.
    """
    check_whole(0, n=n)
    check_between(0, 1, slips=slips)

    def slip(name: str) -> str:
        if len(name) < 4 or torch.rand((), generator=generator) >= slips:
            return name
        return misspell(name, generator)

    days, forms = (TEST_DAYS, TEST_FORMS) if test else (TRAINING_DAYS, TRAINING_FORMS)
    drawn = [pick(days, generator) for _ in range(n)]
    return [(write(d, pick(forms, generator), slip), d.isoformat()) for d in drawn]


def pad(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Tokens (b s), padded at the end with token 0, and their lengths (b)."""
    rows = [torch.tensor(ALPHABET.encode(text), dtype=torch.long) for text in texts]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return padded, torch.tensor([len(row) for row in rows])


def date_batches(batch_size: int, n_steps: int, generator: torch.Generator):
    """source (b s), target (b t), lengths (b), and the target one character later."""
    check_whole(batch_size=batch_size)
    check_whole(0, n_steps=n_steps)

    def draw():
        for _ in range(n_steps):
            written, iso = zip(*dates(batch_size, generator), strict=True)
            source, lengths = pad(written)
            target, _ = pad([BEGIN + day + END for day in iso])
            yield source, target[:, :-1], lengths, target[:, 1:]

    return draw()
