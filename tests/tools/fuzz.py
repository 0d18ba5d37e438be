"""What must hold of everything at once, tried at random: `python tests/tools/fuzz.py`.

A property takes a random number generator and asserts. Each is run in turn with seeds
0, 1, 2, ... for so many minutes; where one fails, the command that repeats it is said.
`make fuzz` gives it ten minutes; test_fuzz.py tries a few seeds of each.
"""

import argparse
import io
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.testing import assert_close

import companion as c
from companion.commands import chat
from companion.commands.chat import Talk
from companion.decoding import sampling, serving
from companion.model import cache, serving_caches
from companion.model import gpt as gpt_module
from companion.model.blocks import ACTIVATIONS
from companion.model.positions import POSITIONS
from companion.training import reward
from companion.training.checkpoints import read_checkpoint

sys.path.append(str(Path(__file__).parents[1]))
from common import (  # noqa: E402
    byte_tokenizer,
    interrupted_at,
    random_tokens,
    rounding,
    seeded,
    shaken,
)

N_TERMS = 3 * 96  # at most three layers of 96 hidden features
# The modules in which Ctrl-C falls.
WATCHED = (cache, chat, gpt_module, sampling, serving, serving_caches)


def config(draw: random.Random, **fixed) -> c.GPTConfig:
    """A small model's configuration, with every part drawn."""
    n_heads = draw.choice([1, 2, 4])
    options = {
        "d_vocab": draw.randint(2, 13),
        "context_length": draw.randint(2, 12),
        "d_model": n_heads * draw.choice([2, 4, 6]),
        "n_heads": n_heads,
        "n_layers": draw.randint(1, 3),
        "n_kv_heads": draw.choice([h for h in (1, 2, 4) if n_heads % h == 0]),
        "d_hidden": draw.choice([None, 1, 7]),
        "positions": draw.choice([*POSITIONS]),
        "norm": draw.choice(["layer", "rms"]),
        "feed_forward": draw.choice(["plain", "gated"]),
        "activation": draw.choice([*ACTIVATIONS]),
        "engine": draw.choice(["fused", "explicit", "flash"]),
    }
    flags = "pre_norm bias tie_embeddings qk_norm zero_init scale_embeddings".split()
    options |= {name: draw.random() < 0.5 for name in flags}
    return c.GPTConfig(**options | fixed)


def model(draw: random.Random, **fixed) -> c.GPT:
    seed = draw.randrange(1000)
    return shaken(c.GPT(config(draw, **fixed), seeded(seed)), seed=seed)


def tokens(draw: random.Random, gpt: c.GPT, *shape: int) -> torch.Tensor:
    o = gpt.config
    return random_tokens(*shape, d_vocab=o.d_vocab, seed=draw.randrange(1000))


def new_cache(draw: random.Random, capacity: int, n_streams: int) -> c.Cache:
    """A cache of a kind that forgets nothing and rounds nothing."""
    kinds = (
        c.ConcatenatingCache,
        lambda: c.PreallocatedCache(capacity),
        lambda: c.RaggedCache(capacity, n_streams),
        lambda: c.SlidingWindowCache(capacity),
        lambda: c.SinkCache(capacity, draw.randint(1, 3)),
    )
    return draw.choice(kinds)()


def pieces(draw: random.Random, n: int) -> list[tuple[int, int]]:
    """0 to n, cut anywhere."""
    cuts = sorted(draw.sample(range(1, n), draw.randint(0, n - 1)))
    return [*zip([0, *cuts], [*cuts, n], strict=True)]


@torch.no_grad()
def cached_logits_are_the_uncached_ones(draw: random.Random) -> None:
    """However the text is cut, and whatever is refused or fails in between."""
    gpt = model(draw)
    n = draw.randint(1, gpt.config.context_length)
    n_streams = draw.randint(1, 3)
    text = tokens(draw, gpt, n_streams, n)
    found = []
    cache = new_cache(draw, n, n_streams)
    for start, end in pieces(draw, n):
        if draw.random() < 0.5:
            refused(draw, gpt, cache, text[:, start:end])
        if draw.random() < 0.5:
            interrupted(draw, gpt, cache, tokens(draw, gpt, n_streams, end - start))
        found.append(gpt(text[:, start:end], cache))
    expected = gpt(text)
    assert_close(torch.cat(found, 1), expected, **rounding(N_TERMS, expected))
    assert len(cache) == n


@torch.no_grad()
def a_failed_pass_changes_no_cache(draw: random.Random) -> None:
    """Nor those that forget and round: what comes after is the same to the bit.

    Of streams, some keep but a part of what they were given.
    """
    gpt = model(draw)
    n, n_streams = draw.randint(1, gpt.config.context_length), draw.randint(1, 3)
    text, window = tokens(draw, gpt, n_streams, n), draw.randint(1, n)
    n_sinks, kind = (
        draw.randint(1, 2),
        draw.choice(["int8", "window", "sinks", "ragged"]),
    )
    straight, broken = (
        {
            "int8": c.Int8Cache(n),
            "window": c.SlidingWindowCache(window),
            "sinks": c.SinkCache(window, n_sinks),
            "ragged": c.RaggedCache(n, n_streams),
        }[kind]
        for _ in range(2)
    )
    for start, end in pieces(draw, n):
        n_other = draw.randint(1, n - start)
        interrupted(draw, gpt, broken, tokens(draw, gpt, n_streams, n_other))
        new = text[:, start:end]
        assert torch.equal(gpt(new, straight), gpt(new, broken))
        if kind == "ragged":
            kept = [draw.randint(0, int(most)) for most in straight.lengths]
            straight.truncate(torch.tensor(kept))
            broken.truncate(torch.tensor(kept))


def interrupted(draw, gpt: c.GPT, cache: c.Cache, new: torch.Tensor) -> None:
    """One pass that fails after a layer, or after all: nothing is appended.

    What it has stored by then may be no numbers: times 0, as masked, they are none yet.
    """
    n = len(cache)

    def spoil(_, inputs, out):
        return torch.full_like(out, math.nan)

    def fail(*_):
        raise InterruptedError

    hooks = [draw.choice([*gpt.blocks, gpt.unembedding]).register_forward_hook(fail)]
    if draw.random() < 0.5:
        hooks.append(gpt.embedding.register_forward_hook(spoil))
    try:
        gpt(new, cache)
    except InterruptedError:
        assert len(cache) == n
    finally:
        for hook in hooks:
            hook.remove()


def refused(draw, gpt: c.GPT, cache: c.Cache, new: torch.Tensor) -> None:
    """One pass that can't be: it raises, and nothing is appended anywhere."""
    n = len(cache)
    bad = [new + gpt.config.d_vocab, new.float(), new[0]]
    if n:  # an empty cache can't know how many streams there are
        bad.append(new.repeat(2, 1))
    if gpt.config.positions == "learned":
        bad.append(new.repeat(1, 20))
    try:
        gpt(draw.choice(bad), cache)
    except (ValueError, RuntimeError):  # PyTorch's own where no reader calls
        assert len(cache) == n
    else:
        raise AssertionError("a pass that can't be was not refused")


@torch.no_grad()
def any_two_engines_agree(draw: random.Random) -> None:
    gpt = model(draw)
    engine = draw.choice(["fused", "explicit", "flash"])
    other = c.GPT(replace(gpt.config, engine=engine))
    other.load_state_dict(gpt.state_dict())
    n = draw.randint(1, gpt.config.context_length)
    text = tokens(draw, gpt, draw.randint(1, 3), n)
    mask = torch.rand(n, n, generator=seeded(draw.randrange(99))) < draw.random()
    for extra in (None, mask):
        ours, theirs = gpt(text, mask=extra), other.eval()(text, mask=extra)
        assert_close(ours, theirs, **rounding(N_TERMS, theirs))


def a_prompt_alone_or_in_a_list_gives_the_same_greedy_text(draw: random.Random) -> None:
    """With and without a cache, past an end token or not."""
    gpt = model(draw, context_length=draw.randint(4, 12))
    n_new = draw.randint(0, gpt.config.context_length - 1)
    most = gpt.config.context_length - n_new
    lengths = [draw.randint(1, most) for _ in range(draw.randint(1, 4))]
    prompts = [tokens(draw, gpt, n) for n in lengths]
    end = draw.choice([None, draw.randrange(gpt.config.d_vocab)])
    if ambiguous(gpt, prompts, n_new):
        return
    together = [*c.generate(gpt, prompts, n_new, end=end)]
    for i, prompt in enumerate(prompts):
        use_cache = draw.random() < 0.5
        alone = [*c.generate(gpt, prompt, n_new, use_cache=use_cache, end=end)]
        here = [int(new[i]) for new in together]
        there = [int(new) for new in alone]
        assert here[: len(there)] == there, (here, there)
        assert set(here[len(there) :]) <= {end}


def ambiguous(gpt: c.GPT, prompts: list[torch.Tensor], n_new: int) -> bool:
    """Whether two tokens are so close that rounding could choose between them."""
    for prompt in prompts:
        new = [*c.generate(gpt, prompt, n_new, use_cache=False)]
        text = torch.cat([prompt, *(x[None] for x in new)])[None]
        with torch.no_grad():
            best = gpt(text).topk(2).values
        if (best[..., 0] - best[..., 1]).min() < 1e-3:
            return True
    return False


@torch.no_grad()
def a_wide_search_finds_the_likeliest_text_of_all(draw: random.Random) -> None:
    """Two steps of as many beams as tokens miss nothing; one beam is greedy search."""
    gpt = model(draw, context_length=8)
    prompt = tokens(draw, gpt, draw.randint(1, 4))
    v = gpt.config.d_vocab
    pairs = torch.cartesian_prod(torch.arange(v), torch.arange(v))
    log_probs = gpt(torch.cat([prompt.expand(v * v, -1), pairs], 1)).log_softmax(-1)
    log_probs = log_probs[:, -3:-1].gather(-1, pairs[..., None]).sum((1, 2))
    found = c.beam_search(gpt, prompt, v, 2)
    right = log_probs.sort(descending=True).values[:v]
    scores = torch.tensor([score for score, _ in found])
    assert_close(scores, right, **rounding(N_TERMS, right))
    if not ambiguous(gpt, [prompt], 2):
        ((_, alone),) = c.beam_search(gpt, prompt, 1, 2)
        assert alone == [int(new) for new in c.generate(gpt, prompt, 2)]


def everything(model, optimizer, generator) -> list:
    """All that a checkpoint could change."""
    state = [x for s in optimizer.state.values() for x in s.values()]
    return [*model.parameters(), *state, generator.get_state()]


def whatever_file_is_refused_everything_stays(draw: random.Random) -> None:
    """A checkpoint with any byte changed, cut, longer, or of another model."""
    o = config(draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        saved = trained(draw, o)
        here = trained(draw, o)
        recipe = None
        c.save_checkpoint(path, *saved, step=3)
        content = bytearray(path.read_bytes())
        place = draw.randrange(len(content))
        match draw.choice(["flip", "cut", "longer", "other", "facts"]):
            case "flip":
                content[place] ^= 1 << draw.randrange(8)
            case "cut":
                content = content[:place]
            case "longer":
                content += bytes(draw.randint(1, 9))
            case "other":
                here = trained(draw, replace(o, d_vocab=o.d_vocab + 1))
            case "facts":
                recipe = {"seed": 1}
        path.write_bytes(content)
        before = [torch.as_tensor(x).clone() for x in everything(*here)]
        try:
            if recipe:
                c.load_checkpoint(path, *here, recipe=recipe)
            else:
                c.load_checkpoint(path, *here)
        except ValueError:
            after = [torch.as_tensor(x) for x in everything(*here)]
            assert all(map(torch.equal, before, after))
        else:
            raise AssertionError("a file that is not as it was written was loaded")


def trained(draw: random.Random, o: c.GPTConfig) -> tuple:
    """Model, optimizer and generator after a step or none."""
    gpt, generator = c.GPT(o, seeded(draw.randrange(99))), seeded(draw.randrange(99))
    optimizer = draw.choice([c.muon, lambda m: c.AdamW(m.parameters())])(gpt)
    text = tokens(draw, gpt, 2, 2)
    if draw.random() < 0.7:
        c.train(gpt, optimizer, [(text[:, :1], text[:, 1:])])
    return gpt, optimizer, generator


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


@contextmanager
def count_steps() -> Iterator[list]:
    """A list that is one longer with each step of an optimizer."""
    steps = []
    hook = register_optimizer_step_post_hook(lambda *_: steps.append(1))
    try:
        yield steps
    finally:
        hook.remove()


def an_interrupted_run_ends_like_a_straight_one(draw: random.Random) -> None:
    """To the bit, wherever and however often Ctrl-C falls: no step is lost or cut."""
    o = config(draw, d_vocab=65, context_length=8, dropout=draw.choice([0.0, 0.2]))
    recipe = c.Recipe(config=o, batch_size=2, n_steps=draw.randint(2, 6), warmup=1)
    train = partial(
        c.train_recipe, recipe, device="cpu", quiet=True,
        seed=draw.randrange(99), every=draw.randint(1, 4),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        straight, broken = Path(folder) / "straight", Path(folder) / "broken"
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


def step_in(path: Path) -> int:
    """The step of a checkpoint; 0 where there is none."""
    return read_checkpoint(path)[1]["metadata"]["step"] if path.exists() else 0


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
        broken, straight = new(), new()
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
        prompt, seed = tokens(draw, gpt, draw.randint(1, 6)), draw.randrange(99)
        n_new, end = draw.randint(0, 6), draw.choice([None, 0, 1])
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
    before, n_new = talk.said(), draw.randint(1, 5)
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


def equal_rewards_have_advantages_of_exactly_0(draw: random.Random) -> None:
    """Whatever they are, and however many; and those of any others add up to 0."""
    n_groups, n_answers = draw.randint(1, 4), draw.randint(1, 17)
    generator = seeded(draw.randrange(999))
    size = 10 ** draw.uniform(-30, 30)
    rewards = size * torch.randn(n_groups, n_answers, generator=generator)
    is_alike = torch.rand(n_groups, generator=generator) < 0.5
    rewards[is_alike] = rewards[is_alike, :1]
    for scale in (False, True):
        advantages = reward.advantages(rewards, scale=scale)
        assert not advantages[is_alike].any()
        assert_close(
            advantages.sum(1) / advantages.abs().sum(1).clamp(min=1e-30),
            torch.zeros(n_groups),
            atol=1e-5,  # 17 numbers, each rounded by 6e-8 of the largest, twice
            rtol=0,
        )
    worst = draw.choice([math.nan, math.inf, -math.inf])
    rewards[draw.randrange(n_groups), draw.randrange(n_answers)] = worst
    try:
        reward.advantages(rewards)
    except ValueError as error:
        assert str(worst) in str(error)
    else:
        raise AssertionError("a reward that is no number was not refused")


def what_is_ruled_out_changes_no_number(draw: random.Random) -> None:
    """A distance, a surprise and their gradients are those of the tokens that stay."""
    v, rows = draw.randint(2, 20), draw.randint(1, 4)
    generator = seeded(draw.randrange(999))
    kept = torch.rand(v, generator=generator) < 0.6
    kept[draw.randrange(v)] = True
    z = [10 * torch.randn(rows, v, generator=generator) for _ in range(2)]
    cut = [x.masked_fill(~kept, -math.inf).requires_grad_() for x in z]
    small = [x[:, kept].clone().requires_grad_() for x in z]
    for whole, part in ((cut, small), (cut[::-1], small[::-1])):
        ours, theirs = reward.kl_divergence(*whole), reward.kl_divergence(*part)
        assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
        ours = torch.autograd.grad(ours.sum(), whole)
        theirs = torch.autograd.grad(theirs.sum(), part)
        for ours_of_one, theirs_of_one in zip(ours, theirs, strict=True):
            assert_close(ours_of_one[:, kept], theirs_of_one, atol=1e-4, rtol=1e-4)
            assert not ours_of_one[:, ~kept].any()

    # Cut on one side alone: finite, or infinite and never NaN; so the gradients.
    for pair in ((cut[0], z[1]), (z[0], cut[1])):
        distance = reward.kl_divergence(*pair)
        assert not distance.isnan().any() and distance.min() > -1e-4
        (gradient,) = torch.autograd.grad(distance.sum(), cut[pair[0] is z[0]])
        assert gradient.isfinite().all()

    # A loss in which only what earns nothing was ruled out.
    drawn = torch.randint(v, (rows, 1), generator=generator)
    log_p = reward.chosen(cut[0][:, None], drawn)
    earned = torch.randn(rows, generator=generator)
    earned[~kept[drawn[:, 0]]] = 0
    loss = reward.reward_loss(log_p, earned, torch.ones_like(drawn, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss, cut[0])
    assert loss.isfinite() and gradient.isfinite().all()


PROPERTIES = (
    equal_rewards_have_advantages_of_exactly_0,
    what_is_ruled_out_changes_no_number,
    cached_logits_are_the_uncached_ones,
    a_failed_pass_changes_no_cache,
    any_two_engines_agree,
    a_prompt_alone_or_in_a_list_gives_the_same_greedy_text,
    a_wide_search_finds_the_likeliest_text_of_all,
    whatever_file_is_refused_everything_stays,
    an_interrupted_run_ends_like_a_straight_one,
    an_interrupted_loop_has_made_whole_steps,
    a_file_that_is_written_under_fire_is_whole,
    an_interrupted_server_writes_what_each_would_alone,
    an_interrupted_talk_goes_on_from_all_that_was_said,
)


WRITING = ("files.py", "pathlib.py")


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
        files = draw.choice([("explore/__init__.py",), WRITING])
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


PROPERTIES += (an_interrupted_page_is_the_old_one_or_the_new_one,)


def main() -> int:
    """Run the properties in turn; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", help="one property by its name")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    chosen = [p for p in PROPERTIES if options.only in (None, p.__name__)]
    n_failed = 0
    seed = options.first
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        for hold in chosen:
            try:
                hold(random.Random(seed))
            except Exception:
                n_failed += 1
                traceback.print_exc()
                again = f"--only {hold.__name__} --first {seed} --minutes 0.01"
                print(f"failed: python tests/tools/fuzz.py {again}\n", flush=True)
        seed += 1
    n_seeds = seed - options.first
    print(f"{n_seeds} seeds of {len(chosen)} properties, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
