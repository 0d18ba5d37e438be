"""Dates: what is written means what stands beside it, and the test is unseen."""

import datetime
import itertools
import re

import pytest
import torch
from common import seeded
from dateutil import parser

from companion import dates
from companion.text.dates import (
    ALPHABET,
    DAYS,
    FORMS,
    ROMAN,
    TEST_DAYS,
    TEST_FORMS,
    TRAINING_DAYS,
    TRAINING_FORMS,
    date_batches,
    misspell,
    ordinal,
    pad,
    write,
)


def test_dateutil_reads_the_same_day():
    """All but years of two digits, whose century dateutil takes from today's date."""
    for form, day in itertools.product(FORMS, DAYS[5::6001]):
        if "yy" in form.pattern:
            continue
        year_first = form.pattern.startswith("{y}")
        text = write(day, form).lower().replace("the ", "")
        if "III" in form.pattern:
            after_weekday = text.upper().split(",")[-1]
            roman = re.search(rf"\b({'|'.join(ROMAN)})\b", after_weekday)[1]
            number = str(1 + ROMAN.index(roman))
            text = re.sub(rf"\b{roman.lower()}\b", number, text)
        read = parser.parse(text, dayfirst=not year_first, yearfirst=year_first)
        assert read.date() == day, form


def test_every_form_writes_every_day_differently():
    for form in FORMS:
        assert len({write(day, form) for day in DAYS[::31]}) == len(DAYS[::31])


def test_no_text_means_two_days():
    meaning = {}
    for day in DAYS[::41]:
        for form in FORMS:
            assert meaning.setdefault(write(day, form), day) == day


def test_training_and_test_share_no_day_and_no_form_but_all_their_parts():
    assert not set(TRAINING_DAYS) & set(TEST_DAYS)
    assert len(TRAINING_DAYS) + len(TEST_DAYS) == len(DAYS) == 36525
    assert 0.08 < len(TEST_DAYS) / len(DAYS) < 0.12
    assert not set(TRAINING_FORMS) & set(TEST_FORMS)
    written = {write(datetime.date(2044, 6, 7), form) for form in FORMS}
    assert len(written) == len(TRAINING_FORMS) + len(TEST_FORMS)
    for parts in zip(*TEST_FORMS, strict=True):
        assert set(parts) <= {part for form in TRAINING_FORMS for part in form}
    trained = {iso for _, iso in dates(3000, seeded())}
    tested = {iso for _, iso in dates(3000, seeded(1), test=True)}
    assert not trained & tested


def test_the_same_generator_draws_the_same_dates():
    assert dates(50, seeded(3)) == dates(50, seeded(3)) != dates(50, seeded(4))


def test_slips_spoil_letters_alone_and_never_digits():
    clean, slipped = (dates(500, seeded(1), slips=p) for p in (0.0, 1.0))

    def digits(text):
        return re.sub(r"[^0-9]", "", text)

    n_spoilt = 0
    for text, iso in slipped:
        day = datetime.date.fromisoformat(iso)
        right = {write(day, form) for form in TRAINING_FORMS}
        assert digits(text) in {digits(expected) for expected in right}
        n_spoilt += text not in right
    assert n_spoilt > 200
    assert all(
        any(text == write(datetime.date.fromisoformat(iso), f) for f in TRAINING_FORMS)
        for text, iso in clean
    )


def test_ordinals():
    written = "1st 2nd 3rd 4th 11th 12th 13th 20th 21st 22nd 23rd 31st".split()
    assert [ordinal(int(word[:-2])) for word in written] == written


def test_dates_that_one_would_write_by_hand():
    for text, iso in (
        ("3rd of March, 1999", "1999-03-03"),
        ("Mar 3 99", "1999-03-03"),
        ("04/03/1999", "1999-03-04"),
        ("4 III 1999", "1999-03-04"),
        ("Thursday, 4 March 1999", "1999-03-04"),
        ("THU 4.3.99", "1999-03-04"),
    ):
        day = datetime.date.fromisoformat(iso)
        assert text in {write(day, form) for form in FORMS}


def test_bad_numbers_are_refused_at_once():
    for call in (
        lambda: dates(-1, seeded()),
        lambda: dates(1, seeded(), slips=1.5),
        lambda: date_batches(0, 1, seeded()),
        lambda: date_batches(1, -1, seeded()),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()


def test_a_batch_is_padded_and_shifted_and_says_its_lengths():
    ((source, target, lengths, right),) = date_batches(20, 1, seeded())
    assert source.shape == (20, lengths.max()) and target.shape == right.shape
    assert torch.equal(target[:, 1:], right[:, :-1])
    pairs = dates(20, seeded())
    for row, n, out, (text, iso) in zip(source, lengths, right, pairs, strict=True):
        assert ALPHABET.decode(row[:n]) == text and not row[n:].any()
        assert ALPHABET.decode(out) == iso + "$"
    assert (target[:, 0] == ALPHABET.encode("^")[0]).all()


def test_padding_is_at_the_end_and_an_unknown_character_is_named():
    padded, lengths = pad(["1 May", "12 June"])
    assert padded.shape == (2, 7) and lengths.tolist() == [5, 7]
    with pytest.raises(ValueError, match="é"):
        pad(["1 mé"])


@pytest.mark.parametrize("name", ["Saturday", "ab"])
def test_a_slip_swaps_leaves_out_or_doubles_one_letter(name):
    slips = set()
    for i in range(len(name) - 1):
        before, (a, b), after = name[:i], name[i : i + 2], name[i + 2 :]
        slips |= {before + x + after for x in (b + a, b, a + a + b)}
    drawn = [misspell(name, generator) for generator in [seeded()] for _ in range(400)]
    assert set(drawn) == slips
