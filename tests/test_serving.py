"""Serving: whatever arrives when, each text is what it would be alone."""

import random

import pytest
import torch
from common import seeded, shaken
from hypothesis import given, settings
from hypothesis import strategies as st

from companion import GPT, GPTConfig, Request, Server, generate, greedy, sample

CONTEXT = 24


def model(positions="rotary"):
    config = GPTConfig(
        d_vocab=11, context_length=CONTEXT, d_model=8, n_heads=4, n_layers=2,
        positions=positions,
    )  # fmt: skip
    return shaken(GPT(config)).double()


MODELS = {name: model(name) for name in ("rotary", "learned", "alibi", "none")}


def sampler(seed):
    generator = seeded(seed)
    return lambda logits: sample(logits, generator)


def a_request(draw: random.Random, seed: int) -> tuple[Request, list[int]]:
    """A request, and its text alone."""
    prompt = torch.randint(11, (draw.randint(1, 9),), generator=seeded(seed))
    n_new, end = draw.randint(0, 12), draw.choice([None, 3])
    chosen = [greedy, greedy] if draw.random() < 0.3 else [sampler(seed), sampler(seed)]
    asked = Request(prompt, n_new, chosen[0], end)
    return asked, (prompt, n_new, {"choose": chosen[1], "end": end})


@settings(deadline=None, max_examples=100)
@given(
    positions=st.sampled_from([*MODELS]),
    n_rows=st.integers(1, 5),
    n_requests=st.integers(1, 12),
    hurry=st.floats(0.1, 1),
    seed=st.integers(0, 10_000),
)
def test_each_text_is_what_it_would_be_alone(
    positions, n_rows, n_requests, hurry, seed
):
    draw, gpt = random.Random(seed), MODELS[positions]
    pairs = [a_request(draw, seed + i) for i in range(n_requests)]
    server, coming = Server(gpt, n_rows), [asked for asked, _ in pairs]
    while coming or server.busy:
        if coming and draw.random() < hurry:
            server.submit(coming.pop(0))
        server.step()
    for asked, (prompt, n_new, how) in pairs:
        alone = [int(token) for token in generate(gpt, prompt, n_new, **how)]
        assert asked.done and asked.error is None and asked.written == alone


def test_a_free_row_takes_the_next_at_once():
    """Four answers of 9, 2, 3 and 4 tokens on two rows: 9 steps."""
    server = Server(MODELS["rotary"], 2)
    for n_new in (9, 2, 3, 4):
        server.submit(Request(torch.tensor([1, 2]), n_new))
    steps = 0
    while server.busy:
        server.step()
        steps += 1
        assert sum(1 for request in server.rows if request) <= 2
    assert steps == 9


def fails(logits):
    raise RuntimeError("no luck")


@pytest.mark.parametrize(
    "bad, words",
    [
        (Request(torch.zeros(0, dtype=torch.long), 3), "shape .0,.*1 token or more"),
        (Request(torch.ones(20, dtype=torch.long), 5), "20 tokens and 5 are to come"),
        (Request(torch.ones(2, 2, dtype=torch.long), 5), "must be integers .t"),
        (Request([1, 2], 5), "must be integers"),
        (Request(torch.tensor([1, 99]), 5), "tokens run from 1 to 99"),
        (Request(torch.tensor([1]), -1), "n_new is -1"),
        (Request(torch.tensor([1]), 5, fails), "no luck"),
        (
            Request(torch.tensor([1]), 5, lambda x: torch.tensor([11])),
            "gives .11.*0 to 10",
        ),
        (
            Request(torch.tensor([1]), 5, lambda x: torch.tensor([-1])),
            "gives .-1.*0 to 10",
        ),
        (Request(torch.tensor([1]), 5, lambda x: torch.tensor([0.5])), "float32"),
        (Request(torch.tensor([1]), 5, lambda x: torch.tensor([1, 2])), "one token"),
        (Request(torch.tensor([1]), 5, lambda x: 3), "new is 3"),
    ],
)
def test_what_cannot_be_served_ends_with_its_error_and_leaves_the_others(bad, words):
    bad.written, bad.error = [], None
    pairs = [a_request(random.Random(i), i) for i in range(4)]
    server = Server(MODELS["rotary"], 2)
    for i, (asked, _) in enumerate(pairs):
        server.submit(asked)
        if i == 1:
            server.submit(bad)
        server.step()
    server.run()
    assert bad.done
    with pytest.raises(Exception, match=words):
        raise bad.error
    for asked, (prompt, n_new, how) in pairs:
        alone = generate(MODELS["rotary"], prompt, n_new, **how)
        assert asked.written == [int(token) for token in alone]


def test_a_sampler_that_fails_late_keeps_what_was_written():
    calls = []

    def late(logits):
        calls.append(1)
        return greedy(logits) if len(calls) < 4 else fails(logits)

    server, asked = Server(MODELS["rotary"], 2), Request(torch.tensor([1]), 9, late)
    server.submit(asked)
    server.run()
    assert len(asked.written) == 3 and "no luck" in str(asked.error)
    assert not server.busy


def test_a_server_can_be_asked_again_when_it_was_idle():
    server = Server(MODELS["learned"], 3)
    texts = []
    for _ in range(2):
        asked = Request(torch.tensor([1, 2, 3]), 20)
        server.submit(asked)
        server.run()
        texts.append(asked.written)
    assert texts[0] == texts[1] and len(texts[0]) == 20


@pytest.mark.parametrize("sizes", [{"n_rows": 0}, {"n_rows": 2, "capacity": 0}])
def test_a_server_without_room_is_refused(sizes):
    with pytest.raises(ValueError, match="is 0; it must be 1 or more"):
        Server(MODELS["rotary"], **sizes)
