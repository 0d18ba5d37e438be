"""Wrong answers to the homework of chapter 16: tests that are blind, or cry wolf."""

import torch


def prompts(machine):
    return torch.arange(12).reshape(3, 4) % machine.d_vocab


def likeliest(model, texts, written):
    """Whether each token that was written is the likeliest after a text."""
    whole = torch.cat([texts, written], 1)
    logits = model(whole)[:, texts.shape[1] - 1 : -1]
    return torch.equal(logits.argmax(-1), written)


def one_prompt(machine):
    model = machine.model()
    alone = prompts(machine).split(1)
    return all(likeliest(model, x, machine.write(model, x, 6)) for x in alone)


def one_token(machine):
    model = machine.model()
    texts = prompts(machine)
    return likeliest(model, texts, machine.write(model, texts, 1))


def prompts_of_one_token(machine):
    model = machine.model()
    texts = prompts(machine)[:, :1]
    return likeliest(model, texts, machine.write(model, texts, 6))


def twice_alike(machine):
    model = machine.model()
    texts = prompts(machine)
    return torch.equal(machine.write(model, texts, 5), machine.write(model, texts, 5))


def not_shifted(machine):
    model = machine.model()
    texts = prompts(machine)
    written = machine.write(model, texts, 5)
    logits = model(torch.cat([texts, written], 1))
    return torch.equal(logits[:, -5:].argmax(-1), written)


def draw(machine, generator):
    return machine.sample(torch.zeros(40, machine.d_vocab), generator)


def own_seed_too(machine):
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        draws.append((draw(machine, generator), draw(machine, generator)))
    (first, second), (again, _) = draws
    return torch.equal(first, again) and not torch.equal(first, second)


def repeated_alone(machine):
    draws = [draw(machine, torch.Generator().manual_seed(0)) for _ in range(2)]
    return torch.equal(*draws)


def anew_alone(machine):
    generator = torch.Generator().manual_seed(0)
    return not torch.equal(draw(machine, generator), draw(machine, generator))


def always_alike(machine):
    generator = torch.Generator().manual_seed(0)
    return torch.equal(draw(machine, generator), draw(machine, generator))


def grown(*shape):
    return torch.randn(shape).double().requires_grad_()


def sums_to_one(weigh):
    shares = torch.randn(6, 5).softmax(-1)
    return torch.allclose(weigh(shares, 2).sum(-1), torch.ones(6))


def token_by_token(weigh):
    shares = torch.randn(6, 5).softmax(-1)
    alone = [torch.cat([weigh(x, k) for x in shares.split(1)]) for k in (1, 2, 3)]
    return all(map(torch.allclose, alone, [weigh(shares, k) for k in (1, 2, 3)]))


def one_expert_learns(weigh):
    alone = token_by_token(weigh)
    shares = torch.randn(6, 5).softmax(-1).requires_grad_()
    (weigh(shares, 1) ** 2).sum().backward()
    return alone and shares.grad.abs().max() > 1e-3


def some_loss(loss):
    logits, targets = torch.randn(2, 6, 9), torch.randint(9, (2, 6))
    return bool(loss(logits, targets, torch.rand(2, 6) < 0.5) > 0)


def answers_differ(loss):
    logits, targets = torch.randn(2, 6, 9), torch.randint(9, (2, 6))
    counts = torch.tensor([[False, False, True, True, True, True]] * 2)
    return loss(logits, targets, counts) != loss(logits, targets, ~counts)


def one_row_counted(loss):
    logits, targets = torch.randn(1, 6, 9), torch.randint(9, (1, 6))
    counts = torch.tensor([[False, False, True, True, True, False]])
    alone = torch.nn.functional.cross_entropy(logits[0, 2:5], targets[0, 2:5])
    return torch.allclose(loss(logits, targets, counts), alone)


def no_nan(loss):
    return bool(loss(torch.randn(4, 7), torch.full((4,), -1)).isfinite())


def no_nan_back(loss):
    logits = torch.randn(4, 7, requires_grad=True)
    loss(logits, torch.full((4,), -1)).backward()
    return bool(logits.grad.isfinite().all())


def where_some_count(loss):
    logits, targets = torch.randn(4, 7), torch.tensor([1, -1, 3, -1])
    expected = torch.nn.functional.cross_entropy(logits[::2], targets[::2])
    return torch.allclose(loss(logits, targets), expected)


def fresh_gate(gate):
    x, result, bias = torch.randn(5, 3), torch.randn(5, 4), torch.randn(4)
    return torch.allclose(
        gate(x, torch.zeros(3, 4), bias, result), bias.sigmoid() * result
    )


def one_token_gated(gate):
    x, weight, bias, result = grown(1, 3), grown(3, 4), grown(4), grown(1, 4)
    return torch.allclose(
        gate(x, weight, bias, result), (x @ weight + bias).sigmoid() * result
    )


def gated_alone(gate):
    x, weight, bias, result = grown(5, 3), grown(3, 4), grown(4), grown(5, 4)
    return torch.allclose(
        gate(x, weight, bias, result), (x @ weight + bias).sigmoid() * result
    )


def rounds(rounded):
    x = torch.linspace(-12, 12, 50)
    return torch.equal(rounded(x), x.round().clamp(-8, 7))


def small_ones(rounded):
    x = torch.linspace(-6, 6, 50, requires_grad=True)
    rounded(x).sum().backward()
    return torch.equal(x.grad, torch.ones(50))


def up_to_the_ends(rounded):
    x = torch.linspace(-8, 7, 50, requires_grad=True)
    rounded(x).sum().backward()
    return torch.equal(x.grad, torch.ones(50))


def equal_parts(step_loss):
    parts = list(torch.rand(3, 5))
    return torch.allclose(step_loss(parts), torch.cat(parts).mean())


def unlike_parts(step_loss):
    parts = [torch.rand(n) for n in (2, 5, 3)]
    return torch.allclose(step_loss(parts), torch.cat(parts).mean())


WRONG = (
    ("writes_the_likeliest", "one answer for all prompts", one_prompt),
    ("writes_the_likeliest", "let it write more tokens", one_token),
    ("writes_the_likeliest", "only the prompt's last token", prompts_of_one_token),
    ("writes_the_likeliest", "only the prompt's last token", twice_alike),
    ("writes_the_likeliest", "flags a machine that is right", not_shifted),
    ("generator_alone", "set its seed anew", own_seed_too),
    ("generator_alone", "draw twice", repeated_alone),
    ("generator_alone", "set its seed anew", anew_alone),
    ("generator_alone", "flags a machine that is right", always_alike),
    ("weights", "the version before", sums_to_one),
    ("weights", "the version after", token_by_token),
    ("weights", "for k = 3: try each", one_expert_learns),
    ("answers_count", "a loss of everything", some_loss),
    ("answers_count", "the number of all tokens", answers_differ),
    ("answers_count", "a mean of the rows' means", one_row_counted),
    ("empty_batch", "whose gradient is NaN", no_nan),
    ("empty_batch", "is NaN where no target", no_nan_back),
    ("empty_batch", "is NaN where no target", where_some_count),
    ("gate", "never reads its input", fresh_gate),
    ("gate", "the same for all tokens", one_token_gated),
    ("gate", "whose weight never learns", gated_alone),
    ("rounding", "without a gradient", rounds),
    ("rounding", "whose ends, -8 and 7", small_ones),
    ("rounding", "beyond the range learn", up_to_the_ends),
    ("accumulation", "a mean of means", equal_parts),
    ("accumulation", "an empty part as a token", unlike_parts),
)
