"""Homework of chapter 16: two questions and their checks, the teacher's alone."""

import torch

from companion.course.cabinet.machine import Machine
from companion.course.checks.judge import right_machines

# %% [markdown]
# **1. What it writes.** `machine.write(model, prompts, n_new)` goes on after prompts (b
# t) with a cache, and returns (b n_new), each time the likeliest token. Write
# `my_writes_the_likeliest(machine)`, which returns whether it does: a pass over the
# whole text, without a cache, must agree with each token. One wrong machine reads the
# last token of a prompt alone, one forgets the prompt after its first token, and one
# writes the first prompt's answer for all. Flag these, and no right one. (The chapter's
# exercise 1 has what a machine offers.)


# %%
def my_writes_the_likeliest(machine):
    raise NotImplementedError


# %%
def check_writes_the_likeliest(answer):
    class PromptUnread(Machine):
        def write(self, model, prompts, n_new):
            return super().write(model, prompts[:, -1:], n_new)

    class PromptForgotten(Machine):
        def write(self, model, prompts, n_new):
            first = super().write(model, prompts, 1)
            if n_new == 1:
                return first
            return torch.cat([first, super().write(model, first, n_new - 1)], 1)

    class FirstForAll(Machine):
        def write(self, model, prompts, n_new):
            return super().write(model, prompts[:1], n_new).expand(len(prompts), -1)

    for machine in (Machine(), *right_machines()):
        assert answer(machine), "it flags a machine that is right"
    for wrong, words in (
        (PromptUnread, "it passes a machine that reads only the prompt's last token"),
        (PromptForgotten, "it passes who forgets the prompt: let it write more tokens"),
        (
            FirstForAll,
            "it passes one answer for all prompts: give several, unlike ones",
        ),
    ):
        assert not answer(wrong()), words


# %% [markdown]
# **2. The generator alone.** `machine.sample(logits, generator)` draws a token for each
# row of logits (b v). A run can be repeated only if the draws depend on the generator's
# state, and on nothing else: not on PyTorch's own, which `torch.manual_seed` sets. And
# a generator that goes on must draw anew. Write `my_generator_alone(machine)`, which
# returns whether both is so. One wrong machine draws from PyTorch's own generator,
# another begins each time at seed 0.


# %%
def my_generator_alone(machine):
    raise NotImplementedError


# %%
def check_generator_alone(answer):
    class OtherGenerator(Machine):
        def sample(self, logits, generator, t=1.0, p=1.0):
            return torch.multinomial(self.probabilities(logits, t, p), 1)[:, 0]

    class SeedAgain(Machine):
        def sample(self, logits, generator, t=1.0, p=1.0):
            return super().sample(logits, torch.Generator().manual_seed(0), t, p)

    with torch.random.fork_rng(devices=[]):
        for machine in (Machine(), *right_machines()):
            assert answer(machine), "it flags a machine that is right"
        words = (
            "it passes who draws from PyTorch's own: set its seed anew between draws"
        )
        assert not answer(OtherGenerator()), words
        words = (
            "it passes who begins at seed 0 each time: draw twice from one generator"
        )
        assert not answer(SeedAgain()), words
