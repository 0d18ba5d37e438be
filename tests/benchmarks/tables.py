"""README's tables, made of docs/bench.json: `make tables` takes build/bench.json over.

Each stands between two comments, `<!-- race -->` and `<!-- /race -->`.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT, README = ROOT / "docs" / "bench.json", ROOT / "README.md"
PARTS = {
    "muon": "Muon",
    "positions": "rotary positions",
    "activation": "squared ReLU",
    "normalize": "normalised queries and keys",
    "tied": "an output matrix of its own",
    "zero_init": "zero start",
    "norm": "RMSNorm",
}


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def race(found: dict) -> str:
    """Who took how long to which loss."""
    names = {
        "plain, whole": "plain: AdamW, learned positions, LayerNorm, GELU",
        "all parts": "all parts",
    }
    runs = {row["name"]: row for row in found["race"]}
    entrants = [(label, runs[name]) for name, label in names.items()]
    if theirs := found.get("nanogpt", {}).get("race"):
        entrants.insert(0, ("nanoGPT's own code, its command for a laptop", theirs))
    rows = [
        [label, f"{x['steps']:,}, {x['batch']}", f"{x['seconds']:.1f} s",
         f"{x['loss']:.2f}"]
        for label, x in entrants
    ]  # fmt: skip
    return table(["recipe", "steps, batch", "time", "validation loss"], rows)


def parts(found: dict) -> str:
    """What each part does, alone and in company."""
    loss = {row["name"]: f"{row['loss']:.2f}" for row in found["race"]}
    head = [
        "part",
        f"plain ({loss['plain']}) and it",
        f"all ({loss['all parts']}) but it",
    ]
    rows = [
        [label, loss[f"plain and {name}"], loss[f"all parts but {name}"]]
        for name, label in PARTS.items()
    ]
    return table(head, rows)


def number(x: float) -> str:
    """Three digits that count: 12,600 or 168 or 26.4."""
    return f"{float(f'{x:.3g}'):,.{0 if x >= 100 else 1}f}"


def pairs(found: dict) -> str:
    """Everything that was measured in pairs."""
    groups = [rows for name, rows in found.items() if name not in ("machine", "memory",
              "race", "nanogpt")]  # fmt: skip
    groups.insert(1, found.get("nanogpt", {}).get("training", []))
    rows = [
        [row["what"], f"{number(row['ours'])} tokens/s",
         f"{row['against']}, {number(row['theirs'])}",
         f"{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"]
        for group in groups for row in group
    ]  # fmt: skip
    return table(["what", "this package", "against", "ratio"], rows)


def memory(found: dict) -> str:
    """Attention's memory, in a sentence."""
    most = {row["name"]: f"{row['megabytes']:,.0f} MB" for row in found["memory"]}
    return (
        f"Attention of 4,096 tokens in 4 heads, there and back, takes {most['blocks']}"
        f" in blocks,\n{most['explicit']} with the whole table, and {most['fused']} in"
        " PyTorch's kernel."
    )


def with_tables(readme: str, found: dict) -> str:
    """The README with its tables made anew. Raises ValueError where a place is gone."""
    for make in (race, parts, pairs, memory):
        name = make.__name__
        place = re.compile(f"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.S)
        if len(place.findall(readme)) != 1:
            raise ValueError(f"README.md must have one <!-- {name} --> ... place")
        readme = place.sub(lambda x, m=make: x[1] + m(found) + x[2], readme)
    return readme


if __name__ == "__main__":
    measured = ROOT / "build" / "bench.json"
    found = json.loads(measured.read_text("utf-8")) if measured.exists() else {}
    if missing := {"race", "memory", "training"} - found.keys():
        sys.exit(
            f"{measured} lacks {', '.join(sorted(missing))}: run `make bench` first"
        )
    readme = with_tables(README.read_text("utf-8"), found)
    KEPT.write_text(measured.read_text("utf-8"), "utf-8")
    README.write_text(readme, "utf-8")
