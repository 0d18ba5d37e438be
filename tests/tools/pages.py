"""Visit every page of the site and every slide, as readers see them: `make pages`.

In Chromium, from this machine's own address; what is asked from elsewhere is refused
and reported. With `REPOSITORY=owner/name` the launch buttons are built and tested too.
"""

import functools
import http.server
import os
import re
import sys
import threading
import time
import urllib.parse
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from chromium import chromium
from decks import read_slides
from playwright.sync_api import Error, Page
from visit import FACTS, READY, accessible, differs, expected, reported, sound, visitor

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
# Many pages of two kinds, each kind alike but for the code; one of each stands for all.
ALIKE = ("_modules/", "reference/")
WITH_CODE = (
    "notebooks/01_attention.html",
    "_modules/companion/model/attention.html",
    "reference/companion.model.attention.html",
)
SCREEN = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 800}
REPOSITORY = os.environ.get("REPOSITORY", "")
LAUNCHES = (
    "https://mybinder.org/v2/gh/{}/main?urlpath=lab/tree/notebooks/{}.ipynb",
    "https://colab.research.google.com/github/{}/blob/main/notebooks/{}.ipynb",
)


def stands_alone(name: str) -> bool:
    """Whether a page is looked at with axe, and in the dark."""
    return not name.startswith(ALIKE) or name in WITH_CODE


def launches(name: str, links: list[str]) -> list[str]:
    """The launch buttons lead to this chapter, or are not there."""
    wanted = {link.format(REPOSITORY, name) for link in LAUNCHES if REPOSITORY}
    hosts = r"https://(mybinder|colab)\."
    found = {urllib.parse.unquote(link) for link in links if re.match(hosts, link)}
    return [] if found == wanted else [f"launch: {sorted(found)}"]


def dead_links(base: str, pages: dict[str, dict]) -> list[str]:
    """The links that lead nowhere, of all pages' links and anchors."""
    found = []
    for name, facts in pages.items():
        for link in {*facts["links"]}:
            inside, _, rest = link.partition(base)
            path, _, anchor = urllib.parse.unquote(rest).partition("#")
            if inside:
                good = re.match(r"https://[\w.-]+\.\w+(/|$)", link)
            elif path in pages:
                good = not anchor or anchor in pages[path]["ids"]
            else:
                good = (SITE / path).is_file() and not anchor
            if not good:
                found.append(f"{name}: dead link {link}")
    return found


def search(page: Page, base: str) -> list[str]:
    """The search finds a chapter by a word of its prose."""
    page.goto(f"{base}search.html?q=equivariant")
    found = page.locator("#search-results li a")
    with suppress(Error):
        found.first.wait_for(timeout=10_000)
    titles = found.all_inner_texts()
    return [] if "01 · Attention" in titles else [f"the search found {titles}"]


def too_wide(page: Page) -> list[str]:
    """A telephone's reader never scrolls sideways."""
    page.set_viewport_size(PHONE)
    wide = page.evaluate(FACTS)["wide"]
    page.set_viewport_size(SCREEN)
    if wide <= 0:
        return []
    return [f"{wide} pixels wider than a screen of {PHONE['width']}"]


PRINT = """() => {
    const theme = () => document.documentElement.dataset.theme;
    dispatchEvent(new Event("beforeprint"));
    const printed = theme();
    dispatchEvent(new Event("afterprint"));
    return [printed, theme()];
}"""


def prints(page: Page, scheme: str) -> list[str]:
    """Paper is white; afterwards the screen is as it was."""
    found = page.evaluate(PRINT)
    return [] if found == ["light", scheme] else [f"printed, and then: {found}"]


def read_page(page: Page, name: str, scheme: str) -> tuple[dict, list[str]]:
    """An open page's facts, and what is wrong with it; in dark only what differs."""
    page.evaluate(READY)
    facts = page.evaluate(FACTS)
    rules = ["color-contrast"] if scheme == "dark" else None
    wrong = differs(facts, {"theme": scheme}) + prints(page, scheme)
    if stands_alone(name):
        wrong += accessible(page, rules, code=name in WITH_CODE)
    if scheme == "light":
        wrong += sound(facts) + too_wide(page)
    path = ROOT / Path(name).with_suffix(".ipynb")
    if path.is_file():
        wrong += differs(facts, expected(path)) + launches(path.stem, facts["links"])
    return facts, wrong


def read_site(base: str, scheme: str) -> list[str]:
    """What is wrong with every page, or in dark with those that stand alone."""
    heard = []
    pages = {}
    names = [path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")]
    apart = ("_static/", "slides/", "explore.html")  # read by other tools
    names = [name for name in names if not name.startswith(apart)]
    problems = [f"{name} is not there" for name in {*WITH_CODE} - {*names}]
    if scheme == "dark":
        names = [name for name in names if stands_alone(name)]
    with (
        chromium() as browser,
        visitor(browser, base, heard, color_scheme=scheme, viewport=SCREEN) as page,
    ):
        for name in sorted(names):
            with reported(heard):
                page.goto(base + name)
                pages[name], wrong = read_page(page, name, scheme)
                heard += wrong
            problems += [f"{name}, {scheme}: {words}" for words in heard]
            heard.clear()
        if scheme == "light":
            with reported(heard):
                problems += dead_links(base, pages) + search(page, base)
            problems += heard
    print(f"{len(pages)} pages, {scheme}", flush=True)
    return problems


class Files(http.server.SimpleHTTPRequestHandler):
    """The site's files, without a line for each."""

    def log_message(self, *_):
        pass


def main() -> int:
    """Serve the site, read all of it in two processes, and say what is wrong."""
    started = time.monotonic()
    files = functools.partial(Files, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}/"
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            readers = [
                pool.submit(read_site, base, "light"),
                pool.submit(read_site, base, "dark"),
                pool.submit(read_slides, base),
            ]
            problems = [words for reader in readers for words in reader.result()]
        server.shutdown()
    print(*problems, sep="\n", end="\n" * bool(problems))
    print(f"{len(problems)} problems, {time.monotonic() - started:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
