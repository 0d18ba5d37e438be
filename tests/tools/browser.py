"""Run notebooks as a reader does: `python tests/tools/browser.py [NOTEBOOK ...]`.

JupyterLab runs each from top to bottom in Chromium. Pictures: build/browser/. Without
a name it is all of them, and `make lab` must answer first. With `--seconds N` a run is
left after so long, the cells that ran by then must be in order, and there is but one
picture.
"""

import argparse
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from chromium import chromium
from playwright.sync_api import Browser, Error, Page, TimeoutError

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "browser"
START_SECONDS, RUN_SECONDS = 90, 1200
PRIVATE = (
    "JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTERLAB_SETTINGS_DIR "
    "JUPYTERLAB_WORKSPACES_DIR IPYTHONDIR"
)
NEWS = "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
QUESTION = "@jupyterlab/apputils-extension:notification"
NO_NEWS = '{"fetchNews": "false", "checkForUpdates": false}'

NOTEBOOK = "jupyterapp.shell.currentWidget"
OPENED = "window.jupyterapp?.shell.currentWidget?.context?.isReady"
# Before the kernel has answered, running all cells does nothing, silently.
CONNECTED = f"{NOTEBOOK}.sessionContext.session?.kernel?.info"
RUN = f"""seconds => {{
    const end = how => {{ window.end ??= how; }};
    {NOTEBOOK}.sessionContext.statusChanged.connect((_, status) =>
        /restarting|dead/.test(status) && end('the kernel died'));
    jupyterapp.commands.execute('notebook:run-all-cells').finally(() => end('done'));
    if (seconds) setTimeout(() => end('left'), 1000 * seconds);
}}"""
CELLS = f"{NOTEBOOK}.content.model.sharedModel.toJSON().cells"
TO_TOP = f"panel => {{ {NOTEBOOK}.content.activeCellIndex = 0; panel.scrollTo(0, 0); }}"
# An empty screen follows the last cell.
AT_END = f"""panel => {{
    const last = {NOTEBOOK}.content.widgets.at(-1).node;
    const bottom = node => node.getBoundingClientRect().bottom;
    return (last.isConnected && bottom(last) <= bottom(panel))
        || panel.scrollTop + panel.clientHeight >= panel.scrollHeight - 1;
}}"""
SHUT_DOWN = "() => jupyterapp.serviceManager.sessions.shutdownAll().then(() => true)"


# A proxy set in the environment is not for this machine's own address.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def copy_blank(path: Path, folder: Path) -> None:
    """Copy a notebook without its outputs, so that only those of this run count.

    One exercise is answered in the copy: after all cells have run, the answer must have
    been found right and still be the reader's.
    """
    notebook = json.loads(path.read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        cell.update(outputs=[], execution_count=None)
    tags = [cell["metadata"].get("tags", []) for cell in cells]
    if solved := [i for i, names in enumerate(tags) if "solution" in names]:
        stub = cells[solved[0] - 1]
        solution = cells[solved[0]]
        name = re.search(r"^def (my_\w+)", "".join(stub["source"]), re.M)[1]
        answer = re.sub(r"\bsolution\b", name, "".join(solution["source"]))
        stub["source"] = f"{answer}\nwritten_by_the_reader = {name}"
        last = json.loads(json.dumps(solution)) | {"id": "still-mine"}
        last["source"] = (
            f"assert written_by_the_reader is {name}, 'the answer was overwritten'"
        )
        notebook["cells"].append(last)
    (folder / path.name).write_text(json.dumps(notebook), "utf-8")


def wait_for_server(server: subprocess.Popen, address: str, log: Path) -> None:
    """Return when the server answers; exit with its log if it does not."""
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            return DIRECT.open(address, timeout=5).close()
        time.sleep(0.2)
    sys.exit("JupyterLab did not start:\n" + log.read_text("utf-8", "replace"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def check_make_lab(folder: Path) -> None:
    """Start `make lab` as the README says, and wait until it answers.

    Exits where it doesn't, or where JupyterLab would ask its question about news.
    """
    port = free_port()
    token = secrets.token_hex(16)
    log = folder / "lab"
    settings = {"JUPYTER_PORT": str(port), "JUPYTER_TOKEN": token, "BROWSER": "true"}
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["make", "lab"],
            cwd=ROOT,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        started = time.monotonic()
        address = f"http://127.0.0.1:{port}/api/status?token={token}"
        wait_for_server(server, address, log)
        print(f"make lab: answers after {time.monotonic() - started:.1f} s", flush=True)
        settings = f"http://127.0.0.1:{port}/lab/api/settings/{QUESTION}?token={token}"
        with DIRECT.open(settings) as answer:
            asked = json.load(answer)["schema"]["properties"]["fetchNews"]["default"]
        if asked != "false":
            sys.exit("JupyterLab will ask about its news, over the first picture")
    finally:
        if hasattr(os, "killpg"):
            os.killpg(server.pid, signal.SIGTERM)  # `make` and what it has started
        server.terminate()
        server.wait(20)


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """Serve folder/notebooks; yield the address, with {} for a notebook's name."""
    private = {name: str(folder / name) for name in PRIVATE.split()}
    news = folder / "JUPYTERLAB_SETTINGS_DIR" / NEWS
    news.parent.mkdir(parents=True)
    news.write_text(NO_NEWS)
    port = free_port()
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    command += ["--expose-app-in-browser"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command += ["--allow-root"]
    log = folder / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=folder / "notebooks",
            env=os.environ | private,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for this script, which ends the server
        )
    try:
        base = f"http://127.0.0.1:{port}"
        wait_for_server(server, f"{base}/api/status?token={token}", log)
        yield f"{base}/lab/tree/{{}}?reset&token={token}"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def wait(page: Page, seconds: float, condition: str, complaint: str) -> None:
    """Wait until a condition holds in the page; raise the complaint if it doesn't."""
    try:
        page.wait_for_function(condition, timeout=1000 * seconds, polling=200)
    except TimeoutError:
        raise Error(f"{complaint} within {seconds} s") from None


def photograph(page: Page, name: str, n_screens: int) -> None:
    """Save the notebook, a screen at a time: NAME-01.png, NAME-02.png, ..."""
    panel = page.locator(".jp-NotebookPanel .jp-WindowedPanel-outer")
    panel.evaluate(TO_TOP)
    for number in range(1, n_screens + 1):
        page.wait_for_timeout(400)  # a cell is drawn only when it comes into view
        page.screenshot(path=PICTURES / f"{name}-{number:02}.png")
        if panel.evaluate(AT_END):
            break
        panel.evaluate("panel => panel.scrollBy(0, panel.clientHeight - 60)")


def judge(cells: list[dict], end: str) -> tuple[int, list[str]]:
    """Return how many code cells ran, and what went wrong in which.

    `end` is how the run ended; of one that was left it is enough that some cells ran.
    """
    code = [c for c in cells if c["cell_type"] == "code" and c["source"].strip()]
    skipped = []
    problems = []
    for number, cell in enumerate(code, 1):
        place = f"cell [{number}] `{cell['source'].strip().splitlines()[0]}`"
        if cell["execution_count"] is None:
            skipped.append(place)
        errors = [o for o in cell["outputs"] if o["output_type"] == "error"]
        if errors and "raises-exception" not in cell["metadata"].get("tags", []):
            reason = "".join(errors[0]["evalue"].strip().splitlines()[:1])
            problems.append(f"{place}: {errors[0]['ename']}: {reason}")
    if skipped and (end != "left" or len(skipped) == len(code)):
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        problems.append(f"{skipped[0]}{more} did not run")
    return len(code) - len(skipped), problems


def check(browser: Browser, address: str, path: Path, seconds: float | None) -> bool:
    """Run one notebook, print its line, and return whether it is in order.

    Where `seconds` isn't None, the run is left after so long.
    """
    name = path.stem
    for old in PICTURES.glob(f"{name}-[0-9][0-9].png"):
        old.unlink()
    started = time.monotonic()
    n_run = 0
    problems = []
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
    try:
        where = address.format(urllib.parse.quote(path.name))
        page.goto(where, timeout=1000 * START_SECONDS)
        wait(page, START_SECONDS, OPENED, "the notebook did not open")
        wait(page, START_SECONDS, CONNECTED, "the kernel did not answer")
        page.evaluate(RUN, seconds)
        try:
            wait(page, RUN_SECONDS, "window.end", "the run did not end")
        finally:
            end = page.evaluate("window.end")
            n_run, wrong = judge(page.evaluate(CELLS), end)
            problems += wrong
        problems += [] if end in ("done", "left") else [end]
        with suppress(Error):  # a kernel that runs on would slow down the other chapter
            wait(page, 30, SHUT_DOWN, "the kernel did not stop")
        photograph(page, name, n_screens=100 if seconds is None else 1)
    except Error as error:
        problems.append(error.message.splitlines()[0])
        with suppress(Error):
            page.screenshot(path=PICTURES / f"{name}-01.png")
    verdict = " ".join("; ".join(problems).split()) or "ok"
    took = time.monotonic() - started
    print(f"{name}: {n_run} code cells, {took:.1f} s, {verdict}", flush=True)
    page.close()
    return verdict == "ok"


def check_some(paths: list[Path], seconds: float | None) -> bool:
    """`check` one after the other, in one browser; return whether all are in order."""
    # Being terminated must unwind the stack too, or the server would live on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copies = Path(folder, "notebooks")
        copies.mkdir()
        for path in paths:
            copy_blank(path, copies)
        with jupyterlab(Path(folder)) as address, chromium() as browser:
            good = [check(browser, address, path, seconds) for path in paths]
    return all(good)


def main(arguments: list[str]) -> int:
    """Check the notebooks named, or all of the course; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted(ROOT.glob("notebooks/*.ipynb"))
    missing = [str(path) for path in paths if not path.is_file()]
    if missing or not paths:
        sys.exit(f"no such notebook: {' '.join(missing) or 'notebooks/*.ipynb'}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    if not options.notebooks:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            check_make_lab(Path(folder))
    # Two at a time; early and late chapters are in each half.
    act = partial(check_some, seconds=options.seconds)
    halves = [half for half in (paths[::2], paths[1::2]) if half]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        good = [*pool.map(act, halves)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
