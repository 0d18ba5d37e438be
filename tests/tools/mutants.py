"""Put small faults into the package, one at a time, and print those no test notices.

`make mutants` tries the modules that chapters derive, and `make mutants
one=model/cache` any single one. Cosmic Ray makes the faults, of which each module gets
a sample of 40, always the same; `--faults 10` tries the first ten of them. They are
tried against the tests that concern the module: one process a core, each with a copy of
the tree. A test process is forked from one that has imported PyTorch already, which
would take most of its time; so this needs Linux or macOS. It is no part of CI.
"""

import argparse
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
from importlib.util import cache_from_source
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import pytest
from tqdm import tqdm

ROOT = Path(__file__).parents[2]
# What all modules build on, and the chapters derive; others are tried by their names.
ROOMS = ("text", "model", "decoding", "training", "pretrained")
# The tests of modules that have none of their own name, or are tested elsewhere, too:
# those that fail first for most faults before the others.
ELSEWHERE = {
    "device": ["devices", "pretrained/quantized"],
    "interrupts": ["files"],
    "tensor_files": ["pretrained/lora", "training/checkpoints"],
    "model/scores": ["model/attention", "model/flash_attention", "model/pass"],
    "model/attention": ["model/attention", "model/pass", "model/gpt"],
    "model/flash_attention": ["model/flash_attention", "model/attention"],
    "model/positions": ["model/positions", "model/pass", "model/gpt"],
    "model/cache": ["model/cache", "model/pass"],
    "model/serving_caches": ["model/cache", "model/pass"],
    "model/blocks": ["model/blocks", "model/gpt"],
    "model/gpt": ["model/gpt", "model/encoder_decoder", "model/pass"],
    "decoding/beam_search": ["decoding/sampling", "model/encoder_decoder"],
    "training/optimizers": ["training/optimizers", "training/loop"],
    "training/processes": ["training/checkpoints", "training/parallel"],
    "training/resumable": ["training/checkpoints", "commands/tune", "course/runs"],
    "pretrained/adapter_files": ["pretrained/lora"],
    "pretrained/anatomy": ["pretrained/families"],
    "pretrained/config_json": ["pretrained/families"],
    "pretrained/gguf_header": ["pretrained/smollm2"],
    "pretrained/joined": ["pretrained/quantized"],
    "pretrained/model_types": ["pretrained/families"],
    "pretrained/published_tokenizer": ["pretrained/smollm2"],
    "pretrained/talks": ["pretrained/lora"],
    "pretrained/weights": ["pretrained/smollm2", "pretrained/gpt2", "pretrained/gguf"],
    "commands/describe": ["pretrained/families"],
    "commands/explore": ["course/explore"],
    "commands/talks_file": ["commands/tune"],
    "commands/train": ["course/runs"],
    "course/agreement": ["course/kept"],
    "course/kept_file": ["course/kept"],
    "course/parallel_demo": ["training/parallel"],
    "course/recipes": ["course/runs"],
    "course/stored_models": ["course/explore", "course/notebook", "course/runs"],
    "course/cabinet/pull_requests": ["course/pull_requests"],
    "course/checks/homework": ["bank"],
    "course/checks/judge": ["course/cabinet", "course/checks"],
    "course/checks/nothing_crashes": ["course/cabinet", "course/checks"],
    "course/checks/pull_requests": ["course/pull_requests"],
}
# `|` stands in annotations, where any other sign fails at once and proves nothing. Nor
# do bits of floats, and of numbers from the end: x >> y, x.sum(~1), x.sum(not 1).
TRIVIAL = (
    "BitOr",
    "_BitXor",
    "_BitAnd",
    "Shift",
    "USub_Invert",
    "USub_Not",
    "ExceptionReplacer",
    "VariableReplacer",
    "VariableInserter",
)
# What the tests import beside the package: once, before the processes part.
HEAVY = (
    "torch", "einops", "gguf", "hypothesis", "IPython.display", "matplotlib.pyplot",
    "numpy", "peft", "safetensors.torch", "tiktoken", "torch.testing", "torch.optim",
)  # fmt: skip


def sample(source: str, n_faults: int) -> tuple[list[str], int]:
    """Texts of a module, each with one fault, and how many faults there are in all."""
    # Imported here: the tests of this tool do without it.
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = [*ast_nodes(get_ast(source))]
    faults = []
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if not kind.arguments() and not any(word in name for word in TRIVIAL):
            n = sum(len([*kind().mutation_positions(node)]) for node in nodes)
            faults += [(kind, occurrence) for occurrence in range(n)]
    random.Random(0).shuffle(faults)
    texts = (mutate_code(source, kind(), occurrence) for kind, occurrence in faults)
    telling = (text for text in texts if compiles(text) and not lenient(source, text))
    return [*islice(telling, n_faults)], len(faults)


def compiles(text: str) -> bool:
    """Whether a fault is Python: a lone `*` in a signature is taken for a product."""
    try:
        compile(text, "", "exec")
    except SyntaxError:
        return False
    return True


def lenient(source: str, text: str) -> bool:
    """Whether the fault is that a `zip` checks nothing, which no test need notice."""
    return source.count("strict=True") != text.count("strict=True")


def move_into_a_copy(folder: str) -> None:
    """Each worker changes a tree of its own."""
    copy = tempfile.mkdtemp(dir=folder)
    for name in ("companion", "tests", "notebooks", "docs", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, Path(copy, name))
        else:
            shutil.copy(source, copy)
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


def put(path: Path, source: str) -> None:
    """Write a module so that the next process that imports it runs this very text.

    Its compiled file would do for any text of the same second and the same length.
    """
    path.write_text(source, "utf-8")
    Path(cache_from_source(path)).unlink(missing_ok=True)


class Small:
    """Leaves out the tests that read SmolLM2's file, which takes ten seconds a time."""

    @staticmethod
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "smollm2_file" not in item.fixturenames]


def modules(*rooms: str) -> list[str]:
    """The modules in these rooms of the package, as model/cache; without any, all."""
    package = ROOT / "companion"
    found = []
    for path in sorted(package.rglob("[!_]*.py")):
        name = path.relative_to(package).with_suffix("").as_posix()
        if not rooms or name.partition("/")[0] in rooms:
            found.append(name)
    return found


def by_path(module: str) -> str:
    """The tests of a module: those of its own name, or else of the folder it is in."""
    folder, _, name = module.rpartition("/")
    if folder.count("/") and not (ROOT / test_file(module)).exists():
        return folder
    return module


def test_file(name: str) -> str:
    """Where tests stand: those of model/cache in tests/model/test_cache.py."""
    folder, slash, name = name.rpartition("/")
    return f"tests/{folder}{slash}test_{name}.py"


def test_files(module: str) -> list[str]:
    """The tests that concern a module."""
    names = ELSEWHERE.get(module) or [by_path(module)]
    return [*map(test_file, names), "tests/test_refusals.py"]


def noticed(module: str, source: str, limit: float) -> bool:
    """Whether the module's tests fail when `source` stands in its place."""
    path = Path("companion", f"{module}.py")
    before = path.read_text("utf-8")
    put(path, source)
    options = ["-x", "-q", "-p", "no:cacheprovider"]
    try:
        run = partial(pytest.main, [*options, *test_files(module)], [Small])
        return in_a_fork(run, limit) != 0
    finally:
        put(path, before)


def try_module(
    module: str, n_faults: int, pool: ProcessPoolExecutor
) -> tuple[int, int, list[str]]:
    """How many faults were tried, of how many, and the diffs of those not noticed."""
    begin = time.monotonic()
    path = Path("companion", f"{module}.py")
    whole = (ROOT / path).read_text("utf-8")
    if pool.submit(noticed, module, whole, 600).result():
        sys.exit(f"the tests of {module} fail as it is")
    limit = 10 + 3 * (time.monotonic() - begin)
    faults, n_all = sample(whole, n_faults)
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
    return len(faults), n_all, diffs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="as model/cache")
    parser.add_argument("--faults", type=int, default=40, help="to a module")
    parser.add_argument("-n", type=int, default=os.cpu_count(), help="processes")
    given = parser.parse_args()
    for module in given.modules:
        if not (ROOT / "companion" / f"{module}.py").exists():
            parser.error(f"there is no module {module}: name it as model/cache")

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
            given.n, get_context("fork"), move_into_a_copy, (folder,)
        ) as pool,
    ):
        for module in given.modules or modules(*ROOMS):
            n, n_all, survivors = try_module(module, given.faults, pool)
            total += n
            missed += len(survivors)
            minutes = (time.monotonic() - begin) / 60
            print(f"{module}: {n - len(survivors)} of {n} faults noticed, of {n_all}")
            print(*survivors, f"{minutes:.0f} minutes", sep="\n", flush=True)
    print(f"together: {total - missed} of {total}, {(total - missed) / total:.1%}")


if __name__ == "__main__":
    main()
