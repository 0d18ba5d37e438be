"""The race of chapter 05's recipes, and the memory that attention takes."""

import multiprocessing
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from functools import partial

import torch

import companion

# The validation loss of "plain" in the least time.
FASTEST = replace(
    companion.RECIPES["fast"],
    batch_size=16,
    n_steps=195,
    warmup=1,
    optimizer=partial(companion.muon, momentum=0.85),
)


def attend(engine: str, n: int = 4096) -> tuple[float, float]:
    """MB at their highest, and seconds, of a causal layer there and back, 4 heads."""
    layer = companion.MultiHeadAttention(256, 4, engine=engine)
    x = torch.randn(1, n, 256)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    layer(x, is_causal=True).sum().backward()
    took = time.perf_counter() - begin
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return most / (2**20 if platform.system() == "Darwin" else 2**10), took


def memory() -> list[dict]:
    """Attention of 4,096 tokens, each engine in a new process, whose highest counts."""
    fresh = multiprocessing.get_context("spawn")
    rows = []
    for name, engine in (
        ("blocks", "flash"),
        ("explicit", "explicit"),
        ("fused", "fused"),
    ):
        with ProcessPoolExecutor(1, mp_context=fresh) as process:
            megabytes, took = process.submit(attend, engine).result()
        rows.append({"name": name, "megabytes": megabytes, "seconds": took})
        print(f"attention, 4,096 tokens, {name}: {megabytes:,.0f} MB, {took:.2f} s")
    return rows


def validation_loss(model: companion.GPT) -> float:
    text = companion.tiny_shakespeare()
    tokens = torch.tensor(companion.CharTokenizer(text).encode(text))
    return companion.evaluate(model, companion.split(tokens)[1])


def entrants() -> dict[str, companion.Recipe]:
    """nanoGPT's recipe, ours, and each part added to the one or left out of the other.

    The two optimizers differ in rate and schedule, too.
    """
    plain = companion.RECIPES["plain"]
    fast = FASTEST
    short = replace(plain, n_steps=fast.n_steps, warmup=fast.warmup)
    names = [
        field.name
        for field in fields(fast.config)
        if getattr(fast.config, field.name) != getattr(plain.config, field.name)
    ]
    recipes = {"plain, whole": plain, "all parts": fast, "plain": short}
    for name in names:
        for start, recipe, other in (
            ("plain and ", short, fast),
            ("all parts but ", fast, plain),
        ):
            part = replace(recipe.config, **{name: getattr(other.config, name)})
            recipes[start + name] = replace(recipe, config=part)
    for start, recipe, other in (
        ("plain and ", short, fast),
        ("all parts but ", fast, plain),
    ):
        recipes[start + "muon"] = replace(
            recipe, optimizer=other.optimizer, schedule=other.schedule
        )
    return recipes


def race() -> list[dict]:
    """Each entrant to its end: seconds, and the loss on the whole validation text."""
    rows = []
    for name, recipe in entrants().items():
        begin = time.perf_counter()
        model, _ = companion.train_recipe(recipe, device="cpu", quiet=True)
        took = time.perf_counter() - begin
        row = {"name": name, "steps": recipe.n_steps, "batch": recipe.batch_size}
        rows.append(row | {"seconds": took, "loss": validation_loss(model)})
        print(
            f"race, {name}: {rows[-1]['loss']:.3f} after {recipe.n_steps} steps"
            f" of batch {recipe.batch_size}, {took:.1f} s",
            flush=True,
        )
    return rows
