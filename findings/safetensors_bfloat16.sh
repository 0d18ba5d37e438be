#!/usr/bin/env bash
# safetensors 0.8.0 with numpy 2.4.6 and ml_dtypes 0.6.0
#
# What happens: `safetensors.numpy.save` accepts an array of bfloat16 (and of both 8-bit
# floats) and writes a right file; `safetensors.numpy.load` cannot read it. It raises a
# bare KeyError with the file's name of the type, 'BF16'.
# What one would expect: that a library reads what it has written, or refuses to write
# it. The type exists in the reading process: the very array was made of it.
# For whom it matters: who inspects published weights, nearly all of which are bfloat16,
# without installing PyTorch.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   bfloat16       72 bytes written, then KeyError('BF16')
#   float8_e4m3fn  76 bytes written, then KeyError('F8_E4M3')
#   float16        72 bytes written, then read back
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet safetensors==0.8.0 numpy==2.4.6 ml_dtypes==0.6.0
"$folder/env/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
from safetensors.numpy import load, save

seen = {}
for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16):
    written = save({"x": np.ones(4, kind)})
    try:
        load(written)
        seen[kind.__name__] = "read back"
    except KeyError as error:
        seen[kind.__name__] = repr(error)
    print(f"{kind.__name__:<14} {len(written)} bytes written, then", seen[kind.__name__])
assert seen == {
    "bfloat16": "KeyError('BF16')",
    "float8_e4m3fn": "KeyError('F8_E4M3')",
    "float16": "read back",
}, seen
PYTHON
