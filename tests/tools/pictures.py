"""Take two pictures of the site's first page from chapter 05, by its cells' tags."""

import base64
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
PICTURES = {"readme-curve": "curve.png", "readme-head": "head.png"}

if __name__ == "__main__":
    notebook = nbformat.read(ROOT / "notebooks" / "05_training.ipynb", as_version=4)
    for cell in notebook.cells:
        for tag in PICTURES.keys() & set(cell.metadata.get("tags", [])):
            png = next(o.data["image/png"] for o in cell.outputs if "data" in o)
            (ROOT / ".github" / PICTURES[tag]).write_bytes(base64.b64decode(png))
            print(PICTURES[tag])
