"""Take the README's pictures from the stored outputs of chapter 05, by cell tag."""

import base64
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
PICTURES = {"readme-curve": "curve.png", "readme-head": "head.png"}

if __name__ == "__main__":
    notebook = nbformat.read(ROOT / "notebooks" / "05_training.ipynb", as_version=4)
    for cell in notebook.cells:
        for tag in PICTURES.keys() & set(cell.metadata.get("tags", [])):
            png = next(o.data["image/png"] for o in cell.outputs if "data" in o)
            (ROOT / ".github" / PICTURES[tag]).write_bytes(base64.b64decode(png))
            print(PICTURES[tag])
