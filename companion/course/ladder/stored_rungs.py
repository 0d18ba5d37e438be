"""The rungs that `make ladder` has stored, of three seeds each, and what may differ."""

import json
from pathlib import Path
from statistics import mean, median

STORED = Path(__file__).with_name("rungs.json")


def stored() -> dict[str, dict]:
    """Returns the rungs that `make ladder` measured, in order, by their names.

    Each has its `chapter`, as in "03", and its `nats`, a list of one number a seed.
    """
    return json.loads(STORED.read_text("utf-8"))


def measured(name: str) -> float:
    """Returns the mean of a stored rung's seeds, in nats a character."""
    return mean(stored()[name]["nats"])


def gains(rungs: dict[str, float], name: str) -> list[float]:
    """Returns the nats a character that a rung gains over the first of these rungs.

    One number for each seed: this run's, then those of the seeds that are stored, where
    both rungs are.
    """
    first = next(iter(rungs))
    known = stored()
    without = [rungs[first], *known.get(first, {}).get("nats", [])]
    with_it = [rungs[name], *known.get(name, {}).get("nats", [])]
    return [a - b for a, b in zip(without, with_it, strict=False)]


def band(name: str) -> tuple[float, float]:
    """Returns between which losses a rung is as it was for other seeds.

    A fourth seed falls outside of three others half the time, so their range is widened
    on both sides by twice itself: of numbers that scatter normally 1 in 1,000 is
    farther out. Three seeds may lie close by chance, so what is taken for a range is at
    least the median of all rungs that depend on a seed.
    """
    ranges = {k: max(v["nats"]) - min(v["nats"]) for k, v in stored().items()}
    typical = median([width for width in ranges.values() if width > 0])
    width = 2 * max(ranges[name], typical)
    nats = stored()[name]["nats"]
    return min(nats) - width, max(nats) + width


def within(rungs: dict[str, float]) -> bool:
    """Says whether all of these rungs that have been stored lie within their bands."""
    for name in rungs.keys() & stored().keys():
        low, high = band(name)
        if not low <= round(rungs[name], 4) <= high:  # as they are stored
            return False
    return True
