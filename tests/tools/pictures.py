"""Take the README's picture: three parts of the page of chapter 05's model."""

import io
import tempfile
from pathlib import Path

from chromium import chromium
from PIL import Image

from companion import CharTokenizer, explore
from companion.course.runs import trained
from companion.text.shakespeare import tiny_shakespeare

ROOT = Path(__file__).resolve().parents[2]
# The text, the next token, and beside them every head; the rest is left out.
PARTS = """
section:not(:has(#box, #heads, #line)), #tour, #again {display: none}
body {max-width: none; padding-bottom: 0}
main {display: grid; grid-template-columns: 8fr 7fr; grid-auto-flow: dense; gap: 0 2rem}
h1, #about {grid-column: 1 / 3}
section:has(#heads) {grid-column: 2; grid-row: 3 / 5}
section {padding-bottom: 0.6rem}
"""


def main() -> None:
    """Write .github/explore.png, in 64 colours."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "explore.html"
        explore(trained(), CharTokenizer(tiny_shakespeare()), path=path)
        page = browser.new_page(viewport={"width": 1400, "height": 700})
        page.goto(path.as_uri())
        page.add_style_tag(content=PARTS)
        page.locator("#heads button").nth(5).click()  # the second head of block 2
        page.mouse.move(0, 0)
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    small = picture.convert("RGB").quantize(64)
    small.save(ROOT / ".github" / "explore.png", optimize=True)


if __name__ == "__main__":
    main()
