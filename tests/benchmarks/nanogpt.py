"""Against nanoGPT's own code, where `NANOGPT` is the path of a clone of it."""

import copy
import importlib
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from pairs import MINI, mini_batches, pair, step

import companion

# Its README's command for a laptop; loss is estimated only at the end.
LAPTOP = (
    "--device=cpu --compile=False --eval_iters=20 --eval_interval=2000"
    " --log_interval=500 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4"
    " --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0"
)

# Its parts: no biases, and the exact GELU, which here is faster than the tanh's.
SAME = replace(MINI, bias=False, activation="gelu")


def rows() -> dict:
    """Training steps in pairs, and its whole race; nothing without a clone."""
    if not (path := os.environ.get("NANOGPT")):
        print("nanoGPT: left out; NANOGPT=path names a clone of it")
        return {}
    clone = Path(path).resolve()
    if not (clone / "train.py").is_file():
        sys.exit(f"NANOGPT={path}: there is no train.py in it")
    return {"training": steps(clone), "race": whole_run(clone)}


def compiled(model: companion.GPT) -> companion.GPT:
    """A copy whose blocks `torch.compile` makes into C++ when they first run."""
    model = copy.deepcopy(model)
    for block in model.blocks:
        block.compile()
    return model


def steps(clone: Path) -> list[dict]:
    """30 steps of AdamW at its size for a laptop, its model in its own step."""
    sys.path.append(str(clone))
    model = importlib.import_module("model")
    nano_config = model.GPTConfig(
        block_size=64,
        vocab_size=65,
        n_layer=4,
        n_head=4,
        n_embd=128,
        dropout=0.0,
        bias=False,
    )
    nano = model.GPT(nano_config)
    nano_optimizer = nano.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    data = mini_batches()

    def train_nano():
        for inputs, targets in data:
            step(nano(inputs, targets)[1], nano, nano_optimizer)

    # The package's model, as it is and compiled.
    gpt = companion.GPT(SAME)
    optimizer = companion.AdamW(gpt.parameters())
    train_gpt = partial(companion.train, gpt, optimizer, data)
    fast = compiled(gpt)
    fast_optimizer = companion.AdamW(fast.parameters())
    train_fast = partial(companion.train, fast, fast_optimizer, data)

    work = (30 * 12 * 64,) * 2
    against = "nanoGPT's own code"
    title = "training, 0.8 M parameters, batch 12"
    return [
        pair(title, against, work, train_gpt, train_nano, 7),
        pair("the same, compiled", against, work, train_fast, train_nano, 7),
    ]


def whole_run(clone: Path) -> dict:
    """Its command for a laptop, in a copy, on the same split of the same text."""
    text = companion.tiny_shakespeare()
    characters = sorted(set(text))
    ids = np.array([characters.index(x) for x in text], dtype=np.uint16)
    cut = int(0.9 * len(ids))
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copytree(clone, Path(folder, "nanogpt")))
        data = copied / "data" / "shakespeare_char"
        ids[:cut].tofile(data / "train.bin")
        ids[cut:].tofile(data / "val.bin")
        (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(characters)}))
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py"]
        threads = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        begin = time.perf_counter()
        done = subprocess.run(
            command + LAPTOP.split(), cwd=copied, env=threads, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        took = time.perf_counter() - begin
    loss = float(re.findall(r"val loss ([\d.]+)", done.stdout)[-1])
    print(f"nanoGPT's own race: {loss:.3f} after 2,000 steps, {took:.1f} s", flush=True)
    return {"steps": 2000, "batch": 12, "seconds": took, "loss": loss}
