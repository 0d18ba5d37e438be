"""Write a deck for each chapter to build/slides/: `make slides`.

A slide is for speaking: a heading, a sentence or two, and one thing to look at: a
formula, a cell with what it prints, or a figure. All prose is in the speaker's notes.
Solutions, folded code and the set-up are left out.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

from chapters import PATHS, ROOT, SLIDER, figures, prepared
from nbconvert import SlidesExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

SLIDES = ROOT / "build" / "slides"
NPM = ROOT / "build" / "npm" / "node_modules"
REVEAL = NPM / "reveal.js"
FILES = [
    *(REVEAL / "dist" / name for name in ("reveal.js", "reveal.css")),
    REVEAL / "plugin" / "notes" / "notes.js",
    NPM / "mathjax" / "es5" / "tex-svg.js",
    *(ROOT / "docs" / "deck" / name for name in ("deck.js", "deck.css")),
    ROOT / "docs" / "_static" / "icon.svg",
]
WORDS = 40
PIECE = re.compile(r"^(#{1,3} [^\n]+|\*\*\d+\. .+?\*\*|\$\$.+?\$\$)", re.M | re.S)
# A colon ends a sentence only where its paragraph ends, before what it announces.
SENTENCE = re.compile(r"\S.*?(?:[.!?][*)\"]*(?=\s+[A-Z`*$(\"]|\s*$)|:\**\s*$)", re.S)


def pieces(prose: str) -> list[str]:
    """Markdown cut into headings, display formulas and what stands between them."""
    return [text.strip() for text in PIECE.split(prose) if text.strip()]


def n_words(text: str) -> int:
    """Words without formulas, an address of a link, and marks."""
    plain = re.sub(r"\$[^$]+\$|\]\([^)]*\)", " ", text)
    return len([word for word in plain.split() if re.search(r"\w", word)])


def words_to_read(prose: list[str], room: int, announces: bool) -> str:
    """A slide's own words, at most `room`: of its prose the first sentences.

    Where a cell follows that the prose `announces`, it is the sentence with the colon.
    """
    blocks = "\n\n".join(prose).split("\n\n")
    plain = [block for block in blocks if re.match(r"[^-|<>\d`]", block)]
    sentences = [x for block in plain for x in SENTENCE.findall(block)]
    last = ""
    if announces and sentences:
        last = sentences[-1]
    if last.endswith(":") and n_words(last) <= room:
        return last
    chosen = []
    for sentence in sentences:
        room -= n_words(sentence)
        if room < 0 or sentence.endswith(":"):
            break
        chosen.append(sentence)
    return " ".join(chosen)


def shown_cells(cell: NotebookNode) -> list[NotebookNode]:
    """What a cell of code shows: itself with what it prints, then its figures."""
    cell.metadata["folded"] = "hide-input" in cell.metadata.get("tags", [])
    pictures = [new_code_cell(outputs=[picture]) for picture in figures(cell)]
    for each in pictures:
        each.metadata["folded"] = True
    cell.outputs = [
        output
        for output in cell.outputs
        if output not in figures(cell)
        and output.get("data", {}).get("text/markdown") != SLIDER
    ]
    if cell.metadata["folded"] and not cell.outputs:
        return pictures
    return [cell, *pictures]


def one_slide(
    title: str,
    prose: list[str],
    shown: NotebookNode | None = None,
    after: Sequence[str] = (),
) -> list[NotebookNode]:
    """A slide's cells: what is read, what is looked at, and what is said."""
    room = WORDS - n_words(title)
    words = words_to_read(prose, room, announces=shown is not None)
    cells = [new_markdown_cell(f"{title}\n\n{words}".strip())]
    if shown is not None:
        cells.append(shown)
    cells[0].metadata["slideshow"] = {"slide_type": "slide"}
    for cell in cells[1:]:
        cell.metadata["slideshow"] = {"slide_type": "-"}
    notes = new_markdown_cell("\n\n".join([*prose, *after]))
    notes.metadata["slideshow"] = {"slide_type": "notes"}
    return cells + [notes]


@dataclass
class Section:
    """A heading or an exercise, and what follows it: texts, and cells to look at."""

    title: str
    parts: list[str | NotebookNode] = field(default_factory=list)


def title_of(piece: str) -> str | None:
    """The title that a piece of prose is, a heading or an exercise's; else None."""
    exercise = re.match(r"\*\*(\d+\. .+?)\*\*$", piece, re.S)
    if exercise:
        return f"### {' '.join(exercise[1].split())}"
    return piece if piece.startswith("#") else None


def sections(cells: list[NotebookNode]) -> list[Section]:
    """Cuts a chapter at its headings and exercises."""
    found: list[Section] = []
    for cell in cells:
        if cell.cell_type == "code":
            found[-1].parts += shown_cells(cell)
            continue
        for piece in pieces(cell.source):
            title = title_of(piece)
            if title:
                found.append(Section(title))
            elif piece.startswith("$$"):
                found[-1].parts.append(new_markdown_cell(piece))
            else:
                found[-1].parts.append(piece)
    return found


def slides_of(title: str, parts: list) -> list[NotebookNode]:
    """A section's slides, one for each cell to look at, or one for words alone.

    A cell comes with the prose that leads to it. What is said after the last one is
    said while it still shows; the title page begins with words alone.
    """
    shown = [i for i, part in enumerate(parts) if not isinstance(part, str)]
    if title.startswith("# ") or not shown:
        first = shown[0] if shown else len(parts)
        slides = one_slide(title, parts[:first])
        if shown:
            slides += slides_of(f"#{title}", parts[first:])
        return slides
    cells = []
    begin = 0
    for i in shown:
        after = parts[i + 1 :] if i == shown[-1] else []
        cells += one_slide(title, parts[begin:i], parts[i], after)
        begin = i + 1
    return cells


def deck(notebook: NotebookNode) -> NotebookNode:
    """The notebook as a deck."""
    tagged = [(cell.metadata.get("tags", []), cell) for cell in notebook.cells]
    cells = [cell for tags, cell in tagged if "solution" not in tags]
    cells.remove(next(cell for cell in cells if cell.cell_type == "code"))
    notebook.cells = []
    for section in sections(cells):
        notebook.cells += slides_of(section.title, section.parts)
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
        notebook = deck(prepared(path.read_text("utf-8"), suffix=".html"))
        html, _ = exporter.from_notebook_node(notebook)
        made.write_text(html, "utf-8")
    for path in FILES:
        shutil.copy(path, SLIDES / path.name)


if __name__ == "__main__":
    main()
