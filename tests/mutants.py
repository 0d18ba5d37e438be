"""Put small faults into the package, one at a time, and print those no test notices.

`make mutants`, or `make mutants ONE=cache` for one module: a sample of 20 faults each,
always the same, made by Cosmic Ray in a copy and run against the module's own tests.
All of it takes about half an hour on two cores, and is no part of CI.
"""

import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec
from tqdm import tqdm

ROOT = Path(__file__).parent.parent
N, WORKERS = 20, 2
# `|` stands in annotations, where any other sign fails at once and proves nothing.
TRIVIAL = ("BitOr_", "VariableReplacer", "VariableInserter")
OWN_TESTS = {
    "optimizers": ["training"],
    "recipes": ["runs"],
    "models": ["models", "encoder_decoder"],
    "runs": ["runs", "devices"],
}


def command(module: str) -> str:
    """What runs a module's own tests, and ends at the first that fails."""
    names = [f"tests/test_{name}.py" for name in OWN_TESTS.get(module, [module])]
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    return shlex.join([sys.executable, "-m", "pytest", *options, *names])


def sample(module: str) -> list[MutationSpec]:
    """N faults of a module, those that differ in no more than a sign among them."""
    with tempfile.TemporaryDirectory() as folder, use_db(f"{folder}/db") as db:
        init([Path("companion", f"{module}.py")], db, {})
        faults = [item.mutations[0] for item in db.work_items]
    faults = [f for f in faults if not any(t in f.operator_name for t in TRIVIAL)]
    faults.sort(key=lambda f: (f.operator_name, f.occurrence))
    return random.Random(0).sample(faults, min(N, len(faults)))


def move_into_a_copy() -> None:
    """Each worker changes a tree of its own."""
    copy = tempfile.mkdtemp(prefix="mutants-")
    for name in ("companion", "tests", "pyproject.toml"):
        source = ROOT / name
        copied = shutil.copytree if source.is_dir() else shutil.copy
        copied(source, Path(copy, name))
    os.chdir(copy)
    os.environ |= {"OMP_NUM_THREADS": "1", "HYPOTHESIS_STORAGE_DIRECTORY": copy}


def noticed(fault: MutationSpec, tests: str, limit: float) -> tuple[bool, str]:
    """Whether the tests fail with the fault in place, and its diff."""
    result = mutate_and_test([fault], tests, limit)
    return result.is_killed, result.diff or result.output


def try_module(module: str, pool: ProcessPoolExecutor) -> tuple[int, list[str]]:
    """How many faults were tried, and the diffs of those that nothing noticed."""
    tests, begin = command(module), time.monotonic()
    subprocess.run(shlex.split(tests), check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    limit = 30 + 5 * (time.monotonic() - begin)
    faults = sample(module)
    tried = [pool.submit(noticed, fault, tests, limit) for fault in faults]
    bar = tqdm(tried, module, leave=False, disable=not sys.stderr.isatty())
    results = [each.result() for each in bar]
    return len(faults), [diff for killed, diff in results if not killed]


def main(modules: list[str]) -> None:
    os.chdir(ROOT)
    modules = modules or sorted(p.stem for p in Path("companion").glob("[a-z]*.py"))
    total, missed = 0, 0
    with ProcessPoolExecutor(WORKERS, initializer=move_into_a_copy) as pool:
        for module in modules:
            n, survivors = try_module(module, pool)
            total, missed = total + n, missed + len(survivors)
            print(f"{module}: {n - len(survivors)} of {n} faults noticed", flush=True)
            for diff in survivors:
                print(diff, flush=True)
    print(f"all: {total - missed} of {total}, {(total - missed) / total:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
