"""This machine as another one, as far as the package asks: for tests and `kernels.py`.

What is asked is PyTorch, so PyTorch's answers are changed, wherever they are used.
"""

from collections.abc import Callable

import torch

PROCESSORS = {
    # As a Mac, or Windows on ARM: no 4-bit kernel, no oneDNN, no products in bfloat16.
    "plain": [
        (torch.backends.cpu, "get_cpu_capability", "DEFAULT"),
        (torch.backends.mkldnn, "is_available", False),
        (torch.cpu, "_is_avx512_bf16_supported", False),
        (torch.cpu, "_is_amx_tile_supported", False),
    ],
    # There is none, so whatever goes there by itself fails.
    "gpu": [
        (torch.cuda, "is_available", True),
        (torch.backends.mps, "is_available", True),
    ],
}


def become(processor: str, replace: Callable = setattr) -> None:
    """Answer as this processor; `replace` may be monkeypatch's, which takes it back."""
    for owner, name, answer in PROCESSORS[processor]:
        replace(owner, name, lambda answer=answer: answer)
