"""Where things are on the page, for the tests that look at it."""

from __future__ import annotations

from urllib.parse import quote

from playwright.sync_api import Locator, Page

PAGE = "/emubus/page"
REFUSED = [r"Failed to load resource: .* status of 4\d\d"]
"""What the browser says on its console when a page or a form is refused."""


def at(view: str, path: str, more: str = "") -> str:
    """The address of a view of an entity."""
    return f"{PAGE}/{view}?path={quote(path, safe='')}{more}"


def row_of(page: Page, name: str) -> str:
    """The figures of an entity in the table: active, locked, later, dead."""
    row = page.locator("tr", has=page.get_by_role("link", name=name, exact=True))
    return " ".join(row.locator("td.n").all_inner_texts()[:4])


def figure(page: Page, label: str) -> Locator:
    """A figure at the top of an entity's page."""
    return page.locator("dl.figures div", has=page.get_by_text(label, exact=True)).locator("dd")
