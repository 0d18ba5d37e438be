"""Chromium, wherever it is installed: for every tool that looks at a page."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = [
    *"chromium chromium-browser google-chrome chrome".split(),
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
]
INSTALL = (
    "Chromium not found: `apt-get install chromium` (Debian, Ubuntu) or "
    "`brew install --cask chromium` (macOS), or set CHROMIUM to its path"
)
FLAGS = (
    "--no-sandbox --disable-dev-shm-usage --disable-gpu "
    "--disable-background-networking --no-first-run"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; exit and say how to install it where there is none."""
    names = CHROMIUM
    if os.environ.get("CHROMIUM"):
        names = [os.environ["CHROMIUM"]]
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        sys.exit(INSTALL)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield browser
        browser.close()
