"""Speculation: the same text, or the same distribution, in fewer passes."""

import math
from collections import Counter
from itertools import product
from random import Random
from unittest.mock import patch

import pytest
import torch
from common import random, random_tokens, seeded, shaken
from torch import nn

from companion import GPT, GPTConfig, PromptLookup, generate, speculate
from companion.decoding import speculation

V = 3
CONFIG = GPTConfig(
    d_vocab=V,
    context_length=16,
    d_model=8,
    n_heads=2,
    n_layers=2,
    positions="rotary",
    tie_embeddings=False,
)
MODEL, OTHER = (shaken(GPT(CONFIG), 0.5, seed).double() for seed in (0, 1))
soft = nn.Softmax(-1)
ALL = torch.tensor([[0, 0, 1.0]])  # all on the last token


def draft(model, n, draw=torch.argmax, probabilities=speculation.greedy_probabilities):
    """A model that guesses n tokens, one after another, with no cache."""

    @torch.no_grad()
    def guess(text):
        start = len(text)
        for _ in range(n):
            text = torch.cat([text, draw(model(text[None])[0, -1])[None]])
        return text[start:], probabilities(model(text[None])[0, start - 1 : -1])

    return guess


GUESSERS = {
    "look-up": lambda n: PromptLookup(V, n, 1),
    "another model": lambda n: draft(OTHER, n),
    "itself": lambda n: draft(MODEL, n),
    "nobody": lambda n: lambda text: (text[:0], torch.zeros(0, V)),
}


@pytest.mark.parametrize("guesser", GUESSERS)
def test_greedy_text_is_generates(guesser):
    for seed in range(30):
        draw = Random(seed)
        prompt = random_tokens(draw.randint(1, 6), d_vocab=V, seed=seed)
        n, end = draw.randint(1, 5), draw.choice([None, 0, 2])
        for n_new in (0, 1, 10):
            alone = [int(token) for token in generate(MODEL, prompt, n_new, end=end)]
            passes = [*speculate(MODEL, prompt, n_new, GUESSERS[guesser](n), end=end)]
            assert [token for new in passes for token in new.tolist()] == alone
            assert all(1 <= len(new) <= n + 1 for new in passes)
            if guesser == "itself":  # always right
                assert len(passes) == math.ceil(len(alone) / (n + 1))


class Bigram(nn.Module):
    """The least model: logits that depend on the last token alone."""

    config = CONFIG

    def __init__(self, seed, dtype=torch.float32):
        super().__init__()
        self.table = random(V, V, seed=seed).to(dtype)

    def forward(self, tokens, cache=None):
        if cache is not None:
            cache.advance(tokens.shape[1])
        return self.table[tokens]


class Fork:
    """Chance as a tree: `every` runs a function for each way its draws can fall."""

    def draw(self, probabilities: list[float]) -> int:
        """One that is possible; each of them in its turn."""
        if len(self.path) == self.depth:
            self.path.append([(i, x) for i, x in enumerate(probabilities) if x])
        self.depth += 1
        return self.path[self.depth - 1][-1][0]

    def every(self, call):
        """(probability, result) of each path."""
        self.path = []
        more = True
        while more:
            self.depth = 0
            result = call()
            yield math.prod(ways[-1][1] for ways in self.path), result
            while self.path and len(self.path[-1]) == 1:
                self.path.pop()
            more = self.path and self.path[-1].pop()

    def sample(self, logits, generator=None):
        return torch.tensor(self.draw(logits.softmax(-1).tolist()))

    def rand(self, *shape, generator=None, device=None):
        return self

    def __lt__(self, x):
        """Whether a uniform number is below x: it is drawn when it is compared."""
        return not self.draw([min(1, float(x)), 1 - min(1, float(x))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("guesser", ["look-up", "another model"])
def test_sampled_texts_have_exactly_the_models_distribution(guesser, dtype):
    """Every way the guesses, their acceptance and the new draws can fall, by weight."""
    prompt = torch.tensor([1, 2, 1])
    fork = Fork()
    frequencies = Counter()
    model = Bigram(0, dtype)
    drafted = draft(Bigram(1), 2, fork.sample, soft)
    guess = PromptLookup(V, 2, 1) if guesser == "look-up" else drafted

    def write():
        texts = speculate(model, prompt, 3, guess, probabilities=soft)
        return tuple(torch.cat([*texts]).tolist())

    with patch.object(speculation, "sample", fork.sample):
        with patch.object(torch, "rand", fork.rand):
            for probability, text in fork.every(write):
                frequencies[text] += probability

    after = soft(model.table.double()).tolist()
    for a, b, c in product(range(V), repeat=3):
        right = after[prompt[-1]][a] * after[a][b] * after[b][c]
        # Three probabilities in float32, each of a sum over the vocabulary.
        close = 3 * V * torch.finfo(torch.float32).eps
        assert frequencies[a, b, c] == pytest.approx(right, abs=close)


def test_the_first_token_is_distributed_as_wanted():
    """5,000 real draws, of guesses that are often wrong."""
    target, draft_probabilities = soft(2 * random(2, 3, V, seed=3)).double()
    draft_probabilities = draft_probabilities[:2]
    generator = seeded(4)
    n = 5_000
    drafts = torch.multinomial(draft_probabilities, n, True, generator=generator).T

    first = Counter()
    for tokens in drafts:
        new = speculation.accept(tokens, draft_probabilities, target, generator)
        first[int(new[0])] += 1
    for token in range(V):
        spread = math.sqrt(target[0, token] * (1 - target[0, token]) / n)
        assert abs(first[token] / n - target[0, token]) < 4 * spread


@pytest.mark.parametrize("chance", [0, -0.5, math.nan])
def test_a_guess_that_its_own_probabilities_rule_out_is_refused(chance):
    """1 / 0 is infinite: such a guess would always be kept. None draws so."""
    draft = torch.tensor([[0.5, 0.5, 0], [0.5, 0.5, chance]])
    for target in (torch.full((3, 3), 1 / 3), torch.eye(3)):
        words = f"token 2 was drafted in row 1, .* give it {chance:g}"
        with pytest.raises(ValueError, match=words):
            speculation.accept(torch.tensor([0, 2]), draft, target, seeded())


@pytest.mark.parametrize("probabilities", [soft, speculation.greedy_probabilities])
def test_logits_that_are_no_numbers_are_refused(probabilities):
    """Also after good ones, while guesses are kept."""
    model = Bigram(0)
    model.table[2] = math.nan
    writing = speculate(
        model,
        torch.tensor([1, 2, 1]),
        12,
        lambda text: (text[:1] * 0 + 2, ALL),
        probabilities=probabilities,
        generator=seeded(),
    )
    with pytest.raises(ValueError, match="must be finite"):
        list(writing)


def test_tokens_are_ordinary_tensors():
    """Those of inference mode may not be written to outside of it."""
    for new in speculate(MODEL, torch.tensor([1, 2, 1]), 6, PromptLookup(V, 2, 1)):
        assert not new.is_inference()


def test_prompts_may_be_of_32_bits():
    prompt = torch.tensor([1, 2, 1, 2, 1])
    passes = [
        torch.cat([*speculate(MODEL, x, 6, PromptLookup(V, 2, 1))]).tolist()
        for x in (prompt, prompt.int())
    ]
    assert passes[0] == passes[1]


@pytest.mark.parametrize("guesser", GUESSERS)
def test_greedy_text_moves_no_generator(guesser):
    prompt = torch.tensor([1, 2, 1])
    own = seeded()
    before = torch.get_rng_state(), own.get_state()
    list(generate(MODEL, prompt, 6))
    list(speculate(MODEL, prompt, 6, GUESSERS[guesser](2)))
    list(speculate(MODEL, prompt, 6, GUESSERS[guesser](2), generator=own))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(own.get_state(), before[1])


def test_whoever_fails_or_stops_leaves_the_models_mode():
    model = GPT(CONFIG).train()
    model.blocks[0].eval()

    def fails(*_):
        raise InterruptedError

    prompt = torch.tensor([1, 2])
    for writing in (
        speculate(model, prompt, 5, fails),
        speculate(model, prompt, 5, PromptLookup(V), probabilities=fails),
    ):
        with pytest.raises(InterruptedError):
            list(writing)
        assert model.training and not model.blocks[0].training
    writing = speculate(model, prompt, 5, PromptLookup(V))
    next(writing)
    assert model.training and not model.blocks[0].training
    writing.close()
    assert model.training and not model.blocks[0].training


def test_look_up_guesses_what_followed_last_time():
    guess = PromptLookup(50, n_guesses=2, n_same=2)
    guesses, probabilities = guess(torch.tensor([1, 2, 7, 8, 1, 2, 5, 6, 4, 1, 2]))
    assert guesses.tolist() == [5, 6]
    assert torch.equal(probabilities, torch.eye(50)[[5, 6]])
    for text, right in (([1, 2, 3], []), ([1, 2], []), ([3, 3, 3], [3])):
        assert guess(torch.tensor(text))[0].tolist() == right


def test_what_cannot_be_is_refused():
    nine = random_tokens(9, d_vocab=V)
    for prompt, n_new, words in (
        (nine[:0], 3, "1 token or more"),
        (nine, 9, "9 and 9 tokens exceed"),
        (nine[None], 3, "must be integers"),
        (nine, -1, "n_new is -1"),
    ):
        with pytest.raises(ValueError, match=words):
            speculate(MODEL, prompt, n_new, PromptLookup(V))  # at the call
    for name in ("n_guesses", "n_same"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            PromptLookup(V, **{name: 0})
