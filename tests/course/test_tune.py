"""`tune`: from a file of lines to an adapter; refused, stopped, and gone on with."""

import json
import re
import signal
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from common import byte_tokenizer, shaken
from torch.optim.optimizer import register_optimizer_step_pre_hook

from companion import GPT, GPTConfig
from companion.course import chat, tune
from companion.course.tune import Options, read_talks
from companion.decoding.sampling import greedy
from companion.pretrained.lora import (
    add_adapters,
    load_adapter,
    merge_adapters,
    save_adapter,
)
from companion.training.checkpoints import read_checkpoint

CONFIG = GPTConfig(
    d_vocab=258,
    context_length=1024,
    d_model=32,
    n_heads=2,
    n_layers=2,
    positions="rotary",
    norm="rms",
    feed_forward="gated",
    bias=False,
    tie_embeddings=False,
)


def tiny() -> GPT:
    return shaken(GPT(CONFIG), 0.15)


@pytest.fixture(autouse=True)
def a_tiny_model(monkeypatch):
    monkeypatch.setattr(tune, "load_smollm2", lambda: (tiny(), byte_tokenizer()))
    monkeypatch.setattr(chat, "load_smollm2", lambda: (tiny(), byte_tokenizer()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


PAIRS = [(f"{letter}?", letter.upper()) for letter in "abcdefghijkl"]


def write(path, pairs):
    lines = [json.dumps({"question": q, "answer": a}) for q, a in pairs]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "pairs.jsonl", PAIRS)


def command(data, *words):
    tune.main(["--data", str(data), *words])


def adapter_of(data):
    return data.with_name("pairs.adapter.safetensors")


def test_an_adapter_learns_the_answers_and_the_chat_gives_them(data, capsys, tmp_path):
    command(data, "--steps", "120", "--rate", "0.02")
    said = capsys.readouterr()
    assert "11 talks to learn from, 1 held out; 120 steps of 8" in said.out
    assert re.search(r"about \d+ seconds for the 116 steps that are left", said.out)
    assert re.search(
        r"held out: \d\.\d\d nats a token before, \d\.\d\d now; 0 of 1", said.out
    )
    assert "120/120" in said.err
    assert {x.name for x in tmp_path.iterdir()} == {
        "pairs.jsonl",
        "pairs.adapter.safetensors",
    }

    # What it has learned from, it says: as one model, and in a talk.
    model = merge_adapters(load_adapter(adapter_of(data), tiny()))
    talk = chat.Talk(model, byte_tokenizer(), greedy, 100, system=None)
    answers = []
    for question, _ in PAIRS:
        talk.reset()
        answers.append("".join(talk.answer(question, 5)))
    n_right = sum(a == b for a, (_, b) in zip(answers, PAIRS, strict=True))
    assert n_right >= 9


@contextmanager
def stopping(step, number=signal.SIGINT):
    """Ctrl-C falls in the step of that number, counted from 1."""
    numbers = iter(range(1, 999))

    def press(*_):
        if next(numbers) == step:
            signal.raise_signal(number)

    hook = register_optimizer_step_pre_hook(press)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("step", [1, 7])
def test_stopped_and_gone_on_with_an_adapter_is_the_same_to_the_bit(
    step, data, tmp_path, capsys
):
    straight = tmp_path / "straight"
    command(data, "--steps", "12", "--adapter", str(straight))
    with stopping(step), pytest.raises(SystemExit) as end:
        command(data, "--steps", "12")
    assert end.value.code == 130
    said = capsys.readouterr().out
    assert f"stopped: run it again to go on after step {step}, from " in said
    checkpoint = adapter_of(data).with_name("pairs.adapter.safetensors.run")
    assert read_checkpoint(checkpoint)[1]["metadata"]["step"] == step
    assert not adapter_of(data).exists()

    command(data, "--steps", "12")
    assert f"goes on after step {step}" in capsys.readouterr().out
    assert adapter_of(data).read_bytes() == straight.read_bytes()
    assert not checkpoint.exists()


def test_a_checkpoint_of_other_settings_or_data_is_refused_and_stays(data):
    with stopping(2), pytest.raises(SystemExit):
        command(data, "--steps", "12")
    checkpoint = adapter_of(data).with_name("pairs.adapter.safetensors.run")
    before = checkpoint.read_bytes()
    for words in (["--steps", "13"], ["--steps", "12", "--rank", "4"]):
        with pytest.raises(SystemExit, match="error: .* is of another"):
            command(data, *words)
    write(data, PAIRS[1:])
    with pytest.raises(SystemExit, match="is of another tune: data is"):
        command(data, "--steps", "12")
    assert checkpoint.read_bytes() == before


def test_an_adapter_that_is_there_is_not_written_over(data):
    adapter_of(data).write_text("somebody's")
    with pytest.raises(SystemExit, match="is there already: give another path"):
        command(data)
    assert adapter_of(data).read_text() == "somebody's"


GOOD = json.dumps({"question": "a", "answer": "b"})


@pytest.mark.parametrize(
    "line, words",
    [
        ('{"question": "a", "answer": }', "line 3: it is no JSON .*Expecting value"),
        ("[1, 2]", "line 3: it is \\[1, 2\\]; write"),
        ('{"question": "a"}', "line 3: it has the keys"),
        ('{"question": "a", "answer": " "}', "line 3: its answer is empty"),
        ('{"question": "", "answer": "b"}', "line 3: its question is empty"),
        ('{"question": "a", "answer": 7}', "line 3: its turns are .* must be texts"),
        ('{"turns": ["a", "b", "c"]}', "line 3: it has 3 turns; a talk ends with an"),
        ('{"turns": []}', "line 3: it has 0 turns"),
        ('{"turns": "ab"}', "line 3: its turns are 'ab'"),
        (json.dumps({"question": "a" * 250, "answer": "b"}), "line 3: it has 2.. tok"),
    ],
)
def test_a_line_that_is_no_talk_is_named_in_one_line(line, words, data):
    data.write_text("\n".join([GOOD, "", line, *[GOOD] * 20]), "utf-8")
    before = {x.name for x in data.parent.iterdir()}
    with pytest.raises(SystemExit, match=words) as end:
        command(data, "--window", "200")
    assert str(end.value.code).count("\n") == 0
    assert str(end.value.code).startswith(f"error: {data}, line 3: ")
    assert {x.name for x in data.parent.iterdir()} == before


def test_bytes_that_are_no_text_are_named_and_a_mark_at_the_start_is_not(data):
    data.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([GOOD.encode()] * 12))
    assert [line.number for line in read_talks(data)] == [*range(1, 13)]
    data.write_bytes(b"\n".join([GOOD.encode()] * 12 + [b'{"question": "caf\xe9"}']))
    with pytest.raises(SystemExit, match="line 13: it is no UTF-8: save"):
        command(data)


def test_the_file_on_the_site_is_read():
    path = Path(__file__).parents[2] / "docs" / "_static" / "times.jsonl"
    lines = read_talks(path)
    assert len(lines) == 100
    for line in lines:
        (_, question), (_, answer) = line.messages
        assert question.startswith("Write as HH:MM: ")
        assert re.fullmatch(r"[012]\d:[0-5]\d", answer)


def test_the_chat_refuses_an_adapter_of_another_model_and_a_missing_one(data):
    other = add_adapters(shaken(GPT(CONFIG), 0.15, seed=1))
    save_adapter(adapter_of(data), other)
    with pytest.raises(SystemExit, match="error: .* was made for another model"):
        chat.main(["--adapter", str(adapter_of(data))])
    with pytest.raises(SystemExit, match="error: .*No such file"):
        chat.main(["--adapter", str(data.with_name("nothing"))])


def test_no_file_and_too_few_talks_and_wrong_options_end_it_with_one_line(data):
    with pytest.raises(SystemExit, match="No such file or directory.*nowhere"):
        command(data.with_name("nowhere"))
    with pytest.raises(SystemExit, match="error: "):
        command(data.parent)
    for words, message in (
        ("--steps 0", "steps is 0"),
        ("--rate 2", "rate is 2.0"),
        ("--rank -1", "rank is -1"),
        ("--window 100000", "window is 100000"),
    ):
        with pytest.raises(SystemExit, match=f"error: {message}"):
            command(data, *words.split())
    write(data, PAIRS[:3])
    with pytest.raises(SystemExit, match="has 3 talks; it takes 10 or more"):
        command(data)


def test_a_hundred_thousand_talks_are_read_and_the_share_that_is_seen_is_said(
    data, capsys
):
    write(data, PAIRS * 9000)
    command(data, "--steps", "1")
    said = capsys.readouterr().out
    assert "107,936 talks to learn from, 64 held out; 1 steps of 8" in said
    assert "each is seen 0.0 times" in said


def test_talks_of_several_turns_are_learned_from(data, capsys):
    lines = [json.dumps({"turns": ["a", "b", "c", "d"]})] * 12
    data.write_text("\n".join(lines))
    command(data, "--steps", "60", "--rate", "0.02")
    assert "1 of 1 answers" not in capsys.readouterr().out.split(" now;")[0]
    assert adapter_of(data).exists()


def test_judged_in_one_pass_an_answer_is_given_exactly_where_greedy_gives_it(data):
    model, tokenizer = tiny(), byte_tokenizer()
    pairs = []
    for question in "abcdefgh":
        talk = chat.Talk(model, tokenizer, greedy, 100, system=None)
        answer = "".join(talk.answer(question, 4))
        pairs.append((question, answer, talk.tokens))
    talks = []
    for question, _, tokens in pairs:
        opening = len(tokenizer.chat([("user", question)]))
        row = [*tokens[:-1]]
        targets = [-100] * (opening - 1) + tokens[opening:]
        talks.append((row, targets))
    assert tune.judge(model, talks, 3, "cpu").n_exact == 8
    row, targets = talks[2]
    talks[2] = (row, [*targets[:-1], (targets[-1] + 1) % 256])
    verdict = tune.judge(model, talks, 3, "cpu")
    assert verdict.n_exact == 7 and verdict.loss > 0


def test_a_shown_answer_is_over_with_any_special_token(monkeypatch, capsys):
    tokenizer = byte_tokenizer()
    start = tokenizer.special["<|im_start|>"]
    drawn = [*tokenizer.encode("Yes."), start, *tokenizer.encode("user")]
    monkeypatch.setattr(tune, "generate", lambda *_, **__: torch.tensor(drawn))
    tuning = SimpleNamespace(model=tiny(), device="cpu")
    line = tune.Line(3, [("user", "Is it?"), ("assistant", "No.")])
    tune.say_examples(tuning, tokenizer, [line])
    assert "'Is it?' -> 'Yes.'\n" in capsys.readouterr().out


def test_the_batches_are_rounds_in_which_each_talk_comes_once(data, tmp_path):
    talks = [([i], [i]) for i in range(7)]
    options = Options(steps=7, batch=3)
    run = tune.Tuning(tiny(), talks, [], options, tmp_path / "run", "digest", "cpu")
    seen = torch.cat([tokens[:, 0] for tokens, _, _ in run.batches()]).tolist()
    rounds = [seen[:7], seen[7:14], seen[14:]]
    assert len(seen) == 21 and all(sorted(x) == [*range(7)] for x in rounds)
    assert rounds[0] != rounds[1]
    run.step = 3
    later = torch.cat([tokens[:, 0] for tokens, _, _ in run.batches()]).tolist()
    assert later == seen[9:]
