"""A talk: the same as read anew, whoever stops it; and in a terminal."""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import torch

from companion import chat, generate
from companion.chat import SYSTEM, Talk, sampler


@pytest.fixture
def read(loaded):
    """All tokens that the model reads, in order."""
    tokens = []
    note = loaded[0].register_forward_pre_hook(
        lambda _, x: tokens.extend(*x[0].tolist())
    )
    yield tokens
    note.remove()


def heard(talk: Talk, text: str, n: int = 25) -> str:
    return "".join(talk.answer(text, n))


def closed(tokenizer, said: list) -> list[int]:
    """The tokens of a talk whose last turn has ended."""
    return tokenizer.chat(said)[: -len(tokenizer.chat([]))]


def test_each_token_of_a_talk_is_read_once_and_answered_as_if_anew(loaded, read):
    model, tokenizer = loaded
    talk, said = Talk(model, tokenizer), [("system", SYSTEM)]
    for text, word in (
        ("What is the capital of France?", "Paris"),
        ("And of Italy?", "Rome"),
    ):
        answer = heard(talk, text)
        assert word in answer
        said.append(("user", text))
        prompt = tokenizer.chat(said)
        said.append(("assistant", answer))
        assert read + talk.unread == closed(tokenizer, said)
    new = list(generate(model, torch.tensor(prompt), 25, end=tokenizer.end))
    assert tokenizer.decode(new) == answer and new[-1] == tokenizer.end


def test_who_stops_listening_leaves_a_whole_talk(loaded, read):
    talk, tokenizer = Talk(*loaded), loaded[1]
    listening = talk.answer("Count from one to fifty.")
    begun = "".join(next(listening) for _ in range(3))
    listening.close()
    said = [("user", "Count from one to fifty."), ("assistant", begun)]
    assert read + talk.unread == closed(tokenizer, [("system", SYSTEM), *said])


def test_a_talk_begins_anew(loaded):
    talk = Talk(*loaded)
    first = heard(talk, "Who are you?", 8)
    heard(talk, "Are you sure?", 4)
    talk.reset()
    assert heard(talk, "Who are you?", 8) == first


def test_a_talk_longer_than_its_window_goes_on(loaded):
    talk = Talk(*loaded, window=32)
    for _ in range(3):
        words = heard(talk, "Tell me about the sea.", 12)
    assert len(talk.cache) > 32 and words
    assert talk.cache.kept[0][0].shape[-2] == 36


def test_at_a_temperature_the_seed_decides(loaded):
    texts = [
        heard(Talk(*loaded, sampler(1.5, seed)), "Tell me a story.", 8)
        for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("options", ["--temperature -1", "--window 0"])
def test_bad_options_end_the_command_with_one_line(options, loaded, monkeypatch):
    monkeypatch.setattr(chat, "load_smollm2", lambda: loaded)
    monkeypatch.setattr(chat, "pack_weights", lambda model: model)
    with pytest.raises(SystemExit, match=r"^error: \w+ is .*; it must be"):
        chat.main(options.split())


class Terminal:
    """`make chat`'s command in a pseudo-terminal."""

    def __init__(self):
        import pty

        self.end, other = pty.openpty()
        command = [sys.executable, "-m", "companion", "chat", "--temperature", "0"]
        streams = {"stdin": other, "stdout": other, "stderr": other}
        self.process = subprocess.Popen(command, **streams, start_new_session=True)
        os.close(other)
        self.seen = ""

    def wait_for(self, words: str, limit: float = 120) -> None:
        """Read until `words` have come; what came before them is dropped."""
        stop = time.monotonic() + limit
        while words not in self.seen:
            ready, _, _ = select.select([self.end], [], [], stop - time.monotonic())
            assert ready, f"no {words!r} in {self.seen!r}"
            self.seen += os.read(self.end, 4096).decode(errors="replace")
        self.seen = self.seen.partition(words)[2]

    def interrupt(self, words: str) -> None:
        """Press Ctrl-C until `words` come: just before `input` reads, one is lost."""
        for _ in range(40):
            self.process.send_signal(signal.SIGINT)
            with suppress(AssertionError):
                return self.wait_for(words, limit=3)
        pytest.fail(f"no {words!r} in {self.seen!r}")

    def say(self, words: bytes) -> None:
        os.write(self.end, words)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo-terminals")
def test_a_talk_in_a_terminal():
    terminal = Terminal()
    try:
        terminal.wait_for("loads")
        terminal.wait_for("> ")
        terminal.say(b"/help\n")
        terminal.wait_for("Ctrl-D ends the talk.")
        terminal.wait_for("> ")
        terminal.say(b"What is the capital of France?\n")
        terminal.wait_for("Paris")
        terminal.wait_for("> ")
        terminal.say(b"Count from one to one hundred, in words.\n")
        terminal.wait_for("words.\r\n")
        terminal.wait_for(" ")  # the answer has begun
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for(" ...\r\n> ")
        terminal.say(b"/reset\n")
        terminal.wait_for("begins anew")
        terminal.wait_for("> ")
        terminal.interrupt("Ctrl-D ends the talk.")
        terminal.say(b"\x04")
        assert terminal.process.wait(20) == 0
    finally:
        terminal.process.kill()
        os.close(terminal.end)
