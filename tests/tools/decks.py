"""Read every deck of build/site/slides/ in Chromium, slide by slide."""

from io import BytesIO
from pathlib import Path

import numpy as np
from chromium import chromium
from matplotlib.image import imread
from playwright.sync_api import Page
from visit import FACTS, accessible, differs, expected, reported, sound, visitor

ROOT = Path(__file__).resolve().parents[2]
SIDES = ("left", "top", "right", "bottom")
CONTRAST = 77  # of 255 steps between black and white
SIZE = {"width": 1280, "height": 720}
# Whatever a slide shows, by the box in which it lies on the screen.
SLIDE = """() => {
    const slide = Reveal.getCurrentSlide();
    const full = block => block.innerText?.trim() || block.querySelector("img, svg");
    const blocks = [...slide.children].filter(b => !b.matches("aside") && full(b));
    const inside = block => [...block.querySelectorAll("img, pre, mjx-container svg")];
    const shown = [...blocks, ...blocks.flatMap(inside)];
    const box = block => {
        const {left, top, right, bottom} = block.getBoundingClientRect();
        const what = (block.innerText?.trim() || block.outerHTML).slice(0, 30);
        return {what, left, top, right, bottom};
    };
    const prose = slide.cloneNode(true);
    prose.querySelectorAll("aside, pre, mjx-container").forEach(part => part.remove());
    const size = pre => parseFloat(getComputedStyle(pre).fontSize);
    const code = shown.filter(part => part.matches("pre"));
    return {
        scale: Reveal.getScale(),
        boxes: shown.map(box),
        words: prose.textContent.match(/\\S*\\w\\S*/g)?.length ?? 0,
        type: Math.min(...code.map(size), 20),
        pictures: [...slide.querySelectorAll("img")].map(image => Math.max(
            image.naturalWidth * image.height / image.naturalHeight / 1280,
            image.height / 720)),
        notes: slide.querySelector("aside.notes") !== null,
    };
}"""


def unseen(slide: dict, pixels: np.ndarray) -> list[str]:
    """What of a slide is not on the screen, or there in the colour of its ground."""
    wrong = [] if 0.9 < slide["scale"] < 1.1 else [f"scale {slide['scale']}"]
    wrong += [] if slide["boxes"] else ["it is empty"]
    height, width, _ = pixels.shape
    for box in slide["boxes"]:
        left, top, right, bottom = (box[side] for side in SIDES)
        if left < 0 or top < 0 or right > width + 1 or bottom > height + 1:
            wrong.append(f"outside the screen: {box}")
        inside = pixels[int(top) : int(bottom), int(left) : int(right), :3]
        if inside.size == 0 or np.ptp(inside.mean(2)) < CONTRAST:
            wrong.append(f"nothing is seen of {box['what']!r}")
    return wrong


def too_much(slide: dict) -> list[str]:
    """What the back row can't read, or would have to read instead of listening."""
    wrong = []
    if slide["words"] > 40:
        wrong.append(f"{slide['words']} words")
    if slide["type"] < 20:
        wrong.append(f"type of {slide['type']} pixels")
    if min(slide["pictures"], default=1) <= 0.5:
        wrong.append("a small picture")
    if not slide["notes"]:
        wrong.append("no speaker's notes")
    return wrong


def read_deck(page: Page) -> list[str]:
    """Go through an open deck to its end; what is wrong with which slide."""
    wrong = []
    n = page.evaluate("Reveal.getTotalSlides()")
    for number in range(1, n + 1):
        picture = page.screenshot(type="jpeg")  # in half the time that a PNG takes
        pixels = imread(BytesIO(picture), format="jpeg")
        slide = page.evaluate(SLIDE)
        problems = unseen(slide, pixels) + too_much(slide)
        wrong += [f"slide {number} of {n}: {words}" for words in problems]
        if page.evaluate("Reveal.isLastSlide()") != (number == n):
            wrong.append(f"slide {number} of {n} is not where it should be")
        page.evaluate("Reveal.next()")
    return wrong


def read_slides(base: str) -> list[str]:
    """What is wrong with every deck, on a screen of 1280 by 720."""
    problems = []
    heard = []
    paths = sorted(ROOT.glob("notebooks/*.ipynb"))
    with chromium() as browser, visitor(browser, base, heard, viewport=SIZE) as page:
        for path in paths:
            with reported(heard):
                page.goto(f"{base}slides/{path.stem}.html")
                page.wait_for_function("document.body.dataset.ready", timeout=20_000)
                facts = page.evaluate(FACTS)
                chapter = expected(path)
                pictures = {name: chapter[name] for name in ("alts", "displays")}
                heard += sound(facts) + differs(facts, pictures) + accessible(page)
                if "def solution(" in page.text_content("main"):
                    heard.append("a solution is shown")
                heard += read_deck(page)
            problems += [f"slides/{path.stem}: {words}" for words in heard]
            heard.clear()
    print(f"{len(paths)} decks", flush=True)
    return problems
