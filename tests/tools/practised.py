"""Run chapter 15's practice with other seeds: `python tests/tools/practised.py 0 1`.

For each seed a line with pass@1, pass@8 and greedy, before and after. It takes the
chapter's own cells, a minute and a half a seed with one thread.
"""

import sys
import tempfile

import matplotlib
from cells import NOTEBOOKS, code
from course_gpt import set_apart

CHAPTER = NOTEBOOKS / "15_reward.ipynb"
IMPORTS = """
kept.begin(chapter=12)
from my_gpt import MyGPT, my_start
from companion.training import reward

config = companion.RECIPES["fast"].config
"""
FIRST = "characters = companion.CharTokenizer("
LAST = "after = exam(practised)"


def program(seed: int) -> str:
    """The chapter's cells that lead to the exam after practice, with another seed."""
    sources = code(CHAPTER)
    first = next(i for i, source in enumerate(sources) if FIRST in source)
    last = next(i for i, source in enumerate(sources) if LAST in source)
    helpers = next(source for source in sources if "def my_log_p(" in source)
    start = sources[0].replace("setup(seed=15)", f"setup(seed={seed})")
    return "\n\n".join([start, IMPORTS, helpers, *sources[first : last + 1]])


def main() -> None:
    """Practises with each seed."""
    matplotlib.use("Agg")
    for seed in map(int, sys.argv[1:]):
        names = {}
        exec(program(seed), names)
        pairs = zip(names["before"], names["after"], strict=True)
        changes = [f"{a:.3f} to {b:.3f}" for a, b in pairs]
        measures = zip(["pass@1", "pass@8", "greedy"], changes, strict=True)
        print(f"seed {seed}:", ", ".join(map(" ".join, measures)), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        set_apart(folder)
        main()
