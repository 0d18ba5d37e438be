"""A talk: the same as read anew, whoever stops it; and in a terminal."""

import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
import torch
from common import shaken
from ctrl_c import interrupted_at
from published import byte_header, byte_tokenizer
from torch import nn

from companion import GPT, GPTConfig, generate
from companion.commands import chat
from companion.commands.chat import SYSTEM, Talk, sampler
from companion.decoding import sampling
from companion.model import gpt, serving_caches
from companion.pretrained.adapter_files import save_adapter
from companion.pretrained.lora import adapters, add_adapters
from companion.pretrained.published_tokenizer import PublishedTokenizer
from companion.pretrained.smollm2 import load_smollm2
from companion.tensor_files import pack_tensors


@pytest.fixture
def read(smollm2_loaded):
    """All tokens that the model reads, in order."""
    tokens = []
    note = smollm2_loaded[0].register_forward_pre_hook(
        lambda _, x: tokens.extend(*x[0].tolist())
    )
    yield tokens
    note.remove()


def heard(talk: Talk, text: str, n: int = 25) -> str:
    return "".join(talk.answer(text, n))


def unread(talk: Talk) -> list[int]:
    """What the model reads next."""
    return talk.said()[len(talk.cache) :]


def closed(tokenizer, said: list) -> list[int]:
    """The tokens of a talk whose last turn has ended."""
    return tokenizer.chat(said)[: -len(tokenizer.chat([]))]


def test_each_token_of_a_talk_is_read_once_and_answered_as_if_anew(
    smollm2_loaded, read
):
    model, tokenizer = smollm2_loaded
    talk = Talk(model, tokenizer)
    said = [("system", SYSTEM)]
    for text, word in (
        ("What is the capital of France?", "Paris"),
        ("And of Italy?", "Rome"),
    ):
        answer = heard(talk, text)
        assert word in answer
        said.append(("user", text))
        prompt = tokenizer.chat(said)
        said.append(("assistant", answer))
        assert read + unread(talk) == closed(tokenizer, said)
    new = list(generate(model, torch.tensor(prompt), 25, end=tokenizer.end))
    assert tokenizer.decode(new) == answer and new[-1] == tokenizer.end


def test_who_stops_listening_leaves_a_whole_talk(smollm2_loaded, read):
    talk = Talk(*smollm2_loaded)
    tokenizer = talk.tokenizer
    listening = talk.answer("Count from one to fifty.")
    begun = "".join(next(listening) for _ in range(3))
    listening.close()
    said = [("user", "Count from one to fifty."), ("assistant", begun)]
    assert read + unread(talk) == closed(tokenizer, [("system", SYSTEM), *said])


def test_a_talk_begins_anew(smollm2_loaded):
    talk = Talk(*smollm2_loaded)
    first = heard(talk, "Who are you?", 8)
    heard(talk, "Are you sure?", 4)
    talk.reset()
    assert heard(talk, "Who are you?", 8) == first


def test_a_talk_longer_than_its_window_goes_on(smollm2_loaded):
    talk = Talk(*smollm2_loaded, window=32)
    for _ in range(3):
        words = heard(talk, "Tell me about the sea.", 12)
    assert len(talk.cache) > 32 and words
    assert talk.cache.layers[0][0].shape[-2] == 36


def test_at_a_temperature_the_seed_decides(smollm2_loaded):
    texts = [
        heard(Talk(*smollm2_loaded, sampler(1.5, seed)), "Tell me a story.", 8)
        for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


BAD = ["--temperature -1", "--temperature nan", "--seed 99999999999999999999"]
BAD += ["--window 0", "--window 16", "--window 10000000000"]


@pytest.mark.parametrize("options", BAD)
def test_bad_options_end_the_command_with_one_line(
    options, smollm2_loaded, monkeypatch
):
    monkeypatch.setattr(chat, "load_smollm2", lambda **_: smollm2_loaded)
    monkeypatch.setattr(chat, "pack_weights", lambda model: model)
    with pytest.raises(SystemExit, match=r"^error: \w+ is .*; it must be"):
        chat.main(options.split())


CONFIG = GPTConfig(
    d_vocab=258,
    context_length=1024,
    d_model=8,
    n_heads=2,
    n_layers=2,
    positions="rotary",
    tie_embeddings=False,
)
TINY = shaken(GPT(CONFIG), 0.5, 2).double()
TINY.unembedding.weight.data[257] *= -1.5  # so answers end soon
tiny_talk = partial(Talk, TINY, byte_tokenizer(), window=300)


def test_ctrl_c_at_any_instant_leaves_a_talk_that_goes_on():
    """What is answered next is what `generate` writes after all that was said."""
    for instant in count(1):
        talk = tiny_talk()
        listened = []
        with interrupted_at(instant, chat, gpt, sampling, serving_caches) as came:
            talk.reset()
            for piece in talk.answer("Hi.", 2):
                listened.append(piece)
        if not came:
            break
        said = talk.said()
        text = talk.tokenizer.decode(said).removesuffix("\n")
        assert text.endswith("".join(listened)) or len(listened) < 2
        heard(talk, "And?", 3)
        question = [*talk.turn("user", "And?"), *talk.tokenizer.chat([])]
        assert talk.tokens[: len(said) + len(question)] == [*said, *question]
        prompt = torch.tensor([*said, *question])
        new = generate(TINY, prompt, 3, end=talk.tokenizer.end)
        new = [int(token) for token in new]
        if new[-1] in talk.tokenizer.ends:
            new.pop()
        assert talk.tokens[len(prompt) :] == new
    assert instant > 50


@pytest.mark.parametrize("special", ["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
def test_an_answer_is_over_with_any_special_token(special):
    """What a model writes on behalf of the next speaker is none of its answer."""
    header = byte_header()
    header["tokenizer.ggml.tokens"].append("<|endoftext|>")
    header["tokenizer.ggml.token_type"].append(3)
    tokenizer = PublishedTokenizer(header)
    model = shaken(GPT(replace(CONFIG, d_vocab=259)))
    answer = [*tokenizer.encode("Yes."), tokenizer.special[special]]
    drawn = iter([*answer, *tokenizer.encode("user")])

    talk = Talk(model, tokenizer, lambda logits: torch.tensor([next(drawn)]), 300)
    assert heard(talk, "Is it?") == "Yes."
    said = [("system", SYSTEM), ("user", "Is it?"), ("assistant", "Yes.")]
    assert talk.said() == closed(tokenizer, said)


def converse(monkeypatch, capsys, typed: bytes, *options: str) -> str:
    """What the command prints, with the tiny model, to who types this."""
    monkeypatch.setattr(chat, "load_smollm2", lambda **_: (TINY, byte_tokenizer()))
    monkeypatch.setattr(chat, "pack_weights", lambda model: model)
    stdin = io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    chat.main(["--temperature", "0", "--window", "300", *options])
    return capsys.readouterr().out


def test_a_byte_that_is_no_character_and_the_lines_around_it_are_all_read(
    monkeypatch, capsys
):
    typed = b"caf\xe9\n/reset\n\xff\n/reset\nHi"
    printed = converse(monkeypatch, capsys, typed).split("> ")
    answers = [heard(tiny_talk(), text, 1000) for text in ("caf\ufffd", "\ufffd", "Hi")]
    assert [x.rstrip("\n") for x in printed[1::2]] == answers


def test_a_line_longer_than_the_window_is_refused_and_the_talk_goes_on(
    monkeypatch, capsys
):
    typed = b"Hi\n" + b"word " * 100 + b"\nAnd?\n"
    _, first, error, second, _ = converse(monkeypatch, capsys, typed).split("> ")
    talk = tiny_talk()
    assert first == heard(talk, "Hi", 1000) + "\n"
    assert error.startswith("error: this has 5") and error.count("\n") == 1
    assert second == heard(talk, "And?", 1000) + "\n"


def test_ctrl_c_while_it_loads_ends_it_without_a_traceback(monkeypatch):
    monkeypatch.setattr(
        chat, "load_smollm2", lambda **_: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(SystemExit) as ended:
        chat.main([])
    assert ended.value.code == 130


def test_ctrl_c_twice_leaves_an_answer_and_the_next_line_is_read(monkeypatch, capsys):
    """The first is only noted: until a pass ends, as usual, but it may be long."""
    passes = count()

    def press_twice(*_):
        if next(passes) == 0:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    hook = TINY.register_forward_pre_hook(press_twice)
    try:
        printed = converse(monkeypatch, capsys, b"Hi\nAnd?\n").split("> ")
    finally:
        hook.remove()
    talk = tiny_talk()
    next(talk.answer("Hi", 0), None)
    assert printed[1] == f"\n{chat.HELP}\n"
    assert printed[2] == heard(talk, "And?", 1000) + "\n"


def test_an_output_that_takes_no_more_ends_it_and_stays_silent(monkeypatch):
    """A pipe that nobody reads, without a word; a full disk, with one line."""
    reading, writing = os.pipe()
    os.close(reading)
    places = [(writing, "1")]
    if os.path.exists("/dev/full"):
        places.append((os.open("/dev/full", os.O_WRONLY), r"error: \[Errno 28\]"))
    for place, words in places:
        with open(place, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            with pytest.raises(SystemExit, match=words):
                converse(monkeypatch, None, b"Hi\n")
            print("goes nowhere", flush=True)


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_a_closed_stream_ends_it_with_one_line(stream, monkeypatch):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SystemExit, match="error: a talk needs a standard input and"):
        chat.main([])


class Terminal:
    """`make chat`'s command in a pseudo-terminal."""

    def __init__(self):
        import pty

        self.end, other = pty.openpty()
        command = [sys.executable, "-m", "companion", "chat", "--temperature", "0"]
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
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


@torch.no_grad()
def test_four_bits_leave_what_an_adapter_changes(monkeypatch, tmp_path):
    talks = []
    monkeypatch.setattr(chat, "talk_on", talks.append)
    model, tokenizer = load_smollm2()
    tokens = torch.tensor([tokenizer.encode("What time is it now?")])
    before = model(tokens)
    add_adapters(model, generator=torch.Generator().manual_seed(0))
    for adapter in adapters(model).values():
        adapter.B.normal_(std=0.03, generator=torch.Generator().manual_seed(1))
    changed = model(tokens)
    save_adapter(tmp_path / "adapter", model)

    chat.main(["--adapter", str(tmp_path / "adapter")])
    difference = talks[0].model(tokens) - changed
    assert difference.norm() < 0.5 * (changed - before).norm()


@pytest.mark.parametrize("content", [b"no adapter", None])
def test_an_adapter_that_can_not_be_used_ends_it_in_a_line(
    monkeypatch, tmp_path, content
):
    """Before the talk: of a file that is none, and of one with a rank of 0."""
    path = tmp_path / "adapter"
    if content is None:
        name = "blocks.0.attention.to_queries"
        tensors = {f"{name}.A": torch.ones(0, 576), f"{name}.B": torch.ones(576, 0)}
        about = {"adapter for": "x", "settings": None, "alphas": {name: 16}}
        content = pack_tensors(tensors, about)
    path.write_bytes(content)
    monkeypatch.setattr(chat, "load_smollm2", lambda **_: (nn.Module(), None))
    monkeypatch.setattr(chat, "talk_on", lambda talk: pytest.fail("it talks"))
    with pytest.raises(SystemExit) as stop:
        chat.main(["--adapter", str(path)])
    assert re.fullmatch(r"error: .*adapter.*", stop.value.code)
