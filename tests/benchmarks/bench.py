"""Speed, as ratios measured in pairs in one run: `make bench` writes build/bench.json.

Each row pits this package against what one would use instead, in turn, round after
round; the ratio is the median over the rounds. `NANOGPT=path` adds nanoGPT's own code,
from a clone of it; `ROWS=packed` runs only the groups of that name. An idle machine is
needed: with two threads, another busy process makes everything several times slower.
"""

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

import nanogpt
import pairs
import race
import rollouts
import smollm2
import torch
import tuning

OUTPUT = Path(__file__).parents[2] / "build" / "bench.json"
GROUPS = {
    "memory": race.memory,
    "race": race.race,
    "training": pairs.training,
    "decoding": pairs.decoding,
    "streams": pairs.streams,
    "lengths": pairs.lengths,
    "serving": pairs.serving,
    "speculation": pairs.speculation,
    "published": smollm2.unpacked,
    "packed": smollm2.packed,
    "start": smollm2.start,
    "tuning": tuning.tuning,
    "rollouts": rollouts.rollouts,
    "nanogpt": nanogpt.rows,
}


def processor() -> str:
    """The processor's name. Linux tells family and model, too."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    told: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        told.setdefault(name.strip(), value.strip())
    if "cpu family" not in told:
        return platform.processor() or platform.machine()
    return "{model name}, family {cpu family}, model {model}".format(**told)


def machine() -> dict:
    """What the figures were measured on, and with."""
    names = ("torch", "transformers", "peft", "tiktoken", "einops")
    return {
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in names},
    }


def main() -> None:
    torch.set_num_threads(2)
    names = os.environ.get("ROWS", "").split() or GROUPS
    if unknown := set(names) - GROUPS.keys():
        sys.exit(f"unknown: {min(unknown)}; there are {', '.join(GROUPS)}")
    OUTPUT.parent.mkdir(exist_ok=True)
    measured = {"machines": {}}
    if names is not GROUPS and OUTPUT.exists():  # the other groups stay
        measured = json.loads(OUTPUT.read_text())
    for name in names:
        torch.manual_seed(0)
        measured[name] = GROUPS[name]()
        measured["machines"][name] = machine()
        OUTPUT.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
