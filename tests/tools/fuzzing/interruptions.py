"""Ctrl-C, anywhere and often: steps, files, texts and pages are whole or not there."""

import io
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from itertools import takewhile
from pathlib import Path

import torch
from common import random_tokens, seeded
from ctrl_c import count_steps, interrupted_at, step_in
from published import byte_tokenizer

import companion as c
from companion.commands import chat
from companion.commands.chat import Talk
from companion.decoding import sampling, serving
from companion.model import cache, serving_caches
from companion.model import gpt as gpt_module
from companion.model.positions import POSITIONS

from .draws import config, everything, model, tokens, trained

# The modules in which Ctrl-C falls, and the files that write.
WATCHED = (cache, chat, gpt_module, sampling, serving, serving_caches)
WRITING = ("files.py", "pathlib.py")


def under_fire(draw: random.Random, seconds: float, call: Callable) -> bool:
    """Whether a call was interrupted by Ctrl-C, which hits it up to four times.

    The first falls within so many seconds, the others right after it.
    """
    waits = [draw.uniform(0, seconds)]
    waits += [draw.choice([0, 0.0002, 0.002]) for _ in range(draw.randint(0, 3))]

    def fire() -> None:
        for wait in waits:
            time.sleep(wait)
            os.kill(os.getpid(), signal.SIGINT)

    def target() -> None:
        call()

    def interrupt(number: int, frame) -> None:
        """Raise within the call, as often as it is hit, and never outside of it."""
        while frame is not None:
            if frame.f_code is target.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    before = signal.signal(signal.SIGINT, interrupt)
    # What falls into a destructor can't be raised; nor shall it be reported.
    report = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    thread = threading.Thread(target=fire)
    thread.start()
    was_interrupted = False
    try:
        target()
    except KeyboardInterrupt:
        was_interrupted = True
    thread.join()
    signal.signal(signal.SIGINT, before)
    sys.unraisablehook = report
    return was_interrupted


def an_interrupted_run_ends_like_a_straight_one(draw: random.Random) -> None:
    """To the bit, wherever and however often Ctrl-C falls: no step is lost or cut."""
    o = config(draw, d_vocab=65, context_length=8, dropout=draw.choice([0.0, 0.2]))
    recipe = c.Recipe(config=o, batch_size=2, n_steps=draw.randint(2, 6), warmup=1)
    train = partial(
        c.train_recipe, recipe, device="cpu", quiet=True,
        seed=draw.randrange(99), every=draw.randint(1, 4),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        straight = Path(folder) / "straight"
        broken = Path(folder) / "broken"
        began = time.perf_counter()
        train(straight)
        seconds = time.perf_counter() - began
        for _ in range(4):
            before = step_in(broken)
            with count_steps() as steps:
                was_interrupted = under_fire(draw, seconds, partial(train, broken))
            assert was_interrupted or step_in(broken) == recipe.n_steps
            assert step_in(broken) == before + len(steps)
            assert {x.name for x in Path(folder).iterdir()} <= {"straight", "broken"}
        train(broken)
        assert straight.read_bytes() == broken.read_bytes()


def an_interrupted_loop_has_made_whole_steps(draw: random.Random) -> None:
    """As many as were counted, and each to the bit."""
    o = config(draw, context_length=3)
    seed = draw.randrange(99)
    text = random_tokens(6, 2, 4, d_vocab=o.d_vocab, seed=seed)
    drawn = [(x[:, :-1], x[:, 1:]) for x in text]
    kind = draw.choice([c.muon, lambda model: c.AdamW(model.parameters())])

    def new() -> tuple:
        model = c.GPT(o, seeded(seed))
        return model, kind(model), seeded()

    whole = new()
    began = time.perf_counter()
    c.train(*whole[:2], drawn)
    seconds = time.perf_counter() - began
    for _ in range(3):
        broken = new()
        straight = new()
        with count_steps() as steps, redirect_stdout(io.StringIO()):
            under_fire(draw, seconds, partial(c.train, *broken[:2], drawn))
        c.train(*straight[:2], drawn[: len(steps)])
        pairs = zip(everything(*broken), everything(*straight), strict=True)
        assert all(torch.equal(*map(torch.as_tensor, pair)) for pair in pairs)


def a_file_that_is_written_under_fire_is_whole(draw: random.Random) -> None:
    """The old one or the new one, and nothing beside it."""
    run = trained(draw, config(draw))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        began = time.perf_counter()
        c.save_checkpoint(path, *run, step=1)
        seconds = time.perf_counter() - began
        for step in range(2, 8):
            save = partial(c.save_checkpoint, path, *run, step=step)
            was_interrupted = under_fire(draw, seconds, save)
            assert step_in(path) == step or (was_interrupted and step_in(path) < step)
            assert [x.name for x in Path(folder).iterdir()] == [path.name]


def an_interrupted_server_writes_what_each_would_alone(draw: random.Random) -> None:
    """Wherever Ctrl-C falls, or the model fails, and however often."""
    gpt = model(draw, context_length=12).double()
    pairs = []
    for _ in range(draw.randint(1, 5)):
        prompt = tokens(draw, gpt, draw.randint(1, 6))
        seed = draw.randrange(99)
        n_new = draw.randint(0, 6)
        end = draw.choice([None, 0, 1])
        request = c.Request(prompt, n_new, sampler(seed), end)
        new = c.generate(gpt, prompt, n_new, choose=sampler(seed), end=end)
        pairs.append((request, [int(token) for token in new]))
    server = c.Server(gpt, draw.randint(1, 3))
    for request, _ in pairs:
        server.submit(request)
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.3:
            fail_once(draw, gpt, server.run)
        with interrupted_at(int(10 ** draw.uniform(0, 3.5)), *WATCHED):
            server.run()
    server.run()
    for request, alone in pairs:
        assert request.error is None and request.written == alone


def an_interrupted_talk_goes_on_from_all_that_was_said(draw: random.Random) -> None:
    """The last answer is what `generate` writes after it; nothing is read twice."""
    tokenizer = byte_tokenizer()
    gpt = model(draw, d_vocab=258, context_length=600).double()
    talk = Talk(gpt, tokenizer, window=600)
    for _ in range(draw.randint(1, 4)):
        with interrupted_at(int(10 ** draw.uniform(0, 3)), *WATCHED):
            if draw.random() < 0.1:
                talk.reset()
            for _ in talk.answer("?" * draw.randint(1, 9), draw.randint(0, 5)):
                if draw.random() < 0.1:
                    break
    before = talk.said()
    n_new = draw.randint(1, 5)
    question = [*talk.turn("user", "And?"), *tokenizer.chat([])]
    for _ in talk.answer("And?", n_new):
        pass
    prompt = torch.tensor([*before, *question])
    new = [int(x) for x in c.generate(gpt, prompt, n_new, end=tokenizer.end)]
    new = takewhile(lambda token: token not in tokenizer.ends, new)
    assert talk.tokens == [*prompt.tolist(), *new]


def sampler(seed: int):
    """One of its own generator; or greedy, for some seeds."""
    generator = seeded(seed)
    if seed % 3 == 0:
        return c.greedy
    return lambda logits: c.sample(c.top_p(logits, 0.9), generator)


def fail_once(draw: random.Random, gpt: c.GPT, call) -> None:
    """Call what runs passes; one of the next fails, as if there were no memory."""
    passes = iter(range(draw.randint(0, 5), -1, -1))

    def fail(*_):
        if next(passes, None) == 0:
            raise torch.OutOfMemoryError

    hook = draw.choice([*gpt.blocks, gpt.unembedding]).register_forward_hook(fail)
    try:
        call()
    except torch.OutOfMemoryError:
        pass
    finally:
        hook.remove()


def count_python_steps(call, files: tuple[str, ...]) -> int:
    """How many steps of Python's a call takes within these files."""
    n_steps = 0

    def trace(frame, event, argument):
        nonlocal n_steps
        if not frame.f_code.co_filename.endswith(files):
            return None
        frame.f_trace_opcodes = True
        n_steps += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return n_steps


def interrupt_twice(call, files: tuple[str, ...], first: int, second: int) -> None:
    """Ctrl-C before a step in these files, and again so many calls of WRITING later.

    The first ends the tracing, and what is then tidied up is seen by the profiling.
    """

    def trace(frame, event, argument):
        nonlocal first
        if not frame.f_code.co_filename.endswith(files):
            return None
        frame.f_trace_opcodes = True
        first -= event == "opcode"
        if first < 0:
            raise KeyboardInterrupt
        return trace

    def profile(frame, event, argument):
        nonlocal second
        second -= first < 0 and frame.f_code.co_filename.endswith(WRITING)
        if second == 0:
            raise KeyboardInterrupt

    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
        sys.settrace(None)


def an_interrupted_page_is_the_old_one_or_the_new_one(draw: random.Random) -> None:
    """Wherever Ctrl-C falls, once or twice, the file is whole and no part is left."""
    positions = draw.choice([name for name in POSITIONS if name != "t5"])
    tokenizer = c.CharTokenizer("abcde")
    old = model(draw, d_vocab=5, pre_norm=True, positions=positions)
    new = model(draw, d_vocab=5, pre_norm=True, positions=positions)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"

        def write() -> None:
            c.explore(new, tokenizer, "abc", path)

        # Half of the tries fall anywhere, half into the last steps of the writing.
        files = draw.choice([("explore/__init__.py", "explore/building.py"), WRITING])
        n_steps = count_python_steps(write, files)
        new_page = path.read_bytes()
        c.explore(old, tokenizer, "abc", path)
        old_page = path.read_bytes()
        assert old_page != new_page

        n_last = 300 if files == WRITING else n_steps
        first = n_steps - draw.randint(1, n_last)
        interrupt_twice(write, files, first, draw.randint(1, 12))
        assert path.read_bytes() in (old_page, new_page)
        assert [*Path(folder).iterdir()] == [path]
        write()
        assert path.read_bytes() == new_page
