"""Serving: whatever arrives when, each text is what it would be alone."""

from itertools import count
from random import Random

import pytest
import torch
from common import interrupted_at, random_tokens, seeded, shaken

from companion import GPT, GPTConfig, Request, Server, generate, greedy, sample
from companion.decoding import sampling, serving

SIZES = {"d_vocab": 11, "context_length": 24, "d_model": 8, "n_heads": 4}
MODELS = {
    positions: shaken(GPT(GPTConfig(**SIZES, n_layers=2, positions=positions))).double()
    for positions in ("rotary", "learned", "alibi", "t5")
}


def sampler(seed):
    generator = seeded(seed)
    return lambda logits: sample(logits, generator)


def a_request(draw: Random, seed: int) -> tuple[Request, tuple]:
    """A request, and what `generate` takes to write its text alone."""
    prompt = random_tokens(draw.randint(1, 9), d_vocab=11, seed=seed)
    n_new, end = draw.randint(0, 12), draw.choice([None, 3])
    chosen = [greedy, greedy] if draw.random() < 0.3 else [sampler(seed), sampler(seed)]
    asked = Request(prompt, n_new, chosen[0], end)
    return asked, (prompt, n_new, {"choose": chosen[1], "end": end})


def assert_as_alone(pairs, gpt):
    for asked, (prompt, n_new, how) in pairs:
        alone = [int(token) for token in generate(gpt, prompt, n_new, **how)]
        assert asked.done and asked.error is None and asked.written == alone


@pytest.mark.parametrize("positions", MODELS)
def test_each_text_is_what_it_would_be_alone(positions):
    for seed in range(0, 120, 10):
        draw, gpt = Random(seed), MODELS[positions]
        pairs = [a_request(draw, seed + i) for i in range(draw.randint(1, 10))]
        server, coming = Server(gpt, draw.randint(1, 5)), [asked for asked, _ in pairs]
        while coming or server.busy:
            if coming and draw.random() < 0.1 + seed / 120:
                server.submit(coming.pop(0))
            server.step()
        assert_as_alone(pairs, gpt)


def test_a_free_row_takes_the_next_at_once_and_the_mode_is_left():
    """On two rows, the second of which writes 2, 1, 0, 3 and 4 tokens: 7 steps."""
    gpt, steps = GPT(GPTConfig(**SIZES)).train(), 0
    server = Server(gpt, 2)
    for n_new in (7, 2, 1, 0, 3, 4):
        server.submit(Request(torch.tensor([1, 2]), n_new))
    while server.busy:
        server.step()
        steps += 1
        assert all(part.training for part in gpt.modules())
    assert steps == 7


def test_what_cannot_be_served_ends_with_its_error_and_leaves_the_others():
    one, two_good = torch.tensor([1]), [torch.tensor([1])] * 2
    bad = [
        (one[:0], 3, greedy, "shape .0,.*1 token or more"),
        (one.repeat(20), 5, greedy, r"20 and 5 .* \(24\)"),
        (one[None], 5, greedy, "must be integers .t"),
        ([1, 2], 5, greedy, "must be integers"),
        (one + 98, 5, greedy, "tokens run from 99 to 99"),
        (one, -1, greedy, "n_new is -1"),
        (one, 5, lambda x: torch.tensor([11]), "gives .11.*0 to 10"),
        (one, 5, lambda x: torch.tensor([-1]), "gives .-1.*0 to 10"),
        (one, 5, lambda x: torch.tensor([0.5]), "float32"),
        (one, 5, lambda x: torch.tensor([1, 2]), "one token"),
        (one, 5, lambda x: 3, "new is 3"),
        (one, 5, lambda x: two_good.pop(), "pop from empty list"),
    ]
    server, gpt = Server(MODELS["rotary"], 2), MODELS["rotary"]
    pairs = [a_request(Random(i), i) for i in range(len(bad))]
    wrong = [Request(*how) for *how, _ in bad]
    for (asked, _), other in zip(pairs, wrong, strict=True):
        server.submit(asked)
        server.submit(other)
        server.step()
    server.run()
    for other, (*_, words) in zip(wrong, bad, strict=True):
        assert other.done and other.written == [1, 1] * ("pop" in words)
        with pytest.raises(Exception, match=words):
            raise other.error
    assert_as_alone(pairs, gpt)


def some_requests() -> list[tuple]:
    """Three, with what `generate` takes to write their texts alone."""
    pairs = []
    for seed, n_new in enumerate((3, 1, 2)):
        prompt = random_tokens(1 + seed, d_vocab=11, seed=seed)
        chosen = [greedy, greedy] if seed == 2 else [sampler(seed), sampler(seed)]
        asked = Request(prompt, n_new, chosen[0])
        pairs.append((asked, (prompt, n_new, {"choose": chosen[1]})))
    return pairs


def submitted(gpt, pairs) -> Server:
    server = Server(gpt, 2)
    for asked, _ in pairs:
        server.submit(asked)
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
            assert server.busy and not any(asked.error for asked, _ in pairs)
            server.run()
        finally:
            hook.remove()
        assert_as_alone(pairs, gpt)
    assert failing == 5  # three prompts, and two more passes


def test_a_sampler_that_is_interrupted_is_asked_again_and_no_other():
    for row, call in ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1)):
        pairs, calls = some_requests(), count()
        asked = pairs[row][0]

        def choose(logits, chosen=asked.choose, call=call, calls=calls):
            if next(calls) == call:
                raise KeyboardInterrupt
            return chosen(logits)

        asked.choose = choose
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
    gpt, prompt = MODELS["rotary"], torch.tensor([1, 2, 3])
    alone = [int(token) for token in generate(gpt, prompt, 6)]
    begun = [Request(prompt, 6, written=alone[:n]) for n in range(7)]
    too_long = Request(prompt, 4, written=alone[:])
    outside = Request(prompt, 6, written=[11])
    server = Server(gpt, 2)
    for request in (*begun, too_long, outside):
        server.submit(request)
    server.run()
    assert [request.written for request in begun] == [alone] * 7
    assert too_long.done and too_long.error is None and too_long.written == alone
    with pytest.raises(ValueError, match="tokens run from 1 to 11"):
        raise outside.error


def test_rows_can_be_filled_and_used_again():
    """A prompt of 4 tokens and 20 new ones fill a row, and leave no trace."""
    server = Server(MODELS["learned"], 2)
    for seed in range(3):
        prompts = [random_tokens(n, d_vocab=11, seed=seed + n) for n in (4, 7)]
        pairs = [(Request(p, 24 - len(p)), (p, 24 - len(p), {})) for p in prompts]
        for asked, _ in pairs:
            server.submit(asked)
        server.run()
        assert_as_alone(pairs, server.model)


def test_a_capacity_beyond_the_context_is_for_positions_that_go_on():
    """Learned ones end there: the server says so before anybody asks."""
    with pytest.raises(ValueError, match=r"capacity \(25\) exceeds the 24 learned"):
        Server(MODELS["learned"], 2, capacity=25)
    gpt, prompt = MODELS["rotary"], torch.tensor([1, 2, 3])
    server, asked = Server(gpt, 2, capacity=40), Request(prompt, 37)
    for request in (asked, Request(prompt, 5)):
        server.submit(request)
    server.run()
    assert_as_alone([(asked, (prompt, 37, {"cache": gpt.new_cache(40)}))], gpt)
    for sizes in ({"n_rows": 0}, {"n_rows": 2, "capacity": 0}):
        with pytest.raises(ValueError, match="is 0; it must be 1 or more"):
            Server(gpt, **sizes)
