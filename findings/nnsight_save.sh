#!/usr/bin/env bash
# nnsight 0.8.1 with torch 2.13.0
#
# What happens: `.save()` marks a tensor to be kept, and keeps no copy. Saved before, and
# silenced in place after (`output[:] = 0`), the "clean" activation comes out as zeros.
# Nothing is said.
# What one would expect: the value at the time of saving, for "save" sounds like it, and
# what stands between the two lines looks like a later event. If the output is assigned
# instead (`output = zeros`), the saved one stays what it was.
# For whom it matters: who compares clean and patched activations from one pass: the
# difference is 0 everywhere, and reads as "this part changes nothing". What helps is
# `.clone().save()`.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   in place  [0.0, 0.0]
#   assigned  [1.0, 2.0]
#   cloned    [1.0, 2.0]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile nnsight==0.8.1 torch==2.13.0
cat > "$folder/save.py" <<'PYTHON'
import torch
from nnsight import NNsight
from torch import nn

model = NNsight(nn.Sequential(nn.Identity(), nn.ReLU()))
x = torch.tensor([[1.0, 2.0]])
seen = {}

with model.trace(x.clone()):
    saved = model[0].output.save()
    model[0].output[:] = 0
seen["in place"] = saved[0].tolist()

with model.trace(x.clone()):
    saved = model[0].output.save()
    model[0].output = torch.zeros(1, 2)
seen["assigned"] = saved[0].tolist()

with model.trace(x.clone()):
    saved = model[0].output.clone().save()
    model[0].output[:] = 0
seen["cloned"] = saved[0].tolist()

for name, numbers in seen.items():
    print(f"{name:<9} {numbers}")
kept = [1.0, 2.0]
assert seen == {"in place": [0.0, 0.0], "assigned": kept, "cloned": kept}, seen
PYTHON
"$folder/env/bin/python" "$folder/save.py"
