#!/usr/bin/env bash
# torch 2.13.0, ml_dtypes 0.6.0 with numpy 2.4.6
#
# What happens: what is too large for 8 bits becomes, in one library, four things.
# `.to(torch.float8_e4m3fn)` gives the largest number, 448, also for infinity;
# `.to(torch.float8_e5m2)` gives infinity; `.to(torch.float8_e4m3fnuz)` gives NaN; and
# `.to(torch.float8_e8m0fnu)`, which holds powers of two alone, drops the sign of -2 and
# makes the smallest number of 0. ml_dtypes, which JAX uses for the same formats, gives
# NaN for the first, and for -2 and 0 in the last.
# What one would expect: that a format's name decides what a number becomes, and that
# an infinity never becomes a finite number.
# For whom it matters: who looks for an overflow after the conversion: `isfinite` finds
# none in e4m3fn. And who writes weights with one library and checks with the other.
# Guessed before: that both libraries agree on every number of bfloat16, but for 0 and
# negative ones in the last format, and so that e4m3fn overflows to NaN. It doesn't.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   float8_e4m3fn    torch [448, 448, -448, 448]  ml_dtypes [448, nan, nan, nan]
#   float8_e5m2      torch [448, 512, -512, inf]  ml_dtypes [448, 512, -512, inf]
#   float8_e4m3fnuz  torch [nan, nan, nan, nan]  ml_dtypes [nan, nan, nan, nan]
#   float8_e8m0fnu   torch [2, 5.9e-39]  ml_dtypes [nan, nan]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 \
  ml_dtypes==0.6.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import ml_dtypes
import numpy as np
import torch

LARGE = [448.0, 500.0, -500.0, float("inf")]
NUMBERS = {
    "float8_e4m3fn": LARGE,
    "float8_e5m2": LARGE,
    "float8_e4m3fnuz": LARGE,
    "float8_e8m0fnu": [-2.0, 0.0],
}


def words(numbers):
    short = [f"{x:.2g}" if 0 < abs(x) < 1 else f"{x:.0f}" for x in numbers]
    return f"[{', '.join(short)}]"


seen = {}
for name, numbers in NUMBERS.items():
    by_torch = torch.tensor(numbers).to(getattr(torch, name)).float().tolist()
    array = np.array(numbers, np.float32).astype(getattr(ml_dtypes, name))
    by_numpy = array.astype(np.float32).tolist()
    seen[name] = words(by_torch), words(by_numpy)
    print(f"{name:<16} torch {seen[name][0]}  ml_dtypes {seen[name][1]}")
nan = "[nan, nan, nan, nan]"
assert seen == {
    "float8_e4m3fn": ("[448, 448, -448, 448]", "[448, nan, nan, nan]"),
    "float8_e5m2": ("[448, 512, -512, inf]", "[448, 512, -512, inf]"),
    "float8_e4m3fnuz": (nan, nan),
    "float8_e8m0fnu": ("[2, 5.9e-39]", "[nan, nan]"),
}, seen
PYTHON
