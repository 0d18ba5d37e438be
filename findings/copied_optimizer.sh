#!/usr/bin/env bash
# torch 2.13.0
#
# What happens: a deep copy of an optimizer, and one that was pickled, has lost every
# attribute but `defaults`, `state` and `param_groups`: `Optimizer.__getstate__` returns
# these three alone. LBFGS keeps the list of its parameters beside them, so a copy of it
# stops at its first step with an AttributeError. An optimizer of one's own that keeps a
# number beside them, and finds it missing, begins anew without a word.
# What one would expect: that `copy.deepcopy` of a model and its optimizer, taken
# together, goes on as the two do, for every optimizer of the library. SGD and AdamW do.
# For whom it matters: who copies a run to try two ways from one point (population based
# training, a search for a rate), with LBFGS or with an optimizer of one's own, which
# then has to extend `__getstate__`.
# Seen on 29 November 2026, Linux x86-64, Python 3.11:
#   SGD    goes on as the original: True
#   AdamW  goes on as the original: True
#   LBFGS  AttributeError, lost: ['_numel_cache', '_params']
#   own    the original has counted 3 steps, its copy 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cd "$folder"
"$folder/env/bin/python" - <<'PYTHON'
import copy

import torch
from torch import nn
from torch.optim import LBFGS, SGD, AdamW, Optimizer


class Counting(Optimizer):
    """Plain descent that counts its steps in an attribute of its own."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.n_steps = 0

    def step(self, closure=None):
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p -= 0.1 * p.grad
        self.n_steps = getattr(self, "n_steps", 0) + 1


def take_step(model, optimizer):
    def loss():
        optimizer.zero_grad()
        value = model(torch.ones(1, 3)).square().sum()
        value.backward()
        return value

    loss()
    optimizer.step(loss)


def copied(make):
    """A model and an optimizer after two steps, and a copy of both."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    pair = (model, make(model.parameters()))
    take_step(*pair)
    take_step(*pair)
    return pair, copy.deepcopy(pair)


seen = {}
for make in SGD, AdamW:
    pair, other = copied(make)
    take_step(*pair)
    take_step(*other)
    same = torch.equal(pair[0].weight, other[0].weight)
    seen[make.__name__] = f"goes on as the original: {same}"

pair, other = copied(LBFGS)
lost = sorted({"_numel_cache", "_params"} & vars(pair[1]).keys() - vars(other[1]).keys())
take_step(*pair)
try:
    take_step(*other)
    said = "no error"
except AttributeError as error:
    said = type(error).__name__
seen["LBFGS"] = f"{said}, lost: {lost}"

pair, other = copied(Counting)
take_step(*pair)
take_step(*other)
counts = (pair[1].n_steps, other[1].n_steps)
seen["own"] = "the original has counted {} steps, its copy {}".format(*counts)

for name, words in seen.items():
    print(f"{name:<6} {words}")
assert list(seen.values()) == [
    "goes on as the original: True",
    "goes on as the original: True",
    "AttributeError, lost: ['_numel_cache', '_params']",
    "the original has counted 3 steps, its copy 1",
], seen
PYTHON
