"""`tune`: from a file of lines to an adapter; refused, stopped, and gone on with."""

import json
import os
import random
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from common import shaken
from ctrl_c import press_twice, step_in, stopping
from limits import POSIX, files_of_at_most
from published import byte_tokenizer

from companion import GPT, GPTConfig
from companion.commands import chat, tune
from companion.commands.talks_file import HeldOut, Line, read_talks
from companion.commands.tune import Options
from companion.decoding.sampling import greedy
from companion.pretrained.adapter_files import load_adapter, save_adapter
from companion.pretrained.lora import add_adapters, merge_adapters
from companion.training.loop import next_token_loss
from companion.training.resumable import half_precision

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
    monkeypatch.setattr(chat, "load_smollm2", lambda **_: (tiny(), byte_tokenizer()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


PAIRS = [(f"{letter}?", letter.upper()) for letter in "abcdefghijkl"]
OTHERS = [(f"{question}!", answer) for question, answer in PAIRS]


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


def run_of(data):
    return data.with_name("pairs.adapter.safetensors.run")


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
    checkpoint = run_of(data)
    assert step_in(checkpoint) == step
    assert not adapter_of(data).exists()

    command(data, "--steps", "12")
    assert f"goes on after step {step}" in capsys.readouterr().out
    assert adapter_of(data).read_bytes() == straight.read_bytes()
    assert not checkpoint.exists()


def test_a_checkpoint_of_other_settings_or_data_is_refused_and_stays(data):
    with stopping(2), pytest.raises(SystemExit):
        command(data, "--steps", "12")
    checkpoint = run_of(data)
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
        (
            '{"question": "a", "answer": "b", "system": "You are a pirate."}',
            "line 3: 'system' beside answer, question would not be read: say it in the",
        ),
        (
            '{"question": "a", "answer": "b", "id": 1, "context": "c"}',
            "line 3: 'context', 'id' beside answer, question would not be read",
        ),
        (
            '{"turns": ["a", "b"], "question": "c"}',
            "line 3: 'question' beside turns would not be read: .* leave it out",
        ),
        ('{"turns": ["a", "b"], "system": ""}', "line 3: 'system' beside turns would"),
        ('{"question": "a", "question": "c", "answer": "b"}', "has 'question' twice"),
        ('{"question": "a", "answer": "\\ud83d"}', "its answer .* half a character"),
        ("[" * 100_000, "line 3: it is no JSON .*recursion"),
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
    write(data, [(f"{i} {question}", x) for i in range(9000) for question, x in PAIRS])
    command(data, "--steps", "1")
    said = capsys.readouterr().out
    assert "107,936 talks to learn from, 64 held out; 1 steps of 8" in said
    assert "each is seen 0.0 times" in said


def test_talks_of_several_turns_are_learned_from(data, capsys):
    lines = [json.dumps({"turns": ["a", "b", f"c{i}", "d"]}) for i in range(12)]
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
    tuning = SimpleNamespace(model=tiny(), device="cpu", is_half=False)
    line = Line(3, [("user", "Is it?"), ("assistant", "No.")])
    tune.say_examples(tuning, tokenizer, [HeldOut(line, {0})])
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


# What is judged is learned nowhere.


def question_and_answer(question, answer):
    return {"question": question, "answer": answer}


def varied(chance):
    """Talks about thirty questions, each in some forms that teach one another."""
    talks = []
    for i in range(30):
        question, answer = f"What is {i}?", f"It is {i}."
        forms = [
            question_and_answer(question, answer),
            question_and_answer(f"  what is  {i}?", answer),
            question_and_answer(question, f"It is not {i}."),
            {"turns": [question, answer]},
            {"turns": ["Hello!", "Hello.", question, answer]},
            {"turns": [question, answer, f"And {i}, really?", "Yes."]},
            {"turns": ["Hello!", "Hello.", "Thanks!", "You are welcome."]},
        ]
        talks += chance.choices(forms, k=chance.randint(1, 4))
    chance.shuffle(talks)
    return talks


class Begun(Exception):
    pass


@pytest.fixture
def begun(monkeypatch):
    """What a run is given: the talks to learn from and those held out."""
    given = []

    def note(model, talks, held_out, *rest):
        given.append((talks, held_out))
        raise Begun

    monkeypatch.setattr(tune, "Tuning", note)
    return given


@pytest.mark.parametrize("seed", range(8))
def test_no_answer_that_is_judged_is_learned(seed, data, begun):
    talks = varied(random.Random(seed))
    data.write_text("\n".join(map(json.dumps, talks)))
    with pytest.raises(Begun):
        command(data, "--seed", str(seed))
    ((learned, held_out),) = begun
    assert len(learned) >= len(talks) / 2 and held_out

    # Each answer that is learned, by what was said before it, and by its question.
    start, end = byte_tokenizer().chat([("user", "")])[0], byte_tokenizer().end
    known_before, known_pairs = set(), set()

    def answers(tokens, targets):
        """Gives an answer's beginning, what stands before it, and its question."""
        whole = [*tokens, targets[-1]]
        starts = [i for i, x in enumerate(whole) if x == start]
        said = []
        for a, b in zip(starts, [*starts[1:], len(whole)], strict=True):
            turn = whole[a:b]
            text = bytes(x for x in turn if x < 256).decode()
            role, _, words = text.partition("\n")
            said.append(" ".join(words.lower().split()))
            if role == "assistant":
                yield targets[b - 3] != -100, tuple(said[:-1]), tuple(said[-2:])

    for talk in learned:
        for _, before, pair in answers(*talk):
            known_before.add(before)
            known_pairs.add(pair)
    for talk in held_out:
        judged = [x for x in answers(*talk) if x[0]]
        assert judged
        for _, before, pair in judged:
            assert before not in known_before and pair not in known_pairs
    assert end in held_out[0][1]


@pytest.mark.parametrize("times", [2, 50])
def test_a_file_of_few_questions_written_often_is_refused(times, data):
    write(data, PAIRS[:9] * times)
    words = f"has 9 questions of their own in {9 * times} talks; it takes 10 or more"
    with pytest.raises(SystemExit, match=f"{words}.*: write more that differ"):
        command(data)


def test_lines_written_twice_are_held_out_together(data, capsys, begun):
    write(data, [(f"{i}?", str(i)) for i in range(20)] * 2)
    with pytest.raises(Begun):
        command(data)
    ((learned, held_out),) = begun
    assert (len(learned), len(held_out)) == (36, 2)
    assert not any(talk in learned for talk in held_out)


# Its surroundings: paths, pipes, another run, a disk, a second Ctrl-C.


@POSIX
def test_talks_from_a_pipe_are_read_once_and_known_again(data, tmp_path, capsys):
    pipe, adapter, straight = (tmp_path / x for x in ("pipe", "adapter", "straight"))
    os.mkfifo(pipe)
    words = ["--steps", "6", "--adapter", str(adapter)]
    command(data, "--steps", "6", "--adapter", str(straight))

    def piped(pairs):
        source = write(tmp_path / "source", pairs).read_bytes()
        writer = threading.Thread(target=pipe.write_bytes, args=(source,))
        writer.start()
        try:
            command(pipe, *words)
        finally:
            writer.join()

    with stopping(2), pytest.raises(SystemExit):
        piped(PAIRS)
    with pytest.raises(SystemExit, match="is of another tune: data is"):
        piped(PAIRS[1:])
    piped(PAIRS)
    assert adapter.read_bytes() == straight.read_bytes()


def test_of_two_runs_into_one_file_the_later_to_end_keeps_its_steps(data, tmp_path):
    """The other begins and ends before the first has written anything."""
    other = write(tmp_path / "other.jsonl", OTHERS)
    alone, straight = tmp_path / "alone", tmp_path / "straight"
    command(data, "--steps", "3", "--adapter", str(straight))
    command(other, "--steps", "3", "--adapter", str(alone))
    words = ["--steps", "3", "--adapter", str(adapter_of(data))]

    message = "written by another run meanwhile: move it elsewhere, and run it again"
    with stopping(1, lambda: command(other, *words)):
        with pytest.raises(SystemExit, match=f"{message} to go on after step 3"):
            command(data, *words)
    assert adapter_of(data).read_bytes() == alone.read_bytes()

    adapter_of(data).unlink()
    command(data, *words)
    assert adapter_of(data).read_bytes() == straight.read_bytes()


def test_of_two_runs_into_one_file_one_stops_and_the_other_is_whole(data, tmp_path):
    """The other saves a step while the first is in its own."""
    other = write(tmp_path / "other.jsonl", OTHERS)
    alone = tmp_path / "alone"
    words = ["--steps", "3", "--adapter", str(adapter_of(data))]
    command(other, "--steps", "3", "--adapter", str(alone))

    def stopped():
        with stopping(1), pytest.raises(SystemExit):
            command(other, *words)

    with stopping(1, stopped):
        with pytest.raises(SystemExit, match="another run has written to .*data is"):
            command(data, *words)
    command(other, *words)
    assert adapter_of(data).read_bytes() == alone.read_bytes()


def test_the_same_run_started_twice_ends_as_one(data, tmp_path):
    straight = tmp_path / "straight"
    words = ["--steps", "3", "--adapter"]
    command(data, *words, str(straight))

    def stopped():
        with stopping(2), pytest.raises(SystemExit):
            command(data, *words, str(adapter_of(data)))

    with stopping(1, stopped), pytest.raises(SystemExit, match="130"):
        command(data, *words, str(adapter_of(data)))  # its Ctrl-C reaches this one, too
    command(data, *words, str(adapter_of(data)))
    assert adapter_of(data).read_bytes() == straight.read_bytes()


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "it needs a file of talks: make tune data=questions.jsonl"),
        (["--data", ""], "it needs a file of talks: make tune data=questions.jsonl"),
        (["--data", "."], r"error: \. is a folder"),
        (["--data", "/"], "error: / is a folder"),
        (["--data", ".."], r"error: \.\. is a folder"),
        (["--data", "FOLDER"], "is a folder or a device; give the path of a file"),
        (["--data", "DATA", "--adapter", ""], "--adapter is ''; give|--adapter is ''"),
        (["--data", "DATA", "--adapter", "."], r"\. is a folder; give the path of the"),
        (["--data", "DATA", "--adapter", "/"], "/ is a folder; give the path of the"),
        (["--data", "DATA", "--adapter", "FOLDER"], "is a folder; give the path of"),
        (["--data", "DATA", "--adapter", "DATA"], "is there already: give another"),
        (["--data", "DATA", "--adapter", "DATA/x"], "can't be written .*another path"),
        (["--data", "DATA", "--adapter", "LONG"], "can't be written .*another path"),
        (["--data", "DATA", "--seed", "1.5"], "invalid int value: '1.5'"),
    ],
)
def test_what_is_no_file_ends_it_with_one_line_before_anything_is_loaded(
    words, message, data, monkeypatch, capsys
):
    monkeypatch.setattr(tune, "load_smollm2", lambda: pytest.fail("loads"))
    long = data.with_name("x" * 253)  # what it goes on from would be longer
    for name, path in (("FOLDER", data.parent), ("DATA", data), ("LONG", long)):
        words = [word.replace(name, str(path)) for word in words]
    before = {*data.parent.iterdir()}
    with pytest.raises(SystemExit) as end:
        tune.main(words)
    said = capsys.readouterr()
    assert re.search(message, f"{end.value.code}\n{said.err}")
    assert said.out == "" and {*data.parent.iterdir()} == before


@POSIX
def test_a_device_is_no_file_of_talks():
    for path in ("/dev/null", "/dev/zero"):
        with pytest.raises(ValueError, match=f"{path} is a folder or a device"):
            read_talks(Path(path))


@pytest.mark.parametrize("name", ["seed", "batch", "rank", "window", "steps"])
@pytest.mark.parametrize("value", [1.5, "8", True, -1])
def test_options_of_a_wrong_type_are_refused_when_they_are_made(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}; it must be"):
        Options(**{name: value})


@pytest.mark.parametrize("rate", ["0.1", None, True, float("nan"), 0, 2])
def test_a_rate_is_a_number_above_0(rate):
    with pytest.raises(ValueError, match="rate is .*; it must be above 0"):
        Options(rate=rate)


def test_numpy_s_numbers_are_as_good_as_any(data):
    options = Options(steps=np.int64(1), seed=np.int32(0), rate=np.float32(0.5))
    assert options == Options(steps=1, seed=0, rate=0.5)
    tune.tune(str(data), str(adapter_of(data)), options)
    assert adapter_of(data).exists()


def test_a_device_that_is_not_there_and_a_second_process_are_refused(data, monkeypatch):
    monkeypatch.setattr(tune, "load_smollm2", lambda: pytest.fail("loads"))
    with pytest.raises(ValueError, match="device is 'gpu', not in"):
        tune.tune(data, adapter_of(data), Options(), device="gpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="2 processes would write one adapter"):
        command(data)


@POSIX
@pytest.mark.parametrize("step", [3, 12])
def test_a_disk_that_fills_up_keeps_the_last_steps_and_says_which(step, data, tmp_path):
    """In the middle of the steps, and where the adapter itself has no room."""
    straight = tmp_path / "straight"
    command(data, "--steps", "12", "--adapter", str(straight))
    with stopping(step) if step < 12 else stopping(99):
        if step < 12:
            with pytest.raises(SystemExit):
                command(data, "--steps", "12")
    what = "step 4"
    n_bytes = 1000
    if step == 12:
        what = "the adapter"
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(tune, "save_adapter", lambda *_: press_twice())
            patch.setattr(tune, "PATIENCE", 0)
            command(data, "--steps", "12")
    before = run_of(data).read_bytes()
    with files_of_at_most(n_bytes), pytest.raises(SystemExit) as end:
        command(data, "--steps", "12")
    assert f"{what} can't be saved (File too large): run it again" in end.value.code
    assert f"after step {step}, from {run_of(data)}" in end.value.code
    assert run_of(data).read_bytes() == before and not adapter_of(data).exists()

    command(data, "--steps", "12")
    assert adapter_of(data).read_bytes() == straight.read_bytes()


@POSIX
def test_a_disk_that_is_full_is_found_by_the_first_step(data):
    before = {*data.parent.iterdir()}
    with files_of_at_most(1000), pytest.raises(SystemExit) as end:
        command(data, "--steps", "12")
    assert "error: step 1 can't be saved (File too large): no step" in end.value.code
    assert {*data.parent.iterdir()} == before


def test_a_step_that_a_second_ctrl_c_breaks_off_is_told_with_what_is_kept(
    data, tmp_path, capsys, monkeypatch
):
    straight = tmp_path / "straight"
    command(data, "--steps", "4", "--adapter", str(straight))
    capsys.readouterr()
    monkeypatch.setattr(tune, "PATIENCE", 0)
    stops = [
        (1, "stopped: no step is whole, and there is no checkpoint in "),
        (3, "stopped: run it again to go on after step 1, from "),
        (2, "stopped: run it again to go on after step 2, from "),
    ]
    for step, words in stops:
        with stopping(step, press_twice), pytest.raises(SystemExit) as end:
            command(data, "--steps", "4")
        assert end.value.code == 130
        assert capsys.readouterr().out.splitlines()[-1].startswith(words)
    command(data, "--steps", "4")
    assert adapter_of(data).read_bytes() == straight.read_bytes()


def test_a_second_ctrl_c_before_and_after_the_steps_has_its_words(
    data, capsys, monkeypatch
):
    monkeypatch.setattr(tune, "PATIENCE", 0)

    def stopped(name, words):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
            patch.setattr(tune, name, lambda *_: press_twice())
            command(data, "--steps", "2")
        assert end.value.code == 130
        assert words in capsys.readouterr().out.splitlines()[-1]

    stopped("read_talks", "stopped: nothing has changed")
    stopped("load_smollm2", "stopped: no step is whole, and there is no checkpoint")
    stopped("judge", "stopped: no step is whole, and there is no checkpoint in")
    stopped("say_examples", f"stopped: the adapter is whole, in {adapter_of(data)}")


@pytest.mark.parametrize("tied", [False, True])
def test_frozen_layers_rounded_once_change_no_number_of_a_step(tied):
    """Against autocast, which rounds them at every use; to the bit."""
    tokens = torch.randint(258, (3, 9), generator=torch.Generator().manual_seed(0))
    found = []
    for is_halved in (False, True):
        model = shaken(GPT(replace(CONFIG, tie_embeddings=tied)), 0.15)
        add_adapters(model, rank=2, alpha=4, generator=torch.Generator().manual_seed(0))
        embedding = model.embedding.weight.clone()
        if is_halved:
            tune.halve_frozen(model)
        learning = [x for x in model.parameters() if x.requires_grad]
        optimizer = torch.optim.AdamW(learning, 0.01)
        with half_precision("cpu"):
            for _ in range(3):
                loss = next_token_loss(model(tokens[:, :-1]), tokens[:, 1:])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        found.append([loss, *(x.grad for x in learning)])
        assert torch.equal(model.embedding.weight, embedding)
        halved = [x for x in model.parameters() if x.dtype == torch.bfloat16]
        n_frozen = 7 * CONFIG.n_layers + (not tied)
        assert len(halved) == is_halved * n_frozen
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
