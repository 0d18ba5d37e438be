#!/usr/bin/env bash
# torch 2.13.0
#
# What happens: the first optimizer of a process, here plain SGD for three numbers,
# imports PyTorch's compiler: `torch._dynamo`, parts of `torch._inductor`, and sympy,
# more than 800 modules, though nothing is compiled. A forward pass, `backward` and
# `clip_grad_norm_` before it import none of them. The first call of
# `torch.utils.checkpoint` does the same.
# What one would expect: a class of a few lines that holds parameters and steps.
# For whom it matters: who fine-tunes in little memory, measures a process's peak, or
# times a first step: here it was 74 MB, on top of 220 MB for torch itself, and 1.7 s, or 9
# where nothing was compiled to bytecode before.
# An import that is cut short (a time limit, a memory limit) leaves sympy half there.
# Guessed before: that `import torch` had paid for all of it.
# Seen on 28 November 2026, Linux x86-64, Python 3.11, an AMD EPYC with two cores:
#   after backward and clipping  0 modules of the compiler
#   after SGD                    804 modules more, sympy and torch._dynamo among them
#   after the first checkpoint   804, too
# (The time, the megabytes and the exact number of modules are printed, not compared.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0
cat > "$folder/first.py" <<'PYTHON'
import resource
import sys
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

COMPILER = ("sympy", "torch._dynamo", "torch._inductor")


def compilers():
    return [name for name in COMPILER if name in sys.modules]


def cost(what):
    n = len(sys.modules)
    began = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    what()
    seconds = time.perf_counter() - began
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    n_new = len(sys.modules) - n
    print(f"{n_new} modules, {more:.0f} MB, {seconds:.1f} s; now {compilers()}")
    return n_new


layer = nn.Linear(3, 3)


def learn():
    layer(torch.ones(2, 3)).sum().backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)


cost(learn)
assert compilers() == [], compilers()
if sys.argv[1] == "optimizer":
    n_new = cost(lambda: torch.optim.SGD(layer.parameters(), lr=0.1))
else:
    x = torch.ones(2, 3, requires_grad=True)
    n_new = cost(lambda: checkpoint(layer, x, use_reentrant=False))
assert compilers() == list(COMPILER), compilers()
assert n_new > 500, n_new
PYTHON
cd "$folder"
for first in optimizer checkpoint; do
  echo "the first $first"
  env/bin/python -W ignore first.py "$first"
done
