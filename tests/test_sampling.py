"""Sampling against transformers, definitions by brute force, and counting."""

import itertools
import math
from unittest.mock import patch

import pytest
import torch
from common import seeded
from torch.testing import assert_close
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from companion import (
    GPT,
    ConcatenatingCache,
    GPTConfig,
    Int8Cache,
    PreallocatedCache,
    SlidingWindowCache,
    beam_search,
    generate,
    greedy,
    min_p,
    sample,
    temperature,
    top_k,
    top_p,
)
from companion.positions import POSITIONS

WINDOW = 6
SAMPLERS = {
    "temperature": lambda logits: temperature(logits, 0.7),
    "top_k": lambda logits: top_k(logits, 3),
    "top_p": lambda logits: top_p(logits, 0.8),
}
SHAPES = [(9,), (4, 9), (2, 3, 9)]


def random_logits(*shape, seed=0):
    return 2 * torch.randn(*shape, generator=seeded(seed))


def kept(logits) -> list[int]:
    return logits.isfinite().nonzero().flatten().tolist()


@pytest.mark.parametrize(
    "ours, theirs",
    [
        *[
            (lambda x, t=t: temperature(x, t), TemperatureLogitsWarper(t))
            for t in (0.3, 2.5)
        ],
        *[(lambda x, k=k: top_k(x, k), TopKLogitsWarper(k)) for k in (1, 5, 40)],
        *[(lambda x, p=p: top_p(x, p), TopPLogitsWarper(p)) for p in (0.01, 0.5, 0.95)],
    ],
)
def test_each_sampler_is_that_of_transformers(ours, theirs):
    logits = random_logits(50, 40)
    assert_close(ours(logits), theirs(None, logits), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sampler_takes_any_leading_axes_and_changes_no_input(name, shape):
    logits = random_logits(*shape)
    copy = logits.clone()
    out = SAMPLERS[name](logits)
    assert torch.equal(logits, copy)
    rows = [SAMPLERS[name](row) for row in copy.view(-1, 9)]
    assert_close(out, torch.stack(rows).view(shape))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize(
    "logits", [[1.0, 1, 1, 1, 1, 1], [0.0, 2, 1, 1, 1, 3], [1.0, 3, 2, 5, 4, 0]]
)
def test_top_k_keeps_k_of_the_largest_even_with_ties(logits, k):
    out = top_k(torch.tensor(logits), k)
    assert len(kept(out)) == k
    assert sorted(out[kept(out)].tolist()) == sorted(logits)[-k:]
    assert all(out[i] == logits[i] for i in kept(out))


@pytest.mark.parametrize(
    "probabilities, p, expected",
    [
        ([0.5, 0.3, 0.15, 0.05], 0.9, [0, 1, 2]),  # the token that crosses p is in
        ([0.05, 0.15, 0.3, 0.5], 0.9, [1, 2, 3]),
        ([0.5, 0.3, 0.15, 0.05], 0.4, [0]),
        ([0.5, 0.25, 0.25], 0.5, [0]),  # reached exactly
        ([0.5, 0.25, 0.25], 0.51, [0, 1]),
        ([0.1, 0.9], 1e-9, [1]),  # never nothing
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(probabilities, p, expected):
    assert kept(top_p(torch.tensor(probabilities).log(), p)) == expected


@pytest.mark.parametrize("p", [0.1, 0.35, 0.6, 0.9, 0.99])
def test_top_p_is_its_definition_on_random_logits(p):
    for logits in random_logits(30, 12):
        probabilities = logits.double().softmax(-1)
        order = sorted(range(12), key=lambda i: -logits[i].item())
        smallest = next(
            n for n in range(1, 13) if sum(probabilities[order[:n]].tolist()) >= p
        )
        out = top_p(logits, p)
        assert kept(out) == sorted(order[:smallest])
        assert torch.equal(out[kept(out)], logits[kept(out)])


def test_top_p_of_1_keeps_everything():
    logits = torch.cat([random_logits(20, 50), 30 * random_logits(20, 50)])
    assert torch.equal(top_p(logits, 1), logits)
    assert torch.equal(top_p(logits, 1.0), logits)


def test_samplers_compose_and_what_is_ruled_out_stays_out():
    logits = random_logits(5, 20)
    out = temperature(top_p(top_k(logits, 4), 0.8), 0.5)
    assert (out.isfinite().sum(-1) <= 4).all() and out.isfinite().any(-1).all()
    best = out.argmax(-1)
    assert torch.equal(best, logits.argmax(-1))


@pytest.mark.parametrize("t", [0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(t):
    with pytest.raises(ValueError, match=f"t is {t}; it must be above 0"):
        temperature(random_logits(5), t)


@pytest.mark.parametrize("k", [0, -1, 6])
def test_k_outside_the_vocabulary_is_refused(k):
    with pytest.raises(
        ValueError, match=f"k is {k}; it must be (from )?1 (to 5|or more)"
    ):
        top_k(random_logits(5), k)


@pytest.mark.parametrize("p", [0, -0.1, 1.01, math.nan])
def test_p_outside_0_to_1_is_refused(p):
    with pytest.raises(ValueError, match=f"p is {p}"):
        top_p(random_logits(5), p)


def test_greedy_takes_the_likeliest():
    logits = torch.tensor([[[0.0, 3, 1], [9, 2, 9.5]], [[-1, -2, -3], [1, 4, 2]]])
    assert greedy(logits).tolist() == [[1, 2], [0, 1]]


@pytest.mark.parametrize("t", [0.5, 1.0, 3.0])
def test_samples_are_as_frequent_as_their_probabilities(t):
    logits, n = torch.tensor([2.0, 0, -math.inf, 1, -1, 0.5]), 20_000
    draws = sample(temperature(logits, t).expand(n, 6), seeded())
    expected = n * (logits / t).softmax(-1)
    counts = torch.bincount(draws, minlength=6)
    assert draws.shape == (n,)
    assert counts[2] == 0
    errors = (counts - expected).square() / expected
    # Chi-square with 4 degrees of freedom: above 23.5 once in 10,000 times.
    assert errors[expected > 0].sum() < 23.5


def test_a_token_that_is_ruled_out_is_never_drawn():
    logits = torch.full((200_000, 4), -math.inf)
    logits[:, 1], logits[:, 3] = -80.0, -80.0
    counts = torch.bincount(sample(logits, seeded()).flatten(), minlength=4)
    assert counts[0] == counts[2] == 0
    assert abs(counts[1] - 100_000) < 1_000


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sample_is_one_token_a_row_and_the_generators_alone(shape):
    def draw(seed, global_seed):
        torch.manual_seed(global_seed)
        return sample(torch.zeros(shape), seeded(seed))

    assert draw(0, 1).shape == shape[:-1]
    assert torch.equal(draw(0, 1), draw(0, 2))
    assert any(not torch.equal(draw(0, 1), draw(seed, 1)) for seed in range(1, 9))


def test_rows_are_drawn_independently():
    draws = sample(torch.zeros(10_000, 2, 2), seeded())
    alike = (draws[:, 0] == draws[:, 1]).float().mean().item()
    assert alike == pytest.approx(0.5, abs=0.02)


def tiny_gpt(positions="learned", dropout=0.0) -> GPT:
    """Weights large enough that greedy text is no constant and has no near ties."""
    sizes = {"d_vocab": 11, "context_length": WINDOW, "d_model": 8, "n_heads": 2}
    how = {"n_layers": 2, "tied": False, "positions": positions, "dropout": dropout}
    model, generator = GPT(GPTConfig(**sizes, **how)), seeded(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.7, generator=generator)
    return model.eval()


def prompts(n, n_sequences=None, seed=0):
    shape = (n,) if n_sequences is None else (n_sequences, n)
    return torch.randint(11, shape, generator=seeded(seed))


@torch.no_grad()
def greedy_by_hand(model, tokens, n_new):
    """The whole window through the model for every token of one sequence."""
    for _ in range(n_new):
        logits = model(tokens[None, -WINDOW:])[0, -1]
        tokens = torch.cat([tokens, logits.argmax()[None]])
    return tokens[-n_new:]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("n_prompt", [1, 4, WINDOW - 1, WINDOW])
def test_greedy_text_is_the_recomputed_one_before_and_past_the_window(
    n_prompt, positions, use_cache
):
    model, batch = tiny_gpt(positions), prompts(n_prompt, 3)
    expected = [greedy_by_hand(model, prompt, 8) for prompt in batch]
    assert len(set(torch.cat(expected).tolist())) > 1
    out = list(generate(model, batch, 8, use_cache=use_cache))
    assert all(tokens.shape == (3,) for tokens in out)
    assert torch.equal(torch.stack(out, 1), torch.stack(expected))
    alone = list(generate(model, batch[1], 8, use_cache=use_cache))
    assert all(token.shape == () for token in alone)
    assert torch.equal(torch.stack(alone), expected[1])


@pytest.mark.parametrize("use_cache, n_seen", [(True, 2 + 3), (False, 2 + 3 + 4 + 5)])
def test_with_a_cache_every_token_is_computed_once(use_cache, n_seen):
    model, seen = tiny_gpt(), []
    model.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    assert len(list(generate(model, prompts(2), 4, use_cache=use_cache))) == 4
    assert sum(seen) == n_seen


@pytest.mark.parametrize("n_new, room", [(500, WINDOW), (3, 5)])
def test_the_cache_is_given_as_much_room_as_the_text_and_the_window_need(n_new, room):
    model, rooms, make = tiny_gpt(), [], GPT.new_caches
    with patch.object(
        GPT, "new_caches", lambda self, n: rooms.append(n) or make(self, n)
    ):
        out = list(generate(model, prompts(2), n_new))
    assert rooms == [room]
    assert torch.equal(torch.stack(out), greedy_by_hand(model, prompts(2), n_new))


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_same_generator_writes_the_same_text(use_cache):
    def write(seed):
        generator = seeded(seed)
        how = {"choose": lambda x: sample(temperature(x, 2), generator)}
        out = generate(tiny_gpt(), prompts(2, 2), 12, use_cache=use_cache, **how)
        return torch.stack(list(out), 1)

    assert torch.equal(write(0), write(0))
    assert not torch.equal(write(0), write(1))


def test_sampled_text_is_the_same_with_and_without_a_cache():
    def write(use_cache):
        generator = seeded()
        how = {"choose": lambda x: sample(top_k(x, 5), generator)}
        out = generate(tiny_gpt(), prompts(2, 2), 12, use_cache=use_cache, **how)
        return torch.stack(list(out), 1)

    assert torch.equal(write(True), write(False))


@pytest.mark.parametrize("n_new", [0, 1, 7])
def test_there_are_as_many_new_tokens_as_asked_for(n_new):
    prompt = prompts(3)
    copy = prompt.clone()
    assert len(list(generate(tiny_gpt(), prompt, n_new))) == n_new
    assert torch.equal(prompt, copy)


@pytest.mark.parametrize("training", [True, False])
def test_text_is_written_without_dropout_and_the_mode_is_given_back(training):
    model = tiny_gpt(dropout=0.5).train(training)
    expected = greedy_by_hand(tiny_gpt(), prompts(3), 6)
    assert torch.equal(torch.stack(list(generate(model, prompts(3), 6))), expected)
    assert model.training == training


def test_texts_written_in_turn_never_see_dropout():
    model = tiny_gpt(dropout=0.5).train()
    expected = greedy_by_hand(tiny_gpt(), prompts(3), 6)
    long, short = generate(model, prompts(3), 6), generate(model, prompts(3), 2)
    found = []
    for _ in range(6):
        found.append(next(long))
        assert model.training
        next(short, None)
    assert torch.equal(torch.stack(found), expected)


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_mode_is_given_back_whatever_is_raised(use_cache):
    model = tiny_gpt().train()

    def broken(logits):
        raise RuntimeError("no choice")

    with pytest.raises(RuntimeError, match="no choice"):
        next(generate(model, prompts(3), 6, choose=broken, use_cache=use_cache))
    assert all(part.training for part in model.modules())
    with pytest.raises(ValueError, match="vocabulary"):
        next(generate(model, prompts(3) + 20, 6, use_cache=use_cache))
    with pytest.raises(ValueError, match="vocabulary"):
        beam_search(model, prompts(3) + 20, 2, 3)
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("shape", [(0,), (2, 0), (), (1, 2, 3)])
def test_a_prompt_without_tokens_or_of_another_shape_is_refused_at_once(shape):
    message = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=message):
        generate(tiny_gpt(), torch.zeros(shape, dtype=torch.int64), 3)


def tiny(d_vocab: int = 5, seed: int = 0) -> GPT:
    """A model of random weights, large enough for its guesses to differ."""
    config = GPTConfig(
        d_vocab=d_vocab, context_length=12, d_model=16, n_heads=2, n_layers=2
    )
    model = GPT(config, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model


def exhaustive(model, prompt, n_new, length_penalty, end):
    """Every continuation scored by one plain forward pass each, best first."""
    d_vocab, found = model.config.d_vocab, {}
    for new in itertools.product(range(d_vocab), repeat=n_new):
        new = list(new)
        if end in new:
            new = new[: new.index(end) + 1]
        tokens = torch.cat([prompt, torch.tensor(new)])
        chances = model(tokens[None])[0].log_softmax(-1)
        total = sum(chances[len(prompt) + i - 1, t].item() for i, t in enumerate(new))
        found[tuple(new)] = total / len(new) ** length_penalty
    return sorted(((s, list(new)) for new, s in found.items()), reverse=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("end", [None, 2])
def test_beams_that_cover_everything_find_what_exhaustive_search_finds(
    seed, length_penalty, end
):
    model, prompt = tiny(seed=seed).eval(), torch.tensor([1, 3, 0])
    for n_new, n_beams in ((1, 3), (1, 5), (2, 5)):
        right = exhaustive(model, prompt, n_new, length_penalty, end)[:n_beams]
        scores = [score for score, _ in right]
        ours = beam_search(
            model, prompt, n_beams, n_new, length_penalty=length_penalty, end=end
        )
        assert [tokens for _, tokens in ours] == [t for _, t in right]
        assert [s for s, _ in ours] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_one_beam_is_greedy_search(seed):
    model, prompt = tiny(11, seed), torch.tensor([4, 2])
    ours = beam_search(model, prompt, 1, 8)[0][1]
    assert ours == [int(token) for token in generate(model, prompt, 8)]
    ours = beam_search(model, prompt, 1, 8, end=ours[3])[0][1]
    assert ours == [int(t) for t in generate(model, prompt, 8, end=ours[-1])]


@pytest.mark.parametrize("seed", range(5))
def test_beam_search_equals_a_loop_over_beams_without_a_cache(seed):
    model, prompt, n_beams = tiny(7, seed).eval(), torch.tensor([4, 2]), 3
    beams = [(0.0, [])]
    for _ in range(6):
        grown = []
        for total, new in beams:
            tokens = torch.cat([prompt, torch.tensor(new, dtype=torch.long)])
            chances = model(tokens[None])[0, -1].log_softmax(-1).tolist()
            grown += [(total + chance, [*new, t]) for t, chance in enumerate(chances)]
        beams = sorted(grown, reverse=True)[:n_beams]
    ours = beam_search(model, prompt, n_beams, 6)
    assert [tokens for _, tokens in ours] == [tokens for _, tokens in beams]


def test_beam_search_keeps_the_model_s_mode_and_names_what_is_allowed():
    model, prompt = tiny().train(), torch.tensor([1])
    beam_search(model, prompt, 2, 3)
    assert model.training
    with pytest.raises(ValueError, match="n_beams is 6; it must be from 1 to 5"):
        beam_search(model, prompt, 6, 3)
    for penalty in (2, -0.5):
        with pytest.raises(ValueError, match=f"length_penalty is {penalty}"):
            beam_search(model, prompt, 2, 3, length_penalty=penalty)
    message = "has 1 tokens and 12 are to come, the context_length is 12"
    with pytest.raises(ValueError, match=message):
        beam_search(model, prompt, 2, 12)
    with pytest.raises(ValueError, match=r"shape \(1, 1\); it must be integers \(t\)"):
        beam_search(model, prompt[None], 2, 3)
    assert all(part.training for part in model.modules())


def test_generation_stops_when_every_stream_has_ended():
    model = tiny(11)
    prompt = torch.tensor([[4, 2], [3, 3], [9, 1]])
    free = torch.stack(list(generate(model, prompt, 10)), 1)
    end = int(free[0, 2])
    ours = torch.stack(list(generate(model, prompt, 10, end=end)), 1)
    for row, right in zip(ours.tolist(), free.tolist(), strict=True):
        stop = right.index(end) + 1 if end in right else 10
        assert row[:stop] == right[:stop][: len(row)]
        assert all(token == end for token in row[stop:])
    alone = list(generate(model, prompt[0], 10, end=end))
    assert [int(t) for t in alone] == free[
        0, : free[0].tolist().index(end) + 1
    ].tolist()


def test_a_prompt_beyond_the_context_is_refused():
    with pytest.raises(ValueError, match="13 tokens, the context_length is 12"):
        generate(tiny(), torch.zeros(13, dtype=torch.long), 1)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.99, 1.0])
def test_min_p_keeps_what_transformers_keeps(p):
    logits = 3 * torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    assert_close(min_p(logits, p), MinPLogitsWarper(p)(None, logits.clone()))
    assert torch.equal(logits, before)
    assert torch.equal(min_p(logits[:, None], p)[:, 0], min_p(logits, p))


@pytest.mark.parametrize("p", [0, -0.1, 1.1])
def test_min_p_outside_0_to_1_is_refused(p):
    with pytest.raises(ValueError, match=f"p is {p}"):
        min_p(torch.zeros(3), p)


@pytest.mark.parametrize("positions", POSITIONS)
def test_prompts_of_different_lengths_go_on_together_as_each_would_alone(positions):
    config = GPTConfig(
        d_vocab=11,
        context_length=16,
        d_model=16,
        n_heads=2,
        n_layers=2,
        positions=positions,
    )
    model = GPT(config, torch.Generator().manual_seed(3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    prompts = [torch.tensor(p) for p in ([1, 2, 3, 4, 5], [7], [9, 2])]
    together = torch.stack(list(generate(model, prompts, 9)), 1)
    for prompt, new in zip(prompts, together, strict=True):
        alone = torch.stack(list(generate(model, prompt, 9)))
        assert torch.equal(new, alone)


def test_a_list_of_prompts_must_fit_the_context_and_hold_tokens():
    model, one = tiny(), torch.tensor([1, 2])
    with pytest.raises(
        ValueError, match="11 tokens and 2 are to come, the context_length is 12"
    ):
        generate(model, [one, torch.zeros(11, dtype=torch.long)], 2)
    with pytest.raises(ValueError, match="must hold 1 token"):
        generate(model, [one, torch.zeros(0, dtype=torch.long)], 2)
    for how in ({"use_cache": False}, {"caches": model.new_caches()}):
        with pytest.raises(ValueError, match="list of prompts"):
            generate(model, [one], 2, **how)


@pytest.mark.parametrize("kind", [ConcatenatingCache, lambda: SlidingWindowCache(12)])
def test_other_caches_give_the_same_text_and_the_same_beams(kind):
    model, prompt = tiny(11), torch.tensor([4, 2])
    ours = list(generate(model, prompt, 10, caches=[kind() for _ in model.blocks]))
    assert ours == list(generate(model, prompt, 10))
    ours = beam_search(model, prompt, 3, 6, caches=[kind() for _ in model.blocks])
    assert [t for _, t in ours] == [t for _, t in beam_search(model, prompt, 3, 6)]


@pytest.mark.parametrize(
    "kind", [ConcatenatingCache, lambda: PreallocatedCache(12), lambda: Int8Cache(12)]
)
@torch.no_grad()
def test_a_cache_that_generate_has_filled_can_be_used_by_hand(kind):
    model, prompt = tiny(11).eval(), torch.tensor([4, 2])
    caches = [kind() for _ in model.blocks]
    new = torch.stack(list(generate(model, prompt, 3, caches=caches)))
    text = torch.cat([prompt, new])
    logits = model(text[None, -1:], caches)[:, -1]
    assert_close(logits, model(text[None])[:, -1], atol=0.2, rtol=0)


def test_a_talk_goes_on_from_what_its_caches_hold():
    model, first, second = tiny(11), torch.tensor([4, 2]), torch.tensor([3])
    caches = model.new_caches()
    list(generate(model, first, 1, caches=caches))
    assert len(caches[0]) == 2
    ours = list(generate(model, second, 4, caches=caches))
    assert ours == list(generate(model, torch.cat([first, second]), 4))
