"""Run tests and notebooks as other processors do: `kernels.py [-s SETTING] [PATH ...]`.

Another processor adds in another order, and has other kernels. For each setting all
tests and notebooks are run, or those named, and each comparison is printed whose
difference came within a factor of 3 of what is tolerated: it is the next one that
fails. Returns 1 where something failed or came near. Nothing is written. The settings,
each of which all paths are run under:

{settings}
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = Path(__file__).parent
# What each stands for, and what its environment says; elsewhere.py has the processors.
SETTINGS = {
    "own": ("this processor's own kernels, one thread", {}),
    "default": ("PyTorch's without AVX2", {"ATEN_CPU_CAPABILITY": "default"}),
    "avx2": ("PyTorch's with AVX2 alone", {"ATEN_CPU_CAPABILITY": "avx2"}),
    "onednn": ("oneDNN's for SSE4.1", {"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "mkl": ("MKL's that are alike everywhere", {"MKL_CBWR": "COMPATIBLE"}),
    "threads": ("two threads in one process", {"OMP_NUM_THREADS": "2"}),
    "plain": ("answers as a Mac: no 4-bit kernel, no oneDNN", {"PROCESSOR": "plain"}),
    "gpu": ("answers as with a GPU: what goes there fails", {"PROCESSOR": "gpu"}),
}
WATCH = "import close_calls\nclose_calls.watch()\ndel close_calls\n"
NBVAL = ("--nbval", "--nbval-current-env", "--nbval-cell-timeout=1800")


def run(words: list[str], environment: dict[str, str]) -> list[str]:
    """What pytest says at its end: the tests that failed, and their number."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *words], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    failed = [x for x in lines if x.startswith(("FAILED", "ERROR"))]
    if done.returncode and not failed:
        failed = [*lines[-20:], done.stderr[-2000:]]
    print(f"    {words[-1]}: {lines[-1] if lines else 'nothing'}", flush=True)
    return failed


def how_far(call: dict) -> float:
    """From its bound, by whatever factor, to either side."""
    return abs(math.log(call["ratio"]))


def nearest(calls: Path) -> list[str]:
    """A line for each comparison that came near, with its nearest ratio."""
    found = {}
    lines = calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
    for call in map(json.loads, lines):
        test = call["test"].partition("[")[0]
        key = test, *call["places"]
        if key not in found or how_far(call) < how_far(found[key]):
            found[key] = call
    return [
        f"{call['ratio']:.2f} of the bound ({call['difference']:.2g} of"
        f" {call['bound']:.2g}): {test}\n        " + "\n        ".join(places)
        for (test, *places), call in found.items()
    ]


def watching(calls: Path) -> dict[str, str]:
    """This environment, where `close_calls` is found, and writes to a file."""
    paths = [str(ROOT), str(TOOLS), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CLOSE_CALLS": str(calls),
    }


def write_startup(folder: Path) -> None:
    """Makes a folder for IPython, whose kernels begin to watch when they start."""
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-watch.py").write_text(WATCH, encoding="utf-8")


def main() -> int:
    """All settings and all paths, or those given; 1 where one failed or came near."""
    settings = "\n".join(f"  {name:8} {words}" for name, (words, _) in SETTINGS.items())
    parser = argparse.ArgumentParser(
        description=__doc__.format(settings=settings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-s", "--setting", action="append", choices=SETTINGS)
    parser.add_argument("-n", type=int, default=1, help="how many processes")
    parser.add_argument("paths", nargs="*", default=["tests", "notebooks"])
    options = parser.parse_args()

    # Each notebook by itself, so that it is known where a kernel compares.
    tests = []
    notebooks = []
    for path in map(Path, options.paths):
        found = sorted(path.glob("*.ipynb"))
        if path.suffix == ".ipynb" or found:
            notebooks += found or [path]
        else:
            tests.append(str(path))

    chosen = options.setting or [*SETTINGS]
    names = [*tests, *(path.name for path in notebooks)]
    print(f"{', '.join(chosen)}: each runs {', '.join(names)}", flush=True)
    n_bad = 0
    for setting in chosen:
        words, says = SETTINGS[setting]
        print(f"{setting}: {words} {says or ''}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            calls = Path(folder) / "calls"
            environment = watching(calls) | says
            write_startup(Path(folder))

            bad = []
            if tests:
                # Two threads are for one process: several would wait for each other.
                n = 1 if "OMP_NUM_THREADS" in says else options.n
                processes = ["-n", str(n), "--dist", "worksteal"] if n > 1 else []
                bad += run(["-p", "close_calls", *processes, *tests], environment)
            for path in notebooks:
                kernel = {"IPYTHONDIR": folder, "NOTEBOOK": path.name}
                bad += run([*NBVAL, str(path)], environment | kernel)
            bad += nearest(calls)
        for line in bad:
            print(f"    {line}", flush=True)
        n_bad += len(bad)
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
