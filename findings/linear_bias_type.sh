#!/usr/bin/env bash
# torch 2.13.0 as seen by mypy 1.20.2, pyrefly 1.5.0 and ty 0.0.108
#
# What happens: `nn.Linear(2, 2, bias=False).bias` is None, and its type is Parameter.
# So code that adds it passes the three checkers and fails when it runs; code that asks
# `if layer.bias is None` first, which is right, is reported by mypy as never reached
# (--warn-unreachable). `nn.Conv1d` in the same package says `Tensor | None`.
# `nn.LayerNorm`, `nn.RMSNorm` and `nn.MultiheadAttention` are like nn.Linear.
# What one would expect: `Parameter | None` wherever an option makes it None.
# For whom it matters: who packs, quantises or splits layers that may have no bias, as
# in Llama, and takes the advice to delete the branch that can't be reached.
# Guessed before: just this, by all three: each goes by the assignment in the class, and
# none by `register_parameter("bias", None)` below it.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   nn.Linear     Parameter, Parameter, Parameter
#   nn.LayerNorm  Parameter, Parameter, Parameter
#   nn.Conv1d     Tensor | None, Tensor | None, Tensor | None
#   mypy          names.py:9: error: Statement is unreachable  [unreachable]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 \
  mypy==1.20.2 pyrefly==1.5.0 ty==0.0.108
cat > "$folder/names.py" <<'PYTHON'
from torch import nn

reveal_type(nn.Linear(2, 2, bias=False).bias)
reveal_type(nn.LayerNorm(2, bias=False).bias)
reveal_type(nn.Conv1d(2, 2, 1, bias=False).bias)

def n_numbers(layer: nn.Linear) -> int:
    if layer.bias is None:
        return layer.weight.numel()
    return layer.weight.numel() + layer.bias.numel()
PYTHON
cd "$folder"
PATH="$folder/env/bin:$PATH" python -W ignore - <<'PYTHON'
import re
import subprocess

from torch import nn

LINES = {3: "nn.Linear", 4: "nn.LayerNorm", 5: "nn.Conv1d"}


def said(command):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    return done.stdout + done.stderr


by_mypy = said("mypy --warn-unreachable --cache-dir cache names.py")
by_pyrefly = said("pyrefly check --output-format min-text names.py")
by_ty = said("ty check --python env --output-format concise names.py")
kind = r"\b(Parameter|Tensor \| None)\b"
seen = {name: [] for name in LINES.values()}
for words in (by_mypy, by_pyrefly, by_ty):
    for line, name in LINES.items():
        (told,) = re.findall(rf".*names\.py:{line}:.*evealed type.*", words)
        seen[name].append(re.findall(kind, told)[-1])
    assert "names.py:10" not in words, words
for name, kinds in seen.items():
    print(f"{name:<13} {', '.join(kinds)}")
(unreachable,) = re.findall(r"names.py:9: .*", by_mypy)
print(f"mypy          {unreachable}")
assert nn.Linear(2, 2, bias=False).bias is None
assert seen == {
    "nn.Linear": ["Parameter"] * 3,
    "nn.LayerNorm": ["Parameter"] * 3,
    "nn.Conv1d": ["Tensor | None"] * 3,
}, seen
assert unreachable.endswith("Statement is unreachable  [unreachable]")
PYTHON
