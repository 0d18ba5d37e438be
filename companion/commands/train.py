"""A training by a recipe, from its first step or where it was stopped: `make train`.

`python -m companion train --recipe fast`, or under torchrun. Chapter 05.
"""

import argparse
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from ..artifacts import CACHE
from ..course.recipes import RECIPES, shakespeare_tokens
from ..course.runs import train_recipe
from ..interrupts import deferred_interrupts
from ..training.loop import PATIENCE, evaluate, say
from ..training.processes import Process
from ..training.resumable import explain_resuming


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line. Returns its options; ends the process if one is wrong."""
    parser = argparse.ArgumentParser("companion train", description=main.__doc__)
    parser.add_argument("--recipe", choices=RECIPES, default="fast")
    parser.add_argument("--steps", type=int, help="instead of the recipe's number")
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"))
    parser.add_argument(
        "--bfloat16",
        action=argparse.BooleanOptionalAction,
        help="half precision; by default where the processor has it faster",
    )
    parser.add_argument("--checkpoint", type=Path, help="by default in the data cache")
    parser.add_argument(
        "--shard", action="store_true", help="under torchrun: parts of all parameters"
    )
    parser.add_argument(
        "--compile", action="store_true", help="faster steps, if there is a compiler"
    )
    options = parser.parse_args(arguments)
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}; it must be 1 or more")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Train a model on tiny Shakespeare, or go on where it was stopped."""
    options = parse_options(arguments)
    name = options.recipe
    recipe = RECIPES[name]
    if options.steps is not None:
        warmup = min(recipe.warmup, options.steps)
        recipe = replace(recipe, n_steps=options.steps, warmup=warmup)
        name = f"{name}-{options.steps}"
    path = options.checkpoint or CACHE / f"{name}.safetensors"

    # What stops the run is noted until its words are said, however often it comes.
    patiently = nullcontext()
    if Process.current().world == 1:
        patiently = deferred_interrupts(PATIENCE)
    with patiently:
        try:
            model, losses = train_recipe(
                recipe,
                path,
                device=options.device,
                bfloat16=options.bfloat16,
                sharded=options.shard,
                compiled=options.compile,
            )
        except (ValueError, OSError, RuntimeError) as error:
            sys.exit(f"error: {str(error).strip().splitlines()[0]}")
        except KeyboardInterrupt as stop:
            if Process.current().rank == 0:
                say(f"stopped: {str(stop) or explain_resuming(path)}")
            sys.exit(130)

    if Process.current().rank == 0:
        if not losses:
            say(f"already at step {recipe.n_steps} of {recipe.n_steps}")
        _, validation = shakespeare_tokens()
        try:
            loss = evaluate(model, validation)
        except KeyboardInterrupt:
            say(f"stopped: all {recipe.n_steps} steps are made, checkpoint in {path}")
            sys.exit(130)
        say(f"validation loss {loss:.4f}, checkpoint in {path}")
