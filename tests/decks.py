"""Read every deck of build/site/slides/ in Chromium, slide by slide."""

from browser import ROOT
from visit import FACTS, accessible, differs, expected, reported, sound, visitor

SLIDE = """() => {
    const slide = Reveal.getCurrentSlide();
    const boxes = [...slide.children].map(block => block.getBoundingClientRect());
    return {
        bottom: Math.max(slide.scrollHeight, ...boxes.map(box => box.bottom)),
        right: Math.max(slide.scrollWidth, ...boxes.map(box => box.right)),
        empty: !slide.innerText.trim() && !slide.querySelector("img"),
    };
}"""


def read_deck(page) -> list[str]:
    """Go through an open deck to its end; what is wrong with which slide."""
    wrong, n = [], page.evaluate("Reveal.getTotalSlides()")
    for number in range(1, n + 1):
        slide = page.evaluate(SLIDE)
        if slide["empty"] or slide["bottom"] > 720 or slide["right"] > 1280:
            wrong.append(f"slide {number} of {n}: {slide}")
        if page.evaluate("Reveal.isLastSlide()") != (number == n):
            wrong.append(f"slide {number} of {n} is not where it should be")
        page.evaluate("Reveal.next()")
    return wrong


def read_slides(base) -> list[str]:
    """What is wrong with every deck, on a screen of 1280 by 720."""
    problems, heard = [], []
    paths = sorted(ROOT.glob("notebooks/*.ipynb"))
    with visitor(base, heard, viewport={"width": 1280, "height": 720}) as page:
        for path in paths:
            with reported(heard):
                page.goto(f"{base}slides/{path.stem}.html")
                page.wait_for_function("document.body.dataset.ready", timeout=20_000)
                facts, wanted = page.evaluate(FACTS), expected(path)
                wanted = {name: wanted[name] for name in ("alts", "displays")}
                heard += sound(facts) + differs(facts, wanted) + accessible(page)
                if "def solution(" in page.text_content("main"):
                    heard.append("a solution is shown")
                heard += read_deck(page)
            problems += [f"slides/{path.stem}: {words}" for words in heard]
            heard.clear()
    print(f"{len(paths)} decks", flush=True)
    return problems
