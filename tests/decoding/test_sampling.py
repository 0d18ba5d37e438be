"""Sampling against transformers, definitions by brute force, and counting."""

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
import torch
import transformers as hf
from common import random, random_tokens, rounding, seeded, shaken
from torch.testing import assert_close

import companion as c
from companion import beam_search, generate, sample, temperature, top_k, top_p
from companion.decoding.sampling import greedy, prefill
from companion.model.positions import POSITIONS

V, WINDOW = 11, 8
N_TERMS = 2 * 64  # two layers of 64 hidden features
prompts = partial(random_tokens, d_vocab=V)


def gpt(positions="learned", seed=4, **options) -> c.GPT:
    """With this seed greedy texts vary for each scheme, and have no near ties."""
    config = c.GPTConfig(
        d_vocab=V,
        context_length=WINDOW,
        d_model=16,
        n_heads=4,
        n_layers=2,
        tie_embeddings=False,
        positions=positions,
    )
    return shaken(c.GPT(replace(config, **options)), 0.5, seed)


def remaining(logits) -> list[int]:
    """The tokens that are not ruled out."""
    return logits.isfinite().nonzero().flatten().tolist()


def written(*args, **options) -> list:
    """A generated text; one for each stream of a batch."""
    return torch.stack(list(generate(*args, **options)), -1).tolist()


def ended(text, end) -> list:
    """A text up to its first `end`."""
    return text[: text.index(end) + 1] if end in text else text


@pytest.mark.parametrize(
    "sampler, warper, numbers",
    [
        (temperature, hf.TemperatureLogitsWarper, (0.3, 2.5)),
        (top_k, hf.TopKLogitsWarper, (1, 5, 40)),
        (top_p, hf.TopPLogitsWarper, (0.01, 0.5, 0.95)),
        (c.min_p, hf.MinPLogitsWarper, (0.01, 0.1, 0.5, 0.99, 1.0)),
    ],
)
def test_each_sampler_is_that_of_transformers(sampler, warper, numbers):
    """On any leading axes, and without a change of its input."""
    logits = 2 * random(50, 40)
    copy = logits.clone()
    for x in numbers:
        expected = warper(x)(None, copy.clone())
        result = sampler(logits, x)
        assert_close(result, expected)
        again = sampler(logits.view(5, 10, 40), x)
        assert torch.equal(again.view(50, 40), result)
        assert torch.equal(sampler(logits[0], x), result[0])
    assert torch.equal(logits, copy)


def test_greedy_takes_the_likeliest_on_any_leading_axes():
    logits = random(50, 40)
    right = [row.index(max(row)) for row in logits.tolist()]
    assert greedy(logits.view(5, 10, 40)).flatten().tolist() == right


def test_top_k_keeps_k_of_the_largest_even_with_ties():
    for logits in ([1.0, 1, 1, 1, 1, 1], [0.0, 2, 1, 1, 1, 3], [1.0, 3, 2, 5, 4, 0]):
        for k in range(1, 7):
            out = top_k(torch.tensor(logits), k)
            assert len(remaining(out)) == k
            assert sorted(out[remaining(out)].tolist()) == sorted(logits)[-k:]


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    for probabilities, p, expected in (
        ([0.5, 0.3, 0.15, 0.05], 0.9, [0, 1, 2]),  # the token that crosses p is in
        ([0.05, 0.15, 0.3, 0.5], 0.4, [3]),
        ([0.5, 0.25, 0.25], 0.5, [0]),  # reached exactly
        ([0.5, 0.25, 0.25], 0.51, [0, 1]),
        ([0.1, 0.9], 1e-9, [1]),  # never nothing
    ):
        assert remaining(top_p(torch.tensor(probabilities).log(), p)) == expected
    logits = torch.cat([2 * random(20, 50), 60 * random(20, 50)])
    assert torch.equal(top_p(logits, 1), logits)


def test_what_no_sampler_can_use_is_refused():
    calls = [(temperature, t, f"t is {t}; .* above 0") for t in (0, -1.0, math.nan)]
    calls += [(top_k, k, f"k is {k}; it must be") for k in (0, -1, 6)]
    calls += [(top_p, p, f"p is {p};") for p in (0, -0.1, 1.01, math.nan)]
    calls += [(c.min_p, p, f"p is {p};") for p in (0, -0.1, 1.01, math.nan)]
    for sampler, number, words in calls:
        with pytest.raises(ValueError, match=words):
            sampler(random(5), number)


HALF = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", HALF)
def test_masses_and_ratios_of_half_precision_are_those_of_its_logits(dtype):
    """By their definitions in float64, on a vocabulary whose tail adds up."""
    logits = torch.cat([3 * random(4, 20_000), random(4, 20_000)]).to(dtype)
    probabilities = logits.double().softmax(-1)
    for p in (0.1, 0.9, 0.999):
        cut = top_p(logits, p)
        masses = probabilities.masked_fill(cut.isinf(), 0)
        last = masses.masked_fill(cut.isinf(), 1).amin(-1)
        # As far off, by chance, is a sum of so many shares in float32.
        error = 20_000**0.5 * torch.finfo(torch.float32).eps
        assert cut.dtype == dtype and (masses.sum(-1) > p - error).all()
        assert (masses.sum(-1) - last < p + error).all()
        ratios = probabilities / probabilities.amax(-1, keepdim=True) / p
        stays = c.min_p(logits, p).isfinite()
        clear = (ratios - 1).abs() > 1e-6
        assert torch.equal(stays[clear], (ratios > 1)[clear])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
def test_a_temperature_near_0_is_greedy_and_a_very_high_one_is_even(dtype):
    """Whatever the quotients would overflow to; what is ruled out stays so."""
    logits = torch.tensor([[1.0, 30, -math.inf, 29.9], [-9, -7, -math.inf, -8]])
    logits = logits.to(dtype)
    for t in (1e-4, 1e-8, 1e-39, 1e-50, 5e-324):
        sharp = temperature(logits, t)
        assert sharp.dtype == dtype and sharp[:, 2].eq(-math.inf).all()
        assert torch.equal(sharp.double().softmax(-1), torch.eye(4).double()[[1, 1]])
    for t in (1e9, 1e300, math.inf):
        probabilities = temperature(logits, t).double().softmax(-1)
        even = torch.tensor([1, 1, 0, 1], dtype=torch.float64) / 3
        # At 1e9 a difference of 30 is one of 3e-8.
        assert_close(probabilities, even.expand(2, 4), atol=3e-8, rtol=0)


@pytest.mark.parametrize("dtype", HALF)
def test_at_a_temperature_half_precision_keeps_near_tokens_apart(dtype):
    """42.9 and 42.7 are one number in bfloat16, and a difference of 0.18 is not 0."""
    logits = torch.tensor([30, 29.875, 28, -9]).to(dtype)
    for t in (0.1, 0.7, 2):
        expected = (logits.double() / t).softmax(-1)
        result = temperature(logits, t).double().softmax(-1)
        # A difference d is rounded by half an epsilon of it, and d e⁻ᵈ is below 1.
        assert_close(result, expected, atol=torch.finfo(dtype).eps / 2, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_cuts_in_any_order_bring_nothing_back_and_leave_the_likeliest(dtype):
    """With settings at the edge of what is allowed, after tokens were ruled out."""
    logits = 5 * random(20, 40)
    logits[:, ::2] = -math.inf
    logits = logits.to(dtype)
    likeliest = greedy(logits)[:, None]
    cuts = [(top_k, 1), (top_k, 30), (top_p, 1e-50), (top_p, 0.7), (top_p, 1)]
    cuts += [(c.min_p, 5e-324), (c.min_p, 1), (temperature, 1e-39), (temperature, 3)]
    for (first, x), (second, y) in product(cuts, cuts):
        cut = second(first(logits, x), y)
        assert cut.dtype == dtype and cut[:, ::2].eq(-math.inf).all()
        assert cut.gather(-1, likeliest).isfinite().all(), (first, x, second, y)
        assert (sample(cut, seeded()) % 2).all()


@pytest.mark.parametrize("drawn", [0.0, math.inf])
def test_noise_at_its_limits_never_draws_what_is_ruled_out(drawn):
    """PyTorch's numbers are never 0 on a CPU; elsewhere they were seen to be."""
    logits = torch.tensor([-math.inf, -1e4, -math.inf])
    for dtype in (torch.float32, torch.float64, torch.float16):
        noise = patch.object(
            torch.Tensor, "exponential_", lambda x, **_: torch.full_like(x, drawn)
        )
        with noise:
            assert int(sample(logits.to(dtype))) == 1


def test_one_drawn_0_lets_no_unlikely_token_win():
    logits = torch.tensor([0.0, -50])
    drawn = torch.tensor([1.0, 0])
    with patch.object(torch.Tensor, "exponential_", lambda x, **_: drawn):
        assert int(sample(logits)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_a_row_from_which_nothing_can_be_drawn_is_refused(dtype):
    rows = [[math.nan, 0], [0, math.nan], [math.inf, 0], [-math.inf, -math.inf]]
    ways = [greedy, lambda z: sample(z, seeded())]
    cuts = [lambda z: z, lambda z: temperature(z, 1e-9), lambda z: top_k(z, 2)]
    cuts += [lambda z: top_p(z, 0.5), lambda z: c.min_p(z, 0.5)]
    for row, choose, cut in product(rows, ways, cuts):
        logits = torch.tensor([[1.0, 2.0], row], dtype=dtype)
        with pytest.raises(ValueError, match="the largest logit is .*; it must be"):
            choose(cut(logits))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_model_whose_logits_are_no_numbers_writes_nothing(bad):
    model = gpt()
    model.unembedding.register_forward_hook(lambda *args: args[-1] * 0 + bad)
    for write in (
        lambda: list(generate(model, prompts(2), 2)),
        lambda: beam_search(model, prompts(2), 2, 2),
    ):
        with pytest.raises(ValueError, match="must be finite"):
            write()


@pytest.mark.parametrize("t", [0.5, 3.0])
def test_samples_are_as_frequent_as_their_probabilities(t):
    logits = torch.tensor([2.0, 0, -math.inf, 1, -1, 0.5])
    n = 20_000
    draws = sample(temperature(logits, t).expand(n, 6), seeded())
    expected = n * (logits / t).softmax(-1)
    counts = torch.bincount(draws, minlength=6)
    assert draws.shape == (n,) and counts[2] == 0
    errors = (counts - expected).square() / expected
    # Chi-square with 4 degrees of freedom: above 23.5 once in 10,000 times.
    assert errors[expected > 0].sum() < 23.5


def test_an_unlikely_token_is_drawn_and_one_that_is_ruled_out_never():
    logits = torch.tensor([-math.inf, -80, -math.inf, -80]).expand(200_000, 4)
    counts = torch.bincount(sample(logits, seeded()), minlength=4)
    assert (
        counts[0] == counts[2] == 0 and abs(counts[1] - 100_000) < 1_000
    )  # 4.5 of them


def test_rows_are_drawn_independently_and_by_the_generator_alone():
    draws = sample(torch.zeros(10_000, 2, 2), seeded())
    alike = (draws[:, 0] == draws[:, 1]).float().mean().item()
    assert alike == pytest.approx(0.5, abs=0.02)  # of 20,000: six standard errors
    torch.manual_seed(1)
    assert torch.equal(sample(torch.zeros(10_000, 2, 2), seeded()), draws)
    assert not torch.equal(sample(torch.zeros(10_000, 2, 2), seeded(1)), draws)


@torch.no_grad()
def greedy_by_hand(model, tokens, n_new):
    """The whole window through the model for every token of one sequence."""
    for _ in range(n_new):
        logits = model(tokens[None, -WINDOW:])[0, -1]
        tokens = torch.cat([tokens, logits.argmax()[None]])
    return tokens[-n_new:].tolist()


@pytest.mark.parametrize("positions", POSITIONS)
def test_greedy_text_is_the_recomputed_one_before_and_past_the_window(positions):
    model = gpt(positions)
    for n_prompt, use_cache in product((1, 4, WINDOW), (True, False)):
        batch = prompts(3, n_prompt)
        expected = [greedy_by_hand(model, prompt, 9) for prompt in batch]
        assert len({token for text in expected for token in text}) > 1
        assert written(model, batch, 9, use_cache=use_cache) == expected
        assert written(model, batch[1], 9, use_cache=use_cache) == expected[1]


def test_with_a_cache_every_token_is_computed_once():
    """The cache has the room that text and window need."""
    model = gpt()
    seen = []
    model.register_forward_pre_hook(lambda _, args: seen.append(args))

    def passes(n_new, use_cache=True):
        """How many tokens each pass reads; the room of each that has a cache."""
        seen.clear()
        assert len([*generate(model, prompts(2), n_new, use_cache=use_cache)]) == n_new
        rooms = [args[1].capacity for args in seen if len(args) > 1]
        return [args[0].shape[1] for args in seen], rooms

    assert passes(4, use_cache=False) == ([2, 3, 4, 5], [])
    assert passes(4) == ([2, 1, 1, 1], [6] * 4)
    assert passes(100) == ([2] + [1] * 6 + [WINDOW] * 93, [WINDOW] * 7)
    assert passes(0) == ([], [])


def test_sampled_text_is_the_generators_with_and_without_a_cache():
    def write(use_cache, seed=0):
        generator = seeded(seed)
        return written(
            gpt(),
            prompts(2, 2),
            12,
            choose=lambda x: sample(top_k(temperature(x, 2), 5), generator),
            use_cache=use_cache,
        )

    assert write(True) == write(True) == write(False) != write(True, 1)


def test_texts_written_in_turn_never_see_dropout_and_leave_the_mode():
    model = gpt(dropout=0.5).train()
    long = generate(model, prompts(3), 6)
    short = generate(model, prompts(3), 2)
    text = []
    for _ in range(6):
        text.append(int(next(long)))
        assert all(part.training for part in model.modules())
        next(short, None)
    assert text == greedy_by_hand(gpt(), prompts(3), 6)

    model.blocks[0].eval()  # a part of its own mode
    bad = prompts(3) + 20
    beam_search(model, prompts(3), 2, 3)
    for call in (
        lambda: next(generate(model, bad, 4)),
        lambda: next(generate(model, bad, 4, use_cache=False)),
        lambda: beam_search(model, bad, 2, 3),
    ):
        with pytest.raises(ValueError, match="vocabulary"):
            call()
        assert model.training and not model.blocks[0].training


@torch.no_grad()
def test_a_text_that_breaks_off_leaves_the_mode_and_a_cache_that_says_what_it_saw():
    """Where `choose` fails, the model does, or nobody listens on."""
    model = gpt("rotary").train()
    prompt = prompts(3)
    right = written(model, prompt, 6)

    def stops(logits, text, fails):
        if fails and len(text) == 2:
            raise InterruptedError
        return greedy(logits)

    for fails, use in product((True, False), (c.PreallocatedCache, c.Int8Cache)):
        cache = use(12)
        text = []
        choose = partial(stops, text=text, fails=fails)
        writing = generate(model, prompt, 6, choose=choose, cache=cache)
        with suppress(InterruptedError):
            for new in writing:
                text.append(int(new))
                if len(text) == 3:
                    break
        writing.close()
        assert model.training and all(part.training for part in model.modules())
        assert text == right[: 2 if fails else 3] and len(cache) == 5
        if use is c.PreallocatedCache:
            whole = torch.cat([prompt, torch.tensor(right)])
            rest = written(model, whole[None, len(cache) : 6], 3, cache=cache)
            assert rest == [right[3:]]


def test_what_cannot_be_written_is_refused_at_once():
    model = gpt()
    two = prompts(2)
    cache = model.new_cache()
    write = partial(generate, model)
    search = partial(beam_search, model)
    no_list = "list of prompts"
    for call, words in (
        (lambda: write(torch.ones(()).long(), 2), "shape"),
        (lambda: write(torch.ones(0).long(), 2), "shape"),
        (lambda: write(torch.ones(2, 0).long(), 2), "shape"),
        (lambda: write(torch.ones(1, 2, 3).long(), 2), "shape"),
        (lambda: write(torch.ones(3), 2), "float32"),
        (lambda: write(prompts(9), 2), r"9 .* context_length \(8\)"),
        (lambda: write(prompts(2, 9), 2), r"9 .* context_length \(8\)"),
        (lambda: write([two, prompts(7)], 2), r"7 and 2 .* \(8\)"),
        (lambda: write([two, two[:0]], 2), "1 token"),
        (lambda: write([], 2), no_list),
        (lambda: write([two], 2, use_cache=False), no_list),
        (lambda: write([two], 2, cache=cache), no_list),
        (lambda: write(two, -1), "n_new is -1"),
        (lambda: write(two, 2, end=-1), "end is -1"),
        (lambda: search(two, 0, 3), "n_beams is 0"),
        (lambda: search(two, 12, 3), "n_beams is 12"),
        (lambda: search(two, 2, 3, length_penalty=2), "length_penalty is 2"),
        (lambda: search(two, 2, 7), r"2 and 7 .* \(8\)"),
        (lambda: search(two[None], 2, 3), r"must be integers \(t\)"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_stream_repeats_its_end_and_generation_stops_when_every_stream_has_ended():
    model = gpt("rotary")
    batch = prompts(3, 2)
    endless = written(model, batch, 12)
    lengths = set()
    for end in range(V):
        texts = written(model, batch, 12, end=end)
        right = [ended(text, end) for text in endless]
        longest = max(map(len, right))
        assert texts == [row + [end] * (longest - len(row)) for row in right]
        assert written(model, batch[0], 12, end=end) == right[0]
        lengths |= set(map(len, right))
    assert len(lengths) > 2  # some end at once, some later, some not


@pytest.mark.parametrize("positions", POSITIONS)
def test_prompts_of_different_lengths_go_on_together_as_each_would_alone(positions):
    model = gpt(positions, context_length=14)
    together = [torch.tensor(x) for x in ([1, 2, 3, 4, 5], [7], [9, 2])]
    alone = [written(model, prompt, 9) for prompt in together]
    assert written(model, together, 9) == alone
    assert written(model, together, 5) == [text[:5] for text in alone]
    for end in {token for text in alone for token in text}:
        texts = written(model, together, 9, end=end)
        assert [ended(x, end) for x in texts] == [ended(x, end) for x in alone]


@torch.no_grad()
def test_prefill_reads_each_prompt_as_if_it_were_alone():
    model = gpt(context_length=14)
    together = [torch.tensor(x) for x in ([1, 2, 3, 4, 5], [7], [9, 2])]
    cache, logits = prefill(model, together, 6)
    assert cache.lengths.tolist() == [5, 1, 2] and cache.capacity == 5 + 6
    for prompt, of_prompt in zip(together, logits, strict=True):
        assert_close(of_prompt, model(prompt[None])[0, -1])


@pytest.mark.parametrize(
    "cache_class",
    [c.ConcatenatingCache, c.PreallocatedCache, c.SlidingWindowCache, c.Int8Cache],
)
@torch.no_grad()
def test_a_talk_goes_on_from_what_a_cache_holds(cache_class):
    """By `generate` again, then by hand. Int8's logits are near, its texts need not."""
    model = gpt(context_length=12)
    first = prompts(2)
    second = prompts(1, seed=5)
    sizes = () if cache_class is c.ConcatenatingCache else (12,)
    cache = cache_class(*sizes)
    text = [*first.tolist(), *written(model, first, 3, cache=cache)]
    assert len(cache) == 4  # the last has not been through the model
    both = torch.tensor([text[-1], *second])
    text += [*second.tolist(), *written(model, both, 4, cache=cache)]
    logits = model(torch.tensor([text[-1:]]), cache)[:, -1]
    right = model(torch.tensor([text]))[:, -1]
    close = rounding(N_TERMS, right)
    if cache_class is c.Int8Cache:  # as in test_cache.py
        close["atol"] = 0.05 * float(right.std())
    assert_close(logits, right, **close)
    if cache_class is not c.Int8Cache:
        assert text[2:5] == written(model, first, 3)
        assert text[6:] == written(model, torch.tensor(text[:6]), 4)
        right = beam_search(model, first, 3, 6)
        with patch.object(model, "new_cache", lambda capacity: cache_class(*sizes)):
            beams = beam_search(model, first, 3, 6)
        assert [t for _, t in beams] == [t for _, t in right]


@torch.no_grad()
def score(model, prompt, new):
    """The log-probability of new tokens, by one pass over the whole text."""
    new = torch.tensor(new)
    logits = model(torch.cat([prompt, new])[None])[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1).gather(1, new[:, None]).sum().item()


def assert_same_beams(beams, right, error=None):
    assert [tokens for _, tokens in beams] == [tokens for _, tokens in right]
    scores = [s for s, _ in right]
    error = error or rounding(N_TERMS, torch.tensor(scores))["atol"]
    assert [s for s, _ in beams] == pytest.approx(scores, abs=error)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("end", [None, 2])
def test_beams_that_cover_everything_find_what_exhaustive_search_finds(
    length_penalty, end
):
    prompt = torch.tensor([1, 3, 0])
    for seed, n_new in product(range(6), (1, 2)):
        model = gpt(seed=seed, d_vocab=5)
        texts = {tuple(ended(x, end)) for x in product(range(5), repeat=n_new)}
        right = []
        for text in texts:
            total = score(model, prompt, text) / len(text) ** length_penalty
            right.append((total, list(text)))
        right = sorted(right, reverse=True)[:5]

        beams = beam_search(
            model, prompt, 5, n_new, length_penalty=length_penalty, end=end
        )
        assert_same_beams(beams, right)


@torch.no_grad()
def test_beam_search_equals_a_loop_over_beams_without_a_cache():
    """Of one beam, which is greedy search, and of five."""
    for seed, end, n_beams in product(range(4), (None, *range(V)), (1, 5)):
        model = gpt(seed=seed)
        prompt = prompts(2)
        beams = [(0.0, [])]
        finished = []
        for n in range(1, 7):
            grown = []
            for total, new in beams:
                text = torch.cat([prompt, torch.tensor(new, dtype=torch.long)])
                logs = model(text[None])[0, -1].log_softmax(-1).tolist()
                grown += [(total + log, [*new, t]) for t, log in enumerate(logs)]
            grown = sorted(grown, reverse=True)
            finished += [(s / n, new) for s, new in grown[:n_beams] if new[-1] == end]
            beams = [beam for beam in grown if beam[1][-1] != end][:n_beams]
        finished += [(total / 6, new) for total, new in beams]
        right = sorted(finished, reverse=True)[:n_beams]
        beams = beam_search(model, prompt, n_beams, 6, end=end, length_penalty=1)
        assert_same_beams(beams, right)
    assert beam_search(model, prompt, 1, 6)[0][1] == written(model, prompt, 6)


def test_scores_are_float32_sums_where_the_model_is_bfloat16():
    """Beyond -128 bfloat16 knows whole numbers only: there all beams would be alike."""
    config = c.GPTConfig(
        d_vocab=50,
        context_length=48,
        d_model=16,
        n_heads=2,
        n_layers=2,
        tie_embeddings=False,
    )
    model = c.GPT(config, seeded()).bfloat16()
    beams = beam_search(model, prompts(2), 3, 40)
    assert len({total for total, _ in beams}) == 3 and beams[0][0] < -128
    right = [(score(model, prompts(2), new), new) for _, new in beams]
    # 40 tokens, each with logits that are rounded by an epsilon, to either side.
    logits = model(prompts(2)[None])
    assert_same_beams(beams, right, rounding(40**0.5, logits)["atol"])


def test_no_beam_holds_what_is_ruled_out():
    class OneAllowed(c.GPT):
        def forward(self, *arguments, **options):
            logits = super().forward(*arguments, **options)
            ruled_out = torch.arange(V) != 3
            return logits.masked_fill(ruled_out, -math.inf)

    model = OneAllowed(gpt().config)
    assert beam_search(model, prompts(2), 3, 2) == [(0.0, [3, 3])]
    assert beam_search(model, prompts(2), 3, 2, end=3) == [(0.0, [3])]


def test_scores_of_a_double_model_are_double():
    model = gpt().double()
    total, new = beam_search(model, prompts(2), 3, 4)[0]
    logits = model(torch.cat([prompts(2), torch.tensor(new)])[None, :-1])[0, 1:]
    right = logits.log_softmax(-1)[torch.arange(4), new].sum().item()
    assert total == pytest.approx(right, rel=1e-13)  # four sums, each off by 1e-16


@pytest.mark.parametrize("deviation, step", [*product((0.5, 3, 8), (None, 0.25, 1))])
def test_top_p_of_a_large_vocabulary_is_that_of_all_sorted_and_summed(deviation, step):
    """Also with equals at the border, with few that are likely, and with many."""
    logits = deviation * random(2, 20_000)
    if step is not None:
        logits = (logits / step).round() * step
    if deviation == 3:
        logits[0, 100:] = -math.inf
    for p in (0.1, 0.5, 0.9, 0.99):
        for row, shaped in zip(logits.numpy(), top_p(logits, p).numpy(), strict=True):
            # In NumPy, with the longest floats there are.
            order = np.argsort(-row, kind="stable")
            masses = np.exp(row[order].astype(np.longdouble) - row.max())
            before = np.cumsum(masses / masses.sum()) - masses / masses.sum()
            kept = order[before < p]
            expected = np.full_like(row, -np.inf)
            expected[kept] = row[kept]
            assert np.array_equal(shaped, expected), p
