"""Serving: whatever arrives when, each text is what it would be alone."""

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

import pytest
import torch
from common import random_tokens, seeded, shaken
from ctrl_c import interrupted_at

from companion import GPT, GPTConfig, Request, Server, generate, greedy, sample
from companion.decoding import sampling, serving

CONFIG = GPTConfig(d_vocab=11, context_length=24, d_model=8, n_heads=4, n_layers=2)
MODELS = {
    positions: shaken(GPT(replace(CONFIG, positions=positions))).double()
    for positions in ("rotary", "learned", "alibi", "t5")
}


def sampler(seed):
    generator = seeded(seed)
    return lambda logits: sample(logits, generator)


def alone(prompt, n_new, choose=greedy, end=None):
    """A function that writes a text with a model by `generate`."""
    return lambda gpt: generate(gpt, prompt, n_new, choose=choose, end=end)


def a_request(draw: Random, seed: int) -> tuple[Request, Callable]:
    """A request, and what writes its text alone."""
    prompt = random_tokens(draw.randint(1, 9), d_vocab=11, seed=seed)
    n_new = draw.randint(0, 12)
    end = draw.choice([None, 3])
    if draw.random() < 0.3:
        choose = greedy
        choose_alone = greedy
    else:
        choose = sampler(seed)
        choose_alone = sampler(seed)
    request = Request(prompt, n_new, choose, end)
    return request, alone(prompt, n_new, choose=choose_alone, end=end)


def assert_as_alone(pairs, gpt):
    for request, write_alone in pairs:
        expected = [int(token) for token in write_alone(gpt)]
        assert request.done and request.error is None and request.written == expected


@pytest.mark.parametrize("positions", MODELS)
def test_each_text_is_what_it_would_be_alone(positions):
    for seed in range(0, 120, 10):
        draw = Random(seed)
        gpt = MODELS[positions]
        pairs = [a_request(draw, seed + i) for i in range(draw.randint(1, 10))]
        coming = [request for request, _ in pairs]
        server = Server(gpt, draw.randint(1, 5))
        while coming or server.busy:
            if coming and draw.random() < 0.1 + seed / 120:
                server.submit(coming.pop(0))
            server.step()
        assert_as_alone(pairs, gpt)


def test_a_free_row_takes_the_next_at_once_and_the_mode_is_left():
    """On two rows, the second of which writes 2, 1, 0, 3 and 4 tokens: 7 steps."""
    gpt = GPT(CONFIG).train()
    steps = 0
    server = Server(gpt, 2)
    for n_new in (7, 2, 1, 0, 3, 4):
        server.submit(Request(torch.tensor([1, 2]), n_new))
    while server.busy:
        server.step()
        steps += 1
        assert all(part.training for part in gpt.modules())
    assert steps == 7


def test_what_cannot_be_served_ends_with_its_error_and_leaves_the_others():
    token = torch.tensor([1])
    two_good = [token, token]
    bad = [
        (token[:0], 3, greedy, "shape .0,.*1 token or more"),
        (token.repeat(20), 5, greedy, r"20 and 5 .* \(24\)"),
        (token[None], 5, greedy, "must be integers .t"),
        ([1, 2], 5, greedy, "must be integers"),
        (token + 98, 5, greedy, "tokens run from 99 to 99"),
        (token, -1, greedy, "n_new is -1"),
        (token, 5, lambda x: torch.tensor([11]), "gives .11.*0 to 10"),
        (token, 5, lambda x: torch.tensor([-1]), "gives .-1.*0 to 10"),
        (token, 5, lambda x: torch.tensor([0.5]), "float32"),
        (token, 5, lambda x: torch.tensor([1, 2]), "one token"),
        (token, 5, lambda x: 3, "new is 3"),
        (token, 5, lambda x: two_good.pop(), "pop from empty list"),
    ]
    gpt = MODELS["rotary"]
    server = Server(gpt, 2)
    pairs = [a_request(Random(i), i) for i in range(len(bad))]
    wrong = [Request(prompt, n_new, choose) for prompt, n_new, choose, _ in bad]
    for (right, _), other in zip(pairs, wrong, strict=True):
        server.submit(right)
        server.submit(other)
        server.step()
    server.run()

    for other, (*_, words) in zip(wrong, bad, strict=True):
        assert other.done
        assert other.written == ([1, 1] if "pop" in words else [])
        with pytest.raises(Exception, match=words):
            raise other.error
    assert_as_alone(pairs, gpt)


def some_requests() -> list[tuple]:
    """Three, with what writes their texts alone; the last of them greedily."""
    pairs = []
    for seed, n_new in enumerate((3, 1)):
        prompt = random_tokens(1 + seed, d_vocab=11, seed=seed)
        request = Request(prompt, n_new, sampler(seed))
        pairs.append((request, alone(prompt, n_new, choose=sampler(seed))))
    prompt = random_tokens(3, d_vocab=11, seed=2)
    pairs.append((Request(prompt, 2), alone(prompt, 2)))
    return pairs


def submitted(gpt, pairs) -> Server:
    server = Server(gpt, 2)
    for request, _ in pairs:
        server.submit(request)
    return server


def test_ctrl_c_at_any_instant_changes_no_text():
    """At each of them in turn, in the server and in the samplers; then it goes on."""
    for instant in count(1):
        pairs = some_requests()
        server = submitted(MODELS["rotary"], pairs)
        with interrupted_at(instant, serving, sampling) as came:
            server.run()
        server.run()
        assert_as_alone(pairs, MODELS["rotary"])
        if not came:
            break
    assert instant > 100


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, torch.OutOfMemoryError, ValueError]
)
@pytest.mark.parametrize("place", ["blocks.1", "unembedding"])
def test_what_fails_in_the_model_is_raised_and_nobody_loses_a_token(place, error):
    """In each pass in turn, one that reads a prompt too; then the server goes on."""
    gpt = MODELS["rotary"]
    for failing in count():
        passes = count()

        def fail(*_, failing=failing, passes=passes):
            if next(passes) == failing:
                raise error

        pairs = some_requests()
        server = submitted(gpt, pairs)
        hook = gpt.get_submodule(place).register_forward_hook(fail)
        try:
            server.run()
            break
        except error:
            assert server.busy and not any(request.error for request, _ in pairs)
            server.run()
        finally:
            hook.remove()
        assert_as_alone(pairs, gpt)
    assert failing == 5  # three prompts, and two more passes


def test_a_sampler_that_is_interrupted_is_asked_again_and_no_other():
    for row, call in ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1)):
        pairs = some_requests()
        request = pairs[row][0]
        calls = count()

        def choose(logits, sampler=request.choose, call=call, calls=calls):
            if next(calls) == call:
                raise KeyboardInterrupt
            return sampler(logits)

        request.choose = choose
        server = submitted(MODELS["rotary"], pairs)
        with pytest.raises(KeyboardInterrupt):
            server.run()
        server.run()
        assert_as_alone(pairs, MODELS["rotary"])


def test_a_request_that_is_here_already_is_refused_and_served_once():
    pairs = some_requests()
    server = submitted(MODELS["rotary"], pairs)
    for _ in range(2):  # in the queue, then in a row
        with pytest.raises(ValueError, match="the request is here already"):
            server.submit(pairs[0][0])
        server.step()
    server.run()
    assert_as_alone(pairs, MODELS["rotary"])
    text = pairs[0][0].written[:]
    server.submit(pairs[0][0])  # done: there is nothing more to write
    server.run()
    assert pairs[0][0].written == text


def test_what_was_written_before_is_gone_on_from():
    """By another server, up to the last token; or more than that, which is done."""
    gpt = MODELS["rotary"]
    prompt = torch.tensor([1, 2, 3])
    text = [int(token) for token in generate(gpt, prompt, 6)]
    begun = [Request(prompt, 6, written=text[:n]) for n in range(7)]
    too_long = Request(prompt, 4, written=text[:])
    outside = Request(prompt, 6, written=[11])
    server = Server(gpt, 2)
    for request in (*begun, too_long, outside):
        server.submit(request)
    server.run()
    assert [request.written for request in begun] == [text] * 7
    assert too_long.done and too_long.error is None and too_long.written == text
    with pytest.raises(ValueError, match="tokens run from 1 to 11"):
        raise outside.error


def test_rows_can_be_filled_and_used_again():
    """A prompt of 4 tokens and 20 new ones fill a row, and leave no trace."""
    server = Server(MODELS["learned"], 2)
    for seed in range(3):
        pairs = []
        for n in (4, 7):
            prompt = random_tokens(n, d_vocab=11, seed=seed + n)
            pairs.append((Request(prompt, 24 - n), alone(prompt, 24 - n)))
        for request, _ in pairs:
            server.submit(request)
        server.run()
        assert_as_alone(pairs, server.model)


def test_a_capacity_beyond_the_context_is_for_positions_that_go_on():
    """Learned ones end there: the server says so before anybody asks."""
    with pytest.raises(ValueError, match=r"capacity \(25\) exceeds the 24 learned"):
        Server(MODELS["learned"], 2, capacity=25)
    gpt = MODELS["rotary"]
    prompt = torch.tensor([1, 2, 3])
    long = Request(prompt, 37)
    server = Server(gpt, 2, capacity=40)
    too_long = Request(prompt, 38)
    for request in (long, Request(prompt, 5), too_long):
        server.submit(request)
    server.run()
    with pytest.raises(ValueError, match=r"3 and 38 .* server's capacity \(40\)"):
        raise too_long.error
    expected = generate(gpt, prompt, 37, cache=gpt.new_cache(40))
    assert long.done and long.written == [int(token) for token in expected]


@pytest.mark.parametrize("n_rows, capacity", [(0, None), (2, 0)])
def test_a_server_has_a_row_and_a_row_has_room(n_rows, capacity):
    with pytest.raises(ValueError, match="is 0; it must be 1 or more"):
        Server(MODELS["rotary"], n_rows, capacity)


@pytest.mark.parametrize("end", [0, 3, 256, 299])
def test_any_token_may_be_the_end(end):
    """Also beyond 256, from where Python makes a new object of each number."""
    gpt = GPT(replace(CONFIG, d_vocab=300), seeded())
    texts = [[1, 2, end, 4], [1, 2, 5, 4]]
    requests = []
    for text in texts:
        tokens = iter(torch.tensor(text).split(1))
        choose = partial(lambda tokens, _: next(tokens), tokens)
        requests.append(Request(torch.tensor([7]), 4, choose, end))
    server = Server(gpt, 2)
    for request in requests:
        server.submit(request)
    server.run()
    assert [request.written for request in requests] == [texts[0][:3], texts[1]]
    assert not any(request.error for request in requests)


def test_a_first_token_that_was_interrupted_is_chosen_by_the_same_logits():
    """The row reads its prompt's last token again, which is none of the others."""
    gpt = MODELS["rotary"]
    seen = []

    def choose(logits):
        seen.append(logits.clone())
        if len(seen) == 1:
            raise KeyboardInterrupt
        return greedy(logits)

    prompt = torch.tensor([1, 5, 2, 9])
    request = Request(prompt, 3, choose)
    server = Server(gpt, 2)
    server.submit(request)
    with pytest.raises(KeyboardInterrupt):
        server.run()
    server.run()
    torch.testing.assert_close(seen[1], seen[0])  # float64, in another batch
    assert_as_alone([(request, alone(prompt, 3))], gpt)


def test_another_signal_reaches_its_own_handler_and_is_no_ctrl_c():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    server = Server(MODELS["rotary"], 1)

    def choose(logits):
        signal.raise_signal(signal.SIGTERM)
        assert not came  # it waits until the token is written
        return greedy(logits)

    request = Request(torch.tensor([1, 5, 2]), 1, choose)
    server.submit(request)
    try:
        server.run()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM] and len(request.written) == 1
