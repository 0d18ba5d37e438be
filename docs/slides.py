"""Write a deck for each chapter to build/slides/: `make slides`.

A heading begins a slide; an exercise and a figure begin a slide below it. Where a cell
says `slideshow.slide_type`, that holds. Solutions and folded code are left out.
"""

import re
import shutil

import nbformat
from chapters import PATHS, ROOT, figures, prepared
from nbconvert import SlidesExporter
from nbformat.v4 import new_markdown_cell

SLIDES = ROOT / "build" / "slides"
NPM = ROOT / "build" / "npm" / "node_modules"
FILES = [
    *(NPM / "reveal.js" / "dist" / name for name in ("reveal.js", "reveal.css")),
    NPM / "mathjax" / "es5" / "tex-svg.js",
    *(ROOT / "docs" / "deck" / name for name in ("deck.js", "deck.css")),
    ROOT / "docs" / "_static" / "icon.svg",
]


def parts(cell) -> list:
    """A cell of prose cut before each of its headings; any other cell as it is."""
    if cell.cell_type != "markdown":
        return [cell]
    pieces = re.split(r"^(?=#{1,3} )", cell.source, flags=re.M)
    cells = [new_markdown_cell(piece) for piece in pieces if piece.strip()]
    cells[0].metadata = cell.metadata
    return cells


def kind(cell) -> str:
    """What the cell begins: a slide, one below it, or nothing (`-`)."""
    if stated := cell.metadata.get("slideshow", {}).get("slide_type"):
        return stated
    if re.match(r"##? ", cell.source):
        return "slide"
    exercise = cell.cell_type == "markdown" and re.match(r"\*\*\d+\. ", cell.source)
    below = exercise or figures(cell) or cell.source.startswith("### ")
    return "subslide" if below else "-"


def deck(notebook):
    """The notebook as a deck: cut, without what is folded, every cell with its type."""
    cells = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata["folded"] = "hide-input" in tags
        if "solution" in tags or ("hide-input" in tags and not cell.outputs):
            continue
        cells += parts(cell)
    for cell in cells:
        cell.metadata["slideshow"] = {"slide_type": kind(cell)}
    notebook.cells = cells
    notebook.metadata["title"] = cells[0].source.partition("\n")[0].strip("# ")
    return notebook


def main() -> None:
    """Write the decks, and beside them the files they need."""
    SLIDES.mkdir(parents=True, exist_ok=True)
    exporter = SlidesExporter(
        template_name="deck",
        extra_template_basedirs=[str(ROOT / "docs")],
        exclude_anchor_links=True,
        preprocessors=["nbconvert.preprocessors.CoalesceStreamsPreprocessor"],
    )
    ours = max(path.stat().st_mtime for path in (ROOT / "docs").rglob("*"))
    for path in PATHS:
        made = SLIDES / f"{path.stem}.html"
        if made.exists() and made.stat().st_mtime > max(ours, path.stat().st_mtime):
            continue
        notebook = deck(prepared(path.read_text("utf-8")))
        nbformat.validate(notebook)
        html, _ = exporter.from_notebook_node(notebook)
        made.write_text(html, "utf-8")
    for path in FILES:
        shutil.copy(path, SLIDES / path.name)


if __name__ == "__main__":
    main()
