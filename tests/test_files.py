"""Files: whole or not at all, and signals that wait for it."""

import os
import signal
import sys
import time

import pytest
from limits import POSIX, files_of_at_most, handler

from companion.files import check_writable, locked, write_atomically
from companion.interrupts import deferred_interrupts, interrupts_put_off

STOPS = [signal.SIGINT, signal.SIGTERM]


def test_a_file_is_made_with_its_folders_and_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    for data in (b"one", b"", b"other"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert [x.name for x in path.parent.iterdir()] == ["file"]


@POSIX
def test_a_full_disk_leaves_the_old_file_and_no_part(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with files_of_at_most(1000), pytest.raises(OSError):
        write_atomically(path, bytes(5000))
    assert [x.name for x in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


@POSIX
def test_what_can_not_be_written_is_named_by_its_own_path(tmp_path):
    (tmp_path / "file").touch()
    for path, n_bytes in ((tmp_path / "new", 1000), (tmp_path / "file" / "below", 99)):
        with files_of_at_most(n_bytes), pytest.raises(OSError) as error:
            write_atomically(path, bytes(5000))
        assert str(error.value).endswith(f": '{path}'") and error.value.errno


@POSIX
@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_leads_to_is_written(tmp_path, there):
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if there:
        target.write_bytes(b"old")
    link.symlink_to("folder/target")
    check_writable(link)
    write_atomically(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    assert [x.name for x in target.parent.iterdir()] == ["target"]


@POSIX
def test_permissions_are_those_of_the_old_file_or_of_any_new_one(tmp_path):
    path, plain = tmp_path / "file", tmp_path / "plain"
    plain.touch()
    write_atomically(path, b"1")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    write_atomically(path, b"2")
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("write", [check_writable, lambda p: write_atomically(p, b"")])
def test_what_is_no_file_is_left_alone(tmp_path, write):
    with pytest.raises(OSError, match="is a folder or a device"):
        write(tmp_path)
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="is a folder or a device"):
            write(tmp_path / "pipe")
        assert (tmp_path / "pipe").is_fifo()


def test_what_can_not_be_written_is_said_before_and_nothing_is_left(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="can't be written .*: give another path"):
        check_writable(tmp_path / "file" / "below")
    with pytest.raises(OSError, match="can't be written .*: give another path"):
        check_writable(tmp_path / ("x" * 256))
    check_writable(tmp_path / "new" / "file")
    assert {x.name for x in tmp_path.iterdir()} == {"file", "new"}
    assert not any((tmp_path / "new").iterdir())


def test_a_long_name_is_as_good_as_any(tmp_path):
    path = tmp_path / ("ä" * 127)
    check_writable(path)
    write_atomically(path, b"1")
    assert path.read_bytes() == b"1"


@pytest.mark.parametrize("number", STOPS)
def test_what_is_put_off_takes_its_course_afterwards_and_once(number):
    heard = []
    with handler(number, lambda number, frame: heard.append(number)):
        with interrupts_put_off():
            for _ in range(3):
                signal.raise_signal(number)
            assert heard == []
        assert heard == [number]
        signal.raise_signal(number)
        assert heard == [number] * 2


def test_ctrl_c_that_is_put_off_is_raised_when_the_work_is_done():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts_put_off():
            signal.raise_signal(signal.SIGINT)
            done.append(1)
        done.append(2)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize("context", [deferred_interrupts, interrupts_put_off])
def test_what_was_ignored_at_the_start_stays_ignored(context, number):
    with handler(number, signal.SIG_IGN), context() as interrupted:
        signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_IGN
        assert not interrupted or not interrupted()


def test_a_loop_within_a_loop_ends_both():
    with deferred_interrupts(99) as outer:
        with deferred_interrupts(99) as inner, interrupts_put_off():
            signal.raise_signal(signal.SIGINT)
            assert not inner()
        assert inner() and outer()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loop_s_ctrl_c_is_done_with_and_sigterm_is_not():
    heard = []
    with handler(signal.SIGTERM, lambda number, frame: heard.append(number)):
        with deferred_interrupts(99) as interrupted:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            assert interrupted() and heard == []
        assert heard == [signal.SIGTERM]


def test_pressed_again_when_patience_is_over_it_is_raised_at_once():
    with pytest.raises(KeyboardInterrupt), deferred_interrupts(0):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_lock_is_left_to_whom_it_belongs(tmp_path, monkeypatch):
    """One is held for longer than 5 s, and another process takes it over."""
    path = tmp_path / "file"
    lock = tmp_path / "file.lock"
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with locked(path):
        first = lock.read_text()
        with locked(path):
            assert lock.read_text() != first
        lock.write_text("a third one's")
    assert lock.read_text() == "a third one's"


def test_locks_that_others_hold_in_turn_are_waited_for(tmp_path, monkeypatch):
    """However long it takes: none of them has died."""
    path = tmp_path / "file"
    lock = tmp_path / "file.lock"
    lock.write_text("0")
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) % 60 == 0:
            lock.write_text(str(len(waits)))
        if len(waits) == 300:
            lock.unlink()

    monkeypatch.setattr(time, "sleep", wait)
    with locked(path):
        assert len(waits) == 300
    assert not lock.exists()
