"""Speculation: the same text, or the same distribution, in fewer passes."""

import itertools
import math
from collections import Counter

import pytest
import torch
from common import seeded
from hypothesis import given, settings
from hypothesis import strategies as st

from companion import GPT, GPTConfig, LookUp, Smaller, generate, speculate
from companion.speculation import checked

V, CONTEXT = 5, 16


def model(seed: int) -> GPT:
    config = GPTConfig(
        d_vocab=V, context_length=CONTEXT, d_model=8, n_heads=2, n_layers=2,
        positions="rotary",
    )  # fmt: skip
    gpt = GPT(config, seeded(seed))
    generator = seeded(seed)
    with torch.no_grad():
        for weights in gpt.parameters():
            weights.normal_(0, 0.5, generator=generator)
    return gpt.double().eval()


MODEL, OTHER = model(0), model(1)


def soft(logits):
    return logits.softmax(-1)


GUESSERS = {
    "look-up": lambda n: LookUp(V, n, 1),
    "another model": lambda n: Smaller(OTHER, n),
    "itself": lambda n: Smaller(MODEL, n),
    "nobody": lambda n: lambda text: (text[:0], torch.zeros(0, V)),
    "somebody wrong": lambda n: (
        lambda text: (torch.zeros(n, dtype=torch.long), torch.eye(V)[:1].expand(n, V))
    ),
}


@settings(deadline=None, max_examples=200)
@given(
    guesser=st.sampled_from([*GUESSERS]),
    n_guesses=st.integers(1, 5),
    length=st.integers(1, 6),
    n_new=st.integers(0, 10),
    end=st.sampled_from([None, 0, 3]),
    seed=st.integers(0, 1000),
)
def test_greedy_text_is_generates(guesser, n_guesses, length, n_new, end, seed):
    prompt = torch.randint(V, (length,), generator=seeded(seed))
    alone = [int(token) for token in generate(MODEL, prompt, n_new, end=end)]
    passes = [*speculate(MODEL, prompt, n_new, GUESSERS[guesser](n_guesses), end=end)]
    assert [token for new in passes for token in new.tolist()] == alone
    assert all(1 <= len(new) <= n_guesses + 1 for new in passes)


def test_a_model_that_guesses_for_itself_is_always_right():
    passes = [*speculate(MODEL, torch.tensor([1, 2]), 12, Smaller(MODEL, 3))]
    assert [len(new) for new in passes] == [4, 4, 4]


def chance_of(text: tuple[int, ...], prompt: list[int]) -> float:
    """By one forward pass over all of it."""
    with torch.no_grad():
        logs = MODEL(torch.tensor([[*prompt, *text]]))[0].log_softmax(-1)
    places = range(len(prompt) - 1, len(prompt) - 1 + len(text))
    return math.exp(sum(logs[i, x].item() for i, x in zip(places, text, strict=True)))


@pytest.mark.parametrize("guesser", ["look-up", "another model"])
def test_sampled_texts_have_the_models_distribution(guesser):
    """Chi-squared over all 125 texts of three tokens, 1,500 draws."""
    prompt, n, counts = [1, 2, 1], 1500, Counter()
    guess = LookUp(V, 2, 1)
    if guesser == "another model":
        guess = Smaller(OTHER, 2, chances=soft, generator=seeded(1))
    how = {"chances": soft, "generator": seeded(2)}
    for _ in range(n):
        new = torch.cat([*speculate(MODEL, torch.tensor(prompt), 3, guess, **how)])
        counts[tuple(new.tolist())] += 1
    expected = {
        text: n * chance_of(text, prompt)
        for text in itertools.product(range(V), repeat=3)
    }
    cells = [(x, counts[text]) for text, x in expected.items() if x >= 5]
    rest = n - sum(x for x, _ in cells), n - sum(count for _, count in cells)
    cells += [rest] * (rest[0] > 1)
    chi = sum((count - x) ** 2 / x for x, count in cells)
    freedom = len(cells) - 1
    assert abs(chi - freedom) < 4 * math.sqrt(2 * freedom)


def test_the_first_token_is_distributed_as_wanted():
    """20,000 draws; a guess replaced by a draw from p itself would come too often."""
    draw = torch.softmax(2 * torch.randn(2, 3, V, generator=seeded(3)), -1).double()
    wanted, chances, generator = draw[0], draw[1][:2], seeded(4)
    n, first = 20_000, Counter()
    for guesses in torch.multinomial(chances, n, True, generator=generator).T:
        first[int(checked(guesses, chances, wanted, generator)[0])] += 1
    for token in range(V):
        spread = math.sqrt(wanted[0, token] * (1 - wanted[0, token]) / n)
        assert abs(first[token] / n - wanted[0, token]) < 4 * spread


def test_look_up_guesses_what_followed_last_time():
    guess = LookUp(50, n_guesses=2, n_same=2)
    text = torch.tensor([1, 2, 7, 8, 9, 1, 2, 5, 6, 4, 1, 2])
    guesses, chances = guess(text)
    assert guesses.tolist() == [5, 6]
    assert chances.argmax(-1).tolist() == [5, 6] and chances.sum() == 2
    assert len(guess(torch.tensor([1, 2, 3]))[0]) == 0
    assert len(guess(torch.tensor([1, 2]))[0]) == 0
    assert guess(torch.tensor([3, 3, 3]))[0].tolist() == [3]


def test_a_smaller_model_reads_no_token_twice():
    """After each pass it goes on from where its guesses and the text agree."""
    seen = []
    hook = OTHER.register_forward_hook(
        lambda m, args, out: seen.append(args[0].numel())
    )
    prompt = torch.randint(V, (4,), generator=seeded(5))
    passes = [*speculate(MODEL, prompt, 10, Smaller(OTHER, 2))]
    hook.remove()
    assert sum(seen) <= len(prompt) + 10 + 3 * len(passes)


@pytest.mark.parametrize(
    "prompt, n_new, guess, words",
    [
        (torch.zeros(0, dtype=torch.long), 3, LookUp(V), "1 token or more"),
        (torch.zeros(9, dtype=torch.long), 9, LookUp(V), "9 are to come"),
        (torch.zeros(2, 2, dtype=torch.long), 3, LookUp(V), "must be integers"),
        (torch.tensor([1]), 3, lambda text: ([1], [1]), "guesses is .1."),
        (torch.tensor([1]), 3, LookUp(7, n_same=1), ""),
    ],
)
def test_what_cannot_be_is_refused(prompt, n_new, guess, words):
    if isinstance(guess, LookUp) and guess.d_vocab == 7:
        prompt, words = torch.tensor([1, 1, 1]), r"they must be .*, 5\)"
    with pytest.raises(ValueError, match=words):
        list(speculate(MODEL, prompt, n_new, guess))


@pytest.mark.parametrize("make", [LookUp, lambda d, n: Smaller(OTHER, n)])
def test_no_guesses_at_all_are_refused(make):
    with pytest.raises(ValueError, match="n_guesses is 0"):
        make(V, 0)
