#!/usr/bin/env bash
# safetensors 0.8.0 with numpy 2.4.6
#
# What happens: `safetensors.numpy.save` takes an array's memory as it lies and ignores
# its strides. Every second number of 0 to 5 (0, 2, 4) is written, without a word, as
# 0, 1, 2. A transposed matrix comes back with its shape right and its numbers in the
# order of the matrix it was transposed from.
# What one would expect: the array's own numbers, or an error. The same library's
# torch half refuses such a tensor ("non contiguous").
# For whom it matters: who transposes a weight on its way into a file, as everybody does
# who carries GPT-2's (in, out) matrices over to (out, in). `np.ascontiguousarray` helps.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   strided     wanted [0. 2. 4.]  read [0. 1. 2.]
#   transposed  wanted [0. 3. 1. 4. 2. 5.]  read [0. 1. 2. 3. 4. 5.]
#   contiguous  wanted [0. 3. 1. 4. 2. 5.]  read [0. 3. 1. 4. 2. 5.]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet safetensors==0.8.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from safetensors.numpy import load, save

matrix = np.arange(6.0).reshape(2, 3)
arrays = {
    "strided": np.arange(6.0)[::2],
    "transposed": matrix.T,
    "contiguous": np.ascontiguousarray(matrix.T),
}
same = {}
for name, array in arrays.items():
    read = load(save({"x": array}))["x"]
    print(f"{name:<11} wanted {array.ravel()}  read {read.ravel()}")
    same[name] = np.array_equal(read, array)
assert same == {"strided": False, "transposed": False, "contiguous": True}, same
PYTHON
