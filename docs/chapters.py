"""The chapters as the site and the slides show them."""

import base64
import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
SLIDER = "*Here a running notebook has a slider.*"
# Where a notebook and the site keep the page of one's own model.
OURS, EXPLORE = "build/explore.html", "../explore.html"
# A page of docs/, which on the site lies one folder further up than the chapters.
DOCS = re.compile(r"\]\(\.\./docs/(\w+)\.md\)")


def figures(cell) -> list:
    """The cell's outputs that are pictures."""
    return [o for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]


def alternative(output) -> str:
    """What a picture shows, in words."""
    return output.metadata["image/png"]["alt"]


def prepared(text: str, suffix: str = ".md"):
    """A notebook for readers who can't run it.

    A sentence stands for each slider, and what folds a cell says what is in it. A link
    to the reader's own model, or to a page of docs/, leads to the site's, whose files
    end with `suffix`. The alternative text is copied to where myst-nb looks for it.
    """
    notebook = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = DOCS.sub(rf"](../\1{suffix})", cell.source)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if WIDGET in data:
                output.data = {"text/markdown": SLIDER}
            elif OURS in data.get("text/html", ""):
                data["text/html"] = data["text/html"].replace(OURS, EXPLORE)
        cell.metadata["mystnb"] = for_myst(cell)
    return notebook


def for_myst(cell) -> dict:
    """What myst-nb is told of a cell: the words that fold it, and of its picture."""
    tags = cell.metadata.get("tags", [])
    what = "a solution" if "solution" in tags else "the code of the figure"
    told = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}
    pictures = figures(cell)
    if pictures:
        (picture,) = pictures  # myst-nb has one text for all pictures of a cell
        told["image"] = {"alt": alternative(picture)}
    return told


def cover(path: Path) -> tuple[bytes, str]:
    """A chapter's first picture, or the one tagged `cover`, and its words."""
    cells = [c for c in nbformat.read(path, as_version=4).cells if figures(c)]
    tagged = [c for c in cells if "cover" in c.metadata.get("tags", [])]
    picture = figures((tagged or cells)[0])[0]
    return base64.b64decode(picture.data["image/png"]), alternative(picture)


def ladder() -> tuple[bytes, str]:
    """The last ladder of bars, which has all rungs of one price, and its words."""
    cells = [c for path in PATHS for c in nbformat.read(path, as_version=4).cells]
    pictures = [picture for cell in cells for picture in figures(cell)]
    found = [p for p in pictures if alternative(p).startswith("The ladder: a bar")]
    return base64.b64decode(found[-1].data["image/png"]), alternative(found[-1])
