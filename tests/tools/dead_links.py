"""Ask every external link of the notebooks and pages whether it still leads somewhere.

`python tests/tools/dead_links.py` needs the network and nothing but Python. The
workflow `weekly.yml` runs it; no test does, since a test must pass without a network.
"""

import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What stands in code is there to be typed, with a name of one's own in it.
CODE = re.compile(r"```.*?```|`[^`]*`", re.S)
ADDRESS = re.compile(r"""https?://[^\s<>"')\]]+""")
# The server is there, and shows the page to people only.
FOR_PEOPLE = (401, 403, 405, 406, 418, 429)
# Seconds: for an answer, before a second try, and from one question to the next.
TIMEOUT, PATIENCE, PAUSE = 30, 10, 1


def addresses(text: str) -> list[str]:
    """The external links of a text in Markdown, each once."""
    found = ADDRESS.findall(CODE.sub("", text))
    return sorted({address.rstrip(".,;:") for address in found})


def prose(path: Path) -> str:
    """What a page, or a notebook in its cells of Markdown, says."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    told = ["".join(x["source"]) for x in cells if x["cell_type"] == "markdown"]
    return "\n\n".join(told)


def collected() -> dict[str, list[str]]:
    """Every external link, and the files that have it."""
    places = defaultdict(list)
    patterns = ("*.md", "docs/*.md", "notebooks/*.ipynb")
    for path in (path for pattern in patterns for path in sorted(ROOT.glob(pattern))):
        for address in addresses(prose(path)):
            places[address].append(path.relative_to(ROOT).as_posix())
    return dict(places)


def fault(address: str) -> str:
    """What is wrong with a link; "" if a server shows it, at least to people."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT):
            return ""
    except urllib.error.HTTPError as error:
        return "" if error.code in FOR_PEOPLE else f"{error.code} {error.reason}"
    except OSError as error:
        return str(error)


def main() -> None:
    places = collected()
    bad = 0
    for address, files in places.items():
        wrong = fault(address)
        if wrong:
            time.sleep(PATIENCE)
            wrong = fault(address)
        if wrong:
            print(f"{address}: {wrong}, in {', '.join(files)}", flush=True)
            bad += 1
        time.sleep(PAUSE)
    print(f"{len(places) - bad} of {len(places)} links lead somewhere")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
