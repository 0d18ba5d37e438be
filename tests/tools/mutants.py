"""Put small faults into the package, one at a time, and print those no test notices.

`make mutants`, or `make mutants ONE=cache` for one module. Cosmic Ray makes the faults,
of which each module gets a sample of 60, always the same. They are tried against the
tests that concern the module: one process a core, each with a copy of the tree. A test
process is forked from one that has imported PyTorch already, which would take most of
its time; so this needs Linux or macOS. It is no part of CI.
"""

import difflib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from tqdm import tqdm

ROOT = Path(__file__).parents[2]
N = 60
# The tests of each module, those that fail first for most faults before the others.
TESTS = {
    "model/attention": ["attention", "pass", "gpt"],
    "model/positions": ["positions", "pass", "gpt"],
    "model/cache": ["cache", "pass"],
    "model/serving_caches": ["cache", "pass"],
    "model/blocks": ["blocks", "gpt"],
    "model/gpt": ["gpt", "encoder_decoder", "pass"],
    "decoding/sampling": ["sampling"],
    "training/loop": ["loop"],
    "training/optimizers": ["optimizers", "loop"],
    "training/checkpoints": ["checkpoints"],
}
# `|` stands in annotations, where any other sign fails at once and proves nothing.
TRIVIAL = ("BitOr_", "VariableReplacer", "VariableInserter")
# What the tests import beside the package: once, before the processes part.
HEAVY = (
    "torch", "einops", "gguf", "hypothesis", "IPython.display", "matplotlib.pyplot",
    "numpy", "safetensors.torch", "tiktoken", "torch.testing", "torch.optim",
)  # fmt: skip


def sample(source: str) -> list[str]:
    """N texts of a module, each with one fault."""
    nodes, faults = [*ast_nodes(get_ast(source))], []
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if not kind.arguments() and not any(word in name for word in TRIVIAL):
            n = sum(len([*kind().mutation_positions(node)]) for node in nodes)
            faults += [(kind, occurrence) for occurrence in range(n)]
    random.Random(0).shuffle(faults)
    texts = (mutate_code(source, kind(), occurrence) for kind, occurrence in faults)
    return [*islice((text for text in texts if not lenient(source, text)), N)]


def lenient(source: str, text: str) -> bool:
    """Whether the fault is that a `zip` checks nothing, which no test need notice."""
    return source.count("strict=True") != text.count("strict=True")


def move_into_a_copy(folder: str) -> None:
    """Each worker changes a tree of its own."""
    copy = tempfile.mkdtemp(dir=folder)
    for name in ("companion", "tests", "notebooks", "docs", "pyproject.toml"):
        source = ROOT / name
        copied = shutil.copytree if source.is_dir() else shutil.copy
        copied(source, Path(copy, name))
    os.chdir(copy)
    os.environ["PYTHONPATH"] = copy
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = copy
    sys.path.insert(0, copy)


def in_a_fork(run: Callable[[], int], limit: float) -> int:
    """The exit code of run() in a process of its own, -1 where it took too long."""
    process = get_context("fork").Process(target=partial(alone, run))
    process.start()
    process.join(limit)
    if process.exitcode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return -1
    return process.exitcode


def alone(run: Callable[[], int]) -> None:
    """End this process, a group with those it starts, with the code of run()."""
    os.setsid()
    with open(os.devnull, "r+b", 0) as nowhere:
        for stream in (0, 1, 2):
            os.dup2(nowhere.fileno(), stream)
    os._exit(int(run()))


def noticed(module: str, source: str, limit: float) -> bool:
    """Whether the module's tests fail when `source` stands in its place."""
    path = Path("companion", f"{module}.py")
    folder, _, name = module.rpartition("/")
    names = TESTS.get(module, [name])
    tests = [f"tests/{folder}/test_{name}.py" for name in names]
    tests.append("tests/test_refusals.py")
    before = path.read_text("utf-8")
    path.write_text(source, "utf-8")
    # The compiled file would do for any text of the same second and the same length.
    for compiled in path.parent.glob(f"__pycache__/{module}.*"):
        compiled.unlink()
    options = ["-x", "-q", "-p", "no:cacheprovider"]
    try:
        return in_a_fork(lambda: pytest.main([*options, *tests]), limit) != 0
    finally:
        path.write_text(before, "utf-8")


def try_module(module: str, pool: ProcessPoolExecutor) -> tuple[int, list[str]]:
    """How many faults were tried, and the diffs of those that nothing noticed."""
    begin = time.monotonic()
    path = Path("companion", f"{module}.py")
    whole = (ROOT / path).read_text("utf-8")
    if pool.submit(noticed, module, whole, 600).result():
        sys.exit(f"the tests of {module} fail as it is")
    limit = 20 + 4 * (time.monotonic() - begin)
    faults = sample(whole)
    tried = [pool.submit(noticed, module, fault, limit) for fault in faults]
    bar = tqdm(tried, module, leave=False, disable=not sys.stderr.isatty())
    pairs = zip(faults, [each.result() for each in bar], strict=True)
    missed = [fault.splitlines() for fault, found in pairs if not found]
    diffs = []
    for lines in missed:
        diff = difflib.unified_diff(
            whole.splitlines(),
            lines,
            fromfile=str(path),
            tofile=str(path),
            lineterm="",
            n=1,
        )
        diffs.append("\n".join(diff))
    return len(faults), diffs


def main(modules: list[str]) -> None:
    for name in HEAVY:
        importlib.import_module(name)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    begin = time.monotonic()
    total = 0
    missed = 0
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ProcessPoolExecutor(
            os.cpu_count(), get_context("fork"), move_into_a_copy, (folder,)
        ) as pool,
    ):
        for module in modules or TESTS:
            n, survivors = try_module(module, pool)
            total += n
            missed += len(survivors)
            minutes = (time.monotonic() - begin) / 60
            share = f"{(n - len(survivors)) / n:.0%}"
            print(f"{module}: {n - len(survivors)} of {n} faults noticed, {share}")
            print(*survivors, f"{minutes:.0f} minutes", sep="\n", flush=True)
    print(f"all: {total - missed} of {total}, {(total - missed) / total:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
