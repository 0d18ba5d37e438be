"""Rewards: rollouts, advantages and losses, held against sums over all answers."""

import itertools
import math
from functools import partial

import pytest
import torch
from common import random_tokens, rounding, seeded, shaken

import companion
from companion.training import reward

CONFIG = companion.GPTConfig(
    d_vocab=4, context_length=16, d_model=8, n_heads=2, n_layers=1, positions="rotary"
)


def small(seed: int = 0) -> companion.GPT:
    """A model of four tokens that is far from choosing them evenly."""
    return shaken(companion.GPT(CONFIG, seeded(seed)), std=0.5)


PROMPT = torch.tensor([2, 0, 1])
# All answers of two tokens, and a verdict on each.
ANSWERS = torch.tensor([*itertools.product(range(4), repeat=2)])
VERDICTS = (ANSWERS[:, 0] == ANSWERS[:, 1]).float() + (ANSWERS[:, 0] == 3).float()
ALL = torch.ones_like(ANSWERS, dtype=torch.bool)


def log_probabilities(model) -> torch.Tensor:
    """Of all answers (16), by passes of their own, a token at a time."""
    rows = []
    for answer in ANSWERS.tolist():
        text = PROMPT.tolist()
        total = 0
        for token in answer:
            logits = model(torch.tensor([text]))[0, -1]
            total = total + logits.log_softmax(-1)[token]
            text.append(token)
        rows.append(total)
    return torch.stack(rows)


def gradient(model, value) -> torch.Tensor:
    parts = torch.autograd.grad(value, [*model.parameters()])
    return torch.cat([part.flatten() for part in parts])


def expected_reward_gradient(model) -> torch.Tensor:
    return gradient(model, (log_probabilities(model).exp() * VERDICTS).sum())


def test_the_estimate_s_mean_over_all_groups_is_the_gradient():
    """Over all pairs of answers, each as often as it is drawn, and without chance.

    An answer's own reward is in its group's mean, so of a group of g the estimate is
    (g - 1) / g of the gradient.
    """
    model = small()
    chances = log_probabilities(model).exp().detach()
    logits = reward.answer_logits(model, [PROMPT] * 16, ANSWERS)
    of_tokens = reward.chosen(logits, ANSWERS)

    total = 0
    for pair in itertools.product(range(16), repeat=2):
        pair = torch.tensor(pair)
        advantages = reward.advantages(VERDICTS[pair][None])[0]
        loss = reward.reward_loss(of_tokens[pair], advantages, ALL[pair])
        total = total + chances[pair].prod() * loss
    estimate = -gradient(model, total)
    expected = expected_reward_gradient(model)
    # A sum over all pairs.
    torch.testing.assert_close(2 * estimate, expected, **rounding(16 * 16, expected))


def test_the_estimate_from_drawn_answers_is_the_gradient_on_average():
    model = small(seed=1)
    exact = expected_reward_gradient(model)
    generator = seeded(3)
    estimates = []
    for _ in range(60):
        rollouts = reward.roll_out(
            model, [PROMPT] * 64, n_answers=4, n_new=2, generator=generator
        )
        index = 4 * rollouts.answers[:, 0] + rollouts.answers[:, 1]
        advantages = reward.advantages(VERDICTS[index].view(64, 4)).flatten()
        logits = reward.answer_logits(model, rollouts.prompts, rollouts.answers)
        chosen = reward.chosen(logits, rollouts.answers)
        loss = reward.reward_loss(chosen, advantages, rollouts.written)
        estimates.append(-gradient(model, loss) * 4 / 3)

    # Along the gradient: within four standard errors, and not near nothing.
    along = torch.stack(estimates) @ exact / exact.norm() ** 2
    error = along.std() / math.sqrt(len(along))
    assert error < 0.05 and abs(along.mean() - 1) < 4 * error


def test_what_was_drawn_has_the_probabilities_that_a_pass_of_its_own_gives():
    """Also with a temperature and a cut, for prompts of many lengths."""
    model = small()

    def process_logits(logits):
        return companion.top_p(companion.temperature(logits, 0.7), 0.8)

    prompts = [random_tokens(n, d_vocab=4, seed=n) for n in (1, 4, 2)]
    rollouts = reward.roll_out(
        model,
        prompts,
        n_answers=5,
        n_new=6,
        process_logits=process_logits,
        generator=seeded(),
    )
    assert [len(prompt) for prompt in rollouts.prompts] == [1] * 5 + [4] * 5 + [2] * 5
    assert rollouts.answers.shape == (15, 6) and rollouts.written.all()

    with torch.no_grad():
        for i, prompt in enumerate(rollouts.prompts):
            text = torch.cat([prompt, rollouts.answers[i]])
            logits = process_logits(model(text[None]))[0, len(prompt) - 1 : -1]
            tokens = rollouts.answers[i][:, None]
            each = logits.log_softmax(-1).gather(1, tokens)[:, 0]
            torch.testing.assert_close(rollouts.log_probabilities[i], each)

        logits = reward.answer_logits(model, rollouts.prompts, rollouts.answers)
        each = reward.chosen(process_logits(logits), rollouts.answers)
    torch.testing.assert_close(each, rollouts.log_probabilities)
    assert each.isfinite().all()


def test_answers_are_drawn_as_often_as_they_are_likely():
    model = small()
    rollouts = reward.roll_out(
        model, [PROMPT], n_answers=4000, n_new=2, generator=seeded(5)
    )
    index = 4 * rollouts.answers[:, 0] + rollouts.answers[:, 1]
    shares = index.bincount(minlength=16) / 4000
    chances = log_probabilities(model).exp().detach()
    error = (chances * (1 - chances) / 4000).sqrt()
    assert ((shares - chances).abs() < 4.5 * error + 1e-3).all()


def test_the_end_counts_and_nothing_behind_it():
    model = small()
    prompts = [torch.tensor([0, 1]), torch.tensor([2])]
    rollouts = reward.roll_out(
        model, prompts, n_answers=20, n_new=8, end=3, generator=seeded(2)
    )
    lengths = set()
    for row, written, log_p in zip(
        rollouts.answers.tolist(),
        rollouts.written.tolist(),
        rollouts.log_probabilities.tolist(),
        strict=True,
    ):
        n = row.index(3) + 1 if 3 in row else len(row)
        lengths.add(n)
        assert written == [True] * n + [False] * (len(row) - n)
        assert all(x < 0 for x in log_p[:n]) and not any(log_p[n:])
        assert row[n:] == [3] * (len(row) - n)
    assert len(lengths) > 3  # some end at once, some never

    # The loss is that of the answers cut off by hand.
    advantages = torch.randn(40, generator=seeded(3))
    logits = reward.answer_logits(model, rollouts.prompts, rollouts.answers)
    chosen = reward.chosen(logits, rollouts.answers)
    loss = reward.reward_loss(chosen, advantages, rollouts.written)
    by_hand = 0
    for i, prompt in enumerate(rollouts.prompts):
        answer = rollouts.answers[i][rollouts.written[i]]
        text = torch.cat([prompt, answer])
        log_p = model(text[None])[0].log_softmax(-1)
        for place in range(len(prompt), len(text)):
            by_hand = by_hand - advantages[i] * log_p[place - 1, text[place]] / 40
    torch.testing.assert_close(loss, by_hand)


def test_only_the_places_of_answers_go_through_the_output_matrix():
    """Prompts of two lengths, and answers to each whose last token isn't read."""
    model = small()
    prompts = [PROMPT, torch.cat([PROMPT, PROMPT])]
    read = []
    hook = model.unembedding.register_forward_hook(lambda _, x, y: read.append(x[0]))
    logits = reward.answer_logits(model, prompts, ANSWERS[:2])
    hook.remove()
    assert read[0].shape[:-1] == ANSWERS[:2].shape
    for prompt, answer, of_answer in zip(prompts, ANSWERS[:2], logits, strict=True):
        whole = model(torch.cat([prompt, answer])[None])[0]
        torch.testing.assert_close(of_answer, whole[len(prompt) - 1 : -1])


@pytest.mark.parametrize("scale", [False, True])
def test_a_group_without_variance_moves_nothing(scale):
    """All right, or all wrong: no answer was better than the others."""
    model = small()
    rollouts = reward.roll_out(model, [PROMPT] * 3, n_answers=4, n_new=2)
    rewards = torch.tensor([[1.0], [0.0], [0.3]]).expand(3, 4)
    exactly = reward.advantages(rewards, scale=scale)[1:]
    assert torch.equal(exactly, torch.zeros(2, 4))

    logits = reward.answer_logits(model, rollouts.prompts[:8], rollouts.answers[:8])
    chosen = reward.chosen(logits, rollouts.answers[:8])
    loss = reward.reward_loss(chosen, exactly.flatten(), rollouts.written[:8])
    assert not gradient(model, loss).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_rewards_have_advantages_of_exactly_0(dtype):
    """Whose mean is rounded to another number: that of three 0.9 in float32 is."""
    assert torch.full((3,), 0.9).mean() != torch.tensor(0.9)
    for x in (0.9, 0.2, 1000.1, -12345.6, 1e6 + 0.7, 3e38):
        for n in (1, 3, 6, 7, 8):
            rewards = torch.full((2, n), x, dtype=dtype)
            for scale in (False, True):
                advantages = reward.advantages(rewards, scale=scale)
                assert torch.equal(advantages, torch.zeros_like(advantages))


def test_large_rewards_are_compared_as_small_ones_are():
    """Another point for one of eight is as much after 1,000,000 points as after 0."""
    one_better = torch.eye(8)[:1]
    for scale in (False, True):
        here = reward.advantages(one_better + 2.0**20, scale=scale)
        assert torch.equal(here, reward.advantages(one_better, scale=scale))


def test_advantages_are_those_of_one_prompt():
    rewards = torch.tensor([[1.0, 0, 0, 1], [10, 10, 10, 14]])
    expected = torch.tensor([[0.5, -0.5, -0.5, 0.5], [-1, -1, -1, 3]])
    assert torch.equal(reward.advantages(rewards), expected)
    scaled = reward.advantages(rewards, scale=True)
    # 1e-4 is added to deviations of a half and more, and the quotient is squared.
    squares = scaled.square().mean(1)
    assert (squares <= 1).all() and (squares > 1 - 5 * 1e-4).all()


def test_a_loss_has_no_way_back_through_the_verdict():
    log_p = torch.tensor([[-1.0, -2]], requires_grad=True)
    advantages = torch.tensor([2.0], requires_grad=True)
    reward.reward_loss(log_p, advantages, torch.tensor([[True, True]])).backward()
    assert advantages.grad is None and torch.equal(log_p.grad, torch.full((1, 2), -2.0))


def test_the_distance_is_what_is_estimated_from_draws():
    """The mean of log p - log q over what p draws; 0 for p itself, and lopsided."""
    z = torch.randn(2, 5, generator=seeded())
    drawn = companion.sample(z[0].expand(20_000, 5), seeded(1))
    differences = (z[0].log_softmax(-1) - z[1].log_softmax(-1))[drawn]
    exact = reward.kl_divergence(z[0], z[1])
    error = differences.std() / math.sqrt(len(differences))
    assert exact > 0.1 and abs(differences.mean() - exact) < 4 * error

    assert abs(reward.kl_divergence(z[0], z[0] + 3)) < rounding(5, z)["atol"]
    assert abs(reward.kl_divergence(z[1], z[0]) - exact) > 0.05
    reference = torch.nn.functional.kl_div(
        z[1].log_softmax(-1), z[0].log_softmax(-1), log_target=True, reduction="sum"
    )
    torch.testing.assert_close(exact, reference)


def gradients_of(function, *inputs) -> list[torch.Tensor]:
    """The gradients of the sum of what comes out."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*inputs).sum(), inputs)


def test_the_distance_of_cut_choices_is_that_of_the_tokens_that_stay():
    """What is ruled out adds nothing, neither to the sum nor to its gradient."""
    z = torch.tensor([[2.0, 1, 0, -1]])
    cut = companion.top_k(z, 2)
    kept = z[:, :2]
    others = torch.randn(1, 4, generator=seeded())
    assert reward.kl_divergence(cut, cut).item() == 0

    # By hand, with p = softmax(2, 1) and q a quarter each: log 4 less the entropy.
    p = kept.softmax(-1)
    by_hand = math.log(4) + (p * p.log()).sum(-1)
    even = torch.ones(1, 4)
    torch.testing.assert_close(reward.kl_divergence(cut, even), by_hand)

    # Where both are cut alike, the rest is a vocabulary of its own.
    cut_others = others.masked_fill(cut.isinf(), -math.inf)
    torch.testing.assert_close(
        reward.kl_divergence(cut, cut_others), reward.kl_divergence(kept, others[:, :2])
    )
    alike = gradients_of(reward.kl_divergence, cut, cut_others)
    small = gradients_of(reward.kl_divergence, kept, others[:, :2])
    for whole, part in zip(alike, small, strict=True):
        torch.testing.assert_close(whole[:, :2], part)
        assert not whole[:, 2:].any()
    for reference in (cut, even, cut_others):
        gradients = gradients_of(reward.kl_divergence, cut, reference)
        assert all(x.isfinite().all() for x in gradients)


def test_the_distance_is_infinite_where_the_reference_rules_out_what_may_come():
    z = torch.tensor([[2.0, 1, 0, -1], [2.0, 1, -300, -301]])
    cut = companion.top_k(z, 2)
    assert reward.kl_divergence(z, cut).isposinf().all()
    both = torch.stack([z[0], cut[0]])
    distances = reward.kl_divergence(both, cut)
    assert distances[0] == math.inf and distances[1].item() == 0
    assert all(x.isfinite().all() for x in gradients_of(reward.kl_divergence, z, cut))


def test_what_does_not_count_in_a_loss_may_be_ruled_out_since():
    """0 times -inf: a group that agrees, and what stands behind an end."""
    log_p = torch.tensor([[-math.inf, -1], [-2, -3], [-4, -math.inf]])
    written = torch.tensor([[True, True], [True, True], [True, False]])
    advantages = torch.tensor([0.0, 2.0, -1.0])
    loss = partial(reward.reward_loss, advantages=advantages, written=written)
    assert loss(log_p).item() == pytest.approx((2 * 5 - 4) / 3)
    (gradient,) = gradients_of(loss, log_p)
    expected = torch.tensor([[0.0, 0], [-2, -2], [1, 0]]) / 3
    torch.testing.assert_close(gradient, expected)


def test_a_step_that_drops_a_drawn_token_out_of_the_cut_is_said():
    logits = torch.tensor([[[2.0, 1, 0, -1]], [[2.0, 1, 0, -1]]])
    log_p = reward.chosen(companion.top_k(logits, 2), torch.tensor([[0], [3]]))
    written = torch.ones(2, 1, dtype=torch.bool)
    assert reward.reward_loss(log_p, torch.tensor([1.0, 0]), written).isfinite()
    words = r"log_probabilities\[1, 0\] is -inf; it must be finite: .* leave the answer"
    with pytest.raises(ValueError, match=words):
        reward.reward_loss(log_p, torch.tensor([1.0, -1]), written)


def test_a_count_of_right_answers_may_be_a_sum_of_verdicts():
    verdicts = torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 0]])
    counts = verdicts.sum(1)
    expected = reward.pass_at_k(counts.long(), 4, 2)
    for here in (counts, counts.half(), counts.double(), counts.int()):
        assert torch.equal(reward.pass_at_k(here, 4, 2), expected)
    assert reward.pass_at_k(counts[:0], 4, 2).shape == (0,)


@pytest.mark.parametrize("n", [1, 4, 6])
def test_pass_at_k_is_what_counting_all_choices_gives(n):
    for n_right, k in itertools.product(range(n + 1), range(1, n + 1)):
        choices = [
            *itertools.combinations([True] * n_right + [False] * (n - n_right), k)
        ]
        share = sum(map(any, choices)) / len(choices)
        estimate = reward.pass_at_k(torch.tensor([[n_right]]), n, k)
        assert estimate.shape == (1, 1) and abs(estimate.item() - share) < 1e-6


def test_pass_at_k_has_no_bias():
    """Over all that 5 answers can give, each right with a chance of 0.3."""
    p = 0.3
    chances = [math.comb(5, r) * p**r * (1 - p) ** (5 - r) for r in range(6)]
    estimates = reward.pass_at_k(torch.arange(6), 5, 3)
    assert abs(torch.tensor(chances) @ estimates - (1 - (1 - p) ** 3)) < 1e-6


def test_a_step_makes_the_rewarded_likelier():
    model = small()
    optimizer = companion.AdamW(model.parameters(), lr=3e-3, weight_decay=0)
    before = (log_probabilities(model).exp() @ VERDICTS).item()
    generator = seeded()
    for _ in range(15):
        rollouts = reward.roll_out(
            model, [PROMPT] * 4, n_answers=8, n_new=2, generator=generator
        )
        index = 4 * rollouts.answers[:, 0] + rollouts.answers[:, 1]
        advantages = reward.advantages(VERDICTS[index].view(4, 8)).flatten()
        logits = reward.answer_logits(model, rollouts.prompts, rollouts.answers)
        chosen = reward.chosen(logits, rollouts.answers)
        loss = reward.reward_loss(chosen, advantages, rollouts.written)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (log_probabilities(model).exp() @ VERDICTS).item() > before + 0.1


REFUSED = {
    "n_answers": partial(reward.roll_out, small(), [PROMPT], n_answers=0, n_new=2),
    "must hold one": partial(reward.roll_out, small(), [], n_answers=2, n_new=2),
    "exceed": partial(reward.roll_out, small(), [PROMPT], n_answers=2, n_new=14),
    "2 prompts for 16 answers: each answer needs its own": partial(
        reward.answer_logits, small(), [PROMPT] * 2, ANSWERS
    ),
    "rewards": partial(reward.advantages, torch.ones(3)),
    r"rewards\[0, 2\] is nan; it must be finite": partial(
        reward.advantages, torch.tensor([[1, 0, math.nan, 0]])
    ),
    r"rewards\[1, 1\] is -inf": partial(
        reward.advantages, torch.tensor([[1, 0], [0, -math.inf]]), scale=True
    ),
    r"differences\[0, 0\] is inf": partial(
        reward.advantages, torch.tensor([[3e38, -3e38]])
    ),
    r"advantages\[1\] is nan": partial(
        reward.reward_loss, torch.ones(2, 1), torch.tensor([0, math.nan]), ALL[:2, :1]
    ),
    r"log_probabilities\[1, 0\] is nan": partial(
        reward.reward_loss,
        torch.tensor([[0.0], [math.nan]]),
        torch.ones(2),
        ALL[:2, :1],
    ),
    r"the largest logit is nan in row \[1\]": partial(
        reward.kl_divergence, torch.tensor([[1.0, 0], [math.nan, 0]]), torch.ones(2, 2)
    ),
    r"the largest logit is -inf in row \[0\]": partial(
        reward.kl_divergence, torch.ones(1, 2), torch.full((1, 2), -math.inf)
    ),
    "the largest logit is inf": partial(
        reward.chosen, torch.tensor([1.0, math.inf]), torch.tensor(0)
    ),
    "end is 4; the vocabulary is 0 to 3": partial(
        reward.roll_out, small(), [PROMPT], n_answers=1, n_new=2, end=4
    ),
    r"log-probabilities \(2, 3\) for tokens \(2, 4\): there must be one": partial(
        reward.reward_loss, torch.ones(2, 3), torch.ones(2), torch.ones(2, 4) > 0
    ),
    "there are 0 answers": partial(
        reward.reward_loss, torch.ones(0, 3), torch.ones(0), torch.ones(0, 3) > 0
    ),
    "4 advantages for 2 answers: each answer needs one": partial(
        reward.reward_loss, torch.ones(2, 3), torch.ones(4), torch.ones(2, 3) > 0
    ),
    "n_answers is 3": partial(reward.pass_at_k, torch.tensor([1]), 3, 4),
    "4 right answers of 3": partial(reward.pass_at_k, torch.tensor([4]), 3, 2),
    "2.5 right answers of 3; it must be a whole number from 0 to 3": partial(
        reward.pass_at_k, torch.tensor([2.5]), 3, 2
    ),
    "nan right answers": partial(reward.pass_at_k, torch.tensor([math.nan]), 3, 2),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_meant_is_refused(words):
    with pytest.raises(ValueError, match=words):
        REFUSED[words]()


@pytest.mark.parametrize("end", range(4))
def test_any_token_may_be_the_end_and_no_other_ends_an_answer(end):
    """Larger and smaller ones go on."""
    rollouts = reward.roll_out(
        small(), [PROMPT], n_answers=60, n_new=6, end=end, generator=seeded(4)
    )
    lengths = set()
    for answer, written in zip(
        rollouts.answers.tolist(), rollouts.written.tolist(), strict=True
    ):
        n = answer.index(end) + 1 if end in answer else 6
        assert written == [True] * n + [False] * (6 - n)
        assert answer[n:] == [end] * (6 - n)
        lengths.add(n)
    assert len(lengths) > 1


def test_the_first_wrong_count_of_right_answers_is_named():
    with pytest.raises(ValueError, match="^5 right answers of 3"):
        reward.pass_at_k(torch.tensor([3, 5, 2, 7]), 3, 2)
