"""Fixtures of the page's tests: a server for each file, and one browser for the file that drives one.

Knows how they are started and how long they live. The browser is installed where no test's time limit runs. A test
fails if its page said anything on the console that it did not expect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from emubus.testing import EmubusServer

from .prepare import PrepareError, prepare

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
WAIT_MS = 240_000  # the machine may be busy with other tests: a page that takes 0.8 s alone took more than 60
STORES = 16
_failures: list[PrepareError] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the browser if a selected test needs it."""
    if session.config.option.collectonly:
        return  # no test is run
    if any("browser" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            prepare()
        except PrepareError as error:
            _failures.append(error)


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    """A server that keeps everything in memory, with a clock that goes."""
    with EmubusServer() as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the entity of this test."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One headless Chromium."""
    if _failures:
        raise _failures[0]
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=prepare(), args=FLAGS)
        yield running
        running.close()


@dataclass
class Tab:
    """Pages of the test's server; `expected` are patterns of what the console may say."""

    server: EmubusServer
    browser: Browser
    expected: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def open(self, path: str = "/", **options: object) -> Page:
        """A new window, with the page at `path`."""
        context = self.browser.new_context(base_url=f"http://localhost:{self.server.http_port}", **options)  # type: ignore[arg-type]
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self._hear("error", str(error)))
        page.on("dialog", lambda dialog: self._hear("error", f"dialog: {dialog.message}"))
        page.goto(path)
        return page

    def _hear(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not any(re.search(each, text) for each in self.expected):
            self.said.append(text)


@pytest.fixture
def tab(server: EmubusServer, browser: Browser) -> Iterator[Tab]:
    """Opens pages; whatever the console says unexpectedly fails the test."""
    opened = Tab(server, browser)
    yield opened
    for context in opened.contexts:
        context.close()
    server.end_outage(range(STORES))
    server.call(server.clock.thaw)
    assert opened.said == []
