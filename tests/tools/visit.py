"""A reader in Chromium: a page, what is wrong with it, and what it should hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from cells import pictures, prose, read, tags
from playwright.sync_api import Browser, Error, Page

# What axe finds in the theme's, Sphinx's and reveal.js's parts: rule and tag.
KNOWN = {
    "region": 'class="sidebar-primary-item"',  # the site's title is in no landmark
    "summary-name": "<summary>",  # the arrow that unfolds the reference has no name
    "definition-list": "<dl>",  # a signature that takes several lines
    "aria-hidden-focus": "<section",  # reveal.js draws the slides next to the shown one
}
READY = "() => window.MathJax?.startup?.promise.then(() => true) ?? true"
FACTS = r"""() => {
    const root = document.documentElement;
    const all = (what, say) => [...document.querySelectorAll(what)].map(say);
    const words = document.body.cloneNode(true);
    const others = words.querySelectorAll("pre, code, mjx-container, script, style");
    others.forEach(element => element.remove());
    return {
        links: all("a[href]", a => a.href),
        ids: all("[id]", element => element.id),
        alts: all("article img, .slides img", image => image.alt),
        blank: all("img", image => image.naturalWidth).filter(width => !width).length,
        math: all("mjx-container", () => 1).length,
        displays: all("mjx-container[display=true]", () => 1).length,
        unset: all(".math:not(:has(mjx-container))", () => 1).length,
        wrong: all("[data-mml-node=merror]", () => 1).length,
        raw: words.textContent.match(
            /\\[a-z]+|\$[^$\n]+\$|Author name not set/)?.[0] ?? "",
        wide: root.scrollWidth - root.clientWidth,
        theme: root.dataset.theme,
        folded: all(".tag_hide-input details pre", code => code.checkVisibility())
            .filter(seen => !seen).length,
        solutions: all(".tag_solution details:not([open])", () => 1).length,
    };
}"""


@contextmanager
def visitor(
    browser: Browser, base: str, heard: list[str], **settings: object
) -> Iterator[Page]:
    """A page whose errors, and whose requests to elsewhere, are added to `heard`."""

    def only_here(route):
        if route.request.url.startswith(base):
            return route.continue_()
        heard.append(f"asks for {route.request.url}")
        return route.abort()

    context = browser.new_context(reduced_motion="reduce", **settings)
    context.route("**/*", only_here)
    page = context.new_page()
    page.on(
        "console",
        lambda m: m.type == "error" and heard.append(f"{m.text} {m.location}"),
    )
    page.on("pageerror", lambda error: heard.append(f"page error: {error}"))
    try:
        yield page
    finally:
        context.close()


@contextmanager
def reported(heard: list[str]) -> Iterator[None]:
    """What does not come in time, or can't be asked, is heard too."""
    try:
        yield
    except Error as error:
        heard.append(error.message.splitlines()[0])


def accessible(
    page: Page, rules: list[str] | None = None, code: bool = False
) -> list[str]:
    """What axe finds, but for what is known.

    Code and formulas take most of its time and look alike on every page: `code` says
    whether they count too.
    """
    options = {"resultTypes": ["violations"], "preload": False}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    context = None if code else {"exclude": [["pre"], ["mjx-container"]]}
    found = Axe().run(page, context, options).response["violations"]
    return [
        f"axe: {violation['id']}: {node['html'][:200]}"
        for violation in found
        for node in violation["nodes"]
        if KNOWN.get(violation["id"], "\n") not in node["html"]
    ]


def expected(path: Path) -> dict:
    """What a chapter's notebook says must be in its page."""
    cells = read(path).cells
    outputs = [output for cell in cells for output in pictures(cell)]
    return {
        "alts": [output.metadata["image/png"]["alt"] for output in outputs],
        "displays": prose(path).count("$$") // 2,
        "folded": sum("hide-input" in tags(cell) for cell in cells),
        "solutions": sum("solution" in tags(cell) for cell in cells),
    }


def sound(facts: dict) -> list[str]:
    """What is wrong in any page or deck, by its facts."""
    zero = {name: facts[name] for name in ("blank", "unset", "wrong", "raw", "wide")}
    wrong = [f"{name}: {value}" for name, value in zero.items() if value]
    if "" in facts["alts"]:
        wrong.append("a picture without words")
    return wrong


def differs(facts: dict, wanted: dict) -> list[str]:
    """In which of the wanted facts a page differs."""
    return [
        f"{name}: {facts[name]}, not {value}"
        for name, value in wanted.items()
        if facts[name] != value
    ]
