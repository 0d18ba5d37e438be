"""The weekly look at external links finds them, and tells a page from none."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dead_links
import pytest


def test_a_link_is_found_and_what_is_to_be_typed_is_not():
    text = """See [one](https://example.org/one), <https://example.org/two> and
    https://example.org/three. Type `https://HUB/four` or
    ```bash
    git clone https://example.org/five
    ```
    and <a href="https://example.org/six">six</a>, once more https://example.org/one"""
    names = [x.removeprefix("https://example.org/") for x in dead_links.addresses(text)]
    assert names == ["one", "six", "three", "two"]


def test_links_of_pages_and_notebooks_are_collected_with_their_places():
    places = dead_links.collected()
    assert places["https://nbgrader.readthedocs.io"] == ["docs/teaching.md"]
    attention = places["https://arxiv.org/abs/1706.03762"]
    assert "notebooks/01_attention.ipynb" in attention
    assert not any("OWNER" in address for address in places)


class Handler(BaseHTTPRequestHandler):
    """Answers with the status that the path names."""

    def do_GET(self):
        self.send_response(int(self.path[1:]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_page_that_is_gone_is_a_fault_and_one_for_people_is_none(server):
    assert dead_links.fault(f"{server}/200") == dead_links.fault(f"{server}/403") == ""
    assert dead_links.fault(f"{server}/404") == "404 Not Found"
    assert dead_links.fault(f"{server}/500").startswith("500")


def test_a_server_that_is_gone_is_a_fault(server):
    port = int(server.rpartition(":")[2])
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        closed = other.server_port
    assert closed != port and dead_links.fault(f"http://127.0.0.1:{closed}/200")
