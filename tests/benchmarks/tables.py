"""The tables of docs/speed.md and the README's four figures, made of docs/bench.json.

`make tables` takes over each group that build/bench.json holds; the others stay as they
were measured before. Each table stands between two comments, such as `<!-- race -->`
and `<!-- /race -->`.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "bench.json"
COMMITTED = ROOT / "docs" / "bench.json"
# The groups of `make bench` whose rows are pairs, in their order in the table.
PAIRED = (
    "training",
    "nanogpt",
    "decoding",
    "streams",
    "lengths",
    "serving",
    "speculation",
    "published",
    "packed",
    "tuning",
    "rollouts",
)
GROUPS = ("memory", "race", *PAIRED, "start")  # all, in their order in docs/bench.json
PARTS = {
    "muon": "Muon",
    "positions": "rotary positions",
    "activation": "squared ReLU",
    "qk_norm": "normalised queries and keys",
    "tie_embeddings": "an output matrix of its own",
    "zero_init": "zero start",
    "norm": "RMSNorm",
}


def taken_over(built: dict, before: dict) -> dict:
    """What was measured before, with each group that was measured anew in its place.

    Without a clone of nanoGPT its group is empty, and counts as not measured. Raises
    ValueError for a group that no table knows, and for one that neither has.
    """
    measured = {"machines": dict(before["machines"])}
    if unknown := built.keys() - {"machines", *GROUPS}:
        raise ValueError(
            f"no table knows the group {min(unknown)}: GROUPS in"
            " tests/benchmarks/tables.py must have it"
        )
    for name in GROUPS:
        source = built if built.get(name) else before
        if name not in source:
            raise ValueError(f"{name} was never measured: run `ROWS={name} make bench`")
        measured[name] = source[name]
        measured["machines"][name] = source["machines"][name]
    return measured


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def processors(measured: dict, names: list[str]) -> str:
    """Which processors these groups were measured on, in a sentence."""
    groups: dict[str, list[str]] = {}
    for name in names:
        used = measured["machines"][name]
        told = f"{used['processor']}, {used['capability']}, {used['threads']} threads"
        groups.setdefault(told, []).append(name)
    if len(groups) == 1:
        return f"Processor: {min(groups)}."
    told = [f"{who} ({', '.join(of)})" for who, of in groups.items()]
    return f"Processors: {'; '.join(told)}."


def race(measured: dict) -> str:
    """Who took how long to which loss."""
    names = {
        "plain, whole": "plain: AdamW, learned positions, LayerNorm, GELU",
        "all parts": "all parts",
    }
    runs = {row["name"]: row for row in measured["race"]}
    entrants = [(label, runs[name]) for name, label in names.items()]
    nano = measured["nanogpt"]["race"]
    entrants.insert(0, ("nanoGPT's own code, its command for a laptop", nano))
    rows = [
        [label, f"{x['steps']:,}, {x['batch']}", f"{x['seconds']:.1f} s",
         f"{x['loss']:.2f}"]
        for label, x in entrants
    ]  # fmt: skip
    head = ["recipe", "steps, batch", "time", "validation loss"]
    return table(head, rows) + "\n\n" + processors(measured, ["race"])


def parts(measured: dict) -> str:
    """What each part does, alone and in company.

    Raises ValueError unless the race has run with and without each part, and no others.
    """
    loss = {row["name"]: f"{row['loss']:.2f}" for row in measured["race"]}
    runs = {f"{run} {name}" for run in ("plain and", "all parts but") for name in PARTS}
    runs |= {"plain, whole", "plain", "all parts"}
    if loss.keys() != runs:
        others = ", ".join(sorted(loss.keys() ^ runs))
        raise ValueError(
            f"PARTS in tests/benchmarks/tables.py and the race differ in {others}: run"
            " `ROWS=race make bench`, or name the part there"
        )
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


def pairs(measured: dict) -> str:
    """Everything that was measured in pairs."""
    groups = {name: measured[name] for name in PAIRED}
    groups["nanogpt"] = groups["nanogpt"]["training"]  # beside its race
    rows = [
        [row["what"], f"{number(row['ours'])} tokens/s",
         f"{row['against']}, {number(row['theirs'])}",
         f"{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"]
        for group in groups.values() for row in group
    ]  # fmt: skip
    head = ["what", "this package", "against", "ratio"]
    ours = [name for name in PAIRED if name != "nanogpt"]
    return table(head, rows) + "\n\n" + processors(measured, ours)


def memory(measured: dict) -> str:
    """Attention's memory, in a sentence."""
    most = {row["name"]: f"{row['megabytes']:,.0f} MB" for row in measured["memory"]}
    return (
        f"Attention of 4,096 tokens in 4 heads, there and back, takes {most['blocks']}"
        f" in blocks,\n{most['explicit']} with the whole table, and {most['fused']} in"
        " PyTorch's kernel."
    )


def four(measured: dict) -> str:
    """The four figures that matter, each with its peer.

    Raises ValueError where llama.cpp, which isn't everywhere, was not measured.
    """
    fast = next(row for row in measured["race"] if row["name"] == "all parts")
    nano = measured["nanogpt"]["race"]
    decoding, serving = measured["decoding"][0], measured["serving"][0]
    in_c = [row for row in measured["packed"] if row["against"] == "llama.cpp"]
    if not in_c:
        raise ValueError(
            "packed has no row against llama.cpp: install xllamacpp, and run"
            " `ROWS=packed make bench`"
        )
    packed = in_c[-1]  # after a prompt
    rows = [
        [f"training to a loss of {fast['loss']:.2f}", f"{fast['seconds']:.1f} s",
         f"nanoGPT's own code, to {nano['loss']:.2f}: {nano['seconds']:.1f} s"],
        *([title, f"{number(row['ours'])} tokens/s",
           f"{row['against']}: {number(row['theirs'])}"]
          for title, row in [
              ("decoding, GPT-2 small's shape", decoding),
              ("32 requests of different lengths", serving),
              ("SmolLM2-135M, packed", packed)]),
    ]  # fmt: skip
    return table(["on two cores", "this package", "its peer"], rows)


# Where each table stands.
PLACES = {
    ROOT / "docs" / "speed.md": (race, parts, pairs, memory),
    ROOT / "README.md": (four,),
}


def with_tables(path: Path, text: str, measured: dict) -> str:
    """A file's text with its tables made anew; ValueError where a place is gone."""
    for make in PLACES[path]:
        name = make.__name__
        place = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        if len(place.findall(text)) != 1:
            raise ValueError(f"{path.name} must have one <!-- {name} --> ... place")
        text = place.sub(lambda x, m=make: f"{x[1]}{m(measured)}\n{x[2]}", text)
    return text


def main() -> None:
    """Writes the tables, and the numbers that they are of, or nothing at all."""
    if not BUILT.exists():
        sys.exit(f"there is no {BUILT.relative_to(ROOT)}: run `make bench` first")
    built = json.loads(BUILT.read_text("utf-8"))
    before = json.loads(COMMITTED.read_text("utf-8"))
    try:
        measured = taken_over(built, before)
        texts = {x: with_tables(x, x.read_text("utf-8"), measured) for x in PLACES}
    except ValueError as error:
        sys.exit(f"error: {error}")
    COMMITTED.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
    for path, text in texts.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
