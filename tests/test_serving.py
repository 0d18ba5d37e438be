"""Serving: whatever arrives when, each text is what it would be alone."""

from random import Random

import pytest
import torch
from common import random_tokens, seeded, shaken

from companion import GPT, GPTConfig, Request, Server, generate, greedy, sample

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
