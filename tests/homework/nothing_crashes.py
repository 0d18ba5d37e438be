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
)
