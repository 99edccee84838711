"""A page of another origin in a browser: what it may do as a client of the service, and what stays closed to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page

from emubus.testing import EmubusServer

from ..http.administering import entry
from .conftest import Tab

ASK = """async ([method, url, body, token]) => {
    const headers = {"Content-Type": "application/atom+xml", Color: '"red"'};
    if (token) headers.Authorization = "SharedAccessSignature sr=x&sig=y&se=1&skn=z";
    try {
        const answer = await fetch(url, {method, headers, body: body || undefined});
        return {status: answer.status, text: await answer.text(), properties: answer.headers.get("BrokerProperties"),
                color: answer.headers.get("Color")};
    } catch (error) { return {status: 0, text: String(error), properties: null}; }
}"""


class _Nothing(BaseHTTPRequestHandler):
    """An empty page at every path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
        """Say nothing."""


@pytest.fixture
def other_origin() -> Iterator[str]:
    """The origin of a page of the developer's own, on this machine."""
    server = HTTPServer(("127.0.0.1", 0), _Nothing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def page(tab: Tab, other_origin: str) -> Page:
    tab.expected += ["CORS", "Failed to load resource"]
    return tab.open(f"{other_origin}/")


def test_a_page_of_another_origin_is_a_client_of_rest_and_of_management(
    page: Page, server: EmubusServer, name: str
) -> None:
    base = f"http://127.0.0.1:{server.http_port}"

    def ask(method: str, path: str, body: str = "", *, token: bool = True) -> dict[str, Any]:
        answer: dict[str, Any] = page.evaluate(ASK, [method, f"{base}/{path}", body, token])
        return answer

    made = ask("PUT", f"{name}?api-version=2021-05", entry("<QueueDescription/>"))
    assert (made["status"], f">{name}<" in made["text"]) == (201, True)
    assert ask("POST", f"{name}/messages/?timeout=60", "hello")["status"] == 201
    got = ask("DELETE", f"{name}/messages/head/?timeout=60")
    assert (got["status"], got["text"], got["color"]) == (200, "hello", '"red"')
    assert '"SequenceNumber":' in got["properties"]
    assert ask("DELETE", f"{name}-none")["status"] == 404
    for method, path in (("GET", "emubus/v1/entities"), ("POST", "emubus/v1/reset"), ("POST", "emubus/page/purge")):
        assert ask(method, path, "" if method == "GET" else "{}")["status"] == 0
    assert ask("DELETE", name, token=False)["status"] in (0, 403)
    assert ask("GET", f"{name}?api-version=2021-05")["status"] == 200
    assert ask("DELETE", name)["status"] == 200
