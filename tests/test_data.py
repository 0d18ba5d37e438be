"""Data: two sources, one hash, and a cache that can't be wrong unnoticed."""

import hashlib
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from companion import batches, data, split, tiny_shakespeare
from companion.data import SHAKESPEARE, fetch, play_lines, read

GOOD = b"To be, or not to be, that is the question.\n" * 20


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An artifact that nobody offers yet; `at_url` and `in_wheel` put it there."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    source = tmp_path / "source.txt"
    artifact = replace(
        SHAKESPEARE,
        name="a question",
        path=tmp_path / "cache" / "question.txt",
        sha256=hashlib.sha256(GOOD).hexdigest(),
        url=source.as_uri(),
        wheel="question==1.0",
        rebuild=lambda wheel: wheel.read("question/text.txt"),
    )

    def in_wheel(content: bytes, member: str = "question/text.txt") -> None:
        with zipfile.ZipFile(wheels / "question-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(member, content)
            info = "question-1.0.dist-info"
            head = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{info}/WHEEL", head)
            head = "Metadata-Version: 2.1\nName: question\nVersion: 1.0\n"
            wheel.writestr(f"{info}/METADATA", head)
            wheel.writestr(f"{info}/RECORD", "")

    def in_cache(content: bytes) -> None:
        artifact.path.parent.mkdir()
        artifact.path.write_bytes(content)

    return SimpleNamespace(
        artifact=artifact,
        at_url=source.write_bytes,
        in_wheel=in_wheel,
        in_cache=in_cache,
        files=lambda: [p.name for p in artifact.path.parent.glob("*")],
    )


def test_the_first_source_is_enough_when_its_hash_is_right(place, capsys):
    place.at_url(GOOD)
    fetch(place.artifact)
    assert read(place.artifact) == GOOD
    assert place.files() == ["question.txt"]
    assert f"{len(GOOD)} bytes, from file://" in capsys.readouterr().out


def test_the_first_source_is_preferred_to_the_second(place, capsys):
    place.at_url(GOOD)
    place.in_wheel(GOOD)
    fetch(place.artifact)
    assert "from file://" in capsys.readouterr().out


@pytest.mark.parametrize("first", [None, GOOD[:-1], b"<html>not found</html>"])
def test_the_second_source_is_tried_when_the_first_is_missing_or_wrong(
    place, capsys, first
):
    if first:
        place.at_url(first)
    place.in_wheel(GOOD)
    fetch(place.artifact)
    assert read(place.artifact) == GOOD
    assert place.files() == ["question.txt"]
    assert "from question==1.0" in capsys.readouterr().out


def test_without_a_source_the_error_says_all_that_is_needed_by_hand(place):
    with pytest.raises(OSError) as error:
        fetch(place.artifact)
    a = place.artifact
    for detail in (a.name, a.sha256, a.url, a.wheel, str(a.path)):
        assert detail in str(error.value)
    assert place.files() == []


@pytest.mark.parametrize("member", ["question/text.txt", "question/renamed.txt"])
def test_two_wrong_sources_are_both_explained_and_leave_nothing(place, member):
    place.at_url(b"wrong 1")
    place.in_wheel(b"wrong 22", member)
    with pytest.raises(OSError) as error:
        fetch(place.artifact)
    assert f"7 bytes with SHA-256 {hashlib.sha256(b'wrong 1').hexdigest()}" in str(
        error.value
    )
    second = f"8 bytes with SHA-256 {hashlib.sha256(b'wrong 22').hexdigest()}"
    assert (second if member.endswith("text.txt") else "text.txt") in str(error.value)
    assert place.files() == []


@pytest.mark.parametrize("damaged", [b"", GOOD[:-1], GOOD.replace(b"not", b"now", 1)])
def test_a_damaged_file_is_noticed_by_read_and_replaced_by_fetch(
    place, capsys, damaged
):
    place.in_cache(damaged)
    with pytest.raises(ValueError, match=f"{len(damaged)} bytes .*SHA-256"):
        read(place.artifact)
    place.at_url(GOOD)
    old = place.artifact.path.stat().st_ino
    fetch(place.artifact)
    assert read(place.artifact) == GOOD
    assert place.files() == ["question.txt"]
    assert "truncated or altered" in capsys.readouterr().out
    assert place.artifact.path.stat().st_ino != old, "replaced, not written over"


def test_a_good_file_is_not_fetched_again(place):
    place.in_cache(GOOD)
    before = place.artifact.path.stat()
    fetch(place.artifact)
    after = place.artifact.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_missing_file_is_named_by_read_and_not_fetched(place):
    place.at_url(GOOD)
    with pytest.raises(FileNotFoundError, match="question.txt.*-m companion"):
        read(place.artifact)
    assert not place.artifact.path.exists()


def test_the_command_ends_with_an_error_where_a_file_cannot_be_had(place, monkeypatch):
    monkeypatch.setattr(data, "ARTIFACTS", (place.artifact,))
    with pytest.raises(SystemExit, match="error: a question could not be had"):
        data.main()
    place.at_url(GOOD)
    data.main()
    assert read(place.artifact) == GOOD


def test_the_lines_of_a_play_are_speakers_and_speech_without_directions():
    markdown = """# ACT I

## Scene 1

_Enter HAMLET, and
others._

**HAMLET**

  To be, \\[or\\] not to be, _aside_ that
is it.
"""
    expected = ["", "HAMLET:", "To be, [or] not to be,  that", "is it."]
    assert list(play_lines(markdown)) == expected


def test_tiny_shakespeare_has_its_published_size():
    text = tiny_shakespeare()
    assert len(text) == 1_115_394
    assert len(set(text)) == 65
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me")


def test_the_split_is_in_order_and_has_the_known_sizes():
    tokens = torch.arange(1_115_394)
    training, validation = split(tokens)
    assert (len(training), len(validation)) == (1_003_854, 111_540)
    assert torch.equal(torch.cat([training, validation]), tokens)


@pytest.mark.parametrize("fraction", [0.0, 0.05, 1.0, 1.5])
def test_a_split_with_an_empty_part_is_refused(fraction):
    with pytest.raises(ValueError, match=f"{fraction} of 10 tokens"):
        split(torch.arange(10), fraction)


def test_targets_are_the_inputs_one_token_later():
    tokens = torch.randint(100, (50,), generator=seeded())
    windows = tokens.unfold(0, 8, 1).tolist()
    how = {"batch_size": 3, "context_length": 7, "n_steps": 5}
    drawn = list(batches(tokens, **how, generator=seeded()))
    assert len(drawn) == 5
    for inputs, targets in drawn:
        assert inputs.shape == targets.shape == (3, 7)
        for x, y in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert x[1:] == y[:-1]
            assert [*x, y[-1]] in windows


def test_every_window_is_drawn_about_equally_often_from_the_first_to_the_last():
    how = {"batch_size": 4000, "context_length": 3, "n_steps": 1}
    ((inputs, targets),) = batches(torch.arange(7), **how, generator=seeded())
    counts = torch.bincount(inputs[:, 0]).tolist()
    assert len(counts) == 4
    assert all(abs(n - 1000) < 150 for n in counts)
    assert targets.max() == 6


def test_the_same_generator_draws_the_same_batches():
    def draw(seed):
        how = {"batch_size": 2, "context_length": 4, "n_steps": 3}
        drawn = batches(torch.arange(100), **how, generator=seeded(seed))
        return torch.stack([inputs for inputs, _ in drawn])

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_the_generator_decides_and_the_global_seed_does_not():
    def draw(seed):
        torch.manual_seed(seed)
        how = {"batch_size": 9, "context_length": 4, "n_steps": 1}
        return next(iter(batches(torch.arange(100), **how, generator=seeded())))[0]

    assert torch.equal(draw(1), draw(2))


def test_a_text_too_short_for_one_window_is_refused_at_once():
    how = {"batch_size": 1, "n_steps": 1}
    with pytest.raises(ValueError, match=r"\(8\) .*9 tokens.* 8$"):
        batches(torch.arange(8), context_length=8, **how)
    ((inputs, targets),) = batches(torch.arange(9), context_length=8, **how)
    assert targets.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
